//! The timers an operator may set, as flags and as the `timing` table of a file.

use std::time::Duration;

use clap::Args;
use presence_model::timing::{TimingMistake, Timings, TimingsGiven};
use serde::{Deserialize, Serialize};

use super::loader::Loader;
use super::mistake::{Mistake, Mistakes};
use super::{Kind, Setting};

/// Wide on purpose: what fits together is checked on the whole set, by the model.
const SPAN: Kind = Kind::Span { min: Duration::from_millis(1), max: Duration::from_secs(24 * 60 * 60) };

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

    /// Reads the flags alone, for a command without a file.
    ///
    /// # Errors
    /// All that are not durations.
    pub fn given(&self) -> Result<TimingsGiven, Mistakes> {
        #[derive(Deserialize)]
        struct Only {
            #[serde(default)]
            timing: TimingSettings,
        }
        let loader = self.onto(Loader::new(&TIMING_SETTINGS, "PRESENCE"));
        loader.load().map(|only: Only| only.timing.given())
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
    /// For [`derive_timings`].
    #[must_use]
    pub fn given(self) -> TimingsGiven {
        let Self { heartbeat, lease_ttl, grace, edge_lost, merge_interval } = self;
        TimingsGiven { heartbeat, lease_ttl, grace, edge_lost, merge_interval }
    }

    /// The timers in force, as `--print-config` shows them.
    #[must_use]
    pub fn in_force(timings: &Timings) -> Self {
        Self {
            heartbeat: Some(timings.heartbeat),
            lease_ttl: Some(timings.lease_ttl),
            grace: Some(timings.grace),
            edge_lost: Some(timings.edge_lost),
            merge_interval: Some(timings.merge_interval),
        }
    }
}

/// Derives the timers in force.
///
/// # Errors
/// All rules that are broken between them, one line each.
pub fn derive_timings(given: TimingsGiven) -> Result<Timings, Mistakes> {
    Timings::derive(given).map_err(|mistakes| {
        let lines = mistakes.into_iter().map(line).collect();
        Mistakes::of(lines).expect("the model refuses for a reason")
    })
}

pub(super) fn line(mistake: TimingMistake) -> Mistake {
    let TimingMistake { setting, value, rule, example } = mistake;
    Mistake {
        path: format!("timing.{setting}"),
        value: format!("\"{}\"", humantime::format_duration(value)),
        rule,
        example: Some(example),
        found_in: Some(format!("--{}", setting.replace('_', "-"))),
    }
}
