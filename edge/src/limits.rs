//! Bounds of this process's queues, maps and rates, each with its reason and what happens at it (G11).

use std::time::Duration;

use presence_model::gate::Rate;

/// Nesting of a state: whoever parses it recursively must not be put at risk. Beyond: `bad_request`.
pub const STATE_DEPTH_MAX: usize = 64;
/// Release name of a client's software. Beyond: `bad_request`.
pub const CLIENT_NAME_BYTES_MAX: usize = 64;
/// A generation that every client language reads exactly (2^53 − 1). Beyond: `bad_request`.
pub const GENERATION_MAX: u64 = (1 << 53) - 1;
/// Control answers that wait while a connection's socket takes no more. Beyond: the connection is shed
/// (1013), since it asks faster than it reads.
pub const OUTBOX_FRAMES_MAX: usize = 128;
/// The first `join` or `watch` must arrive, and a connection without a room find a new one, within this.
pub const FIRST_MESSAGE_WITHIN: Duration = Duration::from_secs(5);
/// Joins and watches of one connection: all its rooms at once and some repeats, then four a second.
pub const JOIN_RATE: Rate = Rate { interval: Duration::from_millis(250), burst: 96 };
/// Everything else a connection says: twenty a second.
pub const TALK_RATE: Rate = Rate { interval: Duration::from_millis(50), burst: 100 };
/// Messages of one connection that were refused for their form or their number. Beyond: 4429.
pub const FLOOD_RATE: Rate = Rate { interval: Duration::from_millis(100), burst: 200 };
