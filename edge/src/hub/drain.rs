//! Going: every client is told when to come back elsewhere, and the core is told last.
//!
//! Each is told its own moment, spread over the window. Its socket stays open for a while beyond that, so
//! that it can be in elsewhere before it lets go here; who is not gone by then is closed.

use std::time::Duration;

use presence_model::link::LinkUp;
use presence_model::time::Mono;
use rand::RngExt as _;

use super::{ConnKey, Cx, Effect, Hub};
use crate::limits::{DRAIN_OVERLAP_PART, DRAIN_TAIL};
use crate::protocol::ServerMessage;

/// A drain under way.
pub(super) struct Draining {
    /// Over at the latest then.
    until: Mono,
    done: bool,
}

/// When a connection goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaving {
    /// Its client was told to come back elsewhere then.
    pub(super) back: Mono,
    /// It is closed then.
    pub(super) closes: Mono,
}

impl Draining {
    pub(super) fn due(&self) -> Option<Mono> {
        (!self.done).then_some(self.until)
    }
}

impl Hub {
    pub(super) fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    pub(super) fn is_drained(&self) -> bool {
        self.drain.as_ref().is_some_and(|drain| drain.done)
    }

    pub(super) fn start_drain(&mut self, cx: &mut Cx<'_>) {
        if self.drain.is_some() {
            return;
        }
        let window = self.timings.drain_window;
        let overlap = window / DRAIN_OVERLAP_PART;
        self.drain = Some(Draining { until: cx.now + window + DRAIN_TAIL, done: false });
        let keys = self.conns.keys();
        let count = keys.len().max(1) as f64;
        for (place, key) in keys.into_iter().enumerate() {
            let part = (place as f64 + self.chance.random_range(0.0..1.0)) / count;
            self.send_away(key, ((window - overlap).mul_f64(part), overlap), cx);
        }
    }

    /// Whoever comes while this edge goes is sent on at once: there is nothing to hand over.
    pub(super) fn drain_newcomer(&mut self, key: ConnKey, cx: &mut Cx<'_>) {
        if self.drain.is_some() {
            self.send_away(key, (Duration::ZERO, Duration::ZERO), cx);
        }
    }

    fn send_away(&mut self, key: ConnKey, (after, overlap): (Duration, Duration), cx: &mut Cx<'_>) {
        self.notify(key, &ServerMessage::Reconnect { after, reason: "drain" }, cx);
        if let Some(conn) = self.conns.get_mut(key) {
            let back = cx.now + after;
            conn.leaving = Some(Box::new(Leaving { back, closes: back + overlap }));
        }
        self.arm(key);
    }

    /// Ends the drain once nobody is left and all is answered, or its time is over.
    pub(super) fn tend_drain(&mut self, cx: &mut Cx<'_>) {
        let Some(drain) = self.drain.as_mut().filter(|drain| !drain.done) else { return };
        let said = self.requests.is_empty() && self.releasing.is_empty() && self.unanswered.is_empty();
        if (self.conns.len() > 0 || !said) && cx.now < drain.until {
            return;
        }
        drain.done = true;
        if self.link.is_up() {
            cx.out.push(Effect::Link(LinkUp::Bye { moving: false }));
        }
        cx.out.push(Effect::Drained);
    }
}
