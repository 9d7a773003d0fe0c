//! `presence dev`: a core, an edge and a playground in one process, on loopback, with an embedded store.
//!
//! The core and the edge speak real gRPC to each other, as they would over a network. In front of the
//! edge stands a byte relay, so that a silent drop can be shown.

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
use tower::ServiceExt as _;

use self::relay::Cuts;
use self::routes::{DevState, DevTimers, router};
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

/// Where everything is.
struct Addresses {
    http: SocketAddr,
    grpc: SocketAddr,
    admin: SocketAddr,
}

async fn serve(settings: DevSettings) -> anyhow::Result<ExitCode> {
    let world = World {
        clock: Clock::system(),
        network: Network::tcp(),
        metrics: Metrics::new(),
        shutdown: Shutdown::new(),
        region: RegionId::new("local")?,
        timings: settings.timings,
    };
    descriptors::raise();
    world.shutdown.end_on_signals(Hangup::Ends)?;
    let keys = GeneratedKeys::from_seed(rand::random());
    let verifier = Verifier::new(KeySet::parse(keys.jwks().as_bytes())?);
    let issuer = Issuer::from_pem(keys.key_pem())?;

    // The core outlives the edge, so that the edge can say what it releases.
    let core_ends = Shutdown::new();
    let core = world.start_core(&settings, verifier.clone(), core_ends.clone()).await?;
    let cuts = Cuts::default();
    let front = world.front(issuer, &cuts);
    let edge = world.start_edge((core.grpc, settings.list_members), verifier, front)?;
    if !edge.linked().await {
        // Told to end before it had begun, or broken.
        edge.finished(END_WITHIN).await.context("the edge")?;
        core_ends.begin();
        core.finished(END_WITHIN).await.context("the core")?;
        return Ok(ExitCode::SUCCESS);
    }
    let listener = listen(&world.network, settings.listen)?;
    let addresses = Addresses {
        http: listener.local_addr(),
        grpc: core.grpc,
        admin: core.admin.unwrap_or(settings.admin),
    };
    let relay_ends = world.shutdown.child();
    let relayed = (world.network.clone(), world.clock.clone());
    relay_ends.spawn("relay", relay::run(listener, edge.listen, relayed, cuts, core_ends.token()));
    announce(&settings, &addresses)?;

    let told = world.shutdown.token();
    let stopping = async {
        told.cancelled().await;
        paint::hint("stopping: clients are told, and their sessions released");
        std::future::pending().await
    };
    // In this order: an edge without clients has ended by the time that anybody looks.
    let edge_end = tokio::select! {
        biased;
        never = stopping => match never {},
        end = edge.finished(END_WITHIN) => end,
    };
    // It may have gone by an operator's word: then so does all else.
    world.shutdown.begin();
    core_ends.begin();
    let core_end = core.finished(END_WITHIN).await;
    edge_end.context("the edge")?;
    core_end.context("the core")?;
    relay_ends.finished(&world.clock, END_WITHIN).await.context("the relay")?;
    paint::hint("stopped");
    Ok(ExitCode::SUCCESS)
}

fn listen(network: &Network, address: SocketAddr) -> anyhow::Result<Listener> {
    network.listen(address).with_context(|| format!("cannot listen on {address}"))
}

/// What both parts share.
struct World {
    clock: Clock,
    network: Network,
    metrics: Metrics,
    shutdown: Shutdown,
    region: RegionId,
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
        dev: &DevSettings,
        verifier: Verifier,
        shutdown: Shutdown,
    ) -> anyhow::Result<core::Running> {
        let memory = MemorySettings { seed: rand::random(), ..MemorySettings::default() };
        let settings = presence_core::settings::Settings {
            grpc: dev.grpc,
            admin: Some(dev.admin),
            region: self.region.clone(),
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
            region: self.region.clone(),
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

    fn front(&self, issuer: Issuer, cuts: &Cuts) -> Front {
        let timers = DevTimers {
            heartbeat_ms: millis(self.timings.heartbeat),
            lease_ttl_ms: millis(self.timings.lease_ttl),
            grace_ms: millis(self.timings.grace),
        };
        let state = DevState {
            issuer: Arc::new(issuer),
            cuts: cuts.clone(),
            clock: self.clock.clone(),
            tasks: self.shutdown.child(),
            timers,
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

fn announce(settings: &DevSettings, addresses: &Addresses) -> anyhow::Result<()> {
    let Addresses { http, grpc, admin } = addresses;
    if settings.json {
        let line = serde_json::json!({
            "ws": format!("ws://{http}{WS_PATH}"),
            "playground": format!("http://{http}/"),
            "grpc": grpc.to_string(),
            "admin": admin.to_string(),
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

  {}{}

Open the playground in two browser tabs, and in another terminal:

  cargo run --release -- watch lobby{core}

Ctrl-C ends it.",
        in_force(&settings.timings),
        of_classes(&settings.classes),
    ))?;
    Ok(())
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
