//! A copy of one roster kept by snapshots and deltas.
//!
//! A copy that meets a new epoch or a snapshot keeps what it had as *unconfirmed*: those are confirmed
//! or added as pages arrive, and what stays unconfirmed is removed only when the snapshot is complete
//! **and** the region is live. So a resync announces only real differences, and data loss in the store
//! shows nobody as gone who is there.
//!
//! A copy never goes back in time (G4): snapshots and deltas of an older position, or of an older epoch,
//! are dropped as known, whoever sends them.

mod apply;
mod members;
mod pages;
mod staged;
mod touched;

use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) use self::members::After;
use self::members::Members;
use self::staged::Staged;
pub(crate) use self::touched::{Mark, Touched};
use crate::change::Removal;
use crate::cursor::Entry;
use crate::delta::Delta;
use crate::digest::Digest;
use crate::id::UserId;
use crate::position::{Position, Revision};
use crate::profile::Member;
use crate::reason::{Ending, RemovalReason};
use crate::time::{Mono, StoreTime};

/// How far what is shown of a region can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Complete within the propagation bound.
    Live,
    /// The store cannot tell silence from its own absence.
    Held {
        /// Since when.
        since: StoreTime,
    },
    /// The region cannot be heard.
    Stale {
        /// Since when.
        since: StoreTime,
    },
}

impl Freshness {
    /// Whether the region cannot be heard.
    #[must_use]
    pub const fn is_stale(self) -> bool {
        matches!(self, Self::Stale { .. })
    }

    /// Whether it is to be told to whoever was told `before`: what is stale stays so, whoever says since when.
    #[must_use]
    pub fn is_news_after(self, before: Option<Self>) -> bool {
        before != Some(self) && !(self.is_stale() && before.is_some_and(Self::is_stale))
    }
}

/// How far a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was ever complete.
    Cold,
    /// Pages of the first snapshot are arriving.
    Loading,
    /// Complete up to its position. It stays so while a further snapshot is arriving.
    Complete,
    /// Emptied, since its region was not heard for longer than its hold. Comes back by a snapshot.
    Lost,
}

/// A page of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPage {
    /// The point all pages are of.
    pub position: Position,
    /// How fresh the region is.
    pub freshness: Freshness,
    /// Sorted by user over all pages.
    pub members: Vec<Member>,
    /// Whether it is the first page: it cancels a snapshot under way.
    pub first: bool,
    /// The roster's digest, with the last page.
    pub last: Option<Digest>,
}

/// What became of something applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// These users are now shown differently from before (sorted; empty: nothing shows).
    Shown(Vec<UserId>),
    /// Already known; dropped.
    Known,
    /// It does not follow: resume from the own position, or ask for a snapshot.
    Gap,
    /// The copy is not what the sender has, by the digest: nothing was applied, ask for a snapshot.
    Differs,
}

/// How far a copy is, apart from a snapshot under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Cold,
    Complete,
    Lost,
}

/// A copy of one roster.
///
/// What it shows ([`Replica::members`]) is the roster as far as it is *confirmed*, and whom it knew
/// before a snapshot that lacks them, for as long as that proves nothing. What it tells others about the
/// roster ([`Replica::changed_since`], [`Replica::pages`], [`Replica::digest`]) is the confirmed part
/// alone.
#[derive(Debug, Clone)]
pub struct Replica {
    standing: Standing,
    position: Position,
    digest: Digest,
    members: Members,
    unconfirmed: BTreeSet<UserId>,
    fresh: Option<Freshness>,
    // The source and this copy are known not to meet: what it says of freshness proves nothing about
    // the unconfirmed until a delta or a snapshot was taken.
    apart: bool,
    differs: bool,
    staged: Option<Box<Staged>>,
    history: Option<Box<Touched>>,
}

/// One user touched by an event, whether or not it shows.
pub(crate) struct Touch {
    pub(crate) user: UserId,
    /// What this copy showed before.
    pub(crate) before: Option<Member>,
    /// Set if the user went.
    pub(crate) ending: Option<Ending>,
}

impl Touch {
    /// What it did here.
    pub(crate) fn mark(&self) -> Mark {
        match (self.ending, &self.before) {
            (Some(ending), _) => Mark::Went(ending),
            (None, None) => Mark::Came,
            (None, Some(_)) => Mark::Stays,
        }
    }
}

/// What an event did.
pub(crate) struct Outcome {
    pub(crate) applied: Applied,
    /// All users touched.
    pub(crate) touched: Vec<Touch>,
    /// How far the copy moved.
    pub(crate) moved: Moved,
}

/// How a copy's position moved with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    /// It did not.
    No,
    /// By a delta: what was remembered still leads there.
    On,
    /// By a snapshot: nothing before it is known any more.
    Over,
}

impl Outcome {
    fn dropped(applied: Applied) -> Self {
        Self { applied, touched: Vec::new(), moved: Moved::No }
    }

    fn nothing() -> Self {
        Self::dropped(Applied::Shown(Vec::new()))
    }
}

impl Replica {
    /// A cold copy that will remember who was touched, so that it can answer
    /// [`Replica::changed_since`].
    #[must_use]
    pub fn cold() -> Self {
        Self { history: Some(Box::default()), ..Self::without_history() }
    }

    /// A cold copy that only follows.
    #[must_use]
    pub fn without_history() -> Self {
        Self {
            standing: Standing::Cold,
            position: Position::default(),
            digest: Digest::default(),
            members: Members::default(),
            unconfirmed: BTreeSet::new(),
            fresh: None,
            apart: false,
            differs: false,
            staged: None,
            history: None,
        }
    }

    /// How far it is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.standing {
            Standing::Cold if self.staged.is_some() => Phase::Loading,
            Standing::Cold => Phase::Cold,
            Standing::Complete => Phase::Complete,
            Standing::Lost => Phase::Lost,
        }
    }

    /// Whether all that a delta would show here are members with a lower status than they have: perhaps only
    /// until another session of theirs is heard.
    #[must_use]
    pub fn only_lowers(&self, delta: &Delta) -> bool {
        let lowers = |after: &Member| {
            self.get(&after.user).is_some_and(|before| {
                after.status < before.status && Member { status: after.status, ..before.clone() } == *after
            })
        };
        delta.removals.is_empty() && !delta.upserts.is_empty() && delta.upserts.iter().all(lowers)
    }

    /// Takes a page of a snapshot. Nothing shows before the last; a snapshot of a position behind the
    /// own one is dropped.
    pub fn page(&mut self, page: SnapshotPage, now: Mono) -> Applied {
        let outcome = self.take_page(page);
        self.remember(outcome, now)
    }

    /// Takes a delta: dropped if known, a gap if it does not follow or is of another epoch.
    pub fn delta(&mut self, delta: &Delta, now: Mono) -> Applied {
        let outcome = self.take_delta(delta);
        self.remember(outcome, now)
    }

    /// Takes news about freshness. Going live ends a hold: what is still unconfirmed goes
    /// (`lease_expired`), unless a snapshot is under way or something is known to be missing: then with
    /// that.
    pub fn freshness(&mut self, freshness: Freshness, now: Mono) -> Applied {
        let outcome = self.take_freshness(freshness);
        self.remember(outcome, now)
    }

    /// Removes everybody as `region_lost`, as one change.
    pub fn lost(&mut self, now: Mono) -> Applied {
        let outcome = self.take_lost();
        self.remember(outcome, now)
    }

    /// The source cannot be heard from here: stale, and its next word about freshness counts for the
    /// unconfirmed only once the copy has caught up. A snapshot under way is dropped.
    pub fn cut(&mut self, since: StoreTime) {
        let since = match self.fresh {
            // It has not been heard all the while.
            Some(Freshness::Stale { since: earlier }) => earlier.min(since),
            Some(Freshness::Live | Freshness::Held { .. }) | None => since,
        };
        self.fresh = Some(Freshness::Stale { since });
        self.apart = true;
        self.staged = None;
    }

    /// How fresh it is, as told last; none if nothing was told yet.
    #[must_use]
    pub fn fresh(&self) -> Option<Freshness> {
        self.fresh
    }

    /// Where it is, if complete.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        (self.standing == Standing::Complete).then_some(self.position)
    }

    /// Where a watcher who was shown this copy is: none while unconfirmed members are in it, while it is
    /// known to differ, before it is complete, or after the region was lost.
    #[must_use]
    pub fn cursor(&self) -> Option<Position> {
        let equal = self.unconfirmed.is_empty() && !self.differs;
        self.position().filter(|_| equal)
    }

    /// What the cursor of a watcher who was shown this copy says: where it is if it is a roster, or else how far it
    /// has come. None before it was complete once.
    #[must_use]
    pub fn entry(&self) -> Option<Entry> {
        let seen = (self.standing != Standing::Cold).then_some(Entry::Seen(self.position));
        self.cursor().map(Entry::Equal).or(seen)
    }

    /// The member of that user, unconfirmed ones included.
    #[must_use]
    pub fn get(&self, user: &UserId) -> Option<&Member> {
        self.members.get(user)
    }

    /// All members by user, unconfirmed ones included.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.after(None)
    }

    /// Members from just after a user, unconfirmed ones included, for paging.
    pub fn members_after(&self, user: Option<&UserId>) -> impl Iterator<Item = &Member> {
        self.members.after(user)
    }

    /// Members of the stored roster from just after a user: without unconfirmed ones.
    pub fn confirmed_after(&self, user: Option<&UserId>) -> impl Iterator<Item = &Member> {
        self.members.after(user).filter(|member| !self.unconfirmed.contains(&member.user))
    }

    /// How many are shown.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// How many of them are unconfirmed.
    #[must_use]
    pub fn unconfirmed(&self) -> usize {
        self.unconfirmed.len()
    }

    /// Whether nobody is shown.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.len() == 0
    }

    /// Digest over confirmed members: that of the stored roster.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// All touched in (from, position], as one delta of the stored roster; none if that is further back
    /// than remembered, of the future, or the copy is not complete.
    #[must_use]
    pub fn changed_since(&self, from: Revision) -> Option<Delta> {
        let Position { epoch, revision: to } = self.position()?;
        if self.differs || from > to {
            return None;
        }
        let mut delta = Delta::empty(epoch, from, to, self.digest);
        for (user, ending) in self.history.as_ref()?.between(from.0, to.0)? {
            match (self.confirmed(user), ending) {
                (Some(member), _) => delta.upserts.push(member.clone()),
                (None, ending) => delta.removals.push(removal(user, ending)),
            }
        }
        Some(delta)
    }

    /// Forgets touched members older than the bounds of [`limits`](crate::limits).
    pub fn compact(&mut self, now: Mono) {
        let (members, current) = (self.members.len(), self.position.revision.0);
        if let Some(history) = &mut self.history {
            history.compact(members, current, now);
        }
    }

    pub(crate) fn after(&self, user: Option<&UserId>) -> After<'_> {
        self.members.after(user)
    }

    fn confirmed(&self, user: &UserId) -> Option<&Member> {
        self.members.get(user).filter(|_| !self.unconfirmed.contains(user))
    }

    fn remember(&mut self, outcome: Outcome, now: Mono) -> Applied {
        self.log(&outcome, now);
        outcome.applied
    }

    /// Remembers who was touched, if it does.
    pub(crate) fn log(&mut self, outcome: &Outcome, now: Mono) {
        let revision = self.position.revision.0;
        let Some(history) = &mut self.history else { return };
        match outcome.moved {
            Moved::No => {}
            Moved::Over => history.reset(revision),
            Moved::On => {
                for touch in &outcome.touched {
                    history.push(revision, touch.user.clone(), touch.mark(), now);
                }
                history.compact(self.members.len(), revision, now);
            }
        }
    }
}

/// A removal as listed to others. Who is absent was last touched by going, so there is an ending.
pub(crate) fn removal(user: &UserId, ending: Option<Ending>) -> Removal {
    let unknown = Ending { reason: RemovalReason::LeaseExpired, silent_for: Duration::ZERO };
    Removal { user: user.clone(), ending: ending.unwrap_or(unknown) }
}
