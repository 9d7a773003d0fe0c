//! A key set that is fetched, now and then, and sooner if a token names a key that is not in it.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join;
use http::header::{ACCEPT, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper_util::rt::TokioIo;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::follow::Ring;
use super::jwks::KeysError;
use super::source::KeyUrl;
use crate::clock::Clock;
use crate::limits::{JWKS_BYTES_MAX, JWKS_FETCH_EVERY, JWKS_FETCH_LEAST, JWKS_FETCH_WITHIN};
use crate::network::{Network, Stream};

/// Why a key set was not fetched. Nothing of what came is quoted.
#[derive(Debug, thiserror::Error)]
pub enum FetchFault {
    /// Nobody there, or not whom we trust.
    #[error("cannot be reached: {0}")]
    Unreachable(#[source] io::Error),
    /// It broke off.
    #[error("does not answer as HTTP does: {0}")]
    Broken(#[source] hyper::Error),
    /// It answered something else. Nothing is followed to elsewhere.
    #[error("answers {0} and not 200 OK")]
    Status(StatusCode),
    /// It takes too long.
    #[error("has not answered within {} s", .0.as_secs())]
    Late(Duration),
}

/// Fetches a key set once, within [`JWKS_FETCH_WITHIN`].
///
/// # Errors
/// [`KeysError`].
pub(super) async fn fetch(url: &KeyUrl, network: &Network, clock: &Clock) -> Result<Vec<u8>, KeysError> {
    tokio::select! {
        biased;
        fetched = fetch_at_leisure(url, network) => fetched,
        () = clock.sleep(JWKS_FETCH_WITHIN) => Err(FetchFault::Late(JWKS_FETCH_WITHIN).into()),
    }
}

async fn fetch_at_leisure(url: &KeyUrl, network: &Network) -> Result<Vec<u8>, KeysError> {
    let stream = connect(url, network).await.map_err(FetchFault::Unreachable)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(FetchFault::Broken)?;
    let request = Request::get(url.path())
        .header(HOST, url.authority())
        .header(ACCEPT, "application/jwk-set+json, application/json")
        .body(Empty::<Bytes>::new())
        .expect("parts of an address that was read");
    let asking = async move {
        let answer = sender.send_request(request).await.map_err(FetchFault::Broken)?;
        if answer.status() != StatusCode::OK {
            return Err(FetchFault::Status(answer.status()).into());
        }
        let most = usize::try_from(JWKS_BYTES_MAX).unwrap_or(usize::MAX);
        match Limited::new(answer.into_body(), most).collect().await {
            Ok(body) => Ok(body.to_bytes().to_vec()),
            Err(error) if error.is::<LengthLimitError>() => Err(KeysError::TooLarge),
            Err(error) => Err(FetchFault::Unreachable(io::Error::other(error)).into()),
        }
    };
    // Whatever ends the connection is what the asking tells.
    let (fetched, _) = join(asking, connection).await;
    fetched
}

async fn connect(url: &KeyUrl, network: &Network) -> io::Result<Stream> {
    if url.is_tls() {
        network.connect_tls(&url.target(), url.host()).await
    } else {
        network.connect(&url.target()).await
    }
}

/// Follows one address.
#[derive(Debug)]
pub(super) struct Fetcher {
    pub(super) url: KeyUrl,
    pub(super) place: usize,
    pub(super) network: Network,
    pub(super) ring: Ring,
    /// What was last taken over.
    pub(super) seen: Vec<u8>,
    /// Moves when a token names a key that is not in force.
    pub(super) missing: watch::Receiver<u64>,
}

impl Fetcher {
    /// Fetches every [`JWKS_FETCH_EVERY`], or [`JWKS_FETCH_LEAST`] after the last time if a key is missing, until `stop`;
    /// says what it found, a lasting fault once.
    pub(super) async fn follow(mut self, clock: Clock, stop: CancellationToken) {
        let mut told: Option<String> = None;
        let following = async {
            loop {
                self.wait(&clock).await;
                let looked = match fetch(&self.url, &self.network, &clock).await {
                    Ok(bytes) if bytes == self.seen => Ok(false),
                    Ok(bytes) => self.ring.put(self.place, &bytes).map(|()| {
                        self.seen = bytes;
                        true
                    }),
                    Err(error) => Err(error),
                };
                match looked {
                    Ok(is_new) => {
                        told = None;
                        if is_new {
                            self.ring.announce(&self.url);
                        }
                    }
                    Err(fault) => {
                        let fault = Some(fault.to_string());
                        if told != fault {
                            let fault = fault.as_deref().unwrap_or_default();
                            tracing::error!(url = %self.url, fault, "no new token keys, the old ones stay in force");
                        }
                        told = fault;
                    }
                }
            }
        };
        let _: Option<Infallible> = stop.run_until_cancelled(following).await;
    }

    async fn wait(&mut self, clock: &Clock) {
        clock.sleep(JWKS_FETCH_LEAST).await;
        tokio::select! {
            biased;
            // A verifier lives as long as the process.
            _ = self.missing.changed() => {}
            () = clock.sleep(JWKS_FETCH_EVERY - JWKS_FETCH_LEAST) => {}
        }
        self.missing.mark_unchanged();
    }
}
