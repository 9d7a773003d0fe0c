//! The store at the far end of a wire: commands and answers take their time, may be lost, and a core that is
//! paused has its commands still in its hands. Every commit is written down as it is carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use presence_core::store::memory::{MemorySettings, SharedMemoryStore};
use presence_core::store::{Command, CommitOutcome, LeaseStore, Outcome, StoreFault, shard_of};
use presence_model::change::{Committed, Removal, Transition};
use presence_model::digest::Digest;
use presence_model::id::{Roster, UserId};
use presence_model::lease::{LeaseId, Shard};
use presence_model::position::{Epoch, Position};
use presence_runtime::clock::Clock;
use tokio::sync::oneshot;

use super::net::delay_ms;
use crate::cast::{Recorder, shown};
use crate::history::{Gone, What};

/// Whoever hears nothing gives a command up after this long.
const GIVEN_UP_MS: u64 = 1_000;
/// Tells delays of this wire from those of others.
const WIRE: u64 = 1 << 40;

type Reply = Result<Outcome, StoreFault>;

/// A command on its way.
struct Letter {
    core: usize,
    command: Command,
    reply: oneshot::Sender<Reply>,
}

struct Tail {
    core: usize,
    reply: oneshot::Sender<Reply>,
    waits: BoxFuture<'static, Reply>,
}

/// An answer on its way.
struct Answer {
    core: usize,
    reply: oneshot::Sender<Reply>,
    outcome: Reply,
}

/// Which way of a wire does not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    ToStore,
    FromStore,
}

/// The store and all wires to it. Cheap to clone.
#[derive(Clone)]
pub(super) struct Post(Arc<Mutex<State>>);

struct State {
    seed: u64,
    now: u64,
    slow: u64,
    serial: u64,
    store: SharedMemoryStore,
    roster: Roster,
    recorder: Recorder,
    epoch: Option<Epoch>,
    renewed: BTreeMap<LeaseId, Duration>,
    letters: BTreeMap<(u64, u64), Letter>,
    tails: Vec<Tail>,
    answers: BTreeMap<(u64, u64), Answer>,
    /// The last arrival of each core: a connection keeps its order.
    last: BTreeMap<usize, u64>,
    cuts: BTreeSet<(usize, Way)>,
    held: BTreeSet<usize>,
    lose_commands: u32,
    lose_answers: u32,
}

impl Post {
    pub(super) fn new(settings: MemorySettings, clock: Clock, roster: Roster, recorder: Recorder) -> Self {
        Self(Arc::new(Mutex::new(State {
            seed: settings.seed,
            now: 0,
            slow: 1,
            serial: 0,
            store: SharedMemoryStore::new(settings, clock),
            roster,
            recorder,
            epoch: None,
            renewed: BTreeMap::new(),
            letters: BTreeMap::new(),
            tails: Vec::new(),
            answers: BTreeMap::new(),
            last: BTreeMap::new(),
            cuts: BTreeSet::new(),
            held: BTreeSet::new(),
            lose_commands: 0,
            lose_answers: 0,
        })))
    }

    /// The store as that core has it.
    pub(super) fn wire(&self, core: usize) -> Arc<dyn LeaseStore> {
        let shards = self.lock().store.shards();
        Arc::new(Wire { post: self.clone(), core, shards })
    }

    /// The store itself, to let things happen to it.
    pub(super) fn store(&self) -> SharedMemoryStore {
        self.lock().store.clone()
    }

    /// Lets time pass: what arrives by then is carried out or answered.
    pub(super) fn tick(&self, now: u64) {
        let mut state = self.lock();
        state.now = now;
        state.deliver();
        state.poll_tails();
        state.answer();
    }

    pub(super) fn cut(&self, core: usize, way: Way, is_cut: bool) {
        let cuts = &mut self.lock().cuts;
        if is_cut {
            cuts.insert((core, way))
        } else {
            cuts.remove(&(core, way))
        };
    }

    /// The core is paused with its commands in its hands, or goes on.
    pub(super) fn hold(&self, core: usize, is_held: bool) {
        let held = &mut self.lock().held;
        if is_held {
            held.insert(core)
        } else {
            held.remove(&core)
        };
    }

    /// So many of the next writes are lost, and of so many the answers.
    pub(super) fn lose(&self, commands: u32, answers: u32) {
        let mut state = self.lock();
        (state.lose_commands, state.lose_answers) = (commands, answers);
    }

    pub(super) fn slow(&self, factor: u64) {
        self.lock().slow = factor;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics with this lock")
    }
}

struct Wire {
    post: Post,
    core: usize,
    shards: u16,
}

impl LeaseStore for Wire {
    fn execute(&self, command: Command) -> BoxFuture<'static, Reply> {
        let (reply, answer) = oneshot::channel();
        self.post.lock().send(Letter { core: self.core, command, reply });
        async move { answer.await.unwrap_or(Err(StoreFault::Unknown)) }.boxed()
    }

    fn shards(&self) -> u16 {
        self.shards
    }
}

fn take_one(count: &mut u32) -> bool {
    let is_any = *count > 0;
    *count = count.saturating_sub(1);
    is_any
}

impl State {
    fn key(&mut self, core: usize, way: u64) -> (u64, u64) {
        self.serial += 1;
        let delay = delay_ms(self.seed, [WIRE + core as u64, way, self.now]) * self.slow;
        (self.now + delay, self.serial)
    }

    fn send(&mut self, letter: Letter) {
        let (mut arrives, serial) = self.key(letter.core, 0);
        let last = self.last.entry(letter.core).or_default();
        arrives = arrives.max(*last);
        *last = arrives;
        self.letters.insert((arrives, serial), letter);
    }

    fn deliver(&mut self) {
        let due: Vec<(u64, u64)> = self.letters.range(..=(self.now, u64::MAX)).map(|(key, _)| *key).collect();
        for key in due {
            if self.letters.get(&key).is_some_and(|letter| self.held.contains(&letter.core)) {
                continue;
            }
            let Some(Letter { core, command, reply }) = self.letters.remove(&key) else { continue };
            let is_lost = command.is_write() && take_one(&mut self.lose_commands);
            if is_lost || self.cuts.contains(&(core, Way::ToStore)) {
                self.give_up(core, reply);
            } else if matches!(command, Command::Tail { .. }) {
                let waits = self.store.execute(command);
                self.tails.push(Tail { core, reply, waits });
            } else {
                self.carry_out(core, command, reply);
            }
        }
    }

    fn carry_out(&mut self, core: usize, command: Command, reply: oneshot::Sender<Reply>) {
        let is_write = command.is_write();
        let outcome = self.store.execute(command.clone()).now_or_never();
        let outcome = outcome.expect("without a delay of its own this store answers at once");
        if let Ok(outcome) = &outcome {
            self.note(command, outcome);
        }
        if is_write && take_one(&mut self.lose_answers) {
            return self.give_up(core, reply);
        }
        let key = self.key(core, 1);
        self.answers.insert(key, Answer { core, reply, outcome });
    }

    fn give_up(&mut self, core: usize, reply: oneshot::Sender<Reply>) {
        self.serial += 1;
        let outcome = Err(StoreFault::Unknown);
        self.answers.insert((self.now + GIVEN_UP_MS, self.serial), Answer { core, reply, outcome });
    }

    /// Tails are looked at each tick, so nobody needs to wake them.
    fn poll_tails(&mut self) {
        for mut tail in std::mem::take(&mut self.tails) {
            let is_cut =
                [Way::ToStore, Way::FromStore].iter().any(|way| self.cuts.contains(&(tail.core, *way)));
            if is_cut {
                self.give_up(tail.core, tail.reply);
                continue;
            }
            match tail.waits.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => {
                    let key = self.key(tail.core, 2);
                    self.answers.insert(key, Answer { core: tail.core, reply: tail.reply, outcome });
                }
                Poll::Pending if tail.reply.is_closed() => {}
                Poll::Pending => self.tails.push(tail),
            }
        }
    }

    fn answer(&mut self) {
        while let Some(entry) = self.answers.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let Answer { core, reply, outcome } = entry.remove();
            if outcome.is_ok() && self.cuts.contains(&(core, Way::FromStore)) {
                self.give_up(core, reply);
            } else {
                // A core that is gone does not wait any more.
                drop(reply.send(outcome));
            }
        }
    }

    /// Writes down what was carried out.
    fn note(&mut self, command: Command, outcome: &Outcome) {
        match (command, outcome) {
            (Command::Turn { shard, .. }, Outcome::Turn(turn)) if shard == self.shard() => {
                if turn.new_hold {
                    self.recorder
                        .line("store", format_args!("holds from {}, epoch {}", turn.now, turn.epoch));
                }
                if self.epoch != Some(turn.epoch) {
                    self.begin(turn.epoch);
                }
            }
            (Command::Commit(commit), Outcome::Commit(CommitOutcome::Applied { position, refused, now }))
                if commit.roster == self.roster =>
            {
                let at = self.recorder.now();
                let refused = |user: &UserId| refused.iter().any(|(name, _)| name == user);
                let changes: Vec<_> = commit.changes.iter().filter(|change| !refused(&change.user)).collect();
                let grants = changes.iter().flat_map(|change| &change.grants);
                self.renewed.extend(grants.map(|grant| (grant.lease.plain_name(), at)));
                if changes.is_empty() {
                    return;
                }
                let roster = self.roster.clone();
                let committed = Committed::new(roster, *position, (Digest::default(), 0), changes, *now);
                if self.epoch == Some(position.epoch) {
                    self.write_commit(*position, &committed);
                } else {
                    self.begin(position.epoch);
                }
            }
            (Command::Renew { leases, .. }, Outcome::Renewed { unknown, .. }) => {
                // A renewal counts from when the core received it, which its deadline tells.
                let (at, now) = (self.recorder.now(), self.store.now());
                for (lease, deadline) in leases.iter().filter(|(lease, _)| !unknown.contains(lease)) {
                    let received = at.saturating_sub((now + lease.ttl()).since(*deadline));
                    let renewed = self.renewed.entry(lease.plain_name()).or_default();
                    *renewed = received.max(*renewed);
                }
            }
            _ => {}
        }
    }

    fn shard(&self) -> Shard {
        shard_of(&self.roster, self.store.shards())
    }

    /// A new epoch: what the store holds now is its base.
    fn begin(&mut self, epoch: Epoch) {
        let load = Command::Load { roster: self.roster.clone(), after: None, count: 10_000 };
        let Some(Ok(Outcome::Page { position, members, .. })) = self.store.execute(load).now_or_never()
        else {
            return;
        };
        self.epoch = Some(epoch);
        let members: crate::history::Members = members.iter().map(|(member, _)| shown(member)).collect();
        let users: Vec<&String> = members.keys().collect();
        self.recorder.line("store", format_args!("begins {position} with {users:?}"));
        self.recorder.event(What::Roster { position, members: Arc::new(members) });
    }

    fn write_commit(&self, position: Position, committed: &Committed) {
        let delta = &committed.delta;
        for (user, transition) in &committed.transitions {
            let (kind, session) = (&transition.kind, &transition.session);
            let generation = transition.generation;
            self.recorder.line("store", format_args!("{position} {user} {session}/{generation} {kind:?}"));
        }
        // Of the session for which the member is said to be gone: others of it may have ended with it.
        let renewed_at = |removal: &Removal| {
            let is_told = |(user, transition): &&(UserId, Transition)| {
                *user == removal.user && transition.kind.ending() == Some(&removal.ending)
            };
            let told = committed.transitions.iter().filter(is_told);
            told.filter_map(|(_, transition)| self.renewed.get(&transition.lease.plain_name())).min().copied()
        };
        let removals = delta.removals.iter().map(|removal| Gone {
            user: removal.user.as_str().to_owned(),
            reason: removal.ending.reason,
            silent_for: removal.ending.silent_for,
            renewed_at: renewed_at(removal),
        });
        self.recorder.event(What::Commit {
            position,
            from: delta.from,
            upserts: delta.upserts.iter().map(shown).collect(),
            removals: removals.collect(),
        });
    }
}
