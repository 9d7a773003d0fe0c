//! Nights of several regions: people move, the ways between regions are cut, and cores die and stand still.

use std::time::Duration;

use presence_model::timing::Timings;
use rand::RngExt as _;

use super::Planned;
use crate::sim::chance::{Chance, Purpose, chance, span};
use crate::sim::faults::{Death, Fault, Move, Way};
use crate::sim::shape::Shape;

/// Nothing happens before everybody is in.
const FIRST_FAULT_AFTER: Duration = Duration::from_secs(12);
/// Shortest average span between two faults; the longest is so many times as long.
const EVERY_LEAST: Duration = Duration::from_secs(1);
const EVERY_FACTOR: f64 = 24.0;
/// A way around the world stands still for so long on a bad day.
const STALL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3));
/// By so much a cut is longer than the hold of regions at most.
const BEYOND_HOLD: Duration = Duration::from_secs(30);

type Draw = fn(&mut Drawing<'_>, at: Duration) -> Vec<Planned>;

/// How each kind is drawn, and how likely it is where it is in the mix.
const KINDS: [(u32, Draw); 9] = [
    (8, |d, at| {
        vec![d.one(at, |d| Fault::Cross { tab: d.tab(), region: d.region(), how: d.how(), span: d.short() })]
    }),
    (3, |d, at| vec![d.one(at, |d| Fault::Blip { tab: d.tab() })]),
    (3, |d, at| vec![d.one(at, |d| Fault::Go { tab: d.tab(), span: d.short() * 2 })]),
    (3, |d, at| vec![d.one(at, |d| Fault::Leave { tab: d.tab(), span: d.short() * 2 })]),
    (5, |d, at| vec![d.one(at, |d| Fault::Update { tab: d.tab() })]),
    (4, |d, at| vec![d.one(at, Drawing::cut)]),
    (2, |d, at| d.isolate(at)),
    (2, |d, at| vec![d.one(at, |d| Fault::CrashCore { core: d.core(), span: d.short(), death: d.death() })]),
    (2, |d, at| vec![d.one(at, |d| Fault::NapCore { core: d.core(), span: d.short(), holding: false })]),
];

struct Drawing<'a> {
    shape: &'a Shape,
    timings: Timings,
    chance: Chance,
}

/// What befalls the regions of a seed.
pub(super) fn faults(seed: u64, shape: &Shape, whole: Duration) -> Vec<Planned> {
    let mut drawing = Drawing { shape, timings: shape.timings(), chance: chance(seed, Purpose::Plan, 1) };
    let mix = drawing.mix();
    let total: u32 = mix.iter().map(|(weight, _)| weight).sum();
    let every = EVERY_LEAST.mul_f64(EVERY_FACTOR.powf(drawing.chance.random_range(0.0..1.0)));
    let (mut at, mut faults) = (FIRST_FAULT_AFTER, Vec::new());
    while at < whole {
        let drawn = drawing.chance.random_range(0..total);
        let mut up_to = mix.iter().scan(0, |sum, (weight, draw)| {
            *sum += weight;
            Some((*sum, *draw))
        });
        if let Some((_, draw)) = up_to.find(|(sum, _)| *sum > drawn) {
            faults.extend(draw(&mut drawing, at));
        }
        at += every.mul_f64(drawing.chance.random_range(0.1..1.9));
    }
    faults.sort_by_key(|planned| planned.at);
    faults
}

impl Drawing<'_> {
    fn one(&mut self, at: Duration, fault: impl FnOnce(&mut Self) -> Fault) -> Planned {
        Planned { at, fault: fault(self) }
    }

    /// Somebody always moves.
    fn mix(&mut self) -> Vec<(u32, Draw)> {
        let mut mix = vec![(4, KINDS[0].1)];
        for (weight, draw) in KINDS {
            if self.chance.random_bool(0.6) {
                mix.push((weight * self.chance.random_range(1..=4), draw));
            }
        }
        mix
    }

    fn cut(&mut self) -> Fault {
        let from = self.region();
        let to = (from + 1 + self.chance.random_range(0..self.shape.regions - 1)) % self.shape.regions;
        Fault::CutRegions { from, to, way: self.way(), span: self.long() }
    }

    /// Nobody else hears one region, nor does it hear anybody else.
    fn isolate(&mut self, at: Duration) -> Vec<Planned> {
        let (alone, span) = (self.region(), self.long());
        let others = (0..self.shape.regions).filter(|other| *other != alone);
        let cut = |to| Planned { at, fault: Fault::CutRegions { from: alone, to, way: Way::Both, span } };
        others.map(cut).collect()
    }

    /// A stall, a cut within the hold of regions, or a longer one.
    fn long(&mut self) -> Duration {
        let hold = self.timings.region_hold();
        let (from, to) = match self.chance.random_range(0..10) {
            0..5 => STALL,
            5..8 => (STALL.1, hold),
            _ => (hold, hold + BEYOND_HOLD),
        };
        span(&mut self.chance, from, to)
    }

    /// Within the grace, or a ttl.
    fn short(&mut self) -> Duration {
        let to = if self.chance.random_bool(0.6) { self.timings.grace } else { self.timings.lease_ttl };
        span(&mut self.chance, Duration::from_millis(200), to)
    }

    fn tab(&mut self) -> usize {
        self.chance.random_range(0..self.shape.tabs)
    }

    fn region(&mut self) -> usize {
        self.chance.random_range(0..self.shape.regions)
    }

    fn core(&mut self) -> usize {
        self.chance.random_range(0..self.shape.regions * self.shape.cores)
    }

    fn how(&mut self) -> Move {
        [Move::Clean, Move::Drop, Move::Both, Move::Behind, Move::Late][self.chance.random_range(0..5)]
    }

    fn way(&mut self) -> Way {
        [Way::Both, Way::There, Way::Back][self.chance.random_range(0..3)]
    }

    fn death(&mut self) -> Death {
        if self.chance.random_bool(0.25) { Death::Machine } else { Death::Process }
    }
}
