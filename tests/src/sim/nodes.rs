//! Processes of the simulation, and the connections between them.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_core::driver::{Driver, LinkKey, WatchKey};
use presence_edge::hub::{ConnKey, Hub};
use presence_model::id::{ConnectionId, Incarnation};
use presence_model::link::LinkUp;
use presence_model::time::Mono;

use super::agenda::Pipe;
use super::chance::Chance;
use super::network::Node;
use super::world::Event;

/// A place where a core runs, or will.
pub(super) struct CoreSlot {
    pub(super) chance: Chance,
    pub(super) process: Option<Core>,
    /// When it could not do its work last: it was not there, slept, or could not reach the store.
    pub(super) unable_at: Mono,
}

/// A core process.
pub(super) struct Core {
    pub(super) driver: Driver,
    /// Counts runs of all cores: what was meant for an earlier one is lost.
    pub(super) run: u64,
    /// When its clock started.
    pub(super) started: Mono,
    /// When the store told it something first: since then it knows that clock.
    pub(super) heard_at: Option<Mono>,
    /// The wake-up that counts.
    pub(super) wake: Option<Mono>,
    /// What has come while it stands still.
    pub(super) asleep: Option<Vec<Event>>,
    /// What it had decided and not yet sent when it fell asleep; none: all was sent.
    pub(super) outbox: Option<Vec<Event>>,
    /// Since when it stands still, or did last.
    pub(super) slept_at: Mono,
    pub(super) draining: bool,
}

/// A place where an edge runs, or will.
pub(super) struct EdgeSlot {
    pub(super) chance: Chance,
    pub(super) process: Option<Edge>,
    pub(super) runs: u64,
    /// The identity of the run before.
    pub(super) before: Option<Incarnation>,
    /// Whether the next run has that identity.
    pub(super) same: bool,
    /// How long after a drain the next run starts.
    pub(super) back_after: Duration,
    /// When it could not speak for its sessions last.
    pub(super) unable_at: Mono,
    /// Since when it is not linked.
    pub(super) unlinked: Option<Mono>,
    /// What it says is heard again, until then; and what that is.
    pub(super) echo_until: Mono,
    pub(super) echo: Vec<LinkUp>,
}

/// An edge process.
pub(super) struct Edge {
    pub(super) hub: Hub,
    pub(super) run: u64,
    pub(super) started: Mono,
    pub(super) wake: Option<Mono>,
    pub(super) incarnation: Incarnation,
    pub(super) link: Option<LinkKey>,
    pub(super) watch: Option<WatchKey>,
    /// Connections by key, as the hub knows them.
    pub(super) by_key: BTreeMap<ConnKey, ConnectionId>,
    pub(super) asleep: Option<Vec<Event>>,
    pub(super) draining: bool,
    /// How many connections it has given up as silent, and whether it has just done so.
    pub(super) silent: u64,
    pub(super) finds_silent: bool,
}

/// Who watches or links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// An edge and its run.
    Edge(usize, u64),
    /// A service.
    Desk(usize),
}

impl Peer {
    pub(super) fn node(self) -> Node {
        match self {
            Self::Edge(edge, _) => Node::Edge(edge),
            Self::Desk(desk) => Node::Desk(desk),
        }
    }
}

/// A stream to a core: a link or a watch.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) peer: Peer,
    pub(super) core: usize,
    pub(super) core_run: u64,
    pub(super) up: Pipe,
    pub(super) down: Pipe,
    pub(super) open_at_peer: bool,
    pub(super) open_at_core: bool,
    /// Asked for over a way that was cut: if its peer gives up meanwhile nobody ever hears of it.
    pub(super) asked_in_vain: bool,
}

/// A WebSocket.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) tab: usize,
    pub(super) edge: usize,
    pub(super) edge_run: u64,
    pub(super) key: Option<ConnKey>,
    pub(super) up: Pipe,
    pub(super) down: Pipe,
    pub(super) open_at_tab: bool,
    pub(super) open_at_edge: bool,
    /// When anything of it reached the edge last.
    pub(super) heard: Mono,
    /// Since when what was handed out is not written.
    pub(super) writing: Option<Mono>,
    /// How often something was handed out since it was read last.
    pub(super) unread: u32,
}
