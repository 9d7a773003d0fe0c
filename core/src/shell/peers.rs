//! The watches of cores of other regions: one task a region, which carries between its stream and the driver.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use presence_client::watch::ReconnectCause;
use presence_client::{ClientError, Upstream, Upstreamed};
use presence_model::id::RegionId;
use presence_proto::ServiceError;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio_util::sync::CancellationToken;

use super::{Command, Handle};
use crate::driver::{Input, PeerHeard, PeerWish};
use crate::limits::PEER_WISHES_MAX;
use crate::metrics::PeerMetrics;

/// The driver's way to the task of each peer.
#[derive(Debug, Default)]
pub struct PeerLines(BTreeMap<RegionId, PeerLine>);

#[derive(Debug)]
struct PeerLine {
    wishes: mpsc::Sender<PeerWish>,
    /// Wishes were dropped: what still waits is of no use, and a new stream begins from the driver's copies.
    overflowed: Arc<AtomicBool>,
}

/// The task of one peer.
pub struct PeerTask {
    region: RegionId,
    upstream: Upstream,
    wishes: mpsc::Receiver<PeerWish>,
    overflowed: Arc<AtomicBool>,
    metrics: Arc<PeerMetrics>,
}

impl PeerLines {
    /// The task of a further peer, which has not run yet.
    pub fn add(&mut self, region: RegionId, upstream: Upstream, metrics: Arc<PeerMetrics>) -> PeerTask {
        let (sender, wishes) = mpsc::channel(PEER_WISHES_MAX);
        let overflowed = Arc::new(AtomicBool::new(false));
        let line = PeerLine { wishes: sender, overflowed: Arc::clone(&overflowed) };
        self.0.insert(region.clone(), line);
        PeerTask { region, upstream, wishes, overflowed, metrics }
    }

    /// Hands a wish on; false: it does not get through, and the stream that it was for is given up.
    pub(super) fn tell(&self, region: &RegionId, wish: PeerWish) -> bool {
        let Some(line) = self.0.get(region) else { return true };
        match line.wishes.try_send(wish) {
            Ok(()) | Err(TrySendError::Closed(_)) => true,
            Err(TrySendError::Full(_)) => {
                line.overflowed.store(true, Ordering::Release);
                false
            }
        }
    }
}

impl PeerTask {
    /// Runs until stopped, or until the driver is gone.
    pub async fn run(mut self, handle: Handle, stop: CancellationToken) {
        self.upstream.open();
        loop {
            let heard = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                wish = self.wishes.recv() => {
                    let Some(wish) = wish else { return };
                    self.carry_out(wish);
                    None
                }
                happened = self.upstream.next() => self.heard(happened),
            };
            if let Some(heard) = heard {
                let input = Input::Peer(self.region.clone(), heard);
                if handle.send(Command::Input(input)).await.is_err() {
                    return;
                }
            }
        }
    }

    fn carry_out(&mut self, wish: PeerWish) {
        if self.overflowed.swap(false, Ordering::AcqRel) {
            while self.wishes.try_recv().is_ok() {}
            tracing::error!(region = %self.region, "more waits for a peer than may: its stream is given up");
            return self.upstream.reconnect(ReconnectCause::Silent);
        }
        match wish {
            PeerWish::Send(up) => self.upstream.send(up),
            PeerWish::Reconnect(cause) => self.upstream.reconnect(cause),
            // Told by the driver's task.
            PeerWish::Refused(..) | PeerWish::Gone => {}
        }
    }

    fn heard(&self, happened: Upstreamed) -> Option<PeerHeard> {
        let region = &self.region;
        match happened {
            Upstreamed::Opened => {
                tracing::info!(%region, "a peer is watched");
                Some(PeerHeard::Connected)
            }
            Upstreamed::Down(down) => Some(PeerHeard::Down(down)),
            Upstreamed::Lost(error) => {
                self.metrics.failed(region, word(&error));
                tracing::warn!(%region, %error, "a peer is not heard any more");
                Some(PeerHeard::Lost)
            }
            Upstreamed::Unopened(error) => {
                self.metrics.failed(region, word(&error));
                if is_mistake(&error) {
                    tracing::error!(%region, %error, "a peer does not let itself be watched: somebody has to act");
                } else {
                    tracing::warn!(%region, %error, "a peer cannot be reached");
                }
                None
            }
            Upstreamed::Nothing => None,
        }
    }
}

/// Whether it lasts until a configuration is another.
fn is_mistake(error: &ClientError) -> bool {
    match error {
        ClientError::Refused(
            ServiceError::UnknownRegion | ServiceError::Forbidden | ServiceError::Unauthorized,
        )
        | ClientError::Contract(_) => true,
        ClientError::Refused(_)
        | ClientError::Address(_)
        | ClientError::Unreachable(_)
        | ClientError::TimedOut(_)
        | ClientError::NotWatched(_)
        | ClientError::Ended => false,
    }
}

/// The kind of a failure, for metrics.
fn word(error: &ClientError) -> &'static str {
    if is_mistake(error) { "refused" } else { "unreachable" }
}
