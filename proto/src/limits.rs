//! Bounds of single messages, beside those of the model, each with its reason.

/// Leases in one renewal or release: four times what an edge collects before it flushes.
pub const LEASES_MAX: usize = 16_384;
/// Unanswered joins in one release: each is answered by a read of its own.
pub const UNANSWERED_MAX: usize = 1_024;
/// Bytes of a token: what a client's message may carry in all.
pub const TOKEN_BYTES_MAX: usize = presence_model::limits::MESSAGE_BYTES_MAX;
/// Bytes of a release or process name: printed in logs and kept per session, never a document.
pub const LABEL_BYTES_MAX: usize = presence_model::limits::NAME_BYTES_MAX;
/// The end of the year 9999 in milliseconds: a time above it is in another unit by mistake.
pub const TIME_MS_MAX: u64 = 253_402_300_799_999;
/// Timers and pauses: none of ours is as long as an hour, and a longer one would look like a stop.
pub const SPAN_MS_MAX: u64 = 60 * 60 * 1000;
/// How long something may be revoked: ten years, which no token should live.
pub const REVOKED_FOR_MS_MAX: u64 = 10 * 365 * 24 * 60 * 60 * 1000;
/// Revocations in one message to an edge: a page of the store's list.
pub const REVOCATIONS_MAX: usize = 512;
/// Members touched by one delta, or listed by one page: far above what history remembers, and the
/// largest that a decoder's 4 MiB could hold of short members.
pub const MEMBERS_MAX: usize = 65_536;
