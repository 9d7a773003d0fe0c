//! Transports are given up: grace, and who comes back within it.

use std::time::Duration;

use presence_model::link::{LinkUp, RequestId, UnansweredJoin};
use presence_model::reason::ReleaseReason;

use super::world::{World, ms, room, secs, session, user};
use crate::driver::LinkEnd;

/// Scenario 3.
#[test]
fn a_reconnect_within_grace_on_another_edge_shows_nothing() {
    let mut world = World::with_cores(2);
    let edges = [world.edge(0), world.edge(1)];
    let watch = world.watch(1, 1);
    let first = world.join(edges[0], "ann", 1);
    world.run(secs(3));
    world.release(edges[0], first.lease);
    world.run(secs(11));
    let second = world.join(edges[1], "ann", 2);
    assert!(second.resumed);
    world.run(secs(60));
    assert_eq!(world.watchers[&watch].saw, ["+ann"]);
    assert!(world.edges[1].unknown.is_empty());
}

#[test]
fn without_a_reconnect_grace_ends_with_the_reason() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    let grant = world.join(edge, "ann", 1);
    world.release(edge, grant.lease);
    world.run(ms(11_900));
    assert_eq!(world.watchers[&watch].saw, ["+ann"], "not before grace");
    world.run(ms(600));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "-ann connection_lost"]);
}

#[test]
fn a_hint_is_honoured_up_to_the_ttl() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    for (name, hint) in [("ann", 20), ("bob", 3_600)] {
        let grant = world.join(edge, name, 1);
        world.edges[edge].leases.remove(&grant.lease);
        let (request, leases) = (RequestId(hint), vec![grant.lease]);
        let (reason, hint) = (ReleaseReason::Drain, Duration::from_secs(hint));
        let unanswered = Vec::new();
        world.say(edge, LinkUp::Release { request, leases, reason, hint, unanswered });
        world.done(edge, request).unwrap();
    }
    world.run(ms(31_000));
    assert_eq!(world.watchers[&watch].shown(), ["ann", "bob"], "20 s + grace");
    world.run(ms(2_000));
    assert_eq!(world.watchers[&watch].shown(), ["bob"]);
    world.run(ms(13_000));
    assert!(world.watchers[&watch].shown().is_empty(), "never longer than a ttl");
}

#[test]
fn a_release_takes_its_leases_out_of_the_waiting_batch() {
    let mut world = World::new();
    let edge = world.edge(0);
    let grant = world.join(edge, "ann", 1);
    world.run(secs(1));
    world.renew(edge);
    world.release(edge, grant.lease);
    world.run(secs(1));
    assert!(world.edges[edge].unknown.is_empty(), "it was not renewed any more");
    world.run(secs(12));
    assert_eq!(world.stored("r"), [""; 0]);
}

/// Scenario 6.
#[test]
fn a_release_that_comes_after_the_new_join_is_void() {
    let mut world = World::with_cores(2);
    let edges = [world.edge(0), world.edge(1)];
    let old = world.join(edges[0], "ann", 1);
    world.join(edges[1], "ann", 2);
    world.release(edges[0], old.lease);
    world.run(secs(60));
    assert_eq!(world.stored("r"), ["ann"]);
}

fn unanswered(name: &str, generation: u64, up: &presence_model::link::JoinUp) -> UnansweredJoin {
    UnansweredJoin {
        room: room("r"),
        user: user(name),
        session: session(name),
        generation: Some(presence_model::id::Generation(generation)),
        connection: up.connection,
        request: up.request,
    }
}

/// Scenario 41: the join was committed, the answer lost and the client gone; the core died as well.
#[test]
fn an_unanswered_join_is_over_after_grace_and_not_after_ttl() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    let watch = world.watch(1, 1);
    let up = world.join_up("ann", 1);
    let lost = unanswered("ann", 1, &up);
    world.send_join(edge, "ann", up);
    world.run(ms(3));
    world.sleep(0, true);
    world.edges[edge].running = false;
    world.run(ms(100));
    assert_eq!(world.watchers[&watch].saw, ["+ann"], "committed");
    assert!(world.edges[edge].joined.is_empty(), "not answered");
    world.cut(edge, LinkEnd::Silent);
    world.edges[edge].running = true;
    world.link(edge, 1);
    let request = world.send_release(edge, Vec::new(), vec![lost]);
    world.done(edge, request).unwrap();
    world.run(ms(12_600));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "-ann connection_lost"]);
}

/// The store did not answer, the client was told so, and asked again over the connection that stands.
#[test]
fn who_asks_again_over_the_same_connection_is_not_ended_by_the_join_that_was_given_up() {
    for numbered in [true, false] {
        let mut world = World::new();
        let edge = world.edge(0);
        let watch = world.watch(0, 1);
        world.faults.hold_back = Some(0);
        let mut up = world.join_up("ann", 1);
        up.generation = up.generation.filter(|_| numbered);
        let mut lost = unanswered("ann", 1, &up);
        lost.generation = up.generation;
        world.send_join(edge, "ann", up.clone());
        world.run(secs(2));
        let release = world.send_release(edge, Vec::new(), vec![lost.clone()]);
        up.request = world.join_up("ann", 1).request;
        let again = world.send_join(edge, "ann", up);
        world.run(secs(1));
        world.let_go();
        let granted = world.joined(edge, again).unwrap();
        world.done(edge, release).unwrap();
        // The release is said again, as if its answer had been lost.
        let release = world.send_release(edge, Vec::new(), vec![lost]);
        world.done(edge, release).unwrap();
        for _ in 0..10 {
            world.renew(edge);
            world.run(secs(10));
        }
        assert_eq!(world.watchers[&watch].saw, ["+ann"], "numbered: {numbered}, {granted:?}");
        assert_eq!(world.stored("r"), ["ann"]);
    }
}

#[test]
fn a_join_that_is_late_behind_its_own_release_is_forbidden() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    let watch = world.watch(1, 1);
    let up = world.join_up("ann", 1);
    let lost = unanswered("ann", 1, &up);
    world.faults.hold_back = Some(0);
    world.send_join(edge, "ann", up.clone());
    world.cut(edge, LinkEnd::Silent);
    world.link(edge, 1);
    let request = world.send_release(edge, Vec::new(), vec![lost]);
    world.done(edge, request).unwrap();
    world.let_go();
    world.run(secs(1));
    let again = world.send_join(edge, "ann", up);
    assert!(world.joined(edge, again).is_err(), "nor when it is repeated");
    world.run(secs(1));
    assert!(world.watchers[&watch].saw.is_empty());
}
