//! The edge's decisions: client sessions, rooms and the link as one state machine without I/O.
//!
//! `handle(input, now) → effects` and `poll_timeout`. The shell owns sockets and streams and carries
//! effects out; the simulator does the same over a simulated network.

use presence_model::claim::{Claims, TokenRefusal};
use presence_model::id::{ConnectionId, EdgeName, Incarnation, RegionId};
use presence_model::link::{Hello, LinkDown, LinkUp};
use presence_model::time::Mono;
use presence_model::watch::{WatchDown, WatchUp};

use crate::protocol::{ClientMessage, CloseCode, ErrorCode, Payload};

/// A connection in the hub's table: reused after it closed, hence with a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnKey {
    /// Place in the table.
    pub index: u32,
    /// Which use of the place.
    pub version: u32,
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnEnd {
    /// The client closed, or the transport broke.
    Lost,
    /// A write took too long.
    TooSlow,
}

/// A client's message that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// The connection is to close with this code.
    Fatal(CloseCode, String),
    /// It concerns one room or request: answer with this error.
    Error(ErrorCode, Option<presence_model::id::RoomId>, String),
}

/// What a hub takes.
#[derive(Debug)]
pub enum Input {
    /// A WebSocket was accepted. The answer is [`Effect::Accepted`].
    Accept(ConnectionId),
    /// A message, and the verified token if it carried one.
    Message(ConnKey, ClientMessage, Option<Result<Claims, TokenRefusal>>),
    /// A message that could not be read.
    Unreadable(ConnKey, Unreadable),
    /// Frames of any kind came since the last report. Messages count by themselves; of the rest at most
    /// one report a connection and 100 ms, since silence is counted from the last one.
    Heard(ConnKey),
    /// All handed frames were written.
    Written(ConnKey),
    /// The connection ended.
    Closed(ConnKey, ConnEnd),
    /// The link's stream is open: say hello was sent.
    LinkUp,
    /// From the core.
    Link(LinkDown),
    /// The link's stream ended or could not be opened.
    LinkLost,
    /// The watch stream is open.
    WatchUp,
    /// From the core.
    Watch(WatchDown),
    /// The watch stream ended or could not be opened.
    WatchLost,
    /// This process is to go.
    Drain,
    /// Time passed (`poll_timeout`).
    Tick,
}

/// What a hub wants done, in this order.
#[derive(Debug)]
pub enum Effect {
    /// The connection is in the table under this key.
    Accepted(ConnectionId, ConnKey),
    /// Write these payloads, each a text message, then report `Written`.
    Send(ConnKey, Vec<Payload>),
    /// Write a WebSocket ping.
    Ping(ConnKey),
    /// Close with this code after what was handed before. The key is free from here on.
    Close(ConnKey, CloseCode, &'static str),
    /// Open a link to a core (the next in the list) with this hello; answered by `LinkUp` or `LinkLost`.
    OpenLink(Hello),
    /// Send over the link.
    Link(LinkUp),
    /// Give the link up: `LinkLost` is not reported for it.
    DropLink,
    /// Open the watch stream to the core the link goes to; answered by `WatchUp` or `WatchLost`.
    OpenWatch,
    /// Send over the watch stream.
    Watch(WatchUp),
    /// Give the watch stream up: `WatchLost` is not reported for it.
    DropWatch,
    /// All is released: the process may exit.
    Drained,
}

/// What a hub is told at its start.
#[derive(Debug, Clone)]
pub struct HubSettings {
    /// Its configured name.
    pub edge: EdgeName,
    /// This run, minted at random.
    pub incarnation: Incarnation,
    /// Where it runs.
    pub region: RegionId,
    /// Timers until a core says otherwise.
    pub timings: presence_model::timing::Timings,
    /// How many cores there are to link to.
    pub cores: usize,
    /// Seeds jitter.
    pub seed: u64,
}

/// The edge's hub.
pub struct Hub {
    settings: HubSettings,
}

impl Hub {
    /// A hub that is not linked yet: call `handle(Input::Tick, …)` first.
    #[must_use]
    pub fn new(settings: HubSettings) -> Self {
        Self { settings }
    }

    /// Takes one input; the effects are appended in the order in which they must be carried out.
    pub fn handle(&mut self, input: Input, now: Mono, effects: &mut Vec<Effect>) {
        let _ = (input, now, effects, &self.settings);
        unimplemented!()
    }

    /// When to call `handle(Input::Tick, …)` next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        unimplemented!()
    }
}
