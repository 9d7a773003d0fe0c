//! The store, and what happens on the way to it.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_core::driver::{Input, StoreOp};
use presence_core::store::memory::{MemorySettings, MemoryStore, Upheaval};
use presence_core::store::{Command, Outcome, Retention, StoreFault};
use presence_model::lease::LeaseId;
use presence_model::time::{Mono, StoreTime, millis};
use rand::RngExt as _;

use super::{Event, World};
use crate::sim::chance::{Chance, Purpose, chance};
use crate::sim::network::Node;
use crate::sim::plan::Plan;

/// The store's clock at the start of every world.
const START_MS: u64 = 1_790_000_000_000;
/// Writes that a replica may lag by.
const REPLICA_LAG: usize = 400;
/// After so long a caller knows that an answer is lost.
const LOSS_NOTICED_AFTER: Duration = Duration::from_millis(80);

/// What is wrong with the store, and until when.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    pub(super) stopped: Mono,
    pub(super) closed: Mono,
    pub(super) read_only: Mono,
    pub(super) slow: (Mono, Duration),
    pub(super) loses_answers: (Mono, u32),
    pub(super) loses_commands: (Mono, u32),
}

pub(super) struct StoreHouse {
    pub(super) store: MemoryStore,
    chance: Chance,
    skew_ms: i64,
    /// The latest that its clock said before it was set back.
    latest: StoreTime,
    pub(super) troubles: Troubles,
    /// Cores whose connection to the store is lost with what was under way, until it is mended.
    pub(super) losing: BTreeMap<usize, Mono>,
    tails: Vec<(u64, StoreOp, Command)>,
    /// When each core heard a lease renewed last.
    heard: BTreeMap<(u64, LeaseId), Mono>,
    /// What a renewal under way rests on.
    rests_on: BTreeMap<(u64, StoreOp), Vec<(LeaseId, Mono)>>,
}

impl StoreHouse {
    pub(super) fn new(plan: &Plan) -> Self {
        let retention = Retention { rosters: plan.shape.rosters_kept, ..Retention::default() };
        let replica_lag = if plan.fails_over() { REPLICA_LAG } else { 0 };
        let settings = MemorySettings { shards: plan.shape.shards, seed: plan.seed, retention, replica_lag };
        Self {
            store: MemoryStore::new(settings, StoreTime(START_MS)),
            chance: chance(plan.seed, Purpose::Store, 0),
            skew_ms: 0,
            latest: StoreTime::default(),
            troubles: Troubles::default(),
            losing: BTreeMap::new(),
            tails: Vec::new(),
            heard: BTreeMap::new(),
            rests_on: BTreeMap::new(),
        }
    }

    pub(super) fn shards(&self) -> u16 {
        self.store.shards()
    }

    pub(super) fn time(&self, now: Mono) -> StoreTime {
        StoreTime((START_MS + millis(now.0)).saturating_add_signed(self.skew_ms))
    }

    pub(super) fn step(&mut self, by_ms: i64, now: Mono) {
        self.latest = self.latest_time(now);
        self.skew_ms += by_ms;
    }

    /// The latest that its clock ever said: nobody takes it to be later.
    pub(super) fn latest_time(&self, now: Mono) -> StoreTime {
        self.latest.max(self.time(now))
    }

    pub(super) fn suffer(&mut self, upheaval: Upheaval, now: Mono) {
        let time = self.time(now);
        self.store.suffer(upheaval, time);
    }

    /// Whether it carries out whatever reaches it, and soon.
    pub(super) fn is_well(&self, now: Mono) -> bool {
        let Troubles { stopped, closed, read_only, slow, loses_answers, loses_commands } = &self.troubles;
        [*stopped, *closed, *read_only, slow.0, loses_answers.0, loses_commands.0]
            .iter()
            .all(|until| *until <= now)
    }

    /// Whether it carries out what reaches it.
    pub(super) fn takes_writes(&self, now: Mono) -> bool {
        let Troubles { stopped, closed, read_only, .. } = &self.troubles;
        [*stopped, *closed, *read_only].iter().all(|until| *until <= now)
    }

    /// From when on it can be reached again.
    pub(super) fn back_at(&self, now: Mono) -> Mono {
        now.max(self.troubles.stopped).max(self.troubles.closed)
    }

    /// From when on it takes writes again: cores learn of its clock by the answers to those.
    pub(super) fn writes_at(&self, now: Mono) -> Mono {
        self.back_at(now).max(self.troubles.read_only)
    }

    pub(super) fn mend(&mut self, now: Mono) {
        let stopped = self.troubles.stopped.min(now);
        self.troubles = Troubles { stopped, ..Troubles::default() };
        self.losing.clear();
    }

    pub(super) fn forget_core(&mut self, run: u64) {
        self.tails.retain(|tail| tail.0 != run);
        // What its commands under way rest on is asked for when they arrive.
        self.heard.retain(|(of, _), _| *of != run);
    }

    /// A core hears that leases are to be renewed.
    pub(super) fn heard(&mut self, run: u64, leases: &[LeaseId], now: Mono) {
        for lease in leases {
            self.heard.insert((run, lease.plain_name()), now);
        }
    }

    /// When what a renewal rests on was heard.
    pub(super) fn rests_on(&mut self, run: u64, op: StoreOp) -> Vec<(LeaseId, Mono)> {
        self.rests_on.remove(&(run, op)).unwrap_or_default()
    }

    /// A question that changes nothing, asked by nobody who could be told wrong.
    pub(super) fn peek(&mut self, command: Command, now: Mono) -> Option<Outcome> {
        let time = self.time(now);
        self.store.apply(command, time).ok()
    }
}

impl World {
    pub(super) fn send_command(&mut self, (place, run): (usize, u64), op: StoreOp, command: Command) {
        let now = self.now();
        if let Command::Renew { leases, .. } = &command {
            let heard =
                |(lease, _): &(LeaseId, StoreTime)| Some((*lease, *self.store.heard.get(&(run, *lease))?));
            let rests_on = leases.iter().filter_map(heard).collect();
            self.store.rests_on.insert((run, op), rests_on);
        }
        if self.loses(place) && self.wires.net.is_cut(Node::Core(place), Node::Store, now) {
            let delay = self.wires.net.delay(Node::Core(place), Node::Store, now);
            let reply = Box::new(Err(StoreFault::Unknown));
            return self.wires.after(delay, Event::StoreReply(run, op, reply));
        }
        let delay = self.wires.net.delay(Node::Core(place), Node::Store, now);
        self.wires.after(delay, Event::StoreCommand(run, op, Box::new(command)));
    }

    fn loses(&self, place: usize) -> bool {
        self.store.losing.get(&place).is_some_and(|until| *until > self.wires.now)
    }

    pub(super) fn store_command(&mut self, run: u64, op: StoreOp, mut command: Command) {
        let now = self.now();
        let outbox = self
            .place_of(run)
            .and_then(|place| self.cores[place].process.as_mut())
            .and_then(|core| core.outbox.as_mut());
        if let Some(outbox) = outbox {
            return outbox.push(Event::StoreCommand(run, op, Box::new(command)));
        }
        if self.store.troubles.stopped > now {
            let again = Duration::from_millis(self.store.chance.random_range(0..20));
            let at = self.store.troubles.stopped + again;
            return self.wires.at(at, Event::StoreCommand(run, op, Box::new(command)));
        }
        if self.store.troubles.closed > now {
            return self.reply(run, op, Err(StoreFault::Unavailable("refused".into())));
        }
        let is_write = command.is_write();
        if is_write && self.store.troubles.read_only > now {
            return self.reply(run, op, Err(StoreFault::ReadOnly));
        }
        if self.draws(self.store.troubles.loses_commands) {
            self.note("command lost", "");
            let reply = Box::new(Err(StoreFault::Unknown));
            return self.wires.after(LOSS_NOTICED_AFTER, Event::StoreReply(run, op, reply));
        }
        if let Command::Tail { after, wait } = &command
            && !self.store.store.tail_speaks(after)
        {
            self.wires.after(*wait, Event::TailOver(run, op));
            return self.store.tails.push((run, op, command));
        }
        if let Some(answer) = self.spoil_command(&mut command) {
            return self.reply(run, op, Ok(answer));
        }
        let asked = self.story.keeps_messages().then(|| format!("{command:?}"));
        let outcome = self.carry_out((run, op), command);
        if let Some(asked) = asked {
            self.note("store", &format!("core run {run}: {asked} -> {outcome:?}"));
        }
        if is_write && self.draws(self.store.troubles.loses_answers) {
            self.note("answer lost", "");
            let reply = Box::new(Err(StoreFault::Unknown));
            self.wires.after(LOSS_NOTICED_AFTER, Event::StoreReply(run, op, reply));
        } else {
            self.reply(run, op, outcome);
        }
        if is_write {
            self.wake_tails();
        }
    }

    fn draws(&mut self, (until, of): (Mono, u32)) -> bool {
        until > self.wires.now && self.store.chance.random_ratio(1, of.max(1))
    }

    fn reply(&mut self, run: u64, op: StoreOp, mut outcome: Result<Outcome, StoreFault>) {
        let now = self.now();
        let Some(place) = self.place_of(run) else { return };
        self.spoil_outcome(run, &mut outcome);
        let way = (Node::Store, Node::Core(place));
        let lost = self.loses(place) && self.wires.net.is_cut(way.0, way.1, now);
        let outcome = if lost { Err(StoreFault::Unknown) } else { outcome };
        let (slow_until, by) = self.store.troubles.slow;
        let slow = if slow_until > now { by } else { Duration::ZERO };
        let delay = self.wires.net.delay(way.0, way.1, now) + slow;
        self.wires.after(delay, Event::StoreReply(run, op, Box::new(outcome)));
    }

    pub(super) fn wake_tails(&mut self) {
        for (run, op, command) in std::mem::take(&mut self.store.tails) {
            let speaks =
                matches!(&command, Command::Tail { after, .. } if self.store.store.tail_speaks(after));
            if speaks {
                let outcome = self.carry_out((run, op), command);
                self.reply(run, op, outcome);
            } else {
                self.store.tails.push((run, op, command));
            }
        }
    }

    pub(super) fn tail_over(&mut self, run: u64, op: StoreOp) {
        let now = self.now();
        if self.store.troubles.stopped > now {
            let at = self.store.troubles.stopped;
            return self.wires.at(at, Event::TailOver(run, op));
        }
        let Some(at) = self.store.tails.iter().position(|tail| (tail.0, tail.1) == (run, op)) else { return };
        let (run, op, command) = self.store.tails.remove(at);
        let outcome = if self.store.troubles.closed > now {
            Err(StoreFault::Unavailable("refused".into()))
        } else {
            self.carry_out((run, op), command)
        };
        self.reply(run, op, outcome);
    }

    pub(super) fn store_reply(&mut self, run: u64, op: StoreOp, reply: Box<Result<Outcome, StoreFault>>) {
        let now = self.now();
        if let Some(place) = self.place_of(run).filter(|_| reply.is_ok())
            && let Some(core) = self.cores[place].process.as_mut()
        {
            core.heard_at.get_or_insert(now);
        }
        self.feed_core(run, Input::Store(op, reply));
    }
}
