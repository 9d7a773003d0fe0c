//! Connections that say nothing, to each listener there is: none stays, and nobody is kept out by them.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::Context as _;
use presence_proto::v1;
use presence_runtime::clock::Clock;
use presence_runtime::network::Network;
use presence_tests::procs::{Keys, Timers, core, edge};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A silent peer is cut after 5 s, by a process that may be busy.
const CUT_WITHIN: Duration = Duration::from_secs(15);

fn silent(address: &str, count: usize) -> anyhow::Result<Vec<TcpStream>> {
    (0..count).map(|_| Ok(TcpStream::connect(address)?)).collect()
}

async fn counts(address: String) -> anyhow::Result<u64> {
    let channel = tonic::transport::Channel::from_shared(format!("http://{address}"))?.connect().await?;
    let mut rooms = v1::presence_service_client::PresenceServiceClient::new(channel);
    let asked = rooms.count_room(v1::CountRoomRequest { room: "nobody".into() }).await?;
    Ok(asked.into_inner().count)
}

async fn is_live(address: &str) -> anyhow::Result<bool> {
    let mut probe = Network::tcp().connect(address).await?;
    probe.write_all(b"GET /livez HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    probe.read_to_string(&mut answer).await?;
    Ok(answer.starts_with("HTTP/1.1 200"))
}

#[tokio::test]
async fn silent_connections_are_cut_on_every_listener() -> anyhow::Result<()> {
    let keys = Keys::generate()?;
    let core = core(&keys, &Timers::SHORT)?;
    let edge = edge("quiet", &core, &keys, &Timers::SHORT)?;
    let ws = edge.address("ws");
    let listen = ws.strip_prefix("ws://").and_then(|url| url.split('/').next()).context("an address")?;
    let before = core.descriptors()? + edge.descriptors()?;
    let mut peers = Vec::new();
    for address in [&core.address("grpc"), &core.address("admin"), listen, &edge.address("admin")] {
        peers.extend(silent(address, 200)?);
    }
    for admin in [core.address("admin"), edge.address("admin")] {
        let probed = tokio::time::timeout(Duration::from_secs(2), is_live(&admin)).await;
        assert!(probed.context("the probe waits")??);
    }
    let clock = Clock::system();
    let until = clock.now() + CUT_WITHIN;
    while core.descriptors()? + edge.descriptors()? > before + 8 {
        anyhow::ensure!(clock.now() < until, "{} more", core.descriptors()? + edge.descriptors()? - before);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(counts(core.address("grpc")).await?, 0);
    drop(peers);
    Ok(())
}

/// Neither deaf for ever nor spinning when it cannot accept.
#[tokio::test]
async fn a_core_without_descriptors_hears_again_once_the_silent_are_gone() -> anyhow::Result<()> {
    let keys = Keys::generate()?;
    let core = core(&keys, &Timers::SHORT)?;
    let clock = Clock::system();
    core.limit_descriptors(core.descriptors()? + 40)?;
    let peers = silent(&core.address("grpc"), 120)?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (spent, began) = (core.processor_time()?, clock.now());
    let answer = tokio::time::timeout(CUT_WITHIN * 2, counts(core.address("grpc"))).await;
    assert_eq!(answer.context("it is deaf")??, 0);
    // A loop that spins would have used a whole processor.
    let (spent, passed) = (core.processor_time()? - spent, clock.now().since(began));
    assert!(spent * 2 < passed.max(Duration::from_secs(2)), "{spent:?} of {passed:?}");
    drop(peers);
    Ok(())
}

/// At a hangup others read their files again: nothing is lost by it here, and it is said what happens instead.
#[tokio::test]
async fn a_hangup_ends_neither_core_nor_edge() -> anyhow::Result<()> {
    let keys = Keys::generate()?;
    let mut core = core(&keys, &Timers::SHORT)?;
    let mut edge = edge("hung-up", &core, &keys, &Timers::SHORT)?;
    for process in [&mut core, &mut edge] {
        process.signal("HUP")?;
        process.signal("HUP")?;
        assert!(process.ended(Duration::from_secs(1)).await.is_err(), "it goes on");
        process.signal("TERM")?;
    }
    assert_eq!(edge.ended(Duration::from_secs(20)).await?, Some(0));
    assert_eq!(core.ended(Duration::from_secs(20)).await?, Some(0));
    Ok(())
}
