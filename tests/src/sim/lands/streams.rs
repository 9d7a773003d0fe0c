//! Watches: of onlookers at the cores of their region, and of cores at those of another.

use std::time::Duration;

use presence_core::driver::{Input, PeerHeard, WatchKey};
use presence_model::time::Mono;
use presence_model::watch::{WatchDown, WatchUp};
use rand::{Rng as _, RngExt as _};

use super::{Event, Lands};
use crate::sim::agenda::Pipe;
use crate::sim::faults::Death;
use crate::sim::network::Node;

/// A stream that is not open by then is given up.
const OPEN_WITHIN: Duration = Duration::from_secs(5);
/// Until what was handed out is written to a socket next to it.
const WRITTEN_AFTER: Duration = Duration::from_millis(1);

/// Who watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    Onlooker(usize),
    /// The core of this place and run, which wants to see this region.
    Core(usize, u64, usize),
}

/// One watch.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) from: From,
    /// The place and the run of a core.
    pub(super) to: (usize, u64),
    up: Pipe,
    down: Pipe,
    pub(super) open_here: bool,
    pub(super) open_there: bool,
}

impl Stream {
    /// Whether something arrives after that only.
    pub(super) fn is_held_up(&self, until: Mono) -> bool {
        self.up.last.max(self.down.last) > until
    }
}

impl From {
    pub(super) fn run(self) -> Option<u64> {
        match self {
            Self::Onlooker(_) => None,
            Self::Core(_, run, _) => Some(run),
        }
    }

    fn node(self) -> Node {
        match self {
            Self::Onlooker(onlooker) => Node::Desk(onlooker),
            Self::Core(place, ..) => Node::Core(place),
        }
    }
}

impl Lands {
    /// Asks a core for a stream.
    pub(super) fn open_watch(&mut self, from: From, to: (usize, u64)) -> WatchKey {
        let key = WatchKey(self.key());
        let (up, down) = (Pipe::default(), Pipe::default());
        let stream = Stream { from, to, up, down, open_here: true, open_there: false };
        self.watches.insert(key, stream);
        self.send_up(key, Event::WatchOpening(key));
        self.after(OPEN_WITHIN, Event::WatchOverdue(key));
        key
    }

    fn send_up(&mut self, key: WatchKey, event: Event) {
        let Some(stream) = self.watches.get(&key) else { return };
        let (mut pipe, way) = (stream.up, (stream.from.node(), Node::Core(stream.to.0)));
        let at = self.arrival(&mut pipe, way);
        self.agenda.plan(at, event);
        self.watches.entry(key).and_modify(|stream| stream.up = pipe);
    }

    fn send_down(&mut self, key: WatchKey, event: Event) {
        let Some(stream) = self.watches.get(&key) else { return };
        let (mut pipe, way) = (stream.down, (Node::Core(stream.to.0), stream.from.node()));
        let at = self.arrival(&mut pipe, way);
        self.agenda.plan(at, event);
        self.watches.entry(key).and_modify(|stream| stream.down = pipe);
    }

    pub(super) fn say_watch(&mut self, key: WatchKey, up: WatchUp) {
        let from = self.watches.get(&key).map(|stream| (stream.from, stream.to));
        self.story.message(self.now, "watch up", || format!("{from:?} {up:?}"));
        self.send_up(key, Event::WatchUp(key, up));
    }

    /// Whoever watches hangs up.
    pub(super) fn hang_up(&mut self, key: WatchKey) {
        if self.watches.get_mut(&key).is_some_and(|stream| std::mem::take(&mut stream.open_here)) {
            self.send_up(key, Event::WatchGoneAtCore(key));
        }
    }

    pub(super) fn watch_opening(&mut self, key: WatchKey) {
        let Some(stream) = self.watches.get(&key) else { return };
        let (_, run) = stream.to;
        if self.place_of(run).is_none() {
            return self.send_down(key, Event::WatchGoneAtPeer(key));
        }
        self.watches.entry(key).and_modify(|stream| stream.open_there = true);
        self.send_down(key, Event::WatchOpened(key));
        self.feed(run, Input::WatchOpened(key));
    }

    /// The run of the core at the far end, while the stream stands there.
    fn run_behind(&self, key: WatchKey) -> Option<u64> {
        self.watches.get(&key).filter(|stream| stream.open_there).map(|stream| stream.to.1)
    }

    pub(super) fn watch_up(&mut self, key: WatchKey, up: WatchUp) {
        if let Some(run) = self.run_behind(key) {
            self.feed(run, Input::Watch(key, up));
        }
    }

    pub(super) fn watch_ready(&mut self, key: WatchKey) {
        if let Some(run) = self.run_behind(key) {
            self.feed(run, Input::WatchReady(key));
        }
    }

    pub(super) fn watch_gone_at_core(&mut self, key: WatchKey) {
        if let Some(run) = self.run_behind(key) {
            self.watches.remove(&key);
            self.feed(run, Input::WatchClosed(key));
        }
    }

    pub(super) fn close_watch_at_core(&mut self, key: WatchKey) {
        self.watches.entry(key).and_modify(|stream| stream.open_there = false);
        self.send_down(key, Event::WatchGoneAtPeer(key));
    }

    pub(super) fn tell_watcher(&mut self, key: WatchKey, mut events: Vec<WatchDown>) {
        self.after(WRITTEN_AFTER, Event::WatchReady(key));
        let Some(from) = self.watches.get(&key).map(|stream| stream.from) else { return };
        let later = self.spoil_told(from, &mut events);
        self.send_down(key, Event::WatchDown(key, events));
        if let Some((after, events)) = later {
            self.after(after, Event::WatchDown(key, events));
        }
    }

    /// What was opened by whom, if that still wants it.
    fn wanted(&self, key: WatchKey) -> Option<From> {
        self.watches.get(&key).filter(|stream| stream.open_here).map(|stream| stream.from)
    }

    pub(super) fn watch_opened(&mut self, key: WatchKey) {
        match self.wanted(key) {
            Some(From::Onlooker(onlooker)) => self.onlooker_opened(onlooker, key),
            Some(From::Core(_, run, land)) => {
                let Some(way) = self.core(run).and_then(|core| core.peers.get_mut(&land)) else { return };
                if way.dialled != Some(key) {
                    return;
                }
                way.dialled = None;
                let before = way.stream.replace(key);
                before.into_iter().for_each(|before| self.hang_up(before));
                self.hear_of(run, land, PeerHeard::Connected);
                self.spoil_reconnect(run, land);
            }
            None => {}
        }
    }

    pub(super) fn watch_down(&mut self, key: WatchKey, events: Vec<WatchDown>) {
        let from = self.watches.get(&key).map(|stream| (stream.from, stream.to));
        self.story.message(self.now, "watch down", || format!("{from:?} {events:?}"));
        match self.wanted(key) {
            Some(From::Onlooker(onlooker)) => self.onlooker_told(onlooker, key, events),
            Some(From::Core(_, run, land)) => {
                let now = self.now;
                let Some(way) = self.core(run).and_then(|core| core.peers.get_mut(&land)) else { return };
                if way.stream != Some(key) {
                    return;
                }
                way.heard = now;
                if events.iter().any(|event| matches!(event, WatchDown::Progress { .. })) {
                    way.backoff.reset();
                }
                for event in events {
                    self.hear_of(run, land, PeerHeard::Down(event));
                }
            }
            None => {}
        }
    }

    pub(super) fn watch_gone_at_peer(&mut self, key: WatchKey) {
        let Some(from) = self.wanted(key) else { return };
        self.watches.remove(&key);
        match from {
            From::Onlooker(onlooker) => self.onlooker_lost(onlooker, key),
            From::Core(_, run, land) => {
                let Some(way) = self.core(run).and_then(|core| core.peers.get_mut(&land)) else { return };
                let was_open = way.stream == Some(key);
                way.stream.take_if(|open| *open == key);
                way.dialled.take_if(|dialled| *dialled == key);
                if was_open {
                    self.hear_of(run, land, PeerHeard::Lost);
                }
                self.redial_peer(run, land);
            }
        }
    }

    /// Whoever asked for it waits no longer.
    pub(super) fn watch_overdue(&mut self, key: WatchKey) {
        let Some(From::Core(_, run, land)) = self.wanted(key) else { return };
        let Some(way) = self.core(run).and_then(|core| core.peers.get_mut(&land)) else { return };
        if way.dialled.take_if(|dialled| *dialled == key).is_some() {
            self.hang_up(key);
            self.redial_peer(run, land);
        }
    }

    fn redial_peer(&mut self, run: u64, land: usize) {
        let drawn = self.chance.next_u64();
        let Some(way) = self.core(run).and_then(|core| core.peers.get_mut(&land)) else { return };
        let wait = way.backoff.next(drawn);
        self.after(wait, Event::DialPeer(run, land));
    }

    /// A core gives a stream up and wants another.
    pub(super) fn dial_peer_again(&mut self, run: u64, land: usize) {
        let Some(way) = self.core(run).and_then(|core| core.peers.get_mut(&land)) else { return };
        let given_up = [way.stream.take(), way.dialled.take()];
        given_up.into_iter().flatten().for_each(|key| self.hang_up(key));
        self.redial_peer(run, land);
    }

    pub(super) fn dial_peer(&mut self, run: u64, land: usize) {
        let Some(place) = self.place_of(run) else { return };
        let is_there = |way: &super::cores::PeerWay| way.stream.is_some() || way.dialled.is_some();
        if self.core(run).is_none_or(|core| core.peers.get(&land).is_none_or(is_there)) {
            return;
        }
        let to = self.chance.random_range(0..self.plan.shape.cores) + land * self.plan.shape.cores;
        let Some(to_run) = self.cores[to].process.as_ref().map(|core| core.run) else {
            return self.redial_peer(run, land);
        };
        let key = self.open_watch(From::Core(place, run, land), (to, to_run));
        if let Some(way) = self.core(run).and_then(|core| core.peers.get_mut(&land)) {
            way.dialled = Some(key);
        }
    }

    /// A core is gone: whoever is connected to it hears so, unless its machine is gone as well.
    pub(super) fn end_watches_of(&mut self, run: u64, death: Death) {
        let keys: Vec<WatchKey> = self.watches.keys().copied().collect();
        for key in keys {
            let Some(stream) = self.watches.get_mut(&key) else { continue };
            let (from, to) = (stream.from.run() == Some(run), stream.to.1 == run);
            if from && std::mem::take(&mut stream.open_here) && death == Death::Process {
                self.send_up(key, Event::WatchGoneAtCore(key));
            } else if to && std::mem::take(&mut stream.open_there) && death == Death::Process {
                self.send_down(key, Event::WatchGoneAtPeer(key));
            }
        }
    }
}
