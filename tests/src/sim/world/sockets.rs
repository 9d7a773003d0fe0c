//! Clients and their sockets.

use std::time::Duration;

use presence_edge::hub::{ConnEnd, ConnKey, Input};
use presence_edge::protocol::{ClientMessage, CloseCode, Payload};
use presence_model::claim::{Action, Claims};
use presence_model::id::ConnectionId;
use presence_model::profile::Status;
use presence_model::record::TokenRef;
use presence_model::time::{StoreTime, millis};
use rand::RngExt as _;
use serde_json::Value;

use super::{Event, Transport, Wish, World};
use crate::sim::nodes::Socket;
use crate::sim::pipes::Pipe;

impl World {
    pub(super) fn dial(&mut self, index: usize) {
        let client = &self.clients[index];
        if client.connection.is_some() || client.wish == Wish::Away {
            return;
        }
        let running: Vec<usize> = (0..self.edges.len()).filter(|edge| self.edges[*edge].is_some()).collect();
        if self.in_tunnel[index] || running.is_empty() {
            self.redial(index);
            return;
        }
        let edge = running[self.rng.random_range(0..running.len())];
        let connection = ConnectionId(self.rng.random());
        let mut socket = Socket {
            client: index,
            edge,
            edge_run: self.edge_runs[edge],
            key: None,
            up: Pipe::default(),
            down: Pipe::default(),
            open_at_client: true,
            open_at_edge: true,
            cut: false,
        };
        self.clients[index].connection = Some(connection);
        self.clients[index].heard = self.now;
        self.through(&mut socket.up, Event::Accept(connection));
        self.sockets.insert(connection, socket);
        let what = format!("{} to edge{edge} as {connection}", self.clients[index].name);
        self.note("dial", what);
    }

    fn redial(&mut self, index: usize) {
        let within = millis(self.timings.reconnect_within);
        let delay = Duration::from_millis(self.rng.random_range(10..=within));
        self.after(delay, Event::Dial(index));
    }

    /// The edge's key of a socket that is open there.
    fn at_edge(&self, connection: ConnectionId) -> Option<(usize, ConnKey)> {
        let socket = self.sockets.get(&connection).filter(|socket| socket.open_at_edge)?;
        let edge = self.edges[socket.edge].as_ref()?;
        (edge.run == socket.edge_run).then_some((socket.edge, socket.key?))
    }

    pub(super) fn accept(&mut self, connection: ConnectionId) {
        let Some(socket) = self.sockets.get(&connection) else { return };
        let (edge, run, cut) = (socket.edge, socket.edge_run, socket.cut);
        if cut {
            return;
        }
        if self.edges[edge].as_ref().is_none_or(|edge| edge.run != run) {
            self.after(Duration::from_millis(1), Event::Closed(connection, 1006));
            return;
        }
        self.feed_edge(edge, Input::Accept(connection));
    }

    pub(super) fn say(&mut self, connection: ConnectionId, message: ClientMessage, claims: Claims) {
        if self.sockets.get(&connection).is_none_or(|socket| socket.cut) {
            return;
        }
        let Some((edge, key)) = self.at_edge(connection) else { return };
        self.feed_edge(edge, Input::Heard(key));
        let verified =
            matches!(message, ClientMessage::Join(_) | ClientMessage::Watch { .. }).then_some(Ok(claims));
        self.feed_edge(edge, Input::Message(key, message, verified));
    }

    fn send(&mut self, index: usize, message: ClientMessage, claims: Claims) {
        let Some(connection) = self.clients[index].connection else { return };
        if let Some(mut socket) = self.sockets.remove(&connection) {
            self.through(&mut socket.up, Event::Say(connection, Box::new(message), Box::new(claims)));
            self.sockets.insert(connection, socket);
        }
    }

    /// What the token of a connection's client says.
    pub(super) fn claims_of(&self, connection: ConnectionId) -> Claims {
        let client = self.sockets.get(&connection).map_or(0, |socket| socket.client);
        let client = &self.clients[client];
        Claims {
            user: client.user.clone(),
            room: client.room.clone(),
            action: Action::Join,
            not_before: None,
            token: TokenRef { ends: StoreTime(u64::MAX / 2), key_id: "k".into(), token_id: "".into() },
        }
    }

    pub(super) fn send_frames(&mut self, edge: usize, key: ConnKey, payloads: Vec<Payload>) {
        let Some(connection) = self.connection_of(edge, key) else { return };
        if let Some(mut socket) = self.sockets.remove(&connection) {
            self.through(&mut socket.down, Event::Frames(connection, payloads));
            self.sockets.insert(connection, socket);
        }
    }

    pub(super) fn send_ping(&mut self, edge: usize, key: ConnKey) {
        let Some(connection) = self.connection_of(edge, key) else { return };
        if let Some(mut socket) = self.sockets.remove(&connection) {
            self.through(&mut socket.down, Event::Ping(connection));
            self.sockets.insert(connection, socket);
        }
    }

    pub(super) fn close_socket(&mut self, edge: usize, key: ConnKey, code: CloseCode, why: &str) {
        let Some(connection) = self.connection_of(edge, key) else { return };
        if let Some(edge) = self.edges[edge].as_mut() {
            edge.by_key.remove(&key);
        }
        self.note("edge closes", format!("{connection} {code:?} {why}"));
        if let Some(mut socket) = self.sockets.remove(&connection) {
            socket.open_at_edge = false;
            self.through(&mut socket.down, Event::Closed(connection, number_of(code)));
            let client = socket.client;
            self.sockets.insert(connection, socket);
            if self.clients[client].connection == Some(connection) {
                self.checker.lost(client, self.now);
            }
        }
    }

    fn connection_of(&self, edge: usize, key: ConnKey) -> Option<ConnectionId> {
        self.edges[edge].as_ref()?.by_key.get(&key).copied()
    }

    pub(super) fn sockets_of(&self, edge: usize, run: u64) -> Vec<ConnectionId> {
        let of = self.sockets.iter().filter(|(_, socket)| (socket.edge, socket.edge_run) == (edge, run));
        of.filter(|(_, socket)| socket.open_at_edge).map(|(connection, _)| *connection).collect()
    }

    /// The transport of a client is gone, whoever knows it yet.
    pub(super) fn transport_lost(&mut self, connection: ConnectionId) {
        let Some(client) = self.sockets.get(&connection).map(|socket| socket.client) else { return };
        if self.clients[client].connection == Some(connection) {
            self.checker.lost(client, self.now);
        }
    }

    pub(super) fn pong(&mut self, connection: ConnectionId) {
        if self.sockets.get(&connection).is_none_or(|socket| socket.cut) {
            return;
        }
        if let Some((edge, key)) = self.at_edge(connection) {
            self.feed_edge(edge, Input::Heard(key));
        }
    }

    pub(super) fn ping(&mut self, connection: ConnectionId) {
        let Some(mut socket) = self.sockets.remove(&connection) else { return };
        if socket.open_at_client && !socket.cut {
            self.clients[socket.client].heard = self.now;
            self.through(&mut socket.up, Event::Pong(connection));
        }
        self.sockets.insert(connection, socket);
    }

    pub(super) fn frames(&mut self, connection: ConnectionId, payloads: &[Payload]) {
        let Some(socket) = self.sockets.get(&connection) else { return };
        let (index, cut, open) = (socket.client, socket.cut, socket.open_at_client);
        if cut {
            return;
        }
        if let Some((edge, key)) = self.at_edge(connection) {
            self.feed_edge(edge, Input::Written(key));
        }
        if !open || self.clients[index].connection != Some(connection) {
            return;
        }
        for payload in payloads {
            let frame: Value = serde_json::from_slice(payload).expect("the edge writes JSON");
            self.frame(index, connection, &frame);
        }
    }

    fn frame(&mut self, index: usize, connection: ConnectionId, frame: &Value) {
        self.clients[index].heard = self.now;
        let name = self.clients[index].name.clone();
        let mut seen = Vec::new();
        if let Err(gap) = self.clients[index].frame(frame, &mut seen) {
            let what = format!("{name} got what does not follow: {gap}");
            self.broken.get_or_insert(super::Violation { guarantee: "G5", at: self.now, what });
        }
        for seen in seen {
            self.note("seen", format!("{name} {seen:?}"));
            if let Err(violation) = self.checker.on_seen(&self.clients, &name, &seen, self.now) {
                self.broken.get_or_insert(violation);
            }
        }
        match frame["t"].as_str() {
            Some("hello") => {
                let (message, claims) = self.clients[index].enter();
                self.send(index, message, claims);
            }
            Some("joined") => {
                let stands = self.at_edge(connection).is_some();
                self.note("joined", format!("{name} {frame}"));
                if stands {
                    self.checker.stands(index, self.now);
                }
            }
            Some("error") => {
                self.note("error", format!("{name} {frame}"));
                if frame["code"] == "stale_generation" {
                    self.clients[index].mint();
                }
                self.hang_up(index);
            }
            Some("ended") => {
                self.note("ended", format!("{name} {frame}"));
                self.checker.transports[index] = Transport::None;
                self.clients[index].mint();
                self.hang_up(index);
            }
            _ => {}
        }
    }

    /// The client closes its socket, without goodbye, and comes back.
    pub(super) fn hang_up(&mut self, index: usize) {
        let Some(connection) = self.clients[index].connection else { return };
        self.checker.lost(index, self.now);
        self.clients[index].disconnected();
        if let Some(mut socket) = self.sockets.remove(&connection) {
            socket.open_at_client = false;
            if !socket.cut {
                self.through(&mut socket.up, Event::HungUp(connection));
            }
            self.sockets.insert(connection, socket);
        }
        self.redial(index);
    }

    pub(super) fn hung_up(&mut self, connection: ConnectionId) {
        let Some((edge, key)) = self.at_edge(connection) else { return };
        if let Some(socket) = self.sockets.get_mut(&connection) {
            socket.open_at_edge = false;
        }
        if let Some(edge) = self.edges[edge].as_mut() {
            edge.by_key.remove(&key);
        }
        self.feed_edge(edge, Input::Closed(key, ConnEnd::Lost));
    }

    pub(super) fn closed(&mut self, connection: ConnectionId, code: u16) {
        let Some(socket) = self.sockets.get_mut(&connection) else { return };
        let (index, cut) = (socket.client, socket.cut);
        if cut || !std::mem::take(&mut socket.open_at_client) {
            return;
        }
        if self.clients[index].connection != Some(connection) {
            return;
        }
        self.checker.lost(index, self.now);
        if code == 4409 {
            self.clients[index].mint();
        }
        self.clients[index].disconnected();
        self.redial(index);
    }

    pub(super) fn enter_tunnel(&mut self, index: usize, span: Duration) {
        if std::mem::replace(&mut self.in_tunnel[index], true) {
            return;
        }
        self.checker.lost(index, self.now);
        self.clients[index].live = false;
        if let Some(socket) = self.clients[index].connection.and_then(|c| self.sockets.get_mut(&c)) {
            socket.cut = true;
        }
        self.after(span, Event::TunnelOver(index));
    }

    /// Out again: the first byte that does not come through tells that the old socket is dead.
    pub(super) fn tunnel_over(&mut self, index: usize) {
        self.in_tunnel[index] = false;
        if self.clients[index].connection.is_some() {
            self.hang_up(index);
        }
    }

    pub(super) fn leave(&mut self, index: usize, away_for: Duration) {
        if !self.clients[index].joined || self.in_tunnel[index] {
            return;
        }
        self.checker.transports[index] = Transport::None;
        self.clients[index].wish = Wish::Away;
        let claims = self.clients[index].connection.map(|connection| self.claims_of(connection));
        let message = ClientMessage::Leave { room: self.room.clone() };
        if let Some(claims) = claims {
            self.send(index, message, claims);
        }
        self.hang_up(index);
        self.clients[index].mint();
        self.after(away_for, Event::Wish(index, Wish::Present));
    }

    pub(super) fn wish(&mut self, index: usize, wish: Wish) {
        self.clients[index].wish = wish;
        self.after(Duration::from_millis(1), Event::Dial(index));
    }

    pub(super) fn update(&mut self, index: usize) {
        if !self.clients[index].joined {
            return;
        }
        let status = [Status::Available, Status::Away, Status::Busy][self.rng.random_range(0..3)];
        self.clients[index].status = status;
        let Some(connection) = self.clients[index].connection else { return };
        let message = ClientMessage::Update { room: self.room.clone(), status: Some(status), state: None };
        let claims = self.claims_of(connection);
        self.send(index, message, claims);
    }
}

fn number_of(code: CloseCode) -> u16 {
    match code {
        CloseCode::Normal => 1000,
        CloseCode::GoingAway => 1001,
        CloseCode::Restart => 1012,
        CloseCode::Overloaded => 1013,
        CloseCode::Malformed => 4400,
        CloseCode::Unauthorized => 4401,
        CloseCode::Forbidden => 4403,
        CloseCode::Silent => 4408,
        CloseCode::Superseded => 4409,
        CloseCode::Evicted => 4410,
        CloseCode::TooLarge => 4413,
        CloseCode::RateLimited => 4429,
    }
}
