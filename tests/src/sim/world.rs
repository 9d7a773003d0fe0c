//! The world: processes, the ways between them, the store, and time.

mod asleep;
mod brought;
mod core;
mod desks;
mod edge;
mod mutants;
mod observe;
mod operator;
mod rest;
mod revoked;
mod sockets;
mod store;
mod suffer;
mod tabs;
mod witness;

use std::collections::BTreeMap;
use std::time::Duration;

use presence_core::driver::{LinkEnd, LinkKey, Query, QueryKey, StoreOp, WatchKey};
use presence_core::store::{Command, Outcome, StoreFault};
use presence_edge::protocol::{ClientMessage, Payload};
use presence_model::claim::Claims;
use presence_model::id::ConnectionId;
use presence_model::link::{Hello, LinkDown, LinkUp};
use presence_model::time::{Mono, StoreTime};
use presence_model::timing::Timings;
use presence_model::watch::{WatchDown, WatchUp};
use rand::RngExt as _;

use self::brought::Brought;
use self::mutants::Spoiled;
use self::observe::Eye;
use self::operator::Operator;
use self::store::StoreHouse;
use super::agenda::{Agenda, Pipe};
use super::chance::{Purpose, chance};
use super::desk::Desk;
use super::faults::Over;
use super::guarantee::{Breach, Guarantee, Violation};
use super::ledger::Ledger;
use super::names::Names;
use super::network::{Network, Node};
use super::nodes::{CoreSlot, EdgeSlot, Socket, Stream};
use super::plan::Plan;
use super::shape::Shape;
use super::story::{Keep, Story};
use super::tab::Tab;

/// How often everything is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Something that happens.
#[derive(Debug)]
pub(super) enum Event {
    StartCore(usize),
    WakeCore(u64),
    ResumeCore(u64),
    StopCore(u64),
    StoreCommand(u64, StoreOp, Box<Command>),
    StoreReply(u64, StoreOp, Box<Result<Outcome, StoreFault>>),
    TailOver(u64, StoreOp),
    LinkOpening(LinkKey, Box<Hello>),
    LinkUp(LinkKey, Box<LinkUp>),
    LinkGoneAtCore(LinkKey, LinkEnd),
    WatchOpening(WatchKey),
    WatchUp(WatchKey, WatchUp),
    WatchReady(WatchKey),
    WatchGoneAtCore(WatchKey),
    Asked(u64, QueryKey, Query),
    StartEdge(usize),
    WakeEdge(usize, u64),
    ResumeEdge(usize, u64),
    StopEdge(usize, u64),
    LinkOpened(LinkKey),
    LinkDown(LinkKey, Box<LinkDown>),
    LinkGoneAtEdge(LinkKey),
    WatchOpened(WatchKey),
    WatchDown(WatchKey, Vec<WatchDown>),
    WatchGoneAtPeer(WatchKey),
    EchoOver(usize),
    AtEdge(ConnectionId, AtEdge),
    AtTab(ConnectionId, AtTab),
    Tab(usize, OfTab),
    WakeTab(usize),
    DialDesk(usize, u64),
    Strike(usize),
    Question,
    Look,
}

/// What of a socket reaches its edge.
#[derive(Debug)]
pub(super) enum AtEdge {
    Accept,
    /// With the number of the token it carries.
    Say(Box<ClientMessage>, Option<usize>),
    Pong,
    HungUp,
    /// What was handed out is written.
    Written,
}

/// What of a socket reaches its tab.
#[derive(Debug)]
pub(super) enum AtTab {
    /// With the time when they were sent.
    Frames(Mono, Vec<Payload>),
    Ping,
    Closed(u16),
}

/// What a tab has planned to do.
#[derive(Debug)]
pub(super) enum OfTab {
    /// Open a socket, unless something else was planned since.
    Dial(u64),
    /// Ask for the room of this place, unless it was asked for since.
    Enter(usize, u64),
    /// See whether this socket still works.
    Watchdog(ConnectionId),
    /// Leave this socket's edge, as it was asked to.
    MoveOn(ConnectionId),
    /// Want into the room of this place again.
    Return(usize),
}

/// Time, what is to come, and the ways things take.
pub(super) struct Wires {
    pub(super) now: Mono,
    agenda: Agenda<Event>,
    pub(super) net: Network,
}

impl Wires {
    pub(super) fn after(&mut self, delay: Duration, event: Event) {
        self.agenda.plan(self.now + delay, event);
    }

    pub(super) fn at(&mut self, at: Mono, event: Event) {
        self.agenda.plan(at, event);
    }

    /// Sends through a pipe: what was sent before arrives before.
    pub(super) fn send(&mut self, pipe: &mut Pipe, way: (Node, Node), event: Event) {
        let at = self.net.arrival(pipe, way, self.now);
        self.agenda.plan(at, event);
    }
}

/// The simulated world.
pub(super) struct World {
    plan: Plan,
    timings: Timings,
    names: Names,
    wires: Wires,
    store: StoreHouse,
    cores: Vec<CoreSlot>,
    core_runs: u64,
    edges: Vec<EdgeSlot>,
    links: BTreeMap<LinkKey, Stream>,
    watches: BTreeMap<WatchKey, Stream>,
    keys: u64,
    sockets: BTreeMap<ConnectionId, Socket>,
    tabs: Vec<Tab>,
    tabs_asleep: Vec<Option<Vec<Event>>>,
    desks: Vec<Desk>,
    tokens: Vec<Claims>,
    /// Keys that sign no more.
    keys_revoked: u64,
    operator: Operator,
    ledger: Ledger,
    brought: Brought,
    eye: Eye,
    /// Over what cores are to stand still, and for how long.
    dozes: Vec<(Over, Duration)>,
    /// No more faults: everything is to come to rest.
    quiet: bool,
    pub(super) story: Story,
    broken: Option<Violation>,
    spoiled: Spoiled,
}

impl World {
    pub(super) fn new(plan: &Plan, keep: Keep) -> Self {
        let shape = &plan.shape;
        let seed = plan.seed;
        let names = Names::new(shape.users, shape.rooms);
        let core = |place: usize| CoreSlot {
            chance: chance(seed, Purpose::Core, place as u64),
            process: None,
            unable_at: Mono::default(),
        };
        let desk = |place: usize| Desk::new(chance(seed, Purpose::Desk, place as u64), shape.rooms);
        let net = Network::new(seed, shape.delay_max);
        let mut world = Self {
            timings: shape.timings(),
            wires: Wires { now: Mono::default(), agenda: Agenda::new(), net },
            store: StoreHouse::new(plan),
            cores: (0..shape.cores).map(core).collect(),
            core_runs: 0,
            edges: (0..shape.edges)
                .map(|place| EdgeSlot::new(chance(seed, Purpose::Edge, place as u64)))
                .collect(),
            links: BTreeMap::new(),
            watches: BTreeMap::new(),
            keys: 0,
            sockets: BTreeMap::new(),
            tabs: (0..shape.tabs)
                .map(|tab| Tab::new(tab, shape, chance(seed, Purpose::Tab, tab as u64)))
                .collect(),
            tabs_asleep: (0..shape.tabs).map(|_| None).collect(),
            desks: (0..shape.desks).map(desk).collect(),
            tokens: Vec::new(),
            keys_revoked: 0,
            operator: Operator::new(chance(seed, Purpose::Operator, 0)),
            ledger: Ledger::default(),
            brought: Brought::default(),
            eye: Eye::new(shape),
            dozes: Vec::new(),
            quiet: false,
            story: Story::new(keep),
            broken: None,
            spoiled: Spoiled::default(),
            names,
            plan: plan.clone(),
        };
        world.plan_start();
        world
    }

    fn plan_start(&mut self) {
        for core in 0..self.cores.len() {
            self.wires.after(Duration::ZERO, Event::StartCore(core));
        }
        for edge in 0..self.edges.len() {
            self.wires.after(Duration::from_millis(10), Event::StartEdge(edge));
        }
        for tab in 0..self.tabs.len() {
            let delay = Duration::from_millis(self.tabs[tab].chance.random_range(500..3_000));
            self.dial_after(tab, delay);
        }
        for desk in 0..self.desks.len() {
            self.dial_desk_after(desk, Duration::from_millis(700));
        }
        for fault in 0..self.plan.faults.len() {
            let at = Mono(self.plan.faults[fault].at);
            self.wires.at(at, Event::Strike(fault));
        }
        self.wires.after(Duration::from_secs(1), Event::Question);
        self.wires.after(LOOK_EVERY, Event::Look);
    }

    /// Lives through the plan, and comes to rest.
    pub(super) fn live(&mut self) -> Result<(), Violation> {
        self.run_until(Mono(self.plan.span))?;
        self.calm_down();
        self.run_until(Mono(self.plan.span + self.time_to_rest()))?;
        self.at_rest();
        self.verdict()
    }

    fn run_until(&mut self, end: Mono) -> Result<(), Violation> {
        while let Some((at, event)) = self.wires.agenda.next_before(end) {
            self.wires.now = at;
            if let Some(event) = self.unless_asleep(event) {
                self.happen(event);
            }
            if self.broken.is_some() {
                return self.verdict();
            }
        }
        self.wires.now = end;
        Ok(())
    }

    fn verdict(&mut self) -> Result<(), Violation> {
        let Some(broken) = self.broken.clone() else { return Ok(()) };
        self.note("BROKEN", &broken.to_string());
        Err(broken)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::StartCore(core) => self.start_core(core),
            Event::WakeCore(run) => self.wake_core(run),
            Event::ResumeCore(run) => self.resume_core(run),
            Event::StopCore(run) => self.stop_core(run),
            Event::StoreCommand(run, op, command) => self.store_command(run, op, *command),
            Event::StoreReply(run, op, reply) => self.store_reply(run, op, reply),
            Event::TailOver(run, op) => self.tail_over(run, op),
            Event::LinkOpening(key, hello) => self.link_opening(key, *hello),
            Event::LinkUp(key, up) => self.link_up(key, *up),
            Event::LinkGoneAtCore(key, end) => self.link_gone_at_core(key, end),
            Event::WatchOpening(key) => self.watch_opening(key),
            Event::WatchUp(key, up) => self.watch_up(key, up),
            Event::WatchReady(key) => self.watch_ready(key),
            Event::WatchGoneAtCore(key) => self.watch_gone_at_core(key),
            Event::Asked(run, key, query) => self.asked(run, key, query),
            Event::StartEdge(edge) => self.start_edge(edge),
            Event::WakeEdge(edge, run) => self.wake_edge(edge, run),
            Event::ResumeEdge(edge, run) => self.resume_edge(edge, run),
            Event::StopEdge(edge, run) => self.stop_edge(edge, run),
            Event::LinkOpened(key) => self.link_opened(key),
            Event::LinkDown(key, down) => self.link_down(key, *down),
            Event::LinkGoneAtEdge(key) => self.link_gone_at_edge(key),
            Event::WatchOpened(key) => self.watch_opened(key),
            Event::WatchDown(key, events) => self.watch_down(key, events),
            Event::WatchGoneAtPeer(key) => self.watch_gone_at_peer(key),
            Event::EchoOver(edge) => self.echo_over(edge),
            Event::DialDesk(desk, number) => self.dial_desk(desk, number),
            Event::Strike(fault) => self.strike(fault),
            Event::Question => self.question(),
            Event::Look => self.look(),
            Event::AtEdge(connection, what) => self.at_edge(connection, what),
            Event::AtTab(connection, what) => self.at_tab(connection, what),
            Event::Tab(tab, what) => self.of_tab(tab, what),
            Event::WakeTab(tab) => self.wake_tab(tab),
        }
    }

    fn now(&self) -> Mono {
        self.wires.now
    }

    fn store_time(&self) -> StoreTime {
        self.store.time(self.wires.now)
    }

    fn shape(&self) -> &Shape {
        &self.plan.shape
    }

    fn note(&mut self, kind: &'static str, what: &str) {
        self.story.note(self.wires.now, kind, what);
    }

    /// A guarantee was looked at, and nothing excused what was seen.
    fn looked_at(&mut self, guarantee: Guarantee) {
        self.story.count(guarantee.into());
    }

    /// A guarantee is broken; only the first counts.
    fn breach(&mut self, guarantee: Guarantee, what: String) {
        let at = self.wires.now;
        self.broken.get_or_insert(Violation { guarantee, at, what });
    }

    fn hold_to<T>(&mut self, judged: Result<T, Breach>) -> Option<T> {
        match judged {
            Ok(fine) => Some(fine),
            Err((guarantee, what)) => {
                self.breach(guarantee, what);
                None
            }
        }
    }
}
