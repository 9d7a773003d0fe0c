use presence_model::cursor::Cursor;
use presence_model::id::Generation;
use presence_model::limits::{MESSAGE_BYTES_MAX, TOKEN_BYTES_MAX};

use super::*;
use crate::protocol::ErrorCode;

fn refused(text: &str) -> (ErrorCode, Option<String>, String) {
    match parse(text) {
        Err(Unreadable::Error(code, room, message)) => {
            (code, room.map(|room| room.as_str().to_owned()), message)
        }
        other => panic!("{text}: {other:?}"),
    }
}

fn join(text: &str) -> JoinMessage {
    match parse(text) {
        Ok(ClientMessage::Join(join)) => *join,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn a_join_is_read_with_its_state_unparsed() {
    let join = join(
        r#"{"t":"join","room":"r1","token":"abc","session":"0123456789abcdef","generation":3,
            "status":"away","state":{"a": 1.50,"a":2, "é":"😀"},"watch":false,"client":"web/1","unknown":[{}]}"#,
    );
    assert_eq!(join.room.as_str(), "r1");
    assert_eq!(join.token, Token("abc".into()));
    assert_eq!(join.session.as_str(), "0123456789abcdef");
    assert_eq!(join.generation, Some(Generation(3)));
    assert_eq!(join.profile.status, Status::Away);
    assert_eq!(join.profile.state.as_bytes(), r#"{"a": 1.50,"a":2, "é":"😀"}"#.as_bytes());
    assert_eq!((join.watch, join.client.as_str(), join.since), (false, "web/1", Since::Nowhere));
}

#[test]
fn what_is_absent_or_null_has_its_default() {
    let join = join(
        r#"{"t":"join","room":"r1","token":"abc","session":"0123456789abcdef","status":null,"generation":null,"since":null}"#,
    );
    assert_eq!((join.generation, join.watch, join.profile), (None, true, Profile::default()));
}

#[test]
fn a_state_is_any_json_value_of_at_most_a_kibibyte() {
    let update = |state: &str| parse(&format!(r#"{{"t":"update","room":"r","state":{state}}}"#));
    for state in ["null", "7", "\"x\"", "[1,[2]]", "{\"__proto__\":{}}"] {
        let Ok(ClientMessage::Update { state: Some(read), .. }) = update(state) else { panic!("{state}") };
        assert_eq!(read.as_bytes(), state.as_bytes());
    }
    let long = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
    assert!(update(&long(1024)).is_ok());
    assert!(matches!(update(&long(1025)), Err(Unreadable::Error(ErrorCode::TooLarge, Some(_), _))));
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(update(&deep(64)).is_ok());
    assert!(matches!(update(&deep(65)), Err(Unreadable::Error(ErrorCode::BadRequest, Some(_), _))));
    assert!(update("\"[[\\\"[[\"").is_ok());
    assert!(matches!(update("{1}"), Err(Unreadable::Fatal(CloseCode::Malformed, _))));
}

#[test]
fn what_is_no_object_or_too_long_closes_the_connection() {
    for text in ["", "[]", "7", "\"join\"", "{\"t\":\"ping\"", "{\"t\":\"ping\"}x", "null"] {
        assert!(matches!(parse(text), Err(Unreadable::Fatal(CloseCode::Malformed, _))), "{text}");
    }
    let long = format!(r#"{{"t":"ping","x":"{}"}}"#, "x".repeat(MESSAGE_BYTES_MAX));
    assert!(matches!(parse(&long), Err(Unreadable::Fatal(CloseCode::TooLarge, _))));
}

#[test]
fn a_bad_field_is_told_with_its_room() {
    let bad = [
        r#"{"t":"update","status":"asleep","room":"r"}"#,
        r#"{"t":"update","status":7,"room":"r"}"#,
        r#"{"t":"token","room":"r"}"#,
        r#"{"t":"token","room":"r","token":7}"#,
        r#"{"t":"dance","room":"r"}"#,
        r#"{"room":"r"}"#,
        r#"{"t":7,"room":"r"}"#,
        r#"{"t":"join","room":"r","token":"t","session":"short"}"#,
        r#"{"t":"join","room":"r","token":"t"}"#,
        r#"{"t":"join","room":"r","token":"t","session":"0123456789abcdef","generation":-1}"#,
        r#"{"t":"join","room":"r","token":"t","session":"0123456789abcdef","generation":1.0}"#,
        r#"{"t":"join","room":"r","token":"t","session":"0123456789abcdef","generation":"1"}"#,
        r#"{"t":"join","room":"r","token":"t","session":"0123456789abcdef","generation":9007199254740992}"#,
        r#"{"t":"join","room":"r","token":"t","session":"0123456789abcdef","watch":"yes"}"#,
        r#"{"t":"ping","room":"r","at":[1]}"#,
        r#"{"t":"ping","room":"r","at":{"r":-1}}"#,
        r#"{"t":"ping","room":"r","at":{"":1}}"#,
    ];
    for text in bad {
        let (code, room, _) = refused(text);
        assert_eq!((code, room.as_deref()), (ErrorCode::BadRequest, Some("r")), "{text}");
    }
    for text in [r#"{"t":"leave"}"#, r#"{"t":"leave","room":""}"#, r#"{"t":"leave","room":7}"#] {
        assert_eq!(refused(text).1, None, "{text}");
    }
    let long = format!(r#"{{"t":"leave","room":"{}"}}"#, "x".repeat(256));
    assert_eq!(refused(&long).2, "room has 256 bytes, at most 255 are allowed");
}

#[test]
fn what_other_readers_refuse_is_no_state() {
    let update = |state: &str| format!(r#"{{"t":"update","room":"r","state":{state}}}"#);
    for state in ["1e999", "[-1e309]", r#""\ud800""#, r#"{"\udc00":1}"#, r#""\ud83d\ud83d""#] {
        let (code, room, message) = refused(&update(state));
        assert_eq!((code, room.as_deref()), (ErrorCode::BadRequest, Some("r")), "{state}");
        assert!(message.starts_with("state: "), "{message}");
        let elsewhere = format!(r#"{{"t":"leave","room":"r","unknown":{state}}}"#);
        assert!(
            matches!(parse(&elsewhere), Ok(ClientMessage::Leave { .. })),
            "what is not read is not judged"
        );
    }
    for state in ["1e308", "1e-999", r#""\ud83d\ude00""#, r#"{"\ud83d\ude00":null}"#] {
        assert!(matches!(parse(&update(state)), Ok(ClientMessage::Update { state: Some(_), .. })), "{state}");
    }
}

#[test]
fn blank_names_are_refused() {
    for name in [" ", "\\t", "\\u200b", "\u{3000}"] {
        let (code, room, message) = refused(&format!(r#"{{"t":"leave","room":"{name}"}}"#));
        assert_eq!((code, room), (ErrorCode::BadRequest, None));
        assert!(message.ends_with("must have a character that can be seen"), "{message}");
    }
}

#[test]
fn odd_names_are_names() {
    for name in ["__proto__", "constructor", "\\u0000a", "\\n\\u001b[31m", "\u{202e}مرحبا", &"😀".repeat(63)]
    {
        let text = format!(r#"{{"t":"leave","room":"{name}"}}"#);
        assert!(matches!(parse(&text), Ok(ClientMessage::Leave { .. })), "{name}");
    }
    assert!(matches!(parse(r#"{"t":"leave","__proto__":{"room":"a"},"room":"b"}"#),
        Ok(ClientMessage::Leave { room }) if room.as_str() == "b"));
    assert!(matches!(parse(r#"{"t":"leave","room":"a","room":"b"}"#),
        Ok(ClientMessage::Leave { room }) if room.as_str() == "b"));
    assert!(matches!(parse(r#"{"\u0074":"leave","room":"a"}"#), Ok(ClientMessage::Leave { .. })));
}

#[test]
fn a_ping_may_tell_how_far_the_client_is() {
    let Ok(ClientMessage::Ping { at }) = parse(r#"{"t":"ping","at":{"r1":107,"__proto__":3}}"#) else {
        panic!("not read")
    };
    assert_eq!(at.len(), 2);
    assert_eq!((at[0].0.as_str(), at[0].1), ("r1", ViewRevision(107)));
    let many: Vec<String> = (0..65).map(|n| format!("\"r{n}\":1")).collect();
    assert_eq!(refused(&format!(r#"{{"t":"ping","at":{{{}}}}}"#, many.join(","))).0, ErrorCode::BadRequest);
}

#[test]
fn a_cursor_that_cannot_be_read_is_no_error() {
    let watch = |since: &str| parse(&format!(r#"{{"t":"watch","room":"r","token":"t","since":"{since}"}}"#));
    for since in ["%%%", "AAAA", "x"] {
        assert!(matches!(watch(since), Ok(ClientMessage::Watch { since: Since::Unreadable, .. })), "{since}");
    }
    let cursor = Cursor::new(std::collections::BTreeMap::from([(
        presence_model::id::RegionId::new("eu").unwrap(),
        presence_model::position::Position::default(),
    )]));
    assert!(matches!(watch(&cursor.encode()),
        Ok(ClientMessage::Watch { since: Since::Cursor(read), .. }) if read == cursor));
}

#[test]
fn a_token_is_as_long_as_its_limit_at_most() {
    let messages = |token: &str| {
        [
            format!(r#"{{"t":"join","room":"r","token":"{token}","session":"0123456789abcdef"}}"#),
            format!(r#"{{"t":"watch","room":"r","token":"{token}"}}"#),
            format!(r#"{{"t":"token","room":"r","token":"{token}"}}"#),
        ]
    };
    for length in [TOKEN_BYTES_MAX - 1, TOKEN_BYTES_MAX] {
        for text in messages(&"x".repeat(length)) {
            assert!(parse(&text).is_ok(), "{length}");
        }
    }
    for length in [TOKEN_BYTES_MAX + 1, MESSAGE_BYTES_MAX - 200] {
        for text in messages(&"x".repeat(length)) {
            let told = (ErrorCode::TooLarge, Some("r".to_owned()), "token has at most 4096 bytes".to_owned());
            assert_eq!(refused(&text), told);
        }
    }
}

#[test]
fn a_level_is_one_of_two_or_left_to_the_edge() {
    let watch = |more: &str| parse(&format!(r#"{{"t":"watch","room":"r","token":"t"{more}}}"#));
    for (more, expected) in [
        ("", None),
        (r#","level":null"#, None),
        (r#","level":"members""#, Some(Level::Members)),
        (r#","level":"count""#, Some(Level::Count)),
    ] {
        let Ok(ClientMessage::Watch { level, .. }) = watch(more) else { panic!("{more}") };
        assert_eq!(level, expected);
        let text = format!(r#"{{"t":"join","room":"r","token":"t","session":"0123456789abcdef"{more}}}"#);
        assert_eq!(join(&text).level, expected);
    }
    for more in [r#","level":"all""#, r#","level":1"#] {
        let Err(Unreadable::Error(code, Some(_), message)) = watch(more) else { panic!("{more}") };
        assert_eq!((code, message.as_str()), (ErrorCode::BadRequest, "level: members or count is expected"));
    }
}

#[test]
fn a_release_name_is_as_long_as_its_limit_at_most() {
    use crate::limits::CLIENT_NAME_BYTES_MAX;
    let watch = |length: usize| {
        let client = "c".repeat(length);
        parse(&format!(r#"{{"t":"watch","room":"r","token":"t","client":"{client}"}}"#))
    };
    for length in [0, CLIENT_NAME_BYTES_MAX - 1, CLIENT_NAME_BYTES_MAX] {
        assert!(matches!(watch(length), Ok(ClientMessage::Watch { client, .. }) if client.len() == length));
    }
    assert!(matches!(
        watch(CLIENT_NAME_BYTES_MAX + 1),
        Err(Unreadable::Error(ErrorCode::BadRequest, Some(_), _))
    ));
}
