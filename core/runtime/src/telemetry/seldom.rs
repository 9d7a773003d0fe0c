//! Saying something now and then: whoever is refused must not write the log.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use presence_model::time::Mono;

/// Of `N` kinds of things each is due once in a span.
#[derive(Debug)]
pub struct Seldom<const N: usize> {
    every: Duration,
    said: Mutex<[Option<Mono>; N]>,
}

impl<const N: usize> Seldom<N> {
    /// Nothing was said yet.
    #[must_use]
    pub fn new(every: Duration) -> Self {
        Self { every, said: Mutex::new([None; N]) }
    }

    /// Whether this kind is to be said now, which is then taken as done.
    pub fn is_due(&self, kind: usize, now: Mono) -> bool {
        // A panic in between leaves nothing half done.
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let last = &mut said[kind];
        let is_due = last.is_none_or(|at| now.since(at) >= self.every);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn each_kind_is_due_once_in_a_span() {
        let (clock, hand) = Clock::manual();
        let seldom = Seldom::<2>::new(Duration::from_secs(10));
        assert!(seldom.is_due(0, clock.now()) && !seldom.is_due(0, clock.now()));
        assert!(seldom.is_due(1, clock.now()), "another kind was not said");
        hand.advance(Duration::from_millis(9_999));
        assert!(!seldom.is_due(0, clock.now()));
        hand.advance(Duration::from_millis(1));
        assert!(seldom.is_due(0, clock.now()));
    }
}
