//! A core that has just started: nobody is let in by it before it knows what is revoked, and nobody who is in suffers.

use std::time::Duration;

use presence_model::link::{LinkRefusal, LinkUp, RequestId};
use presence_model::profile::Status;
use presence_model::reason::RemovalReason;
use presence_model::refusal::Refusal;
use presence_model::revocation::Revocation;

use super::world::{World, ms, secs, user};
use crate::driver::LinkEnd;
use crate::limits::{DOORSTEP_MAX, DOORSTEP_WAIT, RETRY_AFTER};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A core that knows the store's clock and not yet what is revoked, and an edge that is linked to it.
fn a_core_that_has_just_started(world: &mut World) -> usize {
    world.faults.hold_revoked = Some(1);
    let fresh = world.start_core();
    world.run(ms(50));
    world.edge(fresh)
}

fn is_unanswered(world: &World, edge: usize, request: RequestId) -> bool {
    !world.edges[edge].joined.contains_key(&request)
}

fn is_turned_away(outcome: Result<impl Sized, LinkRefusal>) -> bool {
    matches!(outcome, Err(LinkRefusal::Unavailable { retry_after }) if retry_after >= RETRY_AFTER)
}

#[test]
fn nobody_is_let_in_before_it_is_known_what_is_revoked() {
    let mut world = World::new();
    let before = world.edge(0);
    let ann = world.join(before, "ann", 1);
    world.revoke(0, Revocation::Subject(user("ann")), DAY).unwrap();
    let edge = a_core_that_has_just_started(&mut world);
    let again = world.join_up("ann", 2);
    let again = world.send_join(edge, "ann", again);
    let mut back = world.join_up("ann", ann.generation.0);
    back.rejoin = Some(ann.since);
    let back = world.send_join(edge, "ann", back);
    let other = world.join_up("bob", 1);
    let other = world.send_join(edge, "bob", other);
    world.run(DOORSTEP_WAIT - ms(100));
    assert!([again, back, other].into_iter().all(|request| is_unanswered(&world, edge, request)));
    world.let_go();
    assert_eq!(world.joined(edge, again).map(drop), Err(LinkRefusal::Unauthorized));
    let over = LinkRefusal::Refused(Refusal::HasEnded { reason: RemovalReason::TokenRevoked });
    assert_eq!(world.joined(edge, back).map(drop), Err(over));
    assert!(world.joined(edge, other).is_ok(), "and nobody else waits for longer");
    assert_eq!(world.stored("r"), ["bob"]);
}

#[test]
fn who_waits_for_long_is_told_to_come_again_and_whoever_is_in_stays() {
    let mut world = World::new();
    let moved = world.edge(0);
    let (ann, bob) = (world.join(moved, "ann", 1), world.join(moved, "bob", 1));
    let watch = world.watch(0, 1);
    let fresh = a_core_that_has_just_started(&mut world);
    let core = world.edges[fresh].key();
    world.say(moved, LinkUp::Bye { moving: true });
    world.cut(moved, LinkEnd::Ours);
    world.link(moved, 1);
    let newcomer = world.join_up("cid", 1);
    let newcomer = world.send_join(moved, "cid", newcomer);
    let until = world.store_now() + DAY;
    let token = world.update(moved, ("ann", ann.lease), Status::Busy, Some(("ann", until)));
    assert!(is_turned_away(token), "a fresh token is no better known");
    assert!(is_turned_away(world.joined(moved, newcomer)));
    assert!(is_turned_away(world.rejoin(moved, "bob", &bob)), "an edge keeps it, and asks again");
    world.run(world.timings.lease_ttl * 2);
    assert_eq!(world.update(moved, ("ann", ann.lease), Status::Away, None), Ok(None));
    assert_eq!(world.leave(moved, "bob", bob.lease), Ok(None));
    world.run(secs(1));
    assert_eq!(world.stored("r"), ["ann"], "renewed all the while, by a core that lets nobody in");
    assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob", "~ann", "-bob left"]);
    assert!(world.closed.iter().all(|(key, _)| *key != core));
}

#[test]
fn as_many_wait_as_may_and_one_more_is_told_at_once() {
    for beyond in [0, 1] {
        let mut world = World::new();
        let edge = a_core_that_has_just_started(&mut world);
        let requests: Vec<RequestId> = (0..DOORSTEP_MAX + beyond)
            .map(|n| {
                let (name, up) = (format!("u{n}"), world.join_up("ann", 1));
                world.send_join(edge, &name, up)
            })
            .collect();
        let answered = requests.iter().filter(|request| !is_unanswered(&world, edge, **request)).count();
        assert_eq!(answered, beyond);
    }
}
