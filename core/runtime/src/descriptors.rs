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

/// How many connections a listener may take, and what goes before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Connections at once.
    pub connections: usize,
    /// Transports at once that are none yet.
    pub arriving: usize,
}

/// How many connections a listener may take of those that are wanted, and how many that are about to become some, so
/// that whoever comes beyond is told so: without a descriptor nobody can be. Some stay for the store, cores and files.
/// Says so if connections are fewer than wanted, as a warning if they are few.
#[must_use]
pub fn budget(wanted: Budget) -> Budget {
    let budget = getrlimit(Resource::Nofile).current.map_or(wanted, |limit| leaves(limit, wanted));
    let (most, wanted) = (budget.connections, wanted.connections);
    if most < wanted.min(CONNECTIONS_FEW) {
        tracing::warn!(wanted, "open files are limited (ulimit -n): at most {most} connections");
    } else if most < wanted {
        tracing::info!(wanted, "open files are limited (ulimit -n): at most {most} connections");
    }
    budget
}

/// What a limit of descriptors leaves.
fn leaves(limit: u64, wanted: Budget) -> Budget {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let left = limit - DESCRIPTORS_KEPT.min(limit / 4);
    let arriving = wanted.arriving.min(left / 4);
    Budget { connections: wanted.connections.min(left - arriving).max(1), arriving }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_kept_and_some_left() {
        let leaves = |limit, connections, arriving| {
            let Budget { connections, arriving } = leaves(limit, Budget { connections, arriving });
            (connections, arriving)
        };
        let most = [0, 1, 120, 1_024, 65_536].map(|limit| leaves(limit, usize::MAX, 0));
        assert_eq!(most, [(1, 0), (1, 0), (90, 0), (768, 0), (65_280, 0)]);
        // Whoever is about to come in takes none of those that are kept.
        assert_eq!(leaves(2_048, 50_000, 1_280), (1_344, 448));
        assert_eq!(leaves(20_000, 50_000, 1_280), (18_464, 1_280));
        assert_eq!(leaves(65_536, 50_000, 1_280), (50_000, 1_280));
    }
}
