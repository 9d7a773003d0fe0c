//! What a watcher is given next: bounded batches, paced by room, with progress behind them.

use std::time::Duration;

use presence_model::id::{RoomId, Roster};
use presence_model::replica::Freshness;
use presence_model::time::Mono;
use presence_model::view::RegionEvent;
use presence_model::watch::{Level, WatchDown};

use super::place::{At, Place, Step};
use super::{Watch, Watched};
use crate::driver::strain::Strain;
use crate::driver::{Driver, Effect, WatchKey};
use crate::limits::{
    CHANGES_INTERVAL_STRAINED, COUNT_INTERVAL, COUNT_INTERVAL_STRAINED, WATCH_BATCH_MEMBERS,
};

/// Steps of one place in one batch; a place that wants more is looked at again with the next.
const STEPS_MAX: usize = 64;

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
            let more = match watched.open.level {
                Level::Members => self.room_events(key, &room, watched, (&mut budget, &mut batch)),
                Level::Count => self.room_count(&room, watched, &mut batch),
            };
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

    /// Events of one room; true if there are more than fit.
    fn room_events(
        &mut self,
        key: WatchKey,
        room: &RoomId,
        watched: &mut Watched,
        (budget, batch): (&mut usize, &mut Vec<WatchDown>),
    ) -> bool {
        for (region, place) in &mut watched.regions {
            let roster = Roster { region: region.clone(), room: room.clone() };
            let since = [self.rosters.behind_since(&roster), place.waits_since()].into_iter().flatten().min();
            let freshness = self.shown_freshness(&roster, since);
            let down = |event| WatchDown::Region { room: room.clone(), region: region.clone(), event };
            for step in 0.. {
                if *budget == 0 || step >= STEPS_MAX {
                    return true;
                }
                let Some(copy) = self.rosters.in_step(&roster) else {
                    batch.extend(place.warn(freshness).map(down));
                    break;
                };
                match place.step(copy, freshness) {
                    Step::Done => break,
                    Step::Tell(event) => {
                        *budget = budget.saturating_sub(weight(&event));
                        batch.push(down(event));
                    }
                    Step::CatchUp => self.catch_up(&roster),
                    Step::History(cursor) => place.at = self.ask_resume(key, &roster, cursor),
                    Step::Pages => match self.pages(&roster) {
                        Some(pages) => place.at = At::Paging(pages, 0),
                        None => break,
                    },
                }
            }
        }
        false
    }

    fn room_count(&mut self, room: &RoomId, watched: &mut Watched, batch: &mut Vec<WatchDown>) -> bool {
        let mut members = 0;
        for (region, place) in &mut watched.regions {
            let roster = Roster { region: region.clone(), room: room.clone() };
            let freshness = self.shown_freshness(&roster, self.counts.behind_since(&roster));
            let down = |event| WatchDown::Region { room: room.clone(), region: region.clone(), event };
            let Some(known) = self.counts.known(&roster) else {
                batch.extend(place.warn(freshness).map(down));
                return false;
            };
            batch.extend(place.tell(freshness).map(down));
            members += known;
        }
        if watched.count.replace(members) != Some(members) {
            watched.not_before = self.now + self.interval(room, watched);
            batch.push(WatchDown::Count { room: room.clone(), members });
        }
        false
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
        for room in rosters.map(|roster| roster.room.clone()).chain(unanswered) {
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
        let serves = whole && self.rosters.serves(key, late) && self.counts.serves(key, late);
        let Some(store_time) = self.clock.latest(self.now).filter(|_| serves) else { return };
        watch.sequence += 1;
        batch.push(WatchDown::Progress { sequence: watch.sequence, store_time });
    }
}

impl Watched {
    /// Whether nothing can be said to be complete before it is answered.
    fn holds_progress(&self) -> bool {
        self.is_unanswered() && !self.regions.values().any(Place::is_stale)
    }

    /// Whether the store owes an answer since then or longer.
    fn waits_since(&self, late: Option<Mono>) -> bool {
        self.regions.values().filter_map(Place::waits_since).any(|since| Some(since) <= late)
    }

    /// Whether a first answer is still to come: it is not paced.
    fn is_unanswered(&self) -> bool {
        match self.open.level {
            Level::Members => self.regions.values().any(Place::is_unanswered),
            Level::Count => self.count.is_none(),
        }
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
