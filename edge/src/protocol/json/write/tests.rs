use std::time::Duration;

use presence_model::class::RoomTimings;
use presence_model::id::{ConnectionId, Generation, RegionId, SessionId};
use presence_model::profile::{State, Status};
use presence_model::reason::RemovalReason;
use presence_model::time::StoreTime;
use serde_json::{Value, json};

use super::*;
use crate::protocol::ErrorCode;

fn room(name: &str) -> RoomId {
    RoomId::new(name).unwrap()
}

fn user(name: &str, state: &str) -> Member {
    Member {
        user: UserId::new(name).unwrap(),
        status: Status::Busy,
        state: State::new(Bytes::copy_from_slice(state.as_bytes())).unwrap(),
        since: StoreTime(1_790_000_000_000),
    }
}

fn read(payload: &Payload) -> Value {
    serde_json::from_slice(payload).unwrap()
}

#[test]
fn each_message_has_the_form_of_the_protocol() {
    let r1 = room("r1");
    let told = |m: ServerMessage| read(&message(&m));
    assert_eq!(
        told(ServerMessage::Joined {
            room: r1.clone(),
            session: SessionId::new("8f1c8f1c8f1c8f1c").unwrap(),
            generation: Generation(3),
            since: StoreTime(1_790_000_000_000),
            resumed: true,
            timings: RoomTimings {
                heartbeat: Duration::from_secs(1),
                lease_ttl: Duration::from_secs(3),
                grace: Duration::from_secs(1),
            },
        }),
        json!({"t":"joined","room":"r1","session":"8f1c8f1c8f1c8f1c","generation":3,"since":1_790_000_000_000u64,"resumed":true,"heartbeat_ms":1_000,"reconnect_ms":500})
    );
    assert_eq!(
        told(ServerMessage::TokenExpiring { room: r1.clone(), within: Duration::from_secs(30) }),
        json!({"t":"token_expiring","room":"r1","in_ms":30_000})
    );
    assert_eq!(
        told(ServerMessage::Ended { room: r1.clone(), reason: RemovalReason::Superseded }),
        json!({"t":"ended","room":"r1","reason":"superseded"})
    );
    assert_eq!(
        told(ServerMessage::Reconnect { after: Duration::from_millis(8_123), reason: "drain" }),
        json!({"t":"reconnect","after_ms":8_123,"reason":"drain"})
    );
    assert_eq!(told(ServerMessage::Pong), json!({"t":"pong"}));
    let region = RegionId::new("us-east").unwrap();
    let freshness =
        |freshness| told(ServerMessage::Freshness { room: r1.clone(), region: region.clone(), freshness });
    assert_eq!(
        freshness(Freshness::Stale { since: StoreTime(7) }),
        json!({"t":"freshness","room":"r1","region":"us-east","state":"stale","since":7})
    );
    assert_eq!(
        freshness(Freshness::Live),
        json!({"t":"freshness","room":"r1","region":"us-east","state":"live"})
    );
}

#[test]
fn hello_names_the_connection_and_the_limits() {
    let hello = read(&message(&ServerMessage::Hello {
        connection: ConnectionId(255),
        heartbeat: Duration::from_secs(15),
        reconnect: Duration::from_secs(5),
        list_members: 5_000,
    }));
    assert_eq!(hello["connection"], "00000000000000ff");
    assert_eq!((&hello["heartbeat_ms"], &hello["reconnect_ms"]), (&json!(15_000), &json!(5_000)));
    assert_eq!(
        hello["limits"],
        json!({
            "message_bytes": 16_384, "token_bytes": 4_096, "state_bytes": 1_024, "name_bytes": 255,
            "session_chars": [16, 64], "rooms": 64, "list_members": 5_000,
        })
    );
}

/// The pages that tell a limit have its name and its value in one row.
#[test]
fn the_pages_tell_the_limits_as_they_are() {
    use crate::limits::*;
    use presence_model::limits::*;
    let pages =
        [include_str!("../../../../../docs/protocol.md"), include_str!("../../../../../docs/semantics.md")];
    let of_protocol: [(&str, u64); 16] = [
        ("MESSAGE_BYTES_MAX", MESSAGE_BYTES_MAX as u64),
        ("TOKEN_BYTES_MAX", TOKEN_BYTES_MAX as u64),
        ("STATE_BYTES_MAX", STATE_BYTES_MAX as u64),
        ("STATE_DEPTH_MAX", STATE_DEPTH_MAX as u64),
        ("NAME_BYTES_MAX", NAME_BYTES_MAX as u64),
        ("SESSION_CHARS_MIN", SESSION_CHARS_MIN as u64),
        ("SESSION_CHARS_MAX", SESSION_CHARS_MAX as u64),
        ("GENERATION_MAX", GENERATION_MAX),
        ("CLIENT_NAME_BYTES_MAX", CLIENT_NAME_BYTES_MAX as u64),
        ("ROOMS_PER_CONNECTION_MAX", ROOMS_PER_CONNECTION_MAX as u64),
        ("SESSIONS_PER_MEMBER_MAX", SESSIONS_PER_MEMBER_MAX as u64),
        ("LIST_MEMBERS_DEFAULT", LIST_MEMBERS_DEFAULT.into()),
        ("SNAPSHOT_PAGE_BYTES_MAX", SNAPSHOT_PAGE_BYTES_MAX as u64),
        ("FIRST_MESSAGE_WITHIN", FIRST_MESSAGE_WITHIN.as_secs()),
        ("OUTBOX_FRAMES_MAX", OUTBOX_FRAMES_MAX as u64),
        ("WRITE_WITHIN", WRITE_WITHIN.as_secs()),
    ];
    let of_semantics: [(&str, u64); 5] = [
        ("NAME_BYTES_MAX", NAME_BYTES_MAX as u64),
        ("HISTORY_CHANGES_MAX", HISTORY_CHANGES_MAX as u64),
        ("TOMBSTONES_PER_ROSTER_MAX", TOMBSTONES_PER_ROSTER_MAX as u64),
        ("CURSOR_REGIONS_MAX", CURSOR_REGIONS_MAX as u64),
        ("LIST_MEMBERS_DEFAULT", LIST_MEMBERS_DEFAULT.into()),
    ];
    for (page, limits) in pages.into_iter().zip([&of_protocol[..], &of_semantics[..]]) {
        for (name, value) in limits {
            let row = page.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{name}`")));
            let told = row.unwrap_or_else(|| panic!("{name} is told nowhere"));
            let numbers = told.split(|c: char| !c.is_ascii_digit());
            assert!(
                numbers.into_iter().any(|number| number == value.to_string()),
                "{name} is {value}: {told}"
            );
        }
    }
    let rates = [
        ("JOIN_RATE", JOIN_RATE),
        ("TALK_RATE", TALK_RATE),
        ("FRAME_RATE", FRAME_RATE),
        ("FLOOD_RATE", FLOOD_RATE),
    ];
    for (name, rate) in rates {
        let told = format!("{} at once, then {} a second", rate.burst, 1_000 / rate.interval.as_millis());
        assert!(pages[0].contains(&format!("{told} | | `{name}`")), "{name}: {told}");
    }
}

#[test]
fn an_error_tells_only_what_there_is() {
    let error = |room, retry_after, generation| {
        read(&message(&ServerMessage::Error {
            room,
            code: ErrorCode::RateLimited,
            retry_after,
            message: "too \"fast\"\u{1}".to_owned(),
            generation,
        }))
    };
    assert_eq!(
        error(Some(room("__proto__\n")), Some(Duration::from_millis(500)), Some(Generation(4))),
        json!({"t":"error","room":"__proto__\n","code":"rate_limited","retry_after_ms":500,"generation":4,"message":"too \"fast\"\u{1}"})
    );
    assert_eq!(
        error(None, None, None),
        json!({"t":"error","code":"rate_limited","message":"too \"fast\"\u{1}"})
    );
}

#[test]
fn a_delta_splices_states_and_tells_reason_and_silence() {
    let mut shown = ViewDelta {
        from: Some(ViewRevision(104)),
        to: ViewRevision(107),
        cursor: Cursor::default(),
        upserts: vec![user("u\"7\u{0}", "{\"x\": 1.50}"), user("__proto__", "null")],
        removals: vec![Removal::new(
            UserId::new("u9").unwrap(),
            RemovalReason::LeaseExpired,
            Duration::from_secs(45),
        )],
    };
    let payload = delta(&room("r1"), &shown);
    assert!(payload.windows(11).any(|w| w == b"{\"x\": 1.50}"), "the state is spliced as it came");
    let mut told = read(&payload);
    assert_eq!(told["cursor"].take(), json!(Cursor::default().encode()));
    assert_eq!(
        told,
        json!({"t":"delta","room":"r1","prev":104,"rev":107,"cursor":null,
            "upserts":[{"user":"u\"7\u{0}","status":"busy","state":{"x":1.5},"since":1_790_000_000_000u64},
                       {"user":"__proto__","status":"busy","state":null,"since":1_790_000_000_000u64}],
            "removals":[{"user":"u9","reason":"lease_expired","silent_ms":45_000}]})
    );
    shown.from = None;
    let resumed = read(&delta(&room("r1"), &shown));
    assert!(resumed.as_object().unwrap().contains_key("prev") && resumed["prev"].is_null());
}

#[test]
fn pages_are_full_and_never_above_their_bound() {
    let state = format!("\"{}\"", "x".repeat(1022));
    let members: Vec<Member> = (0..200).map(|n| user(&format!("u{n:03}"), &state)).collect();
    let (mut told, mut pages, mut next) = (Vec::new(), 0, members.iter().peekable());
    while next.peek().is_some() {
        let mut page = SnapshotWriter::new(&room("r1"), ViewRevision(9), &Cursor::default());
        while next.peek().is_some_and(|member| page.push(member)) {
            next.next();
        }
        let (payload, last) = page.end(next.peek().is_some());
        assert!(payload.len() <= SNAPSHOT_PAGE_BYTES_MAX);
        let page = read(&payload);
        assert_eq!((&page["rev"], &page["more"]), (&json!(9), &json!(next.peek().is_some())));
        let users = page["members"].as_array().unwrap();
        assert!(users.len() >= 50 || next.peek().is_none(), "pages are full");
        assert_eq!(users.last().unwrap()["user"], last.unwrap().as_str());
        told.extend(users.iter().map(|m| m["user"].as_str().unwrap().to_owned()));
        pages += 1;
    }
    assert_eq!(pages, 4);
    assert_eq!(told, members.iter().map(|m| m.user.as_str().to_owned()).collect::<Vec<_>>());
    let (empty, last) = SnapshotWriter::new(&room("r1"), ViewRevision(9), &Cursor::default()).end(false);
    assert_eq!((&read(&empty)["members"], last), (&json!([]), None));
}

#[test]
fn a_count_is_a_number_and_some_names() {
    assert_eq!(
        read(&count(&room("r9"), ViewRevision(88), 51_234, &Sample::default())),
        json!({"t":"count","room":"r9","rev":88,"count":51_234,"joined":[],"left":[]})
    );
}
