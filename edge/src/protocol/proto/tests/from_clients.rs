//! What clients say is understood, or refused, alike in both encodings, good or bad.

use bytes::Bytes;
use presence_model::limits::{MESSAGE_BYTES_MAX, ROOMS_PER_CONNECTION_MAX};
use presence_proto::v1::client_message::{self as wire, Message, ping::Reached};
use presence_proto::v1::{self, ClientMessage as Wire};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use prost::Message as _;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::hub::Unreadable;
use crate::protocol::{ClientMessage, CloseCode, ErrorCode, json as text, proto};

/// A message as its client means it, in neither encoding; much of it is out of bounds.
#[derive(Debug, Clone)]
struct Said {
    kind: &'static str,
    room: Option<String>,
    token: Option<String>,
    session: Option<String>,
    generation: Option<u64>,
    status: Option<usize>,
    state: Option<String>,
    since: Option<String>,
    watch: Option<bool>,
    level: Option<usize>,
    client: Option<String>,
    at: Vec<(String, u64)>,
}

const KINDS: [&str; 7] = ["join", "watch", "update", "token", "leave", "resync", "ping"];
/// In the order of their numbers in `types.proto`; the last one is not known there either.
const STATUSES: [&str; 4] = ["available", "away", "busy", "asleep"];
const LEVELS: [&str; 3] = ["members", "count", "all"];

/// Names that are good, too long, blank or odd.
fn name() -> impl Strategy<Value = String> {
    let fixed = ["", " ", "\u{200b}", "__proto__", "\0", "\u{202e}x", "r\n"].map(str::to_owned);
    prop_oneof![
        4 => "[a-z]{1,8}",
        1 => "\\PC{1,6}",
        1 => prop::sample::select(fixed.to_vec()),
        1 => prop::sample::select(vec![254usize, 255, 256]).prop_map(|length| "n".repeat(length)),
    ]
}

fn state() -> impl Strategy<Value = String> {
    let long = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let fixed = ["null", "{}", " {\"a\": [1.50, \"é\"]} ", "1e999", "\"\\ud800\"", "0"].map(str::to_owned);
    let bounds = [long(1_023), long(1_024), long(1_025), deep(64), deep(65)];
    prop_oneof![
        prop::sample::select([&fixed[..], &bounds[..]].concat()),
        "[a-z]{0,9}".prop_map(|text| json!({ "x": text }).to_string()),
    ]
}

fn sized(sizes: [usize; 3]) -> impl Strategy<Value = String> {
    prop::sample::select(sizes.to_vec()).prop_map(|length| "k".repeat(length))
}

prop_compose! {
    fn said()(
        kind in prop::sample::select(KINDS.to_vec()),
        room in option::weighted(0.9, name()),
        token in option::weighted(0.9, prop_oneof![3 => Just("a.b.c".to_owned()), 1 => sized([4_095, 4_096, 4_097])]),
        session in option::weighted(0.9, prop_oneof![
            4 => "[a-f0-9]{16,20}",
            1 => sized([15, 16, 17]),
            1 => sized([63, 64, 65]),
            1 => Just("0123456789abcde\u{e9}".to_owned()),
        ]),
        generation in option::of(prop_oneof![0u64..9, Just(9_007_199_254_740_991), Just(9_007_199_254_740_992), any::<u64>()]),
        status in option::of(0..STATUSES.len()),
        state in option::of(state()),
        since in option::of(prop_oneof![
            Just(String::new()),
            "[A-Za-z0-9_-]{1,30}",
            // A cursor of this protocol that names no region.
            Just("AQA".to_owned()),
        ]),
        (watch, level) in (option::of(any::<bool>()), option::of(0..LEVELS.len())),
        client in option::of(sized([0, 64, 65])),
        at in prop_oneof![
            9 => vec((name(), any::<u64>()), 0..3),
            1 => prop::sample::select(vec![ROOMS_PER_CONNECTION_MAX, ROOMS_PER_CONNECTION_MAX + 1])
                .prop_map(|rooms| (0..rooms).map(|room| (format!("r{room}"), 1)).collect()),
        ],
    ) -> Said {
        Said { kind, room, token, session, generation, status, state, since, watch, level, client, at }
    }
}

impl Said {
    fn as_text(&self) -> String {
        let state = self.state.as_ref().map(|state| RawValue::from_string(state.trim().to_owned()).unwrap());
        let mut fields = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                fields.insert(name.to_owned(), value);
            }
        };
        put("room", self.room.clone().map(Value::from));
        put("token", self.token.clone().map(Value::from));
        put("session", self.session.clone().map(Value::from));
        put("generation", self.generation.map(Value::from));
        put("status", self.status.map(|status| STATUSES[status].into()));
        put("since", self.since.clone().map(Value::from));
        put("watch", self.watch.map(Value::from));
        put("level", self.level.map(|level| LEVELS[level].into()));
        put("client", self.client.clone().map(Value::from));
        let rest = fields.iter().map(|(name, value)| format!(",\"{name}\":{value}")).collect::<String>();
        let state = state.map_or(String::new(), |state| format!(",\"state\": {} ", state.get()));
        let at: Vec<_> = self.at.iter().map(|(room, rev)| format!("{}:{rev}", json!(room))).collect();
        // Of a ping `room` means nothing, and the other encoding has no place for it.
        if self.kind == "ping" {
            return format!("{{\"t\":\"ping\",\"at\":{{{}}}}}", at.join(","));
        }
        format!("{{\"t\":\"{}\"{rest}{state},\"at\":{{}}}}", self.kind)
    }

    fn as_bytes(&self) -> Vec<u8> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let number = |place: Option<usize>| place.map_or(0, |place| i32::try_from(place).unwrap() + 1);
        let (room, token) = (text(&self.room), text(&self.token));
        let (since, client) = (text(&self.since), text(&self.client));
        let (status, level) = (number(self.status), number(self.level));
        let state = self.state.clone().map(Bytes::from);
        let message = match self.kind {
            "join" => Message::Join(wire::Join {
                room,
                token,
                session: text(&self.session),
                generation: self.generation,
                status,
                state,
                since,
                watch: self.watch,
                level,
                client,
            }),
            "watch" => Message::Watch(wire::Watch { room, token, since, level, client }),
            "update" => Message::Update(wire::Update { room, status, state }),
            "token" => Message::Token(wire::Token { room, token }),
            "leave" => Message::Leave(wire::Leave { room }),
            "resync" => Message::Resync(wire::Resync { room }),
            _ => Message::Ping(wire::Ping {
                at: self.at.iter().cloned().map(|(room, rev)| Reached { room, rev }).collect(),
            }),
        };
        Wire { message: Some(message) }.encode_to_vec()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_is_said_means_the_same_in_both_encodings(said in said()) {
        prop_assert_eq!(proto::parse(&said.as_bytes()), text::parse(&said.as_text()));
    }

    #[test]
    fn no_bytes_are_more_than_unreadable(bytes in vec(any::<u8>(), 0..200)) {
        let _ = proto::parse(&bytes);
    }
}

fn encoded(message: Message) -> Vec<u8> {
    Wire { message: Some(message) }.encode_to_vec()
}

#[test]
fn what_is_no_message_or_too_long_closes_the_connection() {
    // Cut inside a length, a wire type that does not exist, a name that is not UTF-8.
    for bytes in [&b"\x2a"[..], b"\x2f", b"\x2a\x03\x0a\x01\xff"] {
        let Err(Unreadable::Fatal(code, why)) = proto::parse(bytes) else { panic!("{bytes:?}") };
        assert_eq!((code, why.as_str()), (CloseCode::Malformed, "not a ClientMessage of presence.v1.proto"));
    }
    // An unknown field of any length is ignored, up to the length of a message.
    let padded = |length: usize| {
        let leave = encoded(Message::Leave(wire::Leave { room: "r".to_owned() }));
        let unknown = length - leave.len() - 2 - 3;
        let header =
            [&b"\xfa\x7f"[..], &[0x80 | (unknown & 0x7f) as u8, 0x80 | (unknown >> 7 & 0x7f) as u8, 0]];
        [leave, header.concat(), vec![7; unknown]].concat()
    };
    for length in [MESSAGE_BYTES_MAX - 1, MESSAGE_BYTES_MAX] {
        let long = padded(length);
        assert_eq!(long.len(), length);
        assert!(matches!(proto::parse(&long), Ok(ClientMessage::Leave { .. })), "{length}");
    }
    let Err(Unreadable::Fatal(code, _)) = proto::parse(&padded(MESSAGE_BYTES_MAX + 1)) else {
        panic!("read")
    };
    assert_eq!(code, CloseCode::TooLarge);
}

#[test]
fn a_message_of_a_later_release_is_refused_and_the_connection_goes_on() {
    for bytes in [&b""[..], b"\xc2\x3e\x02\x0a\x00"] {
        let Err(Unreadable::Error(code, None, _)) = proto::parse(bytes) else { panic!("{bytes:?}") };
        assert_eq!(code, ErrorCode::BadRequest);
    }
}

#[test]
fn a_state_is_json_without_the_spaces_around_it() {
    let update = |state: &'static [u8]| {
        let (room, state) = ("r".to_owned(), Some(Bytes::from_static(state)));
        proto::parse(&encoded(Message::Update(wire::Update { room, status: 0, state })))
    };
    let Ok(ClientMessage::Update { status: None, state: Some(state), .. }) = update(b" {\"a\" :1}\n") else {
        panic!("not read")
    };
    assert_eq!(state.as_bytes(), b"{\"a\" :1}");
    for state in [&b""[..], b"{", b"{}{}", b"\"\xff\"", b"{} x"] {
        let Err(Unreadable::Error(ErrorCode::BadRequest, Some(_), why)) = update(state) else {
            panic!("{state:?}")
        };
        assert_eq!(why, "state: a JSON value is expected");
    }
}

#[test]
fn numbers_that_no_enum_has_are_refused() {
    let room = || "r".to_owned();
    for status in [4, -1, i32::MAX] {
        let update = encoded(Message::Update(wire::Update { room: room(), status, state: None }));
        assert!(matches!(proto::parse(&update), Err(Unreadable::Error(ErrorCode::BadRequest, Some(_), _))));
    }
    let level = v1::WatchLevel::Count as i32 + 1;
    let watch = wire::Watch { room: room(), token: "t".to_owned(), level, ..Default::default() };
    let refused = proto::parse(&encoded(Message::Watch(watch)));
    assert!(matches!(refused, Err(Unreadable::Error(ErrorCode::BadRequest, Some(_), _))));
}
