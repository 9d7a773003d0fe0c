//! From watcher to core.

use presence_model::cursor::Cursor;
use presence_model::limits::CURSOR_REGIONS_MAX;
use presence_model::watch::{Level, OpenRoom, WatchUp};

use super::{at_most, millis, pause, region, room};
use crate::error::WireError;
use crate::v1::{self, watch_request::Message};

impl From<WatchUp> for v1::WatchRequest {
    fn from(up: WatchUp) -> Self {
        let message = match up {
            WatchUp::Open(open) => Message::Open(Box::new((*open).into())),
            WatchUp::Close(room) => Message::Close(v1::CloseRoom { room: room.as_str().to_owned() }),
        };
        Self { message: Some(message) }
    }
}

impl TryFrom<v1::WatchRequest> for WatchUp {
    type Error = WireError;

    fn try_from(wire: v1::WatchRequest) -> Result<Self, WireError> {
        match wire.message {
            None => Err(WireError::Unknown { field: "WatchRequest.message" }),
            Some(Message::Open(open)) => Ok(Self::Open(Box::new((*open).try_into()?))),
            Some(Message::Close(close)) => Ok(Self::Close(room("CloseRoom.room", &close.room)?)),
        }
    }
}

impl From<OpenRoom> for v1::OpenRoom {
    fn from(open: OpenRoom) -> Self {
        Self {
            room: open.room.as_str().to_owned(),
            home_region: open.home.map(|home| home.as_str().to_owned()).unwrap_or_default(),
            cursor: open.cursor.map(Into::into),
            regions: open.regions.iter().map(|region| region.as_str().to_owned()).collect(),
            level: match open.level {
                Level::Members => v1::WatchLevel::Members,
                Level::Count => v1::WatchLevel::Count,
            }
            .into(),
            min_interval_ms: millis(open.min_interval),
            at_least: open.at_least.map(Into::into),
            recall: open.recall.map(Into::into),
        }
    }
}

impl TryFrom<v1::OpenRoom> for OpenRoom {
    type Error = WireError;

    fn try_from(wire: v1::OpenRoom) -> Result<Self, WireError> {
        at_most("OpenRoom.regions", wire.regions.len(), CURSOR_REGIONS_MAX)?;
        let home = match wire.home_region.as_str() {
            "" => None,
            name => Some(region("OpenRoom.home_region", name)?),
        };
        let level = match v1::WatchLevel::try_from(wire.level) {
            Ok(v1::WatchLevel::Members) => Level::Members,
            Ok(v1::WatchLevel::Count) => Level::Count,
            Ok(v1::WatchLevel::Unspecified) | Err(_) => {
                return Err(WireError::UnknownValue { field: "OpenRoom.level", value: wire.level });
            }
        };
        Ok(Self {
            room: room("OpenRoom.room", &wire.room)?,
            home,
            cursor: wire.cursor.map(Cursor::try_from).transpose()?,
            regions: wire
                .regions
                .iter()
                .map(|name| region("OpenRoom.regions", name))
                .collect::<Result<_, _>>()?,
            level,
            min_interval: pause("OpenRoom.min_interval_ms", wire.min_interval_ms)?,
            at_least: wire.at_least.map(Cursor::try_from).transpose()?,
            recall: wire.recall.map(Cursor::try_from).transpose()?,
        })
    }
}
