//! Arbitrary values of the model.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use presence_model::change::Removal;
use presence_model::class::RoomTimings;
use presence_model::cursor::{Cursor, Entry};
use presence_model::delta::Delta;
use presence_model::digest::Digest;
use presence_model::id::{
    ConnectionId, EdgeName, Generation, Incarnation, LinkNumber, RegionId, RoomId, SessionId, UserId,
};
use presence_model::lease::LeaseId;
use presence_model::limits::GENERATION_MAX;
use presence_model::link::{
    BatchId, GrantDown, Hello, JoinUp, LinkDown, LinkRefusal, LinkUp, RequestId, Token, UnansweredJoin,
    Welcome,
};
use presence_model::position::{Epoch, Position, Revision};
use presence_model::profile::{Member, Profile, State, Status};
use presence_model::reason::{LeaveReason, ReleaseReason, RemovalReason};
use presence_model::refusal::Refusal;
use presence_model::replica::{Freshness, SnapshotPage};
use presence_model::revocation::Revocation;
use presence_model::time::StoreTime;
use presence_model::view::RegionEvent;
use presence_model::watch::{Level, OpenRoom, WatchDown, WatchRefusal, WatchUp};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use smol_str::SmolStr;

use crate::limits::{SPAN_MS_MAX, TIME_MS_MAX};

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,12}", "\\PC{0,59}[a-z]", Just("__proto__".to_owned()), Just("é".repeat(127))]
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

fn session() -> impl Strategy<Value = SessionId> {
    "[!-~]{16,64}".prop_map(|id| SessionId::new(id).unwrap())
}

fn label() -> impl Strategy<Value = SmolStr> {
    "[a-z0-9./]{0,40}".prop_map(SmolStr::from)
}

fn ms() -> impl Strategy<Value = Duration> {
    (0..=SPAN_MS_MAX).prop_map(Duration::from_millis)
}

fn span() -> impl Strategy<Value = Duration> {
    (1..=SPAN_MS_MAX).prop_map(Duration::from_millis)
}

fn time() -> impl Strategy<Value = StoreTime> {
    (0..=TIME_MS_MAX).prop_map(StoreTime)
}

fn lease() -> impl Strategy<Value = LeaseId> {
    any::<u64>().prop_map(|id| LeaseId(id).plain_name())
}

fn request() -> impl Strategy<Value = RequestId> {
    any::<u64>().prop_map(RequestId)
}

fn generation() -> impl Strategy<Value = Generation> {
    (0..=GENERATION_MAX).prop_map(Generation)
}

fn connection() -> impl Strategy<Value = ConnectionId> {
    any::<u64>().prop_map(ConnectionId)
}

fn status() -> impl Strategy<Value = Status> {
    prop_oneof![Just(Status::Away), Just(Status::Available), Just(Status::Busy)]
}

fn state() -> impl Strategy<Value = State> {
    vec(any::<u8>(), 1..=1024).prop_map(|json| State::new(Bytes::from(json)).unwrap())
}

fn token() -> impl Strategy<Value = Token> {
    "[A-Za-z0-9._-]{1,300}".prop_map(|token| Token(token.into()))
}

fn removal_reason() -> impl Strategy<Value = RemovalReason> {
    proptest::sample::select(RemovalReason::ALL.to_vec())
}

fn epoch() -> impl Strategy<Value = Epoch> {
    (any::<u64>(), any::<u64>()).prop_map(|(minted_ms, random)| Epoch { minted_ms, random })
}

fn position() -> impl Strategy<Value = Position> {
    (epoch(), any::<u64>()).prop_map(|(epoch, revision)| Position { epoch, revision: Revision(revision) })
}

fn cursor() -> impl Strategy<Value = Cursor> {
    let entry = prop_oneof![position().prop_map(Entry::Equal), position().prop_map(Entry::Seen)];
    btree_map(region(), entry, 0..5).prop_map(Cursor::from_iter)
}

fn freshness() -> impl Strategy<Value = Freshness> {
    prop_oneof![
        Just(Freshness::Live),
        time().prop_map(|since| Freshness::Held { since }),
        time().prop_map(|since| Freshness::Stale { since }),
    ]
}

fn members() -> impl Strategy<Value = BTreeMap<UserId, Member>> {
    btree_map(user(), (status(), state(), time()), 0..6).prop_map(|members| {
        let member = |(user, (status, state, since)): (UserId, (Status, State, StoreTime))| {
            (user.clone(), Member { user, status, state, since })
        };
        members.into_iter().map(member).collect()
    })
}

fn delta() -> impl Strategy<Value = Delta> {
    let gone = btree_map(user(), (removal_reason(), ms()), 0..6);
    (epoch(), any::<[u64; 2]>(), members(), gone, any::<u64>()).prop_map(
        |(epoch, mut revisions, upserts, gone, digest)| {
            revisions.sort_unstable();
            let removals = gone
                .into_iter()
                .filter(|(user, _)| !upserts.contains_key(user))
                .map(|(user, (reason, silent_for))| Removal::new(user, reason, silent_for))
                .collect();
            Delta {
                epoch,
                from: Revision(revisions[0]),
                to: Revision(revisions[1]),
                upserts: upserts.into_values().collect(),
                removals,
                digest: Digest(digest),
            }
        },
    )
}

fn page() -> impl Strategy<Value = SnapshotPage> {
    (position(), freshness(), members(), any::<bool>(), option::of(any::<u64>())).prop_map(
        |(position, freshness, members, first, last)| SnapshotPage {
            position,
            freshness,
            members: members.into_values().collect(),
            first,
            last: last.map(Digest),
        },
    )
}

pub(super) fn watch_down() -> impl Strategy<Value = WatchDown> {
    let event = prop_oneof![
        page().prop_map(RegionEvent::Page),
        delta().prop_map(RegionEvent::Delta),
        freshness().prop_map(RegionEvent::Freshness),
        Just(RegionEvent::Lost),
    ];
    let refusal = prop_oneof![
        "[a-z. ]{0,20}".prop_map(|what| WatchRefusal::BadRequest(what.into())),
        Just(WatchRefusal::UnknownRegion),
        Just(WatchRefusal::Forbidden),
        Just(WatchRefusal::TooManyRooms),
        ms().prop_map(|retry_after| WatchRefusal::RateLimited { retry_after }),
        ms().prop_map(|retry_after| WatchRefusal::Unavailable { retry_after }),
    ];
    prop_oneof![
        (room(), region(), event).prop_map(|(room, region, event)| WatchDown::Region { room, region, event }),
        (room(), any::<u64>()).prop_map(|(room, members)| WatchDown::Count { room, members }),
        (room(), refusal).prop_map(|(room, refusal)| WatchDown::Refused { room, refusal }),
        (any::<u64>(), time())
            .prop_map(|(sequence, store_time)| WatchDown::Progress { sequence, store_time }),
        Just(WatchDown::Drain),
    ]
}

pub(super) fn watch_up() -> impl Strategy<Value = WatchUp> {
    let level = prop_oneof![Just(Level::Members), Just(Level::Count)];
    let open = (
        room(),
        option::of(region()),
        option::of(cursor()),
        vec(region(), 0..4),
        level,
        ms(),
        (option::of(cursor()), option::of(cursor())),
    );
    prop_oneof![
        open.prop_map(|(room, home, cursor, regions, level, min_interval, (at_least, recall))| {
            let open = OpenRoom { room, home, cursor, regions, level, min_interval, at_least, recall };
            WatchUp::Open(Box::new(open))
        }),
        room().prop_map(WatchUp::Close),
    ]
}

pub(super) fn hello() -> impl Strategy<Value = Hello> {
    (name(), any::<u64>(), any::<u64>(), region(), label()).prop_map(
        |(edge, incarnation, link, region, release)| Hello {
            edge: EdgeName::new(edge).unwrap(),
            incarnation: Incarnation(incarnation),
            link: LinkNumber(link),
            region,
            release,
        },
    )
}

fn join() -> impl Strategy<Value = JoinUp> {
    let who = (request(), room(), token(), session(), option::of(generation()), connection());
    let what = (status(), state(), label(), option::of(time()), cursor());
    (who, what).prop_map(
        |(
            (request, room, token, session, generation, connection),
            (status, state, client, rejoin, cursor),
        )| {
            let profile = Profile { status, state };
            JoinUp { request, room, token, session, generation, connection, profile, client, rejoin, cursor }
        },
    )
}

fn unanswered() -> impl Strategy<Value = UnansweredJoin> {
    (room(), user(), session(), option::of(generation()), connection(), any::<u64>()).prop_map(
        |(room, user, session, generation, connection, request)| UnansweredJoin {
            room,
            user,
            session,
            generation,
            connection,
            request: RequestId(request),
        },
    )
}

fn leave_reason() -> impl Strategy<Value = LeaveReason> {
    prop_oneof![Just(LeaveReason::Goodbye), Just(LeaveReason::TokenRevoked)]
}

pub(super) fn link_up() -> impl Strategy<Value = LinkUp> {
    let reason = prop_oneof![
        Just(ReleaseReason::TransportLost),
        Just(ReleaseReason::Drain),
        Just(ReleaseReason::Shed)
    ];
    let release = (request(), vec(lease(), 0..9), reason, ms(), vec(unanswered(), 0..3));
    let news = (option::of(status()), option::of(state()), option::of(token()));
    prop_oneof![
        any::<u64>().prop_map(|sequence| LinkUp::Beat { sequence }),
        join().prop_map(|join| LinkUp::Join(Box::new(join))),
        (any::<u64>(), vec(lease(), 0..50))
            .prop_map(|(batch, leases)| LinkUp::Renew { batch: BatchId(batch), leases }),
        release.prop_map(|(request, leases, reason, hint, unanswered)| LinkUp::Release {
            request,
            leases,
            reason,
            hint,
            unanswered
        }),
        (request(), lease(), room(), user(), news).prop_map(
            |(request, lease, room, user, (status, state, token))| LinkUp::Update {
                request,
                lease,
                room,
                user,
                status,
                state,
                token
            }
        ),
        (request(), lease(), room(), user(), leave_reason()).prop_map(
            |(request, lease, room, user, reason)| LinkUp::Leave { request, lease, room, user, reason }
        ),
        any::<bool>().prop_map(|moving| LinkUp::Bye { moving }),
    ]
}

fn refusal() -> impl Strategy<Value = LinkRefusal> {
    prop_oneof![
        (generation(), generation())
            .prop_map(|(given, stored)| Refusal::StaleGeneration { given, stored }.into()),
        removal_reason().prop_map(|reason| Refusal::HasEnded { reason }.into()),
        Just(Refusal::TooManySessions.into()),
        Just(Refusal::NotCurrent.into()),
        Just(Refusal::NotPresent.into()),
        Just(Refusal::TokenEnded.into()),
        Just(LinkRefusal::Unauthorized),
        Just(LinkRefusal::Forbidden),
        Just(LinkRefusal::BadRequest),
        ms().prop_map(|retry_after| LinkRefusal::Unavailable { retry_after }),
    ]
}

fn welcome() -> impl Strategy<Value = Welcome> {
    ([span(), span(), span(), span(), span(), span()], time(), label(), label()).prop_map(
        |([heartbeat, heartbeat_min, lease_ttl, grace, link_beat, edge_lost], store_time, core, release)| {
            Welcome {
                heartbeat,
                heartbeat_min,
                lease_ttl,
                grace,
                link_beat,
                edge_lost,
                store_time,
                core,
                release,
            }
        },
    )
}

fn grant() -> impl Strategy<Value = GrantDown> {
    (lease(), generation(), time(), any::<bool>(), time(), option::of((span(), ms()))).prop_map(
        |(lease, generation, since, resumed, token_ends, timings)| GrantDown {
            timings: timings.map(|(heartbeat, grace)| RoomTimings {
                heartbeat,
                lease_ttl: lease.ttl(),
                grace,
            }),
            lease,
            generation,
            since,
            resumed,
            token_ends,
        },
    )
}

/// Of tokens; those of sessions are not told.
fn revocation() -> impl Strategy<Value = Revocation> {
    let id = || "\\PC{1,40}".prop_map(SmolStr::from);
    prop_oneof![
        user().prop_map(Revocation::Subject),
        id().prop_map(Revocation::Token),
        id().prop_map(Revocation::Key),
    ]
}

pub(super) fn link_down() -> impl Strategy<Value = LinkDown> {
    let joined = prop_oneof![grant().prop_map(Ok), refusal().prop_map(Err)];
    let ends = (1..=TIME_MS_MAX).prop_map(StoreTime);
    let done = prop_oneof![option::of(ends).prop_map(Ok), refusal().prop_map(Err)];
    prop_oneof![
        welcome().prop_map(LinkDown::Welcome),
        (any::<u64>(), time(), any::<bool>()).prop_map(|(sequence, store_time, store_reachable)| {
            LinkDown::Beat { sequence, store_time, store_reachable }
        }),
        (request(), joined).prop_map(|(request, outcome)| LinkDown::Joined { request, outcome }),
        (any::<u64>(), vec(lease(), 0..9))
            .prop_map(|(batch, unknown)| LinkDown::Renewed { batch: BatchId(batch), unknown }),
        vec(lease(), 0..9).prop_map(|leases| LinkDown::Foreign { leases }),
        (request(), done).prop_map(|(request, outcome)| LinkDown::Done { request, outcome }),
        ms().prop_map(|within| LinkDown::RenewAll { within }),
        (lease(), removal_reason()).prop_map(|(lease, reason)| LinkDown::EndLease { lease, reason }),
        vec((revocation(), time()), 0..9).prop_map(|revocations| LinkDown::Revoked { revocations }),
        Just(LinkDown::Drain),
        Just(LinkDown::DrainEdge),
    ]
}
