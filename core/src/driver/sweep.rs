//! The sweep: whoever holds a shard's turn ends what is due in it; everybody learns of holds and epochs.
//!
//! Nothing is ended on the word of a turn alone: each member is read, the model decides, and the commit
//! carries the guard "still overdue, and not held". A shard whose clock was seen to step ends nothing
//! for silence until a turn, told of the step, has answered.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_model::hold::is_held;
use presence_model::id::{Roster, UserId};
use presence_model::lease::Shard;
use presence_model::limits::SWEEP_PORTION_MAX;
use presence_model::member::{Due, DueCause};
use presence_model::position::Epoch;
use presence_model::time::{Mono, StoreTime};

use super::Driver;
use super::commits::{FoundBy, Work};
use super::store_ops::{Pending, as_of};
use crate::limits::{CLOCK_STEP, EPOCH_AHEAD_MAX, STORE_REACHED_WITHIN};
use crate::store::{Command, DueLease, HoldState, Outcome, StoreFault, TurnOutcome};

/// A portion of a sweep being ended.
#[derive(Debug)]
struct Portion {
    turn: u64,
    left: usize,
    failed: bool,
    /// More may be due than was given.
    full: bool,
}

#[derive(Debug, Default)]
struct ShardSweep {
    next: Mono,
    asking: bool,
    mine: bool,
    portion: Option<Portion>,
    /// When the turn under way, or the one before, was asked for.
    asked: Mono,
    /// The answer to it came so late that the clock may have stepped meanwhile.
    doubted: bool,
    finished: Option<u64>,
    epoch: Option<Epoch>,
    /// The highest epoch that a watcher has been at, if that is above all that turns told.
    told: Option<Epoch>,
    /// The highest that a watcher named while the store's clock was unknown: judged by the next turn.
    unjudged: Option<Epoch>,
    hold: Option<HoldState>,
    /// Start of the last finished sweep, of whichever core.
    swept: Option<StoreTime>,
    /// The store's clock at the last turn: what its copies are told of the hold is as of then.
    turned: StoreTime,
    /// When a turn was answered last.
    answered: Mono,
    /// Since when no turn is answered, if that is too long: nobody can tell who is overdue.
    unturned: Option<StoreTime>,
    /// Its clock stepped and no turn has answered since; set with the turn that tells of it.
    distrusted: bool,
    stepped: bool,
}

/// The turns of all shards.
#[derive(Debug)]
pub(super) struct Sweep {
    shards: BTreeMap<Shard, ShardSweep>,
    given_up: bool,
}

impl Sweep {
    pub(super) fn new(shards: u16) -> Self {
        let all = (0..shards).filter_map(|shard| u8::try_from(shard).ok());
        let shards = all.map(|shard| (Shard(shard), ShardSweep::default())).collect();
        Self { shards, given_up: false }
    }

    /// Asks for no turn any more. Whoever takes no links ends nobody: if there is no other core, edges cannot say who
    /// is there, and the gap until somebody sweeps again is what starts a hold.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
        for state in self.shards.values_mut() {
            state.mine = false;
        }
    }

    /// When a turn is to be asked for.
    pub(super) fn due(&self) -> Option<Mono> {
        if self.given_up {
            return None;
        }
        self.shards.values().filter(|s| !s.asking && s.portion.is_none()).map(|s| s.next).min()
    }

    /// All shards.
    pub(super) fn shards(&self) -> Vec<Shard> {
        self.shards.keys().copied().collect()
    }

    /// Whether this core swept that shard last.
    pub(super) fn is_mine(&self, shard: Shard) -> bool {
        self.shards.get(&shard).is_some_and(|state| state.mine)
    }

    /// The hold last told, whether or not it is over.
    pub(super) fn hold(&self, shard: Shard) -> Option<HoldState> {
        self.shards.get(&shard)?.hold
    }

    /// Since when copies of that shard's rosters are held whose leases have this ttl.
    pub(super) fn held(&self, shard: Shard, ttl: Duration) -> Option<StoreTime> {
        self.shards.get(&shard)?.held(ttl)
    }

    /// Whether a turn has told that epoch of a shard.
    pub(super) fn knows(&self, shard: Shard, epoch: Epoch) -> bool {
        self.shards.get(&shard).is_some_and(|state| state.epoch == Some(epoch))
    }

    /// Since when no turn of a shard is answered, if that is too long.
    pub(super) fn unturned(&self, shard: Shard) -> Option<StoreTime> {
        self.shards.get(&shard)?.unturned
    }

    /// Whether silence proves nothing in a shard until a turn has answered.
    pub(super) fn is_distrusted(&self, shard: Shard) -> bool {
        self.shards.get(&shard).is_none_or(|state| state.distrusted)
    }

    /// The shard's clock stepped: a turn decides at once.
    pub(super) fn distrust(&mut self, shard: Shard, now: Mono) {
        if let Some(state) = self.shards.get_mut(&shard) {
            state.distrusted = true;
            state.next = now;
        }
    }

    /// A watcher has been at this epoch. If it is above that of the store, the store has lost its data and its
    /// clock went back: the next turn mints one above both. While the store's clock is unknown, a turn judges that.
    pub(super) fn told(&mut self, shard: Shard, epoch: Epoch, (store_now, now): (Option<StoreTime>, Mono)) {
        let Some(state) = self.shards.get_mut(&shard) else { return };
        let Some(store_now) = store_now else {
            state.unjudged = state.unjudged.max(Some(epoch));
            return;
        };
        let believed = epoch.minted_ms <= (store_now + EPOCH_AHEAD_MAX).0;
        if believed && state.epoch.max(state.told).is_none_or(|known| known < epoch) {
            state.told = Some(epoch);
            state.next = now;
        }
    }

    /// Judges what watchers named while the store's clock was unknown.
    fn judge_named(&mut self, shard: Shard, (store_now, now): (StoreTime, Mono)) {
        let unjudged = self.shards.get_mut(&shard).and_then(|state| state.unjudged.take());
        if let Some(epoch) = unjudged {
            self.told(shard, epoch, (Some(store_now), now));
        }
    }

    /// A turn is wanted soon.
    pub(super) fn hurry(&mut self, shard: Shard, now: Mono) {
        if let Some(state) = self.shards.get_mut(&shard) {
            state.next = state.next.min(now);
        }
    }

    /// One member of a portion is dealt with, or could not be.
    pub(super) fn part_done(&mut self, shard: Shard, ended: bool) {
        let Some(state) = self.shards.get_mut(&shard) else { return };
        let Some(portion) = &mut state.portion else { return };
        portion.left -= 1;
        portion.failed |= !ended;
        if portion.left == 0 {
            state.finish();
        }
    }
}

impl ShardSweep {
    fn held(&self, ttl: Duration) -> Option<StoreTime> {
        let since = self.hold.map(|hold| hold.since);
        since.filter(|_| is_held(since, ttl, self.turned))
    }

    fn finish(&mut self) {
        let Some(portion) = self.portion.take() else { return };
        if portion.full {
            self.next = Mono::default();
        } else if !portion.failed {
            self.finished = Some(portion.turn);
        }
    }
}

impl Driver {
    /// Asks for the turns that are due.
    pub(super) fn ask_turns(&mut self) {
        if self.sweep.given_up {
            return;
        }
        let now = self.now;
        let ready = |state: &ShardSweep| !state.asking && state.portion.is_none() && state.next <= now;
        let due: Vec<Shard> = self.sweep.shards.iter().filter(|(_, s)| ready(s)).map(|(s, _)| *s).collect();
        for shard in due {
            // What was heard but is not written yet must not be taken for silence.
            if self.renewals.is_behind(shard) {
                self.sweep.shards.entry(shard).or_default().next = now + self.settings.timings.sweep_tick;
                continue;
            }
            self.ask_turn(shard);
        }
    }

    /// Shards of which no turn was answered for too long, or is answered again: the store may be read and yet
    /// take no writes, and then nobody ends who is gone (G1).
    pub(super) fn judge_turns(&mut self) {
        let mut changed = Vec::new();
        for (shard, state) in &mut self.sweep.shards {
            let silent = self.now.since(state.answered.max(self.started));
            let is_silent = silent > STORE_REACHED_WITHIN;
            if is_silent != state.unturned.is_some() {
                let since = || self.clock.estimate(*shard, self.now).unwrap_or_default().before(silent);
                state.unturned = is_silent.then(since);
                changed.push(*shard);
            }
        }
        for shard in changed {
            self.freshness_changed(Some(shard));
        }
    }

    fn ask_turn(&mut self, shard: Shard) {
        let timings = self.settings.timings;
        let state = self.sweep.shards.entry(shard).or_default();
        state.asking = true;
        state.stepped = state.distrusted;
        state.asked = self.now;
        let command = Command::Turn {
            shard,
            holder: self.settings.holder,
            finished: state.finished,
            kept: timings.turn_kept,
            smallest_ttl: timings.lease_ttl_min,
            takeover: timings.takeover(),
            stepped: state.stepped,
            known: state.epoch.max(state.told),
            portion: SWEEP_PORTION_MAX,
        };
        self.ask(command, Pending::Turn(shard));
    }

    /// A turn has answered.
    pub(super) fn on_turn(&mut self, shard: Shard, result: Result<Outcome, StoreFault>) {
        let (timings, given_up) = (self.settings.timings, self.sweep.given_up);
        let Some(state) = self.sweep.shards.get_mut(&shard) else { return };
        state.asking = false;
        let Ok(Outcome::Turn(turn)) = result else {
            state.next = self.now + timings.turn_look;
            return;
        };
        // A step seen in this very answer is told by the next turn, at once.
        if state.stepped || !state.distrusted {
            state.distrusted = false;
            state.next = self.now + if turn.mine { timings.sweep_tick } else { timings.turn_look };
        }
        // Of two in a row only the first is doubted, so that a store that is always slow is swept.
        let waited = self.now.since(state.asked);
        state.doubted = waited > CLOCK_STEP && !state.doubted;
        if state.doubted {
            state.next = self.now;
        }
        state.answered = state.answered.max(as_of(state.asked, self.now));
        state.mine = turn.mine && !given_up;
        state.finished = None;
        state.swept = turn.swept;
        self.note_hold(shard, &turn);
        self.sweep.judge_named(shard, (turn.now, self.now));
        if turn.mine && !given_up {
            self.end_due(shard, turn);
        }
    }

    /// A new epoch or hold: everything is to be renewed, and copies are read again or told as held.
    fn note_hold(&mut self, shard: Shard, turn: &TurnOutcome) {
        let classes = self.settings.classes.iter().map(|class| class.timings.lease_ttl);
        let ttls: Vec<Duration> = classes.chain([self.settings.timings.lease_ttl]).collect();
        let Some(state) = self.sweep.shards.get_mut(&shard) else { return };
        let held = |state: &ShardSweep| ttls.iter().map(|ttl| state.held(*ttl)).collect::<Vec<_>>();
        let before = held(state);
        let first = state.epoch.is_none();
        let new_epoch = state.epoch.is_some_and(|known| known != turn.epoch);
        let new_hold =
            turn.hold.is_some() && state.hold.map(|hold| hold.since) != turn.hold.map(|hold| hold.since);
        state.epoch = Some(turn.epoch);
        state.told = state.told.filter(|told| *told > turn.epoch);
        state.hold = turn.hold;
        state.turned = turn.now;
        let changed = held(state) != before;
        if new_epoch || (new_hold && !first) {
            self.renew_all_links();
        }
        if new_epoch {
            self.reload_shard(shard);
            // What was revoked may be lost with the rest.
            self.revocations.look_soon(self.now);
        }
        if changed || first || new_epoch {
            self.freshness_changed(Some(shard));
        }
    }

    /// Ends what is due, member by member; what silence cannot prove now stays.
    fn end_due(&mut self, shard: Shard, turn: TurnOutcome) {
        let Some(state) = self.sweep.shards.get_mut(&shard) else { return };
        // Whether the clock stepped back during a long wait, and what is due is not, the next turn tells.
        let distrusted = state.distrusted || state.doubted;
        let hold = turn.hold.map(|hold| hold.since);
        let full = turn.due.len() >= SWEEP_PORTION_MAX;
        let stands = |due: &Due| match due.cause {
            DueCause::TokenEnd => true,
            DueCause::Deadline { .. } | DueCause::Missing => {
                !distrusted && !is_held(hold, due.lease.ttl(), turn.now)
            }
        };
        let mut members: BTreeMap<(Roster, UserId), Vec<Due>> = BTreeMap::new();
        for DueLease { roster, user, due, .. } in turn.due {
            if stands(&due) {
                members.entry((roster, user)).or_default().push(due);
            }
        }
        let full = full && !members.is_empty();
        state.portion = Some(Portion { turn: turn.turn, left: members.len(), failed: distrusted, full });
        if members.is_empty() {
            state.finish();
        }
        for ((roster, user), due) in members {
            self.enqueue(roster, user, Work::Expire { shard, due, by: FoundBy::Sweep });
        }
    }
}
