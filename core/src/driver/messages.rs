//! What goes into a driver and what comes out of it.

use std::time::Duration;

use presence_model::change::Transition;
use presence_model::claim::{Claims, TokenRefusal};
use presence_model::class::{ClassName, RoomTimings};
use presence_model::id::{EdgeName, Incarnation, RegionId, RoomId, Roster, UserId};
use presence_model::lease::LeaseId;
use presence_model::link::{Hello, LinkDown, LinkUp};
use presence_model::member::Shortened;
use presence_model::position::Position;
use presence_model::profile::Member;
use presence_model::record::{LeaseState, MemberRead};
use presence_model::replica::Freshness;
use presence_model::revocation::Revocation;
use presence_model::time::StoreTime;
use presence_model::watch::{WatchDown, WatchUp};
use smol_str::SmolStr;

use super::{ArrivalLimits, AuditNote, PeerHeard, PeerWish};
use crate::store::{Command, Outcome, StoreFault};

/// One link of an edge to this core, numbered by the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkKey(pub u64);

/// One watch stream, numbered by the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchKey(pub u64);

/// One question under way, numbered by the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryKey(pub u64);

/// One store command under way, numbered by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreOp(pub u64);

/// How a link ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEnd {
    /// The far side reset or closed it: a dead process looks like this.
    Broken,
    /// Silence or a keep-alive time-out: may be a partition.
    Silent,
    /// By our own decision.
    Ours,
}

/// A token as the shell verified it, beside the message that carried it.
pub type Verified = Option<Result<Claims, TokenRefusal>>;

/// What a driver takes.
#[derive(Debug, Clone)]
pub enum Input {
    /// An edge said hello.
    LinkOpened(LinkKey, Hello),
    /// An edge said something. `Verified` is set for joins, and updates that carry a token.
    Link(LinkKey, LinkUp, Verified),
    /// A link ended.
    LinkClosed(LinkKey, LinkEnd),
    /// A watcher came.
    WatchOpened(WatchKey),
    /// A watcher said something.
    Watch(WatchKey, WatchUp),
    /// A watcher asked for a room in a way that is out of bounds: what is wrong, for people.
    WatchMalformed(WatchKey, RoomId, SmolStr),
    /// A watcher's stream can take more: everything given out before has been written.
    WatchReady(WatchKey),
    /// A watcher went.
    WatchClosed(WatchKey),
    /// A question.
    Query(QueryKey, Query),
    /// An operator puts a user out of a room; answered by [`Answer::Evicted`].
    Evict(QueryKey, RoomId, UserId),
    /// An operator revokes something for so long; answered by [`Answer::Revoked`].
    Revoke(QueryKey, Revocation, Duration),
    /// An operator sends an edge away: this run of it, or all; answered by [`Answer::Leaving`].
    DrainEdge(QueryKey, EdgeName, Option<Incarnation>),
    /// So many new arrivals are taken from now on.
    Limits(ArrivalLimits),
    /// The store answered.
    Store(StoreOp, Box<Result<Outcome, StoreFault>>),
    /// Something came from a region that is kept elsewhere.
    Peer(RegionId, PeerHeard),
    /// This process is to go: drain links and watches.
    Drain,
    /// Time passed (`poll_timeout`).
    Tick,
}

/// What a driver wants done, in this order.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Ask the store; give the answer back under this number.
    Store(StoreOp, Command),
    /// Tell an edge.
    Link(LinkKey, LinkDown),
    /// End a link.
    CloseLink(LinkKey, CloseReason),
    /// Tell a watcher; answered by `WatchReady` when written.
    Watch(WatchKey, Vec<WatchDown>),
    /// End a watch.
    CloseWatch(WatchKey, WatchEnd),
    /// Do this for a region that is kept elsewhere.
    Peer(RegionId, PeerWish),
    /// Answer a question.
    Answer(QueryKey, Result<Answer, QueryRefusal>),
    /// A line of the transition log.
    Transition(Box<TransitionLine>),
    /// What an audit has found or mended.
    Audit(AuditNote),
    /// A token was refused to this edge. Nothing of it is told.
    TokenRefused(EdgeName, TokenRefusal),
    /// An edge linked under the name of one that is linked already.
    Namesake(EdgeName),
    /// An edge wanted something of leases that were granted through another one, which was refused.
    Foreign {
        /// Which.
        edge: EdgeName,
        /// What it wanted.
        verb: Verb,
        /// Of so many.
        leases: usize,
    },
}

/// What an edge may want of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// To extend it.
    Renew,
    /// To start its grace.
    Release,
    /// To say something new about its session.
    Update,
    /// To end it.
    Leave,
}

impl Verb {
    /// Its name in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Renew => "renew",
            Self::Release => "release",
            Self::Update => "update",
            Self::Leave => "leave",
        }
    }
}

/// Why a link is ended from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The same edge incarnation linked again.
    #[error("a newer link of this edge is open")]
    Superseded,
    /// Its number is not above one that is known.
    #[error("a link with a higher number is known")]
    StaleLink,
    /// Its region is not one that edges of this core may speak for.
    #[error("edges of that region do not belong here")]
    Region,
    /// The run of an edge that it names is linked under another name.
    #[error("that run is of another edge")]
    Foreign,
    /// No beat for three link beats.
    #[error("no beat")]
    Silent,
    /// This process is going.
    #[error("draining")]
    Draining,
}

/// Why a watch is ended from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WatchEnd {
    /// Its answers pile up unread.
    #[error("the watcher does not read")]
    TooSlow,
    /// There are as many watches as may be.
    #[error("too many watches, try again in {} ms", retry_after.as_millis())]
    TooMany {
        /// When to come again.
        retry_after: Duration,
    },
}

/// A question about a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query {
    /// A page of its members, settled.
    Room {
        /// Which.
        room: RoomId,
        /// From just after it.
        after: Option<UserId>,
        /// At most so many.
        count: usize,
    },
    /// How many.
    Count {
        /// Which.
        room: RoomId,
    },
    /// Rooms that have members.
    Rooms {
        /// Names that start so.
        prefix: String,
        /// From just after it.
        after: Option<RoomId>,
        /// At most so many.
        count: usize,
    },
    /// Why somebody is shown, or not.
    Explain {
        /// Where.
        room: RoomId,
        /// Who.
        user: UserId,
    },
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// To [`Query::Room`].
    Room {
        /// Sorted by user.
        members: Vec<Member>,
        /// Whether more follow.
        more: bool,
        /// In all: exact where the whole list is told, else whoever is in two regions counts twice.
        count: u64,
        /// Where each region is, sorted.
        regions: Vec<RegionNow>,
    },
    /// To [`Query::Count`].
    Count {
        /// How many, region by region: whoever is in two counts twice.
        count: u64,
        /// Where each region is, sorted.
        regions: Vec<RegionNow>,
    },
    /// To [`Query::Rooms`].
    Rooms {
        /// Sorted, with members.
        rooms: Vec<(RoomId, u64)>,
        /// Whether more follow.
        more: bool,
    },
    /// To [`Query::Explain`].
    Explain(Box<Explained>),
    /// To [`Input::Evict`].
    Evicted {
        /// How many sessions were put out, or kept from being brought back by their edge.
        sessions: usize,
    },
    /// To [`Input::Revoke`].
    Revoked {
        /// Until when, by the store's clock.
        until: StoreTime,
    },
    /// To [`Input::DrainEdge`]: the runs that go, at least one, and how many sessions each still holds.
    Leaving(Vec<(Incarnation, usize)>),
}

/// A region's part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionNow {
    /// Which.
    pub region: RegionId,
    /// Where its roster is; none: that is not known.
    pub position: Option<Position>,
    /// How fresh.
    pub freshness: Freshness,
}

/// All that is known of a user in a room.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// In the roster of this region: where the user is, or else was last, among those that are kept here.
    pub region: RegionId,
    /// Record and tombstones.
    pub read: MemberRead,
    /// Each lease of the record that exists, with its note.
    pub leases: Vec<(LeaseId, LeaseState, Option<Shortened>)>,
    /// Where the roster is.
    pub position: Position,
    /// How fresh.
    pub freshness: Freshness,
    /// The store's clock.
    pub now: StoreTime,
    /// The room's class, with its timers; none: the default class.
    pub class: Option<(ClassName, RoomTimings)>,
}

/// Why a question got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryRefusal {
    /// The store cannot be read now.
    #[error("unavailable, try again in {} ms", retry_after.as_millis())]
    Unavailable {
        /// When to ask again.
        retry_after: Duration,
    },
    /// No such edge, or no such run of it.
    #[error("no such edge is known")]
    UnknownEdge,
}

/// One line of the transition log: enough to rebuild a session's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransitionLine {
    /// Where.
    pub roster: Roster,
    /// Who.
    pub user: UserId,
    /// What.
    pub transition: Transition,
    /// The commit that made it true.
    pub position: Position,
    /// When, by the store's clock.
    pub at: StoreTime,
    /// For how long its lease had run out by then; none if it ended for something else, or the answer to the commit
    /// was lost.
    pub overdue: Option<Duration>,
}
