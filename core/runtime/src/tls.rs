//! TLS, written once: whoever listens has a [`Door`], whoever connects has a [`ClientTls`] in its
//! [`Network`](crate::network::Network).
//!
//! | what | start here |
//! |---|---|
//! | certificates of a listener, by name, and who signs those of its clients | [`ServerFiles`], [`ServerTls`] |
//! | whom to trust when connecting, and as whom to go | [`ClientFiles`], [`ClientTls`] |
//! | handshakes with a deadline and a bound, in plain as well | [`Door`] |
//! | who a client is by its certificate | [`PeerNames`] |
//!
//! Versions 1.2 and 1.3, cryptography of ring. Files are followed: new ones count for connections that begin
//! from then on, and those that stand go on.

mod client;
mod door;
mod ends;
mod files;
mod names;
mod server;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub(crate) use self::client::system_trusts_somebody;
pub use self::client::{ClientFiles, ClientReload, ClientTls, HostError};
pub use self::door::{Door, Entered, Turned};
pub(crate) use self::ends::Ends;
pub(crate) use self::files::check_authority;
pub use self::files::{BadFile, CertificateFiles, FileFault, Moment, Role};
pub use self::names::PeerNames;
pub use self::server::{Clients, Demand, ServerFiles, ServerReload, ServerTls};

/// What is spoken inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, which WebSockets begin with.
    Http1,
    /// HTTP/2, which gRPC goes over.
    Http2,
}

impl Protocol {
    /// Its name in the handshake (ALPN).
    fn alpn(self) -> Vec<Vec<u8>> {
        let name: &[u8] = match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        };
        vec![name.to_vec()]
    }
}

/// The one provider, given to each configuration: none is installed for the process.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[cfg(test)]
pub(crate) mod tests;
