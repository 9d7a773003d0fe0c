//! How a connection enters a room: by joining it or by watching it, for the first time or again.

use presence_model::claim::{Action, Claims, TokenRefusal};
use presence_model::id::{Generation, RoomId};
use presence_model::limits::ROOMS_PER_CONNECTION_MAX;
use presence_model::link::Token;
use presence_model::time::Mono;
use presence_model::watch::Level;

use super::super::requests::{Rank, Request};
use super::super::rooms::RoomKey;
use super::super::table::{Session, Show, Showing, Standing, Stay, Unsaid};
use super::super::{ConnKey, Cx, Hub};
use super::{Verified, warn_at};
use crate::limits::{COME_BACK_LEAST, JOIN_LINE_PART, JOIN_RATE};
use crate::protocol::codes::Told;
use crate::protocol::{ErrorCode, JoinMessage, ServerMessage, Since};

impl Hub {
    pub(super) fn on_join(&mut self, key: ConnKey, join: JoinMessage, verified: Verified, cx: &mut Cx<'_>) {
        let Some(claims) = self.admit_entry(key, (&join.room, &join.since), (verified, Action::Join), cx)
        else {
            return;
        };
        let here = self.rooms.find(&join.room);
        let stay = here.and_then(|room| Some((room, self.conns.get(key)?.stay(room)?)));
        match stay {
            Some((room, stay)) if stay.session.is_some() => self.join_repeated(key, room, (join, claims), cx),
            Some((room, _)) => {
                self.drop_stay(key, room, cx.now);
                self.join_anew(key, join, claims, cx);
            }
            None if self.is_full(key) => {
                self.refuse(key, (Some(join.room), ErrorCode::TooManyRooms.into()), "too many rooms", cx);
            }
            None => self.join_anew(key, join, claims, cx),
        }
    }

    pub(super) fn on_watch_message(
        &mut self,
        key: ConnKey,
        (name, token, (since, level)): (RoomId, Token, (Since, Option<Level>)),
        verified: Verified,
        cx: &mut Cx<'_>,
    ) {
        let Some(claims) = self.admit_entry(key, (&name, &since), (verified, Action::Watch), cx) else {
            return;
        };
        let here = self.rooms.find(&name);
        let stay = here.and_then(|room| Some((room, self.conns.get(key)?.stay(room)?)));
        match stay {
            Some((_, stay)) if stay.user != claims.user => {
                self.refuse_token(key, name, TokenRefusal::Subject, cx);
            }
            Some((room, stay)) => {
                if stay.session.is_none() {
                    self.take_token(key, room, (token, claims.token), cx.now);
                }
                self.ask_for(key, room, level);
                self.show_again(key, room, since, cx.now);
            }
            None if self.is_full(key) => {
                self.refuse(key, (Some(name), ErrorCode::TooManyRooms.into()), "too many rooms", cx);
            }
            None => {
                let room = self.stay(key, &name, (token, claims), cx.now);
                self.ask_for(key, room, level);
                self.show(key, room, since, cx.now);
            }
        }
    }

    /// Whether a connection may enter a room now: rate, then token. Answers if not.
    fn admit_entry(
        &mut self,
        key: ConnKey,
        (name, since): (&RoomId, &Since),
        (verified, wanted): (Verified, Action),
        cx: &mut Cx<'_>,
    ) -> Option<Claims> {
        let conn = self.conns.get_mut(key)?;
        if let Err(wait) = conn.joins.admit(JOIN_RATE, cx.now) {
            self.limit(key, Some(name.clone()), wait, cx);
            return None;
        }
        if self.drain.is_some() {
            // When it was told to come back, which is elsewhere.
            let back = conn.leaving.as_ref().map_or(cx.now, |leaving| leaving.back);
            let retry_after = Some(back.since(cx.now).max(COME_BACK_LEAST));
            let told = Told { code: ErrorCode::Unavailable, retry_after, generation: None };
            self.refuse(key, (Some(name.clone()), told), "this edge is going", cx);
            return None;
        }
        match self.judge(verified, name, wanted, cx.now) {
            Ok(claims) => Some(claims),
            Err(refusal) => {
                if *since != Since::Nowhere {
                    self.counts.reconnects.refused += 1;
                }
                self.refuse_token(key, name.clone(), refusal, cx);
                None
            }
        }
    }

    fn is_full(&self, key: ConnKey) -> bool {
        self.conns.get(key).is_none_or(|conn| conn.stays.len() >= ROOMS_PER_CONNECTION_MAX)
    }

    fn join_anew(&mut self, key: ConnKey, join: JoinMessage, claims: Claims, cx: &mut Cx<'_>) {
        let JoinMessage { room: name, token, session, generation, profile, since, watch, level, client } =
            join;
        let room = self.stay(key, &name, (token, claims), cx.now);
        // Both can be made up; all they buy is a better place in line.
        let returns =
            since != Since::Nowhere || generation.is_some_and(|generation| generation > Generation(1));
        let rank = if returns { Rank::Returning } else { Rank::Newcomer };
        let request = self.request_join(key, room, rank, cx.now);
        let session = Session {
            id: session,
            generation,
            client,
            profile,
            timings: None,
            standing: Standing::Joining { request, old: None },
            updating: None,
            unsaid: Unsaid::default(),
            taken: None,
            said: (Unsaid::default(), Mono::default()),
        };
        if watch {
            self.warm(room, &since, cx.now);
        }
        let Some(stay) = self.conns.get_mut(key).and_then(|conn| conn.stay_mut(room)) else { return };
        stay.session = Some(Box::new(session));
        stay.level = level;
        stay.showing = if watch { Showing::Later(since) } else { Showing::No };
    }

    /// A join of a room in which this connection has a session already.
    fn join_repeated(
        &mut self,
        key: ConnKey,
        room: RoomKey,
        (join, claims): (JoinMessage, Claims),
        cx: &mut Cx<'_>,
    ) {
        let Some(stay) = self.conns.get(key).and_then(|conn| conn.stay(room)) else { return };
        let Some(session) = stay.session.as_deref() else { return };
        if stay.user != claims.user {
            return self.refuse_token(key, join.room, TokenRefusal::Subject, cx);
        }
        let refusal = if session.id != join.session {
            Some((
                ErrorCode::BadRequest.into(),
                "another session of this connection is there: leave it first",
            ))
        } else if let Some(own) =
            session.generation.filter(|own| join.generation.is_some_and(|new| new < *own))
        {
            let told = Told { code: ErrorCode::StaleGeneration, retry_after: None, generation: Some(own) };
            Some((told, "a later attempt of this session is in"))
        } else {
            None
        };
        if let Some((told, message)) = refusal {
            return self.refuse(key, (Some(join.room), told), message, cx);
        }
        let raised = join.generation.filter(|new| session.generation.is_some_and(|own| *new > own));
        self.take_token(key, room, (join.token, claims.token), cx.now);
        if let Some(session) = self.conns.get_mut(key).and_then(|conn| conn.session_mut(room)) {
            session.unsaid.status |= session.profile.status != join.profile.status;
            session.unsaid.state |= session.profile.state != join.profile.state;
            session.profile = join.profile;
        }
        match raised {
            Some(generation) => self.raise(key, room, generation, cx.now),
            None => self.confirm(key, room, cx),
        }
        if join.watch {
            self.ask_for(key, room, join.level);
            self.show_again(key, room, join.since, cx.now);
        } else if let Some(stay) = self.conns.get_mut(key).and_then(|conn| conn.stay_mut(room)) {
            let showing = std::mem::replace(&mut stay.showing, Showing::No);
            self.unwatch(room, showing, cx.now);
        }
        self.say_update(key, room, cx);
    }

    /// A higher attempt on the same connection displaces the one before.
    fn raise(&mut self, key: ConnKey, room: RoomKey, generation: Generation, now: Mono) {
        let Some(session) = self.conns.get_mut(key).and_then(|conn| conn.session_mut(room)) else { return };
        let before = session.standing;
        let old = match before {
            Standing::Joined { lease, .. } => Some(lease),
            Standing::Joining { old, .. } => old,
            Standing::Lost { .. } => None,
        };
        session.generation = Some(generation);
        session.unsaid = Unsaid::default();
        if let Some(update) = session.updating.take() {
            self.requests.remove(update);
        }
        if let Standing::Joining { request, .. } | Standing::Lost { request: Some(request), .. } = before {
            self.requests.remove(request);
        }
        if let Some(lease) = old {
            // From here on the core may end it as superseded: by ourselves.
            self.forget_lease(lease);
        }
        let request = self.request_join(key, room, Rank::Returning, now);
        if let Some(session) = self.conns.get_mut(key).and_then(|conn| conn.session_mut(room)) {
            session.standing = Standing::Joining { request, old };
        }
    }

    /// The answer was given before, and is given again.
    fn confirm(&mut self, key: ConnKey, room: RoomKey, cx: &mut Cx<'_>) {
        let Some(name) = self.name_in(key, room) else { return };
        let Some(session) = self.conns.get_mut(key).and_then(|conn| conn.session_mut(room)) else { return };
        let since = match session.standing {
            Standing::Joined { since, .. } | Standing::Lost { since, .. } => since,
            Standing::Joining { .. } => return,
        };
        let joined = ServerMessage::Joined {
            room: name,
            session: session.id.clone(),
            generation: session.generation.unwrap_or(Generation(1)),
            since,
            resumed: true,
            timings: session.timings.unwrap_or(self.timings.usual()),
        };
        self.answer(key, &joined, cx);
    }

    pub(in super::super) fn request_join(
        &mut self,
        key: ConnKey,
        room: RoomKey,
        rank: Rank,
        now: Mono,
    ) -> presence_model::link::RequestId {
        // Not sooner for a quick class: its room is all that is known of it, and storms take their time.
        let patience = self.timings.heartbeat;
        let dues = (now + patience / JOIN_LINE_PART, now + patience);
        self.requests.add_join(Request::Join { key, room, rank }, dues)
    }

    /// Puts a connection into a room.
    fn stay(&mut self, key: ConnKey, name: &RoomId, (token, claims): (Token, Claims), now: Mono) -> RoomKey {
        let room = self.rooms.enter(name);
        let rests_on = claims.token;
        let warn_at = Some(warn_at(rests_on.ends, self.link.store_time(now)));
        let (showing, level, session) = (Showing::No, None, None);
        let stay = Stay { room, user: claims.user, token, rests_on, warn_at, showing, level, session };
        if let Some(conn) = self.conns.get_mut(key) {
            conn.enter(stay);
        }
        room
    }

    /// What a connection wants to be shown of a room from here on.
    fn ask_for(&mut self, key: ConnKey, room: RoomKey, level: Option<Level>) {
        if let Some(stay) = self.conns.get_mut(key).and_then(|conn| conn.stay_mut(room)) {
            stay.level = level;
        }
    }

    fn warm(&mut self, room: RoomKey, since: &Since, now: Mono) {
        let cursor = match since {
            Since::Cursor(cursor) => Some(cursor),
            Since::Nowhere | Since::Unreadable => None,
        };
        self.rooms.warm(room, cursor, now);
    }

    /// Shows a room to a connection from where it says it was.
    pub(in super::super) fn show(&mut self, key: ConnKey, room: RoomKey, since: Since, now: Mono) {
        let cursor = match &since {
            Since::Cursor(cursor) => Some(cursor),
            Since::Nowhere | Since::Unreadable => None,
        };
        let place = self.rooms.watch(room, key.index, cursor, now);
        if let Some(conn) = self.conns.get_mut(key) {
            let owes_live = conn.told_unwell;
            if let Some(stay) = conn.stay_mut(room) {
                stay.showing = Showing::Yes(Show::new(since, place, owes_live));
            }
        }
        self.touch(key);
    }

    /// Starts over for a connection that asks again: its place among the receivers stays.
    fn show_again(&mut self, key: ConnKey, room: RoomKey, since: Since, now: Mono) {
        let Some(stay) = self.conns.get_mut(key).and_then(|conn| conn.stay_mut(room)) else { return };
        let joined = stay.session.as_deref().is_none_or(|session| {
            matches!(session.standing, Standing::Joined { .. } | Standing::Lost { .. })
        });
        match &mut stay.showing {
            Showing::Yes(show) => {
                *show = Show { fresh_seen: show.fresh_seen, ..Show::new(since, show.place, show.owes_live) }
            }
            Showing::No if joined => return self.show(key, room, since, now),
            showing @ (Showing::No | Showing::Later(_)) => *showing = Showing::Later(since),
        }
        self.touch(key);
    }
}
