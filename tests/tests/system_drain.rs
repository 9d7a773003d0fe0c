//! An edge that an operator sends away, and processes that are told to end twice.

use std::process::Output;
use std::time::Duration;

use anyhow::Context as _;
use presence_model::claim::Action;
use presence_proto::v1::presence_service_client::PresenceServiceClient;
use presence_tests::procs::{
    Client, CoreOptions, EdgeOptions, Keys, Process, Timers, binary_path, core, core_with, edge, edge_with,
};
use presence_tests::redis::{Server, ServerOptions};
use serde_json::Value;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;

const TIMERS: Timers = Timers {
    heartbeat: Duration::from_secs(2),
    lease_ttl: Duration::from_secs(9),
    grace: Duration::from_secs(3),
    edge_lost: Duration::from_secs(3),
};
/// What follows from these timers: ttl − grace.
const WINDOW: Duration = Duration::from_secs(6);
const CLIENTS: usize = 20;
const WITHIN: Duration = Duration::from_secs(20);

async fn presence(arguments: Vec<String>) -> anyhow::Result<Output> {
    let binary = binary_path("presence")?;
    let run = move || std::process::Command::new(binary).args(arguments).output();
    Ok(tokio::task::spawn_blocking(run).await??)
}

async fn drain(edge: &str, core: &str, more: &[&str]) -> anyhow::Result<Output> {
    let core = format!("http://{core}");
    let fixed = ["drain", edge, "--core", &core, "--json"];
    presence(fixed.iter().chain(more).map(|argument| (*argument).to_owned()).collect()).await
}

fn lines(output: &Output) -> anyhow::Result<Vec<Value>> {
    let text = String::from_utf8(output.stdout.clone())?;
    text.lines().map(|line| serde_json::from_str(line).context("a line that is no JSON")).collect()
}

async fn join(edge: &Process, keys: &Keys, index: usize) -> anyhow::Result<Client> {
    let mut client = Client::connect(&edge.address("ws")).await?;
    let user = format!("user-{index}");
    let token = keys.token(&user, "lobby", Action::Join)?;
    client.join("lobby", &token, &format!("session-of-{user:0>12}"), 1).await?;
    Ok(client)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_is_sent_away_through_a_core_that_it_is_not_linked_to() -> anyhow::Result<()> {
    let server = Server::start(ServerOptions::default()).await?;
    let keys = Keys::generate()?;
    let options =
        CoreOptions { store: Some(format!("redis://{}", server.address())), ..CoreOptions::default() };
    let [linked, asked] = [core_with(&options, &keys, &TIMERS)?, core_with(&options, &keys, &TIMERS)?];
    let cores = EdgeOptions { cores: vec![linked.address("grpc")], ..EdgeOptions::default() };
    let mut goes = edge_with("edge-1", &cores, &keys, &TIMERS)?;
    let mut stays = edge_with("edge-2", &cores, &keys, &TIMERS)?;
    let mut idle = tokio::task::JoinSet::new();
    for index in 0..CLIENTS {
        idle.spawn(join(&goes, &keys, index).await?.idle());
    }

    let unknown = drain("edge-9", &asked.address("grpc"), &[]).await?;
    assert_eq!(unknown.status.code(), Some(1));
    let complaint = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(complaint.contains("no edge of that name"), "{complaint}");
    let wrong = drain("", &asked.address("grpc"), &[]).await?;
    assert_eq!(wrong.status.code(), Some(64), "{}", String::from_utf8_lossy(&wrong.stderr));

    let start = Instant::now();
    assert!(goes.is_ready().await?);
    let told = drain("edge-1", &asked.address("grpc"), &["--no-wait"]).await?;
    while goes.is_ready().await? {
        anyhow::ensure!(start.elapsed() < Duration::from_secs(3), "it goes on as before");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let late = Client::connect(&goes.address("ws")).await;
    assert!(late.is_err() && stays.is_ready().await?, "nobody else is taken in, but by others");
    assert_eq!(told.status.code(), Some(0));
    assert_eq!(lines(&told)?[0]["sessions"], CLIENTS, "{told:?}");
    let gone = drain("edge-1", &asked.address("grpc"), &[]).await?;
    let took = start.elapsed();
    let lines = lines(&gone)?;
    println!("gone after {took:.1?}: {} lines, the last {}", lines.len(), lines[lines.len() - 1]);
    assert_eq!((gone.status.code(), &lines[lines.len() - 1]["gone"]), (Some(0), &Value::Bool(true)));
    assert!(took >= WINDOW / 3, "its clients were given time");
    assert_eq!(goes.ended(WITHIN).await?, Some(0));
    assert!(stays.ended(Duration::from_millis(100)).await.is_err(), "nobody else was told");

    // Somebody starts it again under the same name: that one is not meant by what was said before.
    let mut again = edge_with("edge-1", &cores, &keys, &TIMERS)?;
    drop(join(&again, &keys, CLIENTS).await?);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(again.ended(Duration::from_millis(100)).await.is_err());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_an_edge_and_a_core_at_once() -> anyhow::Result<()> {
    let keys = Keys::generate()?;
    let mut core = core(&keys, &TIMERS)?;
    let mut edge = edge("edge-1", &core, &keys, &TIMERS)?;
    let idle = tokio::spawn(join(&edge, &keys, 0).await?.idle());
    let channel = core.channel().await?;
    let (_asks, said) = tokio::sync::mpsc::channel(1);
    let _watch = PresenceServiceClient::new(channel).watch(ReceiverStream::new(said)).await?;
    // The core waits for its watcher, and the edge for its client.
    for (process, signal, code) in [(&mut core, "TERM", 143), (&mut edge, "INT", 130)] {
        process.signal("TERM")?;
        assert!(process.ended(Duration::from_millis(200)).await.is_err(), "it waits for somebody");
        assert!(!process.is_ready().await?, "nobody else is to come");
        let start = Instant::now();
        process.signal(signal)?;
        assert_eq!(process.ended(WITHIN).await?, Some(code));
        assert!(start.elapsed() < Duration::from_secs(1));
    }
    idle.await?;
    Ok(())
}
