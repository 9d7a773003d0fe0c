//! A master and a replica under the eyes of Sentinels, each server behind a proxy that is its address for
//! everybody: for clients, and for the Sentinels.

use std::time::Duration;

use anyhow::Context as _;

use super::server::PORTS_TRIED_MAX;
use super::{Copy, Data, Proxy, Server, ServerOptions, Weather, free_port};

/// What the Sentinels call the pair.
pub const MASTER: &str = "presence";

/// A master that is silent for so long is down: longer than any delay of a test.
const DOWN_AFTER: Duration = Duration::from_secs(2);
/// Detection, vote, choice and promotion.
const FAILED_OVER_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A pair of servers, and the Sentinels.
#[derive(Debug)]
pub struct SentinelPair {
    servers: [Server; 2],
    proxies: [Proxy; 2],
    sentinels: Vec<Server>,
    /// Which of the two is the master.
    master: usize,
}

impl SentinelPair {
    /// Starts a pair whose replica is in step, and so many Sentinels that all know it.
    ///
    /// # Errors
    /// When a binary is missing or does not come up.
    pub async fn start(options: &ServerOptions, weather: &Weather, sentinels: usize) -> anyhow::Result<Self> {
        Self::start_each([options, options], weather, sentinels).await
    }

    /// The same, with a master and a replica that differ.
    ///
    /// # Errors
    /// As [`SentinelPair::start`].
    pub async fn start_each(
        options: [&ServerOptions; 2],
        weather: &Weather,
        sentinels: usize,
    ) -> anyhow::Result<Self> {
        for _ in 1..PORTS_TRIED_MAX {
            if let Ok(pair) = Self::try_start(options, weather, sentinels).await {
                return Ok(pair);
            }
        }
        Self::try_start(options, weather, sentinels).await
    }

    async fn try_start(
        options: [&ServerOptions; 2],
        weather: &Weather,
        sentinels: usize,
    ) -> anyhow::Result<Self> {
        let ports = [free_port()?, free_port()?];
        let proxies = [Proxy::start(ports[0], weather)?, Proxy::start(ports[1], weather)?];
        let options = |number: usize| {
            let announced = proxies[number].port().to_string();
            options[number].clone().with(&[
                "--replica-announce-ip",
                "127.0.0.1",
                "--replica-announce-port",
                &announced,
            ])
        };
        let master = Server::start_on(ports[0], options(0), &[]).await?;
        let follows = ports[0].to_string();
        let replica = Server::start_on(ports[1], options(1), &[]).await?;
        let _: () = replica.call(&["REPLICAOF", "127.0.0.1", &follows]).await?;
        let mut pair = Self { servers: [master, replica], proxies, sentinels: Vec::new(), master: 0 };
        pair.in_step().await?;
        let quorum = sentinels / 2 + 1;
        for _ in 0..sentinels {
            let port = free_port()?;
            let configuration = format!(
                "port {port}\nbind 127.0.0.1\n\
                 sentinel monitor {MASTER} 127.0.0.1 {} {quorum}\n\
                 sentinel down-after-milliseconds {MASTER} {}\n\
                 sentinel failover-timeout {MASTER} 30000\n",
                pair.proxies[0].port(),
                DOWN_AFTER.as_millis(),
            );
            pair.sentinels.push(Server::start_sentinel(port, &configuration, false).await?);
        }
        pair.known(sentinels).await?;
        Ok(pair)
    }

    /// `host:port` of each Sentinel.
    #[must_use]
    pub fn sentinels(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::address).collect()
    }

    /// The Sentinels, to be killed one by one.
    #[must_use]
    pub fn sentinel_mut(&mut self, number: usize) -> &mut Server {
        &mut self.sentinels[number]
    }

    /// Stops the Sentinels, or lets them go on: then they act on nothing for half a minute.
    ///
    /// # Errors
    /// When one is gone.
    pub fn pause_sentinels(&self, is_paused: bool) -> anyhow::Result<()> {
        let signal = if is_paused { "STOP" } else { "CONT" };
        self.sentinels.iter().try_for_each(|sentinel| sentinel.signal(signal))
    }

    /// The server that takes writes.
    #[must_use]
    pub fn master(&self) -> &Server {
        &self.servers[self.master]
    }

    /// The server that takes writes, to be restarted.
    #[must_use]
    pub fn master_mut(&mut self) -> &mut Server {
        &mut self.servers[self.master]
    }

    /// The other server.
    #[must_use]
    pub fn replica(&self) -> &Server {
        &self.servers[1 - self.master]
    }

    /// Kills the master; the replica, which was cut off when it had only `kept` (none: it has all), is
    /// promoted by the Sentinels. Then the old master comes back as a replica.
    ///
    /// # Errors
    /// When the Sentinels do not promote it.
    pub async fn fail_over(&mut self, kept: Option<&Copy>) -> anyhow::Result<()> {
        if kept.is_none() {
            self.in_step().await?;
        }
        self.master_mut().kill()?;
        if let Some(kept) = kept {
            kept.put_into(self.replica()).await?;
        }
        self.replace_dead_master().await?;
        let follows = self.master().port().to_string();
        let old = &mut self.servers[1 - self.master];
        old.restart(Data::Gone).await?;
        let _: () = old.call(&["REPLICAOF", "127.0.0.1", &follows]).await?;
        self.in_step().await
    }

    /// Cuts the replica off: it has all that the master has until now, and gets nothing more.
    ///
    /// # Errors
    /// When one does not answer.
    pub async fn cut_replica_off(&self) -> anyhow::Result<()> {
        self.in_step().await?;
        // A master without a password refuses whoever comes with one.
        let _: () = self.replica().call(&["CONFIG", "SET", "masterauth", "none"]).await?;
        let _: i64 = self.master().call(&["CLIENT", "KILL", "TYPE", "replica"]).await?;
        let cut = async {
            while self.replica().info("replication", "master_link_status").await? == "up" {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(FAILED_OVER_WITHIN, cut).await.context("the replica is not cut off")?
    }

    /// Waits until the Sentinels have made the replica of a dead master the master.
    ///
    /// # Errors
    /// When they do not.
    pub async fn replace_dead_master(&mut self) -> anyhow::Result<()> {
        self.promoted().await?;
        self.master = 1 - self.master;
        Ok(())
    }

    /// Waits until the Sentinels name the replica as master, and it is one.
    async fn promoted(&self) -> anyhow::Result<()> {
        let port = self.proxies[1 - self.master].port().to_string();
        let promoted = async {
            loop {
                let mut named = 0;
                for sentinel in &self.sentinels {
                    let address: Option<(String, String)> =
                        sentinel.call(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]).await.ok().flatten();
                    named += usize::from(address.is_some_and(|(_, named)| named == port));
                }
                if named > 0 && self.replica().info("replication", "role").await? == "master" {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::time::timeout(FAILED_OVER_WITHIN, promoted).await.context("no fail-over")?
    }

    /// Waits until the replica has all that the master has.
    ///
    /// # Errors
    /// When it takes too long.
    pub async fn in_step(&self) -> anyhow::Result<()> {
        let in_step = async {
            loop {
                let ours = self.master().info("replication", "master_repl_offset").await?;
                let link = self.replica().info("replication", "master_link_status").await;
                let theirs = self.replica().info("replication", "slave_repl_offset").await;
                if link.is_ok_and(|link| link == "up") && theirs.is_ok_and(|theirs| theirs >= ours) {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::time::timeout(FAILED_OVER_WITHIN, in_step).await.context("the replica is not in step")?
    }

    /// Waits until every Sentinel knows the replica and all others of its kind.
    async fn known(&self, sentinels: usize) -> anyhow::Result<()> {
        let known = async {
            for sentinel in &self.sentinels {
                loop {
                    let replicas: Vec<redis::Value> =
                        sentinel.call(&["SENTINEL", "REPLICAS", MASTER]).await?;
                    let others: Vec<redis::Value> = sentinel.call(&["SENTINEL", "SENTINELS", MASTER]).await?;
                    if !replicas.is_empty() && others.len() + 1 == sentinels {
                        break;
                    }
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(FAILED_OVER_WITHIN, known).await.context("the Sentinels do not see the pair")?
    }
}
