//! Bounds of this process's queues, maps and rates, each with its reason and what happens at it (G11).

use std::time::Duration;

use presence_model::gate::Rate;

/// Nesting of a state: whoever parses it recursively must not be put at risk. Beyond: `bad_request`.
pub const STATE_DEPTH_MAX: usize = 64;
/// Release name of a client's software. Beyond: `bad_request`.
pub const CLIENT_NAME_BYTES_MAX: usize = 64;
/// Control frames that wait while a connection's socket takes no more. Beyond: 4429 if the next one is an
/// answer, since the client asks without reading; 1013 if it was not asked for.
pub const OUTBOX_FRAMES_MAX: usize = 128;
/// The first `join` or `watch` must arrive, and a connection without a room find a new one, within this.
pub const FIRST_MESSAGE_WITHIN: Duration = Duration::from_secs(5);
/// Joins and watches of one connection: all its rooms at once and some repeats, then four a second.
pub const JOIN_RATE: Rate = Rate { interval: Duration::from_millis(250), burst: 96 };
/// Everything else a connection says: twenty a second.
pub const TALK_RATE: Rate = Rate { interval: Duration::from_millis(50), burst: 100 };
/// Frames of one connection that are no messages: pings, pongs, fragments. A whole message in fragments of 64 bytes
/// fits. Beyond: 4429, since each costs a read and is worth nothing.
pub const FRAME_RATE: Rate = Rate { interval: Duration::from_millis(10), burst: 500 };
/// Messages of one connection that were refused for their form or their number. Beyond: 4429.
pub const FLOOD_RATE: Rate = Rate { interval: Duration::from_millis(100), burst: 200 };
/// Lease ids in one renewal: 32 KiB on the wire. Beyond: another batch.
pub const RENEWAL_BATCH_MAX: usize = 4096;
/// Renewing everything goes in at least so many steps, so that no core gets it in one piece.
pub const RENEW_ALL_STEPS: usize = 20;
/// Joins asked of the core and not answered. Beyond: they wait, automatic ones first.
pub const JOINS_IN_FLIGHT_MAX: usize = 1024;
/// Joins said more than once whose further answers are awaited. Beyond: the oldest is forgotten, and should its
/// answer grant another lease that one is given up, and the session joined again when it renews.
pub const LATE_ANSWERS_MAX: usize = 1024;
/// Bytes handed to one connection at once; a frame is never cut. Beyond: its other rooms wait their turn.
pub const SEND_BYTES_MAX: usize = 64 * 1024;
/// Members up to which a room is shown as a list unless told otherwise: half a megabyte at the start, and more
/// names than anybody reads. Beyond: its number, unless asked otherwise.
pub const LIST_MEMBERS_DEFAULT: u32 = 5_000;
/// The most that may be set: a list of 100 MB is of no use to anybody.
pub const LIST_MEMBERS_MAX: u32 = 1_000_000;
/// A room that became too large is a list again when it has this part of the limit left.
pub const LIST_BACK_TENTHS: usize = 9;
/// Members named with a number as having come, and as many as having gone: what a line of text has room for.
pub const SAMPLE_MAX: usize = 10;
/// A client that waits for a room which its core does not let the edge watch may ask again after this: somebody has
/// to change something first. Jittered down to half.
pub const WATCH_REFUSED_AGAIN: Duration = Duration::from_secs(30);
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
/// This part of a drain's window its last client has from the moment at which it is to come back elsewhere to
/// the end of its socket here; and so has each: 5 s, a slow handshake and a join.
pub const DRAIN_OVERLAP_PART: u32 = 6;
/// How often a drain says how many are left.
pub const DRAIN_TOLD_EVERY: Duration = Duration::from_secs(1);
/// A drained edge waits this long beyond its window for answers.
pub const DRAIN_TAIL: Duration = Duration::from_secs(5);
/// Reports of connections that wait for the hub. Beyond: connections stop reading until there is room; what
/// the hub itself waits for (written, closed) takes no room and is at most two a connection.
pub const REPORTS_MAX: usize = 4096;
/// Signs of life that are no messages are told to the hub at most once in this span.
pub const HEARD_EVERY: Duration = Duration::from_millis(100);
/// What a connection was handed must be written within this. Beyond: it is shed.
pub const WRITE_WITHIN: Duration = Duration::from_secs(20);
/// From the close frame to the end of the transport. Beyond: it is cut.
pub const CLOSE_WITHIN: Duration = Duration::from_secs(3);
/// A request must have arrived, and the next one on a connection that is kept, within this. Beyond: it is closed.
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// A transport that is no WebSocket lasts so long, however slowly its peer reads answers. Beyond: it is cut.
pub const REQUESTS_WITHIN: Duration = Duration::from_secs(60);
/// Head of a request in bytes: room for a browser's cookies. Beyond: 431.
pub const REQUEST_HEAD_BYTES_MAX: usize = 16 * 1024;
/// Transports that are not WebSockets yet. Beyond: they wait in the kernel's queue.
pub const HANDSHAKES_MAX: usize = 1024;
/// WebSocket handshakes a second unless told otherwise: as many as one processor verifies tokens for and brings in.
/// Beyond: 503, or 1013 for a page, with a hint.
pub const HANDSHAKES_PER_SECOND_DEFAULT: u32 = 5_000;
/// Nobody who is turned away is told to come back sooner: the same moment would be no better.
pub const COME_BACK_LEAST: Duration = Duration::from_secs(1);
/// Nobody who is turned away is told to wait longer than half as long again: a reconnect storm of a whole edge fits,
/// and people do not wait for ever.
pub const COME_BACK_MOST: Duration = Duration::from_secs(30);
/// The least for whoever comes from an address that has too many already: one of these has to go first.
pub const ADDRESS_AGAIN: Duration = Duration::from_secs(5);
/// Tokens of one address that may fail to verify a minute, and at once, where proxies tell addresses and nobody says
/// otherwise: an office of people whose tokens were signed with yesterday's key fits. Beyond: whoever brings one more is
/// closed with 4429, and the address is let in no more until it may fail again.
pub const FAILED_TOKENS_PER_MINUTE_DEFAULT: u32 = 60;
/// Addresses whose failed tokens are counted: half a megabyte. Beyond: those of further ones are not, until some that
/// are counted have not failed for long enough.
pub const FAILING_ADDRESSES_MAX: usize = 16 * 1024;
/// How often these are looked for at most, as all are looked at then.
pub const FAILING_SWEPT_EVERY: Duration = Duration::from_secs(1);
/// How often it is logged that clients are turned away; what happens in between is told with the next.
pub const TURNED_AWAY_TOLD_EVERY: Duration = Duration::from_secs(10);
/// Transports of addresses that have too many already which are answered at once. Beyond: they are closed.
pub const TURNING_AWAY_MAX: usize = 64;
/// WebSockets that are opened to tell a page when to come back, at once: pages cannot see the status of a refused
/// handshake. Beyond: they are answered 503 as everybody is, and come back as they see fit.
pub const SEEING_OFF_MAX: usize = 256;
/// A PROXY header in bytes: the fixed part, addresses, and what proxies add about TLS and themselves. Beyond: the
/// transport is closed.
pub const PROXY_HEADER_BYTES_MAX: usize = 2048;
/// Hops of a header that are looked at: longer chains are loops, or written by somebody else. Beyond: the client's
/// address is not known.
pub const PROXY_HOPS_MAX: usize = 16;
/// This part of the span in which a join is to be answered it may wait to be said. Beyond: it is refused with a hint
/// before it costs a core anything, while what is said still has time to be answered.
pub const JOIN_LINE_PART: u32 = 3;
/// Messages for a core that wait to be sent: joins in flight, and some seconds of everything else. Beyond:
/// the core does not read, and the link is given up.
pub const LINK_UP_MAX: usize = 16 * 1024;
/// Rooms to be opened and closed that wait to be sent: all rooms at once after a loss. Beyond: as above.
pub const WATCH_UP_MAX: usize = 256 * 1024;
/// Messages of cores that wait for the hub. Beyond: they wait in HTTP/2's windows, and the core conflates.
pub const CORE_EVENTS_MAX: usize = 256;
/// Reports, and messages of cores, that are handled before the other kind gets its turn.
pub const TURN_MAX: usize = 256;
/// Names of cores are looked up so often: a core that is new is known by then.
pub const RESOLVE_EVERY: Duration = Duration::from_secs(5);
/// How long looking up a name may take; whoever connects tries again.
pub const RESOLVE_WITHIN: Duration = Duration::from_secs(2);
/// How often it is logged that a link is tried, and that it or the watch failed: an edge without a core tries every one
/// to three seconds.
pub const LINK_TOLD_EVERY: Duration = Duration::from_secs(10);
/// How long a link that was given up may take to send its last messages.
pub const LINK_FLUSH_WITHIN: Duration = Duration::from_secs(1);
