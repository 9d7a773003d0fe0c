//! The listener that clients reach: WebSocket handshakes, the browser client, and what `dev` adds.

mod answer;

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use presence_model::id::ConnectionId;
use presence_runtime::network::{Listener, Stream};
use presence_runtime::shutdown::Shutdown;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::connection::{Connection, Shared};
use crate::limits::{HANDSHAKE_WITHIN, HANDSHAKES_MAX, REQUEST_HEAD_BYTES_MAX, REQUESTS_WITHIN};
use crate::metrics::Accepts;
use crate::ws::handshake::{self, Accepted, Origins};

/// Body of an answer.
pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Path of the WebSocket.
pub const WS_PATH: &str = "/v1/ws";

/// Answers requests for paths that are not the edge's own: how `dev` adds its routes and no edge that is
/// shipped has them.
#[derive(Clone)]
pub struct ExtraHttp(Arc<Answer>);

type Answer = dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Body>> + Send + Sync;

impl ExtraHttp {
    /// Answers by this function.
    pub fn new<F>(answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        Self(Arc::new(move |request| Box::pin(answer(request))))
    }
}

impl fmt::Debug for ExtraHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExtraHttp")
    }
}

/// Told of each transport the edge accepted: its connection id and where it comes from. How `dev` finds
/// the connection that is to be cut.
#[derive(Clone)]
pub struct AcceptObserver(Arc<dyn Fn(ConnectionId, SocketAddr) + Send + Sync>);

impl AcceptObserver {
    /// Told by this function, which must not block.
    pub fn new(told: impl Fn(ConnectionId, SocketAddr) + Send + Sync + 'static) -> Self {
        Self(Arc::new(told))
    }
}

impl fmt::Debug for AcceptObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AcceptObserver")
    }
}

/// What every request on the listener is answered with.
pub(crate) struct Http {
    pub(crate) shared: Arc<Shared>,
    pub(crate) origins: Origins,
    pub(crate) extra: Option<ExtraHttp>,
    pub(crate) observer: Option<AcceptObserver>,
    /// One for each WebSocket.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) accepts: Accepts,
    pub(crate) tasks: Shutdown,
}

impl Http {
    /// Accepts until `stop`; connection ids are drawn from `seed`. Requests under way go on.
    pub(crate) async fn accept(self: Arc<Self>, listener: Listener, seed: u64, stop: CancellationToken) {
        let mut chance = StdRng::seed_from_u64(seed);
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        let accepting = async {
            while let Ok(handshake) = Arc::clone(&handshakes).acquire_owned().await {
                let (stream, peer) = match listener.accept().await {
                    Ok(accepted) => accepted,
                    Err(error) => return tracing::error!(%error, "the WebSocket listener is closed"),
                };
                let id = ConnectionId(chance.next_u64());
                if let Some(AcceptObserver(told)) = &self.observer {
                    told(id, peer);
                }
                let serving = Arc::clone(&self).serve(stream, id, handshake);
                self.tasks.spawn_one_of_many("http", serving);
            }
        };
        stop.run_until_cancelled(accepting).await;
    }

    /// Answers the requests of one transport until it becomes a WebSocket or ends.
    async fn serve(self: Arc<Self>, stream: Stream, id: ConnectionId, handshake: OwnedSemaphorePermit) {
        let stop = self.tasks.token();
        let this = Arc::clone(&self);
        let service = service_fn(move |request| {
            let this = Arc::clone(&this);
            async move { Ok::<_, Infallible>(this.answer(request, id).await) }
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HANDSHAKE_WITHIN)
            .max_buf_size(REQUEST_HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let served = tokio::select! {
            biased;
            served = serving => served,
            () = stop.cancelled() => Ok(()),
            () = self.shared.clock.sleep(REQUESTS_WITHIN) => {
                self.accepts.late.inc();
                Ok(())
            }
        };
        if let Err(error) = served {
            if error.is_timeout() {
                self.accepts.late.inc();
            }
            tracing::debug!(%error, "a request failed");
        }
        drop(handshake);
    }

    async fn answer(self: Arc<Self>, mut request: Request<Incoming>, id: ConnectionId) -> Response<Body> {
        let is_read = request.method() == Method::GET || request.method() == Method::HEAD;
        match (request.uri().path(), &self.extra) {
            (WS_PATH, _) => self.upgrade(&mut request, id),
            ("/presence.js", _) if is_read => answer::browser_client(request.headers()),
            ("/presence.js", _) => answer::text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n"),
            (_, Some(ExtraHttp(extra))) => extra(request).await,
            (_, None) => {
                answer::text(StatusCode::NOT_FOUND, "there are /v1/ws (a WebSocket) and /presence.js\n")
            }
        }
    }

    fn upgrade(self: Arc<Self>, request: &mut Request<Incoming>, id: ConnectionId) -> Response<Body> {
        let accepted = match handshake::accept(request, &self.origins) {
            Ok(accepted) => accepted,
            Err(refused) => {
                self.accepts.refused.inc();
                return answer::refusal(refused);
            }
        };
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            self.accepts.full.inc();
            return answer::full();
        };
        let Accepted { response, upgrade, .. } = accepted;
        let this = Arc::clone(&self);
        self.tasks.spawn_one_of_many("upgrade", async move {
            match upgrade.await {
                Ok(upgraded) => this.open(upgraded, id, place),
                Err(error) => tracing::debug!(%error, "a handshake was not finished"),
            }
        });
        response.map(answer::boxed)
    }

    fn open(&self, upgraded: hyper::upgrade::Upgraded, id: ConnectionId, place: OwnedSemaphorePermit) {
        let Ok(parts) = upgraded.downcast::<TokioIo<Stream>>() else {
            return tracing::error!("a transport is not what was accepted");
        };
        self.accepts.accepted.inc();
        let shared = Arc::clone(&self.shared);
        // Copied and dropped: even when empty it holds on to the 8 KiB it was read into.
        let connection = Connection::new(parts.io.into_inner(), &parts.read_buf, id, shared, Some(place));
        drop(parts.read_buf);
        self.tasks.spawn_one_of_many("connection", connection);
    }
}
