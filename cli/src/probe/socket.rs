//! A WebSocket to an edge, as any client has one: `docs/protocol.md` in JSON.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use fastwebsockets::{CloseCode, FragmentCollector, Frame, OpCode, Payload, WebSocketError};
use http::header::{
    CONNECTION, HOST, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::uri::Scheme;
use http::{Request, Uri};
use http_body_util::Empty;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo};
use presence_runtime::network::Network;
use serde_json::Value;

use super::ProbeError;

/// The path of WebSockets, where an address names none.
const PATH: &str = "/v1/ws";
/// What is spoken.
const SUBPROTOCOL: &str = "presence.v1.json";
/// No frame of an edge is larger: a page of a list.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Where an edge is: `ws://host[:port][/path]`, or `wss` for TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EdgeAddress {
    uri: Uri,
    /// `host:port`.
    target: String,
    /// For its certificate.
    host: String,
    is_tls: bool,
}

impl EdgeAddress {
    /// Whether TLS is spoken there.
    pub(crate) fn is_tls(&self) -> bool {
        self.is_tls
    }
}

impl fmt::Display for EdgeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(f)
    }
}

impl FromStr for EdgeAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || "is no address of an edge; example: wss://presence.example or ws://127.0.0.1:4700".to_owned();
        let given: Uri = text.parse().map_err(|_| wrong())?;
        let (scheme, port) = match given.scheme_str() {
            Some("ws") => (Scheme::HTTP, 80),
            Some("wss") => (Scheme::HTTPS, 443),
            Some(_) | None => return Err(wrong()),
        };
        let host = given.host().filter(|host| !host.is_empty() && !text.contains('@')).ok_or_else(wrong)?;
        let path = if given.path() == "/" { PATH } else { given.path() };
        let uri = Uri::builder()
            .scheme(given.scheme_str().unwrap_or_default())
            .authority(given.authority().map_or(host, |authority| authority.as_str()))
            .path_and_query(path)
            .build()
            .map_err(|_| wrong())?;
        let target = format!("{host}:{}", given.port_u16().unwrap_or(port));
        let is_tls = scheme == Scheme::HTTPS;
        Ok(Self { uri, target, host: host.to_owned(), is_tls })
    }
}

/// An open one.
pub(super) struct Socket(FragmentCollector<TokioIo<Upgraded>>);

impl Socket {
    /// Connects, and shakes hands.
    pub(super) async fn open(network: &Network, at: &EdgeAddress) -> Result<Self, ProbeError> {
        let unreachable = |error: std::io::Error| ProbeError::Unreachable(error.to_string());
        let stream = if at.is_tls {
            network.connect_tls(&at.target, &at.host).await.map_err(unreachable)?
        } else {
            network.connect(&at.target).await.map_err(unreachable)?
        };
        let request = Request::get(at.uri.path())
            .header(HOST, at.uri.authority().map_or(at.target.as_str(), |authority| authority.as_str()))
            .header(UPGRADE, "websocket")
            .header(CONNECTION, "upgrade")
            .header(SEC_WEBSOCKET_KEY, fastwebsockets::handshake::generate_key())
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL)
            .body(Empty::<Bytes>::new())
            .map_err(|error| ProbeError::Unreachable(error.to_string()))?;
        let shaken = fastwebsockets::handshake::client(&TokioExecutor::new(), request, stream).await;
        let (mut socket, _) = shaken.map_err(|error| no_handshake(&error))?;
        socket.set_max_message_size(MESSAGE_BYTES_MAX);
        Ok(Self(FragmentCollector::new(socket)))
    }

    pub(super) async fn say(&mut self, message: &Value) -> Result<(), ProbeError> {
        let text = message.to_string().into_bytes();
        self.0.write_frame(Frame::text(Payload::Owned(text))).await.map_err(|error| lost(&error))
    }

    /// The next message; pings are answered meanwhile. Not cancel-safe: a frame half read is lost with the stream.
    pub(super) async fn hear(&mut self) -> Result<Value, ProbeError> {
        loop {
            let frame = self.0.read_frame().await.map_err(|error| lost(&error))?;
            match frame.opcode {
                OpCode::Text => {
                    let read = serde_json::from_slice(&frame.payload);
                    return read.map_err(|error| ProbeError::NotAnEdge(error.to_string()));
                }
                OpCode::Close => return Err(closed(&frame.payload)),
                OpCode::Binary | OpCode::Ping | OpCode::Pong | OpCode::Continuation => {}
            }
        }
    }

    /// Closes it as whoever has said goodbye does.
    pub(super) async fn close(mut self) {
        // Whoever does not hear it sees the connection end.
        let closing = self.0.write_frame(Frame::close(CloseCode::Normal.into(), b""));
        let _ = tokio::time::timeout(Duration::from_secs(1), closing).await;
    }
}

fn no_handshake(error: &WebSocketError) -> ProbeError {
    let WebSocketError::InvalidStatusCode(status) = error else {
        return ProbeError::Unreachable(error.to_string());
    };
    match status {
        429 | 503 => ProbeError::Busy(format!("it takes nobody more now: HTTP status {status}")),
        _ => ProbeError::NotAnEdge(format!("it answers the handshake with HTTP status {status}")),
    }
}

fn lost(error: &WebSocketError) -> ProbeError {
    ProbeError::Unreachable(format!("the connection is lost: {error}"))
}

/// What a close frame says.
fn closed(payload: &[u8]) -> ProbeError {
    let (code, reason) = payload
        .split_first_chunk::<2>()
        .map_or((1005, &[][..]), |(code, reason)| (u16::from_be_bytes(*code), reason));
    let why = format!("it closes with {code} {}", String::from_utf8_lossy(reason));
    match code {
        1001 | 1012 | 1013 | 4429 => ProbeError::Busy(why),
        _ => ProbeError::Refused(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_a_host_and_what_is_usual_besides() {
        let table = [
            ("ws://127.0.0.1:4700", "127.0.0.1:4700", "ws://127.0.0.1:4700/v1/ws", false),
            ("ws://localhost/", "localhost:80", "ws://localhost/v1/ws", false),
            ("wss://presence.example", "presence.example:443", "wss://presence.example/v1/ws", true),
            (
                "wss://presence.example/here/v1/ws",
                "presence.example:443",
                "wss://presence.example/here/v1/ws",
                true,
            ),
            ("wss://[::1]:4443", "[::1]:4443", "wss://[::1]:4443/v1/ws", true),
        ];
        for (text, target, shown, is_tls) in table {
            let address: EdgeAddress = text.parse().unwrap();
            assert_eq!((address.target.as_str(), address.is_tls), (target, is_tls), "{text}");
            assert_eq!(address.to_string(), shown);
        }
        for text in ["", "127.0.0.1:4700", "http://a:1", "ws://", "wss://u:p@a", "ws:///v1/ws", "ws://a b"] {
            let told = text.parse::<EdgeAddress>().unwrap_err();
            assert!(told.contains("example: wss://"), "{text}: {told}");
        }
    }

    #[test]
    fn what_a_close_says_is_to_try_again_or_not() {
        let with = |code: u16| closed(&[&code.to_be_bytes()[..], b"why"].concat());
        assert!(matches!(with(1012), ProbeError::Busy(why) if why == "it closes with 1012 why"));
        assert!(matches!(with(4401), ProbeError::Refused(_)));
        assert!(matches!(closed(&[]), ProbeError::Refused(why) if why.starts_with("it closes with 1005")));
    }
}
