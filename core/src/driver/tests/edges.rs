//! Links, and how a dead edge is noticed.

use presence_model::link::{LinkDown, LinkUp};

use super::world::{World, ms, region, secs};
use crate::driver::{CloseReason, Input, LinkEnd, LinkKey};
use crate::limits::LINK_REFRESH;

#[test]
fn an_edge_is_welcomed_then_told_to_renew_all_and_beaten_to() {
    let mut world = World::new();
    let edge = world.edge(0);
    world.run(ms(3_500));
    let heard = &world.edges[edge].heard;
    assert!(matches!(heard[0], LinkDown::Welcome(_)), "{:?}", heard[0]);
    assert!(matches!(heard[1], LinkDown::RenewAll { .. }), "{:?}", heard[1]);
    let beats = world.edges[edge].beats();
    assert_eq!(beats.len(), 3);
    assert!(beats.iter().all(|(_, reachable)| *reachable));
    assert!(beats[2].0 >= 2, "the last beat seen is told back");
}

#[test]
fn a_newer_link_of_an_edge_replaces_the_older_and_an_older_one_is_refused() {
    let mut world = World::new();
    let edge = world.edge(0);
    let first = world.edges[edge].key();
    world.link(edge, 0);
    assert_eq!(world.closed, [(first, CloseReason::Superseded)]);
    let second = world.edges[edge].key();
    let hello = presence_model::link::Hello {
        edge: presence_model::id::EdgeName::new("edge-0").unwrap(),
        incarnation: world.edges[edge].incarnation,
        link: presence_model::id::LinkNumber(1),
        region: super::world::region(),
        release: "test".into(),
    };
    let late = crate::driver::LinkKey(555);
    world.input(0, crate::driver::Input::LinkOpened(late, hello));
    assert_eq!(world.closed.last(), Some(&(late, CloseReason::StaleLink)));
    assert_eq!(world.edges[edge].key(), second);
}

#[test]
fn a_stale_link_is_refused_though_another_core_has_the_newer_one() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    world.link(edge, 1);
    let hello = presence_model::link::Hello {
        edge: presence_model::id::EdgeName::new("edge-0").unwrap(),
        incarnation: world.edges[edge].incarnation,
        link: presence_model::id::LinkNumber(1),
        region: super::world::region(),
        release: "test".into(),
    };
    let late = crate::driver::LinkKey(555);
    world.input(0, crate::driver::Input::LinkClosed(crate::driver::LinkKey(1), LinkEnd::Silent));
    world.input(0, crate::driver::Input::LinkOpened(late, hello));
    world.run(ms(20));
    assert_eq!(world.closed.last(), Some(&(late, CloseReason::StaleLink)));
}

#[test]
fn a_silent_link_is_given_up_after_three_beats_and_nobody_is_lost_by_that() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    world.join(edge, "ann", 1);
    world.run(secs(2));
    world.edges[edge].running = false;
    world.run(ms(4_500));
    assert_eq!(world.closed.len(), 1);
    assert_eq!(world.closed[0].1, CloseReason::Silent);
    world.run(secs(30));
    assert_eq!(world.watchers[&watch].saw, ["+ann"], "a partition ends by ttl only");
}

#[test]
fn an_edge_of_a_region_that_is_not_served_is_refused() {
    let mut world = World::new();
    let hello = presence_model::link::Hello {
        edge: presence_model::id::EdgeName::new("far").unwrap(),
        incarnation: presence_model::id::Incarnation(9),
        link: presence_model::id::LinkNumber(1),
        region: presence_model::id::RegionId::new("elsewhere").unwrap(),
        release: "test".into(),
    };
    world.input(0, crate::driver::Input::LinkOpened(crate::driver::LinkKey(5), hello));
    assert_eq!(world.closed, [(crate::driver::LinkKey(5), CloseReason::Region)]);
}

#[test]
fn an_edge_under_the_name_of_a_linked_one_is_noticed_and_its_next_run_is_not() {
    let mut world = World::new();
    let edge = world.edge(0);
    let hello = |name: &str, incarnation| presence_model::link::Hello {
        edge: presence_model::id::EdgeName::new(name).unwrap(),
        incarnation: presence_model::id::Incarnation(incarnation),
        link: presence_model::id::LinkNumber(1),
        region: region(),
        release: "test".into(),
    };
    world.input(0, Input::LinkOpened(LinkKey(500), hello("other", 8)));
    assert!(world.namesakes.is_empty());
    world.input(0, Input::LinkOpened(LinkKey(501), hello("edge-0", 9)));
    assert_eq!(world.namesakes, [presence_model::id::EdgeName::new("edge-0").unwrap()]);
    world.cut(edge, LinkEnd::Broken);
    world.input(0, Input::LinkClosed(LinkKey(501), LinkEnd::Broken));
    world.namesakes.clear();
    world.input(0, Input::LinkOpened(LinkKey(502), hello("edge-0", 10)));
    assert!(world.namesakes.is_empty(), "the one before is gone");
}

/// Scenario 1: a killed process.
#[test]
fn a_dead_edge_is_lost_after_its_span_and_grace_and_not_before() {
    let mut world = World::new();
    let (edge, other) = (world.edge(0), world.edge(0));
    let watch = world.watch(0, 1);
    for n in 0..20 {
        world.join(edge, &format!("user-{n:02}"), 1);
    }
    world.join(other, "ann", 1);
    world.run(secs(4));
    world.renew(edge);
    world.run(secs(1));
    world.edges[edge].running = false;
    world.cut(edge, LinkEnd::Broken);
    world.run(ms(6_000));
    let back = world.join(other, "user-07", 2);
    assert!(back.resumed);
    world.run(ms(10_900));
    assert_eq!(world.watchers[&watch].shown().len(), 21, "none before 17 s");
    world.run(ms(1_100));
    assert_eq!(world.watchers[&watch].shown(), ["ann", "user-07"], "all within a second of it");
    let lost = world.watchers[&watch].saw.iter().filter(|saw| saw.ends_with(" edge_lost")).count();
    assert_eq!(lost, 19);
}

#[test]
fn an_edge_that_links_again_within_its_span_loses_nobody() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    world.join(edge, "ann", 1);
    world.run(secs(1));
    world.cut(edge, LinkEnd::Broken);
    world.run(secs(4));
    world.link(edge, 1);
    world.run(secs(60));
    assert_eq!(world.watchers[&watch].saw, ["+ann"]);
}

#[test]
fn two_edges_that_break_within_a_second_are_not_dead() {
    let mut world = World::new();
    let edges = [world.edge(0), world.edge(0)];
    let watch = world.watch(0, 1);
    world.join(edges[0], "ann", 1);
    world.join(edges[1], "bob", 1);
    world.run(secs(2));
    for edge in edges {
        world.edges[edge].running = false;
        world.cut(edge, LinkEnd::Broken);
        world.run(ms(500));
    }
    world.run(secs(25));
    assert_eq!(world.watchers[&watch].shown(), ["ann", "bob"], "they end by their ttl");
    world.run(secs(21));
    assert!(world.watchers[&watch].shown().is_empty());
}

#[test]
fn an_edge_that_moves_or_was_not_heard_lately_is_not_dead_either() {
    let mut world = World::new();
    let edges = [world.edge(0), world.edge(0)];
    let watch = world.watch(0, 1);
    world.join(edges[0], "ann", 1);
    world.join(edges[1], "bob", 1);
    world.run(secs(2));
    world.renew(edges[1]);
    world.say(edges[0], LinkUp::Bye { moving: true });
    world.edges[edges[0]].running = false;
    world.cut(edges[0], LinkEnd::Broken);
    world.edges[edges[1]].running = false;
    world.run(ms(2_900));
    world.cut(edges[1], LinkEnd::Broken);
    world.run(secs(25));
    assert_eq!(world.watchers[&watch].shown(), ["ann", "bob"]);
}

#[test]
fn a_draining_core_says_so_and_takes_no_new_links() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    let grant = world.join(edge, "ann", 1);
    world.drain(0);
    world.run(ms(10));
    assert!(world.edges[edge].heard.contains(&LinkDown::Drain));
    assert!(world.watchers[&watch].drained);
    let late = world.edge(0);
    assert_eq!(world.closed.last().map(|(_, reason)| *reason), Some(CloseReason::Draining));
    world.edges[late].running = false;
    world.leave(edge, "ann", grant.lease).unwrap();
}

#[test]
fn a_core_that_goes_ends_nobody_for_silence_that_it_cannot_judge() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    world.join(edge, "ann", 1);
    world.run(secs(20));
    world.drain(0);
    // There is no other core to link to, and somebody's watch keeps this one.
    world.edges[edge].running = false;
    world.cut(edge, LinkEnd::Broken);
    world.run(secs(90));
    assert_eq!(world.watchers[&watch].saw, ["+ann"]);
}

#[test]
fn another_core_ends_who_is_silent_when_one_goes() {
    let mut world = World::with_cores(2);
    let edge = world.edge(1);
    let watch = world.watch(1, 1);
    world.join(edge, "ann", 1);
    world.run(secs(20));
    world.drain(0);
    world.edges[edge].running = false;
    world.run(secs(61));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "-ann lease_expired"]);
}

#[test]
fn a_link_that_cannot_be_written_is_tried_again_after_a_while() {
    let mut world = World::new();
    world.edge(0);
    world.run(secs(20));
    world.faults.no_writes = true;
    let before = world.registrations;
    // Longer than a link goes without being written again.
    world.run(LINK_REFRESH + secs(20));
    let tried = world.registrations - before;
    assert!((60..=85).contains(&tried), "each half second for forty: {tried}");
}
