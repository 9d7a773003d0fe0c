//! Watchers of one core over real HTTP/2: one that does not read, and one that changes its mind all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use presence_model::id::RoomId;
use presence_model::replica::Replica;
use presence_model::time::Mono;
use presence_model::view::RegionEvent;
use presence_model::watch::{Level, OpenRoom, WatchDown, WatchUp};
use presence_proto::v1;
use presence_proto::v1::presence_service_client::PresenceServiceClient;
use presence_tests::fleet::{Fleet, Person};
use presence_tests::procs::{Keys, Process, Timers, core};
use rand::RngExt as _;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

const TIMERS: Timers = Timers {
    heartbeat: Duration::from_secs(5),
    lease_ttl: Duration::from_secs(20),
    grace: Duration::from_secs(5),
    edge_lost: Duration::from_secs(5),
};
const WITHIN: Duration = Duration::from_secs(30);

fn open(room: &str) -> v1::WatchRequest {
    let open = OpenRoom {
        room: RoomId::new(room).expect("a good name"),
        home: None,
        cursor: None,
        regions: Vec::new(),
        level: Level::Members,
        min_interval: Duration::ZERO,
        at_least: None,
        recall: None,
    };
    WatchUp::Open(Box::new(open)).into()
}

fn close(room: &str) -> v1::WatchRequest {
    WatchUp::Close(RoomId::new(room).expect("a good name")).into()
}

/// A watch stream: what is said on it, and what comes.
async fn watch(
    channel: Channel,
) -> anyhow::Result<(mpsc::Sender<v1::WatchRequest>, Streaming<v1::WatchResponse>)> {
    let (up, said) = mpsc::channel(64);
    let down = PresenceServiceClient::new(channel).watch(ReceiverStream::new(said)).await?.into_inner();
    Ok((up, down))
}

struct World {
    keys: Arc<Keys>,
    core: Process,
}

impl World {
    fn start() -> anyhow::Result<Self> {
        let keys = Arc::new(Keys::generate()?);
        Ok(Self { core: core(&keys, &TIMERS)?, keys })
    }

    fn fleet(&self, name: &str) -> Fleet {
        Fleet::start(name, &[self.core.address("grpc")], Arc::clone(&self.keys), TIMERS)
    }

    /// One HTTP/2 connection, with windows that one stream that is not read fills soon.
    async fn channel(&self) -> anyhow::Result<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.core.address("grpc")))?;
        let endpoint = endpoint.initial_stream_window_size(65_535).initial_connection_window_size(1 << 18);
        Ok(endpoint.connect().await?)
    }
}

type Seen = Arc<Mutex<BTreeMap<String, Instant>>>;

/// Notes when each user of the room is seen first.
async fn note(channel: Channel, room: &str) -> anyhow::Result<Seen> {
    let (up, mut down) = watch(channel).await?;
    up.send(open(room)).await?;
    let seen = Seen::default();
    let noted = Arc::clone(&seen);
    tokio::spawn(async move {
        let _open = up;
        while let Ok(Some(message)) = down.message().await {
            let Ok(WatchDown::Region { event, .. }) = message.try_into() else { continue };
            let members = match event {
                RegionEvent::Page(page) => page.members,
                RegionEvent::Delta(delta) => delta.upserts,
                RegionEvent::Freshness(_) | RegionEvent::Lost => Vec::new(),
            };
            let mut noted = noted.lock().expect("nobody panics with it");
            for member in members {
                noted.entry(member.user.as_str().to_owned()).or_insert_with(Instant::now);
            }
        }
    });
    Ok(seen)
}

async fn seen_at(seen: &Seen, user: &str) -> anyhow::Result<Instant> {
    let end = Instant::now() + WITHIN;
    loop {
        if let Some(at) = seen.lock().expect("nobody panics with it").get(user) {
            return Ok(*at);
        }
        anyhow::ensure!(Instant::now() < end, "{user} was not seen within {WITHIN:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn median(mut lags: Vec<Duration>) -> Duration {
    lags.sort_unstable();
    lags[lags.len() / 2]
}

const PROBES: usize = 60;
/// A core ends a watch that takes nothing for 30 s.
const STALLED_MAX: Duration = Duration::from_secs(34);

/// Scenario 26. The same changes are watched beside the one that does not read, and alone on another
/// connection: whatever else keeps the machine busy concerns both.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_26_a_watcher_that_does_not_read_delays_nobody_on_its_connection() -> anyhow::Result<()> {
    let world = World::start()?;
    let (heavy, probing) = (world.fleet("heavy"), world.fleet("probing"));
    heavy.join(Person::gathering("heavy", "many", 0, 3_000), WITHIN).await?;
    let shared = world.channel().await?;
    let (asks, mut stalled) = watch(shared.clone()).await?;
    asks.send(open("heavy")).await?;
    let stalled_since = Instant::now();
    let beside = note(shared, "probe").await?;
    let alone = note(world.channel().await?, "probe").await?;

    let (mut lags_beside, mut lags_alone) = (Vec::new(), Vec::new());
    for probe in 0..PROBES {
        // The room that is not read goes on all the while.
        let more = heavy.join(Person::gathering("heavy", "more", probe * 10, 10), WITHIN);
        let start = Instant::now();
        let person = Person::gathering("probe", "probe", probe, 1);
        let user = person[0].user.clone();
        let (probed, more) = tokio::join!(probing.join(person, WITHIN), more);
        probed.and(more)?;
        lags_beside.push(seen_at(&beside, &user).await?.duration_since(start));
        lags_alone.push(seen_at(&alone, &user).await?.duration_since(start));
    }
    let (lag_beside, lag_alone) = (median(lags_beside), median(lags_alone));
    println!("lag beside one that does not read {lag_beside:.1?}, alone {lag_alone:.1?}");
    assert!(lag_beside <= lag_alone * 2, "{lag_beside:?} against {lag_alone:?}");

    tokio::time::sleep_until(stalled_since + STALLED_MAX).await;
    let mut events = 0;
    let end = loop {
        match tokio::time::timeout(WITHIN, stalled.message()).await? {
            Ok(Some(_)) => events += 1,
            Ok(None) => anyhow::bail!("ended without a reason after {events} events"),
            Err(status) => break status,
        }
    };
    println!("the one that does not read was ended with {:?} after {events} events", end.code());
    assert_eq!(end.code(), tonic::Code::ResourceExhausted);
    assert!(events <= 32, "what happened meanwhile was conflated: {events}");
    Ok(())
}

const ROOMS: usize = 12;
const TICK: Duration = Duration::from_millis(5);
const TICKS: u64 = 800;

/// What the stream has said of one room.
#[derive(Default)]
struct Place {
    /// The change that opened it, or closed it.
    changed: u64,
    /// The change that closed it before.
    closed: u64,
    is_open: bool,
    answered: bool,
    copy: Option<Replica>,
}

impl Place {
    fn turn(&mut self, change: u64) {
        let closed = if self.is_open { change } else { self.closed };
        *self = Self { changed: change, closed, is_open: !self.is_open, answered: false, copy: None };
    }
}

/// Scenario 32: opens and closes rooms at every tick while people come to all of them.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_32_subscriptions_that_change_at_every_tick_are_all_honoured() -> anyhow::Result<()> {
    let world = World::start()?;
    let fleet = Arc::new(world.fleet("people"));
    let name = |room: usize| format!("room-{room}");
    let coming = {
        let fleet = Arc::clone(&fleet);
        tokio::spawn(async move {
            let (mut came, end) = (0, Instant::now() + TICK * u32::try_from(TICKS)?);
            while Instant::now() < end {
                let person = |n: usize| Person { room: name(n % ROOMS), user: format!("user-{n}") };
                fleet.join((came..came + 10).map(person).collect(), WITHIN).await?;
                came += 10;
            }
            anyhow::Ok(came)
        })
    };
    let (up, mut down) = watch(world.channel().await?).await?;
    let mut places: BTreeMap<String, Place> = (0..ROOMS).map(|room| (name(room), Place::default())).collect();
    // The last change of which an answer has come: whatever was closed before it is closed.
    let mut honoured = 0;
    let mut tick = tokio::time::interval(TICK);
    let (mut change, mut answers) = (0, 0);
    while change < TICKS {
        tokio::select! {
            _ = tick.tick() => {
                change += 1;
                let room = name(rand::rng().random_range(0..ROOMS));
                let place = places.get_mut(&room).expect("one of them");
                place.turn(change);
                up.send(if place.is_open { open(&room) } else { close(&room) }).await?;
            }
            message = down.message() => {
                let message = message?.ok_or_else(|| anyhow::anyhow!("the watch has ended"))?;
                answers += take(&mut places, &mut honoured, message.try_into()?)?;
            }
        }
    }
    let came = coming.await??;
    for (room, place) in &mut places {
        if !place.is_open {
            change += 1;
            place.turn(change);
            up.send(open(room)).await?;
        }
    }
    let truth = |room: usize| -> BTreeSet<String> {
        (0..came).filter(|n| n % ROOMS == room).map(|n| format!("user-{n}")).collect()
    };
    let truth: BTreeMap<String, BTreeSet<String>> =
        (0..ROOMS).map(|room| (name(room), truth(room))).collect();
    let all = async {
        while truth != lists(&places) {
            let message = down.message().await?.ok_or_else(|| anyhow::anyhow!("the watch has ended"))?;
            answers += take(&mut places, &mut honoured, message.try_into()?)?;
        }
        anyhow::Ok(())
    };
    let in_time = tokio::time::timeout(WITHIN, all).await;
    println!("{change} changes of subscriptions while {came} came: {answers} rooms answered");
    in_time??;
    Ok(())
}

fn lists(places: &BTreeMap<String, Place>) -> BTreeMap<String, BTreeSet<String>> {
    let users = |copy: &Replica| copy.members().map(|member| member.user.as_str().to_owned()).collect();
    places
        .iter()
        .map(|(room, place)| (room.clone(), place.copy.as_ref().map(users).unwrap_or_default()))
        .collect()
}

/// Takes a message; 1 if it is the first answer of a room that was opened.
fn take(
    places: &mut BTreeMap<String, Place>,
    honoured: &mut u64,
    message: WatchDown,
) -> anyhow::Result<usize> {
    let WatchDown::Region { room, event, .. } = message else { return Ok(0) };
    let place = places.get_mut(room.as_str()).ok_or_else(|| anyhow::anyhow!("{room} was never opened"))?;
    if !place.is_open {
        anyhow::ensure!(*honoured < place.changed, "{room} was closed, and what was said later is answered");
        return Ok(0);
    }
    // What is still under way of an earlier opening has no first page.
    let first = matches!(&event, RegionEvent::Page(page) if page.first);
    if place.copy.is_none() && !first {
        return Ok(0);
    }
    let copy = place.copy.get_or_insert_with(Replica::cold);
    match event {
        RegionEvent::Page(page) => drop(copy.page(page, Mono::default())),
        RegionEvent::Delta(delta) => drop(copy.delta(&delta, Mono::default())),
        RegionEvent::Freshness(freshness) => drop(copy.freshness(freshness, Mono::default())),
        RegionEvent::Lost => anyhow::bail!("{room} was lost"),
    }
    let is_new = first && !std::mem::replace(&mut place.answered, true);
    // Unless it may be the answer to an earlier opening.
    if is_new && place.closed <= *honoured {
        *honoured = place.changed.max(*honoured);
    }
    Ok(usize::from(is_new))
}
