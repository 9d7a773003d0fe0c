//! Pings, silence, renewals, and sessions that are brought back.

use std::time::Duration;

use presence_model::lease::LeaseId;
use presence_model::link::{LinkDown, LinkUp};

use super::world::*;
use crate::hub::Input;
use crate::protocol::CloseCode;

#[test]
fn pings_begin_within_a_heartbeat_and_are_twelve_to_eighteen_seconds_apart() {
    let mut world = World::linked();
    let keys: Vec<_> = (0..20).map(|n| world.join(&format!("u{n}"), "r", n)).collect();
    let (begin, mut last) = (world.now, vec![None; keys.len()]);
    let (mut first, mut spans) = (Vec::new(), Vec::new());
    for _ in 0..1_200 {
        world.pass_ms(50);
        for (n, key) in keys.iter().enumerate() {
            if std::mem::take(&mut world.clients.get_mut(key).unwrap().pings) > 0 {
                match last[n].replace(world.now) {
                    Some(last) => spans.push(world.now.since(last).as_millis()),
                    None => first.push(world.now.since(begin).as_millis()),
                }
                world.give(Input::Heard(*key));
            }
        }
    }
    assert!(spans.iter().all(|span| (11_950..=18_200).contains(span)), "{spans:?}");
    assert!(spans.iter().any(|span| *span < 13_500) && spans.iter().any(|span| *span > 16_500));
    assert!(first.len() == keys.len() && first.iter().all(|span| *span <= 15_200), "{first:?}");
    assert!(first.iter().any(|span| *span < 3_000) && first.iter().any(|span| *span > 11_000), "{first:?}");
}

#[test]
fn whoever_talks_all_the_time_is_renewed_once_in_ten_seconds() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    let mut renewed = Vec::new();
    for _ in 0..600 {
        world.pass_ms(100);
        world.give(Input::Heard(key));
        if world.take_renewed().contains(&lease(1)) {
            renewed.push(world.now);
        }
    }
    assert!((5..=7).contains(&renewed.len()), "{renewed:?}");
    for pair in renewed.windows(2) {
        assert!(pair[1].since(pair[0]) >= Duration::from_millis(9_900));
    }
}

#[test]
fn an_early_mark_waits_and_is_not_forgotten() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.pass_ms(3_000);
    world.give(Input::Heard(key));
    world.pass_ms(6_900);
    assert!(world.take_renewed().is_empty());
    world.pass_ms(1_300);
    assert_eq!(world.take_renewed(), [lease(1)]);
}

#[test]
fn silence_of_two_heartbeats_ends_the_connection_and_not_sooner() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.pass_ms(7_000);
    world.give(Input::Heard(key));
    world.pass_ms(29_999);
    assert_eq!(world.closed(key), None);
    assert!(world.take_released().is_empty());
    world.pass_ms(101);
    assert_eq!(world.closed(key), Some(CloseCode::Silent));
    assert_eq!(world.take_released(), [(vec![lease(1)], 0)]);
    assert_eq!(world.hub.counts().silent, 1);
}

#[test]
fn a_lost_transport_is_released_at_once_and_not_renewed_any_more() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.pass_ms(11_000);
    world.take_renewed();
    world.give(Input::Heard(key));
    world.hang_up(key);
    assert_eq!(world.take_released(), [(vec![lease(1)], 0)]);
    world.pass_ms(30_000);
    assert!(world.take_renewed().is_empty());
    assert_eq!(world.hub.counts().leases, 0);
}

#[test]
fn an_unknown_lease_of_somebody_who_is_there_is_joined_again_unseen() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.pass_ms(11_000);
    world.give(Input::Heard(key));
    unknown_on_renewal(&mut world);
    let join = world.take_join();
    assert_eq!(join.rejoin.map(|since| since.0), Some(STORE_START_MS));
    assert_eq!(join.generation.map(|generation| generation.0), Some(1));
    world.granted(join.request, lease(2));
    assert!(world.frames(key).is_empty());
    world.pass_ms(9_000);
    world.give(Input::Heard(key));
    world.pass_ms(2_100);
    assert_eq!(world.take_renewed(), [lease(2)]);
    assert_eq!((world.hub.counts().rejoins, world.hub.counts().unknown_leases), (1, 1));
}

/// The next renewals are answered by: nobody has these.
fn unknown_on_renewal(world: &mut World) {
    world.pass_ms(1_100);
    for up in std::mem::take(&mut world.up) {
        if let LinkUp::Renew { batch, leases } = up {
            world.down(LinkDown::Renewed { batch, unknown: leases });
        }
    }
}

#[test]
fn after_a_freeze_only_those_heard_again_are_present() {
    let mut world = World::linked();
    let (ann, bob) = (world.join("ann", "r", 1), world.join("bob", "r", 2));
    world.pass_ms(5_000);
    world.up.clear();
    // Nothing runs for longer than a lease; then everything is late at once.
    world.now = world.now + Duration::from_secs(60);
    world.give(Input::Tick);
    assert_eq!((world.closed(ann), world.closed(bob)), (None, None), "answers may lie unread");
    assert_eq!(world.links_dropped, 0, "what the core said may lie unread as well");
    world.give(Input::LinkLost);
    world.pass_ms(1_000);
    world.link();
    world.pass_ms(2_500);
    assert!(world.clients[&ann].pings > 0 && world.clients[&bob].pings > 0, "all are asked");
    assert!(world.take_renewed().is_empty(), "and none is renewed unheard");
    world.give(Input::Heard(ann));
    world.pass_ms(1_100);
    let renewals: Vec<LeaseId> = world
        .up
        .iter()
        .flat_map(|up| if let LinkUp::Renew { leases, .. } = up { leases.clone() } else { Vec::new() })
        .collect();
    assert_eq!(renewals, [lease(1)]);
    unknown_on_renewal(&mut world);
    assert_eq!(world.take_joins().len(), 1, "one of two comes back");
    world.pass_ms(5_000);
    assert_eq!((world.closed(ann), world.closed(bob)), (None, Some(CloseCode::Silent)));
    assert_eq!(world.hub.counts().freezes, 1);
}

#[test]
fn an_unknown_lease_of_somebody_unheard_is_asked_first() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.pass_ms(19_000);
    let pings = world.clients[&key].pings;
    world.down(LinkDown::Renewed { batch: presence_model::link::BatchId(99), unknown: vec![lease(1)] });
    assert!(world.take_joins().is_empty());
    assert_eq!(world.clients[&key].pings, pings + 1);
    world.give(Input::Heard(key));
    assert_eq!(world.take_joins().len(), 1);
}

#[test]
fn a_batch_without_acknowledgement_is_said_again() {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.pass_ms(11_000);
    world.give(Input::Heard(key));
    world.pass_ms(1_000);
    let batches = |world: &World| world.up.iter().filter(|up| matches!(up, LinkUp::Renew { .. })).count();
    assert_eq!(batches(&world), 1);
    world.live_ms(14_900, &[key]);
    let before = batches(&world);
    world.live_ms(1_200, &[key]);
    assert_eq!(batches(&world), before + 1);
    assert!(world.hub.counts().renewals_repeated >= 1);
}
