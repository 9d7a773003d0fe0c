//! An edge as the stories need one: it beats, renews what it was granted, and remembers what it heard.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use presence_model::claim::{Action, Claims};
use presence_model::cursor::Cursor;
use presence_model::id::{ConnectionId, EdgeName, Generation, Incarnation, LinkNumber, RegionId, SessionId};
use presence_model::lease::LeaseId;
use presence_model::link::{
    BatchId, GrantDown, Hello, JoinUp, LinkDown, LinkRefusal, LinkUp, RequestId, Token, UnansweredJoin,
};
use presence_model::profile::Profile;
use presence_model::reason::{LeaveReason, ReleaseReason};
use presence_model::record::TokenRef;
use presence_model::time::{Mono, StoreTime};

use super::{World, region_called, room, user};
use crate::driver::{Input, LinkEnd, LinkKey};

pub(in crate::driver::tests) fn session(name: &str) -> SessionId {
    SessionId::new(format!("session-of-{name:-<10}")).unwrap()
}

/// One edge process.
pub(in crate::driver::tests) struct Edge {
    name: EdgeName,
    region: RegionId,
    pub(in crate::driver::tests) incarnation: Incarnation,
    core: usize,
    link: Option<(LinkKey, LinkNumber)>,
    links: u64,
    /// Whether it runs: a frozen one neither beats nor renews.
    pub(in crate::driver::tests) running: bool,
    pub(in crate::driver::tests) leases: BTreeSet<LeaseId>,
    beat_at: Mono,
    beats: u64,
    renew_at: Mono,
    batches: u64,
    pub(in crate::driver::tests) heard: Vec<LinkDown>,
    pub(in crate::driver::tests) joined: BTreeMap<RequestId, Result<GrantDown, LinkRefusal>>,
    pub(in crate::driver::tests) done: BTreeMap<RequestId, Result<Option<StoreTime>, LinkRefusal>>,
    pub(in crate::driver::tests) unknown: BTreeSet<LeaseId>,
    pub(in crate::driver::tests) foreign: BTreeSet<LeaseId>,
    pub(in crate::driver::tests) renewed: Vec<BatchId>,
}

impl Edge {
    pub(super) fn due(&self) -> Option<Mono> {
        (self.running && self.link.is_some()).then(|| self.beat_at.min(self.renew_at))
    }

    pub(in crate::driver::tests) fn key(&self) -> LinkKey {
        self.link.expect("linked").0
    }

    /// How often it was told to renew all.
    pub(in crate::driver::tests) fn renew_alls(&self) -> usize {
        self.heard.iter().filter(|down| matches!(down, LinkDown::RenewAll { .. })).count()
    }

    /// Beats it heard: the last beat told back, and whether the store was reached.
    pub(in crate::driver::tests) fn beats(&self) -> Vec<(u64, bool)> {
        let beat = |down: &LinkDown| {
            let LinkDown::Beat { sequence, store_reachable, .. } = down else { return None };
            Some((*sequence, *store_reachable))
        };
        self.heard.iter().filter_map(beat).collect()
    }

    /// Leases it was told are over, with the reasons.
    pub(in crate::driver::tests) fn ended(&self) -> Vec<(LeaseId, &'static str)> {
        let ended = |down: &LinkDown| {
            let LinkDown::EndLease { lease, reason } = down else { return None };
            Some((*lease, reason.as_str()))
        };
        self.heard.iter().filter_map(ended).collect()
    }
}

impl World {
    /// A new edge process, linked to the core.
    pub(in crate::driver::tests) fn edge(&mut self, core: usize) -> usize {
        let name = EdgeName::new(format!("edge-{}", self.edges.len())).unwrap();
        self.edge_called(core, name)
    }

    /// A new edge process of that name, linked to the core.
    pub(in crate::driver::tests) fn edge_called(&mut self, core: usize, name: EdgeName) -> usize {
        self.edge_of(core, (name, self.regions.0.clone()))
    }

    /// A new edge process of that region, linked to the first core.
    pub(in crate::driver::tests) fn edge_in(&mut self, region: &str) -> usize {
        let name = EdgeName::new(format!("edge-{}-{region}", self.edges.len())).unwrap();
        self.edge_of(0, (name, region_called(region)))
    }

    fn edge_of(&mut self, core: usize, (name, region): (EdgeName, RegionId)) -> usize {
        let number = self.edges.len() as u64;
        self.edges.push(Edge {
            name,
            region,
            incarnation: Incarnation(7_000 + number),
            core,
            link: None,
            links: 0,
            running: true,
            leases: BTreeSet::new(),
            beat_at: self.now,
            beats: 0,
            renew_at: self.now,
            batches: 0,
            heard: Vec::new(),
            joined: BTreeMap::new(),
            done: BTreeMap::new(),
            unknown: BTreeSet::new(),
            foreign: BTreeSet::new(),
            renewed: Vec::new(),
        });
        let edge = self.edges.len() - 1;
        self.link(edge, core);
        edge
    }

    /// Links an edge, anew or again.
    pub(in crate::driver::tests) fn link(&mut self, edge: usize, core: usize) {
        let (now, beat) = (self.now, self.timings.link_beat);
        let state = &mut self.edges[edge];
        state.links += 1;
        let key = LinkKey(edge as u64 * 1_000 + state.links);
        let number = LinkNumber(state.links);
        state.link = Some((key, number));
        state.core = core;
        state.beat_at = now + beat;
        state.renew_at = now;
        let hello = self.hello(edge);
        self.input(core, Input::LinkOpened(key, hello));
        self.run(Duration::from_millis(10));
    }

    /// What an edge says first on its latest link.
    pub(in crate::driver::tests) fn hello(&self, edge: usize) -> Hello {
        let Edge { name, region, incarnation, links, .. } = &self.edges[edge];
        Hello {
            edge: name.clone(),
            incarnation: *incarnation,
            link: LinkNumber(*links),
            region: region.clone(),
            release: "test".into(),
        }
    }

    /// The edge's link ends.
    pub(in crate::driver::tests) fn cut(&mut self, edge: usize, end: LinkEnd) {
        if let Some((key, _)) = self.edges[edge].link.take() {
            self.input(self.edges[edge].core, Input::LinkClosed(key, end));
        }
    }

    pub(super) fn link_is_closed(&mut self, core: usize, key: LinkKey) {
        for edge in &mut self.edges {
            if edge.core == core && edge.link.is_some_and(|(known, _)| known == key) {
                edge.link = None;
            }
        }
    }

    /// The edge says something.
    pub(in crate::driver::tests) fn say(&mut self, edge: usize, up: LinkUp) {
        self.say_with(edge, up, None);
    }

    pub(in crate::driver::tests) fn say_with(&mut self, edge: usize, up: LinkUp, claims: Option<Claims>) {
        let state = &self.edges[edge];
        if let Some((key, _)) = state.link {
            self.input(state.core, Input::Link(key, up, claims.map(Ok)));
        }
    }

    pub(super) fn run_edge(&mut self, edge: usize) {
        let (now, heartbeat, beat) = (self.now, self.timings.heartbeat_min, self.timings.link_beat);
        let state = &mut self.edges[edge];
        if state.due().is_none_or(|due| due > now) {
            return;
        }
        if state.beat_at <= now {
            state.beat_at = now + beat;
            state.beats += 1;
            let sequence = state.beats;
            self.say(edge, LinkUp::Beat { sequence });
        }
        let state = &mut self.edges[edge];
        if state.renew_at <= now {
            state.renew_at = now + heartbeat;
            self.renew(edge);
        }
    }

    /// The edge renews all it has, now.
    pub(in crate::driver::tests) fn renew(&mut self, edge: usize) {
        let state = &mut self.edges[edge];
        state.batches += 1;
        let batch = BatchId(state.batches);
        let leases: Vec<LeaseId> = state.leases.iter().copied().collect();
        if !leases.is_empty() {
            self.say(edge, LinkUp::Renew { batch, leases });
        }
    }

    pub(super) fn edge_hears(&mut self, core: usize, key: LinkKey, down: LinkDown) {
        let linked = |edge: &&mut Edge| edge.core == core && edge.link.is_some_and(|(known, _)| known == key);
        let Some(edge) = self.edges.iter_mut().find(linked) else { return };
        match &down {
            LinkDown::Joined { request, outcome } => {
                edge.joined.insert(*request, *outcome);
                edge.leases.extend(outcome.as_ref().ok().map(|grant| grant.lease));
            }
            LinkDown::Done { request, outcome } => {
                edge.done.insert(*request, *outcome);
            }
            LinkDown::Renewed { batch, unknown } => {
                edge.renewed.push(*batch);
                edge.unknown.extend(unknown);
            }
            LinkDown::Foreign { leases } => edge.foreign.extend(leases),
            LinkDown::EndLease { lease, .. } => {
                edge.leases.remove(lease);
            }
            LinkDown::RenewAll { .. } => edge.renew_at = self.now,
            LinkDown::Welcome(_)
            | LinkDown::Beat { .. }
            | LinkDown::Revoked { .. }
            | LinkDown::Drain
            | LinkDown::DrainEdge => {}
        }
        edge.heard.push(down);
    }

    fn request(&mut self) -> RequestId {
        self.sequence += 1;
        RequestId(self.sequence)
    }

    /// A join as the stories say it, of user `name` in room `r`.
    pub(in crate::driver::tests) fn join_up(&mut self, name: &str, generation: u64) -> JoinUp {
        JoinUp {
            request: self.request(),
            room: room("r"),
            token: Token("token".into()),
            session: session(name),
            generation: Some(Generation(generation)),
            connection: ConnectionId(generation * 31 + name.len() as u64),
            profile: Profile::default(),
            client: "test".into(),
            rejoin: None,
            cursor: Cursor::default(),
        }
    }

    /// Sends a join of a user with a token that ends in ten hours.
    pub(in crate::driver::tests) fn send_join(&mut self, edge: usize, name: &str, up: JoinUp) -> RequestId {
        let ends = self.store_now() + Duration::from_secs(36_000);
        self.send_join_until(edge, name, up, ends)
    }

    /// The automatic re-join of an edge to which a lease is unknown.
    pub(in crate::driver::tests) fn rejoin(
        &mut self,
        edge: usize,
        name: &str,
        granted: &GrantDown,
    ) -> Result<GrantDown, LinkRefusal> {
        let mut up = self.join_up(name, granted.generation.0);
        up.rejoin = Some(granted.since);
        let request = self.send_join(edge, name, up);
        self.joined(edge, request)
    }

    pub(in crate::driver::tests) fn send_join_until(
        &mut self,
        edge: usize,
        name: &str,
        up: JoinUp,
        ends: StoreTime,
    ) -> RequestId {
        let request = up.request;
        let claims = self.claims(name, ends);
        self.say_with(edge, LinkUp::Join(Box::new(up)), Some(claims));
        request
    }

    pub(in crate::driver::tests) fn claims(&self, name: &str, ends: StoreTime) -> Claims {
        Claims {
            user: user(name),
            room: room("r"),
            action: Action::Join,
            not_before: None,
            token: TokenRef { ends, key_id: self.key_id.into(), token_id: format!("t-{name}").into() },
        }
    }

    /// Joins a user by its session of the same name, and waits for the answer.
    pub(in crate::driver::tests) fn try_join(
        &mut self,
        edge: usize,
        name: &str,
        generation: u64,
    ) -> Result<GrantDown, LinkRefusal> {
        let up = self.join_up(name, generation);
        let request = self.send_join(edge, name, up);
        self.joined(edge, request)
    }

    pub(in crate::driver::tests) fn joined(
        &mut self,
        edge: usize,
        request: RequestId,
    ) -> Result<GrantDown, LinkRefusal> {
        for _ in 0..2_000 {
            if let Some(outcome) = self.edges[edge].joined.get(&request) {
                return *outcome;
            }
            self.run(Duration::from_millis(10));
        }
        panic!("a join was not answered within 20 s");
    }

    pub(in crate::driver::tests) fn join(&mut self, edge: usize, name: &str, generation: u64) -> GrantDown {
        self.try_join(edge, name, generation).unwrap()
    }

    /// Waits until a release, update or leave is answered.
    pub(in crate::driver::tests) fn done(
        &mut self,
        edge: usize,
        request: RequestId,
    ) -> Result<Option<StoreTime>, LinkRefusal> {
        for _ in 0..2_000 {
            if let Some(outcome) = self.edges[edge].done.get(&request) {
                return *outcome;
            }
            self.run(Duration::from_millis(10));
        }
        panic!("a request was not answered within 20 s");
    }

    pub(in crate::driver::tests) fn leave(
        &mut self,
        edge: usize,
        name: &str,
        lease: LeaseId,
    ) -> Result<Option<StoreTime>, LinkRefusal> {
        self.leave_for(edge, name, (lease, LeaveReason::Goodbye))
    }

    pub(in crate::driver::tests) fn leave_for(
        &mut self,
        edge: usize,
        name: &str,
        (lease, reason): (LeaseId, LeaveReason),
    ) -> Result<Option<StoreTime>, LinkRefusal> {
        let request = self.request();
        self.edges[edge].leases.remove(&lease);
        self.say(edge, LinkUp::Leave { request, lease, room: room("r"), user: user(name), reason });
        self.done(edge, request)
    }

    /// Sends a release for a lost transport.
    pub(in crate::driver::tests) fn send_release(
        &mut self,
        edge: usize,
        leases: Vec<LeaseId>,
        unanswered: Vec<UnansweredJoin>,
    ) -> RequestId {
        let request = self.request();
        for lease in &leases {
            self.edges[edge].leases.remove(lease);
        }
        let (reason, hint) = (ReleaseReason::TransportLost, Duration::ZERO);
        self.say(edge, LinkUp::Release { request, leases, reason, hint, unanswered });
        request
    }

    pub(in crate::driver::tests) fn release(&mut self, edge: usize, lease: LeaseId) {
        let request = self.send_release(edge, vec![lease], Vec::new());
        self.done(edge, request).unwrap();
    }

    /// Sends an update of the status, with a token if its end is given.
    pub(in crate::driver::tests) fn update(
        &mut self,
        edge: usize,
        (name, lease): (&str, LeaseId),
        status: presence_model::profile::Status,
        token_of: Option<(&str, StoreTime)>,
    ) -> Result<Option<StoreTime>, LinkRefusal> {
        let request = self.request();
        let token = token_of.map(|_| Token("token".into()));
        let claims = token_of.map(|(of, ends)| self.claims(of, ends));
        let (room, user) = (room("r"), user(name));
        let up = LinkUp::Update { request, lease, room, user, status: Some(status), state: None, token };
        self.say_with(edge, up, claims);
        self.done(edge, request)
    }
}
