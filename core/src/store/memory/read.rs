//! Reads: a few members, pages of a roster, counts and names.

use std::collections::BTreeSet;
use std::ops::Bound;

use presence_model::digest::Digest;
use presence_model::id::{RoomId, Roster, UserId};
use presence_model::member::shown;
use presence_model::position::Revision;
use presence_model::record::MemberRead;
use presence_model::time::StoreTime;

use super::Data;
use super::roster::RosterState;
use super::shard::ShardState;
use crate::store::{Outcome, StoreFault};

impl ShardState {
    pub(super) fn members(
        &self,
        roster: &Roster,
        users: Vec<UserId>,
        now: StoreTime,
    ) -> Result<Outcome, StoreFault> {
        self.readable()?;
        let members = users.into_iter().map(|user| self.member(roster, user)).collect();
        Ok(Outcome::Members { now, position: self.position(roster), members })
    }

    fn member(&self, roster: &Roster, user: UserId) -> MemberRead {
        let Some(state) = self.rosters.get(roster) else { return MemberRead::absent(user) };
        let tombstones = state.tombstones_of(&user);
        let Some(stored) = state.members.get(&user) else {
            return MemberRead { tombstones, ..MemberRead::absent(user) };
        };
        let sessions = stored.record.sessions.iter();
        let leases = sessions.filter_map(|session| {
            let lease = self.leases.get(session.lease)?;
            Some((session.lease, lease.state()))
        });
        MemberRead {
            user,
            touched: stored.touched,
            leases: leases.collect(),
            record: Some(stored.record.clone()),
            tombstones,
        }
    }

    /// Whether the user has a record.
    pub(super) fn has_member(&self, roster: &Roster, user: &UserId) -> bool {
        self.rosters.get(roster).is_some_and(|state| state.members.contains_key(user))
    }

    pub(super) fn page(
        &self,
        roster: &Roster,
        after: Option<UserId>,
        count: usize,
        now: StoreTime,
    ) -> Result<Outcome, StoreFault> {
        self.readable()?;
        let position = self.position(roster);
        let Some(state) = self.rosters.get(roster) else {
            let (members, more, digest) = (Vec::new(), false, Digest::default());
            return Ok(Outcome::Page { now, position, members, more, digest });
        };
        state.readable()?;
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = state.members.range((start, Bound::Unbounded));
        let members: Vec<(_, Revision)> = rest
            .by_ref()
            .take(count)
            .map(|(user, stored)| (shown(user, &stored.record), stored.touched))
            .collect();
        let more = rest.next().is_some();
        Ok(Outcome::Page { now, position, members, more, digest: state.digest })
    }

    pub(super) fn summary(&self, roster: &Roster, now: StoreTime) -> Result<Outcome, StoreFault> {
        self.readable()?;
        let state = self.rosters.get(roster);
        state.map_or(Ok(()), RosterState::readable)?;
        Ok(Outcome::Summary {
            now,
            position: self.position(roster),
            count: state.map_or(0, |state| state.members.len() as u64),
            digest: state.map_or_else(Digest::default, |state| state.digest),
            swept: Some(self.turn.swept()),
            hold: self.hold(now),
        })
    }
}

impl Data {
    /// O(shards × count): each shard has its own sorted names.
    pub(super) fn rooms(&self, prefix: &str, after: Option<RoomId>, count: usize) -> Outcome {
        let after = after.filter(|after| after.as_str() >= prefix).map(Bound::Excluded);
        // The empty prefix is no name; every name comes after it.
        let from = RoomId::new(prefix).map_or(Bound::Unbounded, Bound::Included);
        let start = after.unwrap_or(from);
        let mut names: BTreeSet<&RoomId> = BTreeSet::new();
        for shard in &self.shards {
            let matching = shard.rooms_after(&start).take_while(|room| room.as_str().starts_with(prefix));
            names.extend(matching.take(count));
        }
        Outcome::Rooms { rooms: names.into_iter().take(count).cloned().collect() }
    }
}
