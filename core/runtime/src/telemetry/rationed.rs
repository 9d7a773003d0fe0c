//! Saying something at a rate, and how often it was not said: a burst is told whole, a flood is not.

use std::sync::{Mutex, PoisonError};

use presence_model::gate::{Gate, Rate};
use presence_model::time::Mono;

/// Each of `N` kinds of things is said at a rate of its own.
#[derive(Debug)]
pub struct Rationed<const N: usize> {
    rate: Rate,
    said: Mutex<[Saying; N]>,
}

/// What was said of one kind.
#[derive(Debug, Clone, Copy, Default)]
struct Saying {
    gate: Gate,
    unsaid: u64,
}

impl<const N: usize> Rationed<N> {
    /// Nothing was said yet.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self { rate, said: Mutex::new([Saying::default(); N]) }
    }

    /// If this kind is to be said now, how many times it was not since it last was; that is then taken as done.
    pub fn due(&self, kind: usize, now: Mono) -> Option<u64> {
        // A panic in between leaves nothing half done.
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let saying = &mut said[kind];
        if saying.gate.admit(self.rate, now).is_err() {
            saying.unsaid += 1;
            return None;
        }
        Some(std::mem::take(&mut saying.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_of_each_kind_is_said_and_then_how_many_were_not() {
        let said = Rationed::<2>::new(Rate { interval: Duration::from_secs(1), burst: 3 });
        let times =
            |kind, now| (0..10).filter_map(|_| said.due(kind, Mono::from_millis(now))).collect::<Vec<_>>();
        assert_eq!(times(0, 0), [0, 0, 0]);
        assert_eq!(times(1, 0), [0, 0, 0], "another kind has its own rate");
        assert_eq!(times(0, 999), Vec::<u64>::new());
        assert_eq!(times(0, 1_000), [17]);
    }
}
