//! The one watch stream to the cores of a region, kept open: the shell around a [`Watcher`](crate::watch::Watcher).
//!
//! It opens the next stream when one is lost, silent or drained, at the next core, later and later. Whoever drives it
//! owns the watcher: what it says to send goes to [`Upstream::send`], what is heard comes out of [`Upstream::next`].

mod uplink;

use std::time::Duration;

use futures::future::BoxFuture;
use presence_model::backoff::Backoff;
use presence_model::id::RegionId;
use presence_model::time::Mono;
use presence_model::watch::{WatchDown, WatchUp};
use presence_runtime::clock::Clock;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use self::uplink::{Heard, Uplink};
use crate::client::{ClientSettings, Deps};
use crate::cores::{CoreIndex, Cores};
use crate::error::ClientError;
use crate::watch::ReconnectCause;

/// What a core of one region says that watches another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crossing {
    /// Its own region.
    pub from: RegionId,
    /// The region it wants to watch.
    pub to: RegionId,
}

/// What happened to the stream.
#[derive(Debug)]
pub enum Upstreamed {
    /// A new one is open, and takes the place of the one before.
    Opened,
    /// The core said this.
    Down(WatchDown),
    /// It is lost; another one is opened by itself.
    Lost(ClientError),
    /// None can be opened; that is tried again by itself.
    Unopened(ClientError),
    /// Nothing that concerns anybody.
    Nothing,
}

/// One watch stream that comes back by itself.
pub struct Upstream {
    cores: Cores,
    clock: Clock,
    crossing: Option<Crossing>,
    chance: SmallRng,
    backoff: Backoff,
    answer_within: Duration,
    uplink: Option<Uplink>,
    opening: Option<BoxFuture<'static, Result<Uplink, (CoreIndex, ClientError)>>>,
    /// When to open the next stream.
    open_at: Option<Mono>,
}

impl Upstream {
    /// A stream that is not open.
    ///
    /// # Errors
    /// [`ClientError::Address`].
    pub fn new(
        settings: &ClientSettings,
        deps: &Deps,
        crossing: Option<Crossing>,
    ) -> Result<Self, ClientError> {
        let cores = Cores::of(settings, &deps.network)?;
        Ok(Self::of(settings, cores, (deps.clock.clone(), crossing)))
    }

    pub(crate) fn of(
        settings: &ClientSettings,
        cores: Cores,
        (clock, crossing): (Clock, Option<Crossing>),
    ) -> Self {
        Self {
            cores,
            clock,
            crossing,
            chance: SmallRng::seed_from_u64(settings.seed),
            backoff: settings.backoff,
            answer_within: settings.answer_within,
            uplink: None,
            opening: None,
            open_at: None,
        }
    }

    /// Opens it now, unless it is open or will be.
    pub fn open(&mut self) {
        if self.uplink.is_none() && self.opening.is_none() {
            self.open_at.get_or_insert(self.clock.now());
        }
    }

    /// Sends over the open stream; without one it is for nobody.
    pub fn send(&mut self, up: WatchUp) {
        if let Some(uplink) = &mut self.uplink {
            uplink.send(up);
        }
    }

    /// A new stream is wanted, at another core if there is one.
    pub fn reconnect(&mut self, cause: ReconnectCause) {
        if let Some(uplink) = &mut self.uplink {
            self.cores.failed(uplink.core());
            uplink.is_draining = true;
        }
        match cause {
            // The old stream serves until the new one is there.
            ReconnectCause::Drain => tracing::info!("the core is going, another is looked for"),
            ReconnectCause::Silent => {
                tracing::warn!("the watch is silent");
                self.uplink = None;
            }
        }
        self.open_later(None);
    }

    /// What happens next. Cancel-safe.
    pub async fn next(&mut self) -> Upstreamed {
        let wake = self.open_at.filter(|_| self.opening.is_none());
        tokio::select! {
            biased;
            opened = uplink::opened(&mut self.opening) => self.on_opened(opened),
            heard = uplink::hear(&mut self.uplink) => self.on_heard(heard),
            () = self.clock.sleep_until_some(wake) => {
                self.open_at = None;
                let crossing = self.crossing.as_ref();
                self.opening = Some(uplink::open(&self.cores, crossing, (&self.clock, self.answer_within)));
                Upstreamed::Nothing
            }
        }
    }

    fn on_heard(&mut self, heard: Heard) -> Upstreamed {
        match heard {
            Heard::Message(down) => {
                let stays = self.uplink.as_ref().is_some_and(|uplink| !uplink.is_draining);
                if stays && matches!(down, WatchDown::Progress { .. }) {
                    self.backoff.reset();
                }
                Upstreamed::Down(down)
            }
            Heard::Nothing => Upstreamed::Nothing,
            Heard::End(error) => {
                if let Some(uplink) = self.uplink.take() {
                    self.cores.failed(uplink.core());
                }
                if self.opening.is_none() {
                    self.open_later(error.retry_after());
                }
                Upstreamed::Lost(error)
            }
        }
    }

    fn on_opened(&mut self, opened: Result<Uplink, (CoreIndex, ClientError)>) -> Upstreamed {
        match opened {
            Ok(uplink) => {
                self.open_at = None;
                self.uplink = Some(uplink);
                Upstreamed::Opened
            }
            Err((core, error)) => {
                self.cores.failed(core);
                self.open_later(error.retry_after());
                Upstreamed::Unopened(error)
            }
        }
    }

    fn open_later(&mut self, at_least: Option<Duration>) {
        let wait = self.backoff.next(self.chance.next_u64());
        self.open_at = Some(self.clock.now() + wait.max(at_least.unwrap_or_default()));
    }
}
