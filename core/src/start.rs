//! Starting a core: listeners, the driver's task, services, admin.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use presence_client::{ClientSettings, Crossing, Upstream};
use presence_model::id::RegionId;
use presence_runtime::admin::{self, Readiness};
use presence_runtime::clock::Clock;
use presence_runtime::network::Network;
use presence_runtime::rpc::{self, RequestObserver, ServerSettings};
use presence_runtime::shutdown::Shutdown;
use presence_runtime::telemetry::{Metrics, Rationed};
use presence_runtime::tls::{Door, ServerTls};
use presence_runtime::tokens::Verifier;
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::driver::{Driver, DriverSettings};
use crate::limits::{ANSWER_WITHIN, DRAIN_TOLD_EVERY, DRAIN_WINDOW_PART, LINKS_SAID};
use crate::metrics::{CoreMetrics, PeerMetrics};
use crate::service::{Api, Guard, routes};
use crate::settings::{PeerSettings, Settings};
use crate::shell::{Attached, DriverTask, Handle, PeerLines, PeerTask};
use crate::store::LeaseStore;

/// What a core uses of its process.
pub struct Deps {
    /// Time.
    pub clock: Clock,
    /// Sockets.
    pub network: Network,
    /// Counters.
    pub metrics: Metrics,
    /// Who a bearer is.
    pub verifier: Verifier,
    /// The certificates of the gRPC listener; none: it is plain.
    pub tls: Option<ServerTls>,
    /// Who may call it.
    pub access: Access,
    /// How cores of other regions are reached: with TLS one that knows whom to trust.
    pub peers: Network,
    /// Where leases are kept.
    pub store: Arc<dyn LeaseStore>,
    /// Ends this core.
    pub shutdown: Shutdown,
}

/// A core that accepts.
#[derive(Debug)]
pub struct Running {
    /// Where edges and services connect.
    pub grpc: SocketAddr,
    /// Where metrics and probes are.
    pub admin: Option<SocketAddr>,
    /// Whether it takes new work.
    pub readiness: Readiness,
    /// The way to what decides.
    pub handle: Handle,
    clock: Clock,
    tasks: Shutdown,
}

/// Why a core did not start.
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
    /// A defect: the descriptors do not load.
    #[error("reflection cannot be served: {0}")]
    Reflection(String),
    /// The address of a core of another region is not one.
    #[error("the cores of region {region} cannot be watched")]
    Peer {
        /// Which region.
        region: RegionId,
        /// Why.
        source: presence_client::ClientError,
    },
}

/// Starts a core. Returns once it accepts.
///
/// # Errors
/// [`StartError`].
pub async fn start(settings: Settings, deps: Deps) -> Result<Running, StartError> {
    let Deps { clock, network, metrics, verifier, tls, access, peers: peer_network, store, shutdown } = deps;
    let listen = |address| network.listen(address).map_err(|source| StartError::Listen { address, source });
    let grpc_listener = listen(settings.grpc)?;
    let admin_listener = settings.admin.map(listen).transpose()?;
    let grpc = grpc_listener.local_addr();
    let admin = admin_listener.as_ref().map(presence_runtime::network::Listener::local_addr);

    let readiness = Readiness::new();
    // What outlives the drain: the driver goes on until links and watches have moved.
    let last = CancellationToken::new();
    let refused = metrics.counter_vec(
        "presence_core_token_refusals_total",
        "Tokens that were refused, by reason",
        &["reason"],
    );
    let verifier = verifier.counting(refused, clock.clone());
    let core_metrics = Arc::new(CoreMetrics::new(&metrics));
    let (lines, peers) = watch_peers(&settings, (peer_network, &clock), &core_metrics.peers)?;
    let driver = driver(&settings, store.shards());
    let drain_within = settings.timings.drain_window / DRAIN_WINDOW_PART;
    let refusals = Arc::clone(&core_metrics.access);
    let (task, handle) = DriverTask::new(driver, store, clock.clone(), (core_metrics, verifier.clone()));
    let tasks = Shutdown::new();
    tasks.spawn("driver", task.with_peers(lines).run(last.clone()));
    for peer in peers {
        tasks.spawn("peer", peer.run(handle.clone(), last.clone()));
    }

    let streams = Shutdown::new();
    let api = Api {
        handle: handle.clone(),
        guard: Guard { access, verifier, refusals, clock: clock.clone(), handle: handle.clone() },
        shutdown: streams.clone(),
        regions: Arc::new(settings.regions),
        links_said: Arc::new(Rationed::new(LINKS_SAID)),
        answer_within: ANSWER_WITHIN,
    };
    let routes = routes(api).await.map_err(|error| StartError::Reflection(error.to_string()))?;
    let observer = RequestObserver::new("core", &metrics, clock.clone());
    let server_stop = CancellationToken::new();
    let serves = ServerSettings { connections_max: settings.connections_max, ..ServerSettings::default() };
    let door = Door::new(("core", "gRPC"), tls, &metrics, clock.clone());
    let serving = rpc::serve((grpc_listener, door), routes, serves, observer, server_stop.clone());
    tasks.spawn("grpc", async move {
        if let Err(error) = serving.await {
            tracing::error!(%error, "the gRPC server ended by itself");
        }
    });
    if let Some(listener) = admin_listener {
        tasks.spawn("admin", admin::serve(listener, metrics, readiness.clone(), clock.clone(), last.clone()));
    }
    readiness.ready();
    let ending = Ending {
        shutdown,
        readiness: readiness.clone(),
        handle: handle.clone(),
        drain_within,
        streams,
        server_stop,
        last,
    };
    tasks.spawn("ending", ending.run(clock.clone(), tasks.clone()));
    Ok(Running { grpc, admin, readiness, handle, clock, tasks })
}

fn driver(settings: &Settings, shards: u16) -> Driver {
    Driver::new(DriverSettings {
        region: settings.regions.own.clone(),
        edge_regions: settings.regions.of_edges.clone(),
        peers: settings.regions.peers.iter().map(|peer| peer.region.clone()).collect(),
        timings: settings.timings,
        classes: settings.classes.clone(),
        name: settings.name.as_str().into(),
        shards,
        holder: settings.seed.rotate_left(32),
        seed: settings.seed,
    })
    .with_arrivals(settings.arrivals)
}

/// The tasks that watch the cores of other regions, and the driver's way to them.
fn watch_peers(
    settings: &Settings,
    (network, clock): (Network, &Clock),
    metrics: &Arc<PeerMetrics>,
) -> Result<(PeerLines, Vec<PeerTask>), StartError> {
    let deps = presence_client::Deps { network, clock: clock.clone() };
    let (mut lines, mut tasks) = (PeerLines::default(), Vec::new());
    for (place, PeerSettings { region, cores }) in settings.regions.peers.iter().enumerate() {
        let client = ClientSettings::new(cores.clone(), settings.seed.wrapping_add(place as u64));
        let crossing = Crossing { from: settings.regions.own.clone(), to: region.clone() };
        let upstream = Upstream::new(&client, &deps, Some(crossing))
            .map_err(|source| StartError::Peer { region: region.clone(), source })?;
        metrics.begin(region);
        tasks.push(lines.add(region.clone(), upstream, Arc::clone(metrics)));
    }
    Ok((lines, tasks))
}

/// The order in which a core goes: readiness, links and watches, the server, the driver.
struct Ending {
    shutdown: Shutdown,
    readiness: Readiness,
    handle: Handle,
    drain_within: Duration,
    streams: Shutdown,
    server_stop: CancellationToken,
    last: CancellationToken,
}

impl Ending {
    async fn run(self, clock: Clock, tasks: Shutdown) {
        tokio::select! {
            biased;
            () = self.shutdown.token().cancelled_owned() => {}
            () = tasks.token().cancelled_owned() => self.shutdown.begin(),
        }
        self.readiness.draining();
        if self.handle.drain().await.is_ok() {
            // Edges that heard it link elsewhere meanwhile; renewals keep flowing until they have.
            wait_until_moved(&self.handle, &clock, self.drain_within).await;
        }
        self.streams.begin();
        self.server_stop.cancel();
        self.last.cancel();
        tasks.begin();
    }
}

/// Waits until nobody is attached any more, for `within` at most, and says how many still are.
async fn wait_until_moved(handle: &Handle, clock: &Clock, within: Duration) {
    let mut attached = handle.attached();
    let end = clock.now() + within;
    loop {
        let Attached { links, watches } = *attached.borrow_and_update();
        tracing::info!(links, watches, "draining");
        if links + watches == 0 || clock.now() >= end {
            return;
        }
        let gone = attached.wait_for(|attached| *attached == Attached::default());
        tokio::select! {
            biased;
            gone = gone => if gone.is_err() { return },
            () = clock.sleep(DRAIN_TOLD_EVERY.min(within)) => {}
        }
    }
}

impl Running {
    /// Waits until everything this core started has ended, after its shutdown began.
    ///
    /// # Errors
    /// Tasks that had not ended within `within`, or had panicked.
    pub async fn finished(self, within: Duration) -> Result<(), presence_runtime::shutdown::Unfinished> {
        self.tasks.finished(&self.clock, within).await
    }
}
