//! Wire ⇄ model, one module for each direction of each stream.
//!
//! To the model by `TryFrom` (everything is checked), to the wire by `From` (nothing can fail).

mod detail;
mod link_down;
mod link_up;
mod revoked;
#[cfg(test)]
mod tests;
mod watch_down;
mod watch_up;
mod words;

use std::time::Duration;

use bytes::Bytes;
use presence_model::id::{EdgeName, Generation, NameError, RegionId, RoomId, SessionId, UserId};
use presence_model::lease::LeaseId;
use presence_model::limits::GENERATION_MAX;
use presence_model::link::Token;
use presence_model::profile::{State, StateTooLarge};
use presence_model::time::StoreTime;
use smol_str::SmolStr;

use crate::error::WireError;
use crate::limits::{LABEL_BYTES_MAX, LEASES_MAX, SPAN_MS_MAX, TIME_MS_MAX, TOKEN_BYTES_MAX};

pub use detail::{ended_session, session_detail};
pub use link_up::{hello, hello_request};
pub use revoked::{revocation, revoke_request};
pub use watch_down::room_error;
pub use words::{freshness, members, position, removal_reason, status};

pub(crate) use presence_model::time::millis;

/// `Message.field`, as errors name it.
pub type Field = &'static str;

/// The name of a room; `field` names it in the error.
///
/// # Errors
/// [`WireError::Name`].
pub fn room(field: Field, name: &str) -> Result<RoomId, WireError> {
    RoomId::new(name).map_err(|rule| WireError::Name { field, rule })
}

/// The name of a user; `field` names it in the error.
///
/// # Errors
/// [`WireError::Name`].
pub fn user(field: Field, name: &str) -> Result<UserId, WireError> {
    UserId::new(name).map_err(|rule| WireError::Name { field, rule })
}

/// The name of a region; `field` names it in the error.
///
/// # Errors
/// [`WireError::Name`].
pub fn region(field: Field, name: &str) -> Result<RegionId, WireError> {
    RegionId::new(name).map_err(|rule| WireError::Name { field, rule })
}

/// The name of an edge; `field` names it in the error.
///
/// # Errors
/// [`WireError::Name`].
pub fn edge(field: Field, name: &str) -> Result<EdgeName, WireError> {
    EdgeName::new(name).map_err(|rule: NameError| WireError::Name { field, rule })
}

/// A session id; `field` names it in the error.
///
/// # Errors
/// [`WireError::Name`].
pub fn session(field: Field, id: &str) -> Result<SessionId, WireError> {
    SessionId::new(id).map_err(|rule| WireError::Name { field, rule })
}

/// Text for people, possibly empty; `field` names it in the error.
///
/// # Errors
/// [`WireError::TooLong`].
pub fn label(field: Field, text: &str) -> Result<SmolStr, WireError> {
    if text.len() > LABEL_BYTES_MAX {
        return Err(WireError::TooLong { field, bytes: text.len(), max: LABEL_BYTES_MAX });
    }
    Ok(SmolStr::new(text))
}

fn token(field: Field, text: &str) -> Result<Token, WireError> {
    match text.len() {
        0 => Err(WireError::Missing { field }),
        bytes if bytes > TOKEN_BYTES_MAX => Err(WireError::TooLong { field, bytes, max: TOKEN_BYTES_MAX }),
        _ => Ok(Token(SmolStr::new(text))),
    }
}

/// State of at most 1 KiB; empty is `{}`. That it is JSON is checked by whoever takes it from a client.
///
/// # Errors
/// [`WireError::TooLong`].
pub fn state(field: Field, json: Bytes) -> Result<State, WireError> {
    if json.is_empty() {
        return Ok(State::default());
    }
    State::new(json).map_err(|StateTooLarge { bytes }| WireError::TooLong {
        field,
        bytes,
        max: presence_model::limits::STATE_BYTES_MAX,
    })
}

/// A lease by its plain name: the grace name would revive what a release has ended (G6).
fn lease(field: Field, id: u64) -> Result<LeaseId, WireError> {
    let lease = LeaseId(id);
    if lease.is_grace() {
        return Err(WireError::Rule { field, rule: "must be a lease id without its grace bit" });
    }
    Ok(lease)
}

fn leases(field: Field, ids: Vec<u64>) -> Result<Vec<LeaseId>, WireError> {
    at_most(field, ids.len(), LEASES_MAX)?;
    ids.into_iter().map(|id| lease(field, id)).collect()
}

fn lease_ids(leases: Vec<LeaseId>) -> Vec<u64> {
    leases.into_iter().map(|lease| lease.0).collect()
}

fn at_most(field: Field, count: usize, max: usize) -> Result<(), WireError> {
    if count > max { Err(WireError::TooMany { field, count, max }) } else { Ok(()) }
}

fn required<T>(field: Field, value: Option<T>) -> Result<T, WireError> {
    value.ok_or(WireError::Missing { field })
}

/// A span that must not be zero: timers divide by it.
fn span(field: Field, ms: u64) -> Result<Duration, WireError> {
    if ms == 0 {
        return Err(WireError::Rule { field, rule: "must be above 0" });
    }
    pause(field, ms)
}

/// A span that somebody waits; `field` names it in the error.
fn pause(field: Field, ms: u64) -> Result<Duration, WireError> {
    if ms > SPAN_MS_MAX {
        return Err(WireError::Rule { field, rule: "must be at most an hour, 3600000 ms" });
    }
    Ok(Duration::from_millis(ms))
}

/// How long ago something was; `field` names it in the error.
///
/// # Errors
/// [`WireError::Rule`] above [`TIME_MS_MAX`].
pub fn age(field: Field, ms: u64) -> Result<Duration, WireError> {
    time(field, ms).map(|time| Duration::from_millis(time.0))
}

/// A time by the store's clock; `field` names it in the error.
///
/// # Errors
/// [`WireError::Rule`] above [`TIME_MS_MAX`].
pub fn time(field: Field, ms: u64) -> Result<StoreTime, WireError> {
    if ms > TIME_MS_MAX {
        return Err(WireError::Rule { field, rule: "must be in milliseconds, before the year 10000" });
    }
    Ok(StoreTime(ms))
}

/// A generation that clients of every kind read exactly; `field` names it in the error.
fn generation(field: Field, number: u64) -> Result<Generation, WireError> {
    if number > GENERATION_MAX {
        return Err(WireError::Rule { field, rule: "must be at most 9007199254740991" });
    }
    Ok(Generation(number))
}
