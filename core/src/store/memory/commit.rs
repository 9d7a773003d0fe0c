//! The commit: checks expectations and guards, applies what holds as one revision, tells history.

use std::collections::BTreeSet;
use std::sync::Arc;

use presence_model::change::{Change, Committed, Guard, LeaseGrant, Visible};
use presence_model::delta::Delta;
use presence_model::digest::Digest;
use presence_model::id::{Roster, UserId};
use presence_model::lease::LeaseId;
use presence_model::member::shown;
use presence_model::position::{Position, Revision};
use presence_model::time::StoreTime;
use rand::rngs::SmallRng;

use super::leases::Lease;
use super::roster::{RosterState, Stored};
use super::shard::ShardState;
use crate::store::{Commit, CommitOutcome, NotApplied};

impl ShardState {
    /// Applies the changes whose expectations and guards hold; names the others. Costs O(log n) a change.
    pub(super) fn commit(&mut self, commit: Commit, now: StoreTime, rng: &mut SmallRng) -> CommitOutcome {
        self.settle(Some(commit.epoch), now, rng);
        if commit.epoch != self.epoch {
            return CommitOutcome::Epoch { current: self.epoch };
        }
        self.forget_some(now);
        let before = self.position(&commit.roster);
        let is_known = self.rosters.contains_key(&commit.roster);
        let (name, mut roster) = self.take(&commit.roster, now);
        if roster.headless || commit.changes.iter().any(|change| roster.lost.contains(&change.user)) {
            self.put(Arc::clone(&name), roster);
            self.open(name);
            self.settle(Some(commit.epoch), now, rng);
            return CommitOutcome::Epoch { current: self.epoch };
        }
        let revision = before.revision.next();
        let mut refused = Vec::new();
        let mut applied = Vec::new();
        let mut users = BTreeSet::new();
        for change in commit.changes {
            let checked = self.check(&roster, &change, now);
            // A member has one value at a revision: a second change of it is decided on an old reading.
            let once = if users.contains(&change.user) { Err(NotApplied::Changed) } else { Ok(()) };
            match checked.and(once) {
                Ok(()) => {
                    self.write(&name, &mut roster, &change, (revision, now));
                    users.insert(change.user.clone());
                    applied.push(change);
                }
                Err(reason) => refused.push((change.user, reason)),
            }
        }
        if applied.is_empty() {
            if is_known {
                self.put(name, roster);
            }
            return CommitOutcome::Applied { position: before, refused, now };
        }
        self.tell(&name, &mut roster, applied, (revision, now));
        self.put(name, roster);
        CommitOutcome::Applied { position: Position { epoch: self.epoch, revision }, refused, now }
    }

    fn check(&self, roster: &RosterState, change: &Change, now: StoreTime) -> Result<(), NotApplied> {
        let touched = roster.members.get(&change.user).map_or(Revision(0), |stored| stored.touched);
        let tombstones_as_read = change
            .expect_tombstones
            .iter()
            .all(|(session, read)| roster.tombstone(&change.user, session) == read.as_ref());
        if touched != change.expect || !tombstones_as_read {
            return Err(NotApplied::Changed);
        }
        if !change.guards.iter().all(|guard| self.holds(*guard, now)) {
            return Err(NotApplied::Guard);
        }
        let mut granted = BTreeSet::new();
        let free = |grant: &LeaseGrant| {
            let id = grant.lease;
            id.shard() == self.shard && !id.is_grace() && self.leases.get(id).is_none()
        };
        if !change.grants.iter().all(|grant| free(grant) && granted.insert(grant.lease)) {
            return Err(NotApplied::LeaseExists);
        }
        Ok(())
    }

    fn holds(&self, guard: Guard, now: StoreTime) -> bool {
        match guard {
            Guard::Overdue(id) => {
                let overdue = self.leases.get(id).is_none_or(|lease| lease.deadline <= now);
                overdue && !self.is_held(id.ttl(), now) && self.turn.vouches(now)
            }
            Guard::TokenEnded(id) => self.leases.get(id).is_some_and(|lease| lease.token_ends <= now),
            Guard::LeaseAbsent(id) => {
                self.leases.get(id).is_none() && !self.is_held(id.ttl(), now) && self.turn.vouches(now)
            }
        }
    }

    /// Removes leases that silence or their token has ended.
    pub(super) fn discard(&mut self, leases: Vec<LeaseId>, now: StoreTime) {
        for id in leases {
            if self.holds(Guard::Overdue(id), now) || self.holds(Guard::TokenEnded(id), now) {
                self.leases.remove(id);
            }
        }
    }

    fn write(
        &mut self,
        name: &Arc<Roster>,
        roster: &mut RosterState,
        change: &Change,
        (revision, now): (Revision, StoreTime),
    ) {
        for lease in &change.revokes {
            self.leases.remove(*lease);
        }
        for (lease, ends) in &change.token_ends {
            self.leases.set_token_end(*lease, *ends);
        }
        for grant in &change.grants {
            self.leases.grant(grant.lease, granted(name, &change.user, grant, now));
        }
        for (session, tombstone) in &change.tombstones {
            roster.bury(&change.user, session.clone(), tombstone.clone(), now);
        }
        let replaced = match &change.record {
            Some(record) => {
                let digest = Digest::of(&shown(&change.user, record));
                roster.digest = roster.digest.plus(digest);
                let stored = Stored { touched: revision, digest, record: record.clone() };
                roster.members.insert(change.user.clone(), stored)
            }
            None => roster.members.remove(&change.user),
        };
        if let Some(replaced) = replaced {
            roster.digest = roster.digest.minus(replaced.digest);
        }
    }

    /// Moves the roster to its new revision and adds the commit to the histories.
    fn tell(
        &mut self,
        name: &Arc<Roster>,
        roster: &mut RosterState,
        applied: Vec<Change>,
        (revision, now): (Revision, StoreTime),
    ) {
        // The first commit of a roster also fits copies that knew it as absent at a lower count.
        let from = if roster.history.is_empty() { roster.floor } else { roster.revision };
        roster.revision = revision;
        if roster.members.is_empty() {
            roster.emptied = now;
        }
        let (mut upserts, mut removals, mut transitions) = (Vec::new(), Vec::new(), Vec::new());
        for change in applied {
            match change.visible() {
                Some(Visible::Upsert(member)) => upserts.push(member),
                Some(Visible::Removal(removal)) => removals.push(removal),
                None => {}
            }
            let user = change.user;
            transitions.extend(change.transitions.into_iter().map(|step| (user.clone(), step)));
        }
        upserts.sort_unstable_by(|a, b| a.user.cmp(&b.user));
        removals.sort_unstable_by(|a, b| a.user.cmp(&b.user));
        let delta = Delta { epoch: self.epoch, from, to: revision, upserts, removals, digest: roster.digest };
        let members = roster.members.len() as u64;
        let committed =
            Arc::new(Committed { roster: (**name).clone(), delta, transitions, members, at: now });
        self.commits += 1;
        roster.history.push_back(Arc::clone(&committed));
        self.history.push(self.commits, committed);
    }
}

fn granted(name: &Arc<Roster>, user: &UserId, grant: &LeaseGrant, now: StoreTime) -> Lease {
    Lease {
        roster: Arc::clone(name),
        user: user.clone(),
        session: grant.session.clone(),
        edge: grant.edge,
        deadline: now + grant.lease.ttl(),
        token_ends: grant.token_ends,
        in_grace: false,
        shortened: None,
    }
}
