//! Joins whose answer was lost.

use std::time::Duration;

use crate::id::Generation;
use crate::reason::RemovalReason;
use crate::record::{MemberRead, SessionRecord, Tombstone};
use crate::time::{StoreTime, millis};

use super::draft::Draft;
use super::join::{bars_beside, ends_the_connection, lets_follow};
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
        && unanswered.request <= stored.request
    {
        return if unanswered.request == stored.request {
            Abandoned::Release(stored.lease)
        } else {
            Abandoned::Superseded
        };
    }
    match forbidden(stored, ended, unanswered) {
        None => Abandoned::Superseded,
        Some(generation) => {
            let mut draft = Draft::new(read);
            let lost = Tombstone {
                generation,
                connection: unanswered.connection,
                request: unanswered.request,
                reason: RemovalReason::ConnectionLost,
                ended: now,
                silent_for_ms: millis(Duration::ZERO),
            };
            let told = ended.filter(|told| {
                stored.is_none() && unanswered.generation.is_some() && !told.reason.is_silence_of_the_edge()
            });
            let tombstone = match told {
                Some(told) => Tombstone {
                    generation,
                    connection: unanswered.connection,
                    request: unanswered.request,
                    ..told.clone()
                },
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
    let Unanswered { generation, connection, request, .. } = *unanswered;
    let itself = ended.filter(|t| t.connection == connection);
    let highest = stored.map(|s| s.generation).max(ended.map(|t| t.generation));
    if let Some(stored) = stored.filter(|s| s.connection == connection)
        && generation.is_none_or(|g| g == stored.generation)
    {
        // A later join than the one that is in.
        let given_up = itself.is_some_and(|t| bars_beside(t, stored, request));
        return highest.filter(|_| !given_up);
    }
    let follows = |t: &&Tombstone| lets_follow(t, connection, request, false);
    let Some(generation) = generation else {
        return match (itself, stored) {
            (Some(t), None) if ends_the_connection(t.reason) || request <= t.request => {
                itself.filter(follows).map(|t| t.generation)
            }
            (Some(t), Some(_)) if t.reason == RemovalReason::ConnectionLost && request <= t.request => None,
            (_, Some(_)) => highest,
            (_, None) => Some(highest.map_or(Generation(1), |g| g.next().unwrap_or(Generation::MAX))),
        };
    };
    if highest.is_none_or(|highest| highest < generation) {
        return Some(generation);
    }
    let returning = itself.filter(|t| t.generation == generation && stored.is_none());
    returning.filter(follows).map(|t| t.generation)
}
