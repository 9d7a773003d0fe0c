//! What the adapter is told.

use crate::store::Retention;

/// How the servers stand to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Standalone {
        /// `host:port`.
        server: String,
    },
}

/// What a Redis store is made of.
#[derive(Debug, Clone)]
pub struct RedisSettings {
    /// Where the servers are.
    pub topology: Topology,
    /// In front of every key.
    pub prefix: String,
    /// Shards, 1 to 256, fixed at the first start.
    pub shards: u16,
    /// What is remembered for how long.
    pub retention: Retention,
    /// Draws the random part of epochs; unpredictable outside tests.
    pub seed: u64,
}
