//! A fresh key pair: `key.pem` signs, `jwks.json` verifies.

use std::fmt;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ed25519_dalek::SigningKey;
use ed25519_dalek::pkcs8::EncodePrivateKey as _;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;

use super::issue::{ed25519_parts, thumbprint, without_public_half};

/// Name of the file that signs.
pub const KEY_FILE: &str = "key.pem";
/// Name of the file that verifies.
pub const JWKS_FILE: &str = "jwks.json";

const OWNER_ONLY_FILE: u32 = 0o600;
const OWNER_ONLY_DIRECTORY: u32 = 0o700;

/// A fresh Ed25519 key pair. Debug shows its id only.
pub struct GeneratedKeys {
    kid: String,
    key_pem: String,
    jwks: String,
}

/// The key pair was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteKeysError {
    /// Keys are never overwritten: tokens signed by the old one would be refused without a warning.
    #[error("{} exists already; choose another directory, or remove it", path.display())]
    Exists {
        /// What is there.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("cannot write {}", path.display())]
    Io {
        /// What was being written.
        path: PathBuf,
        /// Why it was refused.
        source: io::Error,
    },
}

impl GeneratedKeys {
    /// Makes the pair from 32 bytes that must be unpredictable (`main` draws them).
    #[must_use]
    pub fn from_seed(seed: [u8; 32]) -> Self {
        let signing = SigningKey::from_bytes(&seed);
        let (_, mut jwk) = ed25519_parts(&signing);
        let kid = thumbprint(&jwk);
        jwk.common.key_id = Some(kid.clone());
        jwk.common.public_key_use = Some(jsonwebtoken::jwk::PublicKeyUse::Signature);
        let jwks = serde_json::json!({ "keys": [jwk] });
        let pem = without_public_half(&signing).to_pkcs8_pem(LineEnding::LF).expect("32 bytes always encode");
        Self { kid, key_pem: pem.as_str().to_owned(), jwks: format!("{jwks:#}\n") }
    }

    /// The key's id: its RFC 7638 thumbprint.
    #[must_use]
    pub fn key_id(&self) -> &str {
        &self.kid
    }

    /// The private key, PKCS#8 v1 PEM. Secret.
    #[must_use]
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// The public key as JWKS.
    #[must_use]
    pub fn jwks(&self) -> &str {
        &self.jwks
    }

    /// Writes [`KEY_FILE`] (readable by its owner only) and [`JWKS_FILE`], creating the directory.
    ///
    /// # Errors
    /// [`WriteKeysError`]; nothing that was there is changed.
    pub fn write(&self, directory: &Path) -> Result<(), WriteKeysError> {
        let (key, jwks) = (directory.join(KEY_FILE), directory.join(JWKS_FILE));
        if let Some(path) = [&key, &jwks].into_iter().find(|path| path.exists()) {
            return Err(WriteKeysError::Exists { path: path.clone() });
        }
        DirBuilder::new()
            .recursive(true)
            .mode(OWNER_ONLY_DIRECTORY)
            .create(directory)
            .map_err(|source| WriteKeysError::Io { path: directory.to_owned(), source })?;
        write_new(&key, &self.key_pem, OpenOptions::new().mode(OWNER_ONLY_FILE))?;
        write_new(&jwks, &self.jwks, &mut OpenOptions::new())
    }
}

impl fmt::Debug for GeneratedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GeneratedKeys").field(&self.kid).finish()
    }
}

fn write_new(path: &Path, text: &str, options: &mut OpenOptions) -> Result<(), WriteKeysError> {
    let written = options.write(true).create_new(true).open(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|source| WriteKeysError::Io { path: path.to_owned(), source })
}
