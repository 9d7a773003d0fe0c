//! Shells of a gRPC server and a gRPC client over a [`Network`](crate::network::Network).
//!
//! Keep-alive finds dead peers, every end is bounded, and each request is timed and logged once, by a
//! layer. What is served or called is the caller's.

mod client;
mod connection;
mod observe;
mod server;

pub use self::client::{
    ClientSettings, ConnectError, connect, connect_at, connect_lazy, is_in_the_clear, is_tls, target,
};
pub use self::observe::{Observed, RequestObserver};
pub use self::server::{PeerAddress, ServeError, ServerSettings, serve};

#[cfg(test)]
mod tests;
