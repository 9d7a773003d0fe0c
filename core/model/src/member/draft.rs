//! A change in the making: keeps record, leases, tombstones and transitions of one decision together.

use std::time::Duration;

use crate::change::{Change, Guard, LeaseGrant, Transition, TransitionKind};
use crate::id::SessionId;
use crate::lease::LeaseId;
use crate::reason::{Ending, RemovalReason};
use crate::record::{MemberRead, Record, SessionRecord, Tombstone};
use crate::time::{StoreTime, millis};

/// Starts as "all stays as read"; each step keeps the parts of the change consistent.
pub(super) struct Draft<'a> {
    read: &'a MemberRead,
    since: Option<StoreTime>,
    sessions: Vec<SessionRecord>,
    change: Change,
}

impl<'a> Draft<'a> {
    pub(super) fn new(read: &'a MemberRead) -> Self {
        let record = read.record.as_ref();
        Self {
            read,
            since: record.map(|r| r.since),
            sessions: record.map_or_else(Vec::new, |r| r.sessions.clone()),
            change: Change {
                user: read.user.clone(),
                expect: read.touched,
                expect_tombstones: Vec::new(),
                guards: Vec::new(),
                record: None,
                grants: Vec::new(),
                revokes: Vec::new(),
                token_ends: Vec::new(),
                tombstones: Vec::new(),
                transitions: Vec::new(),
                before: record.map(|r| super::shown(&read.user, r)),
                removal: None,
            },
        }
    }

    pub(super) fn sessions(&self) -> &[SessionRecord] {
        &self.sessions
    }

    /// The member's since: of the record and what a join brings the earlier, else now. Neither is
    /// compared with now: after a step of the clock that would show as a change.
    pub(super) fn since(&mut self, brought: Option<StoreTime>, now: StoreTime) -> StoreTime {
        let since = self.since.into_iter().chain(brought).min().unwrap_or(now);
        self.since = Some(since);
        since
    }

    /// A time for a state that is new now: above that of every other state of the member, so that the
    /// latest is shown whatever the clock did meanwhile.
    pub(super) fn updated(&self, now: StoreTime) -> StoreTime {
        self.sessions.iter().map(|s| s.updated + Duration::from_millis(1)).fold(now, StoreTime::max)
    }

    /// Stores a session, in the place of the one of that id.
    pub(super) fn put(&mut self, session: SessionRecord, kind: TransitionKind) {
        self.note(&session, kind);
        match self.sessions.binary_search_by(|s| s.session.cmp(&session.session)) {
            Ok(at) => self.sessions[at] = session,
            Err(at) => self.sessions.insert(at, session),
        }
    }

    /// Grants the lease of a session that is put, expecting its tombstone as read.
    pub(super) fn grant(&mut self, session: &SessionRecord) {
        let id = session.session.clone();
        self.change.expect_tombstones.push((id.clone(), self.read.tombstones.get(&id).cloned()));
        self.change.grants.push(LeaseGrant {
            lease: session.lease,
            session: id,
            edge: session.edge.incarnation,
            token_ends: session.token.ends,
        });
    }

    /// Ends a session: its lease goes under both names, a tombstone stays.
    pub(super) fn end(&mut self, session: &SessionId, ending: Ending, now: StoreTime) {
        let Ok(at) = self.sessions.binary_search_by(|s| s.session.cmp(session)) else { return };
        let gone = self.sessions.remove(at);
        self.revoke(gone.lease);
        self.note(&gone, TransitionKind::Ended(ending));
        let tombstone = Tombstone {
            generation: gone.generation,
            connection: gone.connection,
            request: gone.request,
            reason: ending.reason,
            ended: now,
            silent_for_ms: millis(ending.silent_for),
        };
        self.bury(gone.session, tombstone);
    }

    /// Leaves a tombstone. If a join that was to come after has one, forbidden before it came, that stays
    /// forbidden, with the reason of the session that ends now (G12): unless that reason would let it in.
    pub(super) fn bury(&mut self, session: SessionId, tombstone: Tombstone) {
        let later = self.read.tombstones.get(&session).filter(|t| {
            let is_own = (t.generation, t.connection) == (tombstone.generation, tombstone.connection);
            t.generation > tombstone.generation || is_own && t.request > tombstone.request
        });
        match later {
            None => self.change.tombstones.push((session, tombstone)),
            Some(_) if tombstone.reason.is_silence_of_the_edge() => {}
            Some(later) => {
                let Tombstone { generation, connection, request, .. } = *later;
                let tombstone = Tombstone { generation, connection, request, ..tombstone };
                self.change.tombstones.push((session, tombstone));
            }
        }
    }

    /// Removes a lease under both names.
    pub(super) fn revoke(&mut self, lease: LeaseId) {
        if !self.change.revokes.contains(&lease.plain_name()) {
            self.change.revokes.push(lease.plain_name());
        }
    }

    pub(super) fn guard(&mut self, guard: Guard) {
        self.change.guards.push(guard);
    }

    /// Replaces the token end of a lease that stays.
    pub(super) fn token_ends(&mut self, lease: LeaseId, ends: StoreTime) {
        self.change.token_ends.push((lease, ends));
    }

    /// Notes what happened to a session.
    pub(super) fn note(&mut self, session: &SessionRecord, kind: TransitionKind) {
        self.change.transitions.push(Transition {
            session: session.session.clone(),
            generation: session.generation,
            connection: session.connection,
            edge: session.edge.incarnation,
            lease: session.lease,
            kind,
            moved: false,
        });
    }

    /// What was noted last is of a user that comes from another region.
    pub(super) fn moves(&mut self) {
        if let Some(transition) = self.change.transitions.last_mut() {
            transition.moved = true;
        }
    }

    /// Whether all stays as read.
    pub(super) fn is_unchanged(&self) -> bool {
        self.change.tombstones.is_empty() && self.change.transitions.is_empty()
    }

    /// The change, if a session is left or nobody was there.
    pub(super) fn finish(mut self) -> Change {
        self.change.record = self
            .since
            .filter(|_| !self.sessions.is_empty())
            .map(|since| Record { since, sessions: self.sessions });
        self.change
    }

    /// The change, with why the member is gone in case no session is left.
    pub(super) fn finish_ended(self, ending: Ending) -> Change {
        let mut change = self.finish();
        if change.record.is_none() && change.before.is_some() {
            change.removal = Some(ending);
        }
        change
    }
}

/// The ending of a session that did not run out, judged by its lease as read.
///
/// The silence is at most that long: a lease that was shortened may have been heard later.
pub(super) fn ending(
    read: &MemberRead,
    session: &SessionRecord,
    reason: RemovalReason,
    now: StoreTime,
) -> Ending {
    let heard = match read.leases.get(&session.lease) {
        Some(state) => super::last_heard(session.lease, state.deadline(), None),
        None => now.before(session.lease.ttl()),
    };
    Ending { reason, silent_for: now.since(heard.max(session.joined)) }
}
