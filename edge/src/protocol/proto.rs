//! The subprotocol `presence.v1.proto`: one protobuf message a binary message, as `client.proto` documents them.

mod parse;
#[cfg(test)]
mod tests;
mod write;

pub use parse::parse;
pub use write::{SnapshotWriter, count, delta, message};
