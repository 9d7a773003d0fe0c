//! The only place sockets are made.
//!
//! A [`Network`] is handed to whoever listens or connects: TCP in binaries, anything that implements
//! [`Simulated`] in a simulation. Streams are an enum, so that the TCP path costs no allocation.

mod places;
mod stream;
mod tcp;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::tls::ClientTls;

pub use self::places::{Ear, Place, Places};
pub use self::stream::{Duplex, Stream};
use self::tcp::TcpAcceptor;

/// Where sockets come from. Cheap to clone.
#[derive(Clone)]
pub struct Network {
    kind: Kind,
    tls: Option<ClientTls>,
}

#[derive(Clone)]
enum Kind {
    Tcp,
    Simulated(Arc<dyn Simulated>),
}

/// A network that is not the kernel's.
pub trait Simulated: Send + Sync + 'static {
    /// Listens; port 0 picks a free one. The address given back is the one in force.
    ///
    /// # Errors
    /// As the kernel would: address in use, not available.
    fn listen(&self, address: SocketAddr) -> io::Result<(SocketAddr, Box<dyn Accept>)>;

    /// Connects to `host:port`.
    fn connect(&self, target: String) -> BoxFuture<'static, io::Result<Box<dyn Duplex>>>;

    /// The addresses of `host:port`. Unless a simulation has names, only digits have one.
    fn resolve(&self, target: String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let found = target.parse().map_err(|_| io::ErrorKind::NotFound.into());
        Box::pin(std::future::ready(found.map(|address| vec![address])))
    }
}

/// The accepting side of a simulated listener. `accept` must be cancel-safe.
pub trait Accept: Send + Sync + 'static {
    /// The next connection and where it comes from.
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Duplex>, SocketAddr)>>;
}

impl Network {
    /// The kernel's TCP.
    #[must_use]
    pub fn tcp() -> Self {
        Self { kind: Kind::Tcp, tls: None }
    }

    /// A simulated one.
    #[must_use]
    pub fn simulated(network: Arc<dyn Simulated>) -> Self {
        Self { kind: Kind::Simulated(network), tls: None }
    }

    /// The same, which can connect by TLS as well.
    #[must_use]
    pub fn with_tls(self, tls: ClientTls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Listens on an address; port 0 picks a free one (see [`Listener::local_addr`]).
    ///
    /// The address may be reused at once after a restart; the backlog is
    /// [`LISTEN_BACKLOG`](crate::limits::LISTEN_BACKLOG). Must be called inside a runtime.
    ///
    /// # Errors
    /// Address in use or not available, no permission, no descriptors left.
    pub fn listen(&self, address: SocketAddr) -> io::Result<Listener> {
        match &self.kind {
            Kind::Tcp => {
                let acceptor = TcpAcceptor::bind(address)?;
                let address = acceptor.local_addr()?;
                Ok(Listener { address, acceptor: Acceptor::Tcp(acceptor) })
            }
            Kind::Simulated(network) => {
                let (address, acceptor) = network.listen(address)?;
                Ok(Listener { address, acceptor: Acceptor::Simulated(acceptor) })
            }
        }
    }

    /// Connects to `host:port`, without delay of small writes. Has no time-out of its own. Cancel-safe.
    ///
    /// # Errors
    /// Name not found, refused, unreachable.
    pub async fn connect(&self, target: &str) -> io::Result<Stream> {
        match &self.kind {
            Kind::Tcp => Ok(Stream::Tcp(tcp::connect(target).await?)),
            Kind::Simulated(network) => Ok(Stream::Simulated(network.connect(target.to_owned()).await?)),
        }
    }

    /// Connects to `host:port` and speaks TLS, if that host proves its name. Has no time-out of its own. Cancel-safe.
    ///
    /// # Errors
    /// As [`Network::connect`], and what is wrong with its certificate, or ours. `Unsupported` without
    /// [`Network::with_tls`].
    pub async fn connect_tls(&self, target: &str, host: &str) -> io::Result<Stream> {
        let nobody = || io::Error::new(io::ErrorKind::Unsupported, "nothing says whom to trust by TLS");
        let tls = self.tls.clone().ok_or_else(nobody)?;
        tls.connect(host, self.connect(target).await?).await
    }

    /// The addresses of `host:port`: several, if the name stands for several. Has no time-out of its own.
    ///
    /// # Errors
    /// Name not found, or nobody to ask.
    pub async fn resolve(&self, target: &str) -> io::Result<Vec<SocketAddr>> {
        match &self.kind {
            Kind::Tcp => tcp::resolve(target).await,
            Kind::Simulated(network) => network.resolve(target.to_owned()).await,
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.kind {
            Kind::Tcp => "Network(tcp)",
            Kind::Simulated(_) => "Network(simulated)",
        })
    }
}

/// Accepts connections; dropping it frees the address.
pub struct Listener {
    address: SocketAddr,
    acceptor: Acceptor,
}

enum Acceptor {
    Tcp(TcpAcceptor),
    Simulated(Box<dyn Accept>),
}

impl Listener {
    /// The address in force, with the port that was picked.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The next connection and where it comes from. Cancel-safe.
    ///
    /// Connections that broke before they were accepted are skipped; while descriptors or memory are
    /// short it pauses and tries again, so an accept loop never spins and never ends for that.
    ///
    /// # Errors
    /// Only when this listener can never accept again.
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        match &self.acceptor {
            Acceptor::Tcp(acceptor) => {
                let (stream, peer) = acceptor.accept().await?;
                Ok((Stream::Tcp(stream), peer))
            }
            Acceptor::Simulated(acceptor) => {
                let (stream, peer) = acceptor.accept().await?;
                Ok((Stream::Simulated(stream), peer))
            }
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({})", self.address)
    }
}

#[cfg(test)]
mod tests;
