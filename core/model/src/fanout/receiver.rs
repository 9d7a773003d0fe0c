//! One receiver's place in a view.
//!
//! A snapshot is sent in pages by user, each as the view is when that page is made, and is numbered by
//! the view revision at which it began. What moved meanwhile, on this side of the last page or beyond,
//! follows in the delta from that revision, which lists everybody touched since, as they are now: so
//! nothing is mixed for longer than until that delta, nothing is lost, and no copy of the view is kept.
//! That delta is sent also if everybody is as they were when the snapshot began.

use super::flushed::Flushed;
use crate::cursor::Cursor;
use crate::id::UserId;
use crate::view::{Resume, View, ViewDelta, ViewRevision};

/// What to send next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing: it is up to date, or the view is not complete yet.
    Nothing,
    /// A delta shared by all receivers near `from`: ask [`FrameCache::delta`](super::FrameCache::delta).
    Shared {
        /// What it was sent last: the receiver's own number.
        sent: ViewRevision,
        /// The receiver's place: nothing in (sent, from] shows to it.
        from: ViewRevision,
        /// The place after it.
        to: ViewRevision,
    },
    /// The answer to a cursor (`prev: null`), for this receiver alone. May list nobody: it sets the
    /// receiver's revision.
    Answer(ViewDelta),
    /// A page of a snapshot from just after this user (none: the first page, which cancels a snapshot
    /// under way). Take members from [`View::members_after`] and the cursor from [`View::cursor_of`].
    Page {
        /// The revision the snapshot began at: the `rev` of all its pages.
        revision: ViewRevision,
        /// The last user of the page before.
        after: Option<UserId>,
    },
    /// The cursor is ahead of the view, or further back than it remembers: ask the core first.
    CatchUp(Cursor),
}

#[derive(Debug, Clone)]
enum Place {
    /// Has seen nothing of this view.
    Outside,
    /// Was somewhere; `asked`: the core was asked in vain to get there.
    Away { since: Box<Cursor>, asked: bool },
    /// Was sent pages of the snapshot begun at `begun`, up to a user.
    Paging { begun: ViewRevision, last: UserId },
    /// Was sent all pages of the snapshot begun here: of several moments, if the view has moved on.
    Mixed(ViewRevision),
    /// Was sent all up to `sent`; nothing in (sent, seen] shows to it.
    At { sent: ViewRevision, seen: ViewRevision },
    /// Is shown numbers, and was told this one of this revision.
    Counted { at: ViewRevision, members: usize },
}

/// One receiver's place in a view: O(1) memory however slowly it reads.
#[derive(Debug, Clone)]
pub struct Receiver(Place);

impl Receiver {
    /// A receiver that has seen nothing, or was at this cursor.
    #[must_use]
    pub fn new(since: Option<Cursor>) -> Self {
        let away = |since| Place::Away { since: Box::new(since), asked: false };
        Self(since.map_or(Place::Outside, away))
    }

    /// What to send next. Pure: nothing moves until [`Receiver::sent`] or [`Receiver::page_sent`].
    #[must_use]
    pub fn next(&self, view: &View) -> Next {
        let now = view.revision();
        let snapshot = Next::Page { revision: now, after: None };
        match &self.0 {
            Place::At { seen, .. } | Place::Mixed(seen) if *seen == now => Next::Nothing,
            Place::At { sent, seen } if view.reaches(*seen) => {
                Next::Shared { sent: *sent, from: *seen, to: now }
            }
            Place::Mixed(at) if view.reaches(*at) => Next::Shared { sent: *at, from: *at, to: now },
            Place::Paging { begun, last } if view.reaches(*begun) => {
                Next::Page { revision: *begun, after: Some(last.clone()) }
            }
            Place::Outside | Place::Away { .. } | Place::Counted { .. } if !view.is_complete() => {
                Next::Nothing
            }
            Place::At { .. }
            | Place::Mixed(_)
            | Place::Paging { .. }
            | Place::Outside
            | Place::Counted { .. } => snapshot,
            Place::Away { since, asked } => match view.resume(since) {
                Resume::Delta(delta) => Next::Answer(delta),
                Resume::Snapshot => snapshot,
                Resume::Behind | Resume::Forgotten if *asked => snapshot,
                Resume::Behind | Resume::Forgotten => Next::CatchUp(Cursor::clone(since)),
            },
        }
    }

    /// A page was sent up to this user; `more` says whether others follow.
    pub fn page_sent(&mut self, revision: ViewRevision, last: Option<UserId>, more: bool) {
        let first = match &self.0 {
            Place::Paging { begun, .. } => *begun != revision,
            Place::Outside
            | Place::Away { .. }
            | Place::Mixed(_)
            | Place::At { .. }
            | Place::Counted { .. } => true,
        };
        self.0 = match last {
            Some(last) if more => Place::Paging { begun: revision, last },
            Some(_) | None if first => Place::At { sent: revision, seen: revision },
            Some(_) | None => Place::Mixed(revision),
        };
    }

    /// A delta or answer up to `to` was sent.
    pub fn sent(&mut self, to: ViewRevision) {
        self.0 = Place::At { sent: to, seen: to };
    }

    /// Whether it need not be told what was flushed, since it was sent just that: its place moves on.
    pub fn skips(&mut self, flushed: &Flushed) -> bool {
        match &mut self.0 {
            Place::At { seen, .. } if *seen < flushed.at() && flushed.is_same(*seen) => {
                *seen = flushed.at();
                true
            }
            Place::Outside
            | Place::Away { .. }
            | Place::Paging { .. }
            | Place::Mixed(_)
            | Place::At { .. }
            | Place::Counted { .. } => false,
        }
    }

    /// The number it was told last, and of which revision; none: it is not shown numbers, or not yet.
    #[must_use]
    pub fn counted(&self) -> Option<(ViewRevision, usize)> {
        match &self.0 {
            Place::Counted { at, members } => Some((*at, *members)),
            Place::Outside
            | Place::Away { .. }
            | Place::Paging { .. }
            | Place::Mixed(_)
            | Place::At { .. } => None,
        }
    }

    /// It was told the number of this revision. It has no list from here on: what [`Receiver::next`] gives it is a
    /// snapshot.
    pub fn count_sent(&mut self, at: ViewRevision, members: usize) {
        self.0 = Place::Counted { at, members };
    }

    /// The receiver asked to start over: the next thing is a snapshot.
    pub fn resync(&mut self) {
        self.0 = Place::Outside;
    }

    /// The core has answered to [`Next::CatchUp`], one way or the other: what is still ahead of the view,
    /// or not remembered, is answered by a snapshot.
    pub fn asked(&mut self) {
        match &mut self.0 {
            Place::Away { asked, .. } => *asked = true,
            Place::Outside
            | Place::Paging { .. }
            | Place::Mixed(_)
            | Place::At { .. }
            | Place::Counted { .. } => {}
        }
    }

    /// Whether it has a whole list, or a number.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        self.at().is_some() || self.counted().is_some()
    }

    /// The revision it is at: it has been sent all of it, or of one that shows the same.
    #[must_use]
    pub fn at(&self) -> Option<ViewRevision> {
        match &self.0 {
            Place::At { seen, .. } | Place::Mixed(seen) => Some(*seen),
            Place::Outside | Place::Away { .. } | Place::Paging { .. } | Place::Counted { .. } => None,
        }
    }
}
