//! Joins, watches, updates, tokens and goodbyes.

use std::time::Duration;

use presence_model::claim::{Action, TokenRefusal};
use presence_model::id::Generation;
use presence_model::link::{LinkDown, LinkRefusal, LinkUp, Token};
use presence_model::profile::Status;
use presence_model::reason::RemovalReason;
use presence_model::refusal::Refusal;
use serde_json::json;

use super::world::*;
use crate::hub::Input;
use crate::limits::OUTBOX_FRAMES_MAX;
use crate::protocol::CloseCode;

#[test]
fn who_joins_is_greeted_told_and_shown_the_room() {
    let mut world = World::linked();
    let key = world.accept();
    let hello = world.frames(key);
    assert_eq!(kinds(&hello), ["hello"]);
    assert_eq!((&hello[0]["heartbeat_ms"], &hello[0]["reconnect_ms"]), (&json!(15_000), &json!(5_000)));

    world.say(key, "ann", &join_text("ann", "r", Some(3), r#","status":"busy","state":{"x":1}"#));
    let join = world.take_join();
    assert_eq!(join.room, room("r"));
    assert_eq!(join.token, Token("ann-1".into()));
    assert_eq!((join.generation, join.rejoin), (Some(Generation(3)), None));
    assert_eq!((join.profile.status, join.profile.state.as_bytes()), (Status::Busy, &b"{\"x\":1}"[..]));
    assert_eq!(world.take_opened().len(), 1, "the room is opened while the answer is on its way");
    world.snapshot("r", &["ann", "bob"]);
    assert!(world.frames(key).is_empty(), "nobody is shown a room before being in");

    world.granted(join.request, lease(1));
    let frames = world.frames(key);
    assert_eq!(kinds(&frames), ["joined", "snapshot"]);
    assert_eq!(frames[0]["session"], session_of("ann"));
    assert_eq!(users(&frames[1]["members"]), ["ann", "bob"]);
    assert_eq!(frames[1]["more"], false);
    assert_eq!(world.hub.counts().leases, 1);
}

#[test]
fn without_a_first_message_the_connection_is_closed_after_five_seconds() {
    let mut world = World::linked();
    let key = world.accept();
    world.say(key, "ann", r#"{"t":"ping"}"#);
    world.pass_ms(4_999);
    assert_eq!(world.closed(key), None);
    world.pass_ms(101);
    assert_eq!(world.closed(key), Some(CloseCode::Silent));
}

#[test]
fn a_refused_join_may_be_said_better_and_else_closes_with_its_code() {
    let large = format!(r#","state":"{}""#, "x".repeat(2_000));
    for (more, code) in
        [(r#","status":"asleep""#, CloseCode::Malformed), (large.as_str(), CloseCode::TooLarge)]
    {
        let mut world = World::linked();
        let key = world.accept();
        world.drain_frames(key);
        world.say(key, "ann", &join_text("ann", "r", Some(1), more));
        assert_eq!(kinds(&world.frames(key)), ["error"]);
        world.pass_ms(4_999);
        assert_eq!(world.closed(key), None, "another room may follow");
        world.pass_ms(101);
        assert_eq!(world.closed(key), Some(code));

        let key = world.accept();
        world.say(key, "bob", &join_text("bob", "r", Some(1), more));
        world.say(key, "bob", &join_text("bob", "r", Some(1), ""));
        let join = world.take_join();
        world.granted(join.request, lease(1));
        world.live_ms(6_000, &[key]);
        assert_eq!(world.closed(key), None);
        world.say(key, "bob", r#"{"t":"leave","room":"r"}"#);
        world.live_ms(6_000, &[key]);
        assert_eq!(world.closed(key), Some(CloseCode::Normal), "what was refused before is forgotten");
    }
}

#[test]
fn a_repeated_join_is_answered_as_before_and_shown_anew() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.snapshot("r", &["ann"]);
    world.drain_frames(key);
    world.say(key, "ann", &join_text("ann", "r", Some(1), r#","status":"away""#));
    let frames = world.frames(key);
    assert_eq!(kinds(&frames), ["joined", "snapshot"]);
    assert_eq!((&frames[0]["generation"], &frames[0]["resumed"]), (&json!(1), &json!(true)));
    assert!(world.take_joins().is_empty(), "the core is not asked again");
    let update = world.up.iter().find(|up| matches!(up, LinkUp::Update { .. })).unwrap();
    assert!(matches!(update, LinkUp::Update { status: Some(Status::Away), state: None, token: None, .. }));
}

#[test]
fn a_higher_attempt_on_the_same_connection_is_not_superseded_by_itself() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.say(key, "ann", &join_text("ann", "r", Some(2), ""));
    let join = world.take_join();
    assert_eq!(join.generation, Some(Generation(2)));
    world.down(LinkDown::EndLease { lease: lease(1), reason: RemovalReason::Superseded });
    world.granted(join.request, lease(2));
    assert_eq!(kinds(&world.frames(key)), ["joined"]);
    assert_eq!(world.closed(key), None);
    world.say(key, "ann", &join_text("ann", "r", Some(0), ""));
    let frames = world.frames(key);
    assert_eq!((&frames[0]["t"], &frames[0]["code"]), (&json!("error"), &json!("stale_generation")));
    world.say(key, "ann", &join_text("another", "r", Some(1), ""));
    assert_eq!(world.frames(key)[0]["code"], "bad_request");
    assert_eq!(world.closed(key), None);
}

#[test]
fn whoever_is_superseded_is_told_and_closed() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.down(LinkDown::EndLease { lease: lease(1), reason: RemovalReason::Superseded });
    let frames = world.frames(key);
    assert_eq!((&frames[0]["t"], &frames[0]["reason"]), (&json!("ended"), &json!("superseded")));
    assert_eq!(world.closed(key), Some(CloseCode::Superseded));
    assert!(world.take_released().is_empty(), "there is nothing left to release");
    assert_eq!(world.hub.counts().reconnects.superseded, 1);
}

#[test]
fn an_ending_closes_only_with_the_last_room() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.say(key, "ann", &join_text("ann", "q", Some(1), ""));
    let join = world.take_join();
    world.granted(join.request, lease(2));
    world.down(LinkDown::EndLease { lease: lease(1), reason: RemovalReason::Evicted });
    assert_eq!(world.closed(key), None);
    world.down(LinkDown::EndLease { lease: lease(2), reason: RemovalReason::TokenRevoked });
    assert_eq!(world.closed(key), Some(CloseCode::Evicted));
}

#[test]
fn refusals_of_the_core_have_their_code() {
    let mut world = World::linked();
    let stale = Refusal::StaleGeneration { given: Generation(1), stored: Generation(5) };
    let table = [
        (LinkRefusal::Refused(stale), "stale_generation", CloseCode::Superseded),
        (LinkRefusal::Refused(Refusal::TooManySessions), "too_many_sessions", CloseCode::Overloaded),
        (LinkRefusal::Unauthorized, "unauthorized", CloseCode::Unauthorized),
        (LinkRefusal::Forbidden, "forbidden", CloseCode::Forbidden),
        (
            LinkRefusal::Unavailable { retry_after: Duration::from_millis(300) },
            "unavailable",
            CloseCode::Silent,
        ),
        (LinkRefusal::BadRequest, "bad_request", CloseCode::Malformed),
    ];
    for (refusal, code, close) in table {
        let key = world.accept();
        world.say(key, "ann", &join_text("ann", "r", Some(1), ""));
        let join = world.take_join();
        world.drain_frames(key);
        world.refused(join.request, refusal);
        let frames = world.frames(key);
        assert_eq!((&frames[0]["t"], &frames[0]["code"]), (&json!("error"), &json!(code)));
        world.pass_ms(4_999);
        assert_eq!(world.closed(key), None, "{code}: another room may follow");
        world.pass_ms(500);
        assert_eq!(world.closed(key), Some(close), "{code}");
        if code == "stale_generation" {
            assert_eq!(frames[0]["generation"], 5);
        }
    }
}

#[test]
fn bad_tokens_are_refused_before_the_core_hears_of_them() {
    let mut world = World::linked();
    let ends = world.store_time() + Duration::from_secs(60);
    let past = world.store_time();
    let table = [
        (Err(TokenRefusal::Signature), CloseCode::Unauthorized),
        (Ok(claims("ann", &room("r"), Action::Join, past)), CloseCode::Unauthorized),
        (Ok(claims("ann", &room("other"), Action::Join, ends)), CloseCode::Forbidden),
        (Ok(claims("ann", &room("r"), Action::Watch, ends)), CloseCode::Forbidden),
    ];
    for (verified, close) in table {
        let key = world.accept();
        world.say_with(key, &join_text("ann", "r", Some(1), ""), verified);
        world.pass_ms(4_999);
        assert_eq!(world.closed(key), None, "other rooms may be on their way");
        world.pass_ms(101);
        assert_eq!(world.closed(key), Some(close));
        assert!(world.take_joins().is_empty());
    }
}

/// In whichever order they are asked for, and whoever refuses: the rooms that are granted go on.
#[test]
fn a_refused_room_takes_no_other_one_with_it() {
    let stale = Refusal::StaleGeneration { given: Generation(1), stored: Generation(5) };
    let refusals = [
        LinkRefusal::Unauthorized,
        LinkRefusal::Forbidden,
        LinkRefusal::Refused(stale),
        LinkRefusal::Refused(Refusal::TooManySessions),
    ];
    for refusal in refusals {
        for is_first in [true, false] {
            let mut world = World::linked();
            let key = world.accept();
            let names = if is_first { ["refused", "good"] } else { ["good", "refused"] };
            for name in names {
                // The answer to one may come before the other is asked for.
                world.say(key, "ann", &join_text("ann", name, Some(1), ""));
                let join = world.take_join();
                match name {
                    "good" => world.granted(join.request, lease(1)),
                    _ => world.refused(join.request, refusal),
                }
            }
            let frames = world.frames(key);
            let told = |kind: &str| {
                frames.iter().find(|frame| frame["t"] == kind).map(|frame| frame["room"].clone())
            };
            assert_eq!((told("error"), told("joined")), (Some(json!("refused")), Some(json!("good"))));
            world.live_ms(20_000, &[key]);
            assert_eq!(world.closed(key), None, "{refusal} first: {is_first}");
            assert_eq!(world.hub.counts().leases, 1);
        }
    }
}

#[test]
fn a_bad_token_for_the_first_of_several_rooms_leaves_the_others() {
    let mut world = World::linked();
    let key = world.accept();
    world.say_with(key, &join_text("ann", "r", Some(1), ""), Err(TokenRefusal::Signature));
    world.pass_ms(2_000);
    world.say(key, "ann", r#"{"t":"watch","room":"s","token":"t"}"#);
    world.snapshot("s", &["bob"]);
    world.live_ms(20_000, &[key]);
    assert_eq!(kinds(&world.frames(key)), ["hello", "error", "snapshot"]);
    assert_eq!(world.closed(key), None);
    // A better token for the first is taken on the same connection.
    world.say(key, "ann", &join_text("ann", "r", Some(2), ""));
    let join = world.take_join();
    world.granted(join.request, lease(1));
    assert!(kinds(&world.frames(key)).contains(&"joined"));
}

#[test]
fn updates_are_said_one_at_a_time_and_only_if_something_is_new() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    let updates = |world: &World| -> Vec<(Option<Status>, bool)> {
        world
            .up
            .iter()
            .filter_map(|up| {
                if let LinkUp::Update { status, state, .. } = up {
                    Some((*status, state.is_some()))
                } else {
                    None
                }
            })
            .collect()
    };
    world.say(key, "ann", r#"{"t":"update","room":"r","status":"available","state":{}}"#);
    assert!(updates(&world).is_empty(), "an unchanged update is no update");
    for status in ["away", "busy", "away", "busy"] {
        world.say(key, "ann", &format!(r#"{{"t":"update","room":"r","status":"{status}"}}"#));
    }
    assert_eq!(updates(&world), [(Some(Status::Away), false)]);
    let Some(LinkUp::Update { request, .. }) = world.up.pop() else { panic!("no update") };
    world.down(LinkDown::Done { request, outcome: Ok(None) });
    assert_eq!(updates(&world), [(Some(Status::Busy), false)]);
    world.say(key, "ann", r#"{"t":"update","room":"elsewhere","status":"away"}"#);
    assert_eq!(world.frames(key)[0]["code"], "not_joined");
}

/// A store that failed over may have lost what was said long ago. Whoever sees that says it again, and is not told apart
/// from one who repeats what everybody knows.
#[test]
fn what_is_shown_otherwise_may_be_said_again() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.snapshot("r", &["ann"]);
    let said = |world: &mut World, text: &str| {
        world.up.clear();
        world.say(key, "ann", &format!(r#"{{"t":"update","room":"r",{text}}}"#));
        let Some(LinkUp::Update { request, status, state, .. }) = world.up.pop() else { return None };
        world.down(LinkDown::Done { request, outcome: Ok(None) });
        Some((status, state.is_some()))
    };
    assert_eq!(said(&mut world, r#""status":"available","state":{}"#), None, "as it is shown");
    let first = said(&mut world, r#""status":"away","state":{"a":1}"#);
    assert_eq!(first, Some((Some(Status::Away), true)));
    // The store has lost it: the list says what was before.
    for named in [r#""status":"away""#, r#""state":{"a":1}"#] {
        assert_eq!(said(&mut world, named), Some((Some(Status::Away), true)), "all that is shown otherwise");
    }
    let back = said(&mut world, r#""status":"available""#);
    assert_eq!(back, Some((Some(Status::Available), true)));
    assert_eq!(said(&mut world, r#""status":"available","state":{}"#), Some((None, true)));
    assert_eq!(said(&mut world, r#""status":"available","state":{}"#), None, "as it is shown");
}

#[test]
fn an_update_for_a_lease_that_is_not_current_brings_the_session_back() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.say(key, "ann", r#"{"t":"update","room":"r","status":"away"}"#);
    let Some(LinkUp::Update { request, .. }) = world.up.pop() else { panic!("no update") };
    let refusal = LinkRefusal::Refused(Refusal::NotPresent);
    world.down(LinkDown::Done { request, outcome: Err(refusal) });
    let join = world.take_join();
    assert!(join.rejoin.is_some());
    assert_eq!(join.profile.status, Status::Away);
    world.granted(join.request, lease(2));
    assert!(world.frames(key).is_empty());
    assert!(!world.up.iter().any(|up| matches!(up, LinkUp::Update { .. })), "the join has said it");
}

#[test]
fn a_goodbye_is_said_until_it_is_answered() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.say(key, "ann", r#"{"t":"leave","room":"r"}"#);
    let frames = world.frames(key);
    assert_eq!((&frames[0]["t"], &frames[0]["reason"]), (&json!("ended"), &json!("left")));
    let leaves = |world: &World| world.up.iter().filter(|up| matches!(up, LinkUp::Leave { .. })).count();
    assert_eq!(leaves(&world), 1);
    world.give(crate::hub::Input::LinkLost);
    world.pass_ms(1_100);
    world.link();
    assert_eq!(leaves(&world), 2);
    world.pass_ms(5_100);
    assert_eq!(world.closed(key), Some(CloseCode::Normal));
    assert!(world.take_released().is_empty());
}

#[test]
fn who_says_goodbye_before_the_answer_is_taken_out_again() {
    let mut world = World::linked();
    let key = world.accept();
    world.say(key, "ann", &join_text("ann", "r", Some(1), ""));
    let join = world.take_join();
    world.say(key, "ann", r#"{"t":"leave","room":"r"}"#);
    world.granted(join.request, lease(1));
    assert!(world.up.iter().any(|up| matches!(up, LinkUp::Leave { lease: l, .. } if *l == lease(1))));
    assert_eq!(world.hub.counts().leases, 0);
}

#[test]
fn odd_names_pass_unharmed() {
    let mut world = World::linked();
    for (n, name) in ["__proto__", "constructor", "a\u{0}b\n\u{1b}[31m", "\u{202e}abc", &"😀".repeat(63)]
        .into_iter()
        .enumerate()
    {
        let key = world.accept();
        let quoted = serde_json::to_string(name).unwrap();
        let text = format!(
            r#"{{"t":"join","room":{quoted},"token":"t","session":"0123456789abcdef","state":{{"__proto__":1}}}}"#
        );
        world.say(key, name, &text);
        let join = world.take_join();
        assert_eq!(join.room.as_str(), name);
        world.granted(join.request, lease(100 + n as u64));
        world.snapshot(name, &[name]);
        let frames = world.frames(key);
        assert_eq!(kinds(&frames), ["hello", "joined", "snapshot"]);
        assert_eq!(frames[2]["room"], name);
        assert_eq!(users(&frames[2]["members"]), [name]);
    }
}

#[test]
fn floods_are_told_then_closed_and_disturb_nobody() {
    let mut world = World::linked();
    let (key, other) = (world.accept(), world.join("bob", "r", 2));
    for _ in 0..101 {
        world.say(key, "ann", r#"{"t":"ping"}"#);
    }
    let frames = world.frames(key);
    let last = frames.last().unwrap();
    assert_eq!((&last["code"], &last["retry_after_ms"]), (&json!("rate_limited"), &json!(50)));
    for _ in 0..200 {
        world.say(key, "ann", r#"{"t":"dance"}"#);
    }
    assert_eq!(world.closed(key), Some(CloseCode::RateLimited));
    assert_eq!(world.closed(other), None);
}

#[test]
fn who_asks_without_reading_floods_at_the_limit_of_answers() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.drain_frames(key);
    world.clients.get_mut(&key).unwrap().stalled = true;
    let ping = |world: &mut World| {
        world.say(key, "ann", r#"{"t":"ping"}"#);
        world.pass_ms(50);
    };
    // The first is being written, the others wait.
    (0..OUTBOX_FRAMES_MAX).for_each(|_| ping(&mut world));
    assert_eq!(world.closed(key), None, "below");
    ping(&mut world);
    assert_eq!(world.closed(key), None, "at the limit");
    ping(&mut world);
    assert_eq!(world.closed(key), Some(CloseCode::RateLimited), "above");
    assert_eq!((world.hub.counts().flooded, world.hub.counts().slow), (1, 0));
    assert!(world.take_released().iter().any(|(leases, _)| leases == &[lease(1)]));
}

#[test]
fn updates_without_end_of_one_who_does_not_read_are_its_own_fault() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.clients.get_mut(&key).unwrap().stalled = true;
    for n in 0..400 {
        let text = format!(r#"{{"t":"update","room":"r","state":{n}}}"#);
        world.say(key, "ann", &text);
    }
    assert_eq!(world.closed(key), Some(CloseCode::RateLimited));
}

#[test]
fn who_does_not_read_what_it_did_not_ask_for_is_shed() {
    let mut world = World::linked();
    let key = world.accept();
    let rooms = presence_model::limits::ROOMS_PER_CONNECTION_MAX as u64;
    for n in 0..rooms {
        let text = join_text("ann", &format!("r{n}"), Some(1), r#","watch":false"#);
        world.say(key, "ann", &text);
        let join = world.take_join();
        world.granted(join.request, lease(n));
    }
    world.drain_frames(key);
    world.clients.get_mut(&key).unwrap().stalled = true;
    // As many answers as may wait, and one that is being written.
    for _ in 0..=OUTBOX_FRAMES_MAX {
        world.say(key, "ann", r#"{"t":"ping"}"#);
        world.pass_ms(50);
    }
    assert_eq!(world.closed(key), None);
    let ended = LinkDown::EndLease { lease: lease(0), reason: RemovalReason::Evicted };
    world.give(Input::Link(ended));
    assert_eq!(world.closed(key), Some(CloseCode::Overloaded));
    assert_eq!((world.hub.counts().flooded, world.hub.counts().slow), (0, 1));
}

#[test]
fn sixty_four_rooms_and_no_more() {
    let mut world = World::linked();
    let key = world.accept();
    for n in 0..65 {
        let text = format!(r#"{{"t":"watch","room":"r{n}","token":"t"}}"#);
        world.say(key, "ann", &text);
    }
    let frames = world.frames(key);
    assert_eq!(frames.last().unwrap()["code"], "too_many_rooms");
    assert_eq!(world.hub.counts().rooms, 64);
}
