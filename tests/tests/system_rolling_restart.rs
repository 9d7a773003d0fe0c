//! Scenario 23: two edges and two cores are restarted one after the other under five thousand clients, while
//! more people come. Nobody is seen to leave.

use std::sync::Arc;
use std::time::Duration;

use presence_tests::fleet::{Fleet, Person};
use presence_tests::procs::{
    CoreOptions, EdgeOptions, Keys, Observer, Process, Roamers, Timers, core_with, edge_with,
};
use presence_tests::redis::{Server, ServerOptions};
use tokio::time::Instant;

const CLIENTS: usize = 5_000;
const ROOM_OF: usize = 20;
/// Comes while all is restarted, a few at a time: whoever is away meanwhile has something to learn.
const ARRIVE: usize = 5;
const ARRIVE_EVERY: Duration = Duration::from_millis(500);
/// Short, and long enough for two busy cores.
const TIMERS: Timers = Timers {
    heartbeat: Duration::from_secs(6),
    lease_ttl: Duration::from_secs(18),
    grace: Duration::from_secs(6),
    edge_lost: Duration::from_secs(5),
};
/// What follows from these timers: ttl − grace.
const WINDOW: Duration = Duration::from_secs(12);
/// A drained process may take so much longer to end.
const TAIL: Duration = Duration::from_secs(5);
const WITHIN: Duration = Duration::from_secs(30);
const RESUMED_MIN: f64 = 0.99;

struct World {
    keys: Arc<Keys>,
    store: String,
    cores: Vec<Process>,
    addresses: Vec<String>,
    edges: Vec<Process>,
    roamers: Roamers,
    /// Goes before the server does.
    _server: Server,
}

impl World {
    async fn start() -> anyhow::Result<Self> {
        let server = Server::start(ServerOptions::default()).await?;
        let keys = Arc::new(Keys::generate()?);
        let store = format!("redis://{}", server.address());
        let options = CoreOptions { store: Some(store.clone()), ..CoreOptions::default() };
        let cores = vec![core_with(&options, &keys, &TIMERS)?, core_with(&options, &keys, &TIMERS)?];
        let addresses: Vec<String> = cores.iter().map(|core| core.address("grpc")).collect();
        let roamers = Roamers::new(Arc::clone(&keys), Vec::new());
        let mut world = Self { keys, store, cores, addresses, edges: Vec::new(), roamers, _server: server };
        for name in ["edge-a", "edge-b"] {
            let edge = world.edge(name)?;
            world.edges.push(edge);
        }
        world.roamers.set_doors(world.doors());
        Ok(world)
    }

    fn edge(&self, name: &str) -> anyhow::Result<Process> {
        let options = EdgeOptions { cores: self.addresses.clone(), ..EdgeOptions::default() };
        edge_with(name, &options, &self.keys, &TIMERS)
    }

    fn doors(&self) -> Vec<String> {
        self.edges.iter().map(|edge| edge.address("ws")).collect()
    }

    /// As an orchestrator does: nobody is sent there any more, it is told to end, and another is started.
    #[expect(clippy::print_stdout, reason = "numbers of the run, for whoever reads the test's output")]
    async fn restart_edge(&mut self, number: usize) -> anyhow::Result<()> {
        let name = ["edge-a", "edge-b"][number];
        self.roamers.set_doors(vec![self.edges[1 - number].address("ws")]);
        let before = self.roamers.tally();
        let start = Instant::now();
        self.edges[number].signal("TERM")?;
        let code = self.edges[number].ended(WINDOW + TAIL).await?;
        let took = start.elapsed();
        anyhow::ensure!(code == Some(0), "{name} ended with {code:?}");
        self.roamers.until(WITHIN, |tally| tally.inside == CLIENTS).await?;
        let now = self.roamers.tally();
        let last = now.last_back.map(|at| at.saturating_duration_since(start)).unwrap_or_default();
        println!(
            "{name}: {} came in elsewhere before they let go, {} after; the last after {last:.1?} of a window \
             of {WINDOW:?}, hints up to {:.1?}, ended after {took:.1?}",
            now.moved - before.moved,
            now.returned - before.returned,
            now.longest_hint,
        );
        let came = now.moved + now.returned - before.moved - before.returned;
        anyhow::ensure!(
            came >= CLIENTS / 2 - CLIENTS / 10,
            "{came} were sent away: too few to show anything"
        );
        anyhow::ensure!(last <= WINDOW, "not inside the window: {last:?}");
        anyhow::ensure!(now.longest_hint <= WINDOW * 5 / 6, "a hint of {:?}", now.longest_hint);
        self.edges[number] = self.edge(name)?;
        self.roamers.set_doors(self.doors());
        Ok(())
    }

    #[expect(clippy::print_stdout, reason = "numbers of the run, for whoever reads the test's output")]
    async fn restart_core(&mut self, number: usize) -> anyhow::Result<()> {
        let start = Instant::now();
        self.cores[number].signal("TERM")?;
        let code = self.cores[number].ended(WINDOW + TAIL).await?;
        let took = start.elapsed();
        println!("core {number}: ended after {took:.1?}");
        anyhow::ensure!(took < WINDOW / 3, "its edges have moved, and it waits for nobody");
        anyhow::ensure!(code == Some(0), "core {number} ended with {code:?}");
        let grpc = Some(self.addresses[number].clone());
        let options = CoreOptions { store: Some(self.store.clone()), grpc, ..CoreOptions::default() };
        self.cores[number] = core_with(&options, &self.keys, &TIMERS)?;
        Ok(())
    }
}

/// People who come to another edge for as long as this runs; how many.
async fn arrive(
    fleet: Arc<Fleet>,
    rooms: usize,
    stop: tokio::sync::watch::Receiver<bool>,
) -> anyhow::Result<usize> {
    let mut came = 0;
    while !*stop.borrow() {
        let person =
            |n: usize| Person { room: format!("room-{}", n * 7 % rooms), user: format!("later-{n}") };
        fleet.join((came..came + ARRIVE).map(person).collect(), WITHIN).await?;
        came += ARRIVE;
        tokio::time::sleep(ARRIVE_EVERY).await;
    }
    Ok(came)
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_23_a_rolling_restart_of_everything_is_not_noticed() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    let started = Instant::now();
    let third = world.edge("edge-c")?;
    let rooms: Vec<String> = (0..CLIENTS / ROOM_OF).map(|n| format!("room-{n}")).collect();
    let observer = Observer::start(&third.address("ws"), &world.keys, &rooms).await?;
    world.roamers.come(Person::crowd("user", 0, CLIENTS, ROOM_OF), WITHIN * 2).await?;
    observer.until(CLIENTS, WITHIN).await?;
    println!("{CLIENTS} clients are in after {:.1?}", started.elapsed());
    // In the hold of a new store nobody would be ended whatever happened.
    tokio::time::sleep_until(started + TIMERS.lease_ttl + Duration::from_secs(2)).await;

    let before = observer.sight();
    let fleet = Arc::new(Fleet::start("arrivals", &world.addresses, Arc::clone(&world.keys), TIMERS));
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let arriving = tokio::spawn(arrive(Arc::clone(&fleet), rooms.len(), stopped));
    for number in [0, 1] {
        world.restart_core(number).await?;
        world.restart_edge(number).await?;
    }
    stop.send_replace(true);
    let came = arriving.await??;
    observer.until(CLIENTS + came, WITHIN).await?;
    // Long enough for everything that was released to be seen to leave. What is not renewed since a core was
    // restarted has run out meanwhile: the last restart took longer than a ttl.
    tokio::time::sleep(TIMERS.grace + Duration::from_secs(3)).await;

    let (sight, tally) = (observer.sight(), world.roamers.tally());
    let resumed = tally.resumed as f64 / (tally.resumed + tally.snapshots).max(1) as f64;
    println!(
        "observer: {} departures, {} times not live; clients: {} moved, {} returned, {} of them resumed by \
         delta ({:.2} %), {} by snapshot, {} failed attempts; {came} came meanwhile",
        sight.departures.len(),
        sight.not_live - before.not_live,
        tally.moved,
        tally.returned,
        tally.resumed,
        resumed * 100.0,
        tally.snapshots,
        tally.failures,
    );
    assert!(sight.departures.is_empty(), "{:?}", &sight.departures[..sight.departures.len().min(5)]);
    assert!(tally.departures.is_empty(), "{:?}", &tally.departures[..tally.departures.len().min(5)]);
    assert_eq!(sight.not_live, before.not_live, "no list was ever said to be stale or held");
    assert_eq!((sight.count(), tally.inside), (CLIENTS + came, CLIENTS));
    assert!(tally.moved + tally.returned >= CLIENTS, "each edge had its half at least once");
    assert!(resumed >= RESUMED_MIN, "{resumed}");
    Ok(())
}
