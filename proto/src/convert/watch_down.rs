//! From core to watcher.

use std::time::Duration;

use presence_model::delta::Delta;
use presence_model::digest::Digest;
use presence_model::id::RegionId;
use presence_model::limits::NAME_BYTES_MAX;
use presence_model::position::Revision;
use presence_model::replica::SnapshotPage;
use presence_model::view::RegionEvent;
use presence_model::watch::{WatchDown, WatchRefusal};

use super::words::{freshness, members, position, removals};
use super::{millis, region, required, room, time};
use crate::error::WireError;
use crate::limits::SPAN_MS_MAX;
use crate::status::{ServiceError, bad_request};
use crate::v1::{self, ErrorReason, watch_response::Event};

impl From<WatchDown> for v1::WatchResponse {
    fn from(down: WatchDown) -> Self {
        let (room, event) = match down {
            WatchDown::Region { room, region, event } => {
                (room.as_str().to_owned(), region_event(&region, event))
            }
            WatchDown::Count { room, members } => {
                (room.as_str().to_owned(), Event::Count(v1::Count { members }))
            }
            WatchDown::Refused { room, refusal } => {
                return room_error(room.as_str().to_owned(), &refusal.into());
            }
            WatchDown::Progress { sequence, store_time } => {
                (String::new(), Event::Progress(v1::Progress { sequence, store_time_ms: store_time.0 }))
            }
            WatchDown::Drain => (String::new(), Event::Drain(v1::WatchDrain {})),
        };
        Self { room, event: Some(event) }
    }
}

/// Says that a room is not watched: also of a room whose name is out of bounds, of which as much is
/// said back as a name may be long.
#[must_use]
pub fn room_error(mut room: String, error: &ServiceError) -> v1::WatchResponse {
    room.truncate(room.floor_char_boundary(NAME_BYTES_MAX));
    let error = v1::RoomError {
        reason: error.reason().into(),
        message: error.to_string(),
        retry_after_ms: error.retry_after().map_or(0, millis),
    };
    v1::WatchResponse { room, event: Some(Event::Error(error)) }
}

fn region_event(region: &RegionId, event: RegionEvent) -> Event {
    let region = region.as_str().to_owned();
    match event {
        RegionEvent::Page(page) => Event::Snapshot(v1::Snapshot {
            region,
            position: Some(page.position.into()),
            freshness: Some(page.freshness.into()),
            members: page.members.into_iter().map(Into::into).collect(),
            first: page.first,
            more: page.last.is_none(),
            digest: page.last.map_or(0, |digest| digest.0),
        }),
        RegionEvent::Delta(delta) => Event::Delta(v1::Delta {
            region,
            epoch: Some(delta.epoch.into()),
            from: delta.from.0,
            to: delta.to.0,
            upserts: delta.upserts.into_iter().map(Into::into).collect(),
            removals: delta.removals.into_iter().map(Into::into).collect(),
            digest: delta.digest.0,
        }),
        RegionEvent::Freshness(freshness) => {
            Event::Freshness(v1::RegionFreshness { region, freshness: Some(freshness.into()) })
        }
        RegionEvent::Lost => Event::Lost(v1::RegionLost { region }),
    }
}

impl TryFrom<v1::WatchResponse> for WatchDown {
    type Error = WireError;

    fn try_from(wire: v1::WatchResponse) -> Result<Self, WireError> {
        let name = wire.room;
        let of_room = || room("WatchResponse.room", &name);
        let of_region = |field, name: &str, event| {
            Ok(Self::Region { room: of_room()?, region: region(field, name)?, event })
        };
        match wire.event {
            None => Err(WireError::Unknown { field: "WatchResponse.event" }),
            Some(Event::Snapshot(wire)) => {
                let name = wire.region.clone();
                of_region("Snapshot.region", &name, RegionEvent::Page(wire.try_into()?))
            }
            Some(Event::Delta(wire)) => {
                let name = wire.region.clone();
                of_region("Delta.region", &name, RegionEvent::Delta(wire.try_into()?))
            }
            Some(Event::Freshness(wire)) => {
                let fresh = freshness("RegionFreshness.freshness", wire.freshness)?;
                of_region("RegionFreshness.region", &wire.region, RegionEvent::Freshness(fresh))
            }
            Some(Event::Lost(wire)) => of_region("RegionLost.region", &wire.region, RegionEvent::Lost),
            Some(Event::Count(count)) => Ok(Self::Count { room: of_room()?, members: count.members }),
            Some(Event::Error(error)) => Ok(Self::Refused { room: of_room()?, refusal: error.into() }),
            Some(Event::Progress(progress)) => Ok(Self::Progress {
                sequence: progress.sequence,
                store_time: time("Progress.store_time_ms", progress.store_time_ms)?,
            }),
            Some(Event::Drain(_)) => Ok(Self::Drain),
        }
    }
}

impl TryFrom<v1::Snapshot> for SnapshotPage {
    type Error = WireError;

    fn try_from(wire: v1::Snapshot) -> Result<Self, WireError> {
        Ok(Self {
            position: position("Snapshot.position", wire.position)?,
            freshness: freshness("Snapshot.freshness", wire.freshness)?,
            members: members("Snapshot.members", wire.members)?,
            first: wire.first,
            last: (!wire.more).then_some(Digest(wire.digest)),
        })
    }
}

impl TryFrom<v1::Delta> for Delta {
    type Error = WireError;

    fn try_from(wire: v1::Delta) -> Result<Self, WireError> {
        if wire.from > wire.to {
            return Err(WireError::Rule { field: "Delta.from", rule: "must not be above to" });
        }
        let upserts = members("Delta.upserts", wire.upserts)?;
        let removals = removals("Delta.removals", wire.removals)?;
        if removals.iter().any(|gone| upserts.binary_search_by(|m| m.user.cmp(&gone.user)).is_ok()) {
            return Err(WireError::Rule { field: "Delta.removals", rule: "must not name an upserted user" });
        }
        Ok(Self {
            epoch: required("Delta.epoch", wire.epoch)?.into(),
            from: Revision(wire.from),
            to: Revision(wire.to),
            upserts,
            removals,
            digest: Digest(wire.digest),
        })
    }
}

impl From<v1::RoomError> for WatchRefusal {
    /// A reason of a later version is read by whether asking again may help.
    fn from(wire: v1::RoomError) -> Self {
        let retry_after = Duration::from_millis(wire.retry_after_ms.min(SPAN_MS_MAX));
        match wire.reason() {
            ErrorReason::Forbidden | ErrorReason::Unauthorized => Self::Forbidden,
            ErrorReason::TooManyRooms => Self::TooManyRooms,
            ErrorReason::UnknownRegion => Self::UnknownRegion,
            ErrorReason::RateLimited => Self::RateLimited { retry_after },
            ErrorReason::Unspecified
            | ErrorReason::BadRequest
            | ErrorReason::UnknownEdge
            | ErrorReason::StaleLink
            | ErrorReason::LinkSuperseded
            | ErrorReason::LinkSilent
            | ErrorReason::TooSlow
            | ErrorReason::Unavailable
            | ErrorReason::Draining
            | ErrorReason::Internal => {
                if wire.retry_after_ms > 0 || wire.reason() == ErrorReason::Unavailable {
                    Self::Unavailable { retry_after }
                } else {
                    Self::BadRequest(bad_request(&wire.message).into())
                }
            }
        }
    }
}
