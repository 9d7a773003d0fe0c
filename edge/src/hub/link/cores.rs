//! Which core to link to: a random one first, then the next, and never back to a bad one too soon.
//!
//! Cores are equal, so nothing is preferred but what worked. Each address has its own backoff: it grows
//! with every link that failed and starts again once a link has proved good, not when it was welcomed.
//! Two bad cores are therefore tried in turn no faster than one would be.

use std::time::Duration;

use presence_model::backoff::Backoff;
use presence_model::time::Mono;
use rand::{Rng, RngExt as _};
use smol_str::SmolStr;

/// One core. A name that stands for several addresses stands for several cores.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoreAddress {
    /// As configured: `http://host:port`.
    pub url: SmolStr,
    /// Where that is, in digits; none: whoever connects finds out.
    pub address: Option<SmolStr>,
}

#[derive(Debug)]
struct Core {
    core: CoreAddress,
    backoff: Backoff,
    /// It is not linked to before.
    not_before: Mono,
    /// Nothing good is expected of it before: no link that stands is left for it.
    bad_until: Mono,
}

/// What a link was left for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It could not be opened, or broke, or was of no use.
    Failed,
    /// Nothing was heard since: waiting for it was part of the backoff.
    SilentSince(Mono),
    /// It goes, by its own word.
    Drained,
}

/// The cores there are, in the order in which this edge tries them.
#[derive(Debug)]
pub(super) struct Cores {
    cores: Vec<Core>,
    /// The one linked to, or tried last; the next is the one after it.
    current: Option<CoreAddress>,
    /// How long a core that failed counts as bad.
    bad_for: Duration,
    fresh: Backoff,
}

impl Cores {
    /// Nobody to link to yet.
    pub(super) fn new(fresh: Backoff, bad_for: Duration) -> Self {
        Self { cores: Vec::new(), current: None, bad_for, fresh }
    }

    /// Takes new timers.
    pub(super) fn set_timings(&mut self, fresh: Backoff, bad_for: Duration) {
        (self.fresh, self.bad_for) = (fresh, bad_for);
    }

    /// These are all there are. What is known of those that stay is kept; new ones take random places, so
    /// that the edges of a lost core spread over the others.
    pub(super) fn replace(&mut self, mut cores: Vec<CoreAddress>, chance: &mut impl Rng) {
        cores.sort();
        cores.dedup();
        self.cores.retain(|known| cores.binary_search(&known.core).is_ok());
        cores.retain(|core| !self.cores.iter().any(|known| known.core == *core));
        for core in cores {
            let place = chance.random_range(0..=self.cores.len());
            let (not_before, bad_until) = (Mono::default(), Mono::default());
            self.cores.insert(place, Core { core, backoff: self.fresh, not_before, bad_until });
        }
    }

    /// When the next link may be tried; none: there is nobody to link to.
    pub(super) fn due(&self) -> Option<Mono> {
        self.cores.iter().map(|core| core.not_before).min()
    }

    /// The core to link to now, if one may be tried.
    pub(super) fn pick(&mut self, now: Mono) -> Option<CoreAddress> {
        let picked = self.after_current(|core| core.not_before <= now)?;
        self.current = Some(picked.clone());
        Some(picked)
    }

    /// The core to link to now instead of the current one, whose link stands but is of no use: one that
    /// was not bad lately. The current one counts as failed then.
    pub(super) fn pick_better(&mut self, now: Mono, chance: u64) -> Option<CoreAddress> {
        let is_good = |core: &Core| core.not_before.max(core.bad_until) <= now;
        let better = self.after_current(|core| !self.is_current(core) && is_good(core))?;
        self.fault(Fault::Failed, now, chance);
        self.current = Some(better.clone());
        Some(better)
    }

    fn is_current(&self, core: &Core) -> bool {
        Some(&core.core) == self.current.as_ref()
    }

    /// The first that may be taken, from the one after the current to the current itself.
    fn after_current(&self, may: impl Fn(&Core) -> bool) -> Option<CoreAddress> {
        let current = self.cores.iter().position(|core| self.is_current(core));
        let (before, after) = self.cores.split_at(current.map_or(0, |current| current + 1));
        after.iter().chain(before).find(|core| may(core)).map(|core| core.core.clone())
    }

    /// The link to the current one is left, or could not be opened.
    pub(super) fn fault(&mut self, fault: Fault, now: Mono, chance: u64) {
        let is_only = self.cores.len() == 1;
        let current = self.current.as_ref();
        let Some(core) = self.cores.iter_mut().find(|core| Some(&core.core) == current) else { return };
        core.bad_until = now + self.bad_for;
        core.not_before = match fault {
            Fault::Failed => now + core.backoff.next(chance),
            Fault::SilentSince(heard) => heard + core.backoff.next(chance),
            // Another may answer under the same address.
            Fault::Drained if is_only => now,
            Fault::Drained => now + core.backoff.next(chance),
        };
    }

    /// The current one does what it is there for.
    pub(super) fn proved(&mut self) {
        let (current, fresh) = (self.current.as_ref(), self.fresh);
        if let Some(core) = self.cores.iter_mut().find(|core| Some(&core.core) == current) {
            (core.backoff, core.bad_until) = (fresh, Mono::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use rand::rngs::Xoshiro256PlusPlus;

    const LAST: u64 = u64::MAX;

    fn address(n: usize) -> CoreAddress {
        CoreAddress { url: format!("http://core-{n}:1").into(), address: None }
    }

    fn secs(secs: u64) -> Mono {
        Mono::from_millis(secs * 1_000)
    }

    fn cores(count: usize, seed: u64) -> Cores {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(4));
        let mut cores = Cores::new(backoff, Duration::from_secs(15));
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        cores.replace((0..count).map(address).collect(), &mut chance);
        cores
    }

    #[test]
    fn the_first_is_random_and_all_have_their_turn() {
        let mut first = Vec::new();
        for seed in 0..32 {
            let mut cores = cores(3, seed);
            let mut tried: Vec<_> = (0..3).filter_map(|_| cores.pick(secs(0))).collect();
            first.push(tried[0].clone());
            assert_eq!(cores.pick(secs(0)).as_ref(), Some(&tried[0]), "and from the start again");
            tried.sort();
            assert_eq!(tried, [address(0), address(1), address(2)]);
        }
        first.sort();
        first.dedup();
        assert_eq!(first.len(), 3);
    }

    #[test]
    fn two_bad_ones_are_tried_no_faster_than_their_backoffs() {
        let mut cores = cores(2, 1);
        let (mut now, mut tries) = (secs(0), Vec::new());
        while now < secs(60) {
            now = cores.due().unwrap().max(now);
            tries.push((now, cores.pick(now).unwrap()));
            cores.fault(Fault::Failed, now, LAST);
        }
        for core in [address(0), address(1)] {
            let of: Vec<Mono> = tries.iter().filter(|(_, tried)| *tried == core).map(|(at, _)| *at).collect();
            let waits: Vec<u64> = of.windows(2).map(|pair| pair[1].since(pair[0]).as_secs()).collect();
            assert_eq!(waits[..4], [1, 2, 4, 4]);
        }
    }

    #[test]
    fn one_that_proved_good_starts_from_the_first_wait_again() {
        let mut cores = cores(1, 1);
        for _ in 0..5 {
            cores.pick(secs(100));
            cores.fault(Fault::Failed, secs(100), LAST);
        }
        assert_eq!(cores.due(), Some(secs(104)));
        assert_eq!(cores.pick(secs(103)), None);
        cores.pick(secs(104)).unwrap();
        cores.proved();
        cores.fault(Fault::Failed, secs(110), LAST);
        assert_eq!(cores.due(), Some(secs(111)));
    }

    #[test]
    fn a_link_that_stands_is_left_only_for_one_that_was_not_bad_lately() {
        let mut cores = cores(2, 1);
        let first = cores.pick(secs(0)).unwrap();
        let second = cores.pick_better(secs(0), LAST).unwrap();
        assert_ne!(first, second);
        assert_eq!(cores.pick_better(secs(14), LAST), None, "bad for 15 s");
        assert_eq!(cores.pick_better(secs(15), LAST), Some(first));
        assert_eq!(cores.pick_better(secs(16), LAST), None);
        assert_eq!(cores.pick(secs(16)), Some(second), "if there is no link, any is better");
    }

    #[test]
    fn the_only_one_is_never_better_than_itself_and_a_drained_name_is_tried_again_at_once() {
        let mut cores = cores(1, 1);
        cores.pick(secs(0)).unwrap();
        assert_eq!(cores.pick_better(secs(0), LAST), None);
        cores.fault(Fault::Drained, secs(0), LAST);
        assert_eq!(cores.due(), Some(secs(0)));
        cores.fault(Fault::SilentSince(secs(2)), secs(5), LAST);
        assert_eq!(cores.due(), Some(secs(3)), "silence was waited out already");
    }

    #[test]
    fn what_is_known_of_one_is_kept_when_others_come_and_go() {
        let mut cores = cores(2, 1);
        let bad = cores.pick(secs(0)).unwrap();
        cores.fault(Fault::Failed, secs(0), LAST);
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(2);
        cores.replace(vec![bad.clone(), address(7), address(7)], &mut chance);
        assert_eq!(cores.pick(secs(0)), Some(address(7)));
        assert_eq!(cores.pick(secs(0)), Some(address(7)), "the other one is still not to be tried");
        cores.replace(Vec::new(), &mut chance);
        assert_eq!((cores.due(), cores.pick(secs(9))), (None, None));
    }
}
