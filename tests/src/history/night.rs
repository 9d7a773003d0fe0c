//! A night and what came of it, for people.

use std::collections::BTreeMap;

use super::{Looked, Violation};

/// Lines of the story that are shown when a guarantee breaks.
const STORY_TAIL: usize = 80;

/// What came of a night.
#[derive(Debug, Clone)]
pub struct Night {
    /// Its seed.
    pub seed: u64,
    /// All that was recorded, line by line.
    pub lines: Vec<String>,
    /// How often each thing happened.
    pub faults: BTreeMap<&'static str, u64>,
    /// How often each guarantee was looked at, or which was broken.
    pub verdict: Result<Looked, Violation>,
}

impl Night {
    /// In one line.
    #[must_use]
    pub fn told(&self) -> String {
        let Self { seed, lines, verdict, .. } = self;
        match verdict {
            Ok(_) => format!("seed {seed}: {} lines, no guarantee broken", lines.len()),
            Err(violation) => format!("seed {seed}: {violation}"),
        }
    }

    /// What led to its end, and by which command it is tried again; none: no guarantee is broken.
    #[must_use]
    pub fn story(&self, replay: &str) -> Option<String> {
        let violation = self.verdict.as_ref().err()?;
        let until = violation.at.as_millis();
        let before = |line: &&String| {
            let at: u128 = line.split_whitespace().next().and_then(|at| at.parse().ok()).unwrap_or(0);
            at <= until
        };
        let lines = self.lines.iter().take_while(before).count();
        let story = tail(&self.lines[..lines]).join("\n");
        Some(format!("seed {}: {violation}\n{story}\nreplay: {replay}", self.seed))
    }
}

/// The last lines of a story, as many as people read.
#[must_use]
pub fn tail(lines: &[String]) -> &[String] {
    &lines[lines.len().saturating_sub(STORY_TAIL)..]
}
