//! Three regions, each with a Redis, a core and an edge of its own, which watch each other over long ways that can stand
//! still; and one core for edges of several regions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use presence_model::claim::Action;
use presence_tests::procs::{
    Client, CoreOptions, EdgeOptions, Keys, LandOptions, Lands, Observer, Process, Relay, Stay, Timers,
    core_with, edge_with, keep,
};
use presence_tests::redis::{Server, ServerOptions};
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

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
const LANDS: LandOptions = LandOptions { names: NAMES, timers: TIMERS, way: WAY, merge: MERGE };

async fn all_show(observers: &[Observer], count: usize) -> anyhow::Result<()> {
    for observer in observers {
        observer.until(count, WITHIN).await?;
    }
    Ok(())
}

/// That nobody has gone, and nobody was listed twice.
fn nothing_is_seen_of_it(observers: &[Observer], count: usize) {
    for (land, observer) in observers.iter().enumerate() {
        let sight = observer.sight();
        assert!(sight.departures.is_empty(), "{}: {:?}", NAMES[land], sight.departures);
        assert!(sight.twice.is_empty(), "{}: {:?}", NAMES[land], sight.twice);
        assert_eq!(sight.count(), count, "{}", NAMES[land]);
    }
}

/// How somebody moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// In there, then goodbye here.
    Clean,
    /// The connection is lost, and the next one is opened there within the grace.
    Drop,
    /// Both connections for a while.
    Both,
    /// In there, and then what was asked for here before arrives and is left behind.
    Behind,
}

/// Who moves from region to region, and what it has of before.
struct Mover {
    kind: Kind,
    user: String,
    land: usize,
    generation: u64,
    stay: Option<Stay>,
}

impl Mover {
    async fn start(world: &Lands, kind: Kind) -> anyhow::Result<Self> {
        let user = format!("{kind:?}").to_lowercase();
        let stay = Some(Stay::of(world.join((0, ROOM), &user, (1, None)).await?, ROOM));
        Ok(Self { kind, user, land: 0, generation: 1, stay })
    }

    /// Moves to the next region.
    async fn move_on(&mut self, world: &Lands) -> anyhow::Result<()> {
        let from = self.land;
        match self.kind {
            Kind::Clean => {
                let (before, _) = self.enter(world, 1).await?;
                sleep(Duration::from_millis(800)).await;
                before.leave();
            }
            Kind::Drop => {
                let mut before = self.stay.take().expect("it is somewhere");
                let cursor = before.cursor().await?;
                before.cut();
                sleep(TIMERS.grace / 6).await;
                self.enter_with(world, 1, cursor).await?;
            }
            Kind::Both => {
                let (before, _) = self.enter(world, 1).await?;
                sleep(Duration::from_millis(1_500)).await;
                before.cut();
            }
            Kind::Behind => {
                // What is asked for late is the attempt before this one.
                let (before, cursor) = self.enter(world, 2).await?;
                before.cut();
                sleep(Duration::from_millis(800)).await;
                let late = world.join((from, ROOM), &self.user, (self.generation - 1, cursor)).await?;
                sleep(Duration::from_millis(500)).await;
                drop(late);
            }
        }
        Ok(())
    }

    /// Joins in the next region; what there was before, and where its list was.
    async fn enter(&mut self, world: &Lands, attempts: u64) -> anyhow::Result<(Stay, Option<String>)> {
        let mut before = self.stay.take().expect("it is somewhere");
        let cursor = before.cursor().await?;
        self.enter_with(world, attempts, cursor.clone()).await?;
        Ok((before, cursor))
    }

    async fn enter_with(
        &mut self,
        world: &Lands,
        attempts: u64,
        cursor: Option<String>,
    ) -> anyhow::Result<()> {
        self.land = (self.land + 1) % NAMES.len();
        self.generation += attempts;
        let client = world.join((self.land, ROOM), &self.user, (self.generation, cursor)).await?;
        self.stay = Some(Stay::of(client, ROOM));
        Ok(())
    }
}

/// Somebody in each region who always says something new: all that is not told at once is merged.
async fn restless(world: &Lands) -> anyhow::Result<Vec<JoinHandle<()>>> {
    let mut tasks = Vec::new();
    for (land, name) in NAMES.into_iter().enumerate() {
        let mut client = world.join((land, ROOM), &format!("restless-{name}"), (1, None)).await?;
        tasks.push(tokio::spawn(async move {
            for turn in 0_u64.. {
                let status = if turn.is_multiple_of(2) { "busy" } else { "available" };
                let said = client.send(&json!({ "t": "update", "room": ROOM, "status": status })).await;
                if said.is_err() || client.during(Duration::from_millis(400)).await.is_err() {
                    return;
                }
            }
        }));
    }
    Ok(tasks)
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_21_who_moves_between_regions_is_never_absent_and_never_twice() -> anyhow::Result<()> {
    let world = Lands::start(LANDS).await?;
    let observers = world.observe(ROOM).await?;
    let restless = restless(&world).await?;
    let mut movers = Vec::new();
    for kind in [Kind::Clean, Kind::Drop, Kind::Both, Kind::Behind] {
        movers.push(Mover::start(&world, kind).await?);
    }
    all_show(&observers, 7).await?;
    let names: BTreeSet<String> = movers.iter().map(|mover| mover.user.clone()).collect();
    let asks = async {
        loop {
            for (land, name) in NAMES.into_iter().enumerate() {
                let listed = world.ask(land, ROOM).await?;
                let once: BTreeSet<String> = listed.iter().cloned().collect();
                anyhow::ensure!(once.len() == listed.len(), "{name}: {listed:?}");
                anyhow::ensure!(once.is_superset(&names), "{name}: {once:?}");
            }
            sleep(Duration::from_millis(200)).await;
        }
    };
    let moves = async {
        for _ in 0..3 {
            for mover in &mut movers {
                mover.move_on(&world).await?;
            }
            sleep(MERGE).await;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        moved = moves => moved?,
        asked = asks => { let _: () = asked?; }
    }
    // Who was left behind is over by now.
    sleep(TIMERS.lease_ttl + MERGE).await;
    nothing_is_seen_of_it(&observers, 7);
    restless.iter().for_each(JoinHandle::abort);
    Ok(())
}

/// The ways stand still for one to three seconds, one after the other and all at once, while people move.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_21_stalls_of_a_bad_day_show_nobody_as_gone() -> anyhow::Result<()> {
    let world = Lands::start(LANDS).await?;
    let observers = world.observe(ROOM).await?;
    let mut movers = Vec::new();
    for kind in [Kind::Both, Kind::Behind] {
        movers.push(Mover::start(&world, kind).await?);
    }
    all_show(&observers, 2).await?;
    for stall in 1..=3 {
        world.ways().enumerate().for_each(|(place, way)| {
            way.hold_back(stall == 2 || place % 2 == 0, stall != 1);
        });
        let over = Instant::now() + Duration::from_secs(stall);
        // Those in two regions at once, which is told when the stall is over.
        let mut left = Vec::new();
        for mover in &mut movers {
            left.push(mover.enter(&world, 1).await?.0);
        }
        sleep_until(over).await;
        world.ways().for_each(|way| way.hold_back(false, false));
        sleep(MERGE + Duration::from_secs(1)).await;
        left.into_iter().for_each(Stay::cut);
        sleep(TIMERS.grace + MERGE).await;
    }
    nothing_is_seen_of_it(&observers, 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_21_only_changes_cross_between_regions() -> anyhow::Result<()> {
    const SPAN: Duration = Duration::from_secs(8);
    let world = Lands::start(LANDS).await?;
    let measure = async || {
        let before = world.bytes();
        sleep(SPAN).await;
        world.bytes() - before
    };
    sleep(MERGE).await;
    let beat = measure().await;
    let mut clients = Vec::new();
    let mut come = async |from: usize, to: usize| {
        for n in from..to {
            clients.push(world.come((1, ROOM), &format!("u{n}")).await?);
        }
        anyhow::Ok(())
    };
    come(0, 40).await?;
    // Nobody looks at the room in another region.
    let unwatched = measure().await;
    let observers = world.observe(ROOM).await?;
    all_show(&observers, 40).await?;
    sleep(MERGE * 2).await;
    let watched = measure().await;
    // Each of these spans is longer than what a change takes: the beats in it are the same.
    let mut costs = Vec::new();
    for (from, to) in [(40, 60), (60, 120)] {
        let before = world.bytes();
        let over = Instant::now() + SPAN;
        come(from, to).await?;
        all_show(&observers, to).await?;
        sleep_until(over).await;
        costs.push((world.bytes() - before).saturating_sub(beat));
    }
    let each = [costs[0] / 20, costs[1] / 60];
    println!(
        "{SPAN:?}: beats {beat} B, 40 members unwatched {unwatched} B, watched {watched} B; changes {each:?} B each, for two regions"
    );
    // Six streams beat once a second; a tenth is left for what the transport has to say now and then.
    let most = beat + beat / 10 + 600;
    assert!(unwatched <= most && watched <= most, "{beat}, {unwatched}, {watched}");
    assert!(costs[0] > 0 && costs[1] > costs[0], "more changes cost more: {costs:?}");
    assert!(each.iter().all(|each| *each < 1_000), "{each:?} bytes for a change");
    clients.iter().for_each(JoinHandle::abort);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_22_a_cut_between_regions_is_stale_and_then_lost_and_then_over() -> anyhow::Result<()> {
    let world = Lands::start(LANDS).await?;
    let observers = world.observe(ROOM).await?;
    let mut clients = Vec::new();
    for (land, name) in NAMES.into_iter().enumerate() {
        for n in 0..5 {
            clients.push(world.come((land, ROOM), &format!("{name}-{n}")).await?);
        }
    }
    all_show(&observers, 15).await?;
    let told = |observers: &[Observer]| observers.iter().map(|o| o.sight().not_live).collect::<Vec<_>>();
    let before = told(&observers);
    // Short: one way there only, one way back only, and of the third both.
    world.way(0, 1).hold_back(false, true);
    world.way(1, 0).hold_back(true, false);
    world.isolate(2, true);
    sleep(Duration::from_secs(5)).await;
    [(0, 1), (1, 0)].into_iter().for_each(|(from, to)| world.way(from, to).hold_back(false, false));
    world.isolate(2, false);
    sleep(Duration::from_secs(10)).await;
    let after = told(&observers);
    nothing_is_seen_of_it(&observers, 15);
    for land in 0..NAMES.len() {
        assert!(after[land] > before[land], "{}: it was said to be stale", NAMES[land]);
    }
    // Longer than the hold of regions, in which one goes and one comes.
    world.isolate(2, true);
    sleep(Duration::from_secs(4)).await;
    let core = world.lands[0].core.as_ref().expect("it runs");
    assert!(core.metric("presence_core_region_lag_seconds{peer=\"ap\"}").await? > 3.0);
    assert!(core.metric("presence_core_peer_up{peer=\"ap\"}").await? < 1.0);
    clients.pop().expect("ap-4").abort();
    clients.push(world.come((2, ROOM), "ap-new").await?);
    observers[0].until(10, HOLD + WITHIN).await?;
    observers[1].until(10, WITHIN).await?;
    observers[2].until(5, WITHIN).await?;
    let gone: Vec<_> = observers.iter().map(|observer| observer.sight().departures).collect();
    for (land, departures) in gone.iter().enumerate() {
        let lost = departures.iter().filter(|(_, reason)| reason.contains("region_lost")).count();
        let left = usize::from(land == 2);
        assert_eq!((lost, departures.len() - lost), (if land == 2 { 10 } else { 5 }, left), "{departures:?}");
    }
    world.isolate(2, false);
    all_show(&observers, 15).await?;
    sleep(MERGE * 2).await;
    for (land, observer) in observers.iter().enumerate() {
        let sight = observer.sight();
        assert_eq!(sight.departures.len(), gone[land].len(), "{}: {:?}", NAMES[land], sight.departures);
        assert!(sight.count() == 15 && sight.members[ROOM].contains("ap-new"), "{}", NAMES[land]);
    }
    assert!(core.metric("presence_core_regions_lost_total{peer=\"ap\"}").await? >= 1.0);
    reaches(core, "presence_core_peer_up{peer=\"ap\"}", 1.0).await?;
    assert!(core.metric("presence_core_region_lag_seconds{peer=\"ap\"}").await? < 3.0);
    clients.iter().for_each(JoinHandle::abort);
    Ok(())
}

/// Churn in three regions with cuts and restarts of cores, against what the test itself did.
#[tokio::test(flavor = "multi_thread")]
async fn all_views_are_equal_one_merge_after_changes_stop() -> anyhow::Result<()> {
    let seed =
        std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random::<u64>);
    println!("SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut world = Lands::start(LANDS).await?;
    let observers = world.observe(ROOM).await?;
    let mut here: BTreeMap<String, JoinHandle<()>> = BTreeMap::new();
    let mut generations: BTreeMap<String, u64> = BTreeMap::new();
    let users: Vec<String> = (0..12).map(|n| format!("user-{n}")).collect();
    for round in 0..30 {
        let user = users.choose(&mut rng).expect("some").clone();
        let before = here.remove(&user);
        let goes = before.is_some() && rng.random_bool(0.5);
        if !goes {
            let generation = *generations.entry(user.clone()).and_modify(|known| *known += 1).or_insert(1);
            let client = world.join((rng.random_range(0..3), ROOM), &user, (generation, None)).await?;
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
            world.restart_core(rng.random_range(0..3))?;
            // Joins are refused until the edge has linked again.
            sleep(TIMERS.edge_lost).await;
        }
        sleep(Duration::from_millis(rng.random_range(20..200))).await;
    }
    // Who was cut off is gone after the grace, in a hold after the ttl.
    sleep(TIMERS.lease_ttl + TIMERS.grace).await;
    // The last changes, all within half a second; from there on it is one merge and a second.
    for n in 0..6 {
        let client = world.join((n % 3, ROOM), &format!("last-{n}"), (1, None)).await?;
        here.insert(format!("last-{n}"), keep(client));
    }
    let truth: BTreeSet<String> = here.keys().cloned().collect();
    sleep(MERGE + Duration::from_secs(1)).await;
    for (land, observer) in observers.iter().enumerate() {
        let shown = observer.sight().members.remove(ROOM).unwrap_or_default();
        assert_eq!(shown, truth, "{} (SEED={seed})", NAMES[land]);
    }
    here.values().for_each(JoinHandle::abort);
    Ok(())
}

/// One core far away from the edges of a second region: over a way that stands still as well.
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
    sleep(TIMERS.grace + MERGE * 2).await;
    nothing_is_seen_of_it(&observers, 2);
    // Stalls, and cuts of one way: shorter than a lease, so nobody ends.
    for (stall, (there, back)) in [(1, (true, true)), (2, (true, false)), (3, (false, true))] {
        way.hold_back(there, back);
        sleep(Duration::from_secs(stall)).await;
        way.hold_back(false, false);
        sleep(TIMERS.heartbeat * 2).await;
    }
    let cat = keep(join(&edges[0], "cat", (1, None)).await?);
    sleep(MERGE + Duration::from_secs(1)).await;
    nothing_is_seen_of_it(&observers, 3);
    // Longer than a lease: who is beyond is out of the roster, and back when the way is open again.
    way.hold_back(true, true);
    observers[0].until(1, WITHIN).await?;
    way.hold_back(false, false);
    all_show(&observers, 3).await?;
    [bob, ann, cat].iter().for_each(JoinHandle::abort);
    Ok(())
}

async fn reaches(process: &Process, series: &str, least: f64) -> anyhow::Result<()> {
    let end = Instant::now() + WITHIN;
    while process.metric(series).await? < least {
        anyhow::ensure!(Instant::now() < end, "{series} has not reached {least}");
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
