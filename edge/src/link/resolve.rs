//! Names of cores, looked up again and again: a name that stands for several addresses stands for
//! several cores, and they come and go.

use std::net::SocketAddr;

use futures::future::join_all;
use presence_runtime::clock::Clock;
use presence_runtime::network::Network;
use presence_runtime::rpc;
use smol_str::{SmolStr, ToSmolStr as _};
use tokio::sync::mpsc;

use super::{Event, Kind, What};
use crate::hub::{CoreAddress, Input};
use crate::limits::{RESOLVE_EVERY, RESOLVE_WITHIN};

/// The cores of these URLs; none if one of them has a name that is to be looked up.
pub(crate) fn literal(urls: &[String]) -> Option<Vec<CoreAddress>> {
    let literal = |url: &String| {
        let address: SocketAddr = rpc::target(url)?.parse().ok()?;
        Some(CoreAddress { url: url.into(), address: Some(address.to_smolstr()) })
    };
    urls.iter().map(literal).collect()
}

/// Tells the hub which cores there are, now and whenever that changes. Runs until nobody listens.
pub(super) async fn follow(
    urls: Vec<String>,
    (network, clock): (Network, Clock),
    events: mpsc::Sender<Event>,
) {
    let mut told = None;
    loop {
        let found = join_all(urls.iter().map(|url| resolve(url, &network, &clock))).await;
        let mut cores: Vec<CoreAddress> = found.into_iter().flatten().collect();
        cores.sort();
        cores.dedup();
        if told.as_ref() != Some(&cores) {
            tracing::info!(cores = cores.len(), "cores to link to");
            told = Some(cores.clone());
            let what = What::Down(Input::Cores(cores));
            if events.send(Event { kind: Kind::Names, serial: 0, what }).await.is_err() {
                return;
            }
        }
        tokio::select! {
            biased;
            () = clock.sleep(RESOLVE_EVERY) => {}
            () = events.closed() => return,
        }
    }
}

/// A name that cannot be found is left to whoever connects: the mistake is told there.
async fn resolve(url: &str, network: &Network, clock: &Clock) -> Vec<CoreAddress> {
    let url = SmolStr::new(url);
    let unknown = vec![CoreAddress { url: url.clone(), address: None }];
    let Some(target) = rpc::target(&url) else { return unknown };
    let found = tokio::select! {
        biased;
        found = network.resolve(&target) => found,
        () = clock.sleep(RESOLVE_WITHIN) => Err(std::io::ErrorKind::TimedOut.into()),
    };
    match found {
        Ok(addresses) if !addresses.is_empty() => addresses
            .into_iter()
            .map(|address| CoreAddress { url: url.clone(), address: Some(address.to_smolstr()) })
            .collect(),
        Ok(_) => unknown,
        Err(error) => {
            tracing::warn!(%url, %error, "a name of cores cannot be looked up");
            unknown
        }
    }
}
