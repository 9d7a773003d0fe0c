//! A timing wheel: many coarse timers of one process, no task or heap entry per connection.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::time::Mono;

/// Timers of `K`, fired at most one `tick` late, never early. Entries are not cancelled: the owner looks
/// whether a fired key still means something (lazy), so the same key may be set again at will.
///
/// Its slots are the ticks that have timers: however many timers there are, finding a slot costs as much
/// as there are ticks ahead, and no timer is looked at before its tick.
#[derive(Debug, Clone)]
pub struct Wheel<K> {
    slots: BTreeMap<u64, Vec<(Mono, K)>>,
    tick_ns: u64,
}

impl<K> Wheel<K> {
    /// A wheel of this resolution, 1 ns to 500 years.
    #[must_use]
    pub fn new(tick: Duration) -> Self {
        Self { slots: BTreeMap::new(), tick_ns: nanos(tick).max(1) }
    }

    /// Sets a timer. One in the past is due at once.
    pub fn set(&mut self, at: Mono, key: K) {
        let slot = nanos(at.0).div_ceil(self.tick_ns);
        self.slots.entry(slot).or_default().push((at, key));
    }

    /// When to call [`Wheel::advance`] next; none if empty.
    #[must_use]
    pub fn due(&self) -> Option<Mono> {
        let (slot, _) = self.slots.first_key_value()?;
        Some(Mono(Duration::from_nanos(slot.saturating_mul(self.tick_ns))))
    }

    /// Takes all timers due, in order of time, then of setting.
    pub fn advance(&mut self, now: Mono) -> Vec<K> {
        let mut fired = Vec::new();
        while self.due().is_some_and(|due| due <= now)
            && let Some((_, mut slot)) = self.slots.pop_first()
        {
            slot.sort_by_key(|(at, _)| *at);
            fired.extend(slot.into_iter().map(|(_, key)| key));
        }
        fired
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: Duration = Duration::from_millis(100);

    fn ms(ms: u64) -> Mono {
        Mono::from_millis(ms)
    }

    #[test]
    fn an_empty_wheel_is_never_due() {
        let mut wheel = Wheel::<()>::new(TICK);
        assert_eq!(wheel.due(), None);
        assert!(wheel.advance(ms(u64::MAX)).is_empty());
    }

    #[test]
    fn timers_fire_at_the_end_of_their_tick_in_order() {
        let mut wheel = Wheel::new(TICK);
        wheel.set(ms(250), "c");
        wheel.set(ms(201), "a");
        wheel.set(ms(201), "b");
        wheel.set(ms(200), "on the tick");
        assert_eq!(wheel.due(), Some(ms(200)));
        assert!(wheel.advance(ms(199)).is_empty());
        assert_eq!(wheel.advance(ms(299)), ["on the tick"]);
        assert_eq!(wheel.due(), Some(ms(300)));
        assert_eq!(wheel.advance(ms(300)), ["a", "b", "c"]);
        assert_eq!(wheel.due(), None);
    }

    #[test]
    fn a_timer_in_the_past_is_due_at_once() {
        let mut wheel = Wheel::new(TICK);
        wheel.set(ms(9_000), "ahead");
        assert!(wheel.advance(ms(5_000)).is_empty());
        wheel.set(ms(10), "late");
        assert!(wheel.due() <= Some(ms(5_000)));
        assert_eq!(wheel.advance(ms(5_000)), ["late"]);
    }

    #[test]
    fn extremes_neither_overflow_nor_fire() {
        let mut wheel = Wheel::new(Duration::ZERO);
        wheel.set(Mono(Duration::MAX), ());
        assert!(wheel.advance(ms(1_000)).is_empty());
    }

    proptest! {
        #[test]
        fn never_early_at_most_a_tick_late_none_lost(
            timers in prop::collection::vec(0u64..3_000, 0..60),
        ) {
            let mut wheel = Wheel::new(TICK);
            for (key, at) in timers.iter().enumerate() {
                wheel.set(ms(*at), key);
            }
            let mut fired = Vec::new();
            while let Some(due) = wheel.due() {
                for key in wheel.advance(due) {
                    let at = ms(timers[key]);
                    prop_assert!(at <= due && due.since(at) < TICK);
                    fired.push(key);
                }
            }
            let mut expected: Vec<usize> = (0..timers.len()).collect();
            expected.sort_by_key(|key| (timers[*key], *key));
            prop_assert_eq!(fired, expected);
        }
    }
}
