//! The world of the stories.

mod edge;
mod operator;
pub(super) mod watcher;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use presence_model::claim::TokenRefusal;
use presence_model::class::{ClassGiven, Classes};
use presence_model::id::{EdgeName, RegionId, RoomId, Roster, UserId};
use presence_model::time::{Mono, StoreTime};
use presence_model::timing::{Timings, TimingsGiven};
use presence_model::watch::WatchDown;

pub(super) use self::edge::{Edge, session};
pub(super) use self::watcher::Watcher;
use crate::driver::{
    Answer, ArrivalLimits, AuditNote, CloseReason, Driver, DriverSettings, Effect, Input, LinkKey, PeerWish,
    QueryKey, QueryRefusal, Shed, StoreOp, TransitionLine, Verb, WatchKey,
};
use crate::store::memory::{MemorySettings, MemoryStore, Tampering};
use crate::store::{Command, Outcome, StoreFault};

/// The store's clock when a world begins.
const BEGIN: u64 = 1_700_000_000_000;
/// One way between a core and the store.
const WAY: Duration = Duration::from_millis(1);

pub(super) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) fn room(name: &str) -> RoomId {
    RoomId::new(name).unwrap()
}

pub(super) fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

pub(super) fn region() -> RegionId {
    region_called("here")
}

pub(super) fn region_called(name: &str) -> RegionId {
    RegionId::new(name).unwrap()
}

pub(super) fn roster(name: &str) -> Roster {
    Roster { region: region(), room: room(name) }
}

enum Event {
    Arrives(usize, StoreOp, Command),
    Answers(usize, StoreOp, Result<Outcome, StoreFault>),
}

struct WaitingTail {
    core: usize,
    op: StoreOp,
    command: Command,
    until: Mono,
}

/// What happens between cores and the store.
#[derive(Default)]
pub(super) struct Faults {
    /// Nothing reaches the store from these cores.
    pub(super) away: Vec<usize>,
    /// Commits whose answer is lost.
    pub(super) lose_commit_answers: usize,
    /// Commits that are lost themselves.
    pub(super) lose_commits: usize,
    /// The store answers reads and refuses writes.
    pub(super) no_writes: bool,
    /// Each answer takes so much longer.
    pub(super) slow: Duration,
    /// Revocations that are lost on the way.
    pub(super) lose_revocations: usize,
    /// Commands of these cores are held back on the way.
    pub(super) hold_back: Option<usize>,
    /// What is asked of this room is held back on the way.
    pub(super) owes: Option<RoomId>,
    /// Reads that come before commits are held back on the way.
    pub(super) hold_reads: bool,
    /// Questions of this core about what is revoked are held back on the way.
    pub(super) hold_revoked: Option<usize>,
}

struct Core {
    driver: Driver,
    /// Does not run: nothing is handled.
    asleep: bool,
    inbox: VecDeque<Input>,
}

pub(super) struct World {
    pub(super) now: Mono,
    pub(super) store: MemoryStore,
    pub(super) skew_ms: i64,
    pub(super) faults: Faults,
    pub(super) timings: Timings,
    classes: Classes,
    /// Its own, those of further edges, and those kept elsewhere.
    regions: (RegionId, Vec<RegionId>, Vec<RegionId>),
    /// What is to be done for regions that are kept elsewhere.
    pub(super) wishes: Vec<(RegionId, PeerWish)>,
    /// What cores of other regions are told.
    pub(super) foreign_watches: BTreeMap<WatchKey, Vec<WatchDown>>,
    cores: Vec<Core>,
    events: BTreeMap<(Mono, u64), Event>,
    held_back: Vec<(usize, StoreOp, Command)>,
    tails: Vec<WaitingTail>,
    sequence: u64,
    /// Signs tokens.
    pub(super) key_id: &'static str,
    pub(super) edges: Vec<Edge>,
    pub(super) watchers: BTreeMap<WatchKey, Watcher>,
    pub(super) answers: BTreeMap<QueryKey, Result<Answer, QueryRefusal>>,
    pub(super) closed: Vec<(LinkKey, CloseReason)>,
    pub(super) transitions: Vec<TransitionLine>,
    pub(super) commits: usize,
    pub(super) renews: usize,
    pub(super) tidies: usize,
    /// Pages of audits asked for, by core.
    pub(super) audits: BTreeMap<usize, usize>,
    pub(super) audit_notes: Vec<AuditNote>,
    pub(super) namesakes: Vec<EdgeName>,
    pub(super) token_refusals: Vec<(EdgeName, TokenRefusal)>,
    pub(super) foreign: Vec<(EdgeName, Verb, usize)>,
    loads: usize,
    /// Pages of rosters asked for.
    pub(super) pages: usize,
    /// Histories of rosters asked for.
    pub(super) histories: usize,
    /// Links that were written, or were to be.
    pub(super) registrations: usize,
    /// The most loads that were under way at once.
    pub(super) loads_most: usize,
}

impl World {
    /// One core, nobody there; half a second has passed.
    pub(super) fn new() -> Self {
        Self::with_cores(1)
    }

    pub(super) fn with_cores(cores: u64) -> Self {
        Self::of_classes(cores, &[])
    }

    /// Rooms of these classes have timers of their own.
    pub(super) fn of_classes(cores: u64, classes: &[ClassGiven]) -> Self {
        Self::whole((region(), Vec::new(), Vec::new()), cores, classes)
    }

    /// One core that keeps the rosters of its region and of further ones, and watches those of others.
    pub(super) fn of_regions(own: &str, of_edges: &[&str], peers: &[&str]) -> Self {
        let named = |names: &[&str]| names.iter().map(|name| region_called(name)).collect();
        Self::whole((region_called(own), named(of_edges), named(peers)), 1, &[])
    }

    fn whole(regions: (RegionId, Vec<RegionId>, Vec<RegionId>), cores: u64, classes: &[ClassGiven]) -> Self {
        let usual = TimingsGiven::default();
        let (timings, classes) = Timings::derive_classes(usual, usual, classes).unwrap();
        let settings = MemorySettings { shards: 4, ..MemorySettings::default() };
        let mut world = Self {
            now: Mono::from_millis(1_000),
            store: MemoryStore::new(settings, StoreTime(BEGIN + 1_000)),
            skew_ms: 0,
            faults: Faults::default(),
            timings,
            classes,
            regions,
            wishes: Vec::new(),
            foreign_watches: BTreeMap::new(),
            cores: Vec::new(),
            events: BTreeMap::new(),
            held_back: Vec::new(),
            tails: Vec::new(),
            sequence: 0,
            key_id: "k",
            edges: Vec::new(),
            watchers: BTreeMap::new(),
            answers: BTreeMap::new(),
            closed: Vec::new(),
            transitions: Vec::new(),
            commits: 0,
            renews: 0,
            tidies: 0,
            audits: BTreeMap::new(),
            audit_notes: Vec::new(),
            namesakes: Vec::new(),
            token_refusals: Vec::new(),
            foreign: Vec::new(),
            loads: 0,
            pages: 0,
            histories: 0,
            registrations: 0,
            loads_most: 0,
        };
        for _ in 0..cores {
            world.start_core();
        }
        world.run(ms(500));
        world
    }

    /// Cores that start from now on have no room classes.
    pub(super) fn forget_classes(&mut self) {
        self.timings = Timings::derive(TimingsGiven::default()).unwrap();
        self.classes = Classes::default();
    }

    /// One more core over the same store: its number.
    pub(super) fn start_core(&mut self) -> usize {
        let core = self.cores.len();
        let settings = DriverSettings {
            region: self.regions.0.clone(),
            edge_regions: self.regions.1.clone(),
            peers: self.regions.2.clone(),
            timings: self.timings,
            classes: self.classes.clone(),
            name: "core".into(),
            shards: 4,
            holder: 100 + core as u64,
            seed: core as u64,
        };
        self.cores.push(Core { driver: Driver::new(settings), asleep: false, inbox: VecDeque::new() });
        self.input(core, Input::Tick);
        core
    }

    /// A core takes so many new arrivals from now on.
    pub(super) fn limit_arrivals(&mut self, core: usize, limits: ArrivalLimits) {
        self.input(core, Input::Limits(limits));
    }

    pub(super) fn shed(&self, core: usize) -> Shed {
        self.cores[core].driver.shed()
    }

    pub(super) fn store_now(&self) -> StoreTime {
        let ms = BEGIN + presence_model::time::millis(self.now.0);
        StoreTime(ms.saturating_add_signed(self.skew_ms))
    }

    /// Hands an input to a core and carries its effects out; a sleeping core finds it when it wakes.
    pub(super) fn input(&mut self, core: usize, input: Input) {
        if self.cores[core].asleep {
            self.cores[core].inbox.push_back(input);
            return;
        }
        let mut effects = Vec::new();
        self.cores[core].driver.handle(input, self.now, &mut effects);
        for effect in effects {
            self.carry_out(core, effect);
        }
    }

    fn carry_out(&mut self, core: usize, effect: Effect) {
        match effect {
            Effect::Store(op, command) => {
                self.commits += usize::from(matches!(command, Command::Commit(_)));
                self.renews += usize::from(matches!(command, Command::Renew { .. }));
                self.tidies += usize::from(matches!(command, Command::Tidy { .. }));
                *self.audits.entry(core).or_default() +=
                    usize::from(matches!(command, Command::Audit { .. }));
                self.loads += usize::from(matches!(command, Command::Load { .. }));
                self.histories += usize::from(matches!(command, Command::History { .. }));
                self.pages += usize::from(matches!(command, Command::Load { .. }));
                self.loads_most = self.loads_most.max(self.loads);
                let owed = matches!(&command, Command::Load { roster, .. } | Command::History { roster, .. }
                    | Command::Summary { roster } if Some(&roster.room) == self.faults.owes.as_ref());
                let late = self.faults.hold_back == Some(core) && !matches!(command, Command::Tail { .. });
                let read = self.faults.hold_reads && matches!(command, Command::Members { .. });
                let revoked =
                    self.faults.hold_revoked == Some(core) && matches!(command, Command::Revoked { .. });
                if owed || late || read || revoked {
                    self.held_back.push((core, op, command));
                } else {
                    self.schedule(WAY, Event::Arrives(core, op, command));
                }
            }
            Effect::Link(key, down) => self.edge_hears(core, key, down),
            Effect::CloseLink(key, reason) => {
                self.closed.push((key, reason));
                self.link_is_closed(core, key);
            }
            Effect::Watch(key, downs) => {
                let now = self.now;
                if let Some(told) = self.foreign_watches.get_mut(&key) {
                    told.extend(downs);
                    return self.input(core, Input::WatchReady(key));
                }
                // A core elsewhere may have hung up while this one slept.
                let Some(watcher) = self.watchers.get_mut(&key) else { return };
                watcher.take(downs, now);
                if !watcher.stalled {
                    self.input(core, Input::WatchReady(key));
                }
            }
            Effect::CloseWatch(key, _) => {
                self.watchers.remove(&key);
            }
            Effect::Peer(region, wish) => self.wishes.push((region, wish)),
            Effect::Answer(key, answer) => {
                self.answers.insert(key, answer);
            }
            Effect::Transition(line) => self.transitions.push(*line),
            Effect::Audit(note) => self.audit_notes.push(note),
            Effect::TokenRefused(edge, refusal) => self.token_refusals.push((edge, refusal)),
            Effect::Namesake(name) => self.namesakes.push(name),
            Effect::Foreign { edge, verb, leases } => self.foreign.push((edge, verb, leases)),
        }
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.sequence += 1;
        self.events.insert((self.now + after, self.sequence), event);
    }

    /// Lets time pass.
    pub(super) fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let next = self.next_moment();
            if next.is_none_or(|next| next > end) {
                self.now = end;
                return;
            }
            self.now = next.unwrap().max(self.now);
            self.step();
        }
    }

    fn next_moment(&self) -> Option<Mono> {
        let event = self.events.keys().next().map(|(at, _)| *at);
        let awake = self.cores.iter().filter(|core| !core.asleep);
        let timers = awake.filter_map(|core| core.driver.poll_timeout());
        let tails = self.tails.iter().map(|tail| tail.until);
        let edges = self.edges.iter().filter_map(Edge::due);
        event.into_iter().chain(timers).chain(tails).chain(edges).min()
    }

    fn step(&mut self) {
        if let Some(event) = self.events.first_entry().filter(|event| event.key().0 <= self.now) {
            match event.remove() {
                Event::Arrives(core, op, command) => self.arrive(core, op, command),
                Event::Answers(core, op, result) => self.input(core, Input::Store(op, Box::new(result))),
            }
            return;
        }
        let now = self.now;
        let (over, waiting) = std::mem::take(&mut self.tails).into_iter().partition(|tail| tail.until <= now);
        self.tails = waiting;
        let over: Vec<WaitingTail> = over;
        for tail in over {
            self.apply(tail.core, tail.op, tail.command);
        }
        for edge in 0..self.edges.len() {
            self.run_edge(edge);
        }
        for core in 0..self.cores.len() {
            let due = self.cores[core].driver.poll_timeout().is_some_and(|due| due <= now);
            if due && !self.cores[core].asleep {
                self.input(core, Input::Tick);
            }
        }
    }

    fn arrive(&mut self, core: usize, op: StoreOp, command: Command) {
        self.registrations += usize::from(matches!(command, Command::Link { .. }));
        if self.faults.away.contains(&core) {
            let fault = StoreFault::Unavailable("away".into());
            self.loads -= usize::from(matches!(command, Command::Load { .. }));
            return self.schedule(WAY, Event::Answers(core, op, Err(fault)));
        }
        if let Command::Tail { after, wait } = &command
            && !self.store.tail_speaks(after)
        {
            let until = self.now + *wait;
            return self.tails.push(WaitingTail { core, op, command, until });
        }
        if self.faults.no_writes && command.is_write() {
            let fault = StoreFault::Unavailable("takes no writes".into());
            return self.schedule(WAY, Event::Answers(core, op, Err(fault)));
        }
        let is_commit = matches!(command, Command::Commit(_));
        if is_commit && take_one(&mut self.faults.lose_commits) {
            return self.schedule(WAY, Event::Answers(core, op, Err(StoreFault::Unknown)));
        }
        if matches!(command, Command::Revoke { .. }) && take_one(&mut self.faults.lose_revocations) {
            return self.schedule(WAY, Event::Answers(core, op, Err(StoreFault::Unknown)));
        }
        self.apply(core, op, command);
    }

    fn apply(&mut self, core: usize, op: StoreOp, command: Command) {
        let is_write = command.is_write();
        let is_commit = matches!(command, Command::Commit(_));
        self.loads -= usize::from(matches!(command, Command::Load { .. }));
        let away = self.faults.away.contains(&core);
        let now = self.store_now();
        let mut result =
            if away { Err(StoreFault::Unavailable("away".into())) } else { self.store.apply(command, now) };
        if is_commit && take_one(&mut self.faults.lose_commit_answers) {
            result = Err(StoreFault::Unknown);
        }
        self.schedule(WAY + self.faults.slow, Event::Answers(core, op, result));
        if is_write {
            self.wake_tails();
        }
    }

    fn wake_tails(&mut self) {
        for tail in std::mem::take(&mut self.tails) {
            let Command::Tail { after, .. } = &tail.command else { continue };
            if self.store.tail_speaks(after) {
                self.apply(tail.core, tail.op, tail.command);
            } else {
                self.tails.push(tail);
            }
        }
    }

    /// Somebody's hand is in the store.
    pub(super) fn tamper(&mut self, tampering: Tampering) {
        let now = self.store_now();
        self.store.tamper(tampering, now);
    }

    /// Stops a core, or lets it go on with all that has come meanwhile.
    pub(super) fn sleep(&mut self, core: usize, asleep: bool) {
        self.cores[core].asleep = asleep;
        if !asleep {
            for input in std::mem::take(&mut self.cores[core].inbox) {
                self.input(core, input);
            }
        }
    }

    /// Lets the commands that were held back go, and holds back no more.
    pub(super) fn let_go(&mut self) {
        (self.faults.hold_back, self.faults.owes, self.faults.hold_reads) = (None, None, false);
        self.faults.hold_revoked = None;
        for (core, op, command) in std::mem::take(&mut self.held_back) {
            self.schedule(WAY, Event::Arrives(core, op, command));
        }
    }

    /// The users of a room, as the store has them.
    pub(super) fn stored(&mut self, name: &str) -> Vec<String> {
        let now = self.store_now();
        let load = Command::Load { roster: roster(name), after: None, count: 10_000 };
        match self.store.apply(load, now) {
            Ok(Outcome::Page { members, .. }) => {
                members.iter().map(|(member, _)| member.user.as_str().to_owned()).collect()
            }
            other => panic!("no page: {other:?}"),
        }
    }

    /// The revision of a room in the store.
    pub(super) fn revision(&mut self, name: &str) -> u64 {
        let now = self.store_now();
        match self.store.apply(Command::Summary { roster: roster(name) }, now) {
            Ok(Outcome::Summary { position, .. }) => position.revision.0,
            other => panic!("no summary: {other:?}"),
        }
    }

    /// Transitions as words, `user kind reason`, oldest first.
    pub(super) fn log(&self) -> Vec<String> {
        use presence_model::change::TransitionKind;
        let word = |line: &TransitionLine| match line.transition.kind {
            TransitionKind::Joined => format!("{} joined", line.user),
            TransitionKind::Updated => format!("{} updated", line.user),
            TransitionKind::Ended(ending) => format!("{} ended {}", line.user, ending.reason),
        };
        self.transitions.iter().map(word).collect()
    }

    /// How many rosters a core has copies of.
    pub(super) fn copies(&self, core: usize) -> usize {
        self.cores[core].driver.rosters.len()
    }

    pub(super) fn has_copy(&self, core: usize, roster: &Roster) -> bool {
        self.cores[core].driver.rosters.in_step(roster).is_some()
    }

    pub(super) fn drain(&mut self, core: usize) {
        self.input(core, Input::Drain);
    }
}

fn take_one(count: &mut usize) -> bool {
    let any = *count > 0;
    *count = count.saturating_sub(1);
    any
}
