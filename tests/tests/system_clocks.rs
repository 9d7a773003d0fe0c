//! A core or an edge whose wall clock is two minutes ahead or behind, and steps to the other side while it
//! runs: time is the store's, so nothing ends early or late, and no good token is refused.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use presence_model::claim::Action;
use presence_model::time::Mono;
use presence_runtime::clock::Clock;
use presence_tests::procs::{Client, CoreOptions, EdgeOptions, Keys, Process, Timers, core_with, edge_with};
use presence_tests::redis::{FakeClock, Server, ServerOptions};
use tokio::task::JoinSet;

const ROOM: &str = "lobby";
const SESSIONS: usize = 10;
/// Shorter than any clock here is wrong: judged by it, every token has ended or is not good yet.
const TOKEN: Duration = Duration::from_secs(60);
const SKEW_MS: i64 = 120_000;
/// The end of a token is told in whole seconds.
const SECOND: Duration = Duration::from_secs(1);
/// Correctness bounds get slack for a busy machine; nothing here is a benchmark.
const SLACK: Duration = Duration::from_secs(4);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Core,
    Edge,
}

/// Who was announced as gone, why, and when.
type Seen = Arc<Mutex<Vec<(String, String, Mono)>>>;

struct World {
    keys: Keys,
    timers: Timers,
    clock: Clock,
    _server: Server,
    _core: Process,
    /// The edge with the people.
    edge: Process,
    seen: Seen,
    tasks: JoinSet<()>,
    observed: Process,
}

impl World {
    async fn start(wrong: Wrong, wall: &FakeClock) -> anyhow::Result<Self> {
        let (keys, timers) = (Keys::generate()?, Timers::SHORT);
        let server = Server::start(ServerOptions::default()).await?;
        let store = Some(format!("redis://{}", server.address()));
        let of = |part| (part == wrong).then(|| wall.clone());
        let core = CoreOptions { store, clock: of(Wrong::Core), ..CoreOptions::default() };
        let core = core_with(&core, &keys, &timers)?;
        // A store without data starts held: for a ttl nobody is ended for silence.
        tokio::time::sleep(timers.lease_ttl + timers.heartbeat).await;
        let cores = vec![core.address("grpc")];
        let options = EdgeOptions { cores, ..EdgeOptions::default() };
        let observed = edge_with("observed", &options, &keys, &timers)?;
        let edge = edge_with("people", &EdgeOptions { clock: of(Wrong::Edge), ..options }, &keys, &timers)?;
        let (seen, tasks, clock) = (Seen::default(), JoinSet::new(), Clock::system());
        Ok(Self { keys, timers, clock, _server: server, _core: core, edge, seen, tasks, observed })
    }

    async fn observe(&mut self) -> anyhow::Result<()> {
        let mut observer = Client::connect(&self.observed.address("ws")).await?;
        observer.watch(ROOM, &self.keys.token_for("observer", ROOM, Action::Watch, TOKEN)?).await?;
        let (seen, clock) = (Arc::clone(&self.seen), self.clock.clone());
        self.tasks.spawn(async move {
            while observer.next().await.is_ok() {
                for (user, reason) in std::mem::take(&mut observer.removals) {
                    seen.lock().expect("nobody panics with this lock").push((user, reason, clock.now()));
                }
            }
        });
        Ok(())
    }

    async fn come(&mut self, user: &str, token: Duration) -> anyhow::Result<()> {
        let token = self.keys.token_for(user, ROOM, Action::Join, token)?;
        self.come_by(user, &token).await
    }

    async fn come_by(&mut self, user: &str, token: &str) -> anyhow::Result<()> {
        let mut client = Client::connect(&self.edge.address("ws")).await?;
        client.join(ROOM, token, &format!("session-of-user-{user}"), 1).await?;
        self.tasks.spawn(client.idle());
        Ok(())
    }

    fn seen(&self) -> Vec<(String, String, Mono)> {
        self.seen.lock().expect("nobody panics with this lock").clone()
    }

    async fn until_gone(&self, count: usize, within: Duration) -> anyhow::Result<()> {
        let end = self.clock.now() + within;
        while self.seen().len() < count {
            anyhow::ensure!(self.clock.now() < end, "{} of {count} gone after {within:?}", self.seen().len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

async fn a_wrong_clock(wrong: Wrong, by_ms: i64) -> anyhow::Result<()> {
    let wall = FakeClock::new()?;
    wall.step(by_ms)?;
    let mut world = World::start(wrong, &wall).await?;
    let Timers { heartbeat, lease_ttl, .. } = world.timers;
    for index in 0..SESSIONS {
        world.come(&format!("{index:06}"), TOKEN).await?;
    }
    world.observe().await?;
    tokio::time::sleep(lease_ttl * 3 / 2).await;
    wall.step(-2 * by_ms)?;
    tokio::time::sleep(lease_ttl * 3 / 2).await;
    assert_eq!(world.seen(), [], "nobody is ended by a clock");

    world.come("a-good-token", TOKEN).await?;
    let over = world.keys.token_for("an-old-token", ROOM, Action::Join, Duration::ZERO)?;
    tokio::time::sleep(SECOND).await;
    assert!(world.come_by("an-old-token", &over).await.is_err(), "one that has ended is no good");

    let (came, token) = (world.clock.now(), Duration::from_secs(5));
    world.come("a-short-token", token).await?;
    world.until_gone(1, token + SLACK).await?;
    let (user, reason, at) = world.seen().remove(0);
    assert_eq!((user.as_str(), reason.as_str()), ("a-short-token", "token_expired"));
    assert!(at.since(came) >= token - SECOND, "too early: {:?}", at.since(came));

    world.edge.signal("STOP")?;
    let frozen = world.clock.now();
    world.until_gone(1 + SESSIONS + 1, lease_ttl + SLACK).await?;
    // A renewal is at most a jittered heartbeat and two batches old when the edge freezes.
    let oldest = heartbeat.mul_f64(1.2) + heartbeat / 5;
    for (user, reason, at) in world.seen().into_iter().skip(1) {
        assert_eq!(reason, "lease_expired", "{user}");
        assert!(at.since(frozen) + oldest >= lease_ttl, "{user} too early: {:?}", at.since(frozen));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_core_ahead_then_behind_is_not_noticed() -> anyhow::Result<()> {
    a_wrong_clock(Wrong::Core, SKEW_MS).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_core_behind_then_ahead_is_not_noticed() -> anyhow::Result<()> {
    a_wrong_clock(Wrong::Core, -SKEW_MS).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_ahead_then_behind_is_not_noticed() -> anyhow::Result<()> {
    a_wrong_clock(Wrong::Edge, SKEW_MS).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_behind_then_ahead_is_not_noticed() -> anyhow::Result<()> {
    a_wrong_clock(Wrong::Edge, -SKEW_MS).await
}
