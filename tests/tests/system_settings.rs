//! Settings that change under running processes: limits hold at once, put nobody out, and what waits for a restart is
//! said.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use presence_model::claim::Action;
use presence_tests::procs::{Client, CoreOptions, EdgeOptions, Keys, Process, Timers, core_with, edge_with};
use tokio::time::Instant;

/// They are looked at every two seconds.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(10);

struct Stage {
    folder: tempfile::TempDir,
    keys: Keys,
    edge: Process,
    _core: Process,
}

impl Stage {
    fn set(edge_file: &str, core_file: &str) -> anyhow::Result<Self> {
        let (folder, keys) = (tempfile::tempdir()?, Keys::generate()?);
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("edge.toml"), edge_file)?;
        std::fs::write(path("core.toml"), core_file)?;
        let follow = |name: &str| {
            let file = path(&format!("{name}.toml")).display().to_string();
            (Some("info".to_owned()), Some(path(&format!("{name}.log"))), vec!["--config".to_owned(), file])
        };
        let (log, log_file, more) = follow("core");
        let core =
            core_with(&CoreOptions { log, log_file, more, ..CoreOptions::default() }, &keys, &Timers::SHORT)?;
        let (log, log_file, more) = follow("edge");
        let options =
            EdgeOptions { cores: vec![core.address("grpc")], log, log_file, more, ..EdgeOptions::default() };
        let edge = edge_with("one", &options, &keys, &Timers::SHORT)?;
        Ok(Self { folder, keys, edge, _core: core })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Someone who joins as the first in a room.
    async fn join(&self, user: &str) -> anyhow::Result<Client> {
        let mut client = Client::connect(&self.edge.address("ws")).await?;
        let token = self.keys.token(user, "lobby", Action::Join)?;
        client.join("lobby", &token, &format!("session-of-{user:0>12}"), 1).await?;
        Ok(client)
    }

    async fn says(&self, log: &str, text: &str) -> anyhow::Result<()> {
        let path = self.path(log);
        eventually(async || Ok(read(&path)?.contains(text)))
            .await
            .with_context(|| format!("{log} does not say {text:?}"))
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    Ok(std::fs::read_to_string(path)?)
}

async fn eventually(is_so: impl AsyncFn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !is_so().await? {
        anyhow::ensure!(begun.elapsed() < IN_FORCE_WITHIN, "not in time");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_an_edge_change_while_it_runs_and_who_is_in_stays() -> anyhow::Result<()> {
    let stage = Stage::set("connections_max = 2\n", "")?;
    let (ann, bob) = (stage.join("ann").await?, stage.join("bob").await?);
    let (ann, bob) = (tokio::spawn(ann.idle()), tokio::spawn(bob.idle()));
    assert!(stage.join("cyd").await.is_err(), "two are in");

    std::fs::write(stage.path("edge.toml"), "connections_max = 3\n")?;
    let most = async |edge: &Process| edge.metric("presence_edge_connections_max").await;
    eventually(async || Ok(most(&stage.edge).await? == 3.0)).await?;
    let cyd = tokio::spawn(stage.join("cyd").await?.idle());
    assert!(stage.join("dan").await.is_err(), "three are in");

    std::fs::write(stage.path("edge.toml"), "connections_max = 0\n")?;
    stage.says("edge.log", "cannot take over new settings, the old ones stay in force").await?;
    stage.says("edge.log", "connections_max = 0: must be").await?;
    assert_eq!(most(&stage.edge).await?, 3.0);

    std::fs::write(stage.path("edge.toml"), "connections_max = 1\nlist_members = 7\n")?;
    eventually(async || Ok(most(&stage.edge).await? == 1.0)).await?;
    stage.says("edge.log", "waiting=list_members").await?;
    assert!(!ann.is_finished() && !bob.is_finished() && !cyd.is_finished(), "who is in stays");
    assert_eq!(stage.edge.metric("presence_edge_connections").await?, 3.0);
    assert!(stage.join("eve").await.is_err());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_a_core_change_while_it_runs() -> anyhow::Result<()> {
    let stage = Stage::set("", "joins_per_second = 1\n")?;
    let _first = stage.join("ann").await?;
    assert!(stage.join("bob").await.is_err(), "one a second");
    std::fs::write(stage.path("core.toml"), "joins_per_second = 100\ngrpc = \"127.0.0.1:1\"\n")?;
    // Where it listens is said by a flag, which wins.
    let round = AtomicUsize::new(0);
    eventually(async || {
        let (round, mut joined) = (round.fetch_add(1, Ordering::Relaxed), 0);
        for user in 0..4 {
            joined += usize::from(stage.join(&format!("u{round}-{user}")).await.is_ok());
        }
        Ok(joined == 4)
    })
    .await?;
    let log = read(&stage.path("core.log"))?;
    assert!(!log.contains("wait for a restart"), "{log}");
    Ok(())
}
