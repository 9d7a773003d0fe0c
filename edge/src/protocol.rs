//! The client protocol: messages as clients and edge mean them, free of their encoding.

pub mod codes;
pub mod encoding;
mod fields;
pub mod json;
pub mod proto;

use std::time::Duration;

use bytes::Bytes;
use presence_model::class::RoomTimings;
use presence_model::cursor::Cursor;
use presence_model::id::{ConnectionId, Generation, RegionId, RoomId, SessionId};
use presence_model::link::Token;
use presence_model::profile::{Profile, State, Status};
use presence_model::reason::RemovalReason;
use presence_model::replica::Freshness;
use presence_model::time::StoreTime;
use presence_model::view::ViewRevision;
use presence_model::watch::Level;
use smol_str::SmolStr;

pub use self::encoding::Encoding;

/// From client to edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientMessage {
    /// Be present, and watch unless told otherwise.
    Join(Box<JoinMessage>),
    /// Watch only.
    Watch {
        /// The room.
        room: RoomId,
        /// Proof.
        token: Token,
        /// Where the client was.
        since: Since,
        /// What it is to be shown; none: the list, or the number of a room that is too large for lists.
        level: Option<Level>,
        /// Release name of the client software.
        client: SmolStr,
    },
    /// Say something new.
    Update {
        /// The room.
        room: RoomId,
        /// New status.
        status: Option<Status>,
        /// New state.
        state: Option<State>,
    },
    /// A fresh token.
    Token {
        /// The room.
        room: RoomId,
        /// Proof.
        token: Token,
    },
    /// Goodbye.
    Leave {
        /// The room.
        room: RoomId,
    },
    /// A gap was seen: start over.
    Resync {
        /// The room.
        room: RoomId,
    },
    /// Alive, and how far.
    Ping {
        /// Revision reached, room by room.
        at: Vec<(RoomId, ViewRevision)>,
    },
}

/// Where a client says it was. A cursor that cannot be read costs a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Since {
    /// It did not say.
    #[default]
    Nowhere,
    /// There.
    Cursor(Cursor),
    /// It said something that is not a cursor of ours.
    Unreadable,
}

/// A session wants in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinMessage {
    /// The room.
    pub room: RoomId,
    /// Proof.
    pub token: Token,
    /// The session.
    pub session: SessionId,
    /// Its attempt.
    pub generation: Option<Generation>,
    /// What it says about itself.
    pub profile: Profile,
    /// Where the client was.
    pub since: Since,
    /// Whether it wants to see the room.
    pub watch: bool,
    /// What of it; none: the list, or the number of a room that is too large for lists.
    pub level: Option<Level>,
    /// Release name of the client software.
    pub client: SmolStr,
}

/// Why a request of a client failed: a closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorCode {
    /// Malformed.
    BadRequest,
    /// No, bad or expired token.
    Unauthorized,
    /// A good token, not for this.
    Forbidden,
    /// Generation not above the stored.
    StaleGeneration,
    /// As many live sessions as a member may have.
    TooManySessions,
    /// As many rooms as a connection may have.
    TooManyRooms,
    /// State or message too large.
    TooLarge,
    /// Too fast.
    RateLimited,
    /// Cannot be decided now.
    Unavailable,
    /// Not in that room on this connection.
    NotJoined,
}

/// Close codes: they say whether and how to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CloseCode {
    /// 1000: the client said goodbye to its last room, or closed.
    Normal,
    /// 1001: going away; come back after the hint.
    GoingAway,
    /// 1012: restart; come back after the hint.
    Restart,
    /// 1013: overloaded; come back after the hint, growing.
    Overloaded,
    /// 4400: malformed; do not come back.
    Malformed,
    /// 4401: no, bad or expired token; fetch a new one first.
    Unauthorized,
    /// 4403: not this room or action; fetch a new token first.
    Forbidden,
    /// 4408: no first message in time, or silent; come back.
    Silent,
    /// 4409: superseded or stale; come back only with a new session id.
    Superseded,
    /// 4410: evicted or revoked; do not come back by yourself.
    Evicted,
    /// 4413: too large; do not come back.
    TooLarge,
    /// 4429: rate limit; come back after the hint.
    RateLimited,
}

/// From edge to one client. Deltas and pages of rooms are encoded apart, since they are shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerMessage {
    /// First, at once.
    Hello {
        /// This transport.
        connection: ConnectionId,
        /// How often the client is pinged, unless a room it joins is of a class of its own.
        heartbeat: Duration,
        /// Ceiling of the first reconnect.
        reconnect: Duration,
        /// Up to how many members a room is shown as a list unless asked otherwise.
        list_members: usize,
    },
    /// In.
    Joined {
        /// The room.
        room: RoomId,
        /// The session.
        session: SessionId,
        /// The generation in force.
        generation: Generation,
        /// The member's since.
        since: StoreTime,
        /// Whether it had been there already.
        resumed: bool,
        /// Of the room's class: they count instead of those of `Hello`.
        timings: RoomTimings,
    },
    /// How fresh a region of a room is.
    Freshness {
        /// The room.
        room: RoomId,
        /// The region.
        region: RegionId,
        /// How fresh.
        freshness: Freshness,
    },
    /// A fresh token is wanted.
    TokenExpiring {
        /// The room.
        room: RoomId,
        /// Until it ends.
        within: Duration,
    },
    /// The session, or the watching, is over.
    Ended {
        /// The room.
        room: RoomId,
        /// Why.
        reason: RemovalReason,
    },
    /// Come back elsewhere.
    Reconnect {
        /// After this long.
        after: Duration,
        /// Why: `drain`.
        reason: &'static str,
    },
    /// A request failed.
    Error {
        /// The room it was about.
        room: Option<RoomId>,
        /// Which.
        code: ErrorCode,
        /// When to try again.
        retry_after: Option<Duration>,
        /// For people.
        message: String,
        /// With `stale_generation`: the stored one.
        generation: Option<Generation>,
    },
    /// To a ping.
    Pong,
}

/// Encoded payloads are shared by all receivers.
pub type Payload = Bytes;
