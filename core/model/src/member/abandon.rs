//! Joins whose answer was lost.

use std::time::Duration;

use crate::id::Generation;
use crate::reason::RemovalReason;
use crate::record::{MemberRead, SessionRecord, Tombstone};
use crate::time::{StoreTime, millis};

use super::draft::Draft;
use super::{Abandoned, Unanswered};

/// Decides about a join whose answer was lost and whose client is gone: it may have been granted, be on
/// its way to the store, or never get there.
///
/// A tombstone that forbids it says how the session that was there had ended, so that whoever asks is told
/// that reason (G12), else `connection_lost`: also where the former would let the join in. A join without a
/// generation is forbidden by its connection, which only `connection_lost` bars: next to a record the
/// tombstone has the generation known already, so that it does not outlive the session that is there.
#[must_use]
pub fn abandon(read: &MemberRead, unanswered: &Unanswered, now: StoreTime) -> Abandoned {
    let stored = read.record.as_ref().and_then(|r| r.session(&unanswered.session));
    let ended = read.tombstones.get(&unanswered.session);
    if let Some(stored) = stored
        && stored.connection == unanswered.connection
        && unanswered.generation.is_none_or(|g| g == stored.generation)
    {
        return Abandoned::Release(stored.lease);
    }
    match forbidden(stored, ended, unanswered) {
        None => Abandoned::Superseded,
        Some(generation) => {
            let mut draft = Draft::new(read);
            let lost = Tombstone {
                generation,
                connection: unanswered.connection,
                reason: RemovalReason::ConnectionLost,
                ended: now,
                silent_for_ms: millis(Duration::ZERO),
            };
            let told = ended.filter(|told| {
                stored.is_none() && unanswered.generation.is_some() && !told.reason.is_silence_of_the_edge()
            });
            let tombstone = match told {
                Some(told) => Tombstone { generation, connection: unanswered.connection, ..told.clone() },
                None => lost,
            };
            draft.bury(unanswered.session.clone(), tombstone);
            Abandoned::Forbid(Box::new(draft.finish()))
        }
    }
}

/// The generation to forbid; none if no join of this attempt could be granted any more.
fn forbidden(
    stored: Option<&SessionRecord>,
    ended: Option<&Tombstone>,
    unanswered: &Unanswered,
) -> Option<Generation> {
    let itself = ended.filter(|t| t.connection == unanswered.connection);
    let highest = stored.map(|s| s.generation).max(ended.map(|t| t.generation));
    let Some(generation) = unanswered.generation else {
        return match (itself, stored) {
            (Some(t), _) if t.reason == RemovalReason::ConnectionLost => None,
            (Some(t), None) if t.reason.is_silence_of_the_edge() => Some(t.generation),
            (_, Some(_)) => highest,
            (_, None) => Some(highest.map_or(Generation(1), |g| g.next().unwrap_or(Generation::MAX))),
        };
    };
    if highest.is_none_or(|highest| highest < generation) {
        return Some(generation);
    }
    let returning = |t: &&Tombstone| t.generation == generation && t.reason.is_silence_of_the_edge();
    if stored.is_none() { itself.filter(returning).map(|t| t.generation) } else { None }
}
