//! A key file that may change under a running process.

use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::jwks::{KeySet, KeysError};
use super::verify::Verifier;
use crate::clock::Clock;
use crate::limits::{JWKS_BYTES_MAX, RELOAD_LOOK};

/// A JWKS file and the verifier that follows it.
///
/// Contents are compared, not times: a `ConfigMap` swaps a symlink, and clocks of file systems lie.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    seen: Vec<u8>,
    fault_seen: Option<String>,
    verifier: Verifier,
}

/// What a look at the file found.
#[derive(Debug)]
pub enum Looked {
    /// As before.
    Same,
    /// New keys are in force.
    Replaced,
    /// The file is bad and the old keys stay in force.
    Kept(KeysError),
}

impl KeyFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// [`KeysError`].
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, KeysError> {
        let path = path.into();
        let seen = read(&path).await?;
        let keys = KeySet::parse(&seen)?;
        announce(&path, &keys);
        Ok(Self { path, seen, fault_seen: None, verifier: Verifier::new(keys) })
    }

    /// The verifier that follows this file.
    #[must_use]
    pub fn verifier(&self) -> Verifier {
        self.verifier.clone()
    }

    /// Looks at the file once and takes new keys over if it is good.
    pub async fn look(&mut self) -> Looked {
        let bytes = match read(&self.path).await {
            Ok(bytes) => bytes,
            Err(error) => return Looked::Kept(error),
        };
        if bytes == self.seen {
            return Looked::Same;
        }
        match self.verifier.replace(&bytes) {
            Ok(()) => {
                self.seen = bytes;
                Looked::Replaced
            }
            Err(error) => Looked::Kept(error),
        }
    }

    /// Looks every [`RELOAD_LOOK`] until `stop`; says what it found, a lasting fault once.
    pub async fn follow(mut self, clock: Clock, stop: CancellationToken) {
        while stop.run_until_cancelled(clock.sleep(RELOAD_LOOK)).await.is_some() {
            let looked = self.look().await;
            self.report(looked);
        }
    }

    fn report(&mut self, looked: Looked) {
        match looked {
            Looked::Same => self.fault_seen = None,
            Looked::Replaced => {
                self.fault_seen = None;
                announce(&self.path, &self.verifier.keys());
            }
            Looked::Kept(error) => {
                let fault = error.to_string();
                if self.fault_seen.as_ref() != Some(&fault) {
                    tracing::error!(path = %self.path.display(), %fault, "the new token keys are bad, the old ones stay in force");
                }
                self.fault_seen = Some(fault);
            }
        }
    }
}

impl KeySet {
    /// Reads a file once, for whoever only wants to know whether it is good. Blocks.
    ///
    /// # Errors
    /// [`KeysError`].
    pub fn read(path: &Path) -> Result<Self, KeysError> {
        if std::fs::metadata(path).map_err(KeysError::Unreadable)?.len() > JWKS_BYTES_MAX {
            return Err(KeysError::TooLarge);
        }
        Self::parse(&std::fs::read(path).map_err(KeysError::Unreadable)?)
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, KeysError> {
    let length = tokio::fs::metadata(path).await.map_err(KeysError::Unreadable)?.len();
    if length > JWKS_BYTES_MAX {
        return Err(KeysError::TooLarge);
    }
    tokio::fs::read(path).await.map_err(KeysError::Unreadable)
}

fn announce(path: &Path, keys: &KeySet) {
    let ids: Vec<&str> = keys.ids().collect();
    tracing::info!(path = %path.display(), ?ids, ignored = keys.ignored(), "token keys in force");
    if keys.has_shared_secret() {
        tracing::warn!(path = %path.display(), "a token key is a shared secret (HS256): for development only");
    }
}
