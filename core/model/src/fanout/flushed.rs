//! What the receivers of a room were shown by its flushes, and which of them are to be told nothing.
//!
//! Somebody may be touched between two flushes and end up as before: a status that went up and came back,
//! a guest who came and went. Receivers that saw neither have nothing to be told. They keep their number;
//! their place moves on, so that history need not be kept for them.

use crate::digest::Digest;
use crate::view::{View, ViewRevision};

/// Flushes without a difference that are remembered. Who lags by more is sent a frame that changes nothing.
const SAME_MAX: usize = 8;

/// The last flush of a room.
#[derive(Debug, Clone, Default)]
pub struct Flushed {
    at: ViewRevision,
    digest: Option<Digest>,
    // Flushes that showed what the last one shows. Rising, `at` included.
    same: Vec<ViewRevision>,
}

impl Flushed {
    /// The room shows its receivers what the view is now.
    pub fn flush(&mut self, view: &View) {
        let (at, digest) = (view.revision(), view.digest());
        if digest.is_none() || digest != self.digest {
            self.same.clear();
        } else if self.same.len() == SAME_MAX {
            self.same.remove(0);
        }
        if self.same.last() != Some(&at) {
            self.same.push(at);
        }
        (self.at, self.digest) = (at, digest);
    }

    /// The revision shown.
    #[must_use]
    pub fn at(&self) -> ViewRevision {
        self.at
    }

    /// Whether who was shown all of `place` sees the same at [`Flushed::at`].
    #[must_use]
    pub fn is_same(&self, place: ViewRevision) -> bool {
        self.same.contains(&place)
    }
}
