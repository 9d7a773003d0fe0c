//! One watched room: its view, what was asked of the core, and what is still to be asked.

use std::time::Duration;

use presence_model::cursor::Cursor;
use presence_model::id::{RegionId, RoomId};
use presence_model::limits::CURSOR_REGIONS_MAX;
use presence_model::position::Position;
use presence_model::replica::{Applied, Freshness};
use presence_model::time::{Mono, StoreTime};
use presence_model::view::{RegionEvent, View, ViewRevision};
use presence_model::watch::{Level, OpenRoom, WatchRefusal};

use super::effect::{Effect, Event, RoomOptions};

/// Questions about one room are at least this part of a beat apart.
const ASK_BEAT_PART: u32 = 4;
/// Repairs that do not hold are tried again after one part of a beat, then twice that, up to this often
/// doubled: about half a minute at a beat of one second.
const REPAIR_DOUBLINGS_MAX: u32 = 7;
/// A room that needed no repair for this long starts over with the first wait.
const REPAIR_QUIET: Duration = Duration::from_secs(60);
/// Progress messages after a question that show it answered. Two of them are two beats apart, longer than
/// a message takes both ways; the first may have been under way already.
const PROGRESS_ANSWERS: u32 = 3;

/// Why a room is to be opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Wanted {
    pub(super) repair: bool,
    pub(super) catch_up: bool,
    pub(super) retry: bool,
}

impl Wanted {
    pub(super) fn any(self) -> bool {
        self.repair || self.catch_up || self.retry
    }
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    Fine,
    Gap,
    Differs,
}

/// What others have seen of a room, until it is answered.
#[derive(Debug, Default)]
struct Goals {
    /// Further than the view is.
    at_least: Cursor,
    /// Further back than the view remembers.
    recall: Cursor,
    /// Progress messages to come before it counts as answered; none: not asked yet.
    progress: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Watched {
    options: RoomOptions,
    pub(super) view: View,
    pub(super) count: Option<u64>,
    pub(super) wanted: Wanted,
    /// When to look at it again.
    pub(super) wake: Option<Mono>,
    /// No question is asked before.
    pub(super) not_before: Mono,
    /// No repair is asked for before.
    pub(super) repair_not_before: Mono,
    repairs: u32,
    // Boxed: nearly all rooms have none.
    goals: Option<Box<Goals>>,
}

/// Whether it lies behind, in the same history.
fn is_before(position: Position, own: Position) -> bool {
    position.epoch == own.epoch && position.revision < own.revision
}

/// Whether looking back to one of them looks back to the other.
fn covers(known: Position, position: Position) -> bool {
    known.epoch == position.epoch && known.revision <= position.revision
}

/// When asking again may help.
pub(super) fn retry_after(refusal: &WatchRefusal) -> Option<Duration> {
    match refusal {
        WatchRefusal::Unavailable { retry_after } | WatchRefusal::RateLimited { retry_after } => {
            Some(*retry_after)
        }
        WatchRefusal::BadRequest(_)
        | WatchRefusal::UnknownRegion
        | WatchRefusal::Forbidden
        | WatchRefusal::TooManyRooms => None,
    }
}

impl Goals {
    fn is_empty(&self) -> bool {
        self.at_least.is_empty() && self.recall.is_empty()
    }
}

/// The cursor, unless it says nothing.
fn some(cursor: &Cursor) -> Option<Cursor> {
    (!cursor.is_empty()).then(|| cursor.clone())
}

impl Watched {
    pub(super) fn new(remembers: bool) -> Self {
        let view = if remembers { View::of_copies_with_history() } else { View::new() };
        Self { view, ..Self::default() }
    }

    /// Watches it so from now on. A list that is not told any more is forgotten: what it said is true no longer when
    /// the list is wanted again.
    pub(super) fn set_options(&mut self, mut options: RoomOptions, remembers: bool) {
        let at_least = std::mem::take(&mut options.at_least);
        if (self.options.level, options.level) == (Level::Members, Level::Count) {
            self.view = Self::new(remembers).view;
        }
        self.options = options;
        self.add_goals(&at_least);
    }

    /// The question that opens the room from where it is.
    pub(super) fn ask(
        &mut self,
        room: RoomId,
        home: Option<RegionId>,
        beat: Duration,
        now: Mono,
    ) -> OpenRoom {
        let part = beat / ASK_BEAT_PART;
        let wanted = std::mem::take(&mut self.wanted);
        if wanted.any() {
            self.not_before = now + part;
        }
        if wanted.repair {
            if now >= self.repair_not_before + REPAIR_QUIET {
                self.repairs = 0;
            }
            self.repair_not_before = now + part * 2_u32.pow(self.repairs.min(REPAIR_DOUBLINGS_MAX));
            self.repairs = self.repairs.saturating_add(1);
        }
        if let Some(goals) = &mut self.goals {
            goals.progress = Some(PROGRESS_ANSWERS);
        }
        OpenRoom {
            room,
            home,
            cursor: some(&self.view.cursor()),
            regions: self.options.regions.clone(),
            level: self.options.level,
            min_interval: self.options.min_interval,
            at_least: self.goals.as_ref().and_then(|goals| some(&goals.at_least)),
            recall: self.goals.as_ref().and_then(|goals| some(&goals.recall)),
        }
    }

    /// Takes an event of a region.
    pub(super) fn take(
        &mut self,
        room: &RoomId,
        (region, event): (&RegionId, RegionEvent),
        now: Mono,
        effects: &mut Vec<Effect>,
    ) -> Taken {
        let is_news = match &event {
            RegionEvent::Page(_) | RegionEvent::Delta(_) | RegionEvent::Lost => true,
            RegionEvent::Freshness(_) => false,
        };
        let is_lost = event == RegionEvent::Lost;
        let says_no_more = matches!(&event, RegionEvent::Delta(delta) if delta.from == delta.to);
        let before = (self.stand(), self.fresh(region));
        let applied = self.view.apply(region, event, now);
        if let Some(freshness) = self.fresh(region).filter(|now| now.is_news_after(before.1)) {
            let (room, region) = (room.clone(), region.clone());
            effects.push(Effect::Event(Event::Freshness { room, region, freshness }));
        }
        if self.stand() != before.0 {
            effects.push(Effect::Event(Event::Changed(room.clone())));
        }
        match applied {
            Applied::Gap => Taken::Gap,
            Applied::Differs => Taken::Differs,
            Applied::Known => {
                self.recalled(region, says_no_more);
                self.answer(room, effects);
                Taken::Fine
            }
            Applied::Shown(_) => {
                if is_news {
                    self.wanted.repair = false;
                }
                self.reached(region, is_lost);
                self.recalled(region, says_no_more || is_lost);
                self.answer(room, effects);
                Taken::Fine
            }
        }
    }

    /// Nothing is heard of it any more.
    pub(super) fn cut(&mut self, room: &RoomId, since: StoreTime, effects: &mut Vec<Effect>) {
        let before = self.stand();
        let fresh: Vec<Option<Freshness>> = self.view.regions().map(|(_, copy)| copy.fresh()).collect();
        self.view.cut(since);
        for ((region, copy), before) in self.view.regions().zip(fresh) {
            if let Some(freshness) = copy.fresh().filter(|now| now.is_news_after(before)) {
                let (room, region) = (room.clone(), region.clone());
                effects.push(Effect::Event(Event::Freshness { room, region, freshness }));
            }
        }
        if self.stand() != before {
            effects.push(Effect::Event(Event::Changed(room.clone())));
        }
    }

    /// It was not heard for longer than its hold.
    pub(super) fn lose(&mut self, room: &RoomId, now: Mono, effects: &mut Vec<Effect>) {
        let regions: Vec<RegionId> = self.view.regions().map(|(region, _)| region.clone()).collect();
        for region in regions {
            self.take(room, (&region, RegionEvent::Lost), now, effects);
        }
        if self.count.is_some_and(|count| count > 0) {
            self.count = Some(0);
            effects.push(Effect::Event(Event::Count { room: room.clone(), members: 0 }));
        }
    }

    /// Adds what somebody has seen. True if that is more than was asked for, and more than is here.
    pub(super) fn add_goals(&mut self, cursor: &Cursor) -> bool {
        let mut more = false;
        for (region, entry) in cursor.iter() {
            let position = entry.position();
            let copy = self.view.region(region);
            let here = copy.and_then(|copy| copy.position());
            let is_past = copy.and_then(|copy| copy.cursor()).is_none_or(|own| is_before(position, own));
            // What equals no roster is answered by a snapshot, however far back is remembered.
            let forgotten = entry.equal().is_some()
                && here.is_none_or(|here| here >= position)
                && is_past
                && !self.view.remembers(region, position);
            let goals = self.goals.get_or_insert_default();
            let ahead = here.max(goals.at_least.get(region)).is_none_or(|known| known < position);
            let back = forgotten && !goals.recall.get(region).is_some_and(|known| covers(known, position));
            for (wanted, goal) in [(ahead, &mut goals.at_least), (back, &mut goals.recall)] {
                if wanted && (goal.get(region).is_some() || goal.len() < CURSOR_REGIONS_MAX) {
                    goal.set(region.clone(), position);
                    goals.progress = None;
                    more = true;
                }
            }
        }
        self.goals.take_if(|goals| goals.is_empty());
        more
    }

    /// Whether something asked for is not answered yet.
    pub(super) fn has_goals(&self) -> bool {
        self.goals.is_some()
    }

    /// A progress message came.
    pub(super) fn progress(&mut self, room: &RoomId, effects: &mut Vec<Effect>) {
        let stale = self.view.regions().any(|(_, copy)| copy.fresh().is_some_and(Freshness::is_stale));
        let Some(goals) = &mut self.goals else { return };
        goals.progress = goals.progress.map(|left| left.saturating_sub(1));
        if goals.progress == Some(0) && !stale {
            (goals.at_least, goals.recall) = (Cursor::default(), Cursor::default());
        }
        self.answer(room, effects);
    }

    /// A snapshot behind the goal proves nothing: it may have been under way when the question was asked.
    fn reached(&mut self, region: &RegionId, is_lost: bool) {
        let here = self.view.region(region).and_then(|copy| copy.position());
        if let Some(goals) = &mut self.goals
            && goals.at_least.get(region).is_some_and(|goal| is_lost || here >= Some(goal))
        {
            goals.at_least.remove(region);
        }
    }

    /// What was asked for is remembered now, or will not be: the source said so, or the copy is of another
    /// history or not as far.
    fn recalled(&mut self, region: &RegionId, says_no_more: bool) {
        let Some(goal) = self.goals.as_ref().and_then(|goals| goals.recall.get(region)) else { return };
        let here = self.view.region(region).and_then(|copy| copy.position());
        let is_of_no_use = here.is_some_and(|here| !is_before(goal, here));
        if (says_no_more || is_of_no_use || self.view.remembers(region, goal))
            && let Some(goals) = &mut self.goals
        {
            goals.recall.remove(region);
        }
    }

    fn answer(&mut self, room: &RoomId, effects: &mut Vec<Effect>) {
        if self.goals.take_if(|goals| goals.is_empty()).is_some() {
            self.wanted.catch_up = false;
            effects.push(Effect::Event(Event::Answered(room.clone())));
        }
    }

    /// What is announced as a change; while somebody waits for the view to come further, that as well.
    fn stand(&self) -> (ViewRevision, bool, Option<Cursor>) {
        let cursor = self.goals.as_ref().map(|_| self.view.cursor());
        (self.view.revision(), self.view.is_complete(), cursor)
    }

    pub(super) fn is_live(&self, region: &RegionId) -> bool {
        self.fresh(region) == Some(Freshness::Live)
    }

    fn fresh(&self, region: &RegionId) -> Option<Freshness> {
        self.view.region(region)?.fresh()
    }
}
