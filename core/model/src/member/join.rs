//! Who is let in, and over whom.

use std::cmp::Ordering;

use crate::change::TransitionKind;
use crate::id::{ConnectionId, Generation};
use crate::limits::{EVICTED_TTLS, SESSIONS_PER_MEMBER_MAX, SINCE_AHEAD_MS_MAX};
use crate::link::RequestId;
use crate::reason::RemovalReason;
use crate::record::{LeaseState, MemberRead, SessionRecord, Tombstone};
use crate::refusal::Refusal;
use crate::time::StoreTime;

use super::draft::{Draft, ending};
use super::{Granted, Join};

/// Decides a join (G6, G7, G8).
///
/// Granted if the stored generation is lower, or nothing is stored and no tombstone is as high; the
/// older lease goes under both names (transition: superseded). Of an equal generation, only the same
/// connection is let in:
///
/// * repeating its join (the same request), it is answered as before as long as its lease exists under
///   either name. A lease in grace counts: its own edge gave that connection up, so the repetition is a
///   late one, and a new lease would keep a ghost for a whole ttl;
/// * whose lease does not exist, or which asks by a later request, it gets a new one in the same record;
///   by an earlier request it is refused, since its edge has given that one up;
/// * over its own tombstone, it is let in if it ended by the silence of its edge (`lease_expired`,
///   `edge_lost`), or if it asks by a later request than what ended or was given up.
///
/// A session that was evicted is let in by no attempt for [`EVICTED_TTLS`] ttls.
///
/// Without a generation a join is the attempt of its connection that is known, else the highest known
/// plus one; above [`Generation::MAX`] there is none, and the session is refused like a stale one: its
/// client takes another id. Above the session limit a session without a lease or the one whose grace ends first gives
/// way; its tombstone says how it would have ended (`lease_expired`, `connection_lost`). Of a re-join, the
/// record and another region, the earliest since wins; one that lies further ahead than
/// [`SINCE_AHEAD_MS_MAX`] is no member's and is not believed.
///
/// # Errors
/// [`Refusal::StaleGeneration`], for re-joins and after an eviction [`Refusal::HasEnded`] instead;
/// [`Refusal::TooManySessions`] if all are live; [`Refusal::TokenEnded`].
pub fn join(read: &MemberRead, join: &Join, now: StoreTime) -> Result<Granted, Refusal> {
    if join.token.ends <= now {
        return Err(Refusal::TokenEnded);
    }
    let known = Known {
        stored: read.record.as_ref().and_then(|r| r.session(&join.session)),
        ended: read.tombstones.get(&join.session),
    };
    let generation = known.attempt(join);
    known.admit(join, generation)?;
    known.stays_out(join, now)?;

    let mut draft = Draft::new(read);
    if let Some(stored) = known.stored {
        let is_repetition = stored.generation == generation && stored.request == join.request;
        if is_repetition && read.leases.contains_key(&stored.lease) {
            let since = draft.since(None, now);
            return Ok(Granted { lease: stored.lease, generation, since, resumed: true, change: None });
        }
        take_over(&mut draft, read, stored, join, now);
    } else if draft.sessions().len() >= SESSIONS_PER_MEMBER_MAX {
        give_way(&mut draft, read, now)?;
    }

    let elsewhere = join.moved.and_then(|moved| moved.since);
    let brought = join.rejoin.into_iter().chain(elsewhere).min();
    let believed = brought.filter(|since| since.0 <= now.0.saturating_add(SINCE_AHEAD_MS_MAX));
    let since = draft.since(believed, now);
    let session = SessionRecord {
        session: join.session.clone(),
        lease: join.lease.plain_name(),
        generation,
        connection: join.connection,
        request: join.request,
        edge: join.edge.clone(),
        profile: join.profile.clone(),
        // A reconnect that brings the same state back is not an update: it would show (G8).
        updated: match known.stored {
            Some(stored) if stored.profile.state == join.profile.state => stored.updated,
            Some(_) | None => draft.updated(now),
        },
        joined: now,
        client: join.client.clone(),
        token: join.token.clone(),
    };
    let lease = session.lease;
    draft.grant(&session);
    draft.put(session, TransitionKind::Joined);
    if join.moved.is_some() {
        draft.moves();
    }
    let resumed = known.stored.is_some();
    Ok(Granted { lease, generation, since, resumed, change: Some(Box::new(draft.finish())) })
}

/// What is known of the session that wants in.
struct Known<'a> {
    stored: Option<&'a SessionRecord>,
    ended: Option<&'a Tombstone>,
}

impl Known<'_> {
    fn highest(&self) -> Generation {
        let stored = self.stored.map(|s| s.generation);
        let ended = self.ended.map(|t| t.generation);
        stored.max(ended).unwrap_or(Generation(0))
    }

    /// Which attempt a join is. A join without a number must not count as a newer attempt when it is
    /// decided again, nor after its connection was given up.
    fn attempt(&self, join: &Join) -> Generation {
        if let Some(given) = join.generation {
            return given;
        }
        if let Some(stored) = self.stored
            && stored.connection == join.connection
        {
            return stored.generation;
        }
        match self.ended {
            Some(ended)
                if ended.connection == join.connection
                    && (ends_the_connection(ended.reason) || join.request <= ended.request) =>
            {
                ended.generation
            }
            // One too high is never admitted.
            Some(_) | None => Generation(self.highest().0.saturating_add(1)),
        }
    }

    fn admit(&self, join: &Join, generation: Generation) -> Result<(), Refusal> {
        let refuse = |reason| match join.rejoin {
            Some(_) => Refusal::HasEnded { reason },
            None => Refusal::StaleGeneration { given: generation, stored: self.highest() },
        };
        if generation > Generation::MAX {
            return Err(match join.rejoin {
                Some(_) => Refusal::HasEnded { reason: RemovalReason::Superseded },
                None => Refusal::StaleGeneration { given: Generation::MAX, stored: self.highest() },
            });
        }
        if let Some(stored) = self.stored {
            if stored.generation == generation && stored.connection == join.connection {
                return self.admit_beside(stored, join).map_err(refuse);
            }
            if stored.generation >= generation {
                return Err(refuse(RemovalReason::Superseded));
            }
        }
        match self.ended {
            Some(ended) if ended.generation > generation => Err(refuse(passed_on(ended.reason))),
            Some(ended) if ended.generation == generation => {
                let lets_in = lets_follow(ended, join.connection, join.request, join.rejoin.is_some());
                if lets_in { Ok(()) } else { Err(refuse(ended.reason)) }
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Another join of the connection that is in: not one from before, nor one that was given up since.
    fn admit_beside(&self, stored: &SessionRecord, join: &Join) -> Result<(), RemovalReason> {
        if join.request < stored.request {
            return Err(RemovalReason::Superseded);
        }
        let given_up = self.ended.filter(|ended| bars_beside(ended, stored, join.request));
        given_up.map_or(Ok(()), |ended| Err(ended.reason))
    }

    /// Who was put out a moment ago comes back by no attempt, also over a core that has not heard of it yet.
    fn stays_out(&self, join: &Join, now: StoreTime) -> Result<(), Refusal> {
        let put_out = self.ended.filter(|ended| ended.reason == RemovalReason::Evicted);
        match put_out.filter(|_| self.stored.is_none()) {
            Some(ended) if now < ended.ended + join.lease.ttl() * EVICTED_TTLS => {
                Err(Refusal::HasEnded { reason: RemovalReason::Evicted })
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Whether a tombstone lets in a join of its own generation: one of its own connection, if it ended by the silence
/// of its edge, or if that join came after what ended; a re-join brings back only what silence ended.
pub(super) fn lets_follow(
    ended: &Tombstone,
    connection: ConnectionId,
    request: RequestId,
    is_rejoin: bool,
) -> bool {
    let silence = ended.reason.is_silence_of_the_edge();
    ended.connection == connection
        && match request.cmp(&ended.request) {
            Ordering::Less => false,
            Ordering::Equal => silence,
            Ordering::Greater => silence || (!is_rejoin && !bars_all(ended.reason)),
        }
}

/// Whether a tombstone beside a session says that this join of the session's connection was given up. One that ended
/// by silence is passed already.
pub(super) fn bars_beside(ended: &Tombstone, stored: &SessionRecord, request: RequestId) -> bool {
    ended.connection == stored.connection
        && ended.generation >= stored.generation
        && ended.request >= request
        && !ended.reason.is_silence_of_the_edge()
}

/// Whether nobody can join over the connection any more, or only as the attempt that ended. After the
/// other endings the same connection may start a new attempt: it left a room and enters it again.
pub(super) fn ends_the_connection(reason: RemovalReason) -> bool {
    match reason {
        RemovalReason::ConnectionLost | RemovalReason::LeaseExpired | RemovalReason::EdgeLost => true,
        RemovalReason::Left
        | RemovalReason::Superseded
        | RemovalReason::Evicted
        | RemovalReason::TokenExpired
        | RemovalReason::TokenRevoked
        | RemovalReason::RegionLost => false,
    }
}

/// What an older attempt is told about the ending of a newer one: that there was a newer one, but what
/// bars the session from coming back bars all its attempts.
fn passed_on(reason: RemovalReason) -> RemovalReason {
    if bars_all(reason) { reason } else { RemovalReason::Superseded }
}

/// Whether what ended a session bars all its attempts.
fn bars_all(reason: RemovalReason) -> bool {
    match reason {
        RemovalReason::Evicted | RemovalReason::TokenRevoked => true,
        RemovalReason::Left
        | RemovalReason::ConnectionLost
        | RemovalReason::LeaseExpired
        | RemovalReason::EdgeLost
        | RemovalReason::Superseded
        | RemovalReason::TokenExpired
        | RemovalReason::RegionLost => false,
    }
}

/// The older lease of the session goes. Nobody is told if it was of the same connection, which lives on
/// in the newer attempt and must not be closed as superseded.
fn take_over(draft: &mut Draft<'_>, read: &MemberRead, stored: &SessionRecord, join: &Join, now: StoreTime) {
    if stored.lease != join.lease.plain_name() {
        draft.revoke(stored.lease);
    }
    if stored.connection != join.connection {
        let ending = ending(read, stored, RemovalReason::Superseded, now);
        draft.note(stored, TransitionKind::Ended(ending));
    }
}

/// Makes room for one more session.
fn give_way(draft: &mut Draft<'_>, read: &MemberRead, now: StoreTime) -> Result<(), Refusal> {
    let candidates = draft.sessions().iter().filter_map(|s| match read.leases.get(&s.lease) {
        None => Some((StoreTime(0), RemovalReason::LeaseExpired, s)),
        Some(LeaseState::Grace { deadline }) => Some((*deadline, RemovalReason::ConnectionLost, s)),
        Some(LeaseState::Live { .. }) => None,
    });
    let (_, reason, session) =
        candidates.min_by_key(|(deadline, ..)| *deadline).ok_or(Refusal::TooManySessions)?;
    let (id, ending) = (session.session.clone(), ending(read, session, reason, now));
    draft.end(&id, ending, now);
    Ok(())
}
