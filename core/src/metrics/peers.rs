//! How well the cores of other regions are heard. The label is the region, of which there are as many as are configured.

use presence_model::id::{RegionId, RoomId};
use presence_model::time::Mono;
use presence_model::watch::WatchRefusal;
use presence_runtime::telemetry::{Metrics, Seldom};
use prometheus::{Gauge, GaugeVec, IntCounterVec, Opts};

use crate::driver::PeerNow;
use crate::limits::PEER_REFUSALS_TOLD_EVERY;

/// What can fail.
const FAILURES: [&str; 3] = ["unreachable", "refused", "room"];

/// The metrics of peers.
#[derive(Debug)]
pub struct PeerMetrics {
    up: GaugeVec,
    lag: GaugeVec,
    rooms: GaugeVec,
    failures: IntCounterVec,
    lost: IntCounterVec,
    said: Seldom<1>,
}

/// How one peer is, told again and again.
#[derive(Debug)]
pub(crate) struct PeerGauges {
    up: Gauge,
    lag: Gauge,
    rooms: Gauge,
}

impl PeerGauges {
    pub(crate) fn tell(&self, now: PeerNow) {
        self.up.set(f64::from(u8::from(now.is_heard)));
        self.lag.set(now.lag.as_secs_f64());
        self.rooms.set(now.rooms as f64);
    }
}

impl PeerMetrics {
    pub(super) fn new(metrics: &Metrics) -> Self {
        let gauge = |name, help| {
            let made = GaugeVec::new(Opts::new(name, help), &["peer"]).expect("a valid name and label");
            metrics.adopt(made.clone());
            made
        };
        Self {
            up: gauge("presence_core_peer_up", "Whether the cores of a peer region are heard"),
            lag: gauge(
                "presence_core_region_lag_seconds",
                "For how long nothing has said that all is known of a peer region; merging comes on top",
            ),
            rooms: gauge("presence_core_peer_rooms", "Rooms of a peer region that are watched there"),
            failures: metrics.counter_vec(
                "presence_core_peer_failures_total",
                "Watches of a peer region that ended or were not opened, and rooms it refused, by kind",
                &["peer", "kind"],
            ),
            lost: metrics.counter_vec(
                "presence_core_regions_lost_total",
                "Times that a peer region was not heard for longer than its hold",
                &["peer"],
            ),
            said: Seldom::new(PEER_REFUSALS_TOLD_EVERY),
        }
    }

    /// A peer that is to be watched: its series are there from the start.
    pub(crate) fn begin(&self, region: &RegionId) {
        let peer = region.as_str();
        let _ = self.gauges(region);
        for kind in FAILURES {
            let _ = self.failures.with_label_values(&[peer, kind]);
        }
        let _ = self.lost.with_label_values(&[peer]);
    }

    pub(crate) fn gauges(&self, region: &RegionId) -> PeerGauges {
        let of = |gauge: &GaugeVec| gauge.with_label_values(&[region.as_str()]);
        PeerGauges { up: of(&self.up), lag: of(&self.lag), rooms: of(&self.rooms) }
    }

    pub(crate) fn failed(&self, region: &RegionId, kind: &'static str) {
        self.failures.with_label_values(&[region.as_str(), kind]).inc();
    }

    pub(crate) fn refused_room(
        &self,
        region: &RegionId,
        (room, refusal): (&RoomId, &WatchRefusal),
        now: Mono,
    ) {
        self.failed(region, "room");
        if self.said.is_due(0, now) {
            tracing::error!(%region, %room, %refusal, "a peer does not let rooms be watched, as this one");
        }
    }

    pub(crate) fn lost(&self, region: &RegionId) {
        self.lost.with_label_values(&[region.as_str()]).inc();
    }
}
