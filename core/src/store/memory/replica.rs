//! What happens to the data of a remote store: restarts, loss, a fail-over to a replica that lags.

use std::collections::VecDeque;

use presence_model::lease::Shard;
use presence_model::time::StoreTime;

use super::links::EdgeNotes;
use super::people::People;
use super::revoked::Revoked;
use super::shard::ShardState;
use super::{Data, MemoryStore, shard_number};
use crate::store::{Command, CommitOutcome, Outcome};

/// What can happen to a store. Each leaves shards whose epoch does not vouch for the data any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upheaval {
    /// Another server process with the same data.
    Restart,
    /// Another server process, and nothing is left.
    RestartEmpty,
    /// A replica takes over that has not heard of the newest writes.
    FailOver(Lost),
    /// One shard moved to another server.
    Move(Shard),
}

/// Which writes a replica has not heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The last so many commits that applied something, and everything after the first of them.
    Commits(usize),
    /// Everything after that time.
    After(StoreTime),
}

/// A copy that applies the same writes later.
#[derive(Debug, Clone)]
pub(super) struct Replica {
    data: Box<Data>,
    behind: VecDeque<(Command, StoreTime)>,
}

impl Replica {
    pub(super) fn of(data: &Data) -> Self {
        Self { data: Box::new(data.clone()), behind: VecDeque::new() }
    }

    pub(super) fn record(&mut self, command: &Command, now: StoreTime, lag: usize) {
        self.behind.push_back((command.clone(), now));
        while self.behind.len() > lag {
            self.catch_up();
        }
    }

    /// Applies the oldest write it has not applied; whether that was a commit that applied something.
    fn catch_up(&mut self) -> bool {
        let Some((command, at)) = self.behind.pop_front() else { return false };
        let changes = if let Command::Commit(commit) = &command { commit.changes.len() } else { 0 };
        // Whatever the answer was, it was given by the other copy.
        match self.data.carry_out(command, at) {
            Ok(Outcome::Commit(CommitOutcome::Applied { refused, .. })) => refused.len() < changes,
            Ok(_) | Err(_) => false,
        }
    }

    /// The copy without what is lost.
    fn promoted(mut self, lost: Lost) -> Data {
        let heard = match lost {
            Lost::After(time) => self.behind.iter().take_while(|(_, at)| *at <= time).count(),
            Lost::Commits(0) => self.behind.len(),
            Lost::Commits(count) => {
                let mut ahead = self.clone();
                let applied: Vec<bool> = (0..self.behind.len()).map(|_| ahead.catch_up()).collect();
                let commits = applied.iter().enumerate().rev().filter(|(_, applied)| **applied);
                commits.map(|(index, _)| index).nth(count - 1).unwrap_or(0)
            }
        };
        for _ in 0..heard {
            self.catch_up();
        }
        *self.data
    }
}

impl MemoryStore {
    /// Lets something happen to the data. Without a replica a fail-over loses nothing.
    pub fn suffer(&mut self, upheaval: Upheaval, now: StoreTime) {
        match upheaval {
            Upheaval::Restart => self.data.unsettle(),
            Upheaval::RestartEmpty => self.data.lose_all(now),
            Upheaval::FailOver(lost) => {
                if let Some(replica) = self.replica.take() {
                    let rng = self.data.rng.clone();
                    self.data = replica.promoted(lost);
                    // Chance is not data: an epoch minted again must not be one that was lost.
                    self.data.rng = rng;
                }
                self.data.unsettle();
            }
            Upheaval::Move(shard) => {
                if let Some(state) = self.data.shards.get_mut(usize::from(shard.0)) {
                    state.unsettle();
                }
            }
        }
        self.replica = (self.data.settings.replica_lag > 0).then(|| Replica::of(&self.data));
    }
}

impl Data {
    fn unsettle(&mut self) {
        self.shards.iter_mut().for_each(ShardState::unsettle);
    }

    fn lose_all(&mut self, now: StoreTime) {
        let settings = self.settings;
        let lost = |number| ShardState::lost(shard_number(number), &settings, now);
        self.shards = (0..settings.shards).map(lost).collect();
        self.edges = EdgeNotes::new();
        self.people = People::default();
        self.revoked = Revoked::default();
    }
}
