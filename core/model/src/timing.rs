//! Timers, the defaults that follow from those given, and the rules between them.

use std::time::Duration;

use crate::class::{Class, ClassGiven, ClassName, Classes, RoomTimings};
use crate::time::spoken;

mod rules;

/// Longer than this nobody has to wait who comes back for the first time.
pub(crate) const RECONNECT_WITHIN_MAX: Duration = Duration::from_secs(5);

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

/// A connection that was silent for so long is given up: one lost answer is survived at any jitter.
pub const SILENCE_HEARTBEATS: u32 = 2;

/// A region of which so many merges were missed, and one ttl more, is lost.
const MERGES_MISSED_MAX: u32 = 3;

/// The timers in force: of the default class, and those that all rooms share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// How often a session is to be heard, before jitter of ± 20 %.
    pub heartbeat: Duration,
    /// How long one renewal carries.
    pub lease_ttl: Duration,
    /// How long a lost transport may take to come back.
    pub grace: Duration,
    /// Smallest heartbeat over room classes: what waits for renewals follows it.
    pub heartbeat_min: Duration,
    /// Largest heartbeat over room classes: for so long what was heard is worth saying.
    pub heartbeat_max: Duration,
    /// Smallest ttl over room classes: what a sweep may leave alone follows it.
    pub lease_ttl_min: Duration,
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
#[error("{}{setting} is {}{origin}, but {rule}; this would hold: {example}", of_class(.class), spoken(*value))]
pub struct TimingMistake {
    /// The room class whose timers break it; none: the default class.
    pub class: Option<ClassName>,
    /// The setting, as in the configuration (`lease_ttl`).
    pub setting: &'static str,
    /// Its value.
    pub value: Duration,
    /// The other settings that the rule is over: of the same class, unless they are named `timing.…`.
    pub over: &'static [&'static str],
    /// Where that comes from.
    pub origin: Origin,
    /// The rule it breaks, in words and numbers.
    pub rule: String,
    /// Settings that would hold.
    pub example: String,
}

fn of_class(class: &Option<ClassName>) -> String {
    class.as_ref().map(|class| format!("class {class}: ")).unwrap_or_default()
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
        Self::derive_classes(given, defaults, &[]).map(|(timings, _)| timings)
    }

    /// The same, with room classes: each has of the default class what it does not give, and what all rooms
    /// share follows the smallest.
    ///
    /// # Errors
    /// All broken rules of all classes at once.
    pub fn derive_classes(
        given: TimingsGiven,
        defaults: TimingsGiven,
        classes: &[ClassGiven],
    ) -> Result<(Self, Classes), Vec<TimingMistake>> {
        let all = given.or(defaults);
        let usual = usual(all);
        let whole: Vec<Class> = classes.iter().map(|class| class.over(usual)).collect();
        let rooms: Vec<RoomTimings> = whole.iter().map(|class| class.timings).collect();
        let timings = Self::follow(all, &rooms);
        let mut mistakes = rules::mistakes(&timings, all);
        for mistake in &mut mistakes {
            mistake.origin = rules::origin(mistake.setting, given, defaults);
        }
        for (number, class) in whole.iter().enumerate() {
            let of_class = rules::mistakes_of(class, &whole[..number], &timings, all);
            mistakes.extend(of_class.into_iter().map(|mistake| {
                let origin = rules::origin_of(mistake.setting, &classes[number], (given, defaults));
                TimingMistake { origin, ..mistake }
            }));
        }
        if mistakes.is_empty() { Ok((timings, Classes::new(whole))) } else { Err(mistakes) }
    }

    /// The defaults, and what follows from what is given.
    fn follow(given: TimingsGiven, others: &[RoomTimings]) -> Self {
        let second = Duration::from_secs(1);
        let RoomTimings { heartbeat, lease_ttl, grace } = usual(given);
        let heartbeats = || others.iter().map(|room| room.heartbeat);
        let heartbeat_min = heartbeats().fold(heartbeat, Duration::min);
        let heartbeat_max = heartbeats().fold(heartbeat, Duration::max);
        let lease_ttl_min = others.iter().map(|room| room.lease_ttl).fold(lease_ttl, Duration::min);
        let link_beat = second.min(heartbeat_min / 5);
        let turn_kept = (second * 2).min(lease_ttl_min / 9);
        let four_thirds = heartbeat_max.saturating_add(heartbeat_max / 3);
        let timings = Self {
            heartbeat,
            lease_ttl,
            grace,
            heartbeat_min,
            heartbeat_max,
            lease_ttl_min,
            link_beat,
            edge_lost: given.edge_lost.unwrap_or((second * 5).min(lease_ttl_min / 3)),
            renew_all_within: Duration::ZERO,
            link_backoff: link_beat,
            ack_within: Duration::ZERO,
            renew_flush: Duration::ZERO,
            renew_merge: Duration::ZERO,
            sweep_tick: Duration::from_millis(250).min(lease_ttl_min / 12),
            turn_kept,
            turn_look: turn_kept / 2,
            reconnect_within: RoomTimings { heartbeat, lease_ttl, grace }.reconnect_within(),
            merge_interval: given.merge_interval.unwrap_or((second * 20).max(four_thirds)),
            drain_window: (second * 30).min(lease_ttl.saturating_sub(grace)),
        };
        timings.renewing(heartbeat_min)
    }

    /// Those of an edge, as its core told them. What it did not tell follows; the rules are the core's affair.
    #[must_use]
    pub fn told(
        usual: RoomTimings,
        heartbeat_min: Duration,
        link_beat: Duration,
        edge_lost: Duration,
    ) -> Self {
        let RoomTimings { heartbeat, lease_ttl, grace } = usual;
        let given = TimingsGiven {
            heartbeat: Some(heartbeat),
            lease_ttl: Some(lease_ttl),
            grace: Some(grace),
            edge_lost: Some(edge_lost),
            merge_interval: None,
        };
        let followed = Self::follow(given, &[]).renewing(heartbeat_min.min(heartbeat));
        Self { link_beat, link_backoff: link_beat, ..followed }
    }

    /// The same, where the smallest heartbeat over room classes is this: what renewals wait for follows it.
    fn renewing(self, heartbeat_min: Duration) -> Self {
        let second = Duration::from_secs(1);
        let renew_flush = second.min(heartbeat_min / 10);
        Self {
            heartbeat_min,
            renew_all_within: (second * 2).min(heartbeat_min / 5),
            ack_within: heartbeat_min,
            renew_flush,
            renew_merge: renew_flush / 2,
            ..self
        }
    }

    /// Those of a room of the default class.
    #[must_use]
    pub fn usual(&self) -> RoomTimings {
        RoomTimings { heartbeat: self.heartbeat, lease_ttl: self.lease_ttl, grace: self.grace }
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

    /// For how long the members of a region that cannot be heard are shown: until some of what it merges every so
    /// often must have come, and nobody there can be present by a lease that was known.
    #[must_use]
    pub fn region_hold(&self) -> Duration {
        self.merge_interval * MERGES_MISSED_MAX + self.lease_ttl
    }

    /// What a change of the holder of a sweep turn may take.
    #[must_use]
    pub fn takeover(&self) -> Duration {
        self.turn_kept + self.turn_look
    }
}

/// What is given of the default class, and its defaults.
fn usual(given: TimingsGiven) -> RoomTimings {
    let second = Duration::from_secs(1);
    RoomTimings {
        heartbeat: given.heartbeat.unwrap_or(second * 15),
        lease_ttl: given.lease_ttl.unwrap_or(second * 45),
        grace: given.grace.unwrap_or(second * 12),
    }
}

#[cfg(test)]
mod tests;
