//! Who is brought by somebody: the truth of the tabs themselves, whatever edges say and the store hears.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_model::id::ConnectionId;
use presence_model::time::Mono;

use super::World;
use crate::sim::guarantee::Guarantee;
use crate::sim::ledger::Who;
use crate::sim::network::Node;
use crate::sim::place::Wish;

/// An edge asks who is silent for a heartbeat, waits for another, and looks once in a while.
const SILENT_HEARTBEATS: u32 = 3;
/// What was brought longer ago matters no more.
const REMEMBERED: Duration = Duration::from_secs(120);

/// How somebody who was brought over a connection is brought by it no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parting {
    /// It has said goodbye.
    Goodbye,
    /// It has closed its socket.
    HungUp,
    /// Nothing is heard of it.
    Silence,
}

/// Somebody brought over a connection.
#[derive(Debug, Clone)]
struct Stay {
    who: Who,
    edge: usize,
    /// When it was so last.
    at: Mono,
    parting: Parting,
}

/// Who is brought, and until when whoever is not any more may be shown.
#[derive(Debug, Default)]
pub(super) struct Brought {
    stays: BTreeMap<(ConnectionId, usize), Stay>,
    until: BTreeMap<Who, Mono>,
}

impl World {
    /// Notes who is brought now, and by when all others have to be gone.
    pub(super) fn look_who_is_brought(&mut self) {
        let now = self.now();
        for tab in 0..self.tabs.len() {
            self.note_brought(tab);
        }
        let mut stays = std::mem::take(&mut self.brought.stays);
        stays.retain(|_, stay| now.since(stay.at) <= REMEMBERED);
        self.brought.until.clear();
        for stay in stays.values() {
            let until = stay.at + self.lingers(stay);
            let latest = self.brought.until.entry(stay.who).or_default();
            *latest = until.max(*latest);
        }
        self.brought.stays = stays;
    }

    /// Notes by whom a tab stands now.
    pub(super) fn note_brought(&mut self, tab: usize) {
        let now = self.now();
        let this = &self.tabs[tab];
        for place in this.places.iter().filter(|place| !place.only_watches) {
            let who = (place.room, this.user);
            let current = this.connection.filter(|_| place.wish == Wish::In);
            if let Some((connection, edge)) =
                current.and_then(|connection| Some((connection, self.heard_by(connection)?)))
            {
                let stay = Stay { who, edge, at: now, parting: Parting::Silence };
                self.brought.stays.insert((connection, place.room), stay);
            }
        }
    }

    /// The edge that hears what is sent over a connection, if the tab sends anything.
    fn heard_by(&self, connection: ConnectionId) -> Option<usize> {
        let socket = self.sockets.get(&connection)?;
        let (from, to) = (Node::Tab(socket.tab), Node::Edge(socket.edge));
        let speaks = self.tabs_asleep[socket.tab].is_none() && !self.wires.net.is_cut(from, to, self.now());
        (speaks && self.stands(connection)).then_some(socket.edge)
    }

    /// A tab parts with its connection, or with a room on it.
    pub(super) fn part(&mut self, connection: ConnectionId, room: Option<usize>) {
        let now = self.now();
        let parting = if room.is_some() { Parting::Goodbye } else { Parting::HungUp };
        // Otherwise it says so to nobody.
        if self.heard_by(connection).is_none() {
            return;
        }
        let of_it = self.brought.stays.range_mut((connection, 0)..=(connection, usize::MAX));
        for (_, stay) in of_it.filter(|((_, of), _)| room.is_none_or(|room| room == *of)) {
            (stay.at, stay.parting) = (now, parting);
        }
    }

    /// For how long whoever was brought so may still be there: for all that its edge and the store have to wait for, and,
    /// where they could not work, until the lease has run out.
    fn lingers(&self, stay: &Stay) -> Duration {
        let silence = self.timings.heartbeat * SILENT_HEARTBEATS;
        if self.edges[stay.edge].unable_at >= stay.at {
            return silence + self.timings.lease_ttl;
        }
        match stay.parting {
            Parting::Goodbye => Duration::ZERO,
            Parting::HungUp => self.timings.grace,
            Parting::Silence => silence + self.timings.grace,
        }
    }

    /// Who is shown is brought by somebody (G3).
    pub(super) fn judge_brought(&mut self, observer: &dyn std::fmt::Display, who: Who, bound: Duration) {
        let now = self.now();
        let (room, user) = who;
        let until = self.brought.until.get(&who).copied().unwrap_or_default();
        let since = until.max(self.eye.may_linger(room, self.timings.lease_ttl));
        if now.since(since) > bound + self.eye.excused(since) {
            let what = format!(
                "u{user} is shown to {observer} in r{room} and was to be gone {} ms ago: no tab stands for it",
                now.since(since).as_millis()
            );
            self.breach(Guarantee::G3, what);
        }
    }
}
