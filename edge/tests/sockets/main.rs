//! An edge as clients meet it at its socket.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod admission;
mod bounds;
mod stage;
mod start;
