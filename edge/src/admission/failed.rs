//! Whose tokens do not verify: an address that tries one after the other is let in no more for a while.

use std::time::Duration;

use hashbrown::HashMap;
use presence_model::gate::{Gate, Rate};
use presence_model::time::Mono;

use super::address::Origin;
use crate::limits::{FAILING_ADDRESSES_MAX, FAILING_SWEPT_EVERY};

/// How many may still fail, by address.
#[derive(Debug)]
pub(super) struct Failed {
    gates: HashMap<Origin, Gate, foldhash::fast::FixedState>,
    /// When those who have nothing left to make up for were last forgotten.
    swept: Option<Mono>,
}

impl Failed {
    pub(super) fn new(seed: u64) -> Self {
        Self { gates: HashMap::with_hasher(foldhash::fast::FixedState::with_seed(seed)), swept: None }
    }

    /// One more token of this address did not verify. False: that is one too many.
    pub(super) fn note(&mut self, origin: Origin, rate: Rate, now: Mono) -> bool {
        if !self.gates.contains_key(&origin) && !self.has_room(now) {
            return true;
        }
        self.gates.entry(origin).or_default().admit(rate, now).is_ok()
    }

    /// How long until one more of this address may fail, if not now.
    pub(super) fn wait(&self, origin: Origin, rate: Rate, now: Mono) -> Option<Duration> {
        self.gates.get(&origin)?.wait(rate, now)
    }

    fn has_room(&mut self, now: Mono) -> bool {
        let is_full = self.gates.len() >= FAILING_ADDRESSES_MAX;
        if is_full && self.swept.is_none_or(|swept| now.since(swept) >= FAILING_SWEPT_EVERY) {
            self.swept = Some(now);
            self.gates.retain(|_, gate| !gate.is_rested(now));
        }
        self.gates.len() < FAILING_ADDRESSES_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    const RATE: Rate = Rate { interval: Duration::from_secs(20), burst: 3 };
    const NOW: Mono = Mono::from_millis(1_000);

    fn origin(number: usize) -> Origin {
        IpAddr::from(Ipv4Addr::from_bits(u32::try_from(number).unwrap())).into()
    }

    #[test]
    fn so_many_may_fail_and_then_one_each_interval() {
        let mut failed = Failed::new(7);
        let notes: Vec<bool> = (0..5).map(|_| failed.note(origin(1), RATE, NOW)).collect();
        assert_eq!(notes, [true, true, true, false, false]);
        assert_eq!(failed.wait(origin(1), RATE, NOW), Some(RATE.interval));
        assert_eq!(failed.wait(origin(2), RATE, NOW), None, "another address");
        let later = NOW + RATE.interval;
        assert_eq!(failed.wait(origin(1), RATE, later), None);
        assert_eq!([failed.note(origin(1), RATE, later), failed.note(origin(1), RATE, later)], [true, false]);
    }

    #[test]
    fn addresses_are_counted_up_to_a_bound_and_those_that_are_rested_make_room() {
        let mut failed = Failed::new(7);
        for number in 0..FAILING_ADDRESSES_MAX {
            assert!(failed.note(origin(number), RATE, NOW));
        }
        let beyond = origin(FAILING_ADDRESSES_MAX);
        assert!((0..9).all(|_| failed.note(beyond, RATE, NOW)), "not counted");
        assert_eq!(failed.gates.len(), FAILING_ADDRESSES_MAX);
        let soon = NOW + FAILING_SWEPT_EVERY;
        assert!(failed.note(origin(0), RATE, soon) && failed.note(origin(0), RATE, soon));
        assert!(!failed.note(origin(0), RATE, soon), "who is known is counted on");
        let rested = NOW + RATE.interval;
        let notes: Vec<bool> = (0..4).map(|_| failed.note(beyond, RATE, rested)).collect();
        assert_eq!(
            (notes, failed.gates.len()),
            (vec![true, true, true, false], 2),
            "beside the one that is not"
        );
    }
}
