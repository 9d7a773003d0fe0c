//! Rooms too large for a list.

use presence_model::replica::Freshness;
use presence_model::view::RegionEvent;
use serde_json::{Value, json};

use super::world::*;
use crate::hub::ConnKey;
use crate::limits::SAMPLE_MAX;

/// Longer than the slowest cadence.
const FLUSH_MS: u64 = 1_100;

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("u{n:05}")).collect()
}

fn watch(world: &mut World, user: &str, more: &str) -> ConnKey {
    let key = world.accept();
    world.drain_frames(key);
    world.say(key, user, &format!(r#"{{"t":"watch","room":"r","token":"t"{more}}}"#));
    key
}

/// A room of so many with one receiver, which has read what it was sent.
fn room_of(count: usize) -> (World, ConnKey, Vec<Value>) {
    let mut world = World::linked();
    let key = watch(&mut world, "ann", "");
    let names = names(count);
    world.snapshot("r", &names.iter().map(String::as_str).collect::<Vec<_>>());
    world.pass_ms(FLUSH_MS);
    let frames = world.frames(key);
    (world, key, frames)
}

/// One frame, of the number.
fn told(world: &mut World, key: ConnKey) -> Value {
    let mut frames = world.frames(key);
    assert_eq!(kinds(&frames), ["count"]);
    frames.remove(0)
}

#[test]
fn up_to_the_limit_a_room_is_a_list_and_above_a_number() {
    for (count, kind) in [(4_999, "snapshot"), (5_000, "snapshot"), (5_001, "count")] {
        let (_, _, frames) = room_of(count);
        let shown: Vec<&str> = kinds(&frames);
        assert!(shown.iter().all(|shown| *shown == kind) && !shown.is_empty(), "{count}: {shown:?}");
        if kind == "count" {
            assert_eq!((&frames[0]["count"], &frames[0]["joined"]), (&json!(5_001), &json!([])));
            assert_eq!(frames.len(), 1);
        } else {
            let listed: usize = frames.iter().map(|frame| users(&frame["members"]).len()).sum();
            assert_eq!(listed, count);
        }
    }
}

#[test]
fn a_room_that_grows_becomes_a_number_and_one_that_shrinks_well_below_a_list_again() {
    let (mut world, key, _) = room_of(LIST_MEMBERS);
    world.commit("r", &["more"], &[]);
    world.pass_ms(FLUSH_MS);
    let grown = told(&mut world, key);
    assert_eq!(grown["count"], 5_001);
    assert_eq!(users(&grown["joined"]), ["more"]);

    world.commit("r", &[], &["more"]);
    world.pass_ms(FLUSH_MS);
    let still = told(&mut world, key);
    assert_eq!(
        (&still["count"], users(&still["left"])),
        (&json!(5_000), vec!["more"]),
        "no going to and fro"
    );
    assert_eq!(still["left"][0]["reason"], "left");
    assert!(still["rev"].as_u64() > grown["rev"].as_u64());

    let gone = names(500);
    world.commit("r", &[], &gone[..499].iter().map(String::as_str).collect::<Vec<_>>());
    world.pass_ms(FLUSH_MS);
    let few = told(&mut world, key);
    assert_eq!((&few["count"], users(&few["left"]).len()), (&json!(4_501), SAMPLE_MAX));
    world.commit("r", &[], &[&gone[499]]);
    world.pass_ms(FLUSH_MS);
    let frames = world.frames(key);
    assert!(kinds(&frames).iter().all(|kind| *kind == "snapshot"), "a list begins anew");
    assert_eq!(frames.iter().map(|frame| users(&frame["members"]).len()).sum::<usize>(), 4_500);
    world.commit("r", &["back"], &[]);
    world.pass_ms(FLUSH_MS);
    let frames = world.frames(key);
    assert_eq!((kinds(&frames), users(&frames[0]["upserts"])), (vec!["delta"], vec!["back"]));
}

#[test]
fn whoever_asks_gets_the_list_or_the_number_whatever_the_size() {
    let (mut world, _, _) = room_of(LIST_MEMBERS + 1);
    let list = watch(&mut world, "bob", r#","level":"members""#);
    let frames = world.frames(list);
    assert_eq!(frames.iter().map(|frame| users(&frame["members"]).len()).sum::<usize>(), 5_001);
    world.commit("r", &["x"], &[]);
    world.pass_ms(FLUSH_MS);
    assert_eq!(kinds(&world.frames(list)), ["delta"]);

    let (mut world, other, _) = room_of(3);
    let number = watch(&mut world, "bob", r#","level":"count""#);
    assert_eq!(told(&mut world, number)["count"], 3);
    world.commit("r", &["x"], &[]);
    world.pass_ms(FLUSH_MS);
    assert_eq!(
        (told(&mut world, number)["count"].clone(), kinds(&world.frames(other))),
        (json!(4), vec!["delta"])
    );
    // The same room, asked for otherwise on the same connection.
    world.say(number, "bob", r#"{"t":"watch","room":"r","token":"t","level":"members"}"#);
    assert_eq!(kinds(&world.frames(number)), ["snapshot"]);
    world.say(number, "bob", r#"{"t":"watch","room":"r","token":"t","level":"count"}"#);
    assert_eq!(told(&mut world, number)["count"], 4);
}

#[test]
fn who_joins_a_large_room_is_told_the_number_and_counted() {
    let (mut world, _, _) = room_of(LIST_MEMBERS + 1);
    let key = world.accept();
    world.say(key, "ann", &join_text("ann", "r", Some(1), ""));
    let join = world.take_join();
    world.granted(join.request, lease(1));
    assert_eq!(kinds(&world.frames(key)), ["hello", "joined", "count"]);
    world.commit("r", &["ann"], &[]);
    world.pass_ms(FLUSH_MS);
    let frame = told(&mut world, key);
    assert_eq!((&frame["count"], users(&frame["joined"])), (&json!(5_002), vec!["ann"]));
}

#[test]
fn all_share_one_frame_and_nothing_is_said_while_the_number_stays() {
    let (mut world, first, _) = room_of(LIST_MEMBERS + 1);
    let second = watch(&mut world, "bob", "");
    world.drain_frames(second);
    world.commit("r", &["x", "y"], &[]);
    world.pass_ms(FLUSH_MS);
    let frames = [first, second].map(|key| world.clients[&key].frames[0].clone());
    assert_eq!(frames[0].as_ptr(), frames[1].as_ptr(), "encoded once");
    [first, second].iter().for_each(|key| world.drain_frames(*key));
    // Touched, as somebody is who changes status, and still there.
    world.commit("r", &["x"], &[]);
    world.pass_ms(FLUSH_MS);
    assert!(world.frames(first).is_empty(), "the number is the same and nobody came or went");
    world.commit("r", &["z"], &["y"]);
    world.pass_ms(FLUSH_MS);
    let frame = told(&mut world, first);
    assert_eq!(frame["count"], 5_003);
    assert_eq!((users(&frame["joined"]), users(&frame["left"])), (vec!["z"], vec!["y"]));
}

#[test]
fn nobody_is_told_of_whom_it_has_counted_already() {
    let (mut world, first, _) = room_of(LIST_MEMBERS + 1);
    world.commit("r", &["x"], &[]);
    assert_eq!(users(&told(&mut world, first)["joined"]), ["x"], "the first after a pause is told at once");
    world.pass_ms(10);
    world.commit("r", &["y"], &["u00000"]);
    let late = watch(&mut world, "bob", "");
    let list = watch(&mut world, "cy", r#","level":"members""#);
    assert_eq!(
        (told(&mut world, late)["count"].clone(), world.frames(list).is_empty()),
        (json!(5_002), false)
    );
    world.pass_ms(10);
    world.commit("r", &["z"], &[]);
    world.say(list, "cy", r#"{"t":"watch","room":"r","token":"t"}"#);
    assert_eq!(told(&mut world, list)["count"], 5_003);
    world.pass_ms(FLUSH_MS);
    let frame = told(&mut world, first);
    assert_eq!((users(&frame["joined"]), users(&frame["left"])), (vec!["z", "y"], vec!["u00000"]));
    let frame = told(&mut world, late);
    assert_eq!((users(&frame["joined"]), users(&frame["left"])), (vec!["z"], vec![]));
    assert!(world.frames(list).is_empty(), "it has counted all of them");
}

#[test]
fn a_slow_reader_gets_the_newest_number_alone() {
    let (mut world, key, _) = room_of(LIST_MEMBERS + 1);
    world.clients.get_mut(&key).unwrap().stalled = true;
    for n in 0..5 {
        world.commit("r", &[&format!("x{n}")], &[]);
        world.pass_ms(FLUSH_MS);
    }
    world.drain_frames(key);
    world.clients.get_mut(&key).unwrap().stalled = false;
    world.write();
    assert_eq!(told(&mut world, key)["count"], 5_006);
}

#[test]
fn pages_under_way_end_with_the_first_number() {
    let (mut world, _, _) = room_of(LIST_MEMBERS);
    let key = world.accept();
    world.drain_frames(key);
    world.clients.get_mut(&key).unwrap().stalled = true;
    world.say(key, "bob", r#"{"t":"watch","room":"r","token":"t"}"#);
    assert_eq!(world.frames(key)[0]["more"], true);
    world.commit("r", &["more"], &[]);
    world.pass_ms(FLUSH_MS);
    world.clients.get_mut(&key).unwrap().stalled = false;
    world.write();
    assert_eq!(told(&mut world, key)["count"], 5_001);
}

#[test]
fn how_fresh_it_is_is_told_with_a_number_as_with_a_list() {
    let (mut world, key, _) = room_of(LIST_MEMBERS + 1);
    world.region_event("r", RegionEvent::Freshness(Freshness::Held { since: world.store_time() }));
    assert_eq!(world.frames(key)[0]["state"], "held");
    let late = watch(&mut world, "bob", "");
    assert_eq!(kinds(&world.frames(late)), ["freshness", "count"]);
    world.say(late, "bob", r#"{"t":"resync","room":"r"}"#);
    assert_eq!(told(&mut world, late)["count"], 5_001);
}
