//! Endings that nobody decided: a clock ran out.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::change::{Change, Guard};
use crate::id::SessionId;
use crate::reason::{Ending, RemovalReason};
use crate::record::{LeaseState, MemberRead, SessionRecord};
use crate::time::StoreTime;

use super::draft::{Draft, ending};
use super::shown::counts;
use super::{Due, DueCause, Shortened, ShortenedBy, last_heard};

/// Ends what is due, as one change. `None`: nobody ends; the record does not name these leases any more
/// (those may be discarded), or they were heard meanwhile (those must not be touched).
///
/// * What the read already shows as renewed, or given a fresh token, is left out; what is renewed
///   after the read fails the guard that the change carries for each lease, so a renewal that slips in
///   between wins (G2).
/// * A token end outranks silence: it counts also in a hold.
/// * The member goes only if no session is left. Its ending is that of the session that ran out last,
///   of several the one heard last.
#[must_use]
pub fn expire(read: &MemberRead, due: &[Due], now: StoreTime) -> Option<Change> {
    let mut draft = Draft::new(read);
    let mut ends: BTreeMap<&SessionId, End> = BTreeMap::new();
    for due in due {
        let Some(session) = read.record.as_ref().and_then(|r| r.session_of(due.lease)) else { continue };
        let Some(end) = judge(read, session, due, now) else { continue };
        let slot = ends.entry(&session.session).or_insert(end);
        if end.ending.reason == RemovalReason::TokenExpired {
            *slot = end;
        }
    }
    for (session, end) in &ends {
        draft.guard(end.guard);
        draft.end(session, end.ending, now);
    }
    let last = ends.values().max_by_key(|end| (end.at, Reverse(end.ending.silent_for)))?;
    Some(draft.finish_ended(last.ending))
}

/// How one session ends.
#[derive(Debug, Clone, Copy)]
struct End {
    /// When its clock ran out; zero if nobody knows.
    at: StoreTime,
    guard: Guard,
    ending: Ending,
}

/// `None`: it was heard, or got a fresh token, after it was found due.
fn judge(read: &MemberRead, session: &SessionRecord, due: &Due, now: StoreTime) -> Option<End> {
    let lease = session.lease;
    let token_end = End {
        at: session.token.ends,
        guard: Guard::TokenEnded(lease),
        ending: ending(read, session, RemovalReason::TokenExpired, now),
    };
    match due.cause {
        DueCause::TokenEnd => (session.token.ends <= now).then_some(token_end),
        DueCause::Missing => (!read.leases.contains_key(&lease)).then(|| End {
            at: StoreTime(0),
            guard: Guard::LeaseAbsent(lease),
            ending: ending(read, session, RemovalReason::LeaseExpired, now),
        }),
        DueCause::Deadline { deadline, shortened } => {
            let state = read.leases.get(&lease).copied();
            let deadline = state.map_or(deadline, LeaseState::deadline);
            if deadline > now {
                return None;
            }
            let released = due.lease.is_grace() || matches!(state, Some(LeaseState::Grace { .. }));
            let reason = reason(deadline, shortened, released);
            let heard = last_heard(lease, deadline, shortened).max(session.joined);
            let ending = Ending { reason, silent_for: now.since(heard) };
            Some(End { at: deadline, guard: Guard::Overdue(lease), ending })
        }
    }
}

/// Why a lease that ran out had not been renewed.
fn reason(deadline: StoreTime, shortened: Option<Shortened>, released: bool) -> RemovalReason {
    match shortened.filter(|note| counts(note, deadline)).map(|note| note.cause) {
        _ if released => RemovalReason::ConnectionLost,
        Some(ShortenedBy::Release(_)) => RemovalReason::ConnectionLost,
        Some(ShortenedBy::EdgeLost) => RemovalReason::EdgeLost,
        None => RemovalReason::LeaseExpired,
    }
}
