//! What the tests of the whole share: the source rules, the store conformance suite, real processes and
//! the simulation.

pub mod conformance;
pub mod procs;
pub mod sim;
pub mod tidy;
