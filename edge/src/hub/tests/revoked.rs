//! Revoked tokens: what rests on one is over, and none is taken.

use std::time::Duration;

use presence_model::claim::{Action, TokenRefusal};
use presence_model::id::UserId;
use presence_model::link::{LinkDown, LinkUp};
use presence_model::reason::LeaveReason;
use presence_model::record::TokenRef;
use presence_model::revocation::Revocation;
use serde_json::json;

use super::world::{World, claims, join_text, kinds, lease, room};
use crate::hub::{ConnKey, Input};
use crate::protocol::{CloseCode, json};

fn revoked(world: &mut World, what: Revocation) {
    let until = world.store_time() + Duration::from_secs(3_600);
    world.down(LinkDown::Revoked { revocations: vec![(what, until)] });
}

fn subject(name: &str) -> Revocation {
    Revocation::Subject(UserId::new(name).unwrap())
}

/// Leases that were said to be over with their token since the last look, answered.
fn take_over(world: &mut World) -> Vec<presence_model::lease::LeaseId> {
    let mut over = Vec::new();
    for up in std::mem::take(&mut world.up) {
        if let LinkUp::Leave { request, lease, reason, .. } = up {
            assert_eq!(reason, LeaveReason::TokenRevoked);
            over.push(lease);
            world.down(LinkDown::Done { request, outcome: Ok(None) });
        } else {
            world.up.push(up);
        }
    }
    over
}

fn say_as(world: &mut World, key: ConnKey, user: &str, text: &str, token: (&str, &str)) {
    let ends = world.store_time() + Duration::from_secs(60);
    let rests_on = TokenRef { ends, key_id: token.0.into(), token_id: token.1.into() };
    let claims =
        presence_model::claim::Claims { token: rests_on, ..claims(user, &room("r"), Action::Join, ends) };
    world.give(Input::Message(key, json::parse(text).unwrap(), Some(Ok(claims))));
}

#[test]
fn sessions_and_watches_that_rest_on_a_revoked_token_end_and_others_stay() {
    let mut world = World::linked();
    let (ann, bob) = (world.join("ann", "r", 1), world.join("bob", "r", 2));
    let watcher = world.accept();
    world.say(watcher, "ann", r#"{"t":"watch","room":"r","token":"ann-2"}"#);
    world.drain_frames(watcher);
    revoked(&mut world, subject("ann"));
    for key in [ann, watcher] {
        let frames = world.frames(key);
        let ended = frames.last().unwrap();
        assert_eq!((&ended["t"], &ended["reason"]), (&json!("ended"), &json!("token_revoked")));
        assert_eq!(world.closed(key), Some(CloseCode::Evicted), "4410");
    }
    assert_eq!(take_over(&mut world), [lease(1)]);
    assert!(world.take_released().is_empty());
    assert_eq!((world.closed(bob), world.hub.counts().revoked), (None, 2));
    let again = world.accept();
    world.say(again, "ann", &join_text("ann", "r", Some(2), ""));
    let frames = world.frames(again);
    assert_eq!(
        (&frames[1]["code"], &frames[1]["message"]),
        (&json!("unauthorized"), &json!("no good token"))
    );
    assert!(world.take_joins().is_empty(), "the core does not hear of it");
    assert_eq!(world.token_refusals, [TokenRefusal::Revoked]);
}

#[test]
fn a_key_and_a_token_are_revoked_by_their_ids() {
    let mut world = World::linked();
    let keys: Vec<_> = [("old", "a"), ("new", "b"), ("new", "c")]
        .into_iter()
        .zip(1..)
        .map(|(token, n)| {
            let (key, user) = (world.accept(), format!("u{n}"));
            say_as(&mut world, key, &user, &join_text(&user, "r", Some(1), ""), token);
            let join = world.take_join();
            world.granted(join.request, lease(n));
            key
        })
        .collect();
    revoked(&mut world, Revocation::Key("old".into()));
    revoked(&mut world, Revocation::Token("c".into()));
    revoked(&mut world, Revocation::Token("old".into()));
    let closed = keys.iter().map(|key| world.closed(*key).is_some());
    assert_eq!(closed.collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn a_fresh_token_takes_a_session_from_under_a_revocation() {
    let mut world = World::linked();
    let key = world.accept();
    say_as(&mut world, key, "ann", &join_text("ann", "r", Some(1), ""), ("old", "a"));
    let join = world.take_join();
    world.granted(join.request, lease(1));
    say_as(&mut world, key, "ann", r#"{"t":"token","room":"r","token":"ann-2"}"#, ("new", "b"));
    revoked(&mut world, Revocation::Key("old".into()));
    assert_eq!(world.closed(key), None);
    say_as(&mut world, key, "ann", r#"{"t":"token","room":"r","token":"ann-3"}"#, ("old", "c"));
    assert_eq!(world.frames(key).last().unwrap()["code"], "unauthorized");
    assert_eq!(world.closed(key), None, "what it rests on is good");
}

#[test]
fn a_join_on_its_way_is_given_up_with_its_token() {
    let mut world = World::linked();
    let key = world.accept();
    world.say(key, "ann", &join_text("ann", "r", Some(1), ""));
    let join = world.take_join();
    revoked(&mut world, subject("ann"));
    assert_eq!(kinds(&world.frames(key)), ["hello", "ended"]);
    world.granted(join.request, lease(1));
    assert_eq!(take_over(&mut world), [lease(1)], "what is granted nevertheless is left");
}

#[test]
fn what_was_said_without_a_link_is_said_on_the_next_and_a_core_that_knows_nothing_changes_nothing() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    let other = world.join("bob", "r", 2);
    revoked(&mut world, subject("ann"));
    assert_eq!(world.closed(key), Some(CloseCode::Evicted));
    world.up.clear();
    world.give(Input::LinkLost);
    world.pass_ms(2_000);
    world.link();
    assert_eq!(take_over(&mut world), [lease(1)], "the goodbye was not answered");
    let again = world.accept();
    world.say(again, "ann", &join_text("ann", "r", Some(2), ""));
    assert_eq!(world.frames(again)[1]["code"], "unauthorized");
    revoked(&mut world, subject("ann"));
    assert_eq!(world.closed(other), None);
    world.live_ms(3_601_000, &[]);
    let late = world.accept();
    world.say(late, "ann", &join_text("ann", "r", Some(3), ""));
    assert_eq!(world.take_joins().len(), 1, "its time is over");
}
