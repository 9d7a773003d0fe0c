//! What a store answers.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_model::change::Committed;
use presence_model::digest::Digest;
use presence_model::hold::HoldCause;
use presence_model::id::{EdgeName, Incarnation, LinkNumber, RoomId, Roster, SessionId, UserId};
use presence_model::lease::{LeaseId, Shard};
use presence_model::member::Due;
use presence_model::position::{Epoch, Position, Revision};
use presence_model::profile::Member;
use presence_model::record::MemberRead;
use presence_model::revocation::Revocation;
use presence_model::time::StoreTime;

#[cfg(doc)]
use super::Command;
use super::TailId;

/// What became of a commit.
#[derive(Debug, Clone, PartialEq)]
pub enum CommitOutcome {
    /// Some or all were applied as one revision (none applied: the revision did not move).
    Applied {
        /// After the commit.
        position: Position,
        /// Not applied, and why: read again and decide again.
        refused: Vec<(UserId, NotApplied)>,
        /// When, by the store's clock.
        now: StoreTime,
    },
    /// Another epoch is in force; nothing was applied.
    Epoch {
        /// The one in force.
        current: Epoch,
    },
}

/// Why one change of a commit was not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotApplied {
    /// The record or a tombstone is not as read.
    Changed,
    /// A guard did not hold: renewed meanwhile, held, or nobody has swept for so long that a hold is due.
    Guard,
    /// The lease id to grant exists already, under either name, or is not a plain one of this shard.
    LeaseExists,
}

/// A hold of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldState {
    /// Its start.
    pub since: StoreTime,
    /// Why.
    pub cause: HoldCause,
}

/// A lease that is due, with its owner.
#[derive(Debug, Clone, PartialEq)]
pub struct DueLease {
    /// Which roster.
    pub roster: Roster,
    /// Who.
    pub user: UserId,
    /// Which session.
    pub session: SessionId,
    /// The lease and which clock ran out.
    pub due: Due,
}

/// The answer to a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnOutcome {
    /// Whether the caller holds the turn.
    pub mine: bool,
    /// Names this turn, for `finished`.
    pub turn: u64,
    /// The shard's clock.
    pub now: StoreTime,
    /// The epoch in force.
    pub epoch: Epoch,
    /// The hold in force, of any ttl.
    pub hold: Option<HoldState>,
    /// Whether this very turn set the hold or raised the epoch.
    pub new_hold: bool,
    /// Start of the last finished sweep.
    pub swept: Option<StoreTime>,
    /// What is due (empty unless mine), the oldest first.
    pub due: Vec<DueLease>,
}

/// An edge as the store knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct EdgeState {
    /// The run.
    pub edge: Incarnation,
    /// Its name.
    pub name: EdgeName,
    /// Its newest link.
    pub link: LinkNumber,
    /// The core that saw it.
    pub core: u64,
    /// Since when it is broken; none: linked.
    pub broken_since: Option<StoreTime>,
    /// Whether it is to go.
    pub draining: bool,
    /// How many leases are held through it, over all shards; counted for edges only that are broken or to go.
    pub leases: Option<usize>,
}

/// A lease and the note of why it was shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseDetail {
    /// By plain name.
    pub lease: LeaseId,
    /// Under which name, until when.
    pub state: presence_model::record::LeaseState,
    /// The note.
    pub shortened: Option<presence_model::member::Shortened>,
}

/// Where an audit goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditPlace {
    /// Among leases, in the adapter's own words; empty: at the start.
    pub leases: Vec<u8>,
    /// Among members: the one looked at last, or the roster to begin with; none: at the start.
    pub members: Option<(Roster, Option<UserId>)>,
}

/// A record whose lease does not exist.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remnant {
    /// Which roster.
    pub roster: Roster,
    /// Who.
    pub user: UserId,
    /// By plain name.
    pub lease: LeaseId,
}

/// A page of an audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPage {
    /// The clock at that point.
    pub now: StoreTime,
    /// Leases that no record names, by plain name.
    pub strays: Vec<LeaseId>,
    /// Records without their lease.
    pub remnants: Vec<Remnant>,
    /// Rosters looked at whose count, digest or entry among the rooms is not that of their records.
    pub torn: Vec<Roster>,
    /// Where to go on; at the start if all has been looked at.
    pub next: AuditPlace,
    /// For how long the lease that ran out first is overdue, of those that are not held; zero: none is.
    pub oldest_overdue: Duration,
}

/// An entry of the index of a user's rosters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// When it was written last.
    pub at: StoreTime,
    /// Where the user may be.
    pub roster: Roster,
}

/// The answer to a command.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// To [`Command::Now`].
    Now {
        /// The clock.
        now: StoreTime,
    },
    /// To [`Command::Members`].
    Members {
        /// The clock at that point.
        now: StoreTime,
        /// Where the roster is.
        position: Position,
        /// In the order asked.
        members: Vec<MemberRead>,
    },
    /// To [`Command::Load`].
    Page {
        /// The clock at that point.
        now: StoreTime,
        /// Where the roster is at that point.
        position: Position,
        /// Members as shown with the revision that last touched each, sorted by user.
        members: Vec<(Member, Revision)>,
        /// Whether more follow.
        more: bool,
        /// Digest of the whole roster at `position`.
        digest: Digest,
    },
    /// To [`Command::Commit`].
    Commit(CommitOutcome),
    /// To [`Command::Renew`].
    Renewed {
        /// The clock, if the store told it: a renewal needs none, and asking costs a command a batch.
        now: Option<StoreTime>,
        /// Leases that do not exist under their plain name.
        unknown: Vec<LeaseId>,
    },
    /// To [`Command::Release`].
    Released {
        /// The clock.
        now: StoreTime,
        /// How many were renamed now.
        released: usize,
    },
    /// To [`Command::Lose`].
    Lost {
        /// How many are shortened, now or before.
        leases: usize,
    },
    /// To [`Command::Turn`].
    Turn(TurnOutcome),
    /// To [`Command::Link`].
    Linked {
        /// Whether the number was not below the known one.
        accepted: bool,
        /// The clock.
        now: StoreTime,
    },
    /// To commands without an answer.
    Done,
    /// To [`Command::Edges`].
    Edges {
        /// The clock.
        now: StoreTime,
        /// By incarnation.
        edges: Vec<EdgeState>,
    },
    /// To [`Command::History`].
    History(HistoryOutcome),
    /// To [`Command::Tail`].
    Tail {
        /// Where the caller is now, each shard.
        at: BTreeMap<Shard, TailId>,
        /// In order within each shard.
        commits: Vec<Committed>,
        /// Shards whose tail broke: resync every roster of them. `at` says where to go on.
        broken: Vec<Shard>,
    },
    /// To [`Command::Leases`].
    Leases {
        /// The clock.
        now: StoreTime,
        /// Those that exist.
        leases: Vec<LeaseDetail>,
    },
    /// To [`Command::Rooms`].
    Rooms {
        /// Sorted.
        rooms: Vec<RoomId>,
    },
    /// To [`Command::Audit`].
    Audited(AuditPage),
    /// To [`Command::Disown`].
    Disowned {
        /// How many were removed.
        removed: usize,
    },
    /// To [`Command::Distrust`].
    Distrusted {
        /// Whether it was torn: the next turn makes it whole.
        was_torn: bool,
    },
    /// To [`Command::Summary`].
    Summary {
        /// The clock.
        now: StoreTime,
        /// Where the roster is.
        position: Position,
        /// Members.
        count: u64,
        /// Digest.
        digest: Digest,
        /// Start of the last finished sweep of its shard.
        swept: Option<StoreTime>,
        /// The hold in force.
        hold: Option<HoldState>,
    },
    /// To [`Command::Seen`].
    Seen {
        /// The clock by which it was written.
        now: StoreTime,
        /// When the user came or went last; none: never, or longer ago than is remembered.
        at: Option<StoreTime>,
    },
    /// To [`Command::RoomsOf`].
    RoomsOf {
        /// The clock by which they were written.
        now: StoreTime,
        /// The one written first in front.
        rooms: Vec<Listed>,
        /// Whether more follow.
        more: bool,
    },
    /// To [`Command::Revoked`].
    Revoked {
        /// The clock.
        now: StoreTime,
        /// Rises whenever something is revoked, or for longer; starts over with the data.
        news: u64,
        /// What, until when.
        revocations: Vec<(Revocation, StoreTime)>,
        /// Whether more follow.
        more: bool,
    },
    /// To [`Command::Tidy`].
    Tidied {
        /// Whether more may be to do.
        more: bool,
    },
}

/// What history can tell.
#[derive(Debug, Clone, PartialEq)]
pub enum HistoryOutcome {
    /// In order, contiguous from just after the position asked; at least one.
    Commits(Vec<Committed>),
    /// Nothing has happened to the roster since.
    Unchanged {
        /// Where it is: further on, if nobody is there and others of its shard were changed.
        position: Position,
    },
    /// It does not reach back so far, or that epoch is not in force.
    Compacted {
        /// Where the roster is.
        position: Position,
    },
    /// The position lies ahead of the roster.
    Ahead {
        /// Where the roster is.
        position: Position,
    },
}
