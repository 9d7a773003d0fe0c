//! Carrying one stream: words of the model up, words of the model down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use presence_model::link::{Hello, LinkDown, LinkUp};
use presence_model::watch::{WatchDown, WatchUp};
use presence_proto::convert::hello_request;
use presence_proto::v1;
use presence_proto::v1::edge_service_client::EdgeServiceClient;
use presence_proto::v1::presence_service_client::PresenceServiceClient;
use presence_runtime::clock::Clock;
use presence_runtime::network::Network;
use presence_runtime::rpc::{self, ClientSettings};
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::{Event, Kind, Said, What};
use crate::hub::{CoreAddress, Input};
use crate::limits::LINK_FLUSH_WITHIN;

/// Of what is said seldom, what is neither of the streams.
const LINKING: usize = 2;

/// Where a stream's task says what happens.
pub(super) struct Ends {
    pub(super) kind: Kind,
    pub(super) serial: u64,
    pub(super) events: mpsc::Sender<Event>,
    /// Cancelled once nobody is interested any more.
    pub(super) given_up: CancellationToken,
    pub(super) clock: Clock,
    pub(super) said: Arc<Said>,
}

/// Why a stream is over.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("{0}")]
    Connect(#[from] rpc::ConnectError),
    #[error("{code:?}: {message}", code = .0.code(), message = .0.message())]
    Status(#[from] Status),
    #[error("the core ended it")]
    Ended,
    #[error("the core said something malformed: {0}")]
    Malformed(#[from] presence_proto::WireError),
    #[error("nobody listens")]
    NobodyListens,
}

impl Ends {
    async fn say(&self, what: What) -> Result<(), End> {
        let event = Event { kind: self.kind, serial: self.serial, what };
        self.events.send(event).await.map_err(|_| End::NobodyListens)
    }

    /// Whether this is to be said: whoever tries again and again must not write the log.
    fn is_due(&self, what: usize) -> bool {
        self.said.is_due(what, self.clock.now())
    }

    async fn finish(&self, end: Result<(), End>) {
        match end {
            Ok(()) => {}
            Err(end @ (End::Connect(_) | End::Status(_) | End::Malformed(_))) => {
                if self.is_due(self.kind as usize) {
                    tracing::warn!(stream = ?self.kind, %end, "no stream to a core: it is tried again");
                }
            }
            Err(end @ (End::Ended | End::NobodyListens)) => {
                tracing::info!(stream = ?self.kind, %end, "a stream to a core is over");
            }
        }
        // If nobody listens, nobody waits for it.
        let _ = self.say(What::Lost).await;
    }
}

/// Connects and links until the core ends it, or it is given up and its last messages are out.
pub(super) async fn link(
    (core, network): (CoreAddress, Network),
    hello: Hello,
    up: mpsc::Receiver<LinkUp>,
    ends: Ends,
) {
    let is_linked = AtomicBool::new(false);
    let given_up = async {
        ends.given_up.cancelled().await;
        if is_linked.load(Ordering::Relaxed) {
            ends.clock.sleep(LINK_FLUSH_WITHIN).await;
        }
    };
    let end = tokio::select! {
        biased;
        end = carry_link(&core, &network, hello, up, (&ends, &is_linked)) => end,
        () = given_up => Ok(()),
    };
    ends.finish(end).await;
}

async fn carry_link(
    core: &CoreAddress,
    network: &Network,
    hello: Hello,
    up: mpsc::Receiver<LinkUp>,
    (ends, is_linked): (&Ends, &AtomicBool),
) -> Result<(), End> {
    let CoreAddress { url, address } = core;
    let channel = rpc::connect_at(network, (url, address.as_deref()), &ClientSettings::default()).await?;
    let (at, link) = (address.as_deref().unwrap_or_default(), hello.link);
    if ends.is_due(LINKING) {
        tracing::info!(core = %url, at, %link, "linking");
    }
    let messages = tokio_stream::once(hello_request(hello)).chain(ReceiverStream::new(up).map(Into::into));
    let mut down = EdgeServiceClient::new(channel.clone()).link(messages).await?.into_inner();
    is_linked.store(true, Ordering::Relaxed);
    ends.say(What::LinkUp(channel)).await?;
    read(&mut down, ends, |message| {
        let down = LinkDown::try_from(message)?;
        // A core that takes the stream may still refuse the edge.
        if matches!(down, LinkDown::Welcome(_)) {
            tracing::info!(core = %url, at, %link, "linked");
        }
        Ok(Input::Link(down))
    })
    .await
}

/// Watches until the core ends it, or it is given up.
pub(super) async fn watch(channel: Channel, up: mpsc::Receiver<WatchUp>, ends: Ends) {
    let end = tokio::select! {
        biased;
        end = carry_watch(channel, up, &ends) => end,
        () = ends.given_up.cancelled() => Ok(()),
    };
    ends.finish(end).await;
}

async fn carry_watch(channel: Channel, up: mpsc::Receiver<WatchUp>, ends: &Ends) -> Result<(), End> {
    let messages = ReceiverStream::new(up).map(v1::WatchRequest::from);
    let mut down = PresenceServiceClient::new(channel).watch(messages).await?.into_inner();
    ends.say(What::WatchUp).await?;
    read(&mut down, ends, |message| WatchDown::try_from(message).map(Input::Watch)).await
}

async fn read<M, C>(down: &mut Streaming<M>, ends: &Ends, convert: C) -> Result<(), End>
where
    C: Fn(M) -> Result<Input, presence_proto::WireError>,
{
    while let Some(message) = down.message().await? {
        ends.say(What::Down(convert(message)?)).await?;
    }
    Err(End::Ended)
}
