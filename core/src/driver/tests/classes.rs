//! Rooms of two classes beside each other: each goes by its own timers, whatever it shares with the other.

use std::time::Duration;

use presence_model::class::{ClassGiven, ClassName, RoomPattern};
use presence_model::id::RoomId;
use presence_model::lease::LeaseId;
use presence_model::link::{GrantDown, JoinUp, LinkDown, LinkUp, RequestId};
use presence_model::replica::Freshness;
use presence_model::revocation::Revocation;
use presence_model::time::StoreTime;

use super::world::watcher::open;
use super::world::{World, ms, region, room, roster, secs, session, user};
use crate::driver::{Answer, Input, LinkEnd, Query, WatchKey};
use crate::store::memory::Upheaval;
use crate::store::{Command, Outcome, shard_of};

/// Heartbeat 1 s, ttl 3 s, grace 1 s.
fn quick() -> ClassGiven {
    ClassGiven {
        name: ClassName::new("quick").unwrap(),
        pattern: RoomPattern::new("quick:*").unwrap(),
        heartbeat: Some(secs(1)),
        lease_ttl: Some(secs(3)),
        grace: Some(secs(1)),
    }
}

fn two_classes(cores: u64) -> World {
    World::of_classes(cores, &[quick()])
}

/// A room of the quick class in the shard of room `r`.
fn quick_room() -> RoomId {
    let names = (0..).map(|number| format!("quick:{number}"));
    let shard = shard_of(&roster("r"), 4);
    let mut same = names.filter(|name| shard_of(&roster(name), 4) == shard);
    RoomId::new(same.next().unwrap()).unwrap()
}

fn join_quick(world: &mut World, edge: usize, name: &str) -> GrantDown {
    let claims = world.claims(name, world.store_now() + secs(36_000));
    let claims = presence_model::claim::Claims { room: quick_room(), ..claims };
    let up = JoinUp { room: quick_room(), ..world.join_up(name, 1) };
    let (request, key) = (up.request, world.edges[edge].key());
    world.input(0, Input::Link(key, LinkUp::Join(Box::new(up)), Some(Ok(claims))));
    world.joined(edge, request).unwrap()
}

/// Ann in the room `r`, bob in the quick one.
fn one_in_each(world: &mut World, edge: usize) -> (GrantDown, GrantDown) {
    let ann = world.join(edge, "ann", 1);
    (ann, join_quick(world, edge, "bob"))
}

fn deadline(world: &mut World, lease: LeaseId) -> StoreTime {
    let now = world.store_now();
    let command = Command::Leases { shard: lease.shard(), leases: vec![lease] };
    let Ok(Outcome::Leases { leases, .. }) = world.store.apply(command, now) else { panic!("leases") };
    leases[0].state.deadline()
}

/// Who is stored in the room `r`, and in the quick one.
fn stored(world: &mut World) -> [Vec<String>; 2] {
    [world.stored("r"), world.stored(quick_room().as_str())]
}

fn freshness(world: &mut World, room: RoomId) -> Freshness {
    let Ok(Answer::Count { regions, .. }) = world.ask(Query::Count { room }) else { panic!("counted") };
    regions[0].freshness
}

#[test]
fn a_lease_and_its_timers_are_those_of_its_room() {
    let mut world = two_classes(1);
    let edge = world.edge(0);
    let (ann, bob) = one_in_each(&mut world, edge);
    let timers = |grant: GrantDown| grant.timings.map(|t| (t.heartbeat, t.lease_ttl, t.grace));
    assert_eq!((ann.lease.ttl(), timers(ann)), (secs(45), Some((secs(15), secs(45), secs(12)))));
    assert_eq!((bob.lease.ttl(), timers(bob)), (secs(3), Some((secs(1), secs(3), secs(1)))));
    let LinkDown::Welcome(welcome) = &world.edges[edge].heard[0] else { panic!("welcomed first") };
    assert_eq!((welcome.heartbeat, welcome.heartbeat_min), (secs(15), secs(1)));
    assert_eq!((welcome.link_beat, welcome.edge_lost), (ms(200), secs(1)));
}

#[test]
fn leases_of_different_ttl_in_one_batch_are_each_extended_by_their_own() {
    let mut world = two_classes(1);
    let edge = world.edge(0);
    let (ann, bob) = one_in_each(&mut world, edge);
    world.run(ms(700));
    let (said, commands) = (world.store_now(), world.renews);
    world.renew(edge);
    world.run(ms(100));
    assert_eq!(world.renews, commands + 1, "one command for both");
    for (lease, ttl) in [(ann.lease, secs(45)), (bob.lease, secs(3))] {
        let beyond = deadline(&mut world, lease).since(said + ttl);
        assert!(deadline(&mut world, lease) >= said + ttl && beyond < ms(10), "{ttl:?}: {beyond:?} beyond");
    }
}

#[test]
fn silence_ends_each_after_its_own_ttl() {
    let mut world = two_classes(1);
    let edge = world.edge(0);
    one_in_each(&mut world, edge);
    world.run(secs(10));
    assert_eq!(stored(&mut world), [["ann"], ["bob"]], "both are renewed");
    world.renew(edge);
    world.edges[edge].running = false;
    world.run(ms(2_900));
    assert_eq!(stored(&mut world), [["ann"], ["bob"]]);
    world.run(ms(500));
    assert_eq!(stored(&mut world), [vec!["ann"], vec![]]);
    world.run(ms(41_500));
    assert_eq!(stored(&mut world), [vec!["ann"], vec![]]);
    world.run(ms(500));
    assert_eq!(stored(&mut world), [[""; 0], [""; 0]]);
}

#[test]
fn grace_is_that_of_the_room() {
    let mut world = two_classes(1);
    let edge = world.edge(0);
    let (ann, bob) = one_in_each(&mut world, edge);
    world.run(ms(500));
    let request = world.send_release(edge, vec![ann.lease, bob.lease], Vec::new());
    world.done(edge, request).unwrap();
    world.run(ms(900));
    assert_eq!(stored(&mut world), [["ann"], ["bob"]]);
    world.run(ms(400));
    assert_eq!(stored(&mut world), [vec!["ann"], vec![]]);
    world.run(ms(10_600));
    assert_eq!(stored(&mut world), [vec!["ann"], vec![]]);
    world.run(ms(500));
    assert_eq!(stored(&mut world), [[""; 0], [""; 0]]);
}

#[test]
fn a_hint_is_honoured_up_to_the_ttl_of_each_room() {
    let mut world = two_classes(1);
    let edge = world.edge(0);
    let (ann, bob) = one_in_each(&mut world, edge);
    let (request, leases) = (RequestId(777), vec![ann.lease, bob.lease]);
    world.edges[edge].leases.clear();
    let reason = presence_model::reason::ReleaseReason::Drain;
    world.say(edge, LinkUp::Release { request, leases, reason, hint: secs(10), unanswered: Vec::new() });
    world.run(ms(2_800));
    assert_eq!(stored(&mut world), [["ann"], ["bob"]]);
    world.run(ms(500));
    assert_eq!(stored(&mut world), [vec!["ann"], vec![]]);
    world.run(ms(18_500));
    assert_eq!(stored(&mut world)[0], ["ann"], "10 s + grace");
    world.run(ms(500));
    assert_eq!(stored(&mut world)[0], [""; 0]);
}

#[test]
fn a_lost_edge_shortens_each_by_its_own_grace() {
    let mut world = two_classes(1);
    let edge = world.edge(0);
    one_in_each(&mut world, edge);
    world.run(secs(2));
    world.renew(edge);
    world.run(ms(100));
    world.edges[edge].running = false;
    world.cut(edge, LinkEnd::Broken);
    world.run(ms(1_800));
    assert_eq!(stored(&mut world), [["ann"], ["bob"]], "edge lost + grace is 2 s");
    world.run(ms(700));
    assert_eq!(stored(&mut world), [vec!["ann"], vec![]]);
    world.run(ms(10_300));
    assert_eq!(stored(&mut world)[0], ["ann"], "edge lost + grace is 13 s");
    world.run(ms(700));
    assert_eq!(stored(&mut world)[0], [""; 0]);
    let log = world.log();
    assert_eq!(log[2..], ["bob ended edge_lost", "ann ended edge_lost"]);
}

#[test]
fn a_hold_lasts_one_ttl_of_the_room_and_is_told_so() {
    let mut world = two_classes(1);
    let edge = world.edge(0);
    let watches = [world.watch(0, 1), world.watch_nothing(0, 2)];
    world.open(watches[1], open(quick_room().as_str(), None));
    one_in_each(&mut world, edge);
    world.run(secs(20));
    world.edges[edge].running = false;
    let now = world.store_now();
    world.store.suffer(Upheaval::Restart, now);
    let told = |world: &World, watch: WatchKey| world.watchers[&watch].freshness.last().copied();
    let is_held = |freshness| matches!(freshness, Some(Freshness::Held { .. }));
    world.run(ms(2_500));
    assert!(watches.iter().all(|watch| is_held(told(&world, *watch))));
    assert!(is_held(Some(freshness(&mut world, quick_room()))));
    world.run(ms(800));
    assert_eq!(told(&world, watches[1]), Some(Freshness::Live), "3 s");
    assert_eq!(freshness(&mut world, quick_room()), Freshness::Live);
    assert!(is_held(told(&world, watches[0])) && is_held(Some(freshness(&mut world, room("r")))));
    world.run(ms(400));
    assert_eq!(stored(&mut world), [vec!["ann"], vec![]], "who is silent goes with the hold of the room");
    world.run(secs(40));
    assert_eq!(stored(&mut world)[0], ["ann"]);
    world.run(secs(2));
    assert_eq!((told(&world, watches[0]), stored(&mut world)[0].len()), (Some(Freshness::Live), 0));
}

/// How a world that nobody sweeps for that long comes out of it.
fn slept(mut world: World, span: Duration) -> Freshness {
    let edge = world.edge(0);
    world.join(edge, "ann", 1);
    world.run(secs(2));
    world.sleep(0, true);
    world.run(span);
    world.sleep(0, false);
    world.run(ms(20));
    freshness(&mut world, room("r"))
}

#[test]
fn the_smallest_ttl_decides_how_long_nobody_may_sweep() {
    assert_eq!(slept(World::new(), ms(1_500)), Freshness::Live);
    assert_eq!(slept(two_classes(1), ms(500)), Freshness::Live);
    assert!(matches!(slept(two_classes(1), ms(1_500)), Freshness::Held { .. }), "a third of 3 s");
}

#[test]
fn a_turn_is_kept_and_asked_for_by_the_smallest_ttl() {
    let mut world = two_classes(2);
    let edge = world.edge(1);
    let watch = world.watch(1, 1);
    world.join(edge, "ann", 1);
    world.run(secs(2));
    world.sleep(0, true);
    world.run(secs(5));
    let holds = world.watchers[&watch].freshness.iter();
    let holds = holds.filter(|freshness| matches!(freshness, Freshness::Held { .. })).count();
    assert_eq!(holds, 0, "the other core takes every turn within a third of 3 s");
}

#[test]
fn an_evicted_session_is_revoked_for_twice_the_ttl_of_the_room() {
    let mut world = two_classes(1);
    let edge = world.edge(0);
    one_in_each(&mut world, edge);
    let now = world.store_now();
    let key = crate::driver::QueryKey(9_999);
    world.input(0, Input::Evict(key, quick_room(), user("bob")));
    world.run(ms(100));
    let command = Command::Revoked { after: None, count: 10, unless: None };
    let Ok(Outcome::Revoked { revocations, .. }) = world.store.apply(command, now) else { panic!("revoked") };
    let roster = presence_model::id::Roster { region: region(), room: quick_room() };
    let what = Revocation::Session { roster, user: user("bob"), session: session("bob") };
    let [(revoked, until)] = &revocations[..] else { panic!("{revocations:?}") };
    assert_eq!(*revoked, what);
    assert!(*until >= now + secs(6) && until.since(now + secs(6)) < ms(100));
}

#[test]
fn explain_names_the_class() {
    let mut world = two_classes(1);
    let edge = world.edge(0);
    one_in_each(&mut world, edge);
    let mut class = |room: RoomId, name: &str| {
        let query = Query::Explain { room: room.clone(), user: user(name) };
        let Ok(Answer::Explain(told)) = world.ask(query) else { panic!("explained") };
        let story = crate::story::tell(&room, &user(name), &told);
        (told.class.map(|(class, _)| class.as_str().to_owned()), story)
    };
    let (default, story) = class(room("r"), "ann");
    assert!(default.is_none() && !story.contains("class"), "{story}");
    let (quick, story) = class(quick_room(), "bob");
    assert_eq!(quick.as_deref(), Some("quick"));
    let sentence = "Rooms of class quick have a heartbeat of 1.0 s, leases of 3.0 s and a grace of 1.0 s.";
    assert!(story.contains(sentence), "{story}");
}

/// A core that knows the class no more: what it granted before lasts as long as it said.
#[test]
fn a_lease_outlives_its_class() {
    let mut world = two_classes(1);
    let edge = world.edge(0);
    let (_, bob) = one_in_each(&mut world, edge);
    world.forget_classes();
    let other = world.start_core();
    world.run(ms(500));
    world.link(edge, other);
    world.run(ms(100));
    let said = world.store_now();
    world.renew(edge);
    world.run(ms(700));
    assert!(deadline(&mut world, bob.lease).since(said + secs(3)) < ms(100));
    let request = world.send_release(edge, vec![bob.lease], Vec::new());
    world.done(edge, request).unwrap();
    assert!(deadline(&mut world, bob.lease) <= said + secs(4), "its grace is never longer than its ttl");
}
