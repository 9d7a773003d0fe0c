//! When a room may flush: at most once per cadence, the first change after a pause at once.

use std::time::Duration;

use crate::time::Mono;

/// A room of more members is flushed at [`CADENCE_MIDDLE`].
const MIDDLE_ABOVE: usize = 500;
/// A room of more members is flushed at [`CADENCE_LARGE`].
const LARGE_ABOVE: usize = 5_000;
/// People see a change of a few others at once.
const CADENCE_SMALL: Duration = Duration::from_millis(50);
/// Nobody follows single changes among hundreds.
const CADENCE_MIDDLE: Duration = Duration::from_millis(250);
/// Among thousands only the sum is seen; conflation saves most here.
const CADENCE_LARGE: Duration = Duration::from_secs(1);

/// Cadence by size of the room: 50 ms, 250 ms above 500 members, 1 s above 5,000.
#[must_use]
pub fn cadence(members: usize) -> Duration {
    match members {
        0..=MIDDLE_ABOVE => CADENCE_SMALL,
        501..=LARGE_ABOVE => CADENCE_MIDDLE,
        _ => CADENCE_LARGE,
    }
}

/// Pacing of one room.
#[derive(Debug, Clone, Default)]
pub struct Pacing {
    flushed: Option<Mono>,
    due: Option<Mono>,
}

impl Pacing {
    /// Something changed. Further changes before the flush neither delay nor hasten it.
    pub fn changed(&mut self, now: Mono, cadence: Duration) {
        let earliest = self.flushed.map_or(now, |flushed| now.max(flushed + cadence));
        self.due.get_or_insert(earliest);
    }

    /// When to flush; none: nothing changed since the last flush.
    #[must_use]
    pub fn due(&self) -> Option<Mono> {
        self.due
    }

    /// The room was flushed.
    pub fn flushed(&mut self, now: Mono) {
        *self = Self { flushed: Some(now), due: None };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cadence_follows_the_size() {
        let ms = |members| cadence(members).as_millis();
        assert_eq!([ms(0), ms(500), ms(501), ms(5_000), ms(5_001)], [50, 50, 250, 250, 1_000]);
    }

    #[test]
    fn the_first_change_is_flushed_at_once_and_the_next_after_the_cadence() {
        let (mut pacing, cadence) = (Pacing::default(), Duration::from_millis(50));
        assert_eq!(pacing.due(), None);
        pacing.changed(Mono::from_millis(1_000), cadence);
        assert_eq!(pacing.due(), Some(Mono::from_millis(1_000)));
        pacing.flushed(Mono::from_millis(1_001));
        assert_eq!(pacing.due(), None);
        pacing.changed(Mono::from_millis(1_010), cadence);
        pacing.changed(Mono::from_millis(1_040), cadence);
        assert_eq!(pacing.due(), Some(Mono::from_millis(1_051)));
        pacing.flushed(Mono::from_millis(1_051));
        pacing.changed(Mono::from_millis(2_000), cadence);
        assert_eq!(pacing.due(), Some(Mono::from_millis(2_000)));
    }
}
