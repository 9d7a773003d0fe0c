//! Who was touched when, for as long as it is remembered: what answers "since" questions.

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::id::UserId;
use crate::limits::{HISTORY_AGE_MS_MAX, HISTORY_CHANGES_MAX};
use crate::reason::{Ending, RemovalReason};
use crate::time::{Mono, millis};

/// What a touch did to a user, as far as is known where it is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Was not there, and is.
    Came,
    /// Was there, and is.
    Stays,
    /// Is not there.
    Went(Ending),
}

/// One touch. Kept small: a busy room remembers a thousand.
#[derive(Debug, Clone)]
struct Touch {
    number: u64,
    user: UserId,
    came: bool,
    reason: Option<RemovalReason>,
    silent_ms: u32,
    at_s: u32,
}

/// A log of touches under numbers that never fall, with a floor below which nothing is remembered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Touched {
    floor: u64,
    log: VecDeque<Touch>,
}

impl Touched {
    /// Forgets all: questions from `floor` on can be answered.
    pub(crate) fn reset(&mut self, floor: u64) {
        *self = Self { floor, log: VecDeque::new() };
    }

    /// The lowest number a question may start from.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// Remembers that a user was touched under this number.
    pub(crate) fn push(&mut self, number: u64, user: UserId, mark: Mark, now: Mono) {
        let ending = match mark {
            Mark::Went(ending) => Some(ending),
            Mark::Came | Mark::Stays => None,
        };
        let silent_ms = ending.map_or(0, |ending| millis(ending.silent_for));
        self.log.push_back(Touch {
            number,
            user,
            came: mark == Mark::Came,
            reason: ending.map(|ending| ending.reason),
            silent_ms: u32::try_from(silent_ms).unwrap_or(u32::MAX),
            at_s: seconds(now),
        });
    }

    /// The users touched in (from, to], each with its last ending there; none if `from` is below the
    /// floor.
    pub(crate) fn between(&self, from: u64, to: u64) -> Option<BTreeMap<&UserId, Option<Ending>>> {
        if from < self.floor {
            return None;
        }
        let mut users = BTreeMap::new();
        for touch in self.log.iter().rev().take_while(|touch| touch.number > from) {
            if touch.number > to {
                continue;
            }
            if let Entry::Vacant(place) = users.entry(&touch.user) {
                place.insert(touch.ending());
            }
        }
        Some(users)
    }

    /// The users touched after `from` as far as that is remembered, the latest first, each with its last mark.
    /// Looks at no more than `most` touches.
    pub(crate) fn latest(&self, from: u64, most: usize) -> impl Iterator<Item = (&UserId, Mark)> {
        let mut known = BTreeSet::new();
        let touches = self.log.iter().rev().take(most).take_while(move |touch| touch.number > from);
        touches.filter(move |touch| known.insert(&touch.user)).map(|touch| (&touch.user, touch.mark()))
    }

    /// Forgets what is older than the age limit, and the oldest beyond the larger of the count limit and
    /// `members`: a longer delta would be worth less than a snapshot. Nothing above `current` is ever
    /// the floor. Says whether anything was forgotten.
    pub(crate) fn compact(&mut self, members: usize, current: u64, now: Mono) -> bool {
        let keep = members.max(HISTORY_CHANGES_MAX);
        let oldest_s = seconds(now - Duration::from_millis(HISTORY_AGE_MS_MAX));
        let excess = self.log.len().saturating_sub(keep);
        let aged = self.log.iter().take_while(|touch| touch.at_s < oldest_s).count();
        let dropped = excess.max(aged);
        let Some(last) = dropped.checked_sub(1).and_then(|last| self.log.get(last)) else {
            return false;
        };
        self.floor = self.floor.max(last.number.min(current));
        self.log.drain(..dropped);
        while self.log.front().is_some_and(|touch| touch.number <= self.floor) {
            self.log.pop_front();
        }
        if self.log.capacity() > 4 * self.log.len() {
            self.log.shrink_to_fit();
        }
        true
    }
}

impl Touch {
    fn mark(&self) -> Mark {
        match self.ending() {
            Some(ending) => Mark::Went(ending),
            None if self.came => Mark::Came,
            None => Mark::Stays,
        }
    }

    fn ending(&self) -> Option<Ending> {
        let silent_for = Duration::from_millis(self.silent_ms.into());
        self.reason.map(|reason| Ending { reason, silent_for })
    }
}

fn seconds(at: Mono) -> u32 {
    u32::try_from(at.0.as_secs()).unwrap_or(u32::MAX)
}
