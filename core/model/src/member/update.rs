//! What a session says about itself while it is there.

use crate::change::{Change, TransitionKind};
use crate::record::{LeaseState, MemberRead};
use crate::refusal::Refusal;
use crate::time::StoreTime;

use super::Update;
use super::draft::Draft;

/// Decides an update. `None`: nothing would change, also not the token.
///
/// The lease must be the session's current one and live: a released one changes nothing (G6).
///
/// # Errors
/// [`Refusal::NotPresent`], [`Refusal::NotCurrent`]; [`Refusal::TokenEnded`] if the token that would
/// be in force has ended.
pub fn update(read: &MemberRead, update: &Update, now: StoreTime) -> Result<Option<Change>, Refusal> {
    let record = read.record.as_ref().ok_or(Refusal::NotPresent)?;
    let stored = record.session_of(update.lease).ok_or(Refusal::NotCurrent)?;
    match read.leases.get(&stored.lease) {
        Some(LeaseState::Live { .. }) if !update.lease.is_grace() => {}
        Some(LeaseState::Live { .. } | LeaseState::Grace { .. }) | None => return Err(Refusal::NotCurrent),
    }
    if update.token.as_ref().unwrap_or(&stored.token).ends <= now {
        return Err(Refusal::TokenEnded);
    }

    let mut draft = Draft::new(read);
    let mut session = stored.clone();
    if let Some(status) = update.status {
        session.profile.status = status;
    }
    if let Some(state) = update.state.as_ref().filter(|state| **state != stored.profile.state) {
        session.updated = draft.updated(now);
        session.profile.state = state.clone();
    }
    if let Some(token) = &update.token {
        session.token = token.clone();
    }
    if session == *stored {
        return Ok(None);
    }
    if session.token.ends != stored.token.ends {
        draft.token_ends(session.lease, session.token.ends);
    }
    draft.put(session, TransitionKind::Updated);
    Ok(Some(draft.finish()))
}
