//! The task that owns the driver.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use presence_model::id::RegionId;
use presence_model::time::{Mono, millis};
use presence_runtime::clock::Clock;
use presence_runtime::telemetry::Rationed;
use presence_runtime::tokens::Verifier;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::store_log::StoreLog;
use super::{Attached, Command, Handle, LinkEvent, PeerLines, Told, WatchEvent};
use crate::driver::{
    Answer, AuditNote, Driver, Effect, Input, LinkEnd, LinkKey, PeerHeard, PeerWish, QueryKey, QueryRefusal,
    Shed, StoreOp, TransitionLine, WatchKey,
};
use crate::limits::{DRIVER_INPUTS_A_TURN, LINKS_SAID, SHED_TOLD_EVERY};
use crate::metrics::{CoreMetrics, PeerGauges, reason_of, verb};
use crate::store::{Command as StoreCommand, LeaseStore, Outcome, StoreFault};

type Answering = oneshot::Sender<Result<Answer, QueryRefusal>>;
type StoreReply = (StoreOp, Result<Outcome, StoreFault>);

/// Owns the driver and everything it gives out.
pub struct DriverTask {
    driver: Driver,
    store: Arc<dyn LeaseStore>,
    clock: Clock,
    metrics: Arc<CoreMetrics>,
    verifier: Verifier,
    store_log: Arc<StoreLog>,
    inbox: mpsc::Receiver<Command>,
    told: Told,
    /// How often something was revoked, when that was told.
    revoked: u64,
    links: BTreeMap<LinkKey, mpsc::Sender<LinkEvent>>,
    watches: BTreeMap<WatchKey, mpsc::Sender<WatchEvent>>,
    questions: BTreeMap<QueryKey, Answering>,
    under_way: FuturesUnordered<BoxFuture<'static, StoreReply>>,
    waiting: VecDeque<Input>,
    effects: Vec<Effect>,
    shed: Shedding,
    namesakes_said: Rationed<1>,
    peers: PeerLines,
    /// In the order of the driver's.
    peer_gauges: Vec<PeerGauges>,
}

/// What has been told of arrivals that were refused.
#[derive(Debug, Default)]
struct Shedding {
    counted: Shed,
    logged: Shed,
    /// When it was last logged.
    at: Option<Mono>,
}

impl DriverTask {
    /// A task that has not run yet, and the way to it.
    #[must_use]
    pub fn new(
        driver: Driver,
        store: Arc<dyn LeaseStore>,
        clock: Clock,
        (metrics, verifier): (Arc<CoreMetrics>, Verifier),
    ) -> (Self, Handle) {
        let (handle, inbox, told) = Handle::channel();
        let peer_gauges = driver.peers(clock.now()).map(|(region, _)| metrics.peers.gauges(region)).collect();
        let task = Self {
            driver,
            store,
            clock,
            metrics,
            verifier,
            store_log: Arc::default(),
            inbox,
            told,
            revoked: 0,
            links: BTreeMap::new(),
            watches: BTreeMap::new(),
            questions: BTreeMap::new(),
            under_way: FuturesUnordered::new(),
            waiting: VecDeque::new(),
            effects: Vec::new(),
            shed: Shedding::default(),
            namesakes_said: Rationed::new(LINKS_SAID),
            peers: PeerLines::default(),
            peer_gauges,
        };
        (task, handle)
    }

    /// The same, which watches these peers.
    #[must_use]
    pub fn with_peers(self, peers: PeerLines) -> Self {
        Self { peers, ..self }
    }

    /// Runs until stopped, or until nobody can reach it any more.
    pub async fn run(mut self, stop: CancellationToken) {
        self.feed(Input::Tick);
        self.tell_clock();
        loop {
            let wake = self.driver.poll_timeout();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some((op, reply)) = self.under_way.next() => self.feed(Input::Store(op, Box::new(reply))),
                command = self.inbox.recv() => {
                    let Some(command) = command else { return };
                    self.take(command);
                    // What has queued up meanwhile is taken in one go; time and store get their turn after.
                    for _ in 1..DRIVER_INPUTS_A_TURN {
                        let Ok(command) = self.inbox.try_recv() else { break };
                        self.take(command);
                    }
                }
                () = self.clock.sleep_until_some(wake) => {}
            }
            if self.driver.poll_timeout().is_some_and(|due| due <= self.clock.now()) {
                self.feed(Input::Tick);
            }
            self.tell_attached();
            self.tell_shed();
            self.tell_clock();
            self.tell_revoked();
            self.tell_peers();
        }
    }

    /// Counts arrivals that were refused, and says so once in a while.
    fn tell_shed(&mut self) {
        let shed = self.driver.shed();
        if shed == self.shed.counted {
            return;
        }
        let before = std::mem::replace(&mut self.shed.counted, shed).by_reason();
        for ((reason, now), (_, before)) in shed.by_reason().into_iter().zip(before) {
            self.metrics.shed(reason, now - before);
        }
        let now = self.clock.now();
        if self.shed.at.is_none_or(|at| now.since(at) >= SHED_TOLD_EVERY) {
            self.shed.at = Some(now);
            let logged = std::mem::replace(&mut self.shed.logged, shed);
            let (rate, waiting, slow) =
                (shed.rate - logged.rate, shed.waiting - logged.waiting, shed.slow - logged.slow);
            tracing::warn!(rate, waiting, slow, "new arrivals are told to come again");
        }
    }

    fn tell_clock(&self) {
        let now = self.clock.now();
        self.told.store_clock.tell(self.driver.store_time(now), now);
    }

    fn tell_revoked(&mut self) {
        let (times, revoked) = self.driver.revoked();
        if std::mem::replace(&mut self.revoked, times) != times {
            self.told.revoked.send_replace(Arc::new(revoked.clone()));
        }
    }

    fn tell_peers(&self) {
        for ((_, now), gauges) in self.driver.peers(self.clock.now()).zip(&self.peer_gauges) {
            gauges.tell(now);
        }
    }

    /// Hands a wish on to the task of a peer, and tells people what concerns them.
    fn wish(&mut self, region: RegionId, wish: PeerWish) {
        match &wish {
            PeerWish::Refused(room, refusal) => {
                self.metrics.peers.refused_room(&region, (room, refusal), self.clock.now());
            }
            PeerWish::Gone => {
                self.metrics.peers.lost(&region);
                tracing::error!(%region, "a region was not heard for longer than its hold: all of it is shown as gone");
            }
            PeerWish::Send(_) | PeerWish::Reconnect(_) => {
                if !self.peers.tell(&region, wish) {
                    self.waiting.push_back(Input::Peer(region, PeerHeard::Lost));
                }
            }
        }
    }

    fn tell_attached(&self) {
        let now = Attached { links: self.links.len(), watches: self.watches.len() };
        self.told.attached.send_if_modified(|told| std::mem::replace(told, now) != now);
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Input(input) => {
                match &input {
                    Input::LinkClosed(key, _) => drop(self.links.remove(key)),
                    Input::WatchClosed(key) => drop(self.watches.remove(key)),
                    Input::LinkOpened(..)
                    | Input::Link(..)
                    | Input::WatchOpened(_)
                    | Input::Watch(..)
                    | Input::WatchMalformed(..)
                    | Input::WatchReady(_)
                    | Input::Query(..)
                    | Input::Evict(..)
                    | Input::Revoke(..)
                    | Input::DrainEdge(..)
                    | Input::Limits(_)
                    | Input::Store(..)
                    | Input::Peer(..)
                    | Input::Drain
                    | Input::Tick => {}
                }
                self.feed(input);
            }
            Command::OpenLink(key, hello, events) => {
                self.links.insert(key, events);
                self.feed(Input::LinkOpened(key, *hello));
            }
            Command::OpenWatch(key, events) => {
                self.watches.insert(key, events);
                self.feed(Input::WatchOpened(key));
            }
            Command::Ask(key, input, answering) => {
                self.questions.insert(key, answering);
                self.feed(input);
            }
        }
    }

    /// One input, all its effects, and what follows from them at once.
    fn feed(&mut self, input: Input) {
        self.waiting.push_back(input);
        while let Some(input) = self.waiting.pop_front() {
            let mut effects = std::mem::take(&mut self.effects);
            self.driver.handle(input, self.clock.now(), &mut effects);
            for effect in effects.drain(..) {
                self.carry_out(effect);
            }
            self.effects = effects;
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Store(op, command) => {
                let started = self.clock.now();
                let verb = verb(&command);
                let turned =
                    if let StoreCommand::Turn { shard, .. } = &command { Some(*shard) } else { None };
                let renewed =
                    if let StoreCommand::Renew { leases, .. } = &command { leases.len() } else { 0 };
                let (clock, metrics) = (self.clock.clone(), Arc::clone(&self.metrics));
                let store_log = Arc::clone(&self.store_log);
                let reply = self.store.execute(command);
                let mut reply = async move {
                    let reply = reply.await;
                    let now = clock.now();
                    metrics.store_answered(verb, now.since(started), reply.as_ref().err());
                    metrics.store_did(renewed, &reply);
                    store_log.note(verb, reply.as_ref().err(), now);
                    store_log.note_turn(turned, &reply, now);
                    (op, reply)
                }
                .boxed();
                // An embedded store answers at once; only a remote one is waited for.
                match (&mut reply).now_or_never() {
                    Some((op, reply)) => self.waiting.push_back(Input::Store(op, Box::new(reply))),
                    None => self.under_way.push(reply),
                }
            }
            Effect::Link(key, down) => self.tell_link(key, LinkEvent::Down(down)),
            Effect::CloseLink(key, reason) => {
                self.tell_link(key, LinkEvent::Close(reason));
                self.links.remove(&key);
            }
            Effect::Watch(key, events) => self.tell_watch(key, WatchEvent::Down(events)),
            Effect::CloseWatch(key, end) => {
                self.tell_watch(key, WatchEvent::End(end));
                self.watches.remove(&key);
            }
            Effect::Peer(region, wish) => self.wish(region, wish),
            Effect::Answer(key, answer) => {
                // Nobody waits any more: the caller hung up.
                let _ = self.questions.remove(&key).map(|answering| answering.send(answer));
            }
            Effect::Transition(line) => self.log(&line),
            Effect::Audit(note) => self.note_audit(note),
            Effect::TokenRefused(edge, refusal) => {
                self.verifier.refused(refusal, &format_args!("edge {edge}"));
            }
            Effect::Foreign { edge, verb, leases } => {
                self.metrics.access.foreign(&edge, verb.as_str(), leases, self.clock.now());
            }
            Effect::Namesake(edge) => {
                if let Some(unsaid) = self.namesakes_said.due(0, self.clock.now()) {
                    tracing::warn!(
                        %edge,
                        unsaid,
                        "another edge is linked under this name: logs cannot tell them apart, and a drain sends both \
                         away; give each its own with --edge"
                    );
                }
            }
        }
    }

    fn tell_link(&mut self, key: LinkKey, event: LinkEvent) {
        let Some(link) = self.links.get(&key) else { return };
        match link.try_send(event) {
            Ok(()) | Err(TrySendError::Closed(_)) => {}
            // An edge that does not read is given up: it links again and renews everything.
            Err(TrySendError::Full(_)) => {
                tracing::warn!(link = key.0, "an edge does not read its link: ending it");
                self.links.remove(&key);
                self.waiting.push_back(Input::LinkClosed(key, LinkEnd::Ours));
            }
        }
    }

    fn tell_watch(&mut self, key: WatchKey, event: WatchEvent) {
        let Some(watch) = self.watches.get(&key) else { return };
        if watch.try_send(event).is_err() {
            self.watches.remove(&key);
            self.waiting.push_back(Input::WatchClosed(key));
        }
    }

    fn note_audit(&self, note: AuditNote) {
        self.metrics.audit(&note);
        match note {
            AuditNote::Page { .. } => {}
            AuditNote::Found { shard, finding, count, first } => {
                tracing::warn!(%shard, finding = finding.as_str(), count, %first, "an audit found what no verb leaves");
            }
            AuditNote::Mended { shard, finding, count } => {
                tracing::info!(%shard, finding = finding.as_str(), count, "it still stood, and is mended");
            }
        }
    }

    fn log(&self, line: &TransitionLine) {
        let transition = &line.transition;
        self.metrics.transition(&transition.kind, line.overdue);
        tracing::info!(
            target: "presence::transition",
            roster = %line.roster,
            user = %line.user,
            session = %transition.session,
            generation = %transition.generation,
            connection = %transition.connection,
            edge = %transition.edge,
            lease = %transition.lease,
            position = %line.position,
            at_ms = line.at.0,
            kind = transition.kind.as_str(),
            reason = reason_of(&transition.kind),
            silent_ms = transition.kind.ending().map(|ending| millis(ending.silent_for)),
            overdue_ms = line.overdue.map(millis),
        );
    }
}
