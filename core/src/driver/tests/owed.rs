//! What the store owes of one room is told of that room and holds up no other.

use std::time::Duration;

use presence_model::position::Position;
use presence_model::replica::Freshness;
use presence_model::time::Mono;
use presence_model::watch::{Level, OpenRoom};

use super::world::watcher::open;
use super::world::{World, room, secs};
use crate::driver::WatchKey;

/// A watch of `r`, in which somebody is, for whom all is well.
fn served() -> (World, WatchKey, Option<Position>) {
    let mut world = World::new();
    let edge = world.edge(0);
    world.join(edge, "ann", 1);
    let key = world.watch(0, 1);
    world.run(secs(2));
    world.watchers.get_mut(&key).unwrap().freshness.clear();
    let at = world.watchers[&key].position();
    (world, key, at)
}

/// The longest silence about the stream as a whole since `from`.
fn silence(world: &World, key: WatchKey, from: Mono) -> Duration {
    let told = world.watchers[&key].progress.iter().copied().filter(|at| *at >= from);
    let times: Vec<Mono> = [from].into_iter().chain(told).chain([world.now]).collect();
    times.windows(2).map(|pair| pair[1].since(pair[0])).max().unwrap()
}

fn is_stale(freshness: &[Freshness]) -> bool {
    matches!(freshness, [Freshness::Stale { .. }])
}

#[test]
fn a_room_that_cannot_be_loaded_is_stale_and_holds_up_no_other() {
    for level in [Level::Members, Level::Count] {
        let (mut world, key, _) = served();
        world.faults.owes = Some(room("slow"));
        let from = world.now;
        world.open(key, OpenRoom { level, ..open("slow", None) });
        world.run(secs(8));
        let watcher = &world.watchers[&key];
        assert!(is_stale(&watcher.freshness), "told of that room, once: {:?}", watcher.freshness);
        assert!(silence(&world, key, from) <= world.timings.link_beat * 5 / 2, "{level:?}");
        assert_eq!(watcher.copies[&room("r")].fresh(), Some(Freshness::Live));
        world.let_go();
        world.run(secs(12));
        let watcher = &world.watchers[&key];
        // A page tells it along with the list.
        let (told, events) = match level {
            Level::Members => (watcher.copies[&room("slow")].fresh(), 1),
            Level::Count => (watcher.freshness.last().copied(), 2),
        };
        assert_eq!((told, watcher.freshness.len()), (Some(Freshness::Live), events), "{level:?}");
    }
}

#[test]
fn history_that_does_not_come_makes_its_room_stale_and_holds_up_no_other() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    world.join(edge, "ann", 1);
    let first = world.watch(0, 1);
    let had = world.unwatch(first);
    world.join(edge, "bob", 1);
    // This core has a copy, but has not seen how it came about.
    let second = world.watch(1, 2);
    world.faults.owes = Some(room("r"));
    let third = world.watch_nothing(1, 3);
    world.open(third, open("r", had.position()));
    world.watchers.get_mut(&third).unwrap().copies = had.copies;
    let from = world.now;
    world.run(secs(8));
    assert!(is_stale(&world.watchers[&third].freshness), "{:?}", world.watchers[&third].freshness);
    assert!(silence(&world, third, from) <= world.timings.link_beat * 5 / 2);
    assert_eq!(world.watchers[&second].copies[&room("r")].fresh(), Some(Freshness::Live), "it needs nothing");
    world.let_go();
    world.run(secs(12));
    assert_eq!(world.watchers[&third].freshness.last(), Some(&Freshness::Live));
    assert_eq!((&world.watchers[&third].saw[..], world.watchers[&third].gaps), (&["+bob".to_owned()][..], 0));
}

#[test]
fn a_short_wait_is_told_to_nobody() {
    let (mut world, key, at) = served();
    let ahead = at.map(|at| Position { revision: at.revision.next(), ..at });
    world.faults.owes = Some(room("r"));
    let other = world.watch_nothing(0, 2);
    world.open(other, OpenRoom { at_least: open("r", ahead).cursor, ..open("r", None) });
    world.run(world.timings.link_beat / 2);
    assert!(world.watchers[&other].saw.is_empty(), "the store is asked first");
    world.let_go();
    world.run(secs(3));
    assert_eq!(world.watchers[&other].saw, ["+ann"]);
    assert!(world.watchers[&key].freshness.is_empty(), "{:?}", world.watchers[&key].freshness);
}
