//! Each seed draws its own mix of faults and rates: what never meets in one mix meets in another.

use std::time::Duration;

use presence_model::timing::Timings;
use rand::RngExt as _;

use super::Planned;
use crate::sim::chance::{Chance, Purpose, chance, span};
use crate::sim::faults::{Death, Fault, Way};
use crate::sim::shape::Shape;

/// Nothing happens before everybody is in.
const FIRST_FAULT_AFTER: Duration = Duration::from_secs(8);
/// Shortest average span between two faults; the longest is so many times as long.
const EVERY_LEAST: Duration = Duration::from_millis(500);
const EVERY_FACTOR: f64 = 32.0;

type Draw = fn(&mut Drawing<'_>) -> Fault;

/// Who is told to go, one after the other, as an update of all does it.
type Roll = fn(place: usize, span: Duration) -> Fault;

#[derive(Clone, Copy)]
enum Kind {
    One(Draw),
    Edges(Roll),
    Cores(Roll),
}

/// How each kind is drawn, and how likely it is where it is in the mix.
const KINDS: [(u32, Kind); 39] = [
    (8, Kind::One(|d| Fault::Blip { tab: d.tab() })),
    (4, Kind::One(|d| Fault::Go { tab: d.tab(), span: d.span() * 2 })),
    (4, Kind::One(|d| Fault::Reload { tab: d.tab(), span: d.span() / 4, forgets: d.rarely(0.4) })),
    (3, Kind::One(|d| Fault::NapTab { tab: d.tab(), span: d.span() })),
    (6, Kind::One(|d| Fault::CutTab { tab: d.tab(), way: d.way(), span: d.span() })),
    (6, Kind::One(|d| Fault::Leave { tab: d.tab(), span: d.span() })),
    (8, Kind::One(|d| Fault::Update { tab: d.tab() })),
    (2, Kind::One(|d| d.copy())),
    (2, Kind::One(|d| d.trespass())),
    (2, Kind::One(|d| Fault::Deaf { tab: d.tab(), span: d.span() })),
    (3, Kind::One(|d| Fault::Forgetful { tab: d.tab() })),
    (2, Kind::One(|d| Fault::Storm { edge: d.edge() })),
    (
        4,
        Kind::One(|d| Fault::CrashEdge {
            edge: d.edge(),
            span: d.span(),
            death: d.death(),
            same: d.rarely(0.1),
        }),
    ),
    (3, Kind::One(|d| Fault::NapEdge { edge: d.edge(), span: d.span() })),
    (3, Kind::One(|d| Fault::DrainEdge { edge: d.edge(), span: d.span() })),
    (4, Kind::One(|d| Fault::BreakLink { edge: d.edge() })),
    (2, Kind::One(|d| Fault::BreakWatch { edge: d.edge() })),
    (4, Kind::One(|d| Fault::CutEdge { edge: d.edge(), core: d.core(), way: d.way(), span: d.span() })),
    (3, Kind::One(|d| Fault::Echo { edge: d.edge(), span: d.span() })),
    (4, Kind::One(|d| Fault::CrashCore { core: d.core(), span: d.span(), death: d.death() })),
    (4, Kind::One(|d| Fault::NapCore { core: d.core(), span: d.span(), holding: d.rarely(0.5) })),
    (3, Kind::One(|d| Fault::DrainCore { core: d.core(), span: d.span() })),
    (
        3,
        Kind::One(|d| Fault::CutStore { core: d.core(), way: d.way(), span: d.span(), loses: d.rarely(0.5) }),
    ),
    (2, Kind::One(|d| Fault::Slow { span: d.span(), factor: d.number(3, 20) })),
    (2, Kind::One(|d| Fault::StopStore { span: d.span() })),
    (2, Kind::One(|d| Fault::CloseStore { span: d.span() })),
    (1, Kind::One(|d| Fault::ReadOnly { span: d.span() })),
    (
        2,
        Kind::One(|d| Fault::SlowStore {
            span: d.span(),
            by: Duration::from_millis(d.number(5, 900).into()),
        }),
    ),
    (3, Kind::One(|d| Fault::LoseAnswers { span: d.span() * 2, of: d.number(2, 30) })),
    (2, Kind::One(|d| Fault::LoseCommands { span: d.span(), of: d.number(2, 30) })),
    (3, Kind::One(|d| d.upheaval())),
    (1, Kind::One(|d| Fault::Move { shard: u8::try_from(d.of(d.shape.shards.into())).unwrap_or(0) })),
    (2, Kind::One(|d| Fault::Step { by_ms: d.step() })),
    (3, Kind::One(|d| Fault::Evict { user: d.of(d.shape.users), room: d.of(d.shape.rooms) })),
    (2, Kind::One(|d| Fault::RevokeUser { user: d.of(d.shape.users), span: d.span() * 2 })),
    (3, Kind::One(|d| Fault::RevokeToken { tab: d.tab() })),
    (1, Kind::One(|_| Fault::RevokeKey)),
    (1, Kind::Edges(|edge, span| Fault::DrainEdge { edge, span })),
    (1, Kind::Cores(|core, span| Fault::DrainCore { core, span })),
];

/// Where revocations are in that.
const REVOCATIONS: std::ops::Range<usize> = 34..37;

pub(super) struct Drawing<'a> {
    shape: &'a Shape,
    timings: Timings,
    chance: Chance,
    revokes: bool,
}

impl<'a> Drawing<'a> {
    pub(super) fn new(seed: u64, shape: &'a Shape, revokes: bool) -> Self {
        Self { timings: shape.timings(), shape, chance: chance(seed, Purpose::Plan, 0), revokes }
    }

    pub(super) fn faults(&mut self, whole: Duration) -> Vec<Planned> {
        let mix = self.mix();
        let total: u32 = mix.iter().map(|(weight, _)| weight).sum();
        let every = EVERY_LEAST.mul_f64(EVERY_FACTOR.powf(self.chance.random_range(0.0..1.0)));
        let (mut at, mut faults) = (FIRST_FAULT_AFTER, Vec::new());
        while at < whole {
            let drawn = self.chance.random_range(0..total);
            let mut up_to = mix.iter().scan(0, |sum, (weight, kind)| {
                *sum += weight;
                Some((*sum, *kind))
            });
            if let Some((_, kind)) = up_to.find(|(sum, _)| *sum > drawn) {
                self.draw(kind, at, &mut faults);
            }
            at += every.mul_f64(self.chance.random_range(0.1..1.9));
        }
        faults.retain(|planned| planned.at < whole);
        faults.sort_by_key(|planned| planned.at);
        faults
    }

    fn mix(&mut self) -> Vec<(u32, Kind)> {
        let mut mix = vec![(1, KINDS[0].1), (1, KINDS[6].1)];
        let revokes = self.revokes;
        let kinds =
            KINDS.into_iter().enumerate().filter(|(place, _)| revokes || !REVOCATIONS.contains(place));
        for (_, (weight, kind)) in kinds {
            if self.chance.random_bool(0.45) {
                mix.push((weight * self.chance.random_range(1..=6), kind));
            }
        }
        mix
    }

    fn draw(&mut self, kind: Kind, at: Duration, faults: &mut Vec<Planned>) {
        match kind {
            Kind::One(draw) => faults.push(Planned { at, fault: draw(self) }),
            Kind::Edges(roll) => self.roll(at, faults, (self.shape.edges, roll)),
            Kind::Cores(roll) => self.roll(at, faults, (self.shape.cores, roll)),
        }
    }

    fn roll(&mut self, at: Duration, faults: &mut Vec<Planned>, (many, roll): (usize, Roll)) {
        let apart = span(&mut self.chance, self.timings.grace, self.timings.lease_ttl * 2);
        let mut at = at;
        for place in 0..many {
            let down = span(&mut self.chance, Duration::from_millis(300), Duration::from_secs(3));
            faults.push(Planned { at, fault: roll(place, down) });
            at += apart;
        }
    }

    /// Short, within grace, within ttl, or longer.
    fn span(&mut self) -> Duration {
        let Timings { heartbeat, lease_ttl, grace, .. } = self.timings;
        let (from, to) = match self.chance.random_range(0..12) {
            0..4 => (Duration::from_millis(50), heartbeat / 2),
            4..8 => (heartbeat / 2, grace),
            8..11 => (grace, lease_ttl),
            _ => (lease_ttl, lease_ttl * 3),
        };
        span(&mut self.chance, from, to)
    }

    fn of(&mut self, many: usize) -> usize {
        self.chance.random_range(0..many)
    }

    fn number(&mut self, from: u32, to: u32) -> u32 {
        self.chance.random_range(from..to)
    }

    fn rarely(&mut self, probability: f64) -> bool {
        self.chance.random_bool(probability)
    }

    fn tab(&mut self) -> usize {
        self.of(self.shape.tabs)
    }

    fn edge(&mut self) -> usize {
        self.of(self.shape.edges)
    }

    fn core(&mut self) -> usize {
        self.of(self.shape.cores)
    }

    fn way(&mut self) -> Way {
        [Way::Both, Way::Both, Way::There, Way::Back][self.of(4)]
    }

    fn death(&mut self) -> Death {
        if self.rarely(0.25) { Death::Machine } else { Death::Process }
    }

    /// Another tab of the same user, if there is one.
    fn copy(&mut self) -> Fault {
        let tab = self.tab();
        let user = self.shape.user_of(tab);
        let people = self.shape.tabs - self.shape.onlookers;
        let others: Vec<usize> =
            (0..people).filter(|other| *other != tab && self.shape.user_of(*other) == user).collect();
        let of = if others.is_empty() { tab } else { others[self.of(others.len())] };
        Fault::Copy { tab, of }
    }

    fn trespass(&mut self) -> Fault {
        let (tab, people) = (self.tab(), self.shape.tabs - self.shape.onlookers);
        Fault::Trespass { tab, of: self.of(people) }
    }

    fn upheaval(&mut self) -> Fault {
        match self.of(4) {
            0 => Fault::Restart,
            1 => Fault::Empty,
            _ => {
                let ahead_ms = if self.rarely(0.5) { 0 } else { self.step() };
                Fault::FailOver { commits: self.of(12), ahead_ms }
            }
        }
    }

    /// A step that is seen, or one that is lost in the length of a lease.
    fn step(&mut self) -> i64 {
        let large = self.rarely(0.8);
        let by =
            if large { self.chance.random_range(1_500..90_000) } else { self.chance.random_range(50..700) };
        if self.rarely(0.5) { by } else { -by }
    }
}
