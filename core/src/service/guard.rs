//! What stands before all services: who calls, and whether that method is for them. What they may ask for there is
//! judged where it is known what they ask for, by the [`Caller`] that goes with the request.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use presence_proto::status::ServiceError;
use presence_runtime::clock::Clock;
use presence_runtime::rpc::PeerAddress;
use presence_runtime::tls::PeerNames;
use presence_runtime::tokens::{Scope, Scoped, Verifier};
use tonic::{Code, Status};

use crate::access::{Access, AccessRefusal, AccessRefusals, Caller, Credentials, Grant, Need, Origin, Shown};
use crate::limits::{RETRY_AFTER, TOKEN_LEEWAY};
use crate::shell::Handle;

/// Every method that is served, and who may call it. What is not here is not served.
const METHODS: [(&str, Need); 9] = [
    ("presence.v1.EdgeService/Link", Need::Edge),
    ("presence.v1.PresenceService/Watch", Need::ScopeOrEdge(Scope::Read)),
    ("presence.v1.PresenceService/GetRoom", Need::Scope(Scope::Read)),
    ("presence.v1.PresenceService/CountRoom", Need::Scope(Scope::Read)),
    ("presence.v1.PresenceService/ListRooms", Need::Scope(Scope::Read)),
    ("presence.v1.AdminService/Explain", Need::Scope(Scope::Admin)),
    ("presence.v1.AdminService/Evict", Need::Scope(Scope::Admin)),
    ("presence.v1.AdminService/Revoke", Need::Scope(Scope::Admin)),
    ("presence.v1.AdminService/DrainEdge", Need::Scope(Scope::Admin)),
];

/// Services whose methods tell nothing of anybody: probes and tools have no credentials.
const OPEN_SERVICES: [&str; 3] = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
];

/// What a method needs; none: it is not served.
fn need_of(path: &str) -> Option<(&'static str, Need)> {
    let method = path.strip_prefix('/')?;
    let (service, _) = method.split_once('/')?;
    let open = OPEN_SERVICES.into_iter().find(|open| *open == service).map(|open| (open, Need::Nothing));
    open.or_else(|| METHODS.into_iter().find(|(known, _)| *known == method))
}

/// Judges callers.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    pub(crate) access: Access,
    pub(crate) verifier: Verifier,
    pub(crate) refusals: Arc<AccessRefusals>,
    pub(crate) clock: Clock,
    pub(crate) handle: Handle,
}

/// Lets a request in with its [`Caller`], or answers it.
pub(super) async fn admit(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    match guard.judge(&request) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            explained(next.run(request).await)
        }
        Err(status) => status.into_http(),
    }
}

/// Methods say what kind of error theirs are; the library does not of a request that it could not read.
fn explained(response: Response) -> Response {
    let unreadable = Status::from_header_map(response.headers())
        .filter(|status| status.details().is_empty())
        .filter(|status| matches!(status.code(), Code::InvalidArgument | Code::Internal | Code::OutOfRange));
    match unreadable {
        Some(status) => Status::from(super::unreadable(&status)).into_http(),
        None => response,
    }
}

impl Guard {
    fn judge(&self, request: &Request) -> Result<Caller, Status> {
        let (method, need) = need_of(request.uri().path()).ok_or_else(|| Status::unimplemented(""))?;
        let extensions = request.extensions();
        let origin = Origin {
            address: extensions.get::<PeerAddress>().map(|peer| peer.0),
            names: extensions.get::<PeerNames>().cloned().unwrap_or_default(),
            method,
            need,
        };
        let credentials = if need == Need::Nothing {
            Ok(Credentials::Unasked)
        } else {
            self.credentials(request.headers(), &origin.names)?
        };
        let credentials = credentials.map_err(|refusal| {
            self.refusals.note(refusal, (&origin, ""), "", self.clock.now());
            ServiceError::from(refusal)
        })?;
        let admitted = Caller::admit(origin, credentials, (Arc::clone(&self.refusals), self.clock.clone()));
        Ok(admitted.map_err(ServiceError::from)?)
    }

    /// What a request shows. A token that is shown decides alone: whoever has one wants no more than it says.
    fn credentials(
        &self,
        headers: &HeaderMap,
        names: &PeerNames,
    ) -> Result<Result<Credentials, AccessRefusal>, ServiceError> {
        let mut shown = headers.get_all(AUTHORIZATION).iter();
        let Some(first) = shown.next() else { return Ok(self.of_names(names)) };
        let token = first.to_str().ok().and_then(bearer).filter(|_| shown.next().is_none());
        // What is no bearer token is judged like any other token that is none.
        let unavailable = ServiceError::Unavailable { retry_after: RETRY_AFTER };
        let now = self.handle.store_time(self.clock.now()).ok_or(unavailable)?;
        let judged = self.verifier.verify_scoped(token.unwrap_or_default());
        let judged = judged.and_then(|scoped| {
            scoped.judge_time(now, TOKEN_LEEWAY)?;
            let Scoped { subject, scopes, rooms, token, .. } = scoped;
            let shown = Shown { subject, token };
            self.handle.revoked().judge_bearer(shown.user().as_ref(), &shown.token, now)?;
            Ok(Credentials::Token(Grant { scopes, rooms }, shown))
        });
        Ok(match judged {
            Ok(credentials) => Ok(credentials),
            Err(refusal) => {
                self.verifier.refused(refusal, &"a caller");
                Err(AccessRefusal::Token)
            }
        })
    }

    fn of_names(&self, names: &PeerNames) -> Result<Credentials, AccessRefusal> {
        match &self.access {
            Access::Anybody => Ok(Credentials::Unasked),
            Access::Named(_) if names.is_empty() => Err(AccessRefusal::Credentials),
            Access::Named(peers) => {
                let named = peers.borrow().named(names);
                named.map(Credentials::Certificate).ok_or(AccessRefusal::Certificate)
            }
        }
    }
}

/// The token of an `authorization` header (RFC 6750, 2.1).
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_matches(' '))
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;

    #[test]
    fn every_method_of_the_contract_has_its_rule() {
        let described = FileDescriptorSet::decode(presence_proto::FILE_DESCRIPTOR_SET).unwrap();
        let mut methods = 0;
        for file in &described.file {
            for service in &file.service {
                for method in &service.method {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    assert!(need_of(&path).is_some(), "{path}: who may call it?");
                    methods += 1;
                }
            }
        }
        assert!(methods >= 8, "{methods}");
    }

    #[test]
    fn what_has_no_rule_is_not_served() {
        for path in [
            "/presence.v1.AdminService/DropEverything",
            "/presence.v1.PresenceService/",
            "/presence.v2.PresenceService/GetRoom",
            "/grpc.health.v1.Health2/Check",
            "/presence.v1.PresenceService/GetRoom/",
            "presence.v1.PresenceService/GetRoom",
            "/",
            "",
        ] {
            assert_eq!(need_of(path), None, "{path}");
        }
        assert_eq!(need_of("/grpc.health.v1.Health/Check").map(|(_, need)| need), Some(Need::Nothing));
    }

    #[test]
    fn a_header_is_a_bearer_token_or_none() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bearer  abc "), Some("abc"));
        for none in ["", "Bearer", "abc", "Basic abc", "Bearerabc"] {
            assert_eq!(bearer(none), None, "{none}");
        }
    }
}
