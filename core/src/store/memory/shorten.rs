//! Renewals, and the two ways to bring a deadline forward: released by its edge, or its edge lost.

use std::time::Duration;

use presence_model::class::Graces;
use presence_model::id::Incarnation;
use presence_model::lease::LeaseId;
use presence_model::member::{Shortened, ShortenedBy};
use presence_model::reason::ReleaseReason;
use presence_model::time::StoreTime;

use super::shard::ShardState;
use crate::store::{LeaseDetail, Outcome};

impl ShardState {
    /// O(log n) a lease; answers those that do not exist under their plain name.
    pub(super) fn renew(&mut self, leases: Vec<(LeaseId, StoreTime)>, now: StoreTime) -> Outcome {
        let renewed = leases.into_iter().filter(|(id, deadline)| !self.leases.renew(*id, *deadline));
        let unknown = renewed.map(|(id, _)| id).collect();
        Outcome::Renewed { now: Some(now), unknown }
    }

    pub(super) fn release(
        &mut self,
        edge: Incarnation,
        leases: Vec<LeaseId>,
        (grace, reason): (Duration, ReleaseReason),
        now: StoreTime,
    ) -> Outcome {
        let mut released = 0;
        for id in leases {
            let id = id.plain_name();
            let Some(lease) = self.leases.get(id).filter(|lease| lease.edge == edge && !lease.in_grace)
            else {
                continue;
            };
            let replaced = lease.renewed_until();
            let deadline = replaced.min(now + grace);
            let note = Shortened { cause: ShortenedBy::Release(reason), replaced, deadline };
            self.leases.shorten(id, deadline, Some(note));
            self.leases.enter_grace(id);
            released += 1;
        }
        Outcome::Released { now, released }
    }

    /// Shortens what has not been renewed since the edge's link broke. In a hold no edge is lost.
    pub(super) fn lose(
        &mut self,
        edge: Incarnation,
        broken_since: StoreTime,
        graces: &Graces,
        now: StoreTime,
    ) -> usize {
        let mut lost = 0;
        for id in self.leases.of_edge(edge) {
            let Some(lease) = self.leases.get(id) else { continue };
            let is_before = lease.lost().is_some();
            let may_run = lease.deadline > now && lease.deadline <= broken_since + id.ttl();
            let is_silent = !lease.in_grace && may_run && self.is_settled() && !self.is_held(id.ttl(), now);
            if is_silent && !is_before {
                let replaced = lease.deadline;
                let deadline = replaced.min(now + graces.of(id.ttl()));
                let note = Shortened { cause: ShortenedBy::EdgeLost, replaced, deadline };
                self.leases.shorten(id, deadline, Some(note));
            }
            lost += usize::from(is_before || is_silent);
        }
        lost
    }

    pub(super) fn lease_details(&self, leases: Vec<LeaseId>, now: StoreTime) -> Outcome {
        let detail = |id: LeaseId| {
            let lease = self.leases.get(id)?;
            Some(LeaseDetail { lease: id.plain_name(), state: lease.state(), shortened: lease.shortened })
        };
        Outcome::Leases { now, leases: leases.into_iter().filter_map(detail).collect() }
    }
}
