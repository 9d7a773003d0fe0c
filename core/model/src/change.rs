//! A decision about one member: what to write, under which expectations, and what it means.
//!
//! The store applies a change without knowing what it means. What others see of it is not a part of
//! the change but follows from it ([`Change::visible`]), so what is announced cannot differ from what
//! is stored.

use std::time::Duration;

use crate::delta::Delta;
use crate::digest::Digest;
use crate::id::{ConnectionId, Generation, Incarnation, Roster, SessionId, UserId};
use crate::lease::LeaseId;
use crate::position::{Position, Revision};
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
    /// The lease does not exist under either name, and its shard is not held: its record is a remnant.
    LeaseAbsent(LeaseId),
}

/// A lease to create. The store computes the deadline, now + ttl, and notes the token end beside it: as
/// that is judged by itself, a fresh token need not move any deadline (G2).
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
    /// Whether it joined from another region: then other regions are told at once.
    pub moved: bool,
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

impl TransitionKind {
    /// The word of logs and metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Updated => "updated",
            Self::Ended(_) => "ended",
        }
    }

    /// Why it ended, if it did.
    #[must_use]
    pub const fn ending(&self) -> Option<&Ending> {
        match self {
            Self::Joined | Self::Updated => None,
            Self::Ended(ending) => Some(ending),
        }
    }
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

impl Change {
    /// The member as it is shown afterwards.
    #[must_use]
    pub fn after(&self) -> Option<Member> {
        self.record.as_ref().map(|record| crate::member::shown(&self.user, record))
    }

    /// What others see of it. `None`: nothing (a second tab, a superseded attempt, an abandoned join).
    ///
    /// # Panics
    /// If a member that was shown goes without a reason, which no decision makes.
    #[must_use]
    pub fn visible(&self) -> Option<Visible> {
        match self.after() {
            Some(after) if self.before.as_ref() == Some(&after) => None,
            Some(after) => Some(Visible::Upsert(after)),
            None => {
                self.before.as_ref()?;
                let ending = self.removal.expect("a change that removes a shown member says why");
                Some(Visible::Removal(Removal { user: self.user.clone(), ending }))
            }
        }
    }

    /// How many members more the roster has after this change: one, none or one less.
    #[must_use]
    pub fn adds(&self) -> i64 {
        i64::from(self.record.is_some()) - i64::from(self.before.is_some())
    }

    /// The digest of the roster after this change, given that before it.
    #[must_use]
    pub fn digest(&self, roster: Digest) -> Digest {
        let taken = self.before.as_ref().map_or(roster, |before| roster.minus(Digest::of(before)));
        self.after().map_or(taken, |after| taken.plus(Digest::of(&after)))
    }
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
    pub delta: Delta,
    /// What happened to the sessions, with the user of each.
    pub transitions: Vec<(UserId, Transition)>,
    /// Members of the roster after it.
    pub members: u64,
    /// When, by the store's clock.
    pub at: StoreTime,
}

impl Committed {
    /// Tells a commit: its changes, one a member, were applied as the revision of `position`.
    ///
    /// `digest` and `members` are those of the roster before it ([`Change::digest`] carries the one on).
    #[must_use]
    pub fn new<'a>(
        roster: Roster,
        position: Position,
        (digest, members): (Digest, u64),
        changes: impl IntoIterator<Item = &'a Change>,
        at: StoreTime,
    ) -> Self {
        let mut delta = Delta {
            epoch: position.epoch,
            from: Revision(position.revision.0.saturating_sub(1)),
            to: position.revision,
            upserts: Vec::new(),
            removals: Vec::new(),
            digest,
        };
        let (mut transitions, mut members) = (Vec::new(), members);
        for change in changes {
            members = members.saturating_add_signed(change.adds());
            match change.visible() {
                Some(Visible::Upsert(member)) => delta.upserts.push(member),
                Some(Visible::Removal(removal)) => delta.removals.push(removal),
                None => {}
            }
            delta.digest = change.digest(delta.digest);
            transitions.extend(change.transitions.iter().map(|t| (change.user.clone(), t.clone())));
        }
        delta.upserts.sort_unstable_by(|a, b| a.user.cmp(&b.user));
        delta.removals.sort_unstable_by(|a, b| a.user.cmp(&b.user));
        Self { roster, delta, transitions, members, at }
    }
}
