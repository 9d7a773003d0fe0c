//! What is said of a store that refuses or does not answer: at once, then now and then, and when it is over.

use std::sync::{Mutex, PoisonError};

use presence_model::lease::Shard;
use presence_model::time::Mono;

use crate::limits::STORE_FAULT_TOLD_EVERY;
use crate::store::{Outcome, StoreFault};

/// What is to be said after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Nothing,
    /// So many have failed since the store last was well.
    Fails(u64),
    /// After so many.
    Well(u64),
}

#[derive(Debug, Default)]
struct Failing {
    count: u64,
    last: Mono,
    said: Mono,
}

impl Failing {
    fn word(state: &mut Option<Self>, is_fault: bool, now: Mono) -> Word {
        match state {
            None if is_fault => {
                *state = Some(Self { count: 1, last: now, said: now });
                Word::Fails(1)
            }
            Some(failing) if is_fault => {
                failing.count += 1;
                failing.last = now;
                if now.since(failing.said) < STORE_FAULT_TOLD_EVERY {
                    return Word::Nothing;
                }
                failing.said = now;
                Word::Fails(failing.count)
            }
            Some(failing) if now.since(failing.last) >= STORE_FAULT_TOLD_EVERY => {
                let count = failing.count;
                *state = None;
                Word::Well(count)
            }
            None | Some(_) => Word::Nothing,
        }
    }
}

/// Logs faults of the store, seldom.
#[derive(Debug, Default)]
pub(super) struct StoreLog {
    state: Mutex<Option<Failing>>,
    /// When a hold was said last.
    held: Mutex<Option<Mono>>,
}

impl StoreLog {
    /// Says that silence proves nothing for a while, and why: of one shard for all that are held at that time. Only
    /// who found it out is answered so.
    pub(super) fn note_turn(&self, shard: Option<Shard>, answer: &Result<Outcome, StoreFault>, now: Mono) {
        if let (Some(shard), Ok(Outcome::Turn(turn))) = (shard, answer)
            && let (true, Some(hold)) = (turn.new_hold, turn.hold)
        {
            let (cause, epoch) = (hold.cause.as_str(), turn.epoch);
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            if held.is_none_or(|said| now.since(said) >= STORE_FAULT_TOLD_EVERY) {
                *held = Some(now);
                tracing::warn!(%shard, cause, %epoch, "a hold begins: for one lease nobody ends by silence");
            } else {
                tracing::debug!(%shard, cause, %epoch, "a hold begins in another shard as well");
            }
        }
    }

    /// An answer to `command` came, or a fault.
    pub(super) fn note(&self, command: &'static str, fault: Option<&StoreFault>, now: Mono) {
        // It answers, and a turn will settle what there is to settle.
        let fault = fault.filter(|fault| **fault != StoreFault::Unsettled);
        // A panic in between leaves nothing half done.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match (Failing::word(&mut state, fault.is_some(), now), fault) {
            (Word::Fails(failed), Some(fault)) => tracing::warn!(command, %fault, failed, "the store fails"),
            (Word::Well(failed), _) => tracing::info!(failed, "the store is well again"),
            (Word::Nothing | Word::Fails(_), _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_failing_store_is_said_at_once_then_seldom_and_when_it_is_over() {
        let at = |seconds: u64| Mono::default() + Duration::from_secs(seconds);
        let mut state = None;
        let mut word = |is_fault, seconds| Failing::word(&mut state, is_fault, at(seconds));
        assert_eq!(word(false, 0), Word::Nothing);
        assert_eq!(word(true, 100), Word::Fails(1));
        assert_eq!(word(true, 109), Word::Nothing, "not again so soon");
        assert_eq!(word(false, 109), Word::Nothing, "some answers are no end of it");
        assert_eq!(word(true, 110), Word::Fails(3));
        assert_eq!(word(false, 119), Word::Nothing);
        assert_eq!(word(false, 120), Word::Well(3));
        assert_eq!(word(false, 121), Word::Nothing, "said once");
        assert_eq!(word(true, 122), Word::Fails(1), "at once");
    }
}
