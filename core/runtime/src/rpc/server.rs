//! Serving gRPC on a listener until told to stop.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::stream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;

use super::connection::{Connection, Patience};
use super::observe::RequestObserver;
use crate::clock::Clock;
use crate::limits::{
    RPC_ANSWER_WITHIN, RPC_CONNECTION_WINDOW_BYTES, RPC_CONNECTIONS_MAX, RPC_PREFACE_WITHIN,
    RPC_REQUEST_WITHIN, RPC_STREAM_WINDOW_BYTES, RPC_STREAMS_MAX,
};
use crate::network::{Listener, Place, Places, Stream};
use crate::tls::Door;

/// How a server behaves towards its peers.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// How often an idle peer is pinged at the HTTP/2 level.
    pub keepalive_interval: Duration,
    /// After how long without an answer to a ping a peer is dropped.
    pub keepalive_timeout: Duration,
    /// How long open requests and streams may go on after the end began; then connections are cut.
    pub drain_within: Duration,
    /// Connections at once. For one more the one that has asked for nothing for the longest gives way; if
    /// all have asked for something, the new one is closed.
    pub connections_max: usize,
}

impl Default for ServerSettings {
    /// Pinged every 10 s, dropped after 5 s more, 5 s to drain, [`RPC_CONNECTIONS_MAX`] connections.
    fn default() -> Self {
        Self {
            keepalive_interval: Duration::from_secs(10),
            keepalive_timeout: Duration::from_secs(5),
            drain_within: Duration::from_secs(5),
            connections_max: RPC_CONNECTIONS_MAX,
        }
    }
}

/// A server ended by itself.
#[derive(Debug, thiserror::Error)]
#[error("the gRPC server failed: {0}")]
pub struct ServeError(#[source] tonic::transport::Error);

/// Where a request comes from: in the extensions of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddress(pub SocketAddr);

/// Serves what comes in by the door until `shutdown`, then stops accepting, lets what is open end within `drain_within`, and cuts
/// what has not. When it returns, no connection of this listener is left.
///
/// Every request carries a [`PeerAddress`] and the [`PeerNames`](crate::tls::PeerNames) of its peer.
///
/// A connection must speak HTTP/2 within [`RPC_PREFACE_WITHIN`] and make a request within
/// [`RPC_REQUEST_WITHIN`]; each request must have arrived, and its answer begun, within
/// [`RPC_ANSWER_WITHIN`]. A bidirectional stream does not end by itself: its service should end it on the
/// same token.
///
/// # Errors
/// [`ServeError`] if the server fails by itself.
pub async fn serve(
    (listener, door): (Listener, Door),
    routes: Routes,
    settings: ServerSettings,
    observer: RequestObserver,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let cut = CancellationToken::new();
    let clock = observer.clock().clone();
    let accepting = Accepting {
        listener,
        door,
        entering: JoinSet::new(),
        places: Places::new(settings.connections_max),
        clock: clock.clone(),
        cut: cut.clone(),
        is_full: false,
    };
    let server = Server::builder()
        .http2_keepalive_interval(Some(settings.keepalive_interval))
        .http2_keepalive_timeout(Some(settings.keepalive_timeout))
        .initial_stream_window_size(RPC_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(RPC_CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(RPC_STREAMS_MAX)
        .timeout(RPC_ANSWER_WITHIN)
        .layer(observer)
        .add_routes(routes)
        .serve_with_incoming_shutdown(accepting.connections(), shutdown.clone().cancelled_owned());
    let mut server = std::pin::pin!(server);
    tokio::select! {
        biased;
        served = &mut server => return served.map_err(ServeError),
        () = overdue(&clock, &shutdown, settings.drain_within) => {}
    }
    tracing::warn!("gRPC connections are cut: they had not ended in time");
    cut.cancel();
    server.await.map_err(ServeError)
}

async fn overdue(clock: &Clock, shutdown: &CancellationToken, within: Duration) {
    shutdown.cancelled().await;
    clock.sleep(within).await;
}

/// What accepts connections and gives each its place.
struct Accepting {
    listener: Listener,
    door: Door,
    /// Those who have a place and are not in yet; none: it gave up.
    entering: JoinSet<Option<Connection>>,
    places: Places,
    clock: Clock,
    cut: CancellationToken,
    /// It was told that there is no place, and not yet that there is again.
    is_full: bool,
}

impl Accepting {
    fn connections(self) -> impl futures::Stream<Item = io::Result<Connection>> {
        stream::unfold(self, |mut accepting| async move {
            loop {
                let accepted = tokio::select! {
                    biased;
                    Some(entered) = accepting.entering.join_next() => match entered {
                        Ok(Some(connection)) => return Some((Ok(connection), accepting)),
                        Ok(None) | Err(_) => continue,
                    },
                    accepted = accepting.listener.accept() => accepted,
                };
                match accepted {
                    Ok(accepted) => {
                        if let Some(place) = accepting.place() {
                            accepting.let_in(accepted, place);
                        }
                    }
                    Err(error) => {
                        tracing::error!(%error, "the gRPC listener is closed");
                        return None;
                    }
                }
            }
        })
    }

    fn place(&mut self) -> Option<Place> {
        let place = self.places.take();
        if place.is_none() && !self.is_full {
            tracing::warn!(connections = self.places.len(), "no place for another gRPC connection");
        }
        self.is_full = place.is_none();
        place
    }

    /// Has somebody come in who may take a while, beside the others.
    fn let_in(&mut self, (stream, address): (Stream, SocketAddr), place: Place) {
        let (door, clock, cut) = (self.door.clone(), self.clock.clone(), self.cut.clone());
        self.entering.spawn(async move {
            let entered = tokio::select! {
                biased;
                entered = door.enter(stream, address.ip()) => entered.ok()?,
                () = place.gives_way() => return None,
                () = cut.cancelled() => return None,
            };
            let patience = Patience { preface: RPC_PREFACE_WITHIN, request: RPC_REQUEST_WITHIN };
            Some(Connection::new((entered, address), place, (clock, patience), cut))
        });
    }
}
