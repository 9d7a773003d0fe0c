//! Clients that speak one and the other, in one room.

use bytes::Bytes;
use presence_model::replica::Freshness;
use presence_model::time::StoreTime;
use presence_model::view::RegionEvent;

use super::world::*;
use crate::hub::ConnKey;
use crate::protocol::Encoding;

/// Longer than the slowest cadence.
const FLUSH_MS: u64 = 1_100;

/// Two clients of each encoding that watch a room of so many.
fn watched_by_four(members: usize) -> (World, [ConnKey; 4]) {
    let mut world = World::linked();
    let encodings = [Encoding::Json, Encoding::Json, Encoding::Proto, Encoding::Proto];
    let keys = encodings.map(|encoding| {
        let key = world.accept_in(encoding);
        world.say(key, "ann", r#"{"t":"watch","room":"r","token":"t"}"#);
        key
    });
    let names: Vec<String> = (0..members).map(|n| format!("u{n:05}")).collect();
    world.snapshot("r", &names.iter().map(String::as_str).collect::<Vec<_>>());
    world.pass_ms(FLUSH_MS);
    for key in keys {
        let frames = std::mem::take(&mut world.clients.get_mut(&key).unwrap().frames);
        assert!(frames.len() >= 2, "hello, and the room");
        assert_eq!(frames.iter().all(is_text), key == keys[0] || key == keys[1]);
    }
    (world, keys)
}

fn is_text(frame: &Bytes) -> bool {
    frame.starts_with(b"{\"t\":\"")
}

/// One frame for all of an encoding, written once.
fn shared(world: &mut World, keys: [ConnKey; 4]) {
    let [json, same_json, proto, same_proto] = keys.map(|key| {
        let mut frames = std::mem::take(&mut world.clients.get_mut(&key).unwrap().frames);
        assert_eq!(frames.len(), 1);
        frames.remove(0)
    });
    assert!(is_text(&json) && !is_text(&proto));
    assert_eq!(json.as_ptr(), same_json.as_ptr());
    assert_eq!(proto.as_ptr(), same_proto.as_ptr());
}

#[test]
fn each_encoding_has_its_own_shared_frames_of_changes() {
    let (mut world, keys) = watched_by_four(2);
    world.commit("r", &["zoe"], &[]);
    world.pass_ms(FLUSH_MS);
    shared(&mut world, keys);
}

#[test]
fn each_encoding_has_its_own_shared_frames_of_numbers() {
    let (mut world, keys) = watched_by_four(LIST_MEMBERS + 1);
    world.commit("r", &["zoe"], &[]);
    world.pass_ms(FLUSH_MS);
    shared(&mut world, keys);
}

#[test]
fn each_encoding_has_its_own_shared_frames_of_how_fresh_a_region_is() {
    let (mut world, keys) = watched_by_four(2);
    world.region_event("r", RegionEvent::Freshness(Freshness::Held { since: StoreTime(7) }));
    world.pass_ms(FLUSH_MS);
    shared(&mut world, keys);
}
