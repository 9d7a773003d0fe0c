//! The link to a core and the watch beside it: opened, kept by beats both ways, and moved.

pub(super) mod cores;

use presence_client::watch::ReconnectCause;
use presence_model::backoff::Backoff;
use presence_model::class::RoomTimings;
use presence_model::hold::CLOCK_STEP_MAX;
use presence_model::id::LinkNumber;
use presence_model::lease::LeaseId;
use presence_model::link::{Hello, LinkDown, LinkUp, Welcome};
use presence_model::time::{Mono, StoreTime};
use presence_model::timing::Timings;
use presence_model::watch::WatchDown;
use rand::Rng;
use smol_str::SmolStr;

use self::cores::{Cores, Fault};
use super::rooms::Wanted;
use super::table::Unsaid;
use super::{CoreAddress, Cx, Effect, Hub};

/// A core that was not heard for so many beats is left for the next.
pub(super) const SILENT_BEATS: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// There is none; the next is opened as soon as a core may be tried.
    Down,
    /// Asked for, or waiting to be welcomed; given up then.
    Opening { until: Mono },
    /// Welcomed.
    Up { since: Mono, heard: Mono, beat: Mono, sequence: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    /// There is none; opened then if the link is up.
    Down {
        again: Mono,
    },
    Opening {
        until: Mono,
    },
    Up,
}

/// First and last wait before a core that failed is tried again.
fn backoff(timings: &Timings) -> Backoff {
    Backoff::new(timings.link_backoff, timings.relink_within())
}

pub(super) struct Link {
    state: State,
    watch: Stream,
    number: u64,
    cores: Cores,
    watch_backoff: Backoff,
    /// The store's clock as last told, and when that was.
    told: Option<(StoreTime, Mono)>,
}

impl Link {
    pub(super) fn new(timings: &Timings, known: Vec<CoreAddress>, chance: &mut impl Rng) -> Self {
        let backoff = backoff(timings);
        let mut cores = Cores::new(backoff, timings.heartbeat);
        cores.replace(known, chance);
        Self {
            state: State::Down,
            watch: Stream::Down { again: Mono::default() },
            number: 0,
            cores,
            watch_backoff: backoff,
            told: None,
        }
    }

    /// Welcomed and not lost since.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    pub(super) fn is_watching(&self) -> bool {
        self.watch == Stream::Up
    }

    /// The store's clock, behind it by what a message takes; none before the first welcome.
    pub(super) fn store_time(&self, now: Mono) -> Option<StoreTime> {
        self.told.map(|(store_time, at)| store_time + now.since(at))
    }

    /// When the store's clock will say so, in the time of this process.
    pub(super) fn when(&self, store_time: StoreTime) -> Option<Mono> {
        self.told.map(|(told, at)| at + store_time.since(told))
    }

    pub(super) fn due(&self, timings: &Timings) -> Option<Mono> {
        let link = match self.state {
            State::Down => self.cores.due(),
            State::Opening { until } => Some(until),
            State::Up { heard, beat, .. } => Some(beat.min(heard + timings.link_beat * SILENT_BEATS)),
        };
        let watch = match self.watch {
            Stream::Down { again } if self.is_up() => Some(again),
            Stream::Opening { until } => Some(until),
            Stream::Down { .. } | Stream::Up => None,
        };
        link.into_iter().chain(watch).min()
    }

    /// This process did not listen for a while: the core's silence until now proves nothing.
    pub(super) fn excuse(&mut self, now: Mono) {
        self.heard(now);
    }

    fn heard(&mut self, now: Mono) {
        if let State::Up { heard, .. } = &mut self.state {
            *heard = now;
        }
    }
}

impl Hub {
    pub(super) fn link_tick(&mut self, cx: &mut Cx<'_>) {
        let beat = self.timings.link_beat;
        match self.link.state {
            State::Down => self.open_link(cx),
            State::Opening { until } if until <= cx.now => self.leave(Fault::Failed, cx),
            State::Up { heard, .. } if heard + beat * SILENT_BEATS <= cx.now => {
                self.leave(Fault::SilentSince(heard), cx);
            }
            State::Up { since, heard, beat: due, sequence } if due <= cx.now => {
                cx.out.push(Effect::Link(LinkUp::Beat { sequence }));
                self.link.state = State::Up { since, heard, beat: cx.now + beat, sequence: sequence + 1 };
            }
            State::Opening { .. } | State::Up { .. } => {}
        }
        if self.link.is_up() && self.renewals.is_overdue(cx.now) {
            self.leave_for_better(cx);
        }
        match self.link.watch {
            Stream::Down { again } if again <= cx.now && self.link.is_up() => self.open_watch(cx),
            Stream::Opening { until } if until <= cx.now => {
                cx.out.push(Effect::DropWatch);
                self.watch_lost(cx);
            }
            Stream::Down { .. } | Stream::Opening { .. } | Stream::Up => {}
        }
    }

    /// Links to the next core that may be tried, if there is one now.
    fn open_link(&mut self, cx: &mut Cx<'_>) {
        if self.link.state != State::Down || self.is_drained() {
            return;
        }
        if let Some(core) = self.link.cores.pick(cx.now) {
            self.open_link_to(core, cx);
        }
    }

    fn open_link_to(&mut self, core: CoreAddress, cx: &mut Cx<'_>) {
        self.link.number += 1;
        self.counts.links += 1;
        self.link.state = State::Opening { until: cx.now + self.timings.link_beat * SILENT_BEATS };
        let hello = Hello {
            edge: self.settings.edge.clone(),
            incarnation: self.settings.incarnation,
            link: LinkNumber(self.link.number),
            region: self.settings.region.clone(),
            release: SmolStr::new_static(env!("CARGO_PKG_VERSION")),
        };
        cx.out.push(Effect::OpenLink(core, hello));
    }

    /// Leaves this core for the next: renewals go on there at once. A core that still hears is told that
    /// the edge lives on.
    fn leave(&mut self, fault: Fault, cx: &mut Cx<'_>) {
        self.say_moving(cx);
        self.link_down(fault, cx);
        self.open_link(cx);
    }

    /// The link stands, but what it is there for does not work: moves if another core may do better, else
    /// stays, since a core that is back serves again at once.
    fn leave_for_better(&mut self, cx: &mut Cx<'_>) {
        let chance = self.chance.next_u64();
        if let Some(core) = self.link.cores.pick_better(cx.now, chance) {
            self.say_moving(cx);
            self.forget_link();
            self.open_link_to(core, cx);
        }
    }

    fn say_moving(&mut self, cx: &mut Cx<'_>) {
        if self.link.is_up() {
            cx.out.push(Effect::Link(LinkUp::Bye { moving: true }));
        }
        cx.out.push(Effect::DropLink);
    }

    pub(super) fn link_opened(&mut self, cx: &Cx<'_>) {
        if let State::Opening { until } = &mut self.link.state {
            *until = cx.now + self.timings.link_beat * SILENT_BEATS;
        }
    }

    /// The stream ended, or could not be opened.
    pub(super) fn link_lost(&mut self, cx: &mut Cx<'_>) {
        if self.link.state != State::Down {
            self.link_down(Fault::Failed, cx);
            self.open_link(cx);
        }
    }

    fn link_down(&mut self, fault: Fault, cx: &Cx<'_>) {
        self.link.cores.fault(fault, cx.now, self.chance.next_u64());
        self.forget_link();
    }

    fn forget_link(&mut self) {
        self.link.state = State::Down;
        let unseen = self.requests.unsay();
        self.unanswered.extend(unseen);
    }

    /// These are all cores there are. A link that stands is kept: its core may be served by name no more,
    /// but it serves.
    pub(super) fn take_cores(&mut self, cores: Vec<CoreAddress>, cx: &mut Cx<'_>) {
        self.link.cores.replace(cores, &mut self.chance);
        self.open_link(cx);
    }

    pub(super) fn on_link(&mut self, down: LinkDown, cx: &mut Cx<'_>) {
        // A core may go before it has said welcome.
        if !self.link.is_up() && !matches!(down, LinkDown::Welcome(_) | LinkDown::Drain) {
            return;
        }
        self.link.heard(cx.now);
        match down {
            LinkDown::Welcome(welcome) => self.welcomed(&welcome, cx),
            LinkDown::Beat { sequence: _, store_time, store_reachable } => {
                self.clock_told(store_time, cx.now);
                self.beat_heard(store_reachable, cx);
            }
            LinkDown::Joined { request, outcome } => self.join_answered(request, outcome, cx),
            LinkDown::Renewed { batch, unknown } => {
                self.renewals.acknowledged(batch);
                self.link.cores.proved();
                for lease in unknown {
                    self.counts.unknown_leases += 1;
                    self.lease_gone(lease, cx);
                }
            }
            // Whoever holds it in good faith joins anew, as if nobody knew it.
            LinkDown::Foreign { leases } => {
                for lease in leases {
                    self.counts.unknown_leases += 1;
                    self.lease_gone(lease, cx);
                }
            }
            LinkDown::Done { request, outcome } => self.request_done(request, outcome, cx),
            LinkDown::RenewAll { within } => {
                let leases = self.all_leases();
                self.renewals.all(leases, within, cx.now);
                self.say_news_again(cx);
            }
            LinkDown::EndLease { lease, reason } => self.lease_ended(lease, reason, cx),
            LinkDown::Revoked { revocations } => self.on_revoked(revocations, cx),
            LinkDown::Drain => self.leave(Fault::Drained, cx),
            LinkDown::DrainEdge => cx.out.push(Effect::Go),
        }
    }

    /// The store's clock: tokens end by it, sooner than was thought if it was set ahead.
    fn clock_told(&mut self, store_time: StoreTime, now: Mono) {
        let before = self.link.store_time(now);
        self.link.told = Some((store_time, now));
        if before.is_none_or(|before| store_time > before + CLOCK_STEP_MAX) {
            for key in self.conns.keys() {
                self.arm(key);
            }
        }
    }

    fn welcomed(&mut self, welcome: &Welcome, cx: &mut Cx<'_>) {
        if !matches!(self.link.state, State::Opening { .. }) {
            return;
        }
        self.take_timings(welcome);
        self.clock_told(welcome.store_time, cx.now);
        self.link.state = State::Up { since: cx.now, heard: cx.now, beat: cx.now, sequence: 1 };
        self.link.cores.set_timings(backoff(&self.timings), self.timings.heartbeat);
        // The watch belongs to the core the link goes to.
        if matches!(self.link.watch, Stream::Opening { .. } | Stream::Up) {
            cx.out.push(Effect::DropWatch);
        }
        self.link.watch_backoff = backoff(&self.timings);
        self.open_watch(cx);
        for request in self.requests.unsaid() {
            self.say(request, cx);
        }
        let leases = self.all_leases();
        self.renewals.all(leases, self.timings.renew_all_within, cx.now);
        self.say_news_again(cx);
        self.rearm_all(cx.now);
    }

    fn take_timings(&mut self, welcome: &Welcome) {
        let Welcome { heartbeat, lease_ttl, grace, heartbeat_min, link_beat, edge_lost, .. } = *welcome;
        let usual = RoomTimings { heartbeat, lease_ttl, grace };
        let mut timings = Timings::told(usual, heartbeat_min, link_beat, edge_lost);
        // How long this process may take to go is its own affair.
        timings.drain_window = timings.drain_window.min(self.timings.drain_window);
        self.renewals.set_timings(&timings);
        self.rooms.set_timings(&timings);
        self.timings = timings;
    }

    /// A core that says it cannot reach the store is of no use; one that was there for a heartbeat and can
    /// is good.
    fn beat_heard(&mut self, store_reachable: bool, cx: &mut Cx<'_>) {
        let State::Up { since, .. } = self.link.state else { return };
        if !store_reachable {
            self.leave_for_better(cx);
        } else if cx.now.since(since) >= self.timings.heartbeat && !self.renewals.is_overdue(cx.now) {
            self.link.cores.proved();
        }
    }

    /// Whoever asks for all renewals may have lost what was committed last: what was said of sessions within the
    /// last ttl is said again. What is stored already is no update.
    fn say_news_again(&mut self, cx: &mut Cx<'_>) {
        let (ttl, now) = (self.timings.lease_ttl, cx.now);
        let mut news = Vec::new();
        for (key, conn) in self.conns.iter() {
            for stay in &conn.stays {
                let said = stay.session.as_deref().map(|session| session.said_within(ttl, now));
                if said.is_some_and(Unsaid::any) {
                    news.push((key, stay.room));
                }
            }
        }
        for (key, room) in news {
            if let Some(session) = self.conns.get_mut(key).and_then(|conn| conn.session_mut(room)) {
                session.unsaid = session.unsaid.with(session.said_within(ttl, now));
                self.say_update(key, room, cx);
            }
        }
    }

    /// All leases of connections that stand, by place; for the others silence is about to prove something.
    fn all_leases(&self) -> Vec<LeaseId> {
        let sessions = self.conns.iter().flat_map(|(_, conn)| conn.stays.iter());
        sessions.filter_map(|stay| stay.session.as_deref()?.lease()).collect()
    }

    fn open_watch(&mut self, cx: &mut Cx<'_>) {
        self.link.watch = Stream::Opening { until: cx.now + self.timings.link_beat * SILENT_BEATS };
        cx.out.push(Effect::OpenWatch);
    }

    pub(super) fn watch_opened(&mut self, cx: &Cx<'_>) {
        if matches!(self.link.watch, Stream::Opening { .. }) {
            self.link.watch = Stream::Up;
            self.rooms.connected(cx.now);
        }
    }

    pub(super) fn on_watch(&mut self, down: WatchDown, cx: &Cx<'_>) {
        if self.link.is_watching() {
            self.link.watch_backoff.reset();
            self.rooms.take(down, cx.now);
        }
    }

    /// Views turn stale once nothing was heard for three beats, so a short break shows nobody anything.
    pub(super) fn watch_lost(&mut self, cx: &Cx<'_>) {
        let again = cx.now + self.link.watch_backoff.next(self.chance.next_u64());
        self.link.watch = Stream::Down { again };
    }

    /// Carries out what the rooms want of the stream.
    pub(super) fn tend_watch(&mut self, cx: &mut Cx<'_>) {
        for wanted in std::mem::take(&mut self.rooms.wanted) {
            match wanted {
                // Without a stream nothing is lost: all rooms are opened on the next.
                Wanted::Send(up) if self.link.is_watching() => cx.out.push(Effect::Watch(up)),
                Wanted::Send(_) => {}
                Wanted::Reconnect(ReconnectCause::Silent) if self.link.is_watching() => {
                    cx.out.push(Effect::DropWatch);
                    self.watch_lost(cx);
                }
                // A core that goes says so on the link as well, and the watch follows the link.
                Wanted::Reconnect(ReconnectCause::Silent | ReconnectCause::Drain) => {}
            }
        }
    }
}
