//! When a certificate of this process ends: a metric, so that somebody is told before clients are.

use prometheus::{IntGauge, Opts};

use super::files::Moment;
use crate::telemetry::Metrics;

/// The end of the first of some certificates to end. Cheap to clone; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Ends(IntGauge);

impl Ends {
    /// Of certificates that are shown to these peers.
    pub(super) fn new(shown_to: &str, ends: Moment) -> Self {
        let what = "When the first certificate that is shown to these peers ends, in seconds since 1970";
        let options =
            Opts::new("presence_tls_certificate_ends_seconds", what).const_label("shown_to", shown_to);
        let gauge = IntGauge::with_opts(options).expect("names of metrics and labels are valid");
        gauge.set(ends.0);
        Self(gauge)
    }

    pub(super) fn set(&self, ends: Moment) {
        self.0.set(ends.0);
    }

    pub(super) fn get(&self) -> Moment {
        Moment(self.0.get())
    }

    /// Shows it, if there is a certificate at all.
    pub(super) fn show(&self, metrics: &Metrics) {
        if self.0.get() != i64::MAX {
            metrics.adopt(self.0.clone());
        }
    }
}
