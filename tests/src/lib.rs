//! What the tests of the whole share: the source rules, the store conformance suite, real processes,
//! Redis servers, fleets of hand-made sessions and the simulation.

pub mod conformance;
pub mod fleet;
pub mod procs;
pub mod redis;
pub mod scene;
pub mod sim;
pub mod tidy;
