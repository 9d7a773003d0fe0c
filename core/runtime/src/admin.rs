//! Metrics and probes over plain HTTP, on an address of their own.
//!
//! `/metrics` is the Prometheus text, `/livez` says that the process answers and asks nobody else,
//! `/readyz` says whether new work should be sent here.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::limits::{
    ADMIN_CONNECTION_WITHIN, ADMIN_CONNECTIONS_MAX, ADMIN_DRAIN_WITHIN, ADMIN_HEADER_WITHIN,
};
use crate::network::{Listener, Places, Stream};
use crate::telemetry::Metrics;

/// Whether new work should be sent to this process part. Clones share it.
///
/// It becomes ready once and draining once: a peer that blinks must not take every process out at once.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<AtomicU8>);

const STARTING: u8 = 0;
const READY: u8 = 1;
const DRAINING: u8 = 2;

impl Readiness {
    /// Not ready yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What it waited for has been reached once. Without effect when draining.
    pub fn ready(&self) {
        self.0.fetch_max(READY, Ordering::Relaxed);
    }

    /// It takes no new work, for good.
    pub fn draining(&self) {
        self.0.fetch_max(DRAINING, Ordering::Relaxed);
    }

    /// Whether new work is welcome.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Relaxed) == READY
    }

    fn word(&self) -> &'static str {
        match self.0.load(Ordering::Relaxed) {
            STARTING => "starting",
            READY => "ready",
            _ => "draining",
        }
    }
}

/// Serves until `shutdown`, then lets open requests end within a second.
///
/// At most [`ADMIN_CONNECTIONS_MAX`] connections are open; for one more the oldest is cut, so that a probe
/// is answered whoever else is there. None lasts longer than [`ADMIN_CONNECTION_WITHIN`]. Keep this running
/// while draining, so that the drain can be watched: give it a token that is cancelled last.
pub async fn serve(
    listener: Listener,
    metrics: Metrics,
    readiness: Readiness,
    clock: Clock,
    shutdown: CancellationToken,
) {
    let places = Places::new(ADMIN_CONNECTIONS_MAX);
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    let accepting = async {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _peer)) => stream,
                Err(error) => return tracing::error!(%error, "the admin listener is closed"),
            };
            let Some(place) = places.take() else { continue };
            let answering = answer_all(stream, metrics.clone(), readiness.clone(), shutdown.clone());
            let (cut, clock) = (cut.clone(), clock.clone());
            connections.spawn(async move {
                tokio::select! {
                    biased;
                    () = answering => {}
                    () = cut.cancelled() => {}
                    () = place.gives_way() => {}
                    () = clock.sleep(ADMIN_CONNECTION_WITHIN) => {}
                }
            });
        }
    };
    shutdown.run_until_cancelled(accepting).await;
    drop(listener);
    connections.close();
    tokio::select! {
        biased;
        () = connections.wait() => {}
        () = clock.sleep(ADMIN_DRAIN_WITHIN) => cut.cancel(),
    }
    connections.wait().await;
}

async fn answer_all(stream: Stream, metrics: Metrics, readiness: Readiness, shutdown: CancellationToken) {
    let service = service_fn(move |request| {
        let response = answer(&request, &metrics, &readiness);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(ADMIN_HEADER_WITHIN)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let served = tokio::select! {
        biased;
        served = &mut connection => served,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "an admin connection failed");
    }
}

fn answer<B>(request: &Request<B>, metrics: &Metrics, readiness: &Readiness) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    match request.uri().path() {
        "/metrics" => text(StatusCode::OK, metrics.encode()),
        "/livez" => text(StatusCode::OK, "live\n"),
        "/readyz" => {
            let status = if readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            text(status, format!("{}\n", readiness.word()))
        }
        _ => text(StatusCode::NOT_FOUND, "there are /metrics, /livez and /readyz\n"),
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests;
