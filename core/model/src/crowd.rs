//! When a crowd is told to come back: each at a moment of its own, so that those who were refused together do
//! not come back together.

use std::time::Duration;

use crate::time::Mono;

/// Between which bounds moments are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Nobody is told to come back sooner.
    pub least: Duration,
    /// Nobody is told to wait longer than half as long again.
    pub most: Duration,
}

/// The moments given so far: 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Crowd {
    given_until: Mono,
}

impl Crowd {
    /// How long one more is to wait: one `interval` behind whoever was told before, up to half as long again by
    /// `chance` (from 0 to 1). While the window is full, moments in its later half are given again: whoever comes
    /// too early is refused and told anew.
    pub fn hint(&mut self, interval: Duration, window: Window, chance: f64, now: Mono) -> Duration {
        let Window { least, most } = window;
        let next = self.given_until.max(now + least) + interval;
        let jitter = 1.0 + chance.clamp(0.0, 1.0) / 2.0;
        if next > now + most.max(least) {
            return (most / 2).max(least).mul_f64(2.0 * jitter - 1.0);
        }
        self.given_until = next;
        next.since(now).mul_f64(jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { least: Duration::from_secs(1), most: Duration::from_secs(30) };
    const NOW: Mono = Mono::from_millis(7_000);

    fn hints(crowd: &mut Crowd, count: usize, interval_ms: u64, now: Mono) -> Vec<Duration> {
        let interval = Duration::from_millis(interval_ms);
        (0..count).map(|place| crowd.hint(interval, WINDOW, (place % 8) as f64 / 7.0, now)).collect()
    }

    #[test]
    fn a_crowd_comes_back_no_faster_than_it_can_be_taken() {
        let hints = hints(&mut Crowd::default(), 2_000, 10, NOW);
        for second in 0..45 {
            let of = Duration::from_secs(second)..Duration::from_secs(second + 1);
            let count = hints.iter().filter(|hint| of.contains(hint)).count();
            assert!(count <= 110, "{count} of 100 a second come back in second {second}");
        }
        assert!(hints.iter().all(|hint| *hint >= WINDOW.least && *hint <= WINDOW.most * 3 / 2));
    }

    #[test]
    fn more_than_fit_are_spread_over_the_later_half_and_nobody_waits_beyond_bounds() {
        let mut crowd = Crowd::default();
        let hints = hints(&mut crowd, 10_000, 10, NOW);
        let late = &hints[3_000..];
        assert!(late.iter().all(|hint| (15..=30).contains(&hint.as_secs())), "{:?}", late.iter().min());
        let soon = late.iter().filter(|hint| hint.as_secs() < 22).count();
        assert!((late.len() / 3..late.len() * 2 / 3).contains(&soon), "{soon} of {}", late.len());
    }

    #[test]
    fn moments_that_are_over_are_given_anew() {
        let mut crowd = Crowd::default();
        hints(&mut crowd, 10_000, 10, NOW);
        let later = NOW + Duration::from_secs(60);
        let next = crowd.hint(Duration::from_millis(10), WINDOW, 0.0, later);
        assert_eq!(next, WINDOW.least + Duration::from_millis(10));
    }

    #[test]
    fn bounds_that_cross_are_bounds_still() {
        let crossed = Window { least: Duration::from_secs(5), most: Duration::from_secs(1) };
        let hint = Crowd::default().hint(Duration::from_secs(9), crossed, 1.0, NOW);
        assert_eq!(hint, Duration::from_secs(10));
        let hint = Crowd::default().hint(Duration::ZERO, crossed, f64::INFINITY, NOW);
        assert_eq!(hint, Duration::from_millis(7_500));
    }
}
