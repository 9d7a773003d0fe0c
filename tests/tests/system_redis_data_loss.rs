//! All data of the store vanishes while people are there: nobody live is seen to leave or to come, and who
//! really left meanwhile is gone when the hold ends.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use presence_model::claim::Action;
use presence_proto::v1;
use presence_proto::v1::watch_response::Event as Told;
use presence_tests::fleet::{Fleet, Person};
use presence_tests::procs::{Client, CoreOptions, Keys, Process, Timers, core_with, edge};
use presence_tests::redis::{Server, ServerOptions};
use serde_json::Value;

const TIMERS: Timers = Timers {
    heartbeat: Duration::from_secs(2),
    lease_ttl: Duration::from_secs(8),
    grace: Duration::from_secs(2),
    edge_lost: Duration::from_millis(2_600),
};
const ROOM: &str = "hall";
const LIVE: usize = 2_000;
const LEFT: usize = 300;
const WITHIN: Duration = Duration::from_secs(30);

/// Everybody whom frames name as there or gone.
fn named(frames: &[Value]) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for frame in frames {
        for list in ["members", "upserts", "removals"] {
            let users = frame[list].as_array().into_iter().flatten();
            named.extend(users.filter_map(|one| one["user"].as_str().or(one.as_str())).map(str::to_owned));
        }
    }
    named
}

/// What an observer has seen so far.
#[derive(Debug, Clone, Default)]
struct Seen {
    frames: Vec<Value>,
    members: BTreeSet<String>,
}

/// A client that reads all the time, so that it answers pings.
struct Observer {
    seen: Arc<Mutex<Seen>>,
    task: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl Observer {
    fn start(mut client: Client) -> Self {
        let members = client.members.keys().cloned().collect();
        let seen = Arc::new(Mutex::new(Seen { members, ..Seen::default() }));
        let told = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            loop {
                let frame = client.next().await?;
                let mut told = told.lock().expect("no panic");
                told.frames.push(frame);
                told.members = client.members.keys().cloned().collect();
            }
        });
        Self { seen, task }
    }

    fn seen(&self) -> Seen {
        self.seen.lock().expect("no panic").clone()
    }

    fn forget_frames(&self) {
        self.seen.lock().expect("no panic").frames.clear();
    }

    async fn until(&self, is_so: impl Fn(&Seen) -> bool) -> anyhow::Result<()> {
        let end = tokio::time::Instant::now() + WITHIN;
        while !is_so(&self.seen()) {
            let seen = self.seen();
            let is_late = tokio::time::Instant::now() >= end || self.task.is_finished();
            anyhow::ensure!(!is_late, "{} members", seen.members.len());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch(address: &str) -> anyhow::Result<tonic::Streaming<v1::WatchResponse>> {
    let channel = tonic::transport::Channel::from_shared(format!("http://{address}"))?.connect().await?;
    let mut rooms = v1::presence_service_client::PresenceServiceClient::new(channel);
    let open =
        v1::OpenRoom { room: ROOM.into(), level: v1::WatchLevel::Members.into(), ..v1::OpenRoom::default() };
    let request = v1::WatchRequest { message: Some(v1::watch_request::Message::Open(Box::new(open))) };
    let up = futures::StreamExt::chain(tokio_stream::iter([request]), futures::stream::pending());
    Ok(rooms.watch(up).await?.into_inner())
}

#[tokio::test(flavor = "multi_thread")]
async fn flushall_under_two_thousand_is_seen_by_nobody() -> anyhow::Result<()> {
    let server = Server::start(ServerOptions::default()).await?;
    let keys = Arc::new(Keys::generate()?);
    let store = Some(format!("redis://{}", server.address()));
    let core = core_with(&CoreOptions { store, ..CoreOptions::default() }, &keys, &TIMERS)?;
    let near = edge("edge-real", &core, &keys, &TIMERS)?;
    let fleet = Fleet::start("edge-fleet", &[core.address("grpc")], Arc::clone(&keys), TIMERS);
    fleet.join(Person::gathering(ROOM, "stays", 0, LIVE - LEFT), WITHIN).await?;
    fleet.join(Person::gathering(ROOM, "leaves", 0, LEFT), WITHIN).await?;

    let mut client = Client::connect(&near.address("ws")).await?;
    client.watch(ROOM, &keys.token("watcher", ROOM, Action::Watch)?).await?;
    let observer = Observer::start(client);
    observer.until(|seen| seen.members.len() == LIVE).await?;
    let mut stream = watch(&core.address("grpc")).await?;
    let mut snapshots = BTreeSet::new();
    let mut pages = 0;
    while pages < LIVE {
        if let Some(Told::Snapshot(page)) = stream.message().await?.and_then(|told| told.event) {
            snapshots.insert(page.position.unwrap_or_default().epoch.unwrap_or_default().minted_ms);
            pages += page.members.len();
        }
    }
    // The first start of a store holds too: let that be over.
    tokio::time::sleep(TIMERS.lease_ttl + Duration::from_secs(1)).await;

    let gone: Vec<String> = (0..LEFT).map(|number| format!("leaves-{number}")).collect();
    observer.forget_frames();
    server.call::<()>(&["FLUSHALL"]).await?;
    let flushed = tokio::time::Instant::now();
    fleet.silence(gone.clone())?;
    let until_held = TIMERS.lease_ttl - Duration::from_secs(1);
    let mut told = Vec::new();
    while let Ok(Ok(Some(one))) = tokio::time::timeout_at(flushed + until_held, stream.message()).await {
        told.extend(one.event);
    }
    let named = named(&observer.seen().frames);
    assert!(named.is_empty(), "{} people are named, such as {:?}", named.len(), named.first());
    assert_eq!(fleet.report().live, LIVE - LEFT, "everybody is back");

    // The gRPC watcher: one snapshot, of one new epoch.
    let mut epochs = BTreeSet::new();
    let mut firsts = 0;
    for message in told {
        if let Told::Snapshot(page) = message {
            firsts += usize::from(page.first);
            epochs.insert(page.position.unwrap_or_default().epoch.unwrap_or_default().minted_ms);
        }
    }
    assert_eq!((firsts, epochs.len()), (1, 1), "one snapshot of one epoch, not {firsts} of {epochs:?}");
    assert!(epochs.first() > snapshots.first(), "the epoch is new");

    observer.until(|seen| seen.members.len() == LIVE - LEFT).await?;
    let left: BTreeSet<String> = gone.into_iter().collect();
    assert!(observer.seen().members.is_disjoint(&left), "exactly those who left are gone");
    println!("those who left were gone {:?} after the flush, for a ttl of 8 s", flushed.elapsed());
    Ok(())
}

/// Goes on elsewhere with what a client has: its list, and its cursor.
async fn moves_to(edge: &Process, keys: &Keys, before: &Client) -> anyhow::Result<Observer> {
    let mut client = Client::connect(&edge.address("ws")).await?;
    client.members.clone_from(&before.members);
    client.cursor.clone_from(&before.cursor);
    client.watch(ROOM, &keys.token("watcher", ROOM, Action::Watch)?).await?;
    Ok(Observer::start(client))
}

/// Clients that still show somebody unconfirmed move to other edges when the hold is over: one that was there
/// all the while, and one that knows nothing. Whatever their cursor was, no ghost stays and nobody is missing.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_moves_after_a_data_loss_takes_no_ghost_along() -> anyhow::Result<()> {
    const STAY: usize = 100;
    const GO: usize = 20;
    let server = Server::start(ServerOptions::default()).await?;
    let keys = Arc::new(Keys::generate()?);
    let store = Some(format!("redis://{}", server.address()));
    let core = core_with(&CoreOptions { store, ..CoreOptions::default() }, &keys, &TIMERS)?;
    let (near, far) = (edge("near", &core, &keys, &TIMERS)?, edge("far", &core, &keys, &TIMERS)?);
    let fleet = Fleet::start("fleet", &[core.address("grpc")], Arc::clone(&keys), TIMERS);
    fleet.join(Person::gathering(ROOM, "stays", 0, STAY), WITHIN).await?;
    fleet.join(Person::gathering(ROOM, "goes", 0, GO), WITHIN).await?;
    let watch = async |edge: &Process| {
        let mut client = Client::connect(&edge.address("ws")).await?;
        client.watch(ROOM, &keys.token("watcher", ROOM, Action::Watch)?).await?;
        while client.members.len() < STAY + GO {
            client.next().await?;
        }
        anyhow::Ok(client)
    };
    // The first start of a store holds too: let that be over.
    tokio::time::sleep(TIMERS.lease_ttl + Duration::from_secs(1)).await;
    let (early, mut late) = (watch(&near).await?, watch(&near).await?);
    // The far edge has a copy of the room, with the same people unconfirmed.
    let _keeps_a_copy = Observer::start(watch(&far).await?);

    server.call::<()>(&["FLUSHALL"]).await?;
    fleet.silence((0..GO).map(|number| format!("goes-{number}")).collect())?;
    fleet.until(WITHIN, |report| report.live == STAY).await?;
    fleet.join(Person::gathering(ROOM, "comes", 0, 1), WITHIN).await?;
    while !late.members.contains_key("comes-0") {
        late.next().await?;
    }
    let all: BTreeSet<&String> = early.members.keys().collect();
    assert_eq!((all.len(), late.members.len()), (STAY + GO, STAY + GO + 1), "shown, though unconfirmed");
    let fresh = edge("fresh", &core, &keys, &TIMERS)?;
    tokio::time::sleep(TIMERS.lease_ttl + Duration::from_secs(3)).await;

    let there: BTreeSet<String> =
        (0..STAY).map(|number| format!("stays-{number}")).chain(["comes-0".to_owned()]).collect();
    for (edge, name) in [(&far, "far"), (&fresh, "fresh"), (&near, "near")] {
        for (client, when) in [(&early, "before"), (&late, "after")] {
            let moved = moves_to(edge, &keys, client).await?;
            let ended = moved.until(|seen| seen.members == there).await;
            assert!(ended.is_ok(), "{name}, with a cursor of {when} somebody came: {ended:?}");
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert_eq!(moved.seen().members, there, "and it stays so");
        }
    }
    Ok(())
}
