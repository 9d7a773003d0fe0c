//! A watcher that keeps copies by the rules and notes what it sees happen.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_model::cursor::Cursor;
use presence_model::id::{RegionId, RoomId};
use presence_model::position::Position;
use presence_model::replica::{Applied, Freshness, Replica};
use presence_model::time::Mono;
use presence_model::view::{RegionEvent, View};
use presence_model::watch::{Level, OpenRoom, WatchDown, WatchRefusal, WatchUp};

use super::{World, region as own_region, room};
use crate::driver::{Input, WatchKey};

#[derive(Default)]
pub(in crate::driver::tests) struct Watcher {
    pub(in crate::driver::tests) copies: BTreeMap<RoomId, Replica>,
    /// `+user`, `-user reason`, `~user`: what became visible.
    pub(in crate::driver::tests) saw: Vec<String>,
    pub(in crate::driver::tests) pages: usize,
    pub(in crate::driver::tests) deltas: usize,
    /// From where to where the last delta was.
    pub(in crate::driver::tests) last_delta: Option<(u64, u64)>,
    pub(in crate::driver::tests) batches: usize,
    pub(in crate::driver::tests) gaps: usize,
    pub(in crate::driver::tests) progress: Vec<Mono>,
    pub(in crate::driver::tests) freshness: Vec<Freshness>,
    pub(in crate::driver::tests) counts: Vec<u64>,
    pub(in crate::driver::tests) refused: Vec<WatchRefusal>,
    pub(in crate::driver::tests) drained: bool,
    /// Does not read: what it is given is never reported as written.
    pub(in crate::driver::tests) stalled: bool,
    pub(in crate::driver::tests) views: BTreeMap<RoomId, View>,
    /// How often a region was told as lost.
    pub(in crate::driver::tests) lost: usize,
    merged: Vec<(Mono, String)>,
    core: usize,
}

impl Watcher {
    pub(super) fn take(&mut self, downs: Vec<WatchDown>, now: Mono) {
        self.batches += 1;
        for down in downs {
            match down {
                WatchDown::Region { room, region, event } => self.event((&room, &region), event, now),
                WatchDown::Count { members, .. } => self.counts.push(members),
                WatchDown::Refused { refusal, .. } => self.refused.push(refusal),
                WatchDown::Progress { .. } => self.progress.push(now),
                WatchDown::Drain => self.drained = true,
            }
        }
    }

    fn event(&mut self, (room, region): (&RoomId, &RegionId), event: RegionEvent, now: Mono) {
        self.merge((room, region), event.clone(), now);
        if *region != own_region() {
            return;
        }
        let copy = self.copies.entry(room.clone()).or_insert_with(Replica::cold);
        let before: BTreeMap<_, _> = copy.members().map(|m| (m.user.clone(), m.clone())).collect();
        let reasons: BTreeMap<_, _> = match &event {
            RegionEvent::Delta(delta) => {
                delta.removals.iter().map(|gone| (gone.user.clone(), gone.ending.reason.as_str())).collect()
            }
            RegionEvent::Page(_) | RegionEvent::Freshness(_) | RegionEvent::Lost => BTreeMap::new(),
        };
        let applied = match event {
            RegionEvent::Page(page) => {
                self.pages += 1;
                copy.page(page, now)
            }
            RegionEvent::Delta(delta) => {
                self.deltas += 1;
                self.last_delta = Some((delta.from.0, delta.to.0));
                copy.delta(&delta, now)
            }
            RegionEvent::Freshness(freshness) => {
                self.freshness.push(freshness);
                copy.freshness(freshness, now)
            }
            RegionEvent::Lost => copy.lost(now),
        };
        match applied {
            Applied::Shown(users) => {
                for user in users {
                    match (before.get(&user), copy.get(&user)) {
                        (None, Some(_)) => self.saw.push(format!("+{user}")),
                        (Some(_), None) => {
                            let reason = reasons.get(&user).copied().unwrap_or("unconfirmed");
                            self.saw.push(format!("-{user} {reason}"));
                        }
                        (Some(_), Some(_)) => self.saw.push(format!("~{user}")),
                        (None, None) => {}
                    }
                }
            }
            Applied::Known => {}
            Applied::Gap | Applied::Differs => self.gaps += 1,
        }
    }

    /// What becomes of an event over all regions.
    fn merge(&mut self, (room, region): (&RoomId, &RegionId), event: RegionEvent, now: Mono) {
        self.lost += usize::from(event == RegionEvent::Lost);
        let view = self.views.entry(room.clone()).or_default();
        let before: BTreeMap<_, _> =
            view.page(None, usize::MAX).into_iter().map(|m| (m.user.clone(), m)).collect();
        let Applied::Shown(users) = view.apply(region, event, now) else { return };
        for user in users {
            match (before.get(&user), view.get(&user)) {
                (None, Some(_)) => self.merged.push((now, format!("+{user}"))),
                (Some(_), None) => self.merged.push((now, format!("-{user}"))),
                (Some(_), Some(_)) => self.merged.push((now, format!("~{user}"))),
                (None, None) => {}
            }
        }
    }

    /// What became visible over all regions, and not before `since`.
    pub(in crate::driver::tests) fn merged_since(&self, since: Mono) -> Vec<&str> {
        self.merged.iter().filter(|(at, _)| *at >= since).map(|(_, what)| what.as_str()).collect()
    }

    /// Who is shown in room `r`, over all regions.
    pub(in crate::driver::tests) fn shown_merged(&self) -> Vec<String> {
        let view = self.views.get(&room("r"));
        let members = view.into_iter().flat_map(|view| view.page(None, usize::MAX));
        members.map(|member| member.user.as_str().to_owned()).collect()
    }

    /// How fresh a region of room `r` is, as told.
    pub(in crate::driver::tests) fn fresh(&self, region: &RegionId) -> Option<Freshness> {
        self.views.get(&room("r"))?.region(region)?.fresh()
    }

    /// Who is shown in room `r`.
    pub(in crate::driver::tests) fn shown(&self) -> Vec<String> {
        let copy = self.copies.get(&room("r"));
        copy.into_iter().flat_map(Replica::members).map(|m| m.user.as_str().to_owned()).collect()
    }

    /// Where it is in room `r`.
    pub(in crate::driver::tests) fn position(&self) -> Option<Position> {
        self.copies.get(&room("r"))?.cursor()
    }
}

impl World {
    /// Opens a watch that watches nothing yet.
    pub(in crate::driver::tests) fn watch_nothing(&mut self, core: usize, key: u64) -> WatchKey {
        let key = WatchKey(key);
        self.watchers.insert(key, Watcher { core, ..Watcher::default() });
        self.input(core, Input::WatchOpened(key));
        key
    }

    /// Watches room `r` from the start.
    pub(in crate::driver::tests) fn watch(&mut self, core: usize, key: u64) -> WatchKey {
        let key = self.watch_nothing(core, key);
        self.open(key, open("r", None));
        self.run(Duration::from_millis(20));
        key
    }

    pub(in crate::driver::tests) fn open(&mut self, key: WatchKey, open: OpenRoom) {
        let core = self.watchers[&key].core;
        self.input(core, Input::Watch(key, WatchUp::Open(Box::new(open))));
    }

    pub(in crate::driver::tests) fn close_room(&mut self, key: WatchKey, name: &str) {
        let core = self.watchers[&key].core;
        self.input(core, Input::Watch(key, WatchUp::Close(room(name))));
    }

    /// Ends a watch; what it had is given back.
    pub(in crate::driver::tests) fn unwatch(&mut self, key: WatchKey) -> Watcher {
        let core = self.watchers[&key].core;
        self.input(core, Input::WatchClosed(key));
        self.watchers.remove(&key).unwrap()
    }

    /// The same watcher comes again, at another core perhaps, with what it has.
    pub(in crate::driver::tests) fn resume(&mut self, core: usize, key: u64, had: Watcher) -> WatchKey {
        let at = had.position();
        self.resume_at(core, key, (had, at))
    }

    /// The same, which names another position than it has.
    pub(in crate::driver::tests) fn resume_from(
        &mut self,
        core: usize,
        key: u64,
        had: Watcher,
        at: Position,
    ) -> WatchKey {
        self.resume_at(core, key, (had, Some(at)))
    }

    fn resume_at(&mut self, core: usize, key: u64, (had, cursor): (Watcher, Option<Position>)) -> WatchKey {
        let key = WatchKey(key);
        let fresh = Watcher { core, copies: had.copies, ..Watcher::default() };
        self.watchers.insert(key, fresh);
        self.input(core, Input::WatchOpened(key));
        self.open(key, open("r", cursor));
        self.run(Duration::from_millis(50));
        key
    }

    pub(in crate::driver::tests) fn ready(&mut self, key: WatchKey) {
        let core = self.watchers[&key].core;
        self.watchers.get_mut(&key).unwrap().stalled = false;
        self.input(core, Input::WatchReady(key));
    }
}

pub(in crate::driver::tests) fn open(name: &str, cursor: Option<Position>) -> OpenRoom {
    let cursor = cursor.map(|position| {
        let mut cursor = Cursor::default();
        cursor.set(own_region(), position);
        cursor
    });
    OpenRoom {
        room: room(name),
        home: None,
        cursor,
        regions: Vec::new(),
        level: Level::Members,
        min_interval: Duration::ZERO,
        at_least: None,
        recall: None,
    }
}
