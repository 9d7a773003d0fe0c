//! How long a store remembers what is over.

use std::time::Duration;

use presence_model::limits::TOMBSTONE_AGE_MS_MAX;

/// How long things that ended are remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Tombstones.
    pub tombstones: Duration,
    /// The position of a roster without members.
    pub rosters: Duration,
    /// Commits.
    pub history: Duration,
    /// Commits of one shard, in bytes: the oldest go first.
    pub history_bytes: usize,
    /// When a user came or went last.
    pub seen: Duration,
    /// Least age of an index entry that is removed: a commit it was written for has arrived by then.
    pub listing: Duration,
}

impl Default for Retention {
    /// An hour each; 4 MiB of history a shard; 30 days of last seen; a minute for a commit to arrive.
    fn default() -> Self {
        let hour = Duration::from_millis(TOMBSTONE_AGE_MS_MAX);
        let (seen, listing) = (hour * 24 * 30, Duration::from_secs(60));
        Self { tombstones: hour, rosters: hour, history: hour, history_bytes: 4 << 20, seen, listing }
    }
}
