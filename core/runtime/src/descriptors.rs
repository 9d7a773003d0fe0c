//! How many files and connections this process may have open at once.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::limits::{CONNECTIONS_FEW, DESCRIPTORS_KEPT};

/// Lets this process open as many as it may allow itself. For `main` only.
///
/// Many systems begin a process with 1,024 for the sake of programs that use `select`, and let it raise that.
pub fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, "the limit of open files stays at {current:?}");
    }
}

/// How many connections a listener may take of `wanted`, so that whoever comes beyond is told so: without a
/// descriptor nobody can be. Some stay for the store, cores and files. Says so if that is fewer, as a warning if it
/// is few.
#[must_use]
pub fn connections(wanted: usize) -> usize {
    let most = getrlimit(Resource::Nofile).current.map_or(usize::MAX, leaves);
    if most < wanted.min(CONNECTIONS_FEW) {
        tracing::warn!(wanted, "open files are limited (ulimit -n): at most {most} connections");
    } else if most < wanted {
        tracing::info!(wanted, "open files are limited (ulimit -n): at most {most} connections");
    }
    wanted.min(most)
}

/// What a limit of descriptors leaves for connections.
fn leaves(limit: u64) -> usize {
    let left = limit - DESCRIPTORS_KEPT.min(limit / 2);
    usize::try_from(left).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_kept_and_some_left() {
        let kept = usize::try_from(DESCRIPTORS_KEPT).unwrap();
        assert_eq!([0, 1, 120, 1_024, 65_536].map(leaves), [1, 1, 60, 1_024 - kept, 65_536 - kept]);
        assert_eq!(connections(1), 1);
        assert!(connections(usize::MAX) >= 1);
    }
}
