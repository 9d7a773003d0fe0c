//! The connections of the Redis adapter: they come back, follow what moves, and leak nothing.

use std::time::Duration;

use anyhow::Context as _;
use presence_core::store::redis::{RedisSettings, RedisStore, Topology};
use presence_core::store::{Command, LeaseStore, Outcome, StoreFault};
use presence_model::lease::{LeaseId, Shard};
use presence_model::time::StoreTime;
use presence_tests::redis::{
    Cluster, Data, MASTER, Proxy, SentinelPair, Server, ServerOptions, Weather, turn,
};

const SHARD: Shard = Shard(7);
const TTL: Duration = Duration::from_secs(10);
const BACK_WITHIN: Duration = Duration::from_secs(20);

async fn connect(topology: Topology) -> anyhow::Result<RedisStore> {
    Ok(RedisStore::connect(RedisSettings::new(topology, 1)).await?)
}

fn renew() -> Command {
    let lease = LeaseId::mint(TTL, SHARD, 1);
    Command::Renew { shard: SHARD, leases: vec![(lease, StoreTime(1))] }
}

/// Until the store answers again; what it says meanwhile.
async fn back(store: &RedisStore) -> anyhow::Result<Vec<StoreFault>> {
    let mut faults = Vec::new();
    let back = async {
        for command in [turn(SHARD, TTL), renew(), Command::Edges] {
            while let Err(fault) = store.execute(command.clone()).await {
                faults.push(fault);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    tokio::time::timeout(BACK_WITHIN, back).await.context("it does not come back")?;
    Ok(faults)
}

#[tokio::test]
async fn a_connection_that_ended_while_idle_is_no_fault() -> anyhow::Result<()> {
    let mut server = Server::start(ServerOptions::default()).await?;
    let store = connect(Topology::Standalone { server: server.address() }).await?;
    server.restart(Data::OnDisk).await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(back(&store).await?, [], "nobody waited for an answer");
    Ok(())
}

#[tokio::test]
async fn a_server_that_refuses_for_a_while_is_asked_again() -> anyhow::Result<()> {
    let server = Server::start(ServerOptions::default()).await?;
    let weather = Weather::default();
    let proxy = Proxy::start(server.port(), &weather)?;
    let store = connect(Topology::Standalone { server: proxy.address() }).await?;
    let _: () = server.call(&["CONFIG", "SET", "requirepass", "x"]).await?;
    weather.cut(true);
    tokio::time::sleep(Duration::from_millis(100)).await;
    weather.cut(false);
    for _ in 0..3 {
        let fault = store.execute(turn(SHARD, TTL)).await.unwrap_err();
        assert!(matches!(fault, StoreFault::Unavailable(_)), "never sent: {fault}");
    }
    let mut connection = redis::Client::open(format!("redis://:x@{}/", server.address()))?
        .get_multiplexed_async_connection()
        .await?;
    let _: () =
        redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("").query_async(&mut connection).await?;
    back(&store).await?;
    Ok(())
}

#[tokio::test]
async fn a_server_that_hangs_is_given_up_and_found_again() -> anyhow::Result<()> {
    let server = Server::start(ServerOptions::default()).await?;
    let store = connect(Topology::Standalone { server: server.address() }).await?;
    server.signal("STOP")?;
    assert_eq!(store.execute(turn(SHARD, TTL)).await.unwrap_err(), StoreFault::Unknown);
    server.signal("CONT")?;
    back(&store).await?;
    Ok(())
}

#[tokio::test]
async fn a_fail_over_is_followed_and_one_sentinel_is_enough() -> anyhow::Result<()> {
    let mut pair = SentinelPair::start(&ServerOptions::default(), &Weather::default(), 3).await?;
    let topology = Topology::Sentinel { sentinels: pair.sentinels(), master: MASTER.to_owned() };
    let store = connect(topology).await?;
    back(&store).await?;
    pair.fail_over(None).await?;
    back(&store).await?;
    let Outcome::Turn(_) = store.execute(turn(SHARD, TTL)).await? else {
        anyhow::bail!("not an answer to Turn")
    };
    assert!(pair.master().call::<i64>(&["EXISTS", "presence:{s7}"]).await? == 1, "on the new master");
    pair.sentinel_mut(0).kill()?;
    pair.sentinel_mut(1).kill()?;
    pair.master_mut().restart(Data::Saved).await?;
    back(&store).await?;
    Ok(())
}

#[tokio::test]
async fn a_slot_that_moves_is_followed() -> anyhow::Result<()> {
    let cluster = Cluster::start(&ServerOptions::default(), &Weather::default(), (3, false)).await?;
    let store = connect(Topology::Cluster { nodes: cluster.addresses() }).await?;
    let owner = cluster.owner("{s7}").await?;
    let other = (owner + 1) % 3;
    back(&store).await?;
    cluster.begin_move("{s7}", owner, other).await?;
    for command in [renew(), Command::Now { shard: SHARD }] {
        store.execute(command.clone()).await.with_context(|| format!("ASK: {command:?}"))?;
    }
    // What needs several keys waits until it is settled which of them there are.
    assert!(matches!(store.execute(turn(SHARD, TTL)).await, Err(StoreFault::Unavailable(_))));
    cluster.end_move("{s7}", owner, other).await?;
    for command in [turn(SHARD, TTL), renew(), Command::Now { shard: SHARD }] {
        store.execute(command.clone()).await.with_context(|| format!("MOVED: {command:?}"))?;
    }
    assert_eq!(cluster.nodes()[other].call::<i64>(&["EXISTS", "presence:{s7}"]).await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_master_of_a_cluster_that_dies_is_replaced_and_others_answer() -> anyhow::Result<()> {
    let mut cluster = Cluster::start(&ServerOptions::default(), &Weather::default(), (3, true)).await?;
    let store = connect(Topology::Cluster { nodes: cluster.addresses() }).await?;
    back(&store).await?;
    let owner = cluster.owner("{s7}").await?;
    let mut elsewhere = None;
    for shard in (0..16).map(Shard) {
        if cluster.owner(&format!("{{{shard}}}")).await? != owner {
            elsewhere = Some(shard);
        }
    }
    cluster.node_mut(owner).kill()?;
    let shard = elsewhere.context("16 shards lie on more than one master")?;
    let now = async {
        while store.execute(Command::Now { shard }).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), now).await.context("the others answer meanwhile")?;
    back(&store).await?;
    Ok(())
}
