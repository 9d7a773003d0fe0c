//! The link to a core and the watch beside it: opened, kept by beats both ways, and moved.

use presence_client::watch::ReconnectCause;
use presence_model::backoff::Backoff;
use presence_model::id::LinkNumber;
use presence_model::lease::LeaseId;
use presence_model::link::{Hello, LinkDown, LinkUp, Welcome};
use presence_model::time::{Mono, StoreTime};
use presence_model::timing::{Timings, TimingsGiven};
use presence_model::watch::WatchDown;
use rand::Rng as _;
use smol_str::SmolStr;

use super::rooms::Wanted;
use super::{Cx, Effect, Hub};

/// A core that was not heard for so many beats is left for the next.
const SILENT_BEATS: u32 = 3;
/// A core without its store is left for another after this part of a heartbeat.
const STORELESS_HEARTBEAT_PART: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// There is none; the next is opened then.
    Down { again: Mono },
    /// Asked for, or waiting to be welcomed; given up then.
    Opening { until: Mono },
    /// Welcomed.
    Up { heard: Mono, beat: Mono, sequence: u64 },
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

pub(super) struct Link {
    state: State,
    watch: Stream,
    number: u64,
    backoff: Backoff,
    watch_backoff: Backoff,
    /// The store's clock as last told, and when that was.
    told: Option<(StoreTime, Mono)>,
    storeless: Option<Mono>,
}

impl Link {
    pub(super) fn new(timings: &Timings) -> Self {
        let backoff = Backoff::new(timings.link_backoff, timings.relink_within());
        Self {
            state: State::Down { again: Mono::default() },
            watch: Stream::Down { again: Mono::default() },
            number: 0,
            backoff,
            watch_backoff: backoff,
            told: None,
            storeless: None,
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

    pub(super) fn due(&self, timings: &Timings) -> Mono {
        let link = match self.state {
            State::Down { again } => again,
            State::Opening { until } => until,
            State::Up { heard, beat, .. } => beat.min(heard + timings.link_beat * SILENT_BEATS),
        };
        match self.watch {
            Stream::Down { again } if self.is_up() => link.min(again),
            Stream::Opening { until } => link.min(until),
            Stream::Down { .. } | Stream::Up => link,
        }
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
            State::Down { again } if again <= cx.now => self.open_link(cx),
            State::Opening { until } if until <= cx.now => self.drop_link(cx),
            State::Up { heard, .. } if heard + beat * SILENT_BEATS <= cx.now => {
                self.drop_link(cx);
                // Silence was long enough: nothing is gained by waiting on.
                self.open_link(cx);
            }
            State::Up { heard, beat: due, sequence } if due <= cx.now => {
                cx.out.push(Effect::Link(LinkUp::Beat { sequence }));
                self.link.state = State::Up { heard, beat: cx.now + beat, sequence: sequence + 1 };
            }
            State::Down { .. } | State::Opening { .. } | State::Up { .. } => {}
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

    fn open_link(&mut self, cx: &mut Cx<'_>) {
        self.link.number += 1;
        self.counts.links += 1;
        self.link.state = State::Opening { until: cx.now + self.timings.link_beat * SILENT_BEATS };
        cx.out.push(Effect::OpenLink(Hello {
            edge: self.settings.edge.clone(),
            incarnation: self.settings.incarnation,
            link: LinkNumber(self.link.number),
            region: self.settings.region.clone(),
            release: SmolStr::new_static(env!("CARGO_PKG_VERSION")),
        }));
    }

    /// Gives the link up; the next one is opened after the backoff.
    fn drop_link(&mut self, cx: &mut Cx<'_>) {
        cx.out.push(Effect::DropLink);
        self.link_lost(cx);
    }

    pub(super) fn link_opened(&mut self, cx: &Cx<'_>) {
        if let State::Opening { until } = &mut self.link.state {
            *until = cx.now + self.timings.link_beat * SILENT_BEATS;
        }
    }

    pub(super) fn link_lost(&mut self, cx: &mut Cx<'_>) {
        if matches!(self.link.state, State::Down { .. }) {
            return;
        }
        let again = cx.now + self.link.backoff.next(self.chance.next_u64());
        self.link.state = State::Down { again };
        self.link.storeless = None;
        let unseen = self.requests.unsay();
        self.unanswered.extend(unseen);
    }

    /// Leaves this core for the next: renewals go on there at once.
    fn move_link(&mut self, cx: &mut Cx<'_>) {
        if !self.link.is_up() {
            return;
        }
        cx.out.push(Effect::Link(LinkUp::Bye { moving: true }));
        cx.out.push(Effect::DropLink);
        self.link_lost(cx);
        self.open_link(cx);
    }

    pub(super) fn on_link(&mut self, down: LinkDown, cx: &mut Cx<'_>) {
        if !self.link.is_up() && !matches!(down, LinkDown::Welcome(_)) {
            return;
        }
        self.link.heard(cx.now);
        match down {
            LinkDown::Welcome(welcome) => self.welcomed(&welcome, cx),
            LinkDown::Beat { sequence: _, store_time, store_reachable } => {
                self.link.told = Some((store_time, cx.now));
                self.store_reached(store_reachable, cx);
            }
            LinkDown::Joined { request, outcome } => self.join_answered(request, outcome, cx),
            LinkDown::Renewed { batch, unknown } => {
                self.renewals.acknowledged(batch);
                for lease in unknown {
                    self.counts.unknown_leases += 1;
                    self.lease_gone(lease, cx);
                }
            }
            LinkDown::Done { request, outcome } => self.request_done(request, outcome, cx),
            LinkDown::RenewAll { within } => {
                let leases = self.all_leases();
                self.renewals.all(leases, within, cx.now);
            }
            LinkDown::EndLease { lease, reason } => self.lease_ended(lease, reason, cx),
            LinkDown::Drain => self.move_link(cx),
        }
    }

    fn welcomed(&mut self, welcome: &Welcome, cx: &mut Cx<'_>) {
        if !matches!(self.link.state, State::Opening { .. }) {
            return;
        }
        self.take_timings(welcome);
        self.link.told = Some((welcome.store_time, cx.now));
        self.link.state = State::Up { heard: cx.now, beat: cx.now, sequence: 1 };
        self.link.storeless = None;
        self.link.backoff = Backoff::new(self.timings.link_backoff, self.timings.relink_within());
        // The watch belongs to the core the link goes to.
        if matches!(self.link.watch, Stream::Opening { .. } | Stream::Up) {
            cx.out.push(Effect::DropWatch);
        }
        self.link.watch_backoff = self.link.backoff;
        self.open_watch(cx);
        for request in self.requests.unsaid() {
            self.say(request, cx);
        }
        let leases = self.all_leases();
        self.renewals.all(leases, self.timings.renew_all_within, cx.now);
        self.rearm_all(cx.now);
    }

    fn take_timings(&mut self, welcome: &Welcome) {
        let given = TimingsGiven {
            heartbeat: Some(welcome.heartbeat),
            lease_ttl: Some(welcome.lease_ttl),
            grace: Some(welcome.grace),
            edge_lost: Some(welcome.edge_lost),
            merge_interval: None,
        };
        // A core checked its own timers; of those that break a rule here only what it said is taken.
        let mut timings = Timings::derive(given).unwrap_or(self.timings);
        timings.heartbeat = welcome.heartbeat;
        timings.lease_ttl = welcome.lease_ttl;
        timings.grace = welcome.grace;
        timings.edge_lost = welcome.edge_lost;
        timings.link_beat = welcome.link_beat;
        timings.link_backoff = welcome.link_beat;
        // How long this process may take to go is its own affair.
        timings.drain_window = timings.drain_window.min(self.timings.drain_window);
        self.renewals.set_timings(&timings);
        self.rooms.set_timings(timings.link_beat, timings.grace);
        self.timings = timings;
    }

    fn store_reached(&mut self, reached: bool, cx: &mut Cx<'_>) {
        if reached {
            self.link.storeless = None;
            return;
        }
        let since = *self.link.storeless.get_or_insert(cx.now);
        if self.settings.cores > 1 && cx.now.since(since) >= self.timings.heartbeat / STORELESS_HEARTBEAT_PART
        {
            self.move_link(cx);
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
