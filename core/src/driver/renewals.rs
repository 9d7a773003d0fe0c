//! Renewal batches of all links, merged into one command a shard.
//!
//! No session state: a batch is lease ids, and a lease id says its shard and ttl, and whether it is the edge's own. A
//! batch is acknowledged when all its shards are written. While the store is away batches wait, bounded; one older
//! than the largest heartbeat is dropped unacknowledged: its edge has long sent a newer one.

use std::collections::{BTreeMap, BTreeSet};

use presence_model::lease::{LeaseId, Shard};
use presence_model::link::{BatchId, LinkDown};
use presence_model::time::{Mono, StoreTime};

use super::store_ops::Pending;
use super::{Driver, LinkKey, Verb};
use crate::limits::{RENEWALS_FULL, RENEWALS_WAITING_MAX, STORE_RETRY};
use crate::store::{Command, Outcome, StoreFault};

/// What one batch has for one shard.
#[derive(Debug)]
struct Portion {
    link: LinkKey,
    batch: BatchId,
    received: Mono,
    leases: Vec<LeaseId>,
}

#[derive(Debug, Default)]
struct ShardRenewals {
    waiting: Vec<Portion>,
    count: usize,
    due: Option<Mono>,
    writing: Option<Vec<Portion>>,
    /// The last command failed: what waits is older than it should be.
    behind: bool,
}

#[derive(Debug)]
struct Batch {
    shards_left: usize,
    unknown: Vec<LeaseId>,
}

/// Renewals that wait or are being written.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    shards: BTreeMap<Shard, ShardRenewals>,
    batches: BTreeMap<(LinkKey, BatchId), Batch>,
}

impl Renewals {
    /// When a command is due.
    pub(super) fn due(&self) -> Option<Mono> {
        self.shards.values().filter(|shard| shard.writing.is_none()).filter_map(|shard| shard.due).min()
    }

    /// Whether renewals of a shard wait longer than they should: a sweep must not overtake them.
    pub(super) fn is_behind(&self, shard: Shard) -> bool {
        self.shards.get(&shard).is_some_and(|s| s.behind && (s.writing.is_some() || !s.waiting.is_empty()))
    }

    /// A link is gone: its batches are still written, but nobody waits for the acknowledgement.
    pub(super) fn forget_link(&mut self, link: LinkKey) {
        let whole = (link, BatchId(0))..=(link, BatchId(u64::MAX));
        let batches: Vec<_> = self.batches.range(whole).map(|(key, _)| *key).collect();
        for key in batches {
            self.batches.remove(&key);
        }
    }

    /// A release takes its leases out of the batches of its link that still wait.
    pub(super) fn take_out(&mut self, link: LinkKey, leases: &[LeaseId]) {
        let released: BTreeSet<LeaseId> = leases.iter().copied().collect();
        let shards: BTreeSet<Shard> = leases.iter().map(|lease| lease.shard()).collect();
        for shard in shards {
            let Some(state) = self.shards.get_mut(&shard) else { continue };
            for portion in state.waiting.iter_mut().filter(|portion| portion.link == link) {
                portion.leases.retain(|lease| !released.contains(lease));
            }
            state.count = state.waiting.iter().map(|portion| portion.leases.len()).sum();
        }
    }

    fn push(&mut self, shard: Shard, portion: Portion, due: Mono) {
        let state = self.shards.entry(shard).or_default();
        state.count += portion.leases.len();
        let due = if state.count >= RENEWALS_FULL { portion.received } else { due };
        state.due = Some(state.due.map_or(due, |known| if state.behind { known } else { known.min(due) }));
        state.waiting.push(portion);
        while state.count > RENEWALS_WAITING_MAX && state.waiting.len() > 1 {
            let dropped = state.waiting.remove(0);
            state.count -= dropped.leases.len();
            self.batches.remove(&(dropped.link, dropped.batch));
        }
    }

    /// Takes what waits for a shard and is young enough.
    fn take(&mut self, shard: Shard, born_after: Mono) -> Option<&[Portion]> {
        let state = self.shards.get_mut(&shard)?;
        state.due = None;
        state.count = 0;
        let waiting = std::mem::take(&mut state.waiting);
        let (young, old): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|p| p.received >= born_after);
        for portion in old {
            self.batches.remove(&(portion.link, portion.batch));
        }
        if young.is_empty() {
            state.behind = false;
            return None;
        }
        state.writing = Some(young);
        state.writing.as_deref()
    }
}

impl Driver {
    /// An edge heard sessions.
    pub(super) fn on_renew(&mut self, link: LinkKey, batch: BatchId, leases: Vec<LeaseId>) {
        let key = (link, batch);
        if self.renewals.batches.contains_key(&key) {
            return;
        }
        let mut by_shard: BTreeMap<Shard, Vec<LeaseId>> = BTreeMap::new();
        let mut unknown = Vec::new();
        for lease in self.own_leases(link, Verb::Renew, leases) {
            if self.has_shard(lease.shard()) {
                by_shard.entry(lease.shard()).or_default().push(lease.plain_name());
            } else {
                unknown.push(lease);
            }
        }
        if by_shard.is_empty() {
            return self.tell(link, LinkDown::Renewed { batch, unknown });
        }
        self.renewals.batches.insert(key, Batch { shards_left: by_shard.len(), unknown });
        let due = self.now + self.settings.timings.renew_merge;
        for (shard, leases) in by_shard {
            self.renewals.push(shard, Portion { link, batch, received: self.now, leases }, due);
        }
    }

    /// Writes what is due, one command a shard at a time.
    pub(super) fn write_renewals(&mut self) {
        let due: Vec<Shard> = self
            .renewals
            .shards
            .iter()
            .filter(|(_, s)| s.writing.is_none() && s.due.is_some_and(|due| due <= self.now))
            .map(|(shard, _)| *shard)
            .collect();
        for shard in due {
            self.write_shard(shard);
        }
    }

    fn write_shard(&mut self, shard: Shard) {
        let Some(store_now) = self.clock.estimate(shard, self.now) else {
            if let Some(state) = self.renewals.shards.get_mut(&shard) {
                state.due = Some(self.now + STORE_RETRY);
            }
            return;
        };
        let now = self.now;
        let born_after = now - self.settings.timings.heartbeat_max;
        let Some(portions) = self.renewals.take(shard, born_after) else { return };
        let mut deadlines: BTreeMap<LeaseId, StoreTime> = BTreeMap::new();
        for portion in portions {
            let received = store_now.before(now.since(portion.received));
            for lease in &portion.leases {
                let deadline = received + lease.ttl();
                let newest = deadlines.entry(*lease).or_insert(deadline);
                *newest = deadline.max(*newest);
            }
        }
        let leases = deadlines.into_iter().collect();
        self.ask(Command::Renew { shard, leases }, Pending::Renew(shard));
    }

    /// A shard's renewals are written, or wait on.
    pub(super) fn on_renewed(&mut self, shard: Shard, result: Result<Outcome, StoreFault>) {
        let retry = self.now + STORE_RETRY;
        let merge = self.now + self.settings.timings.renew_merge;
        let Some(state) = self.renewals.shards.get_mut(&shard) else { return };
        let mut written = state.writing.take().unwrap_or_default();
        let Ok(Outcome::Renewed { unknown, .. }) = result else {
            state.behind = true;
            state.due = Some(retry);
            written.append(&mut state.waiting);
            state.count = written.iter().map(|portion| portion.leases.len()).sum();
            state.waiting = written;
            return;
        };
        state.behind = false;
        state.due = (!state.waiting.is_empty()).then(|| state.due.map_or(merge, |due| due.min(merge)));
        let unknown: BTreeSet<LeaseId> = unknown.into_iter().collect();
        for portion in written {
            self.acknowledge(portion, &unknown);
        }
    }

    fn acknowledge(&mut self, portion: Portion, unknown: &BTreeSet<LeaseId>) {
        let key = (portion.link, portion.batch);
        let Some(batch) = self.renewals.batches.get_mut(&key) else { return };
        batch.unknown.extend(portion.leases.into_iter().filter(|lease| unknown.contains(lease)));
        batch.shards_left -= 1;
        if batch.shards_left == 0 {
            let unknown = self.renewals.batches.remove(&key).map(|batch| batch.unknown).unwrap_or_default();
            self.tell(portion.link, LinkDown::Renewed { batch: portion.batch, unknown });
        }
    }
}
