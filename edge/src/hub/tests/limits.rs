//! What one connection may say and be sent: below, at and above each limit.

use std::time::Duration;

use presence_model::claim::{Action, Claims};
use presence_model::gate::Rate;
use presence_model::id::RoomId;
use serde_json::json;

use super::world::*;
use crate::hub::{ConnKey, Unreadable};
use crate::limits::{
    FIRST_MESSAGE_WITHIN, FLOOD_RATE, JOIN_RATE, SEND_BYTES_MAX, TALK_RATE, TOKEN_LEEWAY, TOKEN_WARNING,
};
use crate::protocol::CloseCode;

/// Says it once; whether that was too fast.
fn is_limited(world: &mut World, key: ConnKey, text: &str) -> bool {
    world.say(key, "ann", text);
    world.frames(key).iter().any(|frame| frame["code"] == json!("rate_limited"))
}

/// A whole burst is taken and not one more; then one each interval, and not a moment sooner.
fn comes_at(rate: Rate, text: &str) {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    // The join was one of its own rate.
    world.pass(rate.interval * 2);
    for said in 1..=rate.burst {
        assert!(!is_limited(&mut world, key, text), "{said} of {}", rate.burst);
    }
    assert!(is_limited(&mut world, key, text), "one above the burst");
    let moment = rate.interval / 50;
    world.pass(rate.interval - moment);
    assert!(is_limited(&mut world, key, text), "before its time");
    world.pass(moment);
    assert!(!is_limited(&mut world, key, text), "in time");
    assert!(is_limited(&mut world, key, text), "one, and no more");
    assert_eq!(world.closed(key), None, "told, not closed");
}

#[test]
fn joins_and_watches_of_a_connection_come_at_their_rate() {
    comes_at(JOIN_RATE, r#"{"t":"watch","room":"r","token":"t"}"#);
}

#[test]
fn other_messages_of_a_connection_come_at_their_rate() {
    comes_at(TALK_RATE, r#"{"t":"ping"}"#);
}

#[test]
fn so_many_messages_are_refused_in_words_and_the_next_one_closes() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    let nonsense = r#"{"t":"dance"}"#;
    for _ in 0..FLOOD_RATE.burst {
        world.say(key, "ann", nonsense);
    }
    assert_eq!(world.closed(key), None, "at the limit");
    world.pass(FLOOD_RATE.interval);
    world.say(key, "ann", nonsense);
    assert_eq!(world.closed(key), None, "one each interval");
    world.say(key, "ann", nonsense);
    assert_eq!(world.closed(key), Some(CloseCode::RateLimited), "above");
}

#[test]
fn a_connection_without_a_room_has_until_its_moment() {
    let mut world = World::linked();
    let (late, quick) = (world.accept(), world.accept());
    // Timers of connections are a little late, never early.
    let tick = FIRST_MESSAGE_WITHIN / 20;
    world.pass(FIRST_MESSAGE_WITHIN - tick);
    assert_eq!(world.closed(late), None, "below");
    world.say(quick, "ann", r#"{"t":"watch","room":"r","token":"t"}"#);
    world.pass(tick * 2);
    assert_eq!((world.closed(late), world.closed(quick)), (Some(CloseCode::Silent), None), "above");
}

#[test]
fn whoever_sends_too_many_frames_that_are_no_messages_is_closed() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    for _ in 0..2 {
        world.unreadable(key, Unreadable::Flood);
    }
    assert_eq!(world.closed(key), Some(CloseCode::RateLimited));
    assert_eq!(world.hub.counts().flooded, 1, "counted once");
}

#[test]
fn a_token_may_begin_a_little_later_than_the_store_says() {
    for (early_ms, is_good) in [(4_999, true), (5_000, true), (5_001, false)] {
        assert_eq!(TOKEN_LEEWAY, Duration::from_secs(5));
        let mut world = World::linked();
        let key = world.accept();
        let room = RoomId::new("r").unwrap();
        let now = world.store_time();
        let not_before = Some(now + Duration::from_millis(early_ms));
        let claims =
            Claims { not_before, ..claims("ann", &room, Action::Join, now + Duration::from_secs(100)) };
        world.drain_frames(key);
        world.say_with(key, r#"{"t":"watch","room":"r","token":"t"}"#, Ok(claims));
        let refused = world.frames(key).iter().any(|frame| frame["code"] == json!("unauthorized"));
        assert_eq!(refused, !is_good, "{early_ms} ms");
    }
}

#[test]
fn the_end_of_a_token_is_told_so_long_before() {
    // Of long tokens: a quarter of what is left would be more.
    let life = TOKEN_WARNING * 20;
    let mut world = World::linked();
    let key = world.accept();
    let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap();
    world.say_until(key, "ann", r#"{"t":"watch","room":"r","token":"t"}"#, ms(life));
    world.snapshot("r", &["bob"]);
    world.drain_frames(key);
    let moment = Duration::from_secs(2);
    world.live_ms(ms(life - TOKEN_WARNING - moment), &[key]);
    assert_eq!(world.frames(key).len(), 0, "before");
    world.live_ms(ms(moment * 2), &[key]);
    let frames = world.frames(key);
    assert_eq!(kinds(&frames), ["token_expiring"]);
    let left = Duration::from_millis(frames[0]["in_ms"].as_u64().unwrap());
    assert!(TOKEN_WARNING - moment < left && left <= TOKEN_WARNING, "{left:?}");
}

/// Each room of a connection has as much to show as one frame holds: the others wait until that is written.
#[test]
fn what_is_handed_over_at_once_ends_with_the_frame_that_reaches_the_limit() {
    let mut world = World::linked();
    let key = world.accept();
    world.drain_frames(key);
    world.clients.get_mut(&key).unwrap().stalled = true;
    world.say(key, "ann", r#"{"t":"ping"}"#);
    let names: Vec<String> = (0..700).map(|n| format!("{n:0>60}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for room in ["r1", "r2", "r3"] {
        world.say(key, "ann", &format!(r#"{{"t":"watch","room":"{room}","token":"t"}}"#));
        world.snapshot(room, &names);
    }
    world.drain_frames(key);
    // The pong is written, and one more portion is handed over, which stays unwritten.
    world.write_once(key);
    let sizes: Vec<usize> = world.clients[&key].frames.iter().map(bytes::Bytes::len).collect();
    let (last, before) = sizes.split_last().unwrap();
    let before: usize = before.iter().sum();
    assert!(before < SEND_BYTES_MAX && before + last >= SEND_BYTES_MAX, "{sizes:?}");
}
