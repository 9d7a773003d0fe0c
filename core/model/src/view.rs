//! What people see of a room: the union of its rosters over regions, with a revision of its own.
//!
//! The view's revision is the local number of this process for this room: the same for all its
//! receivers, so that frames can be shared, and meaningless anywhere else. What survives a connection is
//! the [`Cursor`].

use crate::change::Removal;
use crate::cursor::Cursor;
use crate::delta::Delta;
use crate::id::{RegionId, UserId};
use crate::profile::Member;
use crate::replica::{Applied, Freshness, Replica, SnapshotPage};
use crate::time::Mono;

/// The local number of a view: rises by one with each visible change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ViewRevision(pub u64);

/// What changed in a view in (from, to]: every user touched, as shown at `to`, or a removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewDelta {
    /// Exclusive; none: it answers a cursor, not a revision.
    pub from: Option<ViewRevision>,
    /// Inclusive.
    pub to: ViewRevision,
    /// Where a receiver is after it.
    pub cursor: Cursor,
    /// Sorted by user.
    pub upserts: Vec<Member>,
    /// Sorted by user.
    pub removals: Vec<Removal>,
}

/// How a cursor from elsewhere can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resume {
    /// By one collapsed delta.
    Delta(ViewDelta),
    /// History does not reach back, or the cursor does not name every region shown here.
    Snapshot,
    /// The cursor is ahead of this view: catch up first (ask the core, naming own position and cursor).
    Behind,
}

/// One event of one region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegionEvent {
    /// A page of a snapshot.
    Page(SnapshotPage),
    /// A delta.
    Delta(Delta),
    /// News about freshness.
    Freshness(Freshness),
    /// Not heard for longer than its hold.
    Lost,
}

/// A room as this process sees it.
#[derive(Debug, Clone)]
pub struct View {
    replicas: std::collections::BTreeMap<RegionId, Replica>,
    revision: ViewRevision,
}

impl View {
    /// An empty view in which nothing was received yet.
    #[must_use]
    pub fn new() -> Self {
        Self { replicas: std::collections::BTreeMap::new(), revision: ViewRevision(0) }
    }

    /// Takes an event of a region; the view's revision rises if anybody is shown differently.
    pub fn apply(&mut self, region: &RegionId, event: RegionEvent, now: Mono) -> Applied {
        let _ = (region, event, now);
        unimplemented!()
    }

    /// The local number.
    #[must_use]
    pub fn revision(&self) -> ViewRevision {
        self.revision
    }

    /// Whether every region heard of is complete, and at least one is.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        unimplemented!()
    }

    /// Where a receiver that has been shown this revision is.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        unimplemented!()
    }

    /// The copies, by region.
    pub fn regions(&self) -> impl Iterator<Item = (&RegionId, &Replica)> {
        self.replicas.iter()
    }

    /// A user as shown: over regions the strongest status, the latest state, the earliest since.
    #[must_use]
    pub fn get(&self, user: &UserId) -> Option<Member> {
        let _ = user;
        unimplemented!()
    }

    /// Up to `count` members from just after a user, sorted.
    #[must_use]
    pub fn page(&self, after: Option<&UserId>, count: usize) -> Vec<Member> {
        let _ = (after, count);
        unimplemented!()
    }

    /// How many are shown.
    #[must_use]
    pub fn len(&self) -> usize {
        unimplemented!()
    }

    /// Whether nobody is shown.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What changed in (from, to]; none if that is further back than remembered. `to` at most the
    /// current revision; members are given as they are now.
    #[must_use]
    pub fn changed_since(&self, from: ViewRevision) -> Option<ViewDelta> {
        let _ = from;
        unimplemented!()
    }

    /// How a cursor can be answered.
    #[must_use]
    pub fn resume(&self, cursor: &Cursor) -> Resume {
        let _ = cursor;
        unimplemented!()
    }

    /// Forgets touched members older than the bounds of [`limits`](crate::limits).
    pub fn compact(&mut self, now: Mono) {
        let _ = now;
        unimplemented!()
    }
}

impl Default for View {
    fn default() -> Self {
        Self::new()
    }
}
