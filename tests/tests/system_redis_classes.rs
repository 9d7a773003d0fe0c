//! Rooms of a quick class beside others, over real processes and Redis: each is over at its own time, though
//! the edge between them has no class configured.

use std::time::Duration;

use presence_model::claim::Action;
use presence_runtime::clock::Clock;
use presence_tests::procs::{Client, CoreOptions, Keys, Process, Timers, core_with_file, edge};
use presence_tests::redis::{Server, ServerOptions};
use tokio::task::JoinSet;

const CLASS: &str = r#"
[[class]]
name = "quick"
match = "quick:*"
heartbeat = "1s"
lease_ttl = "3s"
grace = "1s"
"#;
/// Of rooms without a class of their own.
const TIMERS: Timers = Timers {
    heartbeat: Duration::from_secs(4),
    lease_ttl: Duration::from_secs(13),
    grace: Duration::from_secs(3),
    edge_lost: Duration::from_secs(1),
};
/// What the edge would go by if its core did not tell: nobody would be ended within this test.
const OF_EDGE: Timers = Timers {
    heartbeat: Duration::from_secs(60),
    lease_ttl: Duration::from_secs(200),
    grace: Duration::from_secs(60),
    edge_lost: Duration::from_secs(5),
};
const ROOMS: [&str; 2] = ["quick:1", "hall"];
/// What a busy machine may add.
const SLACK: Duration = Duration::from_secs(2);

struct World {
    keys: Keys,
    core: Process,
    edge: Process,
    _server: Server,
}

impl World {
    async fn start() -> anyhow::Result<Self> {
        let server = Server::start(ServerOptions::default()).await?;
        let keys = Keys::generate()?;
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), CLASS)?;
        let store = Some(format!("redis://{}", server.address()));
        let core =
            core_with_file(&CoreOptions { store, ..CoreOptions::default() }, file.path(), &keys, &TIMERS)?;
        let edge = edge("edge", &core, &keys, &OF_EDGE)?;
        // The first start of a store holds: let that be over.
        tokio::time::sleep(TIMERS.lease_ttl + Duration::from_secs(1)).await;
        Ok(Self { keys, core, edge, _server: server })
    }

    async fn join(&self, edge: &Process, user: &str, room: &str) -> anyhow::Result<Client> {
        let mut client = Client::connect(&edge.address("ws")).await?;
        let token = self.keys.token(user, room, Action::Join)?;
        let joined = client.join(room, &token, &format!("{user:-<16}"), 1).await?;
        let timers = [joined["heartbeat_ms"].as_u64(), joined["reconnect_ms"].as_u64()];
        let expected = if room == ROOMS[0] { [1_000, 500] } else { [4_000, 1_500] };
        anyhow::ensure!(timers == expected.map(Some), "{joined}");
        Ok(client)
    }

    /// Who watches a room, and is told who was removed from it and when, since `start`.
    async fn watch(&self, edge: &Process, room: &'static str) -> anyhow::Result<Client> {
        let mut client = Client::connect(&edge.address("ws")).await?;
        client.watch(room, &self.keys.token("watcher", room, Action::Watch)?).await?;
        Ok(client)
    }
}

/// When the first removal was seen, and all that were seen within the span.
async fn removals(mut client: Client, span: Duration) -> (Option<Duration>, Vec<(String, String)>) {
    let clock = Clock::system();
    let (start, mut first) = (clock.now(), None);
    let reading = async {
        while client.next().await.is_ok() {
            if first.is_none() && !client.removals.is_empty() {
                first = Some(clock.now().since(start));
            }
        }
    };
    let _ = tokio::time::timeout(span, reading).await;
    (first, client.removals)
}

/// Each room is to lose `user` for `reason`, within its span after now, and nobody else.
#[expect(clippy::print_stdout, reason = "measured spans are of use to whoever reads a failure")]
async fn each_at_its_time(
    watchers: [Client; 2],
    (user, reason): (&str, &str),
    spans: [[Duration; 2]; 2],
) -> anyhow::Result<()> {
    let span = spans[1][1] + SLACK;
    let [quick, hall] = watchers.map(|watcher| removals(watcher, span));
    let (quick, hall) = tokio::join!(quick, hall);
    println!("{reason}: quick after {:?}, hall after {:?}", quick.0, hall.0);
    for ((first, gone), [least, most]) in [quick, hall].into_iter().zip(spans) {
        assert_eq!(gone, [(user.to_owned(), reason.to_owned())]);
        let first = first.unwrap_or_default();
        assert!(first >= least && first <= most + SLACK, "{first:?}, not within {least:?} and {most:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_drop_is_over_at_the_time_of_its_room() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut alive = JoinSet::new();
    let mut silent = Vec::new();
    for room in ROOMS {
        alive.spawn(world.join(&world.edge, "alive", room).await?.idle());
        silent.push(world.join(&world.edge, "silent", room).await?);
    }
    let watchers = [world.watch(&world.edge, ROOMS[0]).await?, world.watch(&world.edge, ROOMS[1]).await?];
    // From here on nobody reads for them: their sockets stand, and no ping is answered. The last frame of each
    // was its join; two heartbeats and the grace after it both are over.
    each_at_its_time(
        watchers,
        ("silent", "connection_lost"),
        [
            [Duration::from_millis(1_500), Duration::from_secs(3)],
            [Duration::from_secs(9), Duration::from_secs(11)],
        ],
    )
    .await?;
    drop(silent);
    assert_eq!(alive.len(), 2);
    assert!(alive.try_join_next().is_none(), "who answers is there in both rooms");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_edge_keeps_each_for_the_ttl_of_its_room() -> anyhow::Result<()> {
    let world = World::start().await?;
    let frozen = edge("frozen", &world.core, &world.keys, &OF_EDGE)?;
    let mut idle = JoinSet::new();
    for room in ROOMS {
        idle.spawn(world.join(&frozen, "cold", room).await?.idle());
    }
    let watchers = [world.watch(&world.edge, ROOMS[0]).await?, world.watch(&world.edge, ROOMS[1]).await?];
    tokio::time::sleep(Duration::from_millis(500)).await;
    frozen.signal("STOP")?;
    each_at_its_time(
        watchers,
        ("cold", "lease_expired"),
        [
            [Duration::from_millis(1_400), Duration::from_secs(3)],
            [Duration::from_secs(8), Duration::from_secs(13)],
        ],
    )
    .await?;
    frozen.signal("CONT")?;
    Ok(())
}
