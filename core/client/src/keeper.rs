//! The task that keeps a client's watch: the shell around [`Watcher`].
//!
//! It owns the one stream to a core, opens the next one when that is lost, silent or drained, and answers
//! readers from the views. Readers ask; nothing is queued for them.

mod uplink;

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use futures::future::BoxFuture;
use presence_model::backoff::Backoff;
use presence_model::id::RoomId;
use presence_model::time::Mono;
use presence_model::watch::{Level, WatchDown, WatchRefusal};
use presence_runtime::clock::Clock;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::{mpsc, oneshot};

use self::uplink::{Heard, Uplink};
use crate::client::ClientSettings;
use crate::cores::{CoreIndex, Cores};
use crate::error::ClientError;
use crate::follow::{Answer, Seen, news};
use crate::watch::{Effect, Event, ReconnectCause, RoomOptions, Watcher, WatcherSettings};

/// What readers ask.
#[derive(Debug)]
pub(crate) enum Command {
    /// Watch this room for as long as somebody holds the other end of `alive`.
    Watch { room: RoomId, options: RoomOptions, alive: Weak<()> },
    /// Tell what is new since `seen`, as soon as something is.
    Next { room: RoomId, seen: Seen, reply: oneshot::Sender<Answer> },
}

#[derive(Debug, Default)]
struct Followed {
    readers: Vec<Weak<()>>,
    waiting: Vec<(Seen, oneshot::Sender<Answer>)>,
    options: Option<RoomOptions>,
    refusal: Option<WatchRefusal>,
}

pub(crate) struct Keeper {
    watcher: Watcher,
    rooms: BTreeMap<RoomId, Followed>,
    cores: Cores,
    clock: Clock,
    chance: SmallRng,
    backoff: Backoff,
    beat: Duration,
    answer_within: Duration,
    uplink: Option<Uplink>,
    opening: Option<BoxFuture<'static, Result<Uplink, (CoreIndex, ClientError)>>>,
    /// When to open the next stream.
    open_at: Option<Mono>,
    /// When to look for readers that are gone.
    sweep_at: Mono,
    effects: Vec<Effect>,
}

/// What the keeper woke up for.
enum Woken {
    Asked(Option<Command>),
    Heard(Heard),
    Opened(Result<Uplink, (CoreIndex, ClientError)>),
    Time,
}

impl Keeper {
    pub(crate) fn new(
        watcher: WatcherSettings,
        settings: ClientSettings,
        cores: Cores,
        clock: Clock,
    ) -> Self {
        Self {
            watcher: Watcher::new(watcher),
            rooms: BTreeMap::new(),
            cores,
            chance: SmallRng::seed_from_u64(settings.seed),
            backoff: settings.backoff,
            beat: settings.beat,
            answer_within: settings.answer_within,
            uplink: None,
            opening: None,
            open_at: None,
            sweep_at: clock.now() + settings.beat,
            effects: Vec::new(),
            clock,
        }
    }

    /// Runs until no client and no reader is left.
    pub(crate) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            let wake = self.wake_at();
            let woken = tokio::select! {
                biased;
                opened = uplink::opened(&mut self.opening) => Woken::Opened(opened),
                // Each reader waits for its answer before it asks again, so these end.
                command = commands.recv() => Woken::Asked(command),
                heard = uplink::hear(&mut self.uplink) => Woken::Heard(heard),
                () = self.clock.sleep_until_some(Some(wake)) => Woken::Time,
            };
            let now = self.clock.now();
            match woken {
                Woken::Asked(None) => return,
                Woken::Asked(Some(command)) => self.on_command(command, now),
                Woken::Heard(heard) => self.on_heard(heard, now),
                Woken::Opened(opened) => self.on_opened(opened, now),
                Woken::Time => {}
            }
            if self.wake_at() <= now {
                self.on_time(now);
            }
            self.carry_out(now);
        }
    }

    fn wake_at(&self) -> Mono {
        let open_at = self.open_at.filter(|_| self.opening.is_none());
        [self.watcher.poll_timeout(), open_at].into_iter().flatten().fold(self.sweep_at, Mono::min)
    }

    fn on_command(&mut self, command: Command, now: Mono) {
        match command {
            Command::Watch { room, options, alive } => {
                let followed = self.rooms.entry(room.clone()).or_default();
                followed.readers.push(alive);
                let wanted = match &followed.options {
                    Some(present) => most_demanding(present, options),
                    None => options,
                };
                if followed.options.as_ref() != Some(&wanted) {
                    followed.options = Some(wanted.clone());
                    self.watcher.open(room, wanted, now, &mut self.effects);
                }
                if self.uplink.is_none() && self.opening.is_none() {
                    self.open_at.get_or_insert(now);
                }
            }
            Command::Next { room, seen, reply } => {
                let Some(followed) = self.rooms.get_mut(&room) else {
                    return refuse(reply, ClientError::Ended);
                };
                followed.waiting.retain(|(_, reply)| !reply.is_closed());
                followed.waiting.push((seen, reply));
                self.serve(&room);
            }
        }
    }

    fn on_heard(&mut self, heard: Heard, now: Mono) {
        match heard {
            Heard::Message(down) => {
                let stays = self.uplink.as_ref().is_some_and(|uplink| !uplink.is_draining);
                if stays && matches!(down, WatchDown::Progress { .. }) {
                    self.backoff.reset();
                }
                self.watcher.handle(down, now, &mut self.effects);
            }
            Heard::Nothing => {}
            Heard::End(error) => {
                if let Some(uplink) = self.uplink.take() {
                    self.cores.failed(uplink.core());
                }
                tracing::warn!(%error, "the watch is lost");
                self.watcher.lost(&mut self.effects);
                if self.opening.is_none() {
                    self.open_later(error.retry_after(), now);
                }
            }
        }
    }

    fn on_opened(&mut self, opened: Result<Uplink, (CoreIndex, ClientError)>, now: Mono) {
        match opened {
            Ok(uplink) => {
                self.open_at = None;
                self.uplink = Some(uplink);
                tracing::info!("the watch is open");
                self.watcher.connected(now, &mut self.effects);
            }
            Err((core, error)) => {
                self.cores.failed(core);
                tracing::warn!(%error, "the watch cannot be opened");
                self.open_later(error.retry_after(), now);
                if error.retry_after().is_none() {
                    self.tell_all(&error);
                }
            }
        }
    }

    fn on_time(&mut self, now: Mono) {
        self.watcher.tick(now, &mut self.effects);
        if self.open_at.is_some_and(|at| at <= now) && self.opening.is_none() {
            self.open_at = None;
            self.opening = Some(uplink::open(&self.cores, &self.clock, self.answer_within));
        }
        if self.sweep_at <= now {
            self.sweep_at = now + self.beat;
            self.sweep();
        }
    }

    fn carry_out(&mut self, now: Mono) {
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Send(up) => {
                    if let Some(uplink) = &mut self.uplink {
                        uplink.send(up);
                    }
                }
                Effect::Reconnect(cause) => self.reconnect(cause, now),
                Effect::Event(event) => self.on_event(event),
            }
        }
    }

    fn reconnect(&mut self, cause: ReconnectCause, now: Mono) {
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
        self.open_later(None, now);
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Changed(room) | Event::Freshness { room, .. } | Event::Count { room, .. } => {
                if let Some(followed) = self.rooms.get_mut(&room) {
                    followed.refusal = None;
                }
                self.serve(&room);
            }
            Event::Refused { room, refusal } => {
                tracing::warn!(%room, %refusal, "a room is not watched");
                if ClientError::NotWatched(refusal.clone()).retry_after().is_none()
                    && let Some(followed) = self.rooms.get_mut(&room)
                {
                    followed.refusal = Some(refusal);
                }
                self.serve(&room);
            }
            Event::Answered(_) | Event::Progress { .. } => {}
        }
    }

    fn open_later(&mut self, at_least: Option<Duration>, now: Mono) {
        let wait = self.backoff.next(self.chance.next_u64());
        self.open_at = Some(now + wait.max(at_least.unwrap_or_default()));
    }

    /// Answers the readers of a room that can be answered.
    fn serve(&mut self, room: &RoomId) {
        let (Some(followed), Some(view)) = (self.rooms.get_mut(room), self.watcher.view(room)) else {
            return;
        };
        let count = self.watcher.count(room);
        for (seen, reply) in std::mem::take(&mut followed.waiting) {
            if let Some(refusal) = &followed.refusal {
                refuse(reply, ClientError::NotWatched(refusal.clone()));
            } else if let Some(answer) = news(view, count, &seen) {
                // A reader that is gone asks again, or not at all.
                drop(reply.send(Ok(answer)));
            } else {
                followed.waiting.push((seen, reply));
            }
        }
    }

    fn tell_all(&mut self, error: &ClientError) {
        for followed in self.rooms.values_mut() {
            for (_, reply) in std::mem::take(&mut followed.waiting) {
                refuse(reply, error.clone());
            }
        }
    }

    fn sweep(&mut self) {
        let Self { rooms, watcher, effects, .. } = self;
        rooms.retain(|room, followed| {
            followed.readers.retain(|alive| alive.strong_count() > 0);
            if followed.readers.is_empty() {
                watcher.close(room, effects);
            }
            !followed.readers.is_empty()
        });
    }
}

fn refuse(reply: oneshot::Sender<Answer>, error: ClientError) {
    // A reader that is gone does not need to know.
    drop(reply.send(Err(error)));
}

/// Options under which both see what they want.
fn most_demanding(one: &RoomOptions, other: RoomOptions) -> RoomOptions {
    let all = one.regions.is_empty() || other.regions.is_empty();
    let mut regions = if all { Vec::new() } else { [one.regions.clone(), other.regions].concat() };
    regions.sort_unstable();
    regions.dedup();
    let level = match (one.level, other.level) {
        (Level::Count, Level::Count) => Level::Count,
        (Level::Members, _) | (_, Level::Members) => Level::Members,
    };
    let min_interval = one.min_interval.min(other.min_interval);
    RoomOptions { level, regions, min_interval, at_least: other.at_least }
}
