//! Timers, the defaults that follow from those given, and the rules between them.

use std::time::Duration;

mod rules;

/// What an operator sets; whatever is absent has its default or follows from the rest.
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

impl TimingsGiven {
    /// Short enough that things happen while one watches.
    pub const DEMO: Self = Self {
        heartbeat: Some(Duration::from_secs(3)),
        lease_ttl: Some(Duration::from_secs(12)),
        grace: Some(Duration::from_secs(5)),
        edge_lost: None,
        merge_interval: None,
    };

    /// What is absent here is taken from there.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            heartbeat: self.heartbeat.or(other.heartbeat),
            lease_ttl: self.lease_ttl.or(other.lease_ttl),
            grace: self.grace.or(other.grace),
            edge_lost: self.edge_lost.or(other.edge_lost),
            merge_interval: self.merge_interval.or(other.merge_interval),
        }
    }
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

/// Where the value of a timer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The operator gave it.
    Given,
    /// Nobody did.
    Default,
    /// It follows from this one.
    DerivedFrom(&'static str),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Given => Ok(()),
            Self::Default => f.write_str(" (the default)"),
            Self::DerivedFrom(setting) => write!(f, " (derived from {setting})"),
        }
    }
}

/// A broken rule: which timer, what it is, what the rule says, and an example that holds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is {value:?}{origin}, but {rule}; this would hold: {example}")]
pub struct TimingMistake {
    /// The setting, as in the configuration (`lease_ttl`).
    pub setting: &'static str,
    /// Its value.
    pub value: Duration,
    /// Where that comes from.
    pub origin: Origin,
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
        Self::derive_or(given, TimingsGiven::default())
    }

    /// The same; what is not given is taken from there.
    ///
    /// # Errors
    /// All broken rules at once.
    pub fn derive_or(given: TimingsGiven, defaults: TimingsGiven) -> Result<Self, Vec<TimingMistake>> {
        let all = given.or(defaults);
        let timings = Self::follow(all);
        let mut mistakes = rules::mistakes(&timings, all);
        for mistake in &mut mistakes {
            mistake.origin = rules::origin(mistake.setting, given, defaults);
        }
        if mistakes.is_empty() { Ok(timings) } else { Err(mistakes) }
    }

    /// The defaults, and what follows from what is given.
    fn follow(given: TimingsGiven) -> Self {
        let second = Duration::from_secs(1);
        let heartbeat = given.heartbeat.unwrap_or(second * 15);
        let lease_ttl = given.lease_ttl.unwrap_or(second * 45);
        let grace = given.grace.unwrap_or(second * 12);
        let link_beat = second.min(heartbeat / 5);
        let renew_flush = second.min(heartbeat / 10);
        let turn_kept = (second * 2).min(lease_ttl / 9);
        let four_thirds = heartbeat.saturating_add(heartbeat / 3);
        Self {
            heartbeat,
            lease_ttl,
            grace,
            link_beat,
            edge_lost: given.edge_lost.unwrap_or((second * 5).min(lease_ttl / 3)),
            renew_all_within: (second * 2).min(heartbeat / 5),
            link_backoff: link_beat,
            ack_within: heartbeat,
            renew_flush,
            renew_merge: renew_flush / 2,
            sweep_tick: Duration::from_millis(250).min(lease_ttl / 12),
            turn_kept,
            turn_look: turn_kept / 2,
            reconnect_within: (second * 5).min(grace / 2),
            merge_interval: given.merge_interval.unwrap_or((second * 20).max(four_thirds)),
            drain_window: (second * 30).min(lease_ttl.saturating_sub(grace)),
        }
    }

    /// Odd but working relations, one sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        rules::warnings(self)
    }

    /// Ceiling of an edge's backoff: it tries often enough to be back before it counts as lost, and several
    /// times within a ttl, however long no core was in reach.
    #[must_use]
    pub fn relink_within(&self) -> Duration {
        (self.edge_lost / 2).max(self.link_backoff)
    }

    /// After how much silence a connection is given up: exactly two heartbeats.
    #[must_use]
    pub fn silence_max(&self) -> Duration {
        self.heartbeat * 2
    }

    /// What a change of the holder of a sweep turn may take.
    #[must_use]
    pub fn takeover(&self) -> Duration {
        self.turn_kept + self.turn_look
    }
}

#[cfg(test)]
mod tests;
