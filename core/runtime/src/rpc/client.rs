//! Connecting to a gRPC server.

use std::time::Duration;

use http::uri::Scheme;
use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::exposure::is_loopback;
use crate::limits::{RPC_CONNECTION_WINDOW_BYTES, RPC_STREAM_WINDOW_BYTES};
use crate::network::Network;

/// How a client behaves towards its server.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// How long connecting may take.
    pub connect_within: Duration,
    /// How often the server is pinged, also while nothing is asked.
    pub keepalive_interval: Duration,
    /// After how long without an answer to a ping the connection is given up.
    pub keepalive_timeout: Duration,
}

impl Default for ClientSettings {
    /// 2 s to connect, pinged every 5 s, given up after 5 s more.
    fn default() -> Self {
        Self {
            connect_within: Duration::from_secs(2),
            keepalive_interval: Duration::from_secs(5),
            keepalive_timeout: Duration::from_secs(5),
        }
    }
}

/// No connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Neither `http://host:port` nor `https://host:port`.
    #[error("{url:?} is not a server address such as http://127.0.0.1:4701 or https://core.example:4701")]
    Address {
        /// As given.
        url: String,
    },
    /// Nobody answers there, or not in time. May be tried again.
    #[error("{url}: {cause}")]
    Unreachable {
        /// As given.
        url: String,
        /// What the network said.
        cause: String,
    },
}

/// Connects now. The channel connects again by itself when it is used after a loss.
///
/// # Errors
/// [`ConnectError`].
pub async fn connect(
    network: &Network,
    url: &str,
    settings: &ClientSettings,
) -> Result<Channel, ConnectError> {
    connect_at(network, (url, None), settings).await
}

/// The same, to one of the addresses that the URL's name stands for (`10.0.0.7:4701`); none: to any.
///
/// # Errors
/// [`ConnectError`].
pub async fn connect_at(
    network: &Network,
    (url, address): (&str, Option<&str>),
    settings: &ClientSettings,
) -> Result<Channel, ConnectError> {
    let connector = connector(network.clone(), url, address);
    let connected = endpoint(url, settings)?.connect_with_connector(connector).await;
    connected.map_err(|error| ConnectError::Unreachable { url: url.to_owned(), cause: innermost(&error) })
}

/// `host:port` of a server's URL; an IPv6 host keeps its brackets. None if it is not such a URL, or one that says
/// more: a user, a path or a query would be ignored, and whoever wrote it meant something by it. `https` says that TLS is
/// spoken there.
#[must_use]
pub fn target(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    let bare = uri.path() == "/" && uri.query().is_none() && !url.contains(['@', '#']);
    let is_address = matches!(uri.scheme_str(), Some("http" | "https")) && bare && uri.port_u16() != Some(0);
    is_address.then(|| target_of(&uri)).flatten()
}

/// Whether TLS is spoken at a server's URL.
#[must_use]
pub fn is_tls(url: &str) -> bool {
    url.parse::<Uri>().is_ok_and(|uri| uri.scheme() == Some(&Scheme::HTTPS))
}

/// Whether what is said to a server's URL can be read, and changed, on the way: without TLS, beyond loopback.
#[must_use]
pub fn is_in_the_clear(url: &str) -> bool {
    let here = |uri: Uri| uri.host().is_some_and(|host| is_loopback(host.trim_matches(['[', ']'])));
    !is_tls(url) && !url.parse().is_ok_and(here)
}

/// A channel that connects when it is first used.
///
/// # Errors
/// [`ConnectError::Address`].
pub fn connect_lazy(
    network: &Network,
    url: &str,
    settings: &ClientSettings,
) -> Result<Channel, ConnectError> {
    Ok(endpoint(url, settings)?.connect_with_connector_lazy(connector(network.clone(), url, None)))
}

fn endpoint(url: &str, settings: &ClientSettings) -> Result<Endpoint, ConnectError> {
    let malformed = || ConnectError::Address { url: url.to_owned() };
    target(url).ok_or_else(malformed)?;
    let origin: Uri = url.parse().map_err(|_| malformed())?;
    // The library would do TLS by itself, and knows nothing of ours: it is only told the origin.
    let mut parts = origin.clone().into_parts();
    parts.scheme = Some(Scheme::HTTP);
    let uri = Uri::from_parts(parts).map_err(|_| malformed())?;
    Ok(Endpoint::from(uri)
        .origin(origin)
        .connect_timeout(settings.connect_within)
        .initial_stream_window_size(RPC_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(RPC_CONNECTION_WINDOW_BYTES)
        .http2_keep_alive_interval(settings.keepalive_interval)
        .keep_alive_timeout(settings.keepalive_timeout)
        .keep_alive_while_idle(true))
}

fn connector(
    network: Network,
    url: &str,
    address: Option<&str>,
) -> impl tower::Service<
    Uri,
    Response = TokioIo<crate::network::Stream>,
    Error = std::io::Error,
    Future = impl Future<Output = std::io::Result<TokioIo<crate::network::Stream>>> + Send + use<>,
> + Send
+ use<>
+ 'static {
    let (is_tls, address) = (is_tls(url), address.map(str::to_owned));
    tower::service_fn(move |uri: Uri| {
        let (network, address) = (network.clone(), address.clone());
        async move {
            let target = match address {
                Some(address) => address,
                None => target_of(&uri).ok_or(std::io::ErrorKind::InvalidInput)?,
            };
            let stream = if is_tls {
                network.connect_tls(&target, uri.host().unwrap_or_default()).await
            } else {
                network.connect(&target).await
            };
            stream.map(TokioIo::new)
        }
    })
}

fn target_of(uri: &Uri) -> Option<String> {
    let host = uri.host().filter(|host| !host.is_empty())?;
    Some(format!("{host}:{}", uri.port_u16()?))
}

fn innermost(error: &tonic::transport::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_this_machine_without_tls_is_in_the_clear() {
        for url in [
            "http://core:4701",
            "http://10.0.0.1:4701",
            "http://[fd00::1]:4701",
            "http://localhost.example:1",
        ] {
            assert!(is_in_the_clear(url), "{url}");
        }
        for url in [
            "https://core:4701",
            "http://localhost:1",
            "http://127.1.2.3:1",
            "http://[::1]:1",
            "http://[::ffff:127.0.0.1]:1",
        ] {
            assert!(!is_in_the_clear(url), "{url}");
        }
    }

    #[test]
    fn an_address_is_a_host_and_a_port_and_nothing_else() {
        for (url, there) in [
            ("http://a:1", "a:1"),
            ("http://a:1/", "a:1"),
            ("http://127.0.0.1:65535", "127.0.0.1:65535"),
            ("http://[::1]:4701", "[::1]:4701"),
            ("https://a:1", "a:1"),
        ] {
            assert_eq!(target(url).as_deref(), Some(there));
        }
        for url in [
            "http://a:1/path?x",
            "http://a:1/path",
            "http://a:1?x",
            "http://a:1/?x",
            "http://a:1#x",
            "http://u:p@a:1",
            "http://a",
            "http://a:",
            "http://a:0",
            "http://a:65536",
            "http://:1",
            "a:1",
            "https://a",
            "ftp://a:1",
            "http://",
            "http://a:1,http://b:1",
            "http://a b:1",
            "",
        ] {
            assert_eq!(target(url), None, "{url}");
        }
    }
}
