//! What the tests of the whole share: the source rules, the store conformance suite, real processes,
//! Redis servers, fleets of hand-made sessions, hostile bytes, the simulations and nights of real processes.

pub mod cast;
pub mod certificates;
pub mod conformance;
pub mod field;
pub mod fleet;
pub mod forge;
pub mod fuzz;
pub mod guarded;
pub mod history;
pub mod procs;
pub mod redis;
pub mod scene;
pub mod sim;
pub mod tidy;
pub mod whole;
