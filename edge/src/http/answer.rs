//! Answers that are not WebSockets.

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, ETAG, HeaderMap, HeaderName,
    HeaderValue, IF_NONE_MATCH, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use presence_runtime::release::VERSION;
use sha2::{Digest as _, Sha256};

use super::Body;
use crate::admission::{Cause, TurnedAway};
use crate::ws::handshake::Refused;

const BROWSER_CLIENT: &str = include_str!("../../web/presence.js");
const PRESENCE_VERSION: HeaderName = HeaderName::from_static("presence-version");

pub(super) fn boxed<B>(body: B) -> Body
where
    B: hyper::body::Body<Data = Bytes, Error = std::convert::Infallible> + Send + 'static,
{
    body.map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(boxed(Full::new(body.into())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Ends the transport with an answer that opens no WebSocket: whoever comes takes one of few places until then.
pub(super) fn last(mut response: Response<Body>) -> Response<Body> {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().append(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

pub(super) fn refusal(refused: Refused) -> Response<Body> {
    let mut response = text(refused.status(), format!("{refused}\n"));
    for (name, value) in refused.headers() {
        response.headers_mut().insert(*name, HeaderValue::from_static(value));
    }
    response
}

pub(super) fn turned_away(away: TurnedAway) -> Response<Body> {
    let status = match away.cause {
        Cause::Full | Cause::Rate => StatusCode::SERVICE_UNAVAILABLE,
        Cause::Address | Cause::Tokens => StatusCode::TOO_MANY_REQUESTS,
    };
    let mut response = text(status, format!("{}\n", away.cause));
    // Whole seconds are all there are; rounded up, so that nobody comes too early.
    let seconds = away.after.as_secs() + u64::from(away.after.subsec_nanos() > 0);
    response.headers_mut().insert(RETRY_AFTER, seconds.into());
    response
}

/// `/presence.js`, for pages of any site: what it may do is up to its token and the Origin check of the
/// WebSocket.
pub(super) fn browser_client(asked: &HeaderMap) -> Response<Body> {
    let tag = etag(BROWSER_CLIENT);
    let is_known = asked.get_all(IF_NONE_MATCH).iter().any(|tags| {
        let mut tags = tags.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        tags.any(|known| known == b"*" || known.strip_prefix(b"W/").unwrap_or(known) == tag.as_bytes())
    });
    let (status, body) =
        if is_known { (StatusCode::NOT_MODIFIED, "") } else { (StatusCode::OK, BROWSER_CLIENT) };
    let mut response = text(status, body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/javascript; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(PRESENCE_VERSION, HeaderValue::from_static(VERSION));
    headers.insert(ETAG, HeaderValue::from_str(&tag).expect("a tag is ASCII"));
    response
}

/// The version, and a digest of the contents: two builds of one version may differ.
fn etag(contents: &str) -> String {
    let digest = Sha256::digest(contents.as_bytes());
    let short: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{VERSION}-{short}\"")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn asking(tag: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(tag) = tag {
            headers.insert(IF_NONE_MATCH, tag.parse().unwrap());
        }
        headers
    }

    #[tokio::test]
    async fn the_browser_client_is_sent_once_for_each_version() {
        let first = browser_client(&asking(None));
        let tag = first.headers()[ETAG].to_str().unwrap().to_owned();
        assert_eq!(first.headers()[CONTENT_TYPE], "text/javascript; charset=utf-8");
        assert!(tag.starts_with(&format!("\"{VERSION}-")), "{tag}");
        assert_eq!(first.into_body().collect().await.unwrap().to_bytes(), BROWSER_CLIENT);
        for known in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".to_owned()] {
            let again = browser_client(&asking(Some(&known)));
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{known}");
            assert!(again.into_body().collect().await.unwrap().to_bytes().is_empty());
        }
        assert_eq!(browser_client(&asking(Some("\"x\""))).status(), StatusCode::OK);
    }

    #[test]
    fn a_refusal_says_how_to_do_better() {
        let response = refusal(Refused::NotAnUpgrade);
        assert_eq!(response.status(), StatusCode::UPGRADE_REQUIRED);
        assert_eq!(response.headers()["sec-websocket-version"], "13");
        let response = last(response);
        let said: Vec<_> = response.headers().get_all(CONNECTION).iter().collect();
        assert_eq!(said, ["upgrade", "close"], "what it is to do, and that it ends");
    }

    #[test]
    fn whoever_is_turned_away_is_told_when_to_come_back() {
        let away = |cause, ms| turned_away(TurnedAway { cause, after: Duration::from_millis(ms) });
        for (cause, ms, status, retry_after) in
            [(Cause::Full, 5_000, 503, "5"), (Cause::Rate, 5_001, 503, "6"), (Cause::Address, 999, 429, "1")]
        {
            let response = away(cause, ms);
            assert_eq!(response.status(), status);
            assert_eq!(response.headers()[RETRY_AFTER], retry_after);
        }
    }
}
