//! Who is alive: pings, silence, marks and the other timers of a connection, all by one wheel.

use std::time::Duration;

use presence_model::lease::LeaseId;
use presence_model::reason::{ReleaseReason, RemovalReason};
use presence_model::time::Mono;
use presence_model::timing::Timings;
use rand::RngExt as _;

use super::answers::why;
use super::link::SILENT_BEATS;
use super::table::{Conn, Standing, Stay};
use super::{ConnEnd, ConnKey, Cx, Effect, Hub};
use crate::limits::TOKEN_END_SLACK;
use crate::protocol::{CloseCode, ServerMessage};

/// Timers are late by at most this part of a heartbeat.
const TICK_HEARTBEAT_PART: u32 = 150;
/// A timer that is late by this part of a heartbeat was not late: this process did not run.
const FROZEN_HEARTBEAT_PART: u32 = 2;
/// For people who read close frames.
const NO_ROOM: &str = "no room was joined or watched in time";

/// Resolution of the timers of connections.
pub(super) fn tick_of(timings: &Timings) -> Duration {
    (timings.heartbeat / TICK_HEARTBEAT_PART).clamp(Duration::from_millis(5), Duration::from_millis(100))
}

/// Whoever was heard within this counts as there: the latest a ping comes after the last answer.
fn heard_within(timings: &Timings) -> Duration {
    timings.heartbeat.mul_f64(1.2)
}

fn is_there(conn: &Conn, timings: &Timings, now: Mono) -> bool {
    now.since(conn.heard) <= heard_within(timings)
}

impl Hub {
    /// A connection is renewed and joined again only while it was heard in good time.
    pub(super) fn counts_as_there(&self, conn: &Conn, now: Mono) -> bool {
        is_there(conn, &self.timings, now)
    }

    pub(super) fn jittered_ping(&mut self, now: Mono) -> Mono {
        now + self.timings.heartbeat.mul_f64(self.chance.random_range(0.8..1.2))
    }

    /// A frame of whatever kind came.
    pub(super) fn heard(&mut self, key: ConnKey, cx: &mut Cx<'_>) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.heard = cx.now;
        let renew_after = self.timings.heartbeat * 2 / 3;
        let mut lost = Vec::new();
        for stay in &mut conn.stays {
            let Some(session) = stay.session.as_deref_mut() else { continue };
            match &mut session.standing {
                Standing::Joined { lease, renewed, marked, .. } => {
                    if cx.now.since(*renewed) >= renew_after {
                        (*renewed, *marked) = (cx.now, false);
                        self.renewals.mark(*lease, cx.now);
                    } else {
                        *marked = true;
                    }
                }
                Standing::Lost { request: None, .. } => lost.push(stay.room),
                Standing::Lost { request: Some(_), .. } | Standing::Joining { .. } => {}
            }
        }
        for room in lost {
            self.join_again(key, room, cx);
        }
        self.arm(key);
    }

    /// This process stood still: who was not heard since proves nothing by silence, and nothing by having
    /// been there before. All are asked.
    pub(super) fn notice_freeze(&mut self, cx: &mut Cx<'_>) {
        let late = self.poll_timeout().map_or(Duration::ZERO, |due| cx.now.since(due));
        if late >= self.timings.link_beat {
            self.link.excuse(cx.now);
            self.renewals.excuse(cx.now + self.timings.link_beat * SILENT_BEATS);
        }
        if self.conns.len() == 0 || late < self.timings.heartbeat / FROZEN_HEARTBEAT_PART {
            return;
        }
        self.counts.freezes += 1;
        self.thawed = Some(cx.now);
        let spread = self.timings.heartbeat / 10;
        for key in self.conns.keys() {
            let at = cx.now + spread.mul_f64(self.chance.random_range(0.0..1.0));
            if let Some(conn) = self.conns.get_mut(key) {
                conn.next_ping = at;
            }
            self.arm(key);
        }
    }

    /// When silence proves that a connection is gone.
    fn silent_at(&self, conn: &Conn) -> Mono {
        let silent = conn.heard + self.timings.silence_max();
        // After a freeze answers may lie unread: time for the ping, and as long again.
        let thawed = self.thawed.filter(|thawed| conn.heard < *thawed);
        thawed.map_or(silent, |thawed| silent.max(thawed + self.timings.heartbeat / FROZEN_HEARTBEAT_PART))
    }

    /// When a connection has to be looked at.
    fn due_of(&self, conn: &Conn) -> Mono {
        let mut due = conn.next_ping.min(self.silent_at(conn));
        let leaving = conn.leaving.as_deref().map(|leaving| leaving.closes);
        for at in [conn.roomless, leaving].into_iter().flatten() {
            due = due.min(at);
        }
        for stay in &conn.stays {
            if let Some(Standing::Joined { renewed, marked: true, .. }) =
                stay.session.as_deref().map(|session| session.standing)
            {
                due = due.min(renewed + self.timings.heartbeat * 2 / 3);
            }
            if let Some(at) = self.token_due(stay) {
                due = due.min(at);
            }
        }
        due
    }

    /// When the token of a stay is to be looked at.
    fn token_due(&self, stay: &Stay) -> Option<Mono> {
        let slack = if stay.session.is_some() { TOKEN_END_SLACK } else { Duration::ZERO };
        let ends = stay.token_ends + slack;
        self.link.when(stay.warn_at.map_or(ends, |warn_at| warn_at.min(ends)))
    }

    /// Sets the timer of a connection, if it has to be looked at before the one that is set.
    pub(super) fn arm(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get(key) else { return };
        let due = self.due_of(conn);
        if due < conn.timer {
            self.wheel.set(due, key);
            self.conns.get_mut(key).expect("it was there a moment ago").timer = due;
        }
    }

    pub(super) fn rearm_all(&mut self, now: Mono) {
        for key in self.conns.keys() {
            if let Some(conn) = self.conns.get_mut(key) {
                // A shorter heartbeat counts at once.
                conn.next_ping = conn.next_ping.min(now + heard_within(&self.timings));
            }
            self.arm(key);
        }
    }

    pub(super) fn tick_connections(&mut self, cx: &mut Cx<'_>) {
        for key in self.wheel.advance(cx.now) {
            let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.timer <= cx.now) else { continue };
            conn.timer = Mono(Duration::MAX);
            self.look_at(key, cx);
            self.arm(key);
        }
    }

    fn look_at(&mut self, key: ConnKey, cx: &mut Cx<'_>) {
        let Some(conn) = self.conns.get(key) else { return };
        let silent = self.silent_at(conn) <= cx.now;
        let (roomless, code) = (conn.roomless, conn.roomless_code);
        let leaves = conn.leaving.as_deref().is_some_and(|leaving| leaving.closes <= cx.now);
        let ping = conn.next_ping <= cx.now;
        if silent {
            self.counts.silent += 1;
            return self.close(key, CloseCode::Silent, ReleaseReason::TransportLost, cx);
        }
        if leaves {
            self.counts.restarted += 1;
            return self.close(key, CloseCode::Restart, ReleaseReason::Drain, cx);
        }
        if roomless.is_some_and(|at| at <= cx.now) {
            // Not silent, perhaps: it may have said anything but where it wants to be.
            let why = if code == CloseCode::Silent { NO_ROOM } else { why(code) };
            return self.close_because(key, (code, why), ReleaseReason::TransportLost, cx);
        }
        if ping {
            self.ping(key, cx);
        }
        self.renew_marked(key, cx);
        self.look_at_tokens(key, cx);
    }

    pub(super) fn ping(&mut self, key: ConnKey, cx: &mut Cx<'_>) {
        let next = self.jittered_ping(cx.now);
        if let Some(conn) = self.conns.get_mut(key) {
            conn.next_ping = next;
            cx.out.push(Effect::Ping(key));
        }
    }

    fn renew_marked(&mut self, key: ConnKey, cx: &Cx<'_>) {
        let renew_after = self.timings.heartbeat * 2 / 3;
        let Some(conn) = self.conns.get_mut(key) else { return };
        for session in conn.stays.iter_mut().filter_map(|stay| stay.session.as_deref_mut()) {
            if let Standing::Joined { lease, renewed, marked, .. } = &mut session.standing
                && *marked
                && cx.now.since(*renewed) >= renew_after
            {
                (*renewed, *marked) = (cx.now, false);
                self.renewals.mark(*lease, cx.now);
            }
        }
    }

    fn look_at_tokens(&mut self, key: ConnKey, cx: &mut Cx<'_>) {
        let Some(store_time) = self.link.store_time(cx.now) else { return };
        let Some(conn) = self.conns.get_mut(key) else { return };
        let (mut ended, mut expiring) = (Vec::new(), Vec::new());
        for stay in &mut conn.stays {
            let slack = if stay.session.is_some() { TOKEN_END_SLACK } else { Duration::ZERO };
            if store_time >= stay.token_ends + slack {
                ended.push(stay.room);
            } else if stay.warn_at.take_if(|at| *at <= store_time).is_some() {
                expiring.push((stay.room, stay.token_ends.since(store_time)));
            }
        }
        for (room, within) in expiring {
            if let Some(room) = self.name_in(key, room) {
                self.notify(key, &ServerMessage::TokenExpiring { room, within }, cx);
            }
        }
        for room in ended {
            self.end_stay(key, room, RemovalReason::TokenExpired, cx);
        }
    }

    /// The transport is gone.
    pub(super) fn closed(&mut self, key: ConnKey, end: ConnEnd, cx: &mut Cx<'_>) {
        let reason = match end {
            ConnEnd::Lost => ReleaseReason::TransportLost,
            ConnEnd::TooSlow => {
                self.counts.slow += 1;
                ReleaseReason::Shed
            }
        };
        self.give_up(key, reason, cx);
    }

    pub(super) fn tick_renewals(&mut self, cx: &mut Cx<'_>) {
        if !self.link.is_up() {
            return;
        }
        loop {
            let there = |lease: LeaseId| {
                let conn = self.leases.get(&lease).and_then(|(key, _)| self.conns.get(*key));
                conn.is_some_and(|conn| is_there(conn, &self.timings, cx.now))
            };
            let Some((batch, leases)) = self.renewals.next(cx.now, there) else { break };
            self.counts.renewal_batches += 1;
            cx.out.push(Effect::Link(presence_model::link::LinkUp::Renew { batch, leases }));
        }
    }
}
