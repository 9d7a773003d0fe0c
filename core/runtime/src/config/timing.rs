//! The timers an operator may set, as flags and as the `timing` table of a file.

use std::time::Duration;

use clap::Args;
use presence_model::time::{millis, spoken};
use presence_model::timing::{Origin, TimingMistake, Timings, TimingsGiven};
use serde::{Deserialize, Serialize};

use super::classes::CLASS_SETTINGS;
use super::loader::Loader;
use super::mistake::Mistake;
use super::{Kind, Setting};

/// Wide on purpose: what fits together is checked on the whole set, by the model.
pub(super) const SPAN: Kind =
    Kind::Span { min: Duration::from_millis(1), max: Duration::from_secs(24 * 60 * 60) };

/// The settings of the `timing` table, to be joined to those of a binary.
pub const TIMING_SETTINGS: [Setting; 5] = [
    Setting::new("timing.heartbeat", SPAN, "\"15s\""),
    Setting::new("timing.lease_ttl", SPAN, "\"45s\""),
    Setting::new("timing.grace", SPAN, "\"12s\""),
    Setting::new("timing.edge_lost", SPAN, "\"5s\""),
    Setting::new("timing.merge_interval", SPAN, "\"20s\""),
];

/// Flags about timers. Kept as text, so that all mistakes are told at once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct TimingFlags {
    /// How often a session is to be heard (15s)
    #[arg(long, value_name = "DURATION")]
    pub heartbeat: Option<String>,
    /// How long one renewal carries (45s)
    #[arg(long, value_name = "DURATION")]
    pub lease_ttl: Option<String>,
    /// How long a lost transport may take to come back (12s)
    #[arg(long, value_name = "DURATION")]
    pub grace: Option<String>,
    /// After how long an edge whose link broke is lost (5s)
    #[arg(long, value_name = "DURATION")]
    pub edge_lost: Option<String>,
    /// How often other regions are merged (20s)
    #[arg(long, value_name = "DURATION")]
    pub merge_interval: Option<String>,
}

impl TimingFlags {
    /// Hands the flags to a loader, under the paths of [`TIMING_SETTINGS`].
    #[must_use]
    pub fn onto<'a>(&self, loader: Loader<'a>) -> Loader<'a> {
        loader
            .flag("timing.heartbeat", "--heartbeat", self.heartbeat.as_deref())
            .flag("timing.lease_ttl", "--lease-ttl", self.lease_ttl.as_deref())
            .flag("timing.grace", "--grace", self.grace.as_deref())
            .flag("timing.edge_lost", "--edge-lost", self.edge_lost.as_deref())
            .flag("timing.merge_interval", "--merge-interval", self.merge_interval.as_deref())
    }
}

/// The `timing` table of a file; what is absent follows from the rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimingSettings {
    /// How often a session is to be heard.
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<Duration>,
    /// How long one renewal carries.
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub lease_ttl: Option<Duration>,
    /// How long a lost transport may take to come back.
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub grace: Option<Duration>,
    /// After how long an edge whose link broke is lost.
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub edge_lost: Option<Duration>,
    /// How often other regions are merged.
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub merge_interval: Option<Duration>,
}

impl TimingSettings {
    /// For [`Checks::timings`](super::Checks::timings).
    #[must_use]
    pub fn given(self) -> TimingsGiven {
        let Self { heartbeat, lease_ttl, grace, edge_lost, merge_interval } = self;
        TimingsGiven { heartbeat, lease_ttl, grace, edge_lost, merge_interval }
    }

    /// The timers in force, as `--print-config` shows them: as given; what follows from them to the millisecond.
    #[must_use]
    pub fn in_force(self, timings: &Timings) -> Self {
        // Down: no rule is so tight that a derived timer keeps it by less than a millisecond.
        let shown = |given: Option<Duration>, span| given.or(Some(Duration::from_millis(millis(span))));
        Self {
            heartbeat: shown(self.heartbeat, timings.heartbeat),
            lease_ttl: shown(self.lease_ttl, timings.lease_ttl),
            grace: shown(self.grace, timings.grace),
            edge_lost: shown(self.edge_lost, timings.edge_lost),
            merge_interval: shown(self.merge_interval, timings.merge_interval),
        }
    }
}

/// A broken rule as a line.
pub(super) fn line(mistake: TimingMistake, found_in: impl Fn(&str) -> Option<String>) -> Mistake {
    let TimingMistake { class, setting, value, over: _, origin, rule, example } = mistake;
    let path = match &class {
        Some(class) if is_of_classes(setting) => format!("class[{class}].{setting}"),
        Some(_) | None => format!("timing.{setting}"),
    };
    let rule = match &class {
        Some(class) if !is_of_classes(setting) => format!("for class {class}, {rule}"),
        Some(_) | None => rule,
    };
    let found_in = match origin {
        Origin::Given => found_in(&path),
        Origin::Default | Origin::DerivedFrom(_) => None,
    };
    let value = format!("\"{}\"{origin}", spoken(value));
    Mistake { path, value, rule, example: Some(example), found_in }
}

/// Whether a timer may differ by class; all others are shared.
fn is_of_classes(setting: &str) -> bool {
    CLASS_SETTINGS.iter().any(|class| class.path.strip_prefix("class[].") == Some(setting))
}
