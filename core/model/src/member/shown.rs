//! The projection of a record that everybody sees.

use crate::id::UserId;
use crate::lease::LeaseId;
use crate::profile::Member;
use crate::record::Record;
use crate::time::StoreTime;

use super::{Shortened, ShortenedBy};

/// How everybody sees a record: the strongest status, the state that changed last.
///
/// # Panics
/// If the record has no session: a stored one never is empty.
#[must_use]
pub fn shown(user: &UserId, record: &Record) -> Member {
    let latest = record
        .sessions
        .iter()
        .max_by_key(|s| (s.updated, s.generation))
        .expect("a record exists as long as it has a session");
    let strongest = record.sessions.iter().map(|s| s.profile.status).fold(latest.profile.status, Ord::max);
    Member { user: user.clone(), status: strongest, state: latest.profile.state.clone(), since: record.since }
}

/// When a lease with this deadline was last renewed or granted.
#[must_use]
pub fn last_heard(lease: LeaseId, deadline: StoreTime, shortened: Option<Shortened>) -> StoreTime {
    let carried = shortened.filter(|note| counts(note, deadline)).map_or(deadline, |note| note.replaced);
    carried.before(lease.ttl())
}

/// Whether a note still explains this deadline: a release is final, but a lost edge may have renewed.
pub(super) fn counts(note: &Shortened, deadline: StoreTime) -> bool {
    match note.cause {
        ShortenedBy::Release(_) => true,
        ShortenedBy::EdgeLost => note.deadline == deadline,
    }
}
