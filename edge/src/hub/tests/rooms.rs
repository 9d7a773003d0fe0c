//! What clients are shown of rooms.

use std::time::Duration;

use presence_model::position::Revision;
use presence_model::replica::Freshness;
use presence_model::time::StoreTime;
use presence_model::view::RegionEvent;
use presence_model::watch::{WatchDown, WatchUp};
use serde_json::{Value, json};

use super::world::*;
use crate::hub::{ConnKey, Input};
use crate::limits::FRAMES_REST;

fn watch(world: &mut World, user: &str, since: Option<&str>) -> ConnKey {
    let key = world.accept();
    let since = since.map(|since| format!(",\"since\":\"{since}\"")).unwrap_or_default();
    world.say(key, user, &format!(r#"{{"t":"watch","room":"r","token":"t"{since}}}"#));
    key
}

fn cursor(frame: &Value) -> String {
    frame["cursor"].as_str().unwrap().to_owned()
}

/// A room with one receiver that is up to date, and its cursor.
fn settled(users: &[&str]) -> (World, ConnKey, String) {
    let mut world = World::linked();
    let key = watch(&mut world, "ann", None);
    world.snapshot("r", users);
    let frames = world.frames(key);
    let cursor = cursor(frames.last().unwrap());
    world.pass_ms(1_000);
    (world, key, cursor)
}

#[test]
fn receivers_share_one_frame() {
    let (mut world, first, _) = settled(&["a"]);
    let second = watch(&mut world, "bob", None);
    let third = watch(&mut world, "cy", None);
    [first, second, third].iter().for_each(|key| world.drain_frames(*key));
    world.commit("r", &["b"], &[]);
    let frames: Vec<_> =
        [first, second, third].iter().map(|key| world.clients[key].frames.last().unwrap().clone()).collect();
    assert!(frames.iter().all(|frame| frame.as_ptr() == frames[0].as_ptr()), "encoded once");
    let frame = &world.frames(first)[0];
    assert_eq!((&frame["t"], users(&frame["upserts"])), (&json!("delta"), vec!["b"]));
    assert_eq!(frame["rev"].as_u64().unwrap(), frame["prev"].as_u64().unwrap() + 1);
}

#[test]
fn a_room_at_rest_forgets_its_encoded_frames() {
    let (mut world, first, _) = settled(&["a"]);
    world.drain_frames(first);
    world.commit("r", &["b"], &[]);
    let frame = world.clients.get_mut(&first).unwrap().frames.pop().unwrap();
    world.pass(FRAMES_REST - Duration::from_millis(1));
    assert!(!frame.is_unique(), "whoever comes now is sent the same");
    world.pass_ms(1);
    assert!(frame.is_unique());
}

#[test]
fn who_was_away_is_told_what_changed_in_one_delta() {
    let (mut world, _, since) = settled(&["a", "b"]);
    world.commit("r", &["c"], &[]);
    world.commit("r", &[], &["a"]);
    world.commit("r", &["d"], &[]);
    world.commit("r", &[], &["d"]);
    let key = watch(&mut world, "bob", Some(&since));
    let frames = world.frames(key);
    assert_eq!(kinds(&frames), ["hello", "delta"]);
    assert_eq!(frames[1]["prev"], Value::Null);
    assert_eq!(users(&frames[1]["upserts"]), ["c"]);
    // Conflation never cancels: a cursor between the join and the leave of `d` may lead here too.
    assert_eq!(users(&frames[1]["removals"]), ["a", "d"]);
    assert_eq!(frames[1]["removals"][0]["reason"], "left");
    assert_eq!(world.hub.counts().reconnects.resumed, 1);
}

#[test]
fn who_joins_again_without_watching_is_shown_the_room_no_longer() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.snapshot("r", &["ann"]);
    world.pass_ms(1_000);
    world.drain_frames(key);
    world.say(key, "ann", &join_text("ann", "r", Some(1), r#","watch":false"#));
    assert_eq!(kinds(&world.frames(key)), ["joined"]);
    world.commit("r", &["bob"], &[]);
    world.pass_ms(1_000);
    assert!(world.frames(key).is_empty());
    assert_eq!(world.hub.counts().leases, 1, "it is in as before");
    world.say(key, "ann", r#"{"t":"watch","room":"r","token":"t"}"#);
    assert_eq!(users(&world.frames(key)[0]["members"]), ["ann", "bob"]);
}

#[test]
fn resuming_works_five_times_in_a_row_and_before_any_delta() {
    let (mut world, _, mut since) = settled(&["a"]);
    for n in 0..5 {
        let key = watch(&mut world, "bob", Some(&since));
        let frames = world.frames(key);
        assert_eq!(kinds(&frames), ["hello", "delta"], "attempt {n}");
        assert_eq!((&frames[1]["prev"], users(&frames[1]["removals"])), (&Value::Null, vec![]));
        assert_eq!(users(&frames[1]["upserts"]).len(), usize::from(n > 0));
        since = cursor(&frames[1]);
        world.hang_up(key);
        world.commit("r", &[&format!("u{n}")], &[]);
        world.pass_ms(100);
    }
    assert_eq!(world.hub.counts().reconnects.resumed, 5);
}

#[test]
fn a_cursor_that_cannot_be_read_or_reached_costs_a_snapshot() {
    let (mut world, _, since) = settled(&["a"]);
    let key = watch(&mut world, "bob", Some("rubbish"));
    assert_eq!(kinds(&world.frames(key)), ["hello", "snapshot"]);
    for n in 0..1_100 {
        world.commit("r", &[&format!("u{}", n % 3)], &[]);
    }
    let key = watch(&mut world, "bob", Some(&since));
    assert_eq!(kinds(&world.frames(key)), ["hello"], "the core may remember more");
    let now = world.position().revision;
    world.recall("r", (now, now), &[], &[]);
    assert_eq!(kinds(&world.frames(key)), ["snapshot"]);
    assert_eq!(world.hub.counts().reconnects.snapshot, 2);
}

/// An edge that has just started: whoever comes was somewhere before it was there.
#[test]
fn a_room_that_is_loaded_for_somebody_who_was_there_before_is_resumed_by_delta() {
    let (_, _, since) = settled(&["a"]);
    let mut world = World::linked();
    for (joined, left) in [(&["a"][..], &[][..]), (&["b"], &[]), (&["c"], &[]), (&[], &["b"])] {
        world.commit("r", joined, left);
    }
    let first = watch(&mut world, "ann", Some(&since));
    let opened = world.take_opened();
    let recalled = opened[0].recall.as_ref().and_then(|cursor| cursor.get(&region())).unwrap();
    assert_eq!((opened[0].cursor.as_ref(), recalled.revision), (None, Revision(1)));
    world.snapshot("r", &["a", "c"]);
    let second = watch(&mut world, "bob", Some(&since));
    assert_eq!(kinds(&world.frames(first)), ["hello"], "not everything again");
    assert!(world.take_opened().is_empty(), "one question for both");
    let now = world.position().revision;
    world.recall("r", (Revision(1), now), &["c"], &["b"]);
    for (key, skip) in [(first, 0), (second, 1)] {
        let frames = world.frames(key).split_off(skip);
        assert_eq!((kinds(&frames), &frames[0]["prev"]), (vec!["delta"], &Value::Null));
        assert_eq!((users(&frames[0]["upserts"]), users(&frames[0]["removals"])), (vec!["c"], vec!["b"]));
    }
    let third = watch(&mut world, "cid", Some(&since));
    assert_eq!(kinds(&world.frames(third)), ["hello", "delta"], "remembered from here on");
    assert_eq!((world.hub.counts().reconnects.resumed, world.hub.counts().reconnects.snapshot), (3, 0));
    world.pass_ms(1_000);
    world.commit("r", &["d"], &[]);
    world.pass_ms(1_000);
    for key in [first, second, third] {
        let frames = world.frames(key);
        assert_eq!(kinds(&frames), ["delta"]);
        assert!(users(&frames[0]["upserts"]).contains(&"d"));
    }
}

/// A cursor of a revision this world has not reached.
fn cursor_ahead(by: usize) -> String {
    let (mut world, key, _) = settled(&["a"]);
    for n in 0..by {
        world.commit("r", &[&format!("u{n}")], &[]);
        world.pass_ms(100);
    }
    cursor(world.frames(key).last().unwrap())
}

#[test]
fn behind_a_cursor_the_core_is_asked_and_then_the_client_is_answered() {
    let ahead = cursor_ahead(2);
    let (mut world, _, _) = settled(&["a"]);
    world.take_opened();
    let key = watch(&mut world, "bob", Some(&ahead));
    world.pass_ms(300);
    assert_eq!(kinds(&world.frames(key)), ["hello"], "no snapshot of the past");
    let opened = world.take_opened();
    assert_eq!(opened.len(), 1);
    assert!(opened[0].at_least.is_some() && opened[0].cursor.is_some());
    world.commit("r", &["u0"], &[]);
    world.commit("r", &["u1"], &[]);
    let frames = world.frames(key);
    assert_eq!((&frames[0]["t"], &frames[0]["prev"]), (&json!("delta"), &Value::Null));
    assert_eq!(cursor(&frames[0]), ahead);
}

#[test]
fn what_was_asked_for_one_client_is_no_answer_to_another_who_has_seen_more() {
    let (at, ahead) = (settled(&["a"]).2, cursor_ahead(2));
    let mut world = World::linked();
    let [first, second] =
        [("ann", &at), ("bob", &ahead)].map(|(user, since)| watch(&mut world, user, Some(since)));
    world.snapshot("r", &["a"]);
    assert_eq!(kinds(&world.frames(first)), ["hello", "delta"]);
    assert_eq!(kinds(&world.frames(second)), ["hello"], "no list of the past");
    world.commit("r", &["u0"], &[]);
    world.commit("r", &["u1"], &[]);
    world.pass_ms(100);
    let frames = world.frames(second);
    assert_eq!((&frames[0]["t"], &frames[0]["prev"]), (&json!("delta"), &Value::Null));
    assert_eq!(cursor(&frames[0]), ahead);
}

#[test]
fn a_cursor_of_no_history_is_answered_by_a_snapshot_once_the_core_says_so() {
    let ahead = cursor_ahead(2);
    let (mut world, _, _) = settled(&["a"]);
    let key = watch(&mut world, "bob", Some(&ahead));
    world.drain_frames(key);
    world.pass_ms(1_500);
    assert!(world.frames(key).is_empty());
    world.pass_ms(3_000);
    assert_eq!(kinds(&world.frames(key)), ["snapshot"]);
}

#[test]
fn after_a_gap_the_client_starts_over() {
    let (mut world, key, _) = settled(&["a", "b"]);
    world.say(key, "ann", r#"{"t":"resync","room":"r"}"#);
    let frames = world.frames(key);
    assert_eq!(kinds(&frames), ["snapshot"]);
    assert_eq!(users(&frames[0]["members"]), ["a", "b"]);
    assert_eq!(world.hub.counts().resyncs, 1);
    world.say(key, "ann", r#"{"t":"resync","room":"elsewhere"}"#);
    assert_eq!(world.frames(key)[0]["code"], "not_joined");
}

#[test]
fn a_cold_edge_says_how_fresh_before_the_snapshot() {
    let mut world = World::linked();
    let key = watch(&mut world, "ann", None);
    world.snapshot_as("r", &["a"], Freshness::Held { since: StoreTime(5) });
    let frames = world.frames(key);
    assert_eq!(kinds(&frames), ["hello", "freshness", "snapshot"]);
    assert_eq!((&frames[1]["state"], &frames[1]["since"]), (&json!("held"), &json!(5)));
    let late = watch(&mut world, "bob", None);
    assert_eq!(kinds(&world.frames(late)), ["hello", "freshness", "snapshot"]);
    world.region_event("r", RegionEvent::Freshness(Freshness::Live));
    assert_eq!(world.frames(key)[0]["state"], "live");
    let last = watch(&mut world, "cy", None);
    assert_eq!(kinds(&world.frames(last)), ["hello", "snapshot"], "live needs no saying");
}

#[test]
fn a_short_break_of_the_watch_shows_nobody_anything_a_long_one_is_stale() {
    let (mut world, key, _) = settled(&["a"]);
    world.give(Input::WatchLost);
    world.pass_ms(1_000);
    assert_eq!(world.watches_opened, 2);
    world.give(Input::WatchUp);
    assert!(world.take_opened().iter().any(|open| open.cursor.is_some()), "from its own position");
    assert!(world.frames(key).is_empty());

    world.give(Input::WatchLost);
    world.core_beats = false;
    world.pass_ms(4_000);
    let frames = world.frames(key);
    assert_eq!((kinds(&frames), &frames[0]["state"]), (vec!["freshness"], &json!("stale")));
    world.give(Input::WatchUp);
    world.core_beats = true;
    world.link();
    world.region_event("r", RegionEvent::Freshness(Freshness::Live));
    let frames = world.frames(key);
    assert_eq!(frames[0]["state"], "live");
}

#[test]
fn that_a_region_is_live_is_told_after_what_the_list_has_missed() {
    let (mut world, key, _) = settled(&["a"]);
    world.region_event("r", RegionEvent::Freshness(Freshness::Stale { since: StoreTime(5) }));
    assert_eq!(kinds(&world.frames(key)), ["freshness"]);
    world.commit("r", &["b"], &[]);
    world.commit("r", &["c"], &[]);
    world.region_event("r", RegionEvent::Freshness(Freshness::Live));
    world.pass_ms(1_000);
    let frames = world.frames(key);
    assert_eq!(kinds(&frames).last(), Some(&"freshness"), "{frames:?}");
    assert_eq!(frames.last().unwrap()["state"], "live");
    assert_eq!(kinds(&frames).iter().filter(|kind| **kind == "freshness").count(), 1);

    world.region_event("r", RegionEvent::Freshness(Freshness::Stale { since: StoreTime(5) }));
    world.region_event("r", RegionEvent::Freshness(Freshness::Live));
    assert_eq!(world.frames(key).last().unwrap()["state"], "live", "nothing was missed: told at once");
}

#[test]
fn a_slow_reader_catches_up_in_one_frame() {
    let (mut world, key, _) = settled(&["a"]);
    world.clients.get_mut(&key).unwrap().stalled = true;
    for n in 0..100 {
        world.commit("r", &[&format!("u{n:02}")], &[]);
        world.pass_ms(100);
    }
    assert_eq!(world.clients[&key].frames.len(), 1, "one write is under way, nothing is queued");
    world.clients.get_mut(&key).unwrap().stalled = false;
    world.write();
    let frames = world.frames(key);
    assert_eq!(frames.len(), 2);
    assert_eq!(frames[1]["prev"], frames[0]["rev"]);
    assert_eq!(users(&frames[1]["upserts"]).len(), 99);
}

#[test]
fn what_came_since_the_last_flush_waits_for_the_next() {
    let (mut world, key, _) = settled(&["a"]);
    world.commit("r", &["b"], &[]);
    assert_eq!(kinds(&world.frames(key)), ["delta"], "the first after a pause is shown at once");
    world.pass_ms(10);
    world.commit("r", &["c"], &[]);
    world.say(key, "ann", r#"{"t":"ping"}"#);
    assert_eq!(kinds(&world.frames(key)), ["pong"]);
    world.pass_ms(39);
    assert!(world.frames(key).is_empty());
    world.pass_ms(1);
    assert_eq!(kinds(&world.frames(key)), ["delta"]);
}

#[test]
fn what_is_as_before_at_the_flush_is_told_to_nobody_but_who_saw_otherwise() {
    let (mut world, key, _) = settled(&["a"]);
    let mut rev = Value::Null;
    for round in 0..3 {
        let name = format!("b{round}");
        world.commit("r", &[&name], &[]);
        let frames = world.frames(key);
        assert_eq!((frames.len(), users(&frames[0]["upserts"])), (1, vec![name.as_str()]));
        assert_eq!(users(&frames[0]["removals"]), Vec::<&str>::new(), "not of c, who came and went");
        assert!(round == 0 || frames[0]["prev"] == rev, "it follows what was sent last");
        rev = frames[0]["rev"].clone();
        world.pass_ms(10);
        world.commit("r", &["c"], &[]);
        let late = watch(&mut world, "bob", None);
        assert!(users(&world.frames(late)[1]["members"]).contains(&"c"));
        world.pass_ms(10);
        world.commit("r", &[], &["c"]);
        world.pass_ms(200);
        assert!(world.frames(key).is_empty(), "round {round}");
        let frames = world.frames(late);
        assert_eq!((frames.len(), users(&frames[0]["removals"])), (1, vec!["c"]), "it saw c");
        world.hang_up(late);
    }
}

#[test]
fn a_burst_of_joins_costs_each_receiver_little() {
    let (mut world, first, _) = settled(&["a"]);
    let second = watch(&mut world, "bob", None);
    world.drain_frames(second);
    for n in 0..1_000 {
        world.commit("r", &[&format!("u{n:03}")], &[]);
        world.pass_ms(2);
    }
    world.pass_ms(1_000);
    // 500 in the first second at 50 ms, the others at 250 ms.
    for key in [first, second] {
        let frames = world.frames(key);
        assert!(frames.len() <= 20 + 4 + 2, "{} frames", frames.len());
        let mut revision = frames[0]["prev"].as_u64().unwrap();
        for frame in &frames {
            assert_eq!(frame["prev"].as_u64().unwrap(), revision);
            revision = frame["rev"].as_u64().unwrap();
        }
        let told: usize = frames.iter().map(|frame| users(&frame["upserts"]).len()).sum();
        assert_eq!(told, 1_000);
    }
}

#[test]
fn a_leave_while_pages_are_sent_is_not_lost() {
    let names: Vec<String> = (0..3_000).map(|n| format!("u{n:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut world, _, _) = settled(&names);
    let key = world.accept();
    world.drain_frames(key);
    world.clients.get_mut(&key).unwrap().stalled = true;
    world.say(key, "bob", r#"{"t":"watch","room":"r","token":"t"}"#);
    let step = |world: &mut World| {
        world.clients.get_mut(&key).unwrap().stalled = false;
        world.write();
        world.clients.get_mut(&key).unwrap().stalled = true;
    };
    assert_eq!(world.clients[&key].frames.len(), 1, "page by page");
    world.commit("r", &[], &["u0001", "u2999"]);
    world.pass_ms(1_000);
    step(&mut world);
    let frames = world.frames(key);
    let mut shown: std::collections::BTreeSet<String> = Default::default();
    for frame in &frames {
        for user in users(frame.get("members").unwrap_or(&json!([]))) {
            shown.insert(user.to_owned());
        }
        for user in users(frame.get("removals").unwrap_or(&json!([]))) {
            shown.remove(user);
        }
    }
    assert_eq!(shown.len(), 2_998);
    assert!(!shown.contains("u0001") && !shown.contains("u2999"));
}

#[test]
fn a_room_nobody_watches_is_closed_after_a_while() {
    let (mut world, key, since) = settled(&["a"]);
    world.hang_up(key);
    world.commit("r", &["b"], &[]);
    world.pass_ms(11_000);
    let again = watch(&mut world, "ann", Some(&since));
    assert_eq!(kinds(&world.frames(again)), ["hello", "delta"], "it was still warm");
    world.hang_up(again);
    world.watched.clear();
    world.pass_ms(12_500);
    assert!(world.watched.iter().any(|up| matches!(up, WatchUp::Close(name) if *name == room("r"))));
    assert_eq!(world.hub.counts().rooms, 0);
    world.commit("r", &["c"], &[]);
    world.give(Input::Watch(WatchDown::Count { room: room("r"), members: 1 }));
}

#[test]
fn joining_without_watching_shows_nothing() {
    let mut world = World::linked();
    let key = world.accept();
    world.say(key, "ann", &join_text("ann", "r", Some(1), r#","watch":false"#));
    let join = world.take_join();
    world.granted(join.request, lease(1));
    assert_eq!(kinds(&world.frames(key)), ["hello", "joined"]);
    assert!(world.take_opened().is_empty());
    world.say(key, "ann", r#"{"t":"watch","room":"r","token":"t"}"#);
    world.snapshot("r", &["ann"]);
    assert_eq!(kinds(&world.frames(key)), ["snapshot"]);
    world.pass(Duration::from_secs(1));
    world.say(key, "ann", r#"{"t":"leave","room":"r"}"#);
    world.commit("r", &["b"], &[]);
    world.pass(Duration::from_secs(1));
    assert_eq!(kinds(&world.frames(key)), ["ended"]);
}
