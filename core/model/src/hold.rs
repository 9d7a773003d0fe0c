//! Hold: a span in which silence proves nothing, so nothing is ended for silence.

use std::time::Duration;

use crate::time::StoreTime;

/// What a shard knows about its own past when a turn asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardPast {
    /// Start of the last finished sweep; none: the shard has no epoch yet.
    pub swept: Option<StoreTime>,
    /// Hold start, if one was set.
    pub hold: Option<StoreTime>,
    /// Gaps beyond a takeover, added up over the last ttl.
    pub gaps: Duration,
}

/// Why a hold starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HoldCause {
    /// The last finished sweep is too old: nobody looked.
    SweepGap,
    /// The store restarted, failed over or was emptied: a new epoch as well.
    StoreChanged,
    /// The store's clock stepped by more than 1 s.
    ClockStep,
}

/// Whether a shard is held for leases of this ttl: from its start for one ttl.
#[must_use]
pub fn is_held(hold: Option<StoreTime>, ttl: Duration, now: StoreTime) -> bool {
    hold.is_some_and(|start| now < start + ttl && start <= now + ttl)
}

/// Judges a shard at a turn: whether a hold starts now.
///
/// `smallest_ttl` over room classes; a gap is the span since the last finished sweep; `takeover` is
/// what a change of holder may take (turn kept + look) and does not count.
#[must_use]
pub fn judge(
    past: &ShardPast,
    changed: bool,
    stepped: bool,
    now: StoreTime,
    smallest_ttl: Duration,
    takeover: Duration,
) -> Option<HoldCause> {
    let _ = (past, changed, stepped, now, smallest_ttl, takeover);
    unimplemented!()
}
