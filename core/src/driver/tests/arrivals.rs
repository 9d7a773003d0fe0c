//! More who want in than can be taken: newcomers wait, nobody who is present does.

use std::time::Duration;

use presence_model::link::{LinkRefusal, RequestId};

use super::world::{World, ms, secs};
use crate::driver::{ArrivalLimits, Shed};
use crate::limits::COMMIT_MEMBERS_MAX;

const FEW: ArrivalLimits = ArrivalLimits { per_second: 10, waiting: 1_000 };

fn world(limits: ArrivalLimits) -> (World, usize) {
    let mut world = World::new();
    world.limit_arrivals(0, limits);
    let edge = world.edge(0);
    (world, edge)
}

/// Asks for so many at once, each a user of its own, and gives what was asked.
fn ask(world: &mut World, edge: usize, (name, count): (&str, usize), generation: u64) -> Vec<RequestId> {
    let ask = |n: usize| {
        let name = format!("{name}{n}");
        let up = world.join_up(&name, generation);
        world.send_join(edge, &name, up)
    };
    (0..count).map(ask).collect()
}

/// How many were let in, and what the others were told to wait.
fn answers(world: &mut World, edge: usize, asked: &[RequestId]) -> (usize, Vec<Duration>) {
    let mut hints = Vec::new();
    for request in asked {
        match world.joined(edge, *request) {
            Ok(_) => {}
            Err(LinkRefusal::Unavailable { retry_after }) => hints.push(retry_after),
            Err(other) => panic!("{other}"),
        }
    }
    (asked.len() - hints.len(), hints)
}

#[test]
fn so_many_newcomers_are_taken_a_second_and_whoever_comes_back_goes_first() {
    let (mut world, edge) = world(FEW);
    let below = ask(&mut world, edge, ("a", 4), 1);
    let at = ask(&mut world, edge, ("b", 1), 1);
    let above = ask(&mut world, edge, ("c", 3), 1);
    // Half of what may be taken at once is kept for them.
    let back = ask(&mut world, edge, ("d", 5), 2);
    let too_many = ask(&mut world, edge, ("e", 2), 2);
    let taken = [below, at, above, back, too_many].map(|asked| answers(&mut world, edge, &asked).0);
    assert_eq!(taken, [4, 1, 0, 5, 0]);
    assert_eq!(world.shed(0), Shed { rate: 5, ..Shed::default() });
    world.run(secs(1));
    let later = ask(&mut world, edge, ("f", 6), 1);
    assert_eq!(answers(&mut world, edge, &later).0, 5);
}

#[test]
fn the_refused_are_told_moments_apart_and_whoever_comes_back_an_early_one() {
    let (mut world, edge) = world(FEW);
    let asked = ask(&mut world, edge, ("new", 200), 1);
    let (_, hints) = answers(&mut world, edge, &asked);
    for second in 0..=45 {
        let count = hints.iter().filter(|hint| hint.as_secs() == second).count();
        assert!(count <= 13, "{count} of 10 a second come back in second {second}");
    }
    let asked = ask(&mut world, edge, ("back", 200), 2);
    let (_, hints) = answers(&mut world, edge, &asked);
    let longest = hints.iter().max().unwrap();
    assert!(*longest <= ms(3_750), "several tries within a grace of 12 s: {longest:?}");
}

#[test]
fn who_is_present_is_never_refused_for_others() {
    let (mut world, edge) = world(ArrivalLimits { per_second: 1, waiting: 1 });
    let ann = world.join(edge, "ann", 1);
    let crowd = ask(&mut world, edge, ("x", 50), 1);
    assert_eq!(answers(&mut world, edge, &crowd).0, 0);
    // An edge brings it back, it says goodbye, another one is renewed meanwhile.
    let back = world.rejoin(edge, "ann", &ann).unwrap();
    world.renew(edge);
    world.leave(edge, "ann", back.lease).unwrap();
    assert_eq!(world.shed(0).rate, 50);
}

#[test]
fn so_many_may_wait_over_all_rooms() {
    let (mut world, edge) = world(ArrivalLimits { per_second: 1_000, waiting: 3 });
    world.faults.hold_back = Some(0);
    let asked = ask(&mut world, edge, ("a", 5), 1);
    world.let_go();
    assert_eq!(answers(&mut world, edge, &asked).0, 3);
    assert_eq!(world.shed(0), Shed { waiting: 2, ..Shed::default() });
    world.faults.hold_back = Some(0);
    ask(&mut world, edge, ("full", 3), 1);
    let back = ask(&mut world, edge, ("back", 4), 2);
    world.let_go();
    assert_eq!(answers(&mut world, edge, &back).0, 3, "as many again of those who come back");
    let again = ask(&mut world, edge, ("b", 3), 1);
    assert_eq!(answers(&mut world, edge, &again).0, 3, "there is room again");
}

#[test]
fn nobody_is_put_behind_those_who_wait_too_long_already() {
    let (mut world, edge) = world(ArrivalLimits::default());
    world.faults.hold_back = Some(0);
    let first = ask(&mut world, edge, ("first", 1), 1);
    world.run(ms(4_990));
    let just = ask(&mut world, edge, ("just", 1), 1);
    world.run(ms(10));
    let late = ask(&mut world, edge, ("late", 3), 1);
    assert_eq!(answers(&mut world, edge, &late).0, 0, "they are told at once");
    assert_eq!(world.shed(0), Shed { slow: 3, ..Shed::default() });
    // Whoever an edge brings back waits as well, but is not refused.
    let mut up = world.join_up("back", 1);
    up.rejoin = Some(world.store_now());
    let back = world.send_join(edge, "back", up);
    world.let_go();
    for asked in [first, just, vec![back]] {
        assert_eq!(answers(&mut world, edge, &asked).0, 1);
    }
    let after = ask(&mut world, edge, ("after", 3), 1);
    assert_eq!(answers(&mut world, edge, &after).0, 3);
}

#[test]
fn whoever_comes_back_is_taken_where_newcomers_are_refused_and_goes_before_them() {
    let (mut world, edge) = world(ArrivalLimits::default());
    world.faults.hold_reads = true;
    ask(&mut world, edge, ("first", 1), 1);
    let crowd = ask(&mut world, edge, ("crowd", 3 * COMMIT_MEMBERS_MAX), 1);
    world.run(ms(500));
    let back = ask(&mut world, edge, ("back", 1), 2);
    world.run(ms(4_500));
    let late = ask(&mut world, edge, ("late", 1), 1);
    // Those who come back wait for their own kind only.
    world.run(ms(490));
    let just = ask(&mut world, edge, ("just", 1), 2);
    world.run(ms(10));
    let too_late = ask(&mut world, edge, ("too-late", 2), 2);
    assert_eq!(answers(&mut world, edge, &late).0, 0);
    assert_eq!(answers(&mut world, edge, &too_late).0, 0);
    assert_eq!(world.shed(0), Shed { slow: 3, ..Shed::default() });
    world.let_go();
    assert_eq!(answers(&mut world, edge, &back).0, 1);
    assert_eq!(answers(&mut world, edge, &just).0, 1);
    let served = crowd.iter().filter(|asked| world.edges[edge].joined.contains_key(asked)).count();
    assert_eq!(served, COMMIT_MEMBERS_MAX - 2, "they share one commit with the first of the crowd");
    assert_eq!(answers(&mut world, edge, &crowd).0, crowd.len());
}

#[test]
fn a_room_whose_store_is_slow_asks_few_to_wait_long() {
    let (mut world, edge) = world(ArrivalLimits::default());
    world.faults.hold_back = Some(0);
    ask(&mut world, edge, ("first", 1), 1);
    world.run(secs(5));
    let asked = ask(&mut world, edge, ("late", 300), 1);
    let (_, hints) = answers(&mut world, edge, &asked);
    let longest = hints.iter().max().unwrap();
    assert!(*longest <= secs(25), "three commits of 5 s take all of them: {longest:?}");
}

#[test]
fn nobody_who_waits_to_come_back_is_ended_meanwhile() {
    let (mut world, edge) = world(ArrivalLimits::default());
    let watch = world.watch(0, 1);
    let ann = world.join(edge, "ann", 1);
    let bob = world.join(edge, "bob", 1);
    world.release(edge, ann.lease);
    world.release(edge, bob.lease);
    world.run(secs(11));
    world.faults.hold_reads = true;
    ask(&mut world, edge, ("crowd", 1), 1);
    // Their grace ends, and the sweep finds both, while a newcomer is read.
    world.run(secs(2));
    let up = world.join_up("ann", 2);
    let again = world.send_join(edge, "ann", up);
    world.let_go();
    assert_eq!(answers(&mut world, edge, &[again]).0, 1);
    world.run(secs(1));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob", "+crowd0", "-bob connection_lost"]);
}
