//! Somebody who watches all rooms at a core of its region, as an edge does.

use std::collections::BTreeSet;
use std::time::Duration;

use presence_client::watch::{Effect, RoomOptions, Watcher, WatcherSettings};
use presence_core::driver::WatchKey;
use presence_model::id::{RegionId, RoomId};
use presence_model::time::Mono;
use presence_model::view::RegionEvent;
use presence_model::watch::WatchDown;

use super::streams::From;
use super::{Event, Lands};
use crate::sim::guarantee::Guarantee;

/// Between two attempts.
const AGAIN_AFTER: Duration = Duration::from_millis(400);
/// As an edge is told that cores beat.
const BEAT: Duration = Duration::from_secs(1);

/// One of them.
pub(super) struct Onlooker {
    pub(super) land: usize,
    pub(super) watcher: Watcher,
    pub(super) stream: Option<WatchKey>,
    dials: u64,
    /// Since when its stream stands; none: it does not.
    pub(super) attached: Option<Mono>,
    /// Of each room and region who was shown, and since when.
    pub(super) shown: super::judge::Shown,
}

impl Onlooker {
    pub(super) fn new(land: usize, region: RegionId) -> Self {
        let settings = WatcherSettings { home: Some(region), beat: BEAT, remembers: false };
        Self {
            land,
            watcher: Watcher::new(settings),
            stream: None,
            dials: 0,
            attached: None,
            shown: super::judge::Shown::default(),
        }
    }
}

impl Lands {
    pub(super) fn dial_onlooker_after(&mut self, onlooker: usize, delay: Duration) {
        self.onlookers[onlooker].dials += 1;
        let dial = self.onlookers[onlooker].dials;
        self.after(delay, Event::DialOnlooker(onlooker, dial));
    }

    pub(super) fn dial_onlooker(&mut self, number: usize, dial: u64) {
        if self.onlookers[number].dials != dial || self.onlookers[number].attached.is_some() {
            return;
        }
        // A core that stands still does not answer.
        if let Some(key) = self.onlookers[number].stream.take() {
            self.hang_up(key);
        }
        match self.some_core(self.onlookers[number].land) {
            Some(core) => {
                let key = self.open_watch(From::Onlooker(number), core);
                self.onlookers[number].stream = Some(key);
                self.dial_onlooker_after(number, BEAT * 4);
            }
            None => self.dial_onlooker_after(number, AGAIN_AFTER),
        }
    }

    pub(super) fn onlooker_opened(&mut self, number: usize, key: WatchKey) {
        let now = self.now;
        if self.onlookers[number].stream != Some(key) {
            return;
        }
        let rooms: Vec<RoomId> = self.rooms.clone();
        let onlooker = &mut self.onlookers[number];
        onlooker.attached = Some(now);
        self.story.note(now, "watches", &format!("onlooker{number}"));
        let mut effects = Vec::new();
        onlooker.watcher.connected(now, &mut effects);
        let open: BTreeSet<RoomId> = onlooker.watcher.rooms().cloned().collect();
        for room in rooms.into_iter().filter(|room| !open.contains(room)) {
            onlooker.watcher.open(room, RoomOptions::default(), now, &mut effects);
        }
        self.for_onlooker(number, effects);
    }

    fn for_onlooker(&mut self, number: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(up) => {
                    if let Some(key) = self.onlookers[number].stream {
                        self.say_watch(key, up);
                    }
                }
                Effect::Reconnect(_) => self.leave_core(number),
                Effect::Event(_) => {}
            }
        }
    }

    fn leave_core(&mut self, number: usize) {
        if let Some(key) = self.onlookers[number].stream.take() {
            self.hang_up(key);
        }
        self.onlookers[number].attached = None;
        self.dial_onlooker_after(number, AGAIN_AFTER);
    }

    pub(super) fn onlooker_told(&mut self, number: usize, key: WatchKey, events: Vec<WatchDown>) {
        if self.onlookers[number].stream != Some(key) {
            return;
        }
        for event in events {
            let (mut changed, mut lost) = (None, None);
            match &event {
                WatchDown::Region { room, region, event } => {
                    changed = self.room_called(room);
                    self.note_told(number, (room, region), event);
                    lost = matches!(event, RegionEvent::Lost).then(|| self.land_called(region)).flatten();
                }
                WatchDown::Refused { room, refusal } => {
                    self.breach(Guarantee::G5, format!("onlooker{number} is refused {room}: {refusal}"));
                }
                WatchDown::Count { .. } | WatchDown::Progress { .. } | WatchDown::Drain => {}
            }
            if let Some(land) = lost {
                self.told_lost(number, land);
            }
            let (now, mut effects) = (self.now, Vec::new());
            self.onlookers[number].watcher.handle(event, now, &mut effects);
            self.for_onlooker(number, effects);
            if let Some(room) = changed {
                self.compare_shown(number, room, lost);
            }
        }
    }

    /// How fresh a region is, and that it is listed anew, is part of the story.
    fn note_told(&mut self, number: usize, (room, region): (&RoomId, &RegionId), event: &RegionEvent) {
        let told = match event {
            RegionEvent::Freshness(freshness) => format!("{freshness:?}"),
            RegionEvent::Page(page) => format!("listed at {}, {:?}", page.position, page.freshness),
            RegionEvent::Lost => "lost".to_owned(),
            RegionEvent::Delta(_) => return,
        };
        self.note("told", &format!("onlooker{number} of {room} in {region}: {told}"));
    }

    pub(super) fn onlooker_lost(&mut self, number: usize, key: WatchKey) {
        if self.onlookers[number].stream != Some(key) {
            return;
        }
        let onlooker = &mut self.onlookers[number];
        (onlooker.stream, onlooker.attached) = (None, None);
        let mut effects = Vec::new();
        onlooker.watcher.lost(&mut effects);
        self.dial_onlooker_after(number, AGAIN_AFTER);
    }

    /// Lets time pass for all of them.
    pub(super) fn tend_onlookers(&mut self) {
        for number in 0..self.onlookers.len() {
            let (now, mut effects) = (self.now, Vec::new());
            self.onlookers[number].watcher.tick(now, &mut effects);
            self.for_onlooker(number, effects);
        }
    }

    /// The core that an onlooker watches, while its stream stands.
    pub(super) fn core_of(&self, number: usize) -> Option<(usize, u64)> {
        let onlooker = &self.onlookers[number];
        let stream = self.watches.get(&onlooker.stream?)?;
        onlooker.attached.map(|_| stream.to)
    }
}
