//! From core to edge.

use presence_model::class::RoomTimings;
use presence_model::link::{BatchId, GrantDown, LinkDown, LinkRefusal, RequestId, Welcome};
use presence_model::refusal::Refusal;
use presence_model::time::StoreTime;

use super::words::removal_reason;
use super::{generation, label, lease, lease_ids, leases, millis, pause, required, revoked, span, time};
use crate::error::WireError;
use crate::v1::{self, RefusalCode, join_result::Outcome, link_response::Message};

impl From<LinkDown> for v1::LinkResponse {
    fn from(down: LinkDown) -> Self {
        let message = match down {
            LinkDown::Welcome(welcome) => Message::Welcome(welcome.into()),
            LinkDown::Beat { sequence, store_time, store_reachable } => {
                Message::Beat(v1::CoreBeat { sequence, store_time_ms: store_time.0, store_reachable })
            }
            LinkDown::Joined { request, outcome } => Message::Join(v1::JoinResult {
                request: request.0,
                outcome: Some(match outcome {
                    Ok(grant) => Outcome::Granted(grant.into()),
                    Err(refusal) => Outcome::Refused(refusal.into()),
                }),
            }),
            LinkDown::Renewed { batch, unknown } => {
                Message::Renew(v1::RenewResult { batch: batch.0, unknown: lease_ids(unknown) })
            }
            LinkDown::Foreign { leases } => Message::Foreign(v1::Foreign { leases: lease_ids(leases) }),
            LinkDown::Done { request, outcome } => Message::Done(match outcome {
                Ok(ends) => v1::Done {
                    request: request.0,
                    refused: None,
                    token_ends_ms: ends.map_or(0, |ends| ends.0),
                },
                Err(refusal) => {
                    v1::Done { request: request.0, refused: Some(refusal.into()), token_ends_ms: 0 }
                }
            }),
            LinkDown::RenewAll { within } => {
                Message::RenewAll(v1::RenewAll { renew_within_ms: millis(within) })
            }
            LinkDown::EndLease { lease, reason } => Message::EndLease(v1::EndLease {
                lease: lease.0,
                reason: v1::RemovalReason::from(reason).into(),
            }),
            LinkDown::Revoked { revocations } => Message::Revoked(revoked::told(revocations)),
            LinkDown::Drain => Message::Drain(v1::Drain {}),
            LinkDown::DrainEdge => Message::DrainEdge(v1::DrainEdge {}),
        };
        Self { message: Some(message) }
    }
}

impl TryFrom<v1::LinkResponse> for LinkDown {
    type Error = WireError;

    fn try_from(wire: v1::LinkResponse) -> Result<Self, WireError> {
        match wire.message {
            None => Err(WireError::Unknown { field: "LinkResponse.message" }),
            Some(Message::Welcome(welcome)) => Ok(Self::Welcome(welcome.try_into()?)),
            Some(Message::Beat(beat)) => Ok(Self::Beat {
                sequence: beat.sequence,
                store_time: time("CoreBeat.store_time_ms", beat.store_time_ms)?,
                store_reachable: beat.store_reachable,
            }),
            Some(Message::Join(join)) => Ok(Self::Joined {
                request: RequestId(join.request),
                outcome: match required("JoinResult.outcome", join.outcome)? {
                    Outcome::Granted(grant) => Ok(grant.try_into()?),
                    Outcome::Refused(refused) => Err(refused.try_into()?),
                },
            }),
            Some(Message::Renew(renew)) => Ok(Self::Renewed {
                batch: BatchId(renew.batch),
                unknown: leases("RenewResult.unknown", renew.unknown)?,
            }),
            Some(Message::Foreign(foreign)) => {
                Ok(Self::Foreign { leases: leases("Foreign.leases", foreign.leases)? })
            }
            Some(Message::Done(done)) => Ok(Self::Done {
                request: RequestId(done.request),
                outcome: match done.refused {
                    None => Ok(token_end(done.token_ends_ms)?),
                    Some(refused) => Err(refused.try_into()?),
                },
            }),
            Some(Message::RenewAll(all)) => {
                Ok(Self::RenewAll { within: pause("RenewAll.renew_within_ms", all.renew_within_ms)? })
            }
            Some(Message::EndLease(end)) => Ok(Self::EndLease {
                lease: lease("EndLease.lease", end.lease)?,
                reason: removal_reason("EndLease.reason", end.reason)?,
            }),
            Some(Message::Revoked(wire)) => Ok(Self::Revoked { revocations: revoked::heard(wire)? }),
            Some(Message::Drain(_)) => Ok(Self::Drain),
            Some(Message::DrainEdge(_)) => Ok(Self::DrainEdge),
        }
    }
}

/// 0: there was no token.
fn token_end(ms: u64) -> Result<Option<StoreTime>, WireError> {
    time("Done.token_ends_ms", ms).map(|ends| (ms > 0).then_some(ends))
}

impl From<Welcome> for v1::Welcome {
    fn from(welcome: Welcome) -> Self {
        Self {
            heartbeat_ms: millis(welcome.heartbeat),
            lease_ttl_ms: millis(welcome.lease_ttl),
            grace_ms: millis(welcome.grace),
            heartbeat_min_ms: millis(welcome.heartbeat_min),
            link_beat_ms: millis(welcome.link_beat),
            edge_lost_ms: millis(welcome.edge_lost),
            store_time_ms: welcome.store_time.0,
            core: welcome.core.into(),
            release: welcome.release.into(),
        }
    }
}

impl TryFrom<v1::Welcome> for Welcome {
    type Error = WireError;

    fn try_from(wire: v1::Welcome) -> Result<Self, WireError> {
        let heartbeat = span("Welcome.heartbeat_ms", wire.heartbeat_ms)?;
        let smallest = wire.heartbeat_min_ms;
        Ok(Self {
            heartbeat,
            heartbeat_min: if smallest == 0 {
                heartbeat
            } else {
                span("Welcome.heartbeat_min_ms", smallest)?
            },
            lease_ttl: span("Welcome.lease_ttl_ms", wire.lease_ttl_ms)?,
            grace: span("Welcome.grace_ms", wire.grace_ms)?,
            link_beat: span("Welcome.link_beat_ms", wire.link_beat_ms)?,
            edge_lost: span("Welcome.edge_lost_ms", wire.edge_lost_ms)?,
            store_time: time("Welcome.store_time_ms", wire.store_time_ms)?,
            core: label("Welcome.core", &wire.core)?,
            release: label("Welcome.release", &wire.release)?,
        })
    }
}

impl From<GrantDown> for v1::Granted {
    fn from(grant: GrantDown) -> Self {
        Self {
            lease: grant.lease.0,
            generation: grant.generation.0,
            since_ms: grant.since.0,
            resumed: grant.resumed,
            token_ends_ms: grant.token_ends.0,
            heartbeat_ms: grant.timings.map_or(0, |timings| millis(timings.heartbeat)),
            grace_ms: grant.timings.map_or(0, |timings| millis(timings.grace)),
        }
    }
}

impl TryFrom<v1::Granted> for GrantDown {
    type Error = WireError;

    fn try_from(wire: v1::Granted) -> Result<Self, WireError> {
        let lease = lease("Granted.lease", wire.lease)?;
        let heartbeat = pause("Granted.heartbeat_ms", wire.heartbeat_ms)?;
        let grace = pause("Granted.grace_ms", wire.grace_ms)?;
        let timings =
            (!heartbeat.is_zero()).then(|| RoomTimings { heartbeat, lease_ttl: lease.ttl(), grace });
        Ok(Self {
            lease,
            timings,
            generation: generation("Granted.generation", wire.generation)?,
            since: time("Granted.since_ms", wire.since_ms)?,
            resumed: wire.resumed,
            token_ends: time("Granted.token_ends_ms", wire.token_ends_ms)?,
        })
    }
}

impl From<LinkRefusal> for v1::Refused {
    fn from(refusal: LinkRefusal) -> Self {
        let message = refusal.to_string();
        let plain = |code: RefusalCode| Self { code: code.into(), message, ..Self::default() };
        match refusal {
            LinkRefusal::Refused(Refusal::StaleGeneration { given, stored }) => Self {
                given_generation: given.0,
                stored_generation: stored.0,
                ..plain(RefusalCode::StaleGeneration)
            },
            LinkRefusal::Refused(Refusal::HasEnded { reason }) => {
                let ended_reason = v1::RemovalReason::from(reason).into();
                Self { ended_reason, ..plain(RefusalCode::HasEnded) }
            }
            LinkRefusal::Refused(Refusal::TooManySessions) => plain(RefusalCode::TooManySessions),
            LinkRefusal::Refused(Refusal::NotCurrent) => plain(RefusalCode::NotCurrent),
            LinkRefusal::Refused(Refusal::NotPresent) => plain(RefusalCode::NotPresent),
            LinkRefusal::Refused(Refusal::TokenEnded) => plain(RefusalCode::TokenEnded),
            LinkRefusal::Unauthorized => plain(RefusalCode::Unauthorized),
            LinkRefusal::Forbidden => plain(RefusalCode::Forbidden),
            LinkRefusal::BadRequest => plain(RefusalCode::BadRequest),
            LinkRefusal::Unavailable { retry_after } => {
                Self { retry_after_ms: millis(retry_after), ..plain(RefusalCode::Unavailable) }
            }
        }
    }
}

impl TryFrom<v1::Refused> for LinkRefusal {
    type Error = WireError;

    fn try_from(wire: v1::Refused) -> Result<Self, WireError> {
        Ok(match RefusalCode::try_from(wire.code) {
            Ok(RefusalCode::StaleGeneration) => Self::Refused(Refusal::StaleGeneration {
                given: generation("Refused.given_generation", wire.given_generation)?,
                stored: generation("Refused.stored_generation", wire.stored_generation)?,
            }),
            Ok(RefusalCode::HasEnded) => Self::Refused(Refusal::HasEnded {
                reason: removal_reason("Refused.ended_reason", wire.ended_reason)?,
            }),
            Ok(RefusalCode::TooManySessions) => Self::Refused(Refusal::TooManySessions),
            Ok(RefusalCode::NotCurrent) => Self::Refused(Refusal::NotCurrent),
            Ok(RefusalCode::NotPresent) => Self::Refused(Refusal::NotPresent),
            Ok(RefusalCode::TokenEnded) => Self::Refused(Refusal::TokenEnded),
            Ok(RefusalCode::Unauthorized) => Self::Unauthorized,
            Ok(RefusalCode::Forbidden) => Self::Forbidden,
            Ok(RefusalCode::BadRequest) => Self::BadRequest,
            Ok(RefusalCode::Unavailable) => {
                Self::Unavailable { retry_after: pause("Refused.retry_after_ms", wire.retry_after_ms)? }
            }
            Ok(RefusalCode::Unspecified) | Err(_) => {
                return Err(WireError::UnknownValue { field: "Refused.code", value: wire.code });
            }
        })
    }
}
