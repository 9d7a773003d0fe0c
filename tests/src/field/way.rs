//! A way between two processes: what is said on it can be held back, one way or both, and takes its time.
//!
//! As with packets that are lost on a network, nothing that is held back is gone: it passes once the way is mended,
//! and the end of a connection with it, unless whoever waits for it has given up before.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What is read at once: less than what waits in the sockets of a way that is cut.
const CHUNK: usize = 16 * 1024;

/// Which way does not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    Both,
    /// From whoever connected.
    There,
    /// To whoever connected.
    Back,
}

#[derive(Debug, Clone, Copy, Default)]
struct Conditions {
    /// How many cuts hold back what goes there, and what comes back.
    there: u32,
    back: u32,
    delay: Duration,
    /// How often all connections were reset.
    resets: u64,
}

impl Conditions {
    fn holds(&self, side: Side) -> bool {
        match side {
            Side::There => self.there > 0,
            Side::Back => self.back > 0,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Side {
    There,
    Back,
}

/// A listener in front of whoever it leads to; ends with its connections when dropped.
pub(super) struct Way {
    port: u16,
    target: watch::Sender<Option<u16>>,
    conditions: watch::Sender<Conditions>,
    task: JoinHandle<()>,
}

impl Way {
    /// A way that leads nowhere yet: whoever comes is turned away.
    pub(super) fn new() -> anyhow::Result<Self> {
        let listener = StdListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let (port, listener) = (listener.local_addr()?.port(), TcpListener::from_std(listener)?);
        let (target, conditions) = (watch::Sender::new(None), watch::Sender::new(Conditions::default()));
        let (targets, weather) = (target.subscribe(), conditions.subscribe());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, targets.clone(), weather.clone()));
            }
        });
        Ok(Self { port, target, conditions, task })
    }

    /// `host:port`.
    pub(super) fn address(&self) -> String {
        loopback(self.port).to_string()
    }

    /// Leads there from now on; connections that there are go on.
    pub(super) fn lead_to(&self, port: u16) {
        self.target.send_replace(Some(port));
    }

    /// Holds back, or lets pass what one cut held back.
    pub(super) fn cut(&self, cut: Cut, is_cut: bool) {
        self.conditions.send_modify(|conditions| {
            let change = |count: &mut u32| *count = if is_cut { *count + 1 } else { count.saturating_sub(1) };
            if cut != Cut::Back {
                change(&mut conditions.there);
            }
            if cut != Cut::There {
                change(&mut conditions.back);
            }
        });
    }

    /// Whether it is held back, either way.
    pub(super) fn is_cut(&self) -> bool {
        let Conditions { there, back, .. } = *self.conditions.borrow();
        there > 0 || back > 0
    }

    /// All that is said takes so long.
    pub(super) fn delay(&self, delay: Duration) {
        self.conditions.send_modify(|conditions| conditions.delay = delay);
    }

    /// Ends all connections that there are.
    pub(super) fn reset(&self) {
        self.conditions.send_modify(|conditions| conditions.resets += 1);
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.task.abort();
        self.reset();
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

async fn carry(
    client: TcpStream,
    target: watch::Receiver<Option<u16>>,
    weather: watch::Receiver<Conditions>,
) {
    let resets = weather.borrow().resets;
    let mut seen = weather.clone();
    tokio::select! {
        biased;
        _ = seen.wait_for(|conditions| conditions.resets != resets) => {}
        // Whoever ended it has ended it for both.
        _ = relay(client, target, weather) => {}
    }
}

#[expect(clippy::disallowed_methods, reason = "a way between processes of a test, not a client of ours")]
async fn relay(
    client: TcpStream,
    target: watch::Receiver<Option<u16>>,
    mut weather: watch::Receiver<Conditions>,
) -> anyhow::Result<()> {
    // Nobody is reached over a way of which either direction is cut.
    weather.wait_for(|conditions| conditions.there == 0 && conditions.back == 0).await?;
    let Some(port) = *target.borrow() else { return Ok(()) };
    let server = TcpStream::connect(loopback(port)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::try_join!(
        pass(from_client, to_server, Side::There, weather.clone()),
        pass(from_server, to_client, Side::Back, weather.clone()),
    )?;
    Ok(())
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    side: Side,
    mut weather: watch::Receiver<Conditions>,
) -> anyhow::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        // Its end passes as what it says does.
        let read = from.read(&mut chunk).await.unwrap_or(0);
        let delay = weather.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        weather.wait_for(|conditions| !conditions.holds(side)).await?;
        anyhow::ensure!(read > 0, "one side has ended");
        to.write_all(&chunk[..read]).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends of a connection over a way.
    async fn connected() -> anyhow::Result<(Way, TcpStream, TcpStream)> {
        let far = StdListener::bind("127.0.0.1:0")?;
        far.set_nonblocking(true)?;
        let (port, far) = (far.local_addr()?.port(), TcpListener::from_std(far)?);
        let way = Way::new()?;
        way.lead_to(port);
        #[expect(clippy::disallowed_methods, reason = "both ends are the test's own")]
        let near = TcpStream::connect(loopback(way.port)).await?;
        let (far, _) = far.accept().await?;
        Ok((way, near, far))
    }

    async fn hears(stream: &mut TcpStream, within: Duration) -> Option<u8> {
        tokio::time::timeout(within, stream.read_u8()).await.ok()?.ok()
    }

    const SOON: Duration = Duration::from_secs(5);
    const NOT: Duration = Duration::from_millis(100);

    #[tokio::test]
    async fn what_is_held_back_passes_once_the_way_is_mended() -> anyhow::Result<()> {
        let (way, mut near, mut far) = connected().await?;
        way.cut(Cut::There, true);
        near.write_u8(1).await?;
        far.write_u8(2).await?;
        assert_eq!(hears(&mut near, SOON).await, Some(2), "the other way is not cut");
        assert_eq!(hears(&mut far, NOT).await, None);
        way.cut(Cut::Both, true);
        way.cut(Cut::There, false);
        far.write_u8(3).await?;
        assert_eq!((hears(&mut far, NOT).await, hears(&mut near, NOT).await), (None, None), "cut twice");
        way.cut(Cut::Both, false);
        assert_eq!((hears(&mut far, SOON).await, hears(&mut near, SOON).await), (Some(1), Some(3)));
        Ok(())
    }

    #[tokio::test]
    async fn what_is_said_takes_its_time_and_no_longer_than_it_is_told_to() -> anyhow::Result<()> {
        let (way, mut near, mut far) = connected().await?;
        way.delay(NOT * 2);
        near.write_u8(1).await?;
        assert_eq!(hears(&mut far, NOT).await, None);
        assert_eq!(hears(&mut far, SOON).await, Some(1));
        way.delay(Duration::ZERO);
        near.write_u8(2).await?;
        assert_eq!(hears(&mut far, SOON).await, Some(2));
        Ok(())
    }

    #[tokio::test]
    async fn an_end_passes_as_what_is_said_does_and_a_reset_at_once() -> anyhow::Result<()> {
        let (way, near, mut far) = connected().await?;
        way.cut(Cut::There, true);
        drop(near);
        assert!(tokio::time::timeout(NOT, far.read_u8()).await.is_err(), "it is not heard of");
        way.cut(Cut::There, false);
        assert!(tokio::time::timeout(SOON, far.read_u8()).await?.is_err());
        let (way, mut near, mut far) = connected().await?;
        way.cut(Cut::Both, true);
        way.reset();
        assert!(tokio::time::timeout(SOON, near.read_u8()).await?.is_err());
        assert!(tokio::time::timeout(SOON, far.read_u8()).await?.is_err());
        Ok(())
    }
}
