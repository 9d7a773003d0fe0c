//! The tables from facts to what clients are told: error codes, close codes, and when which is due.

use std::time::Duration;

use presence_model::claim::TokenRefusal;
use presence_model::id::Generation;
use presence_model::link::LinkRefusal;
use presence_model::reason::RemovalReason;
use presence_model::refusal::Refusal;
use presence_model::watch::WatchRefusal;

use super::{CloseCode, ErrorCode};

impl ErrorCode {
    /// The word of the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::StaleGeneration => "stale_generation",
            Self::TooManySessions => "too_many_sessions",
            Self::TooManyRooms => "too_many_rooms",
            Self::TooLarge => "too_large",
            Self::RateLimited => "rate_limited",
            Self::Unavailable => "unavailable",
            Self::NotJoined => "not_joined",
        }
    }

    /// The close code if this was the last word to a connection that enters no room in time: until then
    /// its client may ask better, and what it asked for other rooms may be on its way.
    #[must_use]
    pub const fn ends_with(self) -> Option<CloseCode> {
        match self {
            Self::BadRequest => Some(CloseCode::Malformed),
            Self::TooLarge => Some(CloseCode::TooLarge),
            Self::Unauthorized => Some(CloseCode::Unauthorized),
            Self::Forbidden => Some(CloseCode::Forbidden),
            Self::StaleGeneration => Some(CloseCode::Superseded),
            Self::TooManySessions => Some(CloseCode::Overloaded),
            Self::TooManyRooms | Self::RateLimited | Self::Unavailable | Self::NotJoined => None,
        }
    }
}

impl CloseCode {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Normal => 1000,
            Self::GoingAway => 1001,
            Self::Restart => 1012,
            Self::Overloaded => 1013,
            Self::Malformed => 4400,
            Self::Unauthorized => 4401,
            Self::Forbidden => 4403,
            Self::Silent => 4408,
            Self::Superseded => 4409,
            Self::Evicted => 4410,
            Self::TooLarge => 4413,
            Self::RateLimited => 4429,
        }
    }

    /// The code if a session that ended for this reason was the last of its connection.
    #[must_use]
    pub const fn of_ending(reason: RemovalReason) -> Self {
        match reason {
            RemovalReason::Left => Self::Normal,
            RemovalReason::Superseded => Self::Superseded,
            RemovalReason::Evicted | RemovalReason::TokenRevoked => Self::Evicted,
            RemovalReason::TokenExpired => Self::Unauthorized,
            RemovalReason::ConnectionLost
            | RemovalReason::LeaseExpired
            | RemovalReason::EdgeLost
            | RemovalReason::RegionLost => Self::Silent,
        }
    }
}

/// A refusal as a client is told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// Which.
    pub code: ErrorCode,
    /// When to try again.
    pub retry_after: Option<Duration>,
    /// With `stale_generation`: the stored one.
    pub generation: Option<Generation>,
}

impl From<ErrorCode> for Told {
    fn from(code: ErrorCode) -> Self {
        Self { code, retry_after: None, generation: None }
    }
}

impl From<TokenRefusal> for Told {
    fn from(refusal: TokenRefusal) -> Self {
        if refusal.is_forbidden() { ErrorCode::Forbidden.into() } else { ErrorCode::Unauthorized.into() }
    }
}

impl From<&WatchRefusal> for Told {
    fn from(refusal: &WatchRefusal) -> Self {
        match refusal {
            WatchRefusal::Forbidden => ErrorCode::Forbidden.into(),
            // No fault of the client: its edge asks for what this core does not give.
            WatchRefusal::BadRequest(_) | WatchRefusal::UnknownRegion | WatchRefusal::TooManyRooms => {
                ErrorCode::Unavailable.into()
            }
            WatchRefusal::RateLimited { retry_after } | WatchRefusal::Unavailable { retry_after } => {
                Self { code: ErrorCode::Unavailable, retry_after: Some(*retry_after), generation: None }
            }
        }
    }
}

/// What a refusal of the core means to a client: an error, or the end of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalMeans {
    /// The request failed.
    Error(Told),
    /// The session is over for this reason.
    Ended(RemovalReason),
    /// The lease this edge named is not the session's: the session is to be joined again.
    LeaseLost,
}

impl From<LinkRefusal> for RefusalMeans {
    fn from(refusal: LinkRefusal) -> Self {
        match refusal {
            LinkRefusal::Refused(refusal) => match refusal {
                Refusal::StaleGeneration { stored, .. } => Self::Error(Told {
                    code: ErrorCode::StaleGeneration,
                    retry_after: None,
                    generation: Some(stored),
                }),
                Refusal::HasEnded { reason } => Self::Ended(reason),
                Refusal::TooManySessions => Self::Error(ErrorCode::TooManySessions.into()),
                Refusal::NotCurrent | Refusal::NotPresent => Self::LeaseLost,
                Refusal::TokenEnded => Self::Error(ErrorCode::Unauthorized.into()),
            },
            LinkRefusal::Unauthorized => Self::Error(ErrorCode::Unauthorized.into()),
            LinkRefusal::Forbidden => Self::Error(ErrorCode::Forbidden.into()),
            LinkRefusal::BadRequest => Self::Error(ErrorCode::BadRequest.into()),
            LinkRefusal::Unavailable { retry_after } => Self::Error(Told {
                code: ErrorCode::Unavailable,
                retry_after: Some(retry_after),
                generation: None,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_removal_reason_has_the_close_code_of_the_protocol() {
        let codes = RemovalReason::ALL.map(|reason| (reason.as_str(), CloseCode::of_ending(reason).number()));
        assert_eq!(
            codes,
            [
                ("left", 1000),
                ("connection_lost", 4408),
                ("lease_expired", 4408),
                ("edge_lost", 4408),
                ("superseded", 4409),
                ("evicted", 4410),
                ("token_expired", 4401),
                ("token_revoked", 4410),
                ("region_lost", 4408),
            ]
        );
    }

    #[test]
    fn what_was_said_last_is_the_code_of_the_close() {
        let table = [
            (ErrorCode::BadRequest, Some(4400)),
            (ErrorCode::TooLarge, Some(4413)),
            (ErrorCode::Unauthorized, Some(4401)),
            (ErrorCode::Forbidden, Some(4403)),
            (ErrorCode::StaleGeneration, Some(4409)),
            (ErrorCode::TooManySessions, Some(1013)),
            (ErrorCode::Unavailable, None),
            (ErrorCode::RateLimited, None),
        ];
        for (code, number) in table {
            assert_eq!(code.ends_with().map(CloseCode::number), number, "{}", code.as_str());
        }
    }

    #[test]
    fn a_room_that_may_not_be_watched_is_forbidden_and_one_that_cannot_be_is_unavailable() {
        assert_eq!(Told::from(&WatchRefusal::Forbidden).code, ErrorCode::Forbidden);
        for refusal in [
            WatchRefusal::UnknownRegion,
            WatchRefusal::TooManyRooms,
            WatchRefusal::BadRequest("level".into()),
        ] {
            assert_eq!(Told::from(&refusal).code, ErrorCode::Unavailable, "{refusal}");
        }
    }

    #[test]
    fn a_stale_generation_tells_the_stored_one_and_closes_as_superseded() {
        let refusal = Refusal::StaleGeneration { given: Generation(3), stored: Generation(5) };
        let RefusalMeans::Error(told) = RefusalMeans::from(LinkRefusal::Refused(refusal)) else {
            panic!("not an error");
        };
        assert_eq!(told.generation, Some(Generation(5)));
        assert_eq!(told.code.ends_with(), Some(CloseCode::Superseded));
    }

    #[test]
    fn token_refusals_tell_only_unauthorized_or_forbidden() {
        assert_eq!(Told::from(TokenRefusal::Signature).code, ErrorCode::Unauthorized);
        assert_eq!(Told::from(TokenRefusal::Expired).code, ErrorCode::Unauthorized);
        assert_eq!(Told::from(TokenRefusal::Room).code, ErrorCode::Forbidden);
        assert_eq!(Told::from(TokenRefusal::Subject).code, ErrorCode::Forbidden);
    }
}
