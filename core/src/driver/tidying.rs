//! Forgetting what is old beside rosters: whoever has a shard's turn does that, a portion at a time.

use std::collections::BTreeMap;

use presence_model::lease::Shard;
use presence_model::time::Mono;

use super::Driver;
use super::store_ops::Pending;
use super::sweep::Sweep;
use crate::limits::{TIDY_AGAIN, TIDY_EVERY, TIDY_PORTION};
use crate::store::{Command, Outcome, StoreFault};

/// When each shard is to be tidied next; none: it is being tidied.
#[derive(Debug, Default)]
pub(super) struct Tidying {
    next: BTreeMap<Shard, Option<Mono>>,
}

impl Tidying {
    /// When a shard whose turn is ours is to be tidied.
    pub(super) fn due(&self, sweep: &Sweep) -> Option<Mono> {
        let mine = self.next.iter().filter(|(shard, _)| sweep.is_mine(**shard));
        mine.filter_map(|(_, next)| *next).min()
    }
}

impl Driver {
    /// Tidies the shards that are due. One whose turn has just become ours waits its time.
    pub(super) fn tidy(&mut self) {
        let now = self.now;
        for shard in self.sweep.shards() {
            let next = self.tidying.next.entry(shard).or_insert(Some(now + TIDY_EVERY));
            if self.sweep.is_mine(shard) && next.is_some_and(|next| next <= now) {
                *next = None;
                self.ask(Command::Tidy { shard, portion: TIDY_PORTION }, Pending::Tidy(shard));
            }
        }
    }

    /// A portion is done, or could not be.
    pub(super) fn on_tidied(&mut self, shard: Shard, result: &Result<Outcome, StoreFault>) {
        let again = matches!(result, Ok(Outcome::Tidied { more: true }));
        let after = if again { TIDY_AGAIN } else { TIDY_EVERY };
        self.tidying.next.insert(shard, Some(self.now + after));
    }
}
