//! Sockets of the kernel.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::limits::{ACCEPT_PAUSE, ACCEPT_PAUSES_TOLD, ACCEPTS_WELL, LISTEN_BACKLOG, UNSENT_BYTES_MAX};

pub(super) struct TcpAcceptor {
    listener: TcpListener,
    /// Pauses since accepting last went well for a while.
    pauses: AtomicU32,
    /// Accepted since the last pause.
    since: AtomicU32,
}

impl TcpAcceptor {
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(LISTEN_BACKLOG)?;
        Ok(Self { listener, pauses: AtomicU32::new(0), since: AtomicU32::new(0) })
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub(super) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    if self.since.fetch_add(1, Ordering::Relaxed) >= ACCEPTS_WELL {
                        self.pauses.store(0, Ordering::Relaxed);
                    }
                    // Fails only on a connection that is already gone; reading will say so.
                    let _ = stream.set_nodelay(true).and_then(|()| bound_unsent(&stream));
                    return Ok((stream, peer));
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => {
                    self.since.store(0, Ordering::Relaxed);
                    // Each descriptor that is given back lets one more in, and ends nothing.
                    if self.pauses.fetch_add(1, Ordering::Relaxed).is_multiple_of(ACCEPT_PAUSES_TOLD) {
                        tracing::warn!(%error, "cannot accept connections now, trying again");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// What a peer does not read waits here, where newer takes the place of older, and not in the kernel.
#[cfg(target_os = "linux")]
fn bound_unsent(stream: &TcpStream) -> io::Result<()> {
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)
}

#[cfg(not(target_os = "linux"))]
fn bound_unsent(_: &TcpStream) -> io::Result<()> {
    Ok(())
}

pub(super) async fn connect(target: &str) -> io::Result<TcpStream> {
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    let stream = TcpStream::connect(target).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

pub(super) async fn resolve(target: &str) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host(target).await?.collect())
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

fn is_final(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}
