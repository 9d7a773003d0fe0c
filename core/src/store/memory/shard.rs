//! The state of one shard, and what all its verbs share: epoch, positions, what is forgotten when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use presence_model::hold::{HoldCause, is_held};
use presence_model::id::{RoomId, Roster};
use presence_model::lease::{LeaseId, Shard};
use presence_model::position::{Epoch, Position, Revision};
use presence_model::time::StoreTime;
use rand::Rng as _;
use rand::rngs::SmallRng;

use super::MemorySettings;
use super::history::History;
use super::leases::LeaseBook;
use super::roster::RosterState;
use super::turn::TurnState;
use crate::store::{HoldState, Retention, StoreFault};

/// Rosters looked at for something to forget by one commit; a turn looks at a whole portion.
const FORGET_PER_COMMIT: usize = 8;

/// Where a shard stands to its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// The epoch vouches for the data.
    Settled,
    /// The server or its data changed: the next turn or commit mints a new epoch.
    Changed,
}

/// One shard.
#[derive(Debug, Clone)]
pub(super) struct ShardState {
    pub(super) shard: Shard,
    pub(super) retention: Retention,
    pub(super) epoch: Epoch,
    standing: Standing,
    /// Commits so far, of all rosters: where the revisions of a roster start.
    pub(super) commits: u64,
    pub(super) leases: LeaseBook,
    pub(super) rosters: BTreeMap<Arc<Roster>, RosterState>,
    /// Rooms with members, and in how many regions.
    rooms: BTreeMap<RoomId, usize>,
    /// Highest revision of any roster that has been forgotten: copies above it that were read while a
    /// roster was absent know all there is to know.
    forgotten: Revision,
    wakes: BTreeSet<(StoreTime, Arc<Roster>)>,
    pub(super) history: History,
    pub(super) turn: TurnState,
    hold: Option<HoldState>,
    /// The next commit is refused half-way.
    pub(super) spoiled: bool,
    /// What nothing vouches for until it was made whole.
    open: Option<Arc<Roster>>,
}

impl ShardState {
    /// A shard without data whose epoch vouches for that: no hold.
    pub(super) fn new(shard: Shard, settings: &MemorySettings, now: StoreTime, rng: &mut SmallRng) -> Self {
        let mut state = Self::lost(shard, settings, now);
        state.epoch = Epoch { minted_ms: now.0, random: rng.next_u64() };
        state.standing = Standing::Settled;
        state
    }

    /// A shard that has lost everything, its epoch too.
    pub(super) fn lost(shard: Shard, settings: &MemorySettings, now: StoreTime) -> Self {
        Self {
            shard,
            retention: settings.retention,
            epoch: Epoch::default(),
            standing: Standing::Changed,
            commits: 0,
            leases: LeaseBook::default(),
            rosters: BTreeMap::new(),
            rooms: BTreeMap::new(),
            forgotten: Revision(0),
            wakes: BTreeSet::new(),
            history: History::from_here(0),
            turn: TurnState::new(now),
            hold: None,
            spoiled: false,
            open: None,
        }
    }

    /// The server changed under the data: the epoch does not vouch for it any more.
    pub(super) fn unsettle(&mut self) {
        self.standing = Standing::Changed;
    }

    /// Somebody's hand was seen on a roster: the next turn or commit makes it whole, in a new epoch.
    pub(super) fn open(&mut self, roster: Arc<Roster>) {
        self.open = Some(roster);
        self.unsettle();
    }

    pub(super) fn is_settled(&self) -> bool {
        self.standing == Standing::Settled
    }

    /// # Errors
    /// Reads are refused until a turn has settled the epoch: whatever they told could be told again of
    /// other data.
    pub(super) fn readable(&self) -> Result<(), StoreFault> {
        match self.standing {
            Standing::Settled => Ok(()),
            Standing::Changed => Err(StoreFault::Unsettled),
        }
    }

    /// Mints a new epoch, if the server changed or the caller knew a higher one, and starts its hold.
    pub(super) fn settle(&mut self, known: Option<Epoch>, now: StoreTime, rng: &mut SmallRng) -> bool {
        let highest = known.map_or(self.epoch, |known| known.max(self.epoch));
        if self.is_settled() && highest == self.epoch {
            return false;
        }
        let minted_ms = now.0.max(highest.minted_ms.saturating_add(1));
        self.epoch = Epoch { minted_ms, random: rng.next_u64() };
        self.standing = Standing::Settled;
        self.history = History::from_here(self.commits);
        for roster in self.rosters.values_mut() {
            roster.history.clear();
            roster.floor = roster.revision;
            if roster.torn {
                roster.mend();
            }
        }
        if let Some(name) = self.open.take() {
            self.make_whole(&name);
        }
        self.start_hold(HoldCause::StoreChanged, now);
        true
    }

    /// Starts a hold now, in place of one that there may be.
    pub(super) fn start_hold(&mut self, cause: HoldCause, now: StoreTime) {
        self.hold = Some(HoldState { since: now, cause });
        self.turn.held(now);
    }

    /// The hold that is in force for some ttl.
    pub(super) fn hold(&self, now: StoreTime) -> Option<HoldState> {
        let longest = LeaseId(u64::MAX).ttl();
        self.hold.filter(|hold| is_held(Some(hold.since), longest, now))
    }

    /// Whether silence proves nothing about leases of this ttl.
    pub(super) fn is_held(&self, ttl: Duration, now: StoreTime) -> bool {
        is_held(self.hold.map(|hold| hold.since), ttl, now)
    }

    /// Where a roster is; of one that is not there, where it would start.
    pub(super) fn position(&self, roster: &Roster) -> Position {
        let revision = self.rosters.get(roster).map_or(Revision(self.commits), |state| state.revision);
        Position { epoch: self.epoch, revision }
    }

    /// After which revision the history of a roster is complete.
    pub(super) fn floor(&self, roster: &Roster) -> Revision {
        self.rosters.get(roster).map_or(self.forgotten, |state| state.floor)
    }

    /// Takes a roster out to change it; one that is not there starts at the count of all commits, so a
    /// position never repeats within an epoch. To be put back.
    pub(super) fn take(&mut self, roster: &Roster, now: StoreTime) -> (Arc<Roster>, RosterState) {
        match self.rosters.remove_entry(roster) {
            Some((name, state)) => {
                if let Some(at) = state.wakes(&self.retention) {
                    self.wakes.remove(&(at, Arc::clone(&name)));
                }
                if !state.members.is_empty() {
                    self.count_room(&name.room, false);
                }
                (name, state)
            }
            None => {
                let state = RosterState::new(Revision(self.commits), self.forgotten, now);
                (Arc::new(roster.clone()), state)
            }
        }
    }

    /// Puts a roster back that was taken out.
    pub(super) fn put(&mut self, name: Arc<Roster>, state: RosterState) {
        if let Some(at) = state.wakes(&self.retention) {
            self.wakes.insert((at, Arc::clone(&name)));
        }
        if !state.members.is_empty() {
            self.count_room(&name.room, true);
        }
        self.rosters.insert(name, state);
    }

    fn count_room(&mut self, room: &RoomId, up: bool) {
        let regions = self.rooms.get(room).copied().unwrap_or(0);
        match if up { regions + 1 } else { regions.saturating_sub(1) } {
            0 => self.rooms.remove(room),
            left => self.rooms.insert(room.clone(), left),
        };
    }

    /// Rooms with members from just after a name on, sorted.
    pub(super) fn rooms_after(&self, after: &std::ops::Bound<RoomId>) -> impl Iterator<Item = &RoomId> {
        self.rooms.range((after.clone(), std::ops::Bound::Unbounded)).map(|(room, _)| room)
    }

    /// Forgets a little of what is old enough, so that no verb ever has much to forget.
    pub(super) fn forget_some(&mut self, now: StoreTime) {
        self.forget(now, FORGET_PER_COMMIT);
    }

    /// Forgets old history, tombstones, and the positions of rosters that have long been empty; about
    /// `budget` of each.
    pub(super) fn forget(&mut self, now: StoreTime, budget: usize) {
        self.forget_history(now, budget);
        for _ in 0..budget {
            let Some((at, name)) = self.wakes.pop_first() else { break };
            if at > now {
                self.wakes.insert((at, name));
                break;
            }
            let Some(mut state) = self.rosters.remove(&*name) else { continue };
            state.forget_tombstones(now.before(self.retention.tombstones), budget);
            let long_empty = now.since(state.emptied) >= self.retention.rosters;
            if state.is_bare() && long_empty {
                self.forgotten = self.forgotten.max(state.revision);
            } else {
                let next = state.wakes(&self.retention);
                self.rosters.insert(Arc::clone(&name), state);
                if let Some(next) = next {
                    self.wakes.insert((next, name));
                }
            }
        }
    }

    /// Whether no index keeps anything.
    #[cfg(test)]
    pub(super) fn is_bare(&self) -> bool {
        self.rosters.is_empty() && self.rooms.is_empty() && self.wakes.is_empty() && self.history.is_empty()
    }
}
