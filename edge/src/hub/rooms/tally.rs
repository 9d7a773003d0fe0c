//! What receivers are shown of a room that is too large for lists: its number, and a few names.

use bytes::Bytes;
use presence_model::id::RoomId;
use presence_model::view::{Sample, View, ViewRevision};
use presence_model::watch::Level;

use crate::limits::{LIST_BACK_TENTHS, SAMPLE_MAX};
use crate::protocol::json;

/// What a room shows to receivers that did not ask for a list or a number, and the frame of the number.
#[derive(Debug, Default)]
pub(super) struct Tally {
    level: Level,
    told: Option<Told>,
    /// Where the names of the next frame begin.
    from: ViewRevision,
}

/// A number as receivers are told it.
#[derive(Debug)]
pub(in super::super) struct Told {
    pub(in super::super) at: ViewRevision,
    pub(in super::super) members: usize,
    /// Whether it names anybody: if not, and the number is as before, nothing is to be told.
    pub(in super::super) names: bool,
    pub(in super::super) frame: Bytes,
}

impl Tally {
    pub(super) fn level(&self) -> Level {
        self.level
    }

    /// The room was flushed: its last flush was at `before`, and it has so many members now.
    ///
    /// Above `list_members` it becomes a number, at nine tenths of that a list again: in between it stays what it is,
    /// so that a room about that size does not go to and fro.
    pub(super) fn flushed(&mut self, before: ViewRevision, members: usize, list_members: usize) {
        self.from = self.told.take().map_or(before, |told| told.at);
        self.level = match self.level {
            Level::Members if members > list_members => Level::Count,
            Level::Count if members <= list_members * LIST_BACK_TENTHS / 10 => Level::Members,
            level @ (Level::Members | Level::Count) => level,
        };
    }

    /// The frame for all who were told an earlier number: encoded once a flush.
    pub(super) fn told(&mut self, room: &RoomId, view: &View) -> &Told {
        let from = self.from;
        self.told.get_or_insert_with(|| Told::new(room, view, &view.sample(from, SAMPLE_MAX)))
    }

    /// Where the names of that frame begin.
    pub(super) fn names_from(&self) -> ViewRevision {
        self.from
    }
}

impl Told {
    /// The number as it is now, with these names.
    pub(in super::super) fn new(room: &RoomId, view: &View, sample: &Sample) -> Self {
        let (at, members) = (view.revision(), view.len());
        let frame = json::count(room, at, members, sample);
        Self { at, members, names: *sample != Sample::default(), frame }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_about_the_limit_does_not_go_to_and_fro() {
        let mut tally = Tally::default();
        let mut level = |members| {
            tally.flushed(ViewRevision(0), members, 5_000);
            tally.level()
        };
        let (list, number) = (Level::Members, Level::Count);
        for (members, shown) in [
            (0, list),
            (4_999, list),
            (5_000, list),
            (5_001, number),
            (5_000, number),
            (4_501, number),
            (4_500, list),
            (5_000, list),
            (60_000, number),
            (0, list),
        ] {
            assert_eq!(level(members), shown, "{members}");
        }
        for list_members in [1, 2, 9, 10, 11, 1_000_000] {
            let mut tally = Tally::default();
            tally.flushed(ViewRevision(0), list_members + 1, list_members);
            tally.flushed(ViewRevision(0), list_members, list_members);
            assert_eq!(tally.level(), number, "{list_members}: one less is not much smaller");
            tally.flushed(ViewRevision(0), 0, list_members);
            assert_eq!(tally.level(), list, "{list_members}: the empty one is a list again");
        }
    }
}
