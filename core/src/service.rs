//! gRPC: thin methods that decode, call the driver's handle and encode. Nothing is decided here.

mod admin;
mod guard;
mod link;
mod presence;
mod watch;

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use presence_client::Crossing;
use presence_model::id::{EdgeName, Incarnation, RoomId, UserId};
use presence_model::revocation::Revocation;
use presence_proto::status::ServiceError;
use presence_proto::v1;
use presence_runtime::shutdown::Shutdown;
use tonic::service::Routes;
use tonic::{Request, Status};

pub(crate) use self::guard::Guard;
use crate::access::{Caller, Shown};
use crate::driver::{Answer, Query, QueryRefusal, WatchEnd};
use crate::settings::Regions;
use crate::shell::{Handle, Stopped};

/// What the services need.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    pub(crate) handle: Handle,
    pub(crate) guard: Guard,
    pub(crate) shutdown: Shutdown,
    pub(crate) regions: Arc<Regions>,
    /// When what is said of links was said.
    pub(crate) links_said: Arc<link::Said>,
    /// How long a question may take.
    pub(crate) answer_within: Duration,
}

impl Api {
    async fn ask(&self, caller: &Caller, query: Query) -> Result<Answer, ServiceError> {
        match &query {
            Query::Room { room, .. } | Query::Count { room } | Query::Explain { room, .. } => {
                caller.rooms(room.as_str())?;
            }
            Query::Rooms { prefix, .. } => caller.rooms(prefix)?,
        }
        self.answered(self.handle.ask(query)).await
    }

    /// A core of another region opens a watch: it may speak for that one, and each end knows the other's.
    fn admit_crossing(&self, caller: &Caller, crossing: &Crossing) -> Result<(), ServiceError> {
        let Crossing { from, to } = crossing;
        caller.crosses(from)?;
        if self.regions.keeps(to) && self.regions.peers.iter().any(|peer| peer.region == *from) {
            return Ok(());
        }
        tracing::warn!(
            %from, %to,
            "a core wants to watch a region that is not kept here, or is of one that is not known here: \
             are --region, --edge-regions and --peer right at both ends?"
        );
        Err(ServiceError::UnknownRegion)
    }

    async fn evict(&self, caller: &Caller, room: RoomId, user: UserId) -> Result<Answer, ServiceError> {
        caller.rooms(room.as_str())?;
        self.answered(self.handle.evict(room, user)).await
    }

    async fn revoke(
        &self,
        caller: &Caller,
        what: Revocation,
        span: Duration,
    ) -> Result<Answer, ServiceError> {
        caller.everything()?;
        self.answered(self.handle.revoke(what, span)).await
    }

    async fn drain_edge(
        &self,
        caller: &Caller,
        name: EdgeName,
        edge: Option<Incarnation>,
    ) -> Result<Answer, ServiceError> {
        caller.everything()?;
        self.answered(self.handle.drain_edge(name, edge)).await
    }

    /// Waits until a stream of this caller is to end, for what it has shown counts no longer.
    async fn is_over(&self, caller: &Caller) -> ServiceError {
        let left = |shown: &Shown| {
            let now = self.handle.store_time(self.guard.clock.now())?;
            let user = shown.user();
            let is_good = self.handle.revoked().judge_bearer(user.as_ref(), &shown.token, now).is_ok();
            Some(if is_good { shown.token.ends.since(now) } else { Duration::ZERO })
        };
        caller.over(&self.guard.access, left).await
    }

    async fn answered(
        &self,
        asked: impl Future<Output = Result<Result<Answer, QueryRefusal>, Stopped>>,
    ) -> Result<Answer, ServiceError> {
        let unavailable = ServiceError::Unavailable { retry_after: self.answer_within };
        let answer = tokio::time::timeout(self.answer_within, asked);
        match answer.await.map_err(|_| unavailable)? {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(refusal)) => Err(refusal.into()),
            Err(Stopped) => Err(ServiceError::Draining),
        }
    }
}

impl From<QueryRefusal> for ServiceError {
    fn from(refusal: QueryRefusal) -> Self {
        match refusal {
            QueryRefusal::Unavailable { retry_after } => Self::Unavailable { retry_after },
            QueryRefusal::UnknownEdge => Self::UnknownEdge,
        }
    }
}

impl From<WatchEnd> for ServiceError {
    fn from(end: WatchEnd) -> Self {
        match end {
            WatchEnd::TooSlow => Self::TooSlow,
            WatchEnd::TooMany { retry_after } => Self::RateLimited { retry_after },
        }
    }
}

/// Who makes a request, as the guard has found out.
fn caller<T>(request: &Request<T>) -> Result<Caller, Status> {
    request.extensions().get::<Caller>().cloned().ok_or_else(|| ServiceError::Internal.into())
}

/// What is wrong with a message that cannot be read, if a stream failed for that: whatever the transport
/// reports has a source, and concerns the connection.
fn breach(status: &Status) -> Option<ServiceError> {
    status.source().is_none().then(|| unreadable(status))
}

fn unreadable(status: &Status) -> ServiceError {
    ServiceError::BadRequest(format!("a message cannot be read: {}", status.message()))
}

/// All services of a core, with health and reflection.
pub(crate) async fn routes(api: Api) -> Result<Routes, tonic_reflection::server::Error> {
    let described = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(presence_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // The messages are the same; tools older than 2023 ask under the older name only.
    let (reflection, older_reflection) = (described().build_v1()?, described().build_v1alpha()?);
    let guard = api.guard.clone();
    let (health, health_service) = tonic_health::server::health_reporter();
    let edges = v1::edge_service_server::EdgeServiceServer::new(link::EdgeApi(api.clone()));
    let services =
        v1::presence_service_server::PresenceServiceServer::new(presence::PresenceApi(api.clone()));
    let operators = v1::admin_service_server::AdminServiceServer::new(admin::AdminApi(api));
    health.set_serving::<v1::edge_service_server::EdgeServiceServer<link::EdgeApi>>().await;
    health.set_serving::<v1::presence_service_server::PresenceServiceServer<presence::PresenceApi>>().await;
    health.set_serving::<v1::admin_service_server::AdminServiceServer<admin::AdminApi>>().await;
    let routes = Routes::new(edges)
        .add_service(services)
        .add_service(operators)
        .add_service(health_service)
        .add_service(reflection)
        .add_service(older_reflection);
    let admitting = axum::middleware::from_fn_with_state(guard, guard::admit);
    Ok(routes.into_axum_router().layer(admitting).into())
}
