//! What is stored of a user in one roster: the sessions, and what ended.

use std::collections::BTreeMap;

use smol_str::SmolStr;

use crate::id::{ConnectionId, EdgeName, Generation, Incarnation, RegionId, SessionId, UserId};
use crate::lease::LeaseId;
use crate::link::RequestId;
use crate::position::Revision;
use crate::profile::Profile;
use crate::reason::RemovalReason;
use crate::time::StoreTime;

/// Which process speaks for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeRef {
    /// Its configured name, for people.
    pub name: EdgeName,
    /// Its run, for the machine.
    pub incarnation: Incarnation,
    /// Where it runs.
    pub region: RegionId,
}

/// What of a token is kept: when it ends and what could revoke it. Never the token itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRef {
    /// End of the token by the store's clock. A lease never outlives it.
    pub ends: StoreTime,
    /// `kid`, empty if the token has none.
    pub key_id: SmolStr,
    /// `jti`, empty if the token has none.
    pub token_id: SmolStr,
}

/// One session of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its id, unique within the record.
    pub session: SessionId,
    /// Its current lease, by its plain name.
    pub lease: LeaseId,
    /// The attempt that holds the lease.
    pub generation: Generation,
    /// The transport of that attempt.
    pub connection: ConnectionId,
    /// Which join of that transport was granted.
    pub request: RequestId,
    /// The process that terminates it.
    pub edge: EdgeRef,
    /// What it says about itself.
    pub profile: Profile,
    /// When the state last changed, above that of every other session of the member at that time. A
    /// change of status or a reconnect with the same state leaves it.
    pub updated: StoreTime,
    /// When this attempt was granted.
    pub joined: StoreTime,
    /// Release name of the client software, empty if not told.
    pub client: SmolStr,
    /// What its right rests on.
    pub token: TokenRef,
}

/// The record of one user in one roster. Exists as long as it has a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Since when the user has been here without interruption.
    pub since: StoreTime,
    /// Sorted by session id, never empty.
    pub sessions: Vec<SessionRecord>,
}

/// What ended, kept for an hour so that a late join cannot revive it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// The highest generation that ended.
    pub generation: Generation,
    /// The transport of that attempt.
    pub connection: ConnectionId,
    /// The last join of that transport that ended, or that must not be granted any more.
    pub request: RequestId,
    /// Why it ended.
    pub reason: RemovalReason,
    /// When, by the store's clock.
    pub ended: StoreTime,
    /// How long it had been silent, in ms.
    pub silent_for_ms: u64,
}

/// Under which name a lease exists, and until when. A lease without a state does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// Under its plain name: a session renews it.
    Live {
        /// When it runs out.
        deadline: StoreTime,
    },
    /// Under its grace name: its transport was released.
    Grace {
        /// When it runs out.
        deadline: StoreTime,
    },
}

impl LeaseState {
    /// When it runs out.
    #[must_use]
    pub const fn deadline(self) -> StoreTime {
        match self {
            Self::Live { deadline } | Self::Grace { deadline } => deadline,
        }
    }
}

/// A member as read from the store at one point: all that a decision needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRead {
    /// Who.
    pub user: UserId,
    /// The revision that last touched the record, 0 if absent: what a commit expects.
    pub touched: Revision,
    /// The record, if the user is present.
    pub record: Option<Record>,
    /// Tombstones of this user's sessions.
    pub tombstones: BTreeMap<SessionId, Tombstone>,
    /// The leases of the record's sessions that exist, by plain name.
    pub leases: BTreeMap<LeaseId, LeaseState>,
}

impl MemberRead {
    /// A user of whom nothing is stored.
    #[must_use]
    pub fn absent(user: UserId) -> Self {
        Self {
            user,
            touched: Revision(0),
            record: None,
            tombstones: BTreeMap::new(),
            leases: BTreeMap::new(),
        }
    }
}

impl Record {
    /// The session of that id.
    #[must_use]
    pub fn session(&self, session: &SessionId) -> Option<&SessionRecord> {
        self.sessions.iter().find(|s| s.session == *session)
    }

    /// The session that holds that lease, under either name.
    #[must_use]
    pub fn session_of(&self, lease: LeaseId) -> Option<&SessionRecord> {
        self.sessions.iter().find(|s| s.lease == lease.plain_name())
    }
}
