//! Fan-out by cursor: receivers own a place in a view, never a queue.
//!
//! [`Receiver`] says what one receiver is to be sent next, [`Pacing`] when a room may flush, and
//! [`FrameCache`] keeps encoded frames by (from, to), so that the usual case encodes once for all.
//! [`Flushed`] knows who need not be told anything.

pub mod cache;
pub mod flushed;
pub mod pacing;
pub mod receiver;

pub use cache::FrameCache;
pub use flushed::Flushed;
pub use pacing::Pacing;
pub use receiver::{Next, Receiver};
