//! An edge that goes.

use presence_model::link::{LinkDown, LinkUp};
use presence_model::reason::ReleaseReason;

use super::world::*;
use crate::hub::Input;
use crate::protocol::CloseCode;

#[test]
fn clients_are_sent_away_one_by_one_and_the_core_hears_the_last() {
    let mut world = World::linked();
    let keys: Vec<_> = (0..30).map(|n| world.join(&format!("u{n}"), "r", n)).collect();
    world.up.clear();
    world.give(Input::Drain);
    let mut hints = Vec::new();
    for key in &keys {
        let frames = world.frames(*key);
        assert_eq!(kinds(&frames), ["reconnect"]);
        assert_eq!(frames[0]["reason"], "drain");
        assert_eq!(world.closed(*key), None, "open until it is due");
        hints.push(frames[0]["after_ms"].as_u64().unwrap());
    }
    assert!(hints.iter().all(|hint| *hint <= 30_000));
    for second in 0..3 {
        let span = second * 10_000..(second + 1) * 10_000;
        assert!(hints.iter().filter(|hint| span.contains(*hint)).count() == 10, "evenly spread");
    }

    let late = world.accept();
    assert_eq!(kinds(&world.frames(late)), ["hello", "reconnect"]);
    let mut released = 0;
    for _ in 0..310 {
        world.live_ms(100, &keys);
        for up in std::mem::take(&mut world.up) {
            if let LinkUp::Release { request, leases, reason, .. } = up {
                assert_eq!(reason, ReleaseReason::Drain);
                released += leases.len();
                world.down(LinkDown::Done { request, outcome: Ok(None) });
            } else if matches!(up, LinkUp::Bye { .. }) {
                world.up.push(up);
            }
        }
        let due = hints.iter().filter(|hint| **hint + 200 < 100_000).count();
        assert!(due == 30);
    }
    assert_eq!(released, 30);
    assert!(keys.iter().all(|key| world.closed(*key) == Some(CloseCode::Restart)));
    assert_eq!(world.closed(late), Some(CloseCode::Restart));
    assert!(world.drained);
    assert!(world.up.iter().any(|up| matches!(up, LinkUp::Bye { moving: false })));
}

#[test]
fn joins_are_not_taken_any_more_but_renewals_go_on() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.give(Input::Drain);
    world.drain_frames(key);
    world.say(key, "ann", &join_text("ann", "q", Some(1), ""));
    assert_eq!(world.frames(key)[0]["code"], "unavailable");
    assert!(world.take_joins().is_empty());
    world.down(LinkDown::RenewAll { within: timings().renew_all_within });
    world.pass_ms(100);
    assert_eq!(world.take_renewed(), [lease(1)]);
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
