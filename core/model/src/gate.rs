//! Admission: how many of something at once, and how many a second (GCRA), without a timer.

use std::time::Duration;

use crate::time::Mono;

/// A rate of at most `burst` at once and one per `interval` in the long run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Time one admission costs.
    pub interval: Duration,
    /// Admissions after a pause.
    pub burst: u32,
}

/// State of one rate: 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gate {
    full_at: Mono,
}

impl Gate {
    /// Admits one, or says how long to wait.
    ///
    /// # Errors
    /// The span after which one more would be admitted.
    pub fn admit(&mut self, rate: Rate, now: Mono) -> Result<(), Duration> {
        let _ = (rate, now, self.full_at);
        unimplemented!()
    }
}
