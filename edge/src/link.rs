//! The edge's streams to a core: one link, and one watch beside it on the same transport.
//!
//! Each stream is a task that converts and carries; what it says about a stream that was given up is
//! recognised by its number and dropped.

mod resolve;
mod stream;

pub(crate) use self::resolve::literal;

use std::sync::Arc;

use presence_model::link::{Hello, LinkUp};
use presence_model::watch::WatchUp;
use presence_runtime::clock::Clock;
use presence_runtime::network::Network;
use presence_runtime::shutdown::Shutdown;
use presence_runtime::telemetry::Seldom;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::Channel;

use crate::hub::{CoreAddress, Input};
use crate::limits::{CORE_EVENTS_MAX, LINK_TOLD_EVERY, LINK_UP_MAX, WATCH_UP_MAX};

/// Which of the two streams; or none, but what is known of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Link,
    Watch,
    Names,
}

/// When it was said last that a link is tried, that it or the watch failed.
type Said = Seldom<3>;

/// What a stream's task says.
#[derive(Debug)]
pub(crate) struct Event {
    kind: Kind,
    serial: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    /// The link is open, on this transport.
    LinkUp(Channel),
    /// The watch is open.
    WatchUp,
    /// From the core.
    Down(Input),
    /// It is over, or could not be opened.
    Lost,
}

/// A stream that was not given up.
#[derive(Debug)]
struct Open<T> {
    serial: u64,
    up: mpsc::Sender<T>,
    _gives_up: DropGuard,
}

/// The streams of one edge.
pub(crate) struct Links {
    network: Network,
    clock: Clock,
    tasks: Shutdown,
    serial: u64,
    link: Option<Open<LinkUp>>,
    watch: Option<Open<WatchUp>>,
    channel: Option<Channel>,
    events: mpsc::Sender<Event>,
    said: Arc<Said>,
}

/// The stream could not take it and is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost;

impl Links {
    /// No stream is open.
    pub(crate) fn new(network: Network, clock: Clock, tasks: Shutdown) -> (Self, mpsc::Receiver<Event>) {
        let (events, received) = mpsc::channel(CORE_EVENTS_MAX);
        let this = Self {
            network,
            clock,
            tasks,
            serial: 0,
            link: None,
            watch: None,
            channel: None,
            events,
            said: Arc::new(Said::new(LINK_TOLD_EVERY)),
        };
        (this, received)
    }

    /// Looks names of cores up from now on, and tells what they stand for.
    pub(crate) fn follow_names(&self, urls: Vec<String>) {
        let (network, clock) = (self.network.clone(), self.clock.clone());
        self.tasks.spawn_one_of_many("names", resolve::follow(urls, (network, clock), self.events.clone()));
    }

    /// Links to a core. A link and a watch that are open are given up.
    pub(crate) fn open_link(&mut self, core: CoreAddress, hello: Hello) {
        self.drop_watch();
        self.drop_link();
        let (up, sent) = mpsc::channel(LINK_UP_MAX);
        let ends = self.ends(Kind::Link);
        self.link = Some(Open { serial: ends.serial, up, _gives_up: ends.given_up.clone().drop_guard() });
        let carrying = stream::link((core, self.network.clone()), hello, sent, ends);
        self.tasks.spawn_one_of_many("link", carrying);
    }

    /// Watches on the transport of the link.
    ///
    /// # Errors
    /// [`Lost`]: there is no link.
    pub(crate) fn open_watch(&mut self) -> Result<(), Lost> {
        self.drop_watch();
        let channel = self.channel.clone().ok_or(Lost)?;
        let (up, sent) = mpsc::channel(WATCH_UP_MAX);
        let ends = self.ends(Kind::Watch);
        self.watch = Some(Open { serial: ends.serial, up, _gives_up: ends.given_up.clone().drop_guard() });
        self.tasks.spawn_one_of_many("watch", stream::watch(channel, sent, ends));
        Ok(())
    }

    /// Sends over the link.
    ///
    /// # Errors
    /// [`Lost`]: the core does not read, or the stream is over.
    pub(crate) fn send_link(&mut self, up: LinkUp) -> Result<(), Lost> {
        let link = self.link.as_ref().ok_or(Lost)?;
        if link.up.try_send(up).is_err() {
            tracing::warn!("the core does not read; the link is given up");
            self.drop_link();
            return Err(Lost);
        }
        Ok(())
    }

    /// Sends over the watch.
    ///
    /// # Errors
    /// [`Lost`]: the core does not read, or the stream is over.
    pub(crate) fn send_watch(&mut self, up: WatchUp) -> Result<(), Lost> {
        let watch = self.watch.as_ref().ok_or(Lost)?;
        if watch.up.try_send(up).is_err() {
            tracing::warn!("the core does not read; the watch is given up");
            self.drop_watch();
            return Err(Lost);
        }
        Ok(())
    }

    /// Gives the link up. What was sent before still goes out; nothing of it is reported.
    pub(crate) fn drop_link(&mut self) {
        (self.link, self.channel) = (None, None);
    }

    /// Gives the watch up.
    pub(crate) fn drop_watch(&mut self) {
        self.watch = None;
    }

    /// What an event means to the hub; none if it is of a stream that was given up.
    pub(crate) fn input(&mut self, event: Event) -> Option<Input> {
        let Event { kind, serial, what } = event;
        let open = match kind {
            Kind::Link => self.link.as_ref().map(|link| link.serial),
            Kind::Watch => self.watch.as_ref().map(|watch| watch.serial),
            Kind::Names => Some(serial),
        };
        if open != Some(serial) {
            return None;
        }
        Some(match (what, kind) {
            (What::LinkUp(channel), _) => {
                self.channel = Some(channel);
                Input::LinkUp
            }
            (What::WatchUp, _) => Input::WatchUp,
            (What::Down(input), _) => input,
            (What::Lost, Kind::Names) => return None,
            (What::Lost, Kind::Link) => {
                self.drop_link();
                Input::LinkLost
            }
            (What::Lost, Kind::Watch) => {
                self.drop_watch();
                Input::WatchLost
            }
        })
    }

    fn ends(&mut self, kind: Kind) -> stream::Ends {
        self.serial += 1;
        stream::Ends {
            kind,
            serial: self.serial,
            events: self.events.clone(),
            given_up: CancellationToken::new(),
            clock: self.clock.clone(),
            said: Arc::clone(&self.said),
        }
    }
}

#[cfg(test)]
mod tests;
