//! Times and logs each request once, as a layer below all services.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use prometheus::HistogramVec;
use tower::{Layer, Service};

use super::connection::Caller;
use super::server::PeerAddress;
use crate::clock::Clock;
use crate::telemetry::Metrics;

/// Requests are answered from memory or by one store command; beyond a second somebody waits.
const SECONDS: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];

/// Times and logs requests.
///
/// A stream is timed until it is opened. Paths that no service knows share one label.
#[derive(Debug, Clone)]
pub struct RequestObserver {
    clock: Clock,
    seconds: HistogramVec,
}

impl RequestObserver {
    /// Registers `presence_<component>_rpc_seconds{method, outcome}`.
    #[must_use]
    pub fn new(component: &str, metrics: &Metrics, clock: Clock) -> Self {
        let seconds = metrics.histogram_vec(
            &format!("presence_{component}_rpc_seconds"),
            "Time until a request was answered, or a stream opened or refused",
            &["method", "outcome"],
            SECONDS,
        );
        Self { clock, seconds }
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    fn record(&self, path: &str, code: &str, took: Duration) {
        let method =
            if code == UNIMPLEMENTED { "unknown" } else { path.rsplit('/').next().unwrap_or("unknown") };
        let outcome = match code {
            OK => "ok",
            CANCELLED => "cancelled",
            INVALID_ARGUMENT | UNIMPLEMENTED | PERMISSION_DENIED | UNAUTHENTICATED | FAILED_PRECONDITION => {
                "refused"
            }
            _ => "failed",
        };
        self.seconds.with_label_values(&[method, outcome]).observe(took.as_secs_f64());
        tracing::debug!(method, outcome, code, took_us = took.as_micros(), "rpc");
    }
}

const OK: &str = "0";
const CANCELLED: &str = "1";
const INVALID_ARGUMENT: &str = "3";
const PERMISSION_DENIED: &str = "7";
const FAILED_PRECONDITION: &str = "9";
const UNIMPLEMENTED: &str = "12";
const UNAUTHENTICATED: &str = "16";

impl<S> Layer<S> for RequestObserver {
    type Service = Observed<S>;

    fn layer(&self, inner: S) -> Observed<S> {
        Observed { inner, observer: self.clone() }
    }
}

/// A service whose requests are timed and logged.
#[derive(Debug, Clone)]
pub struct Observed<S> {
    inner: S,
    observer: RequestObserver,
}

impl<S, B, R> Service<Request<B>> for Observed<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let observer = self.observer.clone();
        if let Some(Caller { address, names, ear }) = request.extensions_mut().remove() {
            ear.heard();
            request.extensions_mut().insert(PeerAddress(address));
            request.extensions_mut().insert(names);
        }
        let path = request.uri().path().to_owned();
        let began = observer.clock.now();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            // A failure without a body carries its code in the headers; success has it in the trailers.
            let code = answer.headers().get("grpc-status").and_then(|code| code.to_str().ok()).unwrap_or(OK);
            observer.record(&path, code, observer.clock.now().since(began));
            Ok(answer)
        })
    }
}
