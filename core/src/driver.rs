//! The core's decisions about when: a state machine without I/O.
//!
//! `handle(input, now) → effects` and `poll_timeout`. One input, drain all effects, next input. The
//! shell carries effects out; the simulator does the same over simulated network, time and store.

mod arrivals;
mod audit;
mod clock;
mod commits;
mod counts;
mod doorstep;
mod edge_drains;
mod edges;
mod evictions;
mod links;
mod messages;
mod peers;
mod purges;
mod queries;
mod releases;
mod renewals;
mod revocations;
mod rosters;
mod store_ops;
mod strain;
mod sweep;
mod tidying;
mod transitions;
mod watchers;

#[cfg(test)]
mod tests;

use presence_model::class::{Classes, Graces, RoomTimings};
use presence_model::id::{RegionId, RoomId, Roster, UserId};
use presence_model::lease::Shard;
use presence_model::link::LinkDown;
use presence_model::profile::Member;
use presence_model::replica::Replica;
use presence_model::time::{Mono, StoreTime};
use presence_model::timing::Timings;
use presence_model::watch::{WatchDown, WatchRefusal};
use rand::{SeedableRng as _, rngs::StdRng};
use smol_str::SmolStr;

use self::arrivals::Arrivals;
pub use self::arrivals::{ArrivalLimits, Shed};
use self::audit::Audits;
pub use self::audit::{AuditNote, Finding};
use self::clock::StoreClock;
use self::commits::Commits;
use self::counts::Counts;
use self::doorstep::Doorstep;
use self::edge_drains::EdgeDrains;
use self::edges::Edges;
use self::evictions::Evictions;
use self::links::Links;
pub use self::messages::{
    Answer, CloseReason, Effect, Explained, Input, LinkEnd, LinkKey, Query, QueryKey, QueryRefusal,
    RegionNow, StoreOp, TransitionLine, Verb, Verified, WatchEnd, WatchKey,
};
use self::peers::Peers;
pub use self::peers::{PeerHeard, PeerNow, PeerWish};
use self::purges::Purges;
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
use crate::store::shard_of;

/// A driver without any input for so many link beats did not run: it has something due at each.
const SLEPT_BEATS: u32 = 2;

/// What a driver is told at its start.
#[derive(Debug, Clone)]
pub struct DriverSettings {
    /// The region of the rosters it decides.
    pub region: RegionId,
    /// Regions that edges may speak for.
    pub edge_regions: Vec<RegionId>,
    /// Regions whose rosters are kept elsewhere, and watched there.
    pub peers: Vec<RegionId>,
    /// Timers.
    pub timings: Timings,
    /// Rooms with timers of their own.
    pub classes: Classes,
    /// Name for people.
    pub name: SmolStr,
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
    peers: Peers,
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
    arrivals: Arrivals,
    doorstep: Doorstep,
    commits: Commits,
    transitions: Transitions,
    sweep: Sweep,
    rosters: Rosters,
    counts: Counts,
    watchers: Watchers,
    queries: Queries,
    evictions: Evictions,
    revocations: RevocationCopy,
    purges: Purges,
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
            peers: Peers::new(&settings.region, &settings.peers),
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
            arrivals: Arrivals::default(),
            doorstep: Doorstep::default(),
            commits: Commits::default(),
            transitions: Transitions::default(),
            sweep: Sweep::new(settings.shards),
            rosters: Rosters::default(),
            counts: Counts::default(),
            watchers: Watchers::default(),
            queries: Queries::default(),
            evictions: Evictions::default(),
            revocations: RevocationCopy::default(),
            purges: Purges::default(),
            tidying: Tidying::default(),
            audits: Audits::default(),
            now: Mono::default(),
            out: Vec::new(),
            settings,
        }
    }

    /// The same, which takes so many new arrivals.
    #[must_use]
    pub fn with_arrivals(self, limits: ArrivalLimits) -> Self {
        Self { arrivals: Arrivals::new(limits), ..self }
    }

    /// New arrivals that were refused so far because too much was to be done.
    #[must_use]
    pub fn shed(&self) -> Shed {
        self.arrivals.shed()
    }

    /// The store's clock at `now`, of the shard heard last; none: none was heard yet.
    #[must_use]
    pub fn store_time(&self, now: Mono) -> Option<StoreTime> {
        self.clock.latest(now)
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
            Input::Revoke(key, what, span) => self.on_revoke(key, what, span),
            Input::DrainEdge(key, name, edge) => self.on_drain_edge(key, name, edge),
            Input::Store(op, result) => self.on_store(op, *result),
            Input::Limits(limits) => self.arrivals.set_limits(limits),
            Input::Peer(region, heard) => self.on_peer(&region, heard),
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
            self.doorstep.due(),
            self.commits.due(),
            self.sweep.due(),
            self.rosters.due(),
            self.counts.due(),
            self.watchers.due(),
            self.queries.due(),
            self.revocations.due(),
            self.purges.due(),
            self.tidying.due(&self.sweep),
            self.audits.due(),
            self.peers.due(self.settings.timings.region_hold()),
        ];
        due.into_iter().flatten().min().map(|due| due.max(self.now))
    }

    /// Takes the time; a long gap since the last input means that this process did not run.
    fn advance(&mut self, now: Mono) {
        if self.now == Mono::default() {
            self.started = now;
            self.handled = now;
            self.peers.forgive(now);
        }
        self.now = now.max(self.now);
        if self.now.since(self.handled) > self.settings.timings.link_beat * SLEPT_BEATS {
            self.links.forgive(self.now);
            self.watchers.forgive(self.now);
            self.peers.forgive(self.now);
        }
        self.handled = self.now;
    }

    /// Does all that is due. What one part brings about may be due in a later one, never in an earlier.
    fn run_due(&mut self) {
        self.give_up_lost_answers();
        self.judge_staleness();
        self.judge_turns();
        self.beat_links();
        self.tend_edges();
        self.look_up_revoked();
        self.tend_doorstep();
        self.tend_purges();
        self.look_again();
        self.write_renewals();
        self.ask_turns();
        self.tidy();
        self.audit();
        self.compact_copies();
        self.tend_peers();
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
        self.sweep.give_up();
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

    /// All regions that are shown here.
    fn known_regions(&self) -> impl Iterator<Item = &RegionId> {
        self.regions.iter().chain(self.peers.regions())
    }

    /// A user as the copy of a region's roster shows it, if there is one.
    fn shown_in(&self, region: &RegionId, room: &RoomId, user: &UserId) -> Option<&Member> {
        let roster = Roster { region: region.clone(), room: room.clone() };
        self.copy(&roster)?.get(user)
    }

    /// What is known of a roster, wherever it is kept, if that can be shown.
    fn copy(&self, roster: &Roster) -> Option<&Replica> {
        if self.serves(&roster.region) { self.rosters.in_step(roster) } else { self.peer_copy(roster) }
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
