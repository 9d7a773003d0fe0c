//! The real core, edges and clients over simulated time, network and store.
//!
//! Every process has a runtime of its own, whose clock the world moves in small steps; what they say to each
//! other goes through a simulated network, what cores say to the store through a simulated wire. One thread
//! does all of it, and all chance comes from the seed: the same seed gives the same night, line for line.

mod errors;
mod faults;
mod host;
mod mend;
mod net;
mod store;
mod suffer;
mod world;

use std::time::Duration;

use crate::history::{Night, Violation, check};

use world::Record;
pub use world::World;

/// How a night is laid out.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Cores, over one store.
    pub cores: usize,
    /// Edges.
    pub edges: usize,
    /// Tabs that join, of fewer users.
    pub tabs: usize,
    /// Users who share the tabs.
    pub users: usize,
    /// Tabs that only look, and as many services that watch at the cores.
    pub watchers: usize,
    /// How long things go wrong.
    pub span: Duration,
    /// Average span between two things that happen.
    pub every: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            cores: 2,
            edges: 3,
            tabs: 10,
            users: 6,
            watchers: 2,
            span: Duration::from_secs(150),
            every: Duration::from_millis(1_500),
        }
    }
}

/// Lives through one night.
#[must_use]
pub fn run(seed: u64, plan: &Plan) -> Night {
    let mut world = World::new(seed, plan);
    world.live();
    let Record { lines, history, faults, errors } = world.into_record();
    let verdict = check(&history).and_then(|looked| match errors.into_iter().next() {
        None => Ok(looked),
        Some((at, what)) => Err(Violation { guarantee: "no process fails", at, what }),
    });
    Night { seed, lines, faults, verdict }
}
