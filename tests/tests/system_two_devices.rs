//! Two devices of one user over two edges, one away and one available, that change places again and again in
//! the same instant: whoever watches sees one status.

use std::time::Duration;

use presence_client::watch::RoomOptions;
use presence_client::{Client as Service, ClientSettings, Deps, RoomChange};
use presence_model::claim::Action;
use presence_model::id::RoomId;
use presence_runtime::clock::Clock;
use presence_runtime::network::Network;
use presence_tests::procs::{Client, Keys, Timers, core, edge};
use serde_json::json;

const ROOM: &str = "lobby";
const TOGGLES: u32 = 50;
const EVERY: Duration = Duration::from_millis(100);
/// Everything said has been shown by then.
const REST: Duration = Duration::from_secs(1);

/// A watcher over gRPC that counts changes, until it is stopped.
async fn count_changes(address: String, span: Duration) -> anyhow::Result<usize> {
    let deps = Deps { network: Network::tcp(), clock: Clock::system() };
    let service = Service::new(ClientSettings::new(vec![format!("http://{address}")], 7), deps)?;
    let mut updates = service.watch(RoomId::new(ROOM)?, RoomOptions::default()).await?;
    let end = tokio::time::Instant::now() + span;
    let mut changes = 0;
    while let Ok(update) = tokio::time::timeout_at(end, updates.next()).await {
        match update?.change {
            RoomChange::Delta { .. } => changes += 1,
            RoomChange::List(_) | RoomChange::Nothing => {}
        }
    }
    Ok(changes)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_devices_in_antiphase_show_one_status() -> anyhow::Result<()> {
    let (keys, timers) = (Keys::generate()?, Timers::SHORT);
    let core = core(&keys, &timers)?;
    let edges = [edge("one", &core, &keys, &timers)?, edge("two", &core, &keys, &timers)?];
    let mut devices = Vec::new();
    for (index, edge) in edges.iter().enumerate() {
        let mut device = Client::connect(&edge.address("ws")).await?;
        let token = keys.token("ann", ROOM, Action::Join)?;
        device.join(ROOM, &token, &format!("session-of-device-{index}"), 1).await?;
        devices.push(device);
    }
    let say = |status| json!({ "t": "update", "room": ROOM, "status": status });
    devices[1].send(&say("away")).await?;
    tokio::time::sleep(REST).await;

    let span = EVERY * TOGGLES + REST;
    let service = tokio::spawn(count_changes(core.address("grpc"), span));
    let mut observers = Vec::new();
    for edge in &edges {
        let mut observer = Client::connect(&edge.address("ws")).await?;
        observer.watch(ROOM, &keys.token("observer", ROOM, Action::Watch)?).await?;
        observers.push(tokio::spawn(async move { anyhow::Ok((observer.during(span).await?, observer)) }));
    }
    let mut beat = tokio::time::interval(EVERY);
    for toggle in 0..TOGGLES {
        beat.tick().await;
        let up = usize::from(toggle % 2 == 0);
        devices[up].send(&say("available")).await?;
        devices[1 - up].send(&say("away")).await?;
    }
    for observer in observers {
        let (frames, observer) = observer.await??;
        let deltas: Vec<_> = frames.iter().filter(|frame| frame["t"] == "delta").collect();
        assert!(deltas.len() <= 1, "{deltas:?}");
        assert_eq!(observer.members["ann"]["status"], "available");
    }
    let changes = service.await??;
    assert!(changes <= 1, "{changes} changes over gRPC");
    Ok(())
}
