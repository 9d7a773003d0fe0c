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
/// Lease ids in one renewal: 32 KiB on the wire. Beyond: another batch.
pub const RENEWAL_BATCH_MAX: usize = 4096;
/// Renewing everything goes in at least so many steps, so that no core gets it in one piece.
pub const RENEW_ALL_STEPS: usize = 20;
/// Joins asked of the core and not answered. Beyond: they wait, automatic ones first.
pub const JOINS_IN_FLIGHT_MAX: usize = 1024;
/// Bytes handed to one connection at once; a frame is never cut. Beyond: its other rooms wait their turn.
pub const SEND_BYTES_MAX: usize = 64 * 1024;
/// Encoded frames of one room that are kept, all leading to its newest revision. The oldest goes first.
pub const ROOM_FRAMES_MAX: usize = 8;
/// How long a room without change keeps its encoded frames.
pub const FRAMES_REST: Duration = Duration::from_secs(2);
/// Tokens may start to count so much later than the store's clock says: clocks of issuers differ.
pub const TOKEN_LEEWAY: Duration = Duration::from_secs(5);
/// A client is told that its token ends this long before, or at a quarter of what is left.
pub const TOKEN_WARNING: Duration = Duration::from_secs(30);
/// The core ends sessions with their tokens; where it is not heard, the edge does so this much later.
pub const TOKEN_END_SLACK: Duration = Duration::from_secs(2);
/// A drained edge waits this long beyond its window for answers.
pub const DRAIN_TAIL: Duration = Duration::from_secs(5);
/// Backoff of links and watches grows up to this.
pub const RELINK_MAX: Duration = Duration::from_secs(10);
