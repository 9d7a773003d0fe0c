//! Where a watcher is, region by region; opaque to WebSocket clients.

use std::collections::BTreeMap;

use crate::id::RegionId;
use crate::position::Position;

/// Region → position, only for regions in which what was shown equals the roster at that position.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cursor(BTreeMap<RegionId, Position>);

/// Text that is not a cursor of ours. It costs its sender a snapshot, nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor")]
pub struct NotACursor;

impl Cursor {
    /// A cursor of these positions.
    #[must_use]
    pub fn new(positions: BTreeMap<RegionId, Position>) -> Self {
        Self(positions)
    }

    /// The position in a region.
    #[must_use]
    pub fn get(&self, region: &RegionId) -> Option<Position> {
        self.0.get(region).copied()
    }

    /// All positions, by region.
    pub fn iter(&self) -> impl Iterator<Item = (&RegionId, Position)> {
        self.0.iter().map(|(region, position)| (region, *position))
    }

    /// Sets the position in a region.
    pub fn set(&mut self, region: RegionId, position: Position) {
        self.0.insert(region, position);
    }

    /// Forgets a region.
    pub fn remove(&mut self, region: &RegionId) {
        self.0.remove(region);
    }

    /// Whether it names no region.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The opaque text clients keep: URL-safe base64 of a versioned binary form.
    #[must_use]
    pub fn encode(&self) -> String {
        unimplemented!()
    }

    /// Reads what [`Cursor::encode`] wrote. Input is untrusted: at most
    /// [`CURSOR_REGIONS_MAX`](crate::limits::CURSOR_REGIONS_MAX) regions.
    ///
    /// # Errors
    /// [`NotACursor`].
    pub fn decode(text: &str) -> Result<Self, NotACursor> {
        let _ = text;
        unimplemented!()
    }
}
