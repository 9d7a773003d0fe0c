//! A status that only falls is told a moment later.

use presence_model::lease::LeaseId;
use presence_model::link::JoinUp;
use presence_model::profile::Status;

use super::world::{World, ms, session};

/// Two devices of one user over two edges, one of them away.
fn two_devices(world: &mut World) -> [(usize, LeaseId); 2] {
    let edges = [world.edge(0), world.edge(0)];
    let first = world.join(edges[0], "ann", 1).lease;
    let up = JoinUp { session: session("ann-two"), ..world.join_up("ann", 1) };
    let request = world.send_join(edges[1], "ann", up);
    let second = world.joined(edges[1], request).unwrap().lease;
    world.update(edges[1], ("ann", second), Status::Away, None).unwrap();
    [(edges[0], first), (edges[1], second)]
}

#[test]
fn two_devices_that_change_places_show_one_status_in_whichever_order_they_are_heard() {
    let mut world = World::new();
    let devices = two_devices(&mut world);
    let watch = world.watch(0, 1);
    for toggle in 0..3_000 {
        let (from, to) = (devices[toggle % 2], devices[(toggle + 1) % 2]);
        let mut order = [(from, Status::Away), (to, Status::Available)];
        if toggle % 3 == 0 {
            order.reverse();
        }
        for ((edge, lease), status) in order {
            world.update(edge, ("ann", lease), status, None).unwrap();
        }
        world.run(ms(80));
    }
    let watcher = &world.watchers[&watch];
    assert_eq!((watcher.deltas, watcher.pages, watcher.gaps), (0, 1, 0), "{:?}", watcher.saw);
    world.join(devices[0].0, "bob", 1);
    world.run(ms(20));
    let watcher = &world.watchers[&watch];
    assert_eq!((watcher.deltas, watcher.pages, watcher.gaps), (1, 1, 0), "history did not run out");
    assert_eq!(watcher.saw, ["+ann", "+bob"]);
}

#[test]
fn a_status_that_stays_lower_is_told_after_its_wait_and_nothing_waits_longer() {
    let mut world = World::new();
    let edge = world.edge(0);
    let ann = world.join(edge, "ann", 1).lease;
    let watch = world.watch(0, 1);
    let saw = |world: &World| world.watchers[&watch].saw.len();
    world.update(edge, ("ann", ann), Status::Busy, None).unwrap();
    world.run(ms(5));
    assert_eq!(saw(&world), 2, "a raise is told at once");
    let asked = world.now;
    world.update(edge, ("ann", ann), Status::Away, None).unwrap();
    world.join(edge, "bob", 1);
    world.run(ms(45).saturating_sub(world.now.since(asked)));
    assert_eq!(saw(&world), 2);
    world.run(ms(30));
    assert_eq!(world.watchers[&watch].saw[2..], ["~ann", "+bob"], "together");
}
