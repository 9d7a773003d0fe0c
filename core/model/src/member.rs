//! Decisions about one member: the only place where it is decided who is present.
//!
//! Each takes the member as read at one point of the store and gives either a refusal, or a
//! [`Change`] to commit, or says that nothing needs to change. None of them reads a clock or chance.
//!
//! Every decision may be taken twice, because an outcome may be lost: taken again over its own result
//! it changes nothing further.

mod abandon;
mod draft;
mod expire;
mod join;
mod leave;
mod shown;
mod update;

use smol_str::SmolStr;

pub use self::abandon::abandon;
pub use self::expire::expire;
pub use self::join::join;
pub use self::leave::{evict, leave, revoke};
pub use self::shown::{last_heard, shown};
pub use self::update::update;

use crate::change::Change;
use crate::id::{ConnectionId, Generation, SessionId};
use crate::lease::LeaseId;
use crate::link::RequestId;
use crate::profile::{Profile, State, Status};
use crate::reason::ReleaseReason;
use crate::record::{EdgeRef, TokenRef};
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
    /// Rises over the joins of its transport; the same when it is said again.
    pub request: RequestId,
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
    /// Set if the user comes from another region, as far as is known here.
    pub moved: Option<Moved>,
    /// The lease to grant, minted by the caller; must not exist yet.
    pub lease: LeaseId,
}

/// A user that comes from another region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// The member's since as it is shown there; none: it is not shown, or that is not known.
    pub since: Option<StoreTime>,
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

/// A join whose answer was lost and whose client is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unanswered {
    /// The session.
    pub session: SessionId,
    /// The attempt.
    pub generation: Option<Generation>,
    /// The transport.
    pub connection: ConnectionId,
    /// Which of its joins.
    pub request: RequestId,
}

/// What to do about an unanswered join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Abandoned {
    /// It was granted: release this lease.
    Release(LeaseId),
    /// It is not there: commit this tombstone, on which the late commit fails.
    Forbid(Box<Change>),
    /// That attempt is over, or something newer is there: nothing to do.
    Superseded,
}
