//! The client: settings, questions, and the way to the keeper of its watch.

use std::sync::Arc;
use std::time::Duration;

use presence_model::backoff::Backoff;
use presence_model::id::{RegionId, RoomId};
use presence_runtime::clock::Clock;
use presence_runtime::network::Network;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::bearer::Bearer;
use crate::cores::Cores;
use crate::error::ClientError;
use crate::follow::RoomStream;
use crate::keeper::{Command, Keeper};
use crate::limits::COMMANDS_MAX;
use crate::upstream::Upstream;
use crate::watch::{RoomOptions, WatcherSettings};

/// What a client is told at its start.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// `http://host:port` of each core of the region, `https` for TLS; at least one.
    pub cores: Vec<String>,
    /// The region that is told at once; none: the core's own.
    pub home: Option<RegionId>,
    /// How often a core beats: a watch that is silent for three beats is opened elsewhere.
    pub beat: Duration,
    /// How long a question may take, and opening a watch.
    pub answer_within: Duration,
    /// Waits between attempts to open the watch.
    pub backoff: Backoff,
    /// What is shown with each request.
    pub bearer: Bearer,
    /// Seeds the waits, and which core is asked first.
    pub seed: u64,
}

impl ClientSettings {
    /// Defaults for these cores: a beat of 1 s, answers within 5 s, waits from 250 ms to 10 s.
    #[must_use]
    pub fn new(cores: Vec<String>, seed: u64) -> Self {
        Self {
            cores,
            home: None,
            beat: Duration::from_secs(1),
            answer_within: Duration::from_secs(5),
            backoff: Backoff::new(Duration::from_millis(250), Duration::from_secs(10)),
            bearer: Bearer::Nobody,
            seed,
        }
    }
}

/// What a client needs of the world.
#[derive(Debug, Clone)]
pub struct Deps {
    /// Where connections come from; for cores with TLS one that knows whom to trust
    /// ([`Network::with_tls`](presence_runtime::network::Network::with_tls)).
    pub network: Network,
    /// What paces it.
    pub clock: Clock,
}

/// A client of a region's cores. Cheap to clone; the watch ends with the last clone and room stream.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) cores: Cores,
    pub(crate) clock: Clock,
    pub(crate) answer_within: Duration,
    watch: Arc<Watch>,
}

/// The task that keeps the watch, and the way to it.
#[derive(Debug)]
pub(crate) struct Watch {
    commands: mpsc::Sender<Command>,
    keeper: JoinHandle<()>,
}

impl Client {
    /// A client that connects when it is first used. Must be called inside a runtime.
    ///
    /// # Errors
    /// [`ClientError::Address`]; whether anybody answers there shows with the first question.
    pub fn new(settings: ClientSettings, deps: Deps) -> Result<Self, ClientError> {
        let cores = Cores::of(&settings, &deps.network)?;
        let (commands, inbox) = mpsc::channel(COMMANDS_MAX);
        let answer_within = settings.answer_within;
        let upstream = Upstream::of(&settings, cores.clone(), (deps.clock.clone(), None));
        let watcher = WatcherSettings { home: settings.home, beat: settings.beat, remembers: false };
        let keeper = Keeper::new(watcher, upstream, deps.clock.clone());
        let keeper = tokio::spawn(keeper.run(inbox));
        Ok(Self { cores, clock: deps.clock, answer_within, watch: Arc::new(Watch { commands, keeper }) })
    }

    /// Watches a room. The first update is its list as soon as it is complete; before that, an update
    /// says how fresh what is missing is, if that is known.
    ///
    /// Several streams of one room share its view; the room is opened as the most demanding one asks.
    /// Dropping the stream closes the room within a beat.
    ///
    /// # Errors
    /// [`ClientError::Ended`].
    pub async fn watch(&self, room: RoomId, options: RoomOptions) -> Result<RoomStream, ClientError> {
        RoomStream::open(Arc::clone(&self.watch), room, options).await
    }
}

impl Watch {
    pub(crate) async fn send(&self, command: Command) -> Result<(), ClientError> {
        self.commands.send(command).await.map_err(|_| ClientError::Ended)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}
