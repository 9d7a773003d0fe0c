//! Which new arrivals are taken now: so many a second, and none behind those who wait too long already. The others
//! are told when to come again.
//!
//! Only sessions that want in are ever refused here. Renewals, re-joins of edges, goodbyes and endings are not: whoever
//! is present must not be lost because others come.

use std::time::Duration;

use presence_model::crowd::{Crowd, Window};
use presence_model::gate::{Gate, Rate};
use presence_model::id::{Generation, Roster};
use presence_model::link::LinkRefusal;
use rand::Rng as _;

use super::Driver;
use super::commits::is_return;
use crate::limits::{
    ARRIVALS_HINT_MOST, ARRIVALS_PER_SECOND_DEFAULT, ARRIVALS_RETURNING_TIMES, ARRIVALS_WAITING_DEFAULT,
    COMMIT_MEMBERS_MAX, RETRY_AFTER,
};

/// How many new arrivals are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrivalLimits {
    /// Joins a second, and at once after a pause; of these, half are kept for who comes back. Above zero.
    pub per_second: u32,
    /// Joins and updates that wait over all rooms, before new joins are refused; twice as many before those who come
    /// back are.
    pub waiting: usize,
}

impl Default for ArrivalLimits {
    fn default() -> Self {
        Self { per_second: ARRIVALS_PER_SECOND_DEFAULT, waiting: ARRIVALS_WAITING_DEFAULT }
    }
}

/// Arrivals that were refused so far, by what was short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shed {
    /// Too many a second.
    pub rate: u64,
    /// Too many waited in all.
    pub waiting: u64,
    /// Those who waited for the same room had waited too long.
    pub slow: u64,
}

impl Shed {
    /// With the words of metrics.
    #[must_use]
    pub fn by_reason(self) -> [(&'static str, u64); 3] {
        [("rate", self.rate), ("waiting", self.waiting), ("slow", self.slow)]
    }
}

/// Lets new arrivals in, or not.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    limits: ArrivalLimits,
    gate: Gate,
    newcomers: Crowd,
    returning: Crowd,
    shed: Shed,
}

impl Arrivals {
    pub(super) fn new(limits: ArrivalLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    pub(super) fn shed(&self) -> Shed {
        self.shed
    }

    pub(super) fn limits(&self) -> ArrivalLimits {
        self.limits
    }

    pub(super) fn set_limits(&mut self, limits: ArrivalLimits) {
        self.limits = limits;
    }
}

impl Driver {
    /// Whether a session that wants in is taken now. Who was there before in this tab says so by its generation: it
    /// goes before newcomers, as its grace may be running.
    ///
    /// # Errors
    /// Unavailable, with a moment of its own to come again.
    pub(super) fn admit_arrival(
        &mut self,
        roster: &Roster,
        generation: Option<Generation>,
    ) -> Result<(), LinkRefusal> {
        let returns = is_return(generation);
        let limits = self.arrivals.limits;
        let interval = Duration::from_secs(1) / limits.per_second.max(1);
        let ((waits, ahead), most_waiting) = if returns {
            (self.commits.wait_pressing(roster, self.now), limits.waiting * ARRIVALS_RETURNING_TIMES)
        } else {
            (self.commits.wait(roster, self.now), limits.waiting)
        };
        if waits >= self.arrivals_wait_most(roster) {
            self.arrivals.shed.slow += 1;
            // As fast as those ahead are served: a commit has room for so many however few are in it now.
            let served = u32::try_from(ahead.max(COMMIT_MEMBERS_MAX)).unwrap_or(u32::MAX);
            return Err(self.come_again(returns, waits / served));
        }
        if self.commits.waiting() >= most_waiting {
            self.arrivals.shed.waiting += 1;
            return Err(self.come_again(returns, interval));
        }
        let burst = if returns { limits.per_second } else { limits.per_second.div_ceil(2) };
        if self.arrivals.gate.admit(Rate { interval, burst }, self.now).is_err() {
            self.arrivals.shed.rate += 1;
            return Err(self.come_again(returns, interval));
        }
        Ok(())
    }

    /// A moment behind those who were told before.
    fn come_again(&mut self, returns: bool, interval: Duration) -> LinkRefusal {
        let chance = f64::from(self.rng.next_u32()) / f64::from(u32::MAX);
        let (crowd, most) = if returns {
            // Several times within its grace.
            (&mut self.arrivals.returning, self.settings.timings.reconnect_within / 2)
        } else {
            (&mut self.arrivals.newcomers, ARRIVALS_HINT_MOST)
        };
        let window = Window { least: RETRY_AFTER.min(most), most };
        LinkRefusal::Unavailable { retry_after: crowd.hint(interval, window, chance, self.now) }
    }
}
