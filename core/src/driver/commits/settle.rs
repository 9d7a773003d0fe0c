//! What became of a commit: who is answered, who is read and decided again, and until when.

use std::collections::BTreeMap;

use presence_model::id::Roster;
use presence_model::lease::{LeaseId, Shard};
use presence_model::link::LinkDown;
use presence_model::member::{Due, DueCause};
use presence_model::time::StoreTime;

use super::{Decided, FoundBy, Stage, Waiting, Work};
use crate::driver::{Driver, Finding};
use crate::limits::{COMMIT_TRIES_MAX, STORE_RETRY};
use crate::store::{CommitOutcome, NotApplied, Outcome, StoreFault};

/// When the leases ran out for which something was to end.
fn deadlines(batch: &[Decided]) -> BTreeMap<LeaseId, StoreTime> {
    let due = batch.iter().flat_map(|decided| match &decided.waiting.work {
        Work::Expire { due, .. } => due.as_slice(),
        Work::Join(_)
        | Work::Update { .. }
        | Work::Leave { .. }
        | Work::Abandon { .. }
        | Work::Revoke
        | Work::Evict { .. } => &[],
    });
    let deadline = |due: &Due| match due.cause {
        DueCause::Deadline { deadline, .. } => Some((due.lease.plain_name(), deadline)),
        DueCause::TokenEnd | DueCause::Missing => None,
    };
    due.filter_map(deadline).collect()
}

impl Driver {
    /// A commit was applied in full, in part or not at all.
    pub(in crate::driver) fn on_commit(&mut self, roster: &Roster, result: Result<Outcome, StoreFault>) {
        let Stage::Committing(batch) = self.take_stage(roster) else { return };
        self.resume(roster);
        match result {
            Ok(Outcome::Commit(CommitOutcome::Applied { position, refused, now })) => {
                let refusals: BTreeMap<_, _> = refused.into_iter().collect();
                self.log_applied(roster, &refusals, &deadlines(&batch), (position, now));
                let mut again = Vec::new();
                for decided in batch {
                    match refusals.get(&decided.waiting.user) {
                        Some(why) => again.extend(self.not_applied(roster, decided, *why)),
                        None => self.applied(roster, decided),
                    }
                }
                self.try_again(roster, again);
            }
            Ok(_) => {
                // Another epoch is in force: a turn tells what that means.
                self.sweep.hurry(self.shard(roster), self.now);
                self.transitions.forget(roster);
                self.try_again(roster, batch.into_iter().map(|decided| decided.waiting).collect());
            }
            Err(StoreFault::Unknown | StoreFault::HalfDone(_)) => {
                self.log_in_doubt(roster);
                let in_doubt = |decided: Decided| Waiting { in_doubt: true, ..decided.waiting };
                self.try_again(roster, batch.into_iter().map(in_doubt).collect());
            }
            Err(StoreFault::Unavailable(_) | StoreFault::Unsettled | StoreFault::ReadOnly) => {
                self.transitions.forget(roster);
                self.store_away(roster, batch.into_iter().map(|decided| decided.waiting).collect());
            }
        }
    }

    fn applied(&mut self, roster: &Roster, decided: Decided) {
        match decided.waiting.work {
            Work::Join(join) => {
                if let Some(grant) = decided.grant {
                    self.tell(join.link, LinkDown::Joined { request: join.request, outcome: Ok(grant) });
                }
            }
            Work::Update { link, request, claims, .. } => {
                self.answer_done(link, request, Ok(claims.map(|claims| claims.token.ends)));
            }
            Work::Leave { link, request, .. } => self.answer_done(link, request, Ok(None)),
            Work::Abandon { release, .. } => self.release_done(release, true),
            Work::Expire { shard, due, by } => {
                if by == FoundBy::Audit {
                    self.note_mended(shard, Finding::Remnant, due.len());
                }
                self.looked_at(shard, by);
            }
            Work::Revoke => {}
            Work::Evict { key, sessions } => {
                self.evicted(key, roster, (&decided.waiting.user, sessions));
            }
        }
    }

    fn not_applied(&mut self, roster: &Roster, decided: Decided, why: NotApplied) -> Option<Waiting> {
        let mut waiting = decided.waiting;
        match (&mut waiting.work, why) {
            // Renewed meanwhile, or held: what is still due comes with the next turn.
            (Work::Expire { shard, by, .. }, NotApplied::Guard) => {
                self.looked_at(*shard, *by);
                return None;
            }
            (Work::Join(join), NotApplied::LeaseExists) if !waiting.in_doubt => {
                join.join.lease = self.mint(roster, &join.join.edge.name);
                join.decided = None;
            }
            (Work::Evict { sessions, .. }, _) if !waiting.in_doubt => sessions.clear(),
            (
                Work::Join(_)
                | Work::Update { .. }
                | Work::Leave { .. }
                | Work::Abandon { .. }
                | Work::Expire { .. }
                | Work::Revoke
                | Work::Evict { .. },
                NotApplied::Changed | NotApplied::Guard | NotApplied::LeaseExists,
            ) => {}
        }
        Some(waiting)
    }

    /// Whoever found leases of a member due need not wait any more.
    pub(super) fn looked_at(&mut self, shard: Shard, by: FoundBy) {
        match by {
            FoundBy::Sweep => self.sweep.part_done(shard, true),
            FoundBy::Audit => {}
        }
    }

    /// Reads and decides again, up to a bound.
    pub(super) fn try_again(&mut self, roster: &Roster, batch: Vec<Waiting>) {
        let mut again = Vec::new();
        for mut waiting in batch {
            waiting.tries += 1;
            if waiting.tries >= COMMIT_TRIES_MAX {
                self.refuse(waiting);
            } else {
                again.push(waiting);
            }
        }
        self.put_back(roster, again);
    }

    /// The store cannot be reached: new arrivals are told so; what ranks with renewals waits as those do.
    pub(super) fn store_away(&mut self, roster: &Roster, batch: Vec<Waiting>) {
        let patience = self.timings_of(&roster.room).heartbeat;
        let mut again = Vec::new();
        for waiting in batch {
            let waits = match &waiting.work {
                Work::Join(join) => join.join.rejoin.is_some(),
                Work::Leave { .. } => true,
                Work::Update { .. }
                | Work::Abandon { .. }
                | Work::Expire { .. }
                | Work::Revoke
                | Work::Evict { .. } => false,
            };
            if waits && self.now.since(waiting.since) < patience {
                again.push(waiting);
            } else {
                self.refuse(waiting);
            }
        }
        if !again.is_empty() {
            self.put_back(roster, again);
            self.put_off(roster, self.now + STORE_RETRY);
        }
    }

    /// Answers that it cannot be decided now.
    pub(super) fn refuse(&mut self, waiting: Waiting) {
        match waiting.work {
            Work::Join(join) => {
                let outcome = Err(self.unavailable());
                self.tell(join.link, LinkDown::Joined { request: join.request, outcome });
            }
            Work::Update { link, request, .. } | Work::Leave { link, request, .. } => {
                let refusal = self.unavailable();
                self.answer_done(link, request, Err(refusal));
            }
            Work::Abandon { release, .. } => self.release_done(release, false),
            Work::Expire { shard, by: FoundBy::Sweep, .. } => self.sweep.part_done(shard, false),
            // A later walk finds it again.
            Work::Expire { by: FoundBy::Audit, .. } => {}
            Work::Revoke => self.purge_again(waiting.user),
            Work::Evict { key, .. } => self.eviction_failed(key),
        }
    }
}
