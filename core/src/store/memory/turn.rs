//! The sweep's turn: who sweeps, whether anybody did, and what is due.

use std::collections::VecDeque;
use std::time::Duration;

use presence_model::hold::{CLOCK_STEP_MAX, HoldLimits, Noticed, ShardPast, judge};
use presence_model::position::Epoch;
use presence_model::time::StoreTime;
use rand::rngs::SmallRng;

use super::shard::ShardState;
use crate::store::{DueLease, TurnOutcome};

/// A question for a turn, as [`crate::store::Command::Turn`] puts it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    pub(super) holder: u64,
    pub(super) finished: Option<u64>,
    pub(super) kept: Duration,
    pub(super) smallest_ttl: Duration,
    pub(super) takeover: Duration,
    pub(super) stepped: bool,
    pub(super) known: Option<Epoch>,
    pub(super) portion: usize,
}

/// Who has the turn, and how long ago somebody looked.
#[derive(Debug, Clone)]
pub(super) struct TurnState {
    holder: u64,
    number: u64,
    started: StoreTime,
    until: StoreTime,
    /// Start of the last finished sweep.
    swept: StoreTime,
    /// From when on nobody has looked: the last finished sweep, or the start of a hold after it, which
    /// has made up for every gap before.
    unwatched: StoreTime,
    /// Gaps beyond a takeover: when each ended, and how long it was.
    gaps: VecDeque<(StoreTime, Duration)>,
    smallest_ttl: Option<Duration>,
}

impl TurnState {
    /// Nothing was due before `now`.
    pub(super) fn new(now: StoreTime) -> Self {
        Self {
            holder: 0,
            number: 0,
            started: now,
            until: StoreTime(0),
            swept: now,
            unwatched: now,
            gaps: VecDeque::new(),
            smallest_ttl: None,
        }
    }

    pub(super) fn swept(&self) -> StoreTime {
        self.swept
    }

    /// A hold starts: every gap up to now is made up for.
    pub(super) fn held(&mut self, now: StoreTime) {
        self.gaps.clear();
        self.unwatched = now;
        self.swept = self.swept.min(now);
    }

    /// Whether the sweeps are recent enough to believe a deadline: if not, a hold is due that no turn
    /// has set yet, and a command that was long under way must not be faster.
    pub(super) fn vouches(&self, now: StoreTime) -> bool {
        let limit = self.smallest_ttl.map(|ttl| ttl / 3);
        limit.is_none_or(|limit| now.since(self.unwatched) <= limit && self.unwatched <= now + CLOCK_STEP_MAX)
    }

    fn finish(&mut self, takeover: Duration) {
        let gap = self.started.since(self.unwatched);
        if gap > takeover {
            self.gaps.push_back((self.started, gap));
        }
        self.swept = self.started;
        self.unwatched = self.started;
    }

    fn gaps_within(&mut self, ttl: Duration, now: StoreTime) -> Duration {
        while self.gaps.front().is_some_and(|(ended, _)| *ended + ttl <= now) {
            self.gaps.pop_front();
        }
        self.gaps.iter().map(|(_, gap)| *gap).sum()
    }

    fn try_take(&mut self, holder: u64, kept: Duration, now: StoreTime) -> bool {
        // A turn kept for longer than anybody asks for was given before the clock stepped back.
        let is_free = now >= self.until || self.until > now + kept;
        let mine = self.holder == holder || is_free;
        if mine {
            self.holder = holder;
            self.number += 1;
            self.started = now;
            self.until = now + kept;
        }
        mine
    }
}

impl ShardState {
    /// Costs O(log n) for each lease that is due, and does not depend on those that are not.
    pub(super) fn turn(&mut self, ask: Ask, now: StoreTime, rng: &mut SmallRng) -> TurnOutcome {
        let is_changed = self.settle(ask.known, now, rng);
        let is_last = ask.finished == Some(self.turn.number) && ask.holder == self.turn.holder;
        if is_last && !is_changed {
            self.turn.finish(ask.takeover);
        }
        let is_held = !is_changed && self.judge(&ask, now);
        self.turn.smallest_ttl = Some(ask.smallest_ttl);
        let mine = self.turn.try_take(ask.holder, ask.kept, now);
        let mut due = Vec::new();
        if mine {
            self.forget(now, ask.portion);
            self.leases.clamp(now, ask.portion);
            due = self.due(now, ask.portion);
        }
        TurnOutcome {
            mine,
            turn: self.turn.number,
            now,
            epoch: self.epoch,
            hold: self.hold(now),
            new_hold: is_changed || is_held,
            swept: Some(self.turn.swept),
            due,
        }
    }

    /// Whether a hold starts at this turn; a new epoch has started its own.
    fn judge(&mut self, ask: &Ask, now: StoreTime) -> bool {
        let past = ShardPast {
            swept: Some(self.turn.unwatched),
            hold: self.hold(now).map(|hold| hold.since),
            gaps: self.turn.gaps_within(ask.smallest_ttl, now),
        };
        let noticed = if ask.stepped { Noticed::ClockStep } else { Noticed::Nothing };
        let limits = HoldLimits { smallest_ttl: ask.smallest_ttl, takeover: ask.takeover };
        let cause = judge(&past, noticed, now, limits);
        if let Some(cause) = cause {
            self.start_hold(cause, now);
        }
        cause.is_some()
    }

    fn due(&self, now: StoreTime, portion: usize) -> Vec<DueLease> {
        let held = |ttl| self.is_held(ttl, now);
        let due = self.leases.due(now, held, portion).into_iter();
        due.map(|(lease, due)| DueLease {
            roster: (*lease.roster).clone(),
            user: lease.user.clone(),
            session: lease.session.clone(),
            due,
        })
        .collect()
    }
}
