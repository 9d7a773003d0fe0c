//! A roster that remembers all it ever was, and what follows from that by definition.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use presence_model::change::Removal;
use presence_model::delta::Delta;
use presence_model::digest::Digest;
use presence_model::id::UserId;
use presence_model::position::{Epoch, Position, Revision};
use presence_model::profile::{Member, State, Status};
use presence_model::reason::{Ending, RemovalReason};
use presence_model::replica::{Freshness, SnapshotPage};
use presence_model::time::StoreTime;
use presence_model::view::ViewDelta;
use proptest::prelude::*;

pub(crate) type List = BTreeMap<UserId, Member>;

/// So many cases; a failure is printed with its input and becomes a test by hand.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// What a commit does: a user is set to a value, or goes.
pub(crate) type Edits = Vec<(u8, Option<u8>)>;

pub(crate) fn edits() -> impl Strategy<Value = Edits> {
    prop::collection::vec((0..6u8, prop::option::weighted(0.6, any::<u8>())), 0..4)
}

pub(crate) fn user(number: u8) -> UserId {
    UserId::new(format!("u{number}")).unwrap()
}

pub(crate) fn member(number: u8, value: u8) -> Member {
    Member {
        user: user(number),
        status: [Status::Away, Status::Available, Status::Busy][usize::from(value % 3)],
        state: State::new(Bytes::from(format!("{{\"v\":{value}}}"))).unwrap(),
        since: StoreTime(1_000 + u64::from(value / 50)),
    }
}

/// One epoch of a roster, from a first revision on.
#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(crate) epoch: Epoch,
    pub(crate) first: u64,
    states: Vec<List>,
    touched: Vec<BTreeMap<UserId, Option<Ending>>>,
}

impl History {
    pub(crate) fn new(epoch: u64, first: u64, start: List) -> Self {
        let epoch = Epoch { minted_ms: epoch, random: 7 };
        Self { epoch, first, states: vec![start], touched: Vec::new() }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.first + self.touched.len() as u64
    }

    pub(crate) fn position(&self) -> Position {
        self.position_at(self.revision())
    }

    pub(crate) fn position_at(&self, revision: u64) -> Position {
        Position { epoch: self.epoch, revision: Revision(revision) }
    }

    pub(crate) fn at(&self, revision: u64) -> &List {
        &self.states[usize::try_from(revision - self.first).unwrap()]
    }

    pub(crate) fn now(&self) -> &List {
        self.states.last().unwrap()
    }

    pub(crate) fn commit(&mut self, edits: &[(u8, Option<u8>)]) {
        let mut list = self.now().clone();
        let mut touched = BTreeMap::new();
        for (number, value) in edits {
            let user = user(*number);
            match value {
                Some(value) => {
                    list.insert(user.clone(), member(*number, *value));
                    touched.insert(user, None);
                }
                None if list.remove(&user).is_some() => {
                    touched.insert(user, Some(ending(self.touched.len())));
                }
                None => {}
            }
        }
        self.states.push(list);
        self.touched.push(touched);
    }

    pub(crate) fn touched(&self, from: u64, to: u64) -> BTreeSet<&UserId> {
        let index = |revision: u64| usize::try_from(revision - self.first).unwrap();
        self.touched[index(from)..index(to)].iter().flat_map(BTreeMap::keys).collect()
    }

    /// By definition: everybody touched in (from, to], as at `to`.
    pub(crate) fn delta(&self, from: u64, to: u64) -> Delta {
        let list = self.at(to);
        let digest = Digest::of_all(list.values());
        let mut delta = Delta::empty(self.epoch, Revision(from), Revision(to), digest);
        for user in self.touched(from, to) {
            match list.get(user) {
                Some(member) => delta.upserts.push(member.clone()),
                None => delta.removals.push(Removal { user: user.clone(), ending: self.ending(user, to) }),
            }
        }
        delta
    }

    fn ending(&self, user: &UserId, to: u64) -> Ending {
        let until = usize::try_from(to - self.first).unwrap();
        let last = self.touched[..until].iter().rev().find_map(|touched| touched.get(user));
        last.copied().flatten().expect("a touched user who is absent went")
    }

    pub(crate) fn pages(&self, revision: u64, size: usize, freshness: Freshness) -> Vec<SnapshotPage> {
        let members: Vec<Member> = self.at(revision).values().cloned().collect();
        let position = self.position_at(revision);
        let page = |members: &[Member]| SnapshotPage {
            position,
            freshness,
            members: members.to_vec(),
            first: false,
            last: None,
        };
        let mut pages: Vec<_> = members.chunks(size.max(1)).map(page).collect();
        if pages.is_empty() {
            pages.push(page(&[]));
        }
        pages.first_mut().unwrap().first = true;
        pages.last_mut().unwrap().last = Some(Digest::of_all(&members));
        pages
    }
}

fn ending(number: usize) -> Ending {
    let reason = RemovalReason::ALL[number % RemovalReason::ALL.len()];
    Ending { reason, silent_for: Duration::from_millis(number as u64) }
}

pub(crate) fn list<'a>(members: impl IntoIterator<Item = &'a Member>) -> List {
    members.into_iter().map(|member| (member.user.clone(), member.clone())).collect()
}

/// Who differs between two lists.
pub(crate) fn difference(before: &List, after: &List) -> Vec<UserId> {
    let users: BTreeSet<&UserId> = before.keys().chain(after.keys()).collect();
    users.into_iter().filter(|user| before.get(*user) != after.get(*user)).cloned().collect()
}

pub(crate) fn apply_view(delta: &ViewDelta, list: &mut List) {
    for member in &delta.upserts {
        list.insert(member.user.clone(), member.clone());
    }
    for gone in &delta.removals {
        list.remove(&gone.user);
    }
}

/// The union of rosters by its definition.
pub(crate) fn union(rosters: &[&List]) -> List {
    let mut all = List::new();
    let users: BTreeSet<&UserId> = rosters.iter().flat_map(|roster| roster.keys()).collect();
    for user in users {
        let copies: Vec<&Member> = rosters.iter().filter_map(|roster| roster.get(user)).collect();
        // The first of the latest: `max_by_key` alone would take the last.
        let latest = copies.iter().rev().max_by_key(|copy| copy.since).unwrap();
        let shown = Member {
            user: user.clone(),
            status: copies.iter().map(|copy| copy.status).max().unwrap(),
            state: latest.state.clone(),
            since: copies.iter().map(|copy| copy.since).min().unwrap(),
        };
        all.insert(user.clone(), shown);
    }
    all
}
