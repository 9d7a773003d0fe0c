//! What an edge counts. Labels are bounded sets, never ids.

use presence_runtime::telemetry::Metrics;
use prometheus::{IntCounter, IntCounterVec, IntGauge};

use crate::admission::Cause;
use crate::hub::HubCounts;

/// What became of transports.
#[derive(Debug, Clone)]
pub(crate) struct Accepts {
    /// Became a WebSocket.
    pub(crate) accepted: IntCounter,
    /// No WebSocket handshake, or not one of ours.
    pub(crate) refused: IntCounter,
    /// May not come in now, by [`Cause`].
    turned_away: [IntCounter; Cause::ALL.len()],
    /// No request arrived in time.
    pub(crate) late: IntCounter,
    /// Times that whoever came had to wait, since as many as may be are not WebSockets yet.
    pub(crate) crowded: IntCounter,
    /// Not by a proxy that is trusted, or without a good PROXY header, where one is demanded.
    pub(crate) unproxied: IntCounter,
}

impl Accepts {
    /// Somebody was turned away for this cause.
    pub(crate) fn turned_away(&self, cause: Cause) {
        self.turned_away[cause as usize].inc();
    }
}

/// A counter, and what it counts.
type Counted = (IntCounter, fn(&HubCounts) -> u64);

/// The metrics of one edge, set from what its hub has counted.
#[derive(Debug)]
pub(crate) struct EdgeMetrics {
    connections: IntGauge,
    rooms: IntGauge,
    leases: IntGauge,
    link_up: IntGauge,
    counters: Vec<Counted>,
    published: HubCounts,
}

impl EdgeMetrics {
    /// Registers them; every series shows 0 from the start.
    pub(crate) fn new(metrics: &Metrics) -> (Self, Accepts) {
        metrics.build_info("edge");
        let accepts = metrics.counter_vec(
            "presence_edge_accepts_total",
            "Transports by what became of them",
            &["outcome"],
        );
        let accepts = Accepts {
            accepted: accepts.with_label_values(&["accepted"]),
            refused: accepts.with_label_values(&["refused"]),
            turned_away: Cause::ALL.map(|cause| accepts.with_label_values(&[cause.as_str()])),
            late: accepts.with_label_values(&["late"]),
            crowded: metrics.counter(
                "presence_edge_accepts_delayed_total",
                "Times that accepting waited, as too many transports were no WebSockets yet",
            ),
            unproxied: accepts.with_label_values(&["unproxied"]),
        };
        let this = Self {
            connections: metrics.gauge("presence_edge_connections", "WebSockets open"),
            rooms: metrics
                .gauge("presence_edge_rooms", "Rooms watched for clients, those that linger included"),
            leases: metrics.gauge("presence_edge_leases", "Leases this edge renews"),
            link_up: metrics.gauge("presence_edge_link_up", "Whether a core is linked and heard"),
            counters: counters(metrics),
            published: HubCounts::default(),
        };
        (this, accepts)
    }

    /// Shows what was counted since the last time.
    pub(crate) fn publish(&mut self, counts: HubCounts) {
        let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.connections.set(whole(counts.connections));
        self.rooms.set(whole(counts.rooms));
        self.leases.set(whole(counts.leases));
        self.link_up.set(i64::from(counts.link_up));
        for (counter, of) in &self.counters {
            counter.inc_by(of(&counts).saturating_sub(of(&self.published)));
        }
        self.published = counts;
    }
}

fn counters(metrics: &Metrics) -> Vec<Counted> {
    let one = |name, help| metrics.counter(name, help);
    let labelled = |vec: &IntCounterVec, label| vec.with_label_values(&[label]);
    let reconnects = metrics.counter_vec(
        "presence_edge_reconnects_total",
        "Clients that had been somewhere, by how they came back",
        &["outcome"],
    );
    let resyncs = metrics.counter_vec(
        "presence_edge_resyncs_total",
        "Copies that were asked for anew, by cause",
        &["cause"],
    );
    let closed = metrics.counter_vec(
        "presence_edge_slow_total",
        "Connections that were not kept up with, by what was done",
        &["action"],
    );
    vec![
        (labelled(&reconnects, "resumed"), |counts| counts.reconnects.resumed),
        (labelled(&reconnects, "snapshot"), |counts| counts.reconnects.snapshot),
        (labelled(&reconnects, "superseded"), |counts| counts.reconnects.superseded),
        (labelled(&reconnects, "refused"), |counts| counts.reconnects.refused),
        (labelled(&resyncs, "client"), |counts| counts.resyncs),
        (labelled(&resyncs, "digest"), |counts| counts.differs),
        (labelled(&closed, "shed"), |counts| counts.slow),
        (one("presence_edge_revision_gaps_total", "Deltas of cores that did not follow"), |counts| {
            counts.gaps
        }),
        (one("presence_edge_silent_total", "Connections given up for silence"), |counts| counts.silent),
        (one("presence_edge_flooded_total", "Connections closed for flooding"), |counts| counts.flooded),
        (one("presence_edge_rate_limited_total", "Requests refused by a rate"), |counts| counts.rate_limited),
        (
            one("presence_edge_joins_shed_total", "Joins that waited too long to be said to a core"),
            |counts| counts.joins_shed,
        ),
        (one("presence_edge_renewal_batches_total", "Renewal batches sent"), |counts| counts.renewal_batches),
        (
            one("presence_edge_renewals_repeated_total", "Renewals sent again for want of an answer"),
            |counts| counts.renewals_repeated,
        ),
        (one("presence_edge_unknown_leases_total", "Renewed leases the store did not know"), |counts| {
            counts.unknown_leases
        }),
        (one("presence_edge_rejoins_total", "Sessions joined again by this edge"), |counts| counts.rejoins),
        (
            one("presence_edge_revoked_total", "Sessions and watches that rested on a revoked token"),
            |counts| counts.revoked,
        ),
        (one("presence_edge_links_total", "Links opened"), |counts| counts.links),
        (one("presence_edge_freezes_total", "Times this process found that it had not run"), |counts| {
            counts.freezes
        }),
    ]
}
