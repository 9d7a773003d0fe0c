//! From edge to core.

use std::time::Duration;

use presence_model::cursor::Cursor;
use presence_model::id::{ConnectionId, Generation, Incarnation, LinkNumber};
use presence_model::link::{BatchId, Hello, JoinUp, LinkUp, RequestId, UnansweredJoin};
use presence_model::profile::Profile;
use presence_model::time::StoreTime;

use super::words::{leave_reason, release_reason, status};
use super::{
    at_most, edge, generation, label, lease, lease_ids, leases, millis, region, room, session, state, token,
    user,
};
use crate::error::WireError;
use crate::limits::UNANSWERED_MAX;
use crate::v1::{self, link_request::Message};

/// The first message of a link.
///
/// # Errors
/// [`WireError::Missing`] if it is anything else, else what is wrong with it.
pub fn hello(first: v1::LinkRequest) -> Result<Hello, WireError> {
    let Some(Message::Hello(wire)) = first.message else {
        return Err(WireError::Missing { field: "LinkRequest.hello" });
    };
    Ok(Hello {
        edge: edge("Hello.edge", &wire.edge)?,
        incarnation: Incarnation(wire.incarnation),
        link: LinkNumber(wire.link_number),
        region: region("Hello.region", &wire.region)?,
        release: label("Hello.release", &wire.release)?,
    })
}

/// The first message of a link.
#[must_use]
pub fn hello_request(hello: Hello) -> v1::LinkRequest {
    request(Message::Hello(v1::Hello {
        edge: hello.edge.as_str().to_owned(),
        incarnation: hello.incarnation.0,
        link_number: hello.link.0,
        region: hello.region.as_str().to_owned(),
        release: hello.release.into(),
    }))
}

fn request(message: Message) -> v1::LinkRequest {
    v1::LinkRequest { message: Some(message) }
}

impl From<LinkUp> for v1::LinkRequest {
    fn from(up: LinkUp) -> Self {
        request(match up {
            LinkUp::Beat { sequence } => Message::Beat(v1::EdgeBeat { sequence }),
            LinkUp::Join(join) => Message::Join((*join).into()),
            LinkUp::Renew { batch, leases } => {
                Message::Renew(v1::Renew { batch: batch.0, leases: lease_ids(leases) })
            }
            LinkUp::Release { request, leases, reason, hint, unanswered } => Message::Release(v1::Release {
                request: request.0,
                leases: lease_ids(leases),
                reason: v1::ReleaseReason::from(reason).into(),
                hint_ms: millis(hint),
                unanswered: unanswered.into_iter().map(Into::into).collect(),
            }),
            LinkUp::Update { request, lease, room, user, status, state, token } => {
                Message::Update(v1::Update {
                    request: request.0,
                    lease: lease.0,
                    room: room.as_str().to_owned(),
                    user: user.as_str().to_owned(),
                    status: status.map(|status| v1::Status::from(status).into()),
                    state: state.map(|state| state.to_bytes()),
                    token: token.map(|token| token.0.into()),
                })
            }
            LinkUp::Leave { request, lease, room, user, reason } => Message::Leave(v1::Leave {
                request: request.0,
                lease: lease.0,
                room: room.as_str().to_owned(),
                user: user.as_str().to_owned(),
                reason: v1::LeaveReason::from(reason).into(),
            }),
            LinkUp::Bye { moving } => Message::Bye(v1::Bye { moving }),
        })
    }
}

impl TryFrom<v1::LinkRequest> for LinkUp {
    type Error = WireError;

    fn try_from(wire: v1::LinkRequest) -> Result<Self, WireError> {
        match wire.message {
            None => Err(WireError::Unknown { field: "LinkRequest.message" }),
            Some(Message::Hello(_)) => {
                Err(WireError::Rule { field: "LinkRequest.hello", rule: "must come first, and once" })
            }
            Some(Message::Beat(beat)) => Ok(Self::Beat { sequence: beat.sequence }),
            Some(Message::Join(join)) => Ok(Self::Join(Box::new(join.try_into()?))),
            Some(Message::Renew(renew)) => {
                Ok(Self::Renew { batch: BatchId(renew.batch), leases: leases("Renew.leases", renew.leases)? })
            }
            Some(Message::Release(release)) => release.try_into(),
            Some(Message::Update(update)) => update.try_into(),
            Some(Message::Leave(leave)) => Ok(Self::Leave {
                request: RequestId(leave.request),
                lease: lease("Leave.lease", leave.lease)?,
                room: room("Leave.room", &leave.room)?,
                user: user("Leave.user", &leave.user)?,
                reason: leave_reason("Leave.reason", leave.reason)?,
            }),
            Some(Message::Bye(bye)) => Ok(Self::Bye { moving: bye.moving }),
        }
    }
}

impl TryFrom<v1::Release> for LinkUp {
    type Error = WireError;

    fn try_from(wire: v1::Release) -> Result<Self, WireError> {
        at_most("Release.unanswered", wire.unanswered.len(), UNANSWERED_MAX)?;
        Ok(Self::Release {
            request: RequestId(wire.request),
            leases: leases("Release.leases", wire.leases)?,
            reason: release_reason("Release.reason", wire.reason)?,
            hint: Duration::from_millis(wire.hint_ms),
            unanswered: wire.unanswered.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
        })
    }
}

impl TryFrom<v1::Update> for LinkUp {
    type Error = WireError;

    fn try_from(wire: v1::Update) -> Result<Self, WireError> {
        Ok(Self::Update {
            request: RequestId(wire.request),
            lease: lease("Update.lease", wire.lease)?,
            room: room("Update.room", &wire.room)?,
            user: user("Update.user", &wire.user)?,
            status: wire.status.map(|value| status("Update.status", value)).transpose()?,
            state: wire.state.map(|json| state("Update.state", json)).transpose()?,
            token: wire.token.map(|text| token("Update.token", &text)).transpose()?,
        })
    }
}

impl From<JoinUp> for v1::Join {
    fn from(join: JoinUp) -> Self {
        Self {
            request: join.request.0,
            room: join.room.as_str().to_owned(),
            token: join.token.0.into(),
            session: join.session.as_str().to_owned(),
            generation: join.generation.map(|generation| generation.0),
            connection: join.connection.0,
            status: v1::Status::from(join.profile.status).into(),
            state: join.profile.state.to_bytes(),
            client: join.client.into(),
            rejoin_since_ms: join.rejoin.map(|since| since.0),
            cursor: (!join.cursor.is_empty()).then(|| join.cursor.into()),
        }
    }
}

impl TryFrom<v1::Join> for JoinUp {
    type Error = WireError;

    fn try_from(wire: v1::Join) -> Result<Self, WireError> {
        Ok(Self {
            request: RequestId(wire.request),
            room: room("Join.room", &wire.room)?,
            token: token("Join.token", &wire.token)?,
            session: session("Join.session", &wire.session)?,
            // A client's word: whoever decides refuses one too high, and the link goes on.
            generation: wire.generation.map(Generation),
            connection: ConnectionId(wire.connection),
            profile: Profile {
                status: status("Join.status", wire.status)?,
                state: state("Join.state", wire.state)?,
            },
            client: label("Join.client", &wire.client)?,
            // So is one in the future: it is not believed.
            rejoin: wire.rejoin_since_ms.map(StoreTime),
            cursor: wire.cursor.map(Cursor::try_from).transpose()?.unwrap_or_default(),
        })
    }
}

impl From<UnansweredJoin> for v1::UnansweredJoin {
    fn from(join: UnansweredJoin) -> Self {
        Self {
            room: join.room.as_str().to_owned(),
            user: join.user.as_str().to_owned(),
            session: join.session.as_str().to_owned(),
            generation: join.generation.map(|generation| generation.0),
            connection: join.connection.0,
            request: join.request.0,
        }
    }
}

impl TryFrom<v1::UnansweredJoin> for UnansweredJoin {
    type Error = WireError;

    fn try_from(wire: v1::UnansweredJoin) -> Result<Self, WireError> {
        Ok(Self {
            room: room("UnansweredJoin.room", &wire.room)?,
            user: user("UnansweredJoin.user", &wire.user)?,
            session: session("UnansweredJoin.session", &wire.session)?,
            generation: wire
                .generation
                .map(|number| generation("UnansweredJoin.generation", number))
                .transpose()?,
            connection: ConnectionId(wire.connection),
            request: RequestId(wire.request),
        })
    }
}
