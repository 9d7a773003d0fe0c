//! The two times there are: the store's, which judges leases, and a process's own, which paces it.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// The store's clock, in milliseconds since 1970. The only time that decides about life.
///
/// It may step or restart with the store; what orders events is never this but a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StoreTime(pub u64);

impl StoreTime {
    /// Time since `earlier`, zero if it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// This time less `span`, not below zero.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(millis(span)))
    }
}

impl Add<Duration> for StoreTime {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(millis(span)))
    }
}

impl fmt::Display for StoreTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// A process's monotonic time: the span since an arbitrary start. Never leaves the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(pub Duration);

impl Mono {
    /// A time in milliseconds since the start.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }

    /// Time since `earlier`, zero if it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Mono {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }
}

impl Sub<Duration> for Mono {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span))
    }
}

/// Whole milliseconds of a span, saturating.
#[must_use]
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A span as people read it and as a configuration takes it (`1m 30s`), rounded to whole milliseconds; what is
/// shorter than one is told in microseconds.
#[must_use]
pub fn spoken(span: Duration) -> String {
    const UNITS: [(u128, &str); 5] =
        [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    if !span.is_zero() && span < Duration::from_millis(1) {
        return format!("{}us", span.as_nanos().div_ceil(1_000));
    }
    let mut left = (span.as_nanos() + 500_000) / 1_000_000;
    let mut parts = Vec::new();
    for (unit, name) in UNITS {
        if left >= unit {
            parts.push(format!("{}{name}", left / unit));
            left %= unit;
        }
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_for_people() {
        let ns = Duration::from_nanos;
        for (span, told) in [
            (Duration::ZERO, "0s"),
            (ns(1), "1us"),
            (ns(999_999), "1000us"),
            (ns(1_000_000), "1ms"),
            (ns(333_333_333), "333ms"),
            (ns(1_166_666_666), "1s 167ms"),
            (ns(999_999_999), "1s"),
            (Duration::from_secs(45), "45s"),
            (Duration::from_secs(90_061), "1d 1h 1m 1s"),
            (Duration::MAX, "213503982334601d 7h 16s"),
        ] {
            assert_eq!(spoken(span), told, "{span:?}");
        }
    }
}
