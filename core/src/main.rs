//! `presence-core`: a recipe. Everything it does is in the library.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use presence_core::settings::{Checked, Flags, Settings, keys};
use presence_core::start::{Deps, start};
use presence_core::store::memory::{MemorySettings, SharedMemoryStore, Upheaval};
use presence_runtime::clock::Clock;
use presence_runtime::command_line::{parse_or_exit, refuse};
use presence_runtime::config::render;
use presence_runtime::network::Network;
use presence_runtime::shutdown::Shutdown;
use presence_runtime::telemetry::{self, Metrics};
use presence_runtime::tokens::KeyFile;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How long everything may take to end after the drain.
const END_WITHIN: Duration = Duration::from_secs(10);

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
    if flags.config.check {
        return print("the configuration is good");
    }
    if let Err(bad) = telemetry::install(&flags.logs, &Clock::system()) {
        return refuse(&bad);
    }
    let run = run(checked, flags.json);
    match tokio::runtime::Runtime::new().context("no runtime").and_then(|runtime| runtime.block_on(run)) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::from(presence_runtime::exit::TEMPORARY)
        }
    }
}

async fn run(checked: Checked, json: bool) -> anyhow::Result<ExitCode> {
    let Checked { configuration, timings, region, jwks } = checked;
    let keys = KeyFile::open(&jwks).await.with_context(|| format!("jwks = {}", jwks.display()))?;
    for warning in timings.warnings() {
        tracing::warn!("{warning}");
    }
    if configuration.insecure {
        tracing::warn!("insecure: anybody who reaches {} is trusted", configuration.grpc);
    }
    let (clock, shutdown) = (Clock::system(), Shutdown::new());
    shutdown.end_on_signals()?;
    let verifier = keys.verifier();
    let followed = shutdown.child();
    followed.spawn("keys", keys.follow(clock.clone(), followed.token()));
    let settings = Settings {
        grpc: configuration.grpc,
        admin: Some(configuration.admin),
        region,
        name: configuration.name,
        timings,
        seed: rand::random(),
    };
    let memory = MemorySettings { seed: rand::random(), ..MemorySettings::default() };
    let store = SharedMemoryStore::new(memory, clock.clone());
    // Whoever was here before this process started is not in memory any more: their edges bring them back
    // within the hold that a changed store starts, and nobody is announced as gone meanwhile.
    store.suffer(Upheaval::RestartEmpty);
    let deps = Deps {
        store: Arc::new(store),
        clock,
        network: Network::tcp(),
        metrics: Metrics::new(),
        verifier,
        shutdown,
    };
    let running = start(settings, deps).await?;
    tracing::info!(grpc = %running.grpc, admin = running.admin.map(tracing::field::display), "the core accepts");
    if json {
        let admin = running.admin.map(|address| address.to_string());
        let _ = print(&serde_json::json!({ "grpc": running.grpc.to_string(), "admin": admin }).to_string());
    }
    running.finished(END_WITHIN).await?;
    tracing::info!("the core has ended");
    Ok(ExitCode::SUCCESS)
}

fn print(text: &str) -> ExitCode {
    use std::io::Write as _;
    match writeln!(std::io::stdout(), "{}", text.trim_end()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever asked has hung up.
        Err(_) => ExitCode::from(presence_runtime::exit::TEMPORARY),
    }
}
