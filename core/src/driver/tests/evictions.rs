//! Evictions: who is put out stays out, whatever edges and stores do.

use std::time::Duration;

use presence_model::id::{ConnectionId, SessionId};
use presence_model::link::LinkRefusal;
use presence_model::reason::RemovalReason;
use presence_model::refusal::Refusal;
use presence_model::revocation::Revocation;

use super::world::{World, ms, room, roster, secs, session, user};
use crate::driver::{Answer, Input, LinkEnd, QueryKey, QueryRefusal};
use crate::store::memory::Upheaval;
use crate::store::{Command, Outcome};

const EVICTED: LinkRefusal = LinkRefusal::Refused(Refusal::HasEnded { reason: RemovalReason::Evicted });

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn evict(world: &mut World, core: usize, name: &str) -> Result<usize, QueryRefusal> {
    match world.evict(core, name)? {
        Answer::Evicted { sessions } => Ok(sessions),
        other @ (Answer::Room { .. }
        | Answer::Count { .. }
        | Answer::Rooms { .. }
        | Answer::Explain(_)
        | Answer::Revoked { .. }
        | Answer::Leaving(_)) => panic!("{other:?}"),
    }
}

fn fresh_session(world: &mut World, edge: usize, name: &str) -> Result<(), LinkRefusal> {
    let mut up = world.join_up(name, 1);
    up.session = session("fresh");
    up.connection = ConnectionId(0xf);
    let request = world.send_join(edge, name, up);
    world.joined(edge, request).map(drop)
}

fn revoked(world: &mut World) -> Vec<Revocation> {
    let now = world.store_now();
    match world.store.apply(Command::Revoked { after: None, count: 99, unless: None }, now) {
        Ok(Outcome::Revoked { revocations, .. }) => revocations.into_iter().map(|(what, _)| what).collect(),
        other => panic!("{other:?}"),
    }
}

fn evicted_session(name: &str) -> Revocation {
    Revocation::Session { roster: roster("r"), user: user(name), session: session(name) }
}

#[test]
fn who_is_evicted_is_gone_at_once_and_their_edge_is_told_by_lease() {
    let mut world = World::with_cores(2);
    let edge = world.edge(1);
    let watch = world.watch(0, 1);
    let grant = world.join(edge, "ann", 1);
    world.join(edge, "bob", 1);
    assert_eq!(evict(&mut world, 0, "ann"), Ok(1));
    world.run(ms(50));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob", "-ann evicted"]);
    assert_eq!(world.edges[edge].ended(), [(grant.lease, "evicted")], "through the other core");
    assert_eq!(world.log().last().map(String::as_str), Some("ann ended evicted"));
    assert_eq!(revoked(&mut world), [evicted_session("ann")]);
    assert_eq!(evict(&mut world, 0, "ann"), Ok(0), "nobody is left");
    assert_eq!(evict(&mut world, 0, "cid"), Ok(0), "nobody was there");
}

#[test]
fn all_tabs_go_and_only_they_are_refused() {
    let mut world = World::new();
    let edge = world.edge(0);
    let ann = world.join(edge, "ann", 1);
    let mut up = world.join_up("ann", 1);
    up.session = SessionId::new("another-tab-of-ann").unwrap();
    let request = world.send_join(edge, "ann", up);
    world.joined(edge, request).unwrap();
    assert_eq!(evict(&mut world, 0, "ann"), Ok(2));
    assert_eq!(world.try_join(edge, "ann", 2).map(drop), Err(EVICTED), "a reconnect");
    assert_eq!(world.rejoin(edge, "ann", &ann), Err(EVICTED));
    assert_eq!(fresh_session(&mut world, edge, "ann"), Ok(()));
    assert_eq!(world.stored("r"), ["ann"]);
}

#[test]
fn who_is_evicted_gets_in_over_no_core_that_has_not_heard_of_it() {
    let mut world = World::with_cores(3);
    let (edge, other) = (world.edge(1), world.edge(2));
    let watch = world.watch(0, 1);
    world.join(edge, "ann", 1);
    world.run(secs(1));
    // A word about Bob is on its way to the core of Ann's edge, which therefore is not at the tail, when Ann is
    // put out, and when she comes back.
    let bob = world.join_up("bob", 1);
    world.send_join(other, "bob", bob);
    world.run(us(500));
    world.input(0, Input::Evict(QueryKey(u64::MAX), room("r"), user("ann")));
    world.run(us(2_250));
    let mut back = world.join_up("ann", 2);
    back.connection = ConnectionId(0xb);
    let back = world.send_join(edge, "ann", back);
    assert_eq!(world.joined(edge, back).map(drop), Err(EVICTED));
    world.run(secs(1));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob", "-ann evicted"]);
}

#[test]
fn a_revocation_ends_after_two_ttls_and_not_before() {
    let mut world = World::new();
    let edge = world.edge(0);
    world.join(edge, "ann", 1);
    assert_eq!(evict(&mut world, 0, "ann"), Ok(1));
    world.run(secs(89));
    assert_eq!(world.try_join(edge, "ann", 2).map(drop), Err(EVICTED));
    world.run(secs(2));
    world.join(edge, "ann", 2);
    assert_eq!(revoked(&mut world), []);
}

/// Scenario 36.
#[test]
fn who_is_evicted_while_their_edge_moves_its_link_stays_evicted() {
    for tell_moving in [true, false] {
        let mut world = World::with_cores(2);
        let edge = world.edge(0);
        let watch = world.watch(0, 1);
        let grant = world.join(edge, "ann", 1);
        world.join(edge, "bob", 1);
        world.run(secs(2));
        if tell_moving {
            world.say(edge, presence_model::link::LinkUp::Bye { moving: true });
        }
        world.cut(edge, LinkEnd::Broken);
        assert_eq!(evict(&mut world, 0, "ann"), Ok(1));
        world.run(secs(2));
        world.link(edge, 1);
        world.renew(edge);
        world.run(secs(1));
        assert!(world.edges[edge].ended().is_empty(), "nobody could be told");
        assert!(world.edges[edge].unknown.contains(&grant.lease), "it hears so when it renews");
        assert_eq!(world.rejoin(edge, "ann", &grant), Err(EVICTED));
        assert_eq!(world.try_join(edge, "ann", 2).map(drop), Err(EVICTED));
        world.run(secs(30));
        assert_eq!(world.stored("r"), ["bob"]);
        assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob", "-ann evicted"]);
    }
}

#[test]
fn a_store_that_lost_everything_brings_nobody_back_who_was_evicted() {
    let mut world = World::with_cores(2);
    let edge = world.edge(1);
    let watch = world.watch(0, 1);
    let ann = world.join(edge, "ann", 1);
    let bob = world.join(edge, "bob", 1);
    assert_eq!(evict(&mut world, 0, "ann"), Ok(1));
    world.run(secs(1));
    let now = world.store_now();
    world.store.suffer(Upheaval::RestartEmpty, now);
    world.run(secs(3));
    assert_eq!(revoked(&mut world), [evicted_session("ann")], "written again");
    // The other core, too, knows without having been asked.
    assert_eq!(world.rejoin(edge, "ann", &ann), Err(EVICTED));
    assert!(world.rejoin(edge, "bob", &bob).is_ok());
    world.run(secs(60));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob", "-ann evicted"]);
}

#[test]
fn an_eviction_whose_outcome_was_lost_counts_and_revokes_once() {
    for lost in [true, false] {
        let mut world = World::new();
        let edge = world.edge(0);
        world.join(edge, "ann", 1);
        if lost {
            world.faults.lose_commits = 1;
        } else {
            world.faults.lose_commit_answers = 1;
        }
        assert_eq!(evict(&mut world, 0, "ann"), Ok(1));
        world.run(secs(1));
        assert_eq!(world.log(), ["ann joined", "ann ended evicted"]);
        assert_eq!(revoked(&mut world), [evicted_session("ann")]);
    }
}

#[test]
fn a_revocation_that_was_not_written_is_written_soon() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    world.join(edge, "ann", 1);
    world.faults.lose_revocations = 2;
    assert_eq!(evict(&mut world, 0, "ann"), Ok(1));
    world.run(ms(100));
    assert_eq!(revoked(&mut world), []);
    world.run(secs(2));
    assert_eq!(revoked(&mut world), [evicted_session("ann")]);
}

#[test]
fn an_eviction_without_store_is_refused_and_does_nothing() {
    let mut world = World::new();
    let edge = world.edge(0);
    world.join(edge, "ann", 1);
    world.faults.away = vec![0];
    assert!(matches!(evict(&mut world, 0, "ann"), Err(QueryRefusal::Unavailable { .. })));
    world.faults.away = vec![];
    world.run(secs(2));
    assert_eq!(world.stored("r"), ["ann"]);
    world.join(edge, "ann", 2);
}
