//! Blind mutation: no coverage, no clock of its own, replays from its seed.

use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use super::Target;

/// Numbers at which something ends.
const EDGES: [u8; 12] = [0, 1, 2, 0x7d, 0x7e, 0x7f, 0x80, 0x81, 0xc0, 0xed, 0xfe, 0xff];
/// Changes of one input are at most so many.
const CHANGES_MAX: u32 = 6;

/// Makes new inputs out of old ones.
#[derive(Debug)]
pub struct Mutator<'a> {
    target: &'a Target,
    inputs: &'a [Vec<u8>],
    chance: Xoshiro256PlusPlus,
}

impl<'a> Mutator<'a> {
    /// A mutator of these inputs, of which there is at least one.
    #[must_use]
    pub fn new(target: &'a Target, inputs: &'a [Vec<u8>], seed: u64) -> Self {
        Self { target, inputs, chance: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }

    /// The next input: one of the old ones with a few changes.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.inputs.choose(&mut self.chance).expect("there is a seed").clone();
        for _ in 0..self.chance.random_range(1..=CHANGES_MAX) {
            self.change(&mut input);
        }
        input.truncate(self.target.bytes_max);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.chance.random_range(0..=input.len());
        match self.chance.random_range(0..8) {
            0 if at < input.len() => input[at] ^= 1 << self.chance.random_range(0..8),
            1 if at < input.len() => input[at] = *EDGES.choose(&mut self.chance).expect("not empty"),
            2 if at < input.len() => {
                input[at] = input[at].wrapping_add(self.chance.random_range(0..9)).wrapping_sub(4)
            }
            3 => input.insert(at, self.chance.random()),
            4 => {
                let end = self.up_to(at, input.len(), 16);
                input.drain(at..end);
            }
            5 => {
                let end = self.up_to(at, input.len(), 64);
                let again = input[at..end].to_vec();
                input.splice(at..at, again);
            }
            6 => {
                let words = self.target.words;
                let word = words.choose(&mut self.chance).copied().unwrap_or_default();
                input.splice(at..at, word.iter().copied());
            }
            _ => {
                // The end of another one.
                let other = self.inputs.choose(&mut self.chance).expect("there is a seed");
                let from = self.chance.random_range(0..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }

    fn up_to(&mut self, at: usize, length: usize, most: usize) -> usize {
        (at + self.chance.random_range(0..=most)).min(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::TARGETS;

    #[test]
    fn inputs_replay_from_their_seed_stay_short_and_differ() {
        let target = &TARGETS[0];
        let inputs = (target.seeds)();
        let make = |seed| {
            let mut mutator = Mutator::new(target, &inputs, seed);
            (0..500).map(|_| mutator.next_input()).collect::<Vec<_>>()
        };
        let made = make(7);
        assert_eq!(made, make(7));
        assert!(made.iter().all(|input| input.len() <= target.bytes_max));
        let new = made.iter().filter(|input| !inputs.contains(input)).count();
        assert!(new > 450, "{new} of 500 are new");
    }
}
