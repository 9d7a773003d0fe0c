//! Copies of the rosters that are watched: loaded once, then kept by the tail.
//!
//! A copy is either in step with the tail or being brought there; only then are its watchers served. It
//! shows what is stored and nothing else: a copy that has to start over starts cold, and what its
//! watchers had before is theirs to confirm.

mod loading;
mod lowered;
mod tail;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use presence_model::change::Committed;
use presence_model::delta::Delta;
use presence_model::id::Roster;
use presence_model::lease::Shard;
use presence_model::limits::SNAPSHOT_PAGE_BYTES_MAX;
use presence_model::position::Position;
use presence_model::replica::{Applied, Freshness, Replica, SnapshotPage};
use presence_model::time::{Mono, StoreTime};

use self::loading::Loading;
use self::lowered::Lowered;
use self::tail::Tail;
use super::{Driver, WatchKey};
use crate::limits::{COMPACT_EVERY, IDLE_ROSTERS_MAX, STORE_REACHED_WITHIN, TAIL_BUFFER_MAX};

/// Pages of a roster at one point, shared by all who are being sent them.
pub(super) type Pages = Arc<[SnapshotPage]>;

/// How far a copy is behind the tail.
#[derive(Debug)]
enum Sync {
    /// Not at all.
    InStep,
    /// A page, or history since the first page, is asked for.
    Loading(Loading),
    /// History since its own position is asked for.
    CatchingUp,
    /// It is to be loaded, when its turn comes or the store is back.
    Waiting,
    /// It is to catch up, when its turn comes.
    Behind,
}

#[derive(Debug)]
struct Copy {
    replica: Replica,
    shard: Shard,
    sync: Sync,
    /// Tells answers to this state from those to a former one.
    serial: u64,
    /// Deltas that came while it was not in step.
    buffer: VecDeque<Delta>,
    overflowed: bool,
    /// Its digest did not fit what was loaded, and the store was asked to look.
    suspected: bool,
    watchers: BTreeSet<WatchKey>,
    idle_since: Mono,
    pages: Option<Pages>,
    /// Its watchers are told when this is over.
    lowered: Option<Lowered>,
    /// Where it was when somebody last came from another region.
    moved: Option<Position>,
}

/// All copies.
#[derive(Debug, Default)]
pub(super) struct Rosters {
    copies: BTreeMap<Roster, Copy>,
    /// Those that are not in step, and since when.
    behind: BTreeMap<Roster, Mono>,
    idle: BTreeSet<(Mono, Roster)>,
    /// Those for which the store is asked, at most [`LOADS_MAX`](crate::limits::LOADS_MAX).
    asking: BTreeSet<Roster>,
    /// Those whose turn is to come.
    queue: BTreeSet<(u64, Roster)>,
    /// When loading is tried again.
    retries: BTreeSet<(Mono, Roster)>,
    /// Those whose watchers are told a little later.
    lowered: BTreeSet<(Mono, Roster)>,
    serial: u64,
    tail: Tail,
    compact_at: Mono,
    stale: Option<StoreTime>,
}

impl Rosters {
    /// A copy that is in step.
    pub(super) fn in_step(&self, roster: &Roster) -> Option<&Replica> {
        let copy = self.copies.get(roster)?;
        matches!(copy.sync, Sync::InStep).then_some(&copy.replica)
    }

    /// Where a roster was when somebody last came from another region.
    pub(super) fn moved(&self, roster: &Roster) -> Option<Position> {
        self.copies.get(roster)?.moved
    }

    /// Whether everything this watcher watches is in step, but for copies that are not since `late` or longer.
    pub(super) fn serves(&self, watch: WatchKey, late: Option<Mono>) -> bool {
        let mut owed = self.behind.iter().filter(|(_, since)| Some(**since) > late);
        owed.all(|(roster, _)| !self.is_watched(roster, watch))
    }

    /// Since when a copy is not in step.
    pub(super) fn behind_since(&self, roster: &Roster) -> Option<Mono> {
        self.behind.get(roster).copied()
    }

    /// What this watcher watches and is not in step since `late` or longer.
    pub(super) fn late(&self, watch: WatchKey, late: Option<Mono>) -> impl Iterator<Item = &Roster> {
        let late = self.behind.iter().filter(move |(_, since)| Some(**since) <= late);
        late.map(|(roster, _)| roster).filter(move |roster| self.is_watched(roster, watch))
    }

    fn is_watched(&self, roster: &Roster, watch: WatchKey) -> bool {
        self.copies.get(roster).is_some_and(|copy| copy.watchers.contains(&watch))
    }

    /// Since when nothing can be heard of the store.
    pub(super) fn stale(&self) -> Option<StoreTime> {
        self.stale
    }

    /// When a load is to be tried again, the tail asked for or history forgotten.
    pub(super) fn due(&self) -> Option<Mono> {
        let first = |queue: &BTreeSet<(Mono, Roster)>| queue.first().map(|(at, _)| *at);
        let waits = [first(&self.retries), first(&self.lowered)].into_iter().flatten();
        let compact = (!self.copies.is_empty()).then_some(self.compact_at);
        waits.chain(self.tail.due()).chain(compact).min()
    }

    /// How many copies there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.copies.len()
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    fn remove(&mut self, roster: &Roster) {
        self.behind.remove(roster);
        self.asking.remove(roster);
        if let Some(copy) = self.copies.remove(roster) {
            self.queue.remove(&(copy.serial, roster.clone()));
        }
    }

    fn of_shard(&self, shard: Shard) -> Vec<Roster> {
        self.copies.iter().filter(|(_, copy)| copy.shard == shard).map(|(roster, _)| roster.clone()).collect()
    }
}

impl Driver {
    /// Somebody watches a roster: it is copied, if it is not yet.
    pub(super) fn watch_roster(&mut self, roster: &Roster, watch: WatchKey) {
        if let Some(copy) = self.rosters.copies.get_mut(roster) {
            self.rosters.idle.remove(&(copy.idle_since, roster.clone()));
            copy.watchers.insert(watch);
            return;
        }
        let copy = Copy {
            replica: Replica::cold(),
            shard: self.shard(roster),
            sync: Sync::Waiting,
            serial: 0,
            buffer: VecDeque::new(),
            overflowed: false,
            suspected: false,
            watchers: BTreeSet::from([watch]),
            idle_since: self.now,
            pages: None,
            lowered: None,
            moved: None,
        };
        self.rosters.copies.insert(roster.clone(), copy);
        self.load(roster);
    }

    /// Somebody watches a roster no more. The copy is kept for a while, as others may come.
    pub(super) fn unwatch_roster(&mut self, roster: &Roster, watch: WatchKey) {
        let now = self.now;
        let Some(copy) = self.rosters.copies.get_mut(roster) else { return };
        copy.watchers.remove(&watch);
        if !copy.watchers.is_empty() {
            return;
        }
        copy.idle_since = now;
        copy.pages = None;
        self.rosters.idle.insert((now, roster.clone()));
        while self.rosters.idle.len() > IDLE_ROSTERS_MAX
            && let Some((_, oldest)) = self.rosters.idle.pop_first()
        {
            self.rosters.remove(&oldest);
        }
    }

    /// How fresh what is known of a roster is.
    pub(super) fn freshness(&self, roster: &Roster) -> Freshness {
        if !self.serves(&roster.region) {
            return self.peers.freshness(roster).unwrap_or(Freshness::Live);
        }
        let shard = self.shard(roster);
        if let Some(since) = self.rosters.stale.or(self.sweep.unturned(shard)) {
            return Freshness::Stale { since };
        }
        let copied = self.rosters.in_step(roster).and_then(Replica::position);
        // Each new epoch starts a hold: a copy of one that no turn has told yet is held until a turn says
        // otherwise.
        if let Some(Position { epoch, .. }) = copied.filter(|copied| !self.sweep.knows(shard, copied.epoch)) {
            return Freshness::Held { since: StoreTime(epoch.minted_ms) };
        }
        // Without a hold nothing depends on the class.
        let ttl = self.sweep.hold(shard).map(|_| self.timings_of(&roster.room).lease_ttl);
        match ttl.and_then(|ttl| self.sweep.held(shard, ttl)) {
            Some(since) => Freshness::Held { since },
            None => Freshness::Live,
        }
    }

    /// The freshness of a shard, or of all, is another: watchers are told.
    pub(super) fn freshness_changed(&mut self, shard: Option<Shard>) {
        let concerned = |copy: &Copy| shard.is_none_or(|shard| copy.shard == shard);
        let rosters: Vec<Roster> =
            self.rosters.copies.iter().filter(|(_, c)| concerned(c)).map(|(r, _)| r.clone()).collect();
        for roster in rosters {
            self.tell_watchers(&roster);
        }
        for (watch, roster) in self.counts.watchers(shard) {
            self.watchers.touch(watch, &roster.room);
        }
    }

    /// Nothing heard of the store for too long, or nothing kept by it; or both again.
    pub(super) fn judge_staleness(&mut self) {
        if self.now.since(self.started) < STORE_REACHED_WITHIN {
            return;
        }
        let heard = self.ops.reachable(self.now) && self.rosters.tail.is_heard(self.now);
        if heard && self.rosters.stale.take().is_some() {
            self.freshness_changed(None);
        } else if !heard && self.rosters.stale.is_none() {
            let silent = self.ops.last_kept().map_or(Duration::ZERO, |at| self.now.since(at));
            let since = self.clock.latest(self.now).map(|now| now.before(silent));
            self.rosters.stale = Some(since.unwrap_or_default());
            self.freshness_changed(None);
        }
    }

    fn tell_watchers(&mut self, roster: &Roster) {
        if let Some(copy) = self.rosters.copies.get(roster) {
            for watch in &copy.watchers {
                self.watchers.touch(*watch, &roster.room);
            }
        }
    }

    /// A commit came by: the copy of its roster follows, or notices that it lacks something.
    fn follow(&mut self, commit: &Committed) {
        let now = self.now;
        let Some(copy) = self.rosters.copies.get_mut(&commit.roster) else { return };
        copy.note_move(commit);
        match copy.sync {
            Sync::InStep => {
                let (lowers, before) = (copy.replica.only_lowers(&commit.delta), copy.replica.digest());
                let applied = copy.replica.delta(&commit.delta, now);
                if matches!(applied, Applied::Shown(_)) {
                    self.tell_or_wait(&commit.roster, lowers.then_some(before));
                } else {
                    self.followed(&commit.roster, &applied, &commit.delta);
                }
            }
            Sync::Loading(_) | Sync::CatchingUp => copy.keep(&commit.delta),
            // What is read later has this as well.
            Sync::Waiting | Sync::Behind => {}
        }
    }

    /// What follows from a delta of the tail.
    fn followed(&mut self, roster: &Roster, applied: &Applied, delta: &Delta) {
        match applied {
            Applied::Shown(_) => self.tell_watchers(roster),
            Applied::Known => {}
            Applied::Gap => {
                self.catch_up(roster);
                if let Some(copy) = self.rosters.copies.get_mut(roster) {
                    copy.keep(delta);
                }
            }
            Applied::Differs => self.load(roster),
        }
    }

    /// The pages of a roster where it is now, shared by all who start from there.
    pub(super) fn pages(&mut self, roster: &Roster) -> Option<Pages> {
        let copy = self.rosters.copies.get_mut(roster)?;
        let position = copy.replica.position()?;
        let current = |pages: &&Pages| pages.first().is_some_and(|page| page.position == position);
        if let Some(pages) = copy.pages.as_ref().filter(current) {
            return Some(pages.clone());
        }
        let pages: Pages = copy.replica.pages(SNAPSHOT_PAGE_BYTES_MAX)?.into();
        copy.pages = Some(pages.clone());
        Some(pages)
    }

    /// Copies forget old history, and pages nobody needs.
    pub(super) fn compact_copies(&mut self) {
        if self.rosters.compact_at > self.now {
            return;
        }
        self.rosters.compact_at = self.now + COMPACT_EVERY;
        self.peers.forget_pages();
        for copy in self.rosters.copies.values_mut() {
            copy.replica.compact(self.now);
            copy.pages = None;
        }
    }
}

impl Copy {
    fn note_move(&mut self, commit: &Committed) {
        if commit.transitions.iter().any(|(_, transition)| transition.moved) {
            let at = Position { epoch: commit.delta.epoch, revision: commit.delta.to };
            self.moved = self.moved.max(Some(at));
        }
    }

    /// Nothing has happened up to here. Whoever was told so by another core, which read the roster later, is ahead of
    /// this copy otherwise.
    fn go_on_to(&mut self, further: Position, now: Mono) {
        if let Some(here) = self.replica.position().filter(|here| here.epoch == further.epoch) {
            let (from, to) = (here.revision, further.revision);
            self.replica.delta(&Delta::empty(here.epoch, from, to, self.replica.digest()), now);
        }
    }

    fn keep(&mut self, delta: &Delta) {
        if self.buffer.len() < TAIL_BUFFER_MAX {
            self.buffer.push_back(delta.clone());
        } else {
            self.overflowed = true;
        }
    }
}
