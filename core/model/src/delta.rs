//! A delta (from, to] lists every member touched in it: its value at `to`, or a removal.
//!
//! Conflation never cancels: a removal stays listed whether or not the member was there at `from`, so
//! one delta applies to every copy whose revision lies in [from, to).

use crate::change::Removal;
use crate::digest::Digest;
use crate::position::{Epoch, Revision};
use crate::profile::Member;

/// What changed in a roster between two revisions of one epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// The history both revisions belong to.
    pub epoch: Epoch,
    /// Exclusive.
    pub from: Revision,
    /// Inclusive.
    pub to: Revision,
    /// Members touched that are present at `to`, sorted by user, without repetition.
    pub upserts: Vec<Member>,
    /// Members touched that are absent at `to`, sorted by user, without repetition.
    pub removals: Vec<Removal>,
    /// Digest of the roster at `to`.
    pub digest: Digest,
}
