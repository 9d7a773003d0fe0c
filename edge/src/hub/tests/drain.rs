//! An edge that goes.

use std::time::Duration;

use presence_model::lease::LeaseId;
use presence_model::link::{LinkDown, LinkUp};
use presence_model::reason::{ReleaseReason, RemovalReason};

use super::world::*;
use crate::hub::Input;
use crate::protocol::CloseCode;

#[test]
fn clients_are_sent_away_one_by_one_and_the_core_hears_the_last() {
    let mut world = World::linked();
    let keys: Vec<_> = (0..30).map(|n| world.join(&format!("u{n}"), "r", n)).collect();
    world.up.clear();
    let start = world.now;
    world.give(Input::Drain);
    let mut hints = Vec::new();
    for key in &keys {
        let frames = world.frames(*key);
        assert_eq!(kinds(&frames), ["reconnect"]);
        assert_eq!(frames[0]["reason"], "drain");
        assert_eq!(world.closed(*key), None, "open until it is due");
        hints.push(frames[0]["after_ms"].as_u64().unwrap());
    }
    assert!(hints.iter().all(|hint| *hint <= 25_000));
    for fifth in 0..5 {
        let span = fifth * 5_000..(fifth + 1) * 5_000;
        assert!(hints.iter().filter(|hint| span.contains(*hint)).count() == 6, "evenly spread");
    }

    let late = world.accept();
    assert_eq!(kinds(&world.frames(late)), ["hello", "reconnect"]);
    let mut released = 0;
    for _ in 0..310 {
        world.live_ms(100, &keys);
        for up in std::mem::take(&mut world.up) {
            if let LinkUp::Release { request, leases, reason, hint, .. } = up {
                assert_eq!((reason, hint), (ReleaseReason::Drain, Duration::ZERO));
                released += leases.len();
                world.down(LinkDown::Done { request, outcome: Ok(None) });
            } else if matches!(up, LinkUp::Bye { .. }) {
                world.up.push(up);
            }
        }
        let now = world.now.since(start).as_millis();
        for (key, hint) in keys.iter().zip(&hints) {
            let closes = u128::from(hint + 5_000);
            assert!(now >= closes || world.closed(*key).is_none(), "it may still be coming in elsewhere");
            assert!(now <= closes + 200 || world.closed(*key).is_some());
        }
    }
    assert_eq!(released, 30);
    assert!(keys.iter().all(|key| world.closed(*key) == Some(CloseCode::Restart)));
    assert_eq!(world.closed(late), Some(CloseCode::Restart));
    assert!(world.drained);
    assert!(world.up.iter().any(|up| matches!(up, LinkUp::Bye { moving: false })));
}

/// Releases since the last look: leases, reason and hint.
fn released(world: &mut World) -> Vec<(Vec<LeaseId>, ReleaseReason, Duration)> {
    let mut released = Vec::new();
    for up in std::mem::take(&mut world.up) {
        if let LinkUp::Release { leases, reason, hint, .. } = up {
            released.push((leases, reason, hint));
        }
    }
    released
}

#[test]
fn who_is_cut_off_before_its_moment_is_waited_for_until_then() {
    let mut world = World::linked();
    let keys: Vec<_> = (0..10).map(|n| world.join(&format!("u{n}"), "r", n)).collect();
    world.give(Input::Drain);
    world.up.clear();
    let last = keys[9];
    let hint = world.frames(last)[0]["after_ms"].as_u64().unwrap();
    world.live_ms(2_000, &keys);
    released(&mut world);
    world.hang_up(last);
    let whole = Duration::from_secs((hint - 2_000).div_ceil(1_000));
    assert_eq!(released(&mut world), [(vec![lease(9)], ReleaseReason::Drain, whole)]);
}

#[test]
fn who_leaves_for_elsewhere_in_time_is_not_closed_and_nothing_is_released() {
    let mut world = World::linked();
    let keys = [world.join("ann", "r", 1), world.join("bob", "r", 2)];
    world.give(Input::Drain);
    let hint = world.frames(keys[0])[0]["after_ms"].as_u64().unwrap();
    world.live_ms(hint + 1_000, &keys);
    assert_eq!(world.closed(keys[0]), None, "its new connection is being made");
    world.up.clear();
    world.down(LinkDown::EndLease { lease: lease(1), reason: RemovalReason::Superseded });
    assert_eq!(world.closed(keys[0]), Some(CloseCode::Superseded));
    assert!(released(&mut world).is_empty());
    assert_eq!(world.hub.counts().restarted, 0);
}

#[test]
fn joins_are_not_taken_any_more_but_renewals_go_on() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.give(Input::Drain);
    world.drain_frames(key);
    world.say(key, "ann", &join_text("ann", "q", Some(1), ""));
    let told = world.frames(key).remove(0);
    assert_eq!(told["code"], "unavailable");
    assert!(told["retry_after_ms"].as_u64().unwrap() >= 1_000, "{told}");
    assert!(world.take_joins().is_empty());
    world.down(LinkDown::RenewAll { within: timings().renew_all_within });
    world.pass_ms(100);
    assert_eq!(world.take_renewed(), [lease(1)]);
}

#[test]
fn an_operator_has_the_process_told_to_go_and_nothing_is_lost_if_it_is_told_twice() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.down(LinkDown::DrainEdge);
    assert_eq!(world.told_to_go, 1);
    assert!(world.frames(key).is_empty(), "first nobody new is accepted");
    world.give(Input::Drain);
    world.drain_frames(key);
    world.down(LinkDown::DrainEdge);
    world.give(Input::Drain);
    assert!(world.frames(key).is_empty());
}

#[test]
fn a_drain_ends_without_a_core_too() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.core_beats = false;
    world.give(Input::LinkLost);
    world.give(Input::Drain);
    world.live_ms(34_000, &[key]);
    assert!(!world.drained, "the release is still to be said");
    world.live_ms(1_100, &[key]);
    assert!(world.drained);
}

#[test]
fn an_edge_without_clients_is_drained_at_once() {
    let mut world = World::linked();
    world.give(Input::Drain);
    assert!(world.drained);
}
