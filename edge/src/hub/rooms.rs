//! The rooms this edge shows: each one view kept by the watcher, its receivers, and when they are shown more.

mod tally;

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use presence_client::watch::{Effect as Watch, Event, ReconnectCause, RoomOptions, Watcher, WatcherSettings};
use presence_model::cursor::Cursor;
use presence_model::fanout::pacing::cadence;
use presence_model::fanout::{Flushed, FrameCache, Pacing};
use presence_model::id::{RegionId, RoomId};
use presence_model::replica::Freshness;
use presence_model::time::Mono;
use presence_model::timing::Timings;
use presence_model::view::{View, ViewRevision};
use presence_model::watch::{Level, WatchDown, WatchRefusal, WatchUp};

use self::tally::Tally;
pub(super) use self::tally::Told;
use crate::limits::{FRAMES_REST, ROOM_FRAMES_MAX};
use crate::protocol::encoding::{ByEncoding, Frames};
use crate::protocol::{Encoding, ServerMessage};

/// A room in the table. Reused once nobody is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RoomKey(u32);

/// How fresh a region is, as told to receivers that have not seen this version.
pub(super) struct Fresh {
    pub(super) region: RegionId,
    pub(super) freshness: Freshness,
    pub(super) version: u32,
    frames: Frames,
}

impl Fresh {
    /// As it is written: once for each encoding.
    pub(super) fn frame(&mut self, room: &RoomId, encoding: Encoding) -> Bytes {
        let Self { region, freshness, frames, .. } = self;
        frames.get(encoding, |encoding| {
            let (room, region, freshness) = (room.clone(), region.clone(), *freshness);
            encoding.message(&ServerMessage::Freshness { room, region, freshness })
        })
    }
}

pub(super) struct Room {
    pub(super) name: RoomId,
    stays: u32,
    /// Places of connections in their table.
    receivers: Vec<u32>,
    watched: bool,
    pacing: Pacing,
    /// What receivers are shown without waiting for the next flush.
    pub(super) flushed: Flushed,
    pub(super) caches: ByEncoding<FrameCache>,
    tally: Tally,
    pub(super) fresh: Vec<Fresh>,
    pub(super) fresh_version: u32,
    /// Closed then, unless somebody watches it again.
    closes: Option<Mono>,
    /// Until then whoever watches it has a list, or hears that there is none.
    owed: Option<Mono>,
    /// The entry of it in the list of what is due.
    due: Option<Mono>,
}

/// What the shell is to do for the rooms.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Send(WatchUp),
    Reconnect(ReconnectCause),
}

impl Room {
    /// What receivers are shown that did not ask for one or the other.
    pub(super) fn level(&self) -> Level {
        self.tally.level()
    }

    /// The number for all who were told an earlier one, and the room's name.
    pub(super) fn told(&mut self, view: &View) -> (&RoomId, &mut Told) {
        (&self.name, self.tally.told(view))
    }

    /// From where on that number names who came and went.
    pub(super) fn names_from(&self) -> ViewRevision {
        self.tally.names_from()
    }

    /// Receivers are shown what the view is now.
    fn flush(&mut self, view: &View, list_members: usize) {
        self.tally.flushed(self.flushed.at(), view.len(), list_members);
        self.flushed.flush(view);
    }
}

/// What happened to receivers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// All of this room are to be looked at.
    Look(RoomKey),
    /// What was asked of the core for receivers of this room is answered.
    Answered(RoomKey),
    /// The core does not let this room be watched, and asking again by ourselves is of no use.
    Refused(RoomKey, WatchRefusal),
    /// Nothing at all is known of this room, and those who wait for it have waited long enough.
    Unanswered(RoomKey),
}

pub(super) struct Rooms {
    watcher: Watcher,
    slots: Vec<Option<Box<Room>>>,
    free: Vec<u32>,
    names: HashMap<RoomId, RoomKey, foldhash::fast::FixedState>,
    due: BTreeSet<(Mono, RoomKey)>,
    said: Vec<Watch>,
    linger: Duration,
    answer_within: Duration,
    list_members: usize,
    pub(super) wanted: Vec<Wanted>,
    pub(super) news: Vec<News>,
}

impl Rooms {
    pub(super) fn new(home: RegionId, timings: &Timings, list_members: usize) -> Self {
        Self {
            watcher: Watcher::new(WatcherSettings {
                home: Some(home),
                beat: timings.link_beat,
                remembers: false,
            }),
            slots: Vec::new(),
            free: Vec::new(),
            names: HashMap::with_hasher(foldhash::fast::FixedState::with_seed(0)),
            due: BTreeSet::new(),
            said: Vec::new(),
            linger: timings.grace,
            answer_within: timings.heartbeat,
            list_members,
            wanted: Vec::new(),
            news: Vec::new(),
        }
    }

    pub(super) fn set_timings(&mut self, timings: &Timings) {
        self.watcher.set_beat(timings.link_beat);
        self.linger = timings.grace;
        self.answer_within = timings.heartbeat;
    }

    pub(super) fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn find(&self, name: &RoomId) -> Option<RoomKey> {
        self.names.get(name).copied()
    }

    fn get(&self, key: RoomKey) -> &Room {
        self.slots[key.0 as usize].as_deref().expect("a room is kept while somebody stays in it")
    }

    fn get_mut(&mut self, key: RoomKey) -> &mut Room {
        self.slots[key.0 as usize].as_deref_mut().expect("a room is kept while somebody stays in it")
    }

    /// Only for whoever stays in it: keys are reused.
    pub(super) fn name(&self, key: RoomKey) -> RoomId {
        self.get(key).name.clone()
    }

    /// A room and its view, if it is watched.
    pub(super) fn shown(&mut self, key: RoomKey) -> Option<(&mut Room, &View)> {
        let room = self.slots[key.0 as usize].as_deref_mut()?;
        let view = self.watcher.view(&room.name)?;
        Some((room, view))
    }

    /// Somebody stays in a room from now on.
    pub(super) fn enter(&mut self, name: &RoomId) -> RoomKey {
        let key = self.find(name).unwrap_or_else(|| self.insert(name));
        self.get_mut(key).stays += 1;
        key
    }

    /// Somebody stays no longer. Has to stop watching first.
    pub(super) fn leave(&mut self, key: RoomKey) {
        let room = self.get_mut(key);
        room.stays -= 1;
        self.drop_if_unused(key);
    }

    /// Watches a room in good time for receivers to come; without any it is closed after a while.
    pub(super) fn warm(&mut self, key: RoomKey, since: Option<&Cursor>, now: Mono) {
        let linger = self.linger;
        let room = self.get_mut(key);
        let name = room.name.clone();
        if room.receivers.is_empty() && room.closes.is_none() {
            room.closes = Some(now + linger);
        }
        if !std::mem::replace(&mut room.watched, true) {
            let at_least = since.cloned().unwrap_or_default();
            let options = RoomOptions {
                level: Level::Members,
                regions: Vec::new(),
                min_interval: Duration::ZERO,
                at_least,
            };
            self.watcher.open(name, options, now, &mut self.said);
            self.take_said(now);
        }
        self.schedule(key);
    }

    /// Adds a receiver; gives its place.
    pub(super) fn watch(&mut self, key: RoomKey, conn: u32, since: Option<&Cursor>, now: Mono) -> u32 {
        self.warm(key, since, now);
        let owed = self.is_unknown(key).then(|| now + self.answer_within);
        let room = self.get_mut(key);
        room.closes = None;
        room.owed = room.owed.or(owed);
        if room.receivers.len() == room.receivers.capacity() {
            let more = (room.receivers.len() / 4).max(1);
            room.receivers.reserve_exact(more);
        }
        room.receivers.push(conn);
        self.schedule(key);
        u32::try_from(self.get(key).receivers.len() - 1).expect("fewer receivers than descriptors")
    }

    /// Takes a receiver away. Gives the connection that has its place now, if another one moved there.
    pub(super) fn unwatch(&mut self, key: RoomKey, place: u32, now: Mono) -> Option<u32> {
        let linger = self.linger;
        let room = self.get_mut(key);
        room.receivers.swap_remove(place as usize);
        let moved = room.receivers.get(place as usize).copied();
        if room.receivers.is_empty() {
            room.closes = Some(now + linger);
        }
        self.schedule(key);
        moved
    }

    /// Whether nothing was ever heard of it, not even how fresh it is.
    fn is_unknown(&self, key: RoomKey) -> bool {
        let view = self.watcher.view(&self.get(key).name);
        view.is_none_or(|view| view.regions().next().is_none())
    }

    pub(super) fn receivers(&self, key: RoomKey) -> &[u32] {
        self.slots[key.0 as usize].as_deref().map_or(&[], |room| &room.receivers)
    }

    /// Asks the core for what somebody has seen; true if the answer is to come.
    pub(super) fn catch_up(&mut self, key: RoomKey, cursor: &Cursor, now: Mono) -> bool {
        let name = self.name(key);
        let waits = self.watcher.catch_up(&name, cursor, now, &mut self.said);
        self.take_said(now);
        waits
    }

    pub(super) fn connected(&mut self, now: Mono) {
        self.watcher.connected(now, &mut self.said);
        self.take_said(now);
    }

    pub(super) fn take(&mut self, down: WatchDown, now: Mono) {
        self.watcher.handle(down, now, &mut self.said);
        self.take_said(now);
    }

    /// Lets time pass: the watcher, flushes, and rooms nobody came back to.
    pub(super) fn tick(&mut self, now: Mono) {
        if self.watcher.poll_timeout().is_some_and(|at| at <= now) {
            self.watcher.tick(now, &mut self.said);
            self.take_said(now);
        }
        while let Some((_, key)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.pop_first();
            let Some(room) = self.slots[key.0 as usize].as_deref_mut() else { continue };
            room.due = None;
            if room.closes.is_some_and(|at| at <= now) {
                self.close(key);
                continue;
            }
            if room.owed.take_if(|at| *at <= now).is_some() && self.is_unknown(key) {
                self.news.push(News::Unanswered(key));
            }
            let Some(room) = self.slots[key.0 as usize].as_deref_mut() else { continue };
            match room.pacing.due() {
                Some(at) if at <= now => self.flush(key, now),
                Some(_) => {}
                None => room.caches.all().for_each(FrameCache::clear),
            }
            self.schedule(key);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Mono> {
        let due = self.due.first().map(|(at, _)| *at);
        [self.watcher.poll_timeout(), due].into_iter().flatten().min()
    }

    fn flush(&mut self, key: RoomKey, now: Mono) {
        let Some(room) = self.slots[key.0 as usize].as_deref_mut() else { return };
        room.pacing.flushed(now);
        if let Some(view) = self.watcher.view(&room.name) {
            room.flush(view, self.list_members);
            room.caches.all().for_each(|cache| cache.bound(view.revision()));
        }
        let rests = now + FRAMES_REST;
        if room.due.is_none_or(|due| due > rests) {
            if let Some(due) = room.due.replace(rests) {
                self.due.remove(&(due, key));
            }
            self.due.insert((rests, key));
        }
        self.news.push(News::Look(key));
    }

    /// Sees to it that a room is looked at when something of it is due.
    fn schedule(&mut self, key: RoomKey) {
        let Some(room) = self.slots[key.0 as usize].as_deref_mut() else { return };
        let Some(next) = [room.pacing.due(), room.closes, room.owed].into_iter().flatten().min() else {
            return;
        };
        if room.due.is_some_and(|due| due <= next) {
            return;
        }
        if let Some(later) = room.due.replace(next) {
            self.due.remove(&(later, key));
        }
        self.due.insert((next, key));
    }

    /// Watches a room no longer; its receivers have to be gone.
    pub(super) fn close(&mut self, key: RoomKey) {
        let room = self.get_mut(key);
        (room.closes, room.owed) = (None, None);
        room.watched = false;
        room.pacing = Pacing::default();
        room.flushed = Flushed::default();
        room.tally = Tally::default();
        room.caches = ByEncoding::new(|| FrameCache::new(ROOM_FRAMES_MAX));
        room.fresh = Vec::new();
        let name = room.name.clone();
        self.watcher.close(&name, &mut self.said);
        self.take_said(Mono::default());
        self.drop_if_unused(key);
    }

    fn drop_if_unused(&mut self, key: RoomKey) {
        let room = self.get_mut(key);
        if room.stays > 0 || room.watched {
            return;
        }
        if let Some(due) = room.due.take() {
            self.due.remove(&(due, key));
        }
        let room = self.slots[key.0 as usize].take().expect("it was there a moment ago");
        self.names.remove(&room.name);
        self.free.push(key.0);
    }

    fn insert(&mut self, name: &RoomId) -> RoomKey {
        let room = Some(Box::new(Room {
            name: name.clone(),
            stays: 0,
            receivers: Vec::new(),
            watched: false,
            pacing: Pacing::default(),
            flushed: Flushed::default(),
            tally: Tally::default(),
            caches: ByEncoding::new(|| FrameCache::new(ROOM_FRAMES_MAX)),
            fresh: Vec::new(),
            fresh_version: 0,
            closes: None,
            owed: None,
            due: None,
        }));
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer rooms than stays")
        });
        self.slots[index as usize] = room;
        self.names.insert(name.clone(), RoomKey(index));
        RoomKey(index)
    }

    fn take_said(&mut self, now: Mono) {
        for said in std::mem::take(&mut self.said) {
            match said {
                Watch::Send(up) => self.wanted.push(Wanted::Send(up)),
                Watch::Reconnect(cause) => self.wanted.push(Wanted::Reconnect(cause)),
                Watch::Event(event) => self.on_event(event, now),
            }
        }
    }

    fn on_event(&mut self, event: Event, now: Mono) {
        match event {
            Event::Changed(name) => self.changed(&name, now),
            Event::Freshness { room, region, freshness } => self.fresh(&room, region, freshness),
            Event::Answered(name) => self.news.extend(self.find(&name).map(News::Answered)),
            Event::Refused { room, refusal } => self.refused(&room, refusal),
            // Rooms are opened at the level of members; the link tells the time.
            Event::Count { .. } | Event::Progress { .. } => {}
        }
    }

    /// What may pass is asked for again by the watcher itself, and the room is stale meanwhile.
    fn refused(&mut self, name: &RoomId, refusal: WatchRefusal) {
        let Some(key) = self.find(name) else { return };
        match refusal {
            WatchRefusal::RateLimited { .. } | WatchRefusal::Unavailable { .. } => {}
            WatchRefusal::BadRequest(_)
            | WatchRefusal::UnknownRegion
            | WatchRefusal::Forbidden
            | WatchRefusal::TooManyRooms => self.news.push(News::Refused(key, refusal)),
        }
    }

    fn changed(&mut self, name: &RoomId, now: Mono) {
        let Some(key) = self.find(name) else { return };
        let list_members = self.list_members;
        let Some((room, view)) = self.shown(key) else { return };
        if !room.receivers.is_empty() {
            room.pacing.changed(now, cadence(view.len()));
            self.schedule(key);
        } else {
            // Who comes next is shown it at once.
            room.flush(view, list_members);
        }
    }

    fn fresh(&mut self, name: &RoomId, region: RegionId, freshness: Freshness) {
        let Some(key) = self.find(name) else { return };
        let room = self.get_mut(key);
        room.fresh_version += 1;
        let fresh = Fresh { region, freshness, version: room.fresh_version, frames: Frames::default() };
        match room.fresh.iter_mut().find(|known| known.region == fresh.region) {
            Some(known) => *known = fresh,
            None => room.fresh.push(fresh),
        }
        self.news.push(News::Look(key));
    }
}
