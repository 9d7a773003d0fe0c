//! Processes of the simulation: cores, edges and the connections between them.

use std::collections::BTreeMap;

use presence_core::driver::{Driver, Input, LinkKey, WatchKey};
use presence_edge::hub::{ConnKey, Hub};
use presence_model::id::{ConnectionId, Incarnation};
use presence_model::time::Mono;

use super::pipes::Pipe;

/// A core process, if it runs.
pub(super) struct Core {
    pub(super) driver: Driver,
    /// Counts runs of the process: what was meant for an earlier one is lost.
    pub(super) run: u64,
    /// When its clock started.
    pub(super) started: Mono,
    /// The wake-up that counts.
    pub(super) wake: Option<Mono>,
    /// What has come while it does not run, though it is there.
    pub(super) paused: Option<Vec<Input>>,
}

/// An edge process, if it runs.
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
}

/// A stream between an edge and a core: a link or a watch.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) edge: usize,
    pub(super) edge_run: u64,
    pub(super) core: usize,
    pub(super) core_run: u64,
    pub(super) up: Pipe,
    pub(super) down: Pipe,
    /// The edge said goodbye before it closed.
    pub(super) open_at_edge: bool,
    pub(super) open_at_core: bool,
}

/// A WebSocket.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) client: usize,
    pub(super) edge: usize,
    pub(super) edge_run: u64,
    pub(super) key: Option<ConnKey>,
    pub(super) up: Pipe,
    pub(super) down: Pipe,
    pub(super) open_at_client: bool,
    pub(super) open_at_edge: bool,
    /// Bytes stop in both directions and neither end is told.
    pub(super) cut: bool,
}
