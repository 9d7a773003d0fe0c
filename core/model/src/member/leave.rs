//! Endings that somebody decided: a goodbye, an eviction, a revocation.

use std::time::Duration;

use crate::change::Change;
use crate::id::SessionId;
use crate::lease::LeaseId;
use crate::reason::{Ending, LeaveReason, RemovalReason};
use crate::record::{MemberRead, SessionRecord, TokenRef, Tombstone};
use crate::refusal::Refusal;
use crate::time::StoreTime;

use super::draft::{Draft, ending};

/// Decides an end at the word of the edge: a goodbye, or a token that it has heard to be revoked. It removes at once,
/// also a session in grace: that only brings its end forward.
///
/// # Errors
/// [`Refusal::NotPresent`], [`Refusal::NotCurrent`]: also what a goodbye gets that is repeated after
/// its first outcome was lost.
pub fn leave(
    read: &MemberRead,
    lease: LeaseId,
    reason: LeaveReason,
    now: StoreTime,
) -> Result<Change, Refusal> {
    let record = read.record.as_ref().ok_or(Refusal::NotPresent)?;
    let session = record.session_of(lease).ok_or(Refusal::NotCurrent)?;
    let ending = match reason {
        LeaveReason::Goodbye => Ending { reason: RemovalReason::Left, silent_for: Duration::ZERO },
        LeaveReason::TokenRevoked => ending(read, session, RemovalReason::TokenRevoked, now),
    };
    let mut draft = Draft::new(read);
    draft.end(&session.session, ending, now);
    Ok(draft.finish_ended(ending))
}

/// An eviction, of one session or of all. `None`: nobody to evict.
///
/// Whoever ended by the silence of their edge a moment ago is evicted too: the tombstone then says so,
/// and no automatic re-join undoes it. The member's ending is that of the session heard last.
#[must_use]
pub fn evict(
    read: &MemberRead,
    session: Option<&SessionId>,
    reason: RemovalReason,
    now: StoreTime,
) -> Option<Change> {
    let concerned = |id: &SessionId| session.is_none_or(|s| s == id);
    let mut draft = Draft::new(read);
    let last = end_those(&mut draft, read, reason, now, |session| concerned(&session.session));
    let returning = |(id, tombstone): &(&SessionId, &Tombstone)| {
        concerned(id)
            && tombstone.reason.is_silence_of_the_edge()
            && read.record.as_ref().is_none_or(|record| record.session(id).is_none())
    };
    for (id, tombstone) in read.tombstones.iter().filter(returning) {
        draft.bury(id.clone(), Tombstone { reason, ..tombstone.clone() });
    }
    if draft.is_unchanged() { None } else { Some(draft.finish_ended(last)) }
}

/// Ends every session whose token opens nothing any more. `None`: all of them do.
///
/// The member's ending is that of the session heard last.
#[must_use]
pub fn revoke(read: &MemberRead, is_revoked: impl Fn(&TokenRef) -> bool, now: StoreTime) -> Option<Change> {
    let mut draft = Draft::new(read);
    let last =
        end_those(&mut draft, read, RemovalReason::TokenRevoked, now, |session| is_revoked(&session.token));
    if draft.is_unchanged() { None } else { Some(draft.finish_ended(last)) }
}

/// Ends some sessions of a member for one reason; the ending of the one heard last.
fn end_those(
    draft: &mut Draft<'_>,
    read: &MemberRead,
    reason: RemovalReason,
    now: StoreTime,
    concerned: impl Fn(&SessionRecord) -> bool,
) -> Ending {
    let mut last = Ending { reason, silent_for: Duration::MAX };
    let sessions = read.record.iter().flat_map(|record| &record.sessions);
    for session in sessions.filter(|session| concerned(session)) {
        let ending = ending(read, session, reason, now);
        last.silent_for = last.silent_for.min(ending.silent_for);
        draft.end(&session.session, ending, now);
    }
    last
}
