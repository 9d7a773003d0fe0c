//! Store commands under way: their numbers, what each answer is for, and whether the store is reached.

use std::collections::BTreeMap;

use presence_model::id::{Incarnation, RegionId, RoomId, Roster, UserId};
use presence_model::lease::Shard;
use presence_model::time::{Mono, StoreTime};

use super::releases::ReleaseKey;
use super::{Driver, Effect, QueryKey, StoreOp, WatchKey};
use crate::limits::{STORE_ANSWER_MAX, STORE_REACHED_WITHIN};
use crate::store::{Command, CommitOutcome, HistoryOutcome, Outcome, StoreFault};

/// What an answer is for.
#[derive(Debug, Clone)]
pub(super) enum Pending {
    /// `Link`, `Unlink` or `Forget` of an edge, by the serial of the write.
    Registration(Incarnation, u64),
    /// The list of edges.
    Edges,
    /// The note that an edge is to go, for whoever asked.
    DrainEdge(QueryKey),
    /// Nothing depends on it: it is repeated by whoever asks.
    Unheeded,
    /// Renewals of a shard.
    Renew(Shard),
    /// A part of a release.
    Release(ReleaseKey),
    /// The sweep's turn of a shard.
    Turn(Shard),
    /// Members of a roster about which something is to be decided.
    Read(Roster),
    /// A commit.
    Commit(Roster),
    /// A page of a roster being copied, in this state of the copy.
    Load(Roster, u64),
    /// History that a copy lacks, in this state of the copy.
    CatchUp(Roster, u64),
    /// The tail of all shards.
    Tail,
    /// History that answers a watcher's cursor, by the serial of the place.
    Resume(WatchKey, RoomId, RegionId, u64),
    /// A step of a question.
    Query(QueryKey),
    /// The number of members of a roster that is counted, in this state of the count.
    Count(Roster, u64),
    /// A page of one region for a question.
    QueryPage(QueryKey, RegionId),
    /// A summary of a roster for a question.
    Summary(QueryKey, Roster),
    /// A page of what is revoked.
    Revoked,
    /// Whether something was revoked.
    RevokedNews,
    /// Revocations being written.
    Revoke,
    /// A revocation being written, until then, for whoever asked.
    RevokeAsked(QueryKey, StoreTime),
    /// Names of rosters in which to look for what rests on something revoked.
    PurgeNames,
    /// A page of such a roster.
    PurgePage(Roster),
    /// Members of such a roster, and after whom more follow.
    PurgeMembers(Roster, Option<UserId>),
    /// A shard being tidied.
    Tidy(Shard),
    /// A page of a shard's audit.
    Audit(Shard),
    /// Leases being removed that no record names.
    Disown(Shard),
    /// A torn roster being reported.
    Distrust(Shard),
}

#[derive(Debug)]
struct UnderWay {
    pending: Pending,
    shard: Option<Shard>,
    asked: Mono,
    until: Mono,
}

/// The store commands under way.
#[derive(Debug, Default)]
pub(super) struct StoreOps {
    next: u64,
    under_way: BTreeMap<StoreOp, UnderWay>,
    last_kept: Option<Mono>,
}

/// What an answer is as of: what was long under way may have been decided as soon as it was asked for, and says
/// nothing of now.
pub(super) fn as_of(asked: Mono, now: Mono) -> Mono {
    if now.since(asked) > STORE_REACHED_WITHIN { asked } else { now }
}

impl StoreOps {
    /// Whether the store kept leases and looked for silence within the last 5 s: one that only answers reads,
    /// for want of memory or as a replica, is of no use to edges, and what it shows is old.
    pub(super) fn reachable(&self, now: Mono) -> bool {
        self.last_kept.is_some_and(|at| now.since(at) <= STORE_REACHED_WITHIN)
    }

    /// When the store kept leases last.
    pub(super) fn last_kept(&self) -> Option<Mono> {
        self.last_kept
    }

    /// When the next command under way counts as lost.
    pub(super) fn due(&self) -> Option<Mono> {
        self.under_way.values().next().map(|oldest| oldest.until)
    }
}

impl Driver {
    /// Asks the store.
    pub(super) fn ask(&mut self, command: Command, pending: Pending) {
        let op = StoreOp(self.ops.next);
        self.ops.next += 1;
        let shard = self.clock_of(&command);
        let until = self.now + STORE_ANSWER_MAX;
        self.ops.under_way.insert(op, UnderWay { pending, shard, asked: self.now, until });
        self.out.push(Effect::Store(op, command));
    }

    /// Whose clock the answer to a command tells; none: of some server that is not always the same.
    fn clock_of(&self, command: &Command) -> Option<Shard> {
        match command {
            Command::Now { shard }
            | Command::Renew { shard, .. }
            | Command::Release { shard, .. }
            | Command::Lose { shard, .. }
            | Command::Turn { shard, .. }
            | Command::Leases { shard, .. }
            | Command::Audit { shard, .. }
            | Command::Disown { shard, .. }
            | Command::Discard { shard, .. } => Some(*shard),
            Command::Members { roster, .. }
            | Command::Load { roster, .. }
            | Command::History { roster, .. }
            | Command::Distrust { roster }
            | Command::Summary { roster } => Some(self.shard(roster)),
            Command::Commit(commit) => Some(self.shard(&commit.roster)),
            Command::Link { .. }
            | Command::Unlink { .. }
            | Command::Forget { .. }
            | Command::DrainEdge { .. }
            | Command::Edges
            | Command::Tail { .. }
            | Command::Rooms { .. }
            | Command::Seen { .. }
            | Command::RoomsOf { .. }
            | Command::Unlist { .. }
            | Command::Revoke { .. }
            | Command::Revoked { .. }
            | Command::Tidy { .. } => None,
        }
    }

    /// Takes an answer; one that counted as lost before is nobody's any more.
    pub(super) fn on_store(&mut self, op: StoreOp, result: Result<Outcome, StoreFault>) {
        let Some(done) = self.ops.under_way.remove(&op) else { return };
        if let Ok(outcome) = &result {
            if matches!(outcome, Outcome::Turn(_) | Outcome::Renewed { .. }) {
                self.ops.last_kept = self.ops.last_kept.max(Some(as_of(done.asked, self.now)));
            }
            if let (Some(shard), Some(time)) = (done.shard, time_of(outcome)) {
                self.on_store_time(shard, time, done.asked);
            }
        }
        self.dispatch(done.pending, result);
    }

    fn on_store_time(&mut self, shard: Shard, time: StoreTime, asked: Mono) {
        if self.clock.observe(shard, time, asked, self.now) {
            self.sweep.distrust(shard, self.now);
        }
        self.welcome_waiting();
    }

    fn dispatch(&mut self, pending: Pending, result: Result<Outcome, StoreFault>) {
        match pending {
            Pending::Unheeded => {}
            Pending::Registration(edge, serial) => self.on_registered(edge, serial, result),
            Pending::Edges => self.on_edges(result),
            Pending::DrainEdge(key) => self.on_drain_noted(key, &result),
            Pending::Renew(shard) => self.on_renewed(shard, result),
            Pending::Release(key) => self.on_released(key, &result),
            Pending::Turn(shard) => self.on_turn(shard, result),
            Pending::Read(roster) => self.on_read(&roster, result),
            Pending::Commit(roster) => self.on_commit(&roster, result),
            Pending::Load(roster, serial) => self.on_load(&roster, serial, result),
            Pending::CatchUp(roster, serial) => self.on_caught_up(&roster, serial, result),
            Pending::Tail => self.on_tail(result),
            Pending::Resume(watch, room, region, serial) => {
                self.on_resume(watch, &room, (&region, serial), result);
            }
            Pending::Revoked => self.on_revoked(result),
            Pending::RevokedNews => self.on_revoked_news(result),
            Pending::Revoke => self.on_revocations_written(&result),
            Pending::RevokeAsked(key, until) => self.on_revoke_asked(key, until, &result),
            Pending::PurgeNames => self.on_purge_names(result),
            Pending::PurgePage(roster) => self.on_purge_page(roster, result),
            Pending::PurgeMembers(roster, rest) => self.on_purge_members(roster, rest, result),
            Pending::Tidy(shard) => self.on_tidied(shard, &result),
            Pending::Audit(shard) => self.on_audited(shard, result),
            Pending::Disown(shard) => self.on_disowned(shard, &result),
            Pending::Distrust(shard) => self.on_distrusted(shard, &result),
            Pending::Query(key) => self.on_query_step(key, result),
            Pending::Count(roster, serial) => self.on_counted(&roster, serial, result),
            Pending::QueryPage(key, region) => self.on_query_page(key, &region, result),
            Pending::Summary(key, roster) => self.on_summary(key, roster, result),
        }
    }

    /// Gives commands up whose answers did not come: their outcome is unknown.
    pub(super) fn give_up_lost_answers(&mut self) {
        while let Some(oldest) = self.ops.under_way.first_entry()
            && oldest.get().until <= self.now
        {
            let lost = oldest.remove();
            self.dispatch(lost.pending, Err(StoreFault::Unknown));
        }
    }
}

fn time_of(outcome: &Outcome) -> Option<StoreTime> {
    match outcome {
        Outcome::Now { now }
        | Outcome::Members { now, .. }
        | Outcome::Page { now, .. }
        | Outcome::Commit(CommitOutcome::Applied { now, .. })
        | Outcome::Released { now, .. }
        | Outcome::Linked { now, .. }
        | Outcome::Edges { now, .. }
        | Outcome::Leases { now, .. }
        | Outcome::Summary { now, .. } => Some(*now),
        Outcome::Turn(turn) => Some(turn.now),
        Outcome::Audited(page) => Some(page.now),
        Outcome::Renewed { now, .. } => *now,
        Outcome::Commit(CommitOutcome::Epoch { .. })
        | Outcome::Lost { .. }
        | Outcome::Done
        | Outcome::Disowned { .. }
        | Outcome::Distrusted { .. }
        | Outcome::History(
            HistoryOutcome::Commits(_)
            | HistoryOutcome::Unchanged { .. }
            | HistoryOutcome::Compacted { .. }
            | HistoryOutcome::Ahead { .. },
        )
        | Outcome::Tail { .. }
        | Outcome::Rooms { .. }
        | Outcome::Seen { .. }
        | Outcome::RoomsOf { .. }
        | Outcome::Revoked { .. }
        | Outcome::Tidied { .. } => None,
    }
}
