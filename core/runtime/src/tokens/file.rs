//! A key file that may change under a running process.

use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::jwks::{KeySet, KeysError};
use super::verify::Verifier;
use crate::clock::Clock;
use crate::limits::JWKS_BYTES_MAX;
use crate::reload::{Files, Looked, Reload, Shown, Unread, read_now};

/// A JWKS file and the verifier that follows it.
#[derive(Debug)]
pub struct KeyFile(Files<Verifier>);

impl KeyFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// [`KeysError`].
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, KeysError> {
        let files = Files::open(vec![path.into()], |contents| {
            Ok(Verifier::new(KeySet::parse(contents.first().map_or(&[][..], Vec::as_slice))?))
        });
        Ok(Self(files.await?))
    }

    /// The verifier that follows this file.
    #[must_use]
    pub fn verifier(&self) -> Verifier {
        self.0.reload().clone()
    }

    /// Looks at the file once and takes new keys over if it is good.
    pub async fn look(&mut self) -> Looked<KeysError> {
        self.0.look().await
    }

    /// Looks now and then until `stop`; says what it found, a lasting fault once.
    pub async fn follow(self, clock: Clock, stop: CancellationToken) {
        self.0.follow(clock, stop).await;
    }
}

impl Reload for Verifier {
    type Fault = KeysError;

    const WHAT: &'static str = "token keys";
    const BYTES_MAX: u64 = JWKS_BYTES_MAX;

    fn unread(_: &Path, unread: Unread) -> KeysError {
        unread.into()
    }

    fn take(&mut self, contents: &[Vec<u8>]) -> Result<(), KeysError> {
        contents.iter().try_for_each(|bytes| self.replace(bytes))
    }

    fn announce(&self, paths: &[PathBuf]) {
        let (keys, paths) = (self.keys(), Shown(paths));
        let ids: Vec<&str> = keys.ids().collect();
        tracing::info!(%paths, ?ids, ignored = keys.ignored(), "token keys in force");
        if keys.has_shared_secret() {
            tracing::warn!(%paths, "a token key is a shared secret (HS256): for development only");
        }
    }
}

impl From<Unread> for KeysError {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Unreadable(error) => Self::Unreadable(error),
            Unread::TooLarge(_) => Self::TooLarge,
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
