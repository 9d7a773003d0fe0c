//! What the core says about sessions, and how stays, leases and connections end.

use std::time::Duration;

use presence_model::id::Generation;
use presence_model::lease::LeaseId;
use presence_model::link::{GrantDown, LinkRefusal, RequestId};
use presence_model::reason::{ReleaseReason, RemovalReason};
use presence_model::refusal::Refusal;
use presence_model::time::{Mono, StoreTime};

use super::liveness::is_there;
use super::requests::{Rank, Request};
use super::rooms::RoomKey;
use super::sessions::warn_at;
use super::table::{Session, Showing, Standing, Unsaid};
use super::uplink::Given;
use super::{ConnKey, Cx, Effect, Hub};
use crate::limits::FIRST_MESSAGE_WITHIN;
use crate::protocol::codes::{RefusalMeans, Told};
use crate::protocol::{CloseCode, ErrorCode, ServerMessage, Since};

impl Hub {
    pub(super) fn join_answered(
        &mut self,
        request: RequestId,
        outcome: Result<GrantDown, LinkRefusal>,
        cx: &mut Cx<'_>,
    ) {
        self.requests.heard(request);
        if let Err(LinkRefusal::Unavailable { retry_after }) = outcome
            && let Some(Request::Join { rank: Rank::Again, .. }) = self.requests.get(request)
        {
            // Under its number: it may have been said twice, and the second answer may grant it.
            return self.requests.postpone(request, cx.now + retry_after);
        }
        let late = self.requests.heard_late(request);
        let asked = self.requests.remove(request);
        match (asked, outcome) {
            (Some(Request::Join { key, room, rank }), Ok(grant)) => match rank {
                Rank::Again => self.rejoined(key, room, grant, cx),
                Rank::Returning | Rank::Newcomer => self.joined(key, room, grant, cx),
            },
            (Some(Request::Join { key, room, rank }), Err(refusal)) => match rank {
                Rank::Again => self.rejoin_refused(key, room, refusal, cx),
                Rank::Returning | Rank::Newcomer => self.join_refused(key, room, refusal, cx),
            },
            (Some(Request::Unwanted(join, reason)), Ok(grant)) => {
                self.leave_lease((grant.lease, reason), (join.room, join.user), cx);
            }
            (_, Ok(grant)) => self.granted_late(grant, late, cx),
            (_, Err(_)) => {}
        }
    }

    /// A grant that nobody waits for. A join that was said twice is answered twice, most often with the same
    /// lease; with another one if what the first answer granted was lost meanwhile, else it would have been
    /// granted again: then that is the one in force. What a session that is gone was granted is given up.
    fn granted_late(&mut self, grant: GrantDown, late: Option<(ConnKey, RoomKey)>, cx: &mut Cx<'_>) {
        if self.leases.contains_key(&grant.lease) {
            return;
        }
        let Some((key, room)) = late.filter(|whom| self.is_in_as(*whom, grant.generation)) else {
            return self.release(ReleaseReason::TransportLost, grant.lease);
        };
        self.rejoined(key, room, grant, cx);
    }

    /// Whether a session is in with this generation, or was until its lease was lost.
    fn is_in_as(&self, (key, room): (ConnKey, RoomKey), generation: Generation) -> bool {
        let session = self.conns.get(key).and_then(|conn| conn.stay(room)?.session.as_deref());
        session.is_some_and(|session| match session.standing {
            Standing::Joined { .. } | Standing::Lost { .. } => session.generation == Some(generation),
            Standing::Joining { .. } => false,
        })
    }

    fn joined(&mut self, key: ConnKey, room: RoomKey, grant: GrantDown, cx: &mut Cx<'_>) {
        if !self.grant(key, room, grant, cx.now) {
            return;
        }
        let Some(name) = self.name_in(key, room) else { return };
        let Some(stay) = self.conns.get_mut(key).and_then(|conn| conn.stay_mut(room)) else { return };
        let since = match std::mem::replace(&mut stay.showing, Showing::No) {
            Showing::Later(since) => Some(since),
            showing @ (Showing::No | Showing::Yes(_)) => {
                stay.showing = showing;
                None
            }
        };
        let Some(session) = stay.session.as_deref() else { return };
        let joined = ServerMessage::Joined {
            room: name,
            session: session.id.clone(),
            generation: grant.generation,
            since: grant.since,
            resumed: grant.resumed,
            timings: session.timings.unwrap_or(self.timings.usual()),
        };
        self.answer(key, &joined, cx);
        if let Some(since) = since {
            self.show(key, room, since, cx.now);
        }
        self.say_update(key, room, cx);
        self.arm(key);
    }

    fn rejoined(&mut self, key: ConnKey, room: RoomKey, grant: GrantDown, cx: &mut Cx<'_>) {
        self.counts.rejoins += 1;
        if self.grant(key, room, grant, cx.now) {
            self.say_update(key, room, cx);
            self.arm(key);
        }
    }

    /// Notes a grant, which ends what was granted before; false, and the lease given up, if its session is gone.
    fn grant(&mut self, key: ConnKey, room: RoomKey, grant: GrantDown, now: Mono) -> bool {
        let store_time = self.link.store_time(now);
        let timings = grant.timings.unwrap_or(self.timings.usual());
        let renewed = self.first_renewed(timings.heartbeat, now);
        let stay = self.conns.get_mut(key).and_then(|conn| conn.stay_mut(room));
        let Some((stay, session)) = stay.and_then(|stay| {
            let session = stay.session.as_deref_mut()?;
            stay.rests_on.ends = grant.token_ends;
            stay.warn_at = Some(warn_at(grant.token_ends, store_time));
            Some((stay.room, session))
        }) else {
            self.release(ReleaseReason::TransportLost, grant.lease);
            return false;
        };
        session.generation = Some(grant.generation);
        session.timings = Some(timings);
        if !session.unsaid.token {
            session.taken = None;
        }
        let before = session.lease().filter(|before| *before != grant.lease);
        session.standing =
            Standing::Joined { lease: grant.lease, since: grant.since, renewed, marked: false };
        if let Some(before) = before {
            self.forget_lease(before);
        }
        self.leases.insert(grant.lease, (key, stay));
        self.pace(key, now);
        true
    }

    fn join_refused(&mut self, key: ConnKey, room: RoomKey, refusal: LinkRefusal, cx: &mut Cx<'_>) {
        self.count_refused(key, room);
        match RefusalMeans::from(refusal) {
            RefusalMeans::Ended(reason) => self.end_stay(key, room, reason, cx),
            RefusalMeans::Error(told) => self.drop_refused(key, room, (told, &refusal), cx),
            // Not an answer to a join.
            RefusalMeans::LeaseLost => {
                self.drop_refused(key, room, (ErrorCode::Unavailable.into(), &refusal), cx);
            }
        }
    }

    pub(super) fn count_refused(&mut self, key: ConnKey, room: RoomKey) {
        let stay = self.conns.get(key).and_then(|conn| conn.stay(room));
        if matches!(stay.map(|stay| &stay.showing), Some(Showing::Later(since)) if *since != Since::Nowhere) {
            self.counts.reconnects.refused += 1;
        }
    }

    fn drop_refused(
        &mut self,
        key: ConnKey,
        room: RoomKey,
        (told, refusal): (Told, &LinkRefusal),
        cx: &mut Cx<'_>,
    ) {
        let Some(name) = self.name_in(key, room) else { return };
        self.drop_stay(key, room, cx.now);
        self.refuse(key, (Some(name), told), &refusal.to_string(), cx);
        if let Some(wait) = told.retry_after {
            self.roomless_for(key, wait);
        }
    }

    /// An automatic re-join was refused: the session is over, and the client is told why.
    fn rejoin_refused(&mut self, key: ConnKey, room: RoomKey, refusal: LinkRefusal, cx: &mut Cx<'_>) {
        if is_of_tokens(refusal) && self.has_another_token(key, room, cx.now) {
            if let RefusalMeans::Error(told) = RefusalMeans::from(refusal) {
                let name = self.name_in(key, room);
                self.refuse(key, (name, told), &refusal.to_string(), cx);
            }
            return self.join_again(key, room, cx);
        }
        match refusal {
            LinkRefusal::Refused(Refusal::HasEnded { reason: RemovalReason::Left }) => {
                // The client said goodbye somewhere else: it needs no answer here.
                self.drop_stay(key, room, cx.now);
                self.close_if_empty(key, CloseCode::Normal, cx);
            }
            LinkRefusal::Refused(Refusal::HasEnded { reason }) => self.end_stay(key, room, reason, cx),
            LinkRefusal::Refused(Refusal::StaleGeneration { .. }) => {
                self.end_stay(key, room, RemovalReason::Superseded, cx);
            }
            LinkRefusal::Refused(Refusal::TokenEnded) => {
                self.end_stay(key, room, RemovalReason::TokenExpired, cx);
            }
            LinkRefusal::Unauthorized => {
                let reason = self.why_unauthorized(key, room, cx.now);
                self.end_stay(key, room, reason, cx);
            }
            LinkRefusal::Refused(Refusal::TooManySessions | Refusal::NotCurrent | Refusal::NotPresent)
            | LinkRefusal::Forbidden
            | LinkRefusal::BadRequest
            | LinkRefusal::Unavailable { .. } => self.join_refused(key, room, refusal, cx),
        }
    }

    /// Whether a session whose token was refused has another to come back with: one that was sent meanwhile, or the one
    /// before, which a core took. It rests on that one then.
    fn has_another_token(&mut self, key: ConnKey, room: RoomKey, now: Mono) -> bool {
        let store_time = self.link.store_time(now);
        let Some(stay) = self.conns.get_mut(key).and_then(|conn| conn.stay_mut(room)) else { return false };
        let Some(session) = stay.session.as_deref_mut() else { return false };
        let Standing::Lost { since, .. } = session.standing else { return false };
        let is_newer = std::mem::take(&mut session.unsaid).token;
        let before = if is_newer { None } else { session.taken.take() };
        if !is_newer && before.is_none() {
            return false;
        }
        session.standing = Standing::Lost { request: None, since };
        if let Some(before) = before {
            stay.rest_on(*before, store_time);
        }
        true
    }

    /// Why a token that was taken is not taken any more: it or its key was taken back, of which the core may hear before
    /// this edge does. Of one that has ended only a core of an earlier release says no more than this.
    fn why_unauthorized(&self, key: ConnKey, room: RoomKey, now: Mono) -> RemovalReason {
        let stay = self.conns.get(key).and_then(|conn| conn.stay(room));
        let (ends, store_time) = (stay.map(|stay| stay.rests_on.ends), self.link.store_time(now));
        if ends.zip(store_time).is_some_and(|(ends, store_time)| store_time >= ends) {
            RemovalReason::TokenExpired
        } else {
            RemovalReason::TokenRevoked
        }
    }

    /// A release, update or leave is answered.
    pub(super) fn request_done(
        &mut self,
        id: RequestId,
        outcome: Result<Option<StoreTime>, LinkRefusal>,
        cx: &mut Cx<'_>,
    ) {
        if let Err(LinkRefusal::Unavailable { retry_after }) = outcome {
            return self.requests.postpone(id, cx.now + retry_after);
        }
        let Some(Request::Update { key, room, .. }) = self.requests.remove(id) else { return };
        let store_time = self.link.store_time(cx.now);
        let Some(stay) = self.conns.get_mut(key).and_then(|conn| conn.stay_mut(room)) else { return };
        let Some(session) = stay.session.as_deref_mut().filter(|session| session.updating == Some(id)) else {
            return;
        };
        session.updating = None;
        let lease = session.lease();
        let refused = outcome.err();
        // If yet another token came meanwhile, that one is to be judged; if the lease is gone, the join that follows is.
        let is_judged =
            !session.unsaid.token && refused.map(RefusalMeans::from) != Some(RefusalMeans::LeaseLost);
        let before = if is_judged { session.taken.take() } else { None };
        if let Some(before) = before.filter(|_| refused.is_some_and(is_of_tokens)) {
            // The session rests on the one that it came with.
            stay.rest_on(*before, store_time);
        }
        match outcome {
            Ok(token_ends) => {
                if let Some(ends) = token_ends {
                    stay.rests_on.ends = ends;
                    stay.warn_at = Some(warn_at(ends, store_time));
                }
            }
            Err(refusal) => match RefusalMeans::from(refusal) {
                RefusalMeans::Error(told) => {
                    let name = self.name_in(key, room);
                    self.refuse(key, (name, told), &refusal.to_string(), cx);
                }
                RefusalMeans::Ended(reason) => return self.end_stay(key, room, reason, cx),
                RefusalMeans::LeaseLost => {
                    if let Some(lease) = lease {
                        self.lease_gone(lease, cx);
                    }
                }
            },
        }
        self.say_update(key, room, cx);
        self.arm(key);
    }

    /// The core ended a lease.
    pub(super) fn lease_ended(&mut self, lease: LeaseId, reason: RemovalReason, cx: &mut Cx<'_>) {
        let Some((key, room)) = self.leases.get(&lease).copied() else { return };
        match reason {
            // For silence, and yet its connection stands here: it may come back under the same generation.
            RemovalReason::LeaseExpired | RemovalReason::EdgeLost | RemovalReason::ConnectionLost => {
                self.lease_gone(lease, cx);
            }
            RemovalReason::Left
            | RemovalReason::Superseded
            | RemovalReason::Evicted
            | RemovalReason::TokenExpired
            | RemovalReason::TokenRevoked
            | RemovalReason::RegionLost => {
                if reason == RemovalReason::Superseded {
                    self.counts.reconnects.superseded += 1;
                }
                self.end_stay(key, room, reason, cx);
            }
        }
    }

    /// Nobody has this lease: its session is joined again if it is there, else asked whether it is.
    pub(super) fn lease_gone(&mut self, lease: LeaseId, cx: &mut Cx<'_>) {
        let Some((key, room)) = self.leases.get(&lease).copied() else { return };
        self.forget_lease(lease);
        let Some(conn) = self.conns.get_mut(key) else { return };
        let Some(session) = conn.session_mut(room) else { return };
        if let Standing::Joined { since, .. } = session.standing {
            session.standing = Standing::Lost { request: None, since };
        }
        // The join that follows says all there is to say.
        session.unsaid = Unsaid::default();
        if let Some(update) = session.updating.take() {
            self.requests.remove(update);
        }
        if self.conns.get(key).is_some_and(|conn| is_there(conn, cx.now)) {
            self.join_again(key, room, cx);
        } else {
            self.ping(key, cx);
        }
    }

    /// Brings a session back whose lease is gone.
    pub(super) fn join_again(&mut self, key: ConnKey, room: RoomKey, cx: &Cx<'_>) {
        let due = cx.now + self.timings.heartbeat;
        let Some(session) = self.conns.get_mut(key).and_then(|conn| conn.session_mut(room)) else { return };
        if let Standing::Lost { request, since } = &mut session.standing
            && request.is_none()
        {
            let id = self.requests.add(Request::Join { key, room, rank: Rank::Again }, due);
            session.standing = Standing::Lost { request: Some(id), since: *since };
        }
    }

    /// A session or a watch is over for this reason; the client is told.
    pub(super) fn end_stay(&mut self, key: ConnKey, room: RoomKey, reason: RemovalReason, cx: &mut Cx<'_>) {
        let Some(name) = self.name_in(key, room) else { return };
        self.drop_stay(key, room, cx.now);
        self.notify(key, &ServerMessage::Ended { room: name, reason }, cx);
        self.close_if_empty(key, CloseCode::of_ending(reason), cx);
    }

    fn close_if_empty(&mut self, key: ConnKey, code: CloseCode, cx: &mut Cx<'_>) {
        if self.conns.get(key).is_some_and(|conn| conn.stays.is_empty()) {
            self.close(key, code, ReleaseReason::TransportLost, cx);
        }
    }

    /// Takes a connection out of a room; says nothing to anybody.
    pub(super) fn drop_stay(&mut self, key: ConnKey, room: RoomKey, now: Mono) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let Some(stay) = conn.leave(room) else { return };
        if conn.stays.is_empty() {
            conn.roomless = Some(now + FIRST_MESSAGE_WITHIN);
        }
        if let Some(session) = stay.session.as_deref() {
            self.forget_session(session);
        }
        self.leave_room(room, stay.showing, now);
        self.pace(key, now);
        self.arm(key);
    }

    fn forget_session(&mut self, session: &Session) {
        if let Some(update) = session.updating {
            self.requests.remove(update);
        }
        match session.standing {
            Standing::Joined { lease, .. } => self.forget_lease(lease),
            Standing::Joining { request, old } => {
                self.drop_join(request);
                if let Some(old) = old {
                    self.release(ReleaseReason::TransportLost, old);
                }
            }
            Standing::Lost { request: Some(request), .. } => self.drop_join(request),
            Standing::Lost { request: None, .. } => {}
        }
    }

    fn drop_join(&mut self, request: RequestId) {
        // A join whose client said goodbye is still answered to.
        if matches!(self.requests.get(request), Some(Request::Join { .. })) {
            self.requests.remove(request);
        }
    }

    pub(super) fn leave_room(&mut self, room: RoomKey, showing: Showing, now: Mono) {
        self.unwatch(room, showing, now);
        self.rooms.leave(room);
    }

    /// Takes a receiver away; another one may have moved to its place.
    pub(super) fn unwatch(&mut self, room: RoomKey, showing: Showing, now: Mono) {
        if let Showing::Yes(show) = showing
            && let Some(moved) = self.rooms.unwatch(room, show.place, now)
            && let Some(key) = self.conns.key_at(moved)
            && let Some(stay) = self.conns.get_mut(key).and_then(|conn| conn.stay_mut(room))
            && let Showing::Yes(other) = &mut stay.showing
        {
            other.place = show.place;
        }
    }

    /// A connection without a room is told to come back so much later: until then it may stay as it is.
    pub(super) fn roomless_for(&mut self, key: ConnKey, wait: Duration) {
        if let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.stays.is_empty()) {
            conn.roomless = conn.roomless.map(|at| at + wait);
        }
        self.arm(key);
    }

    pub(super) fn forget_lease(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
        self.renewals.forget(lease);
    }

    /// Closes a connection after what it was handed; its sessions are given up.
    pub(super) fn close(&mut self, key: ConnKey, code: CloseCode, reason: ReleaseReason, cx: &mut Cx<'_>) {
        self.close_because(key, (code, why(code)), reason, cx);
    }

    /// The same, with words of its own.
    pub(super) fn close_because(
        &mut self,
        key: ConnKey,
        (code, why): (CloseCode, &'static str),
        reason: ReleaseReason,
        cx: &mut Cx<'_>,
    ) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let last_words = std::mem::take(&mut conn.outbox);
        if !last_words.is_empty() {
            cx.out.push(Effect::Send(key, last_words));
        }
        cx.out.push(Effect::Close(key, code, why));
        self.give_up(key, reason, cx);
    }

    /// Takes a connection out of the table and releases what it held.
    pub(super) fn give_up(&mut self, key: ConnKey, reason: ReleaseReason, cx: &Cx<'_>) {
        let Some(conn) = self.conns.remove(key) else { return };
        // Whoever was told to come back later is waited for until then, whatever ended it.
        let given = conn.leaving.as_deref().map_or(reason.into(), |at| Given::drain(at.back, cx.now));
        for stay in conn.stays {
            if let Some(session) = stay.session.as_deref() {
                let leases = match session.standing {
                    Standing::Joined { lease, .. } => Some(lease),
                    Standing::Joining { request, .. } | Standing::Lost { request: Some(request), .. } => {
                        self.disown(request, (&stay, session), conn.id);
                        None
                    }
                    Standing::Lost { request: None, .. } => None,
                };
                self.forget_session(session);
                if let Some(lease) = leases {
                    self.release(given, lease);
                }
            }
            self.leave_room(stay.room, stay.showing, cx.now);
        }
    }
}

/// Whether a core does not take the token that came with an update.
fn is_of_tokens(refusal: LinkRefusal) -> bool {
    matches!(
        refusal,
        LinkRefusal::Unauthorized | LinkRefusal::Forbidden | LinkRefusal::Refused(Refusal::TokenEnded)
    )
}

/// For people who read close frames.
pub(super) const fn why(code: CloseCode) -> &'static str {
    match code {
        CloseCode::Normal => "goodbye",
        CloseCode::GoingAway => "going away",
        CloseCode::Restart => "restart",
        CloseCode::Overloaded => "overloaded",
        CloseCode::Malformed => "malformed",
        CloseCode::Unauthorized => "unauthorized",
        CloseCode::Forbidden => "forbidden",
        CloseCode::Silent => "silent",
        CloseCode::Superseded => "superseded",
        CloseCode::Evicted => "evicted or revoked",
        CloseCode::TooLarge => "too large",
        CloseCode::RateLimited => "rate limit",
    }
}
