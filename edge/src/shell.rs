//! The thin async shell around the hub: one task that owns it, feeds it and carries its effects out.

mod seats;

use std::time::Duration;

use presence_model::time::Mono;
use presence_runtime::admin::Readiness;
use presence_runtime::clock::Clock;
use presence_runtime::shutdown::Shutdown;
use presence_runtime::telemetry::Seldom;
use presence_runtime::tokens::Verifier;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use self::seats::Seats;
use crate::connection::{Report, Reports, What};
use crate::hub::{Effect, Hub, HubCounts, Input};
use crate::limits::{DRAIN_TOLD_EVERY, TURN_MAX};
use crate::link::{self, Links};
use crate::metrics::EdgeMetrics;

/// Counts are shown at most this late.
const PUBLISH_EVERY: Duration = Duration::from_millis(200);

/// The hub's task.
pub(crate) struct HubTask {
    pub(crate) hub: Hub,
    pub(crate) reports: Reports,
    pub(crate) links: Links,
    pub(crate) events: mpsc::Receiver<link::Event>,
    pub(crate) clock: Clock,
    pub(crate) metrics: EdgeMetrics,
    /// Counts refused tokens.
    pub(crate) verifier: Verifier,
    pub(crate) readiness: Readiness,
    /// Begun when an operator wants this edge to go.
    pub(crate) shutdown: Shutdown,
    /// Told once the link is up for the first time.
    pub(crate) linked: watch::Sender<bool>,
}

/// The task while it runs.
struct Running {
    task: HubTask,
    seats: Seats,
    effects: Vec<Effect>,
    /// Inputs that follow from effects.
    own: Vec<Input>,
    published: Mono,
    /// When it was last said how far the drain is.
    told: Seldom<1>,
    drained: bool,
}

impl HubTask {
    /// Runs until the hub is drained, which begins when `drain` is cancelled. Whoever is still connected
    /// then is closed.
    pub(crate) async fn run(self, drain: CancellationToken) {
        let mut running = Running::new(self);
        running.handle(Input::Tick);
        let mut drain = Some(drain);
        while !running.drained {
            running.turn(&mut drain).await;
        }
        running.publish();
    }
}

impl Running {
    fn new(task: HubTask) -> Self {
        let published = task.clock.now();
        Self {
            task,
            seats: Seats::default(),
            effects: Vec::new(),
            own: Vec::new(),
            published,
            told: Seldom::new(DRAIN_TOLD_EVERY),
            drained: false,
        }
    }

    /// Waits for something, then handles what there is of each kind, in bounded portions.
    async fn turn(&mut self, drain: &mut Option<CancellationToken>) {
        let due = self.task.hub.poll_timeout();
        let drained = async {
            match drain.as_ref() {
                Some(drain) => drain.cancelled().await,
                None => std::future::pending().await,
            }
        };
        // Renewals, joins and endings by the core come before what clients say.
        tokio::select! {
            biased;
            () = drained => {
                *drain = None;
                self.handle(Input::Drain);
            }
            Some(event) = self.task.events.recv() => self.event(event),
            Some(report) = self.task.reports.next() => self.report(report),
            () = self.task.clock.sleep_until_some(due) => {}
        }
        for _ in 0..TURN_MAX {
            let Ok(event) = self.task.events.try_recv() else { break };
            self.event(event);
        }
        for _ in 0..TURN_MAX {
            let Some(report) = self.task.reports.try_next() else { break };
            self.report(report);
        }
        let now = self.task.clock.now();
        if self.task.hub.poll_timeout().is_some_and(|due| due <= now) {
            self.handle(Input::Tick);
        }
        if now.since(self.published) >= PUBLISH_EVERY {
            self.published = now;
            self.publish();
        }
    }

    fn event(&mut self, event: link::Event) {
        if let Some(input) = self.task.links.input(event) {
            self.handle(input);
        }
    }

    fn report(&mut self, report: Report) {
        let Report { from, what } = report;
        let input = match (what, from.key()) {
            (What::Accepted(encoding), _) => {
                let connection = from.connection();
                self.seats.arrive(from);
                Input::Accept(connection, encoding)
            }
            (_, None) => return,
            (What::Message(message, verified), Some(key)) => Input::Message(key, message, verified),
            (What::Unreadable(unreadable), Some(key)) => Input::Unreadable(key, unreadable),
            (What::Heard, Some(key)) => Input::Heard(key),
            (What::Written, Some(key)) => Input::Written(key),
            (What::Closed(end), Some(key)) => match self.seats.leave(key) {
                Some(_) => Input::Closed(key, end),
                // The hub has closed it, and does not wait to hear that it is gone.
                None => return,
            },
        };
        self.handle(input);
    }

    /// One input, all its effects, then what follows from them.
    fn handle(&mut self, input: Input) {
        let mut next = Some(input);
        while let Some(input) = next {
            let now = self.task.clock.now();
            let mut effects = std::mem::take(&mut self.effects);
            self.task.hub.handle(input, now, &mut effects);
            for effect in effects.drain(..) {
                self.carry_out(effect);
            }
            self.effects = effects;
            next = self.own.pop();
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        let links = &mut self.task.links;
        match effect {
            Effect::Accepted(connection, key) => self.seats.seat(connection, key),
            Effect::Send(key, frames) => self.seats.with(key, |mailbox| mailbox.send(frames)),
            Effect::Ping(key) => self.seats.with(key, |mailbox| mailbox.ping()),
            Effect::Close(key, code, reason) => {
                if let Some(mailbox) = self.seats.leave(key) {
                    mailbox.close(code, reason);
                }
            }
            Effect::OpenLink(core, hello) => links.open_link(core, hello),
            Effect::Link(up) => {
                if links.send_link(up).is_err() {
                    self.lost(Input::LinkLost);
                }
            }
            Effect::DropLink => links.drop_link(),
            Effect::OpenWatch => {
                if links.open_watch().is_err() {
                    self.lost(Input::WatchLost);
                }
            }
            Effect::Watch(up) => {
                if links.send_watch(up).is_err() {
                    self.lost(Input::WatchLost);
                }
            }
            Effect::DropWatch => links.drop_watch(),
            Effect::TokenRefused(key, refusal) => {
                let verifier = &self.task.verifier;
                self.seats.with(key, |mailbox| verifier.refused(refusal, mailbox.bearer()));
            }
            Effect::Go => {
                tracing::info!("an operator wants this edge to go");
                self.task.shutdown.begin();
            }
            Effect::Drained => self.drained = true,
        }
    }

    /// Tells a loss once, however many messages could not be sent.
    fn lost(&mut self, loss: Input) {
        let is_told =
            self.own.iter().any(|told| std::mem::discriminant(told) == std::mem::discriminant(&loss));
        if !is_told {
            self.own.push(loss);
        }
    }

    fn publish(&mut self) {
        let counts = self.task.hub.counts();
        if counts.link_up {
            self.task.readiness.ready();
            self.task.linked.send_if_modified(|linked| !std::mem::replace(linked, true));
        }
        self.task.metrics.publish(counts);
        self.tell_drain(&counts);
    }

    /// Operators wait for it, and look at the log meanwhile.
    fn tell_drain(&mut self, counts: &HubCounts) {
        if counts.draining && (self.told.is_due(0, self.task.clock.now()) || self.drained) {
            let HubCounts { connections, leases, restarted, .. } = *counts;
            tracing::info!(clients = connections, leases, closed = restarted, "draining");
        }
    }
}

#[cfg(test)]
mod tests;
