//! Makes the story of a failing seed short: takes faults out of its plan for as long as the same guarantee
//! still breaks (delta debugging), then shortens those that are left.

use std::time::Duration;

use super::guarantee::Guarantee;
use super::plan::{Plan, Planned};
use super::story::Keep;
use super::{Failure, live};

/// Worlds lived through for one story, at most.
const TRIES_MAX: u32 = 600;

/// A short plan that breaks the same guarantee as `failure` did, and what happened then.
#[must_use]
pub fn shrink(plan: &Plan, failure: Box<Failure>, keep: Keep) -> (Plan, Box<Failure>) {
    let mut search = Search { guarantee: failure.violation.guarantee, best: plan.clone(), failure, tries: 0 };
    search.take_out();
    search.shorten();
    let told = live(&search.best, keep).err();
    (search.best, told.unwrap_or(search.failure))
}

struct Search {
    guarantee: Guarantee,
    best: Plan,
    failure: Box<Failure>,
    tries: u32,
}

impl Search {
    /// Whether the same breaks with these faults; then they are the best so far.
    fn breaks(&mut self, faults: Vec<Planned>) -> bool {
        self.tries += 1;
        // What comes after it broke has no part in it.
        let span = self.failure.violation.at.0.max(Duration::from_secs(20)).min(self.best.span);
        let plan = Plan { span, ..self.best.with(faults) };
        match live(&plan, Keep::Newest) {
            Err(failure) if failure.violation.guarantee == self.guarantee => {
                let at = failure.violation.at.0;
                self.best = plan;
                self.best.faults.retain(|planned| planned.at <= at);
                self.failure = failure;
                true
            }
            Err(_) | Ok(_) => false,
        }
    }

    fn take_out(&mut self) {
        let at = self.failure.violation.at.0;
        self.best.faults.retain(|planned| planned.at <= at);
        let mut portion = self.best.faults.len().div_ceil(2);
        while portion > 0 && self.tries < TRIES_MAX {
            let mut from = 0;
            let mut any = false;
            while from < self.best.faults.len() && self.tries < TRIES_MAX {
                let mut faults = self.best.faults.clone();
                faults.drain(from..(from + portion).min(faults.len()));
                if self.breaks(faults) {
                    any = true;
                } else {
                    from += portion;
                }
            }
            if !any || portion > self.best.faults.len() {
                portion = if portion == 1 && !any {
                    0
                } else {
                    portion.div_ceil(2).min(portion - usize::from(portion > 1))
                };
            }
        }
    }

    /// Halves spans, one by one, while it still breaks.
    fn shorten(&mut self) {
        for place in 0..self.best.faults.len() {
            while self.tries < TRIES_MAX {
                let Some(planned) = self.best.faults.get(place) else { break };
                let span = planned.fault.span();
                if span < Duration::from_millis(200) {
                    break;
                }
                let mut faults = self.best.faults.clone();
                faults[place].fault = planned.fault.lasting(span / 2);
                if !self.breaks(faults) {
                    break;
                }
            }
        }
    }
}
