//! What an error of the client library means for the caller: whether a write may have been carried out.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::store::StoreFault;

/// The fault behind an error. A server that answers with an error has carried nothing out, and neither has
/// one that was never reached; everything else on the way of a write leaves it unknown.
pub(super) fn fault(error: &RedisError, is_write: bool) -> StoreFault {
    // What the client library says of itself: it has sent nothing.
    const UNSENT: [ErrorKind; 7] = [
        ErrorKind::AuthenticationFailed,
        ErrorKind::InvalidClientConfig,
        ErrorKind::MasterNameNotFoundBySentinel,
        ErrorKind::NoValidReplicasFoundBySentinel,
        ErrorKind::EmptySentinelList,
        ErrorKind::ClusterConnectionNotFound,
        ErrorKind::RESP3NotSupported,
    ];
    let kind = error.kind();
    if kind == ErrorKind::Server(ServerErrorKind::ReadOnly) {
        return StoreFault::ReadOnly;
    }
    let is_answered = matches!(kind, ErrorKind::Server(_) | ErrorKind::Extension);
    if is_write && is_answered && is_half_done(error) {
        return StoreFault::HalfDone(said(error));
    }
    // Connections of ours say of everything that was never sent that it was refused.
    let is_unsent = UNSENT.contains(&kind) || error.is_connection_refusal();
    if is_write && !is_answered && !is_unsent {
        return StoreFault::Unknown;
    }
    StoreFault::Unavailable(said(error))
}

/// Whether a script may have written something before it was refused a call. What a server without room refuses
/// is the first that is written, and while a slot moves a script looks before it writes.
fn is_half_done(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default();
    let is_first = error.code() == Some("OOM") || detail.contains("non local key") || detail.contains("-OOM");
    detail.contains("user_script") && !is_first
}

/// The error on one line, its code first.
fn said(error: &RedisError) -> String {
    let text = match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (_, _) => error.to_string(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn answered(line: &str) -> RedisError {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        value.extract_error().unwrap_err()
    }

    #[test]
    fn a_server_that_says_no_has_done_nothing() {
        for line in [
            "OOM command not allowed when used memory > 'maxmemory'.",
            "LOADING Redis is loading the dataset in memory",
            "CLUSTERDOWN The cluster is down",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "MOVED 7 127.0.0.1:1",
            "NOAUTH Authentication required.",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "NOPERM this user has no permissions to run the 'zadd' command",
            "NOREPLICAS Not enough good replicas to write.",
            "MISCONF Redis is configured to save RDB snapshots",
            "BUSY Redis is busy running a script.",
            "ERR max number of clients reached",
        ] {
            for is_write in [false, true] {
                let StoreFault::Unavailable(reason) = fault(&answered(line), is_write) else {
                    panic!("{line}");
                };
                assert!(reason.starts_with(line.split(' ').next().unwrap()), "{reason}");
            }
        }
    }

    #[test]
    fn a_script_that_is_refused_a_call_may_have_written() {
        let at = "script: 2f1f, on @user_script:155.";
        let refused = "The user executing the script can't run this command or subcommand";
        for line in
            ["WRONGTYPE Operation against a key", &format!("ERR {refused}"), "ERR wrong number of arguments"]
        {
            let error = answered(&format!("{line} {at}"));
            let StoreFault::HalfDone(reason) = fault(&error, true) else { panic!("{line}") };
            assert!(reason.starts_with(line.split(' ').next().unwrap()), "{reason}");
            assert!(matches!(fault(&error, false), StoreFault::Unavailable(_)), "{line}");
        }
        for line in [
            "OOM command not allowed when used memory > 'maxmemory'.",
            "ERR Script attempted to access a non local key in a cluster node",
        ] {
            let error = answered(&format!("{line} {at}"));
            assert!(matches!(fault(&error, true), StoreFault::Unavailable(_)), "{line}");
        }
    }

    #[test]
    fn a_replica_is_read_only() {
        let error = answered("READONLY You can't write against a read only replica.");
        assert_eq!(fault(&error, true), StoreFault::ReadOnly);
    }

    #[test]
    fn a_write_whose_answer_is_lost_is_unknown() {
        let kinds = [
            io::ErrorKind::BrokenPipe,
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::UnexpectedEof,
            io::ErrorKind::TimedOut,
            io::ErrorKind::Other,
        ];
        let errors = kinds.map(|kind| RedisError::from(io::Error::from(kind)));
        for error in errors.iter().chain([&RedisError::from((ErrorKind::Parse, "half an answer"))]) {
            assert_eq!(fault(error, true), StoreFault::Unknown, "{error}");
            assert!(matches!(fault(error, false), StoreFault::Unavailable(_)), "{error}");
        }
    }

    #[test]
    fn a_write_that_was_never_sent_is_not_unknown() {
        let refused = RedisError::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        for error in [refused, (ErrorKind::ClusterConnectionNotFound, "no node").into()] {
            assert!(matches!(fault(&error, true), StoreFault::Unavailable(_)), "{error}");
        }
    }
}
