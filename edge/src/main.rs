//! `presence-edge`: a recipe. Everything it does is in the library.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use presence_edge::http::WS_PATH;
use presence_edge::settings::{Checked, Flags, LIVE_SETTINGS, Settings, WEBSOCKET, keys};
use presence_edge::start::{Deps, Running, start};
use presence_runtime::clock::Clock;
use presence_runtime::command_line::{parse_or_exit, refuse};
use presence_runtime::config::{LiveSettings, render};
use presence_runtime::descriptors;
use presence_runtime::exit;
use presence_runtime::network::Network;
use presence_runtime::rpc;
use presence_runtime::shutdown::{Hangup, Shutdown};
use presence_runtime::telemetry::{self, Metrics};
use presence_runtime::tls::{ClientTls, Protocol, ServerTls};
use presence_runtime::tokens::{KeySources, network_of};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How long everything may take to end after the drain.
const END_WITHIN: Duration = Duration::from_secs(5);
/// How long reading files may take to end after that.
const READERS_WITHIN: Duration = Duration::from_secs(1);

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
    let run = run(checked, &flags);
    let ended = tokio::runtime::Runtime::new().context("no runtime").and_then(|runtime| {
        let ended = runtime.block_on(run);
        // A file system that hangs holds up whoever reads, and is not waited for.
        runtime.shutdown_timeout(READERS_WITHIN);
        ended
    });
    match ended {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::from(exit::of_failure(error.chain()))
        }
    }
}

async fn run(checked: Checked, flags: &Flags) -> anyhow::Result<ExitCode> {
    let Checked { configuration, timings, region, edge, jwks, whence, tls, core_tls, exposure } = checked;
    for warning in timings.warnings() {
        tracing::warn!("{warning}");
    }
    let metrics = Metrics::new();
    warn_of_links_in_the_clear(&configuration.core);
    WEBSOCKET.tell(exposure, configuration.listen, ("edge", &metrics));
    descriptors::raise();
    let (clock, shutdown) = (Clock::system(), Shutdown::new());
    shutdown.end_on_signals(Hangup::Told)?;
    let followed = shutdown.child();
    let network =
        network_of(&jwks, configuration.jwks_ca.clone(), (&clock, &followed)).await.context("jwks_ca")?;
    let key_sources = KeySources::open(&jwks, &configuration.audience, (&network, &clock)).await?;
    let verifier = key_sources.verifier();
    followed.spawn("keys", key_sources.follow(clock.clone(), followed.token()));
    let network = match core_tls {
        None => Network::tcp(),
        Some(files) => {
            let opened = ClientTls::open_followed(files, Protocol::Http2, (&clock, &followed));
            let opened = opened.await.context("core_tls")?;
            opened.show(&metrics);
            Network::tcp().with_tls(opened)
        }
    };
    let tls = match tls {
        None => None,
        Some(files) => {
            let opened = ServerTls::open_followed(files, Protocol::Http1, (&clock, &followed));
            Some(opened.await.context("tls")?)
        }
    };
    let scheme = if tls.is_some() { "wss" } else { "ws" };
    let rendered = render(&keys(), &configuration);
    let settings = Settings {
        listen: configuration.listen,
        admin: Some(configuration.admin),
        origins: configuration.origins(),
        list_members: usize::try_from(configuration.list_members).context("list_members")?,
        limits: configuration.admission_limits(),
        whence,
        cores: configuration.core,
        region,
        edge,
        timings,
        seed: rand::random(),
    };
    let reading = clock.clone();
    let deps = Deps { clock, network, metrics, tls, verifier, shutdown, extra: None, observer: None };
    let running = start(settings, deps)?;
    let (file, again, limiter) = (flags.config.config.as_deref(), flags.clone(), running.limiter.clone());
    let live = LiveSettings::new(&LIVE_SETTINGS, &rendered, move || {
        let configuration = again.check(std::env::vars_os())?.configuration;
        limiter.set(configuration.admission_limits());
        Ok(render(&keys(), &configuration))
    });
    live.follow(file, (&reading, &followed)).await.map_err(anyhow::Error::msg)?;
    tracing::info!(listen = %running.listen, admin = running.admin.map(tracing::field::display), "the edge accepts");
    if flags.json && running.linked().await {
        let _ = print(&addresses(scheme, &running));
    }
    running.finished(END_WITHIN).await?;
    tracing::info!("the edge has ended");
    Ok(ExitCode::SUCCESS)
}

fn warn_of_links_in_the_clear(cores: &[String]) {
    for url in cores.iter().filter(|url| rpc::is_in_the_clear(url)) {
        tracing::warn!(
            "the link to {url} is not encrypted: whoever is on the way reads tokens and can say who is here; https \
             and core_ca protect it"
        );
    }
}

fn addresses(scheme: &str, running: &Running) -> String {
    let admin = running.admin.map(|address| address.to_string());
    serde_json::json!({ "ws": format!("{scheme}://{}{WS_PATH}", running.listen), "admin": admin }).to_string()
}

fn print(text: &str) -> ExitCode {
    use std::io::Write as _;
    match writeln!(std::io::stdout(), "{}", text.trim_end()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever asked has hung up.
        Err(_) => ExitCode::from(exit::TEMPORARY),
    }
}
