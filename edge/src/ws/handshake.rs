//! Decides whether a request becomes a WebSocket, and answers it.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, SEC_WEBSOCKET_KEY};
use http::header::{SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, TRANSFER_ENCODING};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::Empty;

use crate::protocol::Encoding;

/// Which pages may connect. Requests without `Origin` do not come from a page and always pass: the token is
/// what admits, this only keeps other sites' pages away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origins {
    /// Pages of the host that the request names, whatever the port.
    SameHost,
    /// Exactly these (`https://app.example`), or the same host.
    Listed(Vec<String>),
    /// Every page.
    Any,
}

impl Origins {
    fn admit(&self, headers: &HeaderMap) -> bool {
        let mut origins = headers.get_all(ORIGIN).iter();
        let origin = match (origins.next(), origins.next()) {
            (None, _) => return true,
            (Some(origin), None) => origin,
            (Some(_), Some(_)) => return false,
        };
        let listed = match self {
            Self::Any => return true,
            Self::SameHost => &[][..],
            Self::Listed(origins) => origins,
        };
        listed.iter().any(|one| one.as_bytes() == origin.as_bytes()) || is_same_host(origin, headers)
    }
}

/// Whether a browser may say this of a page: `scheme://host[:port]` in small letters, without a port that is the
/// scheme's own. Anything else would never match.
#[must_use]
pub fn is_origin(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else { return false };
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return false };
    let own_port = match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    };
    let port = authority.port_u16();
    let plain =
        port.map_or_else(|| authority.host().to_owned(), |port| format!("{}:{port}", authority.host()));
    !authority.host().is_empty()
        && !authority.host().contains('*')
        && (port.is_none() || port != own_port)
        && text == format!("{scheme}://{plain}")
        && text == text.to_ascii_lowercase()
}

/// Only what a browser would say counts, and only if the request names one host.
fn is_same_host(origin: &HeaderValue, headers: &HeaderMap) -> bool {
    let Some(host) = single(headers, &HOST) else { return false };
    let host_of = |text: &str| Some(text.parse::<Uri>().ok()?.host()?.to_ascii_lowercase());
    let (Ok(origin), Ok(host)) = (origin.to_str(), host.to_str()) else { return false };
    let is_of_the_web = origin.starts_with("http://") || origin.starts_with("https://");
    is_of_the_web && is_origin(origin) && host_of(origin).is_some_and(|origin| host_of(host) == Some(origin))
}

/// Why a request does not become a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Refused {
    /// Handshakes are GET.
    #[error("a WebSocket handshake is a GET request")]
    Method,
    /// An ordinary request.
    #[error("this path speaks WebSocket: connect with ws:// or wss://")]
    NotAnUpgrade,
    /// No host, or several.
    #[error("a request names one Host")]
    Host,
    /// A body, of which a proxy before may see another end.
    #[error("a WebSocket handshake has no body")]
    Body,
    /// Another version than 13.
    #[error("only WebSocket version 13 is spoken here")]
    Version,
    /// No key, or not 16 bytes in base64.
    #[error("Sec-WebSocket-Key must be 16 bytes in base64")]
    Key,
    /// Subprotocols were offered, none of ours among them.
    #[error("none of the offered subprotocols is spoken here; presence.v1.json and presence.v1.proto are")]
    Subprotocol,
    /// A page of another site.
    #[error("this Origin is not allowed")]
    Origin,
}

impl Refused {
    /// The status of the answer.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAnUpgrade | Self::Version => StatusCode::UPGRADE_REQUIRED,
            Self::Host | Self::Body | Self::Key | Self::Subprotocol => StatusCode::BAD_REQUEST,
            Self::Origin => StatusCode::FORBIDDEN,
        }
    }

    /// Headers that tell how to do better.
    #[must_use]
    pub const fn headers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Method => &[("allow", "GET")],
            Self::NotAnUpgrade | Self::Version => {
                &[("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")]
            }
            Self::Host | Self::Body | Self::Key | Self::Subprotocol | Self::Origin => &[],
        }
    }
}

/// A handshake that holds.
#[derive(Debug)]
pub struct Accepted {
    /// The answer, without a body.
    pub response: Response<Empty<Bytes>>,
    /// What was agreed on.
    pub encoding: Encoding,
    /// The transport, once the answer is sent.
    pub upgrade: hyper::upgrade::OnUpgrade,
}

/// Checks a request and makes the answer. Offered extensions are ignored.
///
/// # Errors
/// [`Refused`]; the request is as before.
pub fn accept<B>(request: &mut Request<B>, origins: &Origins) -> Result<Accepted, Refused> {
    if request.method() != Method::GET {
        return Err(Refused::Method);
    }
    if request.version() != Version::HTTP_11 || !fastwebsockets::upgrade::is_upgrade_request(request) {
        return Err(Refused::NotAnUpgrade);
    }
    let headers = request.headers();
    if single(headers, &HOST).is_none() {
        return Err(Refused::Host);
    }
    if headers.contains_key(TRANSFER_ENCODING) || headers.get_all(CONTENT_LENGTH).iter().any(|it| it != "0") {
        return Err(Refused::Body);
    }
    if single(headers, &SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(Refused::Version);
    }
    if !has_good_key(headers) {
        return Err(Refused::Key);
    }
    let (encoding, was_offered) = choose(headers)?;
    if !origins.admit(headers) {
        return Err(Refused::Origin);
    }
    // Taken first: what fastwebsockets would make of it is its own reader, with a buffer we do not want.
    let upgrade = hyper::upgrade::on(&mut *request);
    let (mut response, _) = fastwebsockets::upgrade::upgrade(request).map_err(|_| Refused::Key)?;
    if was_offered {
        let name = HeaderValue::from_static(encoding.name());
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, name);
    }
    Ok(Accepted { response, encoding, upgrade })
}

/// What a header says that is there once.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

fn has_good_key(headers: &HeaderMap) -> bool {
    use base64::Engine as _;
    let Some(key) = single(headers, &SEC_WEBSOCKET_KEY) else { return false };
    base64::engine::general_purpose::STANDARD.decode(key.as_bytes()).is_ok_and(|bytes| bytes.len() == 16)
}

/// The first of our subprotocols among those offered, and whether any was offered.
fn choose(headers: &HeaderMap) -> Result<(Encoding, bool), Refused> {
    let mut was_offered = false;
    for offer in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
        for name in offer.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            was_offered = true;
            if let Some(ours) = Encoding::ALL.into_iter().find(|ours| ours.name().as_bytes() == name) {
                return Ok((ours, true));
            }
        }
    }
    if was_offered { Err(Refused::Subprotocol) } else { Ok((Encoding::default(), false)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(change: impl FnOnce(http::request::Builder) -> http::request::Builder) -> Request<()> {
        let builder = Request::get("/v1/ws")
            .header("Host", "edge.example:4711")
            .header("Connection", "keep-alive, Upgrade")
            .header("Upgrade", "WebSocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("Sec-WebSocket-Extensions", "permessage-deflate");
        change(builder).body(()).unwrap()
    }

    fn refusal(mut request: Request<()>, origins: &Origins) -> Option<Refused> {
        accept(&mut request, origins).err()
    }

    #[test]
    fn a_good_request_is_answered_as_the_standard_says() {
        let accepted = accept(&mut request(|r| r), &Origins::SameHost).unwrap();
        let headers = accepted.response.headers();
        assert_eq!(accepted.response.status(), StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(headers["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(!headers.contains_key("sec-websocket-protocol"), "none was offered");
        assert!(!headers.contains_key("sec-websocket-extensions"));
    }

    #[test]
    fn our_subprotocol_is_chosen_among_others_and_unknown_ones_alone_are_refused() {
        let offering = |names: &'static [&str]| {
            request(|r| names.iter().fold(r, |r, n| r.header("Sec-WebSocket-Protocol", *n)))
        };
        for (names, encoding) in [
            (&["presence.v1.json"][..], Encoding::Json),
            (&["x, presence.v1.json, presence.v1.proto"], Encoding::Json),
            (&["x", "presence.v1.json"], Encoding::Json),
            (&["presence.v1.proto"], Encoding::Proto),
            (&["presence.v1.proto,presence.v1.json"], Encoding::Proto),
        ] {
            let accepted = accept(&mut offering(names), &Origins::SameHost).unwrap();
            assert_eq!(accepted.encoding, encoding, "{names:?}");
            assert_eq!(accepted.response.headers()["sec-websocket-protocol"], encoding.name());
        }
        assert_eq!(refusal(offering(&["mqtt, x"]), &Origins::Any), Some(Refused::Subprotocol));
    }

    #[test]
    fn what_is_not_a_handshake_is_refused_with_a_reason() {
        let without = |name: &str| {
            let mut request = request(|r| r);
            request.headers_mut().remove(name);
            request
        };
        let with = |name: &'static str, value: &'static str| {
            let mut request = request(|r| r);
            request.headers_mut().insert(name, HeaderValue::from_static(value));
            request
        };
        let also = |name: &'static str, value: &'static str| request(|r| r.header(name, value));
        let cases = [
            (request(|r| r.method("POST")), Refused::Method),
            (request(|r| r.version(Version::HTTP_10)), Refused::NotAnUpgrade),
            (without("upgrade"), Refused::NotAnUpgrade),
            (without("connection"), Refused::NotAnUpgrade),
            (without("host"), Refused::Host),
            (also("host", "another.example"), Refused::Host),
            (with("content-length", "12"), Refused::Body),
            (with("transfer-encoding", "chunked"), Refused::Body),
            (also("sec-websocket-version", "8"), Refused::Version),
            (without("sec-websocket-version"), Refused::Version),
            (with("sec-websocket-version", "8"), Refused::Version),
            (without("sec-websocket-key"), Refused::Key),
            (with("sec-websocket-key", "dG9vIHNob3J0"), Refused::Key),
            (with("sec-websocket-key", "!"), Refused::Key),
        ];
        for (request, refused) in cases {
            assert_eq!(refusal(request, &Origins::SameHost), Some(refused));
        }
        assert_eq!(refusal(with("content-length", "0"), &Origins::SameHost), None, "no body");
        assert_eq!(Refused::NotAnUpgrade.status(), 426);
        assert_eq!(Refused::Version.headers().len(), 3);
    }

    #[test]
    fn origins_are_judged() {
        let listed = Origins::Listed(vec!["https://app.example".into()]);
        let from = |origin: &'static str| request(|r| r.header("Origin", origin));
        for (origin, same_host, in_list) in [
            ("http://edge.example:4711", true, true),
            ("https://edge.example", true, true),
            ("https://EDGE.example", false, false),
            ("http://edge.example/path", false, false),
            ("http://evil@edge.example", false, false),
            ("http://edge.example:80.evil.example", false, false),
            ("http://edge.example:evil", false, false),
            ("ftp://edge.example", false, false),
            ("edge.example", false, false),
            ("https://app.example", false, true),
            ("http://app.example", false, false),
            ("https://edge.example.evil.example", false, false),
            ("null", false, false),
        ] {
            assert_eq!(refusal(from(origin), &Origins::SameHost).is_none(), same_host, "{origin}");
            assert_eq!(refusal(from(origin), &listed).is_none(), in_list, "{origin}");
            assert_eq!(refusal(from(origin), &Origins::Any), None);
        }
        let twice =
            request(|r| r.header("Origin", "https://edge.example").header("Origin", "https://x.example"));
        assert_eq!(refusal(twice, &listed), Some(Refused::Origin));
    }
}
