//! The port to whatever keeps leases, rosters and history, and its adapters.
//!
//! Few verbs with stated guarantees, held by one conformance suite on every adapter. A verb is a value
//! ([`Command`]) and so is its answer ([`Outcome`]): the driver stays a machine without I/O, and the
//! simulator can delay, lose and repeat both.
//!
//! **The store computes time**: callers pass spans; only `Renew` passes deadlines, and raising one late
//! or twice is harmless.

pub mod memory;
pub mod redis;
mod retention;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use presence_model::change::{Change, Committed};
use presence_model::digest::Digest;
use presence_model::hold::HoldCause;
use presence_model::id::{EdgeName, Incarnation, LinkNumber, RoomId, Roster, SessionId, UserId};
use presence_model::lease::{LeaseId, Shard};
use presence_model::limits::SHARDS_MAX;
use presence_model::member::Due;
use presence_model::position::{Epoch, Position, Revision};
use presence_model::profile::Member;
use presence_model::reason::ReleaseReason;
use presence_model::record::MemberRead;
use presence_model::time::StoreTime;

pub use retention::Retention;

/// Where leases live. Implementations must be cheap to share.
///
/// **Epochs vouch for data.** After a restart, fail-over or move of a shard, and when a caller knows a
/// higher epoch than the shard, the next turn or commit mints a new one, above the stored and the known
/// one, and starts a hold. Until then reads of positions (`Members`, `Load`, `Summary`, `History`) are
/// refused as [`StoreFault::Unavailable`], and the shard is silent in tails.
///
/// **Positions.** A roster that is not there is at the shard's count of all commits, and starts there:
/// the first delta of its life covers all copies that were read while it was absent.
pub trait LeaseStore: Send + Sync + 'static {
    /// Carries a command out. An unknown outcome ([`StoreFault::Unknown`]) may have happened: read again
    /// and decide again.
    fn execute(&self, command: Command) -> BoxFuture<'static, Result<Outcome, StoreFault>>;

    /// How many shards, fixed for the life of the data.
    fn shards(&self) -> u16;
}

/// The shard of a roster: 64-bit FNV-1a over region, one byte 255 (in no UTF-8) and room, its halves
/// folded together, modulo `shards` (1 to 256).
///
/// Part of the layout: all cores of a store agree on it for the life of the data.
#[must_use]
pub fn shard_of(roster: &Roster, shards: u16) -> Shard {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let region = roster.region.as_str().bytes();
    let room = roster.room.as_str().bytes();
    let hash = region
        .chain([u8::MAX])
        .chain(room)
        .fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    let folded = (hash >> 32) ^ (hash & u64::from(u32::MAX));
    let shard = folded % u64::from(shards.clamp(1, SHARDS_MAX));
    Shard(u8::try_from(shard).expect("a shard is below 256"))
}

impl Command {
    /// Whether it changes anything that others can see.
    #[must_use]
    pub fn is_write(&self) -> bool {
        match self {
            Self::Commit(_)
            | Self::Renew { .. }
            | Self::Release { .. }
            | Self::Discard { .. }
            | Self::Lose { .. }
            | Self::Turn { .. }
            | Self::Link { .. }
            | Self::Unlink { .. }
            | Self::Forget { .. } => true,
            Self::Now { .. }
            | Self::Members { .. }
            | Self::Load { .. }
            | Self::Edges
            | Self::History { .. }
            | Self::Tail { .. }
            | Self::Leases { .. }
            | Self::Rooms { .. }
            | Self::Summary { .. } => false,
        }
    }
}

/// Why no answer came. An error is never "unknown lease".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    /// Not carried out: the store cannot be reached or refuses for now.
    #[error("the store cannot be reached: {0}")]
    Unavailable(String),
    /// Carried out or not: the answer was lost.
    #[error("the store did not answer in time")]
    Unknown,
    /// The store does not take writes.
    #[error("the store is read-only")]
    ReadOnly,
}

/// A verb of the port.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// The shard's clock. Answer: [`Outcome::Now`].
    Now {
        /// Which shard.
        shard: Shard,
    },
    /// A few members at one point. Answer: [`Outcome::Members`].
    Members {
        /// Which roster.
        roster: Roster,
        /// Who, each once.
        users: Vec<UserId>,
    },
    /// A page of a whole roster. Pages may be of different points: each says its own, and the history
    /// since the first makes them one. Answer: [`Outcome::Page`].
    Load {
        /// Which roster.
        roster: Roster,
        /// Continue after this user; none: from the start.
        after: Option<UserId>,
        /// At most so many.
        count: usize,
    },
    /// Applies changes as one revision. Answer: [`Outcome::Commit`].
    Commit(Commit),
    /// Extends leases. Answer: [`Outcome::Renewed`].
    Renew {
        /// All leases are of this shard.
        shard: Shard,
        /// New deadlines: never shortens, never creates.
        leases: Vec<(LeaseId, StoreTime)>,
    },
    /// Renames leases to their grace names and brings their deadlines forward to now + grace (of a
    /// lease already shortened by `Lose`: the replaced deadline counts, min(that, now + grace)). Never
    /// lengthens. Unknown leases, and leases not held through this edge, are skipped. Answer:
    /// [`Outcome::Released`].
    Release {
        /// All leases are of this shard.
        shard: Shard,
        /// The edge that asks.
        edge: Incarnation,
        /// By plain name.
        leases: Vec<LeaseId>,
        /// From now.
        grace: Duration,
        /// Noted for the reason of the removal.
        reason: ReleaseReason,
    },
    /// Removes leases, under either name, that are overdue while their shard is not held. For those that
    /// no record names, as the caller has read: nothing shows and no revision moves. Answer:
    /// [`Outcome::Done`].
    Discard {
        /// All leases are of this shard.
        shard: Shard,
        /// By plain name.
        leases: Vec<LeaseId>,
    },
    /// Shortens all leases of a lost edge under their own names to now + grace. Nothing happens if the
    /// shard knows a higher link number of that edge; only deadlines ≤ `broken_since` + ttl are touched;
    /// the replaced deadline is noted; a renewal takes it back. Repeatable. In a hold nothing is shortened.
    /// Answer: [`Outcome::Lost`].
    Lose {
        /// Which shard.
        shard: Shard,
        /// The edge.
        edge: Incarnation,
        /// Its broken link.
        link: LinkNumber,
        /// Since when it is broken.
        broken_since: StoreTime,
        /// From now.
        grace: Duration,
    },
    /// The sweep's turn of a shard: am I it, is there a hold, what is due? Answer: [`Outcome::Turn`].
    Turn {
        /// Which shard.
        shard: Shard,
        /// Who asks: minted at random by each core process.
        holder: u64,
        /// The turn whose sweep this holder has finished since: its start becomes "last finished".
        finished: Option<u64>,
        /// How long a turn is kept without being asked for again.
        kept: Duration,
        /// Smallest ttl over room classes: what a sweep gap is measured by.
        smallest_ttl: Duration,
        /// What a change of holder may take.
        takeover: Duration,
        /// The caller saw the store's clock step against its own monotonic clock.
        stepped: bool,
        /// The highest epoch the caller knows of this shard.
        known: Option<Epoch>,
        /// At most so much of what is due.
        portion: usize,
    },
    /// This core sees that link. Ignored if a higher number is known; the number of a link that is
    /// reported broken mends nothing, whichever comes first. Answer: [`Outcome::Linked`].
    Link {
        /// The edge.
        edge: Incarnation,
        /// Its name, for people.
        name: EdgeName,
        /// The link.
        link: LinkNumber,
        /// The core that sees it.
        core: u64,
    },
    /// The link broke as a dead process breaks it. Ignored if a higher number is known. Answer:
    /// [`Outcome::Done`].
    Unlink {
        /// The edge.
        edge: Incarnation,
        /// The link.
        link: LinkNumber,
    },
    /// The edge said goodbye, or nothing of it is left. Answer: [`Outcome::Done`].
    Forget {
        /// The edge.
        edge: Incarnation,
        /// The link.
        link: LinkNumber,
    },
    /// Edges and their links. Answer: [`Outcome::Edges`].
    Edges,
    /// Commits of a roster after a revision, in order. Answer: [`Outcome::History`].
    History {
        /// Which roster.
        roster: Roster,
        /// From just after it.
        after: Position,
        /// At most so many.
        count: usize,
    },
    /// Commits of all shards as they happen, waiting for the first; answered at once if `after` does not
    /// name every shard, so that a caller knows where it starts before it loads. Answer: [`Outcome::Tail`].
    Tail {
        /// Where the caller is in each shard; absent: from now on.
        after: BTreeMap<Shard, TailId>,
        /// Answer empty after this long.
        wait: Duration,
    },
    /// What stands behind a member: its leases with their notes. Answer: [`Outcome::Leases`].
    Leases {
        /// All leases are of this shard.
        shard: Shard,
        /// By plain name.
        leases: Vec<LeaseId>,
    },
    /// Names of rooms that have members in a region; may over-report, never under-report. Answer:
    /// [`Outcome::Rooms`].
    Rooms {
        /// Names that start so.
        prefix: String,
        /// From just after it.
        after: Option<RoomId>,
        /// At most so many.
        count: usize,
    },
    /// Number of members, position and digest of a roster, in constant time. Answer:
    /// [`Outcome::Summary`].
    Summary {
        /// Which roster.
        roster: Roster,
    },
}

/// A place in a shard's tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TailId {
    /// Which history: a tail of another epoch is broken.
    pub epoch: Epoch,
    /// Commits of the shard so far.
    pub sequence: u64,
}

/// Changes of one roster to apply as one revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Commit {
    /// Which roster.
    pub roster: Roster,
    /// The epoch in which it was decided.
    pub epoch: Epoch,
    /// One change a member.
    pub changes: Vec<Change>,
}

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
    /// How many leases are held through it, over all shards; counted for broken edges only.
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
}

/// What history can tell.
#[derive(Debug, Clone, PartialEq)]
pub enum HistoryOutcome {
    /// In order, contiguous from just after the position asked.
    Commits(Vec<Committed>),
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

#[cfg(test)]
mod tests {
    use presence_model::id::RegionId;

    use super::*;

    fn shard(region: &str, room: &str, shards: u16) -> u8 {
        let roster = Roster { region: RegionId::new(region).unwrap(), room: RoomId::new(room).unwrap() };
        shard_of(&roster, shards).0
    }

    #[test]
    fn shards_are_a_part_of_the_layout() {
        let rooms = ["lobby", "trading:eur", "__proto__", "ω"];
        assert_eq!(rooms.map(|room| shard("eu", room, 256)), [56, 230, 76, 84]);
        assert_ne!(shard("eu", "x-room", 256), shard("eux", "-room", 256), "names do not run together");
    }

    #[test]
    fn rosters_spread_over_shards() {
        let mut counts = [0; 16];
        for number in 0..16_000 {
            counts[usize::from(shard("eu", &format!("room-{number}"), 16))] += 1;
        }
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
        assert_eq!(shard("eu", "lobby", 1), 0);
    }
}
