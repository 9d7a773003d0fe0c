//! How messages are written on a connection, and what is written once for all that share it.

use bytes::Bytes;
use presence_model::cursor::Cursor;
use presence_model::id::{RoomId, UserId};
use presence_model::profile::Member;
use presence_model::view::{Sample, ViewDelta, ViewRevision};

use super::{Payload, ServerMessage, json, proto};

/// A subprotocol: the same messages, written differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Encoding {
    /// `presence.v1.json`: one JSON object a text message. Also what is spoken if nothing was offered.
    #[default]
    Json,
    /// `presence.v1.proto`: one protobuf message a binary message.
    Proto,
}

impl Encoding {
    /// All of them, the first one preferred.
    pub const ALL: [Self; 2] = [Self::Json, Self::Proto];

    /// Its registered name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "presence.v1.json",
            Self::Proto => "presence.v1.proto",
        }
    }

    /// Writes a message that is for one client.
    #[must_use]
    pub fn message(self, message: &ServerMessage) -> Payload {
        match self {
            Self::Json => json::message(message),
            Self::Proto => proto::message(message),
        }
    }

    /// Writes a delta.
    #[must_use]
    pub fn delta(self, room: &RoomId, delta: &ViewDelta) -> Payload {
        match self {
            Self::Json => json::delta(room, delta),
            Self::Proto => proto::delta(room, delta),
        }
    }

    /// Writes a number of members, and some of those who came and went.
    #[must_use]
    pub fn count(self, room: &RoomId, revision: ViewRevision, count: usize, sample: &Sample) -> Payload {
        match self {
            Self::Json => json::count(room, revision, count, sample),
            Self::Proto => proto::count(room, revision, count, sample),
        }
    }

    /// Begins a page of a snapshot.
    #[must_use]
    pub fn snapshot(self, room: &RoomId, revision: ViewRevision, cursor: &Cursor) -> SnapshotWriter {
        match self {
            Self::Json => SnapshotWriter::Json(json::SnapshotWriter::new(room, revision, cursor)),
            Self::Proto => SnapshotWriter::Proto(proto::SnapshotWriter::new(room, revision, cursor)),
        }
    }
}

/// One page of a snapshot under way, at most [`presence_model::limits::SNAPSHOT_PAGE_BYTES_MAX`] long.
pub enum SnapshotWriter {
    /// As text.
    Json(json::SnapshotWriter),
    /// As protobuf.
    Proto(proto::SnapshotWriter),
}

impl SnapshotWriter {
    /// Adds a member, or says that the page has no room for it. A page takes at least one.
    pub fn push(&mut self, next: &Member) -> bool {
        match self {
            Self::Json(page) => page.push(next),
            Self::Proto(page) => page.push(next),
        }
    }

    /// The page, and its last user.
    #[must_use]
    pub fn end(self, more: bool) -> (Payload, Option<UserId>) {
        match self {
            Self::Json(page) => page.end(more),
            Self::Proto(page) => page.end(more),
        }
    }
}

/// One of something for each encoding.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ByEncoding<T>([T; Encoding::ALL.len()]);

impl<T> ByEncoding<T> {
    /// Made for each.
    pub fn new(mut make: impl FnMut() -> T) -> Self {
        Self(std::array::from_fn(|_| make()))
    }

    /// That of one.
    pub fn of(&mut self, encoding: Encoding) -> &mut T {
        match encoding {
            Encoding::Json => &mut self.0[0],
            Encoding::Proto => &mut self.0[1],
        }
    }

    /// All.
    pub fn all(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }
}

/// One message, written once for each encoding that somebody asks for.
pub type Frames = ByEncoding<Option<Bytes>>;

impl Frames {
    /// The payload, written if it has not been yet.
    pub fn get(&mut self, encoding: Encoding, write: impl FnOnce(Encoding) -> Bytes) -> Bytes {
        self.of(encoding).get_or_insert_with(|| write(encoding)).clone()
    }
}
