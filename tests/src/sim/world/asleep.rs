//! Who stands still takes nothing in: it waits at the door until they go on.

use presence_core::driver::{LinkKey, WatchKey};
use presence_model::id::ConnectionId;

use super::{Event, World};
use crate::sim::nodes::Peer;

/// Who an event happens to.
enum Whom {
    World,
    Core(u64),
    Edge(usize, u64),
    Tab(usize),
}

impl World {
    /// The event, unless it waits at somebody's door.
    pub(super) fn unless_asleep(&mut self, event: Event) -> Option<Event> {
        let queue = match self.whom(&event) {
            Whom::World => None,
            Whom::Core(run) => {
                let core = self
                    .cores
                    .iter_mut()
                    .filter_map(|slot| slot.process.as_mut())
                    .find(|core| core.run == run);
                core.and_then(|core| core.asleep.as_mut())
            }
            Whom::Edge(edge, run) => {
                let edge = self.edges[edge].process.as_mut().filter(|edge| edge.run == run);
                edge.and_then(|edge| edge.asleep.as_mut())
            }
            Whom::Tab(tab) => self.tabs_asleep[tab].as_mut(),
        };
        match queue {
            Some(queue) => {
                queue.push(event);
                None
            }
            None => Some(event),
        }
    }

    fn whom(&self, event: &Event) -> Whom {
        match event {
            Event::WakeCore(run)
            | Event::StopCore(run)
            | Event::StoreReply(run, ..)
            | Event::Asked(run, ..) => Whom::Core(*run),
            Event::LinkOpening(key, _) | Event::LinkUp(key, _) | Event::LinkGoneAtCore(key, _) => {
                self.core_behind_link(*key)
            }
            Event::WatchOpening(key)
            | Event::WatchUp(key, _)
            | Event::WatchReady(key)
            | Event::WatchGoneAtCore(key) => self.core_behind_watch(*key),
            Event::WakeEdge(edge, run) | Event::StopEdge(edge, run) => Whom::Edge(*edge, *run),
            Event::LinkOpened(key) | Event::LinkDown(key, _) | Event::LinkGoneAtEdge(key) => {
                self.links.get(key).map_or(Whom::World, |stream| peer(stream.peer))
            }
            Event::WatchOpened(key) | Event::WatchDown(key, _) | Event::WatchGoneAtPeer(key) => {
                self.watches.get(key).map_or(Whom::World, |stream| peer(stream.peer))
            }
            Event::AtEdge(connection, _) => self.edge_of(*connection),
            Event::AtTab(connection, _) => {
                self.sockets.get(connection).map_or(Whom::World, |socket| Whom::Tab(socket.tab))
            }
            Event::Tab(tab, _) => Whom::Tab(*tab),
            Event::StartCore(_)
            | Event::ResumeCore(_)
            | Event::StoreCommand(..)
            | Event::TailOver(..)
            | Event::StartEdge(_)
            | Event::ResumeEdge(..)
            | Event::EchoOver(_)
            | Event::WakeTab(_)
            | Event::DialDesk(..)
            | Event::Strike(_)
            | Event::Question
            | Event::Look => Whom::World,
        }
    }

    fn core_behind_link(&self, key: LinkKey) -> Whom {
        self.links.get(&key).map_or(Whom::World, |stream| Whom::Core(stream.core_run))
    }

    fn core_behind_watch(&self, key: WatchKey) -> Whom {
        self.watches.get(&key).map_or(Whom::World, |stream| Whom::Core(stream.core_run))
    }

    fn edge_of(&self, connection: ConnectionId) -> Whom {
        self.sockets.get(&connection).map_or(Whom::World, |socket| Whom::Edge(socket.edge, socket.edge_run))
    }
}

fn peer(peer: Peer) -> Whom {
    match peer {
        Peer::Edge(edge, run) => Whom::Edge(edge, run),
        Peer::Desk(_) => Whom::World,
    }
}
