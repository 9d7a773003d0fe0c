//! Three regions, each with a Redis, a core and an edge of its own, which watch each other over long ways that can stand
//! still; and one core for edges of several regions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use presence_model::claim::Action;
use presence_tests::certificates::Certificates;
use presence_tests::procs::{
    Client, CoreOptions, EdgeOptions, Keys, Observer, Process, Relay, Timers, core_with, edge_with,
};
use presence_tests::redis::{Server, ServerOptions, free_port};
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

const NAMES: [&str; 3] = ["eu", "us", "ap"];
const ROOM: &str = "r";
const TIMERS: Timers = Timers {
    heartbeat: Duration::from_millis(1_500),
    lease_ttl: Duration::from_secs(6),
    grace: Duration::from_secs(3),
    edge_lost: Duration::from_secs(2),
};
/// One way between two regions.
const WAY: Duration = Duration::from_millis(80);
const MERGE: Duration = Duration::from_secs(3);
/// Of regions: three merges and a ttl.
const HOLD: Duration = Duration::from_secs(15);
const WITHIN: Duration = Duration::from_secs(30);

struct Land {
    server: Server,
    grpc: String,
    core: Option<Process>,
    edge: Process,
}

struct World {
    keys: Arc<Keys>,
    lands: Vec<Land>,
    /// From the core of one land to that of another.
    ways: BTreeMap<(usize, usize), Relay>,
}

impl World {
    async fn start() -> anyhow::Result<Self> {
        let keys = Arc::new(Keys::generate()?);
        let mut ways = BTreeMap::new();
        for from in 0..NAMES.len() {
            for to in (0..NAMES.len()).filter(|to| *to != from) {
                ways.insert((from, to), Relay::start(WAY).await?);
            }
        }
        let mut world = Self { keys, lands: Vec::new(), ways };
        for land in 0..NAMES.len() {
            let server = Server::start(ServerOptions::default()).await?;
            let grpc = format!("127.0.0.1:{}", free_port()?);
            let core = world.core(land, &server, &grpc)?;
            for from in (0..NAMES.len()).filter(|from| *from != land) {
                world.ways[&(from, land)].lead_to(&grpc)?;
            }
            let edge = world.edge(land, &grpc)?;
            world.lands.push(Land { server, grpc, core: Some(core), edge });
        }
        Ok(world)
    }

    fn core(&self, land: usize, server: &Server, grpc: &str) -> anyhow::Result<Process> {
        let mut more = vec!["--region".to_owned(), NAMES[land].to_owned()];
        more.extend(["--merge-interval".to_owned(), format!("{}ms", MERGE.as_millis())]);
        for to in (0..NAMES.len()).filter(|to| *to != land) {
            let peer = format!("{}=http://{}", NAMES[to], self.ways[&(land, to)].address);
            more.extend(["--peer".to_owned(), peer]);
        }
        let store = Some(format!("redis://{}", server.address()));
        let options = CoreOptions { store, grpc: Some(grpc.to_owned()), more, ..CoreOptions::default() };
        core_with(&options, &self.keys, &TIMERS)
    }

    fn edge(&self, land: usize, grpc: &str) -> anyhow::Result<Process> {
        let more = vec!["--region".to_owned(), NAMES[land].to_owned()];
        let options = EdgeOptions { cores: vec![grpc.to_owned()], more, ..EdgeOptions::default() };
        edge_with(&format!("edge-{}", NAMES[land]), &options, &self.keys, &TIMERS)
    }

    async fn observe(&self, land: usize) -> anyhow::Result<Observer> {
        Observer::start(&self.lands[land].edge.address("ws"), &self.keys, &[ROOM.to_owned()]).await
    }

    async fn observe_all(&self) -> anyhow::Result<Vec<Observer>> {
        let mut observers = Vec::new();
        for land in 0..NAMES.len() {
            observers.push(self.observe(land).await?);
        }
        Ok(observers)
    }

    async fn join(&self, land: usize, user: &str, generation: u64) -> anyhow::Result<Client> {
        self.join_from(land, user, (generation, None)).await
    }

    async fn join_from(
        &self,
        land: usize,
        user: &str,
        (generation, cursor): (u64, Option<String>),
    ) -> anyhow::Result<Client> {
        let mut client = Client::connect(&self.lands[land].edge.address("ws")).await?;
        client.cursor = cursor;
        let token = self.keys.token(user, ROOM, Action::Join)?;
        client.join(ROOM, &token, &format!("{user:-<16}"), generation).await?;
        Ok(client)
    }

    /// Holds back all ways from and to a land.
    fn isolate(&self, land: usize, is_cut: bool) {
        for ((from, to), way) in &self.ways {
            if *from == land || *to == land {
                way.hold_back(is_cut, is_cut);
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.ways.values().map(Relay::bytes).sum()
    }
}

async fn all_show(observers: &[Observer], count: usize) -> anyhow::Result<()> {
    for observer in observers {
        observer.until(count, WITHIN).await?;
    }
    Ok(())
}

/// Reads what a client is sent until the task ends.
fn keep(client: Client) -> tokio::task::JoinHandle<()> {
    tokio::spawn(client.idle())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_21_who_moves_between_regions_is_never_absent() -> anyhow::Result<()> {
    let world = World::start().await?;
    let observers = world.observe_all().await?;
    let anchor = keep(world.join(1, "anchor", 1).await?);
    let mut ann = world.join(0, "ann", 1).await?;
    all_show(&observers, 2).await?;
    let ann_cursor = |client: &Client| client.cursor.clone();
    ann.until_shown(2).await?;
    // Cleanly: the connection is closed, and another one is opened elsewhere.
    let cursor = ann_cursor(&ann);
    drop(ann);
    let us = keep(world.join_from(1, "ann", (2, cursor.clone())).await?);
    tokio::time::sleep(TIMERS.grace + MERGE).await;
    // Both at once, and the older one is left behind, silent.
    let ap = keep(world.join_from(2, "ann", (3, cursor.clone())).await?);
    tokio::time::sleep(MERGE * 2).await;
    us.abort();
    tokio::time::sleep(TIMERS.lease_ttl + MERGE).await;
    // A late attempt of before, where the first one was; then the stalls of a bad day.
    let late = world.join_from(0, "ann", (1, cursor.clone())).await;
    for way in world.ways.values() {
        way.hold_back(true, true);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for way in world.ways.values() {
        way.hold_back(false, false);
    }
    tokio::time::sleep(MERGE * 2).await;
    drop(late);
    tokio::time::sleep(TIMERS.grace + MERGE * 2).await;
    for (land, observer) in observers.iter().enumerate() {
        let sight = observer.sight();
        assert!(sight.departures.is_empty(), "{}: {:?}", NAMES[land], sight.departures);
        assert_eq!(sight.count(), 2, "{}", NAMES[land]);
    }
    ap.abort();
    anchor.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_21_only_changes_cross_between_regions() -> anyhow::Result<()> {
    const SPAN: Duration = Duration::from_secs(8);
    let world = World::start().await?;
    let measure = async || {
        let before = world.bytes();
        tokio::time::sleep(SPAN).await;
        world.bytes() - before
    };
    tokio::time::sleep(Duration::from_secs(3)).await;
    let beat = measure().await;
    let mut clients = Vec::new();
    for n in 0..40 {
        clients.push(keep(world.join(1, &format!("u{n}"), 1).await?));
    }
    // Nobody looks at the room in another region.
    let unwatched = measure().await;
    let observers = world.observe_all().await?;
    all_show(&observers, 40).await?;
    tokio::time::sleep(MERGE * 2).await;
    let watched = measure().await;
    let before = world.bytes();
    for n in 40..80 {
        clients.push(keep(world.join(1, &format!("u{n}"), 1).await?));
    }
    all_show(&observers, 80).await?;
    let changes = (world.bytes() - before) / 40;
    println!(
        "{SPAN:?}: beats {beat} B, unwatched {unwatched} B, watched {watched} B; {changes} B a change and 2 regions"
    );
    // Six streams beat once a second; a tenth is left for what the transport has to say now and then.
    let most = beat + beat / 10 + 600;
    assert!(unwatched <= most && watched <= most, "{beat}, {unwatched}, {watched}");
    assert!(changes < 1_000, "{changes} bytes for a change");
    clients.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_22_a_cut_between_regions_is_stale_and_then_lost_and_then_over() -> anyhow::Result<()> {
    let world = World::start().await?;
    let observers = world.observe_all().await?;
    let mut clients = Vec::new();
    for (land, name) in NAMES.into_iter().enumerate() {
        for n in 0..5 {
            clients.push(keep(world.join(land, &format!("{name}-{n}"), 1).await?));
        }
    }
    all_show(&observers, 15).await?;
    let told = |observers: &[Observer]| observers.iter().map(|o| o.sight().not_live).collect::<Vec<_>>();
    let before = told(&observers);
    // Short, and one way only.
    world.ways[&(0, 1)].hold_back(false, true);
    world.isolate(2, true);
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.ways[&(0, 1)].hold_back(false, false);
    world.isolate(2, false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let after = told(&observers);
    for (land, observer) in observers.iter().enumerate() {
        assert!(observer.sight().departures.is_empty(), "{}: {:?}", NAMES[land], observer.sight().departures);
        assert_eq!(observer.sight().count(), 15);
        assert!(after[land] > before[land], "{}: it was said to be stale", NAMES[land]);
    }
    // Longer than the hold of regions.
    world.isolate(2, true);
    observers[2].until(5, HOLD + WITHIN).await?;
    observers[0].until(10, HOLD + WITHIN).await?;
    observers[1].until(10, WITHIN).await?;
    let gone: Vec<_> = observers.iter().map(|observer| observer.sight().departures).collect();
    for (land, departures) in gone.iter().enumerate() {
        assert!(departures.iter().all(|(_, reason)| reason.contains("region_lost")), "{departures:?}");
        assert_eq!(departures.len(), if land == 2 { 10 } else { 5 }, "{}", NAMES[land]);
    }
    world.isolate(2, false);
    all_show(&observers, 15).await?;
    tokio::time::sleep(MERGE * 2).await;
    for (land, observer) in observers.iter().enumerate() {
        assert_eq!(observer.sight().departures.len(), gone[land].len(), "{}: nothing more", NAMES[land]);
        assert_eq!(observer.sight().count(), 15);
    }
    let lost = world.lands[0].core.as_ref().expect("it runs");
    assert!(lost.metric("presence_core_regions_lost_total{peer=\"ap\"}").await? >= 1.0);
    clients.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

/// Churn in three regions with cuts and restarts of cores, against what the test itself did.
#[tokio::test(flavor = "multi_thread")]
async fn all_views_are_equal_one_merge_after_changes_stop() -> anyhow::Result<()> {
    let seed =
        std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random::<u64>);
    println!("SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut world = World::start().await?;
    let observers = world.observe_all().await?;
    let mut here: BTreeMap<String, tokio::task::JoinHandle<()>> = BTreeMap::new();
    let mut generations: BTreeMap<String, u64> = BTreeMap::new();
    let users: Vec<String> = (0..12).map(|n| format!("user-{n}")).collect();
    for round in 0..30 {
        let user = users.choose(&mut rng).expect("some").clone();
        let before = here.remove(&user);
        let goes = before.is_some() && rng.random_bool(0.5);
        if !goes {
            let generation = generations.entry(user.clone()).and_modify(|known| *known += 1).or_insert(1);
            let client = world.join(rng.random_range(0..3), &user, *generation).await?;
            here.insert(user, keep(client));
        }
        // Whoever was there before is cut off, without a goodbye.
        if let Some(before) = before {
            before.abort();
        }
        if round % 10 == 4 {
            world.isolate(rng.random_range(0..3), true);
        }
        if round % 10 == 8 {
            (0..3).for_each(|land| world.isolate(land, false));
            let land = rng.random_range(0..3);
            let old = world.lands[land].core.take();
            drop(old);
            let core = world.core(land, &world.lands[land].server, &world.lands[land].grpc)?;
            world.lands[land].core = Some(core);
            // Joins are refused until the edge has linked again.
            tokio::time::sleep(TIMERS.edge_lost).await;
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(20..200))).await;
    }
    let truth: BTreeSet<String> = here.keys().cloned().collect();
    // Who was cut off is gone after the grace, in a hold after the ttl; then the merge.
    tokio::time::sleep(TIMERS.lease_ttl + TIMERS.grace + MERGE + Duration::from_secs(1)).await;
    for (land, observer) in observers.iter().enumerate() {
        let shown = observer.sight().members.remove(ROOM).unwrap_or_default();
        assert_eq!(shown, truth, "{} (SEED={seed})", NAMES[land]);
    }
    here.values().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

/// One core far away from the edges of a second region.
#[tokio::test(flavor = "multi_thread")]
async fn one_core_serves_edges_of_several_regions() -> anyhow::Result<()> {
    let keys = Arc::new(Keys::generate()?);
    let server = Server::start(ServerOptions::default()).await?;
    let more =
        ["--region", "eu", "--edge-regions", "us", "--merge-interval", "3s"].map(str::to_owned).to_vec();
    let store = Some(format!("redis://{}", server.address()));
    let core = core_with(&CoreOptions { store, more, ..CoreOptions::default() }, &keys, &TIMERS)?;
    let way = Relay::start(WAY).await?;
    way.lead_to(&core.address("grpc"))?;
    let edge = |region: &str, core: String| {
        let more = vec!["--region".to_owned(), region.to_owned()];
        edge_with(region, &EdgeOptions { cores: vec![core], more, ..EdgeOptions::default() }, &keys, &TIMERS)
    };
    let edges = [edge("eu", core.address("grpc"))?, edge("us", way.address.to_string())?];
    let mut observers = Vec::new();
    for edge in &edges {
        observers.push(Observer::start(&edge.address("ws"), &keys, &[ROOM.to_owned()]).await?);
    }
    let join = async |edge: &Process, user: &str, (generation, cursor): (u64, Option<String>)| {
        let mut client = Client::connect(&edge.address("ws")).await?;
        client.cursor = cursor;
        let token = keys.token(user, ROOM, Action::Join)?;
        client.join(ROOM, &token, &format!("{user:-<16}"), generation).await?;
        anyhow::Ok(client)
    };
    let bob = keep(join(&edges[1], "bob", (1, None)).await?);
    let mut ann = join(&edges[0], "ann", (1, None)).await?;
    ann.until_shown(2).await?;
    all_show(&observers, 2).await?;
    let cursor = ann.cursor.clone();
    drop(ann);
    let ann = keep(join(&edges[1], "ann", (2, cursor)).await?);
    tokio::time::sleep(TIMERS.grace + MERGE * 2).await;
    for observer in &observers {
        assert_eq!((observer.sight().count(), observer.sight().departures.len()), (2, 0));
    }
    bob.abort();
    ann.abort();
    Ok(())
}

/// One end has forgotten the other: it is told, and never silently alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_does_not_know_us_is_counted_and_logged() -> anyhow::Result<()> {
    let keys = Keys::generate()?;
    let log = tempfile::NamedTempFile::new()?;
    let start = |more: &[&str], log_file| {
        let more = more.iter().map(|flag| (*flag).to_owned()).collect();
        core_with(&CoreOptions { more, log_file, ..CoreOptions::default() }, &keys, &TIMERS)
    };
    let forgetful = start(&["--region", "us"], None)?;
    let peer = format!("us=http://{}", forgetful.address("grpc"));
    let core = start(&["--region", "eu", "--peer", &peer], Some(log.path().to_owned()))?;
    reaches(&core, "presence_core_peer_failures_total{kind=\"refused\",peer=\"us\"}", 1.0).await?;
    assert!(core.metric("presence_core_peer_up{peer=\"us\"}").await? < 1.0);
    let said = std::fs::read_to_string(log.path())?;
    assert!(said.contains("does not let itself be watched") && said.contains("--peer"), "{said}");
    Ok(())
}

/// Cores of two regions that ask each other for certificates; a third one shows one that is not for its region.
#[tokio::test(flavor = "multi_thread")]
async fn cores_watch_each_other_by_certificate_for_their_own_region_only() -> anyhow::Result<()> {
    let (keys, authority, folder) = (Keys::generate()?, Certificates::new()?, tempfile::tempdir()?);
    let ports = [free_port()?, free_port()?];
    let peers = folder.path().join("peers.toml");
    let entry =
        |name: &str| format!("[[core]]\ncertificate = \"core-{name}.test\"\nregions = [\"{name}\"]\n");
    std::fs::write(&peers, entry("eu") + &entry("us"))?;
    let start = |region: &str, certificate: &str, (to, port): (&str, u16), own: Option<u16>| {
        let signed = authority.sign(certificate)?;
        let (certificate, key) = (signed.certificate.display().to_string(), signed.key.display().to_string());
        let (ca, peers) = (authority.authority().display().to_string(), peers.display().to_string());
        let peer = format!("{to}=https://127.0.0.1:{port}");
        let more = [
            ["--region", region],
            ["--peer", &peer],
            ["--peers", &peers],
            ["--tls-cert", &certificate],
            ["--tls-key", &key],
            ["--tls-client-ca", &ca],
            ["--core-cert", &certificate],
            ["--core-key", &key],
            ["--core-ca", &ca],
        ];
        let more = more.into_iter().flatten().map(str::to_owned).collect();
        let grpc = own.map(|port| format!("127.0.0.1:{port}"));
        core_with(&CoreOptions { more, grpc, ..CoreOptions::default() }, &keys, &TIMERS)
    };
    let eu = start("eu", "core-eu.test", ("us", ports[1]), Some(ports[0]))?;
    let us = start("us", "core-us.test", ("eu", ports[0]), Some(ports[1]))?;
    reaches(&eu, "presence_core_peer_up{peer=\"us\"}", 1.0).await?;
    reaches(&us, "presence_core_peer_up{peer=\"eu\"}", 1.0).await?;
    // It says that it is of eu, and shows that it is of us.
    let impostor = start("eu", "core-us.test", ("us", ports[1]), None)?;
    reaches(&impostor, "presence_core_peer_failures_total{kind=\"refused\",peer=\"us\"}", 1.0).await?;
    reaches(&us, "presence_core_access_refusals_total{reason=\"region\"}", 1.0).await?;
    assert!(impostor.metric("presence_core_peer_up{peer=\"us\"}").await? < 1.0);
    Ok(())
}

async fn reaches(process: &Process, series: &str, least: f64) -> anyhow::Result<()> {
    let end = tokio::time::Instant::now() + WITHIN;
    while process.metric(series).await? < least {
        anyhow::ensure!(tokio::time::Instant::now() < end, "{series} has not reached {least}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
