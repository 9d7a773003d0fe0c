//! Refusals are values: one closed list from the heart to every protocol.

use crate::id::Generation;
use crate::reason::RemovalReason;

/// Why a request about a member was refused. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The generation is not above the one stored or ended last.
    #[error("generation {given} is not above the stored {stored}")]
    StaleGeneration {
        /// As the client sent it.
        given: Generation,
        /// As stored, or as ended.
        stored: Generation,
    },
    /// An automatic re-join came too late: the session has ended for this reason, or a newer attempt of
    /// it has been there (`superseded`). A re-join never gets [`Refusal::StaleGeneration`]. Also what any
    /// join of a session gets that was evicted a short while ago.
    #[error("the session has ended: {reason}")]
    HasEnded {
        /// Why it ended.
        reason: RemovalReason,
    },
    /// All sessions of the member are live and there are as many as may be.
    #[error("the member has as many live sessions as allowed")]
    TooManySessions,
    /// The lease is not the session's current one.
    #[error("the lease is not the session's current one")]
    NotCurrent,
    /// Nobody of that name is in the roster.
    #[error("no such member or session")]
    NotPresent,
    /// The token had already ended by the store's clock.
    #[error("the token has ended")]
    TokenEnded,
}
