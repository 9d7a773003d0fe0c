//! A service that watches a core, written from the contract alone: it keeps revisions and digests by
//! itself, so that what a core says is held against an understanding of its own.

use std::collections::BTreeMap;

use presence_model::cursor::Cursor;
use presence_model::delta::Delta;
use presence_model::digest::Digest;
use presence_model::id::UserId;
use presence_model::position::{Epoch, Position};
use presence_model::profile::Member;
use presence_model::replica::{Freshness, SnapshotPage};
use presence_model::time::Mono;
use presence_model::view::RegionEvent;

use super::chance::Chance;
use super::guarantee::{Breach, Guarantee};
use super::names::Names;
use presence_core::driver::WatchKey;

/// One roster as this service has it.
#[derive(Debug, Default)]
pub(super) struct Copy {
    pub(super) position: Option<Position>,
    pub(super) members: BTreeMap<UserId, Member>,
    staged: Option<(Position, BTreeMap<UserId, Member>)>,
    pub(super) fresh: Option<Freshness>,
}

/// The service.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) chance: Chance,
    pub(super) watch: Option<(WatchKey, usize)>,
    pub(super) heard: Mono,
    pub(super) dials: u64,
    pub(super) copies: Vec<Copy>,
}

impl Copy {
    /// Whether it says of itself that it is complete and fresh.
    pub(super) fn is_live(&self) -> bool {
        self.position.is_some() && self.staged.is_none() && self.fresh == Some(Freshness::Live)
    }

    /// Nothing is heard any more.
    pub(super) fn cut(&mut self) {
        self.staged = None;
        self.fresh = None;
    }

    /// Where to go on from.
    pub(super) fn cursor(&self, names: &Names) -> Option<Cursor> {
        Some(Cursor::new([(names.region.clone(), self.position?)].into()))
    }

    /// Takes an event; true if the copy is another roster now.
    ///
    /// # Errors
    /// What leads back (G4), leaves out (G5) or does not add up (G5).
    pub(super) fn take(&mut self, event: RegionEvent) -> Result<bool, Breach> {
        match event {
            RegionEvent::Page(page) => self.page(page),
            RegionEvent::Delta(delta) => self.delta(&delta).map(|()| true),
            RegionEvent::Freshness(fresh) => {
                self.fresh = Some(fresh);
                Ok(false)
            }
            RegionEvent::Lost => Err((Guarantee::G5, "the only region is said to be lost".to_owned())),
        }
    }

    /// Whether it is of an epoch below its own: dropped, as the contract has it. A core that serves it is told
    /// of the higher one by the cursor that opened the room.
    fn is_old(&self, epoch: Epoch) -> bool {
        self.position.is_some_and(|own| epoch < own.epoch)
    }

    fn page(&mut self, page: SnapshotPage) -> Result<bool, Breach> {
        if self.is_old(page.position.epoch) {
            return Ok(false);
        }
        if self.position.is_some_and(|own| own > page.position) {
            return Err(back(self.position, page.position));
        }
        if page.first {
            self.staged = Some((page.position, BTreeMap::new()));
        }
        let staged = self.staged.as_mut().filter(|(position, _)| *position == page.position);
        let Some((_, members)) = staged else {
            return Err((Guarantee::G5, format!("a page of {} without the first", page.position)));
        };
        members.extend(page.members.into_iter().map(|member| (member.user.clone(), member)));
        self.fresh = Some(page.freshness);
        let Some(digest) = page.last else { return Ok(false) };
        let members = self.staged.take().map(|(_, members)| members).unwrap_or_default();
        (self.position, self.members) = (Some(page.position), members);
        self.adds_up(digest).map(|()| true)
    }

    fn delta(&mut self, delta: &Delta) -> Result<(), Breach> {
        if self.is_old(delta.epoch) {
            return Ok(());
        }
        let to = Position { epoch: delta.epoch, revision: delta.to };
        let Some(own) = self.position else {
            return Err((Guarantee::G5, format!("a delta to {to} before any list")));
        };
        if to < own {
            return Err(back(self.position, to));
        }
        if delta.epoch != own.epoch || delta.from > own.revision {
            return Err((Guarantee::G5, format!("at {own}, then a delta from {} to {to}", delta.from)));
        }
        delta.upserts.iter().for_each(|member| {
            self.members.insert(member.user.clone(), member.clone());
        });
        delta.removals.iter().for_each(|gone| {
            self.members.remove(&gone.user);
        });
        self.position = Some(to);
        self.adds_up(delta.digest)
    }

    fn adds_up(&self, told: Digest) -> Result<(), Breach> {
        if self.digest() == told {
            return Ok(());
        }
        let at = self.position.unwrap_or_default();
        Err((Guarantee::G5, format!("the fold up to {at} is not what its digest says")))
    }

    pub(super) fn digest(&self) -> Digest {
        Digest::of_all(self.members.values())
    }
}

fn back(own: Option<Position>, told: Position) -> Breach {
    (Guarantee::G4, format!("was at {} and is taken back to {told}", own.unwrap_or_default()))
}
