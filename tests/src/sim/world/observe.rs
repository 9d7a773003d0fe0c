//! What observers are shown, held against what is true.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_core::store::{Command, Outcome};
use presence_model::claim::{Action, Claims};
use presence_model::digest::Digest;
use presence_model::hold::is_held;
use presence_model::id::{ConnectionId, SessionId};
use presence_model::position::Position;
use presence_model::time::{Mono, millis};
use serde_json::Value;

use super::revoked::Revoked;
use super::{Event, LOOK_EVERY, World};
use crate::sim::guarantee::Guarantee;
use crate::sim::ledger::{Truth, Who};
use crate::sim::network::Node;
use crate::sim::nodes::Peer;
use crate::sim::place::{Change, Seen, Wish};
use crate::sim::shape::Shape;

/// Inside a region, at half load.
const PROPAGATION: Duration = Duration::from_secs(1);
/// On rough days: the store is out of reach for 5 s before that is told, a core falls silent for some
/// beats before its edges move, a sweep is taken over.
pub(super) const PROPAGATION_ROUGH: Duration = Duration::from_secs(9);
/// A store that takes no writes for so long is known to by every core.
const STALE_SURELY: Duration = Duration::from_secs(6);
/// A store that takes writes is asked for something by a core within this.
const ASKED_WITHIN: Duration = Duration::from_secs(1);
/// After the end of its token an edge may show a room for so long.
const TOKEN_SLACK: Duration = Duration::from_secs(3);

/// What is remembered of what was seen.
pub(super) struct Eye {
    /// Until then everything may be catching up.
    pub(super) rough_until: Mono,
    calm_bound: Duration,
    /// What each roster was at each position.
    record: Vec<BTreeMap<Position, Digest>>,
    /// When each room's shard was held last.
    held_at: Vec<Mono>,
    /// When what each room is stored in came back last: as other data, or after nobody could sweep it.
    came_back: Vec<Option<Mono>>,
    /// When the store's clock stepped last.
    pub(super) stepped: Option<Mono>,
    /// Until then leases may last for longer than cores can know, by a step of the clock that none of them has seen.
    hidden_until: Mono,
    /// When the store came back that was away while its clock was set back: by that clock it was away for less.
    shortened: Option<Mono>,
    /// Since when nobody can sweep.
    unswept: Option<Mono>,
    /// When the store's clock was set to another time last, whoever knows.
    pub(super) set_at: Option<Mono>,
    /// When the store took no writes, from and until.
    writeless: Vec<(Mono, Mono)>,
    /// By how much small steps of the clock may have shortened leases, and until when that matters.
    slack: (Mono, Duration),
    pub(super) evictions: BTreeMap<Who, Mono>,
    pub(super) goodbyes: BTreeMap<(Who, SessionId), Mono>,
    pub(super) revoked: Vec<Revoked>,
    /// Tokens shown on a connection for a room.
    tokens: BTreeMap<(ConnectionId, usize), Vec<usize>>,
    /// Whose connection it is.
    pub(super) owners: BTreeMap<ConnectionId, usize>,
    /// When each tab could not be shown everything last.
    tab_unable: Vec<Mono>,
    desk_unable: Vec<Mono>,
    /// Since when a tab is in and nothing carries it.
    unbacked: BTreeMap<(usize, usize), Mono>,
}

impl Eye {
    pub(super) fn new(shape: &Shape) -> Self {
        Self {
            // Everybody comes at once, at first.
            rough_until: Mono(Duration::from_secs(10)),
            calm_bound: PROPAGATION + shape.delay_max * 8 + LOOK_EVERY * 2,
            record: vec![BTreeMap::new(); shape.rooms],
            held_at: vec![Mono::default(); shape.rooms],
            came_back: vec![None; shape.rooms],
            stepped: None,
            hidden_until: Mono::default(),
            shortened: None,
            unswept: None,
            set_at: None,
            writeless: Vec::new(),
            slack: (Mono::default(), Duration::ZERO),
            evictions: BTreeMap::new(),
            goodbyes: BTreeMap::new(),
            revoked: Vec::new(),
            tokens: BTreeMap::new(),
            owners: BTreeMap::new(),
            tab_unable: vec![Mono::default(); shape.tabs],
            desk_unable: vec![Mono::default(); shape.desks],
            unbacked: BTreeMap::new(),
        }
    }

    /// How long the truth may take to be seen.
    pub(super) fn bound(&self, now: Mono) -> Duration {
        if now < self.rough_until { self.calm_bound.max(PROPAGATION_ROUGH) } else { self.calm_bound }
    }

    /// The store takes no writes now.
    fn note_writeless(&mut self, now: Mono) {
        match self.writeless.last_mut().filter(|(_, until)| now.since(*until) <= LOOK_EVERY * 2) {
            Some((_, until)) => *until = now,
            None => self.writeless.push((now, now)),
        }
    }

    /// For how long nobody could be ended since then while views said that they were live: each time until they
    /// have to say that they are stale.
    pub(super) fn excused(&self, since: Mono) -> Duration {
        let spans = self.writeless.iter().rev().take_while(|(_, until)| *until > since);
        spans.map(|(from, until)| (until.since(*from.max(&since)) + LOOK_EVERY * 2).min(STALE_SURELY)).sum()
    }

    /// What these rooms are stored in came back.
    pub(super) fn note_return(&mut self, rooms: &[usize], now: Mono) {
        for room in rooms {
            self.came_back[*room] = Some(now);
        }
    }

    /// When what a room is stored in came back last, if its clock shows that it was away.
    pub(super) fn came_back(&self, room: usize) -> Option<Mono> {
        self.came_back[room].filter(|back| self.shortened.is_none_or(|shortened| shortened < *back))
    }

    /// What is not back yet comes back then.
    pub(super) fn put_returns_off(&mut self, now: Mono, (back_at, writes_at): (Mono, Mono)) {
        for back in self.came_back.iter_mut().flatten().filter(|back| **back > now) {
            *back = back_at;
        }
        // In a shorter moment no core may have asked.
        if let Some(stepped) = self.stepped.as_mut().filter(|stepped| **stepped + ASKED_WITHIN > now) {
            *stepped = writes_at.max(*stepped);
        }
        if let Some(shortened) = self.shortened.as_mut().filter(|shortened| **shortened > now) {
            *shortened = back_at;
        }
    }

    pub(super) fn clock_stepped(&mut self, by_ms: i64, now: Mono, (back_at, writes_at): (Mono, Mono)) {
        if by_ms < 0 && back_at > now {
            self.shortened = Some(back_at);
        }
        if by_ms.unsigned_abs() > millis(presence_model::hold::CLOCK_STEP_MAX) {
            self.set_at = Some(now);
            self.stepped = Some(writes_at);
        } else if by_ms > 0 {
            let known = if self.slack.0 > now { self.slack.1 } else { Duration::ZERO };
            self.slack = (now + Duration::from_secs(60), known + Duration::from_millis(by_ms.unsigned_abs()));
        }
    }

    /// By how much a lease or a revocation may end early for steps of the clock that are not seen.
    pub(super) fn slack(&self, now: Mono) -> Duration {
        if self.slack.0 > now { self.slack.1 } else { Duration::ZERO }
    }

    pub(super) fn recorded(&self, room: usize, position: Position) -> Option<Digest> {
        self.record[room].get(&position).copied()
    }

    /// Notes a roster; what it was noted as before, if that was something else.
    pub(super) fn note_roster(&mut self, room: usize, position: Position, digest: Digest) -> Option<Digest> {
        self.record[room].insert(position, digest).filter(|before| *before != digest)
    }

    /// The newest position noted of a roster in an epoch.
    pub(super) fn newest(&self, room: usize, of: Position) -> Option<Position> {
        let newest = self.record[room].range(..).next_back().map(|(position, _)| *position)?;
        (newest.epoch == of.epoch).then_some(newest)
    }

    /// Until when a hold of a room keeps whoever the store knows, one that is yet to begin included.
    pub(super) fn may_linger(&self, room: usize, ttl: Duration) -> Mono {
        self.held_at[room].max(self.came_back[room].map_or(Mono::default(), |back| back + ttl))
    }

    /// Whether the room was held at that time or since.
    pub(super) fn was_held(&self, room: usize, since: Mono) -> bool {
        self.held_at[room].max(self.hidden_until) >= since
    }

    /// The tokens that were shown on a connection for a room.
    pub(super) fn shown(&self, connection: ConnectionId, room: usize) -> &[usize] {
        self.tokens.get(&(connection, room)).map_or(&[], Vec::as_slice)
    }

    pub(super) fn may_join(&self, connection: ConnectionId, room: usize) -> bool {
        self.tokens.contains_key(&(connection, room))
    }
}

impl World {
    pub(super) fn look(&mut self) {
        self.wires.after(LOOK_EVERY, Event::Look);
        let (now, store_time) = (self.now(), self.store_time());
        self.mark_unable();
        self.look_for_sweepers();
        if !self.store.takes_writes(now) {
            self.eye.note_writeless(now);
        }
        self.cut_revoked_short();
        self.ledger.look(now, store_time);
        self.look_at_holds();
        self.look_who_is_brought();
        self.look_at_tabs();
        self.look_at_copies();
        self.look_at_desks();
        self.look_at_sockets();
        self.look_at_sizes();
    }

    /// Notes who cannot do its work now.
    pub(super) fn mark_unable(&mut self) {
        let now = self.wires.now;
        let net = &self.wires.net;
        let store_well = self.store.is_well(now);
        let cut = |a, b| net.is_cut(a, b, now) || net.is_cut(b, a, now);
        for (place, slot) in self.cores.iter_mut().enumerate() {
            let runs = slot.process.as_ref().is_some_and(|core| core.asleep.is_none());
            if !runs || !store_well || cut(Node::Core(place), Node::Store) {
                slot.unable_at = now;
            }
        }
        for (place, slot) in self.edges.iter_mut().enumerate() {
            let Some(edge) = slot.process.as_ref() else {
                slot.unable_at = now;
                continue;
            };
            let core = edge.link.and_then(|key| self.links.get(&key)).map(|stream| stream.core);
            let linked = edge.hub.counts().link_up;
            let able = core.is_some_and(|core| {
                self.cores[core].unable_at < now && !cut(Node::Edge(place), Node::Core(core))
            });
            if edge.asleep.is_some() || !linked || !able {
                slot.unable_at = now;
            }
            slot.unlinked = if linked { None } else { Some(slot.unlinked.unwrap_or(now)) };
        }
    }

    /// Nobody can sweep, or somebody can again: after so long a hold is due.
    fn look_for_sweepers(&mut self) {
        let now = self.now();
        let net = &self.wires.net;
        let sweeps = |(place, slot): (usize, &crate::sim::nodes::CoreSlot)| {
            let (core, store) = (Node::Core(place), Node::Store);
            let cut = net.is_cut(core, store, now) || net.is_cut(store, core, now);
            !cut && slot.process.as_ref().is_some_and(|core| core.asleep.is_none())
        };
        let sweeps = self.store.takes_writes(now) && self.cores.iter().enumerate().any(sweeps);
        if sweeps {
            self.somebody_sweeps();
        } else {
            self.eye.unswept.get_or_insert(now);
        }
    }

    /// A turn is taken: if none was for too long, a hold starts here.
    pub(super) fn somebody_sweeps(&mut self) {
        let now = self.now();
        let Some(since) = self.eye.unswept.take() else { return };
        let longest = self.timings.lease_ttl / 3 + self.timings.takeover() + Duration::from_secs(1);
        if self.is_hidden_by_a_step(since) {
            self.eye.hidden_until = now + self.timings.lease_ttl;
        } else if now.since(since) > longest {
            let rooms: Vec<usize> = (0..self.names.rooms.len()).collect();
            self.eye.note_return(&rooms, now);
            if self.eye.shortened.is_some_and(|shortened| shortened >= since) {
                self.eye.shortened = Some(now);
            }
        }
    }

    /// Whether the clock was set to another time since then, and all cores that run have heard of the store after that only: by the only clock
    /// they know, somebody may just have swept.
    fn is_hidden_by_a_step(&self, since: Mono) -> bool {
        let Some(set_at) = self.eye.set_at.filter(|at| *at >= since) else { return false };
        let awake = self.cores.iter().filter_map(|slot| slot.process.as_ref());
        let mut awake = awake.filter(|core| core.asleep.is_none());
        awake.all(|core| core.heard_at.is_none_or(|heard| heard >= set_at))
    }

    fn look_at_holds(&mut self) {
        let (now, store_time) = (self.now(), self.store_time());
        for room in 0..self.names.rooms.len() {
            let roster = self.names.roster(room);
            let held = match self.store.peek(Command::Summary { roster }, now) {
                Some(Outcome::Summary { hold, .. }) => {
                    is_held(hold.map(|hold| hold.since), self.timings.lease_ttl, store_time)
                }
                _ => true,
            };
            if held {
                self.eye.held_at[room] = now;
            }
        }
    }

    fn look_at_tabs(&mut self) {
        let now = self.now();
        let bound = self.eye.bound(now);
        for tab in 0..self.tabs.len() {
            if !self.reaches_tab(tab) || self.is_too_slow() {
                self.eye.tab_unable[tab] = now;
            }
            self.look_for_unbacked(tab);
            if now.since(self.eye.tab_unable[tab]) <= bound {
                continue;
            }
            for place in 0..self.tabs[tab].places.len() {
                let this = &self.tabs[tab].places[place];
                if !this.is_live() {
                    continue;
                }
                let room = this.room;
                self.looked_at_list();
                for user in 0..self.names.users.len() {
                    let shown = self.tabs[tab].places[place].list[user].is_some();
                    self.judge_shown(&Observer::Tab(tab), (room, user), shown, bound);
                }
            }
        }
    }

    /// Whether a message takes longer than links are waited for: then no bound is promised.
    fn is_too_slow(&self) -> bool {
        self.wires.net.is_slower_than(self.timings.link_beat, self.now())
    }

    /// Whether whatever its edge says reaches a tab.
    fn reaches_tab(&self, tab: usize) -> bool {
        let now = self.now();
        let this = &self.tabs[tab];
        let Some(socket) = this.connection.and_then(|connection| self.sockets.get(&connection)) else {
            return false;
        };
        let (a, b) = (Node::Tab(tab), Node::Edge(socket.edge));
        let cut = self.wires.net.is_cut(a, b, now) || self.wires.net.is_cut(b, a, now);
        let runs = self.edges[socket.edge].process.as_ref().is_some_and(|edge| edge.asleep.is_none());
        runs && !cut && self.tabs_asleep[tab].is_none() && this.deaf_until <= now && socket.open_at_edge
    }

    fn look_at_copies(&mut self) {
        let now = self.now();
        let bound = self.eye.bound(now);
        for number in 0..self.desks.len() {
            let Some((key, core)) = self.desks[number].watch else { continue };
            let (a, b) = (Node::Desk(number), Node::Core(core));
            let open = self
                .watches
                .get(&key)
                .is_some_and(|stream| stream.peer == Peer::Desk(number) && stream.open_at_core);
            let asleep = self.cores[core].process.as_ref().is_none_or(|core| core.asleep.is_some());
            if !open || asleep || self.is_too_slow() || self.wires.net.is_cut(b, a, now) {
                self.eye.desk_unable[number] = now;
            }
            if now.since(self.eye.desk_unable[number]) <= bound {
                continue;
            }
            for room in 0..self.names.rooms.len() {
                if !self.desks[number].copies[room].is_live() {
                    continue;
                }
                self.looked_at_list();
                for user in 0..self.names.users.len() {
                    let shown = self.desks[number].copies[room].members.contains_key(&self.names.users[user]);
                    self.judge_shown(&Observer::Desk(number), (room, user), shown, bound);
                }
            }
        }
    }

    /// A list is held to who is there: nobody extra, nobody missing.
    fn looked_at_list(&mut self) {
        if self.now() >= self.eye.rough_until {
            self.story.count("list looked at on a calm day");
        }
        [Guarantee::G1, Guarantee::G3, Guarantee::G5]
            .into_iter()
            .for_each(|guarantee| self.looked_at(guarantee));
    }

    /// A view that says it is live shows who is there (G5), and nobody else (G1, G3, G10).
    fn judge_shown(&mut self, observer: &Observer, who: Who, shown: bool, bound: Duration) {
        let now = self.now();
        if shown {
            self.judge_brought(observer, who, bound);
        }
        let Some(truth) = self.ledger.truth(who) else { return };
        if shown == truth.present {
            return;
        }
        let (room, user) = who;
        if shown {
            let since = truth.since.max(self.eye.held_at[room]);
            let for_long = now.since(since);
            if for_long > bound + self.eye.excused(since) {
                let guarantee = match (truth.token_over, truth.stored) {
                    (true, _) => Guarantee::G10,
                    (false, true) => Guarantee::G1,
                    (false, false) => Guarantee::G3,
                };
                let what = format!(
                    "u{user} is shown to {observer} in r{room} though nothing carries it for {} ms (stored: {})",
                    for_long.as_millis(),
                    truth.stored
                );
                self.breach(guarantee, what);
            }
        } else if truth.stored {
            let for_long = now.since(truth.since.max(truth.stored_since));
            if for_long > bound {
                let what =
                    format!("u{user} is missing at {observer} in r{room} for {} ms", for_long.as_millis());
                self.breach(Guarantee::G5, what);
            }
        }
    }

    /// Who is in, over a connection that stands, on an edge that can speak, has a lease (G2).
    fn look_for_unbacked(&mut self, tab: usize) {
        let now = self.now();
        let timings = self.timings;
        for place in 0..self.tabs[tab].places.len() {
            let this = &self.tabs[tab].places[place];
            let who = (this.room, self.tabs[tab].user);
            let connection = self.tabs[tab].connection.filter(|connection| {
                let in_it = this.joined && this.wish == Wish::In && !this.only_watches;
                in_it && self.stands(*connection) && now.since(self.eye.tab_unable[tab]) > timings.lease_ttl
            });
            let speaks = |connection: &ConnectionId| {
                let edge = &self.edges[self.sockets[connection].edge];
                now.since(edge.unable_at) > timings.lease_ttl
            };
            let Some(connection) = connection.filter(speaks) else {
                self.eye.unbacked.remove(&(tab, place));
                continue;
            };
            self.looked_at(Guarantee::G2);
            let held = self.ledger.of_connection(who, connection);
            if held.is_some_and(|(_, held)| !held.in_grace && now < held.until) {
                self.eye.unbacked.remove(&(tab, place));
                continue;
            }
            let since = *self.eye.unbacked.entry((tab, place)).or_insert(now);
            if now.since(since) > timings.heartbeat * 2 {
                let what = format!(
                    "tab{tab} is in r{} as u{} and its edge can speak, but nothing carries it",
                    who.0, who.1
                );
                self.breach(Guarantee::G2, what);
            }
        }
    }

    /// What a frame did to a list.
    pub(super) fn judge_seen(&mut self, tab: usize, place: usize, seen: &Seen) {
        let room = self.tabs[tab].places[place].room;
        let who = (room, seen.user);
        self.note("seen", &format!("tab{tab} in r{room}: u{} {:?}", seen.user, seen.change));
        let (now, store_time) = (self.now(), self.store_time());
        if matches!(seen.change, Change::Went(_)) {
            // What carries it may have run out since the account was looked at last.
            self.ledger.look(now, store_time);
        }
        // What was under way when somebody came back is still told.
        let bound = self.eye.bound(now);
        // Of when the list was sent: it may have waited for a tab that stood still.
        let all_along =
            |truth: &&Truth| truth.present && truth.since.max(truth.all_known_ended) + bound <= seen.sent;
        // A list that said it was stale when it began to show somebody has yet to catch up.
        let hearsay = self.tabs[tab].places[place].was_hearsay(seen.shown);
        if hearsay.is_some_and(|until| now.since(until) <= bound) {
            return;
        }
        let Some(truth) = self.ledger.truth(who).filter(all_along) else { return };
        self.story.count(Guarantee::G8.into());
        match &seen.change {
            Change::Came | Change::Differs { since_later: false } => {}
            Change::Differs { since_later: true } => {
                // A list of before the loss tells of times that the store has lost.
                if seen.shown > truth.since_in_doubt && !self.shows_old_news(tab, seen.shown, bound) {
                    let what =
                        format!("tab{tab} is told that u{} is in r{room} since a later time", seen.user);
                    self.breach(Guarantee::G8, what);
                }
            }
            Change::Went(reason) => {
                let stands = self.ledger.carrying(who, now).any(|(_, held)| self.stands(held.connection));
                let (guarantee, why) =
                    if stands { (Guarantee::G2, "is connected") } else { (Guarantee::G8, "may come back") };
                let what = format!(
                    "tab{tab} is told that u{} went from r{room} ({reason}), but it {why}",
                    seen.user
                );
                self.breach(guarantee, what);
            }
        }
    }

    /// Whether the edge of a tab had just stood still, or been cut off, at that time: its lists are of before.
    fn shows_old_news(&self, tab: usize, shown: Mono, bound: Duration) -> bool {
        let socket = self.tabs[tab].connection.and_then(|connection| self.sockets.get(&connection));
        socket.is_some_and(|socket| shown.since(self.edges[socket.edge].unable_at) <= bound)
    }

    /// A tab shows a token on its connection.
    pub(super) fn grant_frames(&mut self, tab: usize, place: usize, token: usize) {
        let Some(connection) = self.tabs[tab].connection else { return };
        let room = self.tabs[tab].places[place].room;
        self.eye.tokens.entry((connection, room)).or_default().push(token);
        self.eye.owners.insert(connection, tab);
    }

    /// A tab says goodbye.
    pub(super) fn say_goodbye(&mut self, tab: usize, place: usize) {
        let now = self.now();
        let this = &self.tabs[tab].places[place];
        let who = (this.room, self.tabs[tab].user);
        let session = this.session.clone();
        if let Some(connection) = self.tabs[tab].connection {
            self.part(connection, Some(who.0));
        }
        self.ledger.waive(who, &session);
        self.eye.goodbyes.insert((who, session), now);
    }

    /// What is shown of a room is shown for a token that opens it, and not beyond its end (G10).
    pub(super) fn judge_frame(
        &mut self,
        (tab, connection): (usize, ConnectionId),
        room: usize,
        frame: &Value,
    ) {
        let (now, store_time) = (self.now(), self.store_time());
        let kind = frame["t"].as_str().unwrap_or_default();
        if !matches!(kind, "snapshot" | "delta" | "joined") {
            return;
        }
        self.looked_at(Guarantee::G10);
        let tokens = self.eye.tokens.get(&(connection, room));
        let claims = || tokens.into_iter().flatten().filter_map(|token| self.tokens.get(*token));
        if claims().next().is_none() {
            return self.breach(Guarantee::G10, format!("tab{tab} is shown r{room} without a token for it"));
        }
        if kind == "joined" && !claims().any(|claims| claims.action == Action::Join) {
            return self.breach(Guarantee::G10, format!("tab{tab} joined r{room} with a token to watch"));
        }
        let slack = TOKEN_SLACK + self.eye.bound(now);
        let stepped = self.eye.stepped.is_some_and(|at| now.since(at) <= slack);
        if !stepped && self.reaches_tab(tab) && !claims().any(|claims| store_time < claims.token.ends + slack)
        {
            self.breach(Guarantee::G10, format!("tab{tab} is shown r{room} beyond the end of its token"));
        }
        let edge = self.sockets.get(&connection).map(|socket| &self.edges[socket.edge]);
        let knows = edge.is_some_and(|edge| now.since(edge.unable_at) > slack);
        let tokens = self.eye.tokens.get(&(connection, room));
        let mut claims = tokens.into_iter().flatten().filter_map(|token| self.tokens.get(*token));
        let is_over = |claims: &Claims| self.eye.must_be_over(&claims.user, &claims.token, slack, now);
        if knows && self.reaches_tab(tab) && claims.all(is_over) {
            self.breach(Guarantee::G10, format!("tab{tab} is shown r{room} though its token is revoked"));
        }
    }

    /// Something about a room in which the tab has no place.
    pub(super) fn frame_of_a_stranger(&mut self, tab: usize, room: usize, frame: &Value) {
        self.story.count("refused trespass");
        if frame["t"] != "error" {
            self.breach(
                Guarantee::G10,
                format!("tab{tab} is told of r{room}, which its token does not open: {frame}"),
            );
        }
    }
}

/// Who looks.
enum Observer {
    Tab(usize),
    Desk(usize),
}

impl std::fmt::Display for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tab(tab) => write!(f, "tab{tab}"),
            Self::Desk(desk) => write!(f, "desk{desk}"),
        }
    }
}
