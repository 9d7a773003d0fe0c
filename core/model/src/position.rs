//! Where in a history something is: (epoch, revision). Order never comes from a clock.

use std::fmt;

/// Which history. Minted by the store when it cannot vouch for the old one; ordered, never repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch {
    /// Store time at minting in ms, raised above every epoch known before.
    pub minted_ms: u64,
    /// Tells two epochs of the same millisecond apart.
    pub random: u64,
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:x}", self.minted_ms, self.random)
    }
}

/// Counts the commits of one roster within an epoch; the first commit is above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl Revision {
    /// The one after this.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A point in a roster's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    /// Which history.
    pub epoch: Epoch,
    /// How far in it.
    pub revision: Revision,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.revision)
    }
}
