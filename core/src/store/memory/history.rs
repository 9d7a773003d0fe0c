//! What was committed, for whoever comes late (by roster) and for whoever listens (by shard).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use presence_model::change::Committed;
use presence_model::id::Roster;
use presence_model::lease::Shard;
use presence_model::position::Position;
use presence_model::time::StoreTime;

use super::Data;
use super::shard::ShardState;
use crate::store::{HistoryOutcome, Outcome, StoreFault, TailId};

/// Most commits in one answer of a tail, over all shards.
const TAIL_PORTION: usize = 1024;
/// What a commit weighs beside its variable parts, in bytes.
const COMMIT_BYTES: usize = 384;
/// What a member, removal or transition weighs beside its state, in bytes.
const PART_BYTES: usize = 160;

/// The commits of a shard that are still known, oldest first.
#[derive(Debug, Clone)]
pub(super) struct History {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Everything up to this commit has been dropped.
    dropped: u64,
}

#[derive(Debug, Clone)]
struct Entry {
    sequence: u64,
    bytes: usize,
    committed: Arc<Committed>,
}

impl History {
    /// A history that starts after so many commits.
    pub(super) fn from_here(commits: u64) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, dropped: commits }
    }

    pub(super) fn push(&mut self, sequence: u64, committed: Arc<Committed>) {
        let bytes = weight(&committed);
        self.bytes += bytes;
        self.entries.push_back(Entry { sequence, bytes, committed });
    }

    /// Commits after one; none if history does not reach back so far. Sequences have no gaps.
    fn after(&self, sequence: u64) -> Option<impl Iterator<Item = &Entry>> {
        let skip = usize::try_from(sequence.checked_sub(self.dropped)?).ok()?;
        (skip <= self.entries.len()).then(|| self.entries.range(skip..))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.bytes == 0
    }

    fn pop_if(&mut self, old: impl Fn(&Entry, usize) -> bool) -> Option<Entry> {
        let bytes = self.bytes;
        let entry = self.entries.pop_front_if(|entry| old(entry, bytes))?;
        self.bytes -= entry.bytes;
        self.dropped = entry.sequence;
        Some(entry)
    }
}

fn weight(committed: &Committed) -> usize {
    let delta = &committed.delta;
    let parts = delta.upserts.len() + delta.removals.len() + committed.transitions.len();
    let states: usize = delta.upserts.iter().map(|member| member.state.as_bytes().len()).sum();
    COMMIT_BYTES + parts * PART_BYTES + states
}

impl ShardState {
    /// The end of the shard's history.
    pub(super) fn tail_id(&self) -> TailId {
        TailId { epoch: self.epoch, sequence: self.commits }
    }

    /// Forgets commits that are too old, at most `budget` of them, and those over the cap of bytes.
    pub(super) fn forget_history(&mut self, now: StoreTime, budget: usize) {
        let retention = self.retention;
        let horizon = now.before(retention.history);
        let mut aged = 0;
        while let Some(entry) = self.history.pop_if(|entry, bytes| {
            bytes > retention.history_bytes || (aged < budget && entry.committed.at <= horizon)
        }) {
            aged += 1;
            if let Some(roster) = self.rosters.get_mut(&entry.committed.roster) {
                roster.history.pop_front();
                roster.floor = entry.committed.delta.to;
            }
        }
    }

    pub(super) fn history_after(
        &self,
        roster: &Roster,
        after: Position,
        count: usize,
    ) -> Result<Outcome, StoreFault> {
        self.readable()?;
        let position = self.position(roster);
        let outcome = if after.epoch != self.epoch {
            HistoryOutcome::Compacted { position }
        } else if after.revision > position.revision {
            HistoryOutcome::Ahead { position }
        } else if after.revision < self.floor(roster) {
            HistoryOutcome::Compacted { position }
        } else {
            let kept: Vec<Committed> = self.rosters.get(roster).map_or_else(Default::default, |state| {
                let known = state.history.partition_point(|commit| commit.delta.to <= after.revision);
                state.history.range(known..).take(count).map(|commit| (**commit).clone()).collect()
            });
            if kept.is_empty() {
                HistoryOutcome::Unchanged { position }
            } else {
                HistoryOutcome::Commits(kept)
            }
        };
        Ok(Outcome::History(outcome))
    }
}

impl Data {
    /// Whether a tail asked from here would have something to say.
    pub(super) fn tail_speaks(&self, after: &BTreeMap<Shard, TailId>) -> bool {
        self.shards.iter().any(|shard| match after.get(&shard.shard) {
            None => true,
            Some(id) => shard.is_settled() && *id != shard.tail_id(),
        })
    }

    pub(super) fn tail(&self, after: &BTreeMap<Shard, TailId>) -> Outcome {
        let mut at = BTreeMap::new();
        let mut commits = Vec::new();
        let mut broken = Vec::new();
        for shard in &self.shards {
            let here = shard.tail_id();
            let reached = match after.get(&shard.shard) {
                None => here,
                // Broken as soon as its epoch is settled: until then there is nowhere to go on.
                Some(id) if !shard.is_settled() => *id,
                Some(id) if id.epoch == here.epoch => match shard.history.after(id.sequence) {
                    Some(entries) => {
                        let mut reached = *id;
                        for entry in entries.take(TAIL_PORTION.saturating_sub(commits.len())) {
                            reached.sequence = entry.sequence;
                            commits.push((*entry.committed).clone());
                        }
                        reached
                    }
                    None => {
                        broken.push(shard.shard);
                        here
                    }
                },
                Some(_) => {
                    broken.push(shard.shard);
                    here
                }
            };
            at.insert(shard.shard, reached);
        }
        Outcome::Tail { at, commits, broken }
    }
}
