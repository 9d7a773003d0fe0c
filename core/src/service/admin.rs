//! `AdminService`: what operators ask, and what they decide.

use presence_model::class::DEFAULT_CLASS;
use presence_model::id::{EdgeName, Incarnation, UserId};
use presence_model::member;
use presence_proto::status::ServiceError;
use presence_proto::{convert, v1};
use tonic::{Request, Response, Status};

use super::presence::{bad, room};
use super::{Api, caller};
use crate::driver::{Answer, Explained, Query};
use crate::story;

/// Explanations, evictions, revocations and edges sent away.
#[derive(Debug)]
pub(crate) struct AdminApi(pub(super) Api);

#[tonic::async_trait]
impl v1::admin_service_server::AdminService for AdminApi {
    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainResponse>, Status> {
        let caller = caller(&request)?;
        let asked = request.into_inner();
        let room = room(&asked.room)?;
        let user = user(&asked.user)?;
        let query = Query::Explain { room: room.clone(), user: user.clone() };
        let Answer::Explain(explained) = self.0.ask(&caller, query).await? else {
            return Err(ServiceError::Internal.into());
        };
        let mut response = response(&user, &explained);
        response.story = story::tell(&room, &user, &explained);
        Ok(Response::new(response))
    }

    async fn evict(&self, request: Request<v1::EvictRequest>) -> Result<Response<v1::EvictResponse>, Status> {
        let caller = caller(&request)?;
        let asked = request.into_inner();
        let room = room(&asked.room)?;
        let user = user(&asked.user)?;
        let Answer::Evicted { sessions } = self.0.evict(&caller, room.clone(), user.clone()).await? else {
            return Err(ServiceError::Internal.into());
        };
        tracing::info!(%room, %user, sessions, by = caller.who(), "an operator put a user out");
        Ok(Response::new(v1::EvictResponse { sessions: u32::try_from(sessions).unwrap_or(u32::MAX) }))
    }

    async fn revoke(
        &self,
        request: Request<v1::RevokeRequest>,
    ) -> Result<Response<v1::RevokeResponse>, Status> {
        let caller = caller(&request)?;
        let (what, span) = convert::revoke_request(request.into_inner())?;
        let Answer::Revoked { until } = self.0.revoke(&caller, what.clone(), span).await? else {
            return Err(ServiceError::Internal.into());
        };
        tracing::info!(%what, until_ms = until.0, by = caller.who(), "an operator revoked what tokens rest on");
        Ok(Response::new(v1::RevokeResponse { until_ms: until.0 }))
    }

    async fn drain_edge(
        &self,
        request: Request<v1::DrainEdgeRequest>,
    ) -> Result<Response<v1::DrainEdgeResponse>, Status> {
        let caller = caller(&request)?;
        let asked = request.into_inner();
        let name = EdgeName::new(asked.edge).map_err(|error| bad(&error.to_string()))?;
        let run = asked.incarnation.map(Incarnation);
        let Answer::Leaving(runs) = self.0.drain_edge(&caller, name.clone(), run).await? else {
            return Err(ServiceError::Internal.into());
        };
        if run.is_none() {
            tracing::info!(edge = %name, by = caller.who(), "an operator sends an edge away");
        }
        let told = |(edge, sessions): (Incarnation, usize)| v1::EdgeDrain {
            incarnation: edge.0,
            sessions: sessions as u64,
        };
        Ok(Response::new(v1::DrainEdgeResponse { runs: runs.into_iter().map(told).collect() }))
    }
}

fn user(name: &str) -> Result<UserId, Status> {
    UserId::new(name).map_err(|error| bad(&error.to_string()))
}

fn response(user: &UserId, explained: &Explained) -> v1::ExplainResponse {
    let record = explained.read.record.as_ref();
    let sessions = record.map_or(&[][..], |record| &record.sessions);
    v1::ExplainResponse {
        member: record.map(|record| member::shown(user, record).into()),
        sessions: sessions
            .iter()
            .map(|session| {
                let lease = story::lease_of(session, explained).map(|(state, _)| state);
                let age = story::heartbeat_age(session, explained).unwrap_or_default();
                convert::session_detail(session, lease, age)
            })
            .collect(),
        ended: story::ended_latest_first(explained)
            .into_iter()
            .map(|(session, tombstone)| convert::ended_session(session, tombstone))
            .collect(),
        region: explained.region.as_str().to_owned(),
        position: Some(explained.position.into()),
        freshness: Some(explained.freshness.into()),
        store_time_ms: explained.now.0,
        class: explained.class.as_ref().map_or(DEFAULT_CLASS, |(class, _)| class.as_str()).to_owned(),
        ..v1::ExplainResponse::default()
    }
}
