//! The world of one night: the processes, the ways between them, and what befalls both.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use presence_client::{Client, ClientSettings};
use presence_model::claim::Action;
use presence_model::id::{RegionId, RoomId, Roster};
use presence_model::time::Mono;
use presence_model::timing::{Timings, TimingsGiven};
use presence_runtime::clock::Clock;
use presence_runtime::network::Network;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::Plan;
use super::fate::{Fault, Planned, Who, draw};
use super::scribe::{PULSE_LATE, Pulse, Scribe};
use super::suffer::{Mend, place};
use super::way::Way;
use crate::cast::{Order, Recorder, TabSettings, live, watch};
use crate::history::{Event, History, Slack, What, check};
use crate::procs::{CoreOptions, EdgeOptions, Keys, Process, core_with, edge_with};
use crate::redis::{Server, ServerOptions};
use crate::scene::TIMERS;

/// What is allowed beyond the timers: this machine does other things as well.
const SLACK: Slack =
    Slack { propagation: Duration::from_secs(3), clocks: PULSE_LATE, recovery: Duration::from_secs(8) };
/// Between two looks whether all has come to rest, and how long that may take: a hold, what ends with it, and clients
/// that wait for their longest.
const REST_EVERY: Duration = Duration::from_millis(500);
const REST_WITHIN: Duration = Duration::from_secs(45);
/// Between two attempts to start a core that cannot be without its store, and how many may fail in a night.
const STARTED_AGAIN: Duration = Duration::from_secs(1);
const STARTS_FAILED_MAX: u32 = 10;
/// The guarantee that holds only once all has come to rest.
const AT_REST: &str = "G9";

/// What is to be done at some time.
pub(super) enum Act {
    Strike(Fault),
    Mend(Mend),
}

/// What came of a process that somebody waits for.
pub(super) enum Turn {
    /// It has ended, and is to be started again after that.
    Ended(Who, Duration),
    /// It is there, or could not be.
    Started(Who, anyhow::Result<Process>),
}

/// All there is.
pub(super) struct World {
    pub(super) plan: Plan,
    clock: Clock,
    pub(super) recorder: Recorder,
    pub(super) timings: Timings,
    keys: Arc<Keys>,
    roster: Roster,
    pub(super) server: Server,
    pub(super) cores: Vec<Option<Process>>,
    pub(super) edges: Vec<Option<Process>>,
    /// Of each core to the store.
    pub(super) stores: Vec<Way>,
    /// Of each edge to each core.
    pub(super) links: Vec<Vec<Way>>,
    /// Of each tab to each edge.
    pub(super) doors: Vec<Vec<Way>>,
    /// Of each service to each core.
    pub(super) desks: Vec<Vec<Way>>,
    pub(super) orders: Vec<UnboundedSender<Order>>,
    agenda: BTreeMap<(Duration, u64), Act>,
    planned: u64,
    /// Processes that stand still.
    pub(super) stopped: BTreeSet<Who>,
    /// Processes that are yet to be started over, and the one that is about to be.
    pub(super) rolling: (VecDeque<Who>, Option<Who>),
    pub(super) is_slow: bool,
    /// How often a core may still fail to start.
    starts_left: u32,
    /// How often each thing happened.
    pub(super) faults: BTreeMap<&'static str, u64>,
    chance: StdRng,
    tasks: JoinSet<()>,
    /// Processes that are about to be there, or to be gone: one may wait for others that are not.
    pub(super) under_way: JoinSet<anyhow::Result<Turn>>,
    _pulse: Pulse,
}

fn timings() -> anyhow::Result<Timings> {
    let given = TimingsGiven {
        heartbeat: Some(TIMERS.heartbeat),
        lease_ttl: Some(TIMERS.lease_ttl),
        grace: Some(TIMERS.grace),
        edge_lost: Some(TIMERS.edge_lost),
        ..TimingsGiven::default()
    };
    Timings::derive(given).map_err(|mistakes| anyhow::anyhow!("{mistakes:?}"))
}

fn ways(from: usize, to: usize) -> anyhow::Result<Vec<Vec<Way>>> {
    (0..from).map(|_| (0..to).map(|_| Way::new()).collect()).collect()
}

/// The port of `scheme://host:port/path` or `host:port`.
fn port(address: &str) -> anyhow::Result<u16> {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or(rest);
    let (_, port) = host.rsplit_once(':').with_context(|| format!("no port in {address:?}"))?;
    Ok(port.parse()?)
}

impl World {
    /// A world in which everything has just started.
    pub(super) async fn new(seed: u64, plan: &Plan) -> anyhow::Result<Self> {
        let clock = Clock::system();
        let recorder = Recorder::new(clock.clone());
        let server = Server::start(ServerOptions::default().append_only()).await?;
        let (region, room) = (RegionId::new("local")?, RoomId::new("lobby")?);
        let mut world = Self {
            timings: timings()?,
            keys: Arc::new(Keys::generate()?),
            roster: Roster { region, room },
            cores: (0..plan.cores).map(|_| None).collect(),
            edges: (0..plan.edges).map(|_| None).collect(),
            stores: (0..plan.cores).map(|_| Way::new()).collect::<anyhow::Result<_>>()?,
            links: ways(plan.edges, plan.cores)?,
            doors: ways(plan.tabs + plan.watchers, plan.edges)?,
            desks: ways(plan.watchers, plan.cores)?,
            orders: Vec::new(),
            agenda: BTreeMap::new(),
            planned: 0,
            stopped: BTreeSet::new(),
            rolling: (VecDeque::new(), None),
            is_slow: false,
            starts_left: STARTS_FAILED_MAX,
            faults: BTreeMap::new(),
            chance: StdRng::seed_from_u64(seed),
            tasks: JoinSet::new(),
            under_way: JoinSet::new(),
            _pulse: Pulse::start(recorder.clone()),
            plan: plan.clone(),
            clock,
            recorder,
            server,
        };
        world.stores.iter().for_each(|way| way.lead_to(world.server.port()));
        let all: Vec<Who> = world.all().collect();
        // Cores first: an edge tells where it listens once a core has welcomed it.
        for who in all.into_iter().rev() {
            world.start(who);
            while let Some(turn) = world.under_way.join_next().await {
                world.take_turn(turn??)?;
            }
        }
        world.start_scribe().await?;
        world.start_people()?;
        world.start_services()?;
        Ok(world)
    }

    /// Starts a process.
    pub(super) fn start(&mut self, who: Who) {
        let keys = Arc::clone(&self.keys);
        match who {
            Who::Core(core) => {
                let store = Some(format!("redis://{}", self.stores[core].address()));
                let options = CoreOptions { store, ..CoreOptions::default() };
                self.under_way
                    .spawn_blocking(move || Ok(Turn::Started(who, core_with(&options, &keys, &TIMERS))));
            }
            Who::Edge(edge) => {
                let cores = self.links[edge].iter().map(Way::address).collect();
                let options = EdgeOptions { cores, ..EdgeOptions::default() };
                let name = edge_name(edge);
                self.under_way.spawn_blocking(move || {
                    Ok(Turn::Started(who, edge_with(&name, &options, &keys, &TIMERS)))
                });
            }
        }
    }

    fn take_turn(&mut self, turn: Turn) -> anyhow::Result<()> {
        match turn {
            Turn::Ended(who, span) => self.mend_after(span, Mend::Start(who)),
            // A core that starts as its store goes ends again: whoever starts it tries once more.
            Turn::Started(who @ Who::Core(_), Err(error)) if self.starts_left > 0 => {
                self.recorder.line("world", format_args!("{who:?} did not start: {error:#}"));
                self.starts_left -= 1;
                self.mend_after(STARTED_AGAIN, Mend::Start(who));
            }
            Turn::Started(who, process) => {
                self.lead_to(who, process?)?;
                self.recorder.trouble(place(who), false);
                if self.rolling.1 == Some(who) {
                    self.roll_on();
                }
            }
        }
        Ok(())
    }

    /// All edges, and all cores.
    pub(super) fn all(&self) -> impl Iterator<Item = Who> + use<> {
        (0..self.plan.edges).map(Who::Edge).chain((0..self.plan.cores).map(Who::Core))
    }

    /// All ways lead to this process from now on.
    fn lead_to(&mut self, who: Who, process: Process) -> anyhow::Result<()> {
        match who {
            Who::Core(core) => {
                let port = port(&process.address("grpc"))?;
                self.links.iter().chain(&self.desks).for_each(|ways| ways[core].lead_to(port));
                self.cores[core] = Some(process);
            }
            Who::Edge(edge) => {
                let port = port(&process.address("ws"))?;
                self.doors.iter().for_each(|ways| ways[edge].lead_to(port));
                self.edges[edge] = Some(process);
            }
        }
        Ok(())
    }

    async fn start_scribe(&mut self) -> anyhow::Result<()> {
        let book = (self.recorder.clone(), &self.clock);
        let scribe = Scribe::new(self.server.address(), self.roster.clone(), book).await?;
        self.tasks.spawn(scribe.read());
        Ok(())
    }

    fn start_people(&mut self) -> anyhow::Result<()> {
        for tab in 0..self.plan.tabs + self.plan.watchers {
            let only_looks = tab >= self.plan.tabs;
            let action = if only_looks { Action::Watch } else { Action::Join };
            let (user, room) = (self.plan.user(tab), self.roster.room.as_str().to_owned());
            let doors = self.doors[tab].iter().map(Way::address);
            let (order, orders) = unbounded_channel();
            self.orders.push(order);
            let settings = TabSettings {
                name: self.plan.tab(tab),
                token: self.keys.token(&user, &room, action)?,
                user,
                room,
                region: self.roster.region.clone(),
                only_looks,
                edges: doors.enumerate().map(|(edge, door)| (edge_name(edge), door)).collect(),
                network: Network::tcp(),
                clock: self.clock.clone(),
                recorder: self.recorder.clone(),
                timings: self.timings,
                seed: self.chance.next_u64(),
            };
            self.tasks.spawn(live(settings, orders));
        }
        Ok(())
    }

    fn start_services(&mut self) -> anyhow::Result<()> {
        for (service, desks) in self.desks.iter().enumerate() {
            let cores = desks.iter().map(|way| format!("http://{}", way.address())).collect();
            let settings = ClientSettings::new(cores, self.chance.next_u64());
            let deps = presence_client::Deps { network: Network::tcp(), clock: self.clock.clone() };
            let (client, recorder) = (Client::new(settings, deps)?, self.recorder.clone());
            let Roster { region, room } = self.roster.clone();
            self.tasks.spawn(async move {
                let name = format!("service-{service}");
                let end = watch(&name, &client, (room, region), &recorder).await;
                recorder.line(&name, format_args!("ended: {end:?}"));
            });
        }
        Ok(())
    }

    /// Lives through the night and the morning after it; what was recorded.
    pub(super) async fn live(&mut self) -> anyhow::Result<History> {
        let began = self.recorder.now();
        for Planned { at, fault } in draw(&self.plan, &mut self.chance) {
            self.plan_act(began + at, Act::Strike(fault));
        }
        loop {
            let due = self.agenda.keys().next().map(|(at, _)| *at);
            let clock = self.clock.clone();
            tokio::select! {
                biased;
                Some(turn) = self.under_way.join_next() => self.take_turn(turn??)?,
                () = clock.sleep_until(Mono(due.unwrap_or_default())), if due.is_some() => {
                    match self.agenda.pop_first() {
                        Some((_, Act::Strike(fault))) => self.strike(fault).await?,
                        Some((_, Act::Mend(mend))) => self.mend(mend).await?,
                        None => {}
                    }
                }
                else => break,
            }
        }
        self.recorder.line("world", "everything is mended");
        self.rest().await
    }

    /// Waits until nothing changes any more and all is as it should be, or one of both is broken.
    async fn rest(&mut self) -> anyhow::Result<History> {
        let mut present: Vec<String> = (0..self.plan.tabs).map(|tab| self.plan.user(tab)).collect();
        present.sort_unstable();
        present.dedup();
        let end = self.recorder.now() + REST_WITHIN;
        loop {
            self.clock.sleep(REST_EVERY).await;
            let at = self.recorder.now();
            let history = self.history(What::Rest { present: present.clone() });
            let is_early = check(&history).is_err_and(|violation| violation.guarantee == AT_REST && at < end);
            if !is_early {
                return Ok(history);
            }
        }
    }

    fn history(&self, end: What) -> History {
        let (_, mut events) = self.recorder.read();
        events.push(Event { at: self.recorder.now(), what: end });
        let cores = (0..self.plan.cores).map(core_name).collect();
        History { timings: self.timings, slack: SLACK, cores, events }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.recorder.read().0
    }

    pub(super) fn plan_act(&mut self, at: Duration, act: Act) {
        self.planned += 1;
        self.agenda.insert((at, self.planned), act);
    }
}

/// Name of a core, for the record.
pub(super) fn core_name(core: usize) -> String {
    format!("core-{core}")
}

/// Name of an edge.
pub(super) fn edge_name(edge: usize) -> String {
    format!("edge-{edge}")
}
