//! What happens in a night, drawn from its seed.

use std::time::Duration;

use presence_core::store::memory::{Lost, Upheaval};
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::Plan;
use super::store::Way;
use crate::cast::Order;

/// Which packets of a way between two do not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    Both,
    /// Those of the first.
    There,
    /// Those of the second.
    Back,
}

/// Something that happens. Spans are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A tab is told something.
    Tab(usize, Order),
    /// A process is struck.
    Strike(Who, Blow),
    /// A way does not pass.
    Sever(Cutting),
    /// Something is wrong for everybody.
    Upset(Upset),
}

/// What may strike a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blow {
    /// It dies and is started again after a while.
    Kill(u64),
    /// Its machine loses its power for a while.
    Dark(u64),
    /// It stands still for a while.
    Pause(u64),
    /// It is told to end, and is started again once it has.
    Drain,
}

/// Which way does not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cutting {
    /// Packets between a tab and the edges are lost.
    Tunnel(usize, Cut, u64),
    /// Packets between an edge and a core are lost.
    Link(usize, usize, Cut, u64),
    /// Connections between an edge and a core break.
    Reset(usize, usize),
    /// Packets between a core and the store are lost.
    Wire(usize, Way, u64),
}

/// What may be wrong for everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Upset {
    /// Nobody reaches the store.
    Away(u64),
    /// The store takes no writes.
    ReadOnly(u64),
    /// So many of the next commands, and of the next answers, are lost.
    Lose(u32, u32),
    /// The data meets something.
    Upheaval(Upheaval),
    /// The store's clock steps by so many milliseconds.
    StepClock(i64),
    /// Everything takes many times as long.
    Slow(u64),
}

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    Core(usize),
    Edge(usize),
}

impl Fault {
    /// Its kind, for counting.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Tab(_, Order::HangUp | Order::Close) => "hang up",
            Self::Tab(_, Order::Leave(_)) => "leave",
            Self::Tab(_, Order::Vanish(_)) => "vanish",
            Self::Tab(_, Order::Update) => "update",
            Self::Strike(Who::Core(_), Blow::Kill(_)) => "kill core",
            Self::Strike(Who::Edge(_), Blow::Kill(_)) => "kill edge",
            Self::Strike(_, Blow::Dark(_)) => "power lost",
            Self::Strike(Who::Core(_), Blow::Pause(_)) => "pause core",
            Self::Strike(Who::Edge(_), Blow::Pause(_)) => "pause edge",
            Self::Strike(_, Blow::Drain) => "drain",
            Self::Sever(Cutting::Tunnel(_, Cut::Both, _)) => "tunnel",
            Self::Sever(Cutting::Tunnel(..)) => "tunnel of one way",
            Self::Sever(Cutting::Link(_, _, Cut::Both, _)) => "cut link",
            Self::Sever(Cutting::Link(..)) => "cut link of one way",
            Self::Sever(Cutting::Reset(..)) => "reset link",
            Self::Sever(Cutting::Wire(..)) => "cut store",
            Self::Upset(Upset::Away(_)) => "store away",
            Self::Upset(Upset::ReadOnly(_)) => "read only",
            Self::Upset(Upset::Lose(..)) => "lost replies",
            Self::Upset(Upset::Upheaval(Upheaval::Restart | Upheaval::Move(_))) => "store restarts",
            Self::Upset(Upset::Upheaval(Upheaval::RestartEmpty)) => "store lost all",
            Self::Upset(Upset::Upheaval(Upheaval::FailOver(_))) => "store lost its tail",
            Self::Upset(Upset::StepClock(_)) => "clock step",
            Self::Upset(Upset::Slow(_)) => "slow",
        }
    }
}

/// Draws what happens next.
pub(crate) fn draw(plan: &Plan, chance: &mut StdRng) -> Fault {
    let tab = chance.random_range(0..plan.tabs + plan.watchers);
    let edge = chance.random_range(0..plan.edges);
    let core = chance.random_range(0..plan.cores);
    let cut = [Cut::Both, Cut::There, Cut::Back][chance.random_range(0..3)];
    // Most things are short, some are long.
    let long = chance.random_bool(0.25);
    let lot = chance.random_range(0..100);
    let mut span = |short: u64, most: u64| chance.random_range(50..if long { most } else { short });
    match lot {
        0..6 => Fault::Tab(tab, Order::HangUp),
        6..9 => Fault::Tab(tab, Order::Close),
        9..17 => Fault::Tab(tab, Order::Vanish(Duration::from_millis(span(9_000, 25_000)))),
        17..26 => Fault::Tab(tab, Order::Leave(Duration::from_millis(span(4_000, 12_000)))),
        26..38 => Fault::Tab(tab, Order::Update),
        38..47 => Fault::Sever(Cutting::Tunnel(tab, cut, span(4_000, 25_000))),
        47..53 => Fault::Strike(Who::Edge(edge), Blow::Kill(span(4_000, 15_000))),
        53..56 => Fault::Strike(Who::Edge(edge), Blow::Dark(span(5_000, 30_000))),
        56..60 => Fault::Strike(Who::Edge(edge), Blow::Pause(span(4_000, 30_000))),
        60..63 => Fault::Strike(Who::Edge(edge), Blow::Drain),
        63..69 => Fault::Sever(Cutting::Link(edge, core, cut, span(4_000, 25_000))),
        69..73 => Fault::Sever(Cutting::Reset(edge, core)),
        73..77 => Fault::Strike(Who::Core(core), Blow::Kill(span(3_000, 15_000))),
        77..79 => Fault::Strike(Who::Core(core), Blow::Dark(span(5_000, 20_000))),
        79..83 => Fault::Strike(Who::Core(core), Blow::Pause(span(5_000, 40_000))),
        83..84 => Fault::Strike(Who::Core(core), Blow::Drain),
        84..87 => {
            let way = if cut == Cut::There { Way::ToStore } else { Way::FromStore };
            Fault::Sever(Cutting::Wire(core, way, span(3_000, 15_000)))
        }
        87..89 => Fault::Upset(Upset::Away(span(3_000, 20_000))),
        89..90 => Fault::Upset(Upset::ReadOnly(span(3_000, 10_000))),
        90..94 => {
            let (commands, answers) = (u32::from(cut != Cut::There), u32::from(cut != Cut::Back) * 2);
            Fault::Upset(Upset::Lose(commands, answers))
        }
        94..97 => Fault::Upset(Upset::Upheaval(match lot {
            94 => Upheaval::Restart,
            95 => Upheaval::RestartEmpty,
            _ => Upheaval::FailOver(Lost::Commits(1 + tab % 4)),
        })),
        97..98 => {
            let by = i64::try_from(span(10_000, 120_000)).expect("short") + 1_000;
            Fault::Upset(Upset::StepClock(if cut == Cut::Back { -by } else { by }))
        }
        _ => Fault::Upset(Upset::Slow(span(1_500, 4_000))),
    }
}
