//! The core's decisions about when: a state machine without I/O.
//!
//! `handle(input, now) → effects` and `poll_timeout`. One input, drain all effects, next input. The
//! shell carries effects out; the simulator does the same over simulated network, time and store.

mod audit;
mod clock;
mod commits;
mod counts;
mod edge_drains;
mod edges;
mod evictions;
mod links;
mod queries;
mod releases;
mod renewals;
mod revocations;
mod rosters;
mod store_ops;
mod sweep;
mod tidying;
mod transitions;
mod watchers;

#[cfg(test)]
mod tests;

use std::time::Duration;

use presence_model::claim::{Claims, TokenRefusal};
use presence_model::class::{Graces, RoomTimings};
use presence_model::id::{EdgeName, Incarnation, RegionId, RoomId, Roster, UserId};
use presence_model::lease::Shard;
use presence_model::link::{Hello, LinkDown, LinkUp};
use presence_model::member::Shortened;
use presence_model::position::Position;
use presence_model::profile::Member;
use presence_model::record::{LeaseState, MemberRead};
use presence_model::replica::Freshness;
use presence_model::time::{Mono, StoreTime};
use presence_model::watch::{WatchDown, WatchRefusal, WatchUp};

use rand::{SeedableRng as _, rngs::StdRng};
use smol_str::SmolStr;

use self::audit::Audits;
pub use self::audit::{AuditNote, Finding};
use self::clock::StoreClock;
use self::commits::Commits;
use self::counts::Counts;
use self::edge_drains::EdgeDrains;
use self::edges::Edges;
use self::evictions::Evictions;
use self::links::Links;
use self::queries::Queries;
use self::releases::Releases;
use self::renewals::Renewals;
use self::revocations::RevocationCopy;
use self::rosters::Rosters;
use self::store_ops::StoreOps;
use self::sweep::Sweep;
use self::tidying::Tidying;
use self::transitions::Transitions;
use self::watchers::Watchers;
use crate::store::{Command, Outcome, StoreFault, shard_of};

/// A driver without any input for so many link beats did not run: it has something due at each.
const SLEPT_BEATS: u32 = 2;

/// One link of an edge to this core, numbered by the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkKey(pub u64);

/// One watch stream, numbered by the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchKey(pub u64);

/// One question under way, numbered by the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryKey(pub u64);

/// One store command under way, numbered by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreOp(pub u64);

/// How a link ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEnd {
    /// The far side reset or closed it: a dead process looks like this.
    Broken,
    /// Silence or a keep-alive time-out: may be a partition.
    Silent,
    /// By our own decision.
    Ours,
}

/// A token as the shell verified it, beside the message that carried it.
pub type Verified = Option<Result<Claims, TokenRefusal>>;

/// What a driver takes.
#[derive(Debug, Clone)]
pub enum Input {
    /// An edge said hello.
    LinkOpened(LinkKey, Hello),
    /// An edge said something. `Verified` is set for joins, and updates that carry a token.
    Link(LinkKey, LinkUp, Verified),
    /// A link ended.
    LinkClosed(LinkKey, LinkEnd),
    /// A watcher came.
    WatchOpened(WatchKey),
    /// A watcher said something.
    Watch(WatchKey, WatchUp),
    /// A watcher asked for a room in a way that is out of bounds: what is wrong, for people.
    WatchMalformed(WatchKey, RoomId, SmolStr),
    /// A watcher's stream can take more: everything given out before has been written.
    WatchReady(WatchKey),
    /// A watcher went.
    WatchClosed(WatchKey),
    /// A question.
    Query(QueryKey, Query),
    /// An operator puts a user out of a room; answered by [`Answer::Evicted`].
    Evict(QueryKey, RoomId, UserId),
    /// An operator sends an edge away: this run of it, or all; answered by [`Answer::Leaving`].
    DrainEdge(QueryKey, EdgeName, Option<Incarnation>),
    /// The store answered.
    Store(StoreOp, Box<Result<Outcome, StoreFault>>),
    /// This process is to go: drain links and watches.
    Drain,
    /// Time passed (`poll_timeout`).
    Tick,
}

/// What a driver wants done, in this order.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Ask the store; give the answer back under this number.
    Store(StoreOp, Command),
    /// Tell an edge.
    Link(LinkKey, LinkDown),
    /// End a link.
    CloseLink(LinkKey, CloseReason),
    /// Tell a watcher; answered by `WatchReady` when written.
    Watch(WatchKey, Vec<WatchDown>),
    /// End a watch.
    CloseWatch(WatchKey, WatchEnd),
    /// Answer a question.
    Answer(QueryKey, Result<Answer, QueryRefusal>),
    /// A line of the transition log.
    Transition(Box<TransitionLine>),
    /// What an audit has found or mended.
    Audit(AuditNote),
}

/// Why a link is ended from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The same edge incarnation linked again.
    #[error("a newer link of this edge is open")]
    Superseded,
    /// Its number is not above one that is known.
    #[error("a link with a higher number is known")]
    StaleLink,
    /// Its region is not one that edges of this core may speak for.
    #[error("edges of that region do not belong here")]
    Region,
    /// No beat for three link beats.
    #[error("no beat")]
    Silent,
    /// This process is going.
    #[error("draining")]
    Draining,
}

/// Why a watch is ended from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WatchEnd {
    /// Its answers pile up unread.
    #[error("the watcher does not read")]
    TooSlow,
    /// There are as many watches as may be.
    #[error("too many watches, try again in {} ms", retry_after.as_millis())]
    TooMany {
        /// When to come again.
        retry_after: Duration,
    },
}

/// A question about a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query {
    /// A page of its members, settled.
    Room {
        /// Which.
        room: RoomId,
        /// From just after it.
        after: Option<UserId>,
        /// At most so many.
        count: usize,
    },
    /// How many.
    Count {
        /// Which.
        room: RoomId,
    },
    /// Rooms that have members.
    Rooms {
        /// Names that start so.
        prefix: String,
        /// From just after it.
        after: Option<RoomId>,
        /// At most so many.
        count: usize,
    },
    /// Why somebody is shown, or not.
    Explain {
        /// Where.
        room: RoomId,
        /// Who.
        user: UserId,
    },
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// To [`Query::Room`].
    Room {
        /// Sorted by user.
        members: Vec<Member>,
        /// Whether more follow.
        more: bool,
        /// In all.
        count: u64,
        /// Where the roster is.
        position: Position,
        /// How fresh.
        freshness: Freshness,
    },
    /// To [`Query::Count`].
    Count {
        /// How many.
        count: u64,
        /// Where the roster is.
        position: Position,
        /// How fresh.
        freshness: Freshness,
    },
    /// To [`Query::Rooms`].
    Rooms {
        /// Sorted, with members.
        rooms: Vec<(RoomId, u64)>,
        /// Whether more follow.
        more: bool,
    },
    /// To [`Query::Explain`].
    Explain(Box<Explained>),
    /// To [`Input::Evict`].
    Evicted {
        /// How many sessions were put out, or kept from being brought back by their edge.
        sessions: usize,
    },
    /// To [`Input::DrainEdge`]: the runs that go, at least one, and how many sessions each still holds.
    Leaving(Vec<(Incarnation, usize)>),
}

/// All that is known of a user in a room.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// Record and tombstones.
    pub read: MemberRead,
    /// Each lease of the record that exists, with its note.
    pub leases: Vec<(presence_model::lease::LeaseId, LeaseState, Option<Shortened>)>,
    /// Where the roster is.
    pub position: Position,
    /// How fresh.
    pub freshness: Freshness,
    /// The store's clock.
    pub now: StoreTime,
    /// The room's class, with its timers; none: the default class.
    pub class: Option<(presence_model::class::ClassName, RoomTimings)>,
}

/// Why a question got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryRefusal {
    /// The store cannot be read now.
    #[error("unavailable, try again in {} ms", retry_after.as_millis())]
    Unavailable {
        /// When to ask again.
        retry_after: Duration,
    },
    /// No such edge, or no such run of it.
    #[error("no such edge is known")]
    UnknownEdge,
}

/// One line of the transition log: enough to rebuild a session's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransitionLine {
    /// Where.
    pub roster: presence_model::id::Roster,
    /// Who.
    pub user: UserId,
    /// What.
    pub transition: presence_model::change::Transition,
    /// The commit that made it true.
    pub position: Position,
    /// When, by the store's clock.
    pub at: StoreTime,
}

/// What a driver is told at its start.
#[derive(Debug, Clone)]
pub struct DriverSettings {
    /// The region of the rosters it decides.
    pub region: presence_model::id::RegionId,
    /// Regions that edges may speak for.
    pub edge_regions: Vec<presence_model::id::RegionId>,
    /// Timers.
    pub timings: presence_model::timing::Timings,
    /// Rooms with timers of their own.
    pub classes: presence_model::class::Classes,
    /// Name for people.
    pub name: smol_str::SmolStr,
    /// Shards of the store.
    pub shards: u16,
    /// This process, minted at random.
    pub holder: u64,
    /// Seeds lease ids. Must be unpredictable outside simulation.
    pub seed: u64,
}

/// The core's driver: its parts share one state, one store and one clock.
pub struct Driver {
    settings: DriverSettings,
    /// Of leases whose transport is gone.
    graces: Graces,
    /// Regions whose rosters are decided and shown here, sorted.
    regions: Vec<RegionId>,
    rng: StdRng,
    started: Mono,
    handled: Mono,
    draining: bool,
    clock: StoreClock,
    ops: StoreOps,
    links: Links,
    edges: Edges,
    edge_drains: EdgeDrains,
    renewals: Renewals,
    releases: Releases,
    commits: Commits,
    transitions: Transitions,
    sweep: Sweep,
    rosters: Rosters,
    counts: Counts,
    watchers: Watchers,
    queries: Queries,
    evictions: Evictions,
    revocations: RevocationCopy,
    tidying: Tidying,
    audits: Audits,
    /// The time of the input being handled.
    now: Mono,
    /// Effects of the input being handled.
    out: Vec<Effect>,
}

impl Driver {
    /// A driver that has not asked its store anything yet: call `handle(Input::Tick, …)` first.
    #[must_use]
    pub fn new(settings: DriverSettings) -> Self {
        let mut regions = settings.edge_regions.clone();
        regions.push(settings.region.clone());
        regions.sort();
        regions.dedup();
        Self {
            graces: Graces::new(settings.timings.usual(), &settings.classes),
            regions,
            rng: StdRng::seed_from_u64(settings.seed),
            started: Mono::default(),
            handled: Mono::default(),
            draining: false,
            clock: StoreClock::default(),
            ops: StoreOps::default(),
            links: Links::default(),
            edges: Edges::default(),
            edge_drains: EdgeDrains::default(),
            renewals: Renewals::default(),
            releases: Releases::default(),
            commits: Commits::default(),
            transitions: Transitions::default(),
            sweep: Sweep::new(settings.shards),
            rosters: Rosters::default(),
            counts: Counts::default(),
            watchers: Watchers::default(),
            queries: Queries::default(),
            evictions: Evictions::default(),
            revocations: RevocationCopy::default(),
            tidying: Tidying::default(),
            audits: Audits::default(),
            now: Mono::default(),
            out: Vec::new(),
            settings,
        }
    }

    /// Takes one input; the effects are appended in the order in which they must be carried out.
    pub fn handle(&mut self, input: Input, now: Mono, effects: &mut Vec<Effect>) {
        std::mem::swap(&mut self.out, effects);
        self.advance(now);
        match input {
            Input::LinkOpened(key, hello) => self.on_link_opened(key, hello),
            Input::Link(key, message, verified) => self.on_link_up(key, message, verified),
            Input::LinkClosed(key, end) => self.on_link_closed(key, end),
            Input::WatchOpened(key) => self.on_watch_opened(key),
            Input::Watch(key, message) => self.on_watch_up(key, message),
            Input::WatchMalformed(key, room, what) => {
                self.refuse_room(key, room, WatchRefusal::BadRequest(what));
            }
            Input::WatchReady(key) => self.on_watch_ready(key),
            Input::WatchClosed(key) => self.on_watch_closed(key),
            Input::Query(key, query) => self.on_query(key, query),
            Input::Evict(key, room, user) => self.on_evict(key, &room, &user),
            Input::DrainEdge(key, name, edge) => self.on_drain_edge(key, name, edge),
            Input::Store(op, result) => self.on_store(op, *result),
            Input::Drain => self.drain(),
            Input::Tick => {}
        }
        self.run_due();
        std::mem::swap(&mut self.out, effects);
    }

    /// When to call `handle(Input::Tick, …)` next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        let due = [
            self.ops.due(),
            self.links.due(),
            self.edges.due(),
            self.renewals.due(),
            self.commits.due(),
            self.sweep.due(),
            self.rosters.due(),
            self.counts.due(),
            self.watchers.due(),
            self.queries.due(),
            self.revocations.due(),
            self.tidying.due(&self.sweep),
            self.audits.due(),
        ];
        due.into_iter().flatten().min().map(|due| due.max(self.now))
    }

    /// Takes the time; a long gap since the last input means that this process did not run.
    fn advance(&mut self, now: Mono) {
        if self.now == Mono::default() {
            self.started = now;
            self.handled = now;
        }
        self.now = now.max(self.now);
        if self.now.since(self.handled) > self.settings.timings.link_beat * SLEPT_BEATS {
            self.links.forgive(self.now);
            self.watchers.forgive(self.now);
        }
        self.handled = self.now;
    }

    /// Does all that is due. What one part brings about may be due in a later one, never in an earlier.
    fn run_due(&mut self) {
        self.give_up_lost_answers();
        self.judge_staleness();
        self.beat_links();
        self.tend_edges();
        self.look_up_revoked();
        self.look_again();
        self.write_renewals();
        self.ask_turns();
        self.tidy();
        self.audit();
        self.compact_copies();
        self.ask_tail();
        self.start_reads();
        self.tell_lowered();
        self.end_stalled_watches();
        self.serve_watchers();
        self.start_loads();
        self.start_counts();
    }

    /// This process is to go: edges and watchers are told, and served until they have gone.
    fn drain(&mut self) {
        if std::mem::replace(&mut self.draining, true) {
            return;
        }
        for link in self.links.keys() {
            self.tell(link, LinkDown::Drain);
        }
        for watch in self.watchers.keys() {
            self.watchers.note(watch, WatchDown::Drain);
        }
    }

    fn serves(&self, region: &RegionId) -> bool {
        self.regions.contains(region)
    }

    /// The timers of a room: those of its class.
    fn timings_of(&self, room: &RoomId) -> RoomTimings {
        let class = self.settings.classes.of(room);
        class.map_or_else(|| self.settings.timings.usual(), |class| class.timings)
    }

    fn shard(&self, roster: &Roster) -> Shard {
        shard_of(roster, self.settings.shards)
    }

    fn has_shard(&self, shard: Shard) -> bool {
        u16::from(shard.0) < self.settings.shards
    }
}
