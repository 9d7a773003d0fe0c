//! The whole system as machines over a simulated network, time and store.
//!
//! What runs here is the code that ships: the core's driver, the edge's hub, the memory store. The world
//! joins them by pipes that delay, and seeded faults do what nights do. Everything observed is written
//! to a log, and a checker that knows the guarantees by name looks at every step. The same seed gives the
//! same log, byte for byte.

mod checker;
mod client;
mod faults;
mod nodes;
mod pipes;
mod world;

pub use checker::Violation;
pub use faults::Plan;
pub use world::{Story, World};

use std::time::Duration;

/// Runs one seed for `span` of simulated time, then lets everything settle.
///
/// # Errors
/// The first guarantee that was broken, with the story up to there.
pub fn run(seed: u64, plan: &Plan, span: Duration) -> Result<Story, Box<(Violation, Story)>> {
    let mut world = World::new(seed, plan);
    let outcome = world.live(span).and_then(|()| world.settle());
    let story = world.into_story();
    match outcome {
        Ok(()) => Ok(story),
        Err(violation) => Err(Box::new((violation, story))),
    }
}
