//! A Redis Cluster of masters that share the slots, each behind a proxy that is its address for clients.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use super::server::PORTS_TRIED_MAX;
use super::{Proxy, Server, ServerOptions, Weather, free_port};

/// Slots of every Cluster.
const SLOTS: usize = 16_384;
/// A node that is silent for so long has failed.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);
/// A master waits two seconds before it takes writes after a start.
const READY_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A Cluster of masters without replicas, or with one each.
#[derive(Debug)]
pub struct Cluster {
    /// Masters first, then their replicas in the same order.
    nodes: Vec<Server>,
    proxies: Vec<Proxy>,
    masters: usize,
}

/// What is settled of a node before it starts.
struct Plan {
    id: String,
    port: u16,
    bus: u16,
    proxy: Proxy,
}

impl Cluster {
    /// Starts so many masters, each with one replica if `has_replicas`, and waits until they take writes.
    ///
    /// # Errors
    /// When `redis-server` is missing or does not come up.
    pub async fn start(
        options: &ServerOptions,
        weather: &Weather,
        (masters, has_replicas): (usize, bool),
    ) -> anyhow::Result<Self> {
        for _ in 1..PORTS_TRIED_MAX {
            if let Ok(cluster) = Self::try_start(options, weather, (masters, has_replicas)).await {
                return Ok(cluster);
            }
        }
        Self::try_start(options, weather, (masters, has_replicas)).await
    }

    async fn try_start(
        options: &ServerOptions,
        weather: &Weather,
        (masters, has_replicas): (usize, bool),
    ) -> anyhow::Result<Self> {
        let count = if has_replicas { masters * 2 } else { masters };
        let mut plans = Vec::with_capacity(count);
        for number in 0..count {
            let (port, bus) = (free_port()?, free_port()?);
            let id = format!("{:040x}", number + 1);
            plans.push(Plan { id, port, bus, proxy: Proxy::start(port, weather)? });
        }
        let mut nodes = Vec::with_capacity(count);
        for (number, plan) in plans.iter().enumerate() {
            let (bus, announced) = (plan.bus.to_string(), plan.proxy.port().to_string());
            let timeout = NODE_TIMEOUT.as_millis().to_string();
            let options = options.clone().with(&[
                "--cluster-enabled",
                "yes",
                "--cluster-config-file",
                "nodes.conf",
                "--cluster-port",
                &bus,
                "--cluster-announce-ip",
                "127.0.0.1",
                "--cluster-announce-port",
                &announced,
                "--cluster-announce-bus-port",
                &bus,
                "--cluster-node-timeout",
                &timeout,
                // A shard whose master is gone does not take the others with it.
                "--cluster-require-full-coverage",
                "no",
            ]);
            let known = known_nodes(&plans, masters, number);
            nodes.push(Server::start_on(plan.port, options, &[("nodes.conf", &known)]).await?);
        }
        let proxies = plans.into_iter().map(|plan| plan.proxy).collect();
        let cluster = Self { nodes, proxies, masters };
        cluster.ready().await?;
        Ok(cluster)
    }

    /// `host:port` of each node.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.proxies.iter().map(Proxy::address).collect()
    }

    /// The nodes: masters first, then their replicas in the same order.
    #[must_use]
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// A node, to be killed or restarted.
    #[must_use]
    pub fn node_mut(&mut self, number: usize) -> &mut Server {
        &mut self.nodes[number]
    }

    /// Which master a key was given to at the start.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn owner(&self, key: &str) -> anyhow::Result<usize> {
        let slot: usize = self.nodes[0].call(&["CLUSTER", "KEYSLOT", key]).await?;
        let owner = (0..self.masters).find(|number| slots(*number, self.masters).1 >= slot);
        owner.context("every slot has an owner")
    }

    /// Moves the slot of a key, with what is in it, to another master.
    ///
    /// # Errors
    /// When a node refuses.
    pub async fn move_slot(&self, key: &str, from: usize, to: usize) -> anyhow::Result<()> {
        self.begin_move(key, from, to).await?;
        self.end_move(key, from, to).await
    }

    /// Moves what is in the slot of a key; the slot itself stays where it is, and sends those who ask on.
    ///
    /// # Errors
    /// When a node refuses.
    pub async fn begin_move(&self, key: &str, from: usize, to: usize) -> anyhow::Result<()> {
        self.announce_move(key, from, to).await?;
        loop {
            let keys = self.keys_beside(key, from).await?;
            if keys.is_empty() {
                return Ok(());
            }
            self.move_keys(&keys, from, to).await?;
        }
    }

    /// Says that the slot of a key is going to move; nothing of it has yet.
    ///
    /// # Errors
    /// When a node refuses.
    pub async fn announce_move(&self, key: &str, from: usize, to: usize) -> anyhow::Result<()> {
        ensure!(from != to, "it is there already");
        let slot: usize = self.nodes[from].call(&["CLUSTER", "KEYSLOT", key]).await?;
        let slot = slot.to_string();
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        let source_id: String = source.call(&["CLUSTER", "MYID"]).await?;
        let target_id: String = target.call(&["CLUSTER", "MYID"]).await?;
        let _: () = target.call(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]).await?;
        let _: () = source.call(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]).await?;
        Ok(())
    }

    /// What a node has in the slot of a key, sorted; at most a hundred.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn keys_beside(&self, key: &str, node: usize) -> anyhow::Result<Vec<String>> {
        let slot: usize = self.nodes[node].call(&["CLUSTER", "KEYSLOT", key]).await?;
        let ask = ["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"];
        let mut keys: Vec<String> = self.nodes[node].call(&ask).await?;
        keys.sort();
        Ok(keys)
    }

    /// Moves these keys of an announced move.
    ///
    /// # Errors
    /// When a node refuses.
    pub async fn move_keys(&self, keys: &[String], from: usize, to: usize) -> anyhow::Result<()> {
        let port = self.nodes[to].port().to_string();
        let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        migrate.extend(keys.iter().map(String::as_str));
        let _: () = self.nodes[from].call(&migrate).await?;
        Ok(())
    }

    /// Gives the slot itself away, after [`Cluster::begin_move`].
    ///
    /// # Errors
    /// When a node refuses.
    pub async fn end_move(&self, key: &str, from: usize, to: usize) -> anyhow::Result<()> {
        let slot: usize = self.nodes[from].call(&["CLUSTER", "KEYSLOT", key]).await?;
        let target_id: String = self.nodes[to].call(&["CLUSTER", "MYID"]).await?;
        for node in [&self.nodes[to], &self.nodes[from]] {
            let _: () = node.call(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &target_id]).await?;
        }
        Ok(())
    }

    /// Waits until every running node takes writes and sees no other as failed.
    ///
    /// # Errors
    /// When it takes too long.
    pub async fn ready(&self) -> anyhow::Result<()> {
        let ready = async {
            for node in &self.nodes {
                loop {
                    let info: String = node.call(&["CLUSTER", "INFO"]).await?;
                    let nodes: String = node.call(&["CLUSTER", "NODES"]).await?;
                    let is_whole =
                        nodes.lines().all(|line| !line.contains("fail") && !line.contains("disconnected"));
                    if info.contains("cluster_state:ok") && is_whole {
                        break;
                    }
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            }
            anyhow::Ok(())
        };
        if let Ok(is_ready) = tokio::time::timeout(READY_WITHIN, ready).await {
            return is_ready;
        }
        let mut seen = String::new();
        for node in &self.nodes {
            let info: String = node.call(&["CLUSTER", "INFO"]).await?;
            let nodes: String = node.call(&["CLUSTER", "NODES"]).await?;
            seen += &format!("{}: {}\n{nodes}", node.address(), info.lines().next().unwrap_or_default());
        }
        bail!("the Cluster is not ready after {READY_WITHIN:?}:\n{seen}")
    }
}

/// First and last slot of a master.
fn slots(number: usize, masters: usize) -> (usize, usize) {
    (SLOTS * number / masters, SLOTS * (number + 1) / masters - 1)
}

/// What a node knows of all before it starts, so that nobody has to meet anybody.
fn known_nodes(plans: &[Plan], masters: usize, myself: usize) -> String {
    let mut text = String::new();
    for (number, plan) in plans.iter().enumerate() {
        let is_master = number < masters;
        let flags = match (number == myself, is_master) {
            (true, true) => "myself,master",
            (true, false) => "myself,slave",
            (false, true) => "master",
            (false, false) => "slave",
        };
        let of = if is_master { "-" } else { &plans[number - masters].id };
        let epoch = number % masters + 1;
        let address = format!("127.0.0.1:{}@{}", plan.proxy.port(), plan.bus);
        // Writing to a string does not fail.
        let _ = write!(text, "{} {address} {flags} {of} 0 0 {epoch} connected", plan.id);
        if is_master {
            let (first, last) = slots(number, masters);
            let _ = write!(text, " {first}-{last}");
        }
        text.push('\n');
    }
    let _ = writeln!(text, "vars currentEpoch {masters} lastVoteEpoch 0");
    text
}
