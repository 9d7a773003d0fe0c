//! Lands of the stories about regions: each a world of its own with a core and a store, which watch each other over a way
//! that takes time and may be cut.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use presence_client::watch::ReconnectCause;
use presence_model::replica::Freshness;
use presence_model::time::Mono;
use presence_model::view::RegionEvent;
use presence_model::watch::{WatchDown, WatchUp};

use super::world::watcher::open;
use super::world::{World, region_called, secs};
use crate::driver::{Input, PeerHeard, PeerWish, WatchKey};

pub(super) const MERGE: Duration = Duration::from_secs(20);
/// One way around the world.
const WAY: Duration = Duration::from_millis(80);
const STEP: Duration = Duration::from_millis(5);
const RECONNECT: Duration = Duration::from_millis(500);
/// What an onlooker of each world has as its number.
pub(super) const HERE: WatchKey = WatchKey(1);

enum Wire {
    Up(usize, WatchKey, WatchUp),
    Down(usize, usize, PeerHeard),
}

/// What crossed from one world to another.
#[derive(Default)]
pub(super) struct Crossed {
    pub(super) beats: usize,
    pub(super) openings: usize,
    pub(super) members: usize,
    pub(super) others: usize,
}

pub(super) struct Lands {
    pub(super) names: Vec<&'static str>,
    pub(super) worlds: Vec<World>,
    pub(super) now: Mono,
    wires: VecDeque<(Mono, Wire)>,
    /// From which world the stream is, to which, and its key there.
    streams: Vec<(usize, usize, WatchKey)>,
    redials: Vec<(Mono, usize, usize)>,
    /// Those that hear nobody and are heard by nobody.
    pub(super) cut: BTreeSet<usize>,
    keys: u64,
    pub(super) crossed: Crossed,
}

impl Lands {
    pub(super) fn new(names: &[&'static str]) -> Self {
        let others = |own: &str| names.iter().filter(|name| **name != own).copied().collect::<Vec<_>>();
        let worlds: Vec<World> = names.iter().map(|own| World::of_regions(own, &[], &others(own))).collect();
        let mut lands = Self {
            names: names.to_vec(),
            now: worlds[0].now,
            worlds,
            wires: VecDeque::new(),
            streams: Vec::new(),
            redials: Vec::new(),
            cut: BTreeSet::new(),
            keys: 1_000,
            crossed: Crossed::default(),
        };
        for from in 0..names.len() {
            for to in (0..names.len()).filter(|to| *to != from) {
                lands.connect(from, to);
            }
        }
        lands.run(secs(2));
        lands
    }

    fn connect(&mut self, from: usize, to: usize) {
        let hangs_up = |stream: &&(usize, usize, WatchKey)| (stream.0, stream.1) == (from, to);
        if let Some((_, _, old)) = self.streams.iter().find(hangs_up).copied() {
            self.worlds[to].foreign_watches.remove(&old);
            self.worlds[to].input(0, Input::WatchClosed(old));
        }
        self.streams.retain(|stream| !hangs_up(&stream));
        if self.cut.contains(&from) || self.cut.contains(&to) {
            return self.redials.push((self.now + RECONNECT, from, to));
        }
        self.keys += 1;
        let key = WatchKey(self.keys);
        self.streams.push((from, to, key));
        self.worlds[to].foreign_watches.insert(key, Vec::new());
        self.worlds[to].input(0, Input::WatchOpened(key));
        self.worlds[from].input(0, Input::Peer(region_called(self.names[to]), PeerHeard::Connected));
    }

    pub(super) fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.now = self.now + STEP;
            for world in &mut self.worlds {
                world.run(STEP);
            }
            self.pick_up();
            self.deliver();
        }
    }

    fn pick_up(&mut self) {
        for from in 0..self.worlds.len() {
            for (region, wish) in std::mem::take(&mut self.worlds[from].wishes) {
                let to = self.names.iter().position(|name| *name == region.as_str()).unwrap();
                match wish {
                    PeerWish::Send(up) => self.send_up((from, to), up),
                    PeerWish::Reconnect(ReconnectCause::Silent | ReconnectCause::Drain) => {
                        self.redials.push((self.now + RECONNECT, from, to));
                    }
                    PeerWish::Refused(..) | PeerWish::Gone => {}
                }
            }
        }
        for (from, to, key) in self.streams.clone() {
            let told = self.worlds[to].foreign_watches.get_mut(&key).map(std::mem::take);
            for down in told.into_iter().flatten() {
                self.count(&down);
                if !self.cut.contains(&from) && !self.cut.contains(&to) {
                    self.wires.push_back((self.now + WAY, Wire::Down(from, to, PeerHeard::Down(down))));
                }
            }
        }
    }

    fn send_up(&mut self, (from, to): (usize, usize), up: WatchUp) {
        self.crossed.openings += usize::from(matches!(up, WatchUp::Open(_)));
        let stream = self.streams.iter().find(|stream| (stream.0, stream.1) == (from, to));
        if let Some((_, _, key)) = stream.filter(|_| !self.cut.contains(&from) && !self.cut.contains(&to)) {
            self.wires.push_back((self.now + WAY, Wire::Up(to, *key, up)));
        }
    }

    fn count(&mut self, down: &WatchDown) {
        match down {
            WatchDown::Progress { .. } => self.crossed.beats += 1,
            WatchDown::Region { event: RegionEvent::Page(page), .. } => {
                self.crossed.members += page.members.len()
            }
            WatchDown::Region { event: RegionEvent::Delta(delta), .. } => {
                self.crossed.members += delta.upserts.len() + delta.removals.len();
            }
            WatchDown::Region { .. }
            | WatchDown::Count { .. }
            | WatchDown::Refused { .. }
            | WatchDown::Drain => {
                self.crossed.others += 1;
            }
        }
    }

    fn deliver(&mut self) {
        while self.wires.front().is_some_and(|(at, _)| *at <= self.now)
            && let Some((_, wire)) = self.wires.pop_front()
        {
            match wire {
                Wire::Up(to, key, up) if self.worlds[to].foreign_watches.contains_key(&key) => {
                    self.worlds[to].input(0, Input::Watch(key, up));
                }
                Wire::Up(..) => {}
                Wire::Down(from, to, heard) => {
                    self.worlds[from].input(0, Input::Peer(region_called(self.names[to]), heard));
                }
            }
        }
        let now = self.now;
        let (due, later) = std::mem::take(&mut self.redials).into_iter().partition(|(at, ..)| *at <= now);
        self.redials = later;
        let due: Vec<(Mono, usize, usize)> = due;
        for (_, from, to) in due {
            self.connect(from, to);
        }
    }

    /// Somebody in each land watches room `r`.
    pub(super) fn watch_all(&mut self) {
        for world in &mut self.worlds {
            let key = world.watch_nothing(0, HERE.0);
            world.open(key, open("r", None));
        }
        self.run(secs(1));
    }

    pub(super) fn merged_since(&self, land: usize, since: Mono) -> Vec<&str> {
        self.worlds[land].watchers[&HERE].merged_since(since)
    }

    pub(super) fn shown(&self, land: usize) -> Vec<String> {
        self.worlds[land].watchers[&HERE].shown_merged()
    }

    pub(super) fn fresh(&self, land: usize, of: usize) -> Option<Freshness> {
        self.worlds[land].watchers[&HERE].fresh(&region_called(self.names[of]))
    }
}
