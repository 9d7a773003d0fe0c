//! The edge's decisions: client sessions, rooms and the link as one state machine without I/O.
//!
//! `handle(input, now) → effects` and `poll_timeout`. The shell owns sockets and streams and carries
//! effects out; the simulator does the same over a simulated network.

mod answers;
mod counts;
mod drain;
mod link;
mod liveness;
mod pump;
mod refused;
mod renewals;
mod requests;
mod revoked;
mod rooms;
mod sessions;
mod table;
#[cfg(test)]
mod tests;
mod uplink;

use std::collections::BTreeMap;

use hashbrown::HashMap;
use presence_model::claim::{Claims, TokenRefusal};
use presence_model::crowd::Crowd;
use presence_model::id::{ConnectionId, EdgeName, Incarnation, RegionId};
use presence_model::lease::LeaseId;
use presence_model::link::{Hello, LinkDown, LinkUp, UnansweredJoin};
use presence_model::revocation::Revocations;
use presence_model::time::Mono;
use presence_model::timing::Timings;
use presence_model::watch::{WatchDown, WatchUp};
use presence_model::wheel::Wheel;
use rand::SeedableRng as _;
use rand::rngs::Xoshiro256PlusPlus;

pub use self::counts::{HubCounts, Reconnects};
use self::drain::Draining;
use self::link::Link;
pub use self::link::cores::CoreAddress;
use self::renewals::Renewals;
use self::requests::Requests;
use self::rooms::{RoomKey, Rooms};
use self::table::Table;
use self::uplink::Given;
use crate::protocol::{ClientMessage, CloseCode, Encoding, ErrorCode, Payload};

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
    /// Too many frames that are no messages: the connection is to close.
    Flood,
    /// It concerns one room or request: answer with this error.
    Error(ErrorCode, Option<presence_model::id::RoomId>, String),
}

/// What a hub takes.
#[derive(Debug)]
pub enum Input {
    /// A WebSocket was accepted, which speaks like this. The answer is [`Effect::Accepted`].
    Accept(ConnectionId, Encoding),
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
    /// All cores there are to link to now.
    Cores(Vec<CoreAddress>),
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
    /// Write these payloads, each a message of the connection's encoding, then report `Written`.
    Send(ConnKey, Vec<Payload>),
    /// Write a WebSocket ping.
    Ping(ConnKey),
    /// Close with this code after what was handed before. The key is free from here on.
    Close(ConnKey, CloseCode, &'static str),
    /// A token of this connection was refused: to be counted, and told with the address.
    TokenRefused(ConnKey, TokenRefusal),
    /// Open a link to this core with this hello; answered by `LinkUp` or `LinkLost`.
    OpenLink(CoreAddress, Hello),
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
    /// An operator wants this process to go: answered by `Drain`, once nobody new is accepted.
    Go,
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
    /// The cores there are to link to, as far as they are known.
    pub cores: Vec<CoreAddress>,
    /// Up to how many members a room is shown as a list unless asked otherwise; above zero.
    pub list_members: usize,
    /// Seeds jitter.
    pub seed: u64,
}

/// The edge's hub.
pub struct Hub {
    settings: HubSettings,
    timings: Timings,
    chance: Xoshiro256PlusPlus,
    conns: Table,
    rooms: Rooms,
    /// Which stay a lease belongs to. Looked up, never walked through.
    leases: HashMap<LeaseId, (ConnKey, RoomKey), foldhash::fast::FixedState>,
    wheel: Wheel<ConnKey>,
    link: Link,
    renewals: Renewals,
    requests: Requests,
    /// Newcomers whose joins have waited too long to be said, and those who were there before.
    crowd: Crowd,
    returning: Crowd,
    /// Given up, and not yet said.
    releasing: BTreeMap<Given, Vec<LeaseId>>,
    /// Joins whose answer will not be seen, and not yet said.
    unanswered: Vec<UnansweredJoin>,
    /// Tokens that open nothing any more, as cores have told.
    revoked: Revocations,
    /// Connections to be looked at before an input is done.
    dirty: Vec<ConnKey>,
    drain: Option<Draining>,
    /// When this process was found to run again.
    thawed: Option<Mono>,
    counts: HubCounts,
}

/// What an input is handled with.
struct Cx<'a> {
    now: Mono,
    out: &'a mut Vec<Effect>,
}

impl Hub {
    /// A hub that is not linked yet: call `handle(Input::Tick, …)` first.
    #[must_use]
    pub fn new(settings: HubSettings) -> Self {
        let timings = settings.timings;
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(settings.seed);
        let link = Link::new(&timings, settings.cores.clone(), &mut chance);
        Self {
            chance,
            conns: Table::default(),
            rooms: Rooms::new(settings.region.clone(), &timings, settings.list_members),
            leases: HashMap::with_hasher(foldhash::fast::FixedState::with_seed(settings.seed)),
            wheel: Wheel::new(liveness::tick_of(&timings)),
            link,
            renewals: Renewals::new(&timings),
            requests: Requests::default(),
            crowd: Crowd::default(),
            returning: Crowd::default(),
            releasing: BTreeMap::new(),
            unanswered: Vec::new(),
            revoked: Revocations::default(),
            dirty: Vec::new(),
            drain: None,
            thawed: None,
            counts: HubCounts::default(),
            settings,
            timings,
        }
    }

    /// Takes one input; the effects are appended in the order in which they must be carried out.
    pub fn handle(&mut self, input: Input, now: Mono, effects: &mut Vec<Effect>) {
        let cx = &mut Cx { now, out: effects };
        self.notice_freeze(cx);
        match input {
            Input::Accept(connection, encoding) => self.accept((connection, encoding), cx),
            Input::Message(key, message, verified) => self.on_message(key, message, verified, cx),
            Input::Unreadable(key, unreadable) => self.on_unreadable(key, unreadable, cx),
            Input::Heard(key) => self.heard(key, cx),
            Input::Written(key) => self.written(key),
            Input::Closed(key, end) => self.closed(key, end, cx),
            Input::Cores(cores) => self.take_cores(cores, cx),
            Input::LinkUp => self.link_opened(cx),
            Input::Link(down) => self.on_link(down, cx),
            Input::LinkLost => self.link_lost(cx),
            Input::WatchUp => self.watch_opened(cx),
            Input::Watch(down) => self.on_watch(down, cx),
            Input::WatchLost => self.watch_lost(cx),
            Input::Drain => self.start_drain(cx),
            Input::Tick => self.tick(cx),
        }
        self.settle(cx);
    }

    /// When to call `handle(Input::Tick, …)` next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        let renewals = if self.link.is_up() { self.renewals.due() } else { None };
        let drain = self.drain.as_ref().and_then(Draining::due);
        let link = if self.is_drained() { None } else { self.link.due(&self.timings) };
        [link, self.wheel.due(), renewals, self.requests.due(), self.rooms.poll_timeout(), drain]
            .into_iter()
            .flatten()
            .min()
    }

    /// What happened so far, and how much there is now.
    #[must_use]
    pub fn counts(&self) -> HubCounts {
        let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        let tally = self.rooms.watcher().tally();
        HubCounts {
            connections: count(self.conns.len()),
            rooms: count(self.rooms.len()),
            leases: count(self.leases.len()),
            link_up: self.link.is_up(),
            draining: self.is_draining(),
            gaps: tally.gaps,
            differs: tally.differs,
            renewals_repeated: self.renewals.repeated,
            ..self.counts
        }
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        if !self.is_drained() {
            self.link_tick(cx);
        }
        self.tick_connections(cx);
        self.tick_requests(cx);
        self.tick_renewals(cx);
    }

    /// What every input ends with: flushes that are due, what the core is to be told, what connections
    /// are to be shown.
    fn settle(&mut self, cx: &mut Cx<'_>) {
        self.rooms.tick(cx.now);
        self.spread_news(cx);
        self.pump(cx);
        self.tend_watch(cx);
        self.say_releases(cx);
        self.say_joins(cx);
        self.tend_drain(cx);
    }
}
