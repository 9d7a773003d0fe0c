//! The Redis servers of the tests do what they say, so that a test over them proves something.

use std::time::Duration;

use anyhow::Context as _;
use presence_runtime::clock::Clock;
use presence_tests::redis::{
    Cluster, Copy, Data, FakeClock, Lost, MASTER, Proxy, SentinelPair, Server, ServerOptions, Weather,
};
use redis::aio::MultiplexedConnection;
use redis::{Client, RedisResult, cmd};

async fn through(address: &str) -> RedisResult<MultiplexedConnection> {
    Client::open(format!("redis://{address}/"))?.get_multiplexed_async_connection().await
}

#[tokio::test]
async fn a_restart_has_a_new_run_id_and_the_data_it_is_told_to() -> anyhow::Result<()> {
    let mut server = Server::start(ServerOptions::default()).await?;
    let run = server.info("server", "run_id").await?;
    let _: () = server.call(&["SET", "a", "1"]).await?;
    server.restart(Data::Saved).await?;
    assert_ne!(server.info("server", "run_id").await?, run);
    assert_eq!(server.call::<Option<String>>(&["GET", "a"]).await?.as_deref(), Some("1"));
    let _: () = server.call(&["SET", "b", "1"]).await?;
    server.restart(Data::OnDisk).await?;
    assert_eq!(server.call::<Vec<String>>(&["KEYS", "*"]).await?, ["a"]);
    server.restart(Data::Gone).await?;
    assert_eq!(server.call::<Vec<String>>(&["KEYS", "*"]).await?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn a_clock_steps_while_the_server_runs() -> anyhow::Result<()> {
    let clock = FakeClock::new()?;
    let server = Server::start(ServerOptions::default().on(&clock)).await?;
    let ahead = async || {
        let seconds: (i64, i64) = server.call(&["TIME"]).await?;
        let wall_ms = i64::try_from(Clock::system().wall_ms())?;
        anyhow::Ok((seconds.0 * 1000 + seconds.1 / 1000 - wall_ms + 500).div_euclid(1000))
    };
    assert_eq!(ahead().await?, 0);
    clock.step(60_000)?;
    assert_eq!(ahead().await?, 60);
    clock.step(-120_000)?;
    assert_eq!(ahead().await?, -60);
    let script = "return redis.call('TIME')[1]";
    let (inside, outside): (i64, (i64, i64)) =
        (server.call::<i64>(&["EVAL", script, "0"]).await?, server.call(&["TIME"]).await?);
    assert!(outside.0 - inside <= 1, "scripts see it as well");
    Ok(())
}

#[tokio::test]
async fn a_copy_makes_another_server_the_same() -> anyhow::Result<()> {
    let (one, other) =
        (Server::start(ServerOptions::default()).await?, Server::start(ServerOptions::default()).await?);
    let _: () = one.call(&["ZADD", "z", "1.5", "m"]).await?;
    let _: () = one.call(&["SET", "s", "1", "PX", "60000"]).await?;
    let _: () = other.call(&["SET", "x", "1"]).await?;
    Copy::of(&one).await?.put_into(&other).await?;
    assert_eq!(other.call::<f64>(&["ZSCORE", "z", "m"]).await?, 1.5);
    assert!(other.call::<i64>(&["PTTL", "s"]).await? > 50_000);
    assert_eq!(other.call::<i64>(&["EXISTS", "x"]).await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_proxy_cuts_and_lets_through_again() -> anyhow::Result<()> {
    let server = Server::start(ServerOptions::default()).await?;
    let weather = Weather::default();
    let proxy = Proxy::start(server.port(), &weather)?;
    let mut connection = through(&proxy.address()).await?;
    let _: () = cmd("SET").arg("a").arg(1).query_async(&mut connection).await?;
    weather.cut(true);
    let answer: RedisResult<i64> = cmd("GET").arg("a").query_async(&mut connection).await;
    assert!(answer.is_err_and(|error| error.is_connection_dropped()));
    assert!(through(&proxy.address()).await.is_err());
    weather.cut(false);
    let mut connection = through(&proxy.address()).await?;
    assert_eq!(cmd("GET").arg("a").query_async::<i64>(&mut connection).await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_proxy_loses_what_it_is_told_to() -> anyhow::Result<()> {
    let server = Server::start(ServerOptions::default()).await?;
    let weather = Weather::default();
    let proxy = Proxy::start(server.port(), &weather)?;
    let write = async |score: i64| -> RedisResult<i64> {
        let mut connection = through(&proxy.address()).await?;
        cmd("ZADD").arg("z").arg(score).arg(score).query_async(&mut connection).await
    };
    weather.lose_next(Lost::Answer);
    let mut connection = through(&proxy.address()).await?;
    let unknown: RedisResult<i64> =
        cmd("EVALSHA").arg("0".repeat(40)).arg(0).query_async(&mut connection).await;
    assert!(unknown.unwrap_err().to_string().to_lowercase().contains("script"), "not known, and not lost");
    assert!(write(1).await.is_err());
    assert_eq!(server.call::<i64>(&["ZCARD", "z"]).await?, 1, "carried out");
    weather.lose_next(Lost::Command);
    let read: i64 = cmd("ZCARD").arg("z").query_async(&mut through(&proxy.address()).await?).await?;
    assert_eq!(read, 1, "reads are not lost");
    assert!(write(2).await.is_err());
    assert_eq!(server.call::<i64>(&["ZCARD", "z"]).await?, 1, "not carried out");
    assert_eq!(write(3).await?, 1, "once");
    weather.read_only(true);
    let refused = write(4).await.unwrap_err();
    assert_eq!(refused.code(), Some("READONLY"));
    weather.read_only(false);
    assert_eq!(write(4).await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_proxy_is_slow_and_keeps_the_order() -> anyhow::Result<()> {
    let server = Server::start(ServerOptions::default()).await?;
    let weather = Weather::default();
    let proxy = Proxy::start(server.port(), &weather)?;
    let connection = through(&proxy.address()).await?;
    weather.delay(Duration::from_millis(200));
    let clock = Clock::system();
    let start = clock.now();
    let increments = (0..5).map(|_| {
        let mut connection = connection.clone();
        async move { cmd("INCR").arg("n").query_async::<i64>(&mut connection).await }
    });
    assert_eq!(futures::future::try_join_all(increments).await?, [1, 2, 3, 4, 5]);
    let took = clock.now().0 - start.0;
    assert!(took >= Duration::from_millis(200), "{took:?}");
    assert!(took < Duration::from_millis(900), "each is as late as the other, not five times: {took:?}");
    Ok(())
}

#[tokio::test]
async fn sentinels_promote_a_replica_that_was_cut_off() -> anyhow::Result<()> {
    let mut pair = SentinelPair::start(&ServerOptions::default(), &Weather::default(), 3).await?;
    let _: () = pair.master().call(&["SET", "kept", "1"]).await?;
    let kept = Copy::of(pair.master()).await?;
    let _: () = pair.master().call(&["SET", "lost", "1"]).await?;
    let before = pair.master().port();
    pair.fail_over(Some(&kept)).await?;
    assert_ne!(pair.master().port(), before);
    assert_eq!(pair.master().call::<Vec<String>>(&["KEYS", "*"]).await?, ["kept"]);
    let _: () = pair.master().call(&["SET", "new", "1"]).await?;
    pair.fail_over(None).await?;
    assert_eq!(pair.master().port(), before, "and back, with everything");
    let mut keys: Vec<String> = pair.master().call(&["KEYS", "*"]).await?;
    keys.sort();
    assert_eq!(keys, ["kept", "new"]);
    let sentinel = pair.sentinels().pop().context("three were started")?;
    let mut connection = through(&sentinel).await?;
    let address: (String, u16) =
        cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(MASTER).query_async(&mut connection).await?;
    assert_ne!(address.1, before, "clients are sent through the proxy");
    Ok(())
}

#[tokio::test]
async fn a_cluster_shares_slots_and_moves_them() -> anyhow::Result<()> {
    let cluster = Cluster::start(&ServerOptions::default(), &Weather::default(), (3, false)).await?;
    let owner = cluster.owner("{s7}").await?;
    let _: () = cluster.nodes()[owner].call(&["SET", "presence:{s7}:a", "1"]).await?;
    let other = (owner + 1) % 3;
    let refused = cluster.nodes()[other].call::<String>(&["GET", "presence:{s7}:a"]).await.unwrap_err();
    let refused = format!("{refused:#}");
    let named = cluster.addresses().iter().any(|address| refused.contains(address));
    assert!(named, "clients are sent through the proxies: {refused}");
    cluster.move_slot("{s7}", owner, other).await?;
    assert_eq!(cluster.nodes()[other].call::<String>(&["GET", "presence:{s7}:a"]).await?, "1");
    Ok(())
}

#[tokio::test]
async fn a_master_of_a_cluster_is_replaced_by_its_replica() -> anyhow::Result<()> {
    let mut cluster = Cluster::start(&ServerOptions::default(), &Weather::default(), (3, true)).await?;
    let owner = cluster.owner("{s7}").await?;
    let _: () = cluster.nodes()[owner].call(&["SET", "presence:{s7}:a", "1"]).await?;
    let _: i64 = cluster.nodes()[owner].call(&["WAIT", "1", "5000"]).await?;
    cluster.node_mut(owner).kill()?;
    let replica = &cluster.nodes()[owner + 3];
    let promoted = async {
        while replica.info("replication", "role").await? != "master" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(Duration::from_secs(30), promoted).await.context("not promoted")??;
    assert_eq!(replica.call::<String>(&["GET", "presence:{s7}:a"]).await?, "1");
    Ok(())
}
