//! The listener that clients reach: WebSocket handshakes, the browser client, and what `dev` adds.

mod answer;
mod away;

use std::convert::Infallible;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::ORIGIN;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioIo, TokioTimer};
use presence_model::id::ConnectionId;
use presence_runtime::network::{Listener, Stream};
use presence_runtime::shutdown::Shutdown;
use presence_runtime::telemetry::Seldom;
use presence_runtime::tls::{Door, Entered, Turned};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::admission::{AddressPlace, Admission, ConnectionPlace, Source, TurnedAway, Whence, read_header};
use crate::connection::{Connection, Shared};
use crate::limits::{
    HANDSHAKE_WITHIN, REQUEST_HEAD_BYTES_MAX, REQUESTS_WITHIN, SEEING_OFF_MAX, TURNED_AWAY_TOLD_EVERY,
    TURNING_AWAY_MAX,
};
use crate::metrics::Accepts;
use crate::protocol::Encoding;
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
    pub(crate) door: Door,
    pub(crate) origins: Origins,
    pub(crate) extra: Option<ExtraHttp>,
    pub(crate) observer: Option<AcceptObserver>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) whence: Whence,
    pub(crate) partings: Partings,
    pub(crate) accepts: Accepts,
    pub(crate) tasks: Shutdown,
}

/// Room for those who are turned away with words, and when it was last said of those who are without.
#[derive(Debug)]
pub(crate) struct Partings {
    turning_away: Arc<Semaphore>,
    seeing_off: Arc<Semaphore>,
    unproxied: Seldom<1>,
}

impl Default for Partings {
    fn default() -> Self {
        let room = |most| Arc::new(Semaphore::new(most));
        Self {
            turning_away: room(TURNING_AWAY_MAX),
            seeing_off: room(SEEING_OFF_MAX),
            unproxied: Seldom::new(TURNED_AWAY_TOLD_EVERY),
        }
    }
}

/// One transport, as far as it is known before its first request.
struct Caller {
    id: ConnectionId,
    /// Whom its transport leads to.
    peer: IpAddr,
    /// Where the client is, if that is known.
    address: Option<IpAddr>,
    /// Its place among those of its address; or why it has none.
    place: Result<Option<Arc<AddressPlace>>, TurnedAway>,
    /// A request has arrived, and is counted by what became of it.
    asked: AtomicBool,
}

/// What a WebSocket has of the edge while it lasts.
pub(crate) type Places = (ConnectionPlace, Option<Arc<AddressPlace>>);

impl Http {
    /// Accepts until `stop`; connection ids are drawn from `seed`. Requests under way go on.
    pub(crate) async fn accept(self: Arc<Self>, listener: Listener, seed: u64, stop: CancellationToken) {
        let mut chance = StdRng::seed_from_u64(seed);
        let handshakes = Arc::new(Semaphore::new(self.admission.arriving()));
        let accepting = async {
            loop {
                if handshakes.available_permits() == 0 {
                    self.accepts.crowded.inc();
                    self.admission.crowded(self.shared.clock.now());
                }
                let Ok(handshake) = Arc::clone(&handshakes).acquire_owned().await else { return };
                let (stream, peer) = match listener.accept().await {
                    Ok(accepted) => accepted,
                    Err(error) => return tracing::error!(%error, "the WebSocket listener is closed"),
                };
                let id = ConnectionId(chance.next_u64());
                if let Some(AcceptObserver(told)) = &self.observer {
                    told(id, peer);
                }
                let this = Arc::clone(&self);
                self.tasks.spawn_one_of_many("http", async move {
                    this.receive(stream, (id, peer.ip())).await;
                    drop(handshake);
                });
            }
        };
        stop.run_until_cancelled(accepting).await;
    }

    /// Logs until `stop` how many were turned away, also those after whom nobody came.
    pub(crate) async fn tell_turned_away(self: Arc<Self>, stop: CancellationToken) {
        let clock = &self.shared.clock;
        let telling = async {
            loop {
                clock.sleep(TURNED_AWAY_TOLD_EVERY).await;
                self.admission.tell(clock.now());
            }
        };
        stop.run_until_cancelled(telling).await;
    }

    /// Finds out where a transport comes from, and answers it.
    async fn receive(self: Arc<Self>, mut stream: Stream, (id, peer): (ConnectionId, IpAddr)) {
        let Ok(address) = self.find_out(&mut stream, peer).await else {
            return;
        };
        let place = self.admission.enter(address, self.shared.clock.now());
        let words = match &place {
            Ok(_) => None,
            Err(away) => {
                self.accepts.turned_away(away.cause);
                let Ok(words) = Arc::clone(&self.partings.turning_away).try_acquire_owned() else { return };
                Some(words)
            }
        };
        self.serve(stream, Caller { id, peer, address, place, asked: AtomicBool::new(false) }).await;
        drop(words);
    }

    /// The client's address as far as its transport tells it.
    async fn find_out(&self, stream: &mut Stream, peer: IpAddr) -> Result<Option<IpAddr>, ()> {
        if self.whence.source != Source::ProxyProtocol {
            return Ok(self.whence.of_peer(peer));
        }
        if !self.whence.trusts(peer) {
            self.unproxied(peer, &"it is not one of trusted_proxies");
            return Err(());
        }
        let stop = self.tasks.token();
        tokio::select! {
            biased;
            header = read_header(stream) => match header {
                // Another proxy of ours: for a health check of its own.
                Ok(client) => Ok(client.filter(|client| !self.whence.trusts(*client))),
                Err(bad) => {
                    self.unproxied(peer, &bad);
                    Err(())
                }
            },
            () = stop.cancelled() => Err(()),
            () = self.shared.clock.sleep(HANDSHAKE_WITHIN) => {
                self.unproxied(peer, &"no PROXY header came in time");
                Err(())
            }
        }
    }

    /// A transport is closed since nobody knows where it comes from: counted, and said now and then.
    fn unproxied(&self, peer: IpAddr, why: &dyn fmt::Display) {
        self.accepts.unproxied.inc();
        if self.partings.unproxied.is_due(0, self.shared.clock.now()) {
            let count = self.accepts.unproxied.get();
            tracing::warn!(%peer, count, "a transport without a good PROXY header is closed: {why}");
        }
    }

    /// Answers the requests of one transport until it becomes a WebSocket or ends.
    async fn serve(self: Arc<Self>, stream: Stream, caller: Caller) {
        let stop = self.tasks.token();
        let entered = tokio::select! {
            biased;
            entered = self.door.enter(stream, caller.peer) => entered,
            () = stop.cancelled() => return,
        };
        let stream = match entered {
            Ok(Entered { stream, .. }) => stream,
            Err(Turned::Late) => return self.accepts.late.inc(),
            Err(Turned::Crowded | Turned::Away) => return,
        };
        let (this, caller) = (Arc::clone(&self), Arc::new(caller));
        let asking = Arc::clone(&caller);
        let service = service_fn(move |request| {
            let (this, caller) = (Arc::clone(&this), Arc::clone(&asking));
            caller.asked.store(true, Ordering::Relaxed);
            async move { Ok::<_, Infallible>(answer::last(this.answer(request, &caller).await)) }
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HANDSHAKE_WITHIN)
            .max_buf_size(REQUEST_HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let (served, timed_out) = tokio::select! {
            biased;
            served = serving => {
                let timed_out = served.as_ref().is_err_and(hyper::Error::is_timeout);
                (served, timed_out)
            }
            () = stop.cancelled() => (Ok(()), false),
            () = self.shared.clock.sleep(REQUESTS_WITHIN) => (Ok(()), true),
        };
        if timed_out && !caller.asked.load(Ordering::Relaxed) {
            self.accepts.late.inc();
        }
        if let Err(error) = served {
            tracing::debug!(%error, "a request failed");
        }
    }

    async fn answer(self: Arc<Self>, mut request: Request<Incoming>, caller: &Caller) -> Response<Body> {
        if let (Err(away), false) = (&caller.place, request.uri().path() == WS_PATH) {
            return answer::turned_away(*away);
        }
        let is_read = request.method() == Method::GET || request.method() == Method::HEAD;
        match (request.uri().path(), &self.extra) {
            (WS_PATH, _) => self.upgrade(&mut request, caller),
            ("/presence.js", _) if is_read => answer::browser_client(request.headers()),
            ("/presence.js", _) => answer::text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n"),
            (_, Some(ExtraHttp(extra))) => extra(request).await,
            (_, None) => {
                answer::text(StatusCode::NOT_FOUND, "there are /v1/ws (a WebSocket) and /presence.js\n")
            }
        }
    }

    fn upgrade(self: Arc<Self>, request: &mut Request<Incoming>, caller: &Caller) -> Response<Body> {
        let is_of_a_page = request.headers().contains_key(ORIGIN);
        let address = caller.address.or_else(|| self.whence.of_headers(request.headers()));
        let accepted = match handshake::accept(request, &self.origins) {
            Ok(accepted) => accepted,
            Err(refused) => {
                self.accepts.refused.inc();
                return answer::refusal(refused);
            }
        };
        let places = match self.admit(caller, address) {
            Ok(places) => places,
            Err(away) => return self.turn_away(accepted, is_of_a_page, away),
        };
        let Accepted { response, encoding, upgrade } = accepted;
        let (this, id) = (Arc::clone(&self), caller.id);
        self.tasks.spawn_one_of_many("upgrade", async move {
            match upgrade.await {
                Ok(upgraded) => this.open(upgraded, (id, encoding), (places, address)),
                Err(error) => tracing::debug!(%error, "a handshake was not finished"),
            }
        });
        response.map(answer::boxed)
    }

    /// Whether one more may come in from here. Counts who may not, if that is not counted yet.
    fn admit(&self, caller: &Caller, address: Option<IpAddr>) -> Result<Places, TurnedAway> {
        let now = self.shared.clock.now();
        let count = |away: &TurnedAway| self.accepts.turned_away(away.cause);
        let of_address = match (&caller.place, caller.address) {
            (Err(away), _) => return Err(*away),
            (Ok(place), Some(_)) => place.clone(),
            // Only the request has told where its client is.
            (Ok(_), None) if self.whence.trusts(caller.peer) => {
                self.admission.enter(address, now).inspect_err(count)?
            }
            (Ok(_), None) => None,
        };
        let place = self.admission.admit(address, now).inspect_err(count)?;
        Ok((place, of_address))
    }

    fn open(
        &self,
        upgraded: Upgraded,
        who: (ConnectionId, Encoding),
        (places, address): (Places, Option<IpAddr>),
    ) {
        let Some((stream, read)) = away::transport(upgraded) else { return };
        self.accepts.accepted.inc();
        let shared = Arc::clone(&self.shared);
        // Copied and dropped: even when empty it holds on to the 8 KiB it was read into.
        let connection = Connection::new(stream, &read, who, shared, (Some(places), address));
        drop(read);
        self.tasks.spawn_one_of_many("connection", connection);
    }
}
