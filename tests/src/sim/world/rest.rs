//! When nothing happens any more: everybody sees the same, and what is there; nothing is left over.

use presence_core::store::{Command, Outcome};
use presence_edge::hub::HubCounts;

use super::World;
use crate::sim::guarantee::Guarantee;
use crate::sim::place::{Place, Wish};

/// Connections of one tab that an edge may still have, one after the other given up in silence.
const SOCKETS_OF_TAB_MAX: usize = 8;
/// Rooms of a tab.
const PLACES_OF_TAB_MAX: u64 = 2;

impl World {
    pub(super) fn at_rest(&mut self) {
        self.note("at rest", "");
        for room in 0..self.names.rooms.len() {
            self.room_at_rest(room);
        }
        for tab in 0..self.tabs.len() {
            self.tab_at_rest(tab);
        }
        self.sizes_at_rest();
        self.answers_at_rest();
    }

    /// All views of a room are equal: those of tabs by what they show, those of services by their digests.
    fn room_at_rest(&mut self, room: usize) {
        let mut first: Option<(usize, String)> = None;
        let views: Vec<(usize, String)> = self
            .tabs
            .iter()
            .flat_map(|tab| tab.places.iter().map(|place| (tab.number, place)))
            .filter(|(tab, place)| {
                place.room == room && place.wish == Wish::In && !self.is_kept_out(*tab, place)
            })
            .map(|(tab, place)| {
                let rows =
                    place.list.iter().enumerate().filter_map(|(user, row)| Some((user, row.as_ref()?)));
                let said: Vec<String> = rows
                    .map(|(user, row)| {
                        let status = row.status.map_or("none", |status| status.as_str());
                        format!("u{user} {status} {} since {}", row.said, row.since)
                    })
                    .collect();
                (tab, format!("{} (live: {})", said.join(", "), place.is_live()))
            })
            .collect();
        self.looked_at(Guarantee::G9);
        for (tab, view) in views {
            match &first {
                None => first = Some((tab, view)),
                Some((other, as_other)) if *as_other != view => {
                    let what = format!("in r{room} tab{other} shows {as_other}, but tab{tab} shows {view}");
                    return self.breach(Guarantee::G9, what);
                }
                Some(_) => {}
            }
        }
        for number in 0..self.desks.len() {
            let copy = &self.desks[number].copies[room];
            let newest = copy.position.and_then(|position| self.eye.newest(room, position));
            if !copy.is_live()
                || newest.is_some_and(|newest| {
                    Some(newest) > copy.position && self.eye.recorded(room, newest) != Some(copy.digest())
                })
            {
                let what =
                    format!("desk{number} is at {:?} in r{room}, which is at {newest:?}", copy.position);
                return self.breach(Guarantee::G9, what);
            }
        }
    }

    /// Whether a tab may be out of a room: put out by an operator, or since its token has just ended.
    fn is_kept_out(&self, tab: usize, place: &Place) -> bool {
        let is_late = place.late_until > self.now();
        is_late || self.eye.may_be_kept_out(&self.names.users[self.tabs[tab].user], self.store_time())
    }

    /// Who wants in is in, and shown to itself.
    fn tab_at_rest(&mut self, tab: usize) {
        for place in 0..self.tabs[tab].places.len() {
            let this = &self.tabs[tab].places[place];
            if self.is_kept_out(tab, this) {
                continue;
            }
            let user = self.tabs[tab].user;
            let shown = this.only_watches || this.list[user].is_some();
            if this.wish == Wish::In && (!this.is_live() || !shown || !(this.joined || this.only_watches)) {
                let (live, joined, room) = (this.is_live(), this.joined, this.room);
                let what =
                    format!("tab{tab} wants into r{room}: live {live}, joined {joined}, shown {shown}");
                return self.breach(Guarantee::G9, what);
            }
            self.said_at_rest((tab, place), user);
        }
    }

    /// Whoever is in by one tab only is shown as that tab said last.
    fn said_at_rest(&mut self, (tab, place): (usize, usize), user: usize) {
        let this = &self.tabs[tab].places[place];
        let of_user = self.tabs.iter().filter(|tab| tab.user == user).flat_map(|tab| &tab.places);
        let sessions = of_user.filter(|other| other.room == this.room && other.joined && !other.only_watches);
        if this.wish != Wish::In || this.only_watches || sessions.count() != 1 {
            return;
        }
        let Some(row) = this.list[user].as_ref() else { return };
        // Edges say again what was said within a ttl: a replica may have missed more.
        if self.ledger.failed_over.is_some_and(|at| at > this.told.2 + self.timings.lease_ttl) {
            return;
        }
        if (row.status, row.said) != (Some(this.status), this.said) {
            let (room, status, said) = (this.room, this.status, this.said);
            let what = format!(
                "u{user} is {:?} with {} in r{room}, and tab{tab} said {status:?} with {said}",
                row.status, row.said
            );
            self.breach(Guarantee::G9, what);
        }
    }

    /// What an edge has is bounded by who is connected to it (G11).
    pub(super) fn look_at_sizes(&mut self) {
        let most = (self.tabs.len() * SOCKETS_OF_TAB_MAX) as u64;
        for place in 0..self.edges.len() {
            self.looked_at(Guarantee::G11);
            let Some(edge) = self.edges[place].process.as_ref() else { continue };
            let HubCounts { connections, rooms, leases, .. } = edge.hub.counts();
            let rooms_most = self.names.rooms.len() as u64;
            if connections > most || rooms > rooms_most || leases > connections * PLACES_OF_TAB_MAX {
                let what =
                    format!("edge{place} has {connections} connections, {rooms} rooms, {leases} leases");
                return self.breach(Guarantee::G11, what);
            }
        }
    }

    /// Nobody is left over: as many connections as tabs, as many leases as sessions (G11).
    fn sizes_at_rest(&mut self) {
        let counts = self.edges.iter().filter_map(|slot| slot.process.as_ref()).map(|edge| edge.hub.counts());
        let (connections, leases) =
            counts.fold((0, 0), |(c, l), counts| (c + counts.connections, l + counts.leases));
        let places = self.tabs.iter().flat_map(|tab| &tab.places);
        let sessions = places.filter(|place| place.joined && !place.only_watches).count() as u64;
        let (trying, standing): (Vec<_>, Vec<_>) = self
            .tabs
            .iter()
            .filter(|tab| tab.connection.is_some())
            .partition(|tab| tab.places.iter().any(|place| self.is_kept_out(tab.number, place)));
        // Who is kept out tries again and again, and may have a connection just now.
        let tabs = standing.len() as u64..=(standing.len() + trying.len()) as u64;
        if !tabs.contains(&connections) || leases != sessions {
            let what = format!(
                "edges have {connections} connections of {tabs:?} tabs, and {leases} leases of {sessions} sessions"
            );
            return self.breach(Guarantee::G11, what);
        }
        let stored = self.sessions_stored();
        if stored != sessions {
            self.breach(Guarantee::G11, format!("the store has {stored} sessions, and tabs have {sessions}"));
        }
    }

    fn sessions_stored(&mut self) -> u64 {
        let now = self.now();
        let mut stored = 0;
        for room in 0..self.names.rooms.len() {
            let members =
                Command::Members { roster: self.names.roster(room), users: self.names.users.clone() };
            if let Some(Outcome::Members { members, .. }) = self.store.peek(members, now) {
                let records = members.iter().filter_map(|member| member.record.as_ref());
                stored += records.map(|record| record.sessions.len() as u64).sum::<u64>();
            }
        }
        stored
    }
}
