//! What is kept of a user whatever the room: where they may be, and when they came or went last.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use presence_model::id::{Roster, UserId};
use presence_model::lease::Shard;
use presence_model::time::StoreTime;

use super::Data;
use crate::store::{Commit, CommitOutcome, Listed, Outcome, StoreFault};

/// The indexes by user.
#[derive(Debug, Clone, Default)]
pub(super) struct People {
    rooms: BTreeMap<UserId, BTreeMap<Roster, StoreTime>>,
    seen: BTreeMap<UserId, StoreTime>,
    seen_first: BTreeSet<(StoreTime, UserId)>,
}

impl People {
    fn came(&mut self, user: &UserId, roster: &Roster, now: StoreTime) {
        self.rooms.entry(user.clone()).or_default().insert(roster.clone(), now);
        self.note_seen(user, now);
    }

    fn went(&mut self, user: &UserId, roster: &Roster, now: StoreTime) {
        self.remove(user, roster);
        self.note_seen(user, now);
    }

    fn remove(&mut self, user: &UserId, roster: &Roster) {
        if let Some(rooms) = self.rooms.get_mut(user) {
            rooms.remove(roster);
            if rooms.is_empty() {
                self.rooms.remove(user);
            }
        }
    }

    fn note_seen(&mut self, user: &UserId, now: StoreTime) {
        if let Some(before) = self.seen.insert(user.clone(), now) {
            self.seen_first.remove(&(before, user.clone()));
        }
        self.seen_first.insert((now, user.clone()));
    }

    pub(super) fn seen(&self, user: &UserId, now: StoreTime) -> Outcome {
        Outcome::Seen { now, at: self.seen.get(user).copied() }
    }

    /// O(rooms of the user): they are kept by name and told by time.
    pub(super) fn rooms_of(
        &self,
        user: &UserId,
        after: Option<Listed>,
        count: usize,
        now: StoreTime,
    ) -> Outcome {
        let rooms = self.rooms.get(user).into_iter().flatten();
        let listed = rooms.map(|(roster, at)| Listed { at: *at, roster: roster.clone() });
        let ordered: BTreeSet<Listed> = listed.filter(|entry| after.as_ref() < Some(entry)).collect();
        let more = ordered.len() > count;
        Outcome::RoomsOf { now, rooms: ordered.into_iter().take(count).collect(), more }
    }

    /// Removes an entry that was not written since, nor after `horizon`.
    pub(super) fn unlist(&mut self, user: &UserId, listed: &Listed, horizon: StoreTime) {
        let known = self.rooms.get(user).and_then(|rooms| rooms.get(&listed.roster));
        if known == Some(&listed.at) && listed.at <= horizon {
            self.remove(user, &listed.roster);
        }
    }

    /// Forgets who was seen last before `horizon`; whether there may be more.
    pub(super) fn forget(&mut self, horizon: StoreTime, portion: usize) -> bool {
        for _ in 0..portion {
            match self.seen_first.first() {
                Some((at, _)) if *at <= horizon => {
                    if let Some((_, user)) = self.seen_first.pop_first() {
                        self.seen.remove(&user);
                    }
                }
                Some(_) | None => return false,
            }
        }
        true
    }

    /// Whether nothing is kept.
    #[cfg(test)]
    pub(super) fn is_bare(&self) -> bool {
        self.rooms.is_empty() && self.seen.is_empty() && self.seen_first.is_empty()
    }
}

impl Data {
    /// A commit, and what follows from it for the users it brought or took.
    pub(super) fn commit(&mut self, commit: Commit, now: StoreTime) -> Result<Outcome, StoreFault> {
        let roster = commit.roster.clone();
        let users: BTreeSet<UserId> = commit.changes.iter().map(|change| change.user.clone()).collect();
        let present = |data: &Self, user: &UserId| data.shard_of(&roster).has_member(&roster, user);
        let before: Vec<(UserId, bool)> =
            users.into_iter().map(|user| (user.clone(), present(self, &user))).collect();
        let shard = crate::store::shard_of(&roster, self.settings.shards);
        let (state, rng) = self.shard_mut(shard)?;
        let outcome = state.commit(commit, now, rng);
        if std::mem::take(&mut state.spoiled) {
            state.unsettle();
            return Err(StoreFault::HalfDone("spoiled".to_owned()));
        }
        if let CommitOutcome::Applied { .. } = outcome {
            for (user, was) in before {
                match (was, present(self, &user)) {
                    (false, true) => self.people.came(&user, &roster, now),
                    (true, false) => self.people.went(&user, &roster, now),
                    (true, true) | (false, false) => {}
                }
            }
        }
        Ok(Outcome::Commit(outcome))
    }

    /// All users are kept together: each shard's turn forgets of all of them.
    pub(super) fn tidy(
        &mut self,
        shard: Shard,
        portion: usize,
        now: StoreTime,
    ) -> Result<Outcome, StoreFault> {
        self.shard(shard)?;
        let kept: Duration = self.settings.retention.seen;
        self.revoked.forget(now);
        Ok(Outcome::Tidied { more: self.people.forget(now.before(kept), portion) })
    }
}
