//! What one watcher has been given of one region of a room, and what follows from that.

use presence_model::delta::Delta;
use presence_model::digest::Digest;
use presence_model::position::{Position, Revision};
use presence_model::replica::{Freshness, Phase, Replica, SnapshotPage};
use presence_model::time::Mono;
use presence_model::view::RegionEvent;

use crate::driver::rosters::Pages;

/// Where a watcher is.
#[derive(Debug)]
pub(super) enum At {
    /// It asked from a cursor, or for a snapshot.
    Start(Option<Position>),
    /// History that answers its cursor is asked for, under this serial and since then.
    Resuming { serial: u64, since: Mono },
    /// History answered.
    Answered(Delta),
    /// It has been given the pages before this one.
    Paging(Pages, usize),
    /// It has all up to `sent`; nothing in (sent, seen] shows.
    Sent {
        /// What it can say of itself.
        sent: Position,
        /// How far that is the same.
        seen: Revision,
        /// Of the roster there.
        digest: Digest,
    },
    /// It was told that the region is lost.
    Lost,
}

impl At {
    fn after(delta: &Delta) -> Self {
        let sent = Position { epoch: delta.epoch, revision: delta.to };
        Self::Sent { sent, seen: delta.to, digest: delta.digest }
    }
}

/// What must happen before a place can go on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing: it is up to date with the copy.
    Done,
    /// Tell this; there may be more.
    Tell(RegionEvent),
    /// Read on to here at least: the watcher, or somebody it has heard of, is ahead of the copy.
    CatchUp(Position),
    /// The copy's memory does not reach back to this cursor; the store's may.
    History(Position),
    /// Give it the pages of the roster.
    Pages,
}

/// One watcher's place in one region of a room.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) at: At,
    told: Option<Freshness>,
    /// Somebody has seen this.
    at_least: Option<Position>,
    /// The copy was brought up to the store since this was asked.
    caught_up: bool,
    /// Somebody was here and comes to the watcher: looked back to once the watcher has its answer.
    recall: Option<Position>,
    /// Where the watcher is while history is asked for only to look back.
    looks_back: Option<(Position, Revision, Digest)>,
    /// Of a region that is merged: no change is told before.
    not_before: Mono,
    /// The number of members told last, where only that is told.
    counted: Option<u64>,
    /// Whether the roster is kept elsewhere.
    is_elsewhere: bool,
}

impl Place {
    /// A place of a watcher that was at `cursor`; others have seen `at_least`, and were at `recall`.
    pub(super) fn new(
        cursor: Option<Position>,
        at_least: Option<Position>,
        recall: Option<Position>,
    ) -> Self {
        Self {
            at: At::Start(cursor),
            told: None,
            at_least,
            caught_up: false,
            recall,
            looks_back: None,
            not_before: Mono::default(),
            counted: None,
            is_elsewhere: false,
        }
    }

    /// The same, of a roster that is kept elsewhere.
    pub(super) fn kept_elsewhere(self) -> Self {
        Self { is_elsewhere: true, ..self }
    }

    /// Until when what there is of a merged region waits, if it does: something was told a short while ago, it is as
    /// fresh as it was told to be, and nobody came from elsewhere since, as `moved` says.
    pub(super) fn rests(&self, now: Mono, freshness: Freshness, moved: Option<Position>) -> Option<Mono> {
        let At::Sent { sent, seen, .. } = self.at else { return None };
        let is_moved = moved.is_some_and(|moved| moved.epoch == sent.epoch && moved.revision > seen);
        let waits = self.not_before > now && self.recall.is_none();
        (waits && !is_moved && !freshness.is_news_after(self.told)).then_some(self.not_before)
    }

    /// A change of a merged region was told: the next one waits.
    pub(super) fn rest_until(&mut self, at: Mono) {
        self.not_before = at;
    }

    /// The number of members to be told of a merged region, and when to look again if that is not the present one.
    pub(super) fn merged_count(&mut self, present: u64, now: Mono, until: Mono) -> (u64, Option<Mono>) {
        match self.counted {
            Some(told) if told == present => (told, None),
            Some(told) if self.not_before > now => (told, Some(self.not_before)),
            before => {
                // A first number is no change of one.
                self.not_before = if before.is_some() { until } else { now };
                self.counted = Some(present);
                (present, None)
            }
        }
    }

    /// Whether the first answer is still to come: it is not paced. What is elsewhere and cannot be heard, or is asked
    /// for what somebody claims to have seen, is not waited for: it may be seconds away.
    pub(super) fn is_unanswered(&self) -> bool {
        let is_answered = matches!(self.at, At::Sent { .. } | At::Lost) && self.recall.is_none();
        !is_answered && !(self.is_elsewhere && (self.is_stale() || self.caught_up))
    }

    /// Whether it was asked elsewhere for more than a copy that is here has. Others are told what that has meanwhile.
    pub(super) fn waits_beyond(&self, position: Option<Position>) -> bool {
        self.is_elsewhere && self.caught_up && self.claim() > position
    }

    /// How far its watcher is, or somebody it has heard of.
    fn claim(&self) -> Option<Position> {
        let cursor = match self.at {
            At::Start(cursor) => cursor,
            At::Resuming { .. } | At::Answered(_) | At::Paging(..) | At::Sent { .. } | At::Lost => None,
        };
        cursor.max(self.at_least)
    }

    /// What to say of freshness while there is no copy in step to go by.
    pub(super) fn warn(&mut self, freshness: Freshness) -> Option<RegionEvent> {
        (freshness != Freshness::Live).then(|| self.tell(freshness)).flatten()
    }

    /// What to say of freshness, if that is news.
    pub(super) fn tell(&mut self, freshness: Freshness) -> Option<RegionEvent> {
        freshness.is_news_after(self.told).then(|| {
            self.told = Some(freshness);
            RegionEvent::Freshness(freshness)
        })
    }

    /// Whether its watcher knows it as stale: nothing else is promised of it.
    pub(super) fn is_stale(&self) -> bool {
        self.told.is_some_and(Freshness::is_stale)
    }

    /// Whether its watcher does not know yet that it waits for what is kept elsewhere.
    pub(super) fn waits_elsewhere(&self) -> bool {
        self.is_elsewhere && !self.is_stale()
    }

    /// Since when the store owes it an answer.
    pub(super) fn waits_since(&self) -> Option<Mono> {
        match self.at {
            At::Resuming { since, .. } => Some(since),
            At::Start(_) | At::Answered(_) | At::Paging(..) | At::Sent { .. } | At::Lost => None,
        }
    }

    /// What comes next. Bad news about freshness goes ahead of everything, good news behind.
    pub(super) fn step(&mut self, copy: &Replica, freshness: Freshness) -> Step {
        if let Some(event) = self.warn(freshness) {
            return Step::Tell(event);
        }
        if copy.phase() == Phase::Lost {
            let is_news = !matches!(self.at, At::Lost);
            self.at = At::Lost;
            return if is_news { Step::Tell(RegionEvent::Lost) } else { Step::Done };
        }
        let Some(position) = copy.position() else { return Step::Done };
        if let Some(seen) = self.must_catch_up(position) {
            return Step::CatchUp(seen);
        }
        let step = match self.at {
            At::Resuming { .. } => return Step::Done,
            At::Start(None) | At::Lost => Some(Step::Pages),
            At::Start(Some(cursor)) => self.answer(cursor, copy, position),
            At::Answered(_) => self.give_answer(),
            At::Paging(..) => Some(self.give_page(freshness)),
            At::Sent { sent, seen, digest } => {
                let at = (sent, seen, digest);
                self.look_back(at, copy, position).or_else(|| self.follow(at, copy, position))
            }
        };
        step.or_else(|| self.tell(freshness).map(Step::Tell)).unwrap_or(Step::Done)
    }

    /// A watcher that is ahead of the copy, or knows somebody who is: its source is read once. If that is
    /// behind as well, the watcher is answered from what there is: a cursor is not to be trusted.
    fn must_catch_up(&mut self, position: Position) -> Option<Position> {
        let ahead = self.claim().filter(|claim| *claim > position);
        if ahead.is_some() && !std::mem::replace(&mut self.caught_up, true) {
            return ahead;
        }
        self.at_least = None;
        None
    }

    fn answer(&mut self, cursor: Position, copy: &Replica, position: Position) -> Option<Step> {
        if cursor.epoch != position.epoch || cursor.revision > position.revision {
            self.at = At::Start(None);
            return Some(Step::Pages);
        }
        let Some(delta) = copy.changed_since(cursor.revision) else {
            return Some(Step::History(cursor));
        };
        self.at = At::after(&delta);
        // Also when nothing in it shows: whoever asks to be as far as somebody else learns that it is.
        (cursor != position).then_some(Step::Tell(RegionEvent::Delta(delta)))
    }

    fn give_answer(&mut self) -> Option<Step> {
        let At::Answered(delta) = std::mem::replace(&mut self.at, At::Start(None)) else { return None };
        self.at = At::after(&delta);
        Some(Step::Tell(RegionEvent::Delta(delta)))
    }

    fn give_page(&mut self, freshness: Freshness) -> Step {
        let At::Paging(pages, next) = &mut self.at else { return Step::Done };
        let Some(page) = pages.get(*next) else { return Step::Pages };
        let page = SnapshotPage { freshness, ..page.clone() };
        self.told = Some(freshness);
        *next += 1;
        if let Some(digest) = page.last {
            self.at = At::Sent { sent: page.position, seen: page.position.revision, digest };
        }
        Step::Tell(RegionEvent::Page(page))
    }

    /// What happened since somebody was here, once: from the copy's memory, or else the store's.
    fn look_back(
        &mut self,
        at: (Position, Revision, Digest),
        copy: &Replica,
        position: Position,
    ) -> Option<Step> {
        let from = self.recall.take()?;
        let (sent, ..) = at;
        if from.epoch != sent.epoch || sent.epoch != position.epoch || from.revision >= sent.revision {
            return None;
        }
        let Some(delta) = copy.changed_since(from.revision) else {
            self.looks_back = Some(at);
            return Some(Step::History(from));
        };
        self.at = At::after(&delta);
        Some(Step::Tell(RegionEvent::Delta(delta)))
    }

    /// History was read: one delta, or none if it does not reach from the cursor to now.
    pub(super) fn resumed(&mut self, history: Option<Delta>) {
        self.at = match (history, self.looks_back.take()) {
            (Some(delta), None) => At::Answered(delta),
            (None, None) => At::Start(None),
            // What lags behind the watcher is of no use to it.
            (Some(delta), Some((sent, ..))) if delta.epoch == sent.epoch && delta.to >= sent.revision => {
                At::Answered(delta)
            }
            (Some(_) | None, Some((sent, _, digest))) => {
                At::Answered(Delta::empty(sent.epoch, sent.revision, sent.revision, digest))
            }
        };
    }

    fn follow(
        &mut self,
        (sent, seen, digest): (Position, Revision, Digest),
        copy: &Replica,
        at: Position,
    ) -> Option<Step> {
        if sent.epoch != at.epoch {
            return Some(Step::Pages);
        }
        if seen >= at.revision {
            return None;
        }
        let Some(mut delta) = copy.changed_since(seen) else { return Some(Step::Pages) };
        // Who was touched may be as before.
        if delta.is_empty() || delta.digest == digest {
            self.at = At::Sent { sent, seen: delta.to, digest };
            return None;
        }
        // Nothing in (sent, seen] showed, so what the watcher has is the roster at `seen` as well.
        delta.from = sent.revision;
        self.at = At::after(&delta);
        Some(Step::Tell(RegionEvent::Delta(delta)))
    }
}
