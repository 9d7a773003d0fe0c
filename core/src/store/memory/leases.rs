//! The leases of one shard: the only truth about life, ordered by the clocks that end them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use presence_model::id::{Incarnation, Roster, SessionId, UserId};
use presence_model::lease::LeaseId;
use presence_model::member::{Due, DueCause, Shortened, ShortenedBy};
use presence_model::record::LeaseState;
use presence_model::time::StoreTime;

/// A lease as stored, under either name.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    pub(super) roster: Arc<Roster>,
    pub(super) user: UserId,
    pub(super) session: SessionId,
    pub(super) edge: Incarnation,
    pub(super) deadline: StoreTime,
    pub(super) token_ends: StoreTime,
    pub(super) in_grace: bool,
    pub(super) shortened: Option<Shortened>,
}

impl Lease {
    pub(super) fn state(&self) -> LeaseState {
        let deadline = self.deadline;
        if self.in_grace { LeaseState::Grace { deadline } } else { LeaseState::Live { deadline } }
    }

    /// The note of a lost edge, while it still says the deadline.
    pub(super) fn lost(&self) -> Option<Shortened> {
        self.shortened
            .filter(|note| matches!(note.cause, ShortenedBy::EdgeLost) && note.deadline == self.deadline)
    }

    /// The deadline its last renewal gave it.
    pub(super) fn renewed_until(&self) -> StoreTime {
        self.lost().map_or(self.deadline, |note| note.replaced)
    }
}

/// All leases of a shard by plain name, with an index for each question the sweep asks: every one of
/// them costs O(log n), whatever the number of sessions.
#[derive(Debug, Clone, Default)]
pub(super) struct LeaseBook {
    leases: HashMap<LeaseId, Lease, FixedState>,
    // Holds last one ttl and clocks are judged by ttl, so leases of each ttl are ordered apart. There
    // are as many as room classes.
    deadlines: BTreeMap<Duration, BTreeSet<(StoreTime, LeaseId)>>,
    until: BTreeSet<(StoreTime, LeaseId)>,
    of_edge: BTreeMap<Incarnation, BTreeSet<LeaseId>>,
}

impl LeaseBook {
    pub(super) fn get(&self, lease: LeaseId) -> Option<&Lease> {
        self.leases.get(&lease.plain_name())
    }

    /// Adds a lease that does not exist yet.
    pub(super) fn grant(&mut self, id: LeaseId, lease: Lease) {
        self.deadlines.entry(id.ttl()).or_default().insert((lease.deadline, id));
        self.until.insert((lease.token_ends, id));
        self.of_edge.entry(lease.edge).or_default().insert(id);
        let replaced = self.leases.insert(id, lease);
        debug_assert!(replaced.is_none(), "a lease id was granted twice");
    }

    /// Removes a lease under both names; unknown is fine.
    pub(super) fn remove(&mut self, id: LeaseId) {
        let id = id.plain_name();
        let Some(lease) = self.leases.remove(&id) else { return };
        self.until.remove(&(lease.token_ends, id));
        if let Some(ordered) = self.deadlines.get_mut(&id.ttl()) {
            ordered.remove(&(lease.deadline, id));
            if ordered.is_empty() {
                self.deadlines.remove(&id.ttl());
            }
        }
        if let Some(held) = self.of_edge.get_mut(&lease.edge) {
            held.remove(&id);
            if held.is_empty() {
                self.of_edge.remove(&lease.edge);
            }
        }
    }

    /// Extends under the plain name; never shortens. `false`: unknown.
    pub(super) fn renew(&mut self, id: LeaseId, deadline: StoreTime) -> bool {
        match self.leases.get(&id) {
            Some(lease) if !lease.in_grace => {
                if deadline > lease.deadline {
                    self.shorten(id, deadline, None);
                }
                true
            }
            Some(_) | None => false,
        }
    }

    /// Replaces the deadline and its note. The lease exists.
    pub(super) fn shorten(&mut self, id: LeaseId, deadline: StoreTime, note: Option<Shortened>) {
        let lease = self.leases.get_mut(&id).expect("the caller has just looked the lease up");
        let ordered = self.deadlines.get_mut(&id.ttl()).expect("each lease is in its order");
        ordered.remove(&(lease.deadline, id));
        ordered.insert((deadline, id));
        lease.deadline = deadline;
        lease.shortened = note;
    }

    /// Renames to the grace name.
    pub(super) fn enter_grace(&mut self, id: LeaseId) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.in_grace = true;
        }
    }

    /// Replaces the end of the token; unknown is fine.
    pub(super) fn set_token_end(&mut self, id: LeaseId, ends: StoreTime) {
        if let Some(lease) = self.leases.get_mut(&id) {
            self.until.remove(&(lease.token_ends, id));
            self.until.insert((ends, id));
            lease.token_ends = ends;
        }
    }

    /// Leases held through an edge, in the order of their ids.
    pub(super) fn of_edge(&self, edge: Incarnation) -> Vec<LeaseId> {
        self.of_edge.get(&edge).map_or_else(Vec::new, |held| held.iter().copied().collect())
    }

    /// How many leases are held through an edge.
    pub(super) fn count_of_edge(&self, edge: Incarnation) -> usize {
        self.of_edge.get(&edge).map_or(0, BTreeSet::len)
    }

    /// All leases from just after a place on. One whose token is replaced meanwhile may come twice.
    pub(super) fn walk(
        &self,
        after: Option<(StoreTime, LeaseId)>,
    ) -> impl Iterator<Item = ((StoreTime, LeaseId), LeaseId, &Lease)> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.until.range((start, Bound::Unbounded)).map(|place| {
            let lease = self.leases.get(&place.1).expect("each ordered lease exists");
            (*place, place.1, lease)
        })
    }

    /// The earliest deadline of a lease that is not held.
    pub(super) fn first_deadline(&self, held: impl Fn(Duration) -> bool) -> Option<StoreTime> {
        let of_ttl = self.deadlines.iter().filter(|(ttl, _)| !held(**ttl));
        of_ttl.filter_map(|(_, ordered)| ordered.first()).map(|(deadline, _)| *deadline).min()
    }

    /// What is due, the oldest first and each lease once, at most `portion`; `held` says for which ttl
    /// silence proves nothing. Ends of tokens are not subject to holds.
    pub(super) fn due(
        &self,
        now: StoreTime,
        held: impl Fn(Duration) -> bool,
        portion: usize,
    ) -> Vec<(&Lease, Due)> {
        let overdue = ..=(now, LeaseId(u64::MAX));
        let mut found: Vec<(StoreTime, Clock, LeaseId)> = Vec::new();
        found.extend(self.until.range(overdue).take(portion).map(|&(at, id)| (at, Clock::Token, id)));
        for (_, ordered) in self.deadlines.iter().filter(|(ttl, _)| !held(**ttl)) {
            found.extend(ordered.range(overdue).take(portion).map(|&(at, id)| (at, Clock::Deadline, id)));
        }
        found.sort_unstable();
        let mut seen = BTreeSet::new();
        found.retain(|(_, _, id)| seen.insert(*id));
        found.truncate(portion);
        found.into_iter().map(|(_, clock, id)| self.as_due(id, clock)).collect()
    }

    fn as_due(&self, id: LeaseId, clock: Clock) -> (&Lease, Due) {
        let lease = self.leases.get(&id).expect("each ordered lease exists");
        let named = if lease.in_grace { id.grace_name() } else { id };
        let cause = match clock {
            Clock::Token => DueCause::TokenEnd,
            Clock::Deadline => DueCause::Deadline { deadline: lease.deadline, shortened: lease.shortened },
        };
        (lease, Due { lease: named, cause })
    }

    /// Brings back deadlines further ahead than now + their own ttl, the furthest first, at most
    /// `portion`: the clock stepped back since they were set.
    pub(super) fn clamp(&mut self, now: StoreTime, portion: usize) {
        let mut overlong: Vec<(StoreTime, LeaseId)> = Vec::new();
        for (ttl, ordered) in &self.deadlines {
            let beyond = (now + *ttl + Duration::from_millis(1), LeaseId(0))..;
            overlong.extend(ordered.range(beyond).rev().take(portion));
        }
        overlong.sort_unstable_by(|a, b| b.cmp(a));
        for (_, id) in overlong.into_iter().take(portion) {
            let limit = now + id.ttl();
            let note = self.leases.get(&id).and_then(|lease| lease.shortened);
            let note = note.map(|note| Shortened {
                replaced: note.replaced.min(limit),
                deadline: note.deadline.min(limit),
                ..note
            });
            self.shorten(id, limit, note);
        }
    }
}

// Of one millisecond the token counts: a lease that ends with its token ends for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Clock {
    Token,
    Deadline,
}
