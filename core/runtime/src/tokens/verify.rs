//! From the text of a token to claims, or one reason why not.

use std::fmt;
use std::str::FromStr as _;
use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use jsonwebtoken::errors::{Error, ErrorKind};
use presence_model::claim::{Action, Claims, TokenRefusal};
use presence_model::id::{RoomId, UserId};
use presence_model::limits::{NAME_BYTES_MAX, TOKEN_BYTES_MAX};
use presence_model::record::TokenRef;
use presence_model::time::StoreTime;
use prometheus::IntCounterVec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use smol_str::SmolStr;
use tokio::sync::watch;

use super::jwks::{KeySet, KeysError};
use super::refusals::Refusals;
use crate::clock::Clock;
use crate::limits::NUMERIC_DATE_MAX;

/// Verifies tokens against a set of keys that can be replaced at any time. Cheap to clone; clones share
/// their keys. Upholds G10.
#[derive(Clone)]
pub struct Verifier {
    keys: Arc<ArcSwap<KeySet>>,
    refusals: Option<Arc<Refusals>>,
    /// Counts tokens that name a key that is not in force.
    missing: Arc<watch::Sender<u64>>,
}

impl Verifier {
    /// Verifies with these keys.
    #[must_use]
    pub fn new(keys: KeySet) -> Self {
        Self { keys: Arc::new(ArcSwap::from_pointee(keys)), refusals: None, missing: Arc::default() }
    }

    /// The same, with what counts refusals under the label `reason` and says so now and then.
    #[must_use]
    pub fn counting(self, refused: IntCounterVec, clock: Clock) -> Self {
        Self { refusals: Some(Arc::new(Refusals::new(refused, clock))), ..self }
    }

    /// Replaces all keys by those of a JWKS; tokens of keys that are gone are refused from now on.
    ///
    /// # Errors
    /// [`KeysError`]; the keys are as before.
    pub fn replace(&self, jwks: &[u8]) -> Result<(), KeysError> {
        self.take(KeySet::parse(jwks)?);
        Ok(())
    }

    /// Replaces all keys.
    pub(super) fn take(&self, keys: KeySet) {
        self.keys.store(Arc::new(keys));
    }

    /// Moves when a token names a key that is not in force.
    pub(super) fn missing(&self) -> watch::Receiver<u64> {
        self.missing.subscribe()
    }

    /// The keys in force.
    #[must_use]
    pub fn keys(&self) -> Arc<KeySet> {
        self.keys.load_full()
    }

    /// Verifies everything about a token but its time, its room and its action.
    ///
    /// The caller judges time by the store's clock ([`presence_model::claim::judge_time`]).
    ///
    /// # Errors
    /// `Malformed`, `UnknownKey`, `Algorithm`, `Signature`, `Audience` or `Claim`; nothing of the token is told.
    pub fn verify(&self, token: &str) -> Result<Claims, TokenRefusal> {
        let (claims, kid) = self.read::<RawClaims>(token)?;
        claims.into_claims(kid).ok_or(TokenRefusal::Claim)
    }

    /// The payload of a token whose signature and audience are good, and the id of its key.
    pub(super) fn read<T: DeserializeOwned>(&self, token: &str) -> Result<(T, SmolStr), TokenRefusal> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenRefusal::Malformed);
        }
        let header = read_header(token)?;
        // `none` is no algorithm the library knows.
        let algorithm = Algorithm::from_str(&header.alg).map_err(|_| TokenRefusal::Algorithm)?;
        let keys = self.keys.load();
        let kid = header.kid.ok_or(TokenRefusal::UnknownKey)?;
        let Some((kid, key)) = keys.get(&kid) else {
            self.missing.send_modify(|count| *count += 1);
            return Err(TokenRefusal::UnknownKey);
        };
        if algorithm != key.algorithm {
            return Err(TokenRefusal::Algorithm);
        }
        let data = jsonwebtoken::decode::<T>(token, &key.decoding, &key.validation)
            .map_err(|error| refusal_of(&error))?;
        Ok((data.claims, kid.clone()))
    }

    /// Counts one more token that was refused, here or by whoever judged its claims. Whose it was and why is logged now
    /// and then; nothing of the token is.
    pub fn refused(&self, refusal: TokenRefusal, bearer: &dyn fmt::Display) {
        if let Some(refusals) = &self.refusals {
            refusals.note(refusal, bearer, &self.keys.load());
        }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Verifier").field(&**self.keys.load()).finish()
    }
}

/// The user or service that a token names, whether it is good or not: for who shows a token, never for who is shown one.
#[must_use]
pub fn subject_of(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        sub: String,
    }
    let payload = token.split('.').nth(1)?;
    let json = URL_SAFE_NO_PAD.decode(payload).ok()?;
    Some(serde_json::from_slice::<Named>(&json).ok()?.sub)
}

#[derive(Deserialize)]
struct RawHeader {
    alg: String,
    kid: Option<SmolStr>,
}

fn read_header(token: &str) -> Result<RawHeader, TokenRefusal> {
    let (header, _) = token.split_once('.').ok_or(TokenRefusal::Malformed)?;
    let json = URL_SAFE_NO_PAD.decode(header).map_err(|_| TokenRefusal::Malformed)?;
    serde_json::from_slice(&json).map_err(|_| TokenRefusal::Malformed)
}

/// The payload. A claim given twice is an error of the reader.
#[derive(Deserialize)]
struct RawClaims {
    sub: String,
    room: String,
    act: String,
    exp: NumericDate,
    nbf: Option<NumericDate>,
    jti: Option<SmolStr>,
}

impl RawClaims {
    fn into_claims(self, kid: SmolStr) -> Option<Claims> {
        let action = match self.act.as_str() {
            "join" => Action::Join,
            "watch" => Action::Watch,
            _ => return None,
        };
        let token_id = self.jti.unwrap_or_default();
        if token_id.len() > NAME_BYTES_MAX {
            return None;
        }
        Some(Claims {
            user: UserId::new(&self.sub).ok()?,
            room: RoomId::new(&self.room).ok()?,
            action,
            not_before: self.nbf.map(|date| date.0),
            token: TokenRef { ends: self.exp.0, key_id: kid, token_id },
        })
    }
}

/// Seconds since 1970, whole or not, before the year 10000.
pub(super) struct NumericDate(pub(super) StoreTime);

impl<'de> Deserialize<'de> for NumericDate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        // Exact: milliseconds of such dates are below 2^53.
        if (0.0..=NUMERIC_DATE_MAX as f64).contains(&seconds) {
            Ok(Self(StoreTime((seconds * 1000.0).floor() as u64)))
        } else {
            Err(serde::de::Error::custom("not seconds since 1970"))
        }
    }
}

fn refusal_of(error: &Error) -> TokenRefusal {
    let kind = error.kind();
    if matches!(kind, ErrorKind::InvalidSignature) {
        TokenRefusal::Signature
    } else if matches!(kind, ErrorKind::InvalidAlgorithm | ErrorKind::MissingAlgorithm) {
        TokenRefusal::Algorithm
    } else if matches!(kind, ErrorKind::InvalidAudience) {
        TokenRefusal::Audience
    } else if matches!(kind, ErrorKind::MissingRequiredClaim(_) | ErrorKind::InvalidClaimFormat(_))
        || matches!(kind, ErrorKind::Json(error) if error.is_data())
    {
        TokenRefusal::Claim
    } else {
        TokenRefusal::Malformed
    }
}
