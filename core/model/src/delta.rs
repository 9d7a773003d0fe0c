//! A delta (from, to] lists every member touched in it: its value at `to`, or a removal.
//!
//! Conflation never cancels: a removal stays listed whether or not the member was there at `from`, so
//! one delta applies to every copy whose revision lies in [from, to).

use std::collections::BTreeMap;

use crate::change::Removal;
use crate::digest::Digest;
use crate::id::UserId;
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

impl Delta {
    /// A delta in which nobody was touched: commits that change nothing visible have one too.
    #[must_use]
    pub fn empty(epoch: Epoch, from: Revision, to: Revision, digest: Digest) -> Self {
        Self { epoch, from, to, upserts: Vec::new(), removals: Vec::new(), digest }
    }

    /// Whether nobody was touched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.upserts.is_empty() && self.removals.is_empty()
    }

    /// Everybody touched.
    pub fn users(&self) -> impl Iterator<Item = &UserId> {
        self.upserts.iter().map(|member| &member.user).chain(self.removals.iter().map(|gone| &gone.user))
    }

    /// Whether it applies to a copy of its epoch at this revision.
    #[must_use]
    pub fn covers(&self, revision: Revision) -> bool {
        self.from <= revision && revision < self.to
    }

    /// Applies it to a plain list (the fold of G5).
    pub fn apply(&self, members: &mut BTreeMap<UserId, Member>) {
        for member in &self.upserts {
            members.insert(member.user.clone(), member.clone());
        }
        for gone in &self.removals {
            members.remove(&gone.user);
        }
    }

    /// Conflates with a later delta into one of the same effect: of a user touched in both, the later
    /// counts; nothing cancels.
    ///
    /// # Errors
    /// [`NotContiguous`] if `later` does not follow; then nothing has changed.
    pub fn conflate(&mut self, later: Self) -> Result<(), NotContiguous> {
        if self.epoch != later.epoch || later.from > self.to || self.to > later.to {
            return Err(NotContiguous);
        }
        let from = self.from.min(later.from);
        let whole = Self::empty(self.epoch, from, later.to, later.digest);
        let mut touched: BTreeMap<UserId, Result<Member, Removal>> = BTreeMap::new();
        for delta in [std::mem::replace(self, whole), later] {
            touched.extend(delta.upserts.into_iter().map(|member| (member.user.clone(), Ok(member))));
            touched.extend(delta.removals.into_iter().map(|gone| (gone.user.clone(), Err(gone))));
        }
        for touch in touched.into_values() {
            match touch {
                Ok(member) => self.upserts.push(member),
                Err(gone) => self.removals.push(gone),
            }
        }
        Ok(())
    }
}

/// Two deltas that cannot be conflated: of different epochs, or with revisions between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the later delta does not follow the earlier")]
pub struct NotContiguous;
