//! Rosters of which somebody watches the number of members only: no copy is needed for that.
//!
//! The store tells the number once, in constant time; from there on each commit of the tail says what it has
//! become. Only after a break of the tail is the store asked again.

use std::collections::{BTreeMap, BTreeSet};

use presence_model::change::Committed;
use presence_model::id::Roster;
use presence_model::lease::Shard;
use presence_model::position::Position;
use presence_model::time::Mono;

use super::store_ops::Pending;
use super::{Driver, WatchKey};
use crate::limits::{LOADS_MAX, STORE_RETRY};
use crate::store::{Command, Outcome, StoreFault};

#[derive(Debug)]
struct Counted {
    shard: Shard,
    watchers: BTreeSet<WatchKey>,
    /// The number, and where the roster was then.
    known: Option<(Position, u64)>,
    /// Tells answers to this state from those to a former one.
    serial: u64,
}

/// All rosters that are counted.
#[derive(Debug, Default)]
pub(super) struct Counts {
    counted: BTreeMap<Roster, Counted>,
    /// Those whose number is not known, or may be another meanwhile, and since when.
    behind: BTreeMap<Roster, Mono>,
    /// Of these, those to be asked for, and not before.
    queue: BTreeSet<(Mono, Roster)>,
    /// Of these, those that are asked for, at most [`LOADS_MAX`].
    asking: BTreeSet<Roster>,
    serial: u64,
}

impl Counts {
    /// How many members a roster has, if that is known.
    pub(super) fn known(&self, roster: &Roster) -> Option<u64> {
        self.counted.get(roster)?.known.map(|(_, members)| members)
    }

    /// Whether all that this watcher counts is up to date, but for what is not since `late` or longer.
    pub(super) fn serves(&self, watch: WatchKey, late: Option<Mono>) -> bool {
        let mut owed = self.behind.iter().filter(|(_, since)| Some(**since) > late);
        owed.all(|(roster, _)| !self.is_watched(roster, watch))
    }

    /// Since when a number is not known, or may be another.
    pub(super) fn behind_since(&self, roster: &Roster) -> Option<Mono> {
        self.behind.get(roster).copied()
    }

    /// What this watcher counts and is not up to date since `late` or longer.
    pub(super) fn late(&self, watch: WatchKey, late: Option<Mono>) -> impl Iterator<Item = &Roster> {
        let late = self.behind.iter().filter(move |(_, since)| Some(**since) <= late);
        late.map(|(roster, _)| roster).filter(move |roster| self.is_watched(roster, watch))
    }

    fn is_watched(&self, roster: &Roster, watch: WatchKey) -> bool {
        self.counted.get(roster).is_some_and(|counted| counted.watchers.contains(&watch))
    }

    /// Who watches the number of members of the rosters of a shard, or of all.
    pub(super) fn watchers(&self, shard: Option<Shard>) -> Vec<(WatchKey, Roster)> {
        let concerned = self.counted.iter().filter(|(_, c)| shard.is_none_or(|shard| c.shard == shard));
        concerned.flat_map(|(roster, c)| c.watchers.iter().map(|watch| (*watch, roster.clone()))).collect()
    }

    /// When the next one is to be asked for.
    pub(super) fn due(&self) -> Option<Mono> {
        (self.asking.len() < LOADS_MAX).then(|| self.queue.first().map(|(at, _)| *at)).flatten()
    }

    fn ask_again(&mut self, roster: &Roster, (now, at): (Mono, Mono)) {
        self.serial += 1;
        let Some(counted) = self.counted.get_mut(roster) else { return };
        counted.serial = self.serial;
        self.asking.remove(roster);
        self.behind.entry(roster.clone()).or_insert(now);
        self.queue.insert((at, roster.clone()));
    }

    fn forget(&mut self, roster: &Roster) {
        self.counted.remove(roster);
        self.behind.remove(roster);
        self.asking.remove(roster);
    }
}

impl Driver {
    /// Somebody watches the number of members of a roster.
    pub(super) fn count_roster(&mut self, roster: &Roster, watch: WatchKey) {
        if let Some(counted) = self.counts.counted.get_mut(roster) {
            counted.watchers.insert(watch);
            return;
        }
        let watchers = BTreeSet::from([watch]);
        let counted = Counted { shard: self.shard(roster), watchers, known: None, serial: 0 };
        self.counts.counted.insert(roster.clone(), counted);
        self.counts.ask_again(roster, (self.now, self.now));
    }

    /// Somebody does so no more.
    pub(super) fn uncount_roster(&mut self, roster: &Roster, watch: WatchKey) {
        let Some(counted) = self.counts.counted.get_mut(roster) else { return };
        counted.watchers.remove(&watch);
        if counted.watchers.is_empty() {
            self.counts.forget(roster);
        }
    }

    /// What happened in these shards may have been missed.
    pub(super) fn count_again(&mut self, concerned: impl Fn(Shard) -> bool) {
        let of = |(roster, counted): (&Roster, &Counted)| concerned(counted.shard).then(|| roster.clone());
        let rosters: Vec<Roster> = self.counts.counted.iter().filter_map(of).collect();
        for roster in rosters {
            self.counts.ask_again(&roster, (self.now, self.now));
        }
    }

    /// Asks for as many numbers as may be asked for at once.
    pub(super) fn start_counts(&mut self) {
        while self.counts.due().is_some_and(|at| at <= self.now)
            && let Some((_, roster)) = self.counts.queue.pop_first()
        {
            let Some(counted) = self.counts.counted.get(&roster) else { continue };
            let pending = Pending::Count(roster.clone(), counted.serial);
            if self.counts.behind.contains_key(&roster) && self.counts.asking.insert(roster.clone()) {
                self.ask(Command::Summary { roster }, pending);
            }
        }
    }

    /// The store told a number, or could not.
    pub(super) fn on_counted(&mut self, roster: &Roster, serial: u64, result: Result<Outcome, StoreFault>) {
        if self.counts.counted.get(roster).is_none_or(|counted| counted.serial != serial) {
            return;
        }
        self.counts.asking.remove(roster);
        let Ok(Outcome::Summary { position, count, .. }) = result else {
            return self.counts.ask_again(roster, (self.now, self.now + STORE_RETRY));
        };
        self.counts.behind.remove(roster);
        self.take_count(roster, position, count);
        // The number may be the same, and yet it was told as stale.
        self.tell_counted(roster);
    }

    /// A commit came by.
    pub(super) fn count_commit(&mut self, commit: &Committed) {
        let position = Position { epoch: commit.delta.epoch, revision: commit.delta.to };
        self.take_count(&commit.roster, position, commit.members);
    }

    fn take_count(&mut self, roster: &Roster, position: Position, members: u64) {
        let Some(counted) = self.counts.counted.get_mut(roster) else { return };
        if counted.known.is_some_and(|(known, _)| known > position) {
            return;
        }
        let before = counted.known.replace((position, members));
        if before.is_none_or(|(_, before)| before != members) {
            self.tell_counted(roster);
        }
    }

    fn tell_counted(&mut self, roster: &Roster) {
        for watch in self.counts.counted.get(roster).iter().flat_map(|counted| &counted.watchers) {
            self.watchers.touch(*watch, &roster.room);
        }
    }
}
