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
