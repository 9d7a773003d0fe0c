//! The subprotocol `presence.v1.json`: one JSON object a text message.

mod parse;
mod write;

pub use parse::parse;
pub use write::{SnapshotWriter, count, delta, message};
