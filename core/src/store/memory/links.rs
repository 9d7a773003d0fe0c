//! Which core sees which edge, or since when nobody: compared on link numbers, so that what comes late
//! never overwrites what is newer.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_model::id::{EdgeName, Incarnation, LinkNumber};
use presence_model::time::StoreTime;

use super::Data;
use crate::store::{EdgeState, Outcome};

/// An edge that nobody has spoken of for so long is forgotten, if it holds no lease.
const UNHEARD_MAX: Duration = Duration::from_secs(600);

/// An edge as noted.
#[derive(Debug, Clone)]
pub(super) struct EdgeNote {
    name: EdgeName,
    link: LinkNumber,
    core: u64,
    broken_since: Option<StoreTime>,
    heard: StoreTime,
    draining: bool,
}

pub(super) type EdgeNotes = BTreeMap<Incarnation, EdgeNote>;

impl Data {
    /// The same number again refreshes the note but mends no broken link: that takes a higher one. A run of an edge
    /// has one name: whoever links it under another is not that edge.
    pub(super) fn link(
        &mut self,
        edge: Incarnation,
        (name, core): (EdgeName, u64),
        link: LinkNumber,
        now: StoreTime,
    ) -> Outcome {
        let accepted = match self.edges.get_mut(&edge) {
            Some(known) if known.link > link || known.name != name => false,
            Some(known) if known.link == link => {
                known.heard = now;
                true
            }
            known => {
                let draining = known.is_some_and(|known| known.draining);
                let note = EdgeNote { name, link, core, broken_since: None, heard: now, draining };
                self.edges.insert(edge, note);
                true
            }
        };
        Outcome::Linked { accepted, now }
    }

    pub(super) fn unlink(&mut self, edge: Incarnation, name: &EdgeName, link: LinkNumber, now: StoreTime) {
        let known = self.edges.get_mut(&edge).filter(|known| known.link <= link && known.name == *name);
        if let Some(known) = known {
            let was_broken = known.broken_since.filter(|_| known.link == link);
            known.link = link;
            known.heard = now;
            known.broken_since = Some(was_broken.unwrap_or(now));
        }
    }

    pub(super) fn forget_edge(&mut self, edge: Incarnation, name: &EdgeName, link: LinkNumber) {
        if self.edges.get(&edge).is_some_and(|known| known.link <= link && known.name == *name) {
            self.edges.remove(&edge);
        }
    }

    pub(super) fn drain_edge(&mut self, name: &EdgeName, edge: Option<Incarnation>) {
        let is_meant =
            |run: Incarnation, note: &EdgeNote| note.name == *name && edge.is_none_or(|edge| edge == run);
        for (run, note) in &mut self.edges {
            note.draining |= is_meant(*run, note);
        }
    }

    /// Whether a higher link number of that edge is known.
    pub(super) fn knows_newer(&self, edge: Incarnation, link: LinkNumber) -> bool {
        self.edges.get(&edge).is_some_and(|known| known.link > link)
    }

    pub(super) fn edge_states(&self, now: StoreTime) -> Outcome {
        let held = |edge| -> usize { self.shards.iter().map(|shard| shard.leases.count_of_edge(edge)).sum() };
        let states = self.edges.iter().map(|(edge, note)| EdgeState {
            edge: *edge,
            name: note.name.clone(),
            link: note.link,
            core: note.core,
            broken_since: note.broken_since,
            draining: note.draining,
            leases: (note.broken_since.is_some() || note.draining).then(|| held(*edge)),
        });
        let edges =
            states.filter(|state| held(state.edge) > 0 || !self.is_unheard(state.edge, now)).collect();
        Outcome::Edges { now, edges }
    }

    fn is_unheard(&self, edge: Incarnation, now: StoreTime) -> bool {
        self.edges.get(&edge).is_some_and(|note| now.since(note.heard) > UNHEARD_MAX)
    }

    /// Forgets edges that are not heard of any more and hold nothing.
    pub(super) fn forget_unheard(&mut self, now: StoreTime) {
        let shards = &self.shards;
        self.edges.retain(|edge, note| {
            now.since(note.heard) <= UNHEARD_MAX
                || shards.iter().any(|shard| shard.leases.count_of_edge(*edge) > 0)
        });
    }
}
