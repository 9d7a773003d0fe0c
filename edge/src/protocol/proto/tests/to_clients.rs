//! What clients are told is the same in both encodings.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use presence_model::change::Removal;
use presence_model::class::RoomTimings;
use presence_model::cursor::Cursor;
use presence_model::id::{ConnectionId, Generation, RegionId, RoomId, SessionId, UserId};
use presence_model::limits::SNAPSHOT_PAGE_BYTES_MAX;
use presence_model::position::{Epoch, Position, Revision};
use presence_model::profile::{Member, State, Status};
use presence_model::reason::RemovalReason;
use presence_model::replica::Freshness;
use presence_model::time::StoreTime;
use presence_model::view::{Sample, ViewDelta, ViewRevision};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use super::mirror;
use crate::protocol::{Encoding, ErrorCode, Payload, ServerMessage};

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,12}", "\\PC{0,20}[a-z]", Just("__proto__".to_owned()), Just("é".repeat(127))]
}

fn room() -> impl Strategy<Value = RoomId> {
    name().prop_map(|name| RoomId::new(name).unwrap())
}

fn user() -> impl Strategy<Value = UserId> {
    name().prop_map(|name| UserId::new(name).unwrap())
}

fn region() -> impl Strategy<Value = RegionId> {
    name().prop_map(|name| RegionId::new(name).unwrap())
}

fn span() -> impl Strategy<Value = Duration> {
    (0u64..4_000_000).prop_map(Duration::from_millis)
}

fn time() -> impl Strategy<Value = StoreTime> {
    (0u64..253_402_300_799_999).prop_map(StoreTime)
}

fn reason() -> impl Strategy<Value = RemovalReason> {
    prop::sample::select(RemovalReason::ALL.to_vec())
}

prop_compose! {
    fn member()(
        user in user(),
        status in prop::sample::select(vec![Status::Available, Status::Away, Status::Busy]),
        state in prop::sample::select(vec!["", "{}", "null", "{\"a\":[1,\"é\\n\"]}", "1.5"]),
        since in time(),
    ) -> Member {
        Member { user, status, state: State::new(Bytes::from_static(state.as_bytes())).unwrap(), since }
    }
}

prop_compose! {
    fn removal()(user in user(), reason in reason(), silent in span()) -> Removal {
        Removal::new(user, reason, silent)
    }
}

prop_compose! {
    fn cursor()(
        positions in prop::collection::btree_map(region(), (any::<u64>(), any::<u64>(), any::<u64>()), 0..3),
    ) -> Cursor {
        let position = |(minted_ms, random, revision)| Position {
            epoch: Epoch { minted_ms, random },
            revision: Revision(revision),
        };
        Cursor::new(positions.into_iter().map(|(region, at)| (region, position(at))).collect())
    }
}

prop_compose! {
    fn delta()(
        from in option::of(any::<u64>()),
        to in any::<u64>(),
        cursor in cursor(),
        upserts in vec(member(), 0..4),
        removals in vec(removal(), 0..4),
    ) -> ViewDelta {
        ViewDelta { from: from.map(ViewRevision), to: ViewRevision(to), cursor, upserts, removals }
    }
}

fn error_code() -> impl Strategy<Value = ErrorCode> {
    prop::sample::select(vec![
        ErrorCode::BadRequest,
        ErrorCode::Unauthorized,
        ErrorCode::Forbidden,
        ErrorCode::StaleGeneration,
        ErrorCode::TooManySessions,
        ErrorCode::TooManyRooms,
        ErrorCode::TooLarge,
        ErrorCode::RateLimited,
        ErrorCode::Unavailable,
        ErrorCode::NotJoined,
    ])
}

fn freshness() -> impl Strategy<Value = Freshness> {
    prop_oneof![
        Just(Freshness::Live),
        time().prop_map(|since| Freshness::Held { since }),
        time().prop_map(|since| Freshness::Stale { since }),
    ]
}

fn message() -> impl Strategy<Value = ServerMessage> {
    let timings = (1u64..60_000).prop_map(|ms| RoomTimings {
        heartbeat: Duration::from_millis(ms),
        lease_ttl: Duration::from_millis(3 * ms),
        grace: Duration::from_millis(ms),
    });
    let joined = (room(), "[a-f0-9]{16,64}", any::<u64>(), time(), any::<bool>(), timings);
    let error =
        (option::of(room()), error_code(), option::of(span()), "\\PC{0,30}", option::of(any::<u64>()));
    prop_oneof![
        (any::<u64>(), span(), span(), 1usize..1_000_000).prop_map(
            |(connection, heartbeat, reconnect, list_members)| ServerMessage::Hello {
                connection: ConnectionId(connection),
                heartbeat,
                reconnect,
                list_members,
            }
        ),
        joined.prop_map(|(room, session, generation, since, resumed, timings)| ServerMessage::Joined {
            room,
            session: SessionId::new(session).unwrap(),
            generation: Generation(generation),
            since,
            resumed,
            timings,
        }),
        (room(), region(), freshness()).prop_map(|(room, region, freshness)| ServerMessage::Freshness {
            room,
            region,
            freshness
        }),
        (room(), span()).prop_map(|(room, within)| ServerMessage::TokenExpiring { room, within }),
        (room(), reason()).prop_map(|(room, reason)| ServerMessage::Ended { room, reason }),
        span().prop_map(|after| ServerMessage::Reconnect { after, reason: "drain" }),
        error.prop_map(|(room, code, retry_after, message, generation)| ServerMessage::Error {
            room,
            code,
            retry_after,
            message,
            generation: generation.map(Generation),
        }),
        Just(ServerMessage::Pong),
    ]
}

fn text(payload: &Payload) -> Value {
    serde_json::from_slice(payload).unwrap()
}

proptest! {
    #[test]
    fn messages_are_the_same_in_both_encodings(message in message()) {
        let proto = Encoding::Proto.message(&message);
        prop_assert_eq!(mirror::as_json(&proto), text(&Encoding::Json.message(&message)));
    }

    #[test]
    fn deltas_are_the_same_in_both_encodings(room in room(), delta in delta()) {
        let proto = Encoding::Proto.delta(&room, &delta);
        prop_assert_eq!(mirror::as_json(&proto), text(&Encoding::Json.delta(&room, &delta)));
    }

    #[test]
    fn numbers_are_the_same_in_both_encodings(
        (room, revision, count) in (room(), any::<u64>(), any::<u32>()),
        (joined, left) in (vec(member(), 0..4), vec(removal(), 0..4)),
    ) {
        let (revision, sample) = (ViewRevision(revision), Sample { joined, left });
        let said = |encoding: Encoding| encoding.count(&room, revision, count as usize, &sample);
        prop_assert_eq!(mirror::as_json(&said(Encoding::Proto)), text(&said(Encoding::Json)));
    }

    #[test]
    fn pages_are_the_same_in_both_encodings(
        (room, revision, cursor) in (room(), any::<u64>(), cursor()),
        (members, more) in (vec(member(), 0..6), any::<bool>()),
    ) {
        let said = |encoding: Encoding| {
            let mut page = encoding.snapshot(&room, ViewRevision(revision), &cursor);
            members.iter().for_each(|member| assert!(page.push(member), "six have room"));
            page.end(more)
        };
        let ((proto, last), (json, same)) = (said(Encoding::Proto), said(Encoding::Json));
        prop_assert_eq!(last, same);
        prop_assert_eq!(mirror::as_json(&proto), text(&json));
    }
}

#[test]
fn a_page_is_as_long_as_its_limit_at_most() {
    let room = RoomId::new("r").unwrap();
    let member = |number: usize, bytes: usize| Member {
        user: UserId::new(format!("user-{number:05}")).unwrap(),
        status: Status::Busy,
        state: State::new(Bytes::from(format!("\"{}\"", "x".repeat(bytes - 2)))).unwrap(),
        since: StoreTime(1_790_000_000_000),
    };
    for bytes in [2, 90, 100, 110, 999, 1_000, 1_024] {
        let mut page = Encoding::Proto.snapshot(&room, ViewRevision(u64::MAX), &Cursor::new(BTreeMap::new()));
        let taken = (0..).take_while(|number| page.push(&member(*number, bytes))).count();
        let (payload, last) = page.end(true);
        assert_eq!(last.unwrap().as_str(), format!("user-{:05}", taken - 1));
        let next = bytes + 40;
        let length = payload.len();
        assert!(length <= SNAPSHOT_PAGE_BYTES_MAX, "{bytes}: {length} bytes");
        assert!(length + next > SNAPSHOT_PAGE_BYTES_MAX, "{bytes}: {length} bytes, one more had room");
    }
}
