//! Several cores over one store: an edge that moves between them moves nobody with it.
//!
//! Two processes cannot share a store in memory, so each core has a thread and a runtime of its own here:
//! it can be killed, paused and cut off as a process can. Edges and clients are real, over loopback.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use presence_core::store::memory::{MemorySettings, SharedMemoryStore};
use presence_core::store::{Command, LeaseStore, Outcome, StoreFault};
use presence_model::claim::Action;
use presence_model::id::{EdgeName, RegionId};
use presence_model::timing::{Timings, TimingsGiven};
use presence_runtime::clock::Clock;
use presence_runtime::network::Network;
use presence_runtime::shutdown::Shutdown;
use presence_runtime::telemetry::Metrics;
use presence_runtime::tokens::{KeySet, Verifier};
use presence_tests::procs::{Client, Keys, Timers};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

const ROOM: &str = "lobby";
const CLIENTS: usize = 20;
/// Bounds of correctness, with slack for a busy machine; what they bound takes tenths of seconds.
const WITHIN: Duration = Duration::from_secs(10);

fn timings() -> Timings {
    let Timers { heartbeat, lease_ttl, grace, edge_lost } = Timers::SHORT;
    let given = TimingsGiven {
        heartbeat: Some(heartbeat),
        lease_ttl: Some(lease_ttl),
        grace: Some(grace),
        edge_lost: Some(edge_lost),
        merge_interval: None,
    };
    Timings::derive(given).expect("they keep the rules")
}

/// One core's way to the store: may be cut, and notes which edges the core has linked.
struct Way {
    store: SharedMemoryStore,
    is_cut: AtomicBool,
    linked: Mutex<Vec<EdgeName>>,
}

impl LeaseStore for Way {
    fn execute(&self, command: Command) -> BoxFuture<'static, Result<Outcome, StoreFault>> {
        if self.is_cut.load(Ordering::SeqCst) {
            return async { Err(StoreFault::Unavailable("cut".to_owned())) }.boxed();
        }
        if let Command::Link { name, .. } = &command {
            self.linked.lock().expect("nobody panics with it").push(name.clone());
        }
        self.store.execute(command)
    }

    fn shards(&self) -> u16 {
        self.store.shards()
    }
}

enum Order {
    /// Nothing of it runs until the sender is dropped.
    Pause(std::sync::mpsc::Receiver<()>),
    Drain,
}

/// A core with a thread of its own. Dropped: it is killed.
struct Core {
    orders: Option<mpsc::UnboundedSender<Order>>,
    thread: Option<std::thread::JoinHandle<()>>,
    url: String,
    way: Arc<Way>,
}

impl Core {
    async fn start(name: &str, store: &SharedMemoryStore, verifier: Verifier) -> Self {
        let linked = Mutex::new(Vec::new());
        let way = Arc::new(Way { store: store.clone(), is_cut: AtomicBool::new(false), linked });
        let (orders, received) = mpsc::unbounded_channel();
        let (told, address) = tokio::sync::oneshot::channel();
        let settings = presence_core::settings::Settings {
            grpc: ([127, 0, 0, 1], 0).into(),
            admin: None,
            regions: presence_core::settings::Regions::single(RegionId::new("local").expect("a name")),
            name: name.to_owned(),
            connections_max: 64,
            arrivals: presence_core::driver::ArrivalLimits::default(),
            timings: timings(),
            classes: presence_model::class::Classes::default(),
            seed: rand::random(),
        };
        let deps = presence_core::start::Deps {
            clock: Clock::system(),
            network: Network::tcp(),
            peers: Network::tcp(),
            metrics: Metrics::new(),
            tls: None,
            access: presence_core::access::Access::Anybody,
            verifier,
            store: way.clone(),
            shutdown: Shutdown::new(),
        };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(run(settings, deps, (told, received)));
        });
        let url = format!("http://{}", address.await.expect("it starts"));
        Self { orders: Some(orders), thread: Some(thread), url, way }
    }

    fn order(&self, order: Order) {
        let orders = self.orders.as_ref().expect("it runs");
        orders.send(order).expect("it runs");
    }

    fn pause(&self) -> std::sync::mpsc::Sender<()> {
        let (resume, paused) = std::sync::mpsc::channel();
        self.order(Order::Pause(paused));
        resume
    }

    fn has_linked(&self, edge: &str) -> bool {
        self.way.linked.lock().expect("nobody panics with it").iter().any(|name| name.as_str() == edge)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // What it has to say was said where it was noticed.
            let _ = thread.join();
        }
    }
}

/// Ends with all tasks of the core, sockets included, when nobody gives orders any more.
async fn run(
    settings: presence_core::settings::Settings,
    deps: presence_core::start::Deps,
    (told, mut orders): (tokio::sync::oneshot::Sender<std::net::SocketAddr>, mpsc::UnboundedReceiver<Order>),
) {
    let shutdown = deps.shutdown.clone();
    let running = presence_core::start::start(settings, deps).await.expect("it starts");
    told.send(running.grpc).expect("somebody waits for it");
    while let Some(order) = orders.recv().await {
        match order {
            // Blocks the only thread there is: that is what a pause is.
            Order::Pause(paused) => drop(paused.recv()),
            Order::Drain => shutdown.begin(),
        }
    }
}

/// Two cores over one store, an edge that knows both, one that knows the core the first is not linked to,
/// and somebody who watches there.
struct World {
    keys: Keys,
    victim: Core,
    survivor: Core,
    moving: presence_edge::start::Running,
    edges_end: Shutdown,
    seen: watch::Receiver<Seen>,
    tasks: JoinSet<()>,
}

#[derive(Debug, Default, Clone)]
struct Seen {
    members: BTreeMap<String, serde_json::Value>,
    removals: Vec<(String, String)>,
}

fn edge(
    name: &str,
    cores: &[&Core],
    verifier: &Verifier,
    shutdown: &Shutdown,
) -> presence_edge::start::Running {
    let settings = presence_edge::settings::Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        admin: None,
        cores: cores.iter().map(|core| core.url.clone()).collect(),
        region: RegionId::new("local").expect("a name"),
        edge: EdgeName::new(name).expect("a name"),
        timings: timings(),
        origins: presence_edge::settings::Origins::Any,
        list_members: 5_000,
        limits: presence_edge::settings::AdmissionLimits::of(1_000),
        whence: presence_edge::settings::Whence::default(),
        seed: rand::random(),
    };
    let deps = presence_edge::start::Deps {
        clock: Clock::system(),
        network: Network::tcp(),
        metrics: Metrics::new(),
        tls: None,
        verifier: verifier.clone(),
        shutdown: shutdown.child(),
        extra: None,
        observer: None,
    };
    presence_edge::start::start(settings, deps).expect("it starts")
}

fn ws(edge: &presence_edge::start::Running) -> String {
    format!("ws://{}/v1/ws", edge.listen)
}

impl World {
    async fn start() -> anyhow::Result<Self> {
        let keys = Keys::generate()?;
        let verifier = Verifier::new(KeySet::parse(&std::fs::read(keys.jwks())?)?);
        let store = SharedMemoryStore::new(MemorySettings::default(), Clock::system());
        let a = Core::start("core-a", &store, verifier.clone()).await;
        let b = Core::start("core-b", &store, verifier.clone()).await;
        let edges_end = Shutdown::new();
        let moving = edge("moving", &[&a, &b], &verifier, &edges_end);
        anyhow::ensure!(moving.linked().await, "no link");
        until("the link is written", || a.has_linked("moving") || b.has_linked("moving")).await?;
        let (victim, survivor) = if a.has_linked("moving") { (a, b) } else { (b, a) };
        let watching = edge("watching", &[&survivor], &verifier, &edges_end);
        anyhow::ensure!(watching.linked().await, "no link");
        let mut observer = Client::connect(&ws(&watching)).await?;
        observer.watch(ROOM, &keys.token("observer", ROOM, Action::Watch)?).await?;
        let (tell, seen) = watch::channel(Seen::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while observer.next().await.is_ok() {
                let (members, removals) = (observer.members.clone(), observer.removals.clone());
                tell.send_replace(Seen { members, removals });
            }
        });
        let mut world = Self { keys, victim, survivor, moving, edges_end, seen, tasks };
        for index in 0..CLIENTS {
            world.join(&format!("u{index:02}")).await?;
        }
        world.until_shown(CLIENTS).await?;
        Ok(world)
    }

    async fn join(&mut self, user: &str) -> anyhow::Result<()> {
        let mut client = Client::connect(&ws(&self.moving)).await?;
        let token = self.keys.token(user, ROOM, Action::Join)?;
        client.join(ROOM, &token, &format!("session-of-user-{user}"), 1).await?;
        self.tasks.spawn(client.idle());
        Ok(())
    }

    async fn until_shown(&mut self, members: usize) -> anyhow::Result<()> {
        let shown = self.seen.wait_for(|seen| seen.members.len() == members);
        tokio::time::timeout(WITHIN, shown).await??;
        Ok(())
    }

    /// The edge is linked to the other core, who was there still is, and the next one gets in.
    async fn moved(&mut self) -> anyhow::Result<()> {
        until("the edge has moved", || self.survivor.has_linked("moving")).await?;
        self.join("later").await?;
        self.until_shown(CLIENTS + 1).await?;
        // Long enough for every lease that is not renewed, and for an edge that counts as lost.
        tokio::time::sleep(timings().lease_ttl * 2).await;
        self.nobody_left()
    }

    fn nobody_left(&self) -> anyhow::Result<()> {
        let seen = self.seen.borrow();
        anyhow::ensure!(seen.removals.is_empty(), "gone: {:?}", seen.removals);
        anyhow::ensure!(seen.members.len() == CLIENTS + 1, "{:?}", seen.members.keys());
        Ok(())
    }

    async fn end(self) -> anyhow::Result<()> {
        self.edges_end.begin();
        Ok(self.moving.finished(WITHIN).await?)
    }
}

async fn until(what: &str, is_so: impl Fn() -> bool) -> anyhow::Result<()> {
    let look = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(WITHIN, look).await.map_err(|_| anyhow::anyhow!("not within {WITHIN:?}: {what}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_core_takes_nobody_with_it() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    drop(world.victim.orders.take());
    world.moved().await?;
    world.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_core_is_left_and_ends_nobody_when_it_runs_again() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    let resume = world.victim.pause();
    world.moved().await?;
    drop(resume);
    tokio::time::sleep(timings().lease_ttl * 2).await;
    world.nobody_left()?;
    world.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_core_that_is_cut_off_from_the_store_is_left_within_its_edges_leases() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    world.victim.way.is_cut.store(true, Ordering::SeqCst);
    world.moved().await?;
    world.victim.way.is_cut.store(false, Ordering::SeqCst);
    tokio::time::sleep(timings().lease_ttl * 2).await;
    world.nobody_left()?;
    world.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_core_that_drains_hands_its_edges_over() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    world.victim.order(Order::Drain);
    world.moved().await?;
    world.end().await
}
