//! Questions are answered from a settled store, or refused.

use presence_model::position::Revision;
use presence_model::record::LeaseState;
use presence_model::replica::Freshness;

use super::world::{World, ms, room, secs, user};
use crate::driver::{Answer, Query, QueryRefusal, RegionNow};

#[test]
fn a_room_is_told_in_pages_with_count_and_position() {
    let mut world = World::new();
    let edge = world.edge(0);
    for n in 0..7 {
        world.join(edge, &format!("user-{n}"), 1);
    }
    let mut after = None;
    let mut all = Vec::new();
    loop {
        let answer = world.ask(Query::Room { room: room("r"), after, count: 3 }).unwrap();
        let Answer::Room { members, more, count, regions } = answer else { panic!("a room") };
        let [RegionNow { position: Some(position), freshness, .. }] = regions[..] else {
            panic!("one region")
        };
        assert_eq!((count, position.revision, freshness), (7, Revision(7), Freshness::Live));
        after = members.last().map(|member| member.user.clone());
        all.extend(members.into_iter().map(|member| member.user.as_str().to_owned()));
        if !more {
            break;
        }
    }
    assert_eq!(all, (0..7).map(|n| format!("user-{n}")).collect::<Vec<_>>());
    let count = world.ask(Query::Count { room: room("r") }).unwrap();
    assert!(matches!(count, Answer::Count { count: 7, .. }), "{count:?}");
}

#[test]
fn rooms_with_members_are_listed_by_prefix() {
    let mut world = World::new();
    let edge = world.edge(0);
    world.join(edge, "ann", 1);
    let ask = |world: &mut World, prefix: &str| {
        world.ask(Query::Rooms { prefix: prefix.into(), after: None, count: 10 }).unwrap()
    };
    assert_eq!(ask(&mut world, ""), Answer::Rooms { rooms: vec![(room("r"), 1)], more: false });
    assert_eq!(ask(&mut world, "x"), Answer::Rooms { rooms: vec![], more: false });
}

#[test]
fn explain_tells_leases_and_what_ended() {
    let mut world = World::new();
    let edge = world.edge(0);
    let old = world.join(edge, "ann", 1);
    let new = world.join(edge, "ann", 2);
    world.release(edge, new.lease);
    let explain = Query::Explain { room: room("r"), user: user("ann") };
    let Answer::Explain(told) = world.ask(explain.clone()).unwrap() else { panic!("explained") };
    assert_eq!(told.leases.len(), 1);
    let (lease, state, shortened) = told.leases[0];
    assert_eq!(lease, new.lease);
    assert!(matches!(state, LeaseState::Grace { .. }));
    assert!(shortened.is_some());
    assert!(told.read.record.is_some_and(|record| record.session_of(old.lease).is_none()));
    world.run(secs(13));
    let Answer::Explain(told) = world.ask(explain).unwrap() else { panic!("explained") };
    assert!(told.read.record.is_none());
    assert_eq!(told.read.tombstones.len(), 1);
}

#[test]
fn explain_tells_how_long_a_hold_has_lasted_and_for_how_long_it_keeps_whoever_is_in_grace() {
    let mut world = World::new();
    let edge = world.edge(0);
    let grant = world.join(edge, "ann", 1);
    world.run(secs(60));
    let story = |world: &mut World| {
        let Ok(Answer::Explain(told)) = world.ask(Query::Explain { room: room("r"), user: user("ann") })
        else {
            panic!("explained")
        };
        crate::story::tell(&room("r"), &user("ann"), &told)
    };
    world.release(edge, grant.lease);
    let live = story(&mut world);
    assert!(live.contains("it is in grace for another 11 s.") && !live.contains("held"), "{live}");
    world.skew_ms = 60_000;
    world.run(secs(5));
    let held = story(&mut world);
    assert!(held.contains("The store has been held for 4."), "{held}");
    assert!(held.contains("it is in grace for another 40 s, as long as the store is held."), "{held}");
    world.run(secs(38));
    assert_eq!(world.stored("r"), ["ann"], "not before");
    world.run(secs(5));
    assert!(world.stored("r").is_empty());
}

/// G1: the sweeping core sleeps, and a read of the other must not show whom it should have ended.
#[test]
fn a_read_waits_for_a_sweep_and_shows_nobody_overdue() {
    let mut world = World::with_cores(2);
    let edge = world.edge(1);
    let grant = world.join(edge, "ann", 1);
    world.run(secs(5));
    world.release(edge, grant.lease);
    world.run(ms(11_500));
    world.sleep(0, true);
    world.run(ms(1_100));
    assert_eq!(world.stored("r"), ["ann"], "overdue, and not swept");
    let answer = world.ask_core(1, Query::Count { room: room("r") }).unwrap();
    assert!(matches!(answer, Answer::Count { count: 0, .. }), "{answer:?}");
}

#[test]
fn a_question_to_a_store_that_keeps_nothing_is_refused_at_once() {
    let mut world = World::new();
    world.run(secs(20));
    world.faults.no_writes = true;
    world.run(secs(6));
    let asked = world.now;
    let refused = world.ask(Query::Count { room: room("r") });
    assert!(matches!(refused, Err(QueryRefusal::Unavailable { .. })), "{refused:?}");
    assert!(world.now.since(asked) < secs(1), "nobody waits for a sweep that does not come");
}

#[test]
fn a_question_while_the_store_is_away_is_refused() {
    let mut world = World::new();
    world.faults.away = vec![0];
    let refused = world.ask(Query::Count { room: room("r") });
    assert!(matches!(refused, Err(QueryRefusal::Unavailable { .. })), "{refused:?}");
}
