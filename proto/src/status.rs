//! The one table from errors to gRPC status, and back.

use std::collections::HashMap;
use std::time::Duration;

use presence_model::claim::TokenRefusal;
use presence_model::watch::WatchRefusal;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::error::WireError;
use crate::v1::ErrorReason;

/// The domain of every `google.rpc.ErrorInfo` of ours.
pub const DOMAIN: &str = "presence";

/// Why a call or a stream ended: the closed list of presence errors. Never carries tokens or state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// A field is missing or out of bounds.
    #[error("bad request: {0}")]
    BadRequest(String),
    /// No, bad or expired credentials.
    #[error("no good credentials")]
    Unauthorized,
    /// Good credentials, but not for this.
    #[error("the credentials are not for this")]
    Forbidden,
    /// The core does not know the region of an edge or core, or one that a watcher names.
    #[error("the region is not known here: are --region, --edge-regions and --peer right at both ends?")]
    UnknownRegion,
    /// No edge of that name, or no such run of it, is known.
    #[error("no edge of that name, or no such run of it, is known")]
    UnknownEdge,
    /// A link with a higher number is known.
    #[error("a link with a higher number is known")]
    StaleLink,
    /// A newer link of the same edge is open.
    #[error("a newer link of this edge is open")]
    LinkSuperseded,
    /// No beat came for three link beats.
    #[error("no beat came for three link beats")]
    LinkSilent,
    /// As many rooms as one watch may have.
    #[error("too many rooms on one watch")]
    TooManyRooms,
    /// The watcher did not read for too long.
    #[error("the watcher did not read for too long")]
    TooSlow,
    /// Too much was asked.
    #[error("too many requests, try again in {} ms", retry_after.as_millis())]
    RateLimited {
        /// When to ask again.
        retry_after: Duration,
    },
    /// The store cannot be read now.
    #[error("the store cannot be read now, try again in {} ms", retry_after.as_millis())]
    Unavailable {
        /// When to ask again.
        retry_after: Duration,
    },
    /// This core is going: ask another at once.
    #[error("this core is going")]
    Draining,
    /// A fault of the server, told without its details.
    #[error("internal error")]
    Internal,
}

impl ServiceError {
    /// The reason on the wire.
    #[must_use]
    pub const fn reason(&self) -> ErrorReason {
        self.row().1
    }

    /// The gRPC code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.row().0
    }

    const fn row(&self) -> (Code, ErrorReason) {
        match self {
            Self::BadRequest(_) => (Code::InvalidArgument, ErrorReason::BadRequest),
            Self::Unauthorized => (Code::Unauthenticated, ErrorReason::Unauthorized),
            Self::Forbidden => (Code::PermissionDenied, ErrorReason::Forbidden),
            Self::UnknownRegion => (Code::FailedPrecondition, ErrorReason::UnknownRegion),
            Self::UnknownEdge => (Code::NotFound, ErrorReason::UnknownEdge),
            Self::StaleLink => (Code::FailedPrecondition, ErrorReason::StaleLink),
            Self::LinkSuperseded => (Code::Aborted, ErrorReason::LinkSuperseded),
            Self::LinkSilent => (Code::DeadlineExceeded, ErrorReason::LinkSilent),
            Self::TooManyRooms => (Code::ResourceExhausted, ErrorReason::TooManyRooms),
            Self::TooSlow => (Code::ResourceExhausted, ErrorReason::TooSlow),
            Self::RateLimited { .. } => (Code::ResourceExhausted, ErrorReason::RateLimited),
            Self::Unavailable { .. } => (Code::Unavailable, ErrorReason::Unavailable),
            Self::Draining => (Code::Unavailable, ErrorReason::Draining),
            Self::Internal => (Code::Internal, ErrorReason::Internal),
        }
    }

    /// When asking again helps; none: it does not, or only after something else has changed.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after } | Self::Unavailable { retry_after } => Some(*retry_after),
            Self::Draining => Some(Duration::ZERO),
            Self::BadRequest(_)
            | Self::Unauthorized
            | Self::Forbidden
            | Self::UnknownRegion
            | Self::UnknownEdge
            | Self::StaleLink
            | Self::LinkSuperseded
            | Self::LinkSilent
            | Self::TooManyRooms
            | Self::TooSlow
            | Self::Internal => None,
        }
    }

    /// Reads a status back. None if it is not one of ours: made by the transport, or of a later version.
    #[must_use]
    pub fn of(status: &Status) -> Option<Self> {
        let details = status.get_error_details();
        let info = details.error_info().filter(|info| info.domain == DOMAIN)?;
        let reason = ErrorReason::from_str_name(&format!("{PREFIX}{}", info.reason))?;
        let retry_after = details.retry_info().and_then(|retry| retry.retry_delay).unwrap_or_default();
        Some(match reason {
            ErrorReason::Unspecified => return None,
            ErrorReason::BadRequest => Self::BadRequest(bad_request(status.message()).to_owned()),
            ErrorReason::Unauthorized => Self::Unauthorized,
            ErrorReason::Forbidden => Self::Forbidden,
            ErrorReason::UnknownRegion => Self::UnknownRegion,
            ErrorReason::UnknownEdge => Self::UnknownEdge,
            ErrorReason::StaleLink => Self::StaleLink,
            ErrorReason::LinkSuperseded => Self::LinkSuperseded,
            ErrorReason::LinkSilent => Self::LinkSilent,
            ErrorReason::TooManyRooms => Self::TooManyRooms,
            ErrorReason::TooSlow => Self::TooSlow,
            ErrorReason::RateLimited => Self::RateLimited { retry_after },
            ErrorReason::Unavailable => Self::Unavailable { retry_after },
            ErrorReason::Draining => Self::Draining,
            ErrorReason::Internal => Self::Internal,
        })
    }
}

const PREFIX: &str = "ERROR_REASON_";

/// What is wrong with a request, out of the message of [`ServiceError::BadRequest`].
pub(crate) fn bad_request(message: &str) -> &str {
    message.strip_prefix("bad request: ").unwrap_or(message)
}

impl From<ServiceError> for Status {
    fn from(error: ServiceError) -> Self {
        let name = error.reason().as_str_name();
        let reason = name.strip_prefix(PREFIX).unwrap_or(name);
        let mut details = ErrorDetails::with_error_info(reason, DOMAIN, HashMap::new());
        if let Some(retry_after) = error.retry_after() {
            details.set_retry_info(Some(retry_after));
        }
        Self::with_error_details(error.code(), error.to_string(), details)
    }
}

impl From<WireError> for ServiceError {
    fn from(error: WireError) -> Self {
        Self::BadRequest(error.to_string())
    }
}

impl From<WireError> for Status {
    fn from(error: WireError) -> Self {
        ServiceError::from(error).into()
    }
}

impl From<WatchRefusal> for ServiceError {
    fn from(refusal: WatchRefusal) -> Self {
        match refusal {
            WatchRefusal::BadRequest(what) => Self::BadRequest(what.into()),
            WatchRefusal::UnknownRegion => Self::UnknownRegion,
            WatchRefusal::Forbidden => Self::Forbidden,
            WatchRefusal::TooManyRooms => Self::TooManyRooms,
            WatchRefusal::RateLimited { retry_after } => Self::RateLimited { retry_after },
            WatchRefusal::Unavailable { retry_after } => Self::Unavailable { retry_after },
        }
    }
}

impl From<TokenRefusal> for ServiceError {
    fn from(refusal: TokenRefusal) -> Self {
        if refusal.is_forbidden() { Self::Forbidden } else { Self::Unauthorized }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Duration = Duration::from_millis(1_234);

    fn all() -> Vec<ServiceError> {
        vec![
            ServiceError::BadRequest("Join.room is missing".to_owned()),
            ServiceError::Unauthorized,
            ServiceError::Forbidden,
            ServiceError::UnknownRegion,
            ServiceError::StaleLink,
            ServiceError::LinkSuperseded,
            ServiceError::LinkSilent,
            ServiceError::TooManyRooms,
            ServiceError::TooSlow,
            ServiceError::RateLimited { retry_after: RETRY },
            ServiceError::Unavailable { retry_after: RETRY },
            ServiceError::Draining,
            ServiceError::Internal,
            ServiceError::UnknownEdge,
        ]
    }

    #[test]
    fn every_reason_of_the_contract_has_its_row_and_comes_back() {
        let mut numbers: Vec<i32> = all().iter().map(|error| error.reason().into()).collect();
        numbers.sort_unstable();
        let last = i32::try_from(all().len()).unwrap();
        assert_eq!(numbers, (1..=last).collect::<Vec<_>>());
        assert!(ErrorReason::try_from(last + 1).is_err(), "a reason without a row");
        for error in all() {
            assert_eq!(ServiceError::of(&Status::from(error.clone())), Some(error));
        }
    }

    #[test]
    fn details_are_those_of_google_rpc() {
        let status = Status::from(ServiceError::RateLimited { retry_after: RETRY });
        assert_eq!(status.code(), Code::ResourceExhausted);
        let details = status.get_error_details();
        let info = details.error_info().unwrap();
        assert_eq!((info.domain.as_str(), info.reason.as_str()), ("presence", "RATE_LIMITED"));
        assert_eq!(details.retry_info().unwrap().retry_delay, Some(RETRY));
    }

    #[test]
    fn a_foreign_status_is_not_read_as_ours() {
        assert_eq!(ServiceError::of(&Status::unavailable("tcp connect error")), None);
        let details = ErrorDetails::with_error_info("FORBIDDEN", "elsewhere", HashMap::new());
        assert_eq!(ServiceError::of(&Status::with_error_details(Code::PermissionDenied, "", details)), None);
        let details = ErrorDetails::with_error_info("OF_TOMORROW", DOMAIN, HashMap::new());
        assert_eq!(ServiceError::of(&Status::with_error_details(Code::Internal, "", details)), None);
    }
}
