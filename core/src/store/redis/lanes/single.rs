//! A connection to one server that comes back by itself.
//!
//! The client library has one of these (`ConnectionManager`). This one differs in four points that decide
//! what becomes of a write: it knows what was never sent, it looks a fail-over up, it gives up a connection
//! whose answers do not come, and a server that refuses a connection for a while (too many clients, loading)
//! does not end it for ever.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use redis::aio::{MultiplexedConnection, SendError};
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, PushInfo, PushKind, RedisError, RedisResult, ServerErrorKind,
    Value,
};

use super::CONNECT_WITHIN;
use super::target::Target;

/// Before the first attempt after a connection ended: many cores lose a server at the same moment.
const FIRST_PAUSE_MAX: Duration = Duration::from_millis(20);
/// Attempts that fail are spread further and further, up to this: a server that comes back finds no crowd,
/// and nobody waits much longer for it than it was away.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Commands that wait to be written; more wait to wait. A burst of joins must not queue renewals' lane.
const COMMANDS_QUEUED_MAX: usize = 1024;

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct SingleLane(Arc<Inner>);

struct Inner {
    target: Target,
    answer_within: Duration,
    state: Mutex<State>,
}

struct State {
    number: u64,
    attempt: Attempt,
    /// Attempts that have failed since the last that did not.
    failures: u32,
    rng: StdRng,
}

type Attempt = Shared<BoxFuture<'static, RedisResult<Live>>>;

/// A connection, and whether it has ended.
#[derive(Clone)]
struct Live {
    connection: MultiplexedConnection,
    has_ended: Arc<AtomicBool>,
}

impl SingleLane {
    /// Connects, once.
    pub(super) async fn connect(target: Target, answer_within: Duration, seed: u64) -> RedisResult<Self> {
        let live = open(&target, answer_within).await?;
        let attempt = futures::future::ready(Ok(live)).boxed().shared();
        // The attempt is known to have succeeded only once it was asked.
        attempt.clone().await?;
        let rng = StdRng::seed_from_u64(seed);
        let state = Mutex::new(State { number: 0, attempt, failures: 0, rng });
        Ok(Self(Arc::new(Inner { target, answer_within, state })))
    }

    /// Sends one command. An error of the kind `ConnectionRefused` says that it was never sent.
    pub(super) async fn run(&self, command: &Cmd) -> RedisResult<Value> {
        let (number, attempt) = self.attempt();
        let mut live = attempt.await.map_err(unsent)?;
        let answer = command.query_async(&mut live.connection).await;
        if let Err(error) = &answer
            && self.spoils(error)
        {
            live.has_ended.store(true, Ordering::Relaxed);
            tracing::debug!(number, %error, "a connection to the store is given up");
        }
        answer
    }

    /// The connection in use, or the attempt at the next one if it has ended.
    fn attempt(&self) -> (u64, Attempt) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let failures = match state.attempt.peek() {
            None => return (state.number, state.attempt.clone()),
            Some(Ok(live)) if !live.has_ended.load(Ordering::Relaxed) => {
                return (state.number, state.attempt.clone());
            }
            Some(Ok(_)) => 0,
            Some(Err(_)) => state.failures.saturating_add(1),
        };
        let longest = FIRST_PAUSE_MAX.saturating_mul(1 << failures.min(16)).min(PAUSE_MAX);
        let pause = longest.mul_f64(state.rng.random_range(0.0..1.0));
        let lane = Arc::clone(&self.0);
        let open = async move {
            tokio::time::sleep(pause).await;
            open(&lane.target, lane.answer_within).await
        };
        state.failures = failures;
        state.number += 1;
        state.attempt = open.boxed().shared();
        (state.number, state.attempt.clone())
    }

    /// Whether a connection is of no more use after this error.
    fn spoils(&self, error: &RedisError) -> bool {
        // Without an answer in time nobody knows whether others come: the way may be gone without a word.
        error.is_unrecoverable_error()
            || error.is_timeout()
            || (self.0.target.may_move() && error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly))
    }
}

async fn open(target: &Target, answer_within: Duration) -> RedisResult<Live> {
    let has_ended = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&has_ended);
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_WITHIN))
        .set_response_timeout(Some(answer_within))
        .set_pipeline_buffer_size(COMMANDS_QUEUED_MAX)
        .set_push_sender(move |push: PushInfo| -> Result<(), SendError> {
            if push.kind == PushKind::Disconnection {
                ended.store(true, Ordering::Relaxed);
            }
            Ok(())
        });
    let open = async {
        let client = target.client().await?;
        client.get_multiplexed_async_connection_with_config(&config).await
    };
    // Sentinels are asked one after the other, and then the master: each has its own time.
    let connection = tokio::time::timeout(CONNECT_WITHIN.saturating_mul(3), open)
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no connection in time").into()))?;
    Ok(Live { connection, has_ended })
}

/// What is wrong with the way to the server, said so that everybody sees that nothing was sent.
fn unsent(error: RedisError) -> RedisError {
    if matches!(error.kind(), ErrorKind::Io | ErrorKind::Parse | ErrorKind::Client) {
        return io::Error::new(io::ErrorKind::ConnectionRefused, error.to_string()).into();
    }
    error
}
