//! Rooms that are not watched: each has its reason, and the watch goes on.

use presence_model::id::RegionId;
use presence_model::watch::{Level, OpenRoom, WatchRefusal};

use super::world::{World, region, room, secs};
use crate::driver::tests::world::watcher::open;
use crate::driver::{Input, WatchKey};
use crate::limits::{ROOMS_PER_WATCH_MAX, ROOMS_WATCHED_MAX, WATCH_NOTES_MAX, WATCHES_MAX};

fn nowhere() -> RegionId {
    RegionId::new("nowhere").unwrap()
}

fn refused(world: &World, watch: WatchKey) -> &[WatchRefusal] {
    &world.watchers[&watch].refused
}

#[test]
fn a_region_that_is_not_served_is_told_for_good_and_not_to_be_asked_again() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    world.open(watch, OpenRoom { regions: vec![nowhere()], ..open("r1", None) });
    let regions = vec![region(), nowhere()];
    world.open(watch, OpenRoom { regions, ..open("r2", None) });
    world.open(watch, OpenRoom { home: Some(nowhere()), ..open("r3", None) });
    world.run(secs(1));
    assert_eq!(refused(&world, watch), vec![WatchRefusal::UnknownRegion; 3]);
    let known = OpenRoom { home: Some(region()), regions: vec![region()], ..open("r4", None) };
    world.open(watch, known);
    world.join(edge, "ann", 1);
    world.run(secs(1));
    assert_eq!(
        (refused(&world, watch).len(), &world.watchers[&watch].saw[..]),
        (3, &["+ann".to_owned()][..])
    );
}

#[test]
fn a_room_opened_again_in_a_malformed_way_is_not_watched_any_more_and_others_are() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    world.open(watch, open("other", None));
    world.input(0, Input::WatchMalformed(watch, room("r"), "OpenRoom.level has the unknown value 0".into()));
    world.join(edge, "ann", 1);
    world.run(secs(3));
    let told = "OpenRoom.level has the unknown value 0";
    assert_eq!(refused(&world, watch), [WatchRefusal::BadRequest(told.into())]);
    assert!(world.watchers[&watch].saw.is_empty(), "r is not watched");
    assert!(world.watchers[&watch].progress.len() > 1, "the rest is, and is complete");
    world.open(watch, open("r", None));
    world.run(secs(1));
    assert_eq!(world.watchers[&watch].saw, ["+ann"]);
}

#[test]
fn a_watch_has_as_many_rooms_as_it_may_and_not_one_more() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch_nothing(0, 1);
    for n in 1..ROOMS_PER_WATCH_MAX {
        world.open(watch, open(&format!("room-{n}"), None));
    }
    world.open(watch, open("r", None));
    assert!(refused(&world, watch).is_empty(), "the last that may be");
    world.open(watch, open("beyond", None));
    assert_eq!(refused(&world, watch), [WatchRefusal::TooManyRooms]);
    world.open(watch, open("r", None));
    world.close_room(watch, "room-1");
    world.open(watch, open("beyond", None));
    assert_eq!(
        refused(&world, watch).len(),
        1,
        "one that is open may be opened again; one that is closed makes room"
    );
    world.run(secs(10));
    world.join(edge, "ann", 1);
    world.run(secs(1));
    assert_eq!(world.watchers[&watch].saw, ["+ann"]);
}

#[test]
fn all_watches_together_have_as_many_rooms_as_they_may() {
    let mut world = World::new();
    assert_eq!(ROOMS_WATCHED_MAX, 4 * ROOMS_PER_WATCH_MAX);
    let rooms: Vec<String> = (0..ROOMS_PER_WATCH_MAX).map(|n| format!("room-{n}")).collect();
    let count = |name: &str| OpenRoom { level: Level::Count, ..open(name, None) };
    let watches: Vec<WatchKey> = (1..=4).map(|key| world.watch_nothing(0, key)).collect();
    for watch in &watches {
        for room in &rooms {
            world.open(*watch, count(room));
        }
    }
    assert!(watches.iter().all(|watch| refused(&world, *watch).is_empty()), "up to the last that may be");
    let beyond = world.watch_nothing(0, 5);
    world.open(beyond, count("r"));
    assert!(matches!(refused(&world, beyond), [WatchRefusal::RateLimited { .. }]));
    world.open(watches[0], count("room-7"));
    assert!(refused(&world, watches[0]).is_empty(), "one that is open may be opened again");
    world.close_room(watches[1], "room-9");
    world.open(beyond, count("r"));
    assert_eq!(refused(&world, beyond).len(), 1, "one that is closed makes room");
    world.open(beyond, count("s"));
    assert_eq!(refused(&world, beyond).len(), 2);
    world.unwatch(watches[2]);
    world.open(beyond, count("s"));
    assert_eq!(refused(&world, beyond).len(), 2, "so does a watch that ends");
}

#[test]
fn there_are_as_many_watches_as_may_be_and_not_one_more() {
    let mut world = World::new();
    for key in 1..=WATCHES_MAX as u64 {
        world.watch_nothing(0, key);
    }
    assert_eq!(world.watchers.len(), WATCHES_MAX);
    let beyond = world.watch_nothing(0, 0);
    assert!(!world.watchers.contains_key(&beyond));
    world.unwatch(WatchKey(1));
    let beyond = world.watch_nothing(0, 0);
    assert!(world.watchers.contains_key(&beyond));
}

#[test]
fn who_lets_as_many_refusals_pile_up_as_may_wait_stays_and_with_one_more_is_let_go() {
    let mut world = World::new();
    let watch = world.watch(0, 1);
    world.watchers.get_mut(&watch).unwrap().stalled = true;
    // One portion is under way unread; what comes after it waits.
    world.open(watch, OpenRoom { regions: vec![nowhere()], ..open("r", None) });
    for _ in 0..WATCH_NOTES_MAX {
        world.open(watch, OpenRoom { regions: vec![nowhere()], ..open("r", None) });
    }
    assert!(world.watchers.contains_key(&watch));
    world.open(watch, OpenRoom { regions: vec![nowhere()], ..open("r", None) });
    assert!(!world.watchers.contains_key(&watch));
}
