//! A tiny store of one roster: checks expectations and guards, applies writes, knows no presence.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_model::change::{Change, Committed, Guard, Visible};
use presence_model::digest::Digest;
use presence_model::id::{Incarnation, RegionId, RoomId, Roster, SessionId, UserId};
use presence_model::lease::LeaseId;
use presence_model::member::{self, Due, DueCause, Granted, Join, Shortened, ShortenedBy, shown};
use presence_model::position::{Epoch, Position, Revision};
use presence_model::profile::Member;
use presence_model::reason::ReleaseReason;
use presence_model::record::{LeaseState, MemberRead, Record, Tombstone};
use presence_model::refusal::Refusal;
use presence_model::time::StoreTime;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Changed,
    Guard,
    LeaseExists,
}

#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub(crate) user: UserId,
    pub(crate) state: LeaseState,
    pub(crate) note: Option<Shortened>,
    pub(crate) token_ends: StoreTime,
    pub(crate) edge: Incarnation,
}

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) now: StoreTime,
    pub(crate) held: bool,
    pub(crate) revision: Revision,
    pub(crate) records: BTreeMap<UserId, (Revision, Record)>,
    pub(crate) tombstones: BTreeMap<(UserId, SessionId), Tombstone>,
    pub(crate) leases: BTreeMap<LeaseId, Lease>,
    pub(crate) digest: Digest,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self {
            now: StoreTime(1_000_000),
            held: false,
            revision: Revision(0),
            records: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            leases: BTreeMap::new(),
            digest: Digest::default(),
        }
    }

    /// Joins and commits.
    pub(crate) fn join(&mut self, user: &UserId, join: &Join) -> Result<Granted, Refusal> {
        let granted = member::join(&self.read(user), join, self.now)?;
        if let Some(change) = &granted.change {
            self.commit(change).expect("nothing came in between");
        }
        Ok(granted)
    }

    /// Ends what is due, and tells what shows of it.
    pub(crate) fn sweep(&mut self, user: &UserId) -> Option<Visible> {
        let change = member::expire(&self.read(user), &self.due(user), self.now)?;
        self.commit(&change).expect("nothing came in between");
        change.visible()
    }

    pub(crate) fn pass(&mut self, span: Duration) {
        self.now = self.now + span;
    }

    pub(crate) fn shown(&self) -> BTreeMap<UserId, Member> {
        self.records.iter().map(|(user, (_, record))| (user.clone(), shown(user, record))).collect()
    }

    pub(crate) fn read(&self, user: &UserId) -> MemberRead {
        let (touched, record) = self.records.get(user).cloned().unzip();
        let tombstones = self.tombstones.iter().filter(|((of, _), _)| of == user);
        let sessions = record.iter().flat_map(|r: &Record| &r.sessions);
        MemberRead {
            user: user.clone(),
            touched: touched.unwrap_or(Revision(0)),
            tombstones: tombstones.map(|((_, session), t)| (session.clone(), t.clone())).collect(),
            leases: sessions
                .filter_map(|s| self.leases.get(&s.lease).map(|lease| (s.lease, lease.state)))
                .collect(),
            record,
        }
    }

    pub(crate) fn commit(&mut self, change: &Change) -> Result<Committed, Refused> {
        let read = self.read(&change.user);
        let as_read =
            |(session, t): &(SessionId, Option<Tombstone>)| read.tombstones.get(session) == t.as_ref();
        if read.touched != change.expect || !change.expect_tombstones.iter().all(as_read) {
            return Err(Refused::Changed);
        }
        if !change.guards.iter().all(|guard| self.holds(*guard)) {
            return Err(Refused::Guard);
        }
        if change.grants.iter().any(|g| self.leases.contains_key(&g.lease)) {
            return Err(Refused::LeaseExists);
        }
        self.revision = self.revision.next();
        self.write(change);
        let epoch = Epoch { minted_ms: 1, random: 1 };
        let position = Position { epoch, revision: self.revision };
        let roster =
            Roster { region: RegionId::new("here").expect("short"), room: RoomId::new("r").expect("short") };
        let members = self.records.len() as u64 + u64::from(change.before.is_some());
        let members = members - u64::from(change.record.is_some());
        let committed = Committed::new(roster, position, (self.digest, members), [change], self.now);
        self.digest = committed.delta.digest;
        Ok(committed)
    }

    fn write(&mut self, change: &Change) {
        for lease in &change.revokes {
            self.leases.remove(lease);
        }
        for grant in &change.grants {
            let deadline = self.now + grant.lease.ttl();
            let lease = Lease {
                user: change.user.clone(),
                state: LeaseState::Live { deadline },
                note: None,
                token_ends: grant.token_ends,
                edge: grant.edge,
            };
            self.leases.insert(grant.lease, lease);
        }
        for (lease, ends) in &change.token_ends {
            if let Some(lease) = self.leases.get_mut(lease) {
                lease.token_ends = *ends;
            }
        }
        for (session, tombstone) in &change.tombstones {
            self.tombstones.insert((change.user.clone(), session.clone()), tombstone.clone());
        }
        match &change.record {
            Some(record) => self.records.insert(change.user.clone(), (self.revision, record.clone())),
            None => self.records.remove(&change.user),
        };
    }

    fn holds(&self, guard: Guard) -> bool {
        match guard {
            Guard::Overdue(lease) => {
                !self.held && self.leases.get(&lease).is_none_or(|l| l.state.deadline() <= self.now)
            }
            Guard::TokenEnded(lease) => self.leases.get(&lease).is_none_or(|l| l.token_ends <= self.now),
            Guard::LeaseAbsent(lease) => !self.held && !self.leases.contains_key(&lease),
        }
    }

    /// Extends the deadline. A note stays, as it does in a store that only raises a number.
    ///
    /// Whether the store knew the lease under its plain name.
    pub(crate) fn renew(&mut self, lease: LeaseId) -> bool {
        let now = self.now;
        let Some(Lease { state: LeaseState::Live { deadline }, .. }) = self.leases.get_mut(&lease) else {
            return false;
        };
        *deadline = (now + lease.ttl()).max(*deadline);
        true
    }

    pub(crate) fn release(&mut self, lease: LeaseId, grace: Duration) {
        let until = self.now + grace;
        let Some(lease) = self.leases.get_mut(&lease) else { return };
        let LeaseState::Live { deadline } = lease.state else { return };
        let shortened = lease.note.filter(|note| note.deadline == deadline);
        let replaced = shortened.map_or(deadline, |note| note.replaced);
        let deadline = replaced.min(until);
        lease.state = LeaseState::Grace { deadline };
        let cause = ShortenedBy::Release(ReleaseReason::TransportLost);
        lease.note = Some(Shortened { cause, replaced, deadline });
    }

    pub(crate) fn lose(&mut self, edge: Incarnation, grace: Duration) {
        let until = self.now + grace;
        for lease in self.leases.values_mut().filter(|lease| lease.edge == edge) {
            let LeaseState::Live { deadline } = lease.state else { continue };
            if deadline > until {
                lease.state = LeaseState::Live { deadline: until };
                let cause = ShortenedBy::EdgeLost;
                lease.note = Some(Shortened { cause, replaced: deadline, deadline: until });
            }
        }
    }

    /// What a sweep of this user finds.
    pub(crate) fn due(&self, user: &UserId) -> Vec<Due> {
        let mut due = Vec::new();
        for (lease, found) in self.leases.iter().filter(|(_, found)| found.user == *user) {
            let deadline = found.state.deadline();
            let name = match found.state {
                LeaseState::Live { .. } => *lease,
                LeaseState::Grace { .. } => lease.grace_name(),
            };
            if deadline <= self.now && !self.held {
                let cause = DueCause::Deadline { deadline, shortened: found.note };
                due.push(Due { lease: name, cause });
            }
            if found.token_ends <= self.now {
                due.push(Due { lease: name, cause: DueCause::TokenEnd });
            }
        }
        due
    }

    /// Sessions of the user whose lease is nowhere, as the auditor reports them.
    pub(crate) fn missing(&self, user: &UserId) -> Vec<Due> {
        let sessions = self.records.get(user).into_iter().flat_map(|(_, record)| &record.sessions);
        sessions
            .filter(|s| !self.leases.contains_key(&s.lease))
            .map(|s| Due { lease: s.lease, cause: DueCause::Missing })
            .collect()
    }
}
