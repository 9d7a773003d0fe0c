//! Timers, the defaults that follow from those given, and the rules between them.

use std::time::Duration;

/// What an operator sets; whatever is absent follows from the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimingsGiven {
    /// How often a session is to be heard.
    pub heartbeat: Option<Duration>,
    /// How long one renewal carries.
    pub lease_ttl: Option<Duration>,
    /// How long a lost transport may take to come back.
    pub grace: Option<Duration>,
    /// After how long an edge whose link broke is lost.
    pub edge_lost: Option<Duration>,
    /// How often other regions are merged.
    pub merge_interval: Option<Duration>,
}

/// The timers in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// How often a session is to be heard, before jitter of ± 20 %.
    pub heartbeat: Duration,
    /// How long one renewal carries.
    pub lease_ttl: Duration,
    /// How long a lost transport may take to come back.
    pub grace: Duration,
    /// How often both ends of a link beat.
    pub link_beat: Duration,
    /// After how long an edge whose link broke is lost.
    pub edge_lost: Duration,
    /// Over how long an edge spreads a renew-all.
    pub renew_all_within: Duration,
    /// The link's first backoff.
    pub link_backoff: Duration,
    /// How long an edge waits for the acknowledgement of a batch.
    pub ack_within: Duration,
    /// How long an edge collects renewals.
    pub renew_flush: Duration,
    /// How long a core merges the batches of its links.
    pub renew_merge: Duration,
    /// How often the holder of a turn sweeps.
    pub sweep_tick: Duration,
    /// How long a sweep turn is kept.
    pub turn_kept: Duration,
    /// How often the others look whether a turn is free.
    pub turn_look: Duration,
    /// Within what clients first come back.
    pub reconnect_within: Duration,
    /// How often other regions are merged.
    pub merge_interval: Duration,
    /// Over how long drained clients are spread.
    pub drain_window: Duration,
}

/// A broken rule: which timer, what it is, what the rule says, and an example that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimingMistake {
    /// The setting, as in the configuration (`lease_ttl`).
    pub setting: &'static str,
    /// Its value.
    pub value: Duration,
    /// The rule it breaks, in words and numbers.
    pub rule: String,
    /// Settings that would hold.
    pub example: String,
}

impl Timings {
    /// Derives the timers that are not given and checks all rules.
    ///
    /// # Errors
    /// All broken rules at once.
    pub fn derive(given: TimingsGiven) -> Result<Self, Vec<TimingMistake>> {
        let _ = given;
        unimplemented!()
    }

    /// Odd but working relations, one sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        unimplemented!()
    }

    /// After how much silence a connection is given up: exactly two heartbeats.
    #[must_use]
    pub fn silence_max(&self) -> Duration {
        self.heartbeat * 2
    }
}
