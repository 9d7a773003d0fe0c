//! The thin async shell around the driver: one task that owns it, feeds it and carries its effects out.
//!
//! Links, watchers and questions reach the task through a [`Handle`]; each gets a channel of its own
//! back. Store commands run beside each other and come back as inputs.

mod peers;
mod store_log;
mod task;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use presence_model::id::{EdgeName, Incarnation, RoomId, UserId};
use presence_model::link::{Hello, LinkDown, LinkUp};
use presence_model::revocation::{Revocation, Revocations};
use presence_model::time::{Mono, StoreTime, millis};
use presence_model::watch::{WatchDown, WatchUp};
use smol_str::SmolStr;
use tokio::sync::{mpsc, oneshot, watch};

pub use self::peers::{PeerLines, PeerTask};
pub use self::task::DriverTask;
use crate::driver::{
    Answer, ArrivalLimits, CloseReason, Input, LinkEnd, LinkKey, Query, QueryKey, QueryRefusal, Verified,
    WatchEnd, WatchKey,
};
use crate::limits::{DRIVER_INPUTS_MAX, LINK_DOWN_MAX};

/// What reaches the driver's task.
#[derive(Debug)]
enum Command {
    Input(Input),
    OpenLink(LinkKey, Box<Hello>, mpsc::Sender<LinkEvent>),
    OpenWatch(WatchKey, mpsc::Sender<WatchEvent>),
    Ask(QueryKey, Input, oneshot::Sender<Result<Answer, QueryRefusal>>),
}

/// What a link gets from the driver.
#[derive(Debug)]
pub enum LinkEvent {
    /// Tell the edge.
    Down(LinkDown),
    /// End the stream.
    Close(CloseReason),
}

/// What a watch gets from the driver.
#[derive(Debug)]
pub enum WatchEvent {
    /// Tell the watcher, then report with [`WatchWriter::written`].
    Down(Vec<WatchDown>),
    /// End the stream.
    End(WatchEnd),
}

/// The driver's task is gone: the process is on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the core is stopping")]
pub struct Stopped;

/// Streams that are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attached {
    /// Links of edges.
    pub links: usize,
    /// Watches of edges and services.
    pub watches: usize,
}

/// The way to the driver; cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    attached: watch::Receiver<Attached>,
    keys: Arc<AtomicU64>,
    store_clock: Arc<ToldClock>,
    revoked: watch::Receiver<Arc<Revocations>>,
}

/// Where the driver's task tells what others look at.
#[derive(Debug)]
struct Told {
    attached: watch::Sender<Attached>,
    store_clock: Arc<ToldClock>,
    revoked: watch::Sender<Arc<Revocations>>,
}

/// The store's clock as the driver told it last, against our own.
#[derive(Debug)]
struct ToldClock(AtomicI64);

impl ToldClock {
    /// No offset: it was not told yet.
    const UNKNOWN: i64 = i64::MIN;

    fn tell(&self, store: Option<StoreTime>, now: Mono) {
        let known = store.and_then(|store| i64::try_from(store.0).ok());
        let offset = known.map_or(Self::UNKNOWN, |store| store - own(now));
        self.0.store(offset, Ordering::Relaxed);
    }

    fn at(&self, now: Mono) -> Option<StoreTime> {
        let offset = self.0.load(Ordering::Relaxed);
        let is_known = offset != Self::UNKNOWN;
        is_known.then(|| StoreTime(u64::try_from(offset.saturating_add(own(now))).unwrap_or(0)))
    }
}

fn own(now: Mono) -> i64 {
    i64::try_from(millis(now.0)).unwrap_or(i64::MAX)
}

impl Handle {
    fn channel() -> (Self, mpsc::Receiver<Command>, Told) {
        let (commands, inbox) = mpsc::channel(DRIVER_INPUTS_MAX);
        let told = Told {
            attached: watch::Sender::default(),
            store_clock: Arc::new(ToldClock(AtomicI64::new(ToldClock::UNKNOWN))),
            revoked: watch::Sender::default(),
        };
        let this = Self {
            commands,
            attached: told.attached.subscribe(),
            keys: Arc::new(AtomicU64::new(1)),
            store_clock: Arc::clone(&told.store_clock),
            revoked: told.revoked.subscribe(),
        };
        (this, inbox, told)
    }

    fn key(&self) -> u64 {
        self.keys.fetch_add(1, Ordering::Relaxed)
    }

    async fn send(&self, command: Command) -> Result<(), Stopped> {
        self.commands.send(command).await.map_err(|_| Stopped)
    }

    /// An edge said hello. What the core has to say comes through the receiver.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn open_link(&self, hello: Hello) -> Result<LinkHandle, Stopped> {
        let key = LinkKey(self.key());
        let (sender, events) = mpsc::channel(LINK_DOWN_MAX);
        let edge = hello.edge.clone();
        self.send(Command::OpenLink(key, Box::new(hello), sender)).await?;
        Ok(LinkHandle { key, edge, handle: self.clone(), events: Some(events) })
    }

    /// A watcher came.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn open_watch(&self) -> Result<WatchHandle, Stopped> {
        let key = WatchKey(self.key());
        // The driver gives out one portion at a time, plus at most one ending.
        let (sender, events) = mpsc::channel(2);
        self.send(Command::OpenWatch(key, sender)).await?;
        Ok(WatchHandle { key, handle: self.clone(), events: Some(events) })
    }

    /// Asks a question.
    ///
    /// # Errors
    /// [`QueryRefusal`] inside; [`Stopped`] outside.
    pub async fn ask(&self, query: Query) -> Result<Result<Answer, QueryRefusal>, Stopped> {
        self.answered(|key| Input::Query(key, query)).await
    }

    /// Puts a user out of a room.
    ///
    /// # Errors
    /// [`QueryRefusal`] inside: it may have happened, and may be asked for again; [`Stopped`] outside.
    pub async fn evict(&self, room: RoomId, user: UserId) -> Result<Result<Answer, QueryRefusal>, Stopped> {
        self.answered(|key| Input::Evict(key, room, user)).await
    }

    /// Revokes something for so long.
    ///
    /// # Errors
    /// [`QueryRefusal`] inside: it may have happened, and may be asked for again; [`Stopped`] outside.
    pub async fn revoke(
        &self,
        what: Revocation,
        span: Duration,
    ) -> Result<Result<Answer, QueryRefusal>, Stopped> {
        self.answered(|key| Input::Revoke(key, what, span)).await
    }

    /// Sends an edge away, or asks how far that is.
    ///
    /// # Errors
    /// [`QueryRefusal`] inside: it may have happened, and may be asked for again; [`Stopped`] outside.
    pub async fn drain_edge(
        &self,
        name: EdgeName,
        edge: Option<Incarnation>,
    ) -> Result<Result<Answer, QueryRefusal>, Stopped> {
        self.answered(|key| Input::DrainEdge(key, name, edge)).await
    }

    async fn answered(
        &self,
        input: impl FnOnce(QueryKey) -> Input,
    ) -> Result<Result<Answer, QueryRefusal>, Stopped> {
        let (sender, answer) = oneshot::channel();
        let key = QueryKey(self.key());
        self.send(Command::Ask(key, input(key), sender)).await?;
        answer.await.map_err(|_| Stopped)
    }

    /// The store's clock at `now`, once it is known.
    #[must_use]
    pub fn store_time(&self, now: Mono) -> Option<StoreTime> {
        self.store_clock.at(now)
    }

    /// What this core knows to be revoked.
    #[must_use]
    pub fn revoked(&self) -> Arc<Revocations> {
        Arc::clone(&self.revoked.borrow())
    }

    /// How many streams are open, as that changes.
    #[must_use]
    pub fn attached(&self) -> watch::Receiver<Attached> {
        self.attached.clone()
    }

    /// So many new arrivals are taken from now on.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn limit_arrivals(&self, limits: ArrivalLimits) -> Result<(), Stopped> {
        self.send(Command::Input(Input::Limits(limits))).await
    }

    /// Tells links and watchers to go elsewhere.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn drain(&self) -> Result<(), Stopped> {
        self.send(Command::Input(Input::Drain)).await
    }
}

/// One link's way to the driver.
#[derive(Debug)]
pub struct LinkHandle {
    key: LinkKey,
    edge: EdgeName,
    handle: Handle,
    events: Option<mpsc::Receiver<LinkEvent>>,
}

impl LinkHandle {
    /// What the driver has to say, once.
    pub fn take_events(&mut self) -> Option<mpsc::Receiver<LinkEvent>> {
        self.events.take()
    }

    /// The edge's name, for logs.
    #[must_use]
    pub fn edge(&self) -> &EdgeName {
        &self.edge
    }

    /// The edge said something.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn up(&self, up: LinkUp, verified: Verified) -> Result<(), Stopped> {
        self.handle.send(Command::Input(Input::Link(self.key, up, verified))).await
    }

    /// The link ended.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn closed(self, end: LinkEnd) -> Result<(), Stopped> {
        self.handle.send(Command::Input(Input::LinkClosed(self.key, end))).await
    }
}

/// One watcher's way to the driver.
#[derive(Debug)]
pub struct WatchHandle {
    key: WatchKey,
    handle: Handle,
    events: Option<mpsc::Receiver<WatchEvent>>,
}

impl WatchHandle {
    /// What the driver has to say, once.
    pub fn take_events(&mut self) -> Option<mpsc::Receiver<WatchEvent>> {
        self.events.take()
    }

    /// A way to report what was written, for the writing side of the stream.
    #[must_use]
    pub fn writer(&self) -> WatchWriter {
        WatchWriter { key: self.key, handle: self.handle.clone() }
    }

    /// The watcher said something.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn up(&self, up: WatchUp) -> Result<(), Stopped> {
        self.handle.send(Command::Input(Input::Watch(self.key, up))).await
    }

    /// The watcher asked for a room in a way that is out of bounds: what is wrong, for people.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn malformed(&self, room: RoomId, what: SmolStr) -> Result<(), Stopped> {
        self.handle.send(Command::Input(Input::WatchMalformed(self.key, room, what))).await
    }

    /// The watcher went.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn closed(self) -> Result<(), Stopped> {
        self.handle.send(Command::Input(Input::WatchClosed(self.key))).await
    }
}

/// The writing side of a watch.
#[derive(Debug)]
pub struct WatchWriter {
    key: WatchKey,
    handle: Handle,
}

impl WatchWriter {
    /// All events given out so far were taken by the transport.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn written(&self) -> Result<(), Stopped> {
        self.handle.send(Command::Input(Input::WatchReady(self.key))).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_that_was_told_goes_on_with_our_own() {
        let clock = ToldClock(AtomicI64::new(ToldClock::UNKNOWN));
        let at = Mono::from_millis;
        assert_eq!(clock.at(at(5)), None);
        clock.tell(Some(StoreTime(1_000_000)), at(100));
        assert_eq!(clock.at(at(350)), Some(StoreTime(1_000_250)));
        clock.tell(Some(StoreTime(50)), at(400));
        assert_eq!(clock.at(at(410)), Some(StoreTime(60)), "it may be behind our own");
        clock.tell(None, at(420));
        assert_eq!(clock.at(at(430)), None);
    }
}
