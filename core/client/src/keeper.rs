//! The task that keeps a client's watch: it carries between its [`Watcher`] and the stream, and answers readers from
//! the views. Readers ask; nothing is queued for them.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use presence_model::id::RoomId;
use presence_model::time::Mono;
use presence_model::watch::{Level, WatchRefusal};
use presence_runtime::clock::Clock;
use tokio::sync::{mpsc, oneshot};

use crate::error::ClientError;
use crate::follow::{Answer, Seen, news};
use crate::upstream::{Upstream, Upstreamed};
use crate::watch::{Effect, Event, RoomOptions, Watcher, WatcherSettings};

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
    upstream: Upstream,
    clock: Clock,
    beat: Duration,
    /// When to look for readers that are gone.
    sweep_at: Mono,
    effects: Vec<Effect>,
}

/// What the keeper woke up for.
enum Woken {
    Asked(Option<Command>),
    Upstreamed(Upstreamed),
    Time,
}

impl Keeper {
    pub(crate) fn new(watcher: WatcherSettings, upstream: Upstream, clock: Clock) -> Self {
        let beat = watcher.beat;
        Self {
            watcher: Watcher::new(watcher),
            rooms: BTreeMap::new(),
            upstream,
            beat,
            sweep_at: clock.now() + beat,
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
                // Each reader waits for its answer before it asks again, so these end.
                command = commands.recv() => Woken::Asked(command),
                happened = self.upstream.next() => Woken::Upstreamed(happened),
                () = self.clock.sleep_until_some(Some(wake)) => Woken::Time,
            };
            let now = self.clock.now();
            match woken {
                Woken::Asked(None) => return,
                Woken::Asked(Some(command)) => self.on_command(command, now),
                Woken::Upstreamed(happened) => self.on_upstreamed(happened, now),
                Woken::Time => {}
            }
            if self.wake_at() <= now {
                self.on_time(now);
            }
            self.carry_out();
        }
    }

    fn wake_at(&self) -> Mono {
        self.watcher.poll_timeout().into_iter().fold(self.sweep_at, Mono::min)
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
                self.upstream.open();
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

    fn on_upstreamed(&mut self, happened: Upstreamed, now: Mono) {
        match happened {
            Upstreamed::Opened => {
                tracing::info!("the watch is open");
                self.watcher.connected(now, &mut self.effects);
            }
            Upstreamed::Down(down) => self.watcher.handle(down, now, &mut self.effects),
            Upstreamed::Lost(error) => {
                tracing::warn!(%error, "the watch is lost");
                self.watcher.lost(&mut self.effects);
            }
            Upstreamed::Unopened(error) => {
                tracing::warn!(%error, "the watch cannot be opened");
                if error.retry_after().is_none() {
                    self.tell_all(&error);
                }
            }
            Upstreamed::Nothing => {}
        }
    }

    fn on_time(&mut self, now: Mono) {
        self.watcher.tick(now, &mut self.effects);
        if self.sweep_at <= now {
            self.sweep_at = now + self.beat;
            self.sweep();
        }
    }

    fn carry_out(&mut self) {
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Send(up) => self.upstream.send(up),
                Effect::Reconnect(cause) => self.upstream.reconnect(cause),
                Effect::Event(event) => self.on_event(event),
            }
        }
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
