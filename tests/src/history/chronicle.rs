//! What the store held after each commit, and who was removed when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use presence_model::position::{Position, Revision};

use super::{Gone, Members, Shown};

/// The rosters of all positions.
#[derive(Debug, Default)]
pub(super) struct Chronicle {
    rosters: BTreeMap<Position, (Duration, Arc<Members>)>,
    latest: Position,
    removed: BTreeMap<String, Duration>,
}

/// What is wrong with a commit in itself.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) guarantee: &'static str,
    pub(super) what: String,
}

impl Chronicle {
    /// The first that is known of an epoch.
    pub(super) fn begin(&mut self, position: Position, members: &Arc<Members>, at: Duration) {
        self.rosters.insert(position, (at, Arc::clone(members)));
        self.latest = self.latest.max(position);
    }

    /// Who came by a commit that is taken into the books.
    pub(super) fn commit(
        &mut self,
        (position, from): (Position, Revision),
        upserts: &[(String, Shown)],
        removals: &[Gone],
        at: Duration,
    ) -> Result<Vec<String>, Wrong> {
        let wrong = |guarantee, what| Err(Wrong { guarantee, what });
        let before = self.now();
        let follows = position.epoch == self.latest.epoch
            && (from == self.latest.revision || (before.is_empty() && from >= self.latest.revision))
            && position.revision == from.next();
        if !follows {
            return wrong(
                "G4",
                format!("a commit from {from} to {position}, but the roster is at {}", self.latest),
            );
        }
        let mut members = Members::clone(&before);
        let mut came = Vec::new();
        for (user, shown) in upserts {
            match members.insert(user.clone(), shown.clone()) {
                None => came.push(user.clone()),
                Some(old) if shown.since > old.since => {
                    let what = format!(
                        "{user} is here since {}, and was here since {} before",
                        shown.since, old.since
                    );
                    return wrong("G7", what);
                }
                Some(_) => {}
            }
        }
        for gone in removals {
            if members.remove(&gone.user).is_none() {
                return wrong("G7", format!("{} is removed and was not there", gone.user));
            }
            self.removed.insert(gone.user.clone(), at);
        }
        self.rosters.insert(position, (at, Arc::new(members)));
        self.latest = position;
        Ok(came)
    }

    pub(super) fn latest(&self) -> Position {
        self.latest
    }

    /// The roster as it is now.
    pub(super) fn now(&self) -> Arc<Members> {
        self.rosters.get(&self.latest).map(|(_, members)| Arc::clone(members)).unwrap_or_default()
    }

    /// The roster of a position, if it is known.
    pub(super) fn at(&self, position: Position) -> Option<&Arc<Members>> {
        self.rosters.get(&position).map(|(_, members)| members)
    }

    /// All rosters since then, the one that was in force then first.
    pub(super) fn since(&self, then: Duration) -> impl Iterator<Item = &Arc<Members>> {
        let mut recent: Vec<_> = Vec::new();
        for (at, members) in self.rosters.values().rev() {
            recent.push(members);
            if *at <= then {
                break;
            }
        }
        recent.into_iter().rev()
    }

    /// When a commit removed this user last.
    pub(super) fn removed_at(&self, user: &str) -> Option<Duration> {
        self.removed.get(user).copied()
    }
}
