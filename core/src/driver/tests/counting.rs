//! Watching the number of members only.

use presence_model::profile::Status;
use presence_model::replica::Freshness;
use presence_model::watch::{Level, OpenRoom};

use super::world::{World, ms, secs};
use crate::driver::tests::world::watcher::open;
use crate::store::memory::Upheaval;

#[test]
fn counts_are_told_and_paced() {
    let mut world = World::new();
    let edge = world.edge(0);
    let key = world.watch_nothing(0, 1);
    world.open(key, OpenRoom { level: Level::Count, ..open("r", None) });
    world.run(ms(20));
    for n in 0..10 {
        world.join(edge, &format!("user-{n}"), 1);
    }
    world.run(secs(1));
    let counts = &world.watchers[&key].counts;
    assert_eq!(counts.first(), Some(&0));
    assert_eq!(counts.last(), Some(&10));
    assert!(counts.len() <= 4, "{counts:?}");
}

/// Scenario 29.
#[test]
fn a_room_is_counted_without_a_list_of_it() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    for n in 0..600 {
        let name = format!("user-{n}");
        let up = world.join_up(&name, 1);
        world.send_join(edge, &name, up);
    }
    world.run(secs(1));
    let (pages, copies) = (world.pages, world.copies(1));
    let key = world.watch_nothing(1, 1);
    world.open(key, OpenRoom { level: Level::Count, ..open("r", None) });
    world.run(ms(20));
    assert_eq!(world.watchers[&key].counts, [600]);
    let ann = world.join(edge, "ann", 1).lease;
    world.run(secs(1));
    world.update(edge, ("ann", ann), Status::Busy, None).unwrap();
    world.run(secs(1));
    assert_eq!(world.watchers[&key].counts, [600, 601], "a change of status is no change of the number");
    world.leave(edge, "ann", ann).unwrap();
    world.run(secs(1));
    assert_eq!(world.watchers[&key].counts, [600, 601, 600]);
    assert_eq!((world.pages, world.copies(1)), (pages, copies));
    assert!(world.watchers[&key].progress.len() > 1 && world.watchers[&key].freshness.len() == 1);
    // Seen in full, it is copied, and counted no more.
    world.open(key, open("r", None));
    world.run(secs(1));
    assert_eq!((world.watchers[&key].shown().len(), world.copies(1)), (600, copies + 1));
}

#[test]
fn a_count_is_right_again_after_the_store_has_lost_its_data() {
    let mut world = World::new();
    let edge = world.edge(0);
    for n in 0..3 {
        world.join(edge, &format!("user-{n}"), 1);
    }
    let key = world.watch_nothing(0, 1);
    world.open(key, OpenRoom { level: Level::Count, ..open("r", None) });
    world.run(ms(20));
    world.faults.away.push(0);
    world.run(secs(6));
    assert!(matches!(world.watchers[&key].freshness.last(), Some(Freshness::Stale { .. })));
    let told = world.watchers[&key].progress.len();
    world.store.suffer(Upheaval::RestartEmpty, world.store_now());
    world.faults.away.clear();
    world.run(secs(10));
    assert_eq!(world.watchers[&key].counts, [3, 0], "nobody brings them back here");
    world.join(edge, "zoe", 1);
    world.run(secs(1));
    assert_eq!(world.watchers[&key].counts, [3, 0, 1]);
    assert!(matches!(world.watchers[&key].freshness.last(), Some(Freshness::Held { .. })));
    assert!(world.watchers[&key].progress.len() > told);
}
