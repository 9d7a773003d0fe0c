//! The guarantees, by name, and how one is broken.

use std::fmt;

use presence_model::time::Mono;

/// A promise of the system.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantNames,
)]
pub enum Guarantee {
    /// Backed: nobody is shown without an unexpired lease.
    G1,
    /// Not early: nobody whose connection stands is ended for silence.
    G2,
    /// Timely: an ended lease is soon out of every live view.
    G3,
    /// Ordered: within an epoch revisions rise; nobody is taken back in time.
    G4,
    /// Complete: snapshots equal the fold of deltas; nothing is missed.
    G5,
    /// Fenced: what is over changes nothing.
    G6,
    /// Once: between two joins of a member there is a departure, and the reverse.
    G7,
    /// Silent reconnect: one within grace shows nothing.
    G8,
    /// Convergent: at rest all views are equal.
    G9,
    /// Scoped: a token opens exactly its subject, room, action and time.
    G10,
    /// Bounded: every queue and map has a limit.
    G11,
    /// Explained: for everybody shown or gone the reason can be asked for.
    G12,
}

/// A guarantee that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub guarantee: Guarantee,
    /// When, in simulated time.
    pub at: Mono,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} broken at {} ms: {}", self.guarantee, self.at.0.as_millis(), self.what)
    }
}

/// What was seen, and what that breaks.
pub(super) type Breach = (Guarantee, String);
