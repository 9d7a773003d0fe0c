//! Rooms that the core does not let the edge watch.

use presence_model::watch::{WatchDown, WatchRefusal, WatchUp};
use serde_json::json;

use super::world::*;
use crate::hub::{ConnKey, Input};
use crate::protocol::CloseCode;

fn watch(world: &mut World, user: &str) -> ConnKey {
    let key = world.accept();
    world.drain_frames(key);
    world.say(key, user, r#"{"t":"watch","room":"r","token":"t"}"#);
    key
}

fn refuse(world: &mut World, refusal: WatchRefusal) {
    world.give(Input::Watch(WatchDown::Refused { room: room("r"), refusal }));
}

#[test]
fn whoever_waits_for_a_room_that_is_refused_for_good_is_told() {
    let table = [
        (WatchRefusal::Forbidden, "forbidden", Some(CloseCode::Forbidden)),
        (WatchRefusal::UnknownRegion, "unavailable", None),
        (WatchRefusal::TooManyRooms, "unavailable", None),
        (WatchRefusal::BadRequest("level".into()), "unavailable", None),
    ];
    for (refusal, code, close) in table {
        let mut world = World::linked();
        let waiting = watch(&mut world, "ann");
        let joined = world.join("bob", "r", 1);
        refuse(&mut world, refusal);
        for key in [waiting, joined] {
            let frames = world.frames(key);
            assert_eq!((kinds(&frames), &frames[0]["code"]), (vec!["error"], &json!(code)));
            assert_eq!(frames[0]["room"], "r");
            let again = frames[0]["retry_after_ms"].as_u64();
            assert_eq!(again.is_some_and(|ms| (15_000..=30_000).contains(&ms)), code == "unavailable");
        }
        world.live_ms(5_500, &[waiting, joined]);
        assert_eq!(world.closed(waiting), close, "{code}: it may ask again first");
        assert_eq!((world.closed(joined), world.hub.counts().leases), (None, 1), "the session goes on");
    }
}

#[test]
fn whoever_waits_for_a_room_of_which_nothing_is_heard_is_told_after_a_heartbeat() {
    for linked in [true, false] {
        let mut world = if linked { World::linked() } else { World::new() };
        let waiting = watch(&mut world, "ann");
        world.live_ms(14_900, &[waiting]);
        assert!(world.frames(waiting).is_empty(), "it may still come");
        world.live_ms(200, &[waiting]);
        let frames = world.frames(waiting);
        assert_eq!((kinds(&frames), &frames[0]["code"]), (vec!["error"], &json!("unavailable")));
        assert!((2_500..=5_000).contains(&frames[0]["retry_after_ms"].as_u64().unwrap()));
        world.say(waiting, "ann", r#"{"t":"watch","room":"r","token":"t"}"#);
        if !linked {
            world.link();
        }
        world.snapshot("r", &["bob"]);
        assert_eq!(kinds(&world.frames(waiting)), ["snapshot"], "asked again, and answered");
        world.live_ms(20_000, &[waiting]);
        assert_eq!(world.closed(waiting), None);
    }
}

#[test]
fn a_room_that_was_refused_is_asked_for_again_when_somebody_asks() {
    let mut world = World::linked();
    let joined = world.join("bob", "r", 1);
    world.snapshot("r", &["bob"]);
    world.drain_frames(joined);
    world.watched.clear();
    refuse(&mut world, WatchRefusal::Forbidden);
    assert_eq!(kinds(&world.frames(joined)), ["error"]);
    world.live_ms(20_000, &[joined]);
    let asked = |up: &WatchUp| matches!(up, WatchUp::Open(_));
    assert!(!world.watched.iter().any(asked), "not by itself");
    world.say(joined, "bob", r#"{"t":"watch","room":"r","token":"t"}"#);
    assert_eq!(world.take_opened().len(), 1);
    world.snapshot("r", &["bob", "cy"]);
    let frames = world.frames(joined);
    let list = frames.iter().rfind(|frame| frame["t"] == "snapshot").unwrap();
    assert_eq!(users(&list["members"]), ["bob", "cy"]);
    world.say(joined, "bob", r#"{"t":"leave","room":"r"}"#);
    world.pass_ms(20_000);
    assert_eq!(world.hub.counts().rooms, 0);
}

#[test]
fn a_refusal_that_passes_is_asked_again_by_the_edge_and_shown_then() {
    let mut world = World::linked();
    let key = watch(&mut world, "ann");
    world.watched.clear();
    refuse(&mut world, WatchRefusal::Unavailable { retry_after: std::time::Duration::from_secs(2) });
    assert!(world.frames(key).is_empty());
    world.live_ms(2_500, &[key]);
    assert_eq!(world.take_opened().len(), 1);
    world.snapshot("r", &["bob"]);
    assert_eq!(kinds(&world.frames(key)), ["snapshot"]);
}
