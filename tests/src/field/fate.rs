//! What happens in a night, drawn from its seed before it begins.

use std::fmt;
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::Plan;
use super::way::Cut;
use crate::cast::Order;
use crate::redis::Data;

/// A process of which there are several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    Core(usize),
    Edge(usize),
}

/// A way between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Between {
    /// A tab and whatever edge it is at.
    Tab(usize),
    /// An edge and a core.
    Link(usize, usize),
    /// A core and the store.
    Store(usize),
}

/// Something that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// A tab is told something.
    Tab(usize, Order),
    /// A process is killed, and started again after that.
    Kill(Who, Duration),
    /// A process is told to end, which it does once it is drained, and started again after that.
    End(Who, Duration),
    /// All edges and then all cores are told to end and started again, one after the other.
    Roll,
    /// A process stands still for that long.
    Stop(Who, Duration),
    /// A way does not pass for that long.
    Cut(Between, Cut, Duration),
    /// All connections between an edge and a core end.
    Reset(usize, usize),
    /// The store stands still for that long.
    StopStore(Duration),
    /// The store is killed, or told to end, and is back after that with what that leaves.
    RestartStore(Data, Duration),
    /// All ways take that much longer for that long.
    Slow(Duration, Duration),
}

impl Fault {
    /// Its kind, for counting.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Tab(_, Order::HangUp | Order::Close) => "hang up",
            Self::Tab(_, Order::Leave(_)) => "leave",
            Self::Tab(_, Order::Vanish(_)) => "vanish",
            Self::Tab(_, Order::Update) => "update",
            Self::Kill(Who::Core(_), _) => "kill core",
            Self::Kill(Who::Edge(_), _) => "kill edge",
            Self::End(Who::Core(_), _) => "end core",
            Self::End(Who::Edge(_), _) => "end edge",
            Self::Roll => "roll",
            Self::Stop(Who::Core(_), _) => "stop core",
            Self::Stop(Who::Edge(_), _) => "stop edge",
            Self::Cut(Between::Tab(_), ..) => "tunnel",
            Self::Cut(Between::Link(..), Cut::Both, _) => "cut link",
            Self::Cut(Between::Link(..), Cut::There | Cut::Back, _) => "cut link of one way",
            Self::Cut(Between::Store(_), ..) => "cut store",
            Self::Reset(..) => "reset link",
            Self::StopStore(_) => "stop store",
            Self::RestartStore(Data::Saved, _) => "restart store",
            Self::RestartStore(Data::OnDisk, _) => "kill store",
            Self::RestartStore(Data::Gone, _) => "empty store",
            Self::Slow(..) => "slow",
        }
    }
}

/// A fault and when it strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) at: Duration,
    pub(super) fault: Fault,
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8} {:?}", self.at.as_millis(), self.fault)
    }
}

/// Draws a night: in the first third of each round everything may happen, in the rest tabs come and go only, so that there
/// are times in which nothing excuses anybody.
pub(super) fn draw(plan: &Plan, chance: &mut StdRng) -> Vec<Planned> {
    let (mut at, mut faults) = (plan.settle / 2, Vec::new());
    while at < plan.settle + plan.round * plan.rounds {
        let may_anything = (0..plan.rounds).any(|round| {
            let from = plan.settle + plan.round * round;
            (from..from + plan.round / 3).contains(&at)
        });
        let fault = if may_anything && chance.random_bool(0.5) {
            of_parts(plan, chance)
        } else {
            of_tabs(plan, chance)
        };
        faults.push(Planned { at, fault });
        at += plan.every.mul_f64(chance.random_range(0.1..1.9));
    }
    faults
}

/// Most things are short, some are long.
fn span(chance: &mut StdRng, short: u64, long: u64) -> Duration {
    let most = if chance.random_bool(0.3) { long } else { short };
    Duration::from_millis(chance.random_range(50..most))
}

fn cut(chance: &mut StdRng) -> Cut {
    [Cut::Both, Cut::There, Cut::Back][chance.random_range(0..3)]
}

fn of_tabs(plan: &Plan, chance: &mut StdRng) -> Fault {
    let tab = chance.random_range(0..plan.tabs + plan.watchers);
    match chance.random_range(0..20) {
        0..3 => Fault::Tab(tab, Order::HangUp),
        3..5 => Fault::Tab(tab, Order::Close),
        5..9 => Fault::Tab(tab, Order::Vanish(span(chance, 3_000, 9_000))),
        9..13 => Fault::Tab(tab, Order::Leave(span(chance, 2_000, 6_000))),
        13..17 => Fault::Tab(tab, Order::Update),
        _ => Fault::Cut(Between::Tab(tab), cut(chance), span(chance, 1_500, 9_000)),
    }
}

fn of_parts(plan: &Plan, chance: &mut StdRng) -> Fault {
    let (core, edge) = (chance.random_range(0..plan.cores), chance.random_range(0..plan.edges));
    match chance.random_range(0..31) {
        0..3 => Fault::Kill(Who::Edge(edge), span(chance, 1_000, 5_000)),
        3..6 => Fault::Kill(Who::Core(core), span(chance, 1_000, 5_000)),
        6 => Fault::End(Who::Edge(edge), span(chance, 1_000, 5_000)),
        7 => Fault::End(Who::Core(core), span(chance, 1_000, 5_000)),
        8..11 => Fault::Stop(Who::Edge(edge), span(chance, 2_000, 8_000)),
        11..14 => Fault::Stop(Who::Core(core), span(chance, 2_000, 8_000)),
        14..18 => Fault::Cut(Between::Link(edge, core), cut(chance), span(chance, 2_000, 8_000)),
        18..20 => Fault::Reset(edge, core),
        20..23 => Fault::Cut(Between::Store(core), cut(chance), span(chance, 1_500, 6_000)),
        23..25 => Fault::StopStore(span(chance, 1_500, 7_000)),
        25 => Fault::RestartStore(Data::Saved, Duration::ZERO),
        26 => Fault::RestartStore(Data::OnDisk, span(chance, 500, 4_000)),
        27 => Fault::RestartStore(Data::Gone, span(chance, 500, 4_000)),
        28 => Fault::Roll,
        _ => Fault::Slow(span(chance, 1_000, 3_000), Duration::from_millis(chance.random_range(20..120))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng as _;

    use super::*;
    use crate::field::EVERYTHING;

    /// What may happen, counted by kind.
    const KINDS: usize = 21;

    fn night(seed: u64) -> Vec<Planned> {
        draw(&Plan::default(), &mut StdRng::seed_from_u64(seed))
    }

    #[test]
    fn a_seed_draws_one_night_and_only_tabs_disturb_its_calm_parts() {
        let Plan { settle, round, .. } = Plan::default();
        for seed in 0..20 {
            assert_eq!(night(seed), night(seed));
            assert_ne!(night(seed), night(seed + 1));
            for Planned { at, fault } in night(seed) {
                let of_round = at.saturating_sub(settle).as_millis() % round.as_millis();
                let is_calm = at < settle || of_round >= (round / 3).as_millis();
                let is_of_tabs = matches!(fault, Fault::Tab(..) | Fault::Cut(Between::Tab(_), ..));
                assert!(is_of_tabs || !is_calm, "seed {seed}: {fault:?} at {at:?}");
            }
        }
    }

    #[test]
    fn everything_happens_in_the_nights_of_an_ordinary_run() {
        let mut kinds: BTreeSet<_> =
            EVERYTHING.into_iter().flat_map(night).map(|it| it.fault.kind()).collect();
        if kinds.contains(Fault::Roll.kind()) {
            kinds.extend([Who::Core(0), Who::Edge(0)].map(|who| Fault::End(who, Duration::ZERO).kind()));
        }
        assert_eq!(kinds.len(), KINDS, "{kinds:?}");
    }
}
