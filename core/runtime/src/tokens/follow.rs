//! Keys of several places as one set, which follows each of them.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::join_all;
use smol_str::SmolStr;
use tokio_util::sync::CancellationToken;

use super::fetch::{Fetcher, fetch};
use super::jwks::{KeySet, KeysError};
use super::source::{KeySource, KeyUrl};
use super::verify::Verifier;
use crate::clock::Clock;
use crate::limits::{JWKS_BYTES_MAX, JWKS_FETCH_AGAIN, JWKS_START_WITHIN};
use crate::network::Network;
use crate::reload::{Files, Reload, Shown, Unread, read, read_now};
use crate::shutdown::Shutdown;
use crate::tls::{BadFile, ClientFiles, ClientTls, Protocol};

/// Keys of all places, and the verifier that has them.
#[derive(Debug, Clone)]
pub(super) struct Ring {
    verifier: Verifier,
    audience: SmolStr,
    parts: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Ring {
    /// Takes over what one place says now.
    ///
    /// # Errors
    /// [`KeysError`]: it is bad, or has a key of an id that another place has; all is as before.
    pub(super) fn put(&self, place: usize, bytes: &[u8]) -> Result<(), KeysError> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted = parts.clone();
        if let Some(part) = wanted.get_mut(place) {
            *part = bytes.to_vec();
        }
        self.verifier.take(KeySet::of_all(&wanted, &self.audience)?);
        *parts = wanted;
        Ok(())
    }

    /// Says what is in force since it changed in one place.
    pub(super) fn announce(&self, place: &dyn Display) {
        let keys = self.verifier.keys();
        let ids: Vec<&str> = keys.ids().collect();
        tracing::info!(%place, ?ids, ignored = keys.ignored(), "token keys in force");
        if keys.has_shared_secret() {
            tracing::warn!(%place, "a token key is a shared secret (HS256): for development only");
        }
    }
}

/// One file of a ring.
#[derive(Debug)]
struct FilePart {
    place: usize,
    ring: Ring,
}

impl Reload for FilePart {
    type Fault = KeysError;

    const WHAT: &'static str = "token keys";
    const BYTES_MAX: u64 = JWKS_BYTES_MAX;

    fn unread(_: &Path, unread: Unread) -> KeysError {
        unread.into()
    }

    fn take(&mut self, contents: &[Vec<u8>]) -> Result<(), KeysError> {
        contents.iter().try_for_each(|bytes| self.ring.put(self.place, bytes))
    }

    fn announce(&self, paths: &[PathBuf]) {
        self.ring.announce(&Shown(paths));
    }
}

/// A place of keys is of no use.
#[derive(Debug, thiserror::Error)]
#[error("jwks = {place}")]
pub struct BadKeys {
    /// Which.
    pub place: String,
    /// Why.
    #[source]
    pub error: KeysError,
}

/// All places, each followed.
#[derive(Debug)]
pub struct KeySources {
    verifier: Verifier,
    files: Vec<Files<FilePart>>,
    urls: Vec<Fetcher>,
}

impl KeySources {
    /// Reads all of them for the first time. An address that does not answer is asked again, for
    /// [`JWKS_START_WITHIN`]: identity providers restart as well.
    ///
    /// # Errors
    /// [`BadKeys`], of the first that is bad.
    pub async fn open(
        sources: &[KeySource],
        audience: &str,
        (network, clock): (&Network, &Clock),
    ) -> Result<Self, BadKeys> {
        let bad = |source: &KeySource| {
            let place = source.to_string();
            move |error| BadKeys { place, error }
        };
        let mut parts = Vec::new();
        for source in sources {
            let part = match source {
                KeySource::File(path) => read(path, JWKS_BYTES_MAX).await.map_err(KeysError::from),
                KeySource::Url(url) => fetch_at_start(url, network, clock).await,
            };
            parts.push(part.map_err(bad(source))?);
            KeySet::of_all(&parts, audience).map_err(bad(source))?;
        }
        let keys =
            KeySet::of_all(&parts, audience).map_err(|error| BadKeys { place: String::new(), error })?;
        let verifier = Verifier::new(keys);
        let ring = Ring {
            verifier: verifier.clone(),
            audience: audience.into(),
            parts: Arc::new(Mutex::new(parts.clone())),
        };
        let (mut files, mut urls) = (Vec::new(), Vec::new());
        for (place, (source, seen)) in sources.iter().zip(parts).enumerate() {
            match source {
                KeySource::File(path) => {
                    // What was read above counts as seen: it may have changed since.
                    let part = FilePart { place, ring: ring.clone() };
                    files.push(Files::from_read(vec![path.clone()], vec![seen], part));
                }
                KeySource::Url(url) => {
                    ring.announce(url);
                    let (url, network, missing) = (url.clone(), network.clone(), verifier.missing());
                    urls.push(Fetcher { url, place, network, ring: ring.clone(), seen, missing });
                }
            }
        }
        Ok(Self { verifier, files, urls })
    }

    /// The verifier that follows them.
    #[must_use]
    pub fn verifier(&self) -> Verifier {
        self.verifier.clone()
    }

    /// Follows all of them until `stop`.
    pub async fn follow(self, clock: Clock, stop: CancellationToken) {
        let files = self.files.into_iter().map(|file| file.follow(clock.clone(), stop.clone()));
        let urls = self.urls.into_iter().map(|url| url.follow(clock.clone(), stop.clone()));
        tokio::join!(join_all(files), join_all(urls));
    }
}

/// The network by which keys are fetched: by TLS, if one of the addresses asks for it, from whoever proves its name to
/// those who sign certificates (none: to whom this system trusts).
///
/// # Errors
/// The file of those who sign is bad.
pub async fn network_of(
    sources: &[KeySource],
    authority: Option<PathBuf>,
    (clock, shutdown): (&Clock, &Shutdown),
) -> Result<Network, BadFile> {
    let network = Network::tcp();
    let by_tls = |source: &KeySource| matches!(source, KeySource::Url(url) if url.is_tls());
    if !sources.iter().any(by_tls) {
        return Ok(network);
    }
    let files = ClientFiles { authority, identity: None };
    Ok(network.with_tls(ClientTls::open_followed(files, Protocol::Http1, (clock, shutdown)).await?))
}

async fn fetch_at_start(url: &KeyUrl, network: &Network, clock: &Clock) -> Result<Vec<u8>, KeysError> {
    let end = clock.now() + JWKS_START_WITHIN;
    loop {
        match fetch(url, network, clock).await {
            Err(error @ KeysError::Unfetched(_)) if clock.now() + JWKS_FETCH_AGAIN < end => {
                tracing::warn!(%url, %error, "no token keys yet; asking again");
                clock.sleep(JWKS_FETCH_AGAIN).await;
            }
            fetched => return fetched,
        }
    }
}

impl From<Unread> for KeysError {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Unreadable(error) => Self::Unreadable(error),
            Unread::TooLarge(_) => Self::TooLarge,
            Unread::NoFile => Self::NoFile,
        }
    }
}

impl KeySet {
    /// Reads a file once, for whoever only wants to know whether it is good. Blocks.
    ///
    /// # Errors
    /// [`KeysError`].
    pub fn read(path: &Path) -> Result<Self, KeysError> {
        Self::parse(&read_now(path, JWKS_BYTES_MAX)?)
    }
}
