//! A registry of metrics. One a process part, never global.

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder, core::Collector,
};

use crate::release::VERSION;

/// Metrics of one process part; clones share them.
///
/// Names are written out in full (`presence_core_sessions`). Registering a name twice, or one that is not
/// a metric name, is a defect and panics at start. Labels are bounded sets, never ids.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A counter.
    #[must_use]
    pub fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.keep(IntCounter::new(name, help))
    }

    /// Counters by labels. Those that an alert needs should be touched at start, so that they show 0.
    #[must_use]
    pub fn counter_vec(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.keep(IntCounterVec::new(Opts::new(name, help), labels))
    }

    /// A whole number that goes up and down.
    #[must_use]
    pub fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.keep(IntGauge::new(name, help))
    }

    /// Whole numbers by labels.
    #[must_use]
    pub fn gauge_vec(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.keep(IntGaugeVec::new(Opts::new(name, help), labels))
    }

    /// A measure that is not a whole number: seconds, ratios.
    #[must_use]
    pub fn measure(&self, name: &str, help: &str) -> Gauge {
        self.keep(Gauge::new(name, help))
    }

    /// Measures by labels.
    #[must_use]
    pub fn measure_vec(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.keep(GaugeVec::new(Opts::new(name, help), labels))
    }

    /// A histogram with buckets of its own.
    #[must_use]
    pub fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        self.keep(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())))
    }

    /// Histograms by labels.
    #[must_use]
    pub fn histogram_vec(&self, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
        self.keep(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels))
    }

    /// `presence_<component>_build_info{version}`, which is 1: what runs where, and since when another version does.
    pub fn build_info(&self, component: &str) {
        let name = format!("presence_{component}_build_info");
        self.gauge_vec(&name, "1: this version runs", &["version"]).with_label_values(&[VERSION]).set(1);
    }

    /// Shows what was made elsewhere.
    pub fn adopt<C: Collector + Clone + 'static>(&self, made: C) {
        self.keep(Ok(made));
    }

    /// All of it in the Prometheus text format.
    #[must_use]
    pub fn encode(&self) -> String {
        TextEncoder::new().encode_to_string(&self.registry.gather()).expect("what was registered encodes")
    }

    fn keep<C: Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let metric = made.expect("names of metrics and labels are valid");
        self.registry.register(Box::new(metric.clone())).expect("each name is registered once");
        metric
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_registered_metric_is_in_the_text() {
        let metrics = Metrics::new();
        metrics.counter("presence_test_joins_total", "Joins").inc();
        let by = metrics.counter_vec("presence_test_ends_total", "Ends", &["reason"]);
        by.with_label_values(&["left"]).inc_by(2);
        metrics.gauge("presence_test_rooms", "Rooms").set(3);
        metrics.measure("presence_test_stale_sessions_ratio", "Ratio").set(0.5);
        metrics.histogram("presence_test_lag_seconds", "Lag", &[0.1, 1.0]).observe(0.5);
        let text = metrics.clone().encode();
        for line in [
            "presence_test_joins_total 1",
            "presence_test_ends_total{reason=\"left\"} 2",
            "presence_test_rooms 3",
            "presence_test_stale_sessions_ratio 0.5",
            "presence_test_lag_seconds_bucket{le=\"1\"} 1",
            "# HELP presence_test_rooms Rooms",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    #[should_panic(expected = "each name is registered once")]
    fn a_name_is_registered_once() {
        let metrics = Metrics::new();
        let _ = metrics.counter("presence_test_twice_total", "Once");
        let _ = metrics.counter("presence_test_twice_total", "Twice");
    }
}
