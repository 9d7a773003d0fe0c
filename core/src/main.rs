//! `presence-core`: a recipe. Everything it does is in the library.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use presence_core::access::{Access, PeersFile};
use presence_core::limits::LAYOUT_REFRESH;
use presence_core::settings::{Checked, Flags, GRPC, LIVE_SETTINGS, PeerSettings, Settings, keys};
use presence_core::shell::Handle as CoreHandle;
use presence_core::start::{Deps, start};
use presence_core::store::LeaseStore;
use presence_core::store::memory::{MemorySettings, SharedMemoryStore, Upheaval};
use presence_core::store::redis::{RedisRefusal, RedisSettings, RedisStore};
use presence_runtime::clock::Clock;
use presence_runtime::command_line::{parse_or_exit, refuse};
use presence_runtime::config::{LiveSettings, Mistakes, render};
use presence_runtime::descriptors::{self, Budget};
use presence_runtime::exit;
use presence_runtime::network::Network;
use presence_runtime::rpc;
use presence_runtime::shutdown::{Hangup, Shutdown};
use presence_runtime::telemetry::{self, Metrics};
use presence_runtime::tls::{ClientFiles, ClientTls, Protocol, ServerTls};
use presence_runtime::tokens::{KeySources, network_of};
use tokio::runtime::Handle;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How long everything may take to end after the drain.
const END_WITHIN: Duration = Duration::from_secs(10);
/// How long reading files may take to end after that.
const READERS_WITHIN: Duration = Duration::from_secs(1);
/// Between two looks for a store that is not there yet: an orchestrator starts both at once.
const STORE_AGAIN: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let flags: Flags = parse_or_exit();
    if flags.config.print_config {
        return match flags.load(std::env::vars_os()) {
            Ok((configuration, _)) => print(&render(&keys(), &configuration)),
            Err(mistakes) => refuse(&mistakes),
        };
    }
    let checked = match flags.check(std::env::vars_os()) {
        Ok(checked) => checked,
        Err(mistakes) => return refuse(&mistakes),
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            // Threads or descriptors are short, which is nobody's mistake.
            let _ = refuse(&format!("no runtime: {error}"));
            return ExitCode::from(exit::TEMPORARY);
        }
    };
    if flags.config.check {
        return runtime.block_on(check_store(checked.store));
    }
    if let Err(bad) = telemetry::install(&flags.logs, &Clock::system()) {
        return refuse(&bad);
    }
    let ended = runtime.block_on(run(checked, &flags));
    // A file system that hangs holds up whoever reads, and is not waited for.
    runtime.shutdown_timeout(READERS_WITHIN);
    match ended {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::from(exit::of_failure(error.chain()))
        }
    }
}

async fn run(checked: Checked, flags: &Flags) -> anyhow::Result<ExitCode> {
    let Checked { configuration, timings, classes, regions, jwks, tls, peers, core_tls, exposure, store } =
        checked;
    for warning in timings.warnings().into_iter().chain(classes.warnings()) {
        tracing::warn!("{warning}");
    }
    let metrics = Metrics::new();
    GRPC.tell(exposure, configuration.grpc, ("core", &metrics));
    descriptors::raise();
    let (clock, shutdown) = (Clock::system(), Shutdown::new());
    shutdown.end_on_signals(Hangup::Told)?;
    let followed = shutdown.child();
    let network =
        network_of(&jwks, configuration.jwks_ca.clone(), (&clock, &followed)).await.context("jwks_ca")?;
    let key_sources = KeySources::open(&jwks, &configuration.audience, (&network, &clock)).await?;
    let tls = match tls {
        None => None,
        Some(files) => {
            let opened = ServerTls::open_followed(files, Protocol::Http2, (&clock, &followed));
            Some(opened.await.context("tls")?)
        }
    };
    warn_of_peers_in_the_clear(&regions.peers);
    let peer_network = to_peers(core_tls, &metrics, (&clock, &followed)).await?;
    let access = access(peers, (&clock, &followed)).await?;
    let misfit = Arc::new(OnceLock::new());
    let store: Arc<dyn LeaseStore> = match store {
        None => memory_store(&clock),
        Some(settings) => match open_redis(settings, &clock, &shutdown).await {
            Ok(store) => {
                let (told, shutdown) = (Arc::clone(&misfit), shutdown.clone());
                followed.spawn("layout", follow_layout(store.clone(), clock.clone(), shutdown, told));
                Arc::new(store)
            }
            Err(code) => return Ok(code),
        },
    };
    let verifier = key_sources.verifier();
    followed.spawn("keys", key_sources.follow(clock.clone(), followed.token()));
    let rendered = render(&keys(), &configuration);
    let reading = clock.clone();
    let settings = Settings {
        arrivals: configuration.arrival_limits(),
        grpc: configuration.grpc,
        admin: Some(configuration.admin),
        regions,
        name: configuration.name,
        connections_max: descriptors::budget(Budget {
            connections: usize::try_from(configuration.connections_max)?,
            arriving: 0,
        })
        .connections,
        timings,
        classes,
        seed: rand::random(),
    };
    let (network, peers) = (Network::tcp(), peer_network);
    let deps = Deps { store, clock, network, peers, metrics, verifier, tls, access, shutdown };
    let running = start(settings, deps).await?;
    let live = live_settings(flags, &rendered, running.handle.clone());
    live.follow(flags.config.config.as_deref(), (&reading, &followed)).await.map_err(anyhow::Error::msg)?;
    tracing::info!(grpc = %running.grpc, admin = running.admin.map(tracing::field::display), "the core accepts");
    if flags.json {
        let admin = running.admin.map(|address| address.to_string());
        let _ = print(&serde_json::json!({ "grpc": running.grpc.to_string(), "admin": admin }).to_string());
    }
    running.finished(END_WITHIN).await?;
    tracing::info!("the core has ended");
    Ok(misfit.get().map_or(ExitCode::SUCCESS, refuse))
}

/// What takes effect without a restart.
fn live_settings(
    flags: &Flags,
    rendered: &str,
    core: CoreHandle,
) -> LiveSettings<impl FnMut() -> Result<String, Mistakes> + Send + 'static> {
    let (flags, runtime) = (flags.clone(), Handle::current());
    LiveSettings::new(&LIVE_SETTINGS, rendered, move || {
        let configuration = flags.check(std::env::vars_os())?.configuration;
        let (core, limits) = (core.clone(), configuration.arrival_limits());
        // If the core is gone, nobody arrives.
        runtime.spawn(async move { core.limit_arrivals(limits).await.ok() });
        Ok(render(&keys(), &configuration))
    })
}

/// The way to cores of other regions.
fn warn_of_peers_in_the_clear(peers: &[PeerSettings]) {
    for url in peers.iter().flat_map(|peer| &peer.cores).filter(|url| rpc::is_in_the_clear(url)) {
        tracing::warn!(
            "the way to {url} is not encrypted: whoever is on it reads who is where, and can say so in its place; https \
             and core_ca protect it"
        );
    }
}

async fn to_peers(
    files: Option<ClientFiles>,
    metrics: &Metrics,
    following: (&Clock, &Shutdown),
) -> anyhow::Result<Network> {
    let Some(files) = files else { return Ok(Network::tcp()) };
    let tls = ClientTls::open_followed(files, Protocol::Http2, following).await.context("core_tls")?;
    tls.show(metrics);
    Ok(Network::tcp().with_tls(tls))
}

/// Whom this core lets in.
async fn access(peers: Option<PathBuf>, following: (&Clock, &Shutdown)) -> anyhow::Result<Access> {
    let Some(path) = peers else { return Ok(Access::Anybody) };
    let file = PeersFile::open(&path).await.with_context(|| format!("peers = {}", path.display()))?;
    Ok(Access::follow(file, following))
}

/// Ends the core when the store's data are laid out otherwise than it was told: to go on would split rooms in two.
async fn follow_layout(
    store: RedisStore,
    clock: Clock,
    shutdown: Shutdown,
    told: Arc<OnceLock<RedisRefusal>>,
) {
    let over = shutdown.token();
    tokio::select! {
        biased;
        () = over.cancelled() => {}
        refusal = store.keep_layout(&clock, LAYOUT_REFRESH) => {
            tracing::error!("{refusal}; another core has laid out its data anew: this one ends");
            let _ = told.set(refusal);
            shutdown.begin();
        }
    }
}

/// The answer to `--check`, once all else is good: whether this core would start on its store.
async fn check_store(store: Option<RedisSettings>) -> ExitCode {
    let Some(settings) = store else { return print("the configuration is good") };
    match RedisStore::check(&settings).await {
        Ok(()) => print("the configuration is good, and so is the store"),
        Err(refusal) => {
            let useless = refuse(&refusal);
            if refusal.is_temporary() { ExitCode::from(exit::TEMPORARY) } else { useless }
        }
    }
}

fn memory_store(clock: &Clock) -> Arc<dyn LeaseStore> {
    let memory = MemorySettings { seed: rand::random(), ..MemorySettings::default() };
    let store = SharedMemoryStore::new(memory, clock.clone());
    // Whoever was here before this process started is not in memory any more: their edges bring them
    // back within the hold that a changed store starts, and nobody is announced as gone meanwhile.
    store.suffer(Upheaval::RestartEmpty);
    Arc::new(store)
}

/// The store that the settings name. One that cannot be reached yet is waited for.
async fn open_redis(
    settings: RedisSettings,
    clock: &Clock,
    shutdown: &Shutdown,
) -> Result<RedisStore, ExitCode> {
    let settings = RedisSettings { seed: rand::random(), ..settings };
    let over = shutdown.token();
    loop {
        match RedisStore::connect(settings.clone()).await {
            Ok(store) => return Ok(store),
            Err(refusal) if refusal.is_temporary() => tracing::warn!("{refusal}; trying again"),
            Err(refusal) => return Err(refuse(&refusal)),
        }
        tokio::select! {
            biased;
            () = clock.sleep(STORE_AGAIN) => {}
            () = over.cancelled() => return Err(ExitCode::SUCCESS),
        }
    }
}

fn print(text: &str) -> ExitCode {
    use std::io::Write as _;
    match writeln!(std::io::stdout(), "{}", text.trim_end()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever asked has hung up.
        Err(_) => ExitCode::from(exit::TEMPORARY),
    }
}
