//! Starting an edge: listeners, the hub's task, the link, admin.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use presence_model::id::Incarnation;
use presence_runtime::admin::{self, Readiness};
use presence_runtime::clock::Clock;
use presence_runtime::network::{Listener, Network};
use presence_runtime::shutdown::{Shutdown, Unfinished};
use presence_runtime::telemetry::Metrics;
use presence_runtime::tls::{Door, ServerTls};
use presence_runtime::tokens::Verifier;
use prometheus::IntGauge;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::admission::{Admission, AdmissionLimits};
use crate::connection::{Inbox, Shared};
use crate::http::{AcceptObserver, ExtraHttp, Http, Partings};
use crate::hub::{Hub, HubSettings};
use crate::link::{self, Links};
use crate::metrics::EdgeMetrics;
use crate::settings::Settings;
use crate::shell::HubTask;

/// What an edge uses of its process.
pub struct Deps {
    /// Time.
    pub clock: Clock,
    /// Sockets.
    pub network: Network,
    /// Counters.
    pub metrics: Metrics,
    /// The certificates of the listener; none: it is plain.
    pub tls: Option<ServerTls>,
    /// Who a bearer is.
    pub verifier: Verifier,
    /// Ends this edge: it drains first.
    pub shutdown: Shutdown,
    /// Answers other paths than the edge's own.
    pub extra: Option<ExtraHttp>,
    /// Told of each transport that is accepted.
    pub observer: Option<AcceptObserver>,
}

/// An edge that accepts.
#[derive(Debug)]
pub struct Running {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where metrics and probes are.
    pub admin: Option<SocketAddr>,
    /// Whether it takes new work.
    pub readiness: Readiness,
    /// Changes how many may come in.
    pub limiter: Limiter,
    linked: watch::Receiver<bool>,
    clock: Clock,
    tasks: Shutdown,
}

/// Changes how many may come in while an edge runs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Limiter {
    admission: Arc<Admission>,
    connections_max: IntGauge,
}

impl Limiter {
    fn new(limits: AdmissionLimits, metrics: &Metrics, seed: u64) -> Self {
        let connections_max = metrics.gauge("presence_edge_connections_max", "WebSockets this edge takes");
        let this = Self { admission: Arc::new(Admission::new(limits, seed)), connections_max };
        this.set(limits);
        this
    }

    /// These are the limits from now on, but for [`AdmissionLimits::arriving`], which stays. Who is in stays.
    pub fn set(&self, limits: AdmissionLimits) {
        self.admission.set_limits(limits);
        self.connections_max.set(i64::try_from(limits.connections).unwrap_or(i64::MAX));
    }
}

/// Why an edge did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be had.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// There is nobody to link to.
    #[error("no core is given")]
    NoCore,
}

/// Starts an edge. Returns once it accepts; the link may come later ([`Running::linked`]).
///
/// # Errors
/// [`StartError`].
pub fn start(settings: Settings, deps: Deps) -> Result<Running, StartError> {
    let Deps { clock, network, metrics, tls, verifier, shutdown, extra, observer } = deps;
    if settings.cores.is_empty() {
        return Err(StartError::NoCore);
    }
    let listen = |address| network.listen(address).map_err(|source| StartError::Listen { address, source });
    let listener = listen(settings.listen)?;
    let admin_listener = settings.admin.map(listen).transpose()?;
    let addresses = (listener.local_addr(), admin_listener.as_ref().map(Listener::local_addr));

    let refused = metrics.counter_vec(
        "presence_edge_token_refusals_total",
        "Tokens that were refused, by reason",
        &["reason"],
    );
    let verifier = verifier.counting(refused, clock.clone());
    let mut chance = StdRng::seed_from_u64(settings.seed);
    let (edge_metrics, accepts) = EdgeMetrics::new(&metrics);
    let (readiness, tasks) = (Readiness::new(), Shutdown::new());
    let (inbox, reports) = Inbox::pair();
    let (links, events) = Links::new(network, clock.clone(), tasks.clone());
    let cores = link::literal(&settings.cores).unwrap_or_else(|| {
        links.follow_names(settings.cores);
        Vec::new()
    });
    let (linked, is_linked) = watch::channel(false);
    let hub = HubTask {
        hub: Hub::new(HubSettings {
            edge: settings.edge,
            incarnation: Incarnation(chance.next_u64()),
            region: settings.region,
            timings: settings.timings,
            cores,
            list_members: settings.list_members,
            seed: chance.next_u64(),
        }),
        reports,
        links,
        events,
        clock: clock.clone(),
        metrics: edge_metrics,
        verifier: verifier.clone(),
        readiness: readiness.clone(),
        shutdown: shutdown.clone(),
        linked,
    };
    let limiter = Limiter::new(settings.limits, &metrics, chance.next_u64());
    let http = Arc::new(Http {
        shared: Arc::new(Shared { clock: clock.clone(), verifier, inbox }),
        door: Door::new(("edge", "WebSocket"), tls, &metrics, clock.clone()),
        origins: settings.origins,
        extra,
        observer,
        admission: Arc::clone(&limiter.admission),
        whence: settings.whence,
        partings: Partings::default(),
        accepts,
        tasks: tasks.clone(),
    });
    let (drain, last) = (CancellationToken::new(), CancellationToken::new());
    tasks.spawn("turned away", Arc::clone(&http).tell_turned_away(drain.clone()));
    tasks.spawn("accept", http.accept(listener, chance.next_u64(), drain.clone()));
    if let Some(listener) = admin_listener {
        let serving = admin::serve(listener, metrics, readiness.clone(), clock.clone(), last.clone());
        tasks.spawn("admin", serving);
    }
    let ending = Ending { shutdown, readiness: readiness.clone(), drain, last, tasks: tasks.clone() };
    tasks.spawn("hub", ending.run(hub));
    let (listen, admin) = addresses;
    Ok(Running { listen, admin, readiness, limiter, linked: is_linked, clock, tasks })
}

/// The order in which an edge goes: readiness, accepting, clients, the link, the rest.
struct Ending {
    shutdown: Shutdown,
    readiness: Readiness,
    drain: CancellationToken,
    last: CancellationToken,
    tasks: Shutdown,
}

impl Ending {
    /// Runs the hub until it is drained, which begins at the shutdown or when another task has failed.
    async fn run(self, hub: HubTask) {
        let Self { shutdown, readiness, drain, last, tasks } = self;
        let begun = async {
            tokio::select! {
                biased;
                () = shutdown.token().cancelled_owned() => {}
                () = tasks.token().cancelled_owned() => shutdown.begin(),
            }
            tracing::info!("draining");
            readiness.draining();
            drain.cancel();
            std::future::pending().await
        };
        tokio::select! {
            biased;
            () = begun => {}
            () = hub.run(drain.clone()) => {}
        }
        last.cancel();
        tasks.begin();
    }
}

impl Running {
    /// Waits until the link is up for the first time; false: the edge ends before.
    pub async fn linked(&self) -> bool {
        self.linked.clone().wait_for(|linked| *linked).await.is_ok()
    }

    /// Waits until everything this edge started has ended: once it has drained, for `within` at most.
    ///
    /// # Errors
    /// Tasks that had not ended in time, or had panicked.
    pub async fn finished(self, within: Duration) -> Result<(), Unfinished> {
        self.tasks.finished(&self.clock, within).await
    }
}
