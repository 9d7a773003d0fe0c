//! Edges that are to go by an operator's word.
//!
//! The word is noted in the store beside the edge, since the edge may be linked to any core and move at any
//! moment: whichever core has its link reads the note with the next look at the edges, and tells it.

use std::collections::BTreeMap;

use presence_model::id::{EdgeName, Incarnation};
use presence_model::link::LinkDown;

use super::store_ops::Pending;
use super::{Answer, Driver, Effect, QueryKey, QueryRefusal};
use crate::limits::EDGE_DRAINS_MAX;
use crate::store::{Command, EdgeState, Outcome, StoreFault};

/// How far a question is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The note is being written.
    Noting,
    /// Noted, while a look at the edges was under way that may not show it.
    Noted,
    /// Answered from the look that comes in next.
    Looking,
}

#[derive(Debug)]
struct Asked {
    name: EdgeName,
    edge: Option<Incarnation>,
    stage: Stage,
}

impl Asked {
    fn means(&self, state: &EdgeState) -> bool {
        state.draining && state.name == self.name && self.edge.is_none_or(|edge| edge == state.edge)
    }
}

/// Operators that wait for an answer.
#[derive(Debug, Default)]
pub(super) struct EdgeDrains(BTreeMap<QueryKey, Asked>);

impl Driver {
    /// An operator sends an edge away, or asks how far that is.
    pub(super) fn on_drain_edge(&mut self, key: QueryKey, name: EdgeName, edge: Option<Incarnation>) {
        if self.edge_drains.0.len() >= EDGE_DRAINS_MAX {
            return self.refuse_drain(key);
        }
        self.edge_drains.0.insert(key, Asked { name: name.clone(), edge, stage: Stage::Noting });
        self.ask(Command::DrainEdge { name, edge }, Pending::DrainEdge(key));
    }

    /// The note is written, or not: then it may be all the same, and may be asked for again.
    pub(super) fn on_drain_noted(&mut self, key: QueryKey, result: &Result<Outcome, StoreFault>) {
        if result.is_err() {
            self.edge_drains.0.remove(&key);
            return self.refuse_drain(key);
        }
        let looks = self.look_at_edges_now();
        if let Some(asked) = self.edge_drains.0.get_mut(&key) {
            asked.stage = if looks { Stage::Looking } else { Stage::Noted };
        }
    }

    /// The store's edges came in: those linked here that are to go are told, and who asked is answered.
    pub(super) fn tend_edge_drains(&mut self, states: Option<&[EdgeState]>) {
        for state in states.into_iter().flatten().filter(|state| state.draining) {
            if let Some((key, _)) = self.links.of_edge(state.edge)
                && self.links.send_away(key)
            {
                self.tell(key, LinkDown::DrainEdge);
            }
        }
        let looked = |(_, asked): &(&QueryKey, &Asked)| asked.stage == Stage::Looking;
        let due: Vec<QueryKey> = self.edge_drains.0.iter().filter(looked).map(|(key, _)| *key).collect();
        for key in due {
            let Some(asked) = self.edge_drains.0.remove(&key) else { continue };
            let Some(states) = states else {
                self.refuse_drain(key);
                continue;
            };
            let meant = states.iter().filter(|state| asked.means(state));
            let runs: Vec<_> = meant.map(|state| (state.edge, state.leases.unwrap_or(0))).collect();
            let none = runs.is_empty();
            let answer = if none { Err(QueryRefusal::UnknownEdge) } else { Ok(Answer::Leaving(runs)) };
            self.out.push(Effect::Answer(key, answer));
        }
        let mut again = false;
        for asked in self.edge_drains.0.values_mut().filter(|asked| asked.stage == Stage::Noted) {
            asked.stage = Stage::Looking;
            again = true;
        }
        if again {
            self.look_at_edges_now();
        }
    }

    fn refuse_drain(&mut self, key: QueryKey) {
        let retry_after = self.retry_after();
        self.out.push(Effect::Answer(key, Err(QueryRefusal::Unavailable { retry_after })));
    }
}
