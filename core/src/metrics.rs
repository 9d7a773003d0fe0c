//! What a core counts. Labels are bounded sets, never ids.

use std::sync::Arc;
use std::time::Duration;

use presence_model::change::TransitionKind;
use presence_model::hold::HoldCause;
use presence_model::reason::RemovalReason;
use presence_runtime::telemetry::Metrics;
use prometheus::{Gauge, Histogram, HistogramVec, IntCounter, IntCounterVec};

mod peers;

pub(crate) use self::peers::PeerGauges;
pub use self::peers::PeerMetrics;
use crate::access::AccessRefusals;
use crate::driver::{AuditNote, Finding, Shed};
use crate::store::{Command, CommitOutcome, NotApplied, Outcome, StoreFault};

const STORE_SECONDS: &[f64] = &[0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];
/// From half a tick of the sweep to a hold: who ran out in one goes when it is over.
const EXPIRY_LAG_SECONDS: &[f64] = &[0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

/// The metrics of one core.
#[derive(Debug)]
pub struct CoreMetrics {
    transitions: IntCounterVec,
    store_seconds: HistogramVec,
    audit_pages: IntCounter,
    audit_findings: IntCounterVec,
    oldest_overdue: Gauge,
    expiry_lag: Histogram,
    suppressed: IntCounter,
    renewals: [IntCounter; 3],
    commits: IntCounterVec,
    holds: IntCounterVec,
    shed: IntCounterVec,
    /// Callers that were refused.
    pub(crate) access: Arc<AccessRefusals>,
    /// Regions that are kept elsewhere.
    pub(crate) peers: Arc<PeerMetrics>,
}

impl CoreMetrics {
    /// Registers them. Series that matter from the start show 0.
    #[must_use]
    pub fn new(metrics: &Metrics) -> Self {
        let transitions = metrics.counter_vec(
            "presence_core_transitions_total",
            "Sessions that joined, updated or ended by a commit of this core",
            &["kind", "reason"],
        );
        for kind in ["joined", "updated"] {
            let _ = transitions.with_label_values(&[kind, ""]);
        }
        for reason in RemovalReason::ALL {
            let _ = transitions.with_label_values(&["ended", reason.as_str()]);
        }
        let store_seconds = metrics.histogram_vec(
            "presence_core_store_seconds",
            "Time until the store answered a command",
            &["op", "outcome"],
            STORE_SECONDS,
        );
        let audit_findings = metrics.counter_vec(
            "presence_core_audit_findings_total",
            "What the auditor found that no verb leaves behind, and what of it still stood and was mended",
            &["finding", "outcome"],
        );
        for (finding, outcome) in
            Finding::ALL.into_iter().flat_map(|finding| [(finding, "found"), (finding, "mended")])
        {
            let _ = audit_findings.with_label_values(&[finding.as_str(), outcome]);
        }
        let shed = metrics.counter_vec(
            "presence_core_joins_shed_total",
            "New arrivals told to come again, by what was short",
            &["reason"],
        );
        for (reason, _) in Shed::default().by_reason() {
            let _ = shed.with_label_values(&[reason]);
        }
        metrics.build_info("core");
        let (renewals, commits, holds) = of_store(metrics);
        Self {
            renewals,
            commits,
            holds,
            access: Arc::new(AccessRefusals::new(metrics)),
            peers: Arc::new(PeerMetrics::new(metrics)),
            shed,
            transitions,
            store_seconds,
            audit_pages: metrics.counter(
                "presence_core_audit_pages_total",
                "Pages of leases and records the auditor has compared: its heartbeat, one a second and shard",
            ),
            audit_findings,
            oldest_overdue: metrics.measure(
                "presence_core_oldest_overdue_seconds",
                "Age of the oldest lease that is overdue and not held, of the shards swept here",
            ),
            suppressed: metrics.counter(
                "presence_core_transitions_suppressed_total",
                "Sessions that came back over another connection before anybody was told that they had gone",
            ),
            expiry_lag: metrics.histogram(
                "presence_core_lease_expiry_lag_seconds",
                "How long ago the lease had run out when a departure that follows from it was committed",
                EXPIRY_LAG_SECONDS,
            ),
        }
    }

    pub(crate) fn audit(&self, note: &AuditNote) {
        let count = |finding: Finding, outcome, count| {
            self.audit_findings.with_label_values(&[finding.as_str(), outcome]).inc_by(count as u64);
        };
        match note {
            AuditNote::Page { oldest_overdue } => {
                self.audit_pages.inc();
                self.oldest_overdue.set(oldest_overdue.as_secs_f64());
            }
            AuditNote::Found { finding, count: found, .. } => count(*finding, "found", *found),
            AuditNote::Mended { finding, count: mended, .. } => count(*finding, "mended", *mended),
        }
    }

    pub(crate) fn shed(&self, reason: &'static str, count: u64) {
        self.shed.with_label_values(&[reason]).inc_by(count);
    }

    /// A transition, and for how long the lease had run out from which it follows.
    pub(crate) fn transition(&self, kind: &TransitionKind, overdue: Option<Duration>) {
        self.transitions.with_label_values(&[kind.as_str(), reason_of(kind)]).inc();
        if kind.ending().is_some_and(|ending| ending.reason == RemovalReason::Superseded) {
            self.suppressed.inc();
        }
        if let Some(overdue) = overdue {
            self.expiry_lag.observe(overdue.as_secs_f64());
        }
    }

    /// What became of renewals, commits and turns. `renewed`: how many leases were to be renewed.
    pub(crate) fn store_did(&self, renewed: usize, answer: &Result<Outcome, StoreFault>) {
        let [accepted, unknown, failed] = &self.renewals;
        match answer {
            Ok(Outcome::Renewed { unknown: lost, .. }) => {
                accepted.inc_by(renewed.saturating_sub(lost.len()) as u64);
                unknown.inc_by(lost.len() as u64);
            }
            Ok(Outcome::Commit(CommitOutcome::Applied { refused, .. })) => {
                self.commits.with_label_values(&["applied"]).inc();
                for (_, why) in refused {
                    self.commits.with_label_values(&[not_applied(*why)]).inc();
                }
            }
            Ok(Outcome::Commit(CommitOutcome::Epoch { .. })) => {
                self.commits.with_label_values(&["epoch"]).inc();
            }
            Ok(Outcome::Turn(turn)) => {
                if let Some(hold) = turn.hold.filter(|_| turn.new_hold) {
                    self.holds.with_label_values(&[hold.cause.as_str()]).inc();
                }
            }
            Ok(_) => {}
            Err(_) => failed.inc_by(renewed as u64),
        }
    }

    pub(crate) fn store_answered(&self, op: &'static str, took: Duration, fault: Option<&StoreFault>) {
        let outcome = match fault {
            None => "ok",
            Some(StoreFault::Unavailable(_)) => "unavailable",
            Some(StoreFault::Unsettled) => "unsettled",
            Some(StoreFault::Unknown) => "unknown",
            Some(StoreFault::HalfDone(_)) => "half_done",
            Some(StoreFault::ReadOnly) => "read_only",
        };
        self.store_seconds.with_label_values(&[op, outcome]).observe(took.as_secs_f64());
    }
}

/// What becomes of renewals and commits, and the holds that begin.
fn of_store(metrics: &Metrics) -> ([IntCounter; 3], IntCounterVec, IntCounterVec) {
    let renewals = metrics.counter_vec(
        "presence_core_renewals_total",
        "Renewals of leases by what became of them",
        &["outcome"],
    );
    let commits = metrics.counter_vec(
        "presence_core_commits_total",
        "Commits to rosters by what became of them; of what was not applied, changes",
        &["outcome"],
    );
    for outcome in COMMITS {
        let _ = commits.with_label_values(&[outcome]);
    }
    let holds = metrics.counter_vec(
        "presence_core_store_holds_total",
        "Holds of shards that this core began, in which nobody ends by silence",
        &["cause"],
    );
    for cause in HoldCause::ALL {
        let _ = holds.with_label_values(&[cause.as_str()]);
    }
    (RENEWALS.map(|outcome| renewals.with_label_values(&[outcome])), commits, holds)
}

/// What becomes of renewals.
const RENEWALS: [&str; 3] = ["accepted", "unknown", "failed"];
/// What becomes of commits, and why changes of them are not applied.
const COMMITS: [&str; 5] = ["applied", "epoch", "changed", "guard", "lease_exists"];

fn not_applied(why: NotApplied) -> &'static str {
    match why {
        NotApplied::Changed => "changed",
        NotApplied::Guard => "guard",
        NotApplied::LeaseExists => "lease_exists",
    }
}

/// The reason of an ending, empty for what is none.
pub(crate) fn reason_of(kind: &TransitionKind) -> &'static str {
    kind.ending().map_or("", |ending| ending.reason.as_str())
}

/// Name of a store command, for metrics.
#[must_use]
pub fn verb(command: &Command) -> &'static str {
    match command {
        Command::Now { .. } => "now",
        Command::Members { .. } => "members",
        Command::Load { .. } => "load",
        Command::Commit(_) => "commit",
        Command::Renew { .. } => "renew",
        Command::Release { .. } => "release",
        Command::Lose { .. } => "lose",
        Command::Discard { .. } => "discard",
        Command::Audit { .. } => "audit",
        Command::Disown { .. } => "disown",
        Command::Distrust { .. } => "distrust",
        Command::Turn { .. } => "turn",
        Command::Link { .. } => "link",
        Command::Unlink { .. } => "unlink",
        Command::Forget { .. } => "forget",
        Command::DrainEdge { .. } => "drain_edge",
        Command::Edges => "edges",
        Command::History { .. } => "history",
        Command::Tail { .. } => "tail",
        Command::Leases { .. } => "leases",
        Command::Rooms { .. } => "rooms",
        Command::Summary { .. } => "summary",
        Command::Seen { .. } => "seen",
        Command::RoomsOf { .. } => "rooms_of",
        Command::Unlist { .. } => "unlist",
        Command::Revoke { .. } => "revoke",
        Command::Revoked { .. } => "revoked",
        Command::Tidy { .. } => "tidy",
    }
}
