//! How short of time a core is, and what gives way at that before new arrivals do: counts, then questions, then changes
//! for watchers, of which several become one. Renewals, goodbyes and endings never do.
//!
//! Judged room by room, as a store may owe one room and serve all others.

use std::time::Duration;

use presence_model::id::Roster;

use super::{Driver, Query};
use crate::limits::{ARRIVALS_WAIT_LEAST, ARRIVALS_WAIT_PART, STRAIN_STEPS};

/// What gives way: everything up to here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strain {
    /// Nothing.
    None,
    /// Numbers of members are told seldom, and not on demand.
    Counts,
    /// Questions are refused with a hint.
    Questions,
    /// Changes are told seldom.
    Changes,
}

impl Driver {
    /// How long the joins of a room may have waited before more are refused.
    pub(super) fn arrivals_wait_most(&self, roster: &Roster) -> Duration {
        (self.timings_of(&roster.room).heartbeat / ARRIVALS_WAIT_PART).max(ARRIVALS_WAIT_LEAST)
    }

    /// What gives way in a room now: at a quarter, a half and three quarters of what has newcomers refused.
    pub(super) fn strain(&self, roster: &Roster) -> Strain {
        let (waits, _) = self.commits.wait(roster, self.now);
        let (longest, most) = (self.arrivals_wait_most(roster), self.arrivals.limits().waiting);
        let is_at = |step: usize| {
            let part = u32::try_from(step).expect("few steps");
            waits >= longest * part / STRAIN_STEPS
                || self.commits.waiting() >= (most * step).div_ceil(STRAIN_STEPS as usize).max(1)
        };
        [Strain::Changes, Strain::Questions, Strain::Counts]
            .into_iter()
            .find(|strain| is_at(*strain as usize))
            .unwrap_or(Strain::None)
    }

    /// Whether a question is to wait for better times. What an operator asks about one person never is.
    pub(super) fn gives_way(&self, query: &Query) -> bool {
        match query {
            Query::Count { room } => self.strain(&self.home(room)) >= Strain::Counts,
            Query::Room { room, .. } => self.strain(&self.home(room)) >= Strain::Questions,
            Query::Rooms { .. } | Query::Explain { .. } => false,
        }
    }
}
