//! Watch rooms and query a presence core.
//!
//! [`watch`] is a machine without I/O that keeps a view of each watched room over streams that break: the
//! edge and the simulator drive it themselves.

pub mod watch;
