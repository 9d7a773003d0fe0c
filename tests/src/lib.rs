//! What the tests of the whole share: the source rules, the store conformance suite, real processes,
//! Redis servers and the simulation.

pub mod conformance;
pub mod procs;
pub mod redis;
pub mod sim;
pub mod tidy;
