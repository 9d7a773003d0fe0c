//! Joins that wait to be said to a core, or are refused by it for now.

use std::time::Duration;

use presence_model::link::LinkRefusal;
use serde_json::Value;

use super::world::*;
use crate::hub::ConnKey;
use crate::limits::JOINS_IN_FLIGHT_MAX;
use crate::protocol::CloseCode;

fn ask(world: &mut World, count: usize) -> Vec<ConnKey> {
    let mut keys = Vec::new();
    for n in 0..count {
        let key = world.accept();
        world.drain_frames(key);
        world.say(key, "ann", &join_text(&format!("u{n}"), "r", Some(1), ""));
        keys.push(key);
    }
    keys
}

/// What each was told to wait who was refused for now since the last look.
fn hints(world: &mut World, keys: &[ConnKey]) -> Vec<(ConnKey, u64)> {
    let mut told = Vec::new();
    for key in keys {
        let is_refused = |frame: &Value| frame["code"] == "unavailable";
        let frames = world.frames(*key);
        told.extend(
            frames
                .iter()
                .filter(|frame| is_refused(frame))
                .filter_map(|frame| Some((*key, frame["retry_after_ms"].as_u64()?))),
        );
    }
    told
}

#[test]
fn a_join_that_nobody_has_time_for_is_refused_before_it_costs_a_core_anything() {
    let mut world = World::linked();
    let keys = ask(&mut world, JOINS_IN_FLIGHT_MAX + 300);
    assert_eq!(world.take_joins().len(), JOINS_IN_FLIGHT_MAX);
    world.live_ms(4_950, &keys);
    assert_eq!(hints(&mut world, &keys), []);
    world.live_ms(100, &keys);
    let told = hints(&mut world, &keys);
    assert_eq!(told.len(), 300, "those behind, and nobody else");
    assert!(told.iter().all(|(key, _)| keys[JOINS_IN_FLIGHT_MAX..].contains(key)));
    let spread: std::collections::BTreeSet<u64> = told.iter().map(|(_, ms)| ms / 100).collect();
    assert!(spread.len() > 30, "not together: {} moments", spread.len());
    assert_eq!(world.hub.counts().joins_shed, 300);
    assert!(world.take_joins().is_empty(), "nothing of them is said to the core, then or later");
    world.live_ms(9_900, &keys);
    assert_eq!(hints(&mut world, &keys[..JOINS_IN_FLIGHT_MAX]), [], "what was said still has time");
    world.live_ms(200, &keys);
    assert_eq!(hints(&mut world, &keys[..JOINS_IN_FLIGHT_MAX]).len(), JOINS_IN_FLIGHT_MAX);
}

#[test]
fn without_a_core_a_join_waits_as_long_as_for_an_answer() {
    let mut world = World::new();
    let keys = ask(&mut world, 1);
    world.live_ms(14_900, &keys);
    assert_eq!(hints(&mut world, &keys), []);
    world.live_ms(200, &keys);
    assert_eq!(hints(&mut world, &keys).len(), 1);
    assert_eq!(world.hub.counts().joins_shed, 0);
}

#[test]
fn whoever_is_told_to_come_again_later_is_not_closed_before() {
    let mut world = World::linked();
    let keys = ask(&mut world, 1);
    let join = world.take_join();
    world.refused(join.request, LinkRefusal::Unavailable { retry_after: Duration::from_secs(20) });
    assert_eq!(hints(&mut world, &keys), [(keys[0], 20_000)]);
    world.live_ms(24_900, &keys);
    assert_eq!(world.closed(keys[0]), None);
    world.live_ms(300, &keys);
    assert_eq!(world.closed(keys[0]), Some(CloseCode::Silent));
}

#[test]
fn whoever_was_there_before_goes_before_newcomers_and_is_told_to_come_within_its_grace() {
    let mut world = World::linked();
    let busy = ask(&mut world, JOINS_IN_FLIGHT_MAX);
    let said = world.take_joins();
    let newcomers = ask(&mut world, 200);
    let back: Vec<ConnKey> = (0..200)
        .map(|n| {
            let key = world.accept();
            world.drain_frames(key);
            // By its generation, or by where it says it was.
            let text = match n % 2 {
                0 => join_text(&format!("b{n}"), "r", Some(2), ""),
                _ => join_text(&format!("b{n}"), "r", None, r#","since":"x""#),
            };
            world.say(key, "bob", &text);
            key
        })
        .collect();
    for join in &said[..50] {
        world.refused(join.request, LinkRefusal::Forbidden);
    }
    let next = world.take_joins();
    assert_eq!(next.len(), 50);
    assert!(next.iter().all(|join| join.session.as_str().contains('b')), "they came last and go first");
    let all: Vec<ConnKey> = [&busy[..], &newcomers, &back].concat();
    world.live_ms(5_050, &all);
    let told = hints(&mut world, &back);
    assert_eq!((told.len(), hints(&mut world, &newcomers).len()), (150, 200));
    let grace_ms = u64::try_from(timings().grace.as_millis()).unwrap();
    assert!(told.iter().all(|(_, ms)| *ms <= grace_ms / 2), "{told:?}");
}
