//! How a copy takes events: each says what it touched, so that views can follow without comparing.

use std::time::Duration;

use super::staged::{Staged, Whole};
use super::{Applied, Freshness, Moved, Outcome, Replica, SnapshotPage, Standing, Touch};
use crate::delta::Delta;
use crate::digest::Digest;
use crate::id::UserId;
use crate::position::Position;
use crate::reason::{Ending, RemovalReason};

/// How a delta relates to the copy.
enum Relation {
    Follows,
    Known,
    Gap,
}

impl Replica {
    pub(crate) fn take_page(&mut self, page: SnapshotPage) -> Outcome {
        if self.standing != Standing::Cold && page.position < self.position {
            // A lagging source: its freshness is as old as its roster.
            self.apart = true;
            return Outcome::dropped(Applied::Known);
        }
        let under_way = self.staged.as_ref().is_some_and(|staged| staged.position() == page.position);
        if page.first {
            self.staged = Some(Box::new(Staged::new(page.position)));
        } else if !under_way {
            let known = self.standing == Standing::Complete && page.position == self.position;
            return Outcome::dropped(if known { Applied::Known } else { Applied::Gap });
        }
        self.fresh = Some(page.freshness);
        let staged = self.staged.as_mut().expect("started above or under way");
        staged.add(page.members);
        match page.last {
            None => Outcome::nothing(),
            Some(digest) => self.finish(digest),
        }
    }

    fn finish(&mut self, digest: Digest) -> Outcome {
        let whole = self.staged.take().and_then(|staged| staged.finish(digest));
        match whole {
            None => Outcome::dropped(Applied::Differs),
            Some(whole) => self.replace(whole),
        }
    }

    /// Confirms, adds and updates; who is not in the snapshot becomes unconfirmed.
    fn replace(&mut self, whole: Whole) -> Outcome {
        // One of the own position only confirms: what is remembered still leads there.
        let again = self.position() == Some(whole.position) && !self.differs;
        let mut before = std::mem::replace(&mut self.members, whole.members);
        self.position = whole.position;
        self.digest = whole.digest;
        self.standing = Standing::Complete;
        self.apart = false;
        self.differs = false;
        self.unconfirmed.clear();
        let mut touched = Vec::new();
        for member in self.members.after(None) {
            let old = before.take(&member.user);
            if old.as_ref() != Some(member) {
                touched.push(Touch { user: member.user.clone(), before: old, ending: None });
            }
        }
        for member in before.into_members() {
            self.unconfirmed.insert(member.user.clone());
            self.members.put(member);
        }
        self.settle(&mut touched);
        self.outcome(touched, if again { Moved::No } else { Moved::Over })
    }

    pub(crate) fn take_delta(&mut self, delta: &Delta) -> Outcome {
        let kept = self.staged.as_mut().is_some_and(|staged| staged.keep(delta));
        match self.relation(delta) {
            Relation::Follows => self.follow(delta, kept),
            Relation::Known => Outcome::dropped(Applied::Known),
            Relation::Gap if kept => Outcome::nothing(),
            Relation::Gap => {
                self.apart = true;
                Outcome::dropped(Applied::Gap)
            }
        }
    }

    fn relation(&self, delta: &Delta) -> Relation {
        let Position { epoch, revision } = self.position;
        match self.standing {
            Standing::Cold => Relation::Gap,
            Standing::Lost | Standing::Complete if delta.epoch < epoch => Relation::Known,
            Standing::Lost => Relation::Gap,
            Standing::Complete if delta.epoch > epoch => Relation::Gap,
            Standing::Complete if delta.to < revision => Relation::Known,
            // An empty delta that ends here says "nothing missed": its digest is worth a look.
            Standing::Complete if delta.to == revision && delta.digest == self.digest => Relation::Known,
            Standing::Complete if delta.from > revision => Relation::Gap,
            Standing::Complete => Relation::Follows,
        }
    }

    fn follow(&mut self, delta: &Delta, kept: bool) -> Outcome {
        if delta.to == self.position.revision || self.digest_after(delta) != delta.digest {
            self.differs = true;
            return if kept { Outcome::nothing() } else { Outcome::dropped(Applied::Differs) };
        }
        self.position.revision = delta.to;
        self.digest = delta.digest;
        self.apart = false;
        self.differs = false;
        // What it would have brought is here already.
        if self.staged.as_ref().is_some_and(|staged| staged.position() <= self.position) {
            self.staged = None;
        }
        let mut touched = Vec::with_capacity(delta.upserts.len() + delta.removals.len());
        for member in &delta.upserts {
            self.unconfirmed.remove(&member.user);
            let before = self.members.put(member.clone());
            touched.push(Touch { user: member.user.clone(), before, ending: None });
        }
        for gone in &delta.removals {
            self.unconfirmed.remove(&gone.user);
            let before = self.members.take(&gone.user);
            touched.push(Touch { user: gone.user.clone(), before, ending: Some(gone.ending) });
        }
        self.settle(&mut touched);
        self.outcome(touched, Moved::On)
    }

    fn digest_after(&self, delta: &Delta) -> Digest {
        let before = delta.users().filter_map(|user| self.confirmed(user)).map(Digest::of);
        let without = before.fold(self.digest, Digest::minus);
        delta.upserts.iter().map(Digest::of).fold(without, Digest::plus)
    }

    pub(crate) fn take_freshness(&mut self, freshness: Freshness) -> Outcome {
        self.fresh = Some(freshness);
        let mut touched = Vec::new();
        self.settle(&mut touched);
        self.outcome(touched, Moved::No)
    }

    pub(crate) fn take_lost(&mut self) -> Outcome {
        self.standing = Standing::Lost;
        self.digest = Digest::default();
        self.unconfirmed.clear();
        self.staged = None;
        self.differs = false;
        let ending = Some(Ending { reason: RemovalReason::RegionLost, silent_for: Duration::ZERO });
        let gone = std::mem::take(&mut self.members).into_members();
        let touched =
            gone.map(|member| Touch { user: member.user.clone(), before: Some(member), ending }).collect();
        self.outcome(touched, Moved::Over)
    }

    /// Removes the unconfirmed if nothing stands in the way: the region is live, and the copy has all
    /// that its source said.
    fn settle(&mut self, touched: &mut Vec<Touch>) {
        let complete = self.standing == Standing::Complete && self.staged.is_none();
        let sound = !self.apart && !self.differs;
        if self.unconfirmed.is_empty() || !complete || !sound || self.fresh != Some(Freshness::Live) {
            return;
        }
        let ending = Some(Ending { reason: RemovalReason::LeaseExpired, silent_for: Duration::ZERO });
        for user in std::mem::take(&mut self.unconfirmed) {
            let before = self.members.take(&user);
            touched.push(Touch { user, before, ending });
        }
    }

    fn outcome(&self, touched: Vec<Touch>, moved: Moved) -> Outcome {
        let differs = |touch: &&Touch| touch.before.as_ref() != self.members.get(&touch.user);
        let mut shown: Vec<UserId> = touched.iter().filter(differs).map(|touch| touch.user.clone()).collect();
        shown.sort_unstable();
        Outcome { applied: Applied::Shown(shown), touched, moved }
    }
}
