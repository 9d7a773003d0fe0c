//! The core process and the store behind it.

use std::time::Duration;

use presence_core::driver::{Driver, DriverSettings, Effect, Input, LinkEnd, LinkKey, StoreOp, WatchKey};
use presence_core::store::{Command, Outcome, StoreFault};
use presence_model::link::{Hello, LinkDown, LinkUp};
use presence_model::time::Mono;
use presence_model::watch::WatchUp;
use rand::RngExt as _;

use super::{Event, World};
use crate::sim::nodes::{Core, Stream};

impl World {
    pub(super) fn start_core(&mut self, index: usize) {
        if self.cores[index].is_some() {
            return;
        }
        self.core_runs += 1;
        let driver = Driver::new(DriverSettings {
            region: self.region.clone(),
            edge_regions: vec![self.region.clone()],
            timings: self.timings,
            classes: presence_model::class::Classes::default(),
            name: "core".into(),
            shards: self.store.shards(),
            holder: self.rng.random(),
            seed: self.rng.random(),
        });
        let (run, started) = (self.core_runs, self.now);
        self.cores[index] = Some(Core { driver, run, started, wake: None, paused: None });
        self.note("core starts", String::new());
        self.feed_core(index, Input::Tick);
    }

    pub(super) fn crash_core(&mut self, index: usize, down_for: Duration) {
        let Some(core) = self.cores[index].take() else { return };
        self.excuse_views(down_for);
        self.tails.retain(|tail| tail.0 != core.run);
        let of_core = |stream: &Stream| stream.core_run == core.run;
        let links: Vec<LinkKey> =
            self.links.iter().filter(|(_, link)| of_core(link)).map(|(key, _)| *key).collect();
        for key in links {
            let delay = self.delay();
            self.after(delay, Event::LinkGoneAtEdge(key));
        }
        let watches: Vec<WatchKey> =
            self.watches.iter().filter(|(_, watch)| of_core(watch)).map(|(key, _)| *key).collect();
        for key in watches {
            let delay = self.delay();
            self.after(delay, Event::WatchGoneAtEdge(key));
        }
        self.after(down_for, Event::StartCore(index));
    }

    /// The core stands still; nobody is told.
    pub(super) fn pause_core(&mut self, index: usize, span: Duration) {
        let Some(core) = self.cores[index].as_mut().filter(|core| core.paused.is_none()) else { return };
        core.paused = Some(Vec::new());
        let run = core.run;
        self.excuse_views(span);
        self.after(span, Event::ResumeCore(run));
    }

    pub(super) fn resume_core(&mut self, run: u64) {
        let Some(index) = self.core_of(run) else { return };
        let missed = self.cores[index].as_mut().and_then(|core| core.paused.take());
        for input in missed.into_iter().flatten().chain([Input::Tick]) {
            self.feed_core(index, input);
        }
    }

    /// Without any core nothing can be seen, and the silence of the store's keeper proves nothing for a ttl
    /// after it is back. Where another core runs, edges move to it, and it takes the sweep over.
    fn excuse_views(&mut self, span: Duration) {
        let runs = |core: &Option<Core>| core.as_ref().is_some_and(|core| core.paused.is_none());
        let rest = Duration::from_secs(10);
        let whole = span + self.timings.lease_ttl * 2 + rest;
        let excused = if self.cores.iter().any(runs) { rest } else { whole };
        self.checker.excuse(self.now + excused);
    }

    pub(super) fn wake_core(&mut self, run: u64) {
        let now = self.now;
        let Some(index) = self.core_of(run) else { return };
        if let Some(core) = self.cores[index].as_mut().filter(|core| core.wake == Some(now)) {
            core.wake = None;
            self.feed_core(index, Input::Tick);
        }
    }

    /// Which core runs under this number.
    pub(super) fn core_of(&self, run: u64) -> Option<usize> {
        self.cores.iter().position(|core| core.as_ref().is_some_and(|core| core.run == run))
    }

    pub(super) fn feed_core(&mut self, index: usize, input: Input) {
        let now = self.now;
        let Some(core) = self.cores[index].as_mut() else { return };
        if let Some(missed) = &mut core.paused {
            return missed.push(input);
        }
        let mut effects = Vec::new();
        core.driver.handle(input, Mono(now.since(core.started)), &mut effects);
        let due = core.driver.poll_timeout().map(|due| (core.started + due.0).max(now));
        let run = core.run;
        if due.is_some() && due != core.wake {
            core.wake = due;
            let due = due.unwrap_or(now);
            self.agenda.plan(due, Event::WakeCore(run));
        }
        for effect in effects {
            self.core_effect(run, effect);
        }
    }

    fn core_effect(&mut self, run: u64, effect: Effect) {
        match effect {
            Effect::Store(op, command) => {
                let delay = Duration::from_millis(self.rng.random_range(0..3));
                self.after(delay, Event::StoreCommand(run, op, command));
            }
            Effect::Link(key, down) => self.send_link_down(key, down),
            Effect::CloseLink(key, reason) => {
                self.note("core closes link", format!("{} {reason}", key.0));
                if let Some(mut stream) = self.links.remove(&key) {
                    stream.open_at_core = false;
                    self.through(&mut stream.down, Event::LinkGoneAtEdge(key));
                    self.links.insert(key, stream);
                }
            }
            Effect::Watch(key, events) => {
                if let Some(mut stream) = self.watches.remove(&key) {
                    self.through(&mut stream.down, Event::WatchDown(key, events));
                    self.watches.insert(key, stream);
                }
            }
            Effect::CloseWatch(key, _) => {
                self.note("core closes watch", key.0.to_string());
                if let Some(mut stream) = self.watches.remove(&key) {
                    stream.open_at_core = false;
                    self.through(&mut stream.down, Event::WatchGoneAtEdge(key));
                    self.watches.insert(key, stream);
                }
            }
            Effect::Answer(..) | Effect::Audit(_) | Effect::Namesake(_) => {}
            Effect::Transition(line) => {
                let transition = &line.transition;
                let what = format!(
                    "{} {} g{} {:?} at {}",
                    line.user, transition.session, transition.generation, transition.kind, line.position
                );
                self.checker.on_transition(line.user.as_str(), &transition.kind, self.now);
                self.note("transition", what);
            }
        }
    }

    fn send_link_down(&mut self, key: LinkKey, down: LinkDown) {
        if let Some(mut stream) = self.links.remove(&key) {
            self.through(&mut stream.down, Event::LinkDown(key, down));
            self.links.insert(key, stream);
        }
    }

    pub(super) fn store_command(&mut self, run: u64, op: StoreOp, command: Command) {
        if let Command::Tail { after, wait } = &command
            && !self.store.tail_speaks(after)
        {
            let wait = *wait;
            self.tails.push((run, op, command));
            self.after(wait, Event::TailOver(run, op));
            return;
        }
        let loses = self.plan.lost_reply_of > 0
            && !self.quiet
            && !matches!(command, Command::Tail { .. })
            && self.rng.random_ratio(1, self.plan.lost_reply_of);
        let outcome = self.store.apply(command, self.store_time());
        if loses {
            self.note("reply lost", String::new());
            let reply = Box::new(Err(StoreFault::Unknown));
            self.after(Duration::from_millis(80), Event::StoreReply(run, op, reply));
        } else {
            self.reply(run, op, outcome);
        }
        self.wake_tails();
    }

    fn reply(&mut self, run: u64, op: StoreOp, outcome: Result<Outcome, StoreFault>) {
        let delay = Duration::from_millis(self.rng.random_range(0..3));
        self.after(delay, Event::StoreReply(run, op, Box::new(outcome)));
    }

    fn wake_tails(&mut self) {
        for (run, op, command) in std::mem::take(&mut self.tails) {
            let speaks = matches!(&command, Command::Tail { after, .. } if self.store.tail_speaks(after));
            if speaks {
                let outcome = self.store.apply(command, self.store_time());
                self.reply(run, op, outcome);
            } else {
                self.tails.push((run, op, command));
            }
        }
    }

    pub(super) fn tail_over(&mut self, run: u64, op: StoreOp) {
        let Some(at) = self.tails.iter().position(|tail| (tail.0, tail.1) == (run, op)) else { return };
        let (run, op, command) = self.tails.remove(at);
        let outcome = self.store.apply(command, self.store_time());
        self.reply(run, op, outcome);
    }

    pub(super) fn store_reply(&mut self, run: u64, op: StoreOp, reply: Box<Result<Outcome, StoreFault>>) {
        if let Some(core) = self.core_of(run) {
            self.feed_core(core, Input::Store(op, reply));
        }
    }

    pub(super) fn link_opening(&mut self, key: LinkKey, hello: Hello) {
        let Some(mut stream) = self.links.remove(&key) else { return };
        let Some(core) = self.core_of(stream.core_run) else {
            self.after(Duration::from_millis(1), Event::LinkRefused(stream.edge, stream.edge_run));
            return;
        };
        stream.open_at_core = true;
        self.through(&mut stream.down, Event::LinkOpened(key));
        self.links.insert(key, stream);
        self.feed_core(core, Input::LinkOpened(key, hello));
    }

    pub(super) fn link_up(&mut self, key: LinkKey, up: LinkUp) {
        let Some(stream) = self.links.get(&key).filter(|stream| stream.open_at_core) else { return };
        let Some(core) = self.core_of(stream.core_run) else { return };
        let verified = match &up {
            LinkUp::Join(join) => Some(Ok(self.claims_of(join.connection))),
            LinkUp::Beat { .. }
            | LinkUp::Renew { .. }
            | LinkUp::Release { .. }
            | LinkUp::Update { .. }
            | LinkUp::Leave { .. }
            | LinkUp::Bye { .. } => None,
        };
        self.feed_core(core, Input::Link(key, up, verified));
    }

    pub(super) fn link_gone_at_core(&mut self, key: LinkKey, end: LinkEnd) {
        let Some(stream) = self.links.get_mut(&key) else { return };
        let (was_open, run) = (std::mem::take(&mut stream.open_at_core), stream.core_run);
        if let Some(core) = self.core_of(run).filter(|_| was_open) {
            self.feed_core(core, Input::LinkClosed(key, end));
        }
    }

    pub(super) fn watch_opening(&mut self, key: WatchKey) {
        let Some(mut stream) = self.watches.remove(&key) else { return };
        let Some(core) = self.core_of(stream.core_run) else {
            self.after(Duration::from_millis(1), Event::WatchRefused(stream.edge, stream.edge_run));
            return;
        };
        stream.open_at_core = true;
        self.through(&mut stream.down, Event::WatchOpened(key));
        self.watches.insert(key, stream);
        self.feed_core(core, Input::WatchOpened(key));
    }

    pub(super) fn watch_up(&mut self, key: WatchKey, up: WatchUp) {
        let Some(stream) = self.watches.get(&key).filter(|stream| stream.open_at_core) else { return };
        if let Some(core) = self.core_of(stream.core_run) {
            self.feed_core(core, Input::Watch(key, up));
        }
    }

    pub(super) fn watch_gone_at_core(&mut self, key: WatchKey) {
        let Some(stream) = self.watches.get_mut(&key) else { return };
        let (was_open, run) = (std::mem::take(&mut stream.open_at_core), stream.core_run);
        if let Some(core) = self.core_of(run).filter(|_| was_open) {
            self.feed_core(core, Input::WatchClosed(key));
        }
    }
}
