//! What an edge says about leases of another one: refused one by one, while the rest of what it says applies.

use presence_model::id::EdgeName;
use presence_model::lease::{EdgeMark, LeaseId};
use presence_model::link::{LinkDown, LinkRefusal, LinkUp, UnansweredJoin};
use presence_model::profile::Status;

use super::world::{World, ms, room, secs, session, user};
use crate::driver::{CloseReason, Input, LinkKey, Verb};

/// An edge, another one that means harm, and a session of each.
fn world() -> (World, [usize; 2], [LeaseId; 2]) {
    let mut world = World::new();
    let edges = [world.edge(0), world.edge(0)];
    let leases = [world.join(edges[0], "ann", 1).lease, world.join(edges[1], "eve", 1).lease];
    (world, edges, leases)
}

#[test]
fn a_lease_bears_the_mark_of_the_edge_it_was_granted_through() {
    let (_, _, [of_ann, of_eve]) = world();
    let marks = ["edge-0", "edge-1"].map(|name| EdgeMark::of(&EdgeName::new(name).unwrap()));
    assert!(of_ann.bears(marks[0]) && !of_ann.bears(marks[1]));
    assert!(of_eve.bears(marks[1]) && !of_eve.bears(marks[0]));
}

#[test]
fn a_batch_with_leases_of_another_edge_extends_only_its_own() {
    let (mut world, [of_ann, of_eve], [ann, eve]) = world();
    let watch = world.watch(0, 1);
    world.edges[of_eve].leases.insert(ann);
    // Ann's own edge goes silent: only the other one says that she is there.
    world.edges[of_ann].leases.clear();
    world.run(secs(60));
    assert_eq!(world.watchers[&watch].shown(), ["eve"]);
    assert_eq!(world.edges[of_eve].foreign.iter().collect::<Vec<_>>(), [&ann]);
    assert!(!world.edges[of_eve].unknown.contains(&eve) && !world.edges[of_eve].foreign.contains(&eve));
    assert!(
        world
            .foreign
            .iter()
            .all(|(edge, verb, count)| { (edge.as_str(), *verb, *count) == ("edge-1", Verb::Renew, 1) })
    );
    // The answer to the batch follows what it is not about.
    let heard = &world.edges[of_eve].heard;
    let refused = heard.iter().position(|down| matches!(down, LinkDown::Foreign { .. })).unwrap();
    assert!(heard[refused..].iter().any(|down| matches!(down, LinkDown::Renewed { .. })));
}

#[test]
fn a_batch_of_nothing_else_is_answered_at_once() {
    let (mut world, [_, of_eve], [ann, _]) = world();
    let batch = presence_model::link::BatchId(1_000);
    world.say(of_eve, LinkUp::Renew { batch, leases: vec![ann] });
    world.run(ms(20));
    assert!(world.edges[of_eve].renewed.contains(&batch) && world.edges[of_eve].foreign.contains(&ann));
}

#[test]
fn a_release_with_leases_of_another_edge_releases_only_its_own() {
    let (mut world, [_, of_eve], [ann, eve]) = world();
    let watch = world.watch(0, 1);
    let request = world.send_release(of_eve, vec![ann, eve], Vec::new());
    assert_eq!(world.done(of_eve, request), Ok(None));
    world.run(secs(13));
    assert_eq!(world.watchers[&watch].shown(), ["ann"]);
    assert_eq!(world.edges[of_eve].foreign.iter().collect::<Vec<_>>(), [&ann]);
}

#[test]
fn nobody_says_or_ends_anything_for_a_session_of_another_edge() {
    let (mut world, [of_ann, of_eve], [ann, _]) = world();
    let watch = world.watch(0, 1);
    world.run(secs(1));
    let forbidden = Err(LinkRefusal::Forbidden);
    assert_eq!(world.update(of_eve, ("ann", ann), Status::Busy, None), forbidden);
    assert_eq!(world.leave(of_eve, "ann", ann), forbidden);
    world.run(secs(20));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "+eve"]);
    assert!(world.update(of_ann, ("ann", ann), Status::Busy, None).is_ok());
}

/// The mark of one lease in 4,096 is mistaken: then the record says whose it is.
#[test]
fn a_record_says_whose_a_lease_is_where_its_mark_is_mistaken() {
    let (mut world, [of_ann, _], [ann, _]) = world();
    let watch = world.watch(0, 1);
    let mistaken = (0..).map(|number| EdgeName::new(format!("evil-{number}")).unwrap());
    let name = mistaken.into_iter().find(|name| ann.bears(EdgeMark::of(name))).unwrap();
    let evil = world.edge_called(0, name);
    assert_eq!(world.update(evil, ("ann", ann), Status::Busy, None), Err(LinkRefusal::Forbidden));
    assert_eq!(world.leave(evil, "ann", ann), Err(LinkRefusal::Forbidden));
    let request = world.send_release(evil, vec![ann], Vec::new());
    assert_eq!(world.done(evil, request), Ok(None), "the store knows that the other edge does not hold it");
    world.run(secs(20));
    assert_eq!(world.watchers[&watch].shown(), ["ann", "eve"]);
    assert!(world.edges[of_ann].unknown.is_empty());
}

#[test]
fn a_join_of_another_edge_is_not_given_up_by_its_names() {
    let mut world = World::new();
    let [of_ann, of_eve] = [world.edge(0), world.edge(0)];
    let watch = world.watch(0, 1);
    let up = world.join_up("ann", 1);
    let unanswered = UnansweredJoin {
        room: room("r"),
        user: user("ann"),
        session: session("ann"),
        generation: up.generation,
        connection: up.connection,
        request: up.request,
    };
    let request = world.send_join(of_ann, "ann", up);
    world.joined(of_ann, request).unwrap();
    let request = world.send_release(of_eve, Vec::new(), vec![unanswered]);
    assert_eq!(world.done(of_eve, request), Ok(None));
    world.run(secs(20));
    assert_eq!(world.watchers[&watch].shown(), ["ann"]);
    assert!(world.edges[of_eve].foreign.is_empty(), "which lease it is, is not told");
    assert!(world.foreign.iter().any(|(_, verb, _)| *verb == Verb::Release));
}

#[test]
fn a_run_of_an_edge_is_not_taken_by_another_name() {
    for cores in [1, 2] {
        let mut world = World::with_cores(2);
        let edge = world.edge(0);
        let mut hello = world.hello(edge);
        hello.edge = EdgeName::new("evil").unwrap();
        hello.link.0 += 1;
        let (core, key) = (cores - 1, LinkKey(999));
        world.input(core, Input::LinkOpened(key, hello));
        world.run(ms(100));
        let refused = world.closed.iter().find(|(closed, _)| *closed == key).unwrap();
        assert!(matches!(refused.1, CloseReason::Foreign | CloseReason::StaleLink), "{refused:?}");
        world.run(secs(30));
        // Its own link stands.
        let _ = world.edges[edge].key();
    }
}
