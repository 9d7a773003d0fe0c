//! Forgetting what is old: by whoever has the turn, at its pace.

use super::world::{World, secs};

#[test]
fn one_core_tidies_each_shard_now_and_then() {
    let mut world = World::with_cores(2);
    world.run(secs(60));
    // Four shards, every ten seconds, whichever core has the turn.
    assert!((16..=28).contains(&world.tidies), "{} times", world.tidies);
    let before = world.tidies;
    world.sleep(0, true);
    world.run(secs(60));
    let after = world.tidies - before;
    assert!((16..=28).contains(&after), "the other one goes on: {after} times");
}
