//! Edge processes and their streams to the core.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_core::driver::{Input as CoreInput, LinkEnd, LinkKey, WatchKey};
use presence_edge::hub::{CoreAddress, Effect, Hub, HubSettings, Input};
use presence_model::id::{ConnectionId, EdgeName, Incarnation};
use presence_model::link::{Hello, LinkDown};
use presence_model::time::Mono;
use presence_model::watch::WatchDown;
use rand::RngExt as _;

use super::{Event, World};
use crate::sim::nodes::{Edge, Stream};
use crate::sim::pipes::Pipe;

fn address_of(core: usize) -> CoreAddress {
    CoreAddress { url: format!("http://core-{core}:1").into(), address: None }
}

impl World {
    pub(super) fn start_edge(&mut self, index: usize) {
        if self.edges[index].is_some() {
            return;
        }
        self.edge_runs[index] += 1;
        let incarnation = Incarnation(self.rng.random());
        let hub = Hub::new(HubSettings {
            edge: EdgeName::new(format!("edge{index}")).expect("a name"),
            incarnation,
            region: self.region.clone(),
            timings: self.timings,
            cores: (0..self.cores.len()).map(address_of).collect(),
            list_members: 5_000,
            seed: self.rng.random(),
        });
        self.edges[index] = Some(Edge {
            hub,
            run: self.edge_runs[index],
            started: self.now,
            wake: None,
            incarnation,
            link: None,
            watch: None,
            by_key: BTreeMap::new(),
        });
        self.note("edge starts", format!("edge{index}"));
        self.feed_edge(index, Input::Tick);
    }

    pub(super) fn crash_edge(&mut self, index: usize, down_for: Duration) {
        let Some(edge) = self.edges[index].take() else { return };
        self.note("edge dies", format!("edge{index} {}", edge.incarnation));
        if let Some(key) = edge.link {
            let delay = self.delay();
            self.after(delay, Event::LinkGoneAtCore(key, LinkEnd::Broken));
        }
        if let Some(key) = edge.watch {
            let delay = self.delay();
            self.after(delay, Event::WatchGoneAtCore(key));
        }
        let sockets: Vec<ConnectionId> = self.sockets_of(index, edge.run);
        for connection in sockets {
            self.transport_lost(connection);
            if let Some(socket) = self.sockets.get_mut(&connection) {
                socket.open_at_edge = false;
            }
            let delay = self.delay();
            self.after(delay, Event::Closed(connection, 1006));
        }
        self.after(down_for, Event::StartEdge(index));
    }

    pub(super) fn break_link(&mut self, index: usize) {
        let Some(edge) = self.edges[index].as_ref() else { return };
        let Some(key) = edge.link else { return };
        let (to_core, to_edge) = (self.delay(), self.delay());
        self.after(to_core, Event::LinkGoneAtCore(key, LinkEnd::Broken));
        self.after(to_edge, Event::LinkGoneAtEdge(key));
    }

    pub(super) fn wake_edge(&mut self, index: usize, run: u64) {
        let now = self.now;
        let due = self.edges[index].as_mut().filter(|edge| edge.run == run && edge.wake == Some(now));
        if let Some(edge) = due {
            edge.wake = None;
            self.feed_edge(index, Input::Tick);
        }
    }

    pub(super) fn feed_edge(&mut self, index: usize, input: Input) {
        let now = self.now;
        let Some(edge) = self.edges[index].as_mut() else { return };
        let mut effects = Vec::new();
        edge.hub.handle(input, Mono(now.since(edge.started)), &mut effects);
        let due = edge.hub.poll_timeout().map(|due| (edge.started + due.0).max(now));
        let run = edge.run;
        if due.is_some() && due != edge.wake {
            edge.wake = due;
            self.agenda.plan(due.unwrap_or(now), Event::WakeEdge(index, run));
        }
        for effect in effects {
            self.edge_effect(index, run, effect);
        }
    }

    fn edge_effect(&mut self, index: usize, run: u64, effect: Effect) {
        match effect {
            Effect::Accepted(connection, key) => {
                if let Some(edge) = self.edges[index].as_mut() {
                    edge.by_key.insert(key, connection);
                }
                if let Some(socket) = self.sockets.get_mut(&connection) {
                    socket.key = Some(key);
                }
            }
            Effect::Send(key, payloads) => self.send_frames(index, key, payloads),
            Effect::Ping(key) => self.send_ping(index, key),
            Effect::Close(key, code, why) => self.close_socket(index, key, code, why),
            Effect::OpenLink(core, hello) => self.open_link((index, run), &core, hello),
            Effect::Link(up) => {
                let Some(key) = self.edges[index].as_ref().and_then(|edge| edge.link) else { return };
                if let Some(mut stream) = self.links.remove(&key) {
                    self.through(&mut stream.up, Event::LinkUp(key, up));
                    self.links.insert(key, stream);
                }
            }
            Effect::DropLink => {
                let Some(key) = self.edges[index].as_mut().and_then(|edge| edge.link.take()) else { return };
                if let Some(mut stream) = self.links.remove(&key) {
                    stream.open_at_edge = false;
                    self.through(&mut stream.up, Event::LinkGoneAtCore(key, LinkEnd::Broken));
                    self.links.insert(key, stream);
                }
            }
            Effect::OpenWatch => self.open_watch(index, run),
            Effect::Watch(up) => {
                let Some(key) = self.edges[index].as_ref().and_then(|edge| edge.watch) else { return };
                if let Some(mut stream) = self.watches.remove(&key) {
                    self.through(&mut stream.up, Event::WatchUp(key, up));
                    self.watches.insert(key, stream);
                }
            }
            Effect::DropWatch => {
                let Some(key) = self.edges[index].as_mut().and_then(|edge| edge.watch.take()) else { return };
                if let Some(mut stream) = self.watches.remove(&key) {
                    stream.open_at_edge = false;
                    self.through(&mut stream.up, Event::WatchGoneAtCore(key));
                    self.watches.insert(key, stream);
                }
            }
            Effect::Go | Effect::Drained => {}
        }
    }

    fn stream(&self, (edge, edge_run): (usize, u64), core: usize) -> Stream {
        Stream {
            edge,
            edge_run,
            core,
            core_run: self.cores[core].as_ref().map_or(0, |core| core.run),
            up: Pipe::default(),
            down: Pipe::default(),
            open_at_edge: true,
            open_at_core: false,
        }
    }

    fn open_link(&mut self, (index, run): (usize, u64), core: &CoreAddress, hello: Hello) {
        let core = (0..self.cores.len()).find(|index| address_of(*index) == *core).unwrap_or_default();
        self.keys += 1;
        let key = LinkKey(self.keys);
        self.note("link opens", format!("edge{index} link {} as {}", hello.link, key.0));
        let mut stream = self.stream((index, run), core);
        self.through(&mut stream.up, Event::LinkOpening(key, hello));
        self.links.insert(key, stream);
        if let Some(edge) = self.edges[index].as_mut() {
            edge.link = Some(key);
        }
    }

    fn open_watch(&mut self, index: usize, run: u64) {
        self.keys += 1;
        let key = WatchKey(self.keys);
        // On the transport of the link.
        let link = self.edges[index].as_ref().and_then(|edge| self.links.get(&edge.link?));
        let core = link.map_or(0, |link| link.core);
        let mut stream = self.stream((index, run), core);
        self.through(&mut stream.up, Event::WatchOpening(key));
        self.watches.insert(key, stream);
        if let Some(edge) = self.edges[index].as_mut() {
            edge.watch = Some(key);
        }
    }

    fn edge_has_link(&self, key: LinkKey) -> Option<usize> {
        let stream = self.links.get(&key).filter(|stream| stream.open_at_edge)?;
        let edge = self.edges[stream.edge].as_ref()?;
        (edge.run == stream.edge_run && edge.link == Some(key)).then_some(stream.edge)
    }

    fn edge_has_watch(&self, key: WatchKey) -> Option<usize> {
        let stream = self.watches.get(&key).filter(|stream| stream.open_at_edge)?;
        let edge = self.edges[stream.edge].as_ref()?;
        (edge.run == stream.edge_run && edge.watch == Some(key)).then_some(stream.edge)
    }

    pub(super) fn link_opened(&mut self, key: LinkKey) {
        if let Some(edge) = self.edge_has_link(key) {
            self.feed_edge(edge, Input::LinkUp);
        }
    }

    pub(super) fn link_down(&mut self, key: LinkKey, down: LinkDown) {
        if let Some(edge) = self.edge_has_link(key) {
            self.feed_edge(edge, Input::Link(down));
        }
    }

    pub(super) fn link_gone_at_edge(&mut self, key: LinkKey) {
        if let Some(index) = self.edge_has_link(key) {
            if let Some(edge) = self.edges[index].as_mut() {
                edge.link = None;
            }
            self.feed_edge(index, Input::LinkLost);
        }
    }

    pub(super) fn link_refused(&mut self, index: usize, run: u64) {
        if let Some(edge) = self.edges[index].as_mut().filter(|edge| edge.run == run) {
            edge.link = None;
            self.feed_edge(index, Input::LinkLost);
        }
    }

    pub(super) fn watch_opened(&mut self, key: WatchKey) {
        if let Some(edge) = self.edge_has_watch(key) {
            self.feed_edge(edge, Input::WatchUp);
        }
    }

    pub(super) fn watch_down(&mut self, key: WatchKey, events: Vec<WatchDown>) {
        if let Some(edge) = self.edge_has_watch(key) {
            for event in events {
                self.feed_edge(edge, Input::Watch(event));
            }
        }
        let open = self.watches.get(&key).filter(|stream| stream.open_at_core).map(|stream| stream.core_run);
        if let Some(core) = open.and_then(|run| self.core_of(run)) {
            self.feed_core(core, CoreInput::WatchReady(key));
        }
    }

    pub(super) fn watch_gone_at_edge(&mut self, key: WatchKey) {
        if let Some(index) = self.edge_has_watch(key) {
            if let Some(edge) = self.edges[index].as_mut() {
                edge.watch = None;
            }
            self.feed_edge(index, Input::WatchLost);
        }
    }

    pub(super) fn watch_refused(&mut self, index: usize, run: u64) {
        if let Some(edge) = self.edges[index].as_mut().filter(|edge| edge.run == run) {
            edge.watch = None;
            self.feed_edge(index, Input::WatchLost);
        }
    }
}
