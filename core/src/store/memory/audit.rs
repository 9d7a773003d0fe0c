//! The audit: whether leases and records belong together, and what makes them not: somebody's hand.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use presence_model::digest::Digest;
use presence_model::id::{Incarnation, RegionId, RoomId, Roster, SessionId, UserId};
use presence_model::lease::{LeaseId, Shard};
use presence_model::time::StoreTime;

use super::leases::Lease;
use super::shard::ShardState;
use super::{Data, MemoryStore};
use crate::store::{AuditPage, AuditPlace, Outcome, Remnant, StoreFault, shard_of};

/// What a hand from outside can do to a store: no verb of the port leaves it so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tampering {
    /// A lease is removed under either name; its record stays.
    LoseLease(LeaseId),
    /// A record is removed; its leases stay.
    LoseRecord(Roster, UserId),
    /// A lease appears that nobody was granted; it runs until then.
    Stray(LeaseId, StoreTime),
    /// The names of a roster's members are removed; their records stay.
    LoseNames(Roster),
    /// A roster is removed from the rooms that are listed.
    LoseEntry(Roster),
    /// Everything of a roster but its members' names is removed; their leases stay.
    LoseRoster(Roster),
    /// What all of a roster has is removed: position and digest. Its members stay.
    LoseFirst(Roster),
    /// A record becomes something that is none.
    GarbleRecord(Roster, UserId),
    /// The digest of a roster becomes one that its members do not have.
    GarbleDigest(Roster),
    /// A key of another type stands in the place of a roster's records.
    SpoilRoster(Roster),
    /// A key of another type stands in the place of what a shard knows of itself.
    SpoilShard(Shard),
    /// What a shard knows of itself is removed: epoch, count of commits, turn, hold.
    LoseShard(Shard),
    /// A field of what a shard knows of itself becomes something that nobody of ours writes.
    GarbleShard(Shard),
    /// A key of another type stands in the place of an index.
    SpoilIndex(Index),
    /// The next commit of a shard is refused when half of it is written.
    SpoilHistory(Shard),
}

/// What is kept beside rosters and leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Index {
    /// The leases that are held through an edge, in one shard.
    LeasesOf(Shard, Incarnation),
    /// Whose the leases of a shard are.
    Owners(Shard),
    /// When users came or went last: of the shard of this one.
    Seen(UserId),
    /// The departures that are to be looked at: of the shard of this user.
    Went(UserId),
    /// The rooms of a user.
    RoomsOf(UserId),
    /// The edges.
    Edges,
    /// What is revoked.
    Revoked,
}

impl ShardState {
    pub(super) fn audit(
        &self,
        from: &AuditPlace,
        portion: usize,
        now: StoreTime,
    ) -> Result<Outcome, StoreFault> {
        self.readable()?;
        let mut page = AuditPage {
            now,
            strays: Vec::new(),
            remnants: Vec::new(),
            torn: Vec::new(),
            next: AuditPlace::default(),
            oldest_overdue: self.oldest_overdue(now),
        };
        self.audit_leases(from, portion, &mut page);
        self.audit_members(from.members.as_ref(), portion, &mut page);
        Ok(Outcome::Audited(page))
    }

    fn audit_leases(&self, from: &AuditPlace, portion: usize, page: &mut AuditPage) {
        let mut last = None;
        for (place, id, lease) in self.leases.walk(place_of(&from.leases)).take(portion) {
            if !self.is_held(id.ttl(), page.now) && !self.is_named(id, lease) {
                page.strays.push(id);
            }
            last = Some(place);
        }
        let rest = last.is_some_and(|last| self.leases.walk(Some(last)).next().is_some());
        page.next.leases = last.filter(|_| rest).map(words_of).unwrap_or_default();
    }

    fn audit_members(&self, from: Option<&(Roster, Option<UserId>)>, portion: usize, page: &mut AuditPage) {
        let mut left = portion;
        let mut after = from.and_then(|(_, user)| user.clone());
        let start = from.map_or(Bound::Unbounded, |(roster, _)| Bound::Included(roster.clone()));
        for (name, roster) in self.rosters.range::<Roster, _>((start, Bound::Unbounded)) {
            if left == 0 {
                page.next.members = Some(((**name).clone(), None));
                return;
            }
            left -= 1;
            if roster.torn {
                page.torn.push((**name).clone());
            }
            // Whoever was looked at last may be of a roster that is gone: then this one is the next.
            let after = after.take().filter(|_| from.is_some_and(|(roster, _)| *roster == **name));
            let start = after.map_or(Bound::Unbounded, Bound::Excluded);
            for (user, stored) in roster.members.range((start, Bound::Unbounded)) {
                for session in &stored.record.sessions {
                    let lease = session.lease;
                    if self.leases.get(lease).is_none() && !self.is_held(lease.ttl(), page.now) {
                        page.remnants.push(Remnant { roster: (**name).clone(), user: user.clone(), lease });
                    }
                }
                if left == 0 {
                    page.next.members = Some(((**name).clone(), Some(user.clone())));
                    return;
                }
                left -= 1;
            }
        }
    }

    fn is_named(&self, id: LeaseId, lease: &Lease) -> bool {
        let stored = self.rosters.get(&lease.roster).and_then(|roster| roster.members.get(&lease.user));
        stored.is_some_and(|stored| stored.record.session_of(id).is_some())
    }

    fn oldest_overdue(&self, now: StoreTime) -> Duration {
        let oldest = self.leases.first_deadline(|ttl| self.is_held(ttl, now));
        oldest.map_or(Duration::ZERO, |deadline| now.since(deadline))
    }

    /// Removes leases that no record names; how many. One whose record was lost without a commit waits for the turn
    /// that makes its roster whole.
    pub(super) fn disown(&mut self, leases: Vec<LeaseId>, now: StoreTime) -> usize {
        let mut removed = 0;
        for id in leases {
            let Some(lease) = self.leases.get(id) else { continue };
            if !self.is_settled() || self.is_held(id.ttl(), now) || self.is_named(id, lease) {
                continue;
            }
            let owner = Arc::clone(&lease.roster);
            if self.rosters.get(&owner).is_some_and(|roster| roster.lost.contains(&lease.user)) {
                self.open(owner);
                break;
            }
            self.leases.remove(id);
            removed += 1;
        }
        removed
    }

    /// Vouches no more if a roster is torn; whether it is.
    pub(super) fn distrust(&mut self, roster: &Roster) -> bool {
        let Some((name, state)) = self.rosters.get_key_value(roster) else { return false };
        let was_torn = self.is_settled() && !state.fits();
        if was_torn {
            self.open(Arc::clone(name));
        }
        was_torn
    }

    /// Makes a roster anew of its records. Leases that none of them names go: their edges hear that they are
    /// unknown, and join again while the hold lasts.
    pub(super) fn make_whole(&mut self, name: &Arc<Roster>) {
        if let Some(roster) = self.rosters.get_mut(name) {
            roster.mend();
        }
        let unnamed: Vec<LeaseId> = self
            .leases
            .walk(None)
            .filter(|(_, id, lease)| lease.roster == *name && !self.is_named(*id, lease))
            .map(|(_, id, _)| id)
            .collect();
        unnamed.into_iter().for_each(|id| self.leases.remove(id));
    }

    fn tamper(&mut self, tampering: Tampering, now: StoreTime) {
        match tampering {
            Tampering::LoseLease(lease) => self.leases.remove(lease),
            Tampering::LoseRecord(roster, user) => {
                let (name, mut state) = self.take(&roster, now);
                state.torn = state.members.remove(&user).is_some();
                state.lost.insert(user);
                self.put(name, state);
            }
            Tampering::Stray(id, deadline) => {
                let nowhere = Roster { region: name(RegionId::new), room: name(RoomId::new) };
                let lease = Lease {
                    roster: Arc::new(nowhere),
                    user: name(UserId::new),
                    session: SessionId::new("a-session-of-nobody").expect("a good session id"),
                    edge: Incarnation(0),
                    deadline,
                    token_ends: StoreTime(u64::MAX / 4),
                    in_grace: false,
                    shortened: None,
                };
                self.leases.grant(id, lease);
            }
            // Members are kept once here: what can be lost of them is the word that they fit.
            Tampering::LoseNames(roster) | Tampering::LoseEntry(roster) => {
                if let Some(roster) = self.rosters.get_mut(&roster) {
                    roster.torn = true;
                }
            }
            Tampering::LoseRoster(roster) | Tampering::SpoilRoster(roster) => {
                let (name, mut state) = self.take(&roster, now);
                state.members.clear();
                (state.torn, state.headless) = (true, true);
                self.put(name, state);
            }
            Tampering::LoseFirst(roster) => {
                if let Some(roster) = self.rosters.get_mut(&roster) {
                    (roster.torn, roster.headless) = (true, true);
                }
            }
            Tampering::GarbleRecord(roster, user) => {
                let (name, mut state) = self.take(&roster, now);
                state.members.remove(&user);
                (state.torn, state.headless) = (true, true);
                self.put(name, state);
            }
            Tampering::GarbleDigest(roster) => {
                if let Some(roster) = self.rosters.get_mut(&roster) {
                    roster.digest = roster.digest.plus(Digest(1));
                }
            }
            Tampering::LoseShard(_) | Tampering::SpoilShard(_) | Tampering::GarbleShard(_) => {
                self.commits = 0;
                self.unsettle();
            }
            // None of them can be of another type here.
            Tampering::SpoilIndex(_) => {}
            Tampering::SpoilHistory(_) => self.spoiled = true,
        }
    }
}

fn name<T, E>(parse: impl Fn(&'static str) -> Result<T, E>) -> T {
    parse("nobody").ok().expect("a good name")
}

/// A place among leases as an adapter's own words.
fn words_of((until, LeaseId(id)): (StoreTime, LeaseId)) -> Vec<u8> {
    [until.0.to_be_bytes(), id.to_be_bytes()].concat()
}

/// Words that are none begin at the start.
fn place_of(words: &[u8]) -> Option<(StoreTime, LeaseId)> {
    let (until, id) = words.split_at_checked(8)?;
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_be_bytes);
    Some((StoreTime(number(until)?), LeaseId(number(id)?)))
}

impl MemoryStore {
    /// Lets a hand from outside do something.
    pub fn tamper(&mut self, tampering: Tampering, now: StoreTime) {
        self.data.tamper(tampering, now);
    }
}

impl Data {
    pub(super) fn distrust(&mut self, roster: &Roster) -> Result<Outcome, StoreFault> {
        let (state, _) = self.shard_mut(shard_of(roster, self.settings.shards))?;
        Ok(Outcome::Distrusted { was_torn: state.distrust(roster) })
    }

    fn tamper(&mut self, tampering: Tampering, now: StoreTime) {
        let shard = match &tampering {
            Tampering::LoseLease(lease) | Tampering::Stray(lease, _) => lease.shard(),
            Tampering::LoseShard(shard)
            | Tampering::SpoilShard(shard)
            | Tampering::GarbleShard(shard)
            | Tampering::SpoilHistory(shard) => *shard,
            Tampering::SpoilIndex(_) => return,
            Tampering::LoseRecord(roster, _)
            | Tampering::LoseNames(roster)
            | Tampering::LoseEntry(roster)
            | Tampering::LoseRoster(roster)
            | Tampering::LoseFirst(roster)
            | Tampering::GarbleRecord(roster, _)
            | Tampering::GarbleDigest(roster)
            | Tampering::SpoilRoster(roster) => shard_of(roster, self.settings.shards),
        };
        if let Some(state) = self.shards.get_mut(usize::from(shard.0)) {
            state.tamper(tampering, now);
        }
    }
}
