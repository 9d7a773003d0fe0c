//! Edges that an operator sends away, through whichever core.

use presence_model::id::{EdgeName, Incarnation};
use presence_model::link::{LinkDown, LinkUp};

use super::world::{World, ms, secs};
use crate::driver::{Answer, QueryRefusal};

fn drain(
    world: &mut World,
    core: usize,
    edge: &str,
    run: Option<Incarnation>,
) -> Result<Vec<(Incarnation, usize)>, QueryRefusal> {
    match world.drain_edge(core, EdgeName::new(edge).unwrap(), run)? {
        Answer::Leaving(runs) => Ok(runs),
        other @ (Answer::Room { .. }
        | Answer::Count { .. }
        | Answer::Rooms { .. }
        | Answer::Explain(_)
        | Answer::Revoked { .. }
        | Answer::Evicted { .. }) => panic!("{other:?}"),
    }
}

fn times_told(world: &World, edge: usize) -> usize {
    world.edges[edge].heard.iter().filter(|down| **down == LinkDown::DrainEdge).count()
}

#[test]
fn an_edge_linked_to_another_core_is_told_once_within_two_seconds() {
    let mut world = World::with_cores(2);
    let edge = world.edge(1);
    let stays = world.edge(0);
    world.join(edge, "ann", 1);
    world.join(edge, "bob", 1);
    let run = world.edges[edge].incarnation;
    assert_eq!(drain(&mut world, 0, "edge-0", None), Ok(vec![(run, 2)]));
    world.run(secs(2));
    assert_eq!(times_told(&world, edge), 1);
    assert_eq!(drain(&mut world, 1, "edge-0", Some(run)), Ok(vec![(run, 2)]), "asked again, elsewhere");
    world.run(secs(2));
    assert_eq!((times_told(&world, edge), times_told(&world, stays)), (1, 0));
}

#[test]
fn an_edge_that_moves_before_it_hears_is_told_there() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    world.run(ms(100));
    let run = world.edges[edge].incarnation;
    assert_eq!(drain(&mut world, 1, "edge-0", None).map(|runs| runs.len()), Ok(1));
    world.link(edge, 1);
    world.edges[edge].heard.clear();
    world.run(secs(2));
    assert_eq!(times_told(&world, edge), 1);
    world.say(edge, LinkUp::Bye { moving: false });
    world.edges[edge].running = false;
    world.cut(edge, crate::driver::LinkEnd::Broken);
    world.run(ms(500));
    assert_eq!(drain(&mut world, 0, "edge-0", Some(run)), Err(QueryRefusal::UnknownEdge), "it has gone");
}

#[test]
fn an_edge_that_nobody_knows_and_a_store_out_of_reach_are_told_apart() {
    let mut world = World::new();
    let edge = world.edge(0);
    world.run(ms(100));
    let run = world.edges[edge].incarnation;
    let unknown = Err(QueryRefusal::UnknownEdge);
    assert_eq!(drain(&mut world, 0, "edge-9", None), unknown);
    assert_eq!(drain(&mut world, 0, "edge-0", Some(Incarnation(run.0 + 1))), unknown);
    world.faults.away = vec![0];
    assert!(matches!(drain(&mut world, 0, "edge-0", None), Err(QueryRefusal::Unavailable { .. })));
}
