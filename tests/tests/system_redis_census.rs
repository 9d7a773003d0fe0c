//! A very large room is counted in constant time, exactly, also after crashes; its pages can be walked while
//! people come and go; and whoever watches its number is told.
//!
//! 5,000 people; with `tests/run long` 50,000.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use presence_proto::v1;
use presence_proto::v1::presence_service_client::PresenceServiceClient;
use presence_proto::v1::watch_response::Event as Told;
use presence_tests::fleet::{Fleet, Person};
use presence_tests::procs::{CoreOptions, Keys, Process, Timers, core_with};
use presence_tests::redis::{Data, Server, ServerOptions};
use tokio::time::Instant;
use tonic::transport::Channel;

const TIMERS: Timers = Timers {
    heartbeat: Duration::from_secs(4),
    lease_ttl: Duration::from_secs(16),
    grace: Duration::from_secs(4),
    edge_lost: Duration::from_secs(4),
};
const ROOM: &str = "hall";
const SMALL_ROOM: &str = "corner";
const SMALL: usize = 50;
/// Who comes and goes at once.
const CHURN: usize = 40;
const COUNTS: usize = 200;
const WALKS: usize = 3;
const WITHIN: Duration = Duration::from_secs(120);

fn people() -> usize {
    if std::env::var_os("PRESENCE_TEST_LONG").is_some() { 50_000 } else { 5_000 }
}

struct World {
    server: Server,
    core: Process,
    keys: Arc<Keys>,
    fleet: Fleet,
}

impl World {
    async fn start() -> anyhow::Result<Self> {
        let server = Server::start(ServerOptions::default()).await?;
        let keys = Arc::new(Keys::generate()?);
        let core = core(&server, &keys)?;
        let fleet = Fleet::start("edge", &[core.address("grpc")], Arc::clone(&keys), TIMERS);
        fleet.join(Person::gathering(ROOM, "stays", 0, people()), WITHIN).await?;
        fleet.join(Person::gathering(SMALL_ROOM, "stays", 0, SMALL), WITHIN).await?;
        Ok(Self { server, core, keys, fleet })
    }

    async fn rooms(&self) -> anyhow::Result<PresenceServiceClient<Channel>> {
        rooms(&self.core).await
    }

    async fn until_counted(&self, wanted: usize) -> anyhow::Result<()> {
        let end = Instant::now() + WITHIN;
        loop {
            let counted = count(&mut self.rooms().await?, ROOM).await;
            if counted.as_ref().is_ok_and(|counted| *counted == wanted) {
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < end, "{counted:?} of {wanted}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

fn core(server: &Server, keys: &Keys) -> anyhow::Result<Process> {
    let store = Some(format!("redis://{}", server.address()));
    core_with(&CoreOptions { store, ..CoreOptions::default() }, keys, &TIMERS)
}

async fn rooms(core: &Process) -> anyhow::Result<PresenceServiceClient<Channel>> {
    let channel = core.channel().await?;
    Ok(PresenceServiceClient::new(channel).max_decoding_message_size(64 << 20))
}

async fn count(rooms: &mut PresenceServiceClient<Channel>, room: &str) -> anyhow::Result<usize> {
    let asked = v1::CountRoomRequest { room: room.to_owned() };
    Ok(usize::try_from(rooms.count_room(asked).await?.into_inner().count)?)
}

/// Microseconds that Redis has spent on scripts that read.
async fn reading_micros(server: &Server) -> anyhow::Result<f64> {
    let text: String = server.call(&["INFO", "commandstats"]).await?;
    let line = text.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha_ro:")).unwrap_or_default();
    let micros = line.split(',').find_map(|field| field.strip_prefix("usec="));
    Ok(micros.and_then(|micros| micros.parse().ok()).unwrap_or(0.0))
}

/// What so many counts cost Redis, the least of some tries: audits read as well meanwhile.
async fn cost_of_counting(world: &World, room: &str) -> anyhow::Result<f64> {
    let mut asking = world.rooms().await?;
    let mut least = f64::INFINITY;
    for _ in 0..5 {
        let before = reading_micros(&world.server).await?;
        for _ in 0..COUNTS {
            count(&mut asking, room).await?;
        }
        least = least.min(reading_micros(&world.server).await? - before);
    }
    Ok(least / COUNTS as f64)
}

/// People who come and go until told to stop; then all of them have gone.
async fn churn(fleet: Fleet, over: Arc<AtomicBool>, commits: Arc<AtomicUsize>) -> anyhow::Result<Fleet> {
    for wave in 0.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let wave = Person::gathering(ROOM, "passes", wave * CHURN, CHURN);
        let users = wave.iter().map(|person| person.user.clone()).collect();
        fleet.join(wave, WITHIN).await?;
        fleet.leave(users)?;
        fleet.until(WITHIN, |report| report.live == 0).await?;
        commits.fetch_add(1, Ordering::Relaxed);
    }
    Ok(fleet)
}

/// A walk over all pages: users in the order in which they came, and the points of the pages.
async fn walk(
    rooms: &mut PresenceServiceClient<Channel>,
) -> anyhow::Result<(Vec<String>, Vec<(u64, u64, u64)>)> {
    let (mut users, mut points, mut page_token) = (Vec::new(), Vec::new(), String::new());
    loop {
        let asked = v1::GetRoomRequest { room: ROOM.to_owned(), page_size: 250, page_token };
        let page = rooms.get_room(asked).await?.into_inner();
        let position = page.regions.first().and_then(|region| region.position).unwrap_or_default();
        let epoch = position.epoch.unwrap_or_default();
        points.push((epoch.minted_ms, position.revision, page.count));
        users.extend(page.members.into_iter().map(|member| member.user));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok((users, points));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counting_costs_the_same_in_every_room_and_reads_no_list() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut asking = world.rooms().await?;
    assert_eq!(count(&mut asking, ROOM).await?, people());
    assert_eq!(count(&mut asking, SMALL_ROOM).await?, SMALL);
    let (large, small) = (cost_of_counting(&world, ROOM).await?, cost_of_counting(&world, SMALL_ROOM).await?);
    println!("a count costs Redis {large:.0} µs of {} people, {small:.0} µs of {SMALL}", people());
    assert!(large <= small * 2.0 + 10.0, "{large} µs, {small} µs in a small room");
    let loads = world.core.metric("presence_core_store_seconds_count{op=\"load\",outcome=\"ok\"}").await;
    assert!(loads.is_err(), "{loads:?} pages were read to count");
    let listed = asking.list_rooms(v1::ListRoomsRequest::default()).await?.into_inner().rooms;
    let listed: Vec<(String, u64)> = listed.into_iter().map(|room| (room.room, room.count)).collect();
    assert_eq!(listed, [(SMALL_ROOM.to_owned(), SMALL as u64), (ROOM.to_owned(), people() as u64)]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_can_be_walked_while_people_come_and_go() -> anyhow::Result<()> {
    let world = World::start().await?;
    let passing = Fleet::start("passing", &[world.core.address("grpc")], Arc::clone(&world.keys), TIMERS);
    let (over, waves) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let churning = tokio::spawn(churn(passing, Arc::clone(&over), Arc::clone(&waves)));
    let stays: BTreeSet<String> = (0..people()).map(|number| format!("stays-{number}")).collect();
    let mut asking = world.rooms().await?;
    let mut points_seen = 0;
    for _ in 0..WALKS {
        let (users, points) = walk(&mut asking).await?;
        let sorted = users.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(sorted, "sorted over all pages, so nobody comes twice");
        let here: BTreeSet<String> = users.into_iter().filter(|user| user.starts_with("stays")).collect();
        assert_eq!(here.len(), stays.len(), "whoever is there all the while is in it");
        assert_eq!(here, stays);
        assert!(points.windows(2).all(|pair| pair[0].0 == pair[1].0), "one epoch: {points:?}");
        assert!(points.windows(2).all(|pair| pair[0].1 <= pair[1].1), "never back: {points:?}");
        let counts = people() as u64..=(people() + CHURN) as u64;
        assert!(points.iter().all(|(_, _, count)| counts.contains(count)), "{points:?}");
        points_seen += points.into_iter().map(|(_, revision, _)| revision).collect::<BTreeSet<_>>().len();
    }
    over.store(true, Ordering::Relaxed);
    let _passing = churning.await??;
    assert!(waves.load(Ordering::Relaxed) > 0, "people came and went");
    assert!(points_seen > WALKS, "pages were of different points, and said so");
    world.until_counted(people()).await?;
    let (users, points) = walk(&mut asking).await?;
    assert_eq!(users.len(), people());
    assert!(points.windows(2).all(|pair| pair[0] == pair[1]), "of one point when nothing changes");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_is_told_to_whoever_watches_it_and_is_exact_after_crashes() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    let open = |room: &str| v1::OpenRoom {
        room: room.into(),
        level: v1::WatchLevel::Count.into(),
        ..v1::OpenRoom::default()
    };
    let request = v1::WatchRequest { message: Some(v1::watch_request::Message::Open(Box::new(open(ROOM)))) };
    let up = futures::StreamExt::chain(tokio_stream::iter([request]), futures::stream::pending());
    let mut stream = world.rooms().await?.watch(up).await?.into_inner();
    let told = Arc::new(AtomicUsize::new(0));
    let noted = Arc::clone(&told);
    let watching = tokio::spawn(async move {
        while let Ok(Some(message)) = stream.message().await {
            match message.event {
                Some(Told::Count(count)) => {
                    noted.store(usize::try_from(count.members).unwrap_or_default(), Ordering::Relaxed);
                }
                Some(Told::Snapshot(_) | Told::Delta(_)) => panic!("whoever counts is told no names"),
                Some(_) | None => {}
            }
        }
    });
    let until_told = async |wanted: usize| {
        let end = Instant::now() + WITHIN;
        while told.load(Ordering::Relaxed) != wanted {
            let told = told.load(Ordering::Relaxed);
            anyhow::ensure!(Instant::now() < end, "{told} was told of {wanted}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    until_told(people()).await?;
    world.fleet.join(Person::gathering(ROOM, "comes", 0, 10), WITHIN).await?;
    until_told(people() + 10).await?;
    world.fleet.leave((0..10).map(|number| format!("comes-{number}")).collect())?;
    until_told(people()).await?;

    world.server.restart(Data::Saved).await?;
    world.until_counted(people()).await?;
    world.fleet.join(Person::gathering(ROOM, "comes", 10, 5), WITHIN).await?;
    world.until_counted(people() + 5).await?;
    until_told(people() + 5).await?;

    world.core.signal("KILL")?;
    watching.abort();
    world.core = core(&world.server, &world.keys)?;
    // Of those that nobody speaks for any more none is ended before the first sweep is long past.
    assert_eq!(count(&mut world.rooms().await?, ROOM).await?, people() + 5);
    let (users, _) = walk(&mut world.rooms().await?).await?;
    assert_eq!(users.len(), people() + 5, "the number is that of the list");
    Ok(())
}
