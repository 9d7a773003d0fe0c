//! A timing wheel: many coarse timers of one process at O(1) each, no task or heap entry per connection.

use std::time::Duration;

use crate::time::Mono;

/// Timers of `K`, fired at most one `tick` late, never early. Entries are not cancelled: the owner looks
/// whether a fired key still means something (lazy), so the same key may be set again at will.
#[derive(Debug, Clone)]
pub struct Wheel<K> {
    slots: Vec<Vec<(Mono, K)>>,
    tick: Duration,
}

impl<K> Wheel<K> {
    /// A wheel of this resolution that turns once in `span`; timers further ahead go round again.
    #[must_use]
    pub fn new(tick: Duration, span: Duration, now: Mono) -> Self {
        let _ = (span, now);
        Self { slots: Vec::new(), tick }
    }

    /// Sets a timer.
    pub fn set(&mut self, at: Mono, key: K) {
        let _ = (at, key, &self.slots, self.tick);
        unimplemented!()
    }

    /// When to call [`Wheel::advance`] next; none if empty.
    #[must_use]
    pub fn due(&self) -> Option<Mono> {
        unimplemented!()
    }

    /// Takes all timers due, in order of time, then of setting.
    pub fn advance(&mut self, now: Mono) -> Vec<K> {
        let _ = now;
        unimplemented!()
    }
}
