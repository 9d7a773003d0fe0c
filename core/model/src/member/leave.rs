//! Endings that somebody decided: a goodbye, an eviction.

use std::time::Duration;

use crate::change::Change;
use crate::id::SessionId;
use crate::lease::LeaseId;
use crate::reason::{Ending, RemovalReason};
use crate::record::{MemberRead, Tombstone};
use crate::refusal::Refusal;
use crate::time::StoreTime;

use super::draft::{Draft, ending};

/// Decides a goodbye. It removes at once, also a session in grace: that only brings its end forward.
///
/// # Errors
/// [`Refusal::NotPresent`], [`Refusal::NotCurrent`]: also what a goodbye gets that is repeated after
/// its first outcome was lost.
pub fn leave(read: &MemberRead, lease: LeaseId, now: StoreTime) -> Result<Change, Refusal> {
    let record = read.record.as_ref().ok_or(Refusal::NotPresent)?;
    let session = record.session_of(lease).ok_or(Refusal::NotCurrent)?;
    let ending = Ending { reason: RemovalReason::Left, silent_for: Duration::ZERO };
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
    let mut last = Ending { reason, silent_for: Duration::MAX };
    let sessions = read.record.iter().flat_map(|r| &r.sessions).filter(|s| concerned(&s.session));
    for session in sessions.clone() {
        let ending = ending(read, session, reason, now);
        last.silent_for = last.silent_for.min(ending.silent_for);
        draft.end(&session.session, ending, now);
    }
    let returning = |(id, tombstone): &(&SessionId, &Tombstone)| {
        concerned(id)
            && tombstone.reason.is_silence_of_the_edge()
            && !sessions.clone().any(|s| s.session == **id)
    };
    for (id, tombstone) in read.tombstones.iter().filter(returning) {
        draft.bury(id.clone(), Tombstone { reason, ..tombstone.clone() });
    }
    if draft.is_unchanged() { None } else { Some(draft.finish_ended(last)) }
}
