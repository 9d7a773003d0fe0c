//! A hub, its clients and its core, the latter two moved by hand.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use presence_model::change::Removal;
use presence_model::claim::{Action, Claims, TokenRefusal};
use presence_model::class::RoomTimings;
use presence_model::delta::Delta;
use presence_model::digest::Digest;
use presence_model::id::{ConnectionId, EdgeName, Generation, Incarnation, RegionId, RoomId, UserId};
use presence_model::lease::{LeaseId, Shard};
use presence_model::link::{GrantDown, JoinUp, LinkDown, LinkRefusal, LinkUp, RequestId, Welcome};
use presence_model::position::{Epoch, Position, Revision};
use presence_model::profile::{Member, State, Status};
use presence_model::reason::RemovalReason;
use presence_model::record::TokenRef;
use presence_model::replica::{Freshness, SnapshotPage};
use presence_model::time::{Mono, StoreTime};
use presence_model::timing::{Timings, TimingsGiven};
use presence_model::view::RegionEvent;
use presence_model::watch::{OpenRoom, WatchDown, WatchUp};
use serde_json::Value;

use crate::hub::{ConnEnd, ConnKey, CoreAddress, Effect, Hub, HubSettings, Input, Unreadable};
use crate::protocol::{ClientMessage, CloseCode, Encoding, json};

/// The store's clock is this far ahead of the hub's.
pub(super) const STORE_START_MS: u64 = 1_790_000_000_000;
/// Rooms of more members are numbers.
pub(super) const LIST_MEMBERS: usize = 5_000;
pub(super) const EPOCH: Epoch = Epoch { minted_ms: 1, random: 1 };

pub(super) fn room(name: &str) -> RoomId {
    RoomId::new(name).unwrap()
}

pub(super) fn region() -> RegionId {
    RegionId::new("eu").unwrap()
}

pub(super) fn lease(n: u64) -> LeaseId {
    LeaseId::mint(Duration::from_secs(45), Shard(0), n)
}

pub(super) fn member(user: &str) -> Member {
    Member {
        user: UserId::new(user).unwrap(),
        status: Status::Available,
        state: State::default(),
        since: StoreTime(STORE_START_MS),
    }
}

/// What one client has been sent and not looked at yet, and whether its socket takes more.
#[derive(Default)]
pub(super) struct Client {
    pub(super) frames: Vec<Bytes>,
    pub(super) pings: usize,
    pub(super) closed: Option<CloseCode>,
    /// Does not read: writes stay unfinished.
    pub(super) stalled: bool,
    unwritten: bool,
}

pub(super) struct World {
    pub(super) hub: Hub,
    pub(super) now: Mono,
    pub(super) clients: BTreeMap<ConnKey, Client>,
    /// Said over the link and not looked at yet.
    pub(super) up: Vec<LinkUp>,
    /// Said over the watch and not looked at yet.
    pub(super) watched: Vec<WatchUp>,
    pub(super) links: Vec<u64>,
    pub(super) linked_to: Vec<CoreAddress>,
    pub(super) watches_opened: usize,
    pub(super) links_dropped: usize,
    /// A link, or a watch, was asked for and did not come up yet.
    pub(super) wanted: (bool, bool),
    pub(super) drained: bool,
    pub(super) told_to_go: usize,
    pub(super) token_refusals: Vec<TokenRefusal>,
    /// Whether a core answers beats.
    pub(super) core_beats: bool,
    /// What a core welcomes with.
    pub(super) core: Timings,
    accepted: Option<ConnKey>,
    connections: u64,
    revision: u64,
    members: BTreeMap<UserId, Member>,
}

pub(super) fn core_address(name: &str) -> CoreAddress {
    CoreAddress { url: format!("http://{name}:1").into(), address: None }
}

pub(super) fn timings() -> Timings {
    Timings::derive(TimingsGiven::default()).unwrap()
}

impl World {
    /// A hub that is not linked, and knows one core.
    pub(super) fn new() -> Self {
        Self::among(&["a"])
    }

    /// A hub that is not linked, and knows these cores.
    pub(super) fn among(cores: &[&str]) -> Self {
        let settings = HubSettings {
            edge: EdgeName::new("edge-1").unwrap(),
            incarnation: Incarnation(1),
            region: region(),
            timings: timings(),
            cores: cores.iter().map(|name| core_address(name)).collect(),
            list_members: LIST_MEMBERS,
            seed: 7,
        };
        Self {
            hub: Hub::new(settings),
            now: Mono::from_millis(1_000),
            clients: BTreeMap::new(),
            up: Vec::new(),
            watched: Vec::new(),
            links: Vec::new(),
            linked_to: Vec::new(),
            watches_opened: 0,
            links_dropped: 0,
            wanted: (false, false),
            drained: false,
            told_to_go: 0,
            token_refusals: Vec::new(),
            core_beats: true,
            core: timings(),
            accepted: None,
            connections: 0,
            revision: 0,
            members: BTreeMap::new(),
        }
    }

    /// A hub with link and watch up.
    pub(super) fn linked() -> Self {
        let mut world = Self::new();
        world.give(Input::Tick);
        world.link();
        world
    }

    /// The link that was asked for comes up, and the watch with it.
    pub(super) fn link(&mut self) {
        self.wanted.0 = false;
        self.give(Input::LinkUp);
        let t = self.core;
        self.down(LinkDown::Welcome(Welcome {
            heartbeat: t.heartbeat,
            lease_ttl: t.lease_ttl,
            grace: t.grace,
            heartbeat_min: t.heartbeat_min,
            link_beat: t.link_beat,
            edge_lost: t.edge_lost,
            store_time: self.store_time(),
            core: "core-1".into(),
            release: "0".into(),
        }));
        self.watch_up();
    }

    /// The watch that was asked for comes up.
    pub(super) fn watch_up(&mut self) {
        self.wanted.1 = false;
        self.give(Input::WatchUp);
    }

    pub(super) fn store_time(&self) -> StoreTime {
        StoreTime(STORE_START_MS) + self.now.0
    }

    pub(super) fn give(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.hub.handle(input, self.now, &mut effects);
        for effect in effects {
            self.carry_out(effect);
        }
        self.write();
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Accepted(_, key) => {
                self.clients.insert(key, Client::default());
                self.accepted = Some(key);
            }
            Effect::Send(key, frames) => {
                let client = self.clients.get_mut(&key).expect("only the living are sent to");
                client.frames.extend(frames);
                client.unwritten = true;
            }
            Effect::Ping(key) => self.clients.get_mut(&key).unwrap().pings += 1,
            Effect::Close(key, code, _) => {
                let client = self.clients.get_mut(&key).unwrap();
                assert_eq!(client.closed.replace(code), None);
            }
            Effect::OpenLink(core, hello) => {
                self.linked_to.push(core);
                self.links.push(hello.link.0);
                self.wanted.0 = true;
            }
            Effect::Link(up) => self.up.push(up),
            Effect::DropLink => {
                self.links_dropped += 1;
                self.wanted.0 = false;
            }
            Effect::OpenWatch => {
                self.watches_opened += 1;
                self.wanted.1 = true;
            }
            Effect::Watch(up) => self.watched.push(up),
            Effect::DropWatch => self.wanted.1 = false,
            Effect::TokenRefused(_, refusal) => self.token_refusals.push(refusal),
            Effect::Go => self.told_to_go += 1,
            Effect::Drained => self.drained = true,
        }
    }

    /// A socket reports once that all was written, and takes no more.
    pub(super) fn write_once(&mut self, key: ConnKey) {
        let mut effects = Vec::new();
        self.clients.get_mut(&key).unwrap().stalled = true;
        self.hub.handle(Input::Written(key), self.now, &mut effects);
        effects.into_iter().for_each(|effect| self.carry_out(effect));
    }

    /// Sockets that take more report what was written.
    pub(super) fn write(&mut self) {
        while let Some(key) = self
            .clients
            .iter()
            .find(|(_, client)| client.unwritten && !client.stalled && client.closed.is_none())
            .map(|(key, _)| *key)
        {
            self.clients.get_mut(&key).unwrap().unwritten = false;
            let mut effects = Vec::new();
            self.hub.handle(Input::Written(key), self.now, &mut effects);
            effects.into_iter().for_each(|effect| self.carry_out(effect));
        }
    }

    pub(super) fn down(&mut self, down: LinkDown) {
        self.give(Input::Link(down));
    }

    /// Lets time pass, tick by tick; a core beats if it does.
    pub(super) fn pass(&mut self, span: Duration) {
        let until = self.now + span;
        while let Some(due) = self.hub.poll_timeout().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.give(Input::Tick);
            if self.core_beats && self.up.iter().any(|up| matches!(up, LinkUp::Beat { .. })) {
                self.up.retain(|up| !matches!(up, LinkUp::Beat { .. }));
                let store_time = self.store_time();
                self.down(LinkDown::Beat { sequence: 0, store_time, store_reachable: true });
                self.give(Input::Watch(WatchDown::Progress { sequence: 0, store_time }));
            }
        }
        self.now = until;
    }

    pub(super) fn pass_ms(&mut self, ms: u64) {
        self.pass(Duration::from_millis(ms));
    }

    /// All clients that live answer pings during this time.
    pub(super) fn live_ms(&mut self, ms: u64, clients: &[ConnKey]) {
        let until = self.now + Duration::from_millis(ms);
        while self.now < until {
            self.pass((until.since(self.now)).min(Duration::from_millis(50)));
            for key in clients {
                if std::mem::take(&mut self.clients.get_mut(key).unwrap().pings) > 0 {
                    self.give(Input::Heard(*key));
                }
            }
        }
    }

    pub(super) fn accept(&mut self) -> ConnKey {
        self.accept_in(Encoding::Json)
    }

    pub(super) fn accept_in(&mut self, encoding: Encoding) -> ConnKey {
        self.connections += 1;
        self.give(Input::Accept(ConnectionId(self.connections), encoding));
        self.accepted.take().unwrap()
    }

    /// A client says this, with a token for that user that ends in an hour.
    pub(super) fn say(&mut self, key: ConnKey, user: &str, text: &str) {
        self.say_until(key, user, text, 3_600_000);
    }

    pub(super) fn say_until(&mut self, key: ConnKey, user: &str, text: &str, token_ms: u64) {
        let token_ends = self.store_time() + Duration::from_millis(token_ms);
        match json::parse(text) {
            Ok(message) => {
                let claims = claims_of(&message, user, token_ends).map(Ok);
                self.give(Input::Message(key, message, claims));
            }
            Err(unreadable) => self.unreadable(key, unreadable),
        }
    }

    pub(super) fn say_with(&mut self, key: ConnKey, text: &str, claims: Result<Claims, TokenRefusal>) {
        self.give(Input::Message(key, json::parse(text).unwrap(), Some(claims)));
    }

    pub(super) fn unreadable(&mut self, key: ConnKey, unreadable: Unreadable) {
        self.give(Input::Unreadable(key, unreadable));
    }

    /// Accepts a client, and lets it join with session `user` padded, generation 1.
    pub(super) fn join(&mut self, user: &str, name: &str, n: u64) -> ConnKey {
        let key = self.accept();
        self.say(key, user, &join_text(user, name, Some(1), ""));
        let join = self.take_join();
        self.granted(join.request, lease(n));
        self.drain_frames(key);
        key
    }

    pub(super) fn granted(&mut self, request: RequestId, lease: LeaseId) {
        self.granted_until(request, lease, self.store_time() + Duration::from_secs(3_600));
    }

    pub(super) fn granted_until(&mut self, request: RequestId, lease: LeaseId, token_ends: StoreTime) {
        self.down(LinkDown::Joined { request, outcome: Ok(grant(lease, token_ends)) });
    }

    /// Grants a lease in a room of a class of its own.
    pub(super) fn granted_as(&mut self, request: RequestId, n: u64, timings: RoomTimings) {
        let lease = LeaseId::mint(timings.lease_ttl, Shard(0), n);
        let grant = grant(lease, self.store_time() + Duration::from_secs(3_600));
        let outcome = Ok(GrantDown { timings: Some(timings), ..grant });
        self.down(LinkDown::Joined { request, outcome });
    }

    pub(super) fn refused(&mut self, request: RequestId, refusal: LinkRefusal) {
        self.down(LinkDown::Joined { request, outcome: Err(refusal) });
    }

    /// The one join that was said since the last look.
    pub(super) fn take_join(&mut self) -> JoinUp {
        let mut joins = self.take_joins();
        assert_eq!(joins.len(), 1, "{joins:?}");
        joins.remove(0)
    }

    pub(super) fn take_joins(&mut self) -> Vec<JoinUp> {
        let said = std::mem::take(&mut self.up);
        let (joins, rest) = said.into_iter().partition(|up| matches!(up, LinkUp::Join(_)));
        self.up = rest;
        let joins: Vec<LinkUp> = joins;
        joins
            .into_iter()
            .filter_map(|up| if let LinkUp::Join(join) = up { Some(*join) } else { None })
            .collect()
    }

    /// Leases renewed since the last look; what was said is acknowledged.
    pub(super) fn take_renewed(&mut self) -> Vec<LeaseId> {
        let mut renewed = Vec::new();
        for up in std::mem::take(&mut self.up) {
            if let LinkUp::Renew { batch, leases } = up {
                renewed.extend(leases);
                self.down(LinkDown::Renewed { batch, unknown: Vec::new() });
            } else {
                self.up.push(up);
            }
        }
        renewed
    }

    /// Releases since the last look, as (leases, unanswered), answered.
    pub(super) fn take_released(&mut self) -> Vec<(Vec<LeaseId>, usize)> {
        let mut released = Vec::new();
        for up in std::mem::take(&mut self.up) {
            if let LinkUp::Release { request, leases, unanswered, .. } = up {
                released.push((leases, unanswered.len()));
                self.down(LinkDown::Done { request, outcome: Ok(None) });
            } else {
                self.up.push(up);
            }
        }
        released
    }

    pub(super) fn take_opened(&mut self) -> Vec<OpenRoom> {
        let said = std::mem::take(&mut self.watched);
        said.into_iter()
            .filter_map(|up| if let WatchUp::Open(open) = up { Some(*open) } else { None })
            .collect()
    }

    /// What a client was sent since the last look.
    pub(super) fn frames(&mut self, key: ConnKey) -> Vec<Value> {
        let frames = std::mem::take(&mut self.clients.get_mut(&key).unwrap().frames);
        frames.iter().map(|frame| serde_json::from_slice(frame).unwrap()).collect()
    }

    pub(super) fn drain_frames(&mut self, key: ConnKey) {
        self.clients.get_mut(&key).unwrap().frames.clear();
    }

    pub(super) fn closed(&self, key: ConnKey) -> Option<CloseCode> {
        self.clients[&key].closed
    }

    pub(super) fn hang_up(&mut self, key: ConnKey) {
        self.give(Input::Closed(key, ConnEnd::Lost));
    }

    pub(super) fn region_event(&mut self, name: &str, event: RegionEvent) {
        self.give(Input::Watch(WatchDown::Region { room: room(name), region: region(), event }));
    }

    pub(super) fn position(&self) -> Position {
        Position { epoch: EPOCH, revision: Revision(self.revision) }
    }

    fn digest(&self) -> Digest {
        self.members.values().fold(Digest::default(), |sum, member| sum.plus(Digest::of(member)))
    }

    /// The core shows who is in a room.
    pub(super) fn snapshot(&mut self, name: &str, users: &[&str]) {
        self.snapshot_as(name, users, Freshness::Live);
    }

    pub(super) fn snapshot_as(&mut self, name: &str, users: &[&str], freshness: Freshness) {
        self.members = users.iter().map(|user| (UserId::new(*user).unwrap(), member(user))).collect();
        self.revision += 1;
        let page = SnapshotPage {
            position: self.position(),
            freshness,
            members: self.members.values().cloned().collect(),
            first: true,
            last: Some(self.digest()),
        };
        self.region_event(name, RegionEvent::Page(page));
    }

    /// The core says what was touched in a span that the edge has behind it.
    pub(super) fn recall(
        &mut self,
        name: &str,
        (from, to): (Revision, Revision),
        there: &[&str],
        gone: &[&str],
    ) {
        let removal =
            |user: &&str| Removal::new(UserId::new(*user).unwrap(), RemovalReason::Left, Duration::ZERO);
        let delta = Delta {
            epoch: EPOCH,
            from,
            to,
            upserts: there.iter().map(|user| member(user)).collect(),
            removals: gone.iter().map(removal).collect(),
            digest: self.digest(),
        };
        self.region_event(name, RegionEvent::Delta(delta));
    }

    /// One commit of the roster.
    pub(super) fn commit(&mut self, name: &str, joined: &[&str], left: &[&str]) {
        let from = Revision(self.revision);
        self.revision += 1;
        for user in joined {
            self.members.insert(UserId::new(*user).unwrap(), member(user));
        }
        for user in left {
            self.members.remove(&UserId::new(*user).unwrap());
        }
        let removal =
            |user: &&str| Removal::new(UserId::new(*user).unwrap(), RemovalReason::Left, Duration::ZERO);
        let delta = Delta {
            epoch: EPOCH,
            from,
            to: Revision(self.revision),
            upserts: joined.iter().map(|user| member(user)).collect(),
            removals: left.iter().map(removal).collect(),
            digest: self.digest(),
        };
        self.region_event(name, RegionEvent::Delta(delta));
    }
}

pub(super) fn grant(lease: LeaseId, token_ends: StoreTime) -> GrantDown {
    GrantDown {
        lease,
        generation: Generation(1),
        since: StoreTime(STORE_START_MS),
        resumed: false,
        token_ends,
        timings: None,
    }
}

pub(super) fn claims(user: &str, name: &RoomId, action: Action, ends: StoreTime) -> Claims {
    Claims {
        user: UserId::new(user).unwrap(),
        room: name.clone(),
        action,
        not_before: None,
        token: TokenRef { ends, key_id: "k".into(), token_id: "".into() },
    }
}

fn claims_of(message: &ClientMessage, user: &str, ends: StoreTime) -> Option<Claims> {
    match message {
        ClientMessage::Join(join) => Some(claims(user, &join.room, Action::Join, ends)),
        ClientMessage::Watch { room, .. } | ClientMessage::Token { room, .. } => {
            Some(claims(user, room, Action::Join, ends))
        }
        ClientMessage::Update { .. }
        | ClientMessage::Leave { .. }
        | ClientMessage::Resync { .. }
        | ClientMessage::Ping { .. } => None,
    }
}

pub(super) fn session_of(user: &str) -> String {
    format!("{user:0>16}")
}

pub(super) fn join_text(user: &str, name: &str, generation: Option<u64>, more: &str) -> String {
    let generation = generation.map(|g| format!(",\"generation\":{g}")).unwrap_or_default();
    let session = session_of(user);
    format!(r#"{{"t":"join","room":"{name}","token":"{user}-1","session":"{session}"{generation}{more}}}"#)
}

/// The kinds of frames, in order.
pub(super) fn kinds(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["t"].as_str().unwrap()).collect()
}

/// Users of a list in a frame.
pub(super) fn users(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|entry| entry["user"].as_str().unwrap()).collect()
}
