//! Nights written by hand, and one kind that is drawn from less: what random mixing does not reach, or seldom, is provoked. The seed still decides how
//! long everything takes, who dials which edge and whose turn it is.

use std::fmt;
use std::time::Duration;

use super::faults::{Death, Fault, Over, Way};
use super::plan::Plan;
use super::shape::Shape;

/// Everybody is in by then.
const IN: u64 = 12_000;
/// How long a night lasts that is drawn.
const DRAWN: Duration = Duration::from_secs(600);

macro_rules! provoked {
    ($($(#[doc = $about:literal])+ $name:ident = $word:literal;)+) => {
        /// A night written by hand.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Provoked {
            $($(#[doc = $about])+ $name,)+
        }

        impl Provoked {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $word),+ }
            }
        }
    };
}

provoked! {
    /// The link of a living edge is reset, again before it is mended, and while another way is cut.
    LinksAreReset = "links are reset";
    /// A core stands still over renewals, and the edges that sent them die without a word.
    AsleepOverRenewals = "asleep over renewals";
    /// A core stands still over the end of sessions that are back meanwhile.
    AsleepOverAnEnding = "asleep over an ending";
    /// A core stands still over the loss of an edge, which has a link again meanwhile.
    AsleepOverALoss = "asleep over a loss";
    /// The store is away for longer than a ttl, and no edge reaches a core.
    OutOfReach = "out of reach";
    /// The store is emptied; who watches changes the edge with its cursor, again and again, during the hold.
    MovesInAHold = "moves in a hold";
    /// The store's clock steps in the moment in which it is to be read anew.
    SettlesAfterAStep = "settles after a step";
    /// A room is empty, and forgotten, and filled again, while somebody who watched it is away.
    Emptied = "emptied";
    /// People have two tabs each, and close them in any order, by goodbye and without.
    SecondTabs = "second tabs";
    /// All edges and cores are told to go, one after the other.
    Rolling = "rolling restart";
    /// All sockets are closed at once, and the store is slow.
    Storm = "storm";
    /// Pages do not read while others come, go and say something new.
    SlowReaders = "slow readers";
    /// Users, tokens and keys are revoked: of who is in, in grace and out of reach; then the store is emptied, and all
    /// cores and edges start again.
    Revoked = "revoked";
    /// Everything is drawn but revocations: more of all else meets.
    Unrevoked = "drawn, nothing is revoked";
    /// Regions watch each other: everything that befalls them is drawn.
    Regions = "regions";
    /// What an edge says is heard twice, and what it gave up, and got back, is among it.
    SaidTwice = "said twice";
}

impl Provoked {
    /// The night, as this seed has it.
    #[must_use]
    pub fn plan(self, seed: u64) -> Plan {
        let (cores, people) = (2, 6);
        let shape = Shape::small(cores, people);
        match self {
            Self::LinksAreReset => Plan::of(seed, shape, &links_are_reset()),
            // Renewals dated too late show when all that may be late has been waited for.
            Self::AsleepOverRenewals => {
                let shape = Shape { clocks_s: (5, 20, 6), ..shape };
                Plan::of(seed, shape, &asleep_over_renewals())
            }
            Self::AsleepOverAnEnding => Plan::of(seed, shape, &asleep_over_an_ending(people)),
            Self::AsleepOverALoss => Plan::of(seed, shape, &asleep_over_a_loss(cores)),
            Self::OutOfReach => Plan::of(seed, shape, &out_of_reach(cores)),
            Self::MovesInAHold => Plan::of(seed, shape, &moves_in_a_hold(people)),
            Self::SettlesAfterAStep => Plan::of(seed, shape, &settles_after_a_step()),
            Self::Emptied => {
                let shape = Shape { rosters_kept: s(3), ..shape };
                Plan::of(seed, shape, &emptied(people))
            }
            Self::SecondTabs => {
                let shape = Shape { users: people / 2, ..shape };
                Plan::of(seed, shape, &second_tabs(people))
            }
            Self::Rolling => Plan::of(seed, shape, &rolling()),
            Self::Storm => Plan::of(seed, shape, &storm()),
            Self::SlowReaders => Plan::of(seed, shape, &slow_readers(people)),
            Self::Revoked => Plan::of(seed, shape, &revoked()),
            Self::Unrevoked => Plan::draw_unrevoked(seed, DRAWN),
            Self::Regions => Plan::draw_regions(seed, DRAWN),
            Self::SaidTwice => Plan::of(seed, shape, &said_twice(people)),
        }
    }
}

impl fmt::Display for Provoked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn links_are_reset() -> Vec<(u64, Fault)> {
    let cut = |edge, core| Fault::CutEdge { edge, core, way: Way::Both, span: s(3) };
    vec![
        (IN, Fault::BreakLink { edge: 0 }),
        (IN + 700, Fault::BreakLink { edge: 0 }),
        (IN + 4_000, Fault::BreakLink { edge: 1 }),
        (IN + 20_000, cut(0, 0)),
        (IN + 20_100, Fault::BreakLink { edge: 0 }),
        (IN + 21_000, Fault::BreakLink { edge: 0 }),
        (IN + 21_500, cut(1, 1)),
        (IN + 22_000, Fault::BreakLink { edge: 1 }),
    ]
}

fn asleep_over_renewals() -> Vec<(u64, Fault)> {
    let dies = |edge| Fault::CrashEdge { edge, span: s(50), death: Death::Machine, same: false };
    let doze = Fault::DozeCore { over: Over::Renewals, span: s(18) };
    vec![(IN, doze), (IN + 2_000, dies(0)), (IN + 2_100, dies(1))]
}

fn asleep_over_an_ending(people: usize) -> Vec<(u64, Fault)> {
    let mut faults: Vec<_> = (0..people)
        .map(|tab| (IN + 20 * tab as u64, Fault::Go { tab, span: Duration::from_millis(5_200) }))
        .collect();
    // Grace is five seconds: this is over the first ending.
    faults.push((IN + 4_800, Fault::DozeCore { over: Over::Commit, span: s(8) }));
    faults.push((IN + 4_800, Fault::DozeCore { over: Over::Commit, span: s(4) }));
    // Edges that stood still for nearly a ttl speak again while the end of their sessions is on its way.
    faults.extend(
        (0..2).map(|edge| (IN + 40_000, Fault::NapEdge { edge, span: Duration::from_millis(10_800) })),
    );
    faults.push((IN + 47_000, Fault::DozeCore { over: Over::Commit, span: s(6) }));
    faults
}

fn asleep_over_a_loss(cores: usize) -> Vec<(u64, Fault)> {
    let cut = |core| Fault::CutEdge { edge: 0, core, way: Way::Both, span: Duration::from_millis(6_200) };
    let mut faults = vec![(IN, Fault::BreakLink { edge: 0 })];
    // Both ends hear of the reset; what is opened after it is on its way for long.
    faults.extend((0..cores).map(|core| (IN + 1, cut(core))));
    faults.push((IN + 1_000, Fault::DozeCore { over: Over::Loss, span: s(10) }));
    faults
}

fn out_of_reach(cores: usize) -> Vec<(u64, Fault)> {
    let cut = |edge, core| Fault::CutEdge { edge, core, way: Way::Both, span: s(21) };
    let mut faults: Vec<_> =
        (0..2).flat_map(|edge| (0..cores).map(move |core| (IN, cut(edge, core)))).collect();
    faults.push((IN + 1_000, Fault::StopStore { span: s(16) }));
    faults.push((IN + 60_000, Fault::CloseStore { span: s(30) }));
    faults
}

fn moves_in_a_hold(people: usize) -> Vec<(u64, Fault)> {
    let mut faults = vec![(IN - 300, Fault::Go { tab: 0, span: s(60) }), (IN, Fault::Empty)];
    // An edge that knows the roster of before only, and whoever comes to it has been shown the next one.
    for (at, edge) in [(IN + 60_000, 1), (IN + 120_000, 0)] {
        faults.push((at - 200, Fault::NapEdge { edge, span: s(3) }));
        faults.push((at - 100, Fault::Go { tab: 1, span: s(40) }));
        faults.push((at, Fault::Empty));
        let blips =
            [1_500, 2_000, 2_600].into_iter().flat_map(|after| [(after, people), (after + 50, people + 1)]);
        faults.extend(blips.map(|(after, tab)| (at + after, Fault::Blip { tab })));
    }
    for moves in 0..8_usize {
        let onlooker = people + moves % 2;
        faults.push((IN + 300 + moves as u64 * 1_700, Fault::Blip { tab: onlooker }));
    }
    faults
}

fn settles_after_a_step() -> Vec<(u64, Fault)> {
    vec![
        (IN, Fault::Restart),
        (IN, Fault::Step { by_ms: 20_000 }),
        (IN + 40_000, Fault::Step { by_ms: -15_000 }),
        (IN + 40_000, Fault::FailOver { commits: 3, ahead_ms: 0 }),
        (IN + 40_050, Fault::Blip { tab: 1 }),
        (IN + 80_000, Fault::Step { by_ms: 9_000 }),
        (IN + 80_002, Fault::Blip { tab: 2 }),
        // Less than a gap of sweeps, and more than is left of a grace.
        (IN + 120_000, Fault::Go { tab: 0, span: s(4) }),
        (IN + 120_300, Fault::Go { tab: 1, span: s(4) }),
        (IN + 120_600, Fault::Step { by_ms: 3_500 }),
    ]
}

fn emptied(people: usize) -> Vec<(u64, Fault)> {
    let all = |at, span| (0..people).map(move |tab| (at, Fault::Leave { tab, span: s(span) }));
    let away = |at, tab| (at, Fault::Go { tab, span: s(14) });
    let mut faults: Vec<_> = all(IN, 10).chain(all(IN + 30_000, 2)).collect();
    faults.extend([away(IN - 500, people), away(IN + 1_000, people + 1), away(IN + 29_000, people)]);
    faults
}

fn second_tabs(people: usize) -> Vec<(u64, Fault)> {
    let half = people / 2;
    let mut faults = Vec::new();
    for tab in 0..half {
        let at = IN + 700 * tab as u64;
        faults.push((at, Fault::Leave { tab, span: s(9) }));
        faults.push((at + 20_000, Fault::Go { tab: tab + half, span: s(9) }));
        faults.push((at + 40_000, Fault::Go { tab, span: s(9) }));
        faults.push((at + 41_000, Fault::Leave { tab: tab + half, span: s(3) }));
    }
    faults
}

fn rolling() -> Vec<(u64, Fault)> {
    let edge = |edge| Fault::DrainEdge { edge, span: s(1) };
    let core = |core| Fault::DrainCore { core, span: s(1) };
    vec![
        (IN, core(0)),
        (IN + 8_000, core(1)),
        (IN + 16_000, edge(0)),
        (IN + 32_000, edge(1)),
        (IN + 48_000, core(0)),
        (IN + 48_400, edge(0)),
    ]
}

fn storm() -> Vec<(u64, Fault)> {
    let storm = |edge| Fault::Storm { edge };
    let slow = Fault::SlowStore { span: s(6), by: Duration::from_millis(400) };
    vec![
        (IN, storm(0)),
        (IN, storm(1)),
        (IN + 9_900, slow),
        (IN + 10_000, storm(0)),
        (IN + 10_000, storm(1)),
        (IN + 30_000, Fault::CloseStore { span: s(2) }),
        (IN + 30_100, storm(0)),
        (IN + 30_100, storm(1)),
    ]
}

fn slow_readers(people: usize) -> Vec<(u64, Fault)> {
    let mut faults: Vec<_> =
        (0..3).map(|reader| (IN, Fault::Deaf { tab: people - 1 + reader, span: s(10) })).collect();
    for turn in 0..30_u64 {
        let tab = usize::try_from(turn).expect("few") % (people - 1);
        faults.push((IN + 300 * turn, Fault::Update { tab }));
        if turn % 7 == 3 {
            faults.push((IN + 300 * turn + 50, Fault::Leave { tab, span: s(2) }));
        }
    }
    faults
}

fn revoked() -> Vec<(u64, Fault)> {
    let of_user = |user, span| Fault::RevokeUser { user, span: s(span) };
    let edge = |edge| Fault::CrashEdge { edge, span: s(1), death: Death::Process, same: false };
    let core = |core| Fault::CrashCore { core, span: s(1), death: Death::Process };
    vec![
        (IN, of_user(0, 300)),
        (IN + 1_000, Fault::RevokeToken { tab: 1 }),
        (IN + 1_500, Fault::Go { tab: 2, span: s(4) }),
        (IN + 2_500, of_user(2, 20)),
        (IN + 9_000, Fault::CutEdge { edge: 0, core: 0, way: Way::Both, span: s(4) }),
        (IN + 9_500, of_user(3, 20)),
        (IN + 30_000, Fault::Empty),
        (IN + 60_000, core(0)),
        (IN + 75_000, core(1)),
        (IN + 90_000, edge(0)),
        (IN + 92_000, edge(1)),
        (IN + 120_000, Fault::RevokeKey),
        (IN + 140_000, Fault::NapEdge { edge: 1, span: s(4) }),
        (IN + 140_500, Fault::RevokeKey),
        (IN + 141_000, core(0)),
    ]
}

fn said_twice(people: usize) -> Vec<(u64, Fault)> {
    let mut faults =
        vec![(IN, Fault::Echo { edge: 0, span: s(7) }), (IN, Fault::Echo { edge: 1, span: s(7) })];
    for tab in 0..people {
        // In grace, back, or gone by goodbye when it is heard again.
        let at = IN + 4_000 + 300 * tab as u64;
        faults.push(match tab % 3 {
            0 => (at, Fault::Go { tab, span: s(4) }),
            1 => (at, Fault::Leave { tab, span: s(4) }),
            _ => (at, Fault::Blip { tab }),
        });
    }
    faults
}
