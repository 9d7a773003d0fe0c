//! What the store is told about edges, repeated until answered, and how a dead edge is noticed.
//!
//! Each edge seen here has a wish: linked, broken or gone. A wish is written until the store has it,
//! one command at a time, so that a late answer of an older wish cannot end a newer one.

use std::collections::BTreeMap;

use presence_model::hold::is_held;
use presence_model::id::{EdgeName, Incarnation, LinkNumber};
use presence_model::time::{Mono, StoreTime};

use super::store_ops::Pending;
use super::{CloseReason, Driver};
use crate::limits::{BREAKS_APART, EDGES_LOOK, LINK_REFRESH, STORE_RETRY};
use crate::store::{Command, EdgeState, Outcome, StoreFault};

/// What the store shall know of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Linked,
    Broken,
    Gone,
}

#[derive(Debug)]
struct Registration {
    name: EdgeName,
    link: LinkNumber,
    wish: Wish,
    /// The wish under way, by the serial of its command.
    asking: Option<(u64, Wish)>,
    /// When to write next; none: written.
    write_at: Option<Mono>,
    /// When it was last written.
    written: Option<Mono>,
    /// Not of an open link: forgotten as soon as written.
    parting: bool,
    /// Whether the edge is told to renew all once its link is written.
    renew_all: bool,
}

/// What the store is told about edges.
#[derive(Debug, Default)]
pub(super) struct Edges {
    registrations: BTreeMap<Incarnation, Registration>,
    serial: u64,
    look_at: Mono,
    looking: bool,
}

impl Edges {
    /// When something is to be written or looked up.
    pub(super) fn due(&self) -> Option<Mono> {
        let writes = self.registrations.values().filter(|r| r.asking.is_none());
        let write = writes.filter_map(Registration::due).min();
        let look = (!self.looking).then_some(self.look_at);
        write.into_iter().chain(look).min()
    }
}

impl Registration {
    fn due(&self) -> Option<Mono> {
        let refresh = (self.wish == Wish::Linked && !self.parting)
            .then_some(self.written.map(|at| at + LINK_REFRESH))
            .flatten();
        // What is tried again has its own time, or a refresh that fails would be due at once for ever.
        self.write_at.or(refresh)
    }
}

impl Driver {
    /// A link is open: write its number in front of its renew-all.
    pub(super) fn register(&mut self, edge: Incarnation, name: EdgeName, link: LinkNumber) {
        let registration = Registration {
            name,
            link,
            wish: Wish::Linked,
            asking: None,
            write_at: Some(self.now),
            written: None,
            parting: false,
            renew_all: true,
        };
        self.edges.registrations.insert(edge, registration);
    }

    /// The link ended in a way from which nothing follows.
    pub(super) fn unregister(&mut self, edge: Incarnation) {
        self.edges.registrations.remove(&edge);
    }

    /// The edge may be dead.
    pub(super) fn wish_broken(&mut self, edge: Incarnation, link: LinkNumber) {
        self.wish(edge, link, Wish::Broken);
    }

    /// The edge said goodbye.
    pub(super) fn wish_gone(&mut self, edge: Incarnation, link: LinkNumber) {
        self.wish(edge, link, Wish::Gone);
    }

    fn wish(&mut self, edge: Incarnation, link: LinkNumber, wish: Wish) {
        let now = self.now;
        if let Some(known) = self.edges.registrations.get_mut(&edge).filter(|known| known.link == link) {
            known.wish = wish;
            known.write_at = Some(now);
            known.parting = true;
        }
    }

    /// Several links broke at once: none of their edges counts as dead. A broken mark cannot be mended
    /// under its own number, so the whole note goes; the next link writes a new one.
    pub(super) fn take_break_back(&mut self, edge: Incarnation, link: LinkNumber) {
        self.wish(edge, link, Wish::Gone);
    }

    /// Links are to be written again, and everything renewed: at the start of a hold or a new epoch.
    pub(super) fn renew_all_links(&mut self) {
        for edge in self.links.edges() {
            self.write_again(edge, self.now);
        }
    }

    fn write_again(&mut self, edge: Incarnation, at: Mono) {
        if let Some(known) = self.edges.registrations.get_mut(&edge) {
            known.renew_all = true;
            known.write_at = Some(known.write_at.map_or(at, |known| known.min(at)));
        }
    }

    /// Writes what is due and looks up broken edges.
    pub(super) fn tend_edges(&mut self) {
        let core = self.settings.holder;
        let mut commands = Vec::new();
        let Edges { registrations, serial, .. } = &mut self.edges;
        for (edge, known) in registrations {
            if known.asking.is_some() || known.due().is_none_or(|due| due > self.now) {
                continue;
            }
            *serial += 1;
            known.asking = Some((*serial, known.wish));
            known.write_at = None;
            let (edge, name, link) = (*edge, known.name.clone(), known.link);
            let command = match known.wish {
                Wish::Linked => Command::Link { edge, name, link, core },
                Wish::Broken => Command::Unlink { edge, name, link },
                Wish::Gone => Command::Forget { edge, name, link },
            };
            commands.push((command, Pending::Registration(edge, *serial)));
        }
        for (command, pending) in commands {
            self.ask(command, pending);
        }
        if !self.edges.looking && self.edges.look_at <= self.now {
            self.edges.looking = true;
            self.ask(Command::Edges, Pending::Edges);
        }
    }

    /// A wish is written, or not.
    pub(super) fn on_registered(
        &mut self,
        edge: Incarnation,
        serial: u64,
        result: Result<Outcome, StoreFault>,
    ) {
        let now = self.now;
        let asked = |known: &&mut Registration| known.asking.is_some_and(|(asked, _)| asked == serial);
        let Some(known) = self.edges.registrations.get_mut(&edge).filter(asked) else { return };
        let wish = known.asking.take().map(|(_, wish)| wish);
        if wish != Some(known.wish) {
            known.write_at = Some(now);
            return;
        }
        let accepted = match result {
            Ok(Outcome::Linked { accepted, .. }) => accepted,
            Ok(_) => true,
            Err(_) => {
                known.write_at = Some(now + STORE_RETRY);
                return;
            }
        };
        known.written = Some(now);
        if known.parting {
            // A broken one is kept until it is clear that it broke alone.
            if known.wish != Wish::Broken {
                self.edges.registrations.remove(&edge);
            }
            return;
        }
        let renew_all = std::mem::take(&mut known.renew_all);
        if !accepted {
            if let Some((key, _)) = self.links.of_edge(edge) {
                self.end_link(key, CloseReason::StaleLink);
            }
        } else if renew_all && let Err(not_before) = self.renew_all(edge) {
            self.write_again(edge, not_before);
        }
    }

    /// Looks at the store's edges with this input; false: a look is under way already.
    pub(super) fn look_at_edges_now(&mut self) -> bool {
        self.edges.look_at = self.now;
        !self.edges.looking
    }

    /// The store's edges: ours that are marked broken are linked again, lost ones shortened.
    pub(super) fn on_edges(&mut self, result: Result<Outcome, StoreFault>) {
        let now = self.now;
        self.edges.looking = false;
        self.edges.look_at = now + EDGES_LOOK;
        self.edges.registrations.retain(|_, known| {
            let settled = known.wish == Wish::Broken && known.asking.is_none() && known.write_at.is_none();
            !(settled && known.written.is_some_and(|at| now.since(at) > BREAKS_APART))
        });
        let Ok(Outcome::Edges { now: store_now, edges }) = result else {
            return self.tend_edge_drains(None);
        };
        self.tend_edge_drains(Some(&edges));
        for state in edges {
            let Some(since) = state.broken_since else { continue };
            match self.links.of_edge(state.edge) {
                Some((_, link)) if link >= state.link => self.mark_linked(&state, link),
                Some(_) | None => {
                    let left = self.settings.timings.edge_lost.saturating_sub(store_now.since(since));
                    if left.is_zero() {
                        self.lose(&state, since);
                    } else {
                        // The very moment counts: who is lost is to be gone within a second of it.
                        self.edges.look_at = self.edges.look_at.min(now + left);
                    }
                }
            }
        }
    }

    /// A link that is open here is marked broken: a remnant of an older one, or of data that came back.
    fn mark_linked(&mut self, state: &EdgeState, link: LinkNumber) {
        if link == state.link {
            let (edge, name) = (state.edge, state.name.clone());
            self.ask(Command::Forget { edge, name, link }, Pending::Unheeded);
        }
        self.write_again(state.edge, self.now);
    }

    /// Shortens what is held through a lost edge, in the shards whose turn is ours and which are not
    /// held; forgets it when nothing is left.
    fn lose(&mut self, state: &EdgeState, broken_since: StoreTime) {
        let (edge, link) = (state.edge, state.link);
        if state.leases == Some(0) {
            let name = state.name.clone();
            return self.ask(Command::Forget { edge, name, link }, Pending::Unheeded);
        }
        let ttl = self.settings.timings.lease_ttl_min;
        for shard in self.sweep.shards() {
            let now = self.clock.estimate(shard, self.now).unwrap_or(broken_since);
            // Longer leases are held for longer: the store looks at each.
            let held = is_held(self.sweep.hold(shard).map(|hold| hold.since), ttl, now);
            if self.sweep.is_mine(shard) && !held {
                let graces = self.graces.clone();
                self.ask(Command::Lose { shard, edge, link, broken_since, graces }, Pending::Unheeded);
            }
        }
    }
}
