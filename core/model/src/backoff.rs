//! Full-jitter exponential backoff: how long to wait before the next attempt.

use std::time::Duration;

/// Doubles its ceiling with each failure; each wait is drawn evenly from zero to the ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// The first ceiling and the last.
    #[must_use]
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, failures: 0 }
    }

    /// The next wait. `chance` is uniform over u64.
    pub fn next(&mut self, chance: u64) -> Duration {
        let ceiling = self.first.saturating_mul(1 << self.failures.min(20)).min(self.max);
        self.failures = self.failures.saturating_add(1);
        let nanos = u64::try_from(ceiling.as_nanos()).unwrap_or(u64::MAX);
        let drawn = u128::from(nanos) * u128::from(chance) / u128::from(u64::MAX);
        Duration::from_nanos(u64::try_from(drawn).unwrap_or(nanos))
    }

    /// It worked.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_doubles_up_to_the_last_and_starts_again() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        let ceilings: Vec<_> = (0..5).map(|_| backoff.next(u64::MAX).as_secs()).collect();
        assert_eq!(ceilings, [1, 2, 4, 5, 5]);
        backoff.reset();
        assert_eq!(backoff.next(u64::MAX), Duration::from_secs(1));
    }

    #[test]
    fn a_wait_is_drawn_evenly_from_zero() {
        let first = Backoff::new(Duration::from_secs(1), Duration::from_secs(1));
        let drawn = |chance| { first }.next(chance);
        assert_eq!(drawn(0), Duration::ZERO);
        assert_eq!(drawn(u64::MAX / 2).as_millis(), 499);
        assert_eq!(drawn(u64::MAX / 4).as_millis(), 249);
    }

    #[test]
    fn extremes_do_not_overflow() {
        let mut backoff = Backoff::new(Duration::MAX, Duration::MAX);
        for _ in 0..100 {
            assert!(backoff.next(u64::MAX) > Duration::from_secs(1 << 30));
        }
    }
}
