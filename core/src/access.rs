//! Who may call this core, and what for.
//!
//! Three kinds of callers: edges, by the names in their certificates; services and operators, by certificate or by a
//! token with scopes; and, where no certificates are asked for, anybody, which loopback or an operator's own word
//! protects. Every refusal is counted and, now and then, said.

mod caller;
mod peers;
mod refusals;

use std::sync::Arc;

use presence_runtime::clock::Clock;
use presence_runtime::shutdown::Shutdown;
use tokio::sync::watch;

pub use self::caller::{Caller, Credentials, Need, Origin, Shown};
pub use self::peers::{EdgeRule, Grant, Named, Peers, PeersFault, PeersFile};
pub use self::refusals::{AccessRefusal, AccessRefusals};

/// Whom a core lets in.
#[derive(Debug, Clone)]
pub enum Access {
    /// Anybody. A token that is shown is judged all the same.
    Anybody,
    /// Those whom a table names by their certificates, and bearers of good tokens.
    Named(watch::Receiver<Arc<Peers>>),
}

impl Access {
    /// By a table that is followed until `shutdown`.
    pub fn follow(file: PeersFile, (clock, shutdown): (&Clock, &Shutdown)) -> Self {
        let peers = file.peers();
        shutdown.spawn("peers", file.follow(clock.clone(), shutdown.token()));
        Self::Named(peers)
    }
}
