//! The world: processes, the network between them, the store, and time.

mod core;
mod edge;
mod sockets;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use presence_core::driver::{LinkEnd, LinkKey, StoreOp, WatchKey};
use presence_core::store::memory::{MemorySettings, MemoryStore};
use presence_core::store::{Command, Outcome, StoreFault};
use presence_edge::protocol::{ClientMessage, Payload};
use presence_model::claim::Claims;
use presence_model::id::{ConnectionId, RegionId, RoomId, Roster, UserId};
use presence_model::link::{Hello, LinkDown, LinkUp};
use presence_model::time::{Mono, StoreTime, millis};
use presence_model::timing::{Timings, TimingsGiven};
use presence_model::watch::{WatchDown, WatchUp};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::checker::{Checker, Transport, Violation};
use super::client::{Client, Wish};
use super::faults::{Fault, Plan};
use super::nodes::{Core, Edge, Socket, Stream};
use super::pipes::{Agenda, Pipe};

/// The store's clock at the start of every world.
const STORE_START_MS: u64 = 1_790_000_000_000;
/// How often views are held against the truth.
const CHECK_EVERY: Duration = Duration::from_millis(250);
/// How long everything has to come to rest, in ttls.
const SETTLE_TTLS: u32 = 3;

/// Everything observed, as lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story {
    /// Seed of the world.
    pub seed: u64,
    /// The log.
    pub lines: Vec<String>,
    /// How often something was done or seen, by kind.
    pub counts: BTreeMap<&'static str, u64>,
}

/// Something that happens.
#[derive(Debug)]
enum Event {
    WakeCore(u64),
    WakeEdge(usize, u64),
    StartCore(usize),
    ResumeCore(u64),
    StartEdge(usize),
    StoreCommand(u64, StoreOp, Command),
    StoreReply(u64, StoreOp, Box<Result<Outcome, StoreFault>>),
    TailOver(u64, StoreOp),
    LinkOpening(LinkKey, Hello),
    LinkOpened(LinkKey),
    LinkUp(LinkKey, LinkUp),
    LinkDown(LinkKey, LinkDown),
    LinkGoneAtCore(LinkKey, LinkEnd),
    LinkGoneAtEdge(LinkKey),
    LinkRefused(usize, u64),
    WatchOpening(WatchKey),
    WatchOpened(WatchKey),
    WatchUp(WatchKey, WatchUp),
    WatchDown(WatchKey, Vec<WatchDown>),
    WatchGoneAtCore(WatchKey),
    WatchGoneAtEdge(WatchKey),
    WatchRefused(usize, u64),
    Dial(usize),
    Accept(ConnectionId),
    Say(ConnectionId, Box<ClientMessage>, Box<Claims>),
    Pong(ConnectionId),
    Frames(ConnectionId, Vec<Payload>),
    Ping(ConnectionId),
    HungUp(ConnectionId),
    Closed(ConnectionId, u16),
    Night,
    Wish(usize, Wish),
    TunnelOver(usize),
    FastAgain,
    Check,
}

/// The simulated world.
pub struct World {
    seed: u64,
    plan: Plan,
    rng: StdRng,
    now: Mono,
    agenda: Agenda<Event>,
    timings: Timings,
    region: RegionId,
    room: RoomId,
    store: MemoryStore,
    tails: Vec<(u64, StoreOp, Command)>,
    cores: Vec<Option<Core>>,
    core_runs: u64,
    edges: Vec<Option<Edge>>,
    edge_runs: Vec<u64>,
    links: BTreeMap<LinkKey, Stream>,
    watches: BTreeMap<WatchKey, Stream>,
    keys: u64,
    sockets: BTreeMap<ConnectionId, Socket>,
    clients: Vec<Client>,
    in_tunnel: Vec<bool>,
    checker: Checker,
    slow: bool,
    quiet: bool,
    lines: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
    broken: Option<Violation>,
}

impl World {
    /// A world in which everything is about to start.
    #[must_use]
    pub fn new(seed: u64, plan: &Plan) -> Self {
        let given = TimingsGiven {
            heartbeat: Some(Duration::from_secs(3)),
            lease_ttl: Some(Duration::from_secs(12)),
            grace: Some(Duration::from_secs(5)),
            ..TimingsGiven::default()
        };
        let timings = Timings::derive(given).expect("these hold");
        let room = RoomId::new("lobby").expect("a name");
        let settings = MemorySettings { shards: 2, seed, ..MemorySettings::default() };
        let clients: Vec<Client> = (0..plan.clients)
            .map(|index| {
                let wish = if index < plan.clients - 2 { Wish::Present } else { Wish::Watching };
                Client::new(format!("tab{index}"), &format!("u{}", index % plan.users), &room, wish)
            })
            .collect();
        let mut world = Self {
            seed,
            rng: StdRng::seed_from_u64(seed),
            now: Mono::default(),
            agenda: Agenda::new(),
            timings,
            region: RegionId::new("local").expect("a name"),
            room,
            store: MemoryStore::new(settings, StoreTime(STORE_START_MS)),
            tails: Vec::new(),
            cores: (0..plan.cores).map(|_| None).collect(),
            core_runs: 0,
            edges: (0..plan.edges).map(|_| None).collect(),
            edge_runs: vec![0; plan.edges],
            links: BTreeMap::new(),
            watches: BTreeMap::new(),
            keys: 0,
            sockets: BTreeMap::new(),
            in_tunnel: vec![false; clients.len()],
            checker: Checker::new(timings, clients.len()),
            clients,
            slow: false,
            quiet: false,
            lines: Vec::new(),
            counts: BTreeMap::new(),
            broken: None,
            plan: plan.clone(),
        };
        world.plan_start();
        world
    }

    fn plan_start(&mut self) {
        for core in 0..self.cores.len() {
            self.after(Duration::ZERO, Event::StartCore(core));
        }
        for edge in 0..self.edges.len() {
            self.after(Duration::from_millis(10), Event::StartEdge(edge));
        }
        for client in 0..self.clients.len() {
            let delay = Duration::from_millis(self.rng.random_range(500..4_000));
            self.after(delay, Event::Dial(client));
        }
        self.after(Duration::from_secs(8), Event::Night);
        self.after(CHECK_EVERY, Event::Check);
    }

    /// Lives through a span with faults.
    ///
    /// # Errors
    /// The first violation.
    pub fn live(&mut self, span: Duration) -> Result<(), Violation> {
        self.run_until(self.now + span)
    }

    /// No more faults: everything comes to rest, and must be right.
    ///
    /// # Errors
    /// The first violation.
    pub fn settle(&mut self) -> Result<(), Violation> {
        self.quiet = true;
        self.slow = false;
        for client in 0..self.clients.len() {
            if self.clients[client].wish == Wish::Away {
                self.clients[client].wish = Wish::Present;
            }
        }
        self.run_until(self.now + self.timings.lease_ttl * SETTLE_TTLS + Duration::from_secs(20))?;
        self.note("at rest", String::new());
        self.checker.at_rest(&self.clients, self.now)
    }

    /// Everything observed.
    #[must_use]
    pub fn into_story(self) -> Story {
        Story { seed: self.seed, lines: self.lines, counts: self.counts }
    }

    fn run_until(&mut self, end: Mono) -> Result<(), Violation> {
        while let Some((at, event)) = self.agenda.next_before(end) {
            self.now = at;
            self.happen(event);
            if let Some(broken) = self.broken.take() {
                self.note("BROKEN", broken.to_string());
                return Err(broken);
            }
        }
        self.now = end;
        Ok(())
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::WakeCore(run) => self.wake_core(run),
            Event::WakeEdge(edge, run) => self.wake_edge(edge, run),
            Event::StartCore(core) => self.start_core(core),
            Event::ResumeCore(run) => self.resume_core(run),
            Event::StartEdge(edge) => self.start_edge(edge),
            Event::StoreCommand(run, op, command) => self.store_command(run, op, command),
            Event::StoreReply(run, op, reply) => self.store_reply(run, op, reply),
            Event::TailOver(run, op) => self.tail_over(run, op),
            Event::LinkOpening(key, hello) => self.link_opening(key, hello),
            Event::LinkOpened(key) => self.link_opened(key),
            Event::LinkUp(key, up) => self.link_up(key, up),
            Event::LinkDown(key, down) => self.link_down(key, down),
            Event::LinkGoneAtCore(key, end) => self.link_gone_at_core(key, end),
            Event::LinkGoneAtEdge(key) => self.link_gone_at_edge(key),
            Event::LinkRefused(edge, run) => self.link_refused(edge, run),
            Event::WatchOpening(key) => self.watch_opening(key),
            Event::WatchOpened(key) => self.watch_opened(key),
            Event::WatchUp(key, up) => self.watch_up(key, up),
            Event::WatchDown(key, events) => self.watch_down(key, events),
            Event::WatchGoneAtCore(key) => self.watch_gone_at_core(key),
            Event::WatchGoneAtEdge(key) => self.watch_gone_at_edge(key),
            Event::WatchRefused(edge, run) => self.watch_refused(edge, run),
            Event::Dial(client) => self.dial(client),
            Event::Accept(connection) => self.accept(connection),
            Event::Say(connection, message, claims) => self.say(connection, *message, *claims),
            Event::Pong(connection) => self.pong(connection),
            Event::Frames(connection, payloads) => self.frames(connection, &payloads),
            Event::Ping(connection) => self.ping(connection),
            Event::HungUp(connection) => self.hung_up(connection),
            Event::Closed(connection, code) => self.closed(connection, code),
            Event::Night => self.night(),
            Event::Wish(client, wish) => self.wish(client, wish),
            Event::TunnelOver(client) => self.tunnel_over(client),
            Event::FastAgain => self.slow = false,
            Event::Check => self.check(),
        }
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.agenda.plan(self.now + delay, event);
    }

    fn delay(&mut self) -> Duration {
        let most = millis(self.plan.delay_max);
        let delay = Duration::from_millis(self.rng.random_range(1..=most));
        if self.slow { delay * 20 } else { delay }
    }

    fn through(&mut self, pipe: &mut Pipe, event: Event) {
        let delay = self.delay();
        let at = pipe.arrival(self.now, delay);
        self.agenda.plan(at, event);
    }

    fn store_time(&self) -> StoreTime {
        StoreTime(STORE_START_MS + millis(self.now.0))
    }

    fn roster(&self) -> Roster {
        Roster { region: self.region.clone(), room: self.room.clone() }
    }

    fn note(&mut self, kind: &'static str, what: String) {
        *self.counts.entry(kind).or_default() += 1;
        let mut line = format!("{:>9} {kind}", self.now.0.as_millis());
        if !what.is_empty() {
            let _ = write!(line, ": {what}");
        }
        self.lines.push(line);
    }

    fn night(&mut self) {
        if self.quiet {
            return;
        }
        let fault = self.plan.draw(&mut self.rng);
        self.suffer(fault);
        let pause = self.plan.pause(&mut self.rng);
        self.after(pause, Event::Night);
    }

    fn suffer(&mut self, fault: Fault) {
        self.note("fault", format!("{fault:?}"));
        match fault {
            Fault::Blip(client) => self.hang_up(client),
            Fault::Tunnel(client, span) => self.enter_tunnel(client, span),
            Fault::Leave(client, span) => self.leave(client, span),
            Fault::Update(client) => self.update(client),
            Fault::CrashEdge(edge, span) => self.crash_edge(edge, span),
            Fault::CrashCore(core, span) => self.crash_core(core, span),
            Fault::PauseCore(core, span) => self.pause_core(core, span),
            Fault::BreakLink(edge) => self.break_link(edge),
            Fault::Slow(span) => {
                self.slow = true;
                self.checker.excuse(self.now + span + Duration::from_secs(10));
                self.after(span, Event::FastAgain);
            }
        }
    }

    fn check(&mut self) {
        self.after(CHECK_EVERY, Event::Check);
        let users: Vec<UserId> = {
            let mut users: Vec<UserId> = self.clients.iter().map(|client| client.user.clone()).collect();
            users.sort();
            users.dedup();
            users
        };
        let now = self.store_time();
        let command = Command::Members { roster: self.roster(), users };
        let Ok(Outcome::Members { members, .. }) = self.store.apply(command, now) else { return };
        for member in members {
            let present = member.record.as_ref().is_some_and(|record| {
                record.sessions.iter().any(|session| {
                    member.leases.get(&session.lease).is_some_and(|lease| lease.deadline() > now)
                })
            });
            self.checker.note_truth(member.user.as_str(), present, self.now);
        }
        for index in 0..self.clients.len() {
            if let Err(violation) = self.checker.on_view(&self.clients[index], self.now) {
                self.broken.get_or_insert(violation);
            }
        }
    }
}
