//! Bounds of the semantics, each with its reason. Bounds of queues stand with the process that owns them.

/// Rooms, users, regions and edges: long enough for a URN or an e-mail address, short enough for a key.
pub const NAME_BYTES_MAX: usize = 255;
/// The name of a room class is a metric label and part of the paths of settings.
pub const CLASS_NAME_CHARS_MAX: usize = 32;
/// Room classes beside the default one: each is a series of every metric by class, and is tried for every room.
pub const CLASSES_MAX: usize = 16;
/// A shorter session id could be guessed or repeat.
pub const SESSION_CHARS_MIN: usize = 16;
/// A longer session id buys nothing and is stored for each session.
pub const SESSION_CHARS_MAX: usize = 64;
/// A generation that every client language reads exactly (2^53 − 1): JSON has no other numbers than doubles in
/// most of them. A session that has got there gives its id up.
pub const GENERATION_MAX: u64 = (1 << 53) - 1;
/// A since further ahead of the store's clock is no member's: fail-overs step a clock by minutes. One within
/// it stays, as it would else show as a change.
pub const SINCE_AHEAD_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// State rides in every snapshot of its room: one cursor or a few flags, not a document.
pub const STATE_BYTES_MAX: usize = 1024;
/// Tabs and devices of one user in one room; the oldest in grace gives way first.
pub const SESSIONS_PER_MEMBER_MAX: usize = 16;
/// Rooms on one client connection.
pub const ROOMS_PER_CONNECTION_MAX: usize = 64;
/// One inbound client message, over all its fragments.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024;
/// A token on the wire: ours have 300 bytes, those of large identity providers 2 KiB. Edges keep one a session.
pub const TOKEN_BYTES_MAX: usize = 4 * 1024;
/// A snapshot page on the wire to a client.
pub const SNAPSHOT_PAGE_BYTES_MAX: usize = 64 * 1024;
/// Touched members a replica remembers for cursors that lie behind.
pub const HISTORY_CHANGES_MAX: usize = 1024;
/// Touches that are looked at for samples of who came and went: a few names are wanted, of the latest.
pub const SAMPLED_TOUCHES_MAX: usize = 1024;
/// How long a replica remembers touched members.
pub const HISTORY_AGE_MS_MAX: u64 = 5 * 60 * 1000;
/// What ended is remembered for an hour, so that a late join cannot revive it and `Explain` can tell (G12).
pub const TOMBSTONE_AGE_MS_MAX: u64 = 60 * 60 * 1000;
/// Tombstones of one roster; the oldest are forgotten first.
pub const TOMBSTONES_PER_ROSTER_MAX: usize = 10_000;
/// For how many ttls a session that was put out stays out by whatever attempt: one until its lease would have
/// run out, one for the hold in which edges bring back what the store lost.
pub const EVICTED_TTLS: u32 = 2;
/// Leases looked at in one portion of a sweep, so that a mass expiry does not delay renewals.
pub const SWEEP_PORTION_MAX: usize = 500;
/// Shards of a store: the lease id has eight bits for them.
pub const SHARDS_MAX: u16 = 256;
/// Regions a cursor may name; more is not a cursor of ours.
pub const CURSOR_REGIONS_MAX: usize = 64;
/// Revocations one process keeps, a few MiB; beyond it those that end first are left to the store.
pub const REVOCATIONS_MAX: usize = 65_536;
