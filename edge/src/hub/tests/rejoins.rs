//! Re-joins that are said more than once, as answers are late or lost.

use std::time::Duration;

use presence_model::id::Generation;
use presence_model::link::{GrantDown, LinkDown, LinkRefusal, RequestId};
use presence_model::reason::RemovalReason;

use super::world::*;
use crate::hub::{ConnKey, Input};
use crate::limits::LATE_ANSWERS_MAX;

/// A world in which the core ended a lease of Ann, whose re-join was said twice and is not answered yet.
fn rejoining_twice() -> (World, ConnKey, RequestId) {
    let mut world = World::linked();
    let key = world.join("ann", "r", 1);
    world.down(LinkDown::EndLease { lease: lease(1), reason: RemovalReason::LeaseExpired });
    let join = world.take_join();
    world.live_ms(15_100, &[key]);
    let again = world.take_join();
    assert_eq!((again.request, again.rejoin), (join.request, join.rejoin));
    (world, key, join.request)
}

/// Which leases are renewed when all are.
fn renewed(world: &mut World) -> Vec<presence_model::lease::LeaseId> {
    world.down(LinkDown::RenewAll { within: Duration::from_secs(2) });
    world.pass_ms(2_000);
    world.take_renewed()
}

#[test]
fn a_rejoin_said_twice_and_granted_twice_keeps_its_lease() {
    let (mut world, key, request) = rejoining_twice();
    world.granted(request, lease(2));
    world.granted(request, lease(2));
    assert_eq!(world.take_released(), [], "held by a session that stands");
    assert_eq!(renewed(&mut world), [lease(2)]);
    assert_eq!(world.closed(key), None);
}

#[test]
fn a_rejoin_answered_by_unavailable_and_then_granted_is_in() {
    let (mut world, key, request) = rejoining_twice();
    world.refused(request, LinkRefusal::Unavailable { retry_after: Duration::from_secs(2) });
    world.granted(request, lease(2));
    assert_eq!(world.take_released(), []);
    world.live_ms(3_000, &[key]);
    assert!(world.take_joins().is_empty(), "it is in");
    assert_eq!(renewed(&mut world), [lease(2)]);
}

#[test]
fn the_lease_granted_last_is_the_one_in_force() {
    let (mut world, key, request) = rejoining_twice();
    world.granted(request, lease(2));
    // The store lost it meanwhile.
    world.granted(request, lease(3));
    assert_eq!(world.take_released(), []);
    assert_eq!(world.hub.counts().leases, 1);
    assert_eq!(renewed(&mut world), [lease(3)]);
    assert_eq!(world.closed(key), None);
}

#[test]
fn a_lease_that_the_answer_to_a_later_join_replaces_is_not_kept() {
    let (mut world, key, request) = rejoining_twice();
    world.granted(request, lease(2));
    world.down(LinkDown::EndLease { lease: lease(2), reason: RemovalReason::LeaseExpired });
    let again = world.take_join().request;
    // The second answer to the join before, and then that to this one: data was lost between all of them.
    world.granted(request, lease(3));
    world.granted(again, lease(4));
    assert_eq!((world.take_released(), world.hub.counts().leases), (vec![], 1));
    assert_eq!(renewed(&mut world), [lease(4)]);
    assert_eq!(world.closed(key), None);
}

#[test]
fn what_a_session_that_is_gone_or_an_older_attempt_is_granted_late_is_given_up() {
    let (mut world, key, request) = rejoining_twice();
    world.granted(request, lease(2));
    world.hang_up(key);
    assert_eq!(world.take_released(), [(vec![lease(2)], 0)]);
    world.granted(request, lease(3));
    assert_eq!(world.take_released(), [(vec![lease(3)], 0)]);

    let (mut world, key, request) = rejoining_twice();
    world.granted(request, lease(2));
    world.say(key, "ann", &join_text("ann", "r", Some(2), ""));
    let newer = world.take_join().request;
    let token_ends = world.store_time() + Duration::from_secs(3_600);
    let second = GrantDown { generation: Generation(2), ..grant(lease(4), token_ends) };
    world.down(LinkDown::Joined { request: newer, outcome: Ok(second) });
    world.granted(request, lease(3));
    assert_eq!(world.take_released(), [(vec![lease(3)], 0)]);
    assert_eq!(renewed(&mut world), [lease(4)]);
}

#[test]
fn a_rejoin_whose_token_is_not_taken_any_more_is_told_why() {
    let reason_after = |ms: u64| {
        let mut world = World::linked();
        let key = world.accept();
        world.say_until(key, "ann", &join_text("ann", "r", Some(1), ""), 10_000);
        let request = world.take_join().request;
        let ends = world.store_time() + Duration::from_secs(10);
        world.granted_until(request, lease(1), ends);
        world.down(LinkDown::EndLease { lease: lease(1), reason: RemovalReason::LeaseExpired });
        let again = world.take_join().request;
        world.live_ms(ms, &[key]);
        world.drain_frames(key);
        world.refused(again, LinkRefusal::Unauthorized);
        world.frames(key)[0]["reason"].as_str().map(str::to_owned)
    };
    assert_eq!(reason_after(9_000).as_deref(), Some("token_revoked"), "the core heard of it first");
    assert_eq!(reason_after(11_000).as_deref(), Some("token_expired"));
}

#[test]
fn a_join_said_on_a_link_that_broke_is_released_unanswered_when_its_client_goes() {
    let mut world = World::linked();
    let key = world.accept();
    world.say(key, "ann", &join_text("ann", "r", Some(1), ""));
    world.take_join();
    world.give(Input::LinkLost);
    world.hang_up(key);
    world.pass_ms(1_000);
    world.link();
    assert!(world.take_joins().is_empty());
    assert_eq!(world.take_released(), [(vec![], 1)], "the core may have granted it");
}

/// Lets 15 s pass in which clients live and renewals are acknowledged.
fn live_on(world: &mut World, keys: &[ConnKey]) {
    for _ in 0..16 {
        world.live_ms(950, keys);
        world.take_renewed();
    }
}

/// Whether a further answer to the first of so many joins that were said twice is still known as one.
fn is_awaited_beside(joins: usize) -> bool {
    let mut world = World::linked();
    let keys: Vec<ConnKey> = (0..joins).map(|n| world.join(&format!("u{n}"), "r", n as u64)).collect();
    let all: Vec<u64> = (0..joins as u64).collect();
    let mut first = None;
    // Fewer at once than may be in flight.
    for some in all.chunks(LATE_ANSWERS_MAX / 2) {
        for n in some {
            world.down(LinkDown::EndLease { lease: lease(*n), reason: RemovalReason::LeaseExpired });
        }
        let said = world.take_joins();
        live_on(&mut world, &keys);
        assert_eq!((said.len(), world.take_joins().len()), (some.len(), some.len()), "said twice");
        for (n, join) in some.iter().zip(&said) {
            world.granted(join.request, lease(10_000 + n));
        }
        first.get_or_insert(said[0].request);
    }
    world.granted(first.unwrap(), lease(20_000));
    world.take_released().is_empty()
}

#[test]
fn further_answers_are_awaited_for_so_many_joins_and_the_oldest_are_forgotten() {
    assert!(is_awaited_beside(LATE_ANSWERS_MAX - 1));
    assert!(is_awaited_beside(LATE_ANSWERS_MAX));
    assert!(!is_awaited_beside(LATE_ANSWERS_MAX + 1));
}
