//! What people see of a room: the union of its rosters over regions, with a revision of its own.
//!
//! The view's revision is the local number of this process for this room: the same for all its
//! receivers, so that frames can be shared, and meaningless anywhere else. What survives a connection is
//! the [`Cursor`].
//!
//! One log of touched users serves both: receivers ask it by view revision, and each region keeps marks
//! that turn a position into a view revision from which on all that happened later is logged.

mod marks;
mod union;

use std::borrow::Cow;

use self::marks::Marks;
use self::union::Union;
use crate::change::Removal;
use crate::cursor::{Cursor, Entry};
use crate::delta::Delta;
use crate::digest::Digest;
use crate::id::{RegionId, UserId};
use crate::limits::SAMPLED_TOUCHES_MAX;
use crate::position::{Position, Revision};
use crate::profile::Member;
use crate::replica::{
    Applied, Freshness, Mark, Moved, Outcome, Phase, Replica, SnapshotPage, Touch, Touched, removal,
};
use crate::time::{Mono, StoreTime};

/// The local number of a view: rises by one with each visible change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ViewRevision(pub u64);

/// What changed in a view in (from, to]: every user touched, as shown at `to`, or a removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewDelta {
    /// Exclusive; none: it answers a cursor, not a revision. May be a lower one at which those it is for
    /// were shown the same.
    pub from: Option<ViewRevision>,
    /// Inclusive.
    pub to: ViewRevision,
    /// Where a receiver is after it.
    pub cursor: Cursor,
    /// Sorted by user.
    pub upserts: Vec<Member>,
    /// Sorted by user.
    pub removals: Vec<Removal>,
}

/// Some of those who came and went: for receivers that are shown a number instead of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sample {
    /// The latest first.
    pub joined: Vec<Member>,
    /// The latest first.
    pub left: Vec<Removal>,
}

/// How a cursor from elsewhere can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resume {
    /// By one collapsed delta.
    Delta(ViewDelta),
    /// It is of another history, or does not name every region heard of here, or a region has unconfirmed
    /// members or was lost.
    Snapshot,
    /// It lies further back than is remembered here. Whoever this view is heard from may remember more:
    /// a delta from there to where the view is answers it, and a snapshot otherwise.
    Forgotten,
    /// The cursor is ahead of this view, or names a region never heard of: catch up first (ask the core,
    /// naming own position and cursor).
    Behind,
}

/// One user as shown, from what the regions have of it; none of nothing.
#[must_use]
pub fn merged(of_user: &[Member]) -> Option<Member> {
    union::merge(of_user.iter()).map(Cow::into_owned)
}

/// One event of one region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegionEvent {
    /// A page of a snapshot.
    Page(SnapshotPage),
    /// A delta.
    Delta(Delta),
    /// News about freshness.
    Freshness(Freshness),
    /// Not heard for longer than its hold.
    Lost,
}

/// A region's copy and where its positions lie in the view's log.
#[derive(Debug, Clone)]
struct Part {
    region: RegionId,
    replica: Replica,
    marks: Marks,
    /// Recalled from elsewhere: what happened after this revision is logged above that view revision.
    recalled: Option<(Revision, ViewRevision)>,
}

/// A room as this process sees it.
///
/// An empty one takes no memory of its own; with one region there is nothing beside its copy but the log.
#[derive(Debug, Clone, Default)]
pub struct View {
    // Sorted by region. A vector, since nearly always there is one.
    parts: Vec<Part>,
    revision: ViewRevision,
    touched: Touched,
    // Over users, in how many further regions each is present: what the sum of the copies counts twice.
    repeated: usize,
    /// Whether each copy remembers who was touched, so that it can be handed on by itself.
    remembers: bool,
}

impl View {
    /// An empty view in which nothing was received yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, whose copies each answer [`Replica::changed_since`], for whoever hands single regions on.
    #[must_use]
    pub fn of_copies_with_history() -> Self {
        Self { remembers: true, ..Self::default() }
    }

    /// Takes an event of a region; the view's revision rises if anybody is shown differently.
    ///
    /// [`Applied::Gap`] and [`Applied::Differs`] concern that region only. A delta from further back than is
    /// remembered is logged as well, though all of it may be known: cursors from there can be answered then.
    pub fn apply(&mut self, region: &RegionId, event: RegionEvent, now: Mono) -> Applied {
        let place = self.place(region);
        let before = self.revision;
        let recalled = match &event {
            RegionEvent::Delta(delta) if self.parts[place].lacks(delta) => Some(delta.clone()),
            RegionEvent::Delta(_) | RegionEvent::Page(_) | RegionEvent::Freshness(_) | RegionEvent::Lost => {
                None
            }
        };
        let replica = &mut self.parts[place].replica;
        let outcome = match event {
            RegionEvent::Page(page) => replica.take_page(page),
            RegionEvent::Delta(delta) => replica.take_delta(&delta),
            RegionEvent::Freshness(freshness) => replica.take_freshness(freshness),
            RegionEvent::Lost => replica.take_lost(),
        };
        replica.log(&outcome, now);
        let applied = match outcome.applied {
            Applied::Shown(_) => Applied::Shown(self.record(place, outcome, now)),
            Applied::Known | Applied::Gap | Applied::Differs => outcome.applied,
        };
        if let Some(delta) = recalled {
            self.recall(place, delta, (before, applied == Applied::Known), now);
        }
        applied
    }

    /// The source of all regions cannot be heard from here: everything is stale, and its next word about
    /// freshness removes nobody before its answer has brought the copy up to date.
    pub fn cut(&mut self, since: StoreTime) {
        for part in &mut self.parts {
            part.replica.cut(since);
        }
    }

    /// The local number; 0 before anything was complete.
    #[must_use]
    pub fn revision(&self) -> ViewRevision {
        self.revision
    }

    /// Whether every region heard of is complete, and at least one is. Lost regions do not count, nor
    /// those of which nothing but that they cannot be heard is known.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let mut complete = false;
        for part in &self.parts {
            match (part.replica.phase(), part.replica.fresh()) {
                (Phase::Complete, _) => complete = true,
                (Phase::Lost, _) | (Phase::Cold, Some(Freshness::Stale { .. })) => {}
                (Phase::Cold | Phase::Loading, _) => return false,
            }
        }
        complete
    }

    /// Where a receiver that has been shown this revision is.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.parts.iter().filter_map(|part| Some((part.region.clone(), part.replica.entry()?))).collect()
    }

    /// Where a receiver is that was shown a snapshot begun at this revision. If the view has moved on meanwhile its
    /// pages are of several moments, none of them later than now: a receiver of all of them has seen up to here, and
    /// equals nothing. The delta that follows says where it is.
    #[must_use]
    pub fn cursor_of(&self, begun: ViewRevision) -> Cursor {
        let cursor = self.cursor();
        if begun == self.revision {
            return cursor;
        }
        cursor.iter().map(|(region, entry)| (region.clone(), Entry::Seen(entry.position()))).collect()
    }

    /// The copies, by region.
    pub fn regions(&self) -> impl Iterator<Item = (&RegionId, &Replica)> {
        self.parts.iter().map(|part| (&part.region, &part.replica))
    }

    /// The copy of a region.
    #[must_use]
    pub fn region(&self, region: &RegionId) -> Option<&Replica> {
        self.parts.iter().find(|part| part.region == *region).map(|part| &part.replica)
    }

    /// A user as shown: over regions the strongest status, the earliest since, and the state of the
    /// region that the user entered last.
    #[must_use]
    pub fn get(&self, user: &UserId) -> Option<Member> {
        self.shown(user).map(Cow::into_owned)
    }

    /// Members from just after a user, sorted.
    pub fn members_after(&self, user: Option<&UserId>) -> impl Iterator<Item = Cow<'_, Member>> {
        Union::new(self.parts.iter().map(|part| part.replica.after(user)))
    }

    /// Up to `count` members from just after a user, sorted.
    #[must_use]
    pub fn page(&self, after: Option<&UserId>, count: usize) -> Vec<Member> {
        self.members_after(after).take(count).map(Cow::into_owned).collect()
    }

    /// How many are shown.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.replica.len()).sum::<usize>() - self.repeated
    }

    /// A digest of what is shown: equal for equal lists. None while a region shows others than its roster.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        let mut parts = self.parts.iter();
        parts.try_fold(Digest::default(), |sum, part| {
            part.replica.cursor().map(|_| sum.plus(part.replica.digest()))
        })
    }

    /// Whether nobody is shown.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether [`View::changed_since`] can answer.
    #[must_use]
    pub fn reaches(&self, from: ViewRevision) -> bool {
        self.touched.floor() <= from.0 && from <= self.revision
    }

    /// What changed in (from, now], members as they are now; none if that is further back than
    /// remembered, or ahead.
    #[must_use]
    pub fn changed_since(&self, from: ViewRevision) -> Option<ViewDelta> {
        if !self.reaches(from) {
            return None;
        }
        self.collect(from.0, self.revision.0).map(|delta| ViewDelta { from: Some(from), ..delta })
    }

    /// Whether a cursor of this position in a region can be answered there.
    #[must_use]
    pub fn remembers(&self, region: &RegionId, position: Position) -> bool {
        self.parts.iter().any(|part| part.region == *region && part.since(Some(position)).is_some())
    }

    /// Some of those who came and who went in (from, now], the latest first, as far as that is remembered: at most
    /// `most` of each, found among the last [`SAMPLED_TOUCHES_MAX`] touches.
    #[must_use]
    pub fn sample(&self, from: ViewRevision, most: usize) -> Sample {
        let mut sample = Sample::default();
        for (user, mark) in self.touched.latest(from.0, SAMPLED_TOUCHES_MAX) {
            match (mark, self.get(user)) {
                (Mark::Came, Some(member)) if sample.joined.len() < most => sample.joined.push(member),
                (Mark::Went(ending), None) if sample.left.len() < most => {
                    sample.left.push(Removal { user: user.clone(), ending });
                }
                (Mark::Came | Mark::Stays | Mark::Went(_), _) => {}
            }
        }
        sample
    }

    /// How a cursor can be answered.
    #[must_use]
    pub fn resume(&self, cursor: &Cursor) -> Resume {
        let heard_of = |region: &RegionId| self.region(region).is_some();
        let ahead = self.parts.iter().any(|part| part.is_behind(cursor.seen(&part.region)));
        if ahead || !cursor.iter().all(|(region, _)| heard_of(region)) {
            return Resume::Behind;
        }
        let mut from = self.revision;
        let mut forgotten = false;
        for part in &self.parts {
            let shown = cursor.get(&part.region);
            match part.since(shown) {
                Some(mark) => from = from.min(mark),
                None if part.is_past(shown) => forgotten = true,
                None => return Resume::Snapshot,
            }
        }
        if forgotten {
            return Resume::Forgotten;
        }
        // Beyond the own revision, too: touches that show nothing here may show there.
        self.collect(from.0, u64::MAX).map_or(Resume::Snapshot, Resume::Delta)
    }

    /// Forgets touched members older than the bounds of [`limits`](crate::limits).
    pub fn compact(&mut self, now: Mono) {
        if self.remembers {
            self.parts.iter_mut().for_each(|part| part.replica.compact(now));
        }
        if !self.touched.compact(self.len(), self.revision.0, now) {
            return;
        }
        let floor = ViewRevision(self.touched.floor());
        for part in &mut self.parts {
            part.marks.fold(floor);
            part.recalled.take_if(|(_, at)| *at < floor);
        }
    }

    fn place(&mut self, region: &RegionId) -> usize {
        match self.parts.binary_search_by(|part| part.region.cmp(region)) {
            Ok(place) => place,
            Err(place) => {
                let replica = if self.remembers { Replica::cold() } else { Replica::without_history() };
                let marks = Marks::default();
                self.parts.reserve_exact(1);
                let (region, recalled) = (region.clone(), None);
                self.parts.insert(place, Part { region, replica, marks, recalled });
                place
            }
        }
    }

    fn shown(&self, user: &UserId) -> Option<Cow<'_, Member>> {
        union::merge(self.parts.iter().filter_map(|part| part.replica.get(user)))
    }

    /// Logs what was touched in a region and says who is shown differently. What shows nothing is logged
    /// under the next revision, without raising it: only cursors from elsewhere need it.
    fn record(&mut self, place: usize, outcome: Outcome, now: Mono) -> Vec<UserId> {
        let Outcome { applied, touched, moved } = outcome;
        let shown = match applied {
            Applied::Shown(shown) if self.parts.len() == 1 => shown,
            Applied::Shown(_) => self.shown_differently(place, &touched),
            Applied::Known | Applied::Gap | Applied::Differs => Vec::new(),
        };
        self.count_repeated(place, &touched);
        let first = self.revision == ViewRevision(0);
        let next = self.revision.0 + 1;
        if !shown.is_empty() || (first && moved == Moved::Over) {
            self.revision = ViewRevision(next);
        }
        let untouched = touched.is_empty();
        if first {
            self.touched.reset(self.revision.0);
        } else {
            for touch in touched {
                let mark = match touch.mark() {
                    Mark::Came if self.is_elsewhere(place, &touch.user) => Mark::Stays,
                    mark @ (Mark::Came | Mark::Stays | Mark::Went(_)) => mark,
                };
                self.touched.push(next, touch.user, mark, now);
            }
        }
        self.parts[place].mark(moved, untouched, self.revision);
        self.compact(now);
        shown
    }

    /// Remembers what a delta that begins before all that is remembered lists: from here on, as it touches
    /// nobody who is not as it says. `known`: applying it has logged nothing.
    fn recall(&mut self, place: usize, delta: Delta, (before, known): (ViewRevision, bool), now: Mono) {
        let part = &mut self.parts[place];
        let reached = Position { epoch: delta.epoch, revision: delta.to };
        if part.replica.cursor() != Some(reached) {
            return;
        }
        part.recalled = Some((delta.from, before));
        if known {
            let next = self.revision.0 + 1;
            for member in delta.upserts {
                self.touched.push(next, member.user, Mark::Stays, now);
            }
            for gone in delta.removals {
                self.touched.push(next, gone.user, Mark::Went(gone.ending), now);
            }
            self.compact(now);
        }
    }

    fn shown_differently(&self, place: usize, touched: &[Touch]) -> Vec<UserId> {
        let before = |touch: &Touch| {
            let others = self.parts.iter().enumerate().map(|(at, part)| {
                if at == place { touch.before.as_ref() } else { part.replica.get(&touch.user) }
            });
            union::merge(others.flatten()).map(Cow::into_owned)
        };
        let differs = |touch: &&Touch| before(touch) != self.get(&touch.user);
        let mut users: Vec<_> = touched.iter().filter(differs).map(|touch| touch.user.clone()).collect();
        users.sort_unstable();
        users
    }

    /// Whether a region beside this one shows a user.
    fn is_elsewhere(&self, place: usize, user: &UserId) -> bool {
        let mut parts = self.parts.iter().enumerate();
        parts.any(|(at, part)| at != place && part.replica.get(user).is_some())
    }

    fn count_repeated(&mut self, place: usize, touched: &[Touch]) {
        for touch in touched {
            let elsewhere = self.is_elsewhere(place, &touch.user);
            let is = self.parts[place].replica.get(&touch.user).is_some();
            match (elsewhere, touch.before.is_some(), is) {
                (true, false, true) => self.repeated += 1,
                (true, true, false) => self.repeated -= 1,
                (false, _, _) | (true, false, false) | (true, true, true) => {}
            }
        }
    }

    fn collect(&self, from: u64, to: u64) -> Option<ViewDelta> {
        let (mut upserts, mut removals) = (Vec::new(), Vec::new());
        for (user, ending) in self.touched.between(from, to)? {
            match self.get(user) {
                Some(member) => upserts.push(member),
                None => removals.push(removal(user, ending)),
            }
        }
        Some(ViewDelta { from: None, to: self.revision, cursor: self.cursor(), upserts, removals })
    }
}

impl Part {
    fn is_behind(&self, shown: Option<Position>) -> bool {
        match (shown, self.replica.position()) {
            (Some(shown), Some(own)) => shown > own,
            // Nothing is known here: what is ahead of it is decided by catching up or being told so.
            (Some(_) | None, None) | (None, Some(_)) => false,
        }
    }

    /// From which view revision on everything that happened in the region after `shown` is logged.
    fn since(&self, shown: Option<Position>) -> Option<ViewRevision> {
        let (shown, own) = (shown?, self.replica.cursor()?);
        if shown.epoch != own.epoch {
            return None;
        }
        let recalled = self.recalled.filter(|(from, _)| *from <= shown.revision);
        self.marks.at(shown.revision).or(recalled.map(|(_, at)| at))
    }

    /// Whether it lies behind the copy, in the same history.
    fn is_past(&self, shown: Option<Position>) -> bool {
        let both = shown.zip(self.replica.cursor());
        both.is_some_and(|(shown, own)| shown.epoch == own.epoch && shown.revision < own.revision)
    }

    /// Whether a delta reaches from further back than is remembered to where the copy is, or on.
    fn lacks(&self, delta: &Delta) -> bool {
        let from = Position { epoch: delta.epoch, revision: delta.from };
        let reaches = self.replica.position().is_some_and(|own| delta.to >= own.revision);
        self.is_past(Some(from)) && reaches && self.since(Some(from)).is_none()
    }

    fn mark(&mut self, moved: Moved, untouched: bool, at: ViewRevision) {
        match (moved, self.replica.position()) {
            (Moved::No, _) => {}
            (Moved::Over, position) => {
                self.marks.reset(position.map(|to| (to.revision, at)));
                self.recalled = None;
            }
            (Moved::On, Some(to)) if !untouched => self.marks.push(to.revision, at),
            (Moved::On, _) => {}
        }
    }
}
