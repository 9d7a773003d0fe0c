//! Edge processes and their streams to cores.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_core::driver::{LinkEnd, LinkKey, WatchKey};
use presence_edge::hub::{CoreAddress, Effect, Hub, HubSettings, Input};
use presence_edge::protocol::CloseCode;
use presence_model::id::{ConnectionId, EdgeName, Incarnation};
use presence_model::link::{Hello, LinkDown, LinkUp};
use presence_model::time::Mono;
use presence_model::watch::WatchDown;
use rand::{Rng as _, RngExt as _};

use super::{AtTab, Event, World};
use crate::sim::agenda::Pipe;
use crate::sim::chance::Chance;
use crate::sim::faults::Death;
use crate::sim::network::Node;
use crate::sim::nodes::{Edge, EdgeSlot, Peer, Stream};

/// What a tab is told when its edge is gone.
pub(super) const RESET: u16 = 1006;

fn address_of(core: usize) -> CoreAddress {
    CoreAddress { url: format!("http://core-{core}:1").into(), address: None }
}

impl EdgeSlot {
    pub(super) fn new(chance: Chance) -> Self {
        Self {
            chance,
            process: None,
            runs: 0,
            before: None,
            same: false,
            back_after: Duration::ZERO,
            unable_at: Mono::default(),
            unlinked: None,
            echo_until: Mono::default(),
            echo: Vec::new(),
        }
    }
}

impl World {
    pub(super) fn start_edge(&mut self, place: usize) {
        let now = self.now();
        let slot = &mut self.edges[place];
        if slot.process.is_some() {
            return;
        }
        slot.runs += 1;
        // What the run before said is heard over its own links only: its numbers are others.
        slot.echo.clear();
        let minted = Incarnation(slot.chance.random());
        let incarnation = slot.before.filter(|_| std::mem::take(&mut slot.same)).unwrap_or(minted);
        slot.before = Some(incarnation);
        let hub = Hub::new(HubSettings {
            edge: EdgeName::new(format!("edge{place}")).expect("a name"),
            incarnation,
            region: self.names.region.clone(),
            timings: self.timings,
            cores: (0..self.cores.len()).map(address_of).collect(),
            list_members: 5_000,
            seed: slot.chance.next_u64(),
        });
        let run = slot.runs;
        slot.unlinked = Some(now);
        slot.process = Some(Edge {
            hub,
            run,
            started: now,
            wake: None,
            incarnation,
            link: None,
            watch: None,
            by_key: BTreeMap::new(),
            asleep: None,
            draining: false,
            silent: 0,
            finds_silent: false,
        });
        self.note("edge starts", &format!("edge{place} as {incarnation}"));
        self.feed_edge((place, run), Input::Tick);
    }

    pub(super) fn crash_edge(&mut self, place: usize, span: Duration, death: Death) {
        let Some(edge) = self.edges[place].process.take() else { return };
        self.note("edge dies", &format!("edge{place} {}", edge.incarnation));
        self.end_edge((place, edge), death);
        self.wires.after(span, Event::StartEdge(place));
    }

    /// What its machine does for a process that is gone, if the machine is still there.
    fn end_edge(&mut self, (place, edge): (usize, Edge), death: Death) {
        let told = death == Death::Process;
        if let Some((key, stream)) = edge.link.and_then(|key| Some((key, self.links.get_mut(&key)?))) {
            stream.open_at_peer = false;
            let way = (Node::Edge(place), Node::Core(stream.core));
            if told {
                self.wires.send(&mut stream.up, way, Event::LinkGoneAtCore(key, LinkEnd::Broken));
            }
        }
        if let Some((key, stream)) = edge.watch.and_then(|key| Some((key, self.watches.get_mut(&key)?))) {
            stream.open_at_peer = false;
            let way = (Node::Edge(place), Node::Core(stream.core));
            if told {
                self.wires.send(&mut stream.up, way, Event::WatchGoneAtCore(key));
            }
        }
        for (connection, socket) in &mut self.sockets {
            if (socket.edge, socket.edge_run) == (place, edge.run)
                && std::mem::take(&mut socket.open_at_edge)
                && told
            {
                let way = (Node::Edge(place), Node::Tab(socket.tab));
                self.wires.send(&mut socket.down, way, Event::AtTab(*connection, AtTab::Closed(RESET)));
            }
        }
    }

    pub(super) fn drain_edge(&mut self, place: usize, span: Duration) {
        let Some(edge) = self.edges[place].process.as_mut().filter(|edge| !edge.draining) else { return };
        edge.draining = true;
        let run = edge.run;
        (self.edges[place].same, self.edges[place].back_after) = (false, span);
        if self.edges[place].process.as_ref().is_some_and(|edge| edge.asleep.is_none()) {
            self.feed_edge((place, run), Input::Drain);
            self.spoil_drain(place);
        }
    }

    pub(super) fn stop_edge(&mut self, place: usize, run: u64) {
        if self.edges[place].process.as_ref().is_none_or(|edge| edge.run != run) {
            return;
        }
        let Some(edge) = self.edges[place].process.take() else { return };
        self.note("edge stops", &format!("edge{place}"));
        self.end_edge((place, edge), Death::Process);
        let after = self.edges[place].back_after;
        self.wires.after(after, Event::StartEdge(place));
    }

    pub(super) fn nap_edge(&mut self, place: usize, span: Duration) {
        let Some(edge) = self.edges[place].process.as_mut().filter(|edge| edge.asleep.is_none()) else {
            return;
        };
        edge.asleep = Some(Vec::new());
        let run = edge.run;
        self.wires.after(span, Event::ResumeEdge(place, run));
    }

    pub(super) fn resume_edge(&mut self, place: usize, run: u64) {
        let Some(edge) = self.edges[place].process.as_mut().filter(|edge| edge.run == run) else { return };
        let missed = edge.asleep.take();
        let drains = edge.draining;
        self.note("edge goes on", &format!("edge{place}"));
        if self.edges[place].chance.random_bool(0.5) {
            self.feed_edge((place, run), Input::Tick);
        }
        for event in missed.into_iter().flatten() {
            self.happen(event);
        }
        if drains {
            self.feed_edge((place, run), Input::Drain);
        }
        self.feed_edge((place, run), Input::Tick);
    }

    pub(super) fn wake_edge(&mut self, place: usize, run: u64) {
        let now = self.now();
        let due = self.edges[place].process.as_mut().filter(|edge| edge.run == run);
        if let Some(edge) = due.filter(|edge| edge.wake.is_some_and(|wake| wake <= now)) {
            edge.wake = None;
            self.feed_edge((place, run), Input::Tick);
        }
    }

    /// Gives an edge something, and carries out what follows.
    pub(super) fn feed_edge(&mut self, (place, run): (usize, u64), input: Input) {
        let now = self.now();
        let Some(edge) = self.edges[place].process.as_mut().filter(|edge| edge.run == run) else { return };
        let mut effects = Vec::new();
        edge.hub.handle(input, Mono(now.since(edge.started)), &mut effects);
        let due = edge.hub.poll_timeout().map(|due| (edge.started + due.0).max(now));
        if let Some(due) = due.filter(|due| Some(*due) != edge.wake) {
            edge.wake = Some(due);
            self.wires.at(due, Event::WakeEdge(place, run));
        }
        let closes = |effect: &Effect| matches!(effect, Effect::Close(_, CloseCode::Silent, _));
        if effects.iter().any(closes) {
            let silent = edge.hub.counts().silent;
            (edge.finds_silent, edge.silent) = (silent > edge.silent, silent);
        }
        for effect in effects {
            self.edge_effect((place, run), effect);
        }
    }

    fn edge_effect(&mut self, (place, run): (usize, u64), effect: Effect) {
        match effect {
            Effect::Accepted(connection, key) => self.accepted((place, run), connection, key),
            Effect::Send(key, payloads) => self.send_frames(place, key, payloads),
            Effect::Ping(key) => self.send_ping(place, key),
            Effect::Close(key, code, why) => self.close_socket((place, key), code, why),
            Effect::OpenLink(core, hello) => self.open_link((place, run), &core, hello),
            Effect::Link(up) => {
                for up in self.spoil_link_up(up) {
                    self.send_link_up(place, up);
                }
            }
            Effect::DropLink => {
                let link = self.edges[place].process.as_mut().and_then(|edge| edge.link.take());
                if let Some((key, stream)) = link.and_then(|key| Some((key, self.links.get_mut(&key)?))) {
                    stream.open_at_peer = false;
                    let way = (Node::Edge(place), Node::Core(stream.core));
                    self.wires.send(&mut stream.up, way, Event::LinkGoneAtCore(key, LinkEnd::Broken));
                }
            }
            Effect::OpenWatch => self.open_watch_of(place, run),
            Effect::Watch(up) => {
                let watch = self.edges[place].process.as_ref().and_then(|edge| edge.watch);
                if let Some((key, stream)) = watch.and_then(|key| Some((key, self.watches.get_mut(&key)?))) {
                    let way = (Node::Edge(place), Node::Core(stream.core));
                    self.wires.send(&mut stream.up, way, Event::WatchUp(key, up));
                }
            }
            Effect::DropWatch => {
                let watch = self.edges[place].process.as_mut().and_then(|edge| edge.watch.take());
                if let Some((key, stream)) = watch.and_then(|key| Some((key, self.watches.get_mut(&key)?))) {
                    stream.open_at_peer = false;
                    let way = (Node::Edge(place), Node::Core(stream.core));
                    self.wires.send(&mut stream.up, way, Event::WatchGoneAtCore(key));
                }
            }
            Effect::TokenRefused(_, refusal) => self.story.count(refusal.as_str()),
            Effect::Go => {}
            Effect::Drained => self.wires.after(Duration::from_millis(20), Event::StopEdge(place, run)),
        }
    }

    pub(super) fn send_link_up(&mut self, place: usize, up: LinkUp) {
        let now = self.now();
        let slot = &mut self.edges[place];
        if slot.echo_until > now && repeats(&up) {
            slot.echo.push(up.clone());
        }
        let link = slot.process.as_ref().and_then(|edge| edge.link);
        if let Some((key, stream)) = link.and_then(|key| Some((key, self.links.get_mut(&key)?))) {
            let way = (Node::Edge(place), Node::Core(stream.core));
            self.wires.send(&mut stream.up, way, Event::LinkUp(key, Box::new(up)));
        }
    }

    /// What was said in a while is heard again, over the link there is now.
    pub(super) fn echo_over(&mut self, place: usize) {
        let echo = std::mem::take(&mut self.edges[place].echo);
        let link = self.edges[place].process.as_ref().and_then(|edge| edge.link);
        let Some((key, stream)) = link.and_then(|key| Some((key, self.links.get_mut(&key)?))) else { return };
        self.story.note(self.wires.now, "echo", &format!("edge{place} {} messages", echo.len()));
        for up in echo {
            let way = (Node::Edge(place), Node::Core(stream.core));
            self.wires.send(&mut stream.up, way, Event::LinkUp(key, Box::new(up)));
        }
    }

    pub(super) fn stream_to(&self, peer: Peer, core: usize) -> Stream {
        let cut = |from, to| self.wires.net.is_cut(from, to, self.wires.now);
        Stream {
            peer,
            core,
            core_run: self.cores[core].process.as_ref().map_or(0, |core| core.run),
            up: Pipe::default(),
            down: Pipe::default(),
            open_at_peer: true,
            open_at_core: false,
            asked_in_vain: cut(peer.node(), Node::Core(core)) || cut(Node::Core(core), peer.node()),
        }
    }

    fn open_link(&mut self, (place, run): (usize, u64), core: &CoreAddress, hello: Hello) {
        let core = (0..self.cores.len()).find(|index| address_of(*index) == *core).unwrap_or_default();
        self.keys += 1;
        let key = LinkKey(self.keys);
        self.note("link opens", &format!("edge{place} link {} to core{core} as {}", hello.link, key.0));
        let mut stream = self.stream_to(Peer::Edge(place, run), core);
        let way = (Node::Edge(place), Node::Core(core));
        self.wires.send(&mut stream.up, way, Event::LinkOpening(key, Box::new(hello)));
        self.links.insert(key, stream);
        if let Some(edge) = self.edges[place].process.as_mut() {
            edge.link = Some(key);
        }
    }

    fn open_watch_of(&mut self, place: usize, run: u64) {
        // On the transport of the link.
        let link = self.edges[place].process.as_ref().and_then(|edge| self.links.get(&edge.link?));
        let core = link.map_or(0, |link| link.core);
        let key = self.open_watch(Peer::Edge(place, run), core);
        if let Some(edge) = self.edges[place].process.as_mut() {
            edge.watch = Some(key);
        }
    }

    pub(super) fn open_watch(&mut self, peer: Peer, core: usize) -> WatchKey {
        self.keys += 1;
        let key = WatchKey(self.keys);
        let mut stream = self.stream_to(peer, core);
        self.wires.send(&mut stream.up, (peer.node(), Node::Core(core)), Event::WatchOpening(key));
        self.watches.insert(key, stream);
        key
    }

    /// The edge whose link this is, if it still is.
    fn edge_with_link(&self, key: LinkKey) -> Option<(usize, u64)> {
        let stream = self.links.get(&key).filter(|stream| stream.open_at_peer)?;
        let Peer::Edge(place, run) = stream.peer else { return None };
        let edge = self.edges[place].process.as_ref()?;
        (edge.run == run && edge.link == Some(key)).then_some((place, run))
    }

    fn edge_with_watch(&self, key: WatchKey) -> Option<(usize, u64)> {
        let stream = self.watches.get(&key).filter(|stream| stream.open_at_peer)?;
        let Peer::Edge(place, run) = stream.peer else { return None };
        let edge = self.edges[place].process.as_ref()?;
        (edge.run == run && edge.watch == Some(key)).then_some((place, run))
    }

    pub(super) fn link_opened(&mut self, key: LinkKey) {
        if let Some(edge) = self.edge_with_link(key) {
            self.feed_edge(edge, Input::LinkUp);
        }
    }

    pub(super) fn link_down(&mut self, key: LinkKey, down: LinkDown) {
        if let Some(edge) = self.edge_with_link(key) {
            self.story.message(self.wires.now, "link", || format!("to edge{}: {down:?}", edge.0));
            self.feed_edge(edge, Input::Link(down));
        }
    }

    pub(super) fn link_gone_at_edge(&mut self, key: LinkKey) {
        let Some((place, run)) = self.edge_with_link(key) else { return };
        if let Some(stream) = self.links.get_mut(&key) {
            stream.open_at_peer = false;
        }
        if let Some(edge) = self.edges[place].process.as_mut() {
            edge.link = None;
        }
        self.feed_edge((place, run), Input::LinkLost);
    }

    pub(super) fn watch_opened(&mut self, key: WatchKey) {
        match self.edge_with_watch(key) {
            Some(edge) => self.feed_edge(edge, Input::WatchUp),
            None => self.desk_opened(key),
        }
    }

    pub(super) fn watch_down(&mut self, key: WatchKey, events: Vec<WatchDown>) {
        let Some(stream) = self.watches.get_mut(&key) else { return };
        let way = (stream.peer.node(), Node::Core(stream.core));
        if stream.open_at_peer && stream.open_at_core {
            self.wires.send(&mut stream.up, way, Event::WatchReady(key));
        }
        match self.edge_with_watch(key) {
            Some(edge) => {
                for event in events {
                    self.story.message(self.wires.now, "watch", || format!("edge{}: {event:?}", edge.0));
                    self.feed_edge(edge, Input::Watch(event));
                }
            }
            None => self.desk_told(key, events),
        }
    }

    pub(super) fn watch_gone_at_peer(&mut self, key: WatchKey) {
        let Some((place, run)) = self.edge_with_watch(key) else { return self.desk_lost(key) };
        if let Some(stream) = self.watches.get_mut(&key) {
            stream.open_at_peer = false;
        }
        if let Some(edge) = self.edges[place].process.as_mut() {
            edge.watch = None;
        }
        self.feed_edge((place, run), Input::WatchLost);
    }

    pub(super) fn connection_of(
        &self,
        place: usize,
        key: presence_edge::hub::ConnKey,
    ) -> Option<ConnectionId> {
        self.edges[place].process.as_ref()?.by_key.get(&key).copied()
    }
}

/// Whether a message may come twice: edges say some again, on the same link or the next, where they heard no
/// answer.
fn repeats(up: &LinkUp) -> bool {
    match up {
        LinkUp::Renew { .. } | LinkUp::Release { .. } | LinkUp::Leave { .. } => true,
        // An edge counts how often it says a join, and says it again by itself.
        LinkUp::Join(_) | LinkUp::Beat { .. } | LinkUp::Update { .. } | LinkUp::Bye { .. } => false,
    }
}
