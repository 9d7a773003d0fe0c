//! Scenario 25: two hundred clients of one edge stop reading in a room that churns. What waits for each collapses, so the
//! edge's memory stays flat, and others hear of changes as soon as before. Who goes on not to read is closed in the end.

use std::sync::Arc;
use std::time::Duration;

use presence_edge::limits::WRITE_WITHIN;
use presence_model::claim::Action;
use presence_tests::fleet::{Fleet, Person};
use presence_tests::procs::{Client, Keys, Process, Timers, core, edge, pss_bytes};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Who does not read says nothing either: with a quicker heartbeat it would be closed as silent.
const TIMERS: Timers = Timers {
    heartbeat: Duration::from_secs(30),
    lease_ttl: Duration::from_secs(90),
    grace: Duration::from_secs(10),
    edge_lost: Duration::from_secs(5),
};
const ROOM: &str = "hall";
const PEOPLE: usize = 2_000;
const STALLED: usize = 200;
const READERS: usize = 10;
/// People who come and go each time.
const CHURN: usize = 100;
const ROUNDS: usize = 12;
const WITHIN: Duration = Duration::from_secs(30);
const SHED: &str = "presence_edge_slow_total{action=\"shed\"}";
/// What a connection is handed at once is 64 KiB, and a frame of as much is not cut.
const STALLED_BYTES_MAX: f64 = 128.0 * 1024.0;
/// Twice the slowest cadence of a room of this size, and a busy machine.
const LATER_MAX: Duration = Duration::from_millis(500);

/// Watches the room, and never reads.
async fn stall(edge: &Process, keys: &Keys, number: usize) -> anyhow::Result<TcpStream> {
    let url = edge.address("ws");
    let host = url.trim_start_matches("ws://").trim_end_matches("/v1/ws");
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4_096)?;
    let mut stream = socket.connect(host.parse()?).await?;
    let token = keys.token(&format!("stalled-{number}"), ROOM, Action::Watch)?;
    let watch = json!({ "t": "watch", "room": ROOM, "token": token }).to_string();
    let handshake = format!(
        "GET /v1/ws HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(handshake.as_bytes()).await?;
    // Masked with zeros.
    let length = u16::try_from(watch.len())?.to_be_bytes();
    let head = [0x81, 0x80 | 126, length[0], length[1], 0, 0, 0, 0];
    stream.write_all(&[&head, watch.as_bytes()].concat()).await?;
    Ok(stream)
}

/// Reads everything, and tells when it first saw each user that marks a moment.
async fn read(
    edge: &Process,
    keys: &Keys,
    told: mpsc::UnboundedSender<(String, Instant)>,
) -> anyhow::Result<()> {
    let mut client = Client::connect(&edge.address("ws")).await?;
    client.watch(ROOM, &keys.token("reader", ROOM, Action::Watch)?).await?;
    tokio::spawn(async move {
        while let Ok(frame) = client.next().await {
            for member in frame["upserts"].as_array().into_iter().flatten() {
                let user = member["user"].as_str().unwrap_or_default();
                if user.starts_with("mark") && told.send((user.to_owned(), Instant::now())).is_err() {
                    return;
                }
            }
        }
    });
    Ok(())
}

struct World {
    edge: Process,
    fleet: Fleet,
    marks: mpsc::UnboundedReceiver<(String, Instant)>,
    came: usize,
}

impl World {
    /// People come and go, again and again; the longest that a reader waited to hear of each time.
    async fn churn(&mut self) -> anyhow::Result<Vec<Duration>> {
        let mut waits = Vec::new();
        for _ in 0..ROUNDS {
            self.came += 1;
            let more = Person::gathering(ROOM, "churn", self.came * CHURN, CHURN);
            let users = more.iter().map(|person| person.user.clone()).collect();
            self.fleet.join(more, WITHIN).await?;
            let start = Instant::now();
            let mark = Person::gathering(ROOM, "mark", self.came, 1);
            let name = mark[0].user.clone();
            self.fleet.join(mark, WITHIN).await?;
            for _ in 0..READERS {
                let (user, at) =
                    tokio::time::timeout(WITHIN, self.marks.recv()).await?.expect("readers read");
                anyhow::ensure!(user == name, "{user} instead of {name}");
                waits.push(at.saturating_duration_since(start));
            }
            self.fleet.leave(users)?;
            self.fleet.until(WITHIN, |report| report.live == PEOPLE + self.came).await?;
        }
        waits.sort();
        Ok(waits)
    }

    /// All who do not read are closed for it, and nobody else is.
    async fn shed(&self) -> anyhow::Result<()> {
        let gone = async {
            while self.edge.metric("presence_edge_connections").await? as usize > READERS {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(WRITE_WITHIN + WITHIN, gone).await??;
        assert_eq!(self.edge.metric("presence_edge_connections").await? as usize, READERS);
        assert_eq!(self.edge.metric(SHED).await? as usize, STALLED, "for that reason");
        Ok(())
    }

    fn memory(&self) -> anyhow::Result<f64> {
        pss_bytes(self.edge.id())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_25_clients_that_stop_reading_cost_little_and_slow_down_nobody() -> anyhow::Result<()> {
    let keys = Arc::new(Keys::generate()?);
    let core = core(&keys, &TIMERS)?;
    let edge = edge("slow", &core, &keys, &TIMERS)?;
    let fleet = Fleet::start("people", &[core.address("grpc")], Arc::clone(&keys), TIMERS);
    fleet.join(Person::gathering(ROOM, "user", 0, PEOPLE), WITHIN).await?;
    let (told, marks) = mpsc::unbounded_channel();
    for _ in 0..READERS {
        read(&edge, &keys, told.clone()).await?;
    }
    let mut world = World { edge, fleet, marks, came: 0 };
    let alone = world.churn().await?;
    let before = world.memory()?;
    let mut stalled = Vec::new();
    for number in 0..STALLED {
        stalled.push(stall(&world.edge, &keys, number).await?);
    }
    let beside = world.churn().await?;
    let early = world.memory()?;
    let still = world.churn().await?;
    let late = world.memory()?;
    let connections = world.edge.metric("presence_edge_connections").await?;
    assert_eq!(connections as usize, STALLED + READERS, "nobody was shed yet, or the memory is of nobody");
    let at = |waits: &[Duration], part: usize| waits[waits.len() * part / 100 - 1].as_millis();
    println!(
        "{STALLED} clients that do not read: {:.1} kB each, {:.1} kB each {ROUNDS} rounds of {CHURN} comings and \
         goings later; readers hear after {} ms (p50) and {} ms (p99) beside them, {} and {} alone",
        (early - before) / 1e3 / STALLED as f64,
        (late - before) / 1e3 / STALLED as f64,
        at(&beside, 50),
        at(&beside, 99),
        at(&alone, 50),
        at(&alone, 99),
    );
    let grown = late.max(early) - before;
    assert!(grown <= STALLED as f64 * STALLED_BYTES_MAX, "{grown} bytes for {STALLED} that do not read");
    let rise = late - early;
    assert!(rise <= STALLED as f64 * 8.0 * 1024.0, "and {rise} more while they go on not reading");
    for waits in [&beside, &still] {
        let median = waits[waits.len() / 2];
        assert!(median <= alone[alone.len() / 2] + LATER_MAX, "{median:?} beside them");
    }
    world.shed().await
}
