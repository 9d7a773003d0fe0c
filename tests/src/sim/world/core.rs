//! Core processes.

use std::time::Duration;

use presence_core::driver::{Driver, DriverSettings, Effect, Input, LinkEnd, LinkKey, WatchKey};
use presence_core::store::Command;
use presence_model::claim::{Claims, TokenRefusal};
use presence_model::link::{Hello, LinkUp, Token};
use presence_model::time::Mono;
use presence_model::watch::WatchUp;
use rand::{Rng as _, RngExt as _};

use super::{Event, World};
use crate::sim::faults::{Death, Over};
use crate::sim::mutant::Mutant;
use crate::sim::network::Node;
use crate::sim::nodes::{Core, Stream};

/// How long a core that was told to go still serves.
const DRAIN_NOTICE: Duration = Duration::from_millis(500);

impl World {
    pub(super) fn start_core(&mut self, place: usize) {
        if self.cores[place].process.is_some() {
            return;
        }
        self.core_runs += 1;
        let chance = &mut self.cores[place].chance;
        let driver = Driver::new(DriverSettings {
            region: self.names.region.clone(),
            edge_regions: Vec::new(),
            peers: Vec::new(),
            timings: self.timings,
            classes: presence_model::class::Classes::default(),
            name: format!("core{place}").into(),
            shards: self.store.shards(),
            holder: chance.next_u64(),
            seed: chance.next_u64(),
        });
        let (run, started) = (self.core_runs, self.now());
        let process = Core {
            driver,
            run,
            started,
            heard_at: None,
            wake: None,
            asleep: None,
            outbox: None,
            slept_at: started,
            draining: false,
        };
        self.cores[place].process = Some(process);
        self.note("core starts", &format!("core{place}"));
        self.feed_core(run, Input::Tick);
    }

    /// Which core runs under this number.
    pub(super) fn place_of(&self, run: u64) -> Option<usize> {
        self.cores.iter().position(|slot| slot.process.as_ref().is_some_and(|core| core.run == run))
    }

    pub(super) fn crash_core(&mut self, place: usize, span: Duration, death: Death) {
        let Some(core) = self.cores[place].process.take() else { return };
        self.note("core dies", &format!("core{place}"));
        self.store.forget_core(core.run);
        self.end_streams_of(core.run, death);
        self.wires.after(span, Event::StartCore(place));
    }

    fn end_streams_of(&mut self, run: u64, death: Death) {
        for (key, stream) in self.links.iter_mut().filter(|(_, stream)| stream.core_run == run) {
            if std::mem::take(&mut stream.open_at_core) && death == Death::Process {
                let way = (Node::Core(stream.core), stream.peer.node());
                self.wires.send(&mut stream.down, way, Event::LinkGoneAtEdge(*key));
            }
        }
        for (key, stream) in self.watches.iter_mut().filter(|(_, stream)| stream.core_run == run) {
            if std::mem::take(&mut stream.open_at_core) && death == Death::Process {
                let way = (Node::Core(stream.core), stream.peer.node());
                self.wires.send(&mut stream.down, way, Event::WatchGoneAtPeer(*key));
            }
        }
    }

    pub(super) fn drain_core(&mut self, place: usize, span: Duration) {
        let Some(core) = self.cores[place].process.as_mut().filter(|core| !core.draining) else { return };
        core.draining = true;
        let run = core.run;
        self.wires.after(DRAIN_NOTICE, Event::StopCore(run));
        self.wires.after(DRAIN_NOTICE + span, Event::StartCore(place));
        if self.cores[place].process.as_ref().is_some_and(|core| core.asleep.is_none()) {
            self.feed_core(run, Input::Drain);
        }
    }

    pub(super) fn stop_core(&mut self, run: u64) {
        let Some(place) = self.place_of(run) else { return };
        self.cores[place].process = None;
        self.note("core stops", &format!("core{place}"));
        self.store.forget_core(run);
        self.end_streams_of(run, Death::Process);
    }

    /// The core stands still; nobody is told. What it had decided is sent, or is sent when it goes on.
    pub(super) fn nap_core(&mut self, place: usize, span: Duration, holding: bool) {
        let Some(core) = self.cores[place].process.as_mut().filter(|core| core.asleep.is_none()) else {
            return;
        };
        core.asleep = Some(Vec::new());
        core.outbox = holding.then(Vec::new);
        core.slept_at = self.wires.now;
        let run = core.run;
        self.wires.after(span, Event::ResumeCore(run));
    }

    /// A core is to stand still over what it has just decided, and nothing of that is sent yet.
    fn fall_asleep_over(&mut self, place: usize, effects: &[Effect]) {
        let decided = |(over, _): &(Over, Duration)| effects.iter().any(|effect| is_decided(*over, effect));
        let Some(doze) = self.dozes.iter().position(decided) else { return };
        let (over, span) = self.dozes.remove(doze);
        self.note("core falls asleep", &format!("core{place} over a {over}"));
        self.nap_core(place, span, true);
    }

    pub(super) fn resume_core(&mut self, run: u64) {
        let Some(place) = self.place_of(run) else { return };
        let Some(core) = self.cores[place].process.as_mut() else { return };
        let (missed, mut held) = (core.asleep.take(), core.outbox.take());
        let slept = self.wires.now.since(core.slept_at);
        for event in held.iter_mut().flatten() {
            if let Event::StoreCommand(_, _, command) = event {
                self.spoil_held_back(slept, command);
            }
        }
        self.note("core goes on", &format!("core{place}"));
        for command in held.into_iter().flatten() {
            let delay = Duration::from_millis(self.cores[place].chance.random_range(0..3));
            self.wires.after(delay, command);
        }
        // Whether its clock or its sockets speak first is chance.
        if self.cores[place].chance.random_bool(0.5) {
            self.feed_core(run, Input::Tick);
        }
        for event in missed.into_iter().flatten() {
            self.happen(event);
        }
        self.feed_core(run, Input::Tick);
    }

    pub(super) fn wake_core(&mut self, run: u64) {
        let now = self.now();
        let Some(place) = self.place_of(run) else { return };
        let Some(core) = self.cores[place].process.as_mut() else { return };
        // What woke it late, after a nap, is still a reason to look.
        if core.wake.is_some_and(|wake| wake <= now) {
            core.wake = None;
            self.feed_core(run, Input::Tick);
        }
    }

    /// Gives a core something, and carries out what follows.
    pub(super) fn feed_core(&mut self, run: u64, input: Input) {
        let now = self.now();
        let Some(place) = self.place_of(run) else { return };
        let Some(core) = self.cores[place].process.as_mut() else { return };
        let mut effects = Vec::new();
        core.driver.handle(input, Mono(now.since(core.started)), &mut effects);
        let due = core.driver.poll_timeout().map(|due| (core.started + due.0).max(now));
        if let Some(due) = due.filter(|due| Some(*due) != core.wake) {
            core.wake = Some(due);
            self.wires.at(due, Event::WakeCore(run));
        }
        self.fall_asleep_over(place, &effects);
        for effect in effects {
            self.core_effect((place, run), effect);
        }
    }

    fn core_effect(&mut self, (place, run): (usize, u64), effect: Effect) {
        match effect {
            Effect::Store(op, command) => self.send_command((place, run), op, command),
            Effect::Link(key, mut down) => {
                self.spoil_link_down(&mut down);
                if let Some(stream) = self.links.get_mut(&key) {
                    let way = (Node::Core(place), stream.peer.node());
                    self.wires.send(&mut stream.down, way, Event::LinkDown(key, Box::new(down)));
                }
            }
            Effect::CloseLink(key, reason) => {
                self.note("core closes link", &format!("{} {reason}", key.0));
                if let Some(stream) = self.links.get_mut(&key) {
                    stream.open_at_core = false;
                    let way = (Node::Core(place), stream.peer.node());
                    self.wires.send(&mut stream.down, way, Event::LinkGoneAtEdge(key));
                }
            }
            Effect::Watch(key, mut events) => {
                let peer = self.watches.get(&key).map(|stream| stream.peer);
                peer.into_iter().for_each(|peer| self.spoil_watch(peer, &mut events));
                if let Some(stream) = self.watches.get_mut(&key) {
                    let way = (Node::Core(place), stream.peer.node());
                    self.wires.send(&mut stream.down, way, Event::WatchDown(key, events));
                }
            }
            Effect::CloseWatch(key, _) => {
                self.note("core closes watch", &key.0.to_string());
                if let Some(stream) = self.watches.get_mut(&key) {
                    stream.open_at_core = false;
                    let way = (Node::Core(place), stream.peer.node());
                    self.wires.send(&mut stream.down, way, Event::WatchGoneAtPeer(key));
                }
            }
            // Its cores watch no other region.
            Effect::Peer(..) => {}
            Effect::Answer(key, answer) => self.answered(key, answer),
            Effect::Audit(_) => self.story.count("audit"),
            Effect::TokenRefused(_, refusal) => self.story.count(refusal.as_str()),
            Effect::Namesake(edge) => self.note("namesake", edge.as_str()),
            Effect::Foreign { edge, verb, .. } => self.note("foreign", &format!("{edge} {}", verb.as_str())),
            Effect::Transition(line) => {
                let transition = &line.transition;
                let what = format!(
                    "{} in {}: {} g{} {:?} at {}",
                    line.user,
                    line.roster.room,
                    transition.session,
                    transition.generation,
                    transition.kind,
                    line.position.revision
                );
                self.note("transition", &what);
            }
        }
    }

    /// What a token says, as its verifier tells it.
    fn verified(&self, token: &Token) -> Result<Claims, TokenRefusal> {
        let number = token.0.strip_prefix('t').and_then(|number| number.parse::<usize>().ok());
        number.and_then(|number| self.tokens.get(number)).cloned().ok_or(TokenRefusal::Signature)
    }

    pub(super) fn link_opening(&mut self, key: LinkKey, hello: Hello) {
        let Some(stream) = self.links.get_mut(&key) else { return };
        if stream.asked_in_vain && !stream.open_at_peer {
            return;
        }
        let way = (Node::Core(stream.core), stream.peer.node());
        if !runs(&self.cores, stream) {
            return self.wires.send(&mut stream.down, way, Event::LinkGoneAtEdge(key));
        }
        stream.open_at_core = true;
        let run = stream.core_run;
        self.wires.send(&mut stream.down, way, Event::LinkOpened(key));
        self.feed_core(run, Input::LinkOpened(key, hello));
    }

    pub(super) fn link_up(&mut self, key: LinkKey, up: LinkUp) {
        let Some(stream) = self.links.get(&key).filter(|stream| stream.open_at_core) else { return };
        let run = stream.core_run;
        self.story.message(self.wires.now, "link", || {
            format!("{} to core{}: {up:?}", stream.peer.node(), stream.core)
        });
        let verified = match &up {
            LinkUp::Join(join) if self.is_mutant(Mutant::TokensOpenAnyRoom) => {
                let room = join.room.clone();
                Some(self.verified(&join.token).map(|claims| Claims { room, ..claims }))
            }
            LinkUp::Join(join) => Some(self.verified(&join.token)),
            LinkUp::Update { token, .. } => token.as_ref().map(|token| self.verified(token)),
            LinkUp::Renew { leases, .. } => {
                self.store.heard(run, leases, self.wires.now);
                None
            }
            LinkUp::Beat { .. } | LinkUp::Release { .. } | LinkUp::Leave { .. } | LinkUp::Bye { .. } => None,
        };
        self.feed_core(run, Input::Link(key, up, verified));
    }

    pub(super) fn link_gone_at_core(&mut self, key: LinkKey, end: LinkEnd) {
        let Some(stream) = self.links.get_mut(&key) else { return };
        let run = stream.core_run;
        if std::mem::take(&mut stream.open_at_core) {
            self.feed_core(run, Input::LinkClosed(key, end));
        }
    }

    pub(super) fn watch_opening(&mut self, key: WatchKey) {
        let Some(stream) = self.watches.get_mut(&key) else { return };
        if stream.asked_in_vain && !stream.open_at_peer {
            return;
        }
        let way = (Node::Core(stream.core), stream.peer.node());
        if !runs(&self.cores, stream) {
            return self.wires.send(&mut stream.down, way, Event::WatchGoneAtPeer(key));
        }
        stream.open_at_core = true;
        let run = stream.core_run;
        self.wires.send(&mut stream.down, way, Event::WatchOpened(key));
        self.feed_core(run, Input::WatchOpened(key));
    }

    fn core_behind(&self, key: WatchKey) -> Option<u64> {
        self.watches.get(&key).filter(|stream| stream.open_at_core).map(|stream| stream.core_run)
    }

    pub(super) fn watch_up(&mut self, key: WatchKey, up: WatchUp) {
        if let Some(run) = self.core_behind(key) {
            self.feed_core(run, Input::Watch(key, up));
        }
    }

    pub(super) fn watch_ready(&mut self, key: WatchKey) {
        if let Some(run) = self.core_behind(key) {
            self.feed_core(run, Input::WatchReady(key));
        }
    }

    pub(super) fn watch_gone_at_core(&mut self, key: WatchKey) {
        if let Some(run) = self.core_behind(key) {
            if let Some(stream) = self.watches.get_mut(&key) {
                stream.open_at_core = false;
            }
            self.feed_core(run, Input::WatchClosed(key));
        }
    }
}

fn is_decided(over: Over, effect: &Effect) -> bool {
    let Effect::Store(_, command) = effect else { return false };
    match over {
        Over::Renewals => matches!(command, Command::Renew { .. }),
        Over::Commit => matches!(command, Command::Commit(_)),
        Over::Loss => matches!(command, Command::Lose { .. }),
    }
}

/// Whether the process that a stream was opened to is still there.
fn runs(cores: &[crate::sim::nodes::CoreSlot], stream: &Stream) -> bool {
    cores[stream.core].process.as_ref().is_some_and(|core| core.run == stream.core_run)
}
