//! Watching rooms over a stream that may break at any moment, as a machine without I/O.
//!
//! A [`Watcher`] owns a [`View`] of each open room and says what to send: it opens rooms, opens them again
//! from their own positions after a gap or on a new stream, and asks for a snapshot where a copy differs.
//! Whoever drives it owns the stream: [`Watcher::connected`] and [`Watcher::lost`] say how it is,
//! [`Watcher::handle`] takes what comes, [`Watcher::tick`] at [`Watcher::poll_timeout`] lets time pass, and
//! the effects are to be carried out in order.
//!
//! Watchers miss nothing or are told so (G5), and are never taken back in time (G4): a view is stale from
//! the moment its stream is lost until the next one has answered.

mod effect;
mod room;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use presence_model::cursor::Cursor;
use presence_model::id::{RegionId, RoomId};
use presence_model::time::{Mono, StoreTime};
use presence_model::view::View;
use presence_model::watch::{WatchDown, WatchUp};

pub use self::effect::{Effect, Event, ReconnectCause, RoomOptions, Tally, WatcherSettings};
use self::room::{Taken, Watched};

/// A stream without a message for so many beats is given up.
const SILENT_BEATS: u32 = 3;
/// Streams that told nothing as live from their start on are given up later and later, up to this many times
/// later: with the store out of reach every core is silent, and opening all rooms again costs both sides.
const SILENT_FACTOR_MAX: u32 = 32;
/// How often views forget what is too old to be asked for.
const COMPACT_INTERVAL: Duration = Duration::from_secs(30);

/// How the stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    /// There is none.
    Lost,
    /// Open, and last heard then.
    Open { heard: Mono },
}

/// Keeps views of rooms.
#[derive(Debug)]
pub struct Watcher {
    settings: WatcherSettings,
    rooms: BTreeMap<RoomId, Watched>,
    /// When to look at a room again: one entry for each room whose `wake` is set.
    wakes: BTreeSet<(Mono, RoomId)>,
    stream: Stream,
    draining: bool,
    silent_factor: u32,
    store_time: StoreTime,
    compact_at: Mono,
    tally: Tally,
}

impl Watcher {
    /// A watcher without rooms and without a stream.
    #[must_use]
    pub fn new(settings: WatcherSettings) -> Self {
        Self {
            settings,
            rooms: BTreeMap::new(),
            wakes: BTreeSet::new(),
            stream: Stream::Lost,
            draining: false,
            silent_factor: 1,
            store_time: StoreTime::default(),
            compact_at: Mono(COMPACT_INTERVAL),
            tally: Tally::default(),
        }
    }

    /// Opens a room, or replaces the options of an open one; its view is kept, unless only the number of members is
    /// wanted from here on. Without a stream it is asked for as soon as there is one.
    pub fn open(&mut self, room: RoomId, options: RoomOptions, now: Mono, effects: &mut Vec<Effect>) {
        let remembers = self.settings.remembers;
        let watched = self.rooms.entry(room.clone()).or_insert_with(|| Watched::new(remembers));
        watched.set_options(options, remembers);
        if self.is_connected() {
            self.send_open(&room, now, effects);
        }
    }

    /// Closes a room and drops its view. What is still under way for it is dropped as it comes.
    pub fn close(&mut self, room: &RoomId, effects: &mut Vec<Effect>) {
        let Some(watched) = self.rooms.remove(room) else { return };
        if let Some(at) = watched.wake {
            self.wakes.remove(&(at, room.clone()));
        }
        if self.is_connected() {
            effects.push(Effect::Send(WatchUp::Close(room.clone())));
        }
    }

    /// Somebody has seen this of a room: asks the core to answer at or past it, naming the own position, and
    /// to tell what has happened since, if the view does not remember that.
    ///
    /// Answered by [`Event::Answered`] when the view has come that far and remembers it, or the core has shown
    /// that it cannot: then the cursor was not of this history, or too old. Not answered while the region is
    /// stale. A cursor is untrusted and may cost a question, at most four of them a beat and room. True if the
    /// answer is still to come; false if the room is not open or the view can answer already.
    pub fn catch_up(&mut self, room: &RoomId, cursor: &Cursor, now: Mono, effects: &mut Vec<Effect>) -> bool {
        let Some(watched) = self.rooms.get_mut(room) else { return false };
        let asks = watched.add_goals(cursor);
        let waits = watched.has_goals();
        if asks {
            watched.wanted.catch_up = true;
            let at = watched.not_before;
            self.ask_at(room, at, now, effects);
        }
        waits
    }

    /// A stream is open and takes what is sent from here on. All rooms are opened on it, each from its own
    /// position. May be called while another one is open, to move over without anything turning stale:
    /// nothing of the old stream may be handed in afterwards.
    pub fn connected(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        self.stream = Stream::Open { heard: now };
        self.draining = false;
        let rooms: Vec<RoomId> = self.rooms.keys().cloned().collect();
        for room in rooms {
            self.send_open(&room, now, effects);
        }
    }

    /// The stream is lost: every view is stale at once. Harmless if it was lost already.
    pub fn lost(&mut self, effects: &mut Vec<Effect>) {
        if !self.is_connected() {
            return;
        }
        self.stream = Stream::Lost;
        self.draining = false;
        self.wakes.clear();
        for (room, watched) in &mut self.rooms {
            watched.wake = None;
            watched.cut(room, self.store_time, effects);
        }
    }

    /// What is watched could not be heard for longer than its hold: everybody goes as `region_lost`, as one change.
    pub fn lose(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        for (room, watched) in &mut self.rooms {
            watched.lose(room, now, effects);
        }
    }

    /// Takes one message of the stream. Messages while there is no stream, and those about rooms that are
    /// not open, are dropped.
    pub fn handle(&mut self, down: WatchDown, now: Mono, effects: &mut Vec<Effect>) {
        let Stream::Open { heard } = &mut self.stream else { return };
        *heard = now;
        match down {
            WatchDown::Region { room, region, event } => {
                let Some(watched) = self.rooms.get_mut(&room) else { return self.tally.strangers += 1 };
                let taken = watched.take(&room, (&region, event), now, effects);
                if self.silent_factor > 1 && watched.is_live(&region) {
                    self.silent_factor = 1;
                }
                match taken {
                    Taken::Fine => {}
                    Taken::Gap => self.tally.gaps += 1,
                    Taken::Differs => self.tally.differs += 1,
                }
                if taken != Taken::Fine {
                    watched.wanted.repair = true;
                    let at = watched.not_before.max(watched.repair_not_before);
                    self.ask_at(&room, at, now, effects);
                }
            }
            WatchDown::Count { room, members } => {
                let Some(watched) = self.rooms.get_mut(&room) else { return self.tally.strangers += 1 };
                watched.count = Some(members);
                effects.push(Effect::Event(Event::Count { room, members }));
            }
            WatchDown::Refused { room, refusal } => {
                let Some(watched) = self.rooms.get_mut(&room) else { return self.tally.strangers += 1 };
                watched.cut(&room, self.store_time, effects);
                let retry_after = room::retry_after(&refusal).map(|after| after.max(self.settings.beat));
                watched.wanted.retry = retry_after.is_some();
                effects.push(Effect::Event(Event::Refused { room: room.clone(), refusal }));
                if let Some(after) = retry_after {
                    self.ask_at(&room, now + after, now, effects);
                }
            }
            WatchDown::Progress { sequence: _, store_time } => self.on_progress(store_time, effects),
            WatchDown::Drain => {
                if !std::mem::replace(&mut self.draining, true) {
                    effects.push(Effect::Reconnect(ReconnectCause::Drain));
                }
            }
        }
    }

    /// Lets time pass.
    pub fn tick(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        if self.silent_at().is_some_and(|at| at <= now) {
            self.tally.silent += 1;
            self.silent_factor = (self.silent_factor * 2).min(SILENT_FACTOR_MAX);
            self.lost(effects);
            effects.push(Effect::Reconnect(ReconnectCause::Silent));
        }
        while let Some((at, room)) = self.wakes.first().filter(|(at, _)| *at <= now).cloned() {
            self.wakes.remove(&(at, room.clone()));
            let watched = self.rooms.get_mut(&room).expect("a wake belongs to an open room");
            watched.wake = None;
            if watched.wanted.any() {
                self.send_open(&room, now, effects);
            }
        }
        if self.compact_at <= now {
            self.compact_at = now + COMPACT_INTERVAL;
            self.rooms.values_mut().for_each(|watched| watched.view.compact(now));
        }
    }

    /// When to call [`Watcher::tick`] next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        let compact = (!self.rooms.is_empty()).then_some(self.compact_at);
        let wake = self.wakes.first().map(|(at, _)| *at);
        [self.silent_at(), wake, compact].into_iter().flatten().min()
    }

    /// The core beats so often: a stream silent for three beats is given up.
    pub fn set_beat(&mut self, beat: Duration) {
        self.settings.beat = beat;
    }

    /// The store's clock as told elsewhere: views that turn stale say since when. Never lowers it.
    pub fn note_store_time(&mut self, store_time: StoreTime) {
        self.store_time = self.store_time.max(store_time);
    }

    /// The view of an open room. Its regions say how fresh they are.
    #[must_use]
    pub fn view(&self, room: &RoomId) -> Option<&View> {
        self.rooms.get(room).map(|watched| &watched.view)
    }

    /// The number of members as told, of a room opened at the level of counts.
    #[must_use]
    pub fn count(&self, room: &RoomId) -> Option<u64> {
        self.rooms.get(room)?.count
    }

    /// All open rooms, sorted.
    pub fn rooms(&self) -> impl Iterator<Item = &RoomId> {
        self.rooms.keys()
    }

    /// Whether there is a stream.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.stream != Stream::Lost
    }

    /// What happened so far, for metrics.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    fn silent_at(&self) -> Option<Mono> {
        match self.stream {
            Stream::Lost => None,
            Stream::Open { heard } => Some(heard + self.settings.beat * SILENT_BEATS * self.silent_factor),
        }
    }

    fn on_progress(&mut self, store_time: StoreTime, effects: &mut Vec<Effect>) {
        self.silent_factor = 1;
        self.note_store_time(store_time);
        for (room, watched) in self.rooms.iter_mut().filter(|(_, watched)| watched.has_goals()) {
            watched.progress(room, effects);
        }
        effects.push(Effect::Event(Event::Progress { store_time }));
    }

    /// Opens the room again at `at`, or now.
    fn ask_at(&mut self, room: &RoomId, at: Mono, now: Mono, effects: &mut Vec<Effect>) {
        if !self.is_connected() {
            return;
        }
        if at <= now {
            return self.send_open(room, now, effects);
        }
        let Some(watched) = self.rooms.get_mut(room) else { return };
        if watched.wake.is_some_and(|earlier| earlier <= at) {
            return;
        }
        if let Some(later) = watched.wake.replace(at) {
            self.wakes.remove(&(later, room.clone()));
        }
        self.wakes.insert((at, room.clone()));
    }

    fn send_open(&mut self, room: &RoomId, now: Mono, effects: &mut Vec<Effect>) {
        let Some(watched) = self.rooms.get_mut(room) else { return };
        if let Some(at) = watched.wake.take() {
            self.wakes.remove(&(at, room.clone()));
        }
        let home: Option<RegionId> = self.settings.home.clone();
        let open = watched.ask(room.clone(), home, self.settings.beat, now);
        effects.push(Effect::Send(WatchUp::Open(Box::new(open))));
    }
}
