//! `presence dev`: a core, an edge and a playground in one process, on loopback, with an embedded store; for several
//! regions one of each.
//!
//! The core and the edge speak real gRPC to each other, as they would over a network. In front of the
//! edge stands a byte relay, so that a silent drop can be shown.

mod regions;
mod relay;
mod routes;
mod settings;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::body::Body as AxumBody;
use http_body_util::BodyExt as _;
use presence_core::driver::ArrivalLimits;
use presence_core::settings::Regions;
use presence_core::start as core;
use presence_core::store::memory::{MemorySettings, SharedMemoryStore};
use presence_edge::http::{AcceptObserver, ExtraHttp, WS_PATH};
use presence_edge::settings::{AdmissionLimits, Origins, Whence};
use presence_edge::start as edge;
use presence_model::class::{Class, Classes, RoomTimings};
use presence_model::id::{EdgeName, RegionId};
use presence_model::time::{millis, spoken};
use presence_model::timing::{Timings, TimingsGiven};
use presence_runtime::clock::Clock;
use presence_runtime::command_line::refuse;
use presence_runtime::descriptors;
use presence_runtime::network::{Listener, Network};
use presence_runtime::shutdown::{Hangup, Shutdown};
use presence_runtime::telemetry::{self, Metrics};
use presence_runtime::tokens::{GeneratedKeys, Issuer, KeySet, Verifier};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use self::regions::{Ways, any_port};
use self::relay::{Cuts, RegionCut};
use self::routes::{DevRegions, DevState, DevTimers, router};
use self::settings::DevSettings;
use crate::args::DevArgs;
use crate::paint;

/// How long core and edge may take to end.
const END_WITHIN: Duration = Duration::from_secs(10);
/// A desk has no more.
const CONNECTIONS_MAX: usize = 10_000;

/// Runs until a signal.
pub(crate) fn run(args: DevArgs) -> anyhow::Result<ExitCode> {
    let settings = match DevSettings::check(&args, std::env::vars_os()) {
        Ok(settings) => settings,
        Err(mistakes) => return Ok(refuse(&mistakes)),
    };
    if args.config.print_config || args.config.check {
        let good = "the configuration is good";
        paint::line(if args.config.print_config { settings.shown.trim_end() } else { good })?;
        return Ok(ExitCode::SUCCESS);
    }
    // The addresses are to be read.
    if let Err(bad) = telemetry::install(&args.logs.quiet(), &Clock::system()) {
        return Ok(refuse(&bad));
    }
    tokio::runtime::Runtime::new()?.block_on(serve(settings))
}

async fn serve(settings: DevSettings) -> anyhow::Result<ExitCode> {
    descriptors::raise();
    let (clock, network, shutdown) = (Clock::system(), Network::tcp(), Shutdown::new());
    shutdown.end_on_signals(Hangup::Ends)?;
    let keys = GeneratedKeys::from_seed(rand::random());
    let verifier = Verifier::new(KeySet::parse(keys.jwks().as_bytes())?);
    let issuer = Arc::new(Issuer::from_pem(keys.key_pem())?);
    let ways = Ways::between(&settings.regions, &network)?;
    let front_doors = front_doors(&settings, &network)?;
    let playgrounds =
        settings.regions.iter().cloned().zip(front_doors.iter().map(Listener::local_addr)).collect();
    let regions = Arc::new(DevRegions { playgrounds, cut: RegionCut::new() });
    let world = |place: usize| World {
        clock: clock.clone(),
        network: network.clone(),
        metrics: Metrics::new(),
        shutdown: shutdown.clone(),
        known: ways.known_at(place),
        regions: Arc::clone(&regions),
        timings: settings.timings,
    };

    // Cores outlive the edges, so that those can say what they release.
    let core_ends = Shutdown::new();
    let (mut cores, mut edges, mut all_cuts) = (Vec::new(), Vec::new(), Vec::new());
    for place in 0..settings.regions.len() {
        let (world, cuts) = (world(place), Cuts::default());
        let core = world.start_core((&settings, place), verifier.clone(), core_ends.clone()).await?;
        let front = world.front(Arc::clone(&issuer), &cuts);
        edges.push(world.start_edge((core.grpc, settings.list_members), verifier.clone(), front)?);
        cores.push(core);
        all_cuts.push(cuts);
    }
    let relay_ends = shutdown.child();
    let addresses: Vec<SocketAddr> = cores.iter().map(|core| core.grpc).collect();
    ways.carry(&addresses, (&network, &regions.cut), &relay_ends, &core_ends.token());
    let mut is_linked = true;
    for edge in &edges {
        is_linked &= edge.linked().await;
    }
    // If not, told to end before it had begun, or broken.
    if is_linked {
        for ((listener, edge), cuts) in front_doors.into_iter().zip(&edges).zip(all_cuts) {
            let relayed = (network.clone(), clock.clone());
            relay_ends.spawn("relay", relay::run(listener, edge.listen, relayed, cuts, core_ends.token()));
        }
        announce(&settings, &cores[0], &regions)?;
    }
    let edge_ends = edges_ended(edges, shutdown.token(), is_linked).await;
    // It may have gone by an operator's word: then so does all else.
    shutdown.begin();
    core_ends.begin();
    for core in cores {
        core.finished(END_WITHIN).await.context("the core")?;
    }
    edge_ends.into_iter().collect::<anyhow::Result<Vec<()>>>()?;
    relay_ends.finished(&clock, END_WITHIN).await.context("the relay")?;
    if is_linked {
        paint::hint("stopped");
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for the end of all edges, and says when they are told to.
async fn edges_ended(
    edges: Vec<edge::Running>,
    told: CancellationToken,
    says: bool,
) -> Vec<anyhow::Result<()>> {
    let stopping = async {
        told.cancelled().await;
        if says {
            paint::hint("stopping: clients are told, and their sessions released");
        }
        std::future::pending().await
    };
    // In this order: an edge without clients has ended by the time that anybody looks.
    let ends = async {
        let mut ends = Vec::new();
        for edge in edges {
            ends.push(edge.finished(END_WITHIN).await.context("the edge"));
        }
        ends
    };
    tokio::select! {
        biased;
        never = stopping => match never {},
        ends = ends => ends,
    }
}

/// Where browsers come in: of the first region as it was told, of further ones ten ports on each.
fn front_doors(settings: &DevSettings, network: &Network) -> anyhow::Result<Vec<Listener>> {
    let door = |place: u16| {
        let mut address = settings.listen;
        let port = if address.port() == 0 { 0 } else { address.port().saturating_add(10 * place) };
        address.set_port(port);
        listen(network, address)
    };
    (0_u16..).zip(&settings.regions).map(|(place, _)| door(place)).collect()
}

fn listen(network: &Network, address: SocketAddr) -> anyhow::Result<Listener> {
    network.listen(address).with_context(|| format!("cannot listen on {address}"))
}

/// What both parts of a region share.
struct World {
    clock: Clock,
    network: Network,
    metrics: Metrics,
    shutdown: Shutdown,
    known: Regions,
    regions: Arc<DevRegions>,
    timings: Timings,
}

/// What `dev` adds to an edge.
struct Front {
    extra: ExtraHttp,
    observer: AcceptObserver,
}

impl World {
    async fn start_core(
        &self,
        (dev, place): (&DevSettings, usize),
        verifier: Verifier,
        shutdown: Shutdown,
    ) -> anyhow::Result<core::Running> {
        let memory = MemorySettings { seed: rand::random(), ..MemorySettings::default() };
        let settings = presence_core::settings::Settings {
            grpc: if place == 0 { dev.grpc } else { any_port() },
            admin: (place == 0).then_some(dev.admin),
            regions: self.known.clone(),
            name: "dev".to_owned(),
            connections_max: CONNECTIONS_MAX,
            arrivals: ArrivalLimits::default(),
            timings: self.timings,
            classes: dev.classes.clone(),
            seed: rand::random(),
        };
        let deps = core::Deps {
            clock: self.clock.clone(),
            network: self.network.clone(),
            peers: self.network.clone(),
            metrics: self.metrics.clone(),
            tls: None,
            access: presence_core::access::Access::Anybody,
            verifier,
            store: Arc::new(SharedMemoryStore::new(memory, self.clock.clone())),
            shutdown,
        };
        Ok(core::start(settings, deps).await?)
    }

    fn start_edge(
        &self,
        (core, list_members): (SocketAddr, usize),
        verifier: Verifier,
        front: Front,
    ) -> anyhow::Result<edge::Running> {
        let settings = presence_edge::settings::Settings {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            admin: None,
            cores: vec![format!("http://{core}")],
            region: self.known.own.clone(),
            edge: EdgeName::new("dev")?,
            timings: self.timings,
            origins: Origins::SameHost,
            list_members,
            limits: AdmissionLimits::of(CONNECTIONS_MAX),
            whence: Whence::default(),
            seed: rand::random(),
        };
        let deps = edge::Deps {
            clock: self.clock.clone(),
            network: self.network.clone(),
            metrics: self.metrics.clone(),
            tls: None,
            verifier,
            shutdown: self.shutdown.child(),
            extra: Some(front.extra),
            observer: Some(front.observer),
        };
        Ok(edge::start(settings, deps)?)
    }

    fn front(&self, issuer: Arc<Issuer>, cuts: &Cuts) -> Front {
        let timers = DevTimers {
            heartbeat_ms: millis(self.timings.heartbeat),
            lease_ttl_ms: millis(self.timings.lease_ttl),
            grace_ms: millis(self.timings.grace),
        };
        let state = DevState {
            issuer,
            cuts: cuts.clone(),
            clock: self.clock.clone(),
            tasks: self.shutdown.child(),
            timers,
            regions: Arc::clone(&self.regions),
            own: self.known.own.clone(),
        };
        let routes = router(state);
        let told = cuts.clone();
        let observer = AcceptObserver::new(move |connection, from| told.accepted(connection, from));
        let extra = ExtraHttp::new(move |request| {
            let routes = routes.clone();
            async move {
                let response = routes.oneshot(request.map(AxumBody::new)).await;
                let response = response.unwrap_or_else(|never| match never {});
                response.map(|body| body.map_err(std::io::Error::other).boxed_unsync())
            }
        });
        Front { extra, observer }
    }
}

fn announce(settings: &DevSettings, first: &core::Running, regions: &DevRegions) -> anyhow::Result<()> {
    let (grpc, admin) = (first.grpc, first.admin.unwrap_or(settings.admin));
    let (_, http) = &regions.playgrounds[0];
    if settings.json {
        let line = serde_json::json!({
            "ws": format!("ws://{http}{WS_PATH}"),
            "playground": format!("http://{http}/"),
            "grpc": grpc.to_string(),
            "admin": admin.to_string(),
            "regions": regions.playgrounds.iter().map(|(region, at)| serde_json::json!({
                "region": region.as_str(),
                "ws": format!("ws://{at}{WS_PATH}"),
                "playground": format!("http://{at}/"),
            })).collect::<Vec<_>>(),
        });
        paint::line(&line.to_string())?;
        return Ok(());
    }
    let core = if grpc.port() == 4701 { String::new() } else { format!(" --core http://{grpc}") };
    paint::line(&format!(
        "presence dev: everything runs in this process and ends with it

  playground   http://{http}/
  WebSocket    ws://{http}{WS_PATH}
  gRPC         http://{grpc}
  metrics      http://{admin}/metrics
{}
  {}{}

Open the playground in two browser tabs, and in another terminal:

  cargo run --release -- watch lobby{core}

Ctrl-C ends it.",
        of_regions(regions),
        in_force(&settings.timings),
        of_classes(&settings.classes),
    ))?;
    Ok(())
}

/// Where the playgrounds of further regions are, a line each.
fn of_regions(regions: &DevRegions) -> String {
    let line = |(region, at): &(RegionId, SocketAddr)| format!("  in {region}: http://{at}/\n");
    match &regions.playgrounds[..] {
        [_] => String::new(),
        several => format!("\n{}", several.iter().map(line).collect::<String>()),
    }
}

/// The timers of rooms that have their own, a line each.
fn of_classes(classes: &Classes) -> String {
    let line = |Class { name, pattern, timings }: &Class| {
        let RoomTimings { heartbeat, lease_ttl, grace } = *timings;
        let [heartbeat, lease, grace] = [heartbeat, lease_ttl, grace].map(spoken);
        format!(
            "\n  class {name}, rooms {}: heartbeat {heartbeat}, lease {lease}, grace {grace}",
            pattern.as_str()
        )
    };
    classes.iter().map(line).collect()
}

/// The timers, and why they are what they are.
fn in_force(timings: &Timings) -> String {
    let spans = |timings: &Timings| [timings.heartbeat, timings.lease_ttl, timings.grace];
    let shown = |timings| spans(timings).map(spoken);
    let [heartbeat, lease, grace] = shown(timings);
    let line = format!("heartbeat {heartbeat}, lease {lease}, grace {grace}");
    let Ok(usual) = Timings::derive(TimingsGiven::default()) else { return line };
    if spans(timings).iter().zip(spans(&usual)).any(|(here, there)| *here >= there) {
        return line;
    }
    let [heartbeat, lease, grace] = shown(&usual);
    let why = format!("shorter than in production ({heartbeat}, {lease}, {grace}), so that things happen");
    format!("{line}: {why}\n  while you watch")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(heartbeat_ms: u64, lease_ms: u64) -> String {
        let given = TimingsGiven {
            heartbeat: Some(Duration::from_millis(heartbeat_ms)),
            lease_ttl: Some(Duration::from_millis(lease_ms)),
            ..TimingsGiven::DEMO
        };
        in_force(&Timings::derive(given).unwrap())
    }

    #[test]
    fn timers_are_told_as_they_are() {
        let demo = in_force(&Timings::derive(TimingsGiven::DEMO).unwrap());
        assert!(
            demo.starts_with("heartbeat 3s, lease 12s, grace 5s: shorter than in production (15s, 45s, 12s)"),
            "{demo}"
        );
        let long = told(20_000, 60_000);
        assert_eq!(long, "heartbeat 20s, lease 1m, grace 5s");
    }
}
