//! Renewals on their way: batches, their acknowledgements, and renewing everything.
//!
//! A lease is renewed from the moment it is marked until its batch is acknowledged. A batch that is not
//! is said again; on a new link everything is.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_model::batcher::Batcher;
use presence_model::lease::LeaseId;
use presence_model::link::BatchId;
use presence_model::time::Mono;
use presence_model::timing::Timings;

use crate::limits::{RENEW_ALL_STEPS, RENEWAL_BATCH_MAX};

struct Flight {
    leases: Vec<LeaseId>,
    due: Mono,
}

/// Everything, spread over a span.
struct Spread {
    /// Still to be renewed, the next at the end.
    rest: Vec<LeaseId>,
    portion: usize,
    next: Mono,
    step: Duration,
}

pub(super) struct Renewals {
    waiting: Batcher<LeaseId, ()>,
    flights: BTreeMap<BatchId, Flight>,
    spread: Option<Spread>,
    last: u64,
    ack_within: Duration,
    pub(super) repeated: u64,
}

impl Renewals {
    pub(super) fn new(timings: &Timings) -> Self {
        Self {
            waiting: Batcher::new(timings.renew_flush, RENEWAL_BATCH_MAX),
            flights: BTreeMap::new(),
            spread: None,
            last: 0,
            ack_within: timings.ack_within,
            repeated: 0,
        }
    }

    /// Takes new timers; only for batches that start from here on.
    pub(super) fn set_timings(&mut self, timings: &Timings) {
        self.ack_within = timings.ack_within;
        if self.waiting.is_empty() {
            self.waiting = Batcher::new(timings.renew_flush, RENEWAL_BATCH_MAX);
        }
    }

    pub(super) fn mark(&mut self, lease: LeaseId, now: Mono) {
        self.waiting.push(lease, (), now);
    }

    /// A lease that is given up is not renewed again.
    pub(super) fn forget(&mut self, lease: LeaseId) {
        self.waiting.remove(&lease);
    }

    pub(super) fn acknowledged(&mut self, batch: BatchId) {
        self.flights.remove(&batch);
    }

    /// Renews all of these, evenly over a span. Replaces what was under way.
    pub(super) fn all(&mut self, mut leases: Vec<LeaseId>, within: Duration, now: Mono) {
        self.flights.clear();
        self.spread = None;
        if leases.is_empty() {
            return;
        }
        for lease in &leases {
            self.waiting.remove(lease);
        }
        let steps = RENEW_ALL_STEPS.max(leases.len().div_ceil(RENEWAL_BATCH_MAX));
        let portion = leases.len().div_ceil(steps);
        let step = within / u32::try_from(steps).expect("fewer steps than leases fit in memory");
        leases.reverse();
        self.spread = Some(Spread { rest: leases, portion, next: now, step });
    }

    /// The next batch that is due; `counts` says which leases are still to be renewed.
    pub(super) fn next(
        &mut self,
        now: Mono,
        counts: impl Fn(LeaseId) -> bool,
    ) -> Option<(BatchId, Vec<LeaseId>)> {
        self.repeat_overdue(now);
        loop {
            let mut leases = self.portion(now)?;
            leases.retain(|lease| counts(*lease));
            if leases.is_empty() {
                continue;
            }
            self.last += 1;
            let batch = BatchId(self.last);
            let flight = Flight { leases: leases.clone(), due: now + self.ack_within };
            self.flights.insert(batch, flight);
            return Some((batch, leases));
        }
    }

    /// Whether a batch was not acknowledged in time.
    pub(super) fn is_overdue(&self, now: Mono) -> bool {
        // Batches are answered in the order sent, so the first is the most overdue.
        self.flights.values().next().is_some_and(|flight| flight.due <= now)
    }

    /// This process did not listen for a while: acknowledgements may lie unread until then.
    pub(super) fn excuse(&mut self, until: Mono) {
        for flight in self.flights.values_mut() {
            flight.due = flight.due.max(until);
        }
    }

    /// When [`Renewals::next`] may have something; only of use while the link is up.
    pub(super) fn due(&self) -> Option<Mono> {
        let unanswered = self.flights.values().next().map(|flight| flight.due);
        let spread = self.spread.as_ref().map(|spread| spread.next);
        [self.waiting.due(), unanswered, spread].into_iter().flatten().min()
    }

    fn repeat_overdue(&mut self, now: Mono) {
        while let Some(flight) = self.flights.first_entry().filter(|flight| flight.get().due <= now) {
            for lease in flight.remove().leases {
                self.repeated += 1;
                self.waiting.push(lease, (), now);
            }
        }
    }

    fn portion(&mut self, now: Mono) -> Option<Vec<LeaseId>> {
        if let Some(spread) = self.spread.as_mut().filter(|spread| spread.next <= now) {
            let from = spread.rest.len().saturating_sub(spread.portion);
            let leases = spread.rest.split_off(from);
            spread.next = spread.next + spread.step;
            self.spread.take_if(|spread| spread.rest.is_empty());
            return Some(leases);
        }
        let batch = self.waiting.take(now)?;
        Some(batch.into_iter().map(|(lease, ())| lease).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use presence_model::lease::Shard;
    use presence_model::timing::TimingsGiven;

    fn lease(n: u64) -> LeaseId {
        LeaseId::mint(Duration::from_secs(45), Shard(0), n)
    }

    fn ms(ms: u64) -> Mono {
        Mono::from_millis(ms)
    }

    fn renewals() -> Renewals {
        Renewals::new(&Timings::derive(TimingsGiven::default()).unwrap())
    }

    #[test]
    fn marks_are_collected_for_a_second() {
        let mut renewals = renewals();
        renewals.mark(lease(1), ms(0));
        renewals.mark(lease(2), ms(400));
        assert_eq!(renewals.due(), Some(ms(1_000)));
        assert_eq!(renewals.next(ms(999), |_| true), None);
        let (_, leases) = renewals.next(ms(1_000), |_| true).unwrap();
        assert_eq!(leases, [lease(1), lease(2)]);
        assert_eq!(renewals.next(ms(1_000), |_| true), None);
    }

    #[test]
    fn a_batch_that_is_not_acknowledged_is_said_again_without_what_was_given_up() {
        let mut renewals = renewals();
        renewals.mark(lease(1), ms(0));
        renewals.mark(lease(2), ms(0));
        let (first, _) = renewals.next(ms(1_000), |_| true).unwrap();
        assert_eq!(renewals.due(), Some(ms(16_000)));
        assert_eq!(renewals.next(ms(16_000), |l| l != lease(2)), None);
        let (second, leases) = renewals.next(ms(17_000), |l| l != lease(2)).unwrap();
        assert!(second > first);
        assert_eq!(leases, [lease(1)]);
        renewals.acknowledged(second);
        assert_eq!(renewals.due(), None);
    }

    #[test]
    fn renewing_all_is_spread_and_never_above_a_full_batch() {
        let mut renewals = renewals();
        let all: Vec<_> = (0..100_000).map(lease).collect();
        renewals.all(all.clone(), Duration::from_secs(2), ms(0));
        let (mut told, mut latest) = (Vec::new(), ms(0));
        while let Some(due) = renewals.due().filter(|due| *due < ms(5_000)) {
            while let Some((batch, leases)) = renewals.next(due, |_| true) {
                assert!(leases.len() <= RENEWAL_BATCH_MAX);
                renewals.acknowledged(batch);
                told.extend(leases);
            }
            latest = due;
        }
        told.sort_unstable();
        assert!(told == all, "every lease once");
        assert!(latest > ms(1_800) && latest < ms(2_000), "{latest:?}");
    }
}
