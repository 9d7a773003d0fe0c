//! Revocations, until they cannot matter.

use std::collections::{BTreeMap, BTreeSet};

use presence_model::revocation::Revocation;
use presence_model::time::StoreTime;

use crate::store::Outcome;

/// All revocations. Unlike the copy of a core, bounded by their ends alone.
#[derive(Debug, Clone, Default)]
pub(super) struct Revoked {
    until: BTreeMap<Revocation, StoreTime>,
    ends: BTreeSet<(StoreTime, Revocation)>,
    news: u64,
}

impl Revoked {
    /// Never shortens.
    pub(super) fn revoke(&mut self, revocations: Vec<(Revocation, StoreTime)>, now: StoreTime) {
        self.forget(now);
        for (what, until) in revocations.into_iter().filter(|(_, until)| *until > now) {
            let known = self.until.get(&what).copied();
            if known.is_none_or(|known| known < until) {
                known.map(|known| self.ends.remove(&(known, what.clone())));
                self.ends.insert((until, what.clone()));
                self.until.insert(what, until);
                self.news += 1;
            }
        }
    }

    /// Forgets what has ended.
    pub(super) fn forget(&mut self, now: StoreTime) {
        let later = self.ends.split_off(&(now + std::time::Duration::from_millis(1), FIRST));
        for (_, what) in std::mem::replace(&mut self.ends, later) {
            self.until.remove(&what);
        }
    }

    pub(super) fn page(
        &self,
        after: Option<(Revocation, StoreTime)>,
        count: usize,
        unless: Option<u64>,
        now: StoreTime,
    ) -> Outcome {
        let news = self.news;
        if unless == Some(news) {
            return Outcome::Revoked { now, news, revocations: Vec::new(), more: false };
        }
        let after = after.map(|(what, until)| (until, what));
        let mut rest = self.ends.iter().filter(|entry| entry.0 > now && after.as_ref() < Some(entry));
        let page: Vec<_> = rest.by_ref().take(count).map(|(until, what)| (what.clone(), *until)).collect();
        Outcome::Revoked { now, news, revocations: page, more: rest.next().is_some() }
    }

    /// Whether nothing is kept.
    #[cfg(test)]
    pub(super) fn is_bare(&self) -> bool {
        self.until.is_empty() && self.ends.is_empty()
    }
}

/// Sorts in front of every other revocation.
const FIRST: Revocation = Revocation::Token(smol_str::SmolStr::new_static(""));
