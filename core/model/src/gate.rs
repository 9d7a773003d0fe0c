//! Admission: how many of something at once, and how many a second (GCRA), without a timer.

use std::time::Duration;

use crate::time::Mono;

/// A rate of at most `burst` at once and one per `interval` in the long run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Time one admission costs.
    pub interval: Duration,
    /// Admissions after a pause; none counts as one.
    pub burst: u32,
}

/// State of one rate: 16 bytes. A new one admits a whole burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gate {
    full_at: Mono,
}

impl Gate {
    /// Admits one, or says how long to wait. A refusal costs nothing.
    ///
    /// # Errors
    /// The span after which one more would be admitted.
    pub fn admit(&mut self, rate: Rate, now: Mono) -> Result<(), Duration> {
        let paid_until = self.full_at.max(now) + rate.interval;
        let allowed_until = now + rate.interval.saturating_mul(rate.burst.max(1));
        if paid_until > allowed_until {
            return Err(paid_until.since(allowed_until));
        }
        self.full_at = paid_until;
        Ok(())
    }

    /// How long until one more would be admitted, if not now.
    #[must_use]
    pub fn wait(mut self, rate: Rate, now: Mono) -> Option<Duration> {
        self.admit(rate, now).err()
    }

    /// Whether it admits a whole burst again: as good as new.
    #[must_use]
    pub fn is_rested(&self, now: Mono) -> bool {
        self.full_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { interval: Duration::from_millis(100), burst: 3 };

    fn admitted(gate: &mut Gate, rate: Rate, now_ms: u64) -> usize {
        (0..100).take_while(|_| gate.admit(rate, Mono::from_millis(now_ms)).is_ok()).count()
    }

    #[test]
    fn a_burst_then_one_an_interval() {
        let mut gate = Gate::default();
        assert_eq!(admitted(&mut gate, RATE, 0), 3);
        assert_eq!(admitted(&mut gate, RATE, 99), 0);
        assert_eq!(admitted(&mut gate, RATE, 100), 1);
        assert_eq!(admitted(&mut gate, RATE, 300), 2);
        assert_eq!(admitted(&mut gate, RATE, 60_000), 3);
    }

    #[test]
    fn the_wait_told_is_exact() {
        let mut gate = Gate::default();
        admitted(&mut gate, RATE, 1_000);
        let now = Mono::from_millis(1_030);
        assert_eq!(gate.admit(RATE, now), Err(Duration::from_millis(70)));
        assert_eq!(gate.admit(RATE, now), Err(Duration::from_millis(70)), "a refusal costs nothing");
        assert_eq!(gate.wait(RATE, now), Some(Duration::from_millis(70)), "asking costs nothing either");
        assert_eq!(gate.wait(RATE, now + Duration::from_millis(70)), None);
        assert_eq!(gate.admit(RATE, now + Duration::from_millis(70)), Ok(()));
        let paid = now + Duration::from_millis(370);
        assert!(!gate.is_rested(paid - Duration::from_millis(1)) && gate.is_rested(paid));
    }

    #[test]
    fn a_burst_of_none_counts_as_one_and_no_interval_admits_all() {
        let one = Rate { burst: 0, ..RATE };
        assert_eq!(admitted(&mut Gate::default(), one, 0), 1);
        let free = Rate { interval: Duration::ZERO, burst: 1 };
        assert_eq!(admitted(&mut Gate::default(), free, 0), 100);
    }

    #[test]
    fn time_that_stands_still_or_runs_back_admits_nothing_more() {
        let mut gate = Gate::default();
        assert_eq!(admitted(&mut gate, RATE, 5_000), 3);
        assert_eq!(admitted(&mut gate, RATE, 4_000), 0);
    }
}
