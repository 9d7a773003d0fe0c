//! Connections: renewals, scripts, loads and the tail share none, so that none waits for another.

mod cluster;
mod single;
mod target;

use std::time::Duration;

use redis::{Cmd, RedisResult, Value};

use self::cluster::ClusterLane;
use self::single::SingleLane;
use self::target::Target;
use super::settings::{Access, RedisSettings, TlsFiles, Topology};
use crate::limits::{STORE_REACHED_WITHIN, TAIL_WAIT};

/// A server nearby accepts within milliseconds; callers wait meanwhile, and want to hear of it within the
/// time in which a core says that it cannot reach the store.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// Renewals and scripts take a millisecond: whatever is not answered by then was lost or waits behind
/// something that is broken. Short against every heartbeat.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Pages of a large roster are read while much else is.
const LOAD_WITHIN: Duration = Duration::from_secs(5);
/// A blocking read answers when its wait is over, and then like any other; one that is silent for longer
/// has lost its way.
const TAIL_WITHIN: Duration = STORE_REACHED_WITHIN;
const _: () = assert!(TAIL_WITHIN.as_millis() >= TAIL_WAIT.as_millis() + ANSWER_WITHIN.as_millis());

/// A connection that is shared by all who clone it and comes back by itself.
#[derive(Clone)]
pub(super) struct Lane(Kind);

#[derive(Clone)]
enum Kind {
    Single(SingleLane),
    Cluster(ClusterLane),
}

impl Lane {
    /// Sends one command. Commands sent at the same time go out together. In a Cluster it goes to the server
    /// that has its keys, which share a slot.
    pub(super) async fn run(&self, command: &Cmd) -> RedisResult<Value> {
        match &self.0 {
            Kind::Single(lane) => lane.run(command).await,
            Kind::Cluster(lane) => lane.run(None, command).await,
        }
    }

    /// Sends a command without keys to the server that has this key.
    pub(super) async fn run_on(&self, key: &str, command: &Cmd) -> RedisResult<Value> {
        match &self.0 {
            Kind::Single(lane) => lane.run(command).await,
            Kind::Cluster(lane) => lane.run(Some(key), command).await,
        }
    }

    /// Whether a blocking read holds up nothing else. In a Cluster one connection to each node serves all
    /// shards of it.
    pub(super) fn can_block(&self) -> bool {
        match &self.0 {
            Kind::Single(_) => true,
            Kind::Cluster(_) => false,
        }
    }
}

/// One lane for each kind of work.
#[derive(Clone)]
pub(super) struct Lanes {
    /// Renewals, and nothing else.
    pub(super) renewals: Lane,
    /// Scripts that write or read a few members.
    pub(super) scripts: Lane,
    /// Pages of rosters and listings.
    pub(super) loads: Lane,
    /// Blocking reads.
    pub(super) tail: Lane,
}

impl Lanes {
    /// Connects all of them.
    ///
    /// # Errors
    /// The first connection that fails: nothing is tried twice.
    pub(super) async fn connect(settings: &RedisSettings) -> RedisResult<Self> {
        Ok(Self {
            renewals: lane(settings, 0, ANSWER_WITHIN).await?,
            scripts: lane(settings, 1, ANSWER_WITHIN).await?,
            loads: lane(settings, 2, LOAD_WITHIN).await?,
            tail: lane(settings, 3, TAIL_WITHIN).await?,
        })
    }

    /// Whether the first server that is named answers, with or without TLS, for whoever was told otherwise.
    /// It is told no password.
    ///
    /// # Errors
    /// What it says instead.
    pub(super) async fn knock(settings: &RedisSettings, tls: Option<TlsFiles>) -> RedisResult<()> {
        let server = match &settings.topology {
            Topology::Standalone { server } => Some(server),
            Topology::Sentinel { sentinels: servers, .. } | Topology::Cluster { nodes: servers } => {
                servers.first()
            }
        };
        let topology = Topology::Standalone { server: server.cloned().unwrap_or_default() };
        let access = Access { tls, ..Access::default() };
        let other = RedisSettings { topology, access, ..settings.clone() };
        lane(&other, 0, ANSWER_WITHIN).await.map(drop)
    }
}

async fn lane(settings: &RedisSettings, number: u64, answer_within: Duration) -> RedisResult<Lane> {
    let seed = settings.seed.wrapping_add(number);
    Ok(Lane(match &settings.topology {
        Topology::Standalone { .. } | Topology::Sentinel { .. } => {
            Kind::Single(SingleLane::connect(Target::of(settings)?, answer_within, seed).await?)
        }
        Topology::Cluster { nodes } => {
            Kind::Cluster(ClusterLane::connect(nodes, &settings.access, answer_within, seed).await?)
        }
    }))
}
