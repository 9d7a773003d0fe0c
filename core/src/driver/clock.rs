//! What the store's clock says now, estimated between answers, and whether it stepped.
//!
//! Each answer that carries the store's time bounds the offset between that clock and our own: it was
//! read after we asked and before we heard. Overlapping bounds are narrowed; bounds further apart than
//! [`CLOCK_STEP`] are a step; bounds closer than that move what is known by no more than it. A first answer that
//! took longer may hide one that nothing can show any more: it is taken for a step. The estimate is
//! the upper bound: a deadline computed from it is at most one round trip late and never early (G2).

use std::collections::BTreeMap;

use presence_model::lease::Shard;
use presence_model::time::{Mono, StoreTime, millis};

use crate::limits::CLOCK_STEP;

/// Two clocks of one machine drift apart by no more than one part in this.
const DRIFT: u32 = 2_000;

/// Bounds of (store time − own time), in ms.
#[derive(Debug, Clone, Copy)]
struct Offset {
    low: i128,
    high: i128,
    at: Mono,
}

/// The clocks of all shards, which may live on different servers.
#[derive(Debug, Default)]
pub(super) struct StoreClock {
    shards: BTreeMap<Shard, Offset>,
    latest: Option<Shard>,
}

impl StoreClock {
    /// Takes a time the store told between `asked` and `now`; says whether that clock stepped.
    pub(super) fn observe(&mut self, shard: Shard, time: StoreTime, asked: Mono, now: Mono) -> bool {
        self.latest = Some(shard);
        let seen = Offset { low: signed(time) - own(now), high: signed(time) - own(asked), at: now };
        let Some(known) = self.shards.get(&shard).map(|known| known.drifted(now)) else {
            self.shards.insert(shard, seen);
            return now.since(asked) > CLOCK_STEP;
        };
        let (low, high) = (known.low.max(seen.low), known.high.min(seen.high));
        if low <= high {
            self.shards.insert(shard, Offset { low, high, at: now });
            return false;
        }
        let step = i128::from(millis(CLOCK_STEP));
        if low - high > step {
            self.shards.insert(shard, seen);
            return true;
        }
        // It moved by no more than that, however long the answer took.
        let (low, high) = (seen.low.max(known.low - step), seen.high.min(known.high + step));
        self.shards.insert(shard, Offset { low, high, at: now });
        false
    }

    /// A shard's clock at `now`; of a shard not heard yet, that of the one heard last.
    pub(super) fn estimate(&self, shard: Shard, now: Mono) -> Option<StoreTime> {
        let offset = self.shards.get(&shard).or_else(|| self.shards.get(&self.latest?))?;
        Some(offset.drifted(now).time(now))
    }

    /// The store's clock at `now`, of the shard heard last.
    pub(super) fn latest(&self, now: Mono) -> Option<StoreTime> {
        self.estimate(self.latest?, now)
    }
}

impl Offset {
    fn drifted(self, now: Mono) -> Self {
        let drift = own(Mono(now.since(self.at) / DRIFT));
        Self { low: self.low - drift, high: self.high + drift, at: now }
    }

    fn time(self, now: Mono) -> StoreTime {
        StoreTime(u64::try_from(self.high + own(now)).unwrap_or(0))
    }
}

fn signed(time: StoreTime) -> i128 {
    i128::from(time.0)
}

fn own(time: Mono) -> i128 {
    i128::from(millis(time.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Shard = Shard(3);

    #[test]
    fn the_estimate_is_never_below_the_store_and_narrows() {
        let mut clock = StoreClock::default();
        let at = Mono::from_millis;
        // The store's clock is 1,000,000 ms ahead of ours.
        assert!(!clock.observe(S, StoreTime(1_000_150), at(100), at(200)));
        assert_eq!(clock.estimate(S, at(200)), Some(StoreTime(1_000_250)));
        assert!(!clock.observe(S, StoreTime(1_000_310), at(300), at(310)));
        assert_eq!(clock.estimate(S, at(310)), Some(StoreTime(1_000_320)));
        assert_eq!(clock.estimate(Shard(7), at(310)), Some(StoreTime(1_000_320)));
    }

    #[test]
    fn a_step_is_seen_in_both_directions_and_only_once() {
        let mut clock = StoreClock::default();
        let at = Mono::from_millis;
        clock.observe(S, StoreTime(1_000_100), at(100), at(101));
        assert!(!clock.observe(S, StoreTime(1_000_900), at(200), at(201)), "0.7 s is no step");
        assert!(clock.observe(S, StoreTime(1_060_300), at(300), at(301)));
        assert!(!clock.observe(S, StoreTime(1_060_400), at(400), at(401)));
        assert!(clock.observe(S, StoreTime(1_000_500), at(500), at(501)));
        assert_eq!(clock.estimate(S, at(501)), Some(StoreTime(1_000_501)));
    }

    #[test]
    fn a_little_step_in_a_slow_answer_does_not_move_the_estimate_by_the_wait() {
        let mut clock = StoreClock::default();
        let at = Mono::from_millis;
        clock.observe(S, StoreTime(1_000_100), at(100), at(101));
        // 86 ms ahead, told by an answer that took eight seconds.
        assert!(!clock.observe(S, StoreTime(1_008_187), at(101), at(8_101)));
        let estimate = clock.estimate(S, at(8_101)).unwrap().0;
        assert!((1_008_187..1_009_200).contains(&estimate), "{estimate}");
    }

    #[test]
    fn a_slow_answer_is_taken_for_a_step_only_by_who_never_knew_the_clock() {
        let at = Mono::from_millis;
        for (took, stepped) in [(999, false), (1_000, false), (1_001, true)] {
            let mut clock = StoreClock::default();
            assert_eq!(clock.observe(S, StoreTime(1_000_100), at(100), at(100 + took)), stepped, "{took} ms");
            assert!(!clock.observe(S, StoreTime(1_003_000), at(2_000), at(7_000)));
        }
    }

    #[test]
    fn a_slow_answer_proves_no_step() {
        let mut clock = StoreClock::default();
        let at = Mono::from_millis;
        clock.observe(S, StoreTime(1_000_100), at(100), at(101));
        assert!(!clock.observe(S, StoreTime(1_003_000), at(200), at(5_000)));
        assert_eq!(clock.estimate(S, at(5_000)), Some(StoreTime(1_005_002)));
    }
}
