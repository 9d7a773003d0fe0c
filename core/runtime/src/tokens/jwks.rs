//! A key file: JWKS, read strictly. One bad key makes the file bad; foreign kinds of keys are left out.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use presence_model::limits::NAME_BYTES_MAX;
use serde::Deserialize;
use serde::de::IgnoredAny;
use smol_str::SmolStr;

use super::AUDIENCE;
use super::fetch::FetchFault;
use crate::limits::{HS256_SECRET_BYTES_MIN, JWKS_BYTES_MAX, JWKS_KEYS_MAX};

const ED25519_BYTES: usize = 32;
const P256_COORDINATE_BYTES: usize = 32;
const RSA_MODULUS_BYTES_MIN: usize = 256;

/// Why a key file cannot be used. Never quotes the file: it may hold a secret.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[source] std::io::Error),
    /// Whoever reads it may wait for ever.
    #[error("is no regular file")]
    NoFile,
    /// It was not fetched.
    #[error(transparent)]
    Unfetched(#[from] FetchFault),
    /// Larger than [`JWKS_BYTES_MAX`].
    #[error("has more than {JWKS_BYTES_MAX} bytes")]
    TooLarge,
    /// Not a JWKS: `{"keys":[…]}`.
    #[error("is not a JWKS ({{\"keys\":[…]}}): line {line}, column {column}")]
    Malformed {
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
    /// More than [`JWKS_KEYS_MAX`] keys.
    #[error("has {count} keys, at most {JWKS_KEYS_MAX} are allowed")]
    TooMany {
        /// As given.
        count: usize,
    },
    /// One key is unusable.
    #[error("key {index}{}: {fault}", kid.as_ref().map(|kid| format!(" (kid {kid:?})")).unwrap_or_default())]
    Key {
        /// Counted from 0.
        index: usize,
        /// Its id, if it has one.
        kid: Option<SmolStr>,
        /// What is wrong with it.
        fault: KeyFault,
    },
    /// No key of a supported kind is left.
    #[error("has no key of a supported kind (EdDSA, ES256, RS256, HS256)")]
    Empty,
}

/// What is wrong with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// Tokens name their key, so each needs an id of 1 to 255 bytes.
    #[error("needs a `kid` of 1 to {NAME_BYTES_MAX} bytes")]
    MissingKid,
    /// Two keys of one id.
    #[error("another key has the same `kid`")]
    DuplicateKid,
    /// `alg` contradicts the kind of the key.
    #[error("`alg` does not fit `kty` and `crv`")]
    WrongAlgorithm,
    /// A parameter is missing, not base64url, of the wrong length, or not a point of the curve.
    #[error("its parameters are missing or malformed")]
    Malformed,
    /// An HS256 secret below 32 bytes, an RSA modulus below 2048 bits, or a point of small order.
    #[error("is too weak")]
    Weak,
    /// The file is for verifying and must not hold what signs.
    #[error("holds a private key (`d`); give only the public part")]
    Private,
}

#[derive(Deserialize)]
struct RawSet {
    keys: Vec<RawKey>,
}

#[derive(Deserialize)]
struct RawKey {
    kty: String,
    kid: Option<SmolStr>,
    alg: Option<String>,
    crv: Option<String>,
    r#use: Option<String>,
    key_ops: Option<Vec<String>>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
    k: Option<String>,
    d: Option<IgnoredAny>,
}

/// One key with the one algorithm it may be used for.
pub(super) struct Key {
    pub(super) decoding: DecodingKey,
    pub(super) algorithm: Algorithm,
    pub(super) validation: Validation,
}

/// The keys of one file, by id. Debug shows ids only.
pub struct KeySet {
    keys: BTreeMap<SmolStr, Key>,
    ignored: usize,
}

impl KeySet {
    /// Reads a JWKS. Keys of other kinds, curves or uses are left out (RFC 7517, 5) and counted.
    ///
    /// # Errors
    /// [`KeysError`]: malformed, too large, one key that is unusable, or none left.
    pub fn parse(json: &[u8]) -> Result<Self, KeysError> {
        Self::of_all(&[json], AUDIENCE)
    }

    /// Reads several as one, for tokens of this audience.
    ///
    /// # Errors
    /// As [`KeySet::parse`]; also a key whose id another one has.
    pub fn of_all(parts: &[impl AsRef<[u8]>], audience: &str) -> Result<Self, KeysError> {
        let mut set = Self { keys: BTreeMap::new(), ignored: 0 };
        for part in parts {
            set.read_in(part.as_ref(), audience)?;
        }
        if set.keys.is_empty() { Err(KeysError::Empty) } else { Ok(set) }
    }

    fn read_in(&mut self, json: &[u8], audience: &str) -> Result<(), KeysError> {
        if json.len() as u64 > JWKS_BYTES_MAX {
            return Err(KeysError::TooLarge);
        }
        let raw: RawSet = serde_json::from_slice(json)
            .map_err(|error| KeysError::Malformed { line: error.line(), column: error.column() })?;
        if self.keys.len() + raw.keys.len() > JWKS_KEYS_MAX {
            return Err(KeysError::TooMany { count: self.keys.len() + raw.keys.len() });
        }
        for (index, raw) in raw.keys.iter().enumerate() {
            let kid = raw.kid.clone();
            self.add(raw, audience).map_err(|fault| KeysError::Key { index, kid, fault })?;
        }
        Ok(())
    }

    fn add(&mut self, raw: &RawKey, audience: &str) -> Result<(), KeyFault> {
        let Some(algorithm) = algorithm_of(raw)? else {
            self.ignored += 1;
            return Ok(());
        };
        let kid = raw.kid.clone().filter(|kid| (1..=NAME_BYTES_MAX).contains(&kid.len()));
        let kid = kid.ok_or(KeyFault::MissingKid)?;
        let key = Key {
            decoding: decoding_key(raw, algorithm)?,
            algorithm,
            validation: validation(algorithm, audience),
        };
        match self.keys.insert(kid, key) {
            Some(_) => Err(KeyFault::DuplicateKid),
            None => Ok(()),
        }
    }

    /// A key, and its id as the set has it: shared by all who rest on it.
    pub(super) fn get(&self, kid: &str) -> Option<(&SmolStr, &Key)> {
        self.keys.get_key_value(kid)
    }

    /// The ids of the keys, in order.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(SmolStr::as_str)
    }

    /// How many keys of the file are of no use here and were left out.
    #[must_use]
    pub fn ignored(&self) -> usize {
        self.ignored
    }

    /// Whether a key is a shared secret (HS256): whoever verifies with it can sign, so it is for development.
    #[must_use]
    pub fn has_shared_secret(&self) -> bool {
        self.keys.values().any(|key| key.algorithm == Algorithm::HS256)
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySet")?;
        f.debug_list().entries(self.ids()).finish()
    }
}

/// The one algorithm of a key, or none if it is not for us.
fn algorithm_of(raw: &RawKey) -> Result<Option<Algorithm>, KeyFault> {
    let for_signatures = raw.r#use.as_deref().is_none_or(|purpose| purpose == "sig");
    let for_verifying = raw.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
    if !for_signatures || !for_verifying {
        return Ok(None);
    }
    // Other algorithms of the same kind of key are somebody else's; those of another kind are a mistake.
    let (algorithm, name, others): (_, _, &[&str]) = match (raw.kty.as_str(), raw.crv.as_deref()) {
        ("OKP", Some("Ed25519")) => (Algorithm::EdDSA, "EdDSA", &[]),
        ("EC", Some("P-256")) => {
            (Algorithm::ES256, "ES256", &["ECDH-ES", "ECDH-ES+A128KW", "ECDH-ES+A192KW", "ECDH-ES+A256KW"])
        }
        ("RSA", None) => (
            Algorithm::RS256,
            "RS256",
            &[
                "RS384",
                "RS512",
                "PS256",
                "PS384",
                "PS512",
                "RSA-OAEP",
                "RSA-OAEP-256",
                "RSA-OAEP-384",
                "RSA-OAEP-512",
                "RSA1_5",
            ],
        ),
        ("oct", None) => (Algorithm::HS256, "HS256", &["HS384", "HS512", "A128KW", "A256KW", "dir"]),
        _ => return Ok(None),
    };
    match raw.alg.as_deref() {
        None => Ok(Some(algorithm)),
        Some(alg) if alg == name => Ok(Some(algorithm)),
        // The same by its newer name (RFC 9864).
        Some("Ed25519") if algorithm == Algorithm::EdDSA => Ok(Some(algorithm)),
        Some(alg) if others.contains(&alg) => Ok(None),
        Some(_) => Err(KeyFault::WrongAlgorithm),
    }
}

/// The library checks lengths late or not at all (a short Ed25519 key would panic), so they are checked here.
fn decoding_key(raw: &RawKey, algorithm: Algorithm) -> Result<DecodingKey, KeyFault> {
    if raw.d.is_some() {
        return Err(KeyFault::Private);
    }
    if algorithm == Algorithm::EdDSA {
        let point = bytes(raw.x.as_deref())?;
        let point: [u8; ED25519_BYTES] = point.try_into().map_err(|_| KeyFault::Malformed)?;
        let key = ed25519_dalek::VerifyingKey::from_bytes(&point).map_err(|_| KeyFault::Malformed)?;
        return if key.is_weak() { Err(KeyFault::Weak) } else { Ok(DecodingKey::from_ed_der(&point)) };
    }
    if algorithm == Algorithm::ES256 {
        let (x, y) = (bytes(raw.x.as_deref())?, bytes(raw.y.as_deref())?);
        if x.len() != P256_COORDINATE_BYTES || y.len() != P256_COORDINATE_BYTES {
            return Err(KeyFault::Malformed);
        }
        // Uncompressed point of SEC 1.
        return checked(DecodingKey::from_ec_der(&[&[0x04], &x[..], &y[..]].concat()), algorithm);
    }
    if algorithm == Algorithm::RS256 {
        let (n, e) = (bytes(raw.n.as_deref())?, bytes(raw.e.as_deref())?);
        if n.iter().skip_while(|byte| **byte == 0).count() < RSA_MODULUS_BYTES_MIN {
            return Err(KeyFault::Weak);
        }
        return checked(DecodingKey::from_rsa_raw_components(&n, &e), algorithm);
    }
    let secret = bytes(raw.k.as_deref())?;
    if secret.len() < HS256_SECRET_BYTES_MIN {
        return Err(KeyFault::Weak);
    }
    DecodingKey::from_secret(&secret).map_err(|_| KeyFault::Malformed)
}

/// Tries the key on nothing: a bad one is told from a bad signature now, not with the first token.
fn checked(key: DecodingKey, algorithm: Algorithm) -> Result<DecodingKey, KeyFault> {
    match jsonwebtoken::crypto::verify("", &[], &key, algorithm) {
        Ok(_) => Ok(key),
        Err(_) => Err(KeyFault::Malformed),
    }
}

fn bytes(parameter: Option<&str>) -> Result<Vec<u8>, KeyFault> {
    let bytes = URL_SAFE_NO_PAD.decode(parameter.unwrap_or_default()).map_err(|_| KeyFault::Malformed)?;
    if bytes.is_empty() { Err(KeyFault::Malformed) } else { Ok(bytes) }
}

fn validation(algorithm: Algorithm, audience: &str) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.set_audience(&[audience]);
    validation.set_required_spec_claims(&["aud", "exp", "sub"]);
    // Time is judged by the store's clock, see the module.
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation
}
