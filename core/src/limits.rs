//! Bounds of the core's queues, maps and messages, each with its reason and what happens at it (G11).

use std::time::Duration;

use presence_model::gate::Rate;

/// Clocks of token issuers may run ahead of the store's by this much before `nbf` refuses.
pub const TOKEN_LEEWAY: Duration = Duration::from_secs(30);
/// A store that answered nothing for this long, or kept no lease, is told to edges as out of reach, and views
/// as stale.
pub const STORE_REACHED_WITHIN: Duration = Duration::from_secs(5);
/// An answer that did not come within this span counts as lost: read again and decide again.
pub const STORE_ANSWER_MAX: Duration = Duration::from_secs(10);
/// Between two tries of something the store could not do.
pub const STORE_RETRY: Duration = Duration::from_millis(500);
/// A store clock that moved this much against our own has stepped.
pub const CLOCK_STEP: Duration = Duration::from_secs(1);
/// An epoch that a watcher names and that was minted further ahead of the store's clock is not believed, so
/// that a mistaken watcher does not raise epochs beyond all clocks.
pub const EPOCH_AHEAD_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Members in one commit: bounds the time a commit blocks the store. The rest waits for the next.
pub const COMMIT_MEMBERS_MAX: usize = 128;
/// Reads and decisions for one request before it is answered `unavailable`.
pub const COMMIT_TRIES_MAX: u8 = 8;
/// Updates, and joins that were taken, that wait over all rosters; more are answered `unavailable, retry after`.
pub const COMMITS_WAITING_MAX: usize = 50_000;
/// Re-joins and goodbyes may fill the queues up to here, as they rank with renewals.
pub const URGENT_COMMITS_WAITING_MAX: usize = 200_000;
/// What whoever is refused for now is told to wait at least; jittered up to three times as much.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);
/// New joins a second unless told otherwise: about what one core decides. Beyond: refused with a hint.
pub const ARRIVALS_PER_SECOND_DEFAULT: u32 = 10_000;
/// Joins and updates that wait before new joins are refused, unless told otherwise: a second of them.
pub const ARRIVALS_WAITING_DEFAULT: usize = 10_000;
/// Who comes back is refused once so many times as much waits: its grace may be running, and a newcomer's is not.
pub const ARRIVALS_RETURNING_TIMES: usize = 2;
/// A new join is refused once those before it have waited for this part of a heartbeat, which is how long an edge
/// waits for the answer: what is answered later than that was decided for nobody.
pub const ARRIVALS_WAIT_PART: u32 = 3;
/// And not before they have waited so long, however quick a room's heartbeat: stores pause.
pub const ARRIVALS_WAIT_LEAST: Duration = Duration::from_secs(1);
/// Of so many equal steps to that point, counts give way at the first, questions at the second, and changes for
/// watchers at the third.
pub const STRAIN_STEPS: u32 = 4;
/// Shortest span between two counts of a room to one watcher while counts give way.
pub const COUNT_INTERVAL_STRAINED: Duration = Duration::from_secs(2);
/// Shortest span between two changes of a room to one watcher while changes give way: what happens meanwhile is one.
pub const CHANGES_INTERVAL_STRAINED: Duration = Duration::from_secs(1);
/// No newcomer is told to wait longer than half as long again.
pub const ARRIVALS_HINT_MOST: Duration = Duration::from_secs(30);
/// How often it is logged that arrivals are refused; what happens in between is told with the next.
pub const SHED_TOLD_EVERY: Duration = Duration::from_secs(10);
/// How often it is logged that the store goes on failing; so long without a fault is the end of it.
pub const STORE_FAULT_TOLD_EVERY: Duration = Duration::from_secs(10);

/// Leases in one renewal command: a batch is written early when so many wait for one shard.
pub const RENEWALS_FULL: usize = 4_096;
/// Leases that wait for one shard while the store is away; the oldest batches are dropped beyond it.
pub const RENEWALS_WAITING_MAX: usize = 262_144;

/// A renewed registration of a link, so that a store that lost its data knows the links again.
pub const LINK_REFRESH: Duration = Duration::from_secs(60);
/// How often a core writes how the store's data are laid out, should that have been lost.
pub const LAYOUT_REFRESH: Duration = Duration::from_secs(60);
/// How often broken edges are looked up, and shortened while they have leases.
pub const EDGES_LOOK: Duration = Duration::from_secs(1);
/// Two edges whose links break within this span on one core: a proxy or we ourselves, not dead edges.
pub const BREAKS_APART: Duration = Duration::from_secs(1);

/// Members in one page of a roster being loaded: a page must not block the store for long.
pub const LOAD_PAGE: usize = 512;
/// Rosters loaded or caught up at once, so that a new epoch does not flood the store; the rest waits.
pub const LOADS_MAX: usize = 64;
/// Commits of history read at once.
pub const HISTORY_PAGE: usize = 512;
/// Commits read from history to answer one cursor; a cursor further behind gets a snapshot.
pub const RESUME_COMMITS_MAX: usize = 1_024;
/// Deltas kept while a roster is loaded or catches up; beyond it history is read again.
pub const TAIL_BUFFER_MAX: usize = 1_024;
/// How long one request for the tail waits for the first commit.
pub const TAIL_WAIT: Duration = Duration::from_secs(2);
/// Least span between two requests for the tail of which the first was answered empty.
pub const TAIL_PACE: Duration = Duration::from_millis(10);
/// Copies of rosters that nobody watches, kept for those who come back; the longest unused goes first.
pub const IDLE_ROSTERS_MAX: usize = 256;
/// How often copies forget old history.
pub const COMPACT_EVERY: Duration = Duration::from_secs(10);

/// Rooms on one watch; more are refused, the watch stays. An edge of 50,000 connections, each in a room of
/// its own, watches all its rooms on one stream. Some 3.4 kB each: a stream costs at most 220 MB.
pub const ROOMS_PER_WATCH_MAX: usize = 65_536;
/// What a watcher was handed must be taken by its transport within this: it is conflated until then, and
/// started over if that reaches too far back. Beyond: the watch is ended; whoever comes back resumes.
pub const WATCH_READ_WITHIN: Duration = Duration::from_secs(30);
/// Rooms of all watches together, a room as often as it is watched: four edges as above. More are refused for
/// a while, the watch stays.
pub const ROOMS_WATCHED_MAX: usize = 4 * ROOMS_PER_WATCH_MAX;
/// Watches at once: each edge, peer and service has one. Beyond: ended at once, to come again later.
pub const WATCHES_MAX: usize = 4_096;
/// Refusals that wait for a watcher that does not read; one more ends the watch.
pub const WATCH_NOTES_MAX: usize = 1_024;
/// Answers to requests with a malformed name that wait for a watcher to read them; beyond it, it is not
/// read either.
pub const NAMELESS_ERRORS_MAX: usize = 16;
/// Members in one effect for a watcher. What is left waits, conflated, until the watcher can take more.
pub const WATCH_BATCH_MEMBERS: usize = 1_024;
/// Shortest span between two counts of a room to one watcher.
pub const COUNT_INTERVAL: Duration = Duration::from_millis(250);

/// No core beats less often than this: a peer that is silent for three of them is asked anew.
pub const PEER_BEAT: Duration = Duration::from_secs(1);
/// What waits to be sent to one peer: an opening for each of twice as many rooms as it lets be watched. Beyond, the
/// stream is given up, and all rooms are opened on the next one.
pub const PEER_WISHES_MAX: usize = 2 * ROOMS_PER_WATCH_MAX;
/// How often it is logged that a peer refuses rooms.
pub const PEER_REFUSALS_TOLD_EVERY: Duration = Duration::from_secs(10);
/// A room of a peer that nobody here looks at any more is watched on for so long, and so is its list where only the
/// number is still wanted: clients and questions that come back find it as they left it.
pub const PEER_ROOM_KEPT: Duration = Duration::from_secs(30);
/// A question waits this long for what a peer has to say, which then counts as not heard: longer than a link around the
/// world stalls, and less than those who ask wait.
pub const PEER_ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// A read waits this long for a finished sweep before it is answered `unavailable`; less than those who ask wait.
pub const SETTLE_WITHIN: Duration = Duration::from_secs(4);
/// A sweep that finished within this span settles a read (G1).
pub const SETTLED: Duration = Duration::from_secs(1);
/// Between two looks whether a sweep has finished.
pub const SETTLE_LOOK: Duration = Duration::from_millis(100);
/// A change that only lowers statuses is told to watchers so much later, with what else happens until then:
/// devices of one user that change places show one status, in whichever order they are heard. One cadence of
/// a small room, so that nothing takes longer than it may after any flush.
pub const LOWERED_TOLD_AFTER: Duration = Duration::from_millis(50);
/// Questions under way at once; more are answered `unavailable`.
pub const QUERIES_MAX: usize = 4_096;
/// Members or rooms in one answer, whatever was asked for.
pub const QUERY_PAGE_MAX: usize = 1_000;
/// Operators that wait to hear of an edge they sent away; more are answered `unavailable`.
pub const EDGE_DRAINS_MAX: usize = 64;
/// Evictions under way at once; more are answered `unavailable`.
pub const EVICTIONS_MAX: usize = 1_024;
/// How often it is looked up whether anything was revoked: a quarter of the span within which that is in force
/// everywhere.
pub const REVOKED_NEWS: Duration = Duration::from_millis(500);
/// Rosters that are read at once for sessions that rest on something revoked: beside all that a store has to do.
pub const PURGE_READS_MAX: usize = 32;
/// Whatever shows a token to a core that has not read yet what is revoked waits so long: that is read within
/// milliseconds, or not soon. Then it is answered `unavailable`.
pub const DOORSTEP_WAIT: Duration = Duration::from_secs(1);
/// Joins and fresh tokens that wait for that at once, a few MiB; more are answered `unavailable`.
pub const DOORSTEP_MAX: usize = 4_096;
/// Users whose sessions wait to be looked for. Beyond: everybody's are, in one go.
pub const PURGE_USERS_MAX: usize = 256;
/// How often what is revoked is read, and written again if the store lacks it.
pub const REVOKED_LOOK: Duration = Duration::from_secs(60);
/// Revocations read or written by one command.
pub const REVOKED_PAGE: usize = 512;
/// How often whoever has a shard's turn forgets what is old beside its rosters.
pub const TIDY_EVERY: Duration = Duration::from_secs(10);
/// The same while there is more than one portion.
pub const TIDY_AGAIN: Duration = Duration::from_secs(1);
/// What is forgotten, or looked at for that, by one command: bounds the time it blocks the store.
pub const TIDY_PORTION: usize = 256;
/// How often whoever has a shard's turn compares a page of its leases with its records.
pub const AUDIT_EVERY: Duration = Duration::from_secs(1);
/// Leases, and members, in such a page: a tenth of a second of a server for a hundred pages.
pub const AUDIT_PORTION: usize = 100;
/// Findings of one shard that wait to be looked at again; more are left for a later walk.
pub const AUDIT_SUSPECTS_MAX: usize = 1_024;
/// Commits whose outcome was lost, remembered until the tail tells it.
pub const COMMITS_IN_DOUBT_MAX: usize = 1_024;
/// Releases that wait for their answers; more are left for the edge to repeat.
pub const RELEASES_MAX: usize = 65_536;

/// What waits for the driver's task, over all links and watchers; beyond it they wait in turn, and the
/// transport holds the rest back.
pub const DRIVER_INPUTS_MAX: usize = 4_096;
/// Inputs taken in one go before time and store get their turn.
pub const DRIVER_INPUTS_A_TURN: usize = 256;
/// What waits to be read by one edge; an edge that does not read is given up and links again.
pub const LINK_DOWN_MAX: usize = 16_384;
/// A link says hello within this span of being opened.
pub const HELLO_WITHIN: Duration = Duration::from_secs(5);
/// A question is answered within this span, or as unavailable.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// This part of the drain window a core goes on at most for edges and watchers that do not move: there is
/// no other core, or they do not listen. 10 s; an edge moves within one.
pub const DRAIN_WINDOW_PART: u32 = 3;
/// How often a drain says how many are left.
pub const DRAIN_TOLD_EVERY: Duration = Duration::from_secs(1);
/// Entries of a page unless asked otherwise.
pub const PAGE_SIZE_DEFAULT: usize = 500;
/// A longer table of peers is refused unread: ten times the bytes of as many as may be.
pub const PEERS_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Certificates that a table of peers may name: a fleet shares a few, and services have one each.
pub const PEERS_MAX: usize = 4_096;
/// Lines of the log about refused callers, for each reason: the first of a burst are told, then one a second, with how
/// many were not. Whoever is refused must not write the log.
pub const REFUSALS_SAID: Rate = Rate { interval: Duration::from_secs(1), burst: 20 };
/// Lines of the log about links, for each thing that is said of them: a few hundred edges that come at once are told
/// each, then ten a second, with how many were not. Whoever may link must not write the log.
pub const LINKS_SAID: Rate = Rate { interval: Duration::from_millis(100), burst: 256 };
/// How soon a stream is ended after its token, when the store's clock is not known or has stepped ahead meanwhile.
pub const STANDING_LOOK: Duration = Duration::from_secs(1);
