//! Cores and the stores of their regions.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_core::driver::{Driver, DriverSettings, Effect, Input, PeerHeard, PeerWish, StoreOp};
use presence_core::store::memory::{MemorySettings, MemoryStore};
use presence_core::store::{Command, Outcome, Retention, StoreFault};
use presence_model::backoff::Backoff;
use presence_model::id::RegionId;
use presence_model::time::{Mono, StoreTime, millis};
use rand::{Rng as _, RngExt as _};

use super::{Event, Lands};
use crate::sim::chance::{Chance, Purpose, chance};
use crate::sim::faults::Death;
use crate::sim::guarantee::Guarantee;
use crate::sim::network::Node;
use presence_core::driver::WatchKey;

/// The stores' clocks at the start of every world.
const START_MS: u64 = 1_790_000_000_000;

/// The store of one region.
pub(super) struct Stored {
    store: MemoryStore,
    tails: Vec<(u64, StoreOp, Command)>,
}

/// A place where a core runs, or will.
pub(super) struct CoreSlot {
    chance: Chance,
    pub(super) process: Option<Core>,
}

/// A core process.
pub(super) struct Core {
    driver: Driver,
    pub(super) run: u64,
    pub(super) started: Mono,
    /// Since when it does not stand still.
    pub(super) awake_since: Mono,
    wake: Option<Mono>,
    pub(super) asleep: Option<Vec<Event>>,
    /// By the place of their region.
    pub(super) peers: BTreeMap<usize, PeerWay>,
}

/// A core's way to a region that is kept elsewhere.
pub(super) struct PeerWay {
    pub(super) stream: Option<WatchKey>,
    /// One that is being opened.
    pub(super) dialled: Option<WatchKey>,
    pub(super) backoff: Backoff,
    /// When anything of it was heard last.
    pub(super) heard: Mono,
    /// When it was not as it should be last.
    pub(super) unwell_at: Mono,
    /// Whether the core has given the region up, and has not had it back for long.
    pub(super) is_lost: bool,
}

impl PeerWay {
    fn new(now: Mono) -> Self {
        let backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(10));
        Self { stream: None, dialled: None, backoff, heard: now, unwell_at: now, is_lost: false }
    }
}

impl Stored {
    pub(super) fn new(seed: u64, land: usize) -> Self {
        let settings = MemorySettings {
            shards: 1,
            seed: seed.wrapping_add(land as u64),
            retention: Retention::default(),
            replica_lag: 0,
        };
        Self { store: MemoryStore::new(settings, StoreTime(START_MS)), tails: Vec::new() }
    }
}

impl CoreSlot {
    pub(super) fn new(seed: u64, place: usize) -> Self {
        Self { chance: chance(seed, Purpose::Core, place as u64), process: None }
    }
}

impl Lands {
    pub(super) fn store_time(&self) -> StoreTime {
        StoreTime(START_MS + millis(self.now.0))
    }

    pub(super) fn start_core(&mut self, place: usize) {
        if self.cores[place].process.is_some() {
            return;
        }
        self.runs += 1;
        let (run, land, now) = (self.runs, self.land_of(place), self.now);
        let others: Vec<usize> = (0..self.regions.len()).filter(|other| *other != land).collect();
        let chance = &mut self.cores[place].chance;
        let driver = Driver::new(DriverSettings {
            region: self.regions[land].clone(),
            edge_regions: Vec::new(),
            peers: others.iter().map(|other| self.regions[*other].clone()).collect(),
            timings: self.timings,
            classes: presence_model::class::Classes::default(),
            name: format!("core{place}").into(),
            shards: self.stores[land].store.shards(),
            holder: chance.next_u64(),
            seed: chance.next_u64(),
        });
        let peers = others.iter().map(|other| (*other, PeerWay::new(now))).collect();
        let core = Core { driver, run, started: now, awake_since: now, wake: None, asleep: None, peers };
        self.cores[place].process = Some(core);
        self.note("core starts", &format!("core{place}"));
        self.feed(run, Input::Tick);
        for other in others {
            self.after(Duration::from_millis(10), Event::DialPeer(run, other));
        }
    }

    pub(super) fn place_of(&self, run: u64) -> Option<usize> {
        self.cores.iter().position(|slot| slot.process.as_ref().is_some_and(|core| core.run == run))
    }

    pub(super) fn core(&mut self, run: u64) -> Option<&mut Core> {
        self.cores.iter_mut().filter_map(|slot| slot.process.as_mut()).find(|core| core.run == run)
    }

    pub(super) fn crash_core(&mut self, place: usize, span: Duration, death: Death) {
        let Some(core) = self.cores[place].process.take() else { return };
        self.note("core dies", &format!("core{place}"));
        let land = self.land_of(place);
        self.stores[land].tails.retain(|tail| tail.0 != core.run);
        self.end_links_of(core.run, death);
        self.end_watches_of(core.run, death);
        self.after(span, Event::StartCore(place));
    }

    pub(super) fn nap_core(&mut self, place: usize, span: Duration) {
        let Some(core) = self.cores[place].process.as_mut().filter(|core| core.asleep.is_none()) else {
            return;
        };
        core.asleep = Some(Vec::new());
        let run = core.run;
        self.after(span, Event::ResumeCore(run));
    }

    pub(super) fn resume_core(&mut self, run: u64) {
        let now = self.now;
        let Some(core) = self.core(run) else { return };
        let Some(missed) = core.asleep.take() else { return };
        core.awake_since = now;
        self.note("core goes on", &format!("run {run}"));
        // Whether its clock or its sockets speak first is chance.
        if self.chance.random_bool(0.5) {
            self.feed(run, Input::Tick);
        }
        for event in missed {
            self.happen(event);
        }
        self.feed(run, Input::Tick);
    }

    /// An event, unless the core that it concerns stands still: then that is told of it later.
    pub(super) fn unless_asleep(&mut self, event: Event) -> Option<Event> {
        let run = match &event {
            Event::WakeCore(run)
            | Event::StoreReply(run, ..)
            | Event::DialPeer(run, _)
            | Event::Asked(run, ..) => Some(*run),
            Event::LinkOpening(key, _) | Event::LinkUp(key, _) | Event::LinkGoneAtCore(key, _) => {
                self.links.get(key).map(|link| link.run)
            }
            Event::WatchOpening(key)
            | Event::WatchUp(key, _)
            | Event::WatchReady(key)
            | Event::WatchGoneAtCore(key) => self.watches.get(key).map(|stream| stream.to.1),
            Event::WatchOpened(key)
            | Event::WatchOverdue(key)
            | Event::WatchDown(key, _)
            | Event::WatchGoneAtPeer(key) => self.watches.get(key).and_then(|stream| stream.from.run()),
            Event::StartCore(_)
            | Event::ResumeCore(_)
            | Event::StoreCommand(..)
            | Event::TailOver(..)
            | Event::DialLink(_)
            | Event::LinkDown(..)
            | Event::LinkGoneAtEdge(_)
            | Event::Beat(_)
            | Event::DialOnlooker(..)
            | Event::Return(..)
            | Event::Part(..)
            | Event::Delayed(..)
            | Event::Strike(_)
            | Event::Ask
            | Event::Look => None,
        };
        match run.and_then(|run| self.core(run)).and_then(|core| core.asleep.as_mut()) {
            Some(missed) => {
                missed.push(event);
                None
            }
            None => Some(event),
        }
    }

    pub(super) fn wake_core(&mut self, run: u64) {
        let now = self.now;
        let Some(core) = self.core(run) else { return };
        if core.wake.is_some_and(|wake| wake <= now) {
            core.wake = None;
            self.feed(run, Input::Tick);
        }
    }

    /// Gives a core something, and carries out what follows.
    pub(super) fn feed(&mut self, run: u64, input: Input) {
        let now = self.now;
        let Some(place) = self.place_of(run) else { return };
        let Some(core) = self.core(run) else { return };
        let mut effects = Vec::new();
        core.driver.handle(input, Mono(now.since(core.started)), &mut effects);
        let due = core.driver.poll_timeout().map(|due| (core.started + due.0).max(now));
        if let Some(due) = due.filter(|due| Some(*due) != core.wake) {
            core.wake = Some(due);
            self.agenda.plan(due, Event::WakeCore(run));
        }
        for effect in effects {
            self.carry_out((place, run), effect);
        }
    }

    fn carry_out(&mut self, (place, run): (usize, u64), effect: Effect) {
        match effect {
            Effect::Store(op, command) => {
                let delay = self.net.delay(Node::Core(place), Node::Store, self.now);
                self.after(delay, Event::StoreCommand(run, op, Box::new(command)));
            }
            Effect::Link(key, down) => self.tell_edge(key, down),
            Effect::CloseLink(key, reason) => {
                self.note("core closes link", &reason.to_string());
                self.close_link_at_core(key);
            }
            Effect::Watch(key, events) => self.tell_watcher(key, events),
            Effect::CloseWatch(key, _) => self.close_watch_at_core(key),
            Effect::Peer(region, wish) => self.wish(run, &region, wish),
            Effect::Answer(_, answer) => self.answered(place, answer),
            Effect::Transition(line) => {
                let transition = &line.transition;
                let what = format!(
                    "{} in {} of {}: {} {:?} at {}{}",
                    line.user,
                    line.roster.room,
                    line.roster.region,
                    transition.generation,
                    transition.kind,
                    line.position.revision,
                    if transition.moved { ", moved" } else { "" }
                );
                self.note("transition", &what);
            }
            Effect::Audit(_) | Effect::TokenRefused(..) | Effect::Namesake(_) | Effect::Foreign { .. } => {
                self.story.count("told");
            }
        }
    }

    fn wish(&mut self, run: u64, region: &RegionId, wish: PeerWish) {
        let Some(land) = self.land_called(region) else { return };
        match wish {
            PeerWish::Send(up) => {
                let stream = self.core(run).and_then(|core| core.peers.get(&land)?.stream);
                if let Some(key) = stream {
                    self.say_watch(key, up);
                }
            }
            PeerWish::Reconnect(_) => self.dial_peer_again(run, land),
            PeerWish::Refused(room, refusal) => {
                self.breach(Guarantee::G5, format!("{region} refuses {room} to a core: {refusal}"));
            }
            PeerWish::Gone => self.given_up(run, land),
        }
    }

    /// A core hears something of a region that is kept elsewhere.
    pub(super) fn hear_of(&mut self, run: u64, land: usize, heard: PeerHeard) {
        let region = self.regions[land].clone();
        self.feed(run, Input::Peer(region, heard));
    }

    pub(super) fn store_command(&mut self, run: u64, op: StoreOp, mut command: Command) {
        let Some(land) = self.place_of(run).map(|place| self.land_of(place)) else { return };
        if let Command::Tail { after, wait } = &command
            && !self.stores[land].store.tail_speaks(after)
        {
            self.after(*wait, Event::TailOver(run, op));
            return self.stores[land].tails.push((run, op, command));
        }
        self.spoil_command(&mut command);
        let touched =
            if let Command::Commit(commit) = &command { self.room_called(&commit.roster.room) } else { None };
        let is_write = command.is_write();
        let outcome = self.apply(land, command);
        self.reply(run, op, outcome);
        if let Some(room) = touched {
            self.take_down(land, room);
        }
        if is_write {
            self.wake_tails(land);
        }
    }

    pub(super) fn apply(&mut self, land: usize, command: Command) -> Result<Outcome, StoreFault> {
        let time = self.store_time();
        self.stores[land].store.apply(command, time)
    }

    fn reply(&mut self, run: u64, op: StoreOp, outcome: Result<Outcome, StoreFault>) {
        let Some(place) = self.place_of(run) else { return };
        let delay = self.net.delay(Node::Store, Node::Core(place), self.now);
        self.after(delay, Event::StoreReply(run, op, Box::new(outcome)));
    }

    fn wake_tails(&mut self, land: usize) {
        for (run, op, command) in std::mem::take(&mut self.stores[land].tails) {
            let store = &self.stores[land].store;
            if matches!(&command, Command::Tail { after, .. } if store.tail_speaks(after)) {
                let outcome = self.apply(land, command);
                self.reply(run, op, outcome);
            } else {
                self.stores[land].tails.push((run, op, command));
            }
        }
    }

    pub(super) fn tail_over(&mut self, run: u64, op: StoreOp) {
        for land in 0..self.stores.len() {
            let tails = &mut self.stores[land].tails;
            if let Some(at) = tails.iter().position(|tail| (tail.0, tail.1) == (run, op)) {
                let (_, _, command) = tails.remove(at);
                let outcome = self.apply(land, command);
                self.reply(run, op, outcome);
            }
        }
    }

    pub(super) fn store_reply(&mut self, run: u64, op: StoreOp, reply: Box<Result<Outcome, StoreFault>>) {
        self.feed(run, Input::Store(op, reply));
    }
}
