//! TLS between everybody: clients and edges, edges and cores, whoever asks.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::Context as _;
use presence_model::claim::Action;
use presence_runtime::clock::Clock;
use presence_runtime::network::Network;
use presence_runtime::tls::{ClientFiles, ClientTls, Protocol};
use presence_tests::certificates::{Certificates, Signed};
use presence_tests::procs::{
    Client, CoreOptions, EdgeOptions, Keys, Process, Timers, binary_path, core_with, edge_with,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

/// Files are looked at every two seconds, by processes that may be busy.
const RELOADED_WITHIN: Duration = Duration::from_secs(20);
const CLIENTS: usize = 500;
/// Handshakes at once.
const AT_ONCE: usize = 50;

fn text(path: &std::path::Path) -> String {
    path.display().to_string()
}

fn flags(head: &str, signed: &Signed) -> Vec<String> {
    vec![format!("--{head}-cert"), text(&signed.certificate), format!("--{head}-key"), text(&signed.key)]
}

/// A core that asks for certificates, and an edge that has one.
struct Scene {
    keys: Keys,
    authority: Certificates,
    of_core: Signed,
    of_edge: Signed,
    core: Process,
    edge: Process,
}

impl Scene {
    fn start(name: &str) -> anyhow::Result<Self> {
        let (keys, authority) = (Keys::generate()?, Certificates::new()?);
        let (of_core, of_edge) = (authority.sign("core.test")?, authority.sign("edge.test")?);
        let ca = text(&authority.authority());
        let mut more = flags("tls", &of_core);
        let peers = authority.peers(&[("edge.test", name, "local")], &[("ops.test", "presence.read", "")])?;
        more.extend(["--tls-client-ca".to_owned(), ca.clone(), "--peers".to_owned(), text(&peers)]);
        let core = core_with(&CoreOptions { more, ..CoreOptions::default() }, &keys, &Timers::SHORT)?;
        let mut more = [flags("tls", &of_edge), flags("core", &of_edge)].concat();
        more.extend(["--core-ca".to_owned(), ca]);
        let cores = vec![format!("https://{}", core.address("grpc"))];
        let edge =
            edge_with(name, &EdgeOptions { cores, more, ..EdgeOptions::default() }, &keys, &Timers::SHORT)?;
        Ok(Self { keys, authority, of_core, of_edge, core, edge })
    }

    fn network(authority: PathBuf) -> anyhow::Result<Network> {
        let files = ClientFiles { authority: Some(authority), identity: None };
        Ok(Network::tcp().with_tls(ClientTls::read(&files, Protocol::Http1)?))
    }

    async fn join(&self, network: &Network, user: String) -> anyhow::Result<Client> {
        let mut client = Client::connect_by(network, &self.edge.address("ws")).await?;
        let token = self.keys.token(&user, "lobby", Action::Join)?;
        client.join("lobby", &token, &format!("session-of-{user:0>16}"), 1).await?;
        Ok(client)
    }

    /// What `presence room` says.
    fn room(&self, url: &str, more: &[String]) -> anyhow::Result<Output> {
        let ca = text(&self.authority.authority());
        let asked = ["room", "lobby", "--json", "--core", url, "--core-ca", &ca];
        Ok(Command::new(binary_path("presence")?).args(asked).args(more).output()?)
    }
}

async fn said_to_plain_text(address: &str) -> anyhow::Result<String> {
    let mut stream = Network::tcp().connect(address).await?;
    stream.write_all(b"GET /v1/ws HTTP/1.1\r\nHost: here\r\n\r\n").await?;
    let mut said = String::new();
    stream.read_to_string(&mut said).await?;
    Ok(said)
}

#[tokio::test]
async fn everything_goes_by_tls_and_nothing_without() -> anyhow::Result<()> {
    let scene = Scene::start("secure")?;
    let ws = scene.edge.address("ws");
    anyhow::ensure!(ws.starts_with("wss://"), "{ws}");
    let network = Scene::network(scene.authority.authority())?;
    let _client = scene.join(&network, "u1".into()).await?;

    let url = format!("https://{}", scene.core.address("grpc"));
    let asked = scene.room(&url, &flags("core", &scene.authority.sign("ops.test")?))?;
    let told = String::from_utf8(asked.stdout)?;
    assert!(asked.status.success() && told.contains("\"u1\""), "{told}");
    let asked = scene.room(&url, &[])?;
    assert_eq!(asked.status.code(), Some(75), "whoever shows no certificate gets no answer");
    let strangers = Certificates::new()?;
    let asked = scene.room(&url, &flags("core", &strangers.sign("ops.test")?))?;
    assert_eq!(asked.status.code(), Some(75), "nor does a stranger");
    let asked = scene.room(&url.replace("https", "http"), &[])?;
    assert_eq!(asked.status.code(), Some(75), "{}", String::from_utf8_lossy(&asked.stderr));

    let listen = ws.trim_start_matches("wss://").split('/').next().context("an address")?;
    for address in [listen, &scene.core.address("grpc")] {
        let said = said_to_plain_text(address).await?;
        assert!(said.starts_with("HTTP/1.1 400 ") && said.contains("wss://"), "{said}");
    }
    assert_eq!(scene.core.metric("presence_core_tls_handshakes_total{outcome=\"failed\"}").await?, 2.0);
    assert_eq!(scene.core.metric("presence_core_tls_handshakes_total{outcome=\"plain\"}").await?, 2.0);
    assert_eq!(scene.edge.metric("presence_edge_tls_handshakes_total{outcome=\"plain\"}").await?, 1.0);
    assert_eq!(scene.core.metric("presence_core_insecure").await?, 0.0);
    assert!(scene.edge.is_ready().await?, "health stays in plain");
    Ok(())
}

#[tokio::test]
async fn certificates_are_swapped_under_500_connections_without_a_drop() -> anyhow::Result<()> {
    let scene = Scene::start("swapped")?;
    let network = Scene::network(scene.authority.authority())?;
    let mut idle = JoinSet::new();
    for first in (0..CLIENTS).step_by(AT_ONCE) {
        let joining = (first..first + AT_ONCE).map(|user| scene.join(&network, format!("u{user}")));
        for client in futures::future::try_join_all(joining.collect::<Vec<_>>()).await? {
            idle.spawn(client.idle());
        }
    }

    // Everything new, those who sign included: the edge has to follow what the core asks for, and the reverse.
    let renewed = Certificates::new()?;
    for (old, name) in [(&scene.of_core, "core.test"), (&scene.of_edge, "edge.test")] {
        let new = renewed.sign(name)?;
        fs::copy(&new.certificate, &old.certificate)?;
        fs::copy(&new.key, &old.key)?;
    }
    fs::copy(renewed.authority(), scene.authority.authority())?;
    let trusting = Scene::network(renewed.authority())?;
    let (clock, listen) = (Clock::system(), scene.edge.address("ws"));
    let until = clock.now() + RELOADED_WITHIN;
    while let Err(error) = Client::connect_by(&trusting, &listen).await {
        anyhow::ensure!(clock.now() < until, "the new certificate is not in force: {error:#}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(Client::connect_by(&network, &listen).await.is_err(), "the old one is out of force");
    let url = format!("https://{}", scene.core.address("grpc"));
    let mine = flags("core", &renewed.sign("ops.test")?);
    while !scene.room(&url, &mine)?.status.success() {
        anyhow::ensure!(clock.now() < until, "the core has not followed");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // Pings and answers go on, and so do renewals over the link.
    tokio::time::sleep(Timers::SHORT.lease_ttl + Timers::SHORT.grace).await;
    assert!(idle.try_join_next().is_none(), "somebody was dropped");
    assert_eq!(scene.edge.metric("presence_edge_link_up").await?, 1.0);
    let listed = String::from_utf8(scene.room(&url, &mine)?.stdout)?;
    assert_eq!(listed.matches("\"user\"").count(), CLIENTS, "{listed}");
    let _late = scene.join(&trusting, "late".into()).await?;
    Ok(())
}
