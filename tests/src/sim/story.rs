//! Everything observed, as lines; and how often each kind of it was.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use presence_model::time::Mono;

/// How much of a story is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Every line.
    All,
    /// Every line, and every message between processes and the store.
    Messages,
    /// The newest, and a sum of all.
    Newest,
}

/// Lines kept of a story that is not kept whole.
const NEWEST_LINES: usize = 400;

/// What was observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story {
    keep: Keep,
    /// The lines that were kept.
    pub lines: VecDeque<String>,
    /// How many there were.
    pub count: u64,
    /// A sum over all lines: equal for equal stories.
    pub sum: u64,
    /// How often something was done or seen, by kind.
    pub counts: BTreeMap<&'static str, u64>,
}

impl Story {
    pub(super) fn new(keep: Keep) -> Self {
        Self { keep, lines: VecDeque::new(), count: 0, sum: 0xcbf2_9ce4_8422_2325, counts: BTreeMap::new() }
    }

    pub(super) fn note(&mut self, now: Mono, kind: &'static str, what: &str) {
        *self.counts.entry(kind).or_default() += 1;
        self.count += 1;
        let mut line = format!("{:>9} {kind}", now.0.as_millis());
        if !what.is_empty() {
            let _ = write!(line, ": {what}");
        }
        for byte in line.bytes() {
            self.sum = (self.sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if self.keep == Keep::Newest && self.lines.len() == NEWEST_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    pub(super) fn keeps_messages(&self) -> bool {
        self.keep == Keep::Messages
    }

    /// Notes a message, where those are kept.
    pub(super) fn message(&mut self, now: Mono, kind: &'static str, what: impl FnOnce() -> String) {
        if self.keep == Keep::Messages {
            self.note(now, kind, &what());
        }
    }

    /// Counts without a line.
    pub(super) fn count(&mut self, kind: &'static str) {
        *self.counts.entry(kind).or_default() += 1;
    }

    /// How often something was done or seen.
    #[must_use]
    pub fn how_often(&self, kind: &str) -> u64 {
        self.counts.get(kind).copied().unwrap_or(0)
    }
}
