//! Connections: renewals, scripts, loads and the tail share none, so that none waits for another.

use redis::aio::ConnectionManager;
use redis::{Client, Cmd, RedisResult, Value};

use super::settings::{RedisSettings, Topology};

/// A connection that is shared by all who clone it and comes back by itself.
#[derive(Clone)]
pub(super) struct Lane(ConnectionManager);

impl Lane {
    /// Sends one command. Commands sent at the same time go out together.
    pub(super) async fn run(&self, command: &Cmd) -> RedisResult<Value> {
        command.query_async(&mut self.0.clone()).await
    }

    /// Sends a command without keys to the server that has this key.
    pub(super) async fn run_on(&self, _key: &str, command: &Cmd) -> RedisResult<Value> {
        self.run(command).await
    }

    /// Whether a blocking read holds up nothing else.
    pub(super) fn can_block(&self) -> bool {
        true
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
    pub(super) async fn connect(settings: &RedisSettings) -> RedisResult<Self> {
        let Topology::Standalone { server } = &settings.topology;
        let client = Client::open(format!("redis://{server}/"))?;
        let lane = async || client.get_connection_manager().await.map(Lane);
        Ok(Self {
            renewals: lane().await?,
            scripts: lane().await?,
            loads: lane().await?,
            tail: lane().await?,
        })
    }
}
