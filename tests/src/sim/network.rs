//! Ways between nodes: delay, spikes, and cuts that hold back what is sent until they are mended.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_model::time::{Mono, millis};
use rand::RngExt as _;

use super::agenda::Pipe;
use super::chance::{Chance, Purpose, chance};

/// Whoever has a network card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    Store,
    Core(usize),
    Edge(usize),
    Tab(usize),
    Desk(usize),
}

impl Node {
    fn number(self) -> u64 {
        let (kind, place) = match self {
            Self::Store => (0, 0),
            Self::Core(place) => (1, place),
            Self::Edge(place) => (2, place),
            Self::Tab(place) => (3, place),
            Self::Desk(place) => (4, place),
        };
        kind << 32 | place as u64
    }
}

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Store => f.write_str("the store"),
            Self::Core(place) => write!(f, "core{place}"),
            Self::Edge(place) => write!(f, "edge{place}"),
            Self::Tab(place) => write!(f, "tab{place}"),
            Self::Desk(place) => write!(f, "desk{place}"),
        }
    }
}

/// All ways.
pub(super) struct Network {
    seed: u64,
    delay_max: Duration,
    ways: BTreeMap<(Node, Node), Chance>,
    cuts: BTreeMap<(Node, Node), Mono>,
    slow: (Mono, u32),
}

/// How long what a cut held back takes at most, beyond the usual, once it is mended.
const SENT_AGAIN_WITHIN: Duration = Duration::from_millis(400);

impl Network {
    pub(super) fn new(seed: u64, delay_max: Duration) -> Self {
        Self { seed, delay_max, ways: BTreeMap::new(), cuts: BTreeMap::new(), slow: (Mono::default(), 1) }
    }

    /// Everything takes so many times as long until then.
    pub(super) fn slow_down(&mut self, until: Mono, factor: u32) {
        self.slow = (self.slow.0.max(until), factor);
    }

    /// Nothing that is sent this way arrives before then.
    pub(super) fn cut(&mut self, from: Node, to: Node, until: Mono) {
        let known = self.cuts.entry((from, to)).or_default();
        *known = until.max(*known);
    }

    /// Whether a message may be under way for longer than this, without a cut.
    pub(super) fn is_slower_than(&self, span: Duration, now: Mono) -> bool {
        self.slow.0 > now && self.delay_max * self.slow.1 > span
    }

    /// Everything is well again.
    pub(super) fn mend(&mut self, now: Mono) {
        self.slow.0 = self.slow.0.min(now);
        self.cuts.clear();
    }

    pub(super) fn is_cut(&self, from: Node, to: Node, now: Mono) -> bool {
        self.cut_until(from, to, now).is_some()
    }

    fn cut_until(&self, from: Node, to: Node, now: Mono) -> Option<Mono> {
        self.cuts.get(&(from, to)).copied().filter(|until| *until > now)
    }

    /// When something sent now through this pipe arrives.
    pub(super) fn arrival(&mut self, pipe: &mut Pipe, (from, to): (Node, Node), now: Mono) -> Mono {
        let at = now + self.delay(from, to, now);
        pipe.last = pipe.last.max(at);
        pipe.last
    }

    /// How long something sent now is under way.
    pub(super) fn delay(&mut self, from: Node, to: Node, now: Mono) -> Duration {
        let cut = self.cut_until(from, to, now);
        let factor = if self.slow.0 > now { self.slow.1 } else { 1 };
        // A store is next to its cores.
        let most = if from == Node::Store || to == Node::Store { 3 } else { millis(self.delay_max) };
        let seed = self.seed ^ from.number().rotate_left(20);
        let way = self.ways.entry((from, to)).or_insert_with(|| chance(seed, Purpose::Way, to.number()));
        let usual = Duration::from_millis(way.random_range(1..=most.max(1)));
        match cut {
            None => usual * factor,
            Some(until) => {
                let again = way.random_range(0..millis(SENT_AGAIN_WITHIN));
                until.since(now) + usual + Duration::from_millis(again)
            }
        }
    }
}
