//! What nights do: seeded transitions of the world.

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;

/// How rough a night is.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Edges.
    pub edges: usize,
    /// Tabs, among fewer users.
    pub clients: usize,
    /// Users who share the tabs; the rest of the tabs watch.
    pub users: usize,
    /// Average span between two transitions.
    pub every: Duration,
    /// One answer of the store in so many is lost after the command was carried out; 0: none.
    pub lost_reply_of: u32,
    /// Delay of one message, at most, outside of spikes.
    pub delay_max: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            edges: 2,
            clients: 10,
            users: 5,
            every: Duration::from_millis(1_500),
            lost_reply_of: 60,
            delay_max: Duration::from_millis(40),
        }
    }
}

/// One transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// A tab's transport is closed and it comes back.
    Blip(usize),
    /// A tab's bytes stop; it cannot connect for a while.
    Tunnel(usize, Duration),
    /// Goodbye, and back after a while.
    Leave(usize, Duration),
    /// A new status.
    Update(usize),
    /// An edge process dies and is started again.
    CrashEdge(usize, Duration),
    /// The core process dies and is started again.
    CrashCore(Duration),
    /// The link of a living edge is reset.
    BreakLink(usize),
    /// Everything is slow for a while.
    Slow(Duration),
}

impl Plan {
    pub(super) fn draw(&self, rng: &mut StdRng) -> Fault {
        let client = rng.random_range(0..self.clients);
        let edge = rng.random_range(0..self.edges);
        let span = |rng: &mut StdRng, from: u64, to: u64| Duration::from_millis(rng.random_range(from..to));
        match rng.random_range(0..100) {
            0..25 => Fault::Blip(client),
            25..40 => Fault::Tunnel(client, span(rng, 500, 25_000)),
            40..55 => Fault::Leave(client, span(rng, 100, 8_000)),
            55..75 => Fault::Update(client),
            75..83 => Fault::CrashEdge(edge, span(rng, 200, 12_000)),
            83..88 => Fault::CrashCore(span(rng, 100, 9_000)),
            88..95 => Fault::BreakLink(edge),
            _ => Fault::Slow(span(rng, 500, 4_000)),
        }
    }

    pub(super) fn pause(&self, rng: &mut StdRng) -> Duration {
        self.every.mul_f64(rng.random_range(0.1..1.9))
    }
}
