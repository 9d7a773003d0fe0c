//! What can go wrong between a client and its cores.

use std::time::Duration;

use presence_model::watch::WatchRefusal;
use presence_proto::{ServiceError, WireError};
use presence_runtime::rpc::ConnectError;
use tonic::Status;

/// Why there is no answer. Whether asking again may help was decided where it happened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// An address is not one, or there is none.
    #[error("no core to ask: {0}")]
    Address(String),
    /// The core said why.
    #[error(transparent)]
    Refused(#[from] ServiceError),
    /// No core could be reached. May be asked again.
    #[error("no core in reach: {0}")]
    Unreachable(String),
    /// No answer came in time. May be asked again.
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The core's answer is outside the contract.
    #[error("an answer outside the contract: {0}")]
    Contract(#[from] WireError),
    /// The core does not let the room be watched.
    #[error("the room is not watched: {0}")]
    NotWatched(WatchRefusal),
    /// The client has ended.
    #[error("the client has ended")]
    Ended,
}

impl ClientError {
    /// When asking again may help; none: it does not.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(error) => error.retry_after(),
            Self::Unreachable(_) | Self::TimedOut(_) => Some(Duration::ZERO),
            Self::NotWatched(
                WatchRefusal::Unavailable { retry_after } | WatchRefusal::RateLimited { retry_after },
            ) => Some(*retry_after),
            Self::NotWatched(
                WatchRefusal::BadRequest(_)
                | WatchRefusal::UnknownRegion
                | WatchRefusal::Forbidden
                | WatchRefusal::TooManyRooms,
            )
            | Self::Address(_)
            | Self::Contract(_)
            | Self::Ended => None,
        }
    }

    /// Whether no edge of that name, or no such run of it, is known.
    #[must_use]
    pub fn is_unknown_edge(&self) -> bool {
        *self == Self::Refused(ServiceError::UnknownEdge)
    }

    /// Whether another core may answer right now.
    pub(crate) fn is_of_one_core(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::TimedOut(_) | Self::Refused(ServiceError::Draining) => true,
            Self::Refused(_) | Self::Address(_) | Self::Contract(_) | Self::NotWatched(_) | Self::Ended => {
                false
            }
        }
    }

    /// Reads a status: of a core, or made by the transport, whose faults may pass.
    pub(crate) fn of(status: &Status) -> Self {
        ServiceError::of(status).map_or_else(|| Self::Unreachable(innermost(status)), Self::Refused)
    }
}

impl From<ConnectError> for ClientError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Address { .. } => Self::Address(error.to_string()),
            ConnectError::Unreachable { .. } => Self::Unreachable(error.to_string()),
        }
    }
}

fn innermost(status: &Status) -> String {
    let mut cause: &dyn std::error::Error = status;
    while let Some(source) = cause.source() {
        cause = source;
    }
    if std::ptr::addr_eq(cause, status) {
        return format!("{:?}: {}", status.code(), status.message());
    }
    cause.to_string()
}
