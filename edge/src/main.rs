//! `presence-edge`: a recipe. Everything it does is in the library.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use presence_edge::http::WS_PATH;
use presence_edge::settings::{Configuration, Flags, Settings, keys};
use presence_edge::start::{Deps, Running, start};
use presence_model::id::{EdgeName, RegionId};
use presence_model::timing::Timings;
use presence_runtime::clock::Clock;
use presence_runtime::command_line::{parse_or_exit, refuse};
use presence_runtime::config::Shown;
use presence_runtime::exposure::{Protection, require_loopback_unless};
use presence_runtime::network::Network;
use presence_runtime::shutdown::Shutdown;
use presence_runtime::telemetry::{self, Metrics};
use presence_runtime::tokens::KeyFile;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How long everything may take to end after the drain.
const END_WITHIN: Duration = Duration::from_secs(5);

/// A configuration whose words are checked.
struct Checked {
    configuration: Configuration,
    timings: Timings,
    region: RegionId,
    edge: EdgeName,
    jwks: PathBuf,
}

fn main() -> ExitCode {
    let flags: Flags = parse_or_exit();
    let (configuration, timings) = match flags.load(std::env::vars_os()) {
        Ok(loaded) => loaded,
        Err(mistakes) => return refuse(&mistakes),
    };
    if flags.config.print_config
        && let Shown::Text(text) = flags.config.shown(&keys(), &configuration)
    {
        return print(&text);
    }
    let checked = match check(configuration, timings) {
        Ok(checked) => checked,
        Err(mistakes) => return refuse(&mistakes),
    };
    // Whoever asks for a check wants the answer alone.
    let logs = if flags.config.check { flags.logs.quiet() } else { flags.logs.clone() };
    if let Err(bad) = telemetry::install(&logs, &Clock::system()) {
        return refuse(&bad);
    }
    let run = run(checked, &flags);
    match tokio::runtime::Runtime::new().context("no runtime").and_then(|runtime| runtime.block_on(run)) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::from(presence_runtime::exit::TEMPORARY)
        }
    }
}

/// What needs more than one value, or the words of the model. All mistakes at once, one line each.
fn check(configuration: Configuration, timings: Timings) -> Result<Checked, String> {
    let mut mistakes = Vec::new();
    let region = RegionId::new(&configuration.region);
    let edge = EdgeName::new(&configuration.edge);
    for mistake in [region.as_ref().err(), edge.as_ref().err()].into_iter().flatten() {
        mistakes.push(mistake.to_string());
    }
    if configuration.core.is_empty() {
        mistakes.push("core = []: must name a core; example: core = [\"http://127.0.0.1:4701\"]".to_owned());
    }
    mistakes.extend(configuration.mistaken_origins().map(|origin| {
        format!(
            "origins: {origin:?} is the origin of no page: scheme://host, small letters, a port only if it is not \
             the scheme's own, or * for all; example: https://app.example"
        )
    }));
    let protection = if configuration.insecure { Protection::Insecure } else { Protection::Missing };
    if let Err(exposed) =
        require_loopback_unless(protection, configuration.listen, "the WebSocket listener", "TLS")
    {
        mistakes.push(exposed.to_string());
    }
    if configuration.jwks.is_none() {
        mistakes.push(
            "jwks is not set: give the keys that verify tokens with --jwks FILE; `presence keys DIR` makes a pair"
                .to_owned(),
        );
    }
    match (region, edge, configuration.jwks.clone()) {
        (Ok(region), Ok(edge), Some(jwks)) if mistakes.is_empty() => {
            Ok(Checked { configuration, timings, region, edge, jwks })
        }
        _ => Err(mistakes.join("\n")),
    }
}

async fn run(checked: Checked, flags: &Flags) -> anyhow::Result<ExitCode> {
    let Checked { configuration, timings, region, edge, jwks } = checked;
    let key_file = match KeyFile::open(&jwks).await {
        Ok(key_file) => key_file,
        Err(error) => return Ok(refuse(&format!("jwks = {}: {error}", jwks.display()))),
    };
    if let Shown::Text(text) = flags.config.shown(&keys(), &configuration) {
        return Ok(print(&text));
    }
    for warning in timings.warnings() {
        tracing::warn!("{warning}");
    }
    if configuration.insecure {
        tracing::warn!("insecure: whoever is on the way to {} can read tokens", configuration.listen);
    }
    let (clock, shutdown) = (Clock::system(), Shutdown::new());
    shutdown.end_on_signals()?;
    let verifier = key_file.verifier();
    let followed = shutdown.child();
    followed.spawn("keys", key_file.follow(clock.clone(), followed.token()));
    let settings = Settings {
        listen: configuration.listen,
        admin: Some(configuration.admin),
        origins: configuration.origins(),
        connections_max: usize::try_from(configuration.connections_max).context("connections_max")?,
        cores: configuration.core,
        region,
        edge,
        timings,
        seed: rand::random(),
    };
    let deps = Deps {
        clock,
        network: Network::tcp(),
        metrics: Metrics::new(),
        verifier,
        shutdown,
        extra: None,
        observer: None,
    };
    let running = start(settings, deps)?;
    tracing::info!(listen = %running.listen, "the edge accepts");
    if flags.json && running.linked().await {
        let _ = print(&addresses(&running));
    }
    running.finished(END_WITHIN).await?;
    tracing::info!("the edge has ended");
    Ok(ExitCode::SUCCESS)
}

fn addresses(running: &Running) -> String {
    let admin = running.admin.map(|address| address.to_string());
    serde_json::json!({ "ws": format!("ws://{}{WS_PATH}", running.listen), "admin": admin }).to_string()
}

fn print(text: &str) -> ExitCode {
    use std::io::Write as _;
    match writeln!(std::io::stdout(), "{}", text.trim_end()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever asked has hung up.
        Err(_) => ExitCode::from(presence_runtime::exit::TEMPORARY),
    }
}
