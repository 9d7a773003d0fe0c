//! Asking a core that runs elsewhere.

use std::process::ExitCode;

use anyhow::Context as _;
use presence_client::{Bearer, Client, ClientError, ClientSettings, Deps};
use presence_model::replica::Freshness;
use presence_runtime::clock::Clock;
use presence_runtime::network::Network;
use presence_runtime::rpc;
use presence_runtime::shutdown::{Hangup, Shutdown};
use presence_runtime::tls::{ClientTls, Protocol};
use serde_json::{Value, json};
use tokio::runtime::Builder;

use crate::args::CoreArgs;
use crate::outcome::Mistake;

/// Runs something that asks, in a runtime of its own.
pub(crate) fn with_client<T, F>(core: &CoreArgs, ask: impl FnOnce(Client) -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let bearer = bearer(core)?;
        let settings = ClientSettings { bearer, ..ClientSettings::new(core.core.clone(), rand::random()) };
        let deps = Deps { network: network(core)?, clock: Clock::system() };
        ask(Client::new(settings, deps)?).await.map_err(|error| name_core(error, &core.core))
    })
}

/// The token to show, if there is one; that its file can be read is found out before anybody is asked.
fn bearer(core: &CoreArgs) -> anyhow::Result<Bearer> {
    let Some(path) = &core.token else { return Ok(Bearer::Nobody) };
    std::fs::read_to_string(path).with_context(|| Mistake(format!("--token {}", path.display())))?;
    Ok(Bearer::File(path.clone()))
}

/// Speaks TLS if a core does.
fn network(core: &CoreArgs) -> anyhow::Result<Network> {
    let network = Network::tcp();
    if !core.core.iter().any(|url| rpc::is_tls(url)) {
        return Ok(network);
    }
    let tls = ClientTls::read(&core.files(), Protocol::Http2);
    Ok(network.with_tls(tls.map_err(|bad| Mistake(bad.to_string()))?))
}

/// The same for what takes long: until it is told to end by a signal, then at once with the code of `told`.
pub(crate) fn with_client_until_told<F>(
    core: CoreArgs,
    told: impl FnOnce() -> ExitCode,
    ask: impl FnOnce(Client) -> F + Send + 'static,
) -> anyhow::Result<ExitCode>
where
    F: Future<Output = anyhow::Result<ExitCode>>,
{
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let shutdown = Shutdown::new();
        shutdown.end_on_signals(Hangup::Ends)?;
        // On a thread of its own: it may be stuck in writing to a pipe that nobody reads.
        let asking = tokio::task::spawn_blocking(move || with_client(&core, ask));
        tokio::select! {
            biased;
            () = shutdown.token().cancelled_owned() => Ok(told()),
            done = asking => done.unwrap_or_else(|ended| std::panic::resume_unwind(ended.into_panic())),
        }
    });
    runtime.shutdown_background();
    done
}

/// What the transport says of a peer that is no core, or of nobody, helps no one by itself.
fn name_core(error: anyhow::Error, asked: &[String]) -> anyhow::Error {
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Unreachable(_) | ClientError::TimedOut(_)) => error.context(format!(
            "no presence core answers at {}; --core takes the gRPC address of a core, such as http://127.0.0.1:4701, or https:// if it speaks TLS",
            asked.join(", ")
        )),
        Some(
            ClientError::Address(_)
            | ClientError::Refused(_)
            | ClientError::Contract(_)
            | ClientError::NotWatched(_)
            | ClientError::Ended,
        )
        | None => error,
    }
}

/// How fresh something is, for scripts.
pub(crate) fn freshness_json(freshness: Freshness) -> Value {
    match freshness {
        Freshness::Live => json!({ "state": "live" }),
        Freshness::Held { since } => json!({ "state": "held", "since": since.0 }),
        Freshness::Stale { since } => json!({ "state": "stale", "since": since.0 }),
    }
}

/// How fresh something is, in a word.
pub(crate) fn freshness_word(freshness: Freshness) -> &'static str {
    match freshness {
        Freshness::Live => "live",
        Freshness::Held { .. } => "held",
        Freshness::Stale { .. } => "stale",
    }
}

/// A member's state as JSON; what is not JSON is shown as text.
pub(crate) fn state_json(state: &presence_model::profile::State) -> Value {
    serde_json::from_slice(state.as_bytes())
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(state.as_bytes()).into_owned()))
}
