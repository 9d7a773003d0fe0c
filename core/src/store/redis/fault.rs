//! What an error of the client library means for the caller.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::store::StoreFault;

/// The fault behind an error. Of a write that may have been carried out nothing is known.
pub(super) fn fault(error: &RedisError, is_write: bool) -> StoreFault {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::ReadOnly) => StoreFault::ReadOnly,
        ErrorKind::Server(_) | ErrorKind::Extension => StoreFault::Unavailable(error.to_string()),
        _ if error.is_connection_refusal() || !is_write => StoreFault::Unavailable(error.to_string()),
        _ => StoreFault::Unknown,
    }
}
