//! Releases: transports given up by an edge, written to each shard, answered when all are.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_model::lease::{LeaseId, Shard};
use presence_model::link::{RequestId, UnansweredJoin};
use presence_model::member::Unanswered;
use presence_model::reason::ReleaseReason;

use super::commits::Work;
use super::store_ops::Pending;
use super::{Driver, LinkKey, Verb};
use crate::limits::RELEASES_MAX;
use crate::store::{Command, Outcome, StoreFault};

/// One release under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReleaseKey(u64);

#[derive(Debug)]
struct Release {
    link: LinkKey,
    request: RequestId,
    reason: ReleaseReason,
    hint: Duration,
    edge: presence_model::id::Incarnation,
    left: usize,
    failed: bool,
}

/// Releases under way.
#[derive(Debug, Default)]
pub(super) struct Releases {
    next: u64,
    under_way: BTreeMap<ReleaseKey, Release>,
}

impl Driver {
    /// An edge gives transports up. What it said about these leases before and still waits is void.
    pub(super) fn on_release(
        &mut self,
        link: LinkKey,
        request: RequestId,
        (leases, reason, hint): (Vec<LeaseId>, ReleaseReason, Duration),
        unanswered: Vec<UnansweredJoin>,
    ) {
        let Some(edge) = self.links.edge(link) else { return };
        let leases = self.own_leases(link, Verb::Release, leases);
        self.renewals.take_out(link, &leases);
        if self.releases.under_way.len() >= RELEASES_MAX {
            return;
        }
        let key = ReleaseKey(self.releases.next);
        self.releases.next += 1;
        // The release itself counts as one part until all others are asked for.
        let release = Release { link, request, reason, hint, edge: edge.incarnation, left: 1, failed: false };
        self.releases.under_way.insert(key, release);
        let mut groups: BTreeMap<(Shard, Duration), Vec<LeaseId>> = BTreeMap::new();
        for lease in leases.into_iter().filter(|lease| self.has_shard(lease.shard())) {
            groups.entry((lease.shard(), lease.ttl())).or_default().push(lease.plain_name());
        }
        for ((shard, ttl), leases) in groups {
            self.release_part(key, shard, leases, ttl);
        }
        for join in unanswered {
            let roster = presence_model::id::Roster { region: edge.region.clone(), room: join.room };
            let unanswered = Unanswered {
                session: join.session,
                generation: join.generation,
                connection: join.connection,
                request: join.request,
            };
            if let Some(release) = self.releases.under_way.get_mut(&key) {
                release.left += 1;
            }
            self.enqueue(roster, join.user, Work::Abandon { release: key, unanswered });
        }
        self.release_done(key, true);
    }

    /// Asks for one more part of a release.
    pub(super) fn release_part(
        &mut self,
        key: ReleaseKey,
        shard: Shard,
        leases: Vec<LeaseId>,
        ttl: Duration,
    ) {
        let Some(release) = self.releases.under_way.get_mut(&key) else { return };
        release.left += 1;
        let grace = (self.graces.of(ttl) + release.hint).min(ttl);
        let (edge, reason) = (release.edge, release.reason);
        self.ask(Command::Release { shard, edge, leases, grace, reason }, Pending::Release(key));
    }

    /// The same for a lease that was found by the names of its session, if it is the edge's own.
    pub(super) fn release_own_part(&mut self, key: ReleaseKey, lease: LeaseId) {
        let Some(link) = self.releases.under_way.get(&key).map(|release| release.link) else { return };
        if self.is_own(link, Verb::Release, lease) {
            self.release_part(key, lease.shard(), vec![lease], lease.ttl());
        }
    }

    /// A part is written, or not.
    pub(super) fn on_released(&mut self, key: ReleaseKey, result: &Result<Outcome, StoreFault>) {
        self.release_done(key, result.is_ok());
    }

    /// A part is over. A release that failed in part is not answered: the edge repeats it.
    pub(super) fn release_done(&mut self, key: ReleaseKey, carried_out: bool) {
        let Some(release) = self.releases.under_way.get_mut(&key) else { return };
        release.failed |= !carried_out;
        release.left -= 1;
        if release.left > 0 {
            return;
        }
        if let Some(release) = self.releases.under_way.remove(&key).filter(|release| !release.failed) {
            self.answer_done(release.link, release.request, Ok(None));
        }
    }
}
