//! What only `presence dev` serves beside the edge's own paths: the playground, tokens, and cuts.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, RawQuery, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use presence_model::claim::Action;
use presence_model::id::{ConnectionId, RegionId, RoomId, UserId};
use presence_model::time::{StoreTime, millis};
use presence_runtime::clock::Clock;
use presence_runtime::shutdown::Shutdown;
use presence_runtime::tokens::{Grant, Issuer};
use serde::{Deserialize, Serialize};

use super::relay::{Cuts, RegionCut};

/// The playground page.
const PLAYGROUND: &str = include_str!("../../../edge/web/playground.html");
/// Its script.
const PLAYGROUND_SCRIPT: &str = include_str!("../../../edge/web/playground.js");
/// Its looks.
const PLAYGROUND_STYLE: &str = include_str!("../../../edge/web/playground.css");
/// A token of the playground is good for so long unless asked otherwise.
const TOKEN_TTL_DEFAULT: Duration = Duration::from_secs(60 * 60);
/// Nobody needs a longer one here.
const TOKEN_TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A cut that is to heal by itself heals while its page is still open.
const CUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// What the routes need.
#[derive(Clone)]
pub(crate) struct DevState {
    pub(crate) issuer: Arc<Issuer>,
    pub(crate) cuts: Cuts,
    pub(crate) clock: Clock,
    pub(crate) tasks: Shutdown,
    pub(crate) timers: DevTimers,
    pub(crate) regions: Arc<DevRegions>,
    pub(crate) own: RegionId,
}

/// All regions of this process.
#[derive(Debug)]
pub(crate) struct DevRegions {
    /// Each with where its playground is, once that is known.
    pub(crate) playgrounds: Vec<(RegionId, SocketAddr)>,
    /// Cuts the ways between them.
    pub(crate) cut: RegionCut,
}

/// The timers in force, for the playground's words.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct DevTimers {
    pub(crate) heartbeat_ms: u64,
    pub(crate) lease_ttl_ms: u64,
    pub(crate) grace_ms: u64,
}

/// The routes.
pub(crate) fn router(state: DevState) -> Router {
    Router::new()
        .route("/", get(|| async { Html(PLAYGROUND) }))
        .route("/playground.js", get(|| async { typed("text/javascript; charset=utf-8", PLAYGROUND_SCRIPT) }))
        .route("/playground.css", get(|| async { typed("text/css; charset=utf-8", PLAYGROUND_STYLE) }))
        .route("/dev/token", get(token))
        .route("/dev/cut", post(cut))
        .route("/dev/timers", get(timers))
        .route("/dev/regions", get(regions))
        .route("/dev/regions/cut", post(cut_regions))
        .layer(middleware::from_fn(only_loopback))
        .with_state(state)
}

fn typed(content_type: &'static str, body: &'static str) -> Response {
    ([(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "no-cache")], body).into_response()
}

/// Tokens are for pages of this machine: one that made its own name stand for a loopback address is of
/// another site.
async fn only_loopback(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if host.is_some_and(is_loopback) {
        return next.run(request).await;
    }
    let sentence = "presence dev answers only to localhost and loopback addresses\n";
    (StatusCode::FORBIDDEN, sentence).into_response()
}

fn is_loopback(host: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let name = host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(name, _)| name);
    let name = name.to_ascii_lowercase();
    let is_address = |name: &str| name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback());
    name == "localhost" || name.ends_with(".localhost") || name == "[::1]" || is_address(&name)
}

fn refuse(sentence: impl Into<String>) -> Response {
    (StatusCode::BAD_REQUEST, format!("{}\n", sentence.into())).into_response()
}

/// `GET /dev/timers`: the timers in force, as JSON.
async fn timers(State(dev): State<DevState>) -> Response {
    let json = serde_json::to_string(&dev.timers).expect("numbers are JSON");
    ([(header::CONTENT_TYPE, "application/json")], json).into_response()
}

/// `GET /dev/regions`: all regions with their playgrounds, which of them this is, and whether they are cut off from
/// each other, as JSON.
async fn regions(State(dev): State<DevState>) -> Response {
    let known = dev.regions.playgrounds.iter().map(|(region, at)| {
        serde_json::json!({ "region": region.as_str(), "playground": format!("http://{at}/") })
    });
    let all = known.collect::<Vec<_>>();
    let told = serde_json::json!({
        "own": dev.own.as_str(), "cut": dev.regions.cut.is_set(), "regions": all,
    });
    ([(header::CONTENT_TYPE, "application/json")], told.to_string()).into_response()
}

#[derive(Debug, Deserialize)]
struct CutRegionsQuery {
    cut: bool,
}

/// `POST /dev/regions/cut?cut=true`: nothing arrives in any region from another one, until it is called with `false`.
async fn cut_regions(
    State(dev): State<DevState>,
    query: Result<Query<CutRegionsQuery>, QueryRejection>,
) -> Response {
    let Ok(Query(query)) = query else {
        return refuse("cut is true or false; example: /dev/regions/cut?cut=true");
    };
    if dev.regions.playgrounds.len() < 2 {
        return refuse("there is one region only; example: presence dev --regions eu-west,us-east");
    }
    dev.regions.cut.set(query.cut);
    StatusCode::NO_CONTENT.into_response()
}

#[derive(Debug, Deserialize)]
struct TokenQuery {
    user: String,
    room: String,
    act: Option<String>,
    ttl: Option<String>,
}

/// Whether what is escaped is UTF-8: the reader of queries would put another character in the place of what is not.
fn is_text(query: &str) -> bool {
    let mut pieces = query.as_bytes().split(|byte| *byte == b'%');
    let mut bytes = pieces.next().unwrap_or_default().to_vec();
    for piece in pieces {
        let Some((digits, rest)) = piece.split_at_checked(2) else { return false };
        let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'));
        let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else { return false };
        bytes.push(byte);
        bytes.extend_from_slice(rest);
    }
    std::str::from_utf8(&bytes).is_ok()
}

/// `GET /dev/token?user=u1&room=lobby[&act=watch][&ttl=60s]`: the bare token.
async fn token(
    State(dev): State<DevState>,
    RawQuery(raw): RawQuery,
    query: Result<Query<TokenQuery>, QueryRejection>,
) -> Response {
    if !is_text(&raw.unwrap_or_default()) {
        return refuse(
            "what follows a % is to be UTF-8 in two hex digits a byte; example: /dev/token?user=%C3%A9&room=lobby",
        );
    }
    let Ok(Query(query)) = query else {
        return refuse("user and room are needed, each once; example: /dev/token?user=u1&room=lobby");
    };
    let (user, room) = match (UserId::new(&query.user), RoomId::new(&query.room)) {
        (Ok(user), Ok(room)) => (user, room),
        (Err(error), _) | (_, Err(error)) => return refuse(error.to_string()),
    };
    let action = match query.act.as_deref() {
        None | Some("join") => Action::Join,
        Some("watch") => Action::Watch,
        Some(_) => return refuse("act is join or watch"),
    };
    let ttl = match query.ttl.as_deref().map(humantime::parse_duration) {
        None => TOKEN_TTL_DEFAULT,
        Some(Ok(ttl)) if ttl <= TOKEN_TTL_MAX && !ttl.is_zero() => ttl,
        Some(_) => return refuse("ttl is a span with a unit such as 60s, above zero and at most 24h"),
    };
    // Rounded up: a token of one second is good for a whole one.
    let ends = StoreTime((dev.clock.wall_ms() + millis(ttl)).next_multiple_of(1_000));
    let token = dev.issuer.sign(&Grant { user, room, action, ends, not_before: None, token_id: None });
    ([(header::CACHE_CONTROL, "no-store")], token).into_response()
}

#[derive(Debug, Deserialize)]
struct CutQuery {
    connection: String,
    r#for: Option<String>,
}

/// `POST /dev/cut?connection=…[&for=10s]`: stops that connection's bytes, neither end is told.
async fn cut(State(dev): State<DevState>, query: Result<Query<CutQuery>, QueryRejection>) -> Response {
    let Ok(Query(query)) = query else {
        return refuse("connection is needed, once; example: /dev/cut?connection=0123456789abcdef&for=10s");
    };
    let Some(connection) = ConnectionId::parse(&query.connection) else {
        return refuse("connection is the 16 hexadecimal digits that hello told");
    };
    let heal = match query.r#for.as_deref().map(humantime::parse_duration) {
        None => None,
        Some(Ok(span)) if span <= CUT_MAX && !span.is_zero() => Some(span),
        Some(_) => return refuse("for is a span with a unit such as 10s, above zero and at most 24h"),
    };
    if !dev.cuts.set(connection, true) {
        return (StatusCode::NOT_FOUND, "no such connection\n").into_response();
    }
    if let Some(after) = heal {
        dev.cuts.heal_after(connection, after, dev.clock.clone(), &dev.tasks);
    }
    StatusCode::NO_CONTENT.into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_has_to_be_text() {
        for text in ["", "user=u1&room=r", "user=%C3%A9&room=%F0%9F%98%80", "user=%25ff", "user=é"] {
            assert!(is_text(text), "{text}");
        }
        for other in
            ["user=%ff", "user=%C3", "user=%C3&room=%A9", "user=%", "user=%4", "user=%zz", "user=%+1"]
        {
            assert!(!is_text(other), "{other}");
        }
    }

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        for own in [
            "localhost",
            "LOCALHOST:4700",
            "a.localhost:1",
            "127.0.0.1:4700",
            "127.1.2.3",
            "[::1]",
            "[::1]:80",
        ] {
            assert!(is_loopback(own), "{own}");
        }
        for other in [
            "evil.example",
            "evil.example:4700",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[::2]:80",
            "localhost.evil",
            "notlocalhost",
            "",
        ] {
            assert!(!is_loopback(other), "{other}");
        }
    }
}
