//! Evictions: an operator puts a user out of a room, in every region served here.
//!
//! The commit ends the sessions and leaves tombstones that no re-join of theirs passes. Should the store
//! lose both, the sessions are also revoked for twice their ttl: by then no edge brings them back.

use std::collections::{BTreeMap, BTreeSet};

use presence_model::change::{Change, Transition, TransitionKind};
use presence_model::id::{RoomId, Roster, SessionId, UserId};
use presence_model::limits::EVICTED_TTLS;
use presence_model::reason::RemovalReason;
use presence_model::revocation::Revocation;
use presence_model::time::StoreTime;

use super::commits::Work;
use super::{Answer, Driver, Effect, QueryKey, QueryRefusal};
use crate::limits::EVICTIONS_MAX;

#[derive(Debug)]
struct Eviction {
    /// Regions in which it is not decided yet.
    left: usize,
    sessions: usize,
    failed: bool,
}

/// Evictions under way.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    under_way: BTreeMap<QueryKey, Eviction>,
}

/// The sessions that a decided eviction ends or keeps from coming back.
pub(super) fn evicted_sessions(change: &Change) -> impl Iterator<Item = SessionId> {
    let ended = change.transitions.iter().map(|transition| &transition.session);
    ended.chain(change.tombstones.iter().map(|(session, _)| session)).cloned()
}

impl Driver {
    /// An operator puts a user out.
    pub(super) fn on_evict(&mut self, key: QueryKey, room: &RoomId, user: &UserId) {
        if self.evictions.under_way.len() >= EVICTIONS_MAX {
            return self.refuse_eviction(key);
        }
        let regions = self.regions.clone();
        let eviction = Eviction { left: regions.len(), sessions: 0, failed: false };
        self.evictions.under_way.insert(key, eviction);
        for region in regions {
            let roster = Roster { region, room: room.clone() };
            self.enqueue(roster, user.clone(), Work::Evict { key, sessions: BTreeSet::new() });
        }
    }

    /// It is carried out in one region: these sessions of the user are gone.
    pub(super) fn evicted(
        &mut self,
        key: QueryKey,
        roster: &Roster,
        (user, sessions): (&UserId, BTreeSet<SessionId>),
    ) {
        let count = sessions.len();
        if let Some(now) = self.clock.estimate(self.shard(roster), self.now) {
            let until = now + self.timings_of(&roster.room).lease_ttl * EVICTED_TTLS;
            let revocation = |session| {
                let what = Revocation::Session { roster: roster.clone(), user: user.clone(), session };
                (what, until)
            };
            self.revoke(sessions.into_iter().map(revocation).collect());
        }
        self.eviction_part(key, Some(count));
    }

    /// It could not be decided in one region.
    pub(super) fn eviction_failed(&mut self, key: QueryKey) {
        self.eviction_part(key, None);
    }

    fn eviction_part(&mut self, key: QueryKey, sessions: Option<usize>) {
        let Some(eviction) = self.evictions.under_way.get_mut(&key) else { return };
        eviction.left -= 1;
        eviction.sessions += sessions.unwrap_or(0);
        eviction.failed |= sessions.is_none();
        if eviction.left > 0 {
            return;
        }
        let Some(eviction) = self.evictions.under_way.remove(&key) else { return };
        if eviction.failed {
            self.refuse_eviction(key);
        } else {
            let answer = Answer::Evicted { sessions: eviction.sessions };
            self.out.push(Effect::Answer(key, Ok(answer)));
        }
    }

    fn refuse_eviction(&mut self, key: QueryKey) {
        let retry_after = self.retry_after();
        self.out.push(Effect::Answer(key, Err(QueryRefusal::Unavailable { retry_after })));
    }

    /// The tail tells of an eviction, of whichever core: every core refuses the session from here on.
    pub(super) fn note_evicted(
        &mut self,
        roster: &Roster,
        user: &UserId,
        transition: &Transition,
        at: StoreTime,
    ) {
        let TransitionKind::Ended(ending) = transition.kind else { return };
        if ending.reason == RemovalReason::Evicted {
            let (user, session) = (user.clone(), transition.session.clone());
            let what = Revocation::Session { roster: roster.clone(), user, session };
            self.learn(vec![(what, at + transition.lease.ttl() * EVICTED_TTLS)]);
        }
    }
}
