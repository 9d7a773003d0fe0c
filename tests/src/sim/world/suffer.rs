//! Faults strike.

use std::time::Duration;

use presence_core::store::memory::{Lost, Upheaval};
use presence_core::store::shard_of;
use presence_edge::protocol::{ClientMessage, JoinMessage, Since};
use presence_model::hold::CLOCK_STEP_MAX;
use presence_model::id::Generation;
use presence_model::lease::Shard;
use presence_model::link::Token;
use presence_model::profile::{Profile, Status};
use presence_model::revocation::Revocation;
use presence_model::time::Mono;
use rand::RngExt as _;

use super::{Event, World};
use crate::sim::faults::{Fault, Way};
use crate::sim::network::Node;
use crate::sim::place::Wish;

/// How long after a fault everything may still be catching up.
const RECOVERY: Duration = Duration::from_secs(10);
/// Once the store is back, whoever looks may still come from the history before for so long.
const EPOCHS_FALL_FOR: Duration = Duration::from_secs(60);

impl World {
    pub(super) fn strike(&mut self, number: usize) {
        let fault = self.plan.faults[number].fault;
        self.note("fault", &fault.to_string());
        self.story.count(fault.into());
        if !fault.is_everyday() {
            let until = self.now() + fault.span() + RECOVERY;
            self.eye.rough_until = self.eye.rough_until.max(until);
        }
        match fault {
            Fault::Blip { tab } => self.blip(tab),
            Fault::Go { tab, span } => self.go_away(tab, span),
            Fault::Reload { tab, span, forgets } => self.reload(tab, span, forgets),
            Fault::NapTab { tab, span } => self.nap_tab(tab, span),
            Fault::CutTab { tab, way, span } => self.cut_tab(tab, way, span),
            Fault::Leave { tab, span } => self.leave(tab, 0, span),
            Fault::Update { tab } => self.update(tab),
            Fault::Copy { tab, of } => self.copy(tab, of),
            Fault::Trespass { tab, of } => self.trespass(tab, of),
            Fault::Deaf { tab, span } => self.tabs[tab].deaf_until = self.wires.now + span,
            Fault::Forgetful { tab } => self.tabs[tab].forgetful = true,
            Fault::Storm { edge } => self.storm(edge),
            Fault::CrashEdge { edge, span, death, same } => {
                self.edges[edge].same = same;
                self.crash_edge(edge, span, death);
            }
            Fault::NapEdge { edge, span } => self.nap_edge(edge, span),
            Fault::DrainEdge { edge, span } => self.drain_edge(edge, span),
            Fault::BreakLink { edge } => self.break_link(edge),
            Fault::BreakWatch { edge } => self.break_watch(edge),
            Fault::CutEdge { edge, core, way, span } => {
                self.cut((Node::Edge(edge), Node::Core(core)), way, span);
            }
            Fault::Echo { edge, span } => {
                self.edges[edge].echo_until = self.wires.now + span;
                self.wires.after(span, Event::EchoOver(edge));
            }
            Fault::CrashCore { core, span, death } => self.crash_core(core, span, death),
            Fault::NapCore { core, span, holding } => self.nap_core(core, span, holding),
            Fault::DozeCore { over, span } => self.dozes.push((over, span)),
            Fault::DrainCore { core, span } => self.drain_core(core, span),
            Fault::Evict { user, room } => self.evict(user, room),
            Fault::RevokeUser { user, span } => {
                let user = self.names.users[user].clone();
                self.revoke(Revocation::Subject(user), span);
            }
            Fault::RevokeToken { tab } => self.revoke_token(tab),
            Fault::RevokeKey => self.revoke_key(),
            // There is one region here.
            Fault::Cross { .. } | Fault::CutRegions { .. } => {}
            Fault::CutStore { .. }
            | Fault::Slow { .. }
            | Fault::StopStore { .. }
            | Fault::CloseStore { .. }
            | Fault::ReadOnly { .. }
            | Fault::SlowStore { .. }
            | Fault::LoseAnswers { .. }
            | Fault::LoseCommands { .. }
            | Fault::Restart
            | Fault::Empty
            | Fault::FailOver { .. }
            | Fault::Move { .. }
            | Fault::Step { .. } => self.strike_the_store(fault),
        }
        self.mark_unable();
    }

    fn strike_the_store(&mut self, fault: Fault) {
        let until = self.now() + fault.span();
        let troubles = &mut self.store.troubles;
        match fault {
            Fault::CutStore { core, way, span, loses } => {
                if loses {
                    self.store.losing.insert(core, until);
                }
                self.cut((Node::Core(core), Node::Store), way, span);
            }
            Fault::Slow { factor, .. } => self.wires.net.slow_down(until, factor),
            Fault::StopStore { .. } => troubles.stopped = troubles.stopped.max(until),
            Fault::CloseStore { .. } => troubles.closed = troubles.closed.max(until),
            Fault::ReadOnly { .. } => troubles.read_only = troubles.read_only.max(until),
            Fault::SlowStore { by, .. } => troubles.slow = (until.max(troubles.slow.0), by),
            Fault::LoseAnswers { of, .. } => {
                troubles.loses_answers = (until.max(troubles.loses_answers.0), of);
            }
            Fault::LoseCommands { of, .. } => {
                troubles.loses_commands = (until.max(troubles.loses_commands.0), of);
            }
            Fault::Restart => self.upheave(Upheaval::Restart, 0),
            Fault::Empty => self.upheave(Upheaval::RestartEmpty, 0),
            Fault::FailOver { commits, ahead_ms } => {
                self.upheave(Upheaval::FailOver(Lost::Commits(commits)), ahead_ms);
            }
            Fault::Move { shard } => self.upheave(Upheaval::Move(Shard(shard)), 0),
            Fault::Step { by_ms } => self.step_clock(by_ms),
            Fault::Blip { .. }
            | Fault::Go { .. }
            | Fault::Reload { .. }
            | Fault::NapTab { .. }
            | Fault::CutTab { .. }
            | Fault::Leave { .. }
            | Fault::Update { .. }
            | Fault::Copy { .. }
            | Fault::Trespass { .. }
            | Fault::Deaf { .. }
            | Fault::Forgetful { .. }
            | Fault::Storm { .. }
            | Fault::CrashEdge { .. }
            | Fault::NapEdge { .. }
            | Fault::DrainEdge { .. }
            | Fault::BreakLink { .. }
            | Fault::BreakWatch { .. }
            | Fault::CutEdge { .. }
            | Fault::Echo { .. }
            | Fault::CrashCore { .. }
            | Fault::NapCore { .. }
            | Fault::DozeCore { .. }
            | Fault::DrainCore { .. }
            | Fault::Evict { .. }
            | Fault::RevokeUser { .. }
            | Fault::RevokeToken { .. }
            | Fault::RevokeKey
            | Fault::Cross { .. }
            | Fault::CutRegions { .. } => {}
        }
        self.put_returns_off();
    }

    /// What was to come back at some time comes back now, or later than it was to.
    fn put_returns_off(&mut self) {
        let now = self.now();
        self.eye.put_returns_off(now, (self.store.back_at(now), self.store.writes_at(now)));
    }

    fn step_clock(&mut self, by_ms: i64) {
        let now = self.now();
        if by_ms < 0 {
            let rooms: Vec<usize> = (0..self.names.rooms.len()).collect();
            self.let_epochs_fall(&rooms);
        }
        self.store.step(by_ms, now);
        self.eye.clock_stepped(by_ms, now, (self.store.back_at(now), self.store.writes_at(now)));
        let by = Duration::from_millis(u64::try_from(by_ms).unwrap_or(0));
        if by <= CLOCK_STEP_MAX {
            self.ledger.hasten_forgotten(by);
        }
    }

    fn let_epochs_fall(&mut self, rooms: &[usize]) {
        let until = self.store.back_at(self.now()) + EPOCHS_FALL_FOR;
        let places = self.tabs.iter_mut().flat_map(|tab| &mut tab.places);
        for place in places.filter(|place| rooms.contains(&place.room)) {
            place.epochs_may_fall = until;
        }
    }

    fn upheave(&mut self, upheaval: Upheaval, ahead_ms: i64) {
        let now = self.now();
        self.store.suffer(upheaval, now);
        if matches!(upheaval, Upheaval::FailOver(_)) {
            self.ledger.failed_over = Some(now);
        }
        self.step_clock(ahead_ms);
        let rooms: Vec<usize> = (0..self.names.rooms.len())
            .filter(|room| match upheaval {
                Upheaval::Move(shard) => shard_of(&self.names.roster(*room), self.store.shards()) == shard,
                Upheaval::Restart | Upheaval::RestartEmpty | Upheaval::FailOver(_) => true,
            })
            .collect();
        self.let_epochs_fall(&rooms);
        self.eye.note_return(&rooms, self.store.back_at(now));
        self.take_stock(&rooms);
        self.wake_tails();
    }

    fn cut(&mut self, (a, b): (Node, Node), way: Way, span: Duration) {
        let until = self.now() + span;
        if way != Way::Back {
            self.wires.net.cut(a, b, until);
        }
        if way != Way::There {
            self.wires.net.cut(b, a, until);
        }
    }

    fn cut_tab(&mut self, tab: usize, way: Way, span: Duration) {
        for edge in 0..self.edges.len() {
            self.cut((Node::Tab(tab), Node::Edge(edge)), way, span);
        }
    }

    fn blip(&mut self, tab: usize) {
        if self.tabs_asleep[tab].is_none() {
            self.hang_up(tab);
            self.dial_after(tab, Duration::ZERO);
        }
    }

    fn reload(&mut self, tab: usize, span: Duration, forgets: bool) {
        if forgets {
            for place in 0..self.tabs[tab].places.len() {
                self.tabs[tab].places[place].mint(tab);
            }
        }
        self.tabs[tab].places.iter_mut().for_each(|place| place.forget_list());
        self.go_away(tab, span);
    }

    fn storm(&mut self, edge: usize) {
        let tabs: Vec<usize> = self
            .sockets
            .values()
            .filter(|socket| socket.edge == edge && socket.open_at_tab)
            .map(|socket| socket.tab)
            .collect();
        for tab in tabs {
            self.blip(tab);
        }
    }

    fn update(&mut self, tab: usize) {
        if self.tabs_asleep[tab].is_some() || self.tabs[tab].away_until > self.wires.now {
            return;
        }
        for at in 0..self.tabs[tab].places.len() {
            let this = &mut self.tabs[tab];
            let status = [Status::Available, Status::Away, Status::Busy][this.chance.random_range(0..3)];
            let says_more = this.chance.random_bool(0.5);
            let place = &mut this.places[at];
            if place.only_watches {
                continue;
            }
            place.status = status;
            place.said += u64::from(says_more);
            self.say_status(tab, at);
        }
    }

    /// A browser duplicates a tab: what it has stored comes with it.
    fn copy(&mut self, tab: usize, of: usize) {
        if tab == of || self.tabs_asleep[tab].is_some() {
            return;
        }
        let copies: Vec<_> = self.tabs[of]
            .places
            .iter()
            .map(|place| (place.room, place.session.clone(), place.generation))
            .collect();
        for place in &mut self.tabs[tab].places {
            if let Some((_, session, generation)) = copies.iter().find(|(room, ..)| *room == place.room) {
                place.session = session.clone();
                place.generation = *generation;
            }
        }
        self.blip(tab);
    }

    /// Comes with the session of somebody else, or asks for rooms that its token does not open.
    fn trespass(&mut self, tab: usize, of: usize) {
        if self.tabs_asleep[tab].is_some() {
            return;
        }
        let (victim, generation) = (&self.tabs[of].places[0], self.tabs[of].places[0].generation);
        let (session, room) = (victim.session.clone(), victim.room);
        let own = self.tabs[tab].places.iter().position(|place| place.room == room);
        if let Some(place) = own.filter(|_| self.tabs[tab].user != self.tabs[of].user) {
            self.tabs[tab].places[place].session = session;
            self.tabs[tab].places[place].generation = generation + 5;
            return self.blip(tab);
        }
        if own.is_some() || !self.tabs[tab].open || self.tabs_asleep[tab].is_some() {
            return;
        }
        let (number, token) = self.issue(tab, 0);
        let room = self.names.rooms[room].clone();
        let join = JoinMessage {
            room: room.clone(),
            token: token.clone(),
            session,
            generation: Some(Generation(generation + 5)),
            profile: Profile::default(),
            since: Since::Nowhere,
            watch: true,
            level: None,
            client: "sim".into(),
        };
        self.say(tab, ClientMessage::Join(Box::new(join)), Some(number));
        let watch = ClientMessage::Watch {
            room: room.clone(),
            token,
            since: Since::Nowhere,
            level: None,
            client: "sim".into(),
        };
        self.say(tab, watch, Some(number));
        self.say(
            tab,
            ClientMessage::Update { room: room.clone(), status: Some(Status::Busy), state: None },
            None,
        );
        self.say(tab, ClientMessage::Token { room: room.clone(), token: Token("t0".into()) }, Some(number));
        self.say(tab, ClientMessage::Leave { room }, None);
    }

    fn break_link(&mut self, place: usize) {
        let key = self.edges[place].process.as_ref().and_then(|edge| edge.link);
        let Some((key, stream)) = key.and_then(|key| Some((key, self.links.get_mut(&key)?))) else { return };
        let (up, down) =
            ((Node::Edge(place), Node::Core(stream.core)), (Node::Core(stream.core), Node::Edge(place)));
        let broken = presence_core::driver::LinkEnd::Broken;
        self.wires.send(&mut stream.up, up, Event::LinkGoneAtCore(key, broken));
        self.wires.send(&mut stream.down, down, Event::LinkGoneAtEdge(key));
    }

    fn break_watch(&mut self, place: usize) {
        let key = self.edges[place].process.as_ref().and_then(|edge| edge.watch);
        let Some((key, stream)) = key.and_then(|key| Some((key, self.watches.get_mut(&key)?))) else {
            return;
        };
        let (up, down) =
            ((Node::Edge(place), Node::Core(stream.core)), (Node::Core(stream.core), Node::Edge(place)));
        self.wires.send(&mut stream.up, up, Event::WatchGoneAtCore(key));
        self.wires.send(&mut stream.down, down, Event::WatchGoneAtPeer(key));
    }

    /// No more faults: everything is mended, started and awake.
    pub(super) fn calm_down(&mut self) {
        let now = self.now();
        self.quiet = true;
        self.dozes.clear();
        self.note("calm", "");
        self.wires.net.mend(now);
        self.store.mend(now);
        self.put_returns_off();
        self.eye.rough_until = self.eye.rough_until.max(now + RECOVERY);
        for place in 0..self.cores.len() {
            if let Some(run) = self.cores[place].process.as_ref().map(|core| core.run) {
                self.resume_core(run);
            } else {
                self.start_core(place);
            }
        }
        for place in 0..self.edges.len() {
            if let Some(run) = self.edges[place].process.as_ref().map(|edge| edge.run) {
                self.resume_edge(place, run);
            } else {
                self.start_edge(place);
            }
        }
        for tab in 0..self.tabs.len() {
            self.wake_tab(tab);
            let this = &mut self.tabs[tab];
            (this.away_until, this.deaf_until, this.forgetful, this.failures) =
                (Mono::default(), now, false, 0);
            for place in 0..self.tabs[tab].places.len() {
                if self.tabs[tab].places[place].wish != Wish::In {
                    self.come_in(tab, place);
                }
            }
            if self.tabs[tab].connection.is_none() {
                self.dial_after(tab, Duration::from_millis(1));
            }
        }
    }

    /// Everything has come to rest after this, counted from the end of faults.
    pub(super) fn time_to_rest(&self) -> Duration {
        // A hold, what is over when it ends, and clients that waited for their longest.
        self.timings.lease_ttl * 3 + Duration::from_secs(35)
    }
}
