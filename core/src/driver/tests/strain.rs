//! What gives way while those who wait for the store wait ever longer, step by step, and what does not.

use presence_model::watch::{Level, OpenRoom};

use super::world::{World, ms, room, user};
use crate::driver::tests::world::watcher::open;
use crate::driver::{ArrivalLimits, Query};

fn count(name: &str) -> Query {
    Query::Count { room: room(name) }
}

fn list(name: &str) -> Query {
    Query::Room { room: room(name), after: None, count: 10 }
}

#[test]
fn counts_give_way_first_then_questions_and_newcomers_last() {
    let mut world = World::new();
    let edge = world.edge(0);
    world.faults.hold_back = Some(0);
    let up = world.join_up("waits", 1);
    world.send_join(edge, "waits", up);
    let begin = world.now;
    // A newcomer is refused after five seconds.
    let mut told = Vec::new();
    for (until, what) in [(1_249, "none"), (1_250, "counts"), (2_499, "counts"), (2_500, "questions")] {
        world.run((begin + ms(until)).since(world.now));
        told.push((world.is_refused(0, count("r")), world.is_refused(0, list("r")), what));
    }
    let expected =
        [(false, false, "none"), (true, false, "counts"), (true, false, "counts"), (true, true, "questions")];
    assert_eq!(told, expected);
    assert!(!world.is_refused(0, count("another")) && !world.is_refused(0, list("another")), "room by room");
    assert!(!world.is_refused(0, Query::Explain { room: room("r"), user: user("waits") }));
    let up = world.join_up("new", 1);
    let asked = world.send_join(edge, "new", up);
    world.let_go();
    assert!(world.joined(edge, asked).is_ok(), "newcomers do not give way yet");
    world.ask(count("r")).unwrap();
    world.ask(list("r")).unwrap();
}

#[test]
fn the_same_holds_for_how_many_wait_over_all_rooms() {
    let mut world = World::new();
    world.limit_arrivals(0, ArrivalLimits { per_second: 1_000, waiting: 8 });
    let edge = world.edge(0);
    world.faults.hold_back = Some(0);
    let mut told = Vec::new();
    for n in 1..=4 {
        let name = format!("user-{n}");
        let up = world.join_up(&name, 1);
        world.send_join(edge, &name, up);
        told.push((world.is_refused(0, count("another")), world.is_refused(0, list("another"))));
    }
    assert_eq!(told, [(false, false), (true, false), (true, false), (true, true)]);
}

#[test]
fn changes_become_fewer_before_newcomers_are_refused() {
    let mut world = World::with_cores(2);
    let (near, far) = (world.edge(0), world.edge(1));
    let (members, number) = (world.watch(0, 1), world.watch_nothing(0, 2));
    world.open(number, OpenRoom { level: Level::Count, ..open("r", None) });
    world.run(ms(1_000));
    world.faults.hold_back = Some(0);
    let up = world.join_up("waits", 1);
    world.send_join(near, "waits", up);
    // Over the other core somebody comes every tenth of a second.
    let begin = world.now;
    let mut told = Vec::new();
    for n in 0..48 {
        world.join(far, &format!("user-{n}"), 1);
        world.run((begin + ms((n + 1) * 100)).since(world.now));
        told.push((world.watchers[&members].deltas, world.watchers[&number].counts.len()));
    }
    // In these tenths of a second.
    let between = |from: usize, to: usize| (told[to].0 - told[from].0, told[to].1 - told[from].1);
    let (early, later, late) = (between(1, 11), between(15, 35), between(38, 47));
    assert!(early.0 >= 9 && early.1 >= 3, "{early:?}");
    assert!(later.0 >= 18 && later.1 <= 1, "numbers first: {later:?}");
    assert!(late.0 <= 1, "then changes: {late:?}");
    world.let_go();
    world.run(ms(2_000));
    let seen = world.watchers[&members].shown().len();
    assert_eq!(seen, 49, "nothing is lost");
}
