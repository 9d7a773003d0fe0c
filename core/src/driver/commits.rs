//! Decisions about members: read, decide, commit "if still as read"; refused ones read and decide again.
//!
//! One queue a roster. Whoever waits at the same time shares one read and one commit; a user is in one
//! commit at a time, so what one link says about one lease keeps its order. An outcome that was lost is
//! never repeated blindly: the member is read and decided again, and a join that finds the lease it
//! chose is simply granted.

mod decide;
mod queue;
mod requests;
mod settle;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use presence_model::claim::Claims;
use presence_model::id::{Generation, Roster, SessionId, UserId};
use presence_model::lease::{LeaseId, Shard};
use presence_model::link::{GrantDown, RequestId};
use presence_model::member;
use presence_model::reason::LeaveReason;
use presence_model::time::Mono;

use self::queue::Queue;
use super::releases::ReleaseKey;
use super::store_ops::Pending;
use super::{Driver, LinkKey, QueryKey};
use crate::limits::{COMMITS_WAITING_MAX, URGENT_COMMITS_WAITING_MAX};
use crate::store::Command;

/// What is wanted of a member.
#[derive(Debug)]
pub(super) enum Work {
    /// A session wants in.
    Join(Box<JoinWork>),
    /// A session says something new.
    Update { link: LinkKey, request: RequestId, update: Box<member::Update>, claims: Option<Box<Claims>> },
    /// A session is over at its edge's word.
    Leave { link: LinkKey, request: RequestId, lease: LeaseId, reason: LeaveReason },
    /// A join's answer was lost and its client is gone.
    Abandon { release: ReleaseKey, unanswered: member::Unanswered },
    /// Leases of a shard were found due.
    Expire { shard: Shard, due: Vec<member::Due>, by: FoundBy },
    /// Sessions that rest on something revoked are over.
    Revoke,
    /// An operator puts the user out. With the sessions that were decided to go.
    Evict { key: QueryKey, sessions: BTreeSet<SessionId> },
}

/// Who found leases due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FoundBy {
    /// The sweep, which waits to hear of each member.
    Sweep,
    /// The audit.
    Audit,
}

/// A join and what answers it.
#[derive(Debug)]
pub(super) struct JoinWork {
    link: LinkKey,
    request: RequestId,
    join: member::Join,
    claims: Claims,
    /// The answer of the decision under way, should its outcome be lost.
    decided: Option<GrantDown>,
}

impl Work {
    /// Ranks with renewals: not refused because others wait.
    fn is_urgent(&self) -> bool {
        match self {
            Self::Join(join) => join.join.rejoin.is_some(),
            Self::Update { .. } => false,
            Self::Leave { .. }
            | Self::Abandon { .. }
            | Self::Expire { .. }
            | Self::Revoke
            | Self::Evict { .. } => true,
        }
    }

    /// Goes before what may wait: it is urgent, or its grace may be running.
    fn is_pressing(&self) -> bool {
        match self {
            Self::Join(_) => self.is_return(),
            Self::Update { .. } => false,
            Self::Leave { .. }
            | Self::Abandon { .. }
            | Self::Expire { .. }
            | Self::Revoke
            | Self::Evict { .. } => true,
        }
    }

    /// A session that was there before, as its edge knows or it says itself, wants in again.
    fn is_return(&self) -> bool {
        matches!(self, Self::Join(work) if work.join.rejoin.is_some() || is_return(work.join.generation))
    }
}

/// Whether a session was there before in this tab, as it says itself by its generation.
pub(super) fn is_return(generation: Option<Generation>) -> bool {
    generation.is_some_and(|generation| generation > Generation(1))
}

#[derive(Debug)]
struct Waiting {
    user: UserId,
    work: Work,
    since: Mono,
    tries: u8,
    /// A commit for it was sent and its outcome lost: it may have happened.
    in_doubt: bool,
}

/// One that is in the commit under way.
#[derive(Debug)]
struct Decided {
    waiting: Waiting,
    grant: Option<GrantDown>,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Idle,
    Reading(Vec<Waiting>),
    Committing(Vec<Decided>),
}

/// The queues of all rosters about which something is to be decided.
#[derive(Debug, Default)]
pub(super) struct Commits {
    queues: BTreeMap<Roster, Queue>,
    ready: BTreeSet<Roster>,
    later: BTreeSet<(Mono, Roster)>,
    waiting: usize,
}

impl Commits {
    /// When a queue is to be tried again.
    pub(super) fn due(&self) -> Option<Mono> {
        self.later.first().map(|(at, _)| *at)
    }

    /// How much waits, or is under way, over all rosters.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// How long the first of those waits who are to be served before one more of this roster, and how many they are.
    pub(super) fn wait(&self, roster: &Roster, now: Mono) -> (Duration, usize) {
        let Some(queue) = self.queues.get(roster) else { return (Duration::ZERO, 0) };
        let (first, under_way) = match &queue.stage {
            Stage::Idle => (None, 0),
            Stage::Reading(batch) => (batch.iter().map(|waiting| waiting.since).min(), batch.len()),
            Stage::Committing(batch) => {
                (batch.iter().map(|decided| decided.waiting.since).min(), batch.len())
            }
        };
        let first = first.into_iter().chain(queue.first()).min();
        (first.map_or(Duration::ZERO, |since| now.since(since)), under_way + queue.len())
    }

    /// The same for one more that presses, of those who are not served yet.
    pub(super) fn wait_pressing(&self, roster: &Roster, now: Mono) -> (Duration, usize) {
        let pressing = self.queues.get(roster).map(Queue::pressing);
        let (count, first) = pressing.unwrap_or_default();
        (first.map_or(Duration::ZERO, |since| now.since(since)), count)
    }

    /// Whether a session of this user that was there before wants in again, and waits for it.
    pub(super) fn returns(&self, roster: &Roster, user: &UserId) -> bool {
        self.queues.get(roster).is_some_and(|queue| queue.returns(user))
    }
}

impl Driver {
    /// Puts work into a roster's queue, or refuses it as too much waits.
    pub(super) fn enqueue(&mut self, roster: Roster, user: UserId, work: Work) {
        let most = if work.is_urgent() { URGENT_COMMITS_WAITING_MAX } else { COMMITS_WAITING_MAX };
        let waiting = Waiting { user, work, since: self.now, tries: 0, in_doubt: false };
        if self.commits.waiting >= most {
            return self.refuse(waiting);
        }
        self.commits.waiting += 1;
        let queue = self.commits.queues.entry(roster.clone()).or_default();
        queue.push(waiting);
        if matches!(queue.stage, Stage::Idle) && queue.not_before.is_none() {
            self.commits.ready.insert(roster);
        }
    }

    /// Reads for every queue that waits and has nothing under way.
    pub(super) fn start_reads(&mut self) {
        while let Some((at, roster)) = self.commits.later.first().cloned()
            && at <= self.now
        {
            self.commits.later.pop_first();
            if let Some(queue) = self.commits.queues.get_mut(&roster) {
                queue.not_before = None;
                self.commits.ready.insert(roster);
            }
        }
        for roster in std::mem::take(&mut self.commits.ready) {
            self.start_read(&roster);
        }
    }

    fn start_read(&mut self, roster: &Roster) {
        let Some(queue) = self.commits.queues.get_mut(roster) else { return };
        if !matches!(queue.stage, Stage::Idle) || queue.not_before.is_some() {
            return;
        }
        let batch = queue.take_batch();
        if batch.is_empty() {
            self.commits.queues.remove(roster);
            return;
        }
        let users = batch.iter().map(|waiting| waiting.user.clone()).collect();
        queue.stage = Stage::Reading(batch);
        self.ask(Command::Members { roster: roster.clone(), users }, Pending::Read(roster.clone()));
    }

    /// Puts a queue back to work after its read or commit.
    fn resume(&mut self, roster: &Roster) {
        self.commits.ready.insert(roster.clone());
    }

    fn put_off(&mut self, roster: &Roster, until: Mono) {
        if let Some(queue) = self.commits.queues.get_mut(roster) {
            queue.not_before = Some(until);
            self.commits.later.insert((until, roster.clone()));
        }
    }

    /// Puts work back in front of its queue, in the order it had.
    fn put_back(&mut self, roster: &Roster, again: Vec<Waiting>) {
        let Some(queue) = self.commits.queues.get_mut(roster) else { return };
        self.commits.waiting += again.len();
        queue.put_back(again);
    }

    fn take_stage(&mut self, roster: &Roster) -> Stage {
        let stage = self.commits.queues.get_mut(roster).map(|queue| std::mem::take(&mut queue.stage));
        let stage = stage.unwrap_or_default();
        self.commits.waiting -= match &stage {
            Stage::Idle => 0,
            Stage::Reading(batch) => batch.len(),
            Stage::Committing(batch) => batch.len(),
        };
        stage
    }

    fn put_stage(&mut self, roster: &Roster, batch: Vec<Decided>) {
        if let Some(queue) = self.commits.queues.get_mut(roster) {
            self.commits.waiting += batch.len();
            queue.stage = Stage::Committing(batch);
        }
    }
}
