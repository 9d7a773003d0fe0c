//! Deliberate faults. Each is what a mistake in the code that ships would do, made where machines speak: a command, a
//! message or a frame is altered on its way, so that what ships knows nothing of it.

use std::fmt;
use std::time::Duration;

use super::plan::Plan;
use super::provoked::Provoked;

macro_rules! mutants {
    ($($(#[doc = $fault:literal])+ $name:ident = $word:literal;)+) => {
        /// A deliberate fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mutant {
            $($(#[doc = $fault])+ $name,)+
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $word),+ }
            }

            /// What it does, in a sentence.
            #[must_use]
            pub fn fault(self) -> String {
                match self { $(Self::$name => concat!($($fault),+).trim().to_owned()),+ }
            }
        }
    };
}

mutants! {
    /// The guard "still overdue, and not held" is left out of commits that end somebody.
    DropsGuards = "drops guards at expiry";
    /// A core is never told of a hold, and its commits do not ask.
    ForgetsHolds = "forgets holds";
    /// Only the core that starts a hold knows of it, and commits do not ask.
    HoldIsNotStored = "does not store the hold";
    /// After a loss of data there is no hold.
    NoHoldAfterLoss = "no hold after data loss";
    /// A sweep counts as finished now, whenever the last one was: no gap starts a hold.
    SweepIsFinishedNow = "finished = now";
    /// A step of the store's clock is told to nobody.
    TellsNoStep = "tells of no step";
    /// A renewal also extends what was given up.
    RenewalsRevive = "renewals revive released leases";
    /// The store says of no renewal that its lease is unknown.
    ExtendsOnUnknown = "extends on unknown";
    /// Renewals are acknowledged and not written.
    AcknowledgesUnwritten = "acknowledges what is not written";
    /// Renewals carry for two ttls.
    RenewsForTwo = "renews for two ttls";
    /// Renewals carry for half a ttl.
    RenewsForHalf = "renews for half a ttl";
    /// What a core had decided before it stood still is dated when it goes on.
    DatesAfterThePause = "absolute deadlines from a paused core";
    /// A member is read as if all generations were 0.
    IgnoresGenerations = "ignores generations";
    /// A member is read without tombstones, and commits do not ask for them.
    ReadsNoTombstones = "re-join without tombstone";
    /// The end of one session of a member ends the member.
    CountsTabs = "count instead of derive";
    /// An edge is lost whatever number its newest link has, and whatever was renewed over it.
    LosesWithoutNumber = "`lose` without link number";
    /// The end of a link counts, whatever newer link there is.
    LateEndOfALinkWins = "late \"link ended\" wins";
    /// A lost transport ends its session at once.
    GivesNoGrace = "no grace";
    /// Tokens end 20 s early.
    EndsTokensEarly = "tokens end early";
    /// The end of a token is not noted.
    ForgetsTokenEnds = "tokens do not end";
    /// A token opens whatever room is named beside it.
    TokensOpenAnyRoom = "tokens open any room";
    /// What is revoked is not written.
    ForgetsRevocations = "revocations are not written";
    /// What is revoked opens nothing more, but whoever is in stays.
    RevokesDoorsOnly = "who is revoked stays in";
    /// Edges are told that a key is revoked, whatever is.
    RevokesMore = "revokes more than asked";
    /// After a loss of data nobody writes what is revoked again.
    LosesRevocations = "revocations are lost with the data";
    /// Every ending is explained as a goodbye.
    ExplainsWrongly = "the reason is lost";
    /// A re-join does not say since when its member is there.
    ForgetsSince = "re-join without since";
    /// After a loss of data watchers are told the epoch of before.
    EpochIsNotRaised = "epoch not raised";
    /// Once a room has been empty its revisions count from nought again.
    PositionsRepeat = "position repeats after expiry";
    /// Every fifth delta to a service that watches is left out.
    SkipsDeltas = "skips a delta";
    /// A delta to a page that lists who came lists nobody who went.
    ConflationCancels = "conflation that cancels";
    /// The cursor of a list with unconfirmed members says that it is a roster.
    CursorWhileUnconfirmed = "cursor of a new epoch while unconfirmed";
    /// The cursor of a list with unconfirmed members says nothing of how far it was.
    CursorSaysNothing = "cursor says nothing of a list in doubt";
    /// A region that is held is told as live.
    LiveWhileHeld = "live while held";
    /// A region that is stale is told as live.
    NeverStale = "never stale";
    /// Drain: a release is said as a goodbye.
    DrainSaysGoodbye = "drain: release as leave";
    /// Drain: an edge that goes gives up everybody at once, also who is still connected.
    DrainGivesAllUp = "drain: gives up who is still there";
    /// Storms: of renewals that come together only the first four are written.
    StormsCutBatches = "storms: the rest of a batch is lost";
    /// Storms: who is refused for now is refused for good.
    StormsRefuseForGood = "storms: later means never";
    /// Slow receivers: what is sent to a page that does not read is dropped.
    SlowMissFrames = "slow receivers: frames are dropped";
    /// Slow receivers: nothing waits until what was sent before is read.
    SlowAreFedOn = "slow receivers: fed on and on";
    /// What a client says on leaving is not said to the core.
    GoodbyesAreLost = "goodbyes are lost";
    /// That a transport is gone is not said to the core.
    ReleasesAreLost = "releases are lost";
    /// An edge does not see that a client has closed its socket.
    MissesHangUps = "hang-ups are missed";
    /// An edge takes its own pings for what a client says.
    MissesSilence = "silence is missed";
    /// Regions: who moves is told to others at the merge interval, as whoever else comes.
    MovesWait = "regions: moves wait";
    /// Regions: one that is stale is told as lost, whatever its hold.
    LosesRegionsEarly = "regions: lost before the hold";
    /// Regions: one that cannot be heard is told as live.
    CutIsLive = "regions: a cut is live";
    /// Regions: a core that has another stream to one begins again with a list of nobody.
    ReconnectForgets = "regions: a reconnect forgets";
    /// Regions: the roster of the home region is merged like those of others.
    HomeIsMerged = "regions: home is merged";
}

impl Mutant {
    /// A night with this fault in what runs: one that was written by hand, or one that is drawn.
    #[must_use]
    pub fn plan(self, night: Option<Provoked>, seed: u64, span: Duration) -> Plan {
        let plan = night.map_or_else(|| Plan::draw(seed, span), |provoked| provoked.plan(seed));
        Plan { mutant: Some(self), ..plan }
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
