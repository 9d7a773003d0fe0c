//! Decisions about one member: the only place where it is decided who is present.
//!
//! Each takes the member as read at one point of the store and gives either a refusal, or a
//! [`Change`] to commit, or says that nothing needs to change. None of them reads a clock or chance.

use std::time::Duration;

use smol_str::SmolStr;

use crate::change::Change;
use crate::id::{ConnectionId, Generation, SessionId};
use crate::lease::LeaseId;
use crate::profile::{Member, Profile, State, Status};
use crate::reason::{ReleaseReason, RemovalReason};
use crate::record::{EdgeRef, MemberRead, Record, TokenRef};
use crate::refusal::Refusal;
use crate::time::StoreTime;

/// A session wants in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// The session.
    pub session: SessionId,
    /// Its attempt; none: the highest known plus one.
    pub generation: Option<Generation>,
    /// Its transport.
    pub connection: ConnectionId,
    /// The process that terminates it.
    pub edge: EdgeRef,
    /// What it says about itself.
    pub profile: Profile,
    /// Release name of the client software.
    pub client: SmolStr,
    /// What its right rests on.
    pub token: TokenRef,
    /// Set on an automatic re-join by its edge after data loss: the member's since, as it was told.
    pub rejoin: Option<StoreTime>,
    /// The lease to grant, minted by the caller; must not exist yet.
    pub lease: LeaseId,
}

/// A join that was not refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// The lease in force: the one offered, or the one held already.
    pub lease: LeaseId,
    /// The generation in force.
    pub generation: Generation,
    /// The member's since.
    pub since: StoreTime,
    /// Whether the session had been there already, live or in grace.
    pub resumed: bool,
    /// What to commit first; none: the same connection repeated its join, all is as it was.
    pub change: Option<Box<Change>>,
}

/// New status, state or token of a session. Absent parts stay as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// Must be the session's current lease.
    pub lease: LeaseId,
    /// New status.
    pub status: Option<Status>,
    /// New state.
    pub state: Option<State>,
    /// A fresh token of the same subject and room.
    pub token: Option<TokenRef>,
}

/// What the store noted when a lease was shortened: why, and what it replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortened {
    /// Why.
    pub cause: ShortenedBy,
    /// The deadline that was replaced: the last renewal is this less the ttl.
    pub replaced: StoreTime,
    /// The deadline that was set. A note of a lost edge counts only if it is still the deadline.
    pub deadline: StoreTime,
}

/// Who shortened a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShortenedBy {
    /// Its edge released it: it now has its grace name.
    Release(ReleaseReason),
    /// Its edge was lost: it keeps its plain name and may be renewed.
    EdgeLost,
}

/// A lease that is due, as the sweep found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The lease under the name it has.
    pub lease: LeaseId,
    /// Which clock ran out.
    pub cause: DueCause,
}

/// Which clock ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DueCause {
    /// Its deadline, and the note if it had been shortened.
    Deadline {
        /// When it ran out.
        deadline: StoreTime,
        /// The note.
        shortened: Option<Shortened>,
    },
    /// Its token.
    TokenEnd,
    /// It does not exist though the record names it: found by the auditor.
    Missing,
}

/// Decides a join (see *Lifecycle of a session*).
///
/// Granted if the stored generation is lower, or nothing is stored and no tombstone is as high; the
/// older lease goes under both names (transition: superseded). The same connection repeating its
/// generation is answered as before if its lease exists, else gets a new one in the same record. Over
/// a tombstone of an equal generation and the same connection it is granted if the reason was
/// `lease_expired` or `edge_lost`. Above the session limit the oldest in grace gives way.
///
/// # Errors
/// [`Refusal::StaleGeneration`], [`Refusal::HasEnded`] (re-joins only), [`Refusal::TooManySessions`],
/// [`Refusal::TokenEnded`].
pub fn join(read: &MemberRead, join: &Join, now: StoreTime) -> Result<Granted, Refusal> {
    let _ = (read, join, now);
    unimplemented!()
}

/// Decides an update. `None`: nothing would change.
///
/// # Errors
/// [`Refusal::NotPresent`], [`Refusal::NotCurrent`], [`Refusal::TokenEnded`].
pub fn update(read: &MemberRead, update: &Update, now: StoreTime) -> Result<Option<Change>, Refusal> {
    let _ = (read, update, now);
    unimplemented!()
}

/// Decides a goodbye.
///
/// # Errors
/// [`Refusal::NotPresent`], [`Refusal::NotCurrent`].
pub fn leave(read: &MemberRead, lease: LeaseId, now: StoreTime) -> Result<Change, Refusal> {
    let _ = (read, lease, now);
    unimplemented!()
}

/// An eviction, of one session or of all. `None`: nobody to evict.
#[must_use]
pub fn evict(
    read: &MemberRead,
    session: Option<&SessionId>,
    reason: RemovalReason,
    now: StoreTime,
) -> Option<Change> {
    let _ = (read, session, reason, now);
    unimplemented!()
}

/// Ends what is due. `None`: the record does not name these leases any more (remove the leases alone).
///
/// The change carries for each lease the guard that must still hold inside the commit, so a renewal
/// that slips in between wins (G2).
#[must_use]
pub fn expire(read: &MemberRead, due: &[Due], now: StoreTime) -> Option<Change> {
    let _ = (read, due, now);
    unimplemented!()
}

/// A join whose answer was lost and whose client is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unanswered {
    /// The session.
    pub session: SessionId,
    /// The attempt.
    pub generation: Option<Generation>,
    /// The transport.
    pub connection: ConnectionId,
}

/// What to do about an unanswered join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Abandoned {
    /// It was granted: release this lease.
    Release(LeaseId),
    /// It is not there: commit this tombstone, on which the late commit fails.
    Forbid(Box<Change>),
    /// Something newer is there; nothing to do.
    Superseded,
}

/// Decides about a join whose answer was lost.
#[must_use]
pub fn abandon(read: &MemberRead, unanswered: &Unanswered, now: StoreTime) -> Abandoned {
    let _ = (read, unanswered, now);
    unimplemented!()
}

/// How everybody sees a record: strongest status, latest state.
#[must_use]
pub fn shown(user: &crate::id::UserId, record: &Record) -> Member {
    let _ = (user, record);
    unimplemented!()
}

/// When a lease with this deadline was last renewed or granted.
#[must_use]
pub fn last_heard(lease: LeaseId, deadline: StoreTime, shortened: Option<Shortened>) -> StoreTime {
    let _ = (lease, deadline, shortened, Duration::ZERO);
    unimplemented!()
}
