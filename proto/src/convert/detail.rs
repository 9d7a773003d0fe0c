//! What `Explain` tells about sessions.

use std::time::Duration;

use presence_model::id::SessionId;
use presence_model::record::{LeaseState, SessionRecord, Tombstone};

use super::millis;
use crate::v1;

/// A session that counts, with its lease if one was found, and the age of its last heartbeat.
#[must_use]
pub fn session_detail(
    record: &SessionRecord,
    lease: Option<LeaseState>,
    heartbeat_age: Duration,
) -> v1::SessionDetail {
    v1::SessionDetail {
        session: record.session.as_str().to_owned(),
        generation: record.generation.0,
        connection: record.connection.0,
        edge: record.edge.name.as_str().to_owned(),
        edge_incarnation: record.edge.incarnation.0,
        region: record.edge.region.as_str().to_owned(),
        client: record.client.as_str().to_owned(),
        status: v1::Status::from(record.profile.status).into(),
        state: record.profile.state.to_bytes(),
        deadline_ms: lease.map_or(0, |lease| lease.deadline().0),
        in_grace: matches!(lease, Some(LeaseState::Grace { .. })),
        heartbeat_age_ms: millis(heartbeat_age),
        joined_ms: record.joined.0,
        token_ends_ms: record.token.ends.0,
    }
}

/// A session that ended.
#[must_use]
pub fn ended_session(session: &SessionId, tombstone: &Tombstone) -> v1::EndedSession {
    v1::EndedSession {
        session: session.as_str().to_owned(),
        generation: tombstone.generation.0,
        reason: v1::RemovalReason::from(tombstone.reason).into(),
        ended_ms: tombstone.ended.0,
        silent_for_ms: tombstone.silent_for_ms,
    }
}
