//! The whole system as machines over a simulated network, time and store.
//!
//! What runs here is the code that ships: the core's driver, the edge's hub, the memory store. The world
//! joins them by ways that delay and are cut, and a plan of faults, drawn from the seed before it starts, does
//! what nights do. Everything observed is written to a story, and what is shown, stored and answered is held
//! against an account of the truth that the world keeps by itself. The same plan gives the same story, byte
//! for byte.

mod agenda;
mod chance;
mod desk;
mod faults;
mod guarantee;
mod lands;
mod ledger;
mod mutant;
mod names;
mod network;
mod nodes;
mod place;
mod plan;
mod provoked;
mod shape;
mod shrink;
mod story;
mod tab;
mod tell;
mod world;

pub use faults::{Death, Fault, Move, Over, Way};
pub use guarantee::{Guarantee, Violation};
pub use mutant::Mutant;
pub use plan::{Plan, Planned};
pub use provoked::Provoked;
pub use shape::Shape;
pub use shrink::shrink;
pub use story::{Keep, Story};

/// A guarantee that was broken, with the story up to there.
#[derive(Debug)]
pub struct Failure {
    /// What was broken.
    pub violation: Violation,
    /// What happened before.
    pub story: Story,
}

/// Lives through a plan, then lets everything come to rest.
///
/// # Errors
/// The first guarantee that was broken.
pub fn live(plan: &Plan, keep: Keep) -> Result<Story, Box<Failure>> {
    let (lived, story) = if plan.shape.regions > 1 {
        let mut lands = lands::Lands::new(plan, keep);
        (lands.live(), lands.story)
    } else {
        let mut world = world::World::new(plan, keep);
        (world.live(), world.story)
    };
    match lived {
        Ok(()) => Ok(story),
        Err(violation) => Err(Box::new(Failure { violation, story })),
    }
}
