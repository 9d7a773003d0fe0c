//! A snapshot under way, kept apart until it is whole.
//!
//! Until then the copy stays what it was, at its position: a snapshot that breaks off or starts again
//! has changed nothing. Deltas that come between the pages wait here, conflated, and are never lost.

use super::members::Members;
use crate::delta::Delta;
use crate::digest::Digest;
use crate::position::{Position, Revision};
use crate::profile::Member;

/// Pages so far, and deltas that came meanwhile.
#[derive(Debug, Clone)]
pub(crate) struct Staged {
    position: Position,
    members: Members,
    waiting: Option<Delta>,
}

/// A whole snapshot, with what came meanwhile.
#[derive(Debug, Clone)]
pub(crate) struct Whole {
    pub(crate) position: Position,
    pub(crate) members: Members,
    pub(crate) digest: Digest,
}

impl Staged {
    pub(crate) fn new(position: Position) -> Self {
        Self { position, members: Members::default(), waiting: None }
    }

    pub(crate) fn position(&self) -> Position {
        self.position
    }

    pub(crate) fn add(&mut self, members: Vec<Member>) {
        for member in members {
            self.members.put(member);
        }
    }

    /// Keeps a delta for when the pages are complete; false if it does not follow.
    pub(crate) fn keep(&mut self, delta: &Delta) -> bool {
        if delta.epoch != self.position.epoch || delta.from > self.reached() {
            return false;
        }
        if delta.to <= self.reached() {
            return true;
        }
        match &mut self.waiting {
            None => self.waiting = Some(delta.clone()),
            Some(waiting) => waiting.conflate(delta.clone()).expect("epoch and order were compared above"),
        }
        true
    }

    fn reached(&self) -> Revision {
        self.waiting.as_ref().map_or(self.position.revision, |waiting| waiting.to)
    }

    /// All pages are here; none if they are not what their sender has.
    pub(crate) fn finish(mut self, digest: Digest) -> Option<Whole> {
        if Digest::of_all(self.members.after(None)) != digest {
            return None;
        }
        let position = Position { epoch: self.position.epoch, revision: self.reached() };
        let Some(waiting) = self.waiting else {
            return Some(Whole { position, members: self.members, digest });
        };
        for gone in &waiting.removals {
            self.members.take(&gone.user);
        }
        for member in waiting.upserts {
            self.members.put(member);
        }
        let whole = Whole { position, members: self.members, digest: waiting.digest };
        (Digest::of_all(whole.members.after(None)) == whole.digest).then_some(whole)
    }
}
