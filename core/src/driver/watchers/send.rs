//! What a watcher is given next: bounded batches, paced by room, with progress behind them.
//!
//! What crosses from one region to another is conflated here and nowhere else: a watcher is told of the roster of its
//! home region at once, and of each other one at the merge interval, unless somebody moves between them.

use std::time::Duration;

use presence_model::id::{RegionId, RoomId, Roster};
use presence_model::position::Position;
use presence_model::replica::Freshness;
use presence_model::time::Mono;
use presence_model::view::RegionEvent;
use presence_model::watch::{Level, OpenRoom, WatchDown};

use super::place::{At, Place, Step};
use super::{Watch, Watched};
use crate::driver::rosters::Pages;
use crate::driver::strain::Strain;
use crate::driver::{Driver, Effect, WatchKey};
use crate::limits::{
    CHANGES_INTERVAL_STRAINED, COUNT_INTERVAL, COUNT_INTERVAL_STRAINED, WATCH_BATCH_MEMBERS,
};

/// Steps of one place in one batch; a place that wants more is looked at again with the next.
const STEPS_MAX: usize = 64;

/// What became of a room's turn.
struct Given {
    /// There is more than fits.
    more: bool,
    /// When to look at it again: something of a merged region waits.
    later: Option<Mono>,
}

impl Driver {
    /// Gives every watcher that can take something what there is for it.
    pub(in crate::driver) fn serve_watchers(&mut self) {
        self.wake_watchers();
        for key in std::mem::take(&mut self.watchers.active) {
            // Taken out, so that its places can be stepped while copies are looked at.
            let Some(mut watch) = self.watchers.watches.remove(&key) else { continue };
            let batch = if watch.ready { self.batch(key, &mut watch) } else { Vec::new() };
            if !batch.is_empty() {
                watch.ready = false;
                watch.handed = self.now;
                self.out.push(Effect::Watch(key, batch));
            }
            self.watchers.watches.insert(key, watch);
        }
    }

    fn wake_watchers(&mut self) {
        let now = self.now;
        for (key, watch) in self.watchers.watches.iter_mut().filter(|(_, watch)| watch.ready) {
            while let Some((at, _)) = watch.later.first()
                && *at <= now
                && let Some((_, room)) = watch.later.pop_first()
            {
                watch.touched.insert(room);
            }
            if !watch.touched.is_empty() || watch.progress_at <= now {
                self.watchers.active.insert(*key);
            }
        }
    }

    fn batch(&mut self, key: WatchKey, watch: &mut Watch) -> Vec<WatchDown> {
        self.look_at_late(key, watch);
        let mut batch = std::mem::take(&mut watch.notes);
        let mut budget = WATCH_BATCH_MEMBERS;
        while budget > 0
            && let Some(room) = watch.touched.pop_first()
        {
            let Some(watched) = watch.rooms.get_mut(&room) else { continue };
            if watched.not_before > self.now {
                watch.later.insert((watched.not_before, room));
                continue;
            }
            let paced = !watched.is_unanswered();
            let before = batch.len();
            let Given { more, later } = match watched.open.level {
                Level::Members => self.room_events(key, &room, watched, (&mut budget, &mut batch)),
                Level::Count => self.room_count(&room, watched, &mut batch),
            };
            watch.later.extend(later.map(|at| (at, room.clone())));
            if paced && batch.len() > before {
                watched.not_before = self.now + self.interval(&room, watched);
            }
            if watched.holds_progress() {
                watch.unanswered.insert(room.clone());
            } else {
                watch.unanswered.remove(&room);
            }
            if more {
                watch.touched.insert(room);
                break;
            }
        }
        self.add_progress(key, watch, &mut batch);
        batch
    }

    /// Events of one room.
    fn room_events(
        &mut self,
        key: WatchKey,
        room: &RoomId,
        watched: &mut Watched,
        (budget, batch): (&mut usize, &mut Vec<WatchDown>),
    ) -> Given {
        let mut later = None;
        for (region, place) in &mut watched.regions {
            let roster = Roster { region: region.clone(), room: room.clone() };
            let since = sooner(self.behind_since(&roster), place.waits_since());
            let freshness = self.shown_freshness(&roster, since);
            let is_merged = self.is_merged(&watched.open, region);
            if is_merged && let Some(at) = place.rests(self.now, freshness, self.rosters.moved(&roster)) {
                later = sooner(later, Some(at));
                continue;
            }
            let down = |event| WatchDown::Region { room: room.clone(), region: region.clone(), event };
            for step in 0.. {
                if *budget == 0 || step >= STEPS_MAX {
                    return Given { more: true, later };
                }
                let Some(copy) = self.copy(&roster) else {
                    batch.extend(place.warn(freshness).map(down));
                    break;
                };
                if place.waits_beyond(copy.position()) && self.peers.asks(&roster) {
                    batch.extend(place.warn(freshness).map(down));
                    break;
                }
                match place.step(copy, freshness) {
                    Step::Done => break,
                    Step::Tell(event) => {
                        if is_merged && is_change(&event) {
                            place.rest_until(self.now + self.settings.timings.merge_interval);
                        }
                        *budget = budget.saturating_sub(weight(&event));
                        batch.push(down(event));
                    }
                    Step::CatchUp(seen) => self.reach(&roster, seen),
                    Step::History(cursor) if self.serves(region) => {
                        place.at = self.ask_resume(key, &roster, cursor);
                    }
                    // Further back than the copy is remembered elsewhere only: the list is nearer.
                    Step::History(_) => place.resumed(None),
                    Step::Pages => match self.pages_of(&roster) {
                        Some(pages) => place.at = At::Paging(pages, 0),
                        None => break,
                    },
                }
            }
        }
        Given { more: false, later }
    }

    fn room_count(&mut self, room: &RoomId, watched: &mut Watched, batch: &mut Vec<WatchDown>) -> Given {
        let (mut members, mut later) = (0, None);
        for (region, place) in &mut watched.regions {
            let roster = Roster { region: region.clone(), room: room.clone() };
            let is_here = self.serves(region);
            let since = if is_here { self.counts.behind_since(&roster) } else { self.behind_since(&roster) };
            let freshness = self.shown_freshness(&roster, since);
            let down = |event| WatchDown::Region { room: room.clone(), region: region.clone(), event };
            let known = if is_here { self.counts.known(&roster) } else { self.peers.count(&roster) };
            // Of a region that was never heard nothing is known, which its freshness says.
            let Some(known) = known.or((!is_here && freshness.is_stale()).then_some(0)) else {
                batch.extend(place.warn(freshness).map(down));
                return Given { more: false, later };
            };
            batch.extend(place.tell(freshness).map(down));
            if self.is_merged(&watched.open, region) {
                let until = self.now + self.settings.timings.merge_interval;
                let (told, at) = place.merged_count(known, self.now, until);
                members += told;
                later = sooner(later, at);
            } else {
                members += known;
            }
        }
        if watched.count.replace(members) != Some(members) {
            watched.not_before = self.now + self.interval(room, watched);
            batch.push(WatchDown::Count { room: room.clone(), members });
        }
        Given { more: false, later }
    }

    /// Whether what a watcher is told of a region crosses from one region to another here: then it is conflated.
    fn is_merged(&self, open: &OpenRoom, region: &RegionId) -> bool {
        self.serves(region) && open.home.as_ref().unwrap_or(&self.settings.region) != region
    }

    /// Since when a roster, as its watchers see it, is not as far as it should be.
    fn behind_since(&self, roster: &Roster) -> Option<Mono> {
        if self.serves(&roster.region) {
            self.rosters.behind_since(roster)
        } else {
            self.peers.behind_since(roster)
        }
    }

    /// Brings a copy as far as somebody has seen its roster.
    fn reach(&mut self, roster: &Roster, seen: Position) {
        if self.serves(&roster.region) {
            self.catch_up(roster);
        } else {
            self.ask_peer(roster, seen);
        }
    }

    fn pages_of(&mut self, roster: &Roster) -> Option<Pages> {
        if self.serves(&roster.region) { self.pages(roster) } else { self.peer_pages(roster) }
    }

    /// Until something further of a room is told to a watcher.
    fn interval(&self, room: &RoomId, watched: &Watched) -> Duration {
        let home = Roster { region: self.settings.region.clone(), room: room.clone() };
        let strain = self.strain(&home);
        let least = match watched.open.level {
            Level::Members if strain >= Strain::Changes => CHANGES_INTERVAL_STRAINED,
            Level::Members => Duration::ZERO,
            Level::Count if strain >= Strain::Counts => COUNT_INTERVAL_STRAINED,
            Level::Count => COUNT_INTERVAL,
        };
        watched.open.min_interval.max(least)
    }

    /// What the store has owed for a beat is told as stale, so that it does not hold up what is said of all other
    /// rooms: a watcher that hears nothing for a few beats gives its stream up.
    fn look_at_late(&self, key: WatchKey, watch: &mut Watch) {
        if watch.progress_at > self.now {
            return;
        }
        let (late, rooms) = (self.late(), &watch.rooms);
        let waits = |room: &&RoomId| rooms.get(*room).is_some_and(|watched| watched.waits_since(late));
        let unanswered: Vec<RoomId> = watch.unanswered.iter().filter(waits).cloned().collect();
        let rosters = self.rosters.late(key, late).chain(self.counts.late(key, late));
        // Of these some may be late for hours: each is told once.
        let untold = |room: &RoomId| rooms.get(room).is_some_and(Watched::waits_elsewhere);
        let elsewhere: Vec<RoomId> = self.peers.late(key, late).into_iter().filter(untold).collect();
        for room in rosters.map(|roster| roster.room.clone()).chain(elsewhere).chain(unanswered) {
            if let Some(watched) = watch.rooms.get_mut(&room) {
                watched.not_before = self.now;
                watch.touched.insert(room);
            }
        }
    }

    /// What the store owes since then or longer is late.
    fn late(&self) -> Option<Mono> {
        self.now.0.checked_sub(self.settings.timings.link_beat).map(Mono)
    }

    /// How fresh what a watcher is shown of a roster is, for which the store owes something `since` then.
    fn shown_freshness(&self, roster: &Roster, since: Option<Mono>) -> Freshness {
        let late = self.late();
        match since.filter(|since| Some(*since) <= late) {
            Some(since) => {
                let now = self.clock.latest(self.now).unwrap_or_default();
                Freshness::Stale { since: now.before(self.now.since(since)) }
            }
            None => self.freshness(roster),
        }
    }

    /// Says that nothing was missed up to here, if that is so: all watched that is not stale is in step with a
    /// tail that is heard, and nothing waits but what is paced.
    fn add_progress(&mut self, key: WatchKey, watch: &mut Watch, batch: &mut Vec<WatchDown>) {
        if watch.progress_at > self.now {
            return;
        }
        watch.progress_at = self.now + self.settings.timings.link_beat;
        let whole = watch.touched.is_empty()
            && watch.unanswered.is_empty()
            && self.rosters.stale().is_none()
            && self.tail_is_heard();
        let late = self.late();
        let serves = whole
            && self.rosters.serves(key, late)
            && self.counts.serves(key, late)
            && self.peers.serves(key, late);
        let Some(store_time) = self.clock.latest(self.now).filter(|_| serves) else { return };
        watch.sequence += 1;
        batch.push(WatchDown::Progress { sequence: watch.sequence, store_time });
    }
}

impl Watched {
    /// Whether nothing can be said to be complete before it is answered.
    fn holds_progress(&self) -> bool {
        match self.open.level {
            Level::Members => self.regions.values().any(|place| place.is_unanswered() && !place.is_stale()),
            Level::Count => self.count.is_none() && !self.regions.values().any(Place::is_stale),
        }
    }

    /// Whether the store owes an answer since then or longer.
    fn waits_since(&self, late: Option<Mono>) -> bool {
        self.regions.values().filter_map(Place::waits_since).any(|since| Some(since) <= late)
    }

    /// Whether a roster that is kept elsewhere is waited for without saying so.
    fn waits_elsewhere(&self) -> bool {
        self.regions.values().any(Place::waits_elsewhere)
    }

    /// Whether a first answer is still to come: it is not paced.
    fn is_unanswered(&self) -> bool {
        match self.open.level {
            Level::Members => self.regions.values().any(Place::is_unanswered),
            Level::Count => self.count.is_none(),
        }
    }
}

fn sooner(one: Option<Mono>, other: Option<Mono>) -> Option<Mono> {
    one.into_iter().chain(other).min()
}

/// Whether an event is a change of a list that is there. A first list is none: what follows on it need not wait.
fn is_change(event: &RegionEvent) -> bool {
    match event {
        RegionEvent::Delta(_) | RegionEvent::Lost => true,
        RegionEvent::Page(_) | RegionEvent::Freshness(_) => false,
    }
}

/// How much of a batch an event takes, in members.
fn weight(event: &RegionEvent) -> usize {
    match event {
        RegionEvent::Page(page) => page.members.len().max(1),
        RegionEvent::Delta(delta) => (delta.upserts.len() + delta.removals.len()).max(1),
        RegionEvent::Freshness(_) | RegionEvent::Lost => 1,
    }
}
