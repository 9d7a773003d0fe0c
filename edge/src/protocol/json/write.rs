//! Writes what clients are sent. Every string is escaped; a state is spliced as it came, since it was
//! checked to be JSON where it entered.

use bytes::Bytes;
use presence_model::change::Removal;
use presence_model::cursor::Cursor;
use presence_model::id::{RoomId, UserId};
use presence_model::limits::{
    MESSAGE_BYTES_MAX, NAME_BYTES_MAX, ROOMS_PER_CONNECTION_MAX, SESSION_CHARS_MAX, SESSION_CHARS_MIN,
    SNAPSHOT_PAGE_BYTES_MAX, STATE_BYTES_MAX, TOKEN_BYTES_MAX,
};
use presence_model::profile::Member;
use presence_model::replica::Freshness;
use presence_model::time::millis;
use presence_model::view::{Sample, ViewDelta, ViewRevision};

use crate::protocol::{Payload, ServerMessage};

/// One JSON object under way.
struct Object(Vec<u8>);

impl Object {
    fn new(kind: &str) -> Self {
        let mut object = Self(Vec::with_capacity(128));
        object.0.extend_from_slice(b"{\"t\":\"");
        object.0.extend_from_slice(kind.as_bytes());
        object.0.push(b'"');
        object
    }

    /// `name` is one of ours and needs no escaping.
    fn key(&mut self, name: &str) {
        self.0.extend_from_slice(b",\"");
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    fn text(mut self, name: &str, text: &str) -> Self {
        self.key(name);
        string(&mut self.0, text);
        self
    }

    fn number(mut self, name: &str, number: u64) -> Self {
        self.key(name);
        digits(&mut self.0, number);
        self
    }

    fn some_number(self, name: &str, number: Option<u64>) -> Self {
        match number {
            Some(number) => self.number(name, number),
            None => self,
        }
    }

    fn raw(mut self, name: &str, json: &[u8]) -> Self {
        self.key(name);
        self.0.extend_from_slice(json);
        self
    }

    fn end(mut self) -> Payload {
        self.0.push(b'}');
        Bytes::from(self.0)
    }
}

fn digits(out: &mut Vec<u8>, number: u64) {
    serde_json::to_writer(out, &number).expect("writing to memory does not fail");
}

fn string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("writing to memory does not fail");
}

/// Writes a message that is for one client.
#[must_use]
pub fn message(message: &ServerMessage) -> Payload {
    match message {
        ServerMessage::Hello { connection, heartbeat, reconnect, list_members } => Object::new("hello")
            .text("connection", &connection.to_string())
            .number("heartbeat_ms", millis(*heartbeat))
            .number("reconnect_ms", millis(*reconnect))
            .raw("limits", limits(*list_members).as_bytes())
            .end(),
        ServerMessage::Joined { room, session, generation, since, resumed, timings } => Object::new("joined")
            .text("room", room.as_str())
            .text("session", session.as_str())
            .number("generation", generation.0)
            .number("since", since.0)
            .raw("resumed", if *resumed { b"true" } else { b"false" })
            .number("heartbeat_ms", millis(timings.heartbeat))
            .number("reconnect_ms", millis(timings.reconnect_within()))
            .end(),
        ServerMessage::Freshness { room, region, freshness } => {
            let (state, since) = match freshness {
                Freshness::Live => ("live", None),
                Freshness::Held { since } => ("held", Some(since.0)),
                Freshness::Stale { since } => ("stale", Some(since.0)),
            };
            Object::new("freshness")
                .text("room", room.as_str())
                .text("region", region.as_str())
                .text("state", state)
                .some_number("since", since)
                .end()
        }
        ServerMessage::TokenExpiring { room, within } => {
            Object::new("token_expiring").text("room", room.as_str()).number("in_ms", millis(*within)).end()
        }
        ServerMessage::Ended { room, reason } => {
            Object::new("ended").text("room", room.as_str()).text("reason", reason.as_str()).end()
        }
        ServerMessage::Reconnect { after, reason } => {
            Object::new("reconnect").number("after_ms", millis(*after)).text("reason", reason).end()
        }
        ServerMessage::Error { room, code, retry_after, message, generation } => {
            let object = Object::new("error");
            let object = match room {
                Some(room) => object.text("room", room.as_str()),
                None => object,
            };
            object
                .text("code", code.as_str())
                .some_number("retry_after_ms", retry_after.map(millis))
                .some_number("generation", generation.map(|generation| generation.0))
                .text("message", message)
                .end()
        }
        ServerMessage::Pong => Object::new("pong").end(),
    }
}

fn limits(list_members: usize) -> String {
    format!(
        "{{\"message_bytes\":{MESSAGE_BYTES_MAX},\"token_bytes\":{TOKEN_BYTES_MAX},\"state_bytes\":{STATE_BYTES_MAX},\
         \"name_bytes\":{NAME_BYTES_MAX},\"session_chars\":[{SESSION_CHARS_MIN},{SESSION_CHARS_MAX}],\
         \"rooms\":{ROOMS_PER_CONNECTION_MAX},\"list_members\":{list_members}}}"
    )
}

/// Writes a delta; `from: None` is written as `"prev":null`.
#[must_use]
pub fn delta(room: &RoomId, delta: &ViewDelta) -> Payload {
    let mut object = Object::new("delta").text("room", room.as_str());
    object = match delta.from {
        Some(from) => object.number("prev", from.0),
        None => object.raw("prev", b"null"),
    };
    object = object.number("rev", delta.to.0).text("cursor", &delta.cursor.encode());
    object.key("upserts");
    list(&mut object.0, &delta.upserts, member);
    object.key("removals");
    list(&mut object.0, &delta.removals, removal);
    object.end()
}

/// Writes a number of members, and some of those who came and went.
#[must_use]
pub fn count(room: &RoomId, revision: ViewRevision, count: usize, sample: &Sample) -> Payload {
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    let object = Object::new("count").text("room", room.as_str()).number("rev", revision.0);
    let mut object = object.number("count", count);
    object.key("joined");
    list(&mut object.0, &sample.joined, member);
    object.key("left");
    list(&mut object.0, &sample.left, removal);
    object.end()
}

fn list<T>(out: &mut Vec<u8>, items: &[T], write: fn(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(b']');
}

fn member(out: &mut Vec<u8>, member: &Member) {
    out.extend_from_slice(b"{\"user\":");
    string(out, member.user.as_str());
    out.extend_from_slice(b",\"status\":\"");
    out.extend_from_slice(member.status.as_str().as_bytes());
    out.extend_from_slice(b"\",\"state\":");
    let state = member.state.as_bytes();
    out.extend_from_slice(if state.is_empty() { b"{}" } else { state });
    out.extend_from_slice(b",\"since\":");
    digits(out, member.since.0);
    out.push(b'}');
}

fn removal(out: &mut Vec<u8>, removal: &Removal) {
    out.extend_from_slice(b"{\"user\":");
    string(out, removal.user.as_str());
    out.extend_from_slice(b",\"reason\":\"");
    out.extend_from_slice(removal.ending.reason.as_str().as_bytes());
    out.extend_from_slice(b"\",\"silent_ms\":");
    digits(out, millis(removal.ending.silent_for));
    out.push(b'}');
}

/// The longest end of a page: `],"more":false}`.
const PAGE_END_BYTES: usize = 16;

/// Writes one page of a snapshot, at most [`SNAPSHOT_PAGE_BYTES_MAX`] long.
pub struct SnapshotWriter {
    object: Object,
    last: Option<UserId>,
}

impl SnapshotWriter {
    /// An empty page of this revision.
    #[must_use]
    pub fn new(room: &RoomId, revision: ViewRevision, cursor: &Cursor) -> Self {
        let mut object = Object::new("snapshot")
            .text("room", room.as_str())
            .number("rev", revision.0)
            .text("cursor", &cursor.encode());
        object.key("members");
        object.0.push(b'[');
        Self { object, last: None }
    }

    /// Adds a member, or says that the page has no room for it. A page takes at least one.
    pub fn push(&mut self, next: &Member) -> bool {
        let out = &mut self.object.0;
        let before = out.len();
        if self.last.is_some() {
            out.push(b',');
        }
        member(out, next);
        if self.last.is_some() && out.len() + PAGE_END_BYTES > SNAPSHOT_PAGE_BYTES_MAX {
            out.truncate(before);
            return false;
        }
        self.last = Some(next.user.clone());
        true
    }

    /// The page, and its last user.
    #[must_use]
    pub fn end(mut self, more: bool) -> (Payload, Option<UserId>) {
        self.object.0.push(b']');
        let more: &[u8] = if more { b"true" } else { b"false" };
        (self.object.raw("more", more).end(), self.last)
    }
}

#[cfg(test)]
mod tests;
