//! Serving gRPC on a listener until told to stop.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::Connected;

use super::observe::RequestObserver;
use crate::clock::Clock;
use crate::network::{Listener, Stream};

/// How a server behaves towards its peers.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// How often an idle peer is pinged at the HTTP/2 level.
    pub keepalive_interval: Duration,
    /// After how long without an answer to a ping a peer is dropped.
    pub keepalive_timeout: Duration,
    /// How long open requests and streams may go on after the end began; then connections are cut.
    pub drain_within: Duration,
}

impl Default for ServerSettings {
    /// Pinged every 10 s, dropped after 5 s more, 5 s to drain.
    fn default() -> Self {
        Self {
            keepalive_interval: Duration::from_secs(10),
            keepalive_timeout: Duration::from_secs(5),
            drain_within: Duration::from_secs(5),
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

/// Serves until `shutdown`, then stops accepting, lets what is open end within `drain_within`, and cuts
/// what has not. When it returns, no connection of this listener is left.
///
/// A bidirectional stream does not end by itself: its service should end it on the same token.
///
/// # Errors
/// [`ServeError`] if the server fails by itself.
pub async fn serve(
    listener: Listener,
    routes: Routes,
    settings: ServerSettings,
    observer: RequestObserver,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let cut = CancellationToken::new();
    let clock = observer.clock().clone();
    let server = Server::builder()
        .http2_keepalive_interval(Some(settings.keepalive_interval))
        .http2_keepalive_timeout(Some(settings.keepalive_timeout))
        .layer(observer)
        .add_routes(routes)
        .serve_with_incoming_shutdown(connections(listener, cut.clone()), shutdown.clone().cancelled_owned());
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

fn connections(
    listener: Listener,
    cut: CancellationToken,
) -> impl futures::Stream<Item = io::Result<Connection>> {
    stream::unfold((listener, cut), |(listener, cut)| async move {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let connection = Connection { stream, peer, cut: Box::pin(cut.clone().cancelled_owned()) };
                Some((Ok(connection), (listener, cut)))
            }
            Err(error) => {
                tracing::error!(%error, "the gRPC listener is closed");
                None
            }
        }
    })
}

/// A connection that can be cut from outside: the server library spawns tasks that nobody else can end.
struct Connection {
    stream: Stream,
    peer: SocketAddr,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Connection {
    fn poll_cut(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = PeerAddress;

    fn connect_info(&self) -> PeerAddress {
        PeerAddress(self.peer)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_cut(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_cut(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_cut(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_cut(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
