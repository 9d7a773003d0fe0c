//! The memory adapter: a full store for one process, in which everything a remote store does to us can
//! be provoked.
//!
//! [`MemoryStore`] is a value: [`MemoryStore::apply`] takes a command and the time and gives the
//! outcome; it reads no clock and its chance comes from a seed, so a run can be replayed. What happens
//! to the data of a remote store is an [`Upheaval`]. [`SharedMemoryStore`] puts it behind the port, and
//! adds what happens on the way to a store ([`Weather`]).

mod audit;
mod commit;
mod history;
mod leases;
mod links;
mod people;
mod read;
mod replica;
mod revoked;
mod roster;
mod shard;
mod shared;
mod shorten;
mod turn;

use std::collections::BTreeMap;

use presence_model::class::Graces;
use presence_model::id::{Incarnation, LinkNumber, Roster};
use presence_model::lease::Shard;
use presence_model::limits::SHARDS_MAX;
use presence_model::time::StoreTime;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;

use super::{Command, Outcome, Retention, StoreFault, TailId};
use links::EdgeNotes;
use people::People;
use replica::Replica;
use revoked::Revoked;
use shard::ShardState;
use turn::Ask;

pub use audit::{Index, Tampering};
pub use replica::{Lost, Upheaval};
pub use shared::{SharedMemoryStore, Weather};

/// What a memory store is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySettings {
    /// Shards, 1 to 256.
    pub shards: u16,
    /// Seeds the random part of epochs. Two stores of one seed mint the same.
    pub seed: u64,
    /// What is remembered for how long.
    pub retention: Retention,
    /// Keeps a replica that lags by at most so many writes, for [`Upheaval::FailOver`]; 0: none. It
    /// doubles memory and work, so it is for tests.
    pub replica_lag: usize,
}

impl Default for MemorySettings {
    /// 16 shards, no replica.
    fn default() -> Self {
        Self { shards: 16, seed: 0, retention: Retention::default(), replica_lag: 0 }
    }
}

/// A store in memory, created with an epoch and no hold: nobody has been here before.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    data: Data,
    replica: Option<Replica>,
}

/// All that a store keeps.
#[derive(Debug, Clone)]
struct Data {
    settings: MemorySettings,
    shards: Vec<ShardState>,
    edges: EdgeNotes,
    people: People,
    revoked: Revoked,
    rng: SmallRng,
}

impl MemoryStore {
    /// A store without data. `now` starts its epochs.
    #[must_use]
    pub fn new(settings: MemorySettings, now: StoreTime) -> Self {
        let settings = MemorySettings { shards: settings.shards.clamp(1, SHARDS_MAX), ..settings };
        let mut rng = SmallRng::seed_from_u64(settings.seed);
        let shards = (0..settings.shards)
            .map(|number| ShardState::new(shard_number(number), &settings, now, &mut rng))
            .collect();
        let edges = EdgeNotes::new();
        let (people, revoked) = (People::default(), Revoked::default());
        let data = Data { settings, shards, edges, people, revoked, rng };
        let replica = (settings.replica_lag > 0).then(|| Replica::of(&data));
        Self { data, replica }
    }

    /// Carries a command out at `now`. A [`Command::Tail`] is answered at once, empty if there is
    /// nothing to tell: the caller waits ([`MemoryStore::tail_speaks`]).
    ///
    /// # Errors
    /// [`StoreFault::Unavailable`]: a read of a shard whose server has changed and whose epoch no turn
    /// or commit has settled yet; a shard that there is not.
    pub fn apply(&mut self, command: Command, now: StoreTime) -> Result<Outcome, StoreFault> {
        if let Some(replica) = self.replica.as_mut().filter(|_| command.is_write()) {
            replica.record(&command, now, self.data.settings.replica_lag);
        }
        self.data.carry_out(command, now)
    }

    /// Whether a tail asked from here would have something to tell: commits, a break, or where a shard
    /// is that `after` does not name.
    #[must_use]
    pub fn tail_speaks(&self, after: &BTreeMap<Shard, TailId>) -> bool {
        self.data.tail_speaks(after)
    }

    /// How many shards.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.data.settings.shards
    }
}

impl Data {
    fn carry_out(&mut self, command: Command, now: StoreTime) -> Result<Outcome, StoreFault> {
        match command {
            Command::Now { shard } => self.shard(shard).map(|_| Outcome::Now { now }),
            Command::Members { roster, users } => self.shard_of(&roster).members(&roster, users, now),
            Command::Load { roster, after, count } => self.shard_of(&roster).page(&roster, after, count, now),
            Command::Summary { roster } => self.shard_of(&roster).summary(&roster, now),
            Command::History { roster, after, count } => {
                self.shard_of(&roster).history_after(&roster, after, count)
            }
            Command::Leases { shard, leases } => {
                self.shard(shard).map(|state| state.lease_details(leases, now))
            }
            Command::Audit { shard, from, portion } => self.shard(shard)?.audit(&from, portion, now),
            Command::Rooms { prefix, after, count } => Ok(self.rooms(&prefix, after, count)),
            Command::Tail { after, wait: _ } => Ok(self.tail(&after)),
            Command::Edges => Ok(self.edge_states(now)),
            Command::Seen { user } => Ok(self.people.seen(&user, now)),
            Command::RoomsOf { user, after, count } => Ok(self.people.rooms_of(&user, after, count, now)),
            Command::Revoked { after, count, unless } => Ok(self.revoked.page(after, count, unless, now)),
            Command::Commit(_)
            | Command::Renew { .. }
            | Command::Release { .. }
            | Command::Discard { .. }
            | Command::Disown { .. }
            | Command::Distrust { .. }
            | Command::Lose { .. }
            | Command::Turn { .. }
            | Command::Link { .. }
            | Command::Unlink { .. }
            | Command::Forget { .. }
            | Command::DrainEdge { .. }
            | Command::Unlist { .. }
            | Command::Revoke { .. }
            | Command::Tidy { .. } => self.write(command, now),
        }
    }

    fn write(&mut self, command: Command, now: StoreTime) -> Result<Outcome, StoreFault> {
        match command {
            Command::Commit(commit) => self.commit(commit, now),
            Command::Renew { shard, leases } => Ok(self.shard_mut(shard)?.0.renew(leases, now)),
            Command::Release { shard, edge, leases, grace, reason } => {
                Ok(self.shard_mut(shard)?.0.release(edge, leases, (grace, reason), now))
            }
            Command::Discard { shard, leases } => {
                self.shard_mut(shard)?.0.discard(leases, now);
                Ok(Outcome::Done)
            }
            Command::Disown { shard, leases } => {
                Ok(Outcome::Disowned { removed: self.shard_mut(shard)?.0.disown(leases, now) })
            }
            Command::Distrust { roster } => self.distrust(&roster),
            Command::Lose { shard, edge, link, broken_since, graces } => {
                self.lose(shard, (edge, link), (broken_since, &graces), now)
            }
            Command::Turn {
                shard,
                holder,
                finished,
                kept,
                smallest_ttl,
                takeover,
                stepped,
                known,
                portion,
            } => {
                let ask = Ask { holder, finished, kept, smallest_ttl, takeover, stepped, known, portion };
                self.forget_unheard(now);
                let (state, rng) = self.shard_mut(shard)?;
                Ok(Outcome::Turn(state.turn(ask, now, rng)))
            }
            Command::Link { edge, name, link, core } => Ok(self.link(edge, (name, core), link, now)),
            Command::Unlink { edge, name, link } => {
                self.unlink(edge, &name, link, now);
                Ok(Outcome::Done)
            }
            Command::Forget { edge, name, link } => {
                self.forget_edge(edge, &name, link);
                Ok(Outcome::Done)
            }
            Command::DrainEdge { name, edge } => {
                self.drain_edge(&name, edge);
                Ok(Outcome::Done)
            }
            Command::Unlist { user, listed } => {
                self.people.unlist(&user, &listed, now.before(self.settings.retention.listing));
                Ok(Outcome::Done)
            }
            Command::Revoke { revocations } => {
                self.revoked.revoke(revocations, now);
                Ok(Outcome::Done)
            }
            Command::Tidy { shard, portion } => self.tidy(shard, portion, now),
            Command::Now { .. }
            | Command::Members { .. }
            | Command::Load { .. }
            | Command::Edges
            | Command::History { .. }
            | Command::Tail { .. }
            | Command::Leases { .. }
            | Command::Audit { .. }
            | Command::Rooms { .. }
            | Command::Summary { .. }
            | Command::Seen { .. }
            | Command::RoomsOf { .. }
            | Command::Revoked { .. } => self.carry_out(command, now),
        }
    }

    fn lose(
        &mut self,
        shard: Shard,
        (edge, link): (Incarnation, LinkNumber),
        (broken_since, graces): (StoreTime, &Graces),
        now: StoreTime,
    ) -> Result<Outcome, StoreFault> {
        let is_stale = self.knows_newer(edge, link);
        let state = self.shard_mut(shard)?.0;
        let leases = if is_stale { 0 } else { state.lose(edge, broken_since, graces, now) };
        Ok(Outcome::Lost { leases })
    }

    fn shard_of(&self, roster: &Roster) -> &ShardState {
        let shard = super::shard_of(roster, self.settings.shards);
        &self.shards[usize::from(shard.0)]
    }

    fn shard(&self, shard: Shard) -> Result<&ShardState, StoreFault> {
        self.shards.get(usize::from(shard.0)).ok_or_else(|| no_such(shard))
    }

    fn shard_mut(&mut self, shard: Shard) -> Result<(&mut ShardState, &mut SmallRng), StoreFault> {
        let state = self.shards.get_mut(usize::from(shard.0)).ok_or_else(|| no_such(shard))?;
        Ok((state, &mut self.rng))
    }
}

fn no_such(shard: Shard) -> StoreFault {
    StoreFault::Unavailable(format!("there is no shard {shard}"))
}

fn shard_number(number: u16) -> Shard {
    Shard(u8::try_from(number).expect("shards are numbered below 256"))
}

#[cfg(test)]
mod tests;
