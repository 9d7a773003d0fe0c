//! Who is not heard goes in time, and never early.

use presence_model::link::LinkUp;

use super::world::{World, ms, secs};
use crate::driver::LinkEnd;

#[test]
fn who_is_renewed_stays_and_a_frozen_edge_ends_by_silence() {
    let mut world = World::new();
    let edges = [world.edge(0), world.edge(0)];
    let watch = world.watch(0, 1);
    world.join(edges[0], "ann", 1);
    world.join(edges[1], "bob", 1);
    world.run(secs(120));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob"]);
    let last = world.now;
    world.renew(edges[1]);
    world.edges[edges[1]].running = false;
    world.run(ms(44_900));
    assert_eq!(world.watchers[&watch].shown(), ["ann", "bob"], "not before its ttl");
    world.run(secs(46) - world.now.since(last) + ms(1));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob", "-bob lease_expired"]);
}

/// Of each departure that follows from a lease is told how late it was, and of others nothing.
#[test]
fn a_transition_tells_for_how_long_its_lease_had_run_out() {
    let mut world = World::new();
    let edges = [world.edge(0), world.edge(0)];
    world.join(edges[0], "ann", 1);
    let bob = world.join(edges[1], "bob", 1);
    let cid = world.join(edges[1], "cid", 1);
    world.run(secs(2));
    world.leave(edges[1], "bob", bob.lease).unwrap();
    world.release(edges[1], cid.lease);
    world.run(secs(14));
    world.edges[edges[0]].running = false;
    world.run(secs(50));
    let told: Vec<(&str, bool)> = world
        .transitions
        .iter()
        .filter(|line| line.transition.kind.ending().is_some())
        .map(|line| {
            assert!(line.overdue.is_none_or(|late| late < secs(2)), "{line:?}");
            (line.user.as_str(), line.overdue.is_some())
        })
        .collect();
    assert_eq!(told, [("bob", false), ("cid", true), ("ann", true)]);
}

/// Scenario 9.
#[test]
fn a_late_batch_of_a_dead_edge_finds_nothing_and_moves_nothing() {
    let mut world = World::new();
    let edge = world.edge(0);
    let grant = world.join(edge, "ann", 1);
    world.edges[edge].running = false;
    world.run(secs(50));
    let revision = world.revision("r");
    let batch = presence_model::link::BatchId(77);
    world.link(edge, 0);
    world.say(edge, LinkUp::Renew { batch, leases: vec![grant.lease] });
    world.run(secs(2));
    assert!(world.edges[edge].unknown.contains(&grant.lease));
    assert!(world.edges[edge].renewed.contains(&batch));
    assert_eq!(world.revision("r"), revision);
    assert_eq!(world.stored("r"), [""; 0]);
}

#[test]
fn a_session_whose_lease_is_unknown_is_joined_again_as_it_was() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    let first = world.join(edge, "ann", 1);
    world.edges[edge].running = false;
    world.cut(edge, LinkEnd::Silent);
    world.run(secs(50));
    world.edges[edge].running = true;
    world.link(edge, 0);
    world.run(secs(1));
    assert!(world.edges[edge].unknown.contains(&first.lease));
    let second = world.rejoin(edge, "ann", &first).unwrap();
    assert_eq!(second.since, first.since);
    world.run(ms(20));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "-ann lease_expired", "+ann"]);
}

#[test]
fn batches_of_many_links_are_one_command_a_shard() {
    let mut world = World::new();
    let edges: Vec<usize> = (0..8).map(|_| world.edge(0)).collect();
    for (n, edge) in edges.iter().enumerate() {
        for m in 0..5 {
            world.join(*edge, &format!("user-{n}-{m}"), 1);
        }
    }
    world.run(secs(20));
    let before = world.renews;
    for edge in &edges {
        world.renew(*edge);
    }
    world.run(secs(1));
    assert_eq!(world.renews - before, 1, "all leases of one room are of one shard");
}

#[test]
fn a_departure_during_a_sleep_of_the_sweeping_core_is_the_others_to_see() {
    let mut world = World::with_cores(2);
    let edge = world.edge(1);
    let watch = world.watch(1, 1);
    let grant = world.join(edge, "ann", 1);
    world.run(secs(5));
    world.sleep(0, true);
    world.release(edge, grant.lease);
    world.run(secs(16));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "-ann connection_lost"]);
    world.sleep(0, false);
    world.run(secs(5));
    assert_eq!(world.log(), ["ann joined", "ann ended connection_lost"]);
}

#[test]
fn a_mass_departure_goes_in_few_commits() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    let mut requests = Vec::new();
    for n in 0..1_200 {
        let name = format!("user-{n:04}");
        let up = world.join_up(&name, 1);
        requests.push(world.send_join(edge, &name, up));
    }
    let leases: Vec<_> = requests.into_iter().map(|r| world.joined(edge, r).unwrap().lease).collect();
    let before = world.commits;
    let request = world.send_release(edge, leases, Vec::new());
    world.done(edge, request).unwrap();
    world.run(secs(13));
    assert!(world.watchers[&watch].shown().is_empty());
    assert!(world.commits - before <= 14, "{} commits", world.commits - before);
}
