//! The world of one night: who is in it, and how time goes by.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use presence_client::{Client, ClientSettings};
use presence_core::driver::ArrivalLimits;
use presence_core::store::memory::MemorySettings;
use presence_edge::settings::{AdmissionLimits, Origins, Whence};
use presence_model::claim::Action;
use presence_model::class::Classes;
use presence_model::id::{EdgeName, RegionId, RoomId, Roster, UserId};
use presence_model::time::StoreTime;
use presence_model::timing::{Timings, TimingsGiven};
use presence_runtime::clock::{Clock, ManualClock};
use presence_runtime::shutdown::{Shutdown, Unfinished};
use presence_runtime::telemetry::Metrics;
use presence_runtime::tokens::{GeneratedKeys, Grant, Issuer, KeySet, Verifier};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::Plan;
use super::errors::Errors;
use super::faults::Who;
use super::host::Host;
use super::mend::Act;
use super::net::{Net, lot};
use super::store::Post;
use crate::cast::{Order, Recorder, TabSettings, live, watch};
use crate::history::{Event, History, Slack, What};

/// How far all clocks go before anybody hears of anybody else: less than the least delay of two packets.
const TICK_MS: u64 = 5;
/// More than there are.
const CONNECTIONS_MAX: usize = 1_000;
/// Tokens outlive every night, and every step of a clock.
const TOKENS_END: StoreTime = StoreTime(9_000_000_000_000);
/// How fast clocks go wrong, in millionths.
const DRIFTS: [i64; 5] = [0, 180, -250, 90, -40];
/// How long a process may take to end once it is told to.
const END_WITHIN: Duration = Duration::from_secs(1);

/// What is allowed beyond the timers.
const SLACK: Slack = Slack {
    propagation: Duration::from_millis(2_000),
    clocks: Duration::from_millis(30),
    recovery: Duration::from_secs(13),
};

pub(super) struct CoreRun {
    running: presence_core::start::Running,
    pub(super) shutdown: Shutdown,
}

pub(super) struct EdgeRun {
    running: presence_edge::start::Running,
    pub(super) shutdown: Shutdown,
}

/// What is left of a night.
pub(super) struct Record {
    pub(super) lines: Vec<String>,
    pub(super) history: History,
    /// How often each thing happened.
    pub(super) faults: BTreeMap<&'static str, u64>,
    /// What processes logged as errors.
    pub(super) errors: Vec<(Duration, String)>,
}

/// All there is.
pub struct World {
    pub(super) plan: Plan,
    seed: u64,
    pub(super) now: u64,
    hand: ManualClock,
    pub(super) timings: Timings,
    pub(super) recorder: Recorder,
    pub(super) errors: Errors,
    pub(super) net: Net,
    pub(super) post: Post,
    verifier: Verifier,
    issuer: Issuer,
    roster: Roster,
    pub(super) cores: Vec<Host<CoreRun>>,
    pub(super) edges: Vec<Host<EdgeRun>>,
    people: Host<()>,
    services: Host<()>,
    pub(super) orders: Vec<UnboundedSender<Order>>,
    pub(super) chance: StdRng,
    pub(super) agenda: BTreeMap<(u64, u64), Act>,
    pub(super) planned: u64,
    pub(super) faults: BTreeMap<&'static str, u64>,
}

pub(super) fn core_address(core: usize) -> IpAddr {
    address(1, core)
}

pub(super) fn edge_address(edge: usize) -> IpAddr {
    address(2, edge)
}

pub(super) fn tab_address(tab: usize) -> IpAddr {
    address(3, tab)
}

fn address(net: u8, host: usize) -> IpAddr {
    IpAddr::from([10, 0, net, u8::try_from(host + 1).expect("a small world")])
}

fn timings() -> Timings {
    let given = TimingsGiven {
        heartbeat: Some(Duration::from_secs(3)),
        lease_ttl: Some(Duration::from_secs(12)),
        grace: Some(Duration::from_secs(5)),
        ..TimingsGiven::default()
    };
    Timings::derive(given).expect("these hold")
}

impl World {
    /// A world in which everything has just started.
    ///
    /// # Panics
    /// If the plan is larger than a small world.
    #[must_use]
    pub fn new(seed: u64, plan: &Plan) -> Self {
        let (clock, hand) = Clock::manual();
        let recorder = Recorder::new(clock.clone());
        let region = RegionId::new("local").expect("a name");
        let roster = Roster { region, room: RoomId::new("lobby").expect("a name") };
        let keys = GeneratedKeys::from_seed([7; 32]);
        let settings = MemorySettings { shards: 2, seed, replica_lag: 64, ..MemorySettings::default() };
        let host = |name: String, address, place: usize| {
            Host::<()>::new(name, address, DRIFTS[place % DRIFTS.len()])
        };
        let mut world = Self {
            seed,
            now: 0,
            hand,
            timings: timings(),
            errors: Errors::new(recorder.clone()),
            net: Net::new(seed),
            post: Post::new(settings, clock, roster.clone(), recorder.clone()),
            recorder,
            verifier: Verifier::new(KeySet::parse(keys.jwks().as_bytes()).expect("a good key")),
            issuer: Issuer::from_pem(keys.key_pem()).expect("a good key"),
            roster,
            cores: (0..plan.cores)
                .map(|core| {
                    Host::new(format!("core-{core}"), core_address(core), DRIFTS[core % DRIFTS.len()])
                })
                .collect(),
            edges: (0..plan.edges)
                .map(|edge| {
                    Host::new(format!("edge-{edge}"), edge_address(edge), DRIFTS[(edge + 2) % DRIFTS.len()])
                })
                .collect(),
            people: host("people".to_owned(), address(3, 0), 0),
            services: host("services".to_owned(), address(4, 0), 1),
            orders: Vec::new(),
            chance: StdRng::seed_from_u64(seed),
            agenda: BTreeMap::new(),
            planned: 0,
            faults: BTreeMap::new(),
            plan: plan.clone(),
        };
        (0..plan.cores).for_each(|core| world.start(Who::Core(core)));
        (0..plan.edges).for_each(|edge| world.start(Who::Edge(edge)));
        world.start_people();
        world.start_services();
        world
    }

    /// Lives through the night and the morning after it.
    pub fn live(&mut self) {
        let heard = tracing::subscriber::set_default(self.errors.clone());
        self.plan_next();
        let span = u64::try_from(self.plan.span.as_millis()).expect("a night is short");
        self.run_to(span);
        self.mend_all();
        let rest = self.timings.lease_ttl * 3 + Duration::from_secs(30);
        self.run_to(self.now + u64::try_from(rest.as_millis()).expect("short"));
        let mut present: Vec<String> = (0..self.plan.tabs).map(|tab| self.user(tab)).collect();
        present.sort_unstable();
        present.dedup();
        self.recorder.line("world", "at rest");
        self.recorder.event(What::Rest { present });
        self.end_all();
        drop(heard);
    }

    pub(super) fn into_record(self) -> Record {
        let (lines, mut events) = self.recorder.read();
        let is_rest = |event: &Event| matches!(event.what, What::Rest { .. });
        let end = events.iter().position(is_rest).map_or(events.len(), |rest| rest + 1);
        events.truncate(end);
        let cores = self.cores.iter().map(|core| core.name.clone()).collect();
        let history = History { timings: self.timings, slack: SLACK, cores, events };
        Record { lines, history, faults: self.faults, errors: self.errors.take() }
    }

    pub(super) fn run_to(&mut self, end: u64) {
        while self.now < end {
            while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let act = entry.remove();
                self.act(act);
            }
            self.now += TICK_MS;
            self.hand.advance(Duration::from_millis(TICK_MS));
            self.net.tick(self.now);
            self.post.tick(self.now);
            self.cores.iter_mut().for_each(|core| core.run_to(self.now));
            self.edges.iter_mut().for_each(|edge| edge.run_to(self.now));
            self.people.run_to(self.now);
            self.services.run_to(self.now);
        }
    }

    /// Starts a process.
    pub(super) fn start(&mut self, who: Who) {
        match who {
            Who::Core(core) => self.start_core(core),
            Who::Edge(edge) => self.start_edge(edge),
        }
    }

    fn start_core(&mut self, core: usize) {
        let host = &mut self.cores[core];
        let settings = presence_core::settings::Settings {
            grpc: SocketAddr::new(host.address, 4701),
            admin: None,
            regions: presence_core::settings::Regions::single(self.roster.region.clone()),
            name: host.name.clone(),
            timings: self.timings,
            classes: Classes::default(),
            connections_max: CONNECTIONS_MAX,
            arrivals: ArrivalLimits::default(),
            seed: lot(self.seed, [1, core as u64, host.lives()]),
        };
        let (network, store) = (self.net.at(host.address), self.post.wire(core));
        let (verifier, shutdown) = (self.verifier.clone(), Shutdown::new());
        host.start(self.now, async move || {
            let deps = presence_core::start::Deps {
                clock: Clock::system(),
                peers: network.clone(),
                network,
                metrics: Metrics::new(),
                verifier,
                tls: None,
                access: presence_core::access::Access::Anybody,
                store,
                shutdown: shutdown.clone(),
            };
            let running = presence_core::start::start(settings, deps).await.expect("the port is free");
            CoreRun { running, shutdown }
        });
    }

    fn start_edge(&mut self, edge: usize) {
        let host = &mut self.edges[edge];
        let cores = self.cores.iter().map(|core| format!("http://{}:4701", core.address));
        let settings = presence_edge::settings::Settings {
            listen: SocketAddr::new(host.address, 4700),
            admin: None,
            cores: cores.collect(),
            region: self.roster.region.clone(),
            edge: EdgeName::new(&host.name).expect("a name"),
            timings: self.timings,
            origins: Origins::SameHost,
            list_members: 5_000,
            limits: AdmissionLimits::of(CONNECTIONS_MAX),
            whence: Whence::default(),
            seed: lot(self.seed, [2, edge as u64, host.lives()]),
        };
        let (network, verifier, shutdown) =
            (self.net.at(host.address), self.verifier.clone(), Shutdown::new());
        host.start(self.now, async move || {
            let deps = presence_edge::start::Deps {
                clock: Clock::system(),
                network,
                metrics: Metrics::new(),
                tls: None,
                verifier,
                shutdown: shutdown.clone(),
                extra: None,
                observer: None,
            };
            let running = presence_edge::start::start(settings, deps).expect("the port is free");
            EdgeRun { running, shutdown }
        });
    }

    /// Name of a tab.
    pub(super) fn tab(&self, tab: usize) -> String {
        if tab < self.plan.tabs { format!("tab-{tab}") } else { format!("looker-{}", tab - self.plan.tabs) }
    }

    fn user(&self, tab: usize) -> String {
        format!("u{}", tab % self.plan.users)
    }

    fn start_people(&mut self) {
        let edges: Vec<(String, String)> =
            self.edges.iter().map(|edge| (edge.name.clone(), format!("{}:4700", edge.address))).collect();
        let mut tabs = Vec::new();
        for tab in 0..self.plan.tabs + self.plan.watchers {
            let only_looks = tab >= self.plan.tabs;
            let action = if only_looks { Action::Watch } else { Action::Join };
            let user = UserId::new(self.user(tab)).expect("a name");
            let room = self.roster.room.clone();
            let grant = Grant { user, room, action, ends: TOKENS_END, not_before: None, token_id: None };
            let (order, orders) = unbounded_channel();
            self.orders.push(order);
            let settings = |clock| TabSettings {
                name: self.tab(tab),
                user: self.user(tab),
                room: self.roster.room.as_str().to_owned(),
                region: self.roster.region.clone(),
                only_looks,
                edges: edges.clone(),
                token: self.issuer.sign(&grant),
                network: self.net.at(tab_address(tab)),
                clock,
                recorder: self.recorder.clone(),
                timings: self.timings,
                seed: lot(self.seed, [3, tab as u64, 0]),
            };
            tabs.push((settings(Clock::manual().0), orders));
        }
        self.people.start(self.now, async move || {
            for (settings, orders) in tabs {
                tokio::spawn(live(TabSettings { clock: Clock::system(), ..settings }, orders));
            }
        });
    }

    fn start_services(&mut self) {
        let cores: Vec<String> =
            self.cores.iter().map(|core| format!("http://{}:4701", core.address)).collect();
        let Roster { region, room } = self.roster.clone();
        let mut watchers = Vec::new();
        for service in 0..self.plan.watchers {
            let network = self.net.at(address(4, service));
            let settings = ClientSettings::new(cores.clone(), lot(self.seed, [4, service as u64, 0]));
            let (room, region, recorder) = (room.clone(), region.clone(), self.recorder.clone());
            watchers.push(async move {
                let name = format!("service-{service}");
                let deps = presence_client::Deps { network, clock: Clock::system() };
                let client = Client::new(settings, deps).expect("good addresses");
                let end = watch(&name, &client, (room, region), &recorder).await;
                recorder.line(&name, format_args!("ended: {end:?}"));
            });
        }
        self.services.start(self.now, async move || {
            for watcher in watchers {
                tokio::spawn(watcher);
            }
        });
    }

    /// Everybody ends in good order, edges first.
    fn end_all(&mut self) {
        for edge in self.edges.iter().filter_map(Host::tenant) {
            edge.shutdown.begin();
        }
        self.run_to(self.now + 15_000);
        (0..self.edges.len()).for_each(|edge| self.ended(Who::Edge(edge)));
        for core in self.cores.iter().filter_map(Host::tenant) {
            core.shutdown.begin();
        }
        self.run_to(self.now + 8_000);
        (0..self.cores.len()).for_each(|core| self.ended(Who::Core(core)));
    }

    /// A process that was told to end must have ended by now, and well.
    pub(super) fn ended(&mut self, who: Who) {
        let (name, end): (_, Option<Result<(), Unfinished>>) = match who {
            Who::Core(core) => {
                let host = &mut self.cores[core];
                (host.name.clone(), host.finish(async |run| run.running.finished(END_WITHIN).await))
            }
            Who::Edge(edge) => {
                let host = &mut self.edges[edge];
                (host.name.clone(), host.finish(async |run| run.running.finished(END_WITHIN).await))
            }
        };
        if let Some(Err(unfinished)) = end {
            self.errors.note(format!("{name}: {unfinished}"));
        }
    }
}
