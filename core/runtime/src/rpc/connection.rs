//! One accepted gRPC connection: it must speak HTTP/2 and ask for something in time, and can be cut from
//! outside, as the server library spawns tasks that nobody else can end.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Connected;

use crate::clock::Clock;
use crate::network::{Ear, Place, Stream};
use crate::tls::{Entered, PeerNames};

/// What an HTTP/2 client says first (RFC 9113, 3.4).
const PREFACE_BYTES: usize = 24;

/// How long a peer may say nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Until it has said that it speaks HTTP/2.
    pub(super) preface: Duration,
    /// Until its first request.
    pub(super) request: Duration,
}

/// What every request of a connection carries.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub(super) address: SocketAddr,
    pub(super) names: PeerNames,
    pub(super) ear: Ear,
}

/// An accepted connection, with its place.
pub(super) struct Connection {
    stream: Stream,
    caller: Caller,
    clock: Clock,
    patience: Patience,
    stage: Stage,
    /// Ready once it is to be cut: its place is needed, or everything ends.
    cut: BoxFuture<'static, ()>,
    _place: Place,
}

enum Stage {
    Preface { left: usize, late: BoxFuture<'static, ()> },
    Request { late: BoxFuture<'static, ()> },
    Served,
}

impl Connection {
    pub(super) fn new(
        (entered, address): (Entered, SocketAddr),
        place: Place,
        (clock, patience): (Clock, Patience),
        cut: CancellationToken,
    ) -> Self {
        let gives_way = place.gives_way();
        let cut = async move {
            tokio::select! {
                biased;
                () = gives_way => {}
                () = cut.cancelled_owned() => {}
            }
        };
        let late = after(&clock, patience.preface);
        Self {
            stream: entered.stream,
            caller: Caller { address, names: entered.names, ear: place.ear() },
            clock,
            patience,
            stage: Stage::Preface { left: PREFACE_BYTES, late },
            cut: cut.boxed(),
            _place: place,
        }
    }

    fn poll_cut(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.cut.poll_unpin(context) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }

    fn poll_late(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let late = match &mut self.stage {
            Stage::Request { .. } if self.caller.ear.has_heard() => {
                self.stage = Stage::Served;
                return Ok(());
            }
            Stage::Preface { late, .. } | Stage::Request { late } => late,
            Stage::Served => return Ok(()),
        };
        match late.poll_unpin(context) {
            Poll::Ready(()) => {
                tracing::debug!(peer = %self.caller.address, "a connection asked for nothing in time");
                Err(io::ErrorKind::TimedOut.into())
            }
            Poll::Pending => Ok(()),
        }
    }

    fn has_read(&mut self, bytes: usize) {
        if let Stage::Preface { left, .. } = &mut self.stage {
            *left = left.saturating_sub(bytes);
            if *left == 0 {
                self.stage = Stage::Request { late: after(&self.clock, self.patience.request) };
            }
        }
    }
}

fn after(clock: &Clock, span: Duration) -> BoxFuture<'static, ()> {
    let (clock, at) = (clock.clone(), clock.now() + span);
    async move { clock.sleep_until(at).await }.boxed()
}

impl Connected for Connection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_cut(context)?;
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.has_read(buffer.filled().len() - before);
        self.poll_late(context)?;
        read
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
