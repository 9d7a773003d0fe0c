//! Words that all services share.

use std::collections::BTreeMap;

use presence_model::change::Removal;
use presence_model::cursor::{Cursor, Entry};
use presence_model::id::UserId;
use presence_model::limits::CURSOR_REGIONS_MAX;
use presence_model::position::{Epoch, Position, Revision};
use presence_model::profile::{Member, Status};
use presence_model::reason::{LeaveReason, ReleaseReason, RemovalReason};
use presence_model::replica::Freshness;
use presence_model::time::StoreTime;

use super::{Field, age, at_most, millis, region, required, state, time, user};
use crate::error::WireError;
use crate::limits::MEMBERS_MAX;
use crate::v1;

impl From<Epoch> for v1::Epoch {
    fn from(epoch: Epoch) -> Self {
        Self { minted_ms: epoch.minted_ms, random: epoch.random }
    }
}

impl From<v1::Epoch> for Epoch {
    fn from(epoch: v1::Epoch) -> Self {
        Self { minted_ms: epoch.minted_ms, random: epoch.random }
    }
}

impl From<Position> for v1::Position {
    fn from(position: Position) -> Self {
        Self { epoch: Some(position.epoch.into()), revision: position.revision.0 }
    }
}

impl TryFrom<v1::Position> for Position {
    type Error = WireError;

    fn try_from(wire: v1::Position) -> Result<Self, WireError> {
        let epoch = required("Position.epoch", wire.epoch)?.into();
        Ok(Self { epoch, revision: Revision(wire.revision) })
    }
}

/// A position that must be set; `field` names it in the error.
///
/// # Errors
/// [`WireError::Missing`].
pub fn position(field: Field, wire: Option<v1::Position>) -> Result<Position, WireError> {
    required(field, wire)?.try_into()
}

impl From<Cursor> for v1::Cursor {
    fn from(cursor: Cursor) -> Self {
        let mut wire = Self::default();
        for (region, entry) in cursor.iter() {
            let entries = match entry {
                Entry::Equal(_) => &mut wire.regions,
                Entry::Seen(_) => &mut wire.seen,
            };
            let position = Some(entry.position().into());
            entries.push(v1::RegionPosition { region: region.as_str().to_owned(), position });
        }
        wire
    }
}

impl TryFrom<v1::Cursor> for Cursor {
    type Error = WireError;

    fn try_from(wire: v1::Cursor) -> Result<Self, WireError> {
        at_most("Cursor.regions", wire.regions.len() + wire.seen.len(), CURSOR_REGIONS_MAX)?;
        let equal = wire.regions.into_iter().map(|entry| (entry, Entry::Equal as fn(Position) -> Entry));
        let seen = wire.seen.into_iter().map(|entry| (entry, Entry::Seen as fn(Position) -> Entry));
        let mut entries = BTreeMap::new();
        for (entry, kind) in equal.chain(seen) {
            let region = region("RegionPosition.region", &entry.region)?;
            let position = position("RegionPosition.position", entry.position)?;
            if entries.insert(region, kind(position)).is_some() {
                return Err(WireError::Rule { field: "Cursor.regions", rule: "must name a region once" });
            }
        }
        Ok(entries.into_iter().collect())
    }
}

impl From<Status> for v1::Status {
    fn from(status: Status) -> Self {
        match status {
            Status::Available => Self::Available,
            Status::Away => Self::Away,
            Status::Busy => Self::Busy,
        }
    }
}

/// A status; not set is read as available.
///
/// # Errors
/// [`WireError::UnknownValue`].
pub fn status(field: Field, value: i32) -> Result<Status, WireError> {
    match v1::Status::try_from(value) {
        Ok(v1::Status::Unspecified | v1::Status::Available) => Ok(Status::Available),
        Ok(v1::Status::Away) => Ok(Status::Away),
        Ok(v1::Status::Busy) => Ok(Status::Busy),
        Err(_) => Err(WireError::UnknownValue { field, value }),
    }
}

impl From<RemovalReason> for v1::RemovalReason {
    fn from(reason: RemovalReason) -> Self {
        match reason {
            RemovalReason::Left => Self::Left,
            RemovalReason::ConnectionLost => Self::ConnectionLost,
            RemovalReason::LeaseExpired => Self::LeaseExpired,
            RemovalReason::EdgeLost => Self::EdgeLost,
            RemovalReason::Superseded => Self::Superseded,
            RemovalReason::Evicted => Self::Evicted,
            RemovalReason::TokenExpired => Self::TokenExpired,
            RemovalReason::TokenRevoked => Self::TokenRevoked,
            RemovalReason::RegionLost => Self::RegionLost,
        }
    }
}

/// Why a session or member is gone.
///
/// # Errors
/// [`WireError::UnknownValue`], also if it is not set.
pub fn removal_reason(field: Field, value: i32) -> Result<RemovalReason, WireError> {
    match v1::RemovalReason::try_from(value) {
        Ok(v1::RemovalReason::Left) => Ok(RemovalReason::Left),
        Ok(v1::RemovalReason::ConnectionLost) => Ok(RemovalReason::ConnectionLost),
        Ok(v1::RemovalReason::LeaseExpired) => Ok(RemovalReason::LeaseExpired),
        Ok(v1::RemovalReason::EdgeLost) => Ok(RemovalReason::EdgeLost),
        Ok(v1::RemovalReason::Superseded) => Ok(RemovalReason::Superseded),
        Ok(v1::RemovalReason::Evicted) => Ok(RemovalReason::Evicted),
        Ok(v1::RemovalReason::TokenExpired) => Ok(RemovalReason::TokenExpired),
        Ok(v1::RemovalReason::TokenRevoked) => Ok(RemovalReason::TokenRevoked),
        Ok(v1::RemovalReason::RegionLost) => Ok(RemovalReason::RegionLost),
        Ok(v1::RemovalReason::Unspecified) | Err(_) => Err(WireError::UnknownValue { field, value }),
    }
}

impl From<ReleaseReason> for v1::ReleaseReason {
    fn from(reason: ReleaseReason) -> Self {
        match reason {
            ReleaseReason::TransportLost => Self::TransportLost,
            ReleaseReason::Drain => Self::Drain,
            ReleaseReason::Shed => Self::Shed,
        }
    }
}

impl From<LeaveReason> for v1::LeaveReason {
    fn from(reason: LeaveReason) -> Self {
        match reason {
            LeaveReason::Goodbye => Self::Goodbye,
            LeaveReason::TokenRevoked => Self::TokenRevoked,
        }
    }
}

/// Why a session is over; not set is read as a goodbye.
pub(super) fn leave_reason(field: Field, value: i32) -> Result<LeaveReason, WireError> {
    match v1::LeaveReason::try_from(value) {
        Ok(v1::LeaveReason::Unspecified | v1::LeaveReason::Goodbye) => Ok(LeaveReason::Goodbye),
        Ok(v1::LeaveReason::TokenRevoked) => Ok(LeaveReason::TokenRevoked),
        Err(_) => Err(WireError::UnknownValue { field, value }),
    }
}

/// A release reason; not set is read as transport lost.
pub(super) fn release_reason(field: Field, value: i32) -> Result<ReleaseReason, WireError> {
    match v1::ReleaseReason::try_from(value) {
        Ok(v1::ReleaseReason::Unspecified | v1::ReleaseReason::TransportLost) => {
            Ok(ReleaseReason::TransportLost)
        }
        Ok(v1::ReleaseReason::Drain) => Ok(ReleaseReason::Drain),
        Ok(v1::ReleaseReason::Shed) => Ok(ReleaseReason::Shed),
        Err(_) => Err(WireError::UnknownValue { field, value }),
    }
}

impl From<Freshness> for v1::Freshness {
    fn from(freshness: Freshness) -> Self {
        let (state, since) = match freshness {
            Freshness::Live => (v1::freshness::State::Live, StoreTime(0)),
            Freshness::Held { since } => (v1::freshness::State::Held, since),
            Freshness::Stale { since } => (v1::freshness::State::Stale, since),
        };
        Self { state: state.into(), since_ms: since.0 }
    }
}

impl TryFrom<v1::Freshness> for Freshness {
    type Error = WireError;

    fn try_from(wire: v1::Freshness) -> Result<Self, WireError> {
        let since = time("Freshness.since_ms", wire.since_ms)?;
        match v1::freshness::State::try_from(wire.state) {
            Ok(v1::freshness::State::Live) => Ok(Self::Live),
            Ok(v1::freshness::State::Held) => Ok(Self::Held { since }),
            Ok(v1::freshness::State::Stale) => Ok(Self::Stale { since }),
            Ok(v1::freshness::State::Unspecified) | Err(_) => {
                Err(WireError::UnknownValue { field: "Freshness.state", value: wire.state })
            }
        }
    }
}

/// Freshness that must be set; `field` names it in the error.
///
/// # Errors
/// [`WireError::Missing`], [`WireError::UnknownValue`].
pub fn freshness(field: Field, wire: Option<v1::Freshness>) -> Result<Freshness, WireError> {
    required(field, wire)?.try_into()
}

impl From<Member> for v1::Member {
    fn from(member: Member) -> Self {
        Self {
            user: member.user.as_str().to_owned(),
            status: v1::Status::from(member.status).into(),
            state: member.state.to_bytes(),
            since_ms: member.since.0,
        }
    }
}

impl TryFrom<v1::Member> for Member {
    type Error = WireError;

    fn try_from(wire: v1::Member) -> Result<Self, WireError> {
        Ok(Self {
            user: user("Member.user", &wire.user)?,
            status: status("Member.status", wire.status)?,
            state: state("Member.state", wire.state)?,
            since: time("Member.since_ms", wire.since_ms)?,
        })
    }
}

impl From<Removal> for v1::Removal {
    fn from(removal: Removal) -> Self {
        Self {
            user: removal.user.as_str().to_owned(),
            reason: v1::RemovalReason::from(removal.ending.reason).into(),
            silent_for_ms: millis(removal.ending.silent_for),
        }
    }
}

impl TryFrom<v1::Removal> for Removal {
    type Error = WireError;

    fn try_from(wire: v1::Removal) -> Result<Self, WireError> {
        let user = user("Removal.user", &wire.user)?;
        let reason = removal_reason("Removal.reason", wire.reason)?;
        Ok(Self::new(user, reason, age("Removal.silent_for_ms", wire.silent_for_ms)?))
    }
}

/// Members as listed by a page or a delta: sorted by user, each once.
///
/// # Errors
/// [`WireError`] naming `field` or the field of a member.
pub fn members(field: Field, wire: Vec<v1::Member>) -> Result<Vec<Member>, WireError> {
    at_most(field, wire.len(), MEMBERS_MAX)?;
    let members = wire.into_iter().map(Member::try_from).collect::<Result<Vec<_>, _>>()?;
    ascending(field, members.iter().map(|member| &member.user))?;
    Ok(members)
}

pub(super) fn removals(field: Field, wire: Vec<v1::Removal>) -> Result<Vec<Removal>, WireError> {
    at_most(field, wire.len(), MEMBERS_MAX)?;
    let removals = wire.into_iter().map(Removal::try_from).collect::<Result<Vec<_>, _>>()?;
    ascending(field, removals.iter().map(|removal| &removal.user))?;
    Ok(removals)
}

fn ascending<'a>(field: Field, users: impl Iterator<Item = &'a UserId>) -> Result<(), WireError> {
    if users.is_sorted_by(|a, b| a < b) {
        Ok(())
    } else {
        Err(WireError::Rule { field, rule: "must be sorted by user, each once" })
    }
}
