//! When a room may flush: at most once per cadence, the first change after a pause at once.

use std::time::Duration;

use crate::time::Mono;

/// Cadence by size of the room: 50 ms, 250 ms above 500 members, 1 s above 5,000.
#[must_use]
pub fn cadence(members: usize) -> Duration {
    let _ = members;
    unimplemented!()
}

/// Pacing of one room.
#[derive(Debug, Clone, Default)]
pub struct Pacing {
    _private: (),
}

impl Pacing {
    /// Something changed.
    pub fn changed(&mut self, now: Mono, cadence: Duration) {
        let _ = (now, cadence);
        unimplemented!()
    }

    /// When to flush; none: nothing changed since the last flush.
    #[must_use]
    pub fn due(&self) -> Option<Mono> {
        unimplemented!()
    }

    /// The room was flushed.
    pub fn flushed(&mut self, now: Mono) {
        let _ = now;
        unimplemented!()
    }
}
