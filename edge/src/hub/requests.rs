//! What was asked of the core and is not answered yet: said again on the next link, or when overdue.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use presence_model::id::{RoomId, UserId};
use presence_model::lease::LeaseId;
use presence_model::link::{LinkUp, RequestId, UnansweredJoin};
use presence_model::reason::LeaveReason;
use presence_model::time::Mono;

use super::ConnKey;
use super::rooms::RoomKey;
use super::uplink::Given;
use crate::limits::{JOINS_IN_FLIGHT_MAX, LATE_ANSWERS_MAX};

/// A request without its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// A session wants in, or is brought back; said with what its stay knows by then.
    Join { key: ConnKey, room: RoomKey, rank: Rank },
    /// Its session is over before the answer came: what is granted is left again.
    Unwanted(Box<UnansweredJoin>, LeaveReason),
    /// Something new about a session.
    Update { key: ConnKey, room: RoomKey, up: Box<LinkUp> },
    /// Transports given up.
    Release { leases: Vec<LeaseId>, given: Given, unanswered: Vec<UnansweredJoin> },
    /// The end of a session.
    Leave { lease: LeaseId, room: RoomId, user: UserId, reason: LeaveReason },
}

/// Who goes before whom while joins wait to be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    /// Brought back by this edge itself: ranks with renewals.
    Again,
    /// Was there before, as it says itself: its grace may be running.
    Returning,
    /// Comes for the first time.
    Newcomer,
}

#[derive(Debug)]
struct Pending {
    request: Request,
    /// Said on the link that is up.
    sent: bool,
    /// Said on any link: a core may have done it.
    said: bool,
    /// Answers to come over the link that is up: as many as it was said there and not answered yet.
    answers: u32,
    /// Looked at again then.
    due: Mono,
    /// A join that is not answered by then is given up.
    last: Mono,
}

/// For whom a join was, and how many more answers to it are to come.
#[derive(Debug)]
struct Late {
    key: ConnKey,
    room: RoomKey,
    answers: u32,
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    last: u64,
    pending: BTreeMap<RequestId, Pending>,
    dues: BTreeSet<(Mono, RequestId)>,
    /// Joins that wait to be said, a line for each rank.
    again: VecDeque<RequestId>,
    returning: VecDeque<RequestId>,
    newcomers: VecDeque<RequestId>,
    in_flight: usize,
    /// Joins that are over and to which further answers are to come, since they were said more than once.
    late: BTreeMap<RequestId, Late>,
}

impl Requests {
    /// The number of the request that is added next.
    pub(super) fn next_id(&self) -> RequestId {
        RequestId(self.last + 1)
    }

    /// Notes a request that is looked at again at `due`, and if it is a join puts it in its line.
    pub(super) fn add(&mut self, request: Request, due: Mono) -> RequestId {
        let id = self.next_id();
        self.line_up(id, &request);
        self.add_later(request, due)
    }

    /// Notes a join that waits in its line until `due`, and for its answer until `last`.
    pub(super) fn add_join(&mut self, join: Request, (due, last): (Mono, Mono)) -> RequestId {
        let id = self.add(join, due);
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.last = last;
        }
        id
    }

    /// Notes a request that is to be said at `due`.
    pub(super) fn add_later(&mut self, request: Request, due: Mono) -> RequestId {
        let id = self.next_id();
        self.last = id.0;
        self.dues.insert((due, id));
        self.pending.insert(id, Pending { request, sent: false, said: false, answers: 0, due, last: due });
        id
    }

    pub(super) fn get(&self, id: RequestId) -> Option<&Request> {
        self.pending.get(&id).map(|pending| &pending.request)
    }

    /// Whether it was said on this link or another: its answer may have been lost.
    pub(super) fn was_said(&self, id: RequestId) -> bool {
        self.pending.get(&id).is_some_and(|pending| pending.said)
    }

    /// It was answered, or is given up.
    pub(super) fn remove(&mut self, id: RequestId) -> Option<Request> {
        let pending = self.pending.remove(&id)?;
        self.dues.remove(&(pending.due, id));
        if pending.sent && is_join(&pending.request) {
            self.in_flight -= 1;
        }
        if let Request::Join { key, room, .. } = &pending.request
            && pending.answers > 0
        {
            self.late.insert(id, Late { key: *key, room: *room, answers: pending.answers });
            if self.late.len() > LATE_ANSWERS_MAX {
                self.late.pop_first();
            }
        }
        Some(pending.request)
    }

    /// One answer to a request came.
    pub(super) fn heard(&mut self, id: RequestId) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.answers = pending.answers.saturating_sub(1);
        }
    }

    /// A further answer to a join that was said more than once, and is over: for whom.
    pub(super) fn heard_late(&mut self, id: RequestId) -> Option<(ConnKey, RoomKey)> {
        let late = self.late.get_mut(&id)?;
        let whom = (late.key, late.room);
        late.answers -= 1;
        if late.answers == 0 {
            self.late.remove(&id);
        }
        Some(whom)
    }

    /// It is said now.
    pub(super) fn sent(&mut self, id: RequestId) {
        let Some(pending) = self.pending.get_mut(&id) else { return };
        pending.said = true;
        pending.answers += 1;
        if !std::mem::replace(&mut pending.sent, true) && is_join(&pending.request) {
            self.in_flight += 1;
        }
    }

    /// The session of a join is over.
    pub(super) fn unwanted(&mut self, id: RequestId, join: UnansweredJoin, reason: LeaveReason) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.request = Request::Unwanted(Box::new(join), reason);
        }
    }

    /// It is to be said again at `due`.
    pub(super) fn postpone(&mut self, id: RequestId, due: Mono) {
        let Some(pending) = self.pending.get_mut(&id) else { return };
        if std::mem::replace(&mut pending.sent, false) && is_join(&pending.request) {
            self.in_flight -= 1;
        }
        self.dues.remove(&(pending.due, id));
        pending.due = due;
        self.dues.insert((due, id));
    }

    /// Whether an overdue join may still be answered in time: it is on its way, or cannot be said to anybody.
    pub(super) fn waits_on(&mut self, id: RequestId, is_linked: bool, now: Mono) -> bool {
        let Some(pending) = self.pending.get_mut(&id) else { return false };
        if now >= pending.last || (is_linked && !pending.sent) {
            return false;
        }
        self.dues.remove(&(pending.due, id));
        pending.due = pending.last;
        self.dues.insert((pending.due, id));
        true
    }

    /// How many joins of clients wait to be said, those that are over meanwhile included.
    pub(super) fn line(&self) -> usize {
        self.returning.len() + self.newcomers.len()
    }

    /// It is due; a join lines up again.
    pub(super) fn say_again(&mut self, id: RequestId, due: Mono) {
        self.postpone(id, due);
        if let Some(request) = self.get(id).cloned() {
            self.line_up(id, &request);
        }
    }

    /// The next request that is overdue.
    pub(super) fn overdue(&self, now: Mono) -> Option<RequestId> {
        self.dues.first().filter(|(due, _)| *due <= now).map(|(_, id)| *id)
    }

    pub(super) fn due(&self) -> Option<Mono> {
        self.dues.first().map(|(due, _)| *due)
    }

    /// The next join to be said.
    pub(super) fn next_join(&mut self) -> Option<RequestId> {
        while self.in_flight < JOINS_IN_FLIGHT_MAX {
            let lines = [&mut self.again, &mut self.returning, &mut self.newcomers];
            let id = lines.into_iter().find_map(VecDeque::pop_front)?;
            if self.pending.get(&id).is_some_and(|pending| !pending.sent && is_join(&pending.request)) {
                return Some(id);
            }
        }
        None
    }

    /// The link is gone. Gives the joins that nobody waits for, whose answer will not come: they are
    /// to be released unseen.
    pub(super) fn unsay(&mut self) -> Vec<UnansweredJoin> {
        for line in [&mut self.again, &mut self.returning, &mut self.newcomers] {
            line.clear();
        }
        self.in_flight = 0;
        // What was said on a link is answered there, or never.
        self.late.clear();
        let mut unanswered = Vec::new();
        let ids: Vec<RequestId> = self.pending.keys().copied().collect();
        for id in ids {
            let pending = self.pending.get_mut(&id).expect("it is one of the keys");
            (pending.sent, pending.answers) = (false, 0);
            if let Request::Unwanted(join, _) = &pending.request {
                unanswered.push(UnansweredJoin::clone(join));
                self.remove(id);
                continue;
            }
            let request = pending.request.clone();
            self.line_up(id, &request);
        }
        unanswered
    }

    /// All that is to be said at once on a new link, in the order asked; joins have their own line.
    pub(super) fn unsaid(&self) -> Vec<RequestId> {
        let unsaid = self.pending.iter().filter(|(_, pending)| !pending.sent && !is_join(&pending.request));
        unsaid.map(|(id, _)| *id).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    fn line_up(&mut self, id: RequestId, request: &Request) {
        match request {
            Request::Join { rank: Rank::Again, .. } => self.again.push_back(id),
            Request::Join { rank: Rank::Returning, .. } => self.returning.push_back(id),
            Request::Join { rank: Rank::Newcomer, .. } => self.newcomers.push_back(id),
            Request::Unwanted(..)
            | Request::Update { .. }
            | Request::Release { .. }
            | Request::Leave { .. } => {}
        }
    }
}

/// Whether it is a join that takes a place among those in flight.
fn is_join(request: &Request) -> bool {
    matches!(request, Request::Join { .. } | Request::Unwanted(..))
}
