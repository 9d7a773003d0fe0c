//! A cursor further back than a copy remembers is answered from the store's history, as one delta.

use presence_model::delta::Delta;
use presence_model::id::{RegionId, RoomId, Roster};
use presence_model::position::Position;

use super::place::At;
use crate::driver::store_ops::Pending;
use crate::driver::{Driver, WatchKey};
use crate::limits::RESUME_COMMITS_MAX;
use crate::store::{Command, HistoryOutcome, Outcome, StoreFault};

impl Driver {
    pub(super) fn ask_resume(&mut self, key: WatchKey, roster: &Roster, cursor: Position) -> At {
        self.watchers.serial += 1;
        let serial = self.watchers.serial;
        let command = Command::History { roster: roster.clone(), after: cursor, count: RESUME_COMMITS_MAX };
        self.ask(command, Pending::Resume(key, roster.room.clone(), roster.region.clone(), serial));
        At::Resuming { serial, since: self.now }
    }

    /// History that answers a cursor: one delta, or else a snapshot.
    pub(in crate::driver) fn on_resume(
        &mut self,
        key: WatchKey,
        room: &RoomId,
        (region, serial): (&RegionId, u64),
        result: Result<Outcome, StoreFault>,
    ) {
        let Some(watch) = self.watchers.watches.get_mut(&key) else { return };
        let Some(place) = watch.rooms.get_mut(room).and_then(|watched| watched.regions.get_mut(region))
        else {
            return;
        };
        if !matches!(place.at, At::Resuming { serial: asked, .. } if asked == serial) {
            return;
        }
        place.resumed(conflated(result));
        self.watchers.touch(key, room);
    }
}

/// All of a history as one delta; none if it does not reach from the cursor to now.
fn conflated(result: Result<Outcome, StoreFault>) -> Option<Delta> {
    let Ok(Outcome::History(HistoryOutcome::Commits(commits))) = result else { return None };
    if commits.len() >= RESUME_COMMITS_MAX {
        return None;
    }
    let mut deltas = commits.into_iter().map(|commit| commit.delta);
    let mut whole = deltas.next()?;
    for delta in deltas {
        whole.conflate(delta).ok()?;
    }
    Some(whole)
}
