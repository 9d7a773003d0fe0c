//! Writes what clients are sent.

use bytes::Bytes;
use presence_model::change::Removal;
use presence_model::cursor::Cursor;
use presence_model::id::{RoomId, UserId};
use presence_model::limits::{
    MESSAGE_BYTES_MAX, NAME_BYTES_MAX, ROOMS_PER_CONNECTION_MAX, SESSION_CHARS_MAX, SESSION_CHARS_MIN,
    SNAPSHOT_PAGE_BYTES_MAX, STATE_BYTES_MAX, TOKEN_BYTES_MAX,
};
use presence_model::profile::Member;
use presence_model::time::millis;
use presence_model::view::{Sample, ViewDelta, ViewRevision};
use presence_proto::v1::edge_message::{self as wire, Message, hello::Limits};
use presence_proto::v1::{self, EdgeMessage};
use prost::Message as _;

use crate::protocol::{ErrorCode, Payload, ServerMessage};

fn written(message: Message) -> Payload {
    EdgeMessage { message: Some(message) }.encode_to_vec().into()
}

fn name(room: &RoomId) -> String {
    room.as_str().to_owned()
}

/// Writes a message that is for one client.
#[must_use]
pub fn message(message: &ServerMessage) -> Payload {
    written(match message {
        ServerMessage::Hello { connection, heartbeat, reconnect, list_members } => {
            Message::Hello(wire::Hello {
                connection: connection.to_string(),
                heartbeat_ms: millis(*heartbeat),
                reconnect_ms: millis(*reconnect),
                limits: Some(limits(*list_members)),
            })
        }
        ServerMessage::Joined { room, session, generation, since, resumed, timings } => {
            Message::Joined(wire::Joined {
                room: name(room),
                session: session.as_str().to_owned(),
                generation: generation.0,
                since_ms: since.0,
                resumed: *resumed,
                heartbeat_ms: millis(timings.heartbeat),
                reconnect_ms: millis(timings.reconnect_within()),
            })
        }
        ServerMessage::Freshness { room, region, freshness } => Message::Freshness(wire::RoomFreshness {
            room: name(room),
            region: region.as_str().to_owned(),
            freshness: Some((*freshness).into()),
        }),
        ServerMessage::TokenExpiring { room, within } => {
            Message::TokenExpiring(wire::TokenExpiring { room: name(room), in_ms: millis(*within) })
        }
        ServerMessage::Ended { room, reason } => {
            Message::Ended(wire::Ended { room: name(room), reason: v1::RemovalReason::from(*reason).into() })
        }
        ServerMessage::Reconnect { after, reason } => {
            Message::Reconnect(wire::Reconnect { after_ms: millis(*after), reason: (*reason).to_owned() })
        }
        ServerMessage::Error { room, code, retry_after, message, generation } => {
            Message::Error(wire::Error {
                room: room.as_ref().map(name),
                code: error_code(*code).into(),
                retry_after_ms: retry_after.map(millis),
                generation: generation.map(|generation| generation.0),
                message: message.clone(),
            })
        }
        ServerMessage::Pong => Message::Pong(wire::Pong {}),
    })
}

fn limits(list_members: usize) -> Limits {
    let bound = |bound: usize| u32::try_from(bound).expect("bounds of messages are small");
    Limits {
        message_bytes: bound(MESSAGE_BYTES_MAX),
        token_bytes: bound(TOKEN_BYTES_MAX),
        state_bytes: bound(STATE_BYTES_MAX),
        name_bytes: bound(NAME_BYTES_MAX),
        session_chars_min: bound(SESSION_CHARS_MIN),
        session_chars_max: bound(SESSION_CHARS_MAX),
        rooms: bound(ROOMS_PER_CONNECTION_MAX),
        list_members: u64::try_from(list_members).unwrap_or(u64::MAX),
    }
}

const fn error_code(code: ErrorCode) -> wire::ErrorCode {
    match code {
        ErrorCode::BadRequest => wire::ErrorCode::BadRequest,
        ErrorCode::Unauthorized => wire::ErrorCode::Unauthorized,
        ErrorCode::Forbidden => wire::ErrorCode::Forbidden,
        ErrorCode::StaleGeneration => wire::ErrorCode::StaleGeneration,
        ErrorCode::TooManySessions => wire::ErrorCode::TooManySessions,
        ErrorCode::TooManyRooms => wire::ErrorCode::TooManyRooms,
        ErrorCode::TooLarge => wire::ErrorCode::TooLarge,
        ErrorCode::RateLimited => wire::ErrorCode::RateLimited,
        ErrorCode::Unavailable => wire::ErrorCode::Unavailable,
        ErrorCode::NotJoined => wire::ErrorCode::NotJoined,
    }
}

/// A state that says nothing is written out, as in the other encoding.
fn member(member: &Member) -> v1::Member {
    let mut wire = v1::Member::from(member.clone());
    if wire.state.is_empty() {
        wire.state = Bytes::from_static(b"{}");
    }
    wire
}

fn members(members: &[Member]) -> Vec<v1::Member> {
    members.iter().map(member).collect()
}

fn removals(removals: &[Removal]) -> Vec<v1::Removal> {
    removals.iter().cloned().map(v1::Removal::from).collect()
}

/// Writes a delta.
#[must_use]
pub fn delta(room: &RoomId, delta: &ViewDelta) -> Payload {
    written(Message::Delta(wire::Delta {
        room: name(room),
        prev: delta.from.map(|from| from.0),
        rev: delta.to.0,
        cursor: delta.cursor.encode(),
        upserts: members(&delta.upserts),
        removals: removals(&delta.removals),
    }))
}

/// Writes a number of members, and some of those who came and went.
#[must_use]
pub fn count(room: &RoomId, revision: ViewRevision, count: usize, sample: &Sample) -> Payload {
    written(Message::Count(wire::Count {
        room: name(room),
        rev: revision.0,
        count: u64::try_from(count).unwrap_or(u64::MAX),
        joined: members(&sample.joined),
        left: removals(&sample.left),
    }))
}

/// What a page is wrapped in: a tag and a length, and `more`.
const PAGE_WRAP_BYTES: usize = 8;

/// Writes one page of a snapshot, at most [`SNAPSHOT_PAGE_BYTES_MAX`] long.
pub struct SnapshotWriter {
    page: wire::Snapshot,
    bytes: usize,
    last: Option<UserId>,
}

impl SnapshotWriter {
    /// An empty page of this revision.
    #[must_use]
    pub fn new(room: &RoomId, revision: ViewRevision, cursor: &Cursor) -> Self {
        let page = wire::Snapshot {
            room: name(room),
            rev: revision.0,
            cursor: cursor.encode(),
            members: Vec::new(),
            more: false,
        };
        let bytes = page.encoded_len() + PAGE_WRAP_BYTES;
        Self { page, bytes, last: None }
    }

    /// Adds a member, or says that the page has no room for it. A page takes at least one.
    pub fn push(&mut self, next: &Member) -> bool {
        let member = member(next);
        let length = member.encoded_len();
        let bytes = 1 + prost::length_delimiter_len(length) + length;
        if self.last.is_some() && self.bytes + bytes > SNAPSHOT_PAGE_BYTES_MAX {
            return false;
        }
        self.bytes += bytes;
        self.page.members.push(member);
        self.last = Some(next.user.clone());
        true
    }

    /// The page, and its last user.
    #[must_use]
    pub fn end(mut self, more: bool) -> (Payload, Option<UserId>) {
        self.page.more = more;
        (written(Message::Snapshot(self.page)), self.last)
    }
}
