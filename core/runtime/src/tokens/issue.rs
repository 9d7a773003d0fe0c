//! Issuing tokens: for `presence token`, development and tests. Real ones come from the operator's issuer.

use std::fmt;

use ed25519_dalek::SigningKey;
use ed25519_dalek::pkcs8::{DecodePrivateKey as _, EncodePrivateKey as _, KeypairBytes};
use jsonwebtoken::jwk::{Jwk, ThumbprintHash};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use presence_model::claim::Action;
use presence_model::id::{RoomId, UserId};
use presence_model::time::StoreTime;
use serde::Serialize;
use smol_str::SmolStr;

use super::AUDIENCE;
use crate::limits::HS256_SECRET_BYTES_MIN;

/// A signing key was refused. Never quotes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyUnusable {
    /// Not an Ed25519 private key in PKCS#8 PEM.
    #[error("is not an Ed25519 private key in PKCS#8 PEM, as `presence keys DIR` or openssl writes it")]
    NotEd25519,
    /// Too short for HS256.
    #[error("an HS256 secret has at least {HS256_SECRET_BYTES_MIN} bytes")]
    ShortSecret,
}

/// What a token is to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Who bears it.
    pub user: UserId,
    /// The one room.
    pub room: RoomId,
    /// The one action.
    pub action: Action,
    /// Its end; rounded down to whole seconds.
    pub ends: StoreTime,
    /// Its start, if it has one; rounded down to whole seconds.
    pub not_before: Option<StoreTime>,
    /// Its own id, so that it can be revoked alone.
    pub token_id: Option<SmolStr>,
}

/// Signs tokens with one key. Debug shows the key's id only.
pub struct Issuer {
    key: EncodingKey,
    header: Header,
    audience: SmolStr,
}

impl Issuer {
    /// Signs by EdDSA with a key of `key.pem`; its id is its RFC 7638 thumbprint, as in `jwks.json`.
    ///
    /// # Errors
    /// [`KeyUnusable::NotEd25519`].
    pub fn from_pem(pem: &str) -> Result<Self, KeyUnusable> {
        let key = SigningKey::from_pkcs8_pem(pem).map_err(|_| KeyUnusable::NotEd25519)?;
        let (key, jwk) = ed25519_parts(&key);
        let kid = thumbprint(&jwk);
        let header = Header { kid: Some(kid), ..Header::new(Algorithm::EdDSA) };
        Ok(Self { key, header, audience: AUDIENCE.into() })
    }

    /// Signs by HS256 with a secret that the verifying side knows under this id: for development.
    ///
    /// # Errors
    /// [`KeyUnusable::ShortSecret`].
    pub fn from_secret(kid: &str, secret: &[u8]) -> Result<Self, KeyUnusable> {
        if secret.len() < HS256_SECRET_BYTES_MIN {
            return Err(KeyUnusable::ShortSecret);
        }
        let key = EncodingKey::from_secret(secret).map_err(|_| KeyUnusable::ShortSecret)?;
        let header = Header { kid: Some(kid.to_owned()), ..Header::new(Algorithm::HS256) };
        Ok(Self { key, header, audience: AUDIENCE.into() })
    }

    /// The same, for tokens of another audience.
    #[must_use]
    pub fn with_audience(self, audience: &str) -> Self {
        Self { audience: audience.into(), ..self }
    }

    pub(super) fn audience(&self) -> &str {
        &self.audience
    }

    /// The id of the key, which every token names.
    #[must_use]
    pub fn key_id(&self) -> &str {
        self.header.kid.as_deref().unwrap_or_default()
    }

    /// The signed token, as text.
    #[must_use]
    pub fn sign(&self, grant: &Grant) -> String {
        let claims = SignedClaims {
            sub: grant.user.as_str(),
            room: grant.room.as_str(),
            act: match grant.action {
                Action::Join => "join",
                Action::Watch => "watch",
            },
            aud: &self.audience,
            exp: grant.ends.0 / 1000,
            nbf: grant.not_before.map(|start| start.0 / 1000),
            jti: grant.token_id.as_deref(),
        };
        self.encode(&claims)
    }

    /// These claims, signed.
    pub(super) fn encode(&self, claims: &impl Serialize) -> String {
        jsonwebtoken::encode(&self.header, claims, &self.key).expect("the key was tried when it was accepted")
    }
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Issuer").field(&self.key_id()).finish()
    }
}

#[derive(Serialize)]
struct SignedClaims<'a> {
    sub: &'a str,
    room: &'a str,
    act: &'a str,
    aud: &'a str,
    exp: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    nbf: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jti: Option<&'a str>,
}

/// The signing key without its public half (PKCS#8 v1): with it, the token library derives no public key.
pub(super) fn without_public_half(key: &SigningKey) -> KeypairBytes {
    KeypairBytes { secret_key: key.to_bytes(), public_key: None }
}

/// The key as the token library wants it, and its public half.
pub(super) fn ed25519_parts(key: &SigningKey) -> (EncodingKey, Jwk) {
    let der = without_public_half(key).to_pkcs8_der().expect("32 bytes always encode");
    let encoding = EncodingKey::from_ed_der(der.as_bytes());
    let jwk = Jwk::from_encoding_key(&encoding, Algorithm::EdDSA).expect("a v1 document of 48 bytes");
    (encoding, jwk)
}

pub(super) fn thumbprint(jwk: &Jwk) -> String {
    jwk.thumbprint(ThumbprintHash::SHA256).expect("an Ed25519 key has a thumbprint")
}
