//! Watch rooms and query a presence core.
//!
//! [`watch`] is a machine without I/O that keeps a view of each watched room over streams that break: the
//! edge and the simulator drive it themselves. Everybody else takes a [`Client`]: it watches all its rooms
//! on one stream that comes back by itself, and asks questions of whichever core answers.
//!
//! A [`RoomStream`] owns a place in a view, not a queue: a reader that is slow gets one collapsed change.

mod bearer;
mod client;
mod cores;
mod error;
mod follow;
mod keeper;
mod limits;
mod query;
mod upstream;
pub mod watch;

pub use bearer::Bearer;
pub use client::{Client, ClientSettings, Deps};
pub use error::ClientError;
pub use follow::{RoomChange, RoomStream, RoomUpdate};
pub use query::{Counted, EdgeDrain, EndedSession, Explanation, RegionNow, RoomCount, RoomNow, SessionNow};
pub use upstream::{Crossing, Upstream, Upstreamed};
