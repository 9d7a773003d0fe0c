//! A way between two machines that are far apart: bytes take their time, may stand still in either direction, and are
//! counted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Chunks on their way in one direction of a connection; more are left with the sender.
const CHUNKS_MAX: usize = 1_024;

/// A relay that runs until dropped.
pub struct Relay {
    /// Where it accepts.
    pub address: SocketAddr,
    target: watch::Sender<Option<SocketAddr>>,
    way: Arc<Way>,
    task: JoinHandle<()>,
}

struct Way {
    delay: Duration,
    /// Whether nothing arrives at the target any more, and nothing from it.
    still: [watch::Sender<bool>; 2],
    bytes: AtomicU64,
}

impl Relay {
    /// Starts to accept; connections wait until it is told where they lead to.
    ///
    /// # Errors
    /// When there is no port.
    #[expect(
        clippy::disallowed_methods,
        reason = "a way between processes of a test, not a listener of ours"
    )]
    pub async fn start(delay: Duration) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let (target, targeted) = watch::channel(None);
        let still = [watch::Sender::new(false), watch::Sender::new(false)];
        let way = Arc::new(Way { delay, still, bytes: AtomicU64::new(0) });
        let address = listener.local_addr()?;
        let task = tokio::spawn(accept(listener, targeted, Arc::clone(&way)));
        Ok(Self { address, target, way, task })
    }

    /// New connections lead there.
    ///
    /// # Errors
    /// When that is no address.
    pub fn lead_to(&self, address: &str) -> anyhow::Result<()> {
        self.target.send_replace(Some(address.parse().context("an address and a port")?));
        Ok(())
    }

    /// Holds back what goes to the target, what comes from it, or both, as where packets get lost; or lets all through.
    pub fn hold_back(&self, to_target: bool, from_target: bool) {
        self.way.still[0].send_replace(to_target);
        self.way.still[1].send_replace(from_target);
    }

    /// What it has carried so far, both ways.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.way.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[expect(clippy::disallowed_methods, reason = "a way between processes of a test, not a client of ours")]
async fn accept(listener: TcpListener, targeted: watch::Receiver<Option<SocketAddr>>, way: Arc<Way>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((near, _)) = listener.accept().await else { return };
        let (mut targeted, way) = (targeted.clone(), Arc::clone(&way));
        connections.spawn(async move {
            let Ok(target) = targeted.wait_for(Option::is_some).await.map(|target| *target) else { return };
            // Whoever cannot be reached hangs up, and so does the relay.
            let Some(target) = target else { return };
            let Ok(far) = TcpStream::connect(target).await else { return };
            let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
            tokio::join!(carry(from_near, to_far, (&way, 0)), carry(from_far, to_near, (&way, 1)));
        });
    }
}

/// Carries one direction until its end.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, (way, direction): (&Way, usize)) {
    let (sender, mut chunks) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
    let read = async move {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            way.bytes.fetch_add(count as u64, Ordering::Relaxed);
            if sender.send((Instant::now() + way.delay, buffer[..count].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let write = async move {
        let mut still = way.still[direction].subscribe();
        while let Some((at, chunk)) = chunks.recv().await {
            tokio::time::sleep_until(at).await;
            if still.wait_for(|still| !still).await.is_err() || to.write_all(&chunk).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(read, write);
}
