//! What a watcher is told at its start, wants done, and tells.

use std::time::Duration;

use presence_model::cursor::Cursor;
use presence_model::id::{RegionId, RoomId};
use presence_model::replica::Freshness;
use presence_model::time::StoreTime;
use presence_model::watch::{Level, WatchRefusal, WatchUp};

/// What a watcher is told at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatcherSettings {
    /// The region that is told at once, others at the merge cadence; none: the core's own.
    pub home: Option<RegionId>,
    /// How often the core beats; above zero.
    pub beat: Duration,
    /// Whether each copy remembers who was touched, for whoever hands single regions on.
    pub remembers: bool,
}

impl Default for WatcherSettings {
    /// The core's own region, and one second: no core beats less often.
    fn default() -> Self {
        Self { home: None, beat: Duration::from_secs(1), remembers: false }
    }
}

/// How a room is watched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoomOptions {
    /// How much.
    pub level: Level,
    /// Which regions; empty: all. At most 64.
    pub regions: Vec<RegionId>,
    /// At most one delta in this span; zero: the core's cadence.
    pub min_interval: Duration,
    /// Somebody has seen this already, and comes from there: as in
    /// [`Watcher::catch_up`](super::Watcher::catch_up), without a question of its own.
    pub at_least: Cursor,
}

/// What a watcher wants done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send over the stream.
    Send(WatchUp),
    /// Open a new stream, to another core if there is one, then call
    /// [`Watcher::connected`](super::Watcher::connected).
    Reconnect(ReconnectCause),
    /// Something happened.
    Event(Event),
}

/// Why a new stream is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReconnectCause {
    /// The core is going. The stream still works: it may be kept until the new one is there.
    Drain,
    /// Nothing came for three beats. The stream is given up: all is as after
    /// [`Watcher::lost`](super::Watcher::lost).
    Silent,
}

/// Something happened to a room, or to all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The revision of its view rose, or the view became complete or incomplete; while a catch-up is
    /// under way also: its cursor moved.
    Changed(RoomId),
    /// A region of it is now this fresh.
    Freshness {
        /// The room.
        room: RoomId,
        /// The region.
        region: RegionId,
        /// How fresh.
        freshness: Freshness,
    },
    /// So many are in it, as told to a watcher at the level of counts.
    Count {
        /// The room.
        room: RoomId,
        /// How many.
        members: u64,
    },
    /// What [`Watcher::catch_up`](super::Watcher::catch_up) asked is answered: what its view cannot resume
    /// now is to be answered by a snapshot. Comes after the `Changed` of the same message.
    Answered(RoomId),
    /// The core does not let it be watched. It stays open here: asked for again on the next stream, and
    /// before that if the refusal says when. Its view is stale.
    Refused {
        /// The room.
        room: RoomId,
        /// Why.
        refusal: WatchRefusal,
    },
    /// Nothing was missed up to here, in any room.
    Progress {
        /// The store's clock.
        store_time: StoreTime,
    },
}

/// What happened so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Deltas that did not follow.
    pub gaps: u64,
    /// Copies that differed by their digest.
    pub differs: u64,
    /// Streams given up for silence.
    pub silent: u64,
    /// Messages about rooms that are not open: usually closed a moment ago.
    pub strangers: u64,
}
