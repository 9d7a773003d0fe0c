//! Bounds of the client's own queues, each with what happens at it.

/// Requests of room streams on their way to the keeper: whoever sends more waits.
pub(crate) const COMMANDS_MAX: usize = 64;
/// Messages handed to the transport ahead of what it writes: the keeper holds the rest back.
pub(crate) const STREAM_AHEAD_MAX: usize = 16;
/// Messages held back for a core that does not read: the stream is given up beyond, and all rooms are
/// opened again on the next. Far above one open for each room of a large edge.
pub(crate) const OUTBOX_MAX: usize = 262_144;
/// Members or rooms asked for in one page: the most a core gives.
pub(crate) const PAGE_SIZE: u32 = 1_000;
/// Pages of one question: more than a million members is not a room of ours.
pub(crate) const PAGES_MAX: usize = 1_024;
