//! A message of `client.proto` as `docs/protocol.md` writes it in JSON: written from those two alone.

use presence_proto::v1::edge_message::{ErrorCode, Message};
use presence_proto::v1::freshness::State;
use presence_proto::v1::{EdgeMessage, Member, Removal, RemovalReason, Status};
use prost::Message as _;
use serde_json::{Map, Value, json};

/// The JSON of a payload of `presence.v1.proto`.
pub(super) fn as_json(payload: &[u8]) -> Value {
    let message = EdgeMessage::decode(payload).unwrap().message.unwrap();
    match message {
        Message::Hello(hello) => {
            let limits = hello.limits.unwrap();
            json!({"t": "hello", "connection": hello.connection, "heartbeat_ms": hello.heartbeat_ms,
                "reconnect_ms": hello.reconnect_ms, "limits": {
                    "message_bytes": limits.message_bytes, "token_bytes": limits.token_bytes,
                    "state_bytes": limits.state_bytes, "name_bytes": limits.name_bytes,
                    "session_chars": [limits.session_chars_min, limits.session_chars_max],
                    "rooms": limits.rooms, "list_members": limits.list_members}})
        }
        Message::Joined(joined) => json!({"t": "joined", "room": joined.room, "session": joined.session,
            "generation": joined.generation, "since": joined.since_ms, "resumed": joined.resumed,
            "heartbeat_ms": joined.heartbeat_ms, "reconnect_ms": joined.reconnect_ms}),
        Message::Snapshot(page) => json!({"t": "snapshot", "room": page.room, "rev": page.rev,
            "cursor": page.cursor, "members": members(&page.members), "more": page.more}),
        Message::Delta(delta) => json!({"t": "delta", "room": delta.room, "prev": delta.prev,
            "rev": delta.rev, "cursor": delta.cursor, "upserts": members(&delta.upserts),
            "removals": removals(&delta.removals)}),
        Message::Count(count) => json!({"t": "count", "room": count.room, "rev": count.rev,
            "count": count.count, "joined": members(&count.joined), "left": removals(&count.left)}),
        Message::Freshness(told) => {
            let freshness = told.freshness.unwrap();
            let state = word("STATE_", freshness.state().as_str_name());
            let fields = json!({"t": "freshness", "room": told.room, "region": told.region, "state": state});
            let since = (freshness.state() != State::Live).then_some(freshness.since_ms);
            with(fields, "since", since.map(Value::from))
        }
        Message::TokenExpiring(told) => {
            json!({"t": "token_expiring", "room": told.room, "in_ms": told.in_ms})
        }
        Message::Ended(ended) => {
            json!({"t": "ended", "room": ended.room, "reason": reason(ended.reason())})
        }
        Message::Reconnect(told) => {
            json!({"t": "reconnect", "after_ms": told.after_ms, "reason": told.reason})
        }
        Message::Error(error) => {
            assert_ne!(error.code(), ErrorCode::Unspecified);
            let code = word("ERROR_CODE_", error.code().as_str_name());
            let fields = json!({"t": "error", "code": code, "message": error.message});
            let fields = with(fields, "room", error.room.map(Value::from));
            let fields = with(fields, "retry_after_ms", error.retry_after_ms.map(Value::from));
            with(fields, "generation", error.generation.map(Value::from))
        }
        Message::Pong(_) => json!({"t": "pong"}),
    }
}

fn with(mut fields: Value, name: &str, value: Option<Value>) -> Value {
    let object: &mut Map<String, Value> = fields.as_object_mut().unwrap();
    object.extend(value.map(|value| (name.to_owned(), value)));
    fields
}

/// The names of the two are the same but for their case and prefix.
fn word(prefix: &str, name: &str) -> String {
    name.strip_prefix(prefix).unwrap().to_lowercase()
}

fn reason(reason: RemovalReason) -> String {
    assert_ne!(reason, RemovalReason::Unspecified);
    word("REMOVAL_REASON_", reason.as_str_name())
}

fn members(members: &[Member]) -> Vec<Value> {
    let of = |member: &Member| {
        assert_ne!(member.status(), Status::Unspecified);
        let state: Value = serde_json::from_slice(&member.state).unwrap();
        json!({"user": member.user, "status": word("STATUS_", member.status().as_str_name()),
            "state": state, "since": member.since_ms})
    };
    members.iter().map(of).collect()
}

fn removals(removals: &[Removal]) -> Vec<Value> {
    let of = |removal: &Removal| json!({"user": removal.user, "reason": reason(removal.reason()), "silent_ms": removal.silent_for_ms});
    removals.iter().map(of).collect()
}
