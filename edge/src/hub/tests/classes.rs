//! Rooms of several classes: who is in a quick one is heard more often, and everybody else as before.

use std::time::Duration;

use presence_model::class::{ClassGiven, ClassName, RoomPattern, RoomTimings};
use presence_model::lease::{LeaseId, Shard};
use presence_model::link::{LinkDown, LinkUp};
use presence_model::time::Mono;
use presence_model::timing::{Timings, TimingsGiven};

use super::world::*;
use crate::hub::{ConnKey, Input};
use crate::protocol::CloseCode;

const fn timers([heartbeat, lease_ttl, grace]: [u64; 3]) -> RoomTimings {
    RoomTimings {
        heartbeat: Duration::from_secs(heartbeat),
        lease_ttl: Duration::from_secs(lease_ttl),
        grace: Duration::from_secs(grace),
    }
}

const QUICK: RoomTimings = timers([1, 3, 1]);
const SLOW: RoomTimings = timers([60, 200, 40]);

/// A hub whose core has a quick class beside the default one.
fn world() -> World {
    let quick = ClassGiven {
        name: ClassName::new("quick").unwrap(),
        pattern: RoomPattern::new("quick*").unwrap(),
        heartbeat: Some(QUICK.heartbeat),
        lease_ttl: Some(QUICK.lease_ttl),
        grace: Some(QUICK.grace),
    };
    let usual = TimingsGiven::default();
    let mut world = World::new();
    world.core = Timings::derive_classes(usual, usual, &[quick]).unwrap().0;
    world.give(Input::Tick);
    world.link();
    world
}

fn lease_of(timings: RoomTimings, n: u64) -> LeaseId {
    LeaseId::mint(timings.lease_ttl, Shard(0), n)
}

/// A client that is there joins one more room; the frames it is answered with.
fn join_in(
    world: &mut World,
    key: ConnKey,
    (user, room): (&str, &str),
    (n, timings): (u64, RoomTimings),
) -> Vec<serde_json::Value> {
    world.say(key, user, &join_text(user, room, Some(1), ""));
    let join = world.take_join();
    world.granted_as(join.request, n, timings);
    world.frames(key)
}

fn enter(world: &mut World, user: &str, room: &str, of: (u64, RoomTimings)) -> ConnKey {
    let key = world.accept();
    join_in(world, key, (user, room), of);
    key
}

/// Spans between the pings of a client that answers each at once.
fn pings(world: &mut World, key: ConnKey, span_ms: u64) -> Vec<u128> {
    world.clients.get_mut(&key).unwrap().pings = 0;
    let (mut last, mut spans): (Option<Mono>, _) = (None, Vec::new());
    for _ in 0..span_ms / 10 {
        world.pass_ms(10);
        world.take_renewed();
        if std::mem::take(&mut world.clients.get_mut(&key).unwrap().pings) > 0 {
            let before = last.replace(world.now);
            spans.extend(before.map(|before| world.now.since(before).as_millis()));
            world.give(Input::Heard(key));
        }
    }
    spans
}

fn all_within(spans: &[u128], (least, most): (u128, u128)) -> bool {
    spans.iter().all(|span| (least..=most).contains(span))
}

/// Jitter of ± 20 %, and how late a timer may be.
const QUICK_PINGS: (u128, u128) = (790, 1_310);
const USUAL_PINGS: (u128, u128) = (11_990, 18_110);

#[test]
fn each_is_pinged_at_the_heartbeat_of_its_room() {
    for (timings, within) in [(QUICK, QUICK_PINGS), (SLOW, (47_990, 72_110))] {
        let mut world = world();
        let key = enter(&mut world, "ann", "room", (1, timings));
        let heartbeat_ms = u64::try_from(timings.heartbeat.as_millis()).unwrap();
        let spans = pings(&mut world, key, 20 * heartbeat_ms);
        assert!(spans.len() > 10 && all_within(&spans, within), "{spans:?}");
        assert_eq!(world.closed(key), None);
    }
}

#[test]
fn a_connection_in_several_rooms_is_pinged_as_the_quickest_wants() {
    let mut world = world();
    let key = enter(&mut world, "ann", "slow", (1, SLOW));
    join_in(&mut world, key, ("ann", "usual"), (2, timings().usual()));
    let spans = pings(&mut world, key, 120_000);
    assert!(spans.len() >= 5 && all_within(&spans, USUAL_PINGS), "{spans:?}");
    join_in(&mut world, key, ("ann", "quick"), (3, QUICK));
    let spans = pings(&mut world, key, 10_000);
    assert!(spans.len() >= 6 && all_within(&spans, QUICK_PINGS), "{spans:?}");
    world.say(key, "ann", r#"{"t":"leave","room":"quick"}"#);
    world.say(key, "ann", r#"{"t":"leave","room":"usual"}"#);
    let spans = pings(&mut world, key, 300_000);
    assert!((3..=6).contains(&spans.len()), "as slow as at first: {spans:?}");
    world.say(key, "ann", r#"{"t":"watch","room":"other","token":"t"}"#);
    world.snapshot("other", &["bob"]);
    world.say(key, "ann", r#"{"t":"leave","room":"slow"}"#);
    let spans = pings(&mut world, key, 100_000);
    assert!(spans.len() >= 4, "who only watches is heard as the default class wants: {spans:?}");
    assert_eq!(world.closed(key), None);
}

#[test]
fn silence_is_two_heartbeats_of_the_room() {
    for (timings, silent_ms) in [(QUICK, 2_000), (timings().usual(), 30_000), (SLOW, 120_000)] {
        let mut world = world();
        let key = enter(&mut world, "ann", "room", (1, timings));
        world.pass_ms(500);
        world.give(Input::Heard(key));
        world.pass_ms(silent_ms - 1);
        assert_eq!(world.closed(key), None);
        world.pass_ms(101);
        assert_eq!(world.closed(key), Some(CloseCode::Silent));
        assert_eq!(world.take_released(), [(vec![lease_of(timings, 1)], 0)]);
    }
}

#[test]
fn each_session_is_renewed_as_its_own_heartbeat_wants() {
    let mut world = world();
    let key = enter(&mut world, "ann", "usual", (1, timings().usual()));
    join_in(&mut world, key, ("ann", "quick"), (2, QUICK));
    let mut renewed = Vec::new();
    for _ in 0..600 {
        world.pass_ms(50);
        world.give(Input::Heard(key));
        renewed.extend(world.take_renewed());
    }
    let of = |lease| renewed.iter().filter(|renewed| **renewed == lease).count();
    let (usual, quick) = (of(lease_of(timings().usual(), 1)), of(lease_of(QUICK, 2)));
    assert!((2..=3).contains(&usual), "once in ten seconds: {usual} in 30 s");
    assert!((38..=45).contains(&quick), "once in two thirds of a second: {quick} in 30 s");
}

#[test]
fn one_batch_holds_leases_of_several_ttl() {
    let mut world = world();
    let quick = enter(&mut world, "ann", "quick", (1, QUICK));
    let usual = enter(&mut world, "bob", "usual", (2, timings().usual()));
    for _ in 0..14 {
        world.pass_ms(800);
        world.give(Input::Heard(quick));
    }
    world.pass_ms(800);
    world.take_renewed();
    world.give(Input::Heard(usual));
    world.give(Input::Heard(quick));
    world.pass_ms(100);
    let leases =
        |up: &LinkUp| if let LinkUp::Renew { leases, .. } = up { Some(leases.clone()) } else { None };
    let batches = world.up.iter().filter_map(leases);
    let both = vec![lease_of(QUICK, 1), lease_of(timings().usual(), 2)];
    assert_eq!(batches.collect::<Vec<_>>(), [both]);
}

#[test]
fn who_was_not_asked_so_often_before_is_not_silent_for_that() {
    let mut world = world();
    let key = world.accept();
    world.say(key, "ann", &join_text("ann", "quick", Some(1), ""));
    let join = world.take_join();
    world.pass_ms(4_000);
    world.granted_as(join.request, 1, QUICK);
    world.pass_ms(1_900);
    assert_eq!(world.closed(key), None, "the core took four seconds, not the client");
    assert!(world.clients[&key].pings > 0);
    world.pass_ms(200);
    assert_eq!(world.closed(key), Some(CloseCode::Silent));
}

#[test]
fn an_unknown_lease_is_joined_again_if_heard_within_its_own_heartbeat() {
    for (since_ms, joins) in [(1_150, 1), (1_250, 0)] {
        let mut world = world();
        let key = enter(&mut world, "ann", "quick", (1, QUICK));
        world.give(Input::Heard(key));
        world.pass_ms(since_ms);
        let batch = presence_model::link::BatchId(99);
        world.down(LinkDown::Renewed { batch, unknown: vec![lease_of(QUICK, 1)] });
        assert_eq!(world.take_joins().len(), joins, "{since_ms} ms after it was heard");
    }
}

#[test]
fn a_short_freeze_counts_for_the_quick_only() {
    let mut world = world();
    let quick = enter(&mut world, "ann", "quick", (1, QUICK));
    let usual = enter(&mut world, "bob", "usual", (2, timings().usual()));
    for key in [quick, usual] {
        world.give(Input::Heard(key));
        world.clients.get_mut(&key).unwrap().pings = 0;
    }
    world.now = world.now + Duration::from_millis(2_500);
    world.give(Input::Tick);
    assert_eq!(world.closed(quick), None, "answers may lie unread");
    world.pass_ms(150);
    assert_eq!((world.clients[&quick].pings, world.clients[&usual].pings), (1, 0));
    world.pass_ms(500);
    assert_eq!((world.closed(quick), world.closed(usual)), (Some(CloseCode::Silent), None));
    world.pass_ms(1_500);
    assert_eq!(world.clients[&usual].pings, 0, "two seconds say nothing about who is heard every fifteen");
}

#[test]
fn clients_are_told_the_timers_of_their_room() {
    let mut world = world();
    let key = world.accept();
    let hello = &world.frames(key)[0];
    assert_eq!((hello["heartbeat_ms"].as_u64(), hello["reconnect_ms"].as_u64()), (Some(15_000), Some(5_000)));
    for (n, room, timings, told) in [(1, "quick", QUICK, (1_000, 500)), (2, "slow", SLOW, (60_000, 5_000))] {
        let joined = &join_in(&mut world, key, ("ann", room), (n, timings))[0];
        assert_eq!(joined["t"], "joined");
        assert_eq!(
            (joined["heartbeat_ms"].as_u64(), joined["reconnect_ms"].as_u64()),
            (Some(told.0), Some(told.1))
        );
    }
    world.say(key, "ann", &join_text("ann", "quick", Some(1), ""));
    assert_eq!(world.frames(key)[0]["heartbeat_ms"], 1_000, "nor is a repeated join answered otherwise");
}

#[test]
fn what_a_lease_was_granted_with_outlives_the_core_that_did() {
    let mut world = world();
    let key = enter(&mut world, "ann", "quick", (1, QUICK));
    world.core = timings();
    world.give(Input::LinkLost);
    world.live_ms(1_000, &[key]);
    world.link();
    let spans = pings(&mut world, key, 10_000);
    assert!(spans.len() >= 6 && all_within(&spans, QUICK_PINGS), "{spans:?}");
}

#[test]
fn a_core_without_classes_is_followed_as_ever() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    let spans = pings(&mut world, key, 100_000);
    assert!(spans.len() >= 4 && all_within(&spans, USUAL_PINGS), "{spans:?}");
}

#[test]
fn renewals_wait_as_long_as_the_smallest_heartbeat_allows() {
    let mut world = world();
    let key = enter(&mut world, "ann", "usual", (1, timings().usual()));
    world.pass_ms(11_000);
    world.up.clear();
    let batches = |world: &World| world.up.iter().filter(|up| matches!(up, LinkUp::Renew { .. })).count();
    world.give(Input::Heard(key));
    world.pass_ms(99);
    assert_eq!(batches(&world), 0, "collected for a tenth of a second");
    world.pass_ms(1);
    assert_eq!(batches(&world), 1);
    world.pass_ms(999);
    assert_eq!(batches(&world), 1);
    world.pass_ms(101);
    assert_eq!(batches(&world), 2, "and said again after a second without acknowledgement");
}

#[test]
fn a_join_is_not_given_up_sooner_for_a_quick_class() {
    let mut world = world();
    let key = world.accept();
    world.drain_frames(key);
    world.say(key, "ann", &join_text("ann", "quick", Some(1), ""));
    world.live_ms(14_900, &[key]);
    assert!(world.frames(key).is_empty());
    world.live_ms(200, &[key]);
    assert_eq!(world.frames(key)[0]["code"], "unavailable");
}
