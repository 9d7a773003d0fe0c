//! Refused callers are counted by reason and said in the log, bounded in rate: who, what, why, never by what token.

use presence_model::id::EdgeName;
use presence_model::time::Mono;
use presence_proto::status::ServiceError;
use presence_runtime::telemetry::{Metrics, Rationed};
use prometheus::IntCounterVec;

use super::caller::Origin;
use crate::limits::REFUSALS_SAID;

/// Why a caller was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessRefusal {
    /// It shows neither a certificate nor a token.
    Credentials,
    /// Its token is not good, or not any more.
    Token,
    /// Nobody knows the names in its certificate.
    Certificate,
    /// Its certificate or token is not for this method.
    Scope,
    /// It is, but not for this room, or not for all rooms.
    Room,
    /// Its certificate is not for an edge of that name, or for another run of one.
    Edge,
    /// Its certificate is not for that region.
    Region,
    /// It named leases of another edge.
    ForeignLease,
}

impl AccessRefusal {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 8] = [
        Self::Credentials,
        Self::Token,
        Self::Certificate,
        Self::Scope,
        Self::Room,
        Self::Edge,
        Self::Region,
        Self::ForeignLease,
    ];

    /// Its name in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Credentials => "credentials",
            Self::Token => "token",
            Self::Certificate => "certificate",
            Self::Scope => "scope",
            Self::Room => "room",
            Self::Edge => "edge",
            Self::Region => "region",
            Self::ForeignLease => "foreign_lease",
        }
    }
}

impl From<AccessRefusal> for ServiceError {
    fn from(refusal: AccessRefusal) -> Self {
        match refusal {
            AccessRefusal::Credentials | AccessRefusal::Token => Self::Unauthorized,
            AccessRefusal::Certificate
            | AccessRefusal::Scope
            | AccessRefusal::Room
            | AccessRefusal::Edge
            | AccessRefusal::Region
            | AccessRefusal::ForeignLease => Self::Forbidden,
        }
    }
}

/// Counts refusals and says them.
#[derive(Debug)]
pub struct AccessRefusals {
    counter: IntCounterVec,
    said: Rationed<{ AccessRefusal::ALL.len() }>,
}

impl AccessRefusals {
    /// Registers `presence_core_access_refusals_total{reason}`; every reason shows 0 from the start.
    #[must_use]
    pub fn new(metrics: &Metrics) -> Self {
        let counter = metrics.counter_vec(
            "presence_core_access_refusals_total",
            "Callers and what they asked for that were refused, by reason",
            &["reason"],
        );
        for refusal in AccessRefusal::ALL {
            let _ = counter.with_label_values(&[refusal.as_str()]);
        }
        Self { counter, said: Rationed::new(REFUSALS_SAID) }
    }

    /// A caller was refused what it asked for: a room, a prefix, an edge; empty if that is only the method.
    pub fn note(&self, refusal: AccessRefusal, (origin, who): (&Origin, &str), asked: &str, now: Mono) {
        if let Some(unsaid) = self.count(refusal, 1, now) {
            let (reason, peer, method) = (refusal.as_str(), origin.address(), origin.method());
            tracing::warn!(
                target: "presence::access",
                reason, peer, who, certificate = ?origin.names(), method, asked = ?asked, unsaid,
                "a caller is refused"
            );
        }
    }

    /// An edge wanted something of leases of another edge.
    pub fn foreign(&self, edge: &EdgeName, verb: &str, leases: usize, now: Mono) {
        let refusal = AccessRefusal::ForeignLease;
        if let Some(unsaid) = self.count(refusal, leases as u64, now) {
            let reason = refusal.as_str();
            tracing::warn!(
                target: "presence::access",
                reason, edge = ?edge.as_str(), verb, leases, unsaid,
                "an edge names leases of another edge"
            );
        }
    }

    /// Counts; if it is to be said, how many were not since the last that was.
    fn count(&self, refusal: AccessRefusal, count: u64, now: Mono) -> Option<u64> {
        self.counter.with_label_values(&[refusal.as_str()]).inc_by(count);
        self.said.due(refusal as usize, now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_is_counted_and_a_flood_is_said_only_in_part() {
        let metrics = Metrics::new();
        let refusals = AccessRefusals::new(&metrics);
        let now = Mono::from_millis(1_000);
        let said = (0..1_000).filter_map(|_| refusals.count(AccessRefusal::Room, 1, now)).count();
        assert_eq!(said, REFUSALS_SAID.burst as usize);
        assert_eq!(refusals.count(AccessRefusal::Scope, 1, now), Some(0), "another reason is said");
        let later = now + REFUSALS_SAID.interval + Duration::from_millis(1);
        assert_eq!(refusals.count(AccessRefusal::Room, 1, later), Some(1_000 - said as u64));
        let text = metrics.encode();
        assert!(text.contains(r#"presence_core_access_refusals_total{reason="room"} 1001"#), "{text}");
        assert!(text.contains(r#"presence_core_access_refusals_total{reason="edge"} 0"#), "{text}");
    }

    #[test]
    fn who_may_do_better_by_other_credentials_is_told_so() {
        for refusal in AccessRefusal::ALL {
            let told = ServiceError::from(refusal);
            let is_unknown = matches!(refusal, AccessRefusal::Credentials | AccessRefusal::Token);
            assert_eq!(told == ServiceError::Unauthorized, is_unknown, "{refusal:?}");
        }
    }
}
