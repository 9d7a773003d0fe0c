//! Bounds of single messages, beside those of the model, each with its reason.

/// Leases in one renewal or release: four times what an edge collects before it flushes.
pub const LEASES_MAX: usize = 16_384;
/// Unanswered joins in one release: each is answered by a read of its own.
pub const UNANSWERED_MAX: usize = 1_024;
/// Bytes of a token: what a client's message may carry in all.
pub const TOKEN_BYTES_MAX: usize = presence_model::limits::MESSAGE_BYTES_MAX;
/// Bytes of a release or process name: printed in logs and kept per session, never a document.
pub const LABEL_BYTES_MAX: usize = presence_model::limits::NAME_BYTES_MAX;
/// Members touched by one delta, or listed by one page: far above what history remembers, and the
/// largest that a decoder's 4 MiB could hold of short members.
pub const MEMBERS_MAX: usize = 65_536;
