//! The link: opened, lost, moved, and what is said again on the next.

use std::time::Duration;

use presence_model::lease::LeaseId;
use presence_model::link::{LinkDown, LinkRefusal, LinkUp};
use presence_model::reason::RemovalReason;
use presence_model::refusal::Refusal;
use serde_json::json;

use super::world::*;
use crate::hub::Input;
use crate::protocol::CloseCode;

#[test]
fn links_are_numbered_and_opened_again_with_backoff() {
    let mut world = World::new();
    world.give(Input::Tick);
    assert_eq!(world.links, [1]);
    world.give(Input::LinkLost);
    world.pass_ms(1_000);
    assert_eq!(world.links, [1, 2], "the first wait is at most a beat");
    world.core_beats = false;
    world.pass_ms(3_000);
    assert_eq!(world.links_dropped, 1, "nobody welcomed it");
    world.pass_ms(60_000);
    let tries = world.links.len();
    assert!((6..=20).contains(&tries), "{tries}");
    assert!(world.links.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn a_core_silent_for_three_beats_is_left() {
    let mut world = World::linked();
    world.pass_ms(10_000);
    assert_eq!((world.links.len(), world.hub.counts().link_up), (1, true));
    world.core_beats = false;
    world.pass_ms(2_000);
    assert_eq!(world.links.len(), 1);
    world.pass_ms(1_100);
    assert_eq!((world.links.len(), world.links_dropped), (2, 1), "the next at once");
}

#[test]
fn joins_wait_for_a_link_and_are_said_again_on_the_next() {
    let mut world = World::new();
    world.give(Input::Tick);
    let key = world.accept();
    world.say(key, "ann", &join_text("ann", "r", Some(1), ""));
    assert!(world.take_joins().is_empty());
    world.link();
    let first = world.take_join();
    world.give(Input::LinkLost);
    world.pass_ms(1_000);
    world.link();
    let again = world.take_join();
    assert_eq!(first, again);
    world.granted(again.request, lease(1));
    world.drain_frames(key);
    assert_eq!(world.hub.counts().leases, 1);
}

#[test]
fn a_join_without_an_answer_is_refused_in_the_end_and_not_left_behind() {
    let mut world = World::linked();
    let key = world.accept();
    world.say(key, "ann", &join_text("ann", "r", Some(1), ""));
    let join = world.take_join();
    world.drain_frames(key);
    world.live_ms(15_100, &[key]);
    let frames = world.frames(key);
    assert_eq!((&frames[0]["code"], world.closed(key)), (&json!("unavailable"), None));
    assert!(frames[0]["retry_after_ms"].as_u64().unwrap() >= 2_500);
    assert_eq!(world.take_released(), [(vec![], 1)]);
    world.granted(join.request, lease(1));
    assert_eq!(world.take_released(), [(vec![lease(1)], 0)], "late: given up again");
    let twice = join_text("ann", "r", Some(1), "");
    world.say(key, "ann", &twice);
    assert_eq!(world.take_joins().len(), 1, "the connection may try again");
}

#[test]
fn the_join_of_a_client_that_went_is_released_unanswered() {
    let mut world = World::linked();
    let key = world.accept();
    world.say(key, "ann", &join_text("ann", "r", Some(4), ""));
    let join = world.take_join();
    world.hang_up(key);
    let released = world.up.iter().find_map(|up| {
        if let LinkUp::Release { request, unanswered, .. } = up {
            Some((*request, unanswered.clone()))
        } else {
            None
        }
    });
    let (_, unanswered) = released.unwrap();
    assert_eq!(unanswered[0].connection, join.connection);
    assert_eq!((unanswered[0].user.as_str(), unanswered[0].generation), ("ann", join.generation));
    // The core that sent the commit dies before it answers: said again on the next link.
    world.up.clear();
    world.give(Input::LinkLost);
    world.pass_ms(1_000);
    world.link();
    assert_eq!(world.take_released(), [(vec![], 1)]);
    world.pass_ms(40_000);
    assert!(world.take_released().is_empty(), "answered");
}

#[test]
fn a_join_that_was_never_said_leaves_nothing() {
    let mut world = World::new();
    world.give(Input::Tick);
    let key = world.accept();
    world.say(key, "ann", &join_text("ann", "r", Some(1), ""));
    world.hang_up(key);
    world.link();
    assert!(world.take_joins().is_empty() && world.take_released().is_empty());
}

#[test]
fn releases_are_repeated_until_answered() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.give(Input::LinkLost);
    world.hang_up(key);
    world.pass_ms(1_000);
    world.link();
    let count = |world: &World| world.up.iter().filter(|up| matches!(up, LinkUp::Release { .. })).count();
    assert_eq!(count(&world), 1);
    world.pass_ms(15_100);
    assert_eq!(count(&world), 2, "a core that does not answer is asked again");
    world.up.retain(|up| matches!(up, LinkUp::Release { .. }));
    let Some(LinkUp::Release { request, .. }) = world.up.pop() else { panic!("no release") };
    let refusal = LinkRefusal::Unavailable { retry_after: Duration::from_secs(2) };
    world.down(LinkDown::Done { request, outcome: Err(refusal) });
    world.up.clear();
    world.pass_ms(1_900);
    assert_eq!(count(&world), 0);
    world.pass_ms(200);
    assert_eq!(world.take_released(), [(vec![lease(1)], 0)]);
}

#[test]
fn every_link_and_every_call_renews_all_spread_over_its_span() {
    let mut world = World::linked();
    let keys: Vec<_> = (0..50).map(|n| world.join(&format!("u{n}"), "r", n)).collect();
    world.take_renewed();
    world.down(LinkDown::RenewAll { within: Duration::from_secs(2) });
    world.pass_ms(900);
    let early = world.take_renewed();
    assert!((15..=35).contains(&early.len()), "{}", early.len());
    world.pass_ms(1_100);
    let mut all = early;
    all.extend(world.take_renewed());
    all.sort_unstable();
    let mut expected: Vec<LeaseId> = (0..50).map(lease).collect();
    expected.sort_unstable();
    assert_eq!(all, expected);
    for key in keys {
        world.give(Input::Heard(key));
    }
    world.give(Input::LinkLost);
    world.pass_ms(1_000);
    world.link();
    world.pass_ms(2_000);
    assert_eq!(world.take_renewed().len(), 50);
}

/// Updates since the last look, as (status, state, token), answered.
fn updates(world: &mut World) -> Vec<(bool, bool, bool)> {
    let mut said = Vec::new();
    for up in std::mem::take(&mut world.up) {
        if let LinkUp::Update { request, status, state, token, .. } = up {
            said.push((status.is_some(), state.is_some(), token.is_some()));
            world.down(LinkDown::Done { request, outcome: Ok(None) });
        }
    }
    said
}

#[test]
fn what_was_said_within_a_ttl_is_said_again_to_whoever_may_have_lost_it() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    let renew_all = LinkDown::RenewAll { within: Duration::from_secs(2) };
    world.down(renew_all.clone());
    assert_eq!(updates(&mut world), [], "her join said it all");
    world.say(key, "ann", r#"{"t":"update","room":"r","status":"busy"}"#);
    assert_eq!(updates(&mut world), [(true, false, false)]);
    world.down(renew_all.clone());
    assert_eq!(updates(&mut world), [(true, false, false)], "a store that lost its latest commits");
    world.give(Input::LinkLost);
    world.pass_ms(1_000);
    world.link();
    assert_eq!(updates(&mut world), [(true, false, false)], "it may have lost them meanwhile");
    for _ in 0..46 {
        world.live_ms(1_000, &[key]);
        world.take_renewed();
    }
    world.down(renew_all);
    assert_eq!(updates(&mut world), [], "stored long ago");
}

#[test]
fn a_core_that_goes_is_left_with_a_word_and_renewals_go_on() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.down(LinkDown::Drain);
    assert!(world.up.iter().any(|up| matches!(up, LinkUp::Bye { moving: true })));
    assert_eq!(world.links, [1, 2]);
    world.link();
    world.pass_ms(2_000);
    assert_eq!(world.take_renewed(), [lease(1)]);
    assert!(world.frames(key).is_empty(), "nobody is told");
    assert_eq!(world.watches_opened, 2);
}

#[test]
fn a_core_that_goes_before_it_has_said_welcome_is_left_as_well() {
    let mut world = World::among(&["a", "b"]);
    world.give(Input::Tick);
    world.give(Input::LinkUp);
    world.down(LinkDown::Drain);
    assert_eq!((world.links.len(), world.links_dropped), (2, 1));
    assert_ne!(world.linked_to[0], world.linked_to[1]);
}

#[test]
fn rooms_are_opened_on_the_next_core_from_where_they_are() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.snapshot("r", &["ann"]);
    world.commit("r", &["bob"], &[]);
    let at = world.position();
    world.pass_ms(500);
    world.take_opened();
    world.drain_frames(key);
    world.down(LinkDown::Drain);
    world.link();
    let opened = world.take_opened();
    let cursor = opened[0].cursor.as_ref().and_then(|cursor| cursor.get(&region()));
    assert_eq!((opened.len(), cursor), (1, Some(at)), "resumed by a delta, not loaded again");
    world.commit("r", &[], &["bob"]);
    world.pass_ms(500);
    let frames = world.frames(key);
    assert_eq!(kinds(&frames), ["delta"], "{frames:?}");
}

#[test]
fn who_was_evicted_while_the_link_moved_stays_evicted() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.down(LinkDown::Renewed { batch: presence_model::link::BatchId(9), unknown: vec![lease(1)] });
    let join = world.take_join();
    let ended = Refusal::HasEnded { reason: RemovalReason::Evicted };
    world.refused(join.request, LinkRefusal::Refused(ended));
    let frames = world.frames(key);
    assert_eq!((&frames[0]["t"], &frames[0]["reason"]), (&json!("ended"), &json!("evicted")));
    assert_eq!(world.closed(key), Some(CloseCode::Evicted));
    assert!(world.take_joins().is_empty());
}

#[test]
fn who_is_told_that_a_lease_is_of_another_edge_joins_anew() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.down(LinkDown::Foreign { leases: vec![lease(1)] });
    let join = world.take_join();
    world.granted(join.request, lease(2));
    assert!(world.frames(key).is_empty(), "nobody sees that");
    assert_eq!(world.closed(key), None);
}

#[test]
fn a_rejoin_that_met_a_goodbye_says_nothing() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.down(LinkDown::Renewed { batch: presence_model::link::BatchId(9), unknown: vec![lease(1)] });
    let join = world.take_join();
    let ended = Refusal::HasEnded { reason: RemovalReason::Left };
    world.refused(join.request, LinkRefusal::Refused(ended));
    assert!(world.frames(key).is_empty());
    assert_eq!(world.closed(key), Some(CloseCode::Normal));
}

#[test]
fn a_rejoin_that_cannot_be_decided_is_tried_again_by_itself() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.down(LinkDown::EndLease { lease: lease(1), reason: RemovalReason::LeaseExpired });
    for _ in 0..3 {
        let join = world.take_join();
        world.refused(join.request, LinkRefusal::Unavailable { retry_after: Duration::from_millis(500) });
        assert!(world.take_joins().is_empty());
        world.pass_ms(510);
    }
    let join = world.take_join();
    world.granted(join.request, lease(2));
    assert!(world.frames(key).is_empty());
    assert_eq!(world.closed(key), None);
}

#[test]
fn joins_in_flight_are_bounded_and_automatic_ones_go_first() {
    let mut world = World::linked();
    world.join("first", "r", 1);
    for n in 0..1_200 {
        let key = world.accept();
        world.say(key, "ann", &join_text(&format!("u{n}"), "r", Some(1), ""));
    }
    let said = world.take_joins();
    assert_eq!(said.len(), 1_024);
    world.down(LinkDown::EndLease { lease: lease(1), reason: RemovalReason::EdgeLost });
    assert!(world.take_joins().is_empty());
    world.granted(said[0].request, lease(2));
    assert!(world.take_join().rejoin.is_some());
    world.granted(said[1].request, lease(3));
    assert!(world.take_join().rejoin.is_none());
}
