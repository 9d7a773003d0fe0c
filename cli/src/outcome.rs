//! From what went wrong to the exit code.

use std::error::Error;
use std::fmt;
use std::io;

use presence_client::ClientError;
use presence_model::id::NameError;
use presence_runtime::exit;
use presence_runtime::tokens::WriteKeysError;

use crate::probe::ProbeError;

/// What was typed is wrong, or a file that it names, whatever the world is like.
#[derive(Debug)]
pub(crate) struct Mistake(pub(crate) String);

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Mistake {}

/// The exit code of a command that failed so.
pub(crate) fn code(error: &anyhow::Error) -> u8 {
    if error.is::<Mistake>() || error.is::<NameError>() {
        return exit::USAGE;
    }
    if let Some(error) = error.downcast_ref::<ProbeError>() {
        return if error.may_pass() { exit::TEMPORARY } else { exit::REFUSED };
    }
    if let Some(error) = error.downcast_ref::<WriteKeysError>() {
        return if is_full(error) { exit::TEMPORARY } else { exit::USAGE };
    }
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Address(_)) => exit::USAGE,
        Some(error) if error.retry_after().is_some() => exit::TEMPORARY,
        Some(_) => exit::REFUSED,
        None => exit::of_failure(error.chain()),
    }
}

fn is_full(error: &WriteKeysError) -> bool {
    match error {
        WriteKeysError::Exists { .. } => false,
        WriteKeysError::Io { source, .. } => {
            matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        }
    }
}

/// Whether an address was in use.
pub(crate) fn is_taken(error: &anyhow::Error) -> bool {
    is_of(error, io::ErrorKind::AddrInUse)
}

/// Whether the reader of what is printed has hung up.
pub(crate) fn is_hung_up(error: &anyhow::Error) -> bool {
    is_of(error, io::ErrorKind::BrokenPipe)
}

fn is_of(error: &anyhow::Error, kind: io::ErrorKind) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|cause| cause.kind() == kind)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyhow::Context as _;
    use presence_model::id::RoomId;
    use presence_model::watch::WatchRefusal;
    use presence_runtime::shutdown::Unfinished;

    use super::*;

    #[test]
    fn each_failure_has_the_code_of_the_table() {
        let io = |kind| io::Error::from(kind);
        let keys = |kind| WriteKeysError::Io { path: "keys".into(), source: io(kind) };
        let busy = WatchRefusal::Unavailable { retry_after: Duration::from_secs(1) };
        let table: Vec<(anyhow::Error, u8)> = vec![
            (RoomId::new("").unwrap_err().into(), 64),
            (ClientError::Address("nonsense".into()).into(), 64),
            (anyhow::Error::from(io(io::ErrorKind::NotFound)).context(Mistake("--key k".into())), 64),
            (keys(io::ErrorKind::PermissionDenied).into(), 64),
            (WriteKeysError::Exists { path: "keys".into() }.into(), 64),
            (keys(io::ErrorKind::StorageFull).into(), 75),
            (anyhow::Error::from(ClientError::Unreachable("a".into())).context("no core"), 75),
            (ClientError::TimedOut(Duration::from_secs(5)).into(), 75),
            (ClientError::NotWatched(busy).into(), 75),
            (ClientError::NotWatched(WatchRefusal::Forbidden).into(), 1),
            (ProbeError::Unreachable("a".into()).into(), 75),
            (ProbeError::Refused("a".into()).into(), 1),
            (anyhow::Error::from(io(io::ErrorKind::AddrInUse)).context("cannot listen on 127.0.0.1:1"), 75),
            (anyhow::Error::from(Unfinished::Panicked { tasks: 1 }).context("the edge"), 70),
        ];
        for (error, expected) in table {
            assert_eq!(code(&error), expected, "{error:#}");
        }
        let taken: io::Result<()> = Err(io(io::ErrorKind::AddrInUse));
        assert!(is_taken(&taken.context("cannot listen").unwrap_err()));
    }
}
