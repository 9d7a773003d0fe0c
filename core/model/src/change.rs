//! A decision about one member: what to write, under which expectations, and what it means.
//!
//! The store applies a change without knowing what it means. What others see of it is not a part of
//! the change but follows from it ([`Change::visible`]), so what is announced cannot differ from what
//! is stored.

use std::time::Duration;

use crate::id::{ConnectionId, Generation, Incarnation, Roster, SessionId, UserId};
use crate::lease::LeaseId;
use crate::position::Revision;
use crate::profile::Member;
use crate::reason::{Ending, RemovalReason};
use crate::record::{Record, Tombstone};
use crate::time::StoreTime;

/// What must still be true inside the commit, judged by the store and its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// The lease is overdue under whichever name it has (or does not exist), and its shard is not held.
    Overdue(LeaseId),
    /// The token end noted for the lease has passed. Holds do not matter.
    TokenEnded(LeaseId),
    /// The lease does not exist under either name: its record is a remnant.
    LeaseAbsent(LeaseId),
}

/// A lease to create. The store computes the deadline: min(now + ttl, token end).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseGrant {
    /// Its plain name; a commit that finds it existing is refused as changed.
    pub lease: LeaseId,
    /// Whose it is.
    pub session: SessionId,
    /// The process that renews it.
    pub edge: Incarnation,
    /// It never outlives this.
    pub token_ends: StoreTime,
}

/// What happened to one session: for its edge, the transition log and the feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The session.
    pub session: SessionId,
    /// Its attempt.
    pub generation: Generation,
    /// Its transport.
    pub connection: ConnectionId,
    /// The process that terminates it.
    pub edge: Incarnation,
    /// Its lease.
    pub lease: LeaseId,
    /// What happened.
    pub kind: TransitionKind,
}

/// What can happen to a session in a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransitionKind {
    /// A new lease was granted.
    Joined,
    /// Status or state changed, or the token was replaced.
    Updated,
    /// It ended.
    Ended(Ending),
}

/// A decided change of one member's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Whose record.
    pub user: UserId,
    /// Expectation: the revision that last touched the record, as read.
    pub expect: Revision,
    /// Expectation: the tombstone of each session that is added, as read.
    pub expect_tombstones: Vec<(SessionId, Option<Tombstone>)>,
    /// What must hold inside the commit.
    pub guards: Vec<Guard>,
    /// The record to store; none removes the member.
    pub record: Option<Record>,
    /// Leases to create.
    pub grants: Vec<LeaseGrant>,
    /// Leases to remove under both names, by plain name.
    pub revokes: Vec<LeaseId>,
    /// Token ends to replace, for leases that stay.
    pub token_ends: Vec<(LeaseId, StoreTime)>,
    /// What ended, for whoever comes late.
    pub tombstones: Vec<(SessionId, Tombstone)>,
    /// What happened, one per session concerned.
    pub transitions: Vec<Transition>,
    /// The member as it was shown before.
    pub before: Option<Member>,
    /// Why the member is gone, if the record is removed.
    pub removal: Option<Ending>,
}

/// What others see of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visible {
    /// The member as it is now.
    Upsert(Member),
    /// The member is gone.
    Removal(Removal),
}

/// A member that is gone, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Who.
    pub user: UserId,
    /// Why, and how long silent.
    pub ending: Ending,
}

impl Removal {
    /// A removal with its reason.
    #[must_use]
    pub fn new(user: UserId, reason: RemovalReason, silent_for: Duration) -> Self {
        Self { user, ending: Ending { reason, silent_for } }
    }
}

/// One commit of a roster as history and tail tell it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Which roster.
    pub roster: Roster,
    /// The visible delta from the revision before to this one; empty if nothing shows.
    pub delta: crate::delta::Delta,
    /// What happened to the sessions, with the user of each.
    pub transitions: Vec<(UserId, Transition)>,
    /// When, by the store's clock.
    pub at: StoreTime,
}
