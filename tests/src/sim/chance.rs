//! Chance, a stream of its own for each purpose: what is taken out of a plan leaves the rest of it, and of
//! the world, as it was.

use std::time::Duration;

use presence_model::time::millis;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

/// A stream of chance.
pub(super) type Chance = Xoshiro256PlusPlus;

/// What chance is drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Shape = 1,
    Plan = 2,
    Core = 3,
    Edge = 4,
    Tab = 5,
    Desk = 6,
    Store = 7,
    Way = 8,
    Operator = 9,
}

/// The stream for a purpose, numbered where there are several.
pub(super) fn chance(seed: u64, purpose: Purpose, number: u64) -> Chance {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
    Chance::seed_from_u64(seed.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ mixed ^ ((purpose as u64) << 56))
}

/// A span of at least `from` and below `to`, in whole milliseconds.
pub(super) fn span(chance: &mut Chance, from: Duration, to: Duration) -> Duration {
    let (from, to) = (millis(from), millis(to));
    Duration::from_millis(chance.random_range(from..to.max(from + 1)))
}
