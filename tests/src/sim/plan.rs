//! A plan: the shape of a world and everything that befalls it, written down before it starts, so that it
//! can be read, and shortened.

mod lands;
mod mix;

use std::fmt;
use std::time::Duration;

use presence_model::time::millis;

use self::mix::Drawing;
use super::faults::Fault;
use super::mutant::Mutant;
use super::shape::Shape;

/// A fault and when it strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// Since the start.
    pub at: Duration,
    /// What.
    pub fault: Fault,
}

/// Everything that is decided about a world before it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Seeds what is left to chance.
    pub seed: u64,
    /// Its size.
    pub shape: Shape,
    /// How long it lives, before everything comes to rest.
    pub span: Duration,
    /// In order of time.
    pub faults: Vec<Planned>,
    /// A deliberate fault of what runs in this world.
    pub mutant: Option<Mutant>,
}

/// How long a plan written by hand goes on after its last fault.
const HAND_WRITTEN_TAIL: Duration = Duration::from_secs(5);

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn draw(seed: u64, span: Duration) -> Self {
        Self::drawn(seed, span, true)
    }

    /// The plan of a seed, of several regions.
    #[must_use]
    pub fn draw_regions(seed: u64, span: Duration) -> Self {
        let shape = Shape::of_regions(seed);
        let faults = lands::faults(seed, &shape, span);
        Self { seed, shape, span, faults, mutant: None }
    }

    /// The same without revocations.
    #[must_use]
    pub fn draw_unrevoked(seed: u64, span: Duration) -> Self {
        Self::drawn(seed, span, false)
    }

    fn drawn(seed: u64, span: Duration, revokes: bool) -> Self {
        let shape = Shape::draw(seed);
        let faults = Drawing::new(seed, &shape, revokes).faults(span);
        Self { seed, shape, span, faults, mutant: None }
    }

    /// A plan written by hand: faults and when they strike, in ms.
    #[must_use]
    pub fn of(seed: u64, shape: Shape, faults: &[(u64, Fault)]) -> Self {
        let planned =
            |(at_ms, fault): &(u64, Fault)| Planned { at: Duration::from_millis(*at_ms), fault: *fault };
        let mut faults: Vec<Planned> = faults.iter().map(planned).collect();
        faults.sort_by_key(|planned| planned.at);
        let end = faults.iter().map(|planned| planned.at + planned.fault.span()).max();
        Self { seed, shape, span: end.unwrap_or_default() + HAND_WRITTEN_TAIL, faults, mutant: None }
    }

    /// The same world with other faults.
    #[must_use]
    pub fn with(&self, faults: Vec<Planned>) -> Self {
        Self { faults, ..self.clone() }
    }

    /// Whether a fault lets a replica take over.
    pub(super) fn fails_over(&self) -> bool {
        self.faults.iter().any(|planned| matches!(planned.fault, Fault::FailOver { .. }))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { regions, cores, edges, tabs, users, rooms, .. } = self.shape;
        let seed = self.seed;
        let of = if regions > 1 { format!("{regions} regions, each of ") } else { String::new() };
        writeln!(
            f,
            "seed {seed}: {of}{cores} cores, {edges} edges, {tabs} tabs of {users} users in {rooms} rooms"
        )?;
        for Planned { at, fault } in &self.faults {
            writeln!(f, "{:>9} {fault}", millis(*at))?;
        }
        Ok(())
    }
}
