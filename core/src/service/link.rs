//! `EdgeService`: one stream of an edge.

use std::error::Error as _;
use std::future::ready;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use presence_model::link::{Hello, LinkUp};
use presence_proto::status::ServiceError;
use presence_proto::{convert, v1};
use presence_runtime::telemetry::Rationed;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::{Api, breach, caller};
use crate::access::Caller;
use crate::driver::{CloseReason, LinkEnd, Verified};
use crate::limits::HELLO_WITHIN;
use crate::shell::{LinkEvent, LinkHandle};

/// Once our side of a stream is over, the transport says within this span why.
const END_TOLD_WITHIN: Duration = Duration::from_millis(500);

/// What is said of links, each at a rate of its own.
#[derive(Debug, Clone, Copy)]
enum Saying {
    Links,
    Region,
    Breach,
    Ended,
}

/// When it was said.
pub(crate) type Said = Rationed<4>;

/// Links of edges.
#[derive(Debug)]
pub(crate) struct EdgeApi(pub(super) Api);

#[tonic::async_trait]
impl v1::edge_service_server::EdgeService for EdgeApi {
    type LinkStream = BoxStream<'static, Result<v1::LinkResponse, Status>>;

    async fn link(
        &self,
        request: Request<Streaming<v1::LinkRequest>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        let caller = caller(&request)?;
        let mut inbound = request.into_inner();
        let missing = || Status::from(ServiceError::BadRequest("the first message must be Hello".to_owned()));
        let first = tokio::time::timeout(HELLO_WITHIN, inbound.message()).await.map_err(|_| missing())?;
        let first = first.map_err(|status| breach(&status).map_or(status, Status::from))?;
        let hello = convert::hello(first.ok_or_else(missing)?)?;
        caller.link(&hello.edge, &hello.region)?;
        if let Some(unsaid) = self.0.says(Saying::Links) {
            let Hello { edge, incarnation, link, .. } = &hello;
            tracing::info!(%edge, %incarnation, %link, unsaid, "an edge links");
        }
        let (edge, region) = (hello.edge.clone(), hello.region.clone());
        let mut link =
            self.0.handle.open_link(hello).await.map_err(|_| Status::from(ServiceError::Draining))?;
        let events = link.take_events().expect("taken once");
        let over = CancellationToken::new();
        let (end, why) = oneshot::channel();
        let (api, linking) = (self.0.clone(), caller.clone());
        let events = ReceiverStream::new(events).inspect(move |event| {
            if let LinkEvent::Close(CloseReason::Foreign) = event {
                linking.links_another(&edge);
            }
            if let LinkEvent::Close(CloseReason::Region) = event
                && let Some(unsaid) = api.says(Saying::Region)
            {
                let here = &api.regions.own;
                tracing::warn!(%edge, %region, %here, unsaid, "an edge of another region is refused: see --region and --edge-regions");
            }
        });
        let outbound = outbound(events, why, over.clone());
        let api = self.0.clone();
        let reader = Reader { api, caller, inbound, link, has_taken_leave: false, over, end };
        self.0.shutdown.spawn_one_of_many("link", reader.run());
        Ok(Response::new(outbound))
    }
}

impl Api {
    /// If this is to be said of a link now, how many times it was not since it last was.
    fn says(&self, what: Saying) -> Option<u64> {
        self.links_said.due(what as usize, self.guard.clock.now())
    }
}

/// What goes down, and behind it why the link is over; tells the reader when it is over, also when the
/// transport drops it.
fn outbound(
    events: impl Stream<Item = LinkEvent> + Send + 'static,
    mut why: oneshot::Receiver<ServiceError>,
    over: CancellationToken,
) -> BoxStream<'static, Result<v1::LinkResponse, Status>> {
    let guard = over.drop_guard();
    let told = events.map(|event| match event {
        LinkEvent::Down(down) => Ok(down.into()),
        LinkEvent::Close(reason) => Err(close_status(reason)),
    });
    let end = stream::once(async move {
        match why.try_recv() {
            Ok(why) => Some(Err(why.into())),
            // The edge ended it.
            Err(TryRecvError::Closed) => None,
            // The driver did, without a word: too many words were waiting already.
            Err(TryRecvError::Empty) => Some(Err(ServiceError::TooSlow.into())),
        }
    });
    told.chain(end.filter_map(ready))
        .inspect(move |_| {
            let _held = &guard;
        })
        .boxed()
}

fn close_status(reason: CloseReason) -> Status {
    match reason {
        CloseReason::Superseded => ServiceError::LinkSuperseded,
        CloseReason::StaleLink => ServiceError::StaleLink,
        CloseReason::Region => ServiceError::UnknownRegion,
        CloseReason::Foreign => ServiceError::Forbidden,
        CloseReason::Silent => ServiceError::LinkSilent,
        CloseReason::Draining => ServiceError::Draining,
    }
    .into()
}

struct Reader {
    api: Api,
    caller: Caller,
    inbound: Streaming<v1::LinkRequest>,
    link: LinkHandle,
    /// Whether the edge has said that it moves or goes.
    has_taken_leave: bool,
    over: CancellationToken,
    /// For why the link is over, if that is to be told. Sent or dropped before the driver hears of it.
    end: oneshot::Sender<ServiceError>,
}

/// Why nothing more is read.
enum End {
    /// The edge ended it, or its transport did.
    Theirs(LinkEnd),
    /// The edge broke the contract.
    Breach(ServiceError),
    /// What it has shown counts no longer.
    Refused(ServiceError),
    /// This core is going.
    Stopping,
}

impl Reader {
    async fn run(mut self) {
        let (end, how, why) = match self.read().await {
            End::Theirs(LinkEnd::Broken) if self.has_taken_leave => {
                (LinkEnd::Broken, "the edge took its leave", None)
            }
            End::Theirs(LinkEnd::Broken) => (LinkEnd::Broken, "broken", None),
            End::Theirs(LinkEnd::Silent) => (LinkEnd::Silent, "silent", None),
            End::Theirs(LinkEnd::Ours) => (LinkEnd::Ours, "ended here", None),
            End::Breach(breach) => {
                if let Some(unsaid) = self.api.says(Saying::Breach) {
                    tracing::warn!(%breach, edge = %self.link.edge(), unsaid, "an edge broke the contract");
                }
                (LinkEnd::Ours, "the edge broke the contract", Some(breach))
            }
            End::Refused(why) => (LinkEnd::Ours, "its certificate is not for it any more", Some(why)),
            End::Stopping => (LinkEnd::Ours, "this core is going", Some(ServiceError::Draining)),
        };
        match why {
            // An edge that is gone is told nothing.
            Some(why) => drop(self.end.send(why)),
            None => drop(self.end),
        }
        if let Some(unsaid) = self.api.says(Saying::Ended) {
            tracing::info!(edge = %self.link.edge(), how, unsaid, "a link ended");
        }
        // Nobody is left to be told when the driver has stopped.
        let _ = self.link.closed(end).await;
    }

    async fn read(&mut self) -> End {
        let stop = self.api.shutdown.token();
        let (api, caller) = (self.api.clone(), self.caller.clone());
        let mut refused = std::pin::pin!(api.is_over(&caller));
        loop {
            let message = tokio::select! {
                biased;
                () = stop.cancelled() => return End::Stopping,
                why = &mut refused => return End::Refused(why),
                // What came before the end of our side is heard, and so is why it ended.
                message = self.inbound.message() => message,
                () = self.over.cancelled() => return End::Theirs(self.end_as_told().await),
            };
            match message {
                Ok(Some(message)) => match LinkUp::try_from(message) {
                    Ok(up) => {
                        let verified = verify(&self.api, &up);
                        self.has_taken_leave |= matches!(up, LinkUp::Bye { .. });
                        if self.link.up(up, verified).await.is_err() {
                            return End::Stopping;
                        }
                    }
                    Err(error) if error.may_skip() => {
                        tracing::debug!(%error, "skipped a message of a later version")
                    }
                    Err(error) => return End::Breach(error.into()),
                },
                Ok(None) => return End::Theirs(LinkEnd::Broken),
                Err(status) => {
                    return breach(&status).map_or_else(|| End::Theirs(end_of(&status)), End::Breach);
                }
            }
        }
    }

    /// Our side of the stream was dropped: by the driver's word, or because the connection is gone.
    async fn end_as_told(&mut self) -> LinkEnd {
        match tokio::time::timeout(END_TOLD_WITHIN, self.inbound.message()).await {
            Ok(Err(status)) => end_of(&status),
            Ok(Ok(_)) | Err(_) => LinkEnd::Ours,
        }
    }
}

fn verify(api: &Api, up: &LinkUp) -> Verified {
    match up {
        LinkUp::Join(join) => Some(api.guard.verifier.verify(&join.token.0)),
        LinkUp::Update { token, .. } => token.as_ref().map(|token| api.guard.verifier.verify(&token.0)),
        LinkUp::Beat { .. }
        | LinkUp::Renew { .. }
        | LinkUp::Release { .. }
        | LinkUp::Leave { .. }
        | LinkUp::Bye { .. } => None,
    }
}

/// A keep-alive that was not answered may be a partition; anything else is the far side's end.
fn end_of(status: &Status) -> LinkEnd {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_timeout)
            || error.to_string().contains("keep-alive timed out")
        {
            return LinkEnd::Silent;
        }
        cause = error.source();
    }
    LinkEnd::Broken
}
