//! What an edge and a core say to each other, in the words of the model. The wire form is a mirror.

use std::time::Duration;

use smol_str::SmolStr;

use crate::class::RoomTimings;
use crate::cursor::Cursor;
use crate::id::{
    ConnectionId, EdgeName, Generation, Incarnation, LinkNumber, RegionId, RoomId, SessionId, UserId,
};
use crate::lease::LeaseId;
use crate::profile::{Profile, State, Status};
use crate::reason::{LeaveReason, ReleaseReason, RemovalReason};
use crate::refusal::Refusal;
use crate::revocation::Revocation;
use crate::time::StoreTime;

/// Chosen by the edge, rising over its run; the answer repeats it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Counts the renewal batches of an edge incarnation, over all links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// Who links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The edge's configured name.
    pub edge: EdgeName,
    /// Its run.
    pub incarnation: Incarnation,
    /// Which link of that run.
    pub link: LinkNumber,
    /// Where it runs.
    pub region: RegionId,
    /// Release of its software.
    pub release: SmolStr,
}

/// What holds on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// How often a session is to be heard, in a room of the default class.
    pub heartbeat: Duration,
    /// How long one renewal carries there.
    pub lease_ttl: Duration,
    /// How long a lost transport may take to come back there.
    pub grace: Duration,
    /// Smallest heartbeat over room classes: what waits for renewals follows it.
    pub heartbeat_min: Duration,
    /// How often both sides beat.
    pub link_beat: Duration,
    /// After how long an edge whose link broke is lost.
    pub edge_lost: Duration,
    /// The store's clock.
    pub store_time: StoreTime,
    /// Name of the core, for people.
    pub core: SmolStr,
    /// Release of its software.
    pub release: SmolStr,
}

/// A token as its bearer sent it. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub SmolStr);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token({} bytes)", self.0.len())
    }
}

/// A session wants in, or an edge brings one back whose lease the store does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinUp {
    /// Names the answer. Rises over all joins of a transport, so that it tells the later one.
    pub request: RequestId,
    /// The room of the token.
    pub room: RoomId,
    /// Proof of user, room and action.
    pub token: Token,
    /// The session.
    pub session: SessionId,
    /// Its attempt; none: highest known plus one.
    pub generation: Option<Generation>,
    /// Its transport.
    pub connection: ConnectionId,
    /// What it says about itself.
    pub profile: Profile,
    /// Release name of the client software.
    pub client: SmolStr,
    /// Set on an automatic re-join: the member's since as it was told.
    pub rejoin: Option<StoreTime>,
    /// Where the client says it was.
    pub cursor: Cursor,
}

/// A join whose answer the edge never saw, and whose client is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnansweredJoin {
    /// The room.
    pub room: RoomId,
    /// The user.
    pub user: UserId,
    /// The session.
    pub session: SessionId,
    /// The attempt.
    pub generation: Option<Generation>,
    /// The transport.
    pub connection: ConnectionId,
    /// As it was asked under: later joins of that transport stand.
    pub request: RequestId,
}

/// From edge to core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkUp {
    /// At every link beat.
    Beat {
        /// Counts beats of this link.
        sequence: u64,
    },
    /// A session wants in.
    Join(Box<JoinUp>),
    /// Sessions were heard.
    Renew {
        /// Names the acknowledgement.
        batch: BatchId,
        /// By plain name.
        leases: Vec<LeaseId>,
    },
    /// Transports are given up. Repeated until answered.
    Release {
        /// Names the answer.
        request: RequestId,
        /// By plain name.
        leases: Vec<LeaseId>,
        /// Why.
        reason: ReleaseReason,
        /// Added to grace: the reconnect hint the client was given.
        hint: Duration,
        /// For joins whose answer was lost.
        unanswered: Vec<UnansweredJoin>,
    },
    /// A session says something new.
    Update {
        /// Names the answer.
        request: RequestId,
        /// Its current lease.
        lease: LeaseId,
        /// The room.
        room: RoomId,
        /// The user.
        user: UserId,
        /// New status.
        status: Option<Status>,
        /// New state.
        state: Option<State>,
        /// A fresh token.
        token: Option<Token>,
    },
    /// A session is over: its client says goodbye, or its token is revoked. Repeated until answered.
    Leave {
        /// Names the answer.
        request: RequestId,
        /// Its current lease.
        lease: LeaseId,
        /// The room.
        room: RoomId,
        /// The user.
        user: UserId,
        /// Why.
        reason: LeaveReason,
    },
    /// The edge is going.
    Bye {
        /// Whether it links again elsewhere.
        moving: bool,
    },
}

/// A lease was granted, or is still held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantDown {
    /// The lease.
    pub lease: LeaseId,
    /// The generation in force.
    pub generation: Generation,
    /// The member's since.
    pub since: StoreTime,
    /// Whether the session had been there already.
    pub resumed: bool,
    /// End of the token.
    pub token_ends: StoreTime,
    /// Timers of the lease, those of its room's class; none: those of the [`Welcome`].
    pub timings: Option<RoomTimings>,
}

/// Why a request over the link was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkRefusal {
    /// By the semantics.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No, bad or expired token.
    #[error("no good token")]
    Unauthorized,
    /// A good token, but not for this.
    #[error("the token is for another room, action or subject")]
    Forbidden,
    /// Names or sizes out of bounds.
    #[error("malformed request")]
    BadRequest,
    /// Cannot be decided now.
    #[error("unavailable, try again in {} ms", retry_after.as_millis())]
    Unavailable {
        /// When to ask again.
        retry_after: Duration,
    },
}

/// From core to edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkDown {
    /// First, once.
    Welcome(Welcome),
    /// At every link beat.
    Beat {
        /// The last beat seen from the edge.
        sequence: u64,
        /// The store's clock.
        store_time: StoreTime,
        /// Whether the store was reached within the last 5 s.
        store_reachable: bool,
    },
    /// The answer to a join.
    Joined {
        /// As asked.
        request: RequestId,
        /// In, or why not.
        outcome: Result<GrantDown, LinkRefusal>,
    },
    /// A batch is written.
    Renewed {
        /// As sent.
        batch: BatchId,
        /// Leases that nobody has.
        unknown: Vec<LeaseId>,
    },
    /// Leases that were named in a batch or release were granted through another edge: for them nothing was done.
    /// Comes before the answer to the rest.
    Foreign {
        /// As named.
        leases: Vec<LeaseId>,
    },
    /// A release, update or leave is carried out or refused. Carries the new token end after an update
    /// with a token.
    Done {
        /// As asked.
        request: RequestId,
        /// Carried out, or why not.
        outcome: Result<Option<StoreTime>, LinkRefusal>,
    },
    /// Renew every lease within this span.
    RenewAll {
        /// Spread over it.
        within: Duration,
    },
    /// A lease of this edge is over.
    EndLease {
        /// Which.
        lease: LeaseId,
        /// Why.
        reason: RemovalReason,
    },
    /// What is revoked until when, of tokens, keys and subjects: joins with such tokens are refused, and what rests
    /// on one is over.
    Revoked {
        /// At most a page of the store's list.
        revocations: Vec<(Revocation, StoreTime)>,
    },
    /// This core is going.
    Drain,
    /// An operator wants this edge to go.
    DrainEdge,
}
