//! Revocations: what rests on one is over everywhere, and nothing brings it back.

use std::time::Duration;

use presence_model::claim::TokenRefusal;
use presence_model::id::{ConnectionId, EdgeName, SessionId};
use presence_model::link::{LinkDown, LinkRefusal, LinkUp};
use presence_model::profile::Status;
use presence_model::reason::{LeaveReason, RemovalReason};
use presence_model::refusal::Refusal;
use presence_model::revocation::Revocation;
use presence_model::time::StoreTime;

use super::world::{World, ms, room, secs, user};
use crate::driver::{Answer, QueryRefusal};
use crate::limits::{PURGE_USERS_MAX, REVOKED_NEWS, REVOKED_PAGE};
use crate::store::Command;
use crate::store::memory::Upheaval;

const OVER: LinkRefusal = LinkRefusal::Refused(Refusal::HasEnded { reason: RemovalReason::TokenRevoked });
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn of_ann() -> [Revocation; 2] {
    [Revocation::Subject(user("ann")), Revocation::Token("t-ann".into())]
}

fn revoke(
    world: &mut World,
    core: usize,
    what: Revocation,
    span: Duration,
) -> Result<StoreTime, QueryRefusal> {
    match world.revoke(core, what, span)? {
        Answer::Revoked { until } => Ok(until),
        other @ (Answer::Room { .. }
        | Answer::Count { .. }
        | Answer::Rooms { .. }
        | Answer::Explain(_)
        | Answer::Evicted { .. }
        | Answer::Leaving(_)) => panic!("{other:?}"),
    }
}

/// What an edge was told to be revoked, in order.
fn told(world: &World, edge: usize) -> Vec<Revocation> {
    let told = |down: &LinkDown| {
        let LinkDown::Revoked { revocations } = down else { return None };
        Some(revocations.iter().map(|(what, _)| what.clone()).collect::<Vec<_>>())
    };
    world.edges[edge].heard.iter().filter_map(told).flatten().collect()
}

#[test]
fn what_rests_on_a_revoked_token_is_over_at_once_and_others_stay() {
    for what in of_ann() {
        let mut world = World::with_cores(2);
        let (near, far) = (world.edge(0), world.edge(1));
        let watch = world.watch(1, 1);
        let ann = world.join(far, "ann", 1);
        world.join(near, "bob", 1);
        let until = revoke(&mut world, 0, what.clone(), DAY).unwrap();
        let end = world.store_now() + DAY;
        assert!(until >= end.before(secs(1)) && until <= end + secs(1), "{until}");
        world.run(ms(50));
        assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob", "-ann token_revoked"], "{what}");
        assert_eq!(world.edges[far].ended(), [(ann.lease, "token_revoked")], "over the other core");
        assert_eq!(world.log().last().map(String::as_str), Some("ann ended token_revoked"));
        world.run(REVOKED_NEWS);
        for edge in [near, far] {
            assert_eq!(told(&world, edge), std::slice::from_ref(&what), "once");
            assert_eq!(world.try_join(edge, "ann", 2).map(drop), Err(LinkRefusal::Unauthorized));
            assert_eq!(world.rejoin(edge, "ann", &ann), Err(OVER));
        }
        let refused: Vec<_> = world.token_refusals.iter().map(|(_, refusal)| *refusal).collect();
        assert_eq!(refused, [TokenRefusal::Revoked; 4]);
        assert_eq!(world.token_refusals[0].0, EdgeName::new("edge-0").unwrap());
        world.run(secs(60));
        assert_eq!(world.stored("r"), ["bob"]);
    }
}

#[test]
fn a_revoked_key_ends_everybody_and_only_who_comes_with_another_key_is_let_in() {
    let mut world = World::with_cores(2);
    let edges = [world.edge(0), world.edge(1)];
    for n in 0..300 {
        let up = world.join_up(&format!("u{n}"), 1);
        world.send_join(edges[n % 2], &format!("u{n}"), up);
    }
    world.run(secs(2));
    assert_eq!(world.stored("r").len(), 300);
    revoke(&mut world, 1, Revocation::Key("k".into()), DAY).unwrap();
    world.run(secs(1));
    assert_eq!(world.stored("r").len(), 0, "more than one page of members");
    assert_eq!(world.try_join(edges[0], "u1", 2).map(drop), Err(LinkRefusal::Unauthorized));
    world.key_id = "k2";
    assert!(world.try_join(edges[0], "u1", 2).is_ok());
}

#[test]
fn whose_connection_is_gone_goes_too_and_so_does_whose_edge_does_not_listen() {
    for what in of_ann() {
        let mut world = World::new();
        let (edge, frozen) = (world.edge(0), world.edge(0));
        let watch = world.watch(0, 1);
        let ann = world.join(edge, "ann", 1);
        let mut tab = world.join_up("ann", 1);
        tab.session = SessionId::new("another-tab-of-ann").unwrap();
        tab.connection = ConnectionId(0xf);
        let tab = world.send_join(frozen, "ann", tab);
        world.joined(frozen, tab).unwrap();
        world.release(edge, ann.lease);
        world.edges[frozen].running = false;
        revoke(&mut world, 0, what, DAY).unwrap();
        world.run(ms(50));
        assert_eq!(world.watchers[&watch].saw, ["+ann", "-ann token_revoked"]);
    }
}

#[test]
fn who_rests_on_a_fresh_token_by_now_stays() {
    let mut world = World::new();
    let edge = world.edge(0);
    let ann = world.join(edge, "ann", 1);
    world.key_id = "k2";
    let ends = world.store_now() + DAY;
    world.update(edge, ("ann", ann.lease), Status::Busy, Some(("ann", ends))).unwrap();
    revoke(&mut world, 0, Revocation::Key("k".into()), DAY).unwrap();
    world.run(secs(1));
    assert_eq!(world.stored("r"), ["ann"]);
    world.key_id = "k";
    let refused = world.update(edge, ("ann", ann.lease), Status::Away, Some(("ann", ends)));
    assert_eq!(refused, Err(LinkRefusal::Unauthorized), "a revoked one is not taken instead");
    assert_eq!(world.stored("r"), ["ann"]);
}

#[test]
fn a_goodbye_of_who_rests_on_a_revoked_token_is_no_goodbye() {
    let mut world = World::new();
    let edge = world.edge(0);
    let ann = world.join(edge, "ann", 1);
    // The purge has to wait; the edge has heard of it already and says so.
    world.faults.owes = Some(room("r"));
    revoke(&mut world, 0, Revocation::Key("k".into()), DAY).unwrap();
    assert_eq!(world.leave(edge, "ann", ann.lease), Ok(None));
    assert_eq!(world.log(), ["ann joined", "ann ended token_revoked"]);
    world.let_go();
    world.run(secs(1));
    assert_eq!(world.log().len(), 2);
}

#[test]
fn an_edge_that_has_heard_first_is_believed() {
    let mut world = World::new();
    let edge = world.edge(0);
    let ann = world.join(edge, "ann", 1);
    let over = (ann.lease, LeaveReason::TokenRevoked);
    assert_eq!(world.leave_for(edge, "ann", over), Ok(None));
    assert_eq!(world.log(), ["ann joined", "ann ended token_revoked"]);
    assert_eq!(world.rejoin(edge, "ann", &ann), Err(OVER));
}

#[test]
fn an_edge_is_told_all_that_is_in_force_when_it_links() {
    let mut world = World::with_cores(2);
    let many: Vec<_> = (0..REVOKED_PAGE + 1)
        .map(|n| (Revocation::Token(format!("token-{n}").into()), world.store_now() + DAY))
        .collect();
    let now = world.store_now();
    world.store.apply(Command::Revoke { revocations: many }, now).unwrap();
    let early = world.edge(1);
    world.run(secs(1));
    let late = world.edge(1);
    for edge in [early, late] {
        assert_eq!(told(&world, edge).len(), REVOKED_PAGE + 1);
        let most = world.edges[edge].heard.iter().map(|down| match down {
            LinkDown::Revoked { revocations } => revocations.len(),
            LinkDown::Welcome(_)
            | LinkDown::Beat { .. }
            | LinkDown::Joined { .. }
            | LinkDown::Renewed { .. }
            | LinkDown::Done { .. }
            | LinkDown::Foreign { .. }
            | LinkDown::RenewAll { .. }
            | LinkDown::EndLease { .. }
            | LinkDown::Drain
            | LinkDown::DrainEdge => 0,
        });
        assert_eq!(most.max(), Some(REVOKED_PAGE));
    }
}

#[test]
fn a_store_that_lost_everything_brings_nobody_back_whose_token_is_revoked() {
    let mut world = World::with_cores(2);
    let edge = world.edge(1);
    let watch = world.watch(0, 1);
    let ann = world.join(edge, "ann", 1);
    let bob = world.join(edge, "bob", 1);
    revoke(&mut world, 0, Revocation::Subject(user("ann")), DAY).unwrap();
    world.run(secs(1));
    let now = world.store_now();
    world.store.suffer(Upheaval::RestartEmpty, now);
    world.run(secs(3));
    assert_eq!(world.rejoin(edge, "ann", &ann), Err(OVER));
    assert!(world.rejoin(edge, "bob", &bob).is_ok());
    let fresh = world.start_core();
    world.run(secs(1));
    let late = world.edge(fresh);
    assert_eq!(told(&world, late), [Revocation::Subject(user("ann"))], "written again");
    world.run(secs(60));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob", "-ann token_revoked"]);
}

#[test]
fn a_revocation_ends_with_its_time() {
    let mut world = World::new();
    let edge = world.edge(0);
    revoke(&mut world, 0, Revocation::Subject(user("ann")), secs(100)).unwrap();
    world.run(secs(99));
    assert_eq!(world.try_join(edge, "ann", 1).map(drop), Err(LinkRefusal::Unauthorized));
    world.run(secs(2));
    world.join(edge, "ann", 1);
    let late = world.edge(0);
    assert_eq!(told(&world, late), []);
}

#[test]
fn without_store_it_is_refused_and_holds_here_and_is_written_once_that_is_back() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    world.join(edge, "ann", 1);
    world.faults.away = vec![0];
    let refused = revoke(&mut world, 0, Revocation::Subject(user("ann")), DAY);
    assert!(matches!(refused, Err(QueryRefusal::Unavailable { .. })));
    world.faults.away = vec![];
    world.run(secs(2));
    assert_eq!(world.stored("r"), [""; 0], "the purge is made up for");
    let far = world.edge(1);
    assert_eq!(told(&world, far), [Revocation::Subject(user("ann"))]);
}

#[test]
fn a_purge_whose_reads_and_commits_fail_is_made_up_for() {
    let mut world = World::new();
    let edge = world.edge(0);
    for name in ["ann", "bob"] {
        world.join(edge, name, 1);
    }
    world.faults.lose_commits = 9;
    revoke(&mut world, 0, Revocation::Key("k".into()), DAY).unwrap();
    world.run(secs(40));
    assert_eq!(world.stored("r"), [""; 0]);
}

#[test]
fn more_users_than_wait_to_be_looked_for_are_all_found() {
    for beyond in [0, 1] {
        let mut world = World::new();
        let edge = world.edge(0);
        let names: Vec<String> = (0..PURGE_USERS_MAX + beyond).map(|n| format!("u{n:03}")).collect();
        for name in &names {
            let up = world.join_up(name, 1);
            world.send_join(edge, name, up);
        }
        world.join(edge, "ann", 1);
        world.run(secs(1));
        world.faults.away = vec![0];
        for name in &names {
            let _ = revoke(&mut world, 0, Revocation::Subject(user(name)), DAY);
        }
        world.faults.away = vec![];
        world.run(secs(4));
        assert_eq!(world.stored("r"), ["ann"]);
    }
}

#[test]
fn an_edge_is_not_told_of_evictions() {
    let mut world = World::new();
    let edge = world.edge(0);
    world.join(edge, "ann", 1);
    world.evict(0, "ann").unwrap();
    world.run(secs(1));
    world.say(edge, LinkUp::Bye { moving: true });
    let late = world.edge(0);
    assert!(told(&world, edge).is_empty() && told(&world, late).is_empty());
}
