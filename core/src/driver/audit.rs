//! The audit: whoever has a shard's turn compares its leases with its records, a page a second, both ways.
//!
//! No verb of ours leaves one without the other; somebody's hand, a defect or a store that lost half of
//! something does. A finding counts when it still stands some time later, judged anew where it is acted
//! upon: after the longest heartbeat a lease that no record names is removed, so that its edge hears "unknown" and
//! joins again, and a roster that is torn is made anew of its records, in a new epoch; after its ttl a lease that does
//! not exist is overdue, as one that had just been renewed would be (G2).
//! None of it in a hold, nor while the store's clock is not believed.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use presence_model::id::{Roster, UserId};
use presence_model::lease::{LeaseId, Shard};
use presence_model::member::{Due, DueCause};
use presence_model::time::Mono;
use smol_str::{SmolStr, ToSmolStr as _};

use super::commits::{FoundBy, Work};
use super::store_ops::Pending;
use super::{Driver, Effect};
use crate::limits::{AUDIT_EVERY, AUDIT_PORTION, AUDIT_SUSPECTS_MAX};
use crate::store::{AuditPage, AuditPlace, Command, Outcome, Remnant, StoreFault};

/// What an audit can find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// A lease that no record names.
    Stray,
    /// A record whose lease does not exist.
    Remnant,
    /// A roster whose names, count, digest or entry among the rooms is not that of its records.
    Torn,
}

impl Finding {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Stray, Self::Remnant, Self::Torn];

    /// The word of logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stray => "stray_lease",
            Self::Remnant => "record_without_lease",
            Self::Torn => "torn_roster",
        }
    }
}

/// What an audit has to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditNote {
    /// A page was looked at.
    Page {
        /// For how long the lease that ran out first is overdue, over all shards whose turn is ours.
        oldest_overdue: Duration,
    },
    /// Something was found for the first time.
    Found {
        /// Where.
        shard: Shard,
        /// What.
        finding: Finding,
        /// How many.
        count: usize,
        /// The first of them, for people.
        first: SmolStr,
    },
    /// What still stood was mended.
    Mended {
        /// Where.
        shard: Shard,
        /// What.
        finding: Finding,
        /// How many.
        count: usize,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Suspect {
    Stray(LeaseId),
    Remnant(Remnant),
    Torn(Roster),
}

impl fmt::Display for Suspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stray(lease) => write!(f, "lease {lease}"),
            Self::Remnant(Remnant { roster, user, .. }) => write!(f, "{user} in {roster}"),
            Self::Torn(roster) => write!(f, "{roster}"),
        }
    }
}

impl Suspect {
    fn finding(&self) -> Finding {
        match self {
            Self::Stray(_) => Finding::Stray,
            Self::Remnant(_) => Finding::Remnant,
            Self::Torn(_) => Finding::Torn,
        }
    }

    /// How long after it was found first it is looked at again.
    fn waits(&self, heartbeat: Duration) -> Duration {
        match self {
            Self::Stray(_) | Self::Torn(_) => heartbeat,
            // Its edge, if it still speaks for it, hears by then that the lease is unknown.
            Self::Remnant(remnant) => remnant.lease.ttl(),
        }
    }
}

#[derive(Debug, Default)]
struct ShardAudit {
    asking: bool,
    from: AuditPlace,
    /// What was found, and when first.
    suspects: BTreeMap<Suspect, Mono>,
    oldest_overdue: Duration,
}

/// The audits of the shards whose turn is ours.
#[derive(Debug, Default)]
pub(super) struct Audits {
    next: Mono,
    shards: BTreeMap<Shard, ShardAudit>,
}

impl Audits {
    /// When the next pages are due.
    pub(super) fn due(&self) -> Option<Mono> {
        Some(self.next)
    }

    fn oldest_overdue(&self) -> Duration {
        self.shards.values().map(|audit| audit.oldest_overdue).max().unwrap_or_default()
    }
}

impl ShardAudit {
    /// Notes what was not known yet; how many of each, and the first.
    fn suspect(&mut self, page: AuditPage, now: Mono) -> BTreeMap<Finding, (usize, SmolStr)> {
        let AuditPage { strays, remnants, torn, .. } = page;
        let strays = strays.into_iter().map(Suspect::Stray);
        let remnants = remnants.into_iter().map(Suspect::Remnant);
        let mut found = BTreeMap::new();
        for suspect in strays.chain(remnants).chain(torn.into_iter().map(Suspect::Torn)) {
            if self.suspects.contains_key(&suspect) || self.suspects.len() >= AUDIT_SUSPECTS_MAX {
                continue;
            }
            found.entry(suspect.finding()).or_insert_with(|| (0, suspect.to_smolstr())).0 += 1;
            self.suspects.insert(suspect, now);
        }
        found
    }

    /// Takes those that were first found long enough ago.
    fn take_old(&mut self, heartbeat: Duration, now: Mono) -> Vec<Suspect> {
        let old = self.suspects.iter().filter(|(suspect, found)| **found + suspect.waits(heartbeat) <= now);
        let old: Vec<Suspect> = old.map(|(suspect, _)| suspect.clone()).collect();
        for suspect in &old {
            self.suspects.remove(suspect);
        }
        old
    }
}

impl Driver {
    /// Asks for the pages that are due: of each shard whose turn is ours.
    pub(super) fn audit(&mut self) {
        if self.audits.next > self.now {
            return;
        }
        self.audits.next = self.now + AUDIT_EVERY;
        let before = self.audits.oldest_overdue();
        let sweep = &self.sweep;
        self.audits.shards.retain(|shard, _| sweep.is_mine(*shard));
        if self.audits.oldest_overdue() < before {
            self.tell_page();
        }
        let mine: Vec<Shard> = self.sweep.shards().into_iter().filter(|s| self.sweep.is_mine(*s)).collect();
        for shard in mine {
            let audit = self.audits.shards.entry(shard).or_default();
            if !std::mem::replace(&mut audit.asking, true) {
                let (from, portion) = (audit.from.clone(), AUDIT_PORTION);
                self.ask(Command::Audit { shard, from, portion }, Pending::Audit(shard));
            }
        }
    }

    /// A page is read, or could not be.
    pub(super) fn on_audited(&mut self, shard: Shard, result: Result<Outcome, StoreFault>) {
        let now = self.now;
        let Some(audit) = self.audits.shards.get_mut(&shard) else { return };
        audit.asking = false;
        let Ok(Outcome::Audited(page)) = result else { return };
        audit.from = page.next.clone();
        audit.oldest_overdue = page.oldest_overdue;
        let found = audit.suspect(page, now);
        let old = audit.take_old(self.settings.timings.heartbeat_max, now);
        for (finding, (count, first)) in found {
            self.out.push(Effect::Audit(AuditNote::Found { shard, finding, count, first }));
        }
        self.tell_page();
        if self.sweep.is_mine(shard) && !self.sweep.is_distrusted(shard) {
            self.look_again_at(shard, old);
        }
    }

    /// What was found long enough ago is judged anew, where it is acted upon.
    fn look_again_at(&mut self, shard: Shard, suspects: Vec<Suspect>) {
        let mut leases = Vec::new();
        let mut members: BTreeMap<(Roster, UserId), Vec<Due>> = BTreeMap::new();
        for suspect in suspects {
            match suspect {
                Suspect::Stray(lease) => leases.push(lease),
                Suspect::Torn(roster) => self.ask(Command::Distrust { roster }, Pending::Distrust(shard)),
                Suspect::Remnant(Remnant { roster, user, lease }) => {
                    members.entry((roster, user)).or_default().push(Due { lease, cause: DueCause::Missing });
                }
            }
        }
        if !leases.is_empty() {
            self.ask(Command::Disown { shard, leases }, Pending::Disown(shard));
        }
        for ((roster, user), due) in members {
            self.enqueue(roster, user, Work::Expire { shard, due, by: FoundBy::Audit });
        }
    }

    /// Leases that no record named are removed.
    pub(super) fn on_disowned(&mut self, shard: Shard, result: &Result<Outcome, StoreFault>) {
        if let Ok(Outcome::Disowned { removed }) = result {
            self.note_mended(shard, Finding::Stray, *removed);
        }
    }

    /// A roster that was torn is made whole by the next turn.
    pub(super) fn on_distrusted(&mut self, shard: Shard, result: &Result<Outcome, StoreFault>) {
        if let Ok(Outcome::Distrusted { was_torn: true }) = result {
            self.note_mended(shard, Finding::Torn, 1);
        }
    }

    pub(super) fn note_mended(&mut self, shard: Shard, finding: Finding, count: usize) {
        if count > 0 {
            self.out.push(Effect::Audit(AuditNote::Mended { shard, finding, count }));
        }
    }

    fn tell_page(&mut self) {
        let oldest_overdue = self.audits.oldest_overdue();
        self.out.push(Effect::Audit(AuditNote::Page { oldest_overdue }));
    }
}
