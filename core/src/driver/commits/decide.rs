//! The member is read: what the model decides, and what that asks of the store.

use std::collections::BTreeSet;

use presence_model::change::Change;
use presence_model::claim::{Claims, TokenRefusal, judge_time};
use presence_model::class::RoomTimings;
use presence_model::id::{Roster, SessionId};
use presence_model::lease::{LeaseId, Shard};
use presence_model::link::{GrantDown, LinkDown, LinkRefusal};
use presence_model::member::{self, Abandoned, Due, DueCause};
use presence_model::reason::{LeaveReason, RemovalReason};
use presence_model::record::MemberRead;
use presence_model::refusal::Refusal;
use presence_model::time::StoreTime;

use super::{Decided, FoundBy, JoinWork, Stage, Waiting, Work};
use crate::driver::evictions::evicted_sessions;
use crate::driver::store_ops::Pending;
use crate::driver::{Driver, QueryKey, Verb};
use crate::limits::TOKEN_LEEWAY;
use crate::store::{Command, Commit, Outcome, StoreFault};

/// What follows from one decision.
#[expect(clippy::large_enum_variant, reason = "it is taken apart as soon as it is made")]
enum Decision {
    /// Commit this.
    Commit(Waiting, Box<Change>, Option<GrantDown>),
    /// Nothing to commit: it is answered.
    Over,
}

impl Driver {
    /// Members are read: decide for each, and commit what is to be changed.
    pub(in crate::driver) fn on_read(&mut self, roster: &Roster, result: Result<Outcome, StoreFault>) {
        let Stage::Reading(batch) = self.take_stage(roster) else { return };
        self.resume(roster);
        let (now, position, reads) = match result {
            Ok(Outcome::Members { now, position, members }) if members.len() == batch.len() => {
                (now, position, members)
            }
            Ok(_) | Err(StoreFault::Unknown | StoreFault::HalfDone(_)) => {
                return self.try_again(roster, batch);
            }
            Err(StoreFault::Unavailable(_) | StoreFault::Unsettled | StoreFault::ReadOnly) => {
                return self.store_away(roster, batch);
            }
        };
        let (mut changes, mut decided) = (Vec::new(), Vec::new());
        for (waiting, read) in batch.into_iter().zip(reads) {
            match self.decide(roster, waiting, &read, now) {
                Decision::Over => {}
                Decision::Commit(waiting, change, grant) => {
                    decided.push(Decided { waiting, grant });
                    changes.push(*change);
                }
            }
        }
        if changes.is_empty() {
            return;
        }
        self.transitions.sent(roster, &changes);
        self.put_stage(roster, decided);
        let commit = Commit { roster: roster.clone(), epoch: position.epoch, changes };
        self.ask(Command::Commit(commit), Pending::Commit(roster.clone()));
    }

    fn decide(&mut self, roster: &Roster, waiting: Waiting, read: &MemberRead, now: StoreTime) -> Decision {
        if self.refuses_foreign(&waiting.work, read) {
            return Decision::Over;
        }
        let Waiting { user, work, since, tries, in_doubt } = waiting;
        let keep = |work| Waiting { user, work, since, tries, in_doubt };
        match work {
            Work::Join(join) => self.decide_join(*join, (roster, read), now, keep),
            Work::Evict { key, sessions } => self.decide_eviction((key, sessions), (roster, read), now, keep),
            Work::Update { link, request, update, claims } => {
                if let Some(refusal) = claims.as_ref().and_then(|claims| self.judge(claims, now).err()) {
                    let refusal = self.refuse_token(link, refusal);
                    self.answer_done(link, request, Err(refusal));
                    return Decision::Over;
                }
                match member::update(read, &update, now) {
                    Ok(Some(change)) => {
                        let work = Work::Update { link, request, update, claims };
                        Decision::Commit(keep(work), Box::new(change), None)
                    }
                    Ok(None) => {
                        let ends = claims.map(|claims| claims.token.ends);
                        self.answer_done(link, request, Ok(ends));
                        Decision::Over
                    }
                    Err(refusal) => {
                        self.answer_done(link, request, Err(refusal.into()));
                        Decision::Over
                    }
                }
            }
            Work::Leave { link, request, lease, reason } => {
                match self.decide_leave(read, (lease, reason), now) {
                    Ok(change) => {
                        let work = Work::Leave { link, request, lease, reason };
                        Decision::Commit(keep(work), Box::new(change), None)
                    }
                    Err(Refusal::NotPresent | Refusal::NotCurrent) if in_doubt => {
                        self.answer_done(link, request, Ok(None));
                        Decision::Over
                    }
                    Err(refusal) => {
                        self.answer_done(link, request, Err(refusal.into()));
                        Decision::Over
                    }
                }
            }
            Work::Abandon { release, unanswered } => match member::abandon(read, &unanswered, now) {
                Abandoned::Release(lease) => {
                    self.release_own_part(release, lease);
                    self.release_done(release, true);
                    Decision::Over
                }
                Abandoned::Forbid(change) => {
                    Decision::Commit(keep(Work::Abandon { release, unanswered }), change, None)
                }
                Abandoned::Superseded => {
                    self.release_done(release, true);
                    Decision::Over
                }
            },
            Work::Revoke => match self.end_revoked(read, now) {
                Some(change) => Decision::Commit(keep(Work::Revoke), Box::new(change), None),
                None => Decision::Over,
            },
            Work::Expire { shard, due, by } => {
                let due = self.still_due(roster, read, due, now);
                self.decide_expiry((shard, due, by), read, now, keep)
            }
        }
    }

    /// Ends whatever of a member rests on something revoked.
    fn end_revoked(&self, read: &MemberRead, now: StoreTime) -> Option<Change> {
        member::revoke(
            read,
            |token| self.revocations.known().judge_token(&read.user, token, now).is_err(),
            now,
        )
    }

    /// An end at an edge's word. What rests on something revoked ends for that, whichever of both has heard of it first.
    fn decide_leave(
        &self,
        read: &MemberRead,
        (lease, reason): (LeaseId, LeaveReason),
        now: StoreTime,
    ) -> Result<Change, Refusal> {
        let revoked = self.end_revoked(read, now);
        let is_among = |change: &Change| change.revokes.contains(&lease.plain_name());
        revoked.filter(is_among).map_or_else(|| member::leave(read, lease, reason, now), Ok)
    }

    /// Judges the time of a good token, and whether it still opens anything.
    fn judge(&self, claims: &Claims, now: StoreTime) -> Result<(), TokenRefusal> {
        judge_time(claims, now, TOKEN_LEEWAY)?;
        self.revocations.known().judge_token(&claims.user, &claims.token, now)
    }

    /// Refuses what an edge wants of a session that another edge holds, as its record says: the mark of a lease alone is
    /// mistaken now and then.
    fn refuses_foreign(&mut self, work: &Work, read: &MemberRead) -> bool {
        let (link, request, lease, verb) = match work {
            Work::Update { link, request, update, .. } => (*link, *request, update.lease, Verb::Update),
            Work::Leave { link, request, lease, .. } => (*link, *request, *lease, Verb::Leave),
            Work::Join(_)
            | Work::Abandon { .. }
            | Work::Expire { .. }
            | Work::Evict { .. }
            | Work::Revoke => {
                return false;
            }
        };
        let session = read.record.as_ref().and_then(|record| record.session_of(lease));
        let (Some(session), Some(edge)) = (session, self.links.edge(link)) else { return false };
        let is_foreign = session.edge.name != edge.name;
        if is_foreign {
            self.note_foreign(link, verb, 1);
            self.answer_done(link, request, Err(LinkRefusal::Forbidden));
        }
        is_foreign
    }

    fn decide_expiry(
        &mut self,
        (shard, due, by): (Shard, Vec<Due>, FoundBy),
        read: &MemberRead,
        now: StoreTime,
        keep: impl FnOnce(Work) -> Waiting,
    ) -> Decision {
        match member::expire(read, &due, now) {
            Some(change) => {
                return Decision::Commit(keep(Work::Expire { shard, due, by }), Box::new(change), None);
            }
            None if due.is_empty() || by == FoundBy::Audit => {}
            None => {
                let leases = due.iter().map(|due| due.lease.plain_name()).collect();
                self.ask(Command::Discard { shard, leases }, Pending::Unheeded);
            }
        }
        self.looked_at(shard, by);
        Decision::Over
    }

    fn decide_join(
        &mut self,
        mut join: JoinWork,
        (roster, read): (&Roster, &MemberRead),
        now: StoreTime,
        keep: impl FnOnce(Work) -> Waiting,
    ) -> Decision {
        // A link that ended took its clients elsewhere: they join there.
        if !self.links.is_open(join.link) {
            return Decision::Over;
        }
        let judged = self.revocations.known().judge_join(roster, &read.user, &join.join.session, now);
        let outcome = judged.map_err(Into::into).and_then(|()| match held_already(&join, read) {
            Some(grant) => Ok((grant, None)),
            None => self.decide_new(&join, read, now, self.timings_of(&roster.room)),
        });
        match outcome {
            Ok((grant, Some(change))) => {
                join.decided = Some(grant);
                Decision::Commit(keep(Work::Join(Box::new(join))), change, Some(grant))
            }
            Ok((grant, None)) => {
                self.tell(join.link, LinkDown::Joined { request: join.request, outcome: Ok(grant) });
                Decision::Over
            }
            Err(refusal) => {
                self.tell(join.link, LinkDown::Joined { request: join.request, outcome: Err(refusal) });
                Decision::Over
            }
        }
    }

    fn decide_new(
        &mut self,
        join: &JoinWork,
        read: &MemberRead,
        now: StoreTime,
        timings: RoomTimings,
    ) -> Result<Granted, LinkRefusal> {
        if let Err(refusal) = self.judge(&join.claims, now) {
            let told = self.refuse_token(join.link, refusal);
            // Whoever its edge brings back was there, and is told why that is over.
            let is_over = refusal == TokenRefusal::Revoked && join.join.rejoin.is_some();
            let over = LinkRefusal::Refused(Refusal::HasEnded { reason: RemovalReason::TokenRevoked });
            return Err(if is_over { over } else { told });
        }
        let granted = member::join(read, &join.join, now)?;
        let grant = GrantDown {
            lease: granted.lease,
            generation: granted.generation,
            since: granted.since,
            resumed: granted.resumed,
            token_ends: join.claims.token.ends,
            timings: Some(timings.of_lease(granted.lease.ttl())),
        };
        Ok((grant, granted.change))
    }

    fn decide_eviction(
        &mut self,
        (key, mut sessions): (QueryKey, BTreeSet<SessionId>),
        (roster, read): (&Roster, &MemberRead),
        now: StoreTime,
        keep: impl FnOnce(Work) -> Waiting,
    ) -> Decision {
        match member::evict(read, None, RemovalReason::Evicted, now) {
            Some(change) => {
                sessions.extend(evicted_sessions(&change));
                Decision::Commit(keep(Work::Evict { key, sessions }), Box::new(change), None)
            }
            None => {
                self.evicted(key, roster, (&read.user, sessions));
                Decision::Over
            }
        }
    }

    /// What of a sweep's findings still stands: not renewed since, and silence proves something. Who wants in again is
    /// not silent, however long that takes.
    fn still_due(&self, roster: &Roster, read: &MemberRead, due: Vec<Due>, now: StoreTime) -> Vec<Due> {
        let proves_nothing =
            self.sweep.is_distrusted(self.shard(roster)) || self.commits.returns(roster, &read.user);
        let stands = |due: &Due| match due.cause {
            DueCause::TokenEnd => true,
            DueCause::Deadline { .. } | DueCause::Missing if proves_nothing => false,
            DueCause::Deadline { .. } | DueCause::Missing => {
                read.leases.get(&due.lease.plain_name()).is_none_or(|state| state.deadline() <= now)
            }
        };
        due.into_iter().filter(stands).collect()
    }
}

/// A join whose outcome was lost, and which had happened.
fn held_already(join: &JoinWork, read: &MemberRead) -> Option<GrantDown> {
    let decided = join.decided?;
    let record = read.record.as_ref()?;
    let session = record.session_of(join.join.lease)?;
    Some(GrantDown { generation: session.generation, since: record.since, ..decided })
}

type Granted = (GrantDown, Option<Box<Change>>);
