//! Refusing costs nothing that stays: neither memory nor descriptors nor lines of the log.

use std::time::Duration;

use anyhow::Context as _;
use presence_model::claim::Action;
use presence_tests::procs::{
    Client, EdgeOptions, Keys, Process, Raw, Timers, core, edge_with, frame, pss_bytes,
};
use serde_json::json;
use tokio::task::JoinSet;

const REFUSED: usize = 10_000;
/// Handshakes in a row, and joins of one connection: below what is a flood.
const PER_PORTION: usize = 80;
/// Connections at once.
const AT_ONCE: usize = 25;
/// Both processes together: pages that an allocator keeps, of which there are no more after the second round.
const MEMORY_SLACK_BYTES: f64 = 2e6;
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

struct Stage {
    core: Process,
    edge: Process,
    keys: Keys,
    log: tempfile::NamedTempFile,
    /// Holds the session that late attempts of it are refused for.
    _holder: Client,
}

const ROOM: &str = "refused";
const SESSION: &str = "session-of-holder";

impl Stage {
    async fn set() -> anyhow::Result<Self> {
        let (keys, log) = (Keys::generate()?, tempfile::NamedTempFile::new()?);
        let core = core(&keys, &LONG)?;
        let options = EdgeOptions {
            cores: vec![core.address("grpc")],
            log: Some("info".to_owned()),
            log_file: Some(log.path().to_owned()),
            ..EdgeOptions::default()
        };
        let edge = edge_with("refusing", &options, &keys, &LONG)?;
        let mut holder = Client::connect(&edge.address("ws")).await?;
        holder.join(ROOM, &keys.token("holder", ROOM, Action::Join)?, SESSION, 5).await?;
        Ok(Self { core, edge, keys, log, _holder: holder })
    }

    fn memory(&self) -> anyhow::Result<f64> {
        Ok(pss_bytes(self.core.id())? + pss_bytes(self.edge.id())?)
    }

    fn descriptors(&self) -> anyhow::Result<usize> {
        Ok(self.core.descriptors()? + self.edge.descriptors()?)
    }

    fn log_lines(&self) -> anyhow::Result<usize> {
        Ok(std::fs::read_to_string(self.log.path())?.lines().count())
    }

    /// As soon as there are no more descriptors than that.
    async fn settled(&self, descriptors: usize) -> anyhow::Result<()> {
        let settle = async {
            while self.descriptors()? > descriptors {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(SETTLED_WITHIN, settle).await.context("descriptors stay")?
    }

    async fn refuse_handshakes(&self) -> anyhow::Result<()> {
        let url = self.edge.address("ws");
        self.in_portions(move || refused_handshakes(url.clone())).await
    }

    async fn refuse_joins(&self) -> anyhow::Result<()> {
        let url = self.edge.address("ws");
        let late = self.keys.token("holder", ROOM, Action::Join)?;
        let elsewhere = self.keys.token("holder", "elsewhere", Action::Join)?;
        self.in_portions(move || refused_joins(url.clone(), [late.clone(), elsewhere.clone()])).await
    }

    async fn in_portions<F>(&self, portion: impl Fn() -> F) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let mut running = JoinSet::new();
        for _ in 0..REFUSED / PER_PORTION {
            if running.len() == AT_ONCE {
                running.join_next().await.context("one runs")???;
            }
            running.spawn(portion());
        }
        while let Some(done) = running.join_next().await {
            done??;
        }
        Ok(())
    }
}

/// Nobody is lost for being slow here.
const LONG: Timers = Timers {
    heartbeat: Duration::from_secs(30),
    lease_ttl: Duration::from_secs(90),
    grace: Duration::from_secs(20),
    edge_lost: Duration::from_secs(20),
};

/// Each for another reason, over a transport of its own: a refusal is the last that is said.
async fn refused_handshakes(url: String) -> anyhow::Result<()> {
    let good = Raw::handshake("");
    let bad = [
        (good.replace("dGhlIHNhbXBsZSBub25jZQ==", "dG9vIHNob3J0"), 400),
        (good.replace("Version: 13", "Version: 8"), 426),
        (good.replace("Upgrade: websocket", "Upgrade: h2c"), 426),
        (Raw::handshake("Sec-WebSocket-Protocol: mqtt\r\n"), 400),
        (Raw::handshake("Origin: https://elsewhere.example\r\n"), 403),
    ];
    for (request, status) in bad.iter().cycle().take(PER_PORTION) {
        let answer = Raw::connect(&url).await?.request(request).await?;
        anyhow::ensure!(answer == *status, "{answer} instead of {status} to {request}");
    }
    Ok(())
}

/// Half of them by the core, for an attempt that is behind; half by the edge, for a token of another room.
async fn refused_joins(url: String, tokens: [String; 2]) -> anyhow::Result<()> {
    let mut raw = Raw::open(&url).await?;
    for (token, code) in tokens.iter().zip(["stale_generation", "forbidden"]).cycle().take(PER_PORTION) {
        let join = json!({"t": "join", "room": ROOM, "token": token, "session": SESSION, "generation": 1});
        raw.write(&frame(0x81, join.to_string().as_bytes())).await?;
        let answer = loop {
            // Between answers it may be asked whether it lives.
            let (first, payload) = raw.read_frame().await?;
            if first == 0x81 {
                break payload;
            }
        };
        let answer: serde_json::Value = serde_json::from_slice(&answer)?;
        anyhow::ensure!(answer["code"] == code, "{answer} instead of {code}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_refused_handshakes_and_joins_leave_everything_as_it_was() -> anyhow::Result<()> {
    let stage = Stage::set().await?;
    // What is set up at the first of its kind belongs to the start.
    let descriptors = stage.descriptors()?;
    stage.refuse_handshakes().await?;
    stage.refuse_joins().await?;
    stage.settled(descriptors + 4).await?;
    let (memory, lines) = (stage.memory()?, stage.log_lines()?);
    stage.refuse_handshakes().await?;
    stage.refuse_joins().await?;
    stage.settled(descriptors + 4).await?;
    let (memory_after, lines_after) = (stage.memory()?, stage.log_lines()?);
    println!("memory {memory:.0} then {memory_after:.0} bytes, {lines} then {lines_after} lines");
    assert!(memory_after < memory + MEMORY_SLACK_BYTES, "{memory} bytes, then {memory_after}");
    assert!(lines_after <= lines + 5, "{lines} lines, then {lines_after}");
    let refused = stage.edge.metric("presence_edge_accepts_total{outcome=\"refused\"}").await?;
    assert!(refused >= (2 * REFUSED) as f64, "{refused} handshakes were refused");
    Ok(())
}
