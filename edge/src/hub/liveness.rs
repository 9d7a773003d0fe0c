//! Who is alive: pings, silence, marks and the other timers of a connection, all by one wheel.

use std::time::Duration;

use presence_model::lease::LeaseId;
use presence_model::reason::{ReleaseReason, RemovalReason};
use presence_model::time::Mono;
use presence_model::timing::{SILENCE_HEARTBEATS, Timings};
use rand::RngExt as _;

use super::answers::why;
use super::link::SILENT_BEATS;
use super::table::{Conn, Session, Standing, Stay};
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
fn heard_within(heartbeat: Duration) -> Duration {
    heartbeat.mul_f64(1.2)
}

/// A connection is renewed and joined again only while it was heard in good time.
pub(super) fn is_there(conn: &Conn, now: Mono) -> bool {
    now.since(conn.heard) <= heard_within(conn.heartbeat)
}

/// After how long a session that has a lease is renewed again.
fn renew_after(session: &Session, usual: Duration) -> Duration {
    session.timings.map_or(usual, |timings| timings.heartbeat) * 2 / 3
}

impl Hub {
    /// When to ping next who is to be heard so often.
    pub(super) fn jittered(&mut self, heartbeat: Duration, now: Mono) -> Mono {
        now + heartbeat.mul_f64(self.chance.random_range(0.8..1.2))
    }

    /// When to ping a new connection: at any moment of a heartbeat, so that those who came together are not asked
    /// together from then on.
    pub(super) fn first_ping(&mut self, now: Mono) -> Mono {
        now + self.timings.heartbeat.mul_f64(self.chance.random_range(0.0..1.0))
    }

    /// Since when a new lease counts as renewed: those that were granted together are not due together.
    pub(super) fn first_renewed(&mut self, heartbeat: Duration, now: Mono) -> Mono {
        let early = (heartbeat * 2 / 3).mul_f64(self.chance.random_range(0.0..1.0));
        Mono(now.0.saturating_sub(early))
    }

    /// The sessions of a connection are others: it is to be heard as often as the quickest of them wants.
    pub(super) fn pace(&mut self, key: ConnKey, now: Mono) {
        let Some(conn) = self.conns.get(key) else { return };
        let (before, heartbeat) = (conn.heartbeat, conn.quickest().unwrap_or(self.timings.heartbeat));
        if heartbeat == before {
            return;
        }
        let next_ping = self.jittered(heartbeat, now);
        let conn = self.conns.get_mut(key).expect("it was there a moment ago");
        conn.heartbeat = heartbeat;
        if heartbeat < before {
            conn.paced = now;
            conn.next_ping = conn.next_ping.min(next_ping);
        }
    }

    /// A frame of whatever kind came.
    pub(super) fn heard(&mut self, key: ConnKey, cx: &mut Cx<'_>) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.heard = cx.now;
        let usual = self.timings.heartbeat;
        let mut lost = Vec::new();
        for stay in &mut conn.stays {
            let Some(session) = stay.session.as_deref_mut() else { continue };
            let renew_after = renew_after(session, usual);
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
        if self.conns.len() == 0 || late < self.timings.heartbeat_min / FROZEN_HEARTBEAT_PART {
            return;
        }
        self.counts.freezes += 1;
        self.thawed = Some(cx.now);
        for key in self.conns.keys() {
            let chance = self.chance.random_range(0.0..1.0);
            let Some(conn) = self.conns.get_mut(key) else { continue };
            if late >= conn.heartbeat / FROZEN_HEARTBEAT_PART {
                conn.next_ping = cx.now + (conn.heartbeat / 10).mul_f64(chance);
            }
            self.arm(key);
        }
    }

    /// When silence proves that a connection is gone.
    fn silent_at(&self, conn: &Conn) -> Mono {
        let silent = conn.heard.max(conn.paced) + conn.heartbeat * SILENCE_HEARTBEATS;
        // After a freeze answers may lie unread: time for the ping, and as long again.
        let thawed = self.thawed.filter(|thawed| conn.heard < *thawed);
        thawed.map_or(silent, |thawed| silent.max(thawed + conn.heartbeat / FROZEN_HEARTBEAT_PART))
    }

    /// When a connection has to be looked at.
    fn due_of(&self, conn: &Conn) -> Mono {
        let mut due = conn.next_ping.min(self.silent_at(conn));
        let leaving = conn.leaving.as_deref().map(|leaving| leaving.closes);
        for at in [conn.roomless, leaving].into_iter().flatten() {
            due = due.min(at);
        }
        for stay in &conn.stays {
            if let Some(session) = stay.session.as_deref()
                && let Standing::Joined { renewed, marked: true, .. } = session.standing
            {
                due = due.min(renewed + renew_after(session, self.timings.heartbeat));
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
        let ends = stay.rests_on.ends + slack;
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
            // A shorter heartbeat counts at once.
            self.pace(key, now);
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
        let Some(heartbeat) = self.conns.get(key).map(|conn| conn.heartbeat) else { return };
        let next = self.jittered(heartbeat, cx.now);
        if let Some(conn) = self.conns.get_mut(key) {
            conn.next_ping = next;
            cx.out.push(Effect::Ping(key));
        }
    }

    fn renew_marked(&mut self, key: ConnKey, cx: &Cx<'_>) {
        let usual = self.timings.heartbeat;
        let Some(conn) = self.conns.get_mut(key) else { return };
        for session in conn.stays.iter_mut().filter_map(|stay| stay.session.as_deref_mut()) {
            let renew_after = renew_after(session, usual);
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
            if store_time >= stay.rests_on.ends + slack {
                ended.push(stay.room);
            } else if stay.warn_at.take_if(|at| *at <= store_time).is_some() {
                expiring.push((stay.room, stay.rests_on.ends.since(store_time)));
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
                conn.is_some_and(|conn| is_there(conn, cx.now))
            };
            let Some((batch, leases)) = self.renewals.next(cx.now, there) else { break };
            self.counts.renewal_batches += 1;
            cx.out.push(Effect::Link(presence_model::link::LinkUp::Renew { batch, leases }));
        }
    }
}
