//! TLS with certificates on both sides, towards one server, Sentinels with their master, and a Cluster.

use std::fs;
use std::time::Duration;

use presence_core::store::redis::{Access, RedisSettings, RedisStore, TlsFiles, Topology};
use presence_core::store::{Command, LeaseStore, Outcome};
use presence_model::lease::{LeaseId, Shard};
use presence_model::time::StoreTime;
use presence_tests::certificates::Certificates;
use presence_tests::redis::{MASTER, Server, free_port, turn};

const SHARDS: u16 = 4;
const TTL: Duration = Duration::from_secs(9);

/// Every lane of a store answers: scripts, renewals and reads of every shard.
async fn is_good(topology: Topology, certificates: &Certificates) -> anyhow::Result<()> {
    let client = certificates.sign("core")?;
    let identity = Some((fs::read(&client.certificate)?, fs::read(&client.key)?));
    let tls = TlsFiles { authority: Some(fs::read(certificates.authority())?), identity };
    let access = Access { tls: Some(tls.clone()), ..Access::default() };
    let settings = RedisSettings { access, shards: SHARDS, ..RedisSettings::new(topology, 1) };
    let store = RedisStore::connect(settings.clone()).await?;
    for shard in (0..=u8::MAX).map(Shard).take(usize::from(SHARDS)) {
        let Outcome::Turn(turn) = store.execute(turn(shard, TTL)).await? else { anyhow::bail!("not a turn") };
        assert!(turn.mine);
        let leases = vec![(LeaseId::mint(TTL, shard, 7), StoreTime(0))];
        store.execute(Command::Renew { shard, leases }).await?;
    }
    store.execute(Command::Rooms { prefix: String::new(), after: None, count: 1 }).await?;
    let strangers = Access { tls: Some(TlsFiles { identity: None, ..tls }), ..Access::default() };
    let refused = RedisStore::check(&RedisSettings { access: strangers, ..settings }).await;
    assert!(refused.is_err(), "without a certificate of ours nobody is let in");
    Ok(())
}

#[tokio::test]
async fn one_server_is_reached_over_tls() -> anyhow::Result<()> {
    let (certificates, port) = (Certificates::new()?, free_port()?);
    let server = Server::start_on(port, certificates.server(port)?, &[]).await?;
    is_good(Topology::Standalone { server: server.address() }, &certificates).await
}

#[tokio::test]
async fn sentinels_and_their_master_are_reached_over_tls() -> anyhow::Result<()> {
    let (certificates, port) = (Certificates::new()?, free_port()?);
    let server = Server::start_on(port, certificates.server(port)?, &[]).await?;
    let (own, watches) = (certificates.sign("localhost")?, free_port()?);
    let configuration = format!(
        "port 0\ntls-port {watches}\nbind 127.0.0.1\ntls-replication yes\ntls-auth-clients yes\n\
         tls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\n\
         sentinel monitor {MASTER} 127.0.0.1 {port} 1\n",
        own.certificate.display(),
        own.key.display(),
        certificates.authority().display(),
    );
    let sentinel = Server::start_sentinel(watches, &configuration, true).await?;
    let sentinels = vec![sentinel.address()];
    is_good(Topology::Sentinel { sentinels, master: MASTER.to_owned() }, &certificates).await?;
    drop(server);
    Ok(())
}

#[tokio::test]
async fn a_cluster_is_reached_over_tls() -> anyhow::Result<()> {
    let (certificates, port, bus) = (Certificates::new()?, free_port()?, free_port()?);
    let options = certificates.server(port)?.with(&[
        "--cluster-enabled",
        "yes",
        "--cluster-config-file",
        "nodes.conf",
        "--cluster-port",
        &bus.to_string(),
        "--tls-cluster",
        "yes",
    ]);
    let node = format!(
        "{:040x} 127.0.0.1:{port}@{bus} myself,master - 0 0 1 connected 0-16383\n\
         vars currentEpoch 1 lastVoteEpoch 0\n",
        1
    );
    let server = Server::start_on(port, options, &[("nodes.conf", &node)]).await?;
    // A master waits a moment before it takes writes after a start.
    tokio::time::sleep(Duration::from_secs(3)).await;
    is_good(Topology::Cluster { nodes: vec![server.address()] }, &certificates).await
}
