//! What a verified token grants: one user, one room, one action, for a time.

use crate::id::{RoomId, UserId};
use crate::record::TokenRef;
use crate::time::StoreTime;

/// What a token lets its bearer do in its room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Be present, and watch.
    Join,
    /// Watch only.
    Watch,
}

impl Action {
    /// Whether a token for this action is enough for `wanted`.
    #[must_use]
    pub fn permits(self, wanted: Self) -> bool {
        self == wanted || self == Self::Join
    }
}

/// The claims of a token whose signature is good. Time is judged by whoever knows the store's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// The subject: who the bearer is, whatever else a message says.
    pub user: UserId,
    /// The one room.
    pub room: RoomId,
    /// The one action.
    pub action: Action,
    /// When it starts to count, if it says so.
    pub not_before: Option<StoreTime>,
    /// Its end and what could revoke it.
    pub token: TokenRef,
}

/// Why a token was refused: for counters and logs. Clients are told only `unauthorized` or `forbidden`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum TokenRefusal {
    /// Not a token at all.
    #[error("malformed")]
    Malformed,
    /// Its key is not one of ours.
    #[error("unknown key")]
    UnknownKey,
    /// The algorithm is not that of its key.
    #[error("wrong algorithm")]
    Algorithm,
    /// The signature does not match.
    #[error("bad signature")]
    Signature,
    /// For somebody else.
    #[error("wrong audience")]
    Audience,
    /// A claim is missing or of the wrong shape.
    #[error("missing or malformed claim")]
    Claim,
    /// Ended by the store's clock.
    #[error("expired")]
    Expired,
    /// Not yet valid by the store's clock.
    #[error("not yet valid")]
    NotYetValid,
    /// Good, but for another room.
    #[error("another room")]
    Room,
    /// Good, but for another action.
    #[error("another action")]
    Action,
    /// Good, but for another subject than before.
    #[error("another subject")]
    Subject,
    /// Revoked.
    #[error("revoked")]
    Revoked,
}

impl TokenRefusal {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 12] = [
        Self::Malformed,
        Self::UnknownKey,
        Self::Algorithm,
        Self::Signature,
        Self::Audience,
        Self::Claim,
        Self::Expired,
        Self::NotYetValid,
        Self::Room,
        Self::Action,
        Self::Subject,
        Self::Revoked,
    ];

    /// Its name in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::UnknownKey => "unknown_key",
            Self::Algorithm => "algorithm",
            Self::Signature => "signature",
            Self::Audience => "audience",
            Self::Claim => "claim",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::Room => "room",
            Self::Action => "action",
            Self::Subject => "subject",
            Self::Revoked => "revoked",
        }
    }

    /// Whether the token was good, but not for this: `forbidden` instead of `unauthorized`.
    #[must_use]
    pub fn is_forbidden(self) -> bool {
        matches!(self, Self::Room | Self::Action | Self::Subject)
    }
}

/// Judges the time of good claims by the store's clock, with a leeway for clocks of issuers.
///
/// # Errors
/// [`TokenRefusal::Expired`] (no leeway: a lease never outlives its token), [`TokenRefusal::NotYetValid`].
pub fn judge_time(claims: &Claims, now: StoreTime, leeway: std::time::Duration) -> Result<(), TokenRefusal> {
    if now >= claims.token.ends {
        return Err(TokenRefusal::Expired);
    }
    if claims.not_before.is_some_and(|start| now + leeway < start) {
        return Err(TokenRefusal::NotYetValid);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_token_to_join_may_watch_but_not_the_reverse() {
        assert!(Action::Join.permits(Action::Watch) && Action::Join.permits(Action::Join));
        assert!(Action::Watch.permits(Action::Watch) && !Action::Watch.permits(Action::Join));
    }

    #[test]
    fn leeway_is_given_at_the_start_and_none_at_the_end() {
        let claims = Claims {
            user: UserId::new("u1").unwrap(),
            room: RoomId::new("r1").unwrap(),
            action: Action::Join,
            not_before: Some(StoreTime(10_000)),
            token: TokenRef { ends: StoreTime(20_000), key_id: "".into(), token_id: "".into() },
        };
        let judged = |now| judge_time(&claims, StoreTime(now), Duration::from_secs(5));
        assert_eq!(judged(4_999), Err(TokenRefusal::NotYetValid));
        assert_eq!(judged(5_000), Ok(()));
        assert_eq!(judged(19_999), Ok(()));
        assert_eq!(judged(20_000), Err(TokenRefusal::Expired));
    }
}
