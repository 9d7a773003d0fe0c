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
        ceiling.mul_f64(chance as f64 / u64::MAX as f64)
    }

    /// It worked.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}
