//! Regions that watch each other, each with cores and a store of its own: nights in which the ways between them are cut
//! and stand still, their cores die and stand still, and people move from one to another.
//!
//! Edges are made by hand here, as what they do is seen in the other nights: what is held to the guarantees is what
//! cores make of what other cores tell.

mod account;
mod cores;
mod edges;
mod judge;
mod mutants;
mod onlookers;
mod people;
mod streams;

use std::collections::BTreeMap;
use std::time::Duration;

use presence_core::driver::{LinkEnd, LinkKey, Query, QueryKey, StoreOp, WatchKey};
use presence_core::store::{Command, Outcome, StoreFault};
use presence_model::id::{RegionId, RoomId, Roster};
use presence_model::lease::LeaseId;
use presence_model::link::{Hello, LinkDown, LinkUp};
use presence_model::time::Mono;
use presence_model::timing::Timings;
use presence_model::watch::{WatchDown, WatchUp};
use rand::RngExt as _;

use self::account::Account;
use self::cores::{CoreSlot, Stored};
use self::edges::{Edge, Link};
use self::onlookers::Onlooker;
use self::people::Person;
use self::streams::Stream;
use super::agenda::{Agenda, Pipe};
use super::chance::{Chance, Purpose, chance};
use super::faults::{Fault, Way};
use super::guarantee::{Guarantee, Violation};
use super::network::{Network, Node};
use super::plan::Plan;
use super::story::{Keep, Story};

/// How often everything is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often somebody asks who is there.
const ASK_EVERY: Duration = Duration::from_secs(3);
/// One way between two regions, beside what any way takes.
const FAR: Duration = Duration::from_millis(80);
/// After the last fault: whatever waits longest between two attempts has made one by then.
const ATTEMPTS_WITHIN: Duration = Duration::from_secs(25);

/// Something that happens.
#[derive(Debug)]
pub(super) enum Event {
    StartCore(usize),
    WakeCore(u64),
    ResumeCore(u64),
    StoreCommand(u64, StoreOp, Box<Command>),
    StoreReply(u64, StoreOp, Box<Result<Outcome, StoreFault>>),
    TailOver(u64, StoreOp),
    DialLink(usize),
    LinkOpening(LinkKey, Box<Hello>),
    LinkUp(LinkKey, Box<LinkUp>),
    LinkDown(LinkKey, Box<LinkDown>),
    LinkGoneAtCore(LinkKey, LinkEnd),
    LinkGoneAtEdge(LinkKey),
    Beat(usize),
    DialPeer(u64, usize),
    DialOnlooker(usize, u64),
    WatchOpening(WatchKey),
    WatchOpened(WatchKey),
    WatchOverdue(WatchKey),
    WatchUp(WatchKey, WatchUp),
    WatchDown(WatchKey, Vec<WatchDown>),
    WatchReady(WatchKey),
    WatchGoneAtCore(WatchKey),
    WatchGoneAtPeer(WatchKey),
    Return(usize, u64),
    Part(usize, (usize, LeaseId), Parting),
    Delayed(usize, Box<LinkUp>),
    Strike(usize),
    Ask,
    Asked(u64, QueryKey, Query),
    Look,
}

/// How somebody who has moved parts from where it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parting {
    /// With a goodbye.
    Goodbye,
    /// The connection is lost.
    Drop,
    /// Nobody says anything any more.
    Silence,
}

/// Regions, and what lies between them.
pub(super) struct Lands {
    plan: Plan,
    timings: Timings,
    now: Mono,
    agenda: Agenda<Event>,
    net: Network,
    chance: Chance,
    regions: Vec<RegionId>,
    rooms: Vec<RoomId>,
    stores: Vec<Stored>,
    /// Those of the first region, then those of the next.
    cores: Vec<CoreSlot>,
    runs: u64,
    keys: u64,
    /// One a region.
    edges: Vec<Edge>,
    links: BTreeMap<LinkKey, Link>,
    watches: BTreeMap<WatchKey, Stream>,
    people: Vec<Person>,
    onlookers: Vec<Onlooker>,
    account: Account,
    /// No more faults: everything is to come to rest.
    quiet: bool,
    pub(super) story: Story,
    broken: Option<Violation>,
}

impl Lands {
    pub(super) fn new(plan: &Plan, keep: Keep) -> Self {
        let (shape, seed) = (&plan.shape, plan.seed);
        let name = |land: usize| RegionId::new(format!("land{land}")).expect("a name");
        let lands = shape.regions;
        let mut world = Self {
            timings: shape.timings(),
            now: Mono::default(),
            agenda: Agenda::new(),
            net: Network::new(seed, shape.delay_max),
            chance: chance(seed, Purpose::Operator, 1),
            regions: (0..lands).map(name).collect(),
            rooms: (0..shape.rooms).map(|room| RoomId::new(format!("r{room}")).expect("a name")).collect(),
            stores: (0..lands).map(|land| Stored::new(seed, land)).collect(),
            cores: (0..lands * shape.cores).map(|place| CoreSlot::new(seed, place)).collect(),
            runs: 0,
            keys: 0,
            edges: (0..lands).map(|land| Edge::new(seed, land)).collect(),
            links: BTreeMap::new(),
            watches: BTreeMap::new(),
            people: (0..shape.tabs).map(|person| Person::new(seed, person, shape.rooms)).collect(),
            onlookers: (0..lands * shape.cores)
                .map(|number| number / shape.cores)
                .map(|land| Onlooker::new(land, name(land)))
                .collect(),
            account: Account::default(),
            quiet: false,
            story: Story::new(keep),
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
        for land in 0..self.edges.len() {
            self.after(Duration::from_millis(20), Event::DialLink(land));
            self.after(Duration::from_millis(20), Event::Beat(land));
        }
        for onlooker in 0..self.onlookers.len() {
            self.dial_onlooker_after(onlooker, Duration::from_millis(100));
        }
        for person in 0..self.people.len() {
            let delay = Duration::from_millis(self.chance.random_range(1_000..5_000));
            self.return_after(person, delay);
        }
        for fault in 0..self.plan.faults.len() {
            let at = Mono(self.plan.faults[fault].at);
            self.agenda.plan(at, Event::Strike(fault));
        }
        self.after(ASK_EVERY, Event::Ask);
        self.after(LOOK_EVERY, Event::Look);
    }

    /// Lives through the plan, and comes to rest.
    pub(super) fn live(&mut self) -> Result<(), Violation> {
        self.run_until(Mono(self.plan.span))?;
        self.calm_down();
        self.run_until(self.now + self.time_to_rest())?;
        self.at_rest();
        self.verdict()
    }

    fn run_until(&mut self, end: Mono) -> Result<(), Violation> {
        while let Some((at, event)) = self.agenda.next_before(end) {
            self.now = at;
            if let Some(event) = self.unless_asleep(event) {
                self.happen(event);
            }
            if self.broken.is_some() {
                return self.verdict();
            }
        }
        self.now = end;
        Ok(())
    }

    fn verdict(&mut self) -> Result<(), Violation> {
        let Some(broken) = self.broken.clone() else { return Ok(()) };
        self.note("BROKEN", &broken.to_string());
        Err(broken)
    }

    fn calm_down(&mut self) {
        self.note("calm", "");
        self.quiet = true;
        self.net.mend(self.now);
        for place in 0..self.cores.len() {
            match self.cores[place].process.as_ref().map(|core| (core.run, core.asleep.is_some())) {
                Some((run, true)) => self.resume_core(run),
                Some((_, false)) => {}
                None => self.start_core(place),
            }
        }
    }

    /// Who was left behind is gone after a ttl and a hold; then it is merged.
    fn time_to_rest(&self) -> Duration {
        self.timings.lease_ttl * 2 + self.timings.grace + self.timings.merge_interval * 2 + ATTEMPTS_WITHIN
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::StartCore(core) => self.start_core(core),
            Event::WakeCore(run) => self.wake_core(run),
            Event::ResumeCore(run) => self.resume_core(run),
            Event::StoreCommand(run, op, command) => self.store_command(run, op, *command),
            Event::StoreReply(run, op, reply) => self.store_reply(run, op, reply),
            Event::TailOver(run, op) => self.tail_over(run, op),
            Event::DialLink(land) => self.dial_link(land),
            Event::LinkOpening(key, hello) => self.link_opening(key, *hello),
            Event::LinkUp(key, up) => self.link_up(key, *up),
            Event::LinkDown(key, down) => self.link_down(key, *down),
            Event::LinkGoneAtCore(key, end) => self.link_gone_at_core(key, end),
            Event::LinkGoneAtEdge(key) => self.link_gone_at_edge(key),
            Event::Beat(land) => self.beat(land),
            Event::DialPeer(run, land) => self.dial_peer(run, land),
            Event::DialOnlooker(onlooker, dial) => self.dial_onlooker(onlooker, dial),
            Event::WatchOpening(key) => self.watch_opening(key),
            Event::WatchOpened(key) => self.watch_opened(key),
            Event::WatchOverdue(key) => self.watch_overdue(key),
            Event::WatchUp(key, up) => self.watch_up(key, up),
            Event::WatchDown(key, events) => self.watch_down(key, events),
            Event::WatchReady(key) => self.watch_ready(key),
            Event::WatchGoneAtCore(key) => self.watch_gone_at_core(key),
            Event::WatchGoneAtPeer(key) => self.watch_gone_at_peer(key),
            Event::Return(person, number) => self.come_back(person, number),
            Event::Part(person, from, how) => self.part(person, from, how),
            Event::Delayed(land, up) => self.say_once(land, *up),
            Event::Strike(fault) => self.strike(fault),
            Event::Ask => self.ask(),
            Event::Asked(run, key, query) => self.asked(run, key, query),
            Event::Look => self.look(),
        }
    }

    fn strike(&mut self, number: usize) {
        let fault = self.plan.faults[number].fault;
        self.note("fault", &fault.to_string());
        self.story.count(fault.into());
        match fault {
            Fault::Blip { tab } => self.blip(tab),
            Fault::Go { tab, span } => self.go(tab, (Parting::Drop, span)),
            Fault::Leave { tab, span } => self.go(tab, (Parting::Goodbye, span)),
            Fault::Update { tab } => self.update(tab),
            Fault::Cross { tab, region, how, span } => self.cross(tab, region, (how, span)),
            Fault::CutRegions { from, to, way, span } => self.cut((from, to), way, span),
            Fault::CrashCore { core, span, death } => self.crash_core(core, span, death),
            Fault::NapCore { core, span, .. } => self.nap_core(core, span),
            Fault::Slow { span, factor } => self.net.slow_down(self.now + span, factor),
            // What befalls one region alone is drawn in the other nights.
            Fault::Reload { .. }
            | Fault::NapTab { .. }
            | Fault::CutTab { .. }
            | Fault::Copy { .. }
            | Fault::Trespass { .. }
            | Fault::Deaf { .. }
            | Fault::Forgetful { .. }
            | Fault::Storm { .. }
            | Fault::CrashEdge { .. }
            | Fault::NapEdge { .. }
            | Fault::DrainEdge { .. }
            | Fault::BreakLink { .. }
            | Fault::BreakWatch { .. }
            | Fault::CutEdge { .. }
            | Fault::Echo { .. }
            | Fault::DozeCore { .. }
            | Fault::DrainCore { .. }
            | Fault::CutStore { .. }
            | Fault::StopStore { .. }
            | Fault::CloseStore { .. }
            | Fault::ReadOnly { .. }
            | Fault::SlowStore { .. }
            | Fault::LoseAnswers { .. }
            | Fault::LoseCommands { .. }
            | Fault::Restart
            | Fault::Empty
            | Fault::FailOver { .. }
            | Fault::Move { .. }
            | Fault::Step { .. }
            | Fault::Evict { .. }
            | Fault::RevokeUser { .. }
            | Fault::RevokeToken { .. }
            | Fault::RevokeKey => {}
        }
    }

    fn cut(&mut self, (one, other): (usize, usize), way: Way, span: Duration) {
        let until = self.now + span;
        let many = self.plan.shape.cores;
        let pairs = (0..many).flat_map(|here| (0..many).map(move |there| (here, there)));
        let pairs = pairs.map(|(here, there)| (one * many + here, other * many + there));
        for (here, there) in pairs {
            if way != Way::Back {
                self.net.cut(Node::Core(here), Node::Core(there), until);
            }
            if way != Way::There {
                self.net.cut(Node::Core(there), Node::Core(here), until);
            }
        }
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.agenda.plan(self.now + delay, event);
    }

    /// When something arrives that is sent now through this pipe.
    fn arrival(&mut self, pipe: &mut Pipe, way: (Node, Node)) -> Mono {
        let far = match way {
            (Node::Core(_), Node::Core(_)) => FAR,
            _ => Duration::ZERO,
        };
        pipe.last = pipe.last.max(self.net.arrival(&mut pipe.clone(), way, self.now) + far);
        pipe.last
    }

    fn key(&mut self) -> u64 {
        self.keys += 1;
        self.keys
    }

    /// In which region a core is.
    fn land_of(&self, place: usize) -> usize {
        place / self.plan.shape.cores
    }

    /// A core of a region that runs, if any does.
    fn some_core(&mut self, land: usize) -> Option<(usize, u64)> {
        let many = self.plan.shape.cores;
        let first = self.chance.random_range(0..many);
        let places = (0..many).map(|next| land * many + (first + next) % many);
        let mut running = places.filter_map(|place| Some((place, self.cores[place].process.as_ref()?.run)));
        running.next()
    }

    fn roster(&self, land: usize, room: usize) -> Roster {
        Roster { region: self.regions[land].clone(), room: self.rooms[room].clone() }
    }

    fn land_called(&self, region: &RegionId) -> Option<usize> {
        self.regions.iter().position(|known| known == region)
    }

    fn room_called(&self, room: &RoomId) -> Option<usize> {
        self.rooms.iter().position(|known| known == room)
    }

    fn note(&mut self, kind: &'static str, what: &str) {
        self.story.note(self.now, kind, what);
    }

    /// A guarantee was looked at, and nothing excused what was seen.
    fn looked_at(&mut self, guarantee: Guarantee) {
        self.story.count(guarantee.into());
    }

    /// A guarantee is broken; only the first counts.
    fn breach(&mut self, guarantee: Guarantee, what: String) {
        let at = self.now;
        self.broken.get_or_insert(Violation { guarantee, at, what });
    }
}
