//! One receiver's place in a view.

use crate::cursor::Cursor;
use crate::id::UserId;
use crate::view::{View, ViewDelta, ViewRevision};

/// What to send next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing: it is up to date, or the view is not complete yet.
    Nothing,
    /// A delta shared by all receivers at `from`: take it from the cache or encode it.
    Shared {
        /// The receiver's place.
        from: ViewRevision,
        /// The place after it.
        to: ViewRevision,
    },
    /// The answer to a cursor (`prev: null`), for this receiver alone.
    Answer(ViewDelta),
    /// A page of a snapshot at `revision`, from just after this user (none: the first page).
    Page {
        /// The revision all pages are of.
        revision: ViewRevision,
        /// The last user of the page before.
        after: Option<UserId>,
    },
    /// The cursor is ahead of the view: ask the core first.
    CatchUp(Cursor),
}

/// One receiver's place in a view: O(1) memory however slowly it reads.
#[derive(Debug, Clone)]
pub struct Receiver {
    _private: (),
}

impl Receiver {
    /// A receiver that has seen nothing, or was at this cursor.
    #[must_use]
    pub fn new(since: Option<Cursor>) -> Self {
        let _ = since;
        unimplemented!()
    }

    /// What to send next. Pure: nothing moves until [`Receiver::sent`]. If the view moves on while
    /// pages are being sent, the pages stay of one revision as far as the view can give it; else the
    /// snapshot starts again (`first`).
    #[must_use]
    pub fn next(&self, view: &View) -> Next {
        let _ = view;
        unimplemented!()
    }

    /// A page was sent up to this user; `more` says whether others follow.
    pub fn page_sent(&mut self, revision: ViewRevision, last: Option<UserId>, more: bool) {
        let _ = (revision, last, more);
        unimplemented!()
    }

    /// A delta or answer up to `to` was sent.
    pub fn sent(&mut self, to: ViewRevision) {
        let _ = to;
        unimplemented!()
    }

    /// The receiver asked to start over: the next thing is a snapshot.
    pub fn resync(&mut self) {
        unimplemented!()
    }
}
