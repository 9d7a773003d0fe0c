//! The members of one copy, by user, each stored once.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeSet, btree_set};
use std::ops::Bound;

use crate::id::UserId;
use crate::profile::Member;

/// A member that sorts and compares by its user, so that a set of them is a map without keys.
#[derive(Debug, Clone)]
struct ByUser(Member);

impl Borrow<UserId> for ByUser {
    fn borrow(&self) -> &UserId {
        &self.0.user
    }
}

impl PartialEq for ByUser {
    fn eq(&self, other: &Self) -> bool {
        self.0.user == other.0.user
    }
}

impl Eq for ByUser {}

impl PartialOrd for ByUser {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByUser {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.user.cmp(&other.0.user)
    }
}

/// Members by user. Empty takes no memory of its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Members(BTreeSet<ByUser>);

/// Iterates over members by user.
#[derive(Debug, Clone)]
pub(crate) struct After<'a>(btree_set::Range<'a, ByUser>);

impl<'a> Iterator for After<'a> {
    type Item = &'a Member;

    fn next(&mut self) -> Option<&'a Member> {
        self.0.next().map(|ByUser(member)| member)
    }
}

impl Members {
    pub(crate) fn get(&self, user: &UserId) -> Option<&Member> {
        self.0.get(user).map(|ByUser(member)| member)
    }

    /// Puts a member in place of the one of the same user, which is handed back.
    pub(crate) fn put(&mut self, member: Member) -> Option<Member> {
        self.0.replace(ByUser(member)).map(|ByUser(old)| old)
    }

    pub(crate) fn take(&mut self, user: &UserId) -> Option<Member> {
        self.0.take(user).map(|ByUser(member)| member)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// From just after a user; all without one.
    pub(crate) fn after(&self, user: Option<&UserId>) -> After<'_> {
        let start = user.map_or(Bound::Unbounded, Bound::Excluded);
        After(self.0.range::<UserId, _>((start, Bound::Unbounded)))
    }

    pub(crate) fn into_members(self) -> impl Iterator<Item = Member> {
        self.0.into_iter().map(|ByUser(member)| member)
    }
}
