//! Who calls, in one request, and what that permits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use presence_model::id::{EdgeName, RegionId, UserId};
use presence_model::record::TokenRef;
use presence_proto::status::ServiceError;
use presence_runtime::clock::Clock;
use presence_runtime::tls::PeerNames;
use presence_runtime::tokens::Scope;
use smol_str::SmolStr;

use super::peers::{Grant, Named};
use super::refusals::{AccessRefusal, AccessRefusals};
use super::{Access, Peers};
use crate::limits::STANDING_LOOK;

/// What a method asks of its callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing: it tells nothing of anybody.
    Nothing,
    /// To be an edge.
    Edge,
    /// A scope over the rooms that are named.
    Scope(Scope),
    /// The same, or to be an edge or a core of another region, which show rooms of everybody.
    ScopeOrEdge(Scope),
}

/// Where a request comes from and what it calls.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Of its transport; none where there is none.
    pub address: Option<SocketAddr>,
    /// In its certificate.
    pub names: PeerNames,
    /// `Service/Method`.
    pub method: &'static str,
    /// What that needs.
    pub need: Need,
}

impl Origin {
    pub(super) fn address(&self) -> String {
        self.address.map(|address| address.to_string()).unwrap_or_default()
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.names.iter().collect()
    }

    pub(super) fn method(&self) -> &'static str {
        self.method
    }
}

/// What a caller has shown, and what it stands for.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// Nothing, where nobody asks.
    Unasked,
    /// A certificate.
    Certificate(Named),
    /// A token.
    Token(Grant, Shown),
}

/// A token that was good when it was shown.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Its subject.
    pub subject: SmolStr,
    /// Its end and what could revoke it.
    pub token: TokenRef,
}

impl Shown {
    /// The user that it would speak for, if one may be called that.
    #[must_use]
    pub fn user(&self) -> Option<UserId> {
        UserId::new(&self.subject).ok()
    }
}

/// One caller with its request. Whatever it asks for goes by here. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Caller {
    origin: Arc<Origin>,
    credentials: Arc<Credentials>,
    refusals: Arc<AccessRefusals>,
    clock: Clock,
}

impl Caller {
    /// A caller whose credentials are good, if they are for what is called.
    ///
    /// # Errors
    /// [`AccessRefusal::Scope`], which is noted.
    pub fn admit(
        origin: Origin,
        credentials: Credentials,
        (refusals, clock): (Arc<AccessRefusals>, Clock),
    ) -> Result<Self, AccessRefusal> {
        let caller = Self { origin: Arc::new(origin), credentials: Arc::new(credentials), refusals, clock };
        let is_admitted = match (&*caller.credentials, caller.origin.need) {
            (Credentials::Unasked, _) | (_, Need::Nothing) => true,
            (_, Need::Edge) => caller.is_edge(),
            (_, Need::Scope(scope)) => caller.has(scope),
            (_, Need::ScopeOrEdge(scope)) => caller.has(scope) || caller.is_edge() || caller.is_core(),
        };
        if is_admitted { Ok(caller) } else { Err(caller.refused(AccessRefusal::Scope, "")) }
    }

    /// That it may have what it asks about a room, or about all rooms that begin so. Judged by the name alone: whether
    /// there is such a room cannot be told from the answer.
    ///
    /// # Errors
    /// [`ServiceError::Forbidden`].
    pub fn rooms(&self, asked: &str) -> Result<(), ServiceError> {
        let is_permitted = match (&*self.credentials, self.origin.need) {
            (Credentials::Unasked, _) => true,
            (_, Need::Nothing | Need::Edge) => false,
            (_, Need::Scope(scope)) => self.grants().iter().any(|grant| grant.covers(scope, asked)),
            (_, Need::ScopeOrEdge(scope)) => {
                self.is_edge()
                    || self.is_core()
                    || self.grants().iter().any(|grant| grant.covers(scope, asked))
            }
        };
        if is_permitted { Ok(()) } else { Err(self.refused(AccessRefusal::Room, asked).into()) }
    }

    /// That it may have what concerns everybody.
    ///
    /// # Errors
    /// [`ServiceError::Forbidden`].
    pub fn everything(&self) -> Result<(), ServiceError> {
        self.rooms("")
    }

    /// That it may link as this edge, for this region.
    ///
    /// # Errors
    /// [`ServiceError::Forbidden`].
    pub fn link(&self, edge: &EdgeName, region: &RegionId) -> Result<(), ServiceError> {
        let named = match &*self.credentials {
            Credentials::Unasked => return Ok(()),
            Credentials::Certificate(named) => named,
            Credentials::Token(..) => return Err(self.refused(AccessRefusal::Scope, edge.as_str()).into()),
        };
        if named.edges.iter().any(|rule| rule.permits(edge, region)) {
            return Ok(());
        }
        let refusal = if named.edges.iter().any(|rule| rule.names(edge)) {
            AccessRefusal::Region
        } else {
            AccessRefusal::Edge
        };
        Err(self.refused(refusal, &format!("{edge} of {region}")).into())
    }

    /// That it links a run of an edge that is known under another name.
    pub(crate) fn links_another(&self, edge: &EdgeName) {
        let _ = self.refused(AccessRefusal::Edge, &format!("a run of another edge than {edge}"));
    }

    /// Who it is, for the log: the subject of its token, or the names in its certificate.
    #[must_use]
    pub fn who(&self) -> String {
        match &*self.credentials {
            Credentials::Token(_, shown) => format!("token of {:?}", shown.subject),
            Credentials::Certificate(_) => format!("certificate of {:?}", self.origin.names()),
            Credentials::Unasked => "nobody was asked".to_owned(),
        }
    }

    /// That it may speak for the cores of this region.
    ///
    /// # Errors
    /// [`ServiceError::Forbidden`].
    pub fn crosses(&self, region: &RegionId) -> Result<(), ServiceError> {
        let may = match &*self.credentials {
            Credentials::Unasked => true,
            Credentials::Certificate(named) => named.cores.contains(region),
            Credentials::Token(..) => false,
        };
        if may { Ok(()) } else { Err(self.refused(AccessRefusal::Region, region.as_str()).into()) }
    }

    /// Waits until it may go on no longer: its token has ended or was revoked, or the table has taken something of it
    /// away. What a stream of it then ends with.
    ///
    /// `left`: for how long a token is good still; none: that is not known now.
    pub async fn over(&self, access: &Access, left: impl Fn(&Shown) -> Option<Duration>) -> ServiceError {
        let refusal = match (&*self.credentials, access) {
            (Credentials::Token(_, shown), _) => {
                let left = || left(shown).unwrap_or(STANDING_LOOK);
                while !left().is_zero() {
                    self.clock.sleep(left().min(STANDING_LOOK)).await;
                }
                AccessRefusal::Token
            }
            (Credentials::Certificate(named), Access::Named(peers)) => {
                let mut peers = peers.clone();
                let is_less = |peers: &Arc<Peers>| {
                    !peers.named(&self.origin.names).is_some_and(|now| named.is_within(&now))
                };
                // Whoever follows the table is gone only when this process ends.
                let Ok(_) = peers.wait_for(is_less).await else { return std::future::pending().await };
                AccessRefusal::Certificate
            }
            (Credentials::Unasked, _) | (Credentials::Certificate(_), Access::Anybody) => {
                return std::future::pending().await;
            }
        };
        self.refused(refusal, "").into()
    }

    fn refused(&self, refusal: AccessRefusal, asked: &str) -> AccessRefusal {
        self.refusals.note(refusal, (&self.origin, &self.who()), asked, self.clock.now());
        refusal
    }

    fn grants(&self) -> &[Grant] {
        match &*self.credentials {
            Credentials::Unasked => &[],
            Credentials::Certificate(named) => &named.grants,
            Credentials::Token(grant, _) => std::slice::from_ref(grant),
        }
    }

    fn has(&self, scope: Scope) -> bool {
        self.grants().iter().any(|grant| grant.scopes.contains(&scope))
    }

    fn is_core(&self) -> bool {
        matches!(&*self.credentials, Credentials::Certificate(named) if !named.cores.is_empty())
    }

    fn is_edge(&self) -> bool {
        matches!(&*self.credentials, Credentials::Certificate(named) if !named.edges.is_empty())
    }
}

#[cfg(test)]
mod tests;
