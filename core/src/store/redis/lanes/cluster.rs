//! Connections to all nodes of a Cluster. The client library keeps them and the map of slots; what is sent
//! again, and when, is decided here: it would repeat writes whose answer was lost.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{
    Cmd, ErrorKind, IntoConnectionInfo as _, RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind,
    Value,
};

use super::super::settings::{Access, host_and_port};
use super::CONNECT_WITHIN;
use super::target::{PROTOCOL, address, certificates};

/// A slot that is moved, or whose master is being replaced, is found within a few looks; a master that is
/// gone is not waited for.
const TRIES_MAX: u32 = 5;
/// Before the second try; the others wait for twice as long each.
const PAUSE: Duration = Duration::from_millis(20);

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct ClusterLane {
    connection: ClusterConnection,
    rng: Arc<Mutex<StdRng>>,
}

impl ClusterLane {
    /// Connects to all nodes.
    pub(super) async fn connect(
        nodes: &[String],
        access: &Access,
        answer_within: Duration,
        seed: u64,
    ) -> RedisResult<Self> {
        let handshake = RedisConnectionInfo::default().set_protocol(PROTOCOL);
        let nodes: Result<Vec<_>, _> = nodes
            .iter()
            .map(|node| {
                let info = address(node, access.tls.as_ref()).into_connection_info()?;
                Ok::<_, RedisError>(info.set_redis_settings(handshake.clone()))
            })
            .collect();
        let mut builder = ClusterClientBuilder::new(nodes?)
            .use_protocol(PROTOCOL)
            .retries(0)
            .connection_timeout(CONNECT_WITHIN)
            .response_timeout(answer_within);
        if let Some(user) = &access.user {
            builder = builder.username(user);
        }
        if let Some(password) = &access.password {
            builder = builder.password(password.reveal());
        }
        if let Some(tls) = &access.tls {
            builder = builder.certs(certificates(tls));
        }
        let connection = builder.build()?.get_async_connection().await?;
        Ok(Self { connection, rng: Arc::new(Mutex::new(StdRng::seed_from_u64(seed))) })
    }

    /// Sends one command to the node that has its keys, or `on`. Whatever was refused without being carried
    /// out is sent again for a while.
    pub(super) async fn run(&self, on: Option<&str>, command: &Cmd) -> RedisResult<Value> {
        let mut pause = PAUSE;
        let mut tries = 1;
        loop {
            let error = match self.send(on, command).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let error = match error.redirect_node() {
                Some((node, _)) if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) => {
                    match self.ask(node, command).await {
                        Ok(answer) => return Ok(answer),
                        Err(error) => error,
                    }
                }
                _ => error,
            };
            if tries == TRIES_MAX || !is_refused(&error) {
                return Err(error);
            }
            tries += 1;
            tokio::time::sleep(self.jittered(pause)).await;
            pause = pause.saturating_mul(2);
        }
    }

    async fn send(&self, on: Option<&str>, command: &Cmd) -> RedisResult<Value> {
        let mut connection = self.connection.clone();
        let Some(key) = on else { return command.query_async(&mut connection).await };
        let route = SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master));
        connection.route_command(command.clone(), RoutingInfo::SingleNode(route)).await?.extract_error()
    }

    /// Sends a command to a node that is about to have its slot.
    async fn ask(&self, node: &str, command: &Cmd) -> RedisResult<Value> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING").add_command(command.clone());
        let (host, port) = host_and_port(node);
        let route = SingleNodeRoutingInfo::ByAddress { host, port };
        let answers = self.connection.clone().route_pipeline(pipeline, 0, 2, route).await?;
        let answer = answers.into_iter().next_back();
        answer.ok_or_else(|| RedisError::from((ErrorKind::Client, "no answer")))?.extract_error()
    }

    fn jittered(&self, pause: Duration) -> Duration {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        pause.mul_f64(rng.random_range(0.5..1.5))
    }
}

/// Whether a node said that it has not carried the command out, or none was there to be asked.
fn is_refused(error: &RedisError) -> bool {
    const REFUSALS: [ErrorKind; 7] = [
        ErrorKind::ClusterConnectionNotFound,
        ErrorKind::Server(ServerErrorKind::Moved),
        ErrorKind::Server(ServerErrorKind::Ask),
        ErrorKind::Server(ServerErrorKind::TryAgain),
        ErrorKind::Server(ServerErrorKind::ClusterDown),
        ErrorKind::Server(ServerErrorKind::MasterDown),
        ErrorKind::Server(ServerErrorKind::ReadOnly),
    ];
    REFUSALS.contains(&error.kind())
}
