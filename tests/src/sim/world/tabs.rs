//! Tabs: what they do of their own, and what they make of what they are told.

use std::time::Duration;

use presence_edge::protocol::ClientMessage;
use presence_model::claim::{Action, Claims};
use presence_model::id::ConnectionId;
use presence_model::link::Token;
use presence_model::record::TokenRef;
use presence_model::time::{Mono, StoreTime, millis};
use rand::RngExt as _;
use serde_json::Value;

use super::revoked::BACK_WITHIN;
use super::{AtEdge, AtTab, Event, OfTab, World};
use crate::sim::agenda::Pipe;
use crate::sim::chance::Chance;
use crate::sim::guarantee::Guarantee;
use crate::sim::ledger::Who;
use crate::sim::network::Node;
use crate::sim::nodes::Socket;
use crate::sim::place::{Place, Wish};
use crate::sim::shape::Shape;
use crate::sim::tab::{ANSWER_WITHIN, Tab};

/// A token that is to last for ever.
const FOR_EVER: StoreTime = StoreTime(u64::MAX / 2);
/// Somebody who was put out does not come back before.
const PUT_OUT_FOR: Duration = Duration::from_secs(15);

impl Tab {
    pub(super) fn new(number: usize, shape: &Shape, chance: Chance) -> Self {
        let only_watches = shape.is_onlooker(number);
        let place = |room| Place::new(number, room, only_watches, shape.users);
        Self {
            number,
            user: shape.user_of(number),
            chance,
            places: shape.rooms_of(number).into_iter().map(place).collect(),
            connection: None,
            open: false,
            heard: Mono::default(),
            pinged: None,
            failures: 0,
            away_until: Mono::default(),
            deaf_until: Mono::default(),
            forgetful: false,
            dials: 0,
        }
    }
}

impl World {
    pub(super) fn of_tab(&mut self, tab: usize, what: OfTab) {
        match what {
            OfTab::Dial(number) if self.tabs[tab].dials == number => self.dial(tab),
            OfTab::Dial(_) => {}
            OfTab::Enter(place, turn) if self.tabs[tab].places[place].turn == turn => self.enter(tab, place),
            OfTab::Enter(..) => {}
            OfTab::Watchdog(connection) => self.watchdog(tab, connection),
            OfTab::MoveOn(connection) if self.tabs[tab].connection == Some(connection) => {
                self.hang_up(tab);
                self.dial_after(tab, Duration::ZERO);
            }
            OfTab::MoveOn(_) => {}
            OfTab::Return(place) => self.return_to(tab, place),
        }
    }

    pub(super) fn dial_after(&mut self, tab: usize, delay: Duration) {
        self.tabs[tab].dials += 1;
        let number = self.tabs[tab].dials;
        self.wires.after(delay, Event::Tab(tab, OfTab::Dial(number)));
    }

    fn redial(&mut self, tab: usize) {
        let first = self.timings.reconnect_within;
        let delay = self.tabs[tab].backoff(first);
        self.dial_after(tab, delay);
    }

    fn dial(&mut self, tab: usize) {
        let now = self.now();
        let this = &self.tabs[tab];
        if this.connection.is_some() || !this.wants_in() || this.away_until > now {
            return;
        }
        // An edge that stands still is still dialled, one that goes is not.
        let there = |place: &usize| self.edges[*place].process.as_ref().is_some_and(|edge| !edge.draining);
        let there: Vec<usize> = (0..self.edges.len()).filter(there).collect();
        if there.is_empty() {
            return self.redial(tab);
        }
        let chance = &mut self.tabs[tab].chance;
        let place = there[chance.random_range(0..there.len())];
        let connection = ConnectionId(chance.random());
        let mut socket = Socket {
            tab,
            edge: place,
            edge_run: self.edges[place].runs,
            key: None,
            up: Pipe::default(),
            down: Pipe::default(),
            open_at_tab: true,
            open_at_edge: true,
            heard: now,
            writing: None,
            unread: 0,
        };
        let way = (Node::Tab(tab), Node::Edge(place));
        self.wires.send(&mut socket.up, way, Event::AtEdge(connection, AtEdge::Accept));
        self.sockets.insert(connection, socket);
        let this = &mut self.tabs[tab];
        (this.connection, this.open, this.heard, this.pinged) = (Some(connection), false, now, None);
        self.wires.after(ANSWER_WITHIN, Event::Tab(tab, OfTab::Watchdog(connection)));
        self.note("dial", &format!("tab{tab} to edge{place} as {connection}"));
    }

    /// A message of a tab, with the number of the token it carries.
    pub(super) fn say(&mut self, tab: usize, message: ClientMessage, token: Option<usize>) {
        let Some(connection) = self.tabs[tab].connection else { return };
        let Some(socket) = self.sockets.get_mut(&connection) else { return };
        let way = (Node::Tab(tab), Node::Edge(socket.edge));
        let joins = matches!(message, ClientMessage::Join(_));
        let what = AtEdge::Say(Box::new(message), token);
        self.wires.send(&mut socket.up, way, Event::AtEdge(connection, what));
        if joins {
            self.note_brought(tab);
        }
    }

    /// A token of the tab's user for the room of a place, as its issuer gives it.
    pub(super) fn issue(&mut self, tab: usize, place: usize) -> (usize, Token) {
        let (store_time, key_id) = (self.store_time(), self.key_id());
        let life = self.shape().token_life;
        let this = &mut self.tabs[tab];
        let ends = life.map_or(FOR_EVER, |life| {
            store_time
                + Duration::from_millis(this.chance.random_range(millis(life) / 2..millis(life) * 3 / 2))
        });
        let number = self.tokens.len();
        let place = &this.places[place];
        self.tokens.push(Claims {
            user: self.names.users[this.user].clone(),
            room: self.names.rooms[place.room].clone(),
            action: if place.only_watches { Action::Watch } else { Action::Join },
            not_before: None,
            token: TokenRef { ends, key_id: key_id.into(), token_id: format!("j{number}").into() },
        });
        (number, Token(format!("t{number}").into()))
    }

    fn enter(&mut self, tab: usize, place: usize) {
        if !self.tabs[tab].open || self.tabs[tab].places[place].wish != Wish::In {
            return;
        }
        let (number, token) = self.issue(tab, place);
        self.grant_frames(tab, place, number);
        let message = self.tabs[tab].entry(place, token, (&self.names, self.wires.now));
        self.say(tab, message, Some(number));
    }

    fn enter_after(&mut self, tab: usize, place: usize, delay: Duration) {
        let this = &mut self.tabs[tab].places[place];
        this.turn += 1;
        let turn = this.turn;
        self.wires.after(delay, Event::Tab(tab, OfTab::Enter(place, turn)));
    }

    /// Nothing was heard for a while: asks, and gives the socket up if the question goes unanswered.
    fn watchdog(&mut self, tab: usize, connection: ConnectionId) {
        let now = self.now();
        let heartbeat = self.timings.heartbeat;
        let this = &mut self.tabs[tab];
        if this.connection != Some(connection) {
            return;
        }
        if !this.open {
            self.hang_up(tab);
            return self.redial(tab);
        }
        let again = |at: Mono| at.since(now).max(Duration::from_millis(1));
        match this.pinged {
            None if now < this.heard + heartbeat => {
                let delay = again(this.heard + heartbeat);
                self.wires.after(delay, Event::Tab(tab, OfTab::Watchdog(connection)));
            }
            None => {
                this.pinged = Some(now);
                self.say(tab, ClientMessage::Ping { at: Vec::new() }, None);
                self.wires.after(ANSWER_WITHIN.min(heartbeat), Event::Tab(tab, OfTab::Watchdog(connection)));
            }
            Some(asked) if now.since(asked) < ANSWER_WITHIN.min(heartbeat) => {}
            // A page that slept through the answer asks again: it was away, not the edge.
            Some(asked) if now.since(asked) >= ANSWER_WITHIN * 2 => {
                this.pinged = None;
                self.wires.after(Duration::from_millis(1), Event::Tab(tab, OfTab::Watchdog(connection)));
            }
            Some(_) => {
                self.hang_up(tab);
                self.dial_after(tab, Duration::ZERO);
            }
        }
    }

    pub(super) fn at_tab(&mut self, connection: ConnectionId, what: AtTab) {
        let now = self.now();
        let Some(socket) = self.sockets.get_mut(&connection) else { return };
        let (tab, way) = (socket.tab, (Node::Tab(socket.tab), Node::Edge(socket.edge)));
        match what {
            AtTab::Frames(sent, payloads) => {
                if self.tabs[tab].deaf_until > now {
                    let at = self.tabs[tab].deaf_until;
                    return self.wires.at(at, Event::AtTab(connection, AtTab::Frames(sent, payloads)));
                }
                self.wires.send(&mut socket.up, way, Event::AtEdge(connection, AtEdge::Written));
                for payload in payloads {
                    if self.tabs[tab].connection == Some(connection) {
                        let frame: Value = serde_json::from_slice(&payload).expect("the edge writes JSON");
                        self.frame((tab, connection), (&frame, sent));
                    }
                }
            }
            AtTab::Ping if socket.open_at_tab => {
                self.wires.send(&mut socket.up, way, Event::AtEdge(connection, AtEdge::Pong));
            }
            AtTab::Ping => {}
            AtTab::Closed(code) => self.closed((tab, connection), code),
        }
    }

    fn frame(&mut self, (tab, connection): (usize, ConnectionId), (frame, sent): (&Value, Mono)) {
        let now = self.now();
        let this = &mut self.tabs[tab];
        (this.heard, this.pinged) = (now, None);
        match frame["t"].as_str() {
            Some("hello") => {
                (this.open, this.failures) = (true, 0);
                for place in 0..this.places.len() {
                    self.enter_after(tab, place, Duration::ZERO);
                }
                self.wires.after(self.timings.heartbeat, Event::Tab(tab, OfTab::Watchdog(connection)));
            }
            Some("reconnect") => {
                let after = Duration::from_millis(frame["after_ms"].as_u64().unwrap_or(0));
                self.note("hint", &format!("tab{tab} {} ms", after.as_millis()));
                self.wires.after(after, Event::Tab(tab, OfTab::MoveOn(connection)));
            }
            Some(_) | None => {
                let room = frame["room"].as_str().and_then(|room| self.names.room(room));
                let place = room.and_then(|room| this.places.iter().position(|place| place.room == room));
                match (room, place) {
                    (Some(room), Some(place)) => {
                        self.frame_of_a_room((tab, connection), (room, place), (frame, sent))
                    }
                    (Some(room), None) => self.frame_of_a_stranger(tab, room, frame),
                    (None, _) => {}
                }
            }
        }
    }

    fn frame_of_a_room(
        &mut self,
        (tab, connection): (usize, ConnectionId),
        (room, place): (usize, usize),
        (frame, sent): (&Value, Mono),
    ) {
        self.judge_frame((tab, connection), room, frame);
        let now = self.now();
        let mut seen = Vec::new();
        let this = &mut self.tabs[tab].places[place];
        if this.wish != Wish::In {
            return;
        }
        let taken = this.take(frame, (&self.names, now, sent), &mut seen);
        let taken = taken.map_err(|(guarantee, what)| (guarantee, format!("tab{tab} in r{room}: {what}")));
        self.hold_to(taken);
        for seen in seen {
            self.judge_seen(tab, place, &seen);
        }
        match frame["t"].as_str() {
            Some("joined") => {
                let this = &mut self.tabs[tab].places[place];
                this.joined = true;
                this.generation = this.generation.max(frame["generation"].as_u64().unwrap_or(0));
                let (session, generation) = (this.session.clone(), this.generation);
                let resumed = frame["resumed"] == true;
                self.note(
                    "joined",
                    &format!("tab{tab} in r{room} as {session} g{generation}, resumed: {resumed}"),
                );
                self.say_status(tab, place);
            }
            Some("token_expiring") => self.refresh(tab, place),
            Some("ended") => self.ended(tab, place, frame["reason"].as_str().unwrap_or_default()),
            Some("error") => self.failed(tab, place, frame),
            Some(_) | None => {}
        }
    }

    /// Says what has changed since it was said last.
    pub(super) fn say_status(&mut self, tab: usize, place: usize) {
        let now = self.now();
        let place = &mut self.tabs[tab].places[place];
        let (status, said, _) = place.told;
        if place.joined && (status, said) != (place.status, place.said) {
            place.told = (place.status, place.said, now);
            let state = (said != place.said).then(|| place.profile().state);
            let message = ClientMessage::Update {
                room: self.names.rooms[place.room].clone(),
                status: Some(place.status),
                state,
            };
            self.say(tab, message, None);
        }
    }

    fn refresh(&mut self, tab: usize, place: usize) {
        self.story.count("token expiring");
        if std::mem::take(&mut self.tabs[tab].forgetful) {
            return;
        }
        let (number, token) = self.issue(tab, place);
        self.grant_frames(tab, place, number);
        let room = self.names.rooms[self.tabs[tab].places[place].room].clone();
        self.say(tab, ClientMessage::Token { room, token }, Some(number));
    }

    fn ended(&mut self, tab: usize, place: usize, reason: &str) {
        self.note("ended", &format!("tab{tab} place {place}: {reason}"));
        let who = (self.tabs[tab].places[place].room, self.tabs[tab].user);
        if reason == "evicted" && !self.eye.evictions.contains_key(&who) {
            let what =
                format!("tab{tab} is told that u{} is put out of r{}, which nobody asked for", who.1, who.0);
            self.breach(Guarantee::G12, what);
        }
        if reason == "token_revoked" && !self.was_revoked_for(who) {
            let what =
                format!("tab{tab} is told that its token in r{} is revoked, which nobody asked for", who.0);
            self.breach(Guarantee::G12, what);
        }
        // Its own goodbye is answered; it may want in again by now.
        if self.tabs[tab].places[place].wish != Wish::In || reason == "left" {
            return;
        }
        // What it was shown of the room is over with its session.
        self.tabs[tab].places[place].disconnected();
        match reason {
            "superseded" => {
                self.tabs[tab].places[place].mint(tab);
                self.enter_after(tab, place, Duration::ZERO);
            }
            "token_expired" => {
                let delay = self.tabs[tab].backoff(self.timings.reconnect_within);
                self.tabs[tab].places[place].late_until = self.now() + BACK_WITHIN;
                self.enter_after(tab, place, delay);
            }
            _ => self.stay_out(tab, place, PUT_OUT_FOR),
        }
    }

    /// Whether somebody asked for the end of a token that this user had for that room.
    fn was_revoked_for(&self, (room, user): Who) -> bool {
        let (room, user) = (&self.names.rooms[room], &self.names.users[user]);
        let mut own = self.tokens.iter().filter(|claims| claims.user == *user && claims.room == *room);
        own.any(|claims| self.eye.may_be_revoked(user, &claims.token))
    }

    fn failed(&mut self, tab: usize, place: usize, frame: &Value) {
        let code = frame["code"].as_str().unwrap_or_default();
        self.note("error", &format!("tab{tab} place {place}: {code}"));
        let hint = Duration::from_millis(frame["retry_after_ms"].as_u64().unwrap_or(0));
        match code {
            "stale_generation" => {
                self.tabs[tab].places[place].mint(tab);
                self.enter_after(tab, place, Duration::ZERO);
            }
            "rate_limited" if self.tabs[tab].places[place].joined => {}
            // Also who is in: the list of the room may be what is refused.
            "unauthorized" | "forbidden" | "unavailable" | "too_many_sessions" | "rate_limited" => {
                let delay = self.tabs[tab].backoff(self.timings.reconnect_within).max(hint);
                self.enter_after(tab, place, delay);
            }
            "not_joined" => {
                self.tabs[tab].places[place].joined = false;
                self.enter_after(tab, place, Duration::ZERO);
            }
            _ => {}
        }
    }

    /// Not wanted there for a while: it comes back by its user's hand, as somebody new.
    fn stay_out(&mut self, tab: usize, place: usize, span: Duration) {
        let now = self.now();
        let this = &mut self.tabs[tab].places[place];
        this.wish = Wish::OutUntil(now + span);
        this.joined = false;
        this.mint(tab);
        this.forget_list();
        this.left = true;
        self.wires.after(span, Event::Tab(tab, OfTab::Return(place)));
        if !self.tabs[tab].wants_in() {
            self.hang_up(tab);
        }
    }

    fn return_to(&mut self, tab: usize, place: usize) {
        let now = self.now();
        if let Wish::OutUntil(until) = self.tabs[tab].places[place].wish
            && until <= now
        {
            self.come_in(tab, place);
        }
    }

    /// Wants in from here on.
    pub(super) fn come_in(&mut self, tab: usize, place: usize) {
        self.tabs[tab].places[place].wish = Wish::In;
        if self.tabs[tab].open {
            self.enter_after(tab, place, Duration::ZERO);
        } else if self.tabs[tab].connection.is_none() {
            self.dial_after(tab, Duration::from_millis(1));
        }
    }

    /// Says goodbye in a room and stays out of it for a while.
    pub(super) fn leave(&mut self, tab: usize, place: usize, span: Duration) {
        let this = &self.tabs[tab].places[place];
        if this.wish != Wish::In || !self.tabs[tab].open {
            return;
        }
        self.say_goodbye(tab, place);
        let room = self.names.rooms[self.tabs[tab].places[place].room].clone();
        self.say(tab, ClientMessage::Leave { room }, None);
        self.stay_out(tab, place, span);
    }

    /// The tab closes its socket, without goodbye.
    pub(super) fn hang_up(&mut self, tab: usize) {
        let Some(connection) = self.tabs[tab].connection else { return };
        self.part(connection, None);
        self.tabs[tab].disconnected();
        let Some(socket) = self.sockets.get_mut(&connection) else { return };
        socket.open_at_tab = false;
        let way = (Node::Tab(tab), Node::Edge(socket.edge));
        self.wires.send(&mut socket.up, way, Event::AtEdge(connection, AtEdge::HungUp));
    }

    /// Its process is gone, and its machine says so to nobody but by closing what was open.
    pub(super) fn go_away(&mut self, tab: usize, span: Duration) {
        let now = self.now();
        self.hang_up(tab);
        self.tabs[tab].away_until = now + span;
        self.tabs[tab].failures = 0;
        self.dial_after(tab, span);
    }

    fn closed(&mut self, (tab, connection): (usize, ConnectionId), code: u16) {
        if let Some(socket) = self.sockets.get_mut(&connection) {
            socket.open_at_tab = false;
        }
        if self.tabs[tab].connection != Some(connection) {
            return;
        }
        self.tabs[tab].disconnected();
        for place in 0..self.tabs[tab].places.len() {
            match code {
                4409 => self.tabs[tab].places[place].mint(tab),
                4400 | 4410 | 4413 if self.tabs[tab].places[place].wish == Wish::In => {
                    self.stay_out(tab, place, PUT_OUT_FOR);
                }
                _ => {}
            }
        }
        self.redial(tab);
    }

    pub(super) fn nap_tab(&mut self, tab: usize, span: Duration) {
        if self.tabs_asleep[tab].is_none() {
            self.tabs_asleep[tab] = Some(Vec::new());
            self.wires.after(span, Event::WakeTab(tab));
        }
    }

    pub(super) fn wake_tab(&mut self, tab: usize) {
        for event in self.tabs_asleep[tab].take().into_iter().flatten() {
            self.happen(event);
        }
    }
}
