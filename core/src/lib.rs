//! The presence core: decides who is present, owns the leases, streams rosters.
//!
//! The data's way: the services decode gRPC and hand messages to the shell of the [`driver`], a state
//! machine without I/O; the driver asks the [`store`] through one port and answers links and watchers.

pub mod access;
pub mod driver;
pub mod limits;
pub mod metrics;
mod service;
pub mod settings;
pub mod shell;
pub mod start;
pub mod store;
pub mod story;
