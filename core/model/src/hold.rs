//! Hold: a span in which silence proves nothing, so nothing is ended for silence (G2).

use std::time::Duration;

use crate::time::StoreTime;

/// A step of the store's clock beyond this starts a hold; less is lost in the length of any lease.
pub const CLOCK_STEP_MAX: Duration = Duration::from_secs(1);

/// What a shard knows about its own past when a turn asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardPast {
    /// Start of the last finished sweep; none: no sweep has finished since the shard got an epoch, or
    /// it has none yet.
    pub swept: Option<StoreTime>,
    /// Hold start, if one was set.
    pub hold: Option<StoreTime>,
    /// Gaps beyond a takeover, added up over the last ttl, without the one that lasts till now.
    pub gaps: Duration,
}

/// What the turn noticed, the strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Noticed {
    /// Nothing odd.
    Nothing,
    /// The store's clock stepped by more than [`CLOCK_STEP_MAX`] against a core's.
    ClockStep,
    /// The store's run id changed, or the shard has no epoch.
    StoreChanged,
}

/// How long nobody may have looked at a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldLimits {
    /// Smallest ttl over room classes: a third of it is the limit.
    pub smallest_ttl: Duration,
    /// What a change of holder may take (turn kept + look): no gap up to it adds up.
    pub takeover: Duration,
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

impl HoldCause {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::SweepGap, Self::StoreChanged, Self::ClockStep];

    /// The word of stores and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SweepGap => "sweep_gap",
            Self::StoreChanged => "store_changed",
            Self::ClockStep => "clock_step",
        }
    }
}

/// Whether a shard is held for leases of this ttl: from its start for one ttl.
#[must_use]
pub fn is_held(hold: Option<StoreTime>, ttl: Duration, now: StoreTime) -> bool {
    hold.is_some_and(|start| now < start + ttl && start <= now + ttl)
}

/// Judges a shard at a turn: whether a hold starts now.
///
/// A gap lasts since the last finished sweep, or the start of the last hold: what lay before that is
/// covered by it, and must not start it again at every turn.
#[must_use]
pub fn judge(past: &ShardPast, noticed: Noticed, now: StoreTime, limits: HoldLimits) -> Option<HoldCause> {
    match noticed {
        Noticed::StoreChanged => return Some(HoldCause::StoreChanged),
        Noticed::ClockStep => return Some(HoldCause::ClockStep),
        Noticed::Nothing => {}
    }
    let Some(looked) = past.swept.max(past.hold) else { return Some(HoldCause::StoreChanged) };
    if looked > now + CLOCK_STEP_MAX {
        return Some(HoldCause::ClockStep);
    }
    let gap = now.since(looked);
    let added_up = if gap > limits.takeover { gap.saturating_add(past.gaps) } else { gap };
    (added_up > limits.smallest_ttl / 3).then_some(HoldCause::SweepGap)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(45);
    const LIMITS: HoldLimits = HoldLimits { smallest_ttl: TTL, takeover: Duration::from_secs(3) };
    const NOW: StoreTime = StoreTime(1_000_000);

    fn swept(ago_ms: u64) -> ShardPast {
        ShardPast { swept: Some(StoreTime(NOW.0 - ago_ms)), hold: None, gaps: Duration::ZERO }
    }

    fn judged(past: ShardPast) -> Option<HoldCause> {
        judge(&past, Noticed::Nothing, NOW, LIMITS)
    }

    #[test]
    fn a_hold_lasts_one_ttl_of_the_room() {
        assert!(!is_held(None, TTL, NOW));
        assert!(is_held(Some(NOW), TTL, NOW));
        assert!(is_held(Some(NOW), TTL, StoreTime(NOW.0 + 44_999)));
        assert!(!is_held(Some(NOW), TTL, StoreTime(NOW.0 + 45_000)));
        assert!(!is_held(Some(NOW), TTL, StoreTime(NOW.0 - 45_001)), "a clock far back ends it");
    }

    #[test]
    fn a_gap_of_a_third_of_the_ttl_is_the_limit() {
        assert_eq!(judged(swept(15_000)), None);
        assert_eq!(judged(swept(15_001)), Some(HoldCause::SweepGap));
    }

    #[test]
    fn gaps_add_up_but_takeovers_do_not() {
        let gaps = Duration::from_secs(14);
        assert_eq!(judged(ShardPast { gaps, ..swept(3_000) }), None);
        assert_eq!(judged(ShardPast { gaps, ..swept(3_001) }), Some(HoldCause::SweepGap));
    }

    #[test]
    fn a_hold_covers_the_gap_before_it() {
        let past = ShardPast { hold: Some(StoreTime(NOW.0 - 100)), ..swept(60_000) };
        assert_eq!(judged(past), None);
        let past = ShardPast { hold: Some(StoreTime(NOW.0 - 15_001)), ..swept(60_000) };
        assert_eq!(judged(past), Some(HoldCause::SweepGap), "nobody has looked since");
        let fresh = ShardPast { swept: None, hold: Some(NOW), gaps: Duration::ZERO };
        assert_eq!(judged(fresh), None, "no sweep has finished yet since the epoch began");
    }

    #[test]
    fn what_was_noticed_starts_a_hold_whatever_the_sweep() {
        assert_eq!(judge(&swept(1), Noticed::StoreChanged, NOW, LIMITS), Some(HoldCause::StoreChanged));
        assert_eq!(judge(&swept(1), Noticed::ClockStep, NOW, LIMITS), Some(HoldCause::ClockStep));
        let new = ShardPast { swept: None, hold: None, gaps: Duration::ZERO };
        assert_eq!(judged(new), Some(HoldCause::StoreChanged));
    }

    #[test]
    fn a_past_in_the_future_is_a_step_of_the_clock() {
        let ahead = |ms| ShardPast { swept: Some(StoreTime(NOW.0 + ms)), hold: None, gaps: Duration::ZERO };
        assert_eq!(judged(ahead(1_000)), None);
        assert_eq!(judged(ahead(1_001)), Some(HoldCause::ClockStep));
        let past = ShardPast { hold: Some(StoreTime(NOW.0 + 60_000)), ..swept(1) };
        assert_eq!(judged(past), Some(HoldCause::ClockStep));
    }

    #[test]
    fn times_near_zero_do_not_underflow() {
        let past = ShardPast { swept: Some(StoreTime(0)), hold: None, gaps: Duration::MAX };
        assert_eq!(judge(&past, Noticed::Nothing, StoreTime(0), LIMITS), None);
    }
}
