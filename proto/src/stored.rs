//! What a core keeps in its store ⇄ model: records, tombstones, and what history tells.
//!
//! What is read back is checked like a message of another process: another release may have written it.

use std::time::Duration;

use bytes::Bytes;
use presence_model::change::{Change, Removal, Transition, TransitionKind, Visible};
use presence_model::id::{ConnectionId, Generation, Incarnation, UserId};
use presence_model::lease::LeaseId;
use presence_model::link::RequestId;
use presence_model::profile::{Member, Profile};
use presence_model::reason::Ending;
use presence_model::record::{EdgeRef, Record, SessionRecord, TokenRef, Tombstone};
use presence_model::time::StoreTime;
use prost::Message as _;

use crate::convert::{edge, millis, region, removal_reason, session, state, status, user};
use crate::error::WireError;
use crate::v1;

/// Package `presence.stored.v1`: messages as the `.proto` file documents them.
#[expect(unreachable_pub, reason = "generated")]
mod v1_stored {
    tonic::include_proto!("presence.stored.v1");
}

use v1_stored as wire;
use wire::told::Visible as WireVisible;
use wire::transition::Kind;

/// What history tells of one member's change in a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Who.
    pub user: UserId,
    /// What others see; none: nothing.
    pub visible: Option<Visible>,
    /// What happened to the sessions.
    pub transitions: Vec<Transition>,
}

/// Encodes a record.
#[must_use]
pub fn encode_record(record: &Record) -> Vec<u8> {
    let sessions = record.sessions.iter().map(session_to_wire).collect();
    wire::Record { since_ms: record.since.0, sessions }.encode_to_vec()
}

fn session_to_wire(record: &SessionRecord) -> wire::Session {
    wire::Session {
        session: record.session.as_str().to_owned(),
        lease: record.lease.0,
        generation: record.generation.0,
        connection: record.connection.0,
        request: record.request.0,
        edge: record.edge.name.as_str().to_owned(),
        edge_incarnation: record.edge.incarnation.0,
        edge_region: record.edge.region.as_str().to_owned(),
        status: v1::Status::from(record.profile.status).into(),
        state: record.profile.state.to_bytes(),
        updated_ms: record.updated.0,
        joined_ms: record.joined.0,
        client: record.client.as_str().to_owned(),
        token_ends_ms: record.token.ends.0,
        key_id: record.token.key_id.as_str().to_owned(),
        token_id: record.token.token_id.as_str().to_owned(),
    }
}

/// Decodes a record.
///
/// # Errors
/// [`WireError`]: not one, or out of the bounds of the model.
pub fn decode_record(bytes: &[u8]) -> Result<Record, WireError> {
    let record = wire::Record::decode(bytes).map_err(|_| unreadable("Record"))?;
    if record.sessions.is_empty() {
        return Err(WireError::Missing { field: "Record.sessions" });
    }
    let sessions = record.sessions.into_iter().map(session_from_wire).collect::<Result<_, _>>()?;
    Ok(Record { since: StoreTime(record.since_ms), sessions })
}

fn session_from_wire(stored: wire::Session) -> Result<SessionRecord, WireError> {
    Ok(SessionRecord {
        session: session("Session.session", &stored.session)?,
        lease: LeaseId(stored.lease).plain_name(),
        generation: Generation(stored.generation),
        connection: ConnectionId(stored.connection),
        request: RequestId(stored.request),
        edge: EdgeRef {
            name: edge("Session.edge", &stored.edge)?,
            incarnation: Incarnation(stored.edge_incarnation),
            region: region("Session.edge_region", &stored.edge_region)?,
        },
        profile: Profile {
            status: status("Session.status", stored.status)?,
            state: state("Session.state", stored.state)?,
        },
        updated: StoreTime(stored.updated_ms),
        joined: StoreTime(stored.joined_ms),
        client: stored.client.into(),
        token: TokenRef {
            ends: StoreTime(stored.token_ends_ms),
            key_id: stored.key_id.into(),
            token_id: stored.token_id.into(),
        },
    })
}

/// Encodes a tombstone.
#[must_use]
pub fn encode_tombstone(tombstone: &Tombstone) -> Vec<u8> {
    wire::Tombstone {
        generation: tombstone.generation.0,
        connection: tombstone.connection.0,
        request: tombstone.request.0,
        reason: v1::RemovalReason::from(tombstone.reason).into(),
        ended_ms: tombstone.ended.0,
        silent_for_ms: tombstone.silent_for_ms,
    }
    .encode_to_vec()
}

/// Decodes a tombstone.
///
/// # Errors
/// [`WireError`]: not one.
pub fn decode_tombstone(bytes: &[u8]) -> Result<Tombstone, WireError> {
    let stored = wire::Tombstone::decode(bytes).map_err(|_| unreadable("Tombstone"))?;
    Ok(Tombstone {
        generation: Generation(stored.generation),
        connection: ConnectionId(stored.connection),
        request: RequestId(stored.request),
        reason: removal_reason("Tombstone.reason", stored.reason)?,
        ended: StoreTime(stored.ended_ms),
        silent_for_ms: stored.silent_for_ms,
    })
}

/// Encodes what history tells of a change.
#[must_use]
pub fn encode_told(change: &Change) -> Vec<u8> {
    let visible = change.visible().map(|visible| match visible {
        Visible::Upsert(member) => WireVisible::Upsert(member.into()),
        Visible::Removal(removal) => WireVisible::Removal(removal.into()),
    });
    let transitions = change.transitions.iter().map(transition_to_wire).collect();
    wire::Told { user: change.user.as_str().to_owned(), visible, transitions }.encode_to_vec()
}

fn transition_to_wire(transition: &Transition) -> wire::Transition {
    let kind = match transition.kind {
        TransitionKind::Joined => Kind::Joined,
        TransitionKind::Updated => Kind::Updated,
        TransitionKind::Ended(_) => Kind::Ended,
    };
    let ending = transition.kind.ending();
    wire::Transition {
        kind: kind.into(),
        session: transition.session.as_str().to_owned(),
        generation: transition.generation.0,
        connection: transition.connection.0,
        edge_incarnation: transition.edge.0,
        lease: transition.lease.0,
        reason: ending.map_or(0, |ending| v1::RemovalReason::from(ending.reason).into()),
        silent_for_ms: ending.map_or(0, |ending| millis(ending.silent_for)),
        moved: transition.moved,
    }
}

/// Decodes what history tells of a change.
///
/// # Errors
/// [`WireError`]: not that, or out of the bounds of the model.
pub fn decode_told(bytes: Bytes) -> Result<Told, WireError> {
    let told = wire::Told::decode(bytes).map_err(|_| unreadable("Told"))?;
    let visible = match told.visible {
        None => None,
        Some(WireVisible::Upsert(member)) => Some(Visible::Upsert(Member::try_from(member)?)),
        Some(WireVisible::Removal(removal)) => Some(Visible::Removal(Removal::try_from(removal)?)),
    };
    let transitions = told.transitions.into_iter().map(transition_from_wire).collect::<Result<_, _>>()?;
    Ok(Told { user: user("Told.user", &told.user)?, visible, transitions })
}

fn transition_from_wire(stored: wire::Transition) -> Result<Transition, WireError> {
    let kind = match Kind::try_from(stored.kind) {
        Ok(Kind::Joined) => TransitionKind::Joined,
        Ok(Kind::Updated) => TransitionKind::Updated,
        Ok(Kind::Ended) => TransitionKind::Ended(Ending {
            reason: removal_reason("Transition.reason", stored.reason)?,
            silent_for: Duration::from_millis(stored.silent_for_ms),
        }),
        Ok(Kind::Unspecified) | Err(_) => {
            return Err(WireError::UnknownValue { field: "Transition.kind", value: stored.kind });
        }
    };
    Ok(Transition {
        session: session("Transition.session", &stored.session)?,
        generation: Generation(stored.generation),
        connection: ConnectionId(stored.connection),
        edge: Incarnation(stored.edge_incarnation),
        lease: LeaseId(stored.lease),
        kind,
        moved: stored.moved,
    })
}

fn unreadable(field: &'static str) -> WireError {
    WireError::Rule { field, rule: "must be a message of presence.stored.v1" }
}

#[cfg(test)]
mod tests;
