//! WebSockets, as their edges see them.

use std::time::Duration;

use presence_edge::hub::{ConnEnd, ConnKey, Input};
use presence_edge::protocol::{ClientMessage, CloseCode, Encoding, Payload};
use presence_model::id::{ConnectionId, RoomId};

use super::edge::RESET;
use super::{AtEdge, AtTab, Event, World};
use crate::sim::guarantee::Guarantee;
use crate::sim::mutant::Mutant;
use crate::sim::network::Node;

/// What an edge hands out must be written within this.
const WRITE_WITHIN: Duration = Duration::from_secs(20);
/// An edge hands out so much at once before it waits: the next portion, a last word, and what was under way.
const UNREAD_MAX: u32 = 8;
/// Timers are late, never early; and what is heard takes its way.
const SILENCE_SLACK: Duration = Duration::from_millis(20);

impl World {
    /// The edge, its run and its key of a socket that is open there.
    fn key_of(&self, connection: ConnectionId) -> Option<(usize, u64, ConnKey)> {
        let socket = self.sockets.get(&connection).filter(|socket| socket.open_at_edge)?;
        let edge = self.edges[socket.edge].process.as_ref()?;
        (edge.run == socket.edge_run).then_some((socket.edge, socket.edge_run, socket.key?))
    }

    /// Whether a transport stands, as far as its two ends know.
    pub(super) fn stands(&self, connection: ConnectionId) -> bool {
        self.key_of(connection).is_some() && self.sockets[&connection].open_at_tab
    }

    pub(super) fn at_edge(&mut self, connection: ConnectionId, what: AtEdge) {
        match what {
            AtEdge::Accept => self.accept(connection),
            AtEdge::Say(message, token) => self.said(connection, *message, token),
            AtEdge::Pong => {
                if let Some((place, run, key)) = self.key_of(connection) {
                    self.hear(connection);
                    self.feed_edge((place, run), Input::Heard(key));
                }
            }
            AtEdge::HungUp => self.hung_up(connection),
            AtEdge::Written => {
                if let Some((place, run, key)) = self.key_of(connection) {
                    if let Some(socket) = self.sockets.get_mut(&connection) {
                        (socket.writing, socket.unread) = (None, 0);
                    }
                    self.feed_edge((place, run), Input::Written(key));
                }
            }
        }
    }

    fn hear(&mut self, connection: ConnectionId) {
        let now = self.now();
        if let Some(socket) = self.sockets.get_mut(&connection) {
            socket.heard = now;
        }
    }

    fn accept(&mut self, connection: ConnectionId) {
        self.hear(connection);
        let Some(socket) = self.sockets.get_mut(&connection) else { return };
        let (place, run) = (socket.edge, socket.edge_run);
        // A connection that was given up before it stood.
        if !socket.open_at_tab {
            socket.open_at_edge = false;
            return;
        }
        if self.edges[place].process.as_ref().is_none_or(|edge| edge.run != run) {
            socket.open_at_edge = false;
            let way = (Node::Edge(place), Node::Tab(socket.tab));
            return self.wires.send(&mut socket.down, way, Event::AtTab(connection, AtTab::Closed(RESET)));
        }
        self.feed_edge((place, run), Input::Accept(connection, Encoding::Json));
    }

    pub(super) fn accepted(&mut self, (place, run): (usize, u64), connection: ConnectionId, key: ConnKey) {
        if let Some(edge) = self.edges[place].process.as_mut().filter(|edge| edge.run == run) {
            edge.by_key.insert(key, connection);
        }
        if let Some(socket) = self.sockets.get_mut(&connection) {
            socket.key = Some(key);
        }
    }

    fn said(&mut self, connection: ConnectionId, message: ClientMessage, token: Option<usize>) {
        let Some((place, run, key)) = self.key_of(connection) else { return };
        self.hear(connection);
        let tab = self.sockets[&connection].tab;
        self.story.message(self.wires.now, "said", || format!("tab{tab} to edge{place}: {message:?}"));
        let mut verified = token.and_then(|token| self.tokens.get(token)).cloned().map(Ok);
        if self.is_mutant(Mutant::TokensOpenAnyRoom)
            && let (Some(Ok(claims)), Some(room)) = (&mut verified, room_of(&message))
        {
            claims.room = room;
        }
        self.feed_edge((place, run), Input::Message(key, message, verified));
    }

    fn hung_up(&mut self, connection: ConnectionId) {
        let Some((place, run, key)) = self.key_of(connection) else { return };
        if self.is_mutant(Mutant::MissesHangUps) {
            return;
        }
        if let Some(socket) = self.sockets.get_mut(&connection) {
            socket.open_at_edge = false;
        }
        if let Some(edge) = self.edges[place].process.as_mut() {
            edge.by_key.remove(&key);
        }
        self.feed_edge((place, run), Input::Closed(key, ConnEnd::Lost));
    }

    pub(super) fn send_frames(&mut self, place: usize, key: ConnKey, payloads: Vec<Payload>) {
        let now = self.now();
        let Some(connection) = self.connection_of(place, key) else { return };
        let Some(socket) = self.sockets.get_mut(&connection) else { return };
        socket.writing.get_or_insert(now);
        socket.unread += 1;
        let (unread, tab) = (socket.unread, socket.tab);
        if unread > UNREAD_MAX {
            let what = format!("edge{place} has sent {unread} times to tab{tab}, which has not read");
            self.breach(Guarantee::G11, what);
        }
        let payloads = self.spoil_frames(tab, payloads);
        for payload in &payloads {
            let text = || format!("edge{place} to tab{tab}: {}", String::from_utf8_lossy(payload));
            self.story.message(self.wires.now, "frame", text);
        }
        let Some(socket) = self.sockets.get_mut(&connection) else { return };
        let way = (Node::Edge(place), Node::Tab(tab));
        self.wires.send(&mut socket.down, way, Event::AtTab(connection, AtTab::Frames(now, payloads)));
        if self.is_mutant(Mutant::SlowAreFedOn)
            && let Some((place, run, key)) = self.key_of(connection)
        {
            self.feed_edge((place, run), Input::Written(key));
        }
    }

    pub(super) fn send_ping(&mut self, place: usize, key: ConnKey) {
        let Some(connection) = self.connection_of(place, key) else { return };
        let Some(socket) = self.sockets.get_mut(&connection) else { return };
        let way = (Node::Edge(place), Node::Tab(socket.tab));
        self.wires.send(&mut socket.down, way, Event::AtTab(connection, AtTab::Ping));
        if self.is_mutant(Mutant::MissesSilence)
            && let Some((place, run, key)) = self.key_of(connection)
        {
            self.feed_edge((place, run), Input::Heard(key));
        }
    }

    pub(super) fn close_socket(&mut self, (place, key): (usize, ConnKey), code: CloseCode, why: &str) {
        let now = self.now();
        let Some(connection) = self.connection_of(place, key) else { return };
        if let Some(edge) = self.edges[place].process.as_mut() {
            edge.by_key.remove(&key);
        }
        self.note("edge closes", &format!("{connection} {code:?} {why}"));
        let Some(socket) = self.sockets.get_mut(&connection) else { return };
        socket.open_at_edge = false;
        let way = (Node::Edge(place), Node::Tab(socket.tab));
        self.wires.send(&mut socket.down, way, Event::AtTab(connection, AtTab::Closed(code.number())));
        let (silent, tab) = (now.since(socket.heard), socket.tab);
        // A session that ended so elsewhere is closed with the same code.
        let finds_silent = self.edges[place].process.as_ref().is_some_and(|edge| edge.finds_silent);
        if code == CloseCode::Silent
            && why == "silent"
            && finds_silent
            && silent + SILENCE_SLACK < self.timings.heartbeat * 2
        {
            let what = format!(
                "edge{place} gave tab{tab} up as silent, {} ms after it was heard",
                silent.as_millis()
            );
            self.breach(Guarantee::G2, what);
        }
    }

    /// Sheds what does not take what it was handed, and forgets sockets that are gone at both ends.
    pub(super) fn look_at_sockets(&mut self) {
        let now = self.now();
        let stuck = |since: &Option<presence_model::time::Mono>| {
            since.is_some_and(|since| now.since(since) >= WRITE_WITHIN)
        };
        let stuck: Vec<ConnectionId> =
            self.sockets.iter().filter(|(_, socket)| stuck(&socket.writing)).map(|(id, _)| *id).collect();
        for connection in stuck {
            let Some((place, run, key)) = self.key_of(connection) else { continue };
            if self.edges[place].process.as_ref().is_some_and(|edge| edge.asleep.is_some()) {
                continue;
            }
            if let Some(edge) = self.edges[place].process.as_mut() {
                edge.by_key.remove(&key);
            }
            if let Some(socket) = self.sockets.get_mut(&connection) {
                socket.open_at_edge = false;
                socket.writing = None;
                let way = (Node::Edge(place), Node::Tab(socket.tab));
                self.wires.send(&mut socket.down, way, Event::AtTab(connection, AtTab::Closed(RESET)));
            }
            self.note("edge sheds", &connection.to_string());
            self.feed_edge((place, run), Input::Closed(key, ConnEnd::TooSlow));
        }
        self.sockets.retain(|_, socket| socket.open_at_tab || socket.open_at_edge || socket.down.last >= now);
    }
}

/// The room that a token is shown for.
fn room_of(message: &ClientMessage) -> Option<RoomId> {
    match message {
        ClientMessage::Join(join) => Some(join.room.clone()),
        ClientMessage::Watch { room, .. } | ClientMessage::Token { room, .. } => Some(room.clone()),
        ClientMessage::Update { .. }
        | ClientMessage::Leave { .. }
        | ClientMessage::Resync { .. }
        | ClientMessage::Ping { .. } => None,
    }
}
