//! Why somebody is shown, or not.

use std::time::Duration;

use presence_model::id::{
    ConnectionId, EdgeName, Generation, Incarnation, RegionId, RoomId, SessionId, UserId,
};
use presence_model::position::Position;
use presence_model::profile::{Member, Profile};
use presence_model::reason::RemovalReason;
use presence_model::replica::Freshness;
use presence_model::time::StoreTime;
use presence_proto::convert;
use presence_proto::v1::admin_service_client::AdminServiceClient;
use presence_proto::{WireError, v1};
use smol_str::SmolStr;

use crate::client::Client;
use crate::error::ClientError;

/// Why a member is shown, or not (G12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// As shown; none: not there.
    pub member: Option<Member>,
    /// Sessions that count.
    pub sessions: Vec<SessionNow>,
    /// Sessions that ended within the last hour, latest first.
    pub ended: Vec<EndedSession>,
    /// Whose word this is.
    pub region: RegionId,
    /// Where its roster is.
    pub position: Position,
    /// How fresh it is.
    pub freshness: Freshness,
    /// The store's clock.
    pub now: StoreTime,
    /// The same for people.
    pub story: String,
    /// The room's class; empty if the core knows of none.
    pub class: SmolStr,
}

/// A session that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionNow {
    /// Its id.
    pub session: SessionId,
    /// Its attempt.
    pub generation: Generation,
    /// Its transport.
    pub connection: ConnectionId,
    /// Name of its edge.
    pub edge: EdgeName,
    /// The run of that edge.
    pub edge_incarnation: Incarnation,
    /// Where that edge runs.
    pub region: RegionId,
    /// Release name of the client software; may be empty.
    pub client: SmolStr,
    /// What it says about itself.
    pub profile: Profile,
    /// When its lease runs out; none: no lease was found.
    pub deadline: Option<StoreTime>,
    /// Whether its transport was released and a grace runs.
    pub in_grace: bool,
    /// Since its last accepted heartbeat.
    pub heartbeat_age: Duration,
    /// When this attempt was granted.
    pub joined: StoreTime,
    /// End of its token.
    pub token_ends: StoreTime,
}

/// A session that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedSession {
    /// Its id.
    pub session: SessionId,
    /// The highest attempt that ended.
    pub generation: Generation,
    /// Why.
    pub reason: RemovalReason,
    /// When.
    pub ended: StoreTime,
    /// How long it had been silent.
    pub silent_for: Duration,
}

impl Client {
    /// Why a user is shown in a room, or not.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn explain(&self, room: &RoomId, user: &UserId) -> Result<Explanation, ClientError> {
        let request = v1::ExplainRequest { room: room.as_str().to_owned(), user: user.as_str().to_owned() };
        let answer = self
            .ask(|channel| {
                let request = request.clone();
                async move { AdminServiceClient::new(channel).explain(request).await }
            })
            .await?;
        Ok(answer.try_into()?)
    }
}

impl TryFrom<v1::ExplainResponse> for Explanation {
    type Error = WireError;

    fn try_from(wire: v1::ExplainResponse) -> Result<Self, WireError> {
        Ok(Self {
            member: wire.member.map(Member::try_from).transpose()?,
            sessions: wire.sessions.into_iter().map(SessionNow::try_from).collect::<Result<_, _>>()?,
            ended: wire.ended.into_iter().map(EndedSession::try_from).collect::<Result<_, _>>()?,
            region: convert::region("ExplainResponse.region", &wire.region)?,
            position: convert::position("ExplainResponse.position", wire.position)?,
            freshness: convert::freshness("ExplainResponse.freshness", wire.freshness)?,
            now: convert::time("ExplainResponse.store_time_ms", wire.store_time_ms)?,
            story: wire.story,
            class: convert::label("ExplainResponse.class", &wire.class)?,
        })
    }
}

impl TryFrom<v1::SessionDetail> for SessionNow {
    type Error = WireError;

    fn try_from(wire: v1::SessionDetail) -> Result<Self, WireError> {
        Ok(Self {
            session: convert::session("SessionDetail.session", &wire.session)?,
            generation: Generation(wire.generation),
            connection: ConnectionId(wire.connection),
            edge: convert::edge("SessionDetail.edge", &wire.edge)?,
            edge_incarnation: Incarnation(wire.edge_incarnation),
            region: convert::region("SessionDetail.region", &wire.region)?,
            client: convert::label("SessionDetail.client", &wire.client)?,
            profile: Profile {
                status: convert::status("SessionDetail.status", wire.status)?,
                state: convert::state("SessionDetail.state", wire.state)?,
            },
            deadline: Some(convert::time("SessionDetail.deadline_ms", wire.deadline_ms)?)
                .filter(|deadline| deadline.0 > 0),
            in_grace: wire.in_grace,
            heartbeat_age: convert::age("SessionDetail.heartbeat_age_ms", wire.heartbeat_age_ms)?,
            joined: convert::time("SessionDetail.joined_ms", wire.joined_ms)?,
            token_ends: convert::time("SessionDetail.token_ends_ms", wire.token_ends_ms)?,
        })
    }
}

impl TryFrom<v1::EndedSession> for EndedSession {
    type Error = WireError;

    fn try_from(wire: v1::EndedSession) -> Result<Self, WireError> {
        Ok(Self {
            session: convert::session("EndedSession.session", &wire.session)?,
            generation: Generation(wire.generation),
            reason: convert::removal_reason("EndedSession.reason", wire.reason)?,
            ended: convert::time("EndedSession.ended_ms", wire.ended_ms)?,
            silent_for: convert::age("EndedSession.silent_for_ms", wire.silent_for_ms)?,
        })
    }
}
