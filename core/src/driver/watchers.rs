//! Watchers own places, never queues: each place says what its watcher has been given of one region.
//!
//! One effect is out for a watcher at a time. Whatever happens until it is written is told afterwards,
//! conflated, from the place: a slow watcher costs O(1) a room.

mod place;
mod resume;
mod send;

use std::collections::{BTreeMap, BTreeSet};

use presence_model::cursor::Cursor;
use presence_model::id::{RegionId, RoomId, Roster};
use presence_model::time::Mono;
use presence_model::watch::{Level, OpenRoom, WatchDown, WatchRefusal, WatchUp};

use self::place::Place;
use super::peers::Who;
use super::{Driver, Effect, WatchEnd, WatchKey};
use crate::limits::{
    ROOMS_PER_WATCH_MAX, ROOMS_WATCHED_MAX, WATCH_NOTES_MAX, WATCH_READ_WITHIN, WATCHES_MAX,
};

#[derive(Debug)]
struct Watched {
    open: OpenRoom,
    regions: BTreeMap<RegionId, Place>,
    /// The count told last.
    count: Option<u64>,
    /// Nothing further is told before.
    not_before: Mono,
}

#[derive(Debug)]
struct Watch {
    rooms: BTreeMap<RoomId, Watched>,
    /// Whether everything given out is written.
    ready: bool,
    /// When it was given what is not written yet.
    handed: Mono,
    /// Rooms of which there may be something to tell.
    touched: BTreeSet<RoomId>,
    /// Rooms that are not answered yet: nothing is said to be complete before.
    unanswered: BTreeSet<RoomId>,
    /// Rooms of which there is something to tell, later.
    later: BTreeSet<(Mono, RoomId)>,
    /// Refusals and the like, at most one for each message of the watcher.
    notes: Vec<WatchDown>,
    sequence: u64,
    progress_at: Mono,
}

/// All watchers.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    watches: BTreeMap<WatchKey, Watch>,
    /// Those that may have something to be sent.
    active: BTreeSet<WatchKey>,
    /// Rooms of all of them.
    rooms: usize,
    serial: u64,
}

impl Watchers {
    /// Something about a room may be told to a watcher.
    pub(super) fn touch(&mut self, key: WatchKey, room: &RoomId) {
        if let Some(watch) = self.watches.get_mut(&key) {
            watch.touched.insert(room.clone());
            if watch.ready {
                self.active.insert(key);
            }
        }
    }

    /// When something is due for a watcher that can take it, or one that cannot is ended.
    pub(super) fn due(&self) -> Option<Mono> {
        let next = |watch: &Watch| {
            if !watch.ready {
                return watch.handed + WATCH_READ_WITHIN;
            }
            watch.later.first().map_or(watch.progress_at, |(at, _)| watch.progress_at.min(*at))
        };
        self.watches.values().map(next).min()
    }

    /// This process did not run: what it did not hear of being written may be.
    pub(super) fn forgive(&mut self, now: Mono) {
        for watch in self.watches.values_mut() {
            watch.handed = now;
        }
    }

    /// All of them.
    pub(super) fn keys(&self) -> Vec<WatchKey> {
        self.watches.keys().copied().collect()
    }

    /// Something to be told to a watcher that concerns no place.
    pub(super) fn note(&mut self, key: WatchKey, note: WatchDown) {
        if let Some(watch) = self.watches.get_mut(&key) {
            watch.notes.push(note);
            if watch.ready {
                self.active.insert(key);
            }
        }
    }
}

impl Driver {
    /// A watcher came.
    pub(super) fn on_watch_opened(&mut self, key: WatchKey) {
        if self.watchers.watches.len() >= WATCHES_MAX {
            let retry_after = self.retry_after();
            return self.out.push(Effect::CloseWatch(key, WatchEnd::TooMany { retry_after }));
        }
        let watch = Watch {
            rooms: BTreeMap::new(),
            ready: true,
            handed: self.now,
            touched: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            later: BTreeSet::new(),
            notes: Vec::new(),
            sequence: 0,
            progress_at: self.now + self.settings.timings.link_beat,
        };
        self.watchers.watches.insert(key, watch);
        if self.draining {
            self.watchers.note(key, WatchDown::Drain);
        }
    }

    /// A watcher said something.
    pub(super) fn on_watch_up(&mut self, key: WatchKey, message: WatchUp) {
        match message {
            WatchUp::Open(open) => self.open_room(key, *open),
            WatchUp::Close(room) => self.close_room(key, &room),
        }
    }

    /// Where a watcher is, as it says itself, may be above all that the store knows any more.
    fn hear_of_epochs(&mut self, open: &OpenRoom) {
        for region in &self.regions {
            let Some(at) = open.cursor.as_ref().and_then(|cursor| cursor.seen(region)) else { continue };
            let roster = Roster { region: region.clone(), room: open.room.clone() };
            let shard = self.shard(&roster);
            let store_now = self.clock.estimate(shard, self.now);
            self.sweep.told(shard, at.epoch, (store_now, self.now));
        }
    }

    fn open_room(&mut self, key: WatchKey, open: OpenRoom) {
        let Some(watch) = self.watchers.watches.get(&key) else { return };
        let room = open.room.clone();
        let is_new = !watch.rooms.contains_key(&room);
        let is_full = is_new && watch.rooms.len() >= ROOMS_PER_WATCH_MAX;
        let Some(regions) = self.regions_for(&open) else {
            return self.refuse_room(key, room, WatchRefusal::UnknownRegion);
        };
        if is_full {
            return self.refuse_room(key, room, WatchRefusal::TooManyRooms);
        }
        if is_new && self.watchers.rooms >= ROOMS_WATCHED_MAX {
            let retry_after = self.retry_after();
            return self.refuse_room(key, room, WatchRefusal::RateLimited { retry_after });
        }
        let place = |region: &RegionId| {
            let equal = |cursor: &Option<_>| cursor.as_ref().and_then(|cursor: &Cursor| cursor.get(region));
            let seen = |cursor: &Option<_>| cursor.as_ref().and_then(|cursor: &Cursor| cursor.seen(region));
            let at_least = seen(&open.at_least).max(seen(&open.cursor));
            let place = Place::new(equal(&open.cursor), at_least, equal(&open.recall));
            (region.clone(), if self.serves(region) { place } else { place.kept_elsewhere() })
        };
        let places = regions.iter().map(place).collect();
        self.hear_of_epochs(&open);
        let level = open.level;
        let watched = Watched { open, regions: places, count: None, not_before: self.now };
        let again = self.watchers.watches.get_mut(&key).and_then(|watch| {
            watch.unanswered.insert(room.clone());
            watch.rooms.insert(room.clone(), watched)
        });
        self.watchers.rooms += usize::from(is_new);
        // Attended to first and not any more after: a room opened again keeps its copy.
        for region in &regions {
            self.attend(level, &Roster { region: region.clone(), room: room.clone() }, key);
        }
        if let Some(again) = again {
            for region in again.regions.into_keys() {
                if again.open.level != level || !regions.contains(&region) {
                    self.neglect(again.open.level, &Roster { region, room: room.clone() }, key);
                }
            }
        }
        self.watchers.touch(key, &room);
    }

    /// The regions that a watcher is shown; none if it names one that is not known. A watcher of another region, which is
    /// a core there, is shown what is kept here: of what is kept elsewhere it hears from there.
    fn regions_for(&self, open: &OpenRoom) -> Option<Vec<RegionId>> {
        let is_peer = |region: &RegionId| self.peers.knows(region);
        let comes_from_peer = match &open.home {
            Some(home) if self.serves(home) => false,
            Some(home) if is_peer(home) => true,
            Some(_) => return None,
            None => false,
        };
        let may_see = |region: &RegionId| self.serves(region) || (is_peer(region) && !comes_from_peer);
        if open.regions.is_empty() {
            return Some(self.known_regions().filter(|region| may_see(region)).cloned().collect());
        }
        open.regions.iter().all(may_see).then(|| open.regions.clone())
    }

    /// Says that a room is not watched, for this reason: not any more, if it was. Who lets such answers
    /// pile up unread is let go.
    pub(super) fn refuse_room(&mut self, key: WatchKey, room: RoomId, refusal: WatchRefusal) {
        self.close_room(key, &room);
        let Some(watch) = self.watchers.watches.get(&key) else { return };
        if watch.notes.len() >= WATCH_NOTES_MAX {
            self.out.push(Effect::CloseWatch(key, WatchEnd::TooSlow));
            return self.on_watch_closed(key);
        }
        self.watchers.note(key, WatchDown::Refused { room, refusal });
    }

    /// Ends the watches that do not take what they were given.
    pub(super) fn end_stalled_watches(&mut self) {
        let stalled =
            |(_, watch): &(&WatchKey, &Watch)| !watch.ready && watch.handed + WATCH_READ_WITHIN <= self.now;
        let stalled: Vec<WatchKey> =
            self.watchers.watches.iter().filter(stalled).map(|(key, _)| *key).collect();
        for key in stalled {
            self.out.push(Effect::CloseWatch(key, WatchEnd::TooSlow));
            self.on_watch_closed(key);
        }
    }

    fn close_room(&mut self, key: WatchKey, room: &RoomId) {
        let Some(watch) = self.watchers.watches.get_mut(&key) else { return };
        watch.touched.remove(room);
        watch.unanswered.remove(room);
        let Some(watched) = watch.rooms.remove(room) else { return };
        self.watchers.rooms -= 1;
        for region in watched.regions.into_keys() {
            self.neglect(watched.open.level, &Roster { region, room: room.clone() }, key);
        }
    }

    /// A watcher wants so much of a roster.
    fn attend(&mut self, level: Level, roster: &Roster, key: WatchKey) {
        if !self.serves(&roster.region) {
            return self.attend_peer(roster, (Who::Watch(key), level));
        }
        match level {
            Level::Members => self.watch_roster(roster, key),
            Level::Count => self.count_roster(roster, key),
        }
    }

    /// It does so no more.
    fn neglect(&mut self, level: Level, roster: &Roster, key: WatchKey) {
        if !self.serves(&roster.region) {
            return self.neglect_peer(roster, (Who::Watch(key), level));
        }
        match level {
            Level::Members => self.unwatch_roster(roster, key),
            Level::Count => self.uncount_roster(roster, key),
        }
    }

    /// A watcher can take more.
    pub(super) fn on_watch_ready(&mut self, key: WatchKey) {
        if let Some(watch) = self.watchers.watches.get_mut(&key) {
            watch.ready = true;
            self.watchers.active.insert(key);
        }
    }

    /// A watcher went.
    pub(super) fn on_watch_closed(&mut self, key: WatchKey) {
        self.watchers.active.remove(&key);
        let Some(watch) = self.watchers.watches.remove(&key) else { return };
        self.watchers.rooms -= watch.rooms.len();
        for (room, watched) in watch.rooms {
            for region in watched.regions.into_keys() {
                self.neglect(watched.open.level, &Roster { region, room: room.clone() }, key);
            }
        }
    }
}
