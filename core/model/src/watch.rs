//! What a watcher and a core say to each other, in the words of the model.

use std::time::Duration;

use smol_str::SmolStr;

use crate::cursor::Cursor;
use crate::id::{RegionId, RoomId};
use crate::time::StoreTime;
use crate::view::RegionEvent;

/// How much a watcher wants to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Level {
    /// All members and their changes.
    #[default]
    Members,
    /// The number only.
    Count,
}

/// Start watching a room, or ask again from another cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRoom {
    /// The room.
    pub room: RoomId,
    /// Told at once; none: the core's own.
    pub home: Option<RegionId>,
    /// Where the watcher is; none: snapshot.
    pub cursor: Option<Cursor>,
    /// Which regions; empty: all.
    pub regions: Vec<RegionId>,
    /// How much.
    pub level: Level,
    /// At most one delta in this span.
    pub min_interval: Duration,
    /// Somebody has seen this: the store is read before the answer, which is at or past it unless the
    /// store itself is behind; then it is as far as that, and its position says so. Regions that are not
    /// shown are not looked at.
    pub at_least: Option<Cursor>,
    /// Somebody was here and comes to the watcher: beside the answer, and in each region of the same history
    /// that has moved on, a delta from there to where the watcher is then. One that lists nobody and begins
    /// where it ends: that is not remembered.
    pub recall: Option<Cursor>,
}

/// From watcher to core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchUp {
    /// Start.
    Open(Box<OpenRoom>),
    /// Stop.
    Close(RoomId),
}

/// Why a room is not watched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WatchRefusal {
    /// The request was out of bounds: the field and the rule, for people.
    #[error("bad request: {0}")]
    BadRequest(SmolStr),
    /// It names a region that is not served here; asking again is of no use.
    #[error("a region is not known here")]
    UnknownRegion,
    /// Not for this watcher.
    #[error("not allowed")]
    Forbidden,
    /// As many rooms as one watch may have.
    #[error("too many rooms on one watch")]
    TooManyRooms,
    /// As many rooms as all watches of this core may have together.
    #[error("this core watches as many rooms as it may")]
    RateLimited {
        /// When to ask again.
        retry_after: Duration,
    },
    /// Cannot be read now.
    #[error("unavailable")]
    Unavailable {
        /// When to ask again.
        retry_after: Duration,
    },
}

/// From core to watcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchDown {
    /// One event of one region of a room.
    Region {
        /// The room.
        room: RoomId,
        /// The region.
        region: RegionId,
        /// The event.
        event: RegionEvent,
    },
    /// The number of members.
    Count {
        /// The room.
        room: RoomId,
        /// How many.
        members: u64,
    },
    /// The room is not watched.
    Refused {
        /// The room.
        room: RoomId,
        /// Why.
        refusal: WatchRefusal,
    },
    /// Nothing was missed up to here.
    Progress {
        /// Counts.
        sequence: u64,
        /// The store's clock.
        store_time: StoreTime,
    },
    /// This core is going.
    Drain,
}
