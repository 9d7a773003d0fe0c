//! How a copy gets in step: pages, the history since the first page, and what the tail told meanwhile.

use std::collections::BTreeMap;

use presence_model::change::Committed;
use presence_model::digest::Digest;
use presence_model::id::{Roster, UserId};
use presence_model::lease::Shard;
use presence_model::position::{Position, Revision};
use presence_model::profile::Member;
use presence_model::replica::{Applied, Freshness, Replica, SnapshotPage};

use super::Sync;
use crate::driver::Driver;
use crate::driver::store_ops::Pending;
use crate::limits::{HISTORY_PAGE, LOAD_PAGE, LOADS_MAX, STORE_RETRY};
use crate::store::{Command, HistoryOutcome, Outcome, StoreFault};

/// A roster being put together. Pages may be of different points; each member says which revision
/// touched it last, so the history since the first page brings all of them to one point.
#[derive(Debug, Default)]
pub(super) struct Loading {
    /// Where the first page was; then how far history was folded in.
    at: Option<Position>,
    highest: Revision,
    members: BTreeMap<UserId, (Member, Revision)>,
    digest: Digest,
}

impl Loading {
    /// Takes a page; false if it is of another epoch than the first.
    fn page(&mut self, position: Position, members: Vec<(Member, Revision)>, digest: Digest) -> bool {
        let first = *self.at.get_or_insert(position);
        if first.epoch != position.epoch {
            return false;
        }
        self.highest = self.highest.max(position.revision);
        if first.revision == position.revision {
            self.digest = digest;
        }
        self.members.extend(members.into_iter().map(|(m, touched)| (m.user.clone(), (m, touched))));
        true
    }

    /// Folds a commit in: what a page has of a later revision stays.
    fn fold(&mut self, commit: Committed) {
        let to = commit.delta.to;
        let older = |known: Option<&(Member, Revision)>| known.is_none_or(|(_, touched)| *touched < to);
        for member in commit.delta.upserts {
            if older(self.members.get(&member.user)) {
                self.members.insert(member.user.clone(), (member, to));
            }
        }
        for gone in commit.delta.removals {
            if older(self.members.get(&gone.user)) {
                self.members.remove(&gone.user);
            }
        }
        if let Some(at) = &mut self.at {
            at.revision = to;
        }
        self.digest = commit.delta.digest;
    }

    /// Where it is, if all of it is of one point.
    fn whole(&self) -> Option<Position> {
        self.at.filter(|at| at.revision >= self.highest)
    }

    fn into_page(self, position: Position) -> SnapshotPage {
        SnapshotPage {
            position,
            freshness: Freshness::Live,
            members: self.members.into_values().map(|(member, _)| member).collect(),
            first: true,
            last: Some(self.digest),
        }
    }
}

impl Driver {
    /// Loads a roster from the start, when its turn comes.
    pub(super) fn load(&mut self, roster: &Roster) {
        self.wait_for_turn(roster, Sync::Waiting);
    }

    /// Reads what a copy lacks, from its own position, when its turn comes.
    pub(in crate::driver) fn catch_up(&mut self, roster: &Roster) {
        if self.rosters.in_step(roster).is_some() {
            self.wait_for_turn(roster, Sync::Behind);
        }
    }

    fn wait_for_turn(&mut self, roster: &Roster, sync: Sync) {
        let serial = self.rosters.next_serial();
        let Some(copy) = self.rosters.copies.get_mut(roster) else { return };
        copy.sync = sync;
        let former = std::mem::replace(&mut copy.serial, serial);
        copy.buffer.clear();
        copy.overflowed = false;
        self.rosters.behind.entry(roster.clone()).or_insert(self.now);
        self.rosters.asking.remove(roster);
        self.rosters.queue.remove(&(former, roster.clone()));
        self.rosters.queue.insert((serial, roster.clone()));
    }

    /// Asks for as many of those whose turn has come as may be asked for at once.
    pub(in crate::driver) fn start_loads(&mut self) {
        self.retry_loads();
        while self.rosters.asking.len() < LOADS_MAX
            && let Some((_, roster)) = self.rosters.queue.pop_first()
        {
            self.start_load(&roster);
        }
    }

    fn start_load(&mut self, roster: &Roster) {
        let Some(copy) = self.rosters.copies.get_mut(roster) else { return };
        let serial = copy.serial;
        match (&copy.sync, copy.replica.position()) {
            (Sync::Behind, Some(position)) => {
                copy.sync = Sync::CatchingUp;
                self.read_history(roster, serial, position);
            }
            (Sync::Behind, None) | (Sync::Waiting, _) => {
                copy.sync = Sync::Loading(Loading::default());
                copy.pages = None;
                self.load_page(roster, serial, None);
            }
            (Sync::InStep | Sync::Loading(_) | Sync::CatchingUp, _) => return,
        }
        self.rosters.asking.insert(roster.clone());
    }

    fn load_page(&mut self, roster: &Roster, serial: u64, after: Option<UserId>) {
        let command = Command::Load { roster: roster.clone(), after, count: LOAD_PAGE };
        self.ask(command, Pending::Load(roster.clone(), serial));
    }

    /// All rosters of a shard are another history now.
    pub(in crate::driver) fn reload_shard(&mut self, shard: Shard) {
        for roster in self.rosters.of_shard(shard) {
            self.load(&roster);
        }
        self.count_again(|counted| counted == shard);
    }

    /// Tries again what could not be loaded.
    fn retry_loads(&mut self) {
        while let Some((at, roster)) = self.rosters.retries.first().cloned()
            && at <= self.now
        {
            self.rosters.retries.pop_first();
            if let Some(copy) = self.rosters.copies.get(&roster) {
                self.rosters.queue.insert((copy.serial, roster));
            }
        }
    }

    fn load_later(&mut self, roster: &Roster) {
        if let Some(copy) = self.rosters.copies.get_mut(roster) {
            copy.sync = Sync::Waiting;
            self.rosters.asking.remove(roster);
            self.rosters.retries.insert((self.now + STORE_RETRY, roster.clone()));
        }
    }

    /// A page of a roster.
    pub(in crate::driver) fn on_load(
        &mut self,
        roster: &Roster,
        serial: u64,
        result: Result<Outcome, StoreFault>,
    ) {
        let Some(copy) = self.rosters.copies.get_mut(roster).filter(|copy| copy.serial == serial) else {
            return;
        };
        let Sync::Loading(loading) = &mut copy.sync else { return };
        let Ok(Outcome::Page { position, members, more, digest, .. }) = result else {
            return self.load_later(roster);
        };
        let after = members.last().map(|(member, _)| member.user.clone());
        if !loading.page(position, members, digest) {
            return self.load(roster);
        }
        if more && after.is_some() {
            return self.load_page(roster, serial, after);
        }
        self.load_on(roster, serial);
    }

    /// All pages are there: done, or as much history more as makes them one point.
    fn load_on(&mut self, roster: &Roster, serial: u64) {
        let Some(copy) = self.rosters.copies.get_mut(roster) else { return };
        let Sync::Loading(loading) = &mut copy.sync else { return };
        let Some(position) = loading.whole() else {
            let Some(after) = loading.at else { return };
            return self.read_history(roster, serial, after);
        };
        let page = std::mem::take(loading).into_page(position);
        copy.replica = Replica::cold();
        match copy.replica.page(page, self.now) {
            Applied::Shown(_) => {
                let shard = copy.shard;
                copy.suspected = false;
                if !self.sweep.knows(shard, position.epoch) {
                    self.sweep.hurry(shard, self.now);
                }
                self.get_in_step(roster);
            }
            Applied::Differs => {
                self.suspect(roster);
                self.load_later(roster);
            }
            Applied::Known | Applied::Gap => self.load_later(roster),
        }
    }

    /// What was loaded has not the digest that is stored: somebody's hand, to be judged where it is stored. Asked
    /// once, since it costs as much as the roster is long, until a load succeeds.
    fn suspect(&mut self, roster: &Roster) {
        let Some(copy) = self.rosters.copies.get_mut(roster) else { return };
        if !std::mem::replace(&mut copy.suspected, true) {
            let shard = copy.shard;
            self.ask(Command::Distrust { roster: roster.clone() }, Pending::Distrust(shard));
        }
    }

    fn read_history(&mut self, roster: &Roster, serial: u64, after: Position) {
        let command = Command::History { roster: roster.clone(), after, count: HISTORY_PAGE };
        self.ask(command, Pending::CatchUp(roster.clone(), serial));
    }

    /// History that a copy lacks.
    pub(in crate::driver) fn on_caught_up(
        &mut self,
        roster: &Roster,
        serial: u64,
        result: Result<Outcome, StoreFault>,
    ) {
        let Some(copy) = self.rosters.copies.get_mut(roster).filter(|copy| copy.serial == serial) else {
            return;
        };
        let (commits, further) = match result {
            Ok(Outcome::History(HistoryOutcome::Commits(commits))) => (commits, None),
            Ok(Outcome::History(HistoryOutcome::Unchanged { position })) => (Vec::new(), Some(position)),
            // Not reached back, or the store is behind: another history in all but name.
            Ok(_) => return self.load(roster),
            Err(_) => return self.load_later(roster),
        };
        let more = commits.len() >= HISTORY_PAGE;
        let nothing = commits.is_empty();
        match &mut copy.sync {
            Sync::Loading(loading) => {
                for commit in commits {
                    loading.fold(commit);
                }
                if nothing && loading.whole().is_none() {
                    // A member of a later revision than its roster has.
                    self.suspect(roster);
                    self.load_later(roster)
                } else {
                    self.load_on(roster, serial)
                }
            }
            Sync::CatchingUp => {
                for commit in commits {
                    copy.note_move(&commit);
                    match copy.replica.delta(&commit.delta, self.now) {
                        Applied::Shown(_) | Applied::Known => {}
                        Applied::Gap | Applied::Differs => return self.load(roster),
                    }
                }
                if let Some(further) = further {
                    copy.go_on_to(further, self.now);
                }
                match copy.replica.position() {
                    Some(position) if more => self.read_history(roster, serial, position),
                    Some(_) | None => self.get_in_step(roster),
                }
            }
            Sync::InStep | Sync::Waiting | Sync::Behind => {}
        }
    }

    /// The copy has all that was stored a moment ago; what the tail told meanwhile follows.
    fn get_in_step(&mut self, roster: &Roster) {
        let Some(copy) = self.rosters.copies.get_mut(roster) else { return };
        copy.sync = Sync::InStep;
        let overflowed = std::mem::take(&mut copy.overflowed);
        let buffer = std::mem::take(&mut copy.buffer);
        self.rosters.behind.remove(roster);
        self.rosters.asking.remove(roster);
        if overflowed {
            return self.catch_up(roster);
        }
        for delta in buffer {
            let Some(copy) = self.rosters.copies.get_mut(roster) else { return };
            match copy.sync {
                Sync::InStep => {
                    let applied = copy.replica.delta(&delta, self.now);
                    self.followed(roster, &applied, &delta);
                }
                Sync::Loading(_) | Sync::CatchingUp => copy.keep(&delta),
                Sync::Waiting | Sync::Behind => {}
            }
        }
        self.tell_watchers(roster);
    }
}
