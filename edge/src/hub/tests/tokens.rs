//! Tokens: replaced in place, ended, refused by a core.

use std::time::Duration;

use presence_model::link::{LinkDown, LinkRefusal, LinkUp, RequestId, Token};
use presence_model::reason::RemovalReason;
use presence_model::refusal::Refusal;
use serde_json::{Value, json};

use super::world::*;
use crate::hub::ConnKey;
use crate::protocol::CloseCode;

#[test]
fn a_token_is_replaced_in_place_by_one_of_the_same_subject_only() {
    let mut world = World::linked();
    let key = world.accept();
    world.say_until(key, "ann", &join_text("ann", "r", Some(1), ""), 100_000);
    let join = world.take_join();
    let ends = world.store_time() + Duration::from_secs(100);
    world.granted_until(join.request, lease(1), ends);
    world.snapshot("r", &["ann"]);
    world.drain_frames(key);
    // A quarter of 100 s before its end.
    world.live_ms(74_500, &[key]);
    assert!(world.frames(key).is_empty());
    world.live_ms(1_000, &[key]);
    let frames = world.frames(key);
    assert_eq!(kinds(&frames), ["token_expiring"]);
    assert!(frames[0]["in_ms"].as_u64().unwrap() > 24_000);

    world.say(key, "bob", r#"{"t":"token","room":"r","token":"new"}"#);
    assert_eq!(world.frames(key)[0]["code"], "forbidden");
    world.say(key, "ann", r#"{"t":"token","room":"r","token":"new"}"#);
    let (request, token) = offered(&world).unwrap();
    assert_eq!(token, Token("new".into()));
    let ends = world.store_time() + Duration::from_secs(1_000);
    world.down(LinkDown::Done { request, outcome: Ok(Some(ends)) });
    world.live_ms(60_000, &[key]);
    assert!(world.frames(key).is_empty(), "the old end is forgotten");
    assert_eq!(world.closed(key), None);
}

/// The time until its next ping is no reprieve.
#[test]
fn a_store_clock_that_is_set_ahead_ends_tokens_at_once() {
    let mut world = World::linked();
    let keys = ["ann", "bob"].map(|user| {
        let key = world.accept();
        let seconds = if user == "ann" { 120 } else { 1_000 };
        world.say_until(key, user, r#"{"t":"watch","room":"r","token":"t"}"#, seconds * 1_000);
        world.drain_frames(key);
        key
    });
    let store_time = world.store_time() + Duration::from_secs(300);
    world.down(LinkDown::Beat { sequence: 0, store_time, store_reachable: true });
    world.pass_ms(50);
    assert_eq!(world.frames(keys[0])[0]["reason"], "token_expired");
    assert!(world.frames(keys[1]).is_empty());
}

#[test]
fn watching_ends_with_its_token() {
    let mut world = World::linked();
    let key = world.accept();
    world.say_until(key, "ann", r#"{"t":"watch","room":"r","token":"t"}"#, 8_000);
    world.snapshot("r", &["bob"]);
    assert_eq!(kinds(&world.frames(key)), ["hello", "snapshot"]);
    world.pass_ms(6_100);
    assert_eq!(kinds(&world.frames(key)), ["token_expiring"]);
    world.pass_ms(1_800);
    assert_eq!(world.closed(key), None);
    world.pass_ms(200);
    let frames = world.frames(key);
    assert_eq!((&frames[0]["t"], &frames[0]["reason"]), (&json!("ended"), &json!("token_expired")));
    assert_eq!(world.closed(key), Some(CloseCode::Unauthorized));
}

/// A core may not know the key of a token that an edge knows.
#[test]
fn a_fresh_token_that_a_core_does_not_take_leaves_the_session_with_the_one_it_came_with() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    let (request, _) = offer(&mut world, key, "ann-2").unwrap();
    // Another one comes before the answer: it is judged by itself.
    assert_eq!(offer(&mut world, key, "ann-3"), None);
    world.down(LinkDown::Done { request, outcome: Err(LinkRefusal::Unauthorized) });
    let (second, token) = offered(&world).unwrap();
    assert_eq!(token, Token("ann-3".into()));
    world.down(LinkDown::Done { request: second, outcome: Err(LinkRefusal::Forbidden) });
    assert_eq!(codes(&mut world, key), ["unauthorized", "forbidden"]);
    world.down(LinkDown::EndLease { lease: lease(1), reason: RemovalReason::LeaseExpired });
    assert_eq!(world.take_join().token, Token("ann-1".into()), "it is joined again with what is good");
    assert_eq!(world.closed(key), None);
}

/// The core has not judged it then: the join that follows is the first to carry it.
#[test]
fn a_fresh_token_is_refused_to_a_join_again_and_the_one_before_brings_the_session_back() {
    for refusal in
        [LinkRefusal::Unauthorized, LinkRefusal::Refused(Refusal::TokenEnded), LinkRefusal::Forbidden]
    {
        for is_answered in [true, false] {
            let mut world = World::linked();
            let key = world.join("ann", "r", 1);
            let (request, _) = offer(&mut world, key, "ann-2").unwrap();
            if is_answered {
                let lost = LinkRefusal::Refused(Refusal::NotCurrent);
                world.down(LinkDown::Done { request, outcome: Err(lost) });
            } else {
                world.down(LinkDown::EndLease { lease: lease(1), reason: RemovalReason::LeaseExpired });
            }
            let join = world.take_join();
            assert_eq!(join.token, Token("ann-2".into()));
            world.refused(join.request, refusal);
            assert_eq!(codes(&mut world, key).len(), 1, "{refusal}: the client is told of the fresh one");
            let again = world.take_join();
            assert_eq!((again.token, again.rejoin.is_some()), (Token("ann-1".into()), true), "{refusal}");
            // That one is of no use either: there is none before it.
            world.refused(again.request, LinkRefusal::Unauthorized);
            let frames = world.frames(key);
            assert_eq!(frames[0]["reason"], "token_revoked", "{refusal}");
            assert!(world.take_joins().is_empty());
        }
    }
}

#[test]
fn a_token_that_comes_while_the_one_before_is_refused_is_tried_next() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.down(LinkDown::EndLease { lease: lease(1), reason: RemovalReason::LeaseExpired });
    let join = world.take_join();
    assert_eq!(offer(&mut world, key, "ann-2"), None, "the join is under way");
    world.refused(join.request, LinkRefusal::Unauthorized);
    let again = world.take_join();
    assert_eq!(again.token, Token("ann-2".into()));
    world.granted(again.request, lease(2));
    assert_eq!(offered(&world), None, "the join has said it");
    // What a core took since is what is left, and nothing older.
    let (request, _) = offer(&mut world, key, "ann-3").unwrap();
    world.down(LinkDown::Done { request, outcome: Err(LinkRefusal::Unauthorized) });
    world.down(LinkDown::EndLease { lease: lease(2), reason: RemovalReason::LeaseExpired });
    assert_eq!(world.take_join().token, Token("ann-2".into()));
    assert_eq!(world.closed(key), None);
}

/// Offers a fresh token; what the core is told of it at once.
fn offer(world: &mut World, key: ConnKey, token: &str) -> Option<(RequestId, Token)> {
    world.up.clear();
    world.say(key, "ann", &format!(r#"{{"t":"token","room":"r","token":"{token}"}}"#));
    offered(world)
}

fn offered(world: &World) -> Option<(RequestId, Token)> {
    world.up.iter().find_map(|up| {
        let LinkUp::Update { request, token: Some(token), .. } = up else { return None };
        Some((*request, token.clone()))
    })
}

fn codes(world: &mut World, key: ConnKey) -> Vec<Value> {
    world.frames(key).iter().map(|frame| frame["code"].clone()).collect()
}
