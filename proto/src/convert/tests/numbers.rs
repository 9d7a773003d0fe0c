//! Each number of the contract that means a time, a span or an attempt has a bound, and the rest is opaque.

use std::collections::BTreeSet;

use presence_model::limits::GENERATION_MAX;
use presence_model::link::{LinkDown, LinkUp};
use presence_model::replica::Freshness;
use presence_model::watch::{WatchDown, WatchUp};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use prost_types::field_descriptor_proto::Type;

use crate::convert::{age, freshness, revoke_request, time};
use crate::error::WireError;
use crate::limits::{REVOKED_FOR_MS_MAX, SPAN_MS_MAX, TIME_MS_MAX};
use crate::v1::{self, join_result, link_request, link_response, watch_request, watch_response};

/// A field, the highest number it takes, and how a message with that number is read.
type Row = (&'static str, u64, fn(u64) -> Result<(), WireError>);

fn up(message: link_request::Message) -> Result<(), WireError> {
    LinkUp::try_from(v1::LinkRequest { message: Some(message) }).map(|_| ())
}

fn down(message: link_response::Message) -> Result<(), WireError> {
    LinkDown::try_from(v1::LinkResponse { message: Some(message) }).map(|_| ())
}

fn told(event: watch_response::Event) -> Result<(), WireError> {
    WatchDown::try_from(v1::WatchResponse { room: "r".into(), event: Some(event) }).map(|_| ())
}

fn welcome(set: fn(&mut v1::Welcome, u64), number: u64) -> Result<(), WireError> {
    let mut welcome = v1::Welcome {
        heartbeat_ms: 1,
        lease_ttl_ms: 1,
        grace_ms: 1,
        link_beat_ms: 1,
        edge_lost_ms: 1,
        ..v1::Welcome::default()
    };
    set(&mut welcome, number);
    down(link_response::Message::Welcome(welcome))
}

fn joined(outcome: join_result::Outcome) -> Result<(), WireError> {
    down(link_response::Message::Join(v1::JoinResult { request: 1, outcome: Some(outcome) }))
}

fn granted(set: fn(&mut v1::Granted, u64), number: u64) -> Result<(), WireError> {
    let mut granted = v1::Granted::default();
    set(&mut granted, number);
    joined(join_result::Outcome::Granted(granted))
}

fn refused(code: v1::RefusalCode, set: fn(&mut v1::Refused, u64), number: u64) -> Result<(), WireError> {
    let mut refused = v1::Refused { code: code.into(), ..v1::Refused::default() };
    set(&mut refused, number);
    joined(join_result::Outcome::Refused(refused))
}

fn unanswered(generation: u64) -> Result<(), WireError> {
    let join = v1::UnansweredJoin {
        room: "r".into(),
        user: "ann".into(),
        session: "0123456789abcdef".into(),
        generation: Some(generation),
        connection: 1,
        request: 1,
    };
    up(link_request::Message::Release(v1::Release { unanswered: vec![join], ..v1::Release::default() }))
}

fn delta(upserts: Vec<v1::Member>, removals: Vec<v1::Removal>) -> Result<(), WireError> {
    told(watch_response::Event::Delta(v1::Delta {
        region: "here".into(),
        epoch: Some(v1::Epoch::default()),
        upserts,
        removals,
        ..v1::Delta::default()
    }))
}

fn member(since_ms: u64) -> Result<(), WireError> {
    delta(vec![v1::Member { user: "ann".into(), since_ms, ..v1::Member::default() }], Vec::new())
}

fn removal(silent_for_ms: u64) -> Result<(), WireError> {
    let reason = v1::RemovalReason::Left.into();
    delta(Vec::new(), vec![v1::Removal { user: "ann".into(), reason, silent_for_ms }])
}

fn held(since_ms: u64) -> Result<(), WireError> {
    let wire = v1::Freshness { state: v1::freshness::State::Held.into(), since_ms };
    freshness("f", Some(wire)).map(|fresh| assert!(matches!(fresh, Freshness::Held { .. })))
}

fn min_interval(min_interval_ms: u64) -> Result<(), WireError> {
    let level = v1::WatchLevel::Members.into();
    let open = v1::OpenRoom { room: "r".into(), level, min_interval_ms, ..v1::OpenRoom::default() };
    WatchUp::try_from(v1::WatchRequest { message: Some(watch_request::Message::Open(Box::new(open))) })
        .map(|_| ())
}

fn of_user() -> v1::Revocation {
    v1::Revocation { what: Some(v1::revocation::What::Subject("ann".into())) }
}

const BOUNDED: &[Row] = &[
    ("Welcome.heartbeat_ms", SPAN_MS_MAX, |n| welcome(|w, n| w.heartbeat_ms = n, n)),
    ("Welcome.heartbeat_min_ms", SPAN_MS_MAX, |n| welcome(|w, n| w.heartbeat_min_ms = n, n)),
    ("Welcome.lease_ttl_ms", SPAN_MS_MAX, |n| welcome(|w, n| w.lease_ttl_ms = n, n)),
    ("Welcome.grace_ms", SPAN_MS_MAX, |n| welcome(|w, n| w.grace_ms = n, n)),
    ("Welcome.link_beat_ms", SPAN_MS_MAX, |n| welcome(|w, n| w.link_beat_ms = n, n)),
    ("Welcome.edge_lost_ms", SPAN_MS_MAX, |n| welcome(|w, n| w.edge_lost_ms = n, n)),
    ("Welcome.store_time_ms", TIME_MS_MAX, |n| welcome(|w, n| w.store_time_ms = n, n)),
    ("CoreBeat.store_time_ms", TIME_MS_MAX, |store_time_ms| {
        down(link_response::Message::Beat(v1::CoreBeat { store_time_ms, ..v1::CoreBeat::default() }))
    }),
    ("Granted.generation", GENERATION_MAX, |n| granted(|g, n| g.generation = n, n)),
    ("Granted.since_ms", TIME_MS_MAX, |n| granted(|g, n| g.since_ms = n, n)),
    ("Granted.heartbeat_ms", SPAN_MS_MAX, |n| granted(|g, n| g.heartbeat_ms = n, n)),
    ("Granted.grace_ms", SPAN_MS_MAX, |n| granted(|g, n| g.grace_ms = n, n)),
    ("Granted.token_ends_ms", TIME_MS_MAX, |n| granted(|g, n| g.token_ends_ms = n, n)),
    ("Refused.stored_generation", GENERATION_MAX, |n| {
        refused(v1::RefusalCode::StaleGeneration, |r, n| r.stored_generation = n, n)
    }),
    ("Refused.given_generation", GENERATION_MAX, |n| {
        refused(v1::RefusalCode::StaleGeneration, |r, n| r.given_generation = n, n)
    }),
    ("Refused.retry_after_ms", SPAN_MS_MAX, |n| {
        refused(v1::RefusalCode::Unavailable, |r, n| r.retry_after_ms = n, n)
    }),
    ("UnansweredJoin.generation", GENERATION_MAX, unanswered),
    ("Done.token_ends_ms", TIME_MS_MAX, |token_ends_ms| {
        down(link_response::Message::Done(v1::Done { token_ends_ms, ..v1::Done::default() }))
    }),
    ("RenewAll.renew_within_ms", SPAN_MS_MAX, |renew_within_ms| {
        down(link_response::Message::RenewAll(v1::RenewAll { renew_within_ms }))
    }),
    ("RevokedUntil.until_ms", TIME_MS_MAX, |until_ms| {
        let one = v1::RevokedUntil { what: Some(of_user()), until_ms };
        down(link_response::Message::Revoked(v1::Revoked { revocations: vec![one] }))
    }),
    ("RevokeRequest.for_ms", REVOKED_FOR_MS_MAX, |for_ms| {
        revoke_request(v1::RevokeRequest { what: Some(of_user()), for_ms }).map(|_| ())
    }),
    // Read by `presence revoke` with the function that is called here.
    ("RevokeResponse.until_ms", TIME_MS_MAX, |n| time("RevokeResponse.until_ms", n).map(|_| ())),
    ("Member.since_ms", TIME_MS_MAX, member),
    ("Removal.silent_for_ms", TIME_MS_MAX, removal),
    ("Freshness.since_ms", TIME_MS_MAX, held),
    ("OpenRoom.min_interval_ms", SPAN_MS_MAX, min_interval),
    ("Progress.store_time_ms", TIME_MS_MAX, |store_time_ms| {
        told(watch_response::Event::Progress(v1::Progress { sequence: 1, store_time_ms }))
    }),
    // Read by `presence explain` with the functions that are called here.
    ("ExplainResponse.store_time_ms", TIME_MS_MAX, |n| time("ExplainResponse.store_time_ms", n).map(|_| ())),
    ("SessionDetail.deadline_ms", TIME_MS_MAX, |n| time("SessionDetail.deadline_ms", n).map(|_| ())),
    ("SessionDetail.heartbeat_age_ms", TIME_MS_MAX, |n| age("SessionDetail.heartbeat_age_ms", n).map(|_| ())),
    ("SessionDetail.joined_ms", TIME_MS_MAX, |n| time("SessionDetail.joined_ms", n).map(|_| ())),
    ("SessionDetail.token_ends_ms", TIME_MS_MAX, |n| time("SessionDetail.token_ends_ms", n).map(|_| ())),
    ("EndedSession.ended_ms", TIME_MS_MAX, |n| time("EndedSession.ended_ms", n).map(|_| ())),
    ("EndedSession.silent_for_ms", TIME_MS_MAX, |n| age("EndedSession.silent_for_ms", n).map(|_| ())),
];

/// Taken whatever they are, and brought into bounds by whoever reads them: what a client says in a join is
/// refused or not believed for that join alone; a hint ends with the ttl; a pause is an hour at most.
const JUDGED_LATER: &[&str] =
    &["Join.generation", "Join.rejoin_since_ms", "Release.hint_ms", "RoomError.retry_after_ms"];

/// Compared and given back, never calculated with: ids, counters, digests, positions. A position is a
/// watcher's word and never more than a question.
const OPAQUE: &[&str] = &[
    "CoreBeat.sequence",
    "Count.members",
    "CountRoomResponse.count",
    "Delta.digest",
    "Delta.from",
    "Delta.to",
    "Done.request",
    "DrainEdgeRequest.incarnation",
    "EdgeBeat.sequence",
    "EdgeDrain.incarnation",
    "EdgeDrain.sessions",
    "EndLease.lease",
    "EndedSession.generation",
    "Epoch.minted_ms",
    "Epoch.random",
    "EvictResponse.sessions",
    "GetRoomResponse.count",
    "Foreign.leases",
    "Granted.lease",
    "Hello.incarnation",
    "Hello.link_number",
    "Join.connection",
    "Join.request",
    "JoinResult.request",
    "Leave.lease",
    "Leave.request",
    "Position.revision",
    "Progress.sequence",
    "Release.leases",
    "Release.request",
    "Renew.batch",
    "Renew.leases",
    "RenewResult.batch",
    "RenewResult.unknown",
    "RoomCount.count",
    "SessionDetail.connection",
    "SessionDetail.edge_incarnation",
    "SessionDetail.generation",
    "Snapshot.digest",
    "UnansweredJoin.connection",
    "UnansweredJoin.request",
    "Update.lease",
    "Update.request",
];

/// Sizes of pages: bounded where they are asked for.
const SIZES: &[&str] = &["GetRoomRequest.page_size", "ListRoomsRequest.page_size"];

#[test]
fn every_number_is_taken_up_to_its_bound_and_refused_by_name_above() {
    for (field, most, read) in BOUNDED {
        assert_eq!(read(*most), Ok(()), "{field} at its bound");
        assert_eq!(read(*most - 1), Ok(()), "{field} below its bound");
        for above in [*most + 1, u64::MAX] {
            let refused = read(above).expect_err(field).to_string();
            assert!(refused.starts_with(field), "{field} = {above}: {refused}");
        }
    }
}

#[test]
fn every_number_of_the_contract_has_its_row() {
    let files = FileDescriptorSet::decode(crate::FILE_DESCRIPTOR_SET).unwrap();
    let mut numbers = BTreeSet::new();
    for message in files.file.iter().filter(|f| f.package() == "presence.v1").flat_map(|f| &f.message_type) {
        let is_number = |kind: Type| {
            matches!(
                kind,
                Type::Uint64
                    | Type::Fixed64
                    | Type::Int64
                    | Type::Sint64
                    | Type::Sfixed64
                    | Type::Uint32
                    | Type::Fixed32
                    | Type::Int32
                    | Type::Sint32
                    | Type::Sfixed32
                    | Type::Double
                    | Type::Float
            )
        };
        let fields = message.field.iter().filter(|field| is_number(field.r#type()));
        numbers.extend(fields.map(|field| format!("{}.{}", message.name(), field.name())));
    }
    let rows = BOUNDED.iter().map(|(field, ..)| *field).chain(JUDGED_LATER.iter().copied());
    let rows: Vec<&str> = rows.chain(OPAQUE.iter().copied()).chain(SIZES.iter().copied()).collect();
    let known: BTreeSet<String> = rows.iter().map(|field| (*field).to_owned()).collect();
    assert_eq!(known.len(), rows.len(), "a field has two rows");
    assert_eq!(numbers, known);
}
