//! Rooms of several regions: one list, and how fresh each region is.

use presence_model::digest::Digest;
use presence_model::id::RegionId;
use presence_model::replica::{Freshness, SnapshotPage};
use presence_model::time::StoreTime;
use presence_model::view::RegionEvent;
use presence_model::watch::WatchDown;
use serde_json::json;

use super::world::{World, kinds, member, room, users};
use crate::hub::{ConnKey, Input};

fn watch(world: &mut World, user: &str) -> ConnKey {
    let key = world.accept();
    world.say(key, user, r#"{"t":"watch","room":"r","token":"t"}"#);
    key
}

fn there(world: &mut World, event: RegionEvent) {
    let region = RegionId::new("there").unwrap();
    world.give(Input::Watch(WatchDown::Region { room: room("r"), region, event }));
}

fn list(world: &World, names: &[&str]) -> RegionEvent {
    let members: Vec<_> = names.iter().map(|name| member(name)).collect();
    let last = members.iter().fold(Digest::default(), |sum, member| sum.plus(Digest::of(member)));
    let (position, freshness) = (world.position(), Freshness::Live);
    RegionEvent::Page(SnapshotPage { position, freshness, members, first: true, last: Some(last) })
}

#[test]
fn regions_are_one_list_and_each_says_how_fresh_it_is() {
    let mut world = World::linked();
    let key = watch(&mut world, "ann");
    world.snapshot("r", &["a", "b"]);
    let page = list(&world, &["b", "c"]);
    there(&mut world, page);
    world.pass_ms(1_000);
    let frames = world.frames(key);
    assert_eq!(kinds(&frames), ["hello", "snapshot", "delta", "freshness"], "{frames:?}");
    assert_eq!(frames[2]["removals"], json!([]));
    assert_eq!(users(&frames[2]["upserts"]), ["b", "c"], "whoever is named in it");
    let b = |list: &serde_json::Value| {
        list.as_array().and_then(|all| all.iter().find(|m| m["user"] == "b").cloned())
    };
    assert_eq!(b(&frames[2]["upserts"]), b(&frames[1]["members"]), "b is one member, and as it was");
    assert_eq!((&frames[3]["region"], &frames[3]["state"]), (&json!("there"), &json!("live")));
    there(&mut world, RegionEvent::Freshness(Freshness::Stale { since: StoreTime(5) }));
    let frames = world.frames(key);
    assert_eq!((&frames[0]["region"], &frames[0]["state"]), (&json!("there"), &json!("stale")));
    there(&mut world, RegionEvent::Lost);
    world.pass_ms(1_000);
    let frames = world.frames(key);
    assert_eq!(kinds(&frames), ["delta"], "as one change");
    assert_eq!(
        (&frames[0]["removals"][0]["user"], &frames[0]["removals"][0]["reason"]),
        (&json!("c"), &json!("region_lost"))
    );
}

/// A list that lacks a lost region must not be taken for one that lacks it for now: nobody would ever go from it.
#[test]
fn who_comes_while_a_region_is_lost_is_told_of_it_when_it_is_back() {
    let mut world = World::linked();
    let key = watch(&mut world, "ann");
    world.snapshot("r", &["a"]);
    let page = list(&world, &["c"]);
    there(&mut world, page.clone());
    there(&mut world, RegionEvent::Freshness(Freshness::Stale { since: StoreTime(5) }));
    let during = watch(&mut world, "bob");
    assert_eq!(kinds(&world.frames(during)), ["hello", "freshness", "snapshot"], "stale: it is in the list");
    there(&mut world, RegionEvent::Lost);
    world.pass_ms(1_000);
    world.drain_frames(key);
    let after = watch(&mut world, "cy");
    let frames = world.frames(after);
    assert_eq!(kinds(&frames), ["hello", "snapshot"]);
    assert_eq!(users(&frames[1]["members"]), ["a"]);
    there(&mut world, page);
    there(&mut world, RegionEvent::Freshness(Freshness::Live));
    world.pass_ms(1_000);
    for key in [key, after] {
        let frames = world.frames(key);
        let told: Vec<_> = frames.iter().filter(|frame| frame["t"] == "delta").collect();
        assert_eq!(told.len(), 1, "{frames:?}");
        assert_eq!(users(&told[0]["upserts"]), ["c"]);
    }
}

/// A client holds to `stale` until its connection is told otherwise: whoever comes back on it must not inherit that of
/// when it was here before.
#[test]
fn who_comes_back_on_a_connection_is_told_what_is_live_again_behind_the_list() {
    for level in ["members", "count"] {
        let mut world = World::linked();
        let other = watch(&mut world, "bob");
        let key = watch(&mut world, "ann");
        world.snapshot("r", &["a"]);
        let page = list(&world, &["c"]);
        there(&mut world, page);
        there(&mut world, RegionEvent::Freshness(Freshness::Stale { since: StoreTime(5) }));
        assert_eq!(world.frames(key).last().unwrap()["state"], "stale");
        world.say(key, "ann", r#"{"t":"leave","room":"r"}"#);
        there(&mut world, RegionEvent::Freshness(Freshness::Live));
        world.pass_ms(1_000);
        world.drain_frames(key);
        let ask = format!(r#"{{"t":"watch","room":"r","token":"t","level":"{level}"}}"#);
        world.say(key, "ann", &ask);
        let frames = world.frames(key);
        let list = if level == "count" { "count" } else { "snapshot" };
        assert_eq!(kinds(&frames), [list, "freshness", "freshness"], "{frames:?}");
        assert!(frames[1..].iter().all(|frame| frame["state"] == "live"), "{frames:?}");
        assert!(frames[1..].iter().any(|frame| frame["region"] == "there"), "{frames:?}");
        world.pass_ms(1_000);
        assert!(world.frames(key).is_empty(), "once");
        // Whoever was never told anything of the kind is told nothing now.
        world.drain_frames(other);
        let fresh = watch(&mut world, "cy");
        assert_eq!(kinds(&world.frames(fresh)), ["hello", "snapshot"]);
    }
}

/// A region that is lost meanwhile has nobody in the list: those of it who were kept go with the list, not when it is
/// back.
#[test]
fn who_comes_back_while_a_region_is_lost_keeps_nobody_of_it() {
    let mut world = World::linked();
    let _other = watch(&mut world, "bob");
    let key = watch(&mut world, "ann");
    world.snapshot("r", &["a"]);
    let page = list(&world, &["c"]);
    there(&mut world, page);
    there(&mut world, RegionEvent::Freshness(Freshness::Stale { since: StoreTime(5) }));
    world.say(key, "ann", r#"{"t":"leave","room":"r"}"#);
    there(&mut world, RegionEvent::Lost);
    world.pass_ms(1_000);
    world.drain_frames(key);
    world.say(key, "ann", r#"{"t":"watch","room":"r","token":"t"}"#);
    let frames = world.frames(key);
    assert_eq!(kinds(&frames)[..2], ["snapshot", "freshness"], "{frames:?}");
    assert_eq!(users(&frames[0]["members"]), ["a"]);
    assert!(frames[1..].iter().all(|frame| frame["state"] == "live"), "{frames:?}");
    assert!(frames[1..].iter().any(|frame| frame["region"] == "there"), "{frames:?}");
}

/// A list of several pages is whole with the last of them only.
#[test]
fn what_is_live_again_waits_for_the_last_page() {
    let mut world = World::linked();
    let _other = watch(&mut world, "bob");
    let key = watch(&mut world, "ann");
    let crowd: Vec<String> = (0..3_000).map(|n| format!("user-{n:04}")).collect();
    let crowd: Vec<&str> = crowd.iter().map(String::as_str).collect();
    world.snapshot("r", &crowd);
    let page = list(&world, &["c"]);
    there(&mut world, page);
    there(&mut world, RegionEvent::Freshness(Freshness::Stale { since: StoreTime(5) }));
    world.drain_frames(key);
    world.say(key, "ann", r#"{"t":"leave","room":"r"}"#);
    there(&mut world, RegionEvent::Freshness(Freshness::Live));
    world.pass_ms(1_000);
    world.drain_frames(key);
    world.say(key, "ann", r#"{"t":"watch","room":"r","token":"t","level":"members"}"#);
    let mut frames = Vec::new();
    for _ in 0..40 {
        frames.extend(world.frames(key));
        world.pass_ms(100);
    }
    let last = frames.iter().rposition(|frame| frame["t"] == "snapshot").unwrap();
    assert!(last > 0, "{:?}", kinds(&frames));
    assert_eq!(kinds(&frames)[last + 1..], ["freshness", "freshness"], "{:?}", kinds(&frames));
    assert!(kinds(&frames)[..last].iter().all(|kind| *kind == "snapshot"), "{:?}", kinds(&frames));
}
