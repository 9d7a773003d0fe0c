//! `presence probe` against real edges: what it sees, and what it says when something is wrong.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use anyhow::Context as _;
use presence_model::claim::Action;
use presence_tests::procs::{Client, Keys, Process, Timers, binary_path, core, edge};
use presence_tests::redis::free_port;
use serde_json::Value;

const TIMERS: Timers = Timers {
    heartbeat: Duration::from_secs(2),
    lease_ttl: Duration::from_secs(8),
    grace: Duration::from_secs(2),
    edge_lost: Duration::from_secs(3),
};

struct World {
    keys: Keys,
    _core: Process,
    edges: [Process; 2],
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> anyhow::Result<Self> {
        let keys = Keys::generate()?;
        let core = core(&keys, &TIMERS)?;
        let edges = [edge("edge-1", &core, &keys, &TIMERS)?, edge("edge-2", &core, &keys, &TIMERS)?];
        Ok(Self { keys, _core: core, edges, folder: tempfile::tempdir()? })
    }

    fn token(&self, user: &str, room: &str, act: Action) -> anyhow::Result<std::path::PathBuf> {
        let path = self.folder.path().join(format!("{user}-{room}.token"));
        std::fs::write(&path, self.keys.token(user, room, act)? + "\n")?;
        Ok(path)
    }

    async fn probe(&self, token: &Path, urls: &[&str], more: &[&str]) -> anyhow::Result<Output> {
        let binary = binary_path("presence")?;
        let token = token.display().to_string();
        let fixed = ["probe", "--room", "probes", "--token", &token];
        let all: Vec<String> = fixed.iter().chain(more).chain(urls).map(|word| (*word).to_owned()).collect();
        let run = move || std::process::Command::new(binary).args(all).output();
        Ok(tokio::task::spawn_blocking(run).await??)
    }
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_tells_how_long_it_took_until_everybody_saw_it_come_and_go() -> anyhow::Result<()> {
    let world = World::new()?;
    let token = world.token("probe", "probes", Action::Join)?;
    let urls = world.edges.each_ref().map(|edge| edge.address("ws"));
    let urls = [urls[0].as_str(), urls[1].as_str()];
    let said = world.probe(&token, &urls, &[]).await?;
    assert_eq!(said.status.code(), Some(0), "{}", told(&said));
    let lines = String::from_utf8(said.stdout.clone())?;
    for (word, times) in
        [("ok: ", 9), (" lists 0 in probes", 2), ("seen at ", 2), (": left", 2), ("says goodbye", 1)]
    {
        assert_eq!(lines.matches(word).count(), times, "{word}: {lines}");
    }
    let dropped = world.probe(&token, &urls, &["--drop", "--json"]).await?;
    assert_eq!(dropped.status.code(), Some(0), "{}", told(&dropped));
    let whole: Value = serde_json::from_slice(&dropped.stdout).context("one JSON object")?;
    assert_eq!((&whole["room"], &whole["user"]), (&Value::from("probes"), &Value::from("probe")));
    let edges = whole["edges"].as_array().context("edges")?;
    assert_eq!(edges.len(), 2);
    for edge in edges {
        assert_eq!((&edge["reason"], &edge["members"]), (&Value::from("connection_lost"), &Value::from(0)));
        let gone = edge["gone_ms"].as_u64().context("a number")?;
        assert!((2_000..10_000).contains(&gone), "after a grace of 2 s: {edge}");
        assert!(edge["seen_ms"].as_u64().is_some() && edge["silent_ms"].as_u64().is_some(), "{edge}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_named_and_the_exit_code_says_whether_to_ask_again() -> anyhow::Result<()> {
    let world = World::new()?;
    let ws = world.edges[0].address("ws");
    let good = world.token("probe", "probes", Action::Join)?;
    let nobody = format!("ws://127.0.0.1:{}", free_port()?);
    let admin = format!("ws://{}", world.edges[0].address("admin"));
    let elsewhere = world.token("probe", "elsewhere", Action::Join)?;
    let looks_only = world.token("watcher", "probes", Action::Watch)?;
    let cases = [
        (&good, nobody.as_str(), 75, "no edge is reached: ws://127.0.0.1"),
        (&good, admin.as_str(), 1, "no edge answers"),
        (&good, "http://127.0.0.1:1", 64, "example: wss://presence.example"),
        (&elsewhere, ws.as_str(), 1, "forbidden"),
        (&looks_only, ws.as_str(), 1, "forbidden"),
    ];
    for (token, url, code, says) in cases {
        let output = world.probe(token, &[url], &[]).await?;
        assert_eq!(output.status.code(), Some(code), "{url}: {}", told(&output));
        assert!(told(&output).contains(says), "{url}: {}", told(&output));
    }
    let nothing = world.folder.path().join("empty.token");
    std::fs::write(&nothing, "nonsense")?;
    let output = world.probe(&nothing, &[&ws], &[]).await?;
    assert_eq!((output.status.code(), told(&output).contains("holds no token")), (Some(64), true));

    let mut there = Client::connect(&ws).await?;
    let own = world.keys.token("probe", "probes", Action::Join)?;
    there.join("probes", &own, "session-of-somebody", 1).await?;
    let output = world.probe(&good, &[&ws], &[]).await?;
    assert_eq!(output.status.code(), Some(75), "{}", told(&output));
    assert!(told(&output).contains("probe is in probes already"), "{}", told(&output));
    Ok(())
}

/// An edge that stands still answers nobody: that is said in time, and what was waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_probe_does_not_wait_for_ever() -> anyhow::Result<()> {
    let world = World::new()?;
    let token = world.token("probe", "probes", Action::Join)?;
    let urls = world.edges.each_ref().map(|edge| edge.address("ws"));
    world.edges[1].signal("STOP")?;
    let output = world.probe(&token, &[&urls[0], &urls[1]], &["--within", "2s"]).await?;
    world.edges[1].signal("CONT")?;
    assert_eq!(output.status.code(), Some(75), "{}", told(&output));
    assert!(told(&output).contains("not in time") && told(&output).contains(&urls[1]), "{}", told(&output));
    Ok(())
}
