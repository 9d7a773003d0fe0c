//! What nights do: seeded transitions of the world.

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;

/// How rough a night is.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Cores, over one store.
    pub cores: usize,
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
            cores: 1,
            edges: 2,
            clients: 10,
            users: 5,
            every: Duration::from_millis(1_500),
            lost_reply_of: 60,
            delay_max: Duration::from_millis(40),
        }
    }
}

/// Share of the faults that befall a core where there are several.
const CORE_FAULTS: f64 = 0.2;

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
    /// A core process dies and is started again.
    CrashCore(usize, Duration),
    /// A core process stands still for a while.
    PauseCore(usize, Duration),
    /// The link of a living edge is reset.
    BreakLink(usize),
    /// Everything is slow for a while.
    Slow(Duration),
}

impl Plan {
    /// Two cores, of which one or the other dies or stands still every now and then.
    #[must_use]
    pub fn several_cores() -> Self {
        Self { cores: 2, ..Self::default() }
    }

    pub(super) fn draw(&self, rng: &mut StdRng) -> Fault {
        let client = rng.random_range(0..self.clients);
        let edge = rng.random_range(0..self.edges);
        let span = |rng: &mut StdRng, from: u64, to: u64| Duration::from_millis(rng.random_range(from..to));
        if self.cores > 1 && rng.random_bool(CORE_FAULTS) {
            let core = rng.random_range(0..self.cores);
            return match rng.random_bool(0.5) {
                true => Fault::CrashCore(core, span(rng, 100, 20_000)),
                false => Fault::PauseCore(core, span(rng, 100, 30_000)),
            };
        }
        match rng.random_range(0..100) {
            0..25 => Fault::Blip(client),
            25..40 => Fault::Tunnel(client, span(rng, 500, 25_000)),
            40..55 => Fault::Leave(client, span(rng, 100, 8_000)),
            55..75 => Fault::Update(client),
            75..83 => Fault::CrashEdge(edge, span(rng, 200, 12_000)),
            83..88 => Fault::CrashCore(0, span(rng, 100, 9_000)),
            88..95 => Fault::BreakLink(edge),
            _ => Fault::Slow(span(rng, 500, 4_000)),
        }
    }

    pub(super) fn pause(&self, rng: &mut StdRng) -> Duration {
        self.every.mul_f64(rng.random_range(0.1..1.9))
    }
}
