//! What is revoked.

use std::time::Duration;

use presence_model::limits::NAME_BYTES_MAX;
use presence_model::revocation::Revocation;
use presence_model::time::StoreTime;
use smol_str::SmolStr;

use super::{Field, at_most, required, time, user};
use crate::error::WireError;
use crate::limits::{REVOCATIONS_MAX, REVOKED_FOR_MS_MAX};
use crate::v1::{self, revocation::What};

/// What is asked to be revoked, and for how long.
///
/// # Errors
/// [`WireError`].
pub fn revoke_request(wire: v1::RevokeRequest) -> Result<(Revocation, Duration), WireError> {
    let what = required("RevokeRequest.what", wire.what)?.try_into()?;
    match wire.for_ms {
        0 => Ok((what, Duration::from_millis(REVOKED_FOR_MS_MAX))),
        1..=REVOKED_FOR_MS_MAX => Ok((what, Duration::from_millis(wire.for_ms))),
        _ => Err(WireError::Rule {
            field: "RevokeRequest.for_ms",
            rule: "must be at most ten years, 315360000000 ms",
        }),
    }
}

/// What is revoked of tokens, on the wire; none: a session that was evicted, which is the affair of cores.
#[must_use]
pub fn revocation(what: Revocation) -> Option<v1::Revocation> {
    let what = match what {
        Revocation::Subject(user) => What::Subject(user.as_str().to_owned()),
        Revocation::Token(id) => What::TokenId(id.into()),
        Revocation::Key(id) => What::KeyId(id.into()),
        Revocation::Session { .. } => return None,
    };
    Some(v1::Revocation { what: Some(what) })
}

impl TryFrom<v1::Revocation> for Revocation {
    type Error = WireError;

    fn try_from(wire: v1::Revocation) -> Result<Self, WireError> {
        match required("Revocation.what", wire.what)? {
            What::Subject(name) => Ok(Self::Subject(user("Revocation.subject", &name)?)),
            What::TokenId(text) => Ok(Self::Token(id("Revocation.token_id", &text)?)),
            What::KeyId(text) => Ok(Self::Key(id("Revocation.key_id", &text)?)),
        }
    }
}

/// What a token names by it is as long as a name.
fn id(field: Field, text: &str) -> Result<SmolStr, WireError> {
    match text.len() {
        0 => Err(WireError::Missing { field }),
        bytes if bytes > NAME_BYTES_MAX => Err(WireError::TooLong { field, bytes, max: NAME_BYTES_MAX }),
        _ => Ok(SmolStr::new(text)),
    }
}

pub(super) fn told(revocations: Vec<(Revocation, StoreTime)>) -> v1::Revoked {
    let told = |(what, until): (Revocation, StoreTime)| {
        Some(v1::RevokedUntil { what: Some(revocation(what)?), until_ms: until.0 })
    };
    v1::Revoked { revocations: revocations.into_iter().filter_map(told).collect() }
}

pub(super) fn heard(wire: v1::Revoked) -> Result<Vec<(Revocation, StoreTime)>, WireError> {
    at_most("Revoked.revocations", wire.revocations.len(), REVOCATIONS_MAX)?;
    let read = |one: v1::RevokedUntil| {
        let what = required("RevokedUntil.what", one.what)?.try_into()?;
        Ok((what, time("RevokedUntil.until_ms", one.until_ms)?))
    };
    wire.revocations.into_iter().map(read).collect()
}
