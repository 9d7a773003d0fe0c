//! One core that keeps the rosters of several regions: each watcher is told of its own at once, and of the others at
//! the merge interval, unless somebody moves between them.

use std::time::Duration;

use presence_model::position::Position;
use presence_model::time::StoreTime;
use presence_model::watch::{Level, OpenRoom, WatchRefusal};

use super::world::watcher::open;
use super::world::{World, ms, region_called, room, secs, user};
use crate::driver::{Answer, Query, WatchKey};

const MERGE: Duration = Duration::from_secs(20);

fn central() -> World {
    World::of_regions("eu", &["us"], &[])
}

/// Watches room `r` from a region.
fn watch_from(world: &mut World, home: &str, key: u64) -> WatchKey {
    let key = world.watch_nothing(0, key);
    world.open(key, OpenRoom { home: Some(region_called(home)), ..open("r", None) });
    world.run(ms(50));
    key
}

fn since_of(world: &World, key: WatchKey, name: &str) -> StoreTime {
    world.watchers[&key].views[&room("r")].get(&user(name)).unwrap().since
}

fn seen_in(world: &World, key: WatchKey, region: &str) -> Position {
    let views = &world.watchers[&key].views;
    views[&room("r")].region(&region_called(region)).unwrap().position().unwrap()
}

#[test]
fn the_home_region_is_told_at_once_and_others_at_the_merge_interval() {
    let mut world = central();
    let (eu, us) = (world.edge_in("eu"), world.edge_in("us"));
    let key = watch_from(&mut world, "eu", 1);
    world.join(us, "usa", 1);
    world.run(MERGE);
    let begun = world.now;
    world.join(us, "u1", 1);
    world.run(ms(50));
    assert_eq!(world.watchers[&key].merged_since(begun), ["+u1"], "after a pause at once");
    for n in 2..7 {
        world.join(us, &format!("u{n}"), 1);
        world.join(eu, &format!("e{n}"), 1);
    }
    world.run(ms(50));
    let told = world.watchers[&key].merged_since(begun);
    assert_eq!(told, ["+u1", "+e2", "+e3", "+e4", "+e5", "+e6"], "others wait");
    world.run(MERGE - ms(1_000));
    assert_eq!(world.watchers[&key].shown_merged().len(), 7, "still");
    world.run(ms(1_000));
    assert_eq!(world.watchers[&key].shown_merged().len(), 12);
}

#[test]
fn each_region_has_its_own_home() {
    let mut world = central();
    let (eu, us) = (world.edge_in("eu"), world.edge_in("us"));
    let (here, there) = (watch_from(&mut world, "eu", 1), watch_from(&mut world, "us", 2));
    for first in [eu, us] {
        world.join(first, &format!("first-{first}"), 1);
    }
    world.run(ms(50));
    let begun = world.now;
    world.join(eu, "ann", 1);
    world.join(us, "bob", 1);
    world.run(ms(50));
    assert_eq!(world.watchers[&here].merged_since(begun), ["+ann"]);
    assert_eq!(world.watchers[&there].merged_since(begun), ["+bob"]);
    world.run(MERGE);
    for key in [here, there] {
        assert_eq!(world.watchers[&key].shown_merged(), ["ann", "bob", "first-0", "first-1"]);
    }
}

/// Scenario 21: cleanly, within the grace.
#[test]
fn who_moves_is_told_at_once_and_is_never_absent() {
    let mut world = central();
    let (eu, us) = (world.edge_in("eu"), world.edge_in("us"));
    let keys = [watch_from(&mut world, "eu", 1), watch_from(&mut world, "us", 2)];
    let ann = world.join(eu, "ann", 1);
    world.join(us, "bob", 1);
    world.run(MERGE);
    world.join(us, "cat", 1);
    world.run(ms(50));
    let begun = world.now;
    world.release(eu, ann.lease);
    world.run(ms(500));
    let moved = world.join(us, "ann", 2);
    assert_eq!(moved.since, ann.since, "she was there all the time");
    world.run(ms(50));
    let eu_view = world.watchers[&keys[0]].views[&room("r")].region(&region_called("us")).unwrap();
    assert!(eu_view.get(&user("ann")).is_some(), "at once, though the merge interval runs");
    world.run(MERGE * 3);
    for key in keys {
        assert_eq!(world.watchers[&key].merged_since(begun), Vec::<&str>::new(), "{key:?}");
        assert_eq!(world.watchers[&key].shown_merged(), ["ann", "bob", "cat"]);
        assert_eq!(since_of(&world, key, "ann"), ann.since);
    }
}

#[test]
fn a_cursor_that_names_another_region_makes_a_join_a_move() {
    let mut world = central();
    let (eu, us) = (world.edge_in("eu"), world.edge_in("us"));
    let key = watch_from(&mut world, "eu", 1);
    world.join(us, "bob", 1);
    world.run(ms(50));
    let mut known = world.join_up("cat", 1);
    known.cursor.set(region_called("eu"), Position::default());
    world.send_join(us, "cat", known);
    let mut stranger = world.join_up("dan", 1);
    stranger.cursor.set(region_called("us"), Position::default());
    world.run(ms(50));
    assert_eq!(world.watchers[&key].shown_merged(), ["bob", "cat"]);
    world.send_join(us, "dan", stranger);
    world.run(ms(500));
    assert_eq!(world.watchers[&key].shown_merged(), ["bob", "cat"], "who comes from nowhere waits");
    world.run(MERGE);
    assert_eq!(world.watchers[&key].shown_merged(), ["bob", "cat", "dan"]);
    world.join(eu, "ann", 1);
}

/// Both connections at once, an older generation left behind, and a drop: one member all the while.
#[test]
fn overlapping_sessions_of_two_regions_are_one_member() {
    let mut world = central();
    let (eu, us) = (world.edge_in("eu"), world.edge_in("us"));
    let keys = [watch_from(&mut world, "eu", 1), watch_from(&mut world, "us", 2)];
    let old = world.join(eu, "ann", 1);
    world.run(MERGE);
    let begun = world.now;
    let new = world.join(us, "ann", 2);
    world.run(MERGE * 2);
    for key in keys {
        assert_eq!(world.watchers[&key].shown_merged(), ["ann"]);
    }
    // Nobody renews the older one any more.
    world.edges[eu].leases.remove(&old.lease);
    world.run(secs(120));
    for key in keys {
        assert_eq!(world.watchers[&key].merged_since(begun), Vec::<&str>::new());
    }
    world.leave(us, "ann", new.lease).unwrap();
    world.run(MERGE * 2);
    for key in keys {
        assert_eq!(world.watchers[&key].merged_since(begun), ["-ann"]);
    }
}

#[test]
fn a_question_is_answered_over_all_regions() {
    let mut world = central();
    let (eu, us) = (world.edge_in("eu"), world.edge_in("us"));
    for (edge, names) in [(eu, ["ann", "bob", "dan"]), (us, ["bob", "cat", "eve"])] {
        for name in names {
            world.join(edge, name, 1);
        }
    }
    let mut walk = Vec::new();
    let mut after = None;
    loop {
        let query = Query::Room { room: room("r"), after, count: 2 };
        let Ok(Answer::Room { members, more, regions, .. }) = world.ask(query) else { panic!("a room") };
        let names: Vec<&str> = regions.iter().map(|now| now.region.as_str()).collect();
        assert_eq!(names, ["eu", "us"]);
        after = members.last().map(|member| member.user.clone());
        walk.extend(members.into_iter().map(|member| member.user.as_str().to_owned()));
        if !more {
            break;
        }
    }
    assert_eq!(walk, ["ann", "bob", "cat", "dan", "eve"]);
    let whole = world.ask(Query::Room { room: room("r"), after: None, count: 100 });
    assert!(matches!(whole, Ok(Answer::Room { count: 5, more: false, .. })), "{whole:?}");
    let Ok(Answer::Count { count, regions }) = world.ask(Query::Count { room: room("r") }) else { panic!() };
    assert_eq!((count, regions.len()), (6, 2), "by region: bob is in both");
    let rooms = world.ask(Query::Rooms { prefix: String::new(), after: None, count: 10 });
    assert_eq!(rooms, Ok(Answer::Rooms { rooms: vec![(room("r"), 6)], more: false }));
    for (name, region) in [("ann", "eu"), ("cat", "us"), ("bob", "eu"), ("nobody", "eu")] {
        let Ok(Answer::Explain(told)) = world.ask(Query::Explain { room: room("r"), user: user(name) })
        else {
            panic!("explained")
        };
        assert_eq!((told.region.as_str(), told.read.record.is_some()), (region, name != "nobody"), "{name}");
    }
    let evicted = world.evict(0, "bob");
    assert_eq!(evicted, Ok(Answer::Evicted { sessions: 2 }), "in every region");
}

#[test]
fn numbers_of_other_regions_are_merged_as_well() {
    let mut world = central();
    let (eu, us) = (world.edge_in("eu"), world.edge_in("us"));
    let key = world.watch_nothing(0, 1);
    let level = Level::Count;
    world.open(key, OpenRoom { home: Some(region_called("eu")), level, ..open("r", None) });
    world.run(ms(300));
    for name in ["a", "b", "c"] {
        world.join(us, name, 1);
        world.run(ms(300));
    }
    assert_eq!(world.watchers[&key].counts, [0, 1], "the first at once");
    world.join(eu, "d", 1);
    world.run(ms(300));
    assert_eq!(world.watchers[&key].counts, [0, 1, 2], "of the home region at once");
    world.run(MERGE);
    assert_eq!(world.watchers[&key].counts, [0, 1, 2, 4]);
}

#[test]
fn who_has_seen_more_of_another_region_is_told_at_once() {
    let mut world = central();
    let us = world.edge_in("us");
    let (slow, fast) = (watch_from(&mut world, "eu", 1), watch_from(&mut world, "us", 2));
    world.join(us, "ann", 1);
    world.run(ms(50));
    world.join(us, "bob", 1);
    world.run(ms(50));
    assert_eq!(world.watchers[&slow].shown_merged(), ["ann"]);
    let seen = seen_in(&world, fast, "us");
    let mut ask = OpenRoom { home: Some(region_called("eu")), ..open("r", None) };
    let mut at_least = presence_model::cursor::Cursor::default();
    at_least.set(region_called("us"), seen);
    ask.at_least = Some(at_least);
    world.open(slow, ask);
    world.run(ms(20));
    assert_eq!(seen_in(&world, slow, "us"), seen);
}

#[test]
fn a_region_that_nobody_keeps_is_refused() {
    let mut world = central();
    let key = world.watch_nothing(0, 1);
    for regions in [(Some("ap"), vec![]), (None, vec!["ap"]), (Some("us"), vec!["eu", "ap"])] {
        let (home, regions) =
            (regions.0.map(region_called), regions.1.into_iter().map(region_called).collect());
        world.open(key, OpenRoom { home, regions, ..open("r", None) });
    }
    world.run(ms(50));
    let refused = vec![WatchRefusal::UnknownRegion; 3];
    assert_eq!(world.watchers[&key].refused, refused);
    assert_eq!(world.copies(0), 0);
}
