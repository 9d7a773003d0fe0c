//! The port to whatever keeps leases, rosters and history, and its adapters.
//!
//! Few verbs with stated guarantees, held by one conformance suite on every adapter. A verb is a value
//! ([`Command`]) and so is its answer ([`Outcome`]): the driver stays a machine without I/O, and the
//! simulator can delay, lose and repeat both.
//!
//! **The store computes time**: callers pass spans; only `Renew` passes deadlines, and raising one late
//! or twice is harmless.

pub mod memory;
mod outcome;
pub mod redis;
mod retention;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use presence_model::change::Change;
use presence_model::class::Graces;
use presence_model::id::{EdgeName, Incarnation, LinkNumber, RoomId, Roster, UserId};
use presence_model::lease::{LeaseId, Shard};
use presence_model::limits::SHARDS_MAX;
use presence_model::position::{Epoch, Position};
use presence_model::reason::ReleaseReason;
use presence_model::revocation::Revocation;
use presence_model::time::StoreTime;

pub use outcome::{
    AuditPage, AuditPlace, CommitOutcome, DueLease, EdgeState, HistoryOutcome, HoldState, LeaseDetail,
    Listed, NotApplied, Outcome, Remnant, TurnOutcome,
};
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
    let region = roster.region.as_str().bytes();
    let room = roster.room.as_str().bytes();
    spread(region.chain([u8::MAX]).chain(room), shards)
}

/// The shard of what is kept of a user whatever the room: as [`shard_of`], over the user's name.
#[must_use]
pub fn shard_of_user(user: &UserId, shards: u16) -> Shard {
    spread(user.as_str().bytes(), shards)
}

fn spread(bytes: impl Iterator<Item = u8>, shards: u16) -> Shard {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let hash = bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
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
            | Self::Disown { .. }
            | Self::Distrust { .. }
            | Self::Lose { .. }
            | Self::Turn { .. }
            | Self::Link { .. }
            | Self::Unlink { .. }
            | Self::Forget { .. }
            | Self::DrainEdge { .. }
            | Self::Unlist { .. }
            | Self::Revoke { .. }
            | Self::Tidy { .. } => true,
            Self::Now { .. }
            | Self::Members { .. }
            | Self::Load { .. }
            | Self::Edges
            | Self::History { .. }
            | Self::Tail { .. }
            | Self::Leases { .. }
            | Self::Audit { .. }
            | Self::Rooms { .. }
            | Self::Summary { .. }
            | Self::Seen { .. }
            | Self::RoomsOf { .. }
            | Self::Revoked { .. } => false,
        }
    }
}

/// Why no answer came. An error is never "unknown lease".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    /// Not carried out: the store cannot be reached or refuses for now.
    #[error("the store refuses or cannot be reached: {0}")]
    Unavailable(String),
    /// Not carried out: no epoch vouches for the shard's data. The next turn mints one.
    #[error("nobody vouches for the data of the shard yet: it takes a turn first")]
    Unsettled,
    /// Carried out or not: the answer was lost.
    #[error("the store did not answer in time")]
    Unknown,
    /// Carried out or not, wholly or in part: the store refused something in its midst.
    #[error("the store refused the rest of what was half done: {0}")]
    HalfDone(String),
    /// The store does not take writes.
    #[error("the store is read-only")]
    ReadOnly,
}

/// What a read is answered whose roster has lost what all of it has. The audit finds it, and has it made whole.
pub(crate) fn torn() -> StoreFault {
    StoreFault::Unavailable("something has removed a part of the roster: an audit makes it whole".to_owned())
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
    /// A page of an audit, both ways: leases that no record names, and records whose lease does not exist; and
    /// the rosters on the way that are torn.
    /// What stays as it is while a walk goes from the first place to the first place again is looked at.
    /// What is held for its ttl is no finding. Refused while no epoch vouches for the data. Answer:
    /// [`Outcome::Audited`].
    Audit {
        /// Which shard.
        shard: Shard,
        /// Where to go on; the default: from the start.
        from: AuditPlace,
        /// About so many leases, and at most so many members and rosters.
        portion: usize,
    },
    /// Removes leases, under either name, that no record names, judged at this point; in a hold nothing is
    /// removed. Count and digest of a roster that lost the record are right again. Nothing shows and no
    /// revision moves. Answer: [`Outcome::Disowned`].
    Disown {
        /// Which shard.
        shard: Shard,
        /// By plain name.
        leases: Vec<LeaseId>,
    },
    /// If a roster is torn, judged at this point, no epoch vouches for its shard any more: the next turn mints
    /// one and makes the roster whole of its records. Answer: [`Outcome::Distrusted`].
    Distrust {
        /// Which roster.
        roster: Roster,
    },
    /// Shortens all leases of a lost edge under their own names to now + the grace of their ttl. Nothing happens if the
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
        graces: Graces,
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
    /// The link broke as a dead process breaks it. Ignored if a higher number, or another name, is known. Answer:
    /// [`Outcome::Done`].
    Unlink {
        /// The edge.
        edge: Incarnation,
        /// Under which name.
        name: EdgeName,
        /// The link.
        link: LinkNumber,
    },
    /// The edge said goodbye, or nothing of it is left. Ignored as above. Answer: [`Outcome::Done`].
    Forget {
        /// The edge.
        edge: Incarnation,
        /// Under which name.
        name: EdgeName,
        /// The link.
        link: LinkNumber,
    },
    /// Notes that an edge is to go; the note stays with it over later links. Of an edge that is not known
    /// nothing is noted. Answer: [`Outcome::Done`].
    DrainEdge {
        /// Its name.
        name: EdgeName,
        /// One run; none: all that are known under this name.
        edge: Option<Incarnation>,
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
    /// When a user came to some roster, or went, last. Whoever is present is seen now, which the caller
    /// knows from `RoomsOf`. Answer: [`Outcome::Seen`].
    Seen {
        /// Who.
        user: UserId,
    },
    /// Rosters in which a user may be, in the order in which they were listed; may over-report, never
    /// under-reports: an entry is written before the commit that adds the member. A store that keeps users
    /// apart from rosters, and loses what it keeps of them alone, lists all again by [`Command::Tidy`]. Answer:
    /// [`Outcome::RoomsOf`].
    RoomsOf {
        /// Who.
        user: UserId,
        /// From just after it. One that is listed again while pages are read comes again.
        after: Option<Listed>,
        /// At most so many.
        count: usize,
    },
    /// The caller found an entry of `RoomsOf` false: removes it if it was not written since, and is older
    /// than [`Retention::listing`], so that the commit it was written for is not on its way any more.
    /// Answer: [`Outcome::Done`].
    Unlist {
        /// Who.
        user: UserId,
        /// As read.
        listed: Listed,
    },
    /// Revokes until then; never shortens. Answer: [`Outcome::Done`].
    Revoke {
        /// What, until when.
        revocations: Vec<(Revocation, StoreTime)>,
    },
    /// Revocations in force, the one that ends first in front. Answer: [`Outcome::Revoked`].
    Revoked {
        /// From just after it.
        after: Option<(Revocation, StoreTime)>,
        /// At most so many.
        count: usize,
        /// No page is wanted while this is still the number of news.
        unless: Option<u64>,
    },
    /// Forgets a portion of what is kept beside rosters and is old: last-seen times, entries of
    /// `RoomsOf` whose member went, ended revocations. Lists again those of whom entries may be lost. Answer:
    /// [`Outcome::Tidied`].
    Tidy {
        /// Of which part: shards of users are numbered like those of rosters.
        shard: Shard,
        /// At most so much of each.
        portion: usize,
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
    fn users_have_shards_of_their_own() {
        let users = ["ann", "bob", "__proto__", "ω"].map(|name| UserId::new(name).unwrap());
        assert_eq!(users.map(|user| shard_of_user(&user, 256).0), [161, 77, 16, 18]);
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
