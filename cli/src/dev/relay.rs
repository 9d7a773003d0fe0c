//! A byte relay in front of the edge, so that a silent drop can be seen: a cut connection's bytes stop in
//! both directions, and neither end is told.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use presence_model::id::ConnectionId;
use presence_runtime::clock::Clock;
use presence_runtime::network::{Listener, Network, Stream};
use presence_runtime::shutdown::Shutdown;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Bytes moved at once.
const COPY_BYTES: usize = 16 * 1024;
/// Once the edge has closed a connection, its client closes it as well within this span. Beyond: it is cut.
const CLOSED_WITHIN: Duration = Duration::from_secs(3);

/// The relayed connections that may be cut.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cuts(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// By the address from which the relay speaks to the edge.
    by_address: BTreeMap<SocketAddr, watch::Sender<bool>>,
    /// As the edge named them.
    by_connection: BTreeMap<ConnectionId, SocketAddr>,
}

impl Cuts {
    fn locked(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The edge accepted a connection from this address, perhaps before the relay knows that it has it.
    pub(crate) fn accepted(&self, connection: ConnectionId, from: SocketAddr) {
        self.locked().by_connection.insert(connection, from);
    }

    fn opened(&self, from: SocketAddr) -> watch::Receiver<bool> {
        let (sender, receiver) = watch::channel(false);
        self.locked().by_address.insert(from, sender);
        receiver
    }

    fn closed(&self, from: SocketAddr) {
        let mut known = self.locked();
        known.by_address.remove(&from);
        known.by_connection.retain(|_, address| *address != from);
    }

    /// Stops a connection's bytes, or lets them flow again. False: no such connection.
    pub(crate) fn set(&self, connection: ConnectionId, cut: bool) -> bool {
        let known = self.locked();
        let sender = known.by_connection.get(&connection).and_then(|from| known.by_address.get(from));
        sender.is_some_and(|sender| sender.send(cut).is_ok())
    }

    /// Lets the bytes flow again after a while.
    pub(crate) fn heal_after(
        &self,
        connection: ConnectionId,
        after: Duration,
        clock: Clock,
        tasks: &Shutdown,
    ) {
        let cuts = self.clone();
        let stop = tasks.token();
        tasks.spawn_one_of_many("heal", async move {
            if stop.run_until_cancelled(clock.sleep(after)).await.is_some() {
                cuts.set(connection, false);
            }
        });
    }
}

/// Relays each connection of `listener` to the edge at `edge` until stopped.
pub(crate) async fn run(
    listener: Listener,
    edge: SocketAddr,
    world: (Network, Clock),
    cuts: Cuts,
    stop: CancellationToken,
) {
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((client, _)) => {
                let (world, cuts, stop) = (world.clone(), cuts.clone(), stop.clone());
                tasks.spawn(async move {
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => {}
                        () = relay(client, edge, world, cuts) => {}
                    }
                });
            }
            Err(error) => {
                tracing::error!(%error, "the relay cannot accept any more");
                break;
            }
        }
    }
    tasks.close();
    tasks.wait().await;
}

/// Whether the ways between regions are cut.
#[derive(Debug, Clone)]
pub(crate) struct RegionCut(watch::Sender<bool>);

impl RegionCut {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    pub(crate) fn set(&self, cut: bool) {
        self.0.send_replace(cut);
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.0.borrow()
    }
}

/// Carries what one core says to one of another region, until stopped; while that is cut nothing arrives.
pub(crate) async fn between_regions(
    listener: Listener,
    core: SocketAddr,
    network: Network,
    cut: RegionCut,
    stop: CancellationToken,
) {
    let tasks = TaskTracker::new();
    while let Some(Ok((near, _))) = stop.run_until_cancelled(listener.accept()).await {
        let (network, cut, stop) = (network.clone(), cut.clone(), stop.clone());
        tasks.spawn(async move {
            let carried = async {
                let Ok(far) = network.connect(&core.to_string()).await else { return };
                let ((near_read, near_write), (far_read, far_write)) = (split(near), split(far));
                let (up, down) = (cut.0.subscribe(), cut.0.subscribe());
                tokio::join!(copy(near_read, far_write, up), copy(far_read, near_write, down));
            };
            stop.run_until_cancelled(carried).await;
        });
    }
    tasks.close();
    tasks.wait().await;
}

async fn relay(client: Stream, edge: SocketAddr, (network, clock): (Network, Clock), cuts: Cuts) {
    let Ok(upstream) = network.connect(&edge.to_string()).await else { return };
    let Some(from) = upstream.as_tcp().and_then(|tcp| tcp.local_addr().ok()) else { return };
    let cut = cuts.opened(from);
    let (client_read, client_write) = split(client);
    let (edge_read, edge_write) = split(upstream);
    // One end closing closes the other; a cut connection tells neither.
    let mut up = std::pin::pin!(copy(client_read, edge_write, cut.clone()));
    let mut down = std::pin::pin!(copy(edge_read, client_write, cut));
    tokio::select! {
        biased;
        () = &mut up => down.await,
        () = &mut down => {
            tokio::select! {
                biased;
                () = up => {}
                () = clock.sleep(CLOSED_WITHIN) => {}
            }
        }
    }
    cuts.closed(from);
}

async fn copy<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    mut from: ReadHalf<R>,
    mut to: WriteHalf<W>,
    mut cut: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; COPY_BYTES];
    while let Ok(count) = from.read(&mut buffer).await {
        // While cut, what arrived waits, the end of the stream too.
        if cut.wait_for(|cut| !*cut).await.is_err() {
            break;
        }
        if count == 0 || to.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
    // The far end may be gone already.
    let _ = to.shutdown().await;
}
