//! One receiver's place in a view.
//!
//! A snapshot is sent in pages by user, each as the view is when that page is made, and is numbered by
//! the view revision at which it began. What moved meanwhile, on this side of the last page or beyond,
//! follows in the delta from that revision, which lists everybody touched since, as they are now: so
//! nothing is mixed for longer than until that delta, nothing is lost, and no copy of the view is kept.

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
        /// The receiver's place.
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
    /// The cursor is ahead of the view: ask the core first.
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
    /// Was sent all up to here.
    At(ViewRevision),
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
            Place::At(at) if *at == now => Next::Nothing,
            Place::At(at) if view.reaches(*at) => Next::Shared { from: *at, to: now },
            Place::Paging { begun, last } if view.reaches(*begun) => {
                Next::Page { revision: *begun, after: Some(last.clone()) }
            }
            Place::Outside | Place::Away { .. } if !view.is_complete() => Next::Nothing,
            Place::At(_) | Place::Paging { .. } | Place::Outside => snapshot,
            Place::Away { since, asked } => match view.resume(since) {
                Resume::Delta(delta) => Next::Answer(delta),
                Resume::Snapshot => snapshot,
                Resume::Behind if *asked => snapshot,
                Resume::Behind => Next::CatchUp(Cursor::clone(since)),
            },
        }
    }

    /// A page was sent up to this user; `more` says whether others follow.
    pub fn page_sent(&mut self, revision: ViewRevision, last: Option<UserId>, more: bool) {
        self.0 = match last {
            Some(last) if more => Place::Paging { begun: revision, last },
            Some(_) | None => Place::At(revision),
        };
    }

    /// A delta or answer up to `to` was sent.
    pub fn sent(&mut self, to: ViewRevision) {
        self.0 = Place::At(to);
    }

    /// The receiver asked to start over: the next thing is a snapshot.
    pub fn resync(&mut self) {
        self.0 = Place::Outside;
    }

    /// The core has answered to [`Next::CatchUp`], one way or the other: what is still ahead of the view
    /// is answered by a snapshot.
    pub fn asked(&mut self) {
        match &mut self.0 {
            Place::Away { asked, .. } => *asked = true,
            Place::Outside | Place::Paging { .. } | Place::At(_) => {}
        }
    }

    /// The revision it has been sent, if it was sent all of one.
    #[must_use]
    pub fn at(&self) -> Option<ViewRevision> {
        match &self.0 {
            Place::At(at) => Some(*at),
            Place::Outside | Place::Away { .. } | Place::Paging { .. } => None,
        }
    }
}
