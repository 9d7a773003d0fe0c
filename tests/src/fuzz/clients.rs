//! What clients say: whatever is understood is within its bounds, and means the same in both encodings.

use bytes::Bytes;
use presence_edge::limits::CLIENT_NAME_BYTES_MAX;
use presence_edge::protocol::{ClientMessage, JoinMessage, Since, json, proto};
use presence_model::limits::{GENERATION_MAX, ROOMS_PER_CONNECTION_MAX, STATE_BYTES_MAX, TOKEN_BYTES_MAX};
use presence_model::profile::{State, Status};
use presence_model::watch::Level;
use presence_proto::v1::client_message::{self as wire, Message, ping::Reached};
use presence_proto::v1::{ClientMessage as Wire, Status as WireStatus, WatchLevel};
use prost::Message as _;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

pub(super) fn run_json(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes)
        && let Ok(message) = json::parse(text)
    {
        check(&message);
    }
}

pub(super) fn run_proto(bytes: &[u8]) {
    if let Ok(message) = proto::parse(bytes) {
        check(&message);
    }
}

fn check(message: &ClientMessage) {
    if let ClientMessage::Join(join) = message {
        assert!(join.token.0.len() <= TOKEN_BYTES_MAX && join.client.len() <= CLIENT_NAME_BYTES_MAX);
        assert!(join.generation.is_none_or(|generation| generation.0 <= GENERATION_MAX));
        check_state(&join.profile.state);
    }
    if let ClientMessage::Update { state: Some(state), .. } = message {
        check_state(state);
    }
    if let ClientMessage::Ping { at } = message {
        assert!(at.len() <= ROOMS_PER_CONNECTION_MAX);
    }
    assert_eq!(proto::parse(&as_proto(message)).as_ref(), Ok(message), "as protobuf");
    let text = as_json(message);
    assert_eq!(json::parse(&text).as_ref(), Ok(message), "as {text}");
}

fn check_state(state: &State) {
    let bytes = state.as_bytes();
    assert!(bytes.len() <= STATE_BYTES_MAX);
    if !bytes.is_empty() {
        let _: Value = serde_json::from_slice(bytes).expect("JSON that everybody reads");
    }
}

/// Of a cursor that could not be read, another one.
fn since(since: &Since) -> String {
    match since {
        Since::Nowhere => String::new(),
        Since::Cursor(cursor) => cursor.encode(),
        Since::Unreadable => "%".to_owned(),
    }
}

fn as_proto(message: &ClientMessage) -> Vec<u8> {
    let level = |level: Option<Level>| match level {
        None => 0,
        Some(Level::Members) => WatchLevel::Members.into(),
        Some(Level::Count) => WatchLevel::Count.into(),
    };
    let status = |status: Option<Status>| status.map_or(0, |status| WireStatus::from(status).into());
    let state =
        |state: &State| Some(Bytes::copy_from_slice(state.as_bytes())).filter(|state| !state.is_empty());
    let message = match message {
        ClientMessage::Join(join) => {
            let JoinMessage { room, token, session, generation, profile, watch, client, .. } = &**join;
            Message::Join(wire::Join {
                room: room.as_str().to_owned(),
                token: token.0.to_string(),
                session: session.as_str().to_owned(),
                generation: generation.map(|generation| generation.0),
                status: status(Some(profile.status)),
                state: state(&profile.state),
                since: since(&join.since),
                watch: Some(*watch),
                level: level(join.level),
                client: client.to_string(),
            })
        }
        ClientMessage::Watch { room, token, since: at, level: shown, client } => {
            Message::Watch(wire::Watch {
                room: room.as_str().to_owned(),
                token: token.0.to_string(),
                since: since(at),
                level: level(*shown),
                client: client.to_string(),
            })
        }
        ClientMessage::Update { room, status: new, state: json } => Message::Update(wire::Update {
            room: room.as_str().to_owned(),
            status: status(*new),
            state: json.as_ref().and_then(state),
        }),
        ClientMessage::Token { room, token } => {
            Message::Token(wire::Token { room: room.as_str().to_owned(), token: token.0.to_string() })
        }
        ClientMessage::Leave { room } => Message::Leave(wire::Leave { room: room.as_str().to_owned() }),
        ClientMessage::Resync { room } => Message::Resync(wire::Resync { room: room.as_str().to_owned() }),
        ClientMessage::Ping { at } => Message::Ping(wire::Ping {
            at: at.iter().map(|(room, rev)| Reached { room: room.as_str().to_owned(), rev: rev.0 }).collect(),
        }),
    };
    Wire { message: Some(message) }.encode_to_vec()
}

fn as_json(message: &ClientMessage) -> String {
    let (mut fields, mut state) = (Map::new(), None);
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    let level_word = |level: Level| match level {
        Level::Members => "members",
        Level::Count => "count",
    };
    match message {
        ClientMessage::Join(join) => {
            put("t", json!("join"));
            put("room", json!(join.room.as_str()));
            put("token", json!(join.token.0));
            put("session", json!(join.session.as_str()));
            put("generation", json!(join.generation.map(|generation| generation.0)));
            put("status", json!(join.profile.status.as_str()));
            put("since", json!(since(&join.since)));
            put("watch", json!(join.watch));
            put("level", json!(join.level.map(level_word)));
            put("client", json!(join.client));
            state = Some(&join.profile.state);
        }
        ClientMessage::Watch { room, token, since: at, level, client } => {
            put("t", json!("watch"));
            put("room", json!(room.as_str()));
            put("token", json!(token.0));
            put("since", json!(since(at)));
            put("level", json!(level.map(level_word)));
            put("client", json!(client));
        }
        ClientMessage::Update { room, status, state: new } => {
            put("t", json!("update"));
            put("room", json!(room.as_str()));
            put("status", json!(status.map(Status::as_str)));
            state = new.as_ref();
        }
        ClientMessage::Token { room, token } => {
            put("t", json!("token"));
            put("room", json!(room.as_str()));
            put("token", json!(token.0));
        }
        ClientMessage::Leave { room } => {
            put("t", json!("leave"));
            put("room", json!(room.as_str()));
        }
        ClientMessage::Resync { room } => {
            put("t", json!("resync"));
            put("room", json!(room.as_str()));
        }
        ClientMessage::Ping { at } => {
            // An object of `serde_json` would keep one of two entries of a room.
            let at: Vec<String> =
                at.iter().map(|(room, rev)| format!("{}:{}", json!(room.as_str()), rev.0)).collect();
            return format!("{{\"t\":\"ping\",\"at\":{{{}}}}}", at.join(","));
        }
    }
    let rest = Value::Object(fields).to_string();
    match state.filter(|state| !state.as_bytes().is_empty()) {
        None => rest,
        Some(state) => {
            let raw: &RawValue = serde_json::from_slice(state.as_bytes()).expect("a state is JSON");
            format!("{{\"state\":{},{}", raw.get(), &rest[1..])
        }
    }
}

const SAID: [&str; 12] = [
    r#"{"t":"join","room":"r1","token":"a.b.c","session":"8f1c8f1c8f1c8f1c","generation":3,"status":"away","state":{"cursor":5},"since":"AQA","watch":true,"client":"app/1.0"}"#,
    r#"{"t":"join","room":"é😀","token":"a.b.c","session":"8f1c8f1c8f1c8f1c","watch":false,"level":"count"}"#,
    r#"{"t":"watch","room":"r2","token":"t","since":"AgECZXUBAQAAAAAAAAAAAQA","level":"members"}"#,
    r#"{"t":"update","room":"r1","status":"busy","state":[1.5e3,"\ud83d\ude00",null,{"a":{"a":[]}}]}"#,
    r#"{"t":"update","room":"r1","status":null,"state":null}"#,
    r#"{"t":"token","room":"r1","token":"x.y.z"}"#,
    r#"{"t":"leave","room":"__proto__"}"#,
    r#"{"t":"resync","room":"r\n\u0000"}"#,
    r#"{"t":"ping","at":{"r1":107,"r2":18446744073709551615}}"#,
    r#"{"t":"ping"}"#,
    r#"{"\u0074":"leave","room":"a","room":"b","x":[{}]}"#,
    r#"{"t":"dance"}"#,
];

pub(super) fn seeds_json() -> Vec<Vec<u8>> {
    SAID.map(|text| text.as_bytes().to_vec()).to_vec()
}

pub(super) fn seeds_proto() -> Vec<Vec<u8>> {
    SAID.iter().filter_map(|text| json::parse(text).ok()).map(|message| as_proto(&message)).collect()
}
