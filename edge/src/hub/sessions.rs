//! What clients say: joins, watches, updates, goodbyes, each within its rate and its token.

mod enter;

use std::time::Duration;

use presence_model::claim::{Action, Claims, TokenRefusal, judge_time};
use presence_model::id::{ConnectionId, RoomId};
use presence_model::link::Token;
use presence_model::profile::{Profile, State, Status};
use presence_model::reason::{LeaveReason, ReleaseReason, RemovalReason};
use presence_model::record::TokenRef;
use presence_model::time::{Mono, StoreTime};

use super::rooms::RoomKey;
use super::table::{Conn, Showing, Standing, Stay};
use super::{ConnKey, Cx, Effect, Hub, Unreadable};
use crate::limits::{
    FIRST_MESSAGE_WITHIN, FLOOD_RATE, OUTBOX_FRAMES_MAX, TALK_RATE, TOKEN_LEEWAY, TOKEN_WARNING,
};
use crate::protocol::codes::Told;
use crate::protocol::{ClientMessage, CloseCode, Encoding, ErrorCode, ServerMessage};

/// A token as the shell verified it.
pub(super) type Verified = Option<Result<Claims, TokenRefusal>>;

/// When a client is told that its token ends.
pub(super) fn warn_at(ends: StoreTime, now: Option<StoreTime>) -> StoreTime {
    let lead = now.map_or(TOKEN_WARNING, |now| TOKEN_WARNING.min(ends.since(now) / 4));
    ends.before(lead)
}

impl Stay {
    /// Rests on this token from here on; what it rested on until now.
    pub(super) fn rest_on(
        &mut self,
        (token, rests_on): (Token, TokenRef),
        now: Option<StoreTime>,
    ) -> (Token, TokenRef) {
        self.warn_at = Some(warn_at(rests_on.ends, now));
        (std::mem::replace(&mut self.token, token), std::mem::replace(&mut self.rests_on, rests_on))
    }
}

/// What a client is told of a refusal, for people: no more than its code, so that nobody learns by trying.
fn told_of(refusal: TokenRefusal) -> &'static str {
    if refusal.is_forbidden() { "the token is not for this" } else { "no good token" }
}

impl Hub {
    pub(super) fn accept(&mut self, (id, encoding): (ConnectionId, Encoding), cx: &mut Cx<'_>) {
        self.counts.accepted += 1;
        let next_ping = self.first_ping(cx.now);
        let key = self.conns.insert(Conn {
            id,
            encoding,
            heard: cx.now,
            heartbeat: self.timings.heartbeat,
            paced: cx.now,
            next_ping,
            timer: Mono(Duration::MAX),
            roomless: Some(cx.now + FIRST_MESSAGE_WITHIN),
            roomless_code: CloseCode::Silent,
            leaving: None,
            outbox: Vec::new(),
            writing: false,
            dirty: false,
            turn: 0,
            told_unwell: false,
            joins: Default::default(),
            talk: Default::default(),
            flood: Default::default(),
            stays: Vec::new(),
        });
        cx.out.push(Effect::Accepted(id, key));
        let hello = ServerMessage::Hello {
            connection: id,
            heartbeat: self.timings.heartbeat,
            reconnect: self.timings.reconnect_within,
            list_members: self.settings.list_members,
        };
        self.answer(key, &hello, cx);
        self.arm(key);
        self.drain_newcomer(key, cx);
    }

    pub(super) fn on_message(
        &mut self,
        key: ConnKey,
        message: ClientMessage,
        verified: Verified,
        cx: &mut Cx<'_>,
    ) {
        if self.conns.get(key).is_none() {
            return;
        }
        self.heard(key, cx);
        match message {
            ClientMessage::Join(join) => self.on_join(key, *join, verified, cx),
            ClientMessage::Watch { room, token, since, level, client: _ } => {
                self.on_watch_message(key, (room, token, (since, level)), verified, cx);
            }
            ClientMessage::Update { room, status, state } => {
                if self.admit_talk(key, Some(&room), cx) {
                    self.on_update(key, &room, (status, state), cx);
                }
            }
            ClientMessage::Token { room, token } => {
                if self.admit_talk(key, Some(&room), cx) {
                    self.on_token(key, (room, token), verified, cx);
                }
            }
            ClientMessage::Leave { room } => {
                if self.admit_talk(key, Some(&room), cx) {
                    self.on_leave(key, &room, cx);
                }
            }
            ClientMessage::Resync { room } => {
                if self.admit_talk(key, Some(&room), cx) {
                    self.on_resync(key, &room, cx);
                }
            }
            ClientMessage::Ping { at: _ } => {
                if self.admit_talk(key, None, cx) {
                    self.answer(key, &ServerMessage::Pong, cx);
                }
            }
        }
        self.arm(key);
    }

    pub(super) fn on_unreadable(&mut self, key: ConnKey, unreadable: Unreadable, cx: &mut Cx<'_>) {
        self.heard(key, cx);
        match unreadable {
            Unreadable::Fatal(code, message) => {
                let error = match code {
                    CloseCode::TooLarge => ErrorCode::TooLarge,
                    CloseCode::RateLimited => ErrorCode::RateLimited,
                    CloseCode::Normal
                    | CloseCode::GoingAway
                    | CloseCode::Restart
                    | CloseCode::Overloaded
                    | CloseCode::Malformed
                    | CloseCode::Unauthorized
                    | CloseCode::Forbidden
                    | CloseCode::Silent
                    | CloseCode::Superseded
                    | CloseCode::Evicted => ErrorCode::BadRequest,
                };
                self.refuse(key, (None, error.into()), &message, cx);
                self.close(key, code, ReleaseReason::TransportLost, cx);
            }
            Unreadable::Flood if self.conns.get_mut(key).is_none() => {}
            Unreadable::Flood => {
                self.counts.flooded += 1;
                let told = ErrorCode::RateLimited.into();
                self.refuse(key, (None, told), "too many pings, pongs or fragments", cx);
                self.close(key, CloseCode::RateLimited, ReleaseReason::TransportLost, cx);
            }
            Unreadable::Error(code, room, message) => {
                if !self.is_flood(key, cx) {
                    self.refuse(key, (room, code.into()), &message, cx);
                }
            }
        }
    }

    fn on_update(
        &mut self,
        key: ConnKey,
        name: &RoomId,
        (status, state): (Option<Status>, Option<State>),
        cx: &mut Cx<'_>,
    ) {
        let room = self.rooms.find(name);
        let conn = self.conns.get_mut(key);
        let found = room.and_then(|room| {
            let stay = conn?.stay_mut(room)?;
            Some((room, &stay.user, stay.session.as_deref_mut()?))
        });
        let Some((room, user, session)) = found else {
            return self.refuse(key, (Some(name.clone()), ErrorCode::NotJoined.into()), "not joined", cx);
        };
        let before = session.profile.clone();
        session.profile.status = status.unwrap_or(before.status);
        session.profile.state = state.unwrap_or_else(|| before.state.clone());
        // A store may have lost what was said long ago: whatever is shown otherwise is said once more.
        let shown = self.rooms.shown(room).and_then(|(_, view)| view.get(user));
        let shown = shown.map(|member| Profile { status: member.status, state: member.state });
        for known in [Some(before), shown].into_iter().flatten() {
            session.unsaid.status |= session.profile.status != known.status;
            session.unsaid.state |= session.profile.state != known.state;
        }
        self.say_update(key, room, cx);
    }

    fn on_token(
        &mut self,
        key: ConnKey,
        (name, token): (RoomId, Token),
        verified: Verified,
        cx: &mut Cx<'_>,
    ) {
        let stay = self.rooms.find(&name).and_then(|room| self.conns.get(key)?.stay(room));
        let Some(stay) = stay else {
            return self.refuse(key, (Some(name), ErrorCode::NotJoined.into()), "not joined", cx);
        };
        let wanted = if stay.session.is_some() { Action::Join } else { Action::Watch };
        let (room, user) = (stay.room, stay.user.clone());
        let claims = match self.judge(verified, &name, wanted, cx.now) {
            Ok(claims) if claims.user == user => claims,
            Ok(_) => return self.refuse_token(key, name, TokenRefusal::Subject, cx),
            Err(refusal) => return self.refuse_token(key, name, refusal, cx),
        };
        self.take_token(key, room, (token, claims.token), cx.now);
        self.say_update(key, room, cx);
    }

    /// A stay rests on another token from here on.
    pub(super) fn take_token(
        &mut self,
        key: ConnKey,
        room: RoomKey,
        (token, rests_on): (Token, TokenRef),
        now: Mono,
    ) {
        let store_time = self.link.store_time(now);
        let Some(stay) = self.conns.get_mut(key).and_then(|conn| conn.stay_mut(room)) else { return };
        if stay.token == token {
            return;
        }
        let before = stay.rest_on((token, rests_on), store_time);
        if let Some(session) = stay.session.as_deref_mut() {
            session.taken.get_or_insert_with(|| Box::new(before));
            session.unsaid.token = true;
        }
    }

    fn on_leave(&mut self, key: ConnKey, name: &RoomId, cx: &mut Cx<'_>) {
        let room =
            self.rooms.find(name).filter(|room| self.conns.get(key).and_then(|c| c.stay(*room)).is_some());
        let Some(room) = room else {
            return self.refuse(key, (Some(name.clone()), ErrorCode::NotJoined.into()), "not joined", cx);
        };
        self.say_over(key, room, LeaveReason::Goodbye, cx);
        self.answer(key, &ServerMessage::Ended { room: name.clone(), reason: RemovalReason::Left }, cx);
        self.drop_stay(key, room, cx.now);
        if let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.stays.is_empty()) {
            conn.roomless_code = CloseCode::Normal;
        }
    }

    fn on_resync(&mut self, key: ConnKey, name: &RoomId, cx: &mut Cx<'_>) {
        let stay = self.rooms.find(name).and_then(|room| self.conns.get_mut(key)?.stay_mut(room));
        match stay.map(|stay| &mut stay.showing) {
            Some(Showing::Yes(show)) => {
                self.counts.resyncs += 1;
                show.receiver.resync();
                show.catching_up = false;
                self.touch(key);
            }
            // It is shown from the start as soon as it is in.
            Some(Showing::Later(_)) => {}
            Some(Showing::No) | None => {
                self.refuse(key, (Some(name.clone()), ErrorCode::NotJoined.into()), "not watched", cx);
            }
        }
    }

    /// Judges a token for a room and an action.
    fn judge(
        &self,
        verified: Verified,
        room: &RoomId,
        wanted: Action,
        now: Mono,
    ) -> Result<Claims, TokenRefusal> {
        let claims = verified.unwrap_or(Err(TokenRefusal::Malformed))?;
        if claims.room != *room {
            return Err(TokenRefusal::Room);
        }
        if !claims.action.permits(wanted) {
            return Err(TokenRefusal::Action);
        }
        if let Some(store_time) = self.link.store_time(now) {
            judge_time(&claims, store_time, TOKEN_LEEWAY)?;
            self.revoked.judge_token(&claims.user, &claims.token, store_time)?;
        }
        Ok(claims)
    }

    fn admit_talk(&mut self, key: ConnKey, room: Option<&RoomId>, cx: &mut Cx<'_>) -> bool {
        let Some(conn) = self.conns.get_mut(key) else { return false };
        match conn.talk.admit(TALK_RATE, cx.now) {
            Ok(()) => true,
            Err(wait) => {
                self.limit(key, room.cloned(), wait, cx);
                false
            }
        }
    }

    /// Too fast: said so, or closed if it does not listen.
    fn limit(&mut self, key: ConnKey, room: Option<RoomId>, wait: Duration, cx: &mut Cx<'_>) {
        self.counts.rate_limited += 1;
        if !self.is_flood(key, cx) {
            let told = Told { code: ErrorCode::RateLimited, retry_after: Some(wait), generation: None };
            self.refuse(key, (room, told), "too fast", cx);
        }
    }

    fn is_flood(&mut self, key: ConnKey, cx: &mut Cx<'_>) -> bool {
        let Some(conn) = self.conns.get_mut(key) else { return true };
        if conn.flood.admit(FLOOD_RATE, cx.now).is_ok() {
            return false;
        }
        self.counts.flooded += 1;
        self.close(key, CloseCode::RateLimited, ReleaseReason::TransportLost, cx);
        true
    }

    pub(super) fn refuse_token(
        &mut self,
        key: ConnKey,
        room: RoomId,
        refusal: TokenRefusal,
        cx: &mut Cx<'_>,
    ) {
        cx.out.push(Effect::TokenRefused(key, refusal));
        self.refuse(key, (Some(room), refusal.into()), told_of(refusal), cx);
    }

    /// The name of a room in which this connection stays.
    pub(super) fn name_in(&self, key: ConnKey, room: RoomKey) -> Option<RoomId> {
        self.conns.get(key)?.stay(room).map(|stay| self.rooms.name(stay.room))
    }

    /// Answers with an error; the connection stays.
    pub(super) fn refuse(
        &mut self,
        key: ConnKey,
        (room, told): (Option<RoomId>, Told),
        message: &str,
        cx: &mut Cx<'_>,
    ) {
        let error = self.last_word(key, (room, told), message);
        self.answer(key, &error, cx);
    }

    /// An error, which a connection without a room is closed for unless it enters one in time.
    pub(super) fn last_word(
        &mut self,
        key: ConnKey,
        (room, told): (Option<RoomId>, Told),
        message: &str,
    ) -> ServerMessage {
        let Told { code, retry_after, generation } = told;
        if let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.stays.is_empty())
            && let Some(close) = code.ends_with()
        {
            conn.roomless_code = close;
        }
        ServerMessage::Error { room, code, retry_after, message: message.to_owned(), generation }
    }

    /// Queues an answer. A connection that asks without reading floods.
    pub(super) fn answer(&mut self, key: ConnKey, message: &ServerMessage, cx: &mut Cx<'_>) {
        if !self.queue(key, message) {
            self.counts.flooded += 1;
            self.close(key, CloseCode::RateLimited, ReleaseReason::TransportLost, cx);
        }
    }

    /// Queues what the client did not ask for. A connection that does not read is shed.
    pub(super) fn notify(&mut self, key: ConnKey, message: &ServerMessage, cx: &mut Cx<'_>) {
        if !self.queue(key, message) {
            self.counts.slow += 1;
            self.close(key, CloseCode::Overloaded, ReleaseReason::Shed, cx);
        }
    }

    /// False, and nothing waits any more, if too much did.
    fn queue(&mut self, key: ConnKey, message: &ServerMessage) -> bool {
        let Some(conn) = self.conns.get_mut(key) else { return true };
        if conn.outbox.len() >= OUTBOX_FRAMES_MAX {
            conn.outbox.clear();
            return false;
        }
        conn.outbox.push(conn.encoding.message(message));
        self.touch(key);
        true
    }

    /// What a session that ends by its client's word, or with its token, means to the core.
    pub(super) fn say_over(&mut self, key: ConnKey, room: RoomKey, reason: LeaveReason, cx: &mut Cx<'_>) {
        let Some(conn) = self.conns.get(key) else { return };
        let connection = conn.id;
        let Some((stay, session)) = conn.stay(room).and_then(|stay| Some((stay, stay.session.as_deref()?)))
        else {
            return;
        };
        let (user, standing) = (stay.user.clone(), session.standing);
        match standing {
            Standing::Joined { lease, .. } => {
                self.leave_lease((lease, reason), (self.rooms.name(room), user), cx);
            }
            Standing::Joining { request, .. } | Standing::Lost { request: Some(request), .. } => {
                let join = self.unanswered_join(request, (stay, session), connection);
                if self.requests.was_said(request) {
                    self.requests.unwanted(request, join, reason);
                } else {
                    self.requests.remove(request);
                }
            }
            Standing::Lost { request: None, .. } => {}
        }
    }
}
