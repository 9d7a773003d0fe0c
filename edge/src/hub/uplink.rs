//! What the core is told: joins, updates, releases, goodbyes, each kept until it is answered.

use std::time::Duration;

use presence_model::crowd::Window;
use presence_model::cursor::Cursor;
use presence_model::id::{ConnectionId, RoomId, UserId};
use presence_model::lease::LeaseId;
use presence_model::link::{JoinUp, LinkUp, RequestId, UnansweredJoin};
use presence_model::reason::{LeaveReason, ReleaseReason};
use presence_model::time::Mono;
use rand::RngExt as _;

use super::requests::{Rank, Request};
use super::rooms::RoomKey;
use super::table::{Session, Showing, Standing, Stay};
use super::{ConnKey, Cx, Effect, Hub};
use crate::limits::{COME_BACK_LEAST, COME_BACK_MOST, JOIN_LINE_PART, RENEWAL_BATCH_MAX};
use crate::protocol::codes::Told;
use crate::protocol::{ErrorCode, Since};

/// Why a transport is given up, and what its client was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Given {
    pub(super) reason: ReleaseReason,
    /// What is left of the span after which it was to come back, in whole seconds: so that few differ.
    pub(super) hint_s: u32,
}

impl From<ReleaseReason> for Given {
    fn from(reason: ReleaseReason) -> Self {
        Self { reason, hint_s: 0 }
    }
}

impl Given {
    /// Because this edge goes: the client was told to come back elsewhere then.
    pub(super) fn drain(back: Mono, now: Mono) -> Self {
        let left = back.since(now);
        let whole = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        Self { reason: ReleaseReason::Drain, hint_s: u32::try_from(whole).unwrap_or(u32::MAX) }
    }
}

impl Hub {
    /// Says a request over the link, if it is up.
    pub(super) fn say(&mut self, id: RequestId, cx: &mut Cx<'_>) {
        if !self.link.is_up() {
            return;
        }
        let Some(request) = self.requests.get(id) else { return };
        let up = match request {
            Request::Join { key, room, rank } => match self.join_up(id, (*key, *room), *rank) {
                Some(join) => LinkUp::Join(Box::new(join)),
                None => {
                    self.requests.remove(id);
                    return;
                }
            },
            Request::Unwanted(..) => return,
            Request::Update { up, .. } => LinkUp::clone(up),
            Request::Release { leases, given, unanswered } => LinkUp::Release {
                request: id,
                leases: leases.clone(),
                reason: given.reason,
                hint: Duration::from_secs(given.hint_s.into()),
                unanswered: unanswered.clone(),
            },
            Request::Leave { lease, room, user, reason } => LinkUp::Leave {
                request: id,
                lease: *lease,
                room: room.clone(),
                user: user.clone(),
                reason: *reason,
            },
        };
        self.requests.sent(id);
        cx.out.push(Effect::Link(up));
    }

    fn join_up(&self, request: RequestId, (key, room): (ConnKey, RoomKey), rank: Rank) -> Option<JoinUp> {
        let conn = self.conns.get(key)?;
        let stay = conn.stay(room)?;
        let session = stay.session.as_deref()?;
        let again = rank == Rank::Again;
        let rejoin = match session.standing {
            Standing::Lost { since, request: Some(own) } if own == request && again => Some(since),
            Standing::Joining { request: own, .. } if own == request && !again => None,
            Standing::Lost { .. } | Standing::Joining { .. } | Standing::Joined { .. } => return None,
        };
        let cursor = match &stay.showing {
            Showing::Later(Since::Cursor(cursor)) => cursor.clone(),
            Showing::Later(_) | Showing::No | Showing::Yes(_) => Cursor::default(),
        };
        Some(JoinUp {
            request,
            room: self.rooms.name(room),
            token: stay.token.clone(),
            session: session.id.clone(),
            generation: session.generation,
            connection: conn.id,
            profile: session.profile.clone(),
            client: session.client.clone(),
            rejoin,
            cursor,
        })
    }

    /// Says joins that wait, as many as may be in flight.
    pub(super) fn say_joins(&mut self, cx: &mut Cx<'_>) {
        if !self.link.is_up() {
            return;
        }
        while let Some(id) = self.requests.next_join() {
            self.say(id, cx);
            if let Some(Request::Join { key, room, .. }) = self.requests.get(id) {
                let (key, room) = (*key, *room);
                // What it says need not be said again.
                if let Some(session) = self.conns.get_mut(key).and_then(|conn| conn.session_mut(room)) {
                    session.unsaid = Default::default();
                }
            }
        }
    }

    /// Says what is new about a session, one update at a time.
    pub(super) fn say_update(&mut self, key: ConnKey, room: RoomKey, cx: &mut Cx<'_>) {
        let Some(name) = self.name_in(key, room) else { return };
        let Some(stay) = self.conns.get_mut(key).and_then(|conn| conn.stay_mut(room)) else { return };
        let Some(session) = stay.session.as_deref_mut() else { return };
        let (Some(lease), None, true) = (session.lease(), session.updating, session.unsaid.any()) else {
            return;
        };
        let unsaid = std::mem::take(&mut session.unsaid);
        session.said = (unsaid.with(session.said_within(self.timings.lease_ttl, cx.now)), cx.now);
        let mut up = LinkUp::Update {
            request: RequestId(0),
            lease,
            room: name,
            user: stay.user.clone(),
            status: unsaid.status.then_some(session.profile.status),
            state: unsaid.state.then(|| session.profile.state.clone()),
            token: unsaid.token.then(|| stay.token.clone()),
        };
        let due = cx.now + self.timings.ack_within;
        let id = self.requests.next_id();
        if let LinkUp::Update { request, .. } = &mut up {
            *request = id;
        }
        session.updating = Some(id);
        self.requests.add(Request::Update { key, room, up: Box::new(up) }, due);
        self.say(id, cx);
    }

    /// Says that a lease is over.
    pub(super) fn leave_lease(
        &mut self,
        (lease, reason): (LeaseId, LeaveReason),
        (room, user): (RoomId, UserId),
        cx: &mut Cx<'_>,
    ) {
        self.forget_lease(lease);
        let due = cx.now + self.timings.ack_within;
        let id = self.requests.add(Request::Leave { lease, room, user, reason }, due);
        self.say(id, cx);
    }

    /// Gives a lease up; said before this input is done.
    pub(super) fn release(&mut self, given: impl Into<Given>, lease: LeaseId) {
        self.forget_lease(lease);
        self.releasing.entry(given.into()).or_default().push(lease);
    }

    /// Its client is gone: the core is told what to do with a join whose answer nobody waits for.
    pub(super) fn disown(
        &mut self,
        request: RequestId,
        (stay, session): (&Stay, &Session),
        connection: ConnectionId,
    ) {
        if self.requests.was_said(request) {
            let join = self.unanswered_join(request, (stay, session), connection);
            self.unanswered.push(join);
        }
    }

    /// A join whose answer nobody waits for, as the core is told of it.
    pub(super) fn unanswered_join(
        &self,
        request: RequestId,
        (stay, session): (&Stay, &Session),
        connection: ConnectionId,
    ) -> UnansweredJoin {
        UnansweredJoin {
            room: self.rooms.name(stay.room),
            user: stay.user.clone(),
            session: session.id.clone(),
            generation: session.generation,
            connection,
            request,
        }
    }

    /// Without a link it is kept: at most all leases and joins of the last one.
    pub(super) fn say_releases(&mut self, cx: &mut Cx<'_>) {
        if !self.link.is_up() {
            return;
        }
        let due = cx.now + self.timings.ack_within;
        for (given, leases) in std::mem::take(&mut self.releasing) {
            for leases in leases.chunks(RENEWAL_BATCH_MAX) {
                let request = Request::Release { leases: leases.to_vec(), given, unanswered: Vec::new() };
                let id = self.requests.add(request, due);
                self.say(id, cx);
            }
        }
        let unanswered = std::mem::take(&mut self.unanswered);
        for unanswered in unanswered.chunks(RENEWAL_BATCH_MAX / 8) {
            let request = Request::Release {
                leases: Vec::new(),
                given: ReleaseReason::TransportLost.into(),
                unanswered: unanswered.to_vec(),
            };
            let id = self.requests.add(request, due);
            self.say(id, cx);
        }
    }

    /// Says again what is overdue; joins of clients that waited long enough are refused.
    pub(super) fn tick_requests(&mut self, cx: &mut Cx<'_>) {
        while let Some(id) = self.requests.overdue(cx.now) {
            let due = cx.now + self.timings.ack_within;
            let is_up = self.link.is_up();
            match self.requests.get(id) {
                Some(Request::Join { key, room, rank: rank @ (Rank::Returning | Rank::Newcomer) }) => {
                    let (key, room, rank) = (*key, *room, *rank);
                    self.join_overdue(id, (key, room), rank, cx);
                }
                Some(Request::Unwanted(join, _)) => {
                    let join = UnansweredJoin::clone(join);
                    self.requests.remove(id);
                    self.unanswered.push(join);
                }
                // On the next link all is said anyway.
                Some(_) if !is_up => self.requests.postpone(id, due),
                Some(Request::Join { rank: Rank::Again, .. }) => {
                    self.requests.say_again(id, cx.now + self.timings.heartbeat);
                }
                Some(Request::Update { .. } | Request::Release { .. } | Request::Leave { .. }) => {
                    self.requests.postpone(id, due);
                    self.say(id, cx);
                }
                None => {}
            }
        }
    }

    fn join_overdue(&mut self, id: RequestId, (key, room): (ConnKey, RoomKey), rank: Rank, cx: &mut Cx<'_>) {
        let is_linked = self.link.is_up();
        if self.requests.waits_on(id, is_linked, cx.now) {
            return;
        }
        self.count_refused(key, room);
        let has_waited_in_line = is_linked && !self.requests.was_said(id);
        if let Some(conn) = self.conns.get(key)
            && let Some(stay) = conn.stay(room)
            && let Some(session) = stay.session.as_deref()
            && self.requests.was_said(id)
        {
            let join = self.unanswered_join(id, (stay, session), conn.id);
            self.unanswered.push(join);
        }
        self.requests.remove(id);
        let Some(name) = self.name_in(key, room) else { return };
        self.drop_stay(key, room, cx.now);
        let (retry_after, why) = if has_waited_in_line {
            self.counts.joins_shed += 1;
            (self.after_the_line(rank, cx.now), "too many want in at once")
        } else {
            let jitter = self.chance.random_range(0.5..1.0);
            (self.timings.reconnect_within.mul_f64(jitter), "the core did not answer")
        };
        let told = Told { code: ErrorCode::Unavailable, retry_after: Some(retry_after), generation: None };
        self.refuse(key, (Some(name), told), why, cx);
        self.roomless_for(key, retry_after);
    }

    /// A moment of its own for a join that has waited too long behind others: as fast as these were said.
    fn after_the_line(&mut self, rank: Rank, now: Mono) -> Duration {
        let waited = self.timings.heartbeat / JOIN_LINE_PART;
        let line = u32::try_from(self.requests.line()).unwrap_or(u32::MAX).max(1);
        let chance = self.chance.random_range(0.0..1.0);
        let (crowd, most) = match rank {
            Rank::Newcomer => (&mut self.crowd, COME_BACK_MOST),
            // Several times within its grace.
            Rank::Returning | Rank::Again => (&mut self.returning, self.timings.reconnect_within / 2),
        };
        let window = Window { least: COME_BACK_LEAST.min(most), most };
        crowd.hint(waited / line, window, chance, now)
    }
}
