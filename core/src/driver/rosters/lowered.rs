//! A status that only falls is told a little later: perhaps another session of the same user is about to
//! lift it again.
//!
//! Two devices of one user that change places say so over two edges, and what they say arrives in either
//! order. Between the two commits the member has a status that neither the user nor anybody else meant. Who
//! watches is told after a moment, once, and of what has come back by then nothing.

use presence_model::digest::Digest;
use presence_model::id::Roster;
use presence_model::time::Mono;

use crate::driver::Driver;
use crate::limits::LOWERED_TOLD_AFTER;

/// A copy whose watchers wait.
#[derive(Debug)]
pub(super) struct Lowered {
    until: Mono,
    /// The roster as they have it: back there, nothing is left to wait for.
    before: Digest,
}

impl Driver {
    /// A commit shows: its watchers are told now, unless all it does is lower statuses of the roster whose
    /// digest was `lowered`, or the roster waits for such a one already.
    pub(super) fn tell_or_wait(&mut self, roster: &Roster, lowered: Option<Digest>) {
        let until = self.now + LOWERED_TOLD_AFTER;
        let Some(copy) = self.rosters.copies.get_mut(roster) else { return };
        match (&copy.lowered, lowered) {
            (Some(waits), _) if waits.before != copy.replica.digest() => return,
            (Some(waits), _) => {
                self.rosters.lowered.remove(&(waits.until, roster.clone()));
                copy.lowered = None;
            }
            (None, Some(before)) => {
                copy.lowered = Some(Lowered { until, before });
                self.rosters.lowered.insert((until, roster.clone()));
                return;
            }
            (None, None) => {}
        }
        self.tell_watchers(roster);
    }

    /// Tells what has waited long enough.
    pub(in crate::driver) fn tell_lowered(&mut self) {
        while self.rosters.lowered.first().is_some_and(|(at, _)| *at <= self.now)
            && let Some((at, roster)) = self.rosters.lowered.pop_first()
        {
            let copy = self.rosters.copies.get_mut(&roster);
            if let Some(copy) = copy.filter(|copy| copy.lowered.as_ref().is_some_and(|own| own.until == at)) {
                copy.lowered = None;
            }
            self.tell_watchers(&roster);
        }
    }
}
