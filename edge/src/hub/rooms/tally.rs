//! What receivers are shown of a room that is too large for lists: its number, and a few names.

use bytes::Bytes;
use presence_model::id::RoomId;
use presence_model::view::{Sample, View, ViewRevision};
use presence_model::watch::Level;

use crate::limits::{LIST_BACK_TENTHS, SAMPLE_MAX};
use crate::protocol::Encoding;
use crate::protocol::encoding::Frames;

/// What a room shows to receivers that did not ask for a list or a number, and the number.
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
    sample: Sample,
    frames: Frames,
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

    /// The number for all who were told an earlier one: made once a flush.
    pub(super) fn told(&mut self, view: &View) -> &mut Told {
        let from = self.from;
        self.told.get_or_insert_with(|| Told::new(view, view.sample(from, SAMPLE_MAX)))
    }

    /// Where the names of that frame begin.
    pub(super) fn names_from(&self) -> ViewRevision {
        self.from
    }
}

impl Told {
    /// The number as it is now, with these names.
    pub(in super::super) fn new(view: &View, sample: Sample) -> Self {
        Self { at: view.revision(), members: view.len(), sample, frames: Frames::default() }
    }

    /// Whether it names anybody: if not, and the number is as before, nothing is to be told.
    pub(in super::super) fn names(&self) -> bool {
        self.sample != Sample::default()
    }

    /// As it is written: once for each encoding.
    pub(in super::super) fn frame(&mut self, room: &RoomId, encoding: Encoding) -> Bytes {
        let Self { at, members, sample, frames } = self;
        frames.get(encoding, |encoding| encoding.count(room, *at, *members, sample))
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
