//! Real processes over a real Redis, with everything that may befall both, and the histories of such nights.
//!
//! What the simulations cannot know is tried here: the binaries as they ship, the kernel's sockets, kill −9, processes and
//! a store that stand still, restarts of the store with its data, without its last second and without all. Between any
//! two lies a way that can be cut, one way or both, and slowed down. Tabs and services are those of the simulated whole
//! stack, and so is the checker that reads what they met. The seed draws what happens and when, not how long
//! everything takes: a night is tried again by its seed, and is another one.

mod fate;
mod scribe;
mod suffer;
mod way;
mod world;

use std::time::Duration;

use anyhow::Context as _;

use crate::history::{History, Night, check, tail};

use world::World;

/// Seeds of two nights in which, taken together, everything happens that may.
pub const EVERYTHING: [u64; 2] = [16, 19];

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
    /// Before anything happens to others than tabs.
    pub settle: Duration,
    /// In the first third of a round everything may happen, in the rest tabs come and go only.
    pub round: Duration,
    /// How many rounds there are.
    pub rounds: u32,
    /// Average span between two things that happen.
    pub every: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            cores: 2,
            edges: 2,
            tabs: 9,
            users: 6,
            watchers: 2,
            settle: Duration::from_secs(6),
            round: Duration::from_secs(30),
            rounds: 2,
            every: Duration::from_millis(700),
        }
    }
}

impl Plan {
    /// Name of a tab.
    fn tab(&self, tab: usize) -> String {
        if tab < self.tabs { format!("tab-{tab}") } else { format!("looker-{}", tab - self.tabs) }
    }

    fn user(&self, tab: usize) -> String {
        format!("u{}", tab % self.users)
    }
}

/// Lives through one night: what came of it, and all that was recorded.
///
/// # Errors
/// When something does not come up, or back.
pub async fn run(seed: u64, plan: &Plan) -> anyhow::Result<(Night, History)> {
    let mut world = World::new(seed, plan).await?;
    let lived = world.live().await;
    let history = lived.with_context(|| format!("seed {seed}\n{}", tail(&world.lines()).join("\n")))?;
    let night = Night { seed, lines: world.lines(), faults: world.faults.clone(), verdict: check(&history) };
    Ok((night, history))
}
