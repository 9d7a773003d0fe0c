//! One roster as stored: records, what ended, and its part of the history.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use presence_model::change::Committed;
use presence_model::digest::Digest;
use presence_model::id::{SessionId, UserId};
use presence_model::limits::TOMBSTONES_PER_ROSTER_MAX;
use presence_model::position::Revision;
use presence_model::record::{Record, Tombstone};
use presence_model::time::StoreTime;

use crate::store::{Retention, StoreFault, torn};

/// A record with the revision that last touched it and what it adds to the digest.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) touched: Revision,
    pub(super) digest: Digest,
    pub(super) record: Record,
}

/// A roster that has members, or had some not long ago.
#[derive(Debug, Clone)]
pub(super) struct RosterState {
    pub(super) revision: Revision,
    pub(super) digest: Digest,
    pub(super) members: BTreeMap<UserId, Stored>,
    /// Commits that history still has, in order.
    pub(super) history: VecDeque<Arc<Committed>>,
    /// What `history` is complete after.
    pub(super) floor: Revision,
    /// A record was lost without a commit: the digest is not that of the members.
    pub(super) torn: bool,
    /// What all of it has was lost: position and digest.
    pub(super) headless: bool,
    /// Whose record was lost without a commit.
    pub(super) lost: BTreeSet<UserId>,
    /// When it lost its last member, or came to be without one.
    pub(super) emptied: StoreTime,
    tombstones: BTreeMap<UserId, BTreeMap<SessionId, (StoreTime, Tombstone)>>,
    ended: BTreeSet<(StoreTime, UserId, SessionId)>,
}

impl RosterState {
    /// A roster at a revision that it never had before; copies at `floor` or above know it as empty.
    pub(super) fn new(revision: Revision, floor: Revision, now: StoreTime) -> Self {
        Self {
            revision,
            digest: Digest::default(),
            members: BTreeMap::new(),
            history: VecDeque::new(),
            floor,
            torn: false,
            headless: false,
            lost: BTreeSet::new(),
            emptied: now,
            tombstones: BTreeMap::new(),
            ended: BTreeSet::new(),
        }
    }

    /// Makes the digest that of the members again.
    pub(super) fn mend(&mut self) {
        self.torn = false;
        self.headless = false;
        self.lost.clear();
        self.digest = self.digest_of_all();
    }

    /// Whether its digest is that of its members.
    pub(super) fn fits(&self) -> bool {
        !self.torn && self.digest == self.digest_of_all()
    }

    fn digest_of_all(&self) -> Digest {
        self.members.values().map(|stored| stored.digest).fold(Digest::default(), Digest::plus)
    }

    /// # Errors
    /// What all of it has was lost, and what is told of it would be wrong.
    pub(super) fn readable(&self) -> Result<(), StoreFault> {
        if self.headless { Err(torn()) } else { Ok(()) }
    }

    pub(super) fn tombstone(&self, user: &UserId, session: &SessionId) -> Option<&Tombstone> {
        self.tombstones.get(user)?.get(session).map(|(_, tombstone)| tombstone)
    }

    pub(super) fn tombstones_of(&self, user: &UserId) -> BTreeMap<SessionId, Tombstone> {
        let Some(kept) = self.tombstones.get(user) else { return BTreeMap::new() };
        kept.iter().map(|(session, (_, tombstone))| (session.clone(), tombstone.clone())).collect()
    }

    /// Notes what ended; of too many the oldest is forgotten.
    pub(super) fn bury(&mut self, user: &UserId, session: SessionId, tombstone: Tombstone, now: StoreTime) {
        let kept = self.tombstones.entry(user.clone()).or_default();
        if let Some((noted, _)) = kept.insert(session.clone(), (now, tombstone)) {
            self.ended.remove(&(noted, user.clone(), session.clone()));
        }
        self.ended.insert((now, user.clone(), session));
        if self.ended.len() > TOMBSTONES_PER_ROSTER_MAX {
            self.forget_oldest_tombstone();
        }
    }

    /// Forgets what ended before `horizon`, at most `budget` of it.
    pub(super) fn forget_tombstones(&mut self, horizon: StoreTime, budget: usize) {
        for _ in 0..budget {
            match self.ended.first() {
                Some((noted, _, _)) if *noted <= horizon => self.forget_oldest_tombstone(),
                Some(_) | None => break,
            }
        }
    }

    fn forget_oldest_tombstone(&mut self) {
        let Some((_, user, session)) = self.ended.pop_first() else { return };
        if let Some(kept) = self.tombstones.get_mut(&user) {
            kept.remove(&session);
            if kept.is_empty() {
                self.tombstones.remove(&user);
            }
        }
    }

    /// Whether nothing but its position is left.
    pub(super) fn is_bare(&self) -> bool {
        self.members.is_empty() && self.ended.is_empty()
    }

    /// When something of it can next be forgotten: tombstones first, then its position.
    pub(super) fn wakes(&self, retention: &Retention) -> Option<StoreTime> {
        match self.ended.first() {
            Some((noted, _, _)) => Some(*noted + retention.tombstones),
            None => self.members.is_empty().then(|| self.emptied + retention.rosters),
        }
    }
}
