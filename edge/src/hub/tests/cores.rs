//! Several cores: when the link moves, where to, and that nobody is told.

use std::time::Duration;

use presence_model::link::{LinkDown, LinkUp};
use presence_model::time::Mono;

use super::world::*;
use crate::hub::{ConnKey, Input};

/// An edge linked to one of two cores, with one client in a room.
fn linked() -> (World, ConnKey) {
    let mut world = World::among(&["a", "b"]);
    world.give(Input::Tick);
    world.link();
    let key = world.join("ann", "r", 1);
    world.snapshot("r", &["ann"]);
    world.drain_frames(key);
    world.live_ms(2_500, &[key]);
    world.take_renewed();
    world.up.clear();
    (world, key)
}

fn beat(world: &mut World, store_reachable: bool) {
    let store_time = world.store_time();
    world.down(LinkDown::Beat { sequence: 0, store_time, store_reachable });
}

fn said_it_moves(world: &World) -> bool {
    world.up.iter().any(|up| matches!(up, LinkUp::Bye { moving: true }))
}

/// The new link is another one, all is renewed on it, and the client was told nothing.
fn moved(world: &mut World, key: ConnKey) {
    assert_eq!(world.links, [1, 2]);
    assert_ne!(world.linked_to[0], world.linked_to[1]);
    world.core_beats = true;
    world.link();
    world.live_ms(2_000, &[key]);
    assert_eq!(world.take_renewed(), [lease(1)]);
    assert!(world.take_released().is_empty(), "nobody is given up");
    let told = world.frames(key);
    assert!(kinds(&told).iter().all(|kind| *kind == "freshness"), "nobody is announced: {told:?}");
    assert_eq!(world.closed(key), None);
}

#[test]
fn a_silent_core_is_left_within_three_beats() {
    let (mut world, key) = linked();
    world.core_beats = false;
    world.live_ms(1_900, &[key]);
    assert_eq!(world.links.len(), 1);
    world.live_ms(1_100, &[key]);
    assert!(said_it_moves(&world), "one that still hears must not think the edge dead");
    moved(&mut world, key);
}

#[test]
fn a_link_that_breaks_is_replaced_at_once_by_one_to_another_core() {
    let (mut world, key) = linked();
    world.give(Input::LinkLost);
    moved(&mut world, key);
}

#[test]
fn a_core_that_goes_is_left_at_once() {
    let (mut world, key) = linked();
    world.down(LinkDown::Drain);
    assert!(said_it_moves(&world));
    moved(&mut world, key);
}

#[test]
fn a_core_without_its_store_is_left_with_the_beat_that_says_so() {
    let (mut world, key) = linked();
    beat(&mut world, true);
    assert_eq!(world.links.len(), 1);
    beat(&mut world, false);
    assert!(said_it_moves(&world));
    moved(&mut world, key);
}

#[test]
fn a_core_that_acknowledges_nothing_for_a_heartbeat_is_left() {
    let (mut world, key) = linked();
    let mut renewed_at = None;
    while world.links.len() == 1 {
        world.live_ms(50, &[key]);
        if world.up.iter().any(|up| matches!(up, LinkUp::Renew { .. })) {
            renewed_at.get_or_insert(world.now);
        }
        assert!(world.now < Mono::from_millis(60_000), "never");
    }
    let waited = world.now.since(renewed_at.unwrap());
    assert!(waited.abs_diff(timings().heartbeat) <= Duration::from_millis(100), "{waited:?}");
    world.up.clear();
    moved(&mut world, key);
}

#[test]
fn an_edge_that_stood_still_does_not_blame_its_core() {
    let (mut world, key) = linked();
    while !world.up.iter().any(|up| matches!(up, LinkUp::Renew { .. })) {
        world.live_ms(50, &[key]);
    }
    world.now = world.now + Duration::from_secs(20);
    world.give(Input::Tick);
    world.take_renewed();
    world.pass_ms(4_000);
    assert_eq!(world.links.len(), 1, "what the core said lay unread");
}

#[test]
fn the_only_core_is_kept_though_it_has_no_store_and_acknowledges_nothing() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    for _ in 0..40 {
        world.live_ms(1_000, &[key]);
        beat(&mut world, false);
    }
    assert_eq!(world.links, [1]);
}

#[test]
fn between_two_cores_without_their_store_a_link_moves_once_a_heartbeat_at_most() {
    let (mut world, key) = linked();
    let begin = world.now;
    let mut moves = Vec::new();
    while world.now.since(begin) < Duration::from_secs(120) {
        let before = world.links.len();
        world.live_ms(1_000, &[key]);
        beat(&mut world, false);
        if world.links.len() > before {
            moves.push(world.now.since(begin));
            world.link();
        }
    }
    assert!(moves[0] <= Duration::from_secs(1));
    assert!((6..=8).contains(&moves.len()), "{moves:?}");
    assert!(moves.windows(2).skip(1).all(|pair| pair[1] - pair[0] >= timings().heartbeat), "{moves:?}");
    assert!(world.take_released().is_empty() && world.closed(key).is_none());
}

#[test]
fn cores_that_welcome_and_break_at_once_are_not_tried_without_pause() {
    let mut world = World::among(&["a", "b"]);
    world.give(Input::Tick);
    let begin = world.now;
    while world.now.since(begin) < Duration::from_secs(60) {
        if world.wanted.0 {
            world.link();
            world.give(Input::LinkLost);
        }
        world.pass_ms(10);
    }
    // Two addresses, each tried with waits of 1.25 s on average.
    let tries = world.links.len();
    assert!((50..=160).contains(&tries), "{tries}");
}

#[test]
fn cores_that_are_found_later_are_linked_to_and_a_link_that_stands_is_kept() {
    let mut world = World::among(&[]);
    world.give(Input::Tick);
    world.pass_ms(60_000);
    assert!(world.links.is_empty(), "nobody to link to yet");
    world.give(Input::Cores(vec![core_address("a")]));
    world.link();
    world.give(Input::Cores(vec![core_address("b")]));
    world.pass_ms(10_000);
    assert_eq!(world.links, [1], "it serves, by whatever name");
    world.give(Input::LinkLost);
    assert_eq!(world.linked_to, [core_address("a"), core_address("b")]);
}
