//! A copy of one roster kept by snapshots and deltas.
//!
//! A copy that meets a new epoch or a snapshot keeps what it had as *unconfirmed*: those are confirmed
//! or added as pages arrive, and what stays unconfirmed is removed only when the snapshot is complete
//! **and** the region is live. So a resync announces only real differences, and data loss in the store
//! shows nobody as gone who is there.

use std::collections::BTreeMap;

use crate::delta::Delta;
use crate::digest::Digest;
use crate::id::UserId;
use crate::position::{Position, Revision};
use crate::profile::Member;
use crate::time::{Mono, StoreTime};

/// How far what is shown of a region can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Complete within the propagation bound.
    Live,
    /// The store cannot tell silence from its own absence.
    Held {
        /// Since when.
        since: StoreTime,
    },
    /// The region cannot be heard.
    Stale {
        /// Since when.
        since: StoreTime,
    },
}

/// How far a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was ever received.
    Cold,
    /// Pages of a snapshot are arriving.
    Loading,
    /// Complete up to its position.
    Complete,
}

/// A page of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPage {
    /// The point all pages are of.
    pub position: Position,
    /// How fresh the region is.
    pub freshness: Freshness,
    /// Sorted by user over all pages.
    pub members: Vec<Member>,
    /// Whether it is the first page: it cancels a snapshot under way.
    pub first: bool,
    /// The roster's digest, with the last page.
    pub last: Option<Digest>,
}

/// What became of something applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// These users are now shown differently from before (sorted; empty: nothing shows).
    Shown(Vec<UserId>),
    /// Already known; dropped.
    Known,
    /// It does not follow: resume from the own position, or ask for a snapshot.
    Gap,
    /// The copy is not what the sender has: ask for a snapshot.
    Differs,
}

/// A copy of one roster.
#[derive(Debug, Clone)]
pub struct Replica {
    phase: Phase,
    members: BTreeMap<UserId, Member>,
}

impl Replica {
    /// A cold copy.
    #[must_use]
    pub fn cold() -> Self {
        Self { phase: Phase::Cold, members: BTreeMap::new() }
    }

    /// How far it is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Takes a page of a snapshot.
    pub fn page(&mut self, page: SnapshotPage, now: Mono) -> Applied {
        let _ = (page, now);
        unimplemented!()
    }

    /// Takes a delta: dropped if known, a gap if it does not follow or is of another epoch.
    pub fn delta(&mut self, delta: &Delta, now: Mono) -> Applied {
        let _ = (delta, now);
        unimplemented!()
    }

    /// Takes news about freshness. Going live ends a hold: what is still unconfirmed goes
    /// (`lease_expired`).
    pub fn freshness(&mut self, freshness: Freshness, now: Mono) -> Applied {
        let _ = (freshness, now);
        unimplemented!()
    }

    /// Removes everybody as `region_lost`, as one change.
    pub fn lost(&mut self, now: Mono) -> Applied {
        let _ = now;
        unimplemented!()
    }

    /// How fresh it is; none while cold.
    #[must_use]
    pub fn fresh(&self) -> Option<Freshness> {
        unimplemented!()
    }

    /// Where it is, if complete.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        unimplemented!()
    }

    /// Where a watcher who was shown this copy is: none while unconfirmed members are in it, while
    /// loading, or after the region was lost.
    #[must_use]
    pub fn cursor(&self) -> Option<Position> {
        unimplemented!()
    }

    /// The member of that user, unconfirmed ones included.
    #[must_use]
    pub fn get(&self, user: &UserId) -> Option<&Member> {
        self.members.get(user)
    }

    /// All members by user, unconfirmed ones included.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// Members from just after a user, for paging.
    pub fn members_after(&self, user: Option<&UserId>) -> impl Iterator<Item = &Member> {
        let _ = user;
        self.members.values()
    }

    /// How many are shown.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether nobody is shown.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Digest over confirmed members: that of the stored roster.
    #[must_use]
    pub fn digest(&self) -> Digest {
        unimplemented!()
    }

    /// All touched in (from, position], as one delta; none if that is further back than remembered, of
    /// the future, or the copy is not complete.
    #[must_use]
    pub fn changed_since(&self, from: Revision) -> Option<Delta> {
        let _ = from;
        unimplemented!()
    }

    /// Forgets touched members older than the bounds of [`limits`](crate::limits).
    pub fn compact(&mut self, now: Mono) {
        let _ = now;
        unimplemented!()
    }
}
