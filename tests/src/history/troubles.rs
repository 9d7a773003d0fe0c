//! Which part was in trouble when.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Place;

/// Spans of trouble by place, in order; the last one may not have ended.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    spans: BTreeMap<Place, Vec<(Duration, Option<Duration>)>>,
}

impl Troubles {
    pub(super) fn note(&mut self, place: &Place, begins: bool, at: Duration) {
        let spans = self.spans.entry(place.clone()).or_default();
        match (spans.last_mut(), begins) {
            (Some((_, None)), true) => {}
            (Some((_, end @ None)), false) => *end = Some(at),
            (_, true) => spans.push((at, None)),
            (_, false) => {}
        }
    }

    /// Whether nothing was wrong there at any moment from then to now.
    pub(super) fn is_quiet(&self, place: &Place, from: Duration) -> bool {
        self.last(place).is_none_or(|end| end.is_some_and(|end| end < from))
    }

    /// Whether from then to now an edge could have spoken to the store all the time, over one core.
    pub(super) fn is_steady(&self, edge: &str, cores: &[String], from: Duration) -> bool {
        let edge_is_quiet = self.is_quiet(&Place::Edge(edge.to_owned()), from);
        edge_is_quiet
            && self.is_quiet(&Place::Machine, from)
            && self.is_quiet(&Place::Store, from)
            && cores.iter().any(|core| {
                self.is_quiet(&Place::Core(core.clone()), from)
                    && self.is_quiet(&Place::Link(edge.to_owned(), core.clone()), from)
            })
    }

    /// Whether from then to now nothing was wrong between an edge and the store, whichever core it is at.
    pub(super) fn is_calm(&self, edge: &str, cores: &[String], from: Duration) -> bool {
        let link = |core: &String| Place::Link(edge.to_owned(), core.clone());
        self.is_quiet(&Place::Edge(edge.to_owned()), from)
            && self.is_quiet(&Place::Machine, from)
            && self.is_quiet(&Place::Store, from)
            && cores.iter().all(|core| {
                self.is_quiet(&Place::Core(core.clone()), from) && self.is_quiet(&link(core), from)
            })
    }

    /// Since when the store and all cores are well; none: they are not.
    pub(super) fn deciders_well_since(&self, cores: &[String]) -> Option<Duration> {
        let places = cores.iter().cloned().map(Place::Core).chain([Place::Store, Place::Machine]);
        let ends: Option<Vec<Duration>> =
            places.map(|place| self.last(&place).unwrap_or(Some(Duration::ZERO))).collect();
        ends.map(|ends| ends.into_iter().max().unwrap_or_default())
    }

    /// The end of the last trouble there: none, or not ended.
    #[expect(clippy::option_option, reason = "no trouble at all, and one that goes on, are two things")]
    fn last(&self, place: &Place) -> Option<Option<Duration>> {
        self.spans.get(place)?.last().map(|(_, end)| *end)
    }
}
