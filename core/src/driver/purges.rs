//! Purges: once something is revoked, the sessions that rest on it are looked for in the store and ended.
//!
//! Edges end by themselves what they carry. A purge needs no edge: it also finds sessions whose connection is gone and
//! whose grace runs, and those of an edge that does not listen. It looks at the rosters of one user, or at all; whoever
//! joins behind it is judged by then. Each core that hears of it does so: the one that was asked may have died. Some reads at a time, beside all else that a store has to do.

use std::collections::{BTreeSet, VecDeque};

use presence_model::id::{RoomId, Roster, UserId};
use presence_model::record::MemberRead;
use presence_model::revocation::Revocation;
use presence_model::time::{Mono, StoreTime};

use super::Driver;
use super::commits::Work;
use super::store_ops::Pending;
use crate::limits::{COMMIT_MEMBERS_MAX, PURGE_READS_MAX, PURGE_USERS_MAX, QUERY_PAGE_MAX, STORE_RETRY};
use crate::store::{Command, Listed, Outcome, StoreFault};

/// Where to look.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    /// In the rosters of one user.
    User(UserId),
    /// In all.
    All,
}

/// The next page of rosters to be asked for.
#[derive(Debug, Clone)]
enum Names {
    Rooms(Option<RoomId>),
    RoomsOf(Option<Listed>),
    /// All are known.
    Known,
}

/// A purge under way.
#[derive(Debug)]
struct Purge {
    scope: Scope,
    names: Names,
    /// A page of rosters is asked for.
    asking: bool,
    rosters: VecDeque<Roster>,
    /// Rosters being read.
    reading: usize,
    /// Something could not be read.
    failed: bool,
}

/// Purges, one at a time.
#[derive(Debug, Default)]
pub(super) struct Purges {
    waiting: BTreeSet<Scope>,
    under_way: Option<Purge>,
    /// Nothing is begun before.
    not_before: Mono,
}

impl Purges {
    /// When the next one is to begin.
    pub(super) fn due(&self) -> Option<Mono> {
        (self.under_way.is_none() && !self.waiting.is_empty()).then_some(self.not_before)
    }

    /// Beyond so many users all are looked at.
    fn want(&mut self, scope: Scope) {
        self.waiting.insert(scope);
        if self.waiting.len() > PURGE_USERS_MAX {
            self.waiting = BTreeSet::from([Scope::All]);
        }
    }

    fn again(&mut self, scope: Scope, now: Mono) {
        self.want(scope);
        self.not_before = now + STORE_RETRY;
    }
}

impl Driver {
    /// Looks for what rests on something that is revoked.
    pub(super) fn purge(&mut self, what: &Revocation) {
        let scope = match what {
            Revocation::Token(_) | Revocation::Key(_) => Scope::All,
            Revocation::Subject(user) | Revocation::Session { user, .. } => Scope::User(user.clone()),
        };
        self.purges.want(scope);
    }

    /// Begins the next purge once that is due, and goes on with the one under way.
    pub(super) fn tend_purges(&mut self) {
        if self.purges.due().is_some_and(|due| due <= self.now)
            && let Some(scope) = self.purges.waiting.pop_first()
        {
            let names = match scope {
                Scope::User(_) => Names::RoomsOf(None),
                Scope::All => Names::Rooms(None),
            };
            let (rosters, reading) = (VecDeque::new(), 0);
            self.purges.under_way =
                Some(Purge { scope, names, asking: false, rosters, reading, failed: false });
        }
        self.ask_names();
        self.read_rosters();
        let over = self.purges.under_way.take_if(|purge| {
            matches!(purge.names, Names::Known)
                && !purge.asking
                && purge.rosters.is_empty()
                && purge.reading == 0
        });
        if let Some(purge) = over.filter(|purge| purge.failed) {
            self.purges.again(purge.scope, self.now);
        }
    }

    fn ask_names(&mut self) {
        let Some(purge) = self.purges.under_way.as_mut().filter(|purge| !purge.asking) else { return };
        if !purge.rosters.is_empty() {
            return;
        }
        let count = QUERY_PAGE_MAX;
        let command = match (purge.names.clone(), &purge.scope) {
            (Names::Rooms(after), _) => Command::Rooms { prefix: String::new(), after, count },
            (Names::RoomsOf(after), Scope::User(user)) => {
                Command::RoomsOf { user: user.clone(), after, count }
            }
            (Names::RoomsOf(_), Scope::All) | (Names::Known, _) => return,
        };
        purge.asking = true;
        self.ask(command, Pending::PurgeNames);
    }

    /// Rosters in which to look.
    pub(super) fn on_purge_names(&mut self, result: Result<Outcome, StoreFault>) {
        let regions = self.regions.clone();
        let Some(purge) = self.purges.under_way.as_mut() else { return };
        purge.asking = false;
        match result {
            Ok(Outcome::Rooms { rooms }) => {
                let is_last = rooms.len() < QUERY_PAGE_MAX;
                purge.names = rooms
                    .last()
                    .filter(|_| !is_last)
                    .map_or(Names::Known, |last| Names::Rooms(Some(last.clone())));
                let of_room = |room: RoomId| {
                    regions.iter().map(move |region| Roster { region: region.clone(), room: room.clone() })
                };
                purge.rosters.extend(rooms.into_iter().flat_map(of_room));
            }
            Ok(Outcome::RoomsOf { rooms, more, .. }) => {
                purge.names = rooms
                    .last()
                    .filter(|_| more)
                    .map_or(Names::Known, |last| Names::RoomsOf(Some(last.clone())));
                let ours = rooms.into_iter().map(|listed| listed.roster);
                purge.rosters.extend(ours.filter(|roster| regions.contains(&roster.region)));
            }
            Ok(_) | Err(_) => (purge.names, purge.failed) = (Names::Known, true),
        }
    }

    fn read_rosters(&mut self) {
        while let Some(purge) = self.purges.under_way.as_mut().filter(|purge| purge.reading < PURGE_READS_MAX)
            && let Some(roster) = purge.rosters.pop_front()
        {
            purge.reading += 1;
            match purge.scope.clone() {
                Scope::User(user) => self.read_members(roster, vec![user], None),
                Scope::All => self.read_page(roster, None),
            }
        }
    }

    fn read_page(&mut self, roster: Roster, after: Option<UserId>) {
        let command = Command::Load { roster: roster.clone(), after, count: COMMIT_MEMBERS_MAX };
        self.ask(command, Pending::PurgePage(roster));
    }

    fn read_members(&mut self, roster: Roster, users: Vec<UserId>, rest_after: Option<UserId>) {
        let command = Command::Members { roster: roster.clone(), users };
        self.ask(command, Pending::PurgeMembers(roster, rest_after));
    }

    /// Who is in a roster: a page of names.
    pub(super) fn on_purge_page(&mut self, roster: Roster, result: Result<Outcome, StoreFault>) {
        match result {
            Ok(Outcome::Page { members, more, .. }) if !members.is_empty() => {
                let users: Vec<_> = members.into_iter().map(|(member, _)| member.user).collect();
                let rest_after = users.last().cloned().filter(|_| more);
                self.read_members(roster, users, rest_after);
            }
            Ok(Outcome::Page { .. }) => self.roster_purged(false),
            Ok(_) | Err(_) => self.roster_purged(true),
        }
    }

    /// Members with their sessions: those that rest on something revoked are ended.
    pub(super) fn on_purge_members(
        &mut self,
        roster: Roster,
        rest_after: Option<UserId>,
        result: Result<Outcome, StoreFault>,
    ) {
        let Ok(Outcome::Members { now, members, .. }) = result else { return self.roster_purged(true) };
        for read in members {
            if self.rests_on_revoked(&read, now) {
                self.enqueue(roster.clone(), read.user, Work::Revoke);
            }
        }
        match rest_after {
            Some(_) => self.read_page(roster, rest_after),
            None => self.roster_purged(false),
        }
    }

    fn rests_on_revoked(&self, read: &MemberRead, now: StoreTime) -> bool {
        let sessions = read.record.iter().flat_map(|record| &record.sessions);
        sessions
            .into_iter()
            .any(|session| self.revocations.known().judge_token(&read.user, &session.token, now).is_err())
    }

    fn roster_purged(&mut self, failed: bool) {
        if let Some(purge) = self.purges.under_way.as_mut() {
            purge.reading -= 1;
            purge.failed |= failed;
        }
    }

    /// The end of somebody's sessions could not be decided.
    pub(super) fn purge_again(&mut self, user: UserId) {
        self.purges.again(Scope::User(user), self.now);
    }
}
