//! The rooms of a peer that somebody here looks at, and what is known of them.

use std::collections::BTreeSet;

use presence_model::id::{RegionId, RoomId, Roster};
use presence_model::limits::SNAPSHOT_PAGE_BYTES_MAX;
use presence_model::replica::Freshness;
use presence_model::time::Mono;
use presence_model::watch::Level;

use super::{Peer, Peers};
use crate::driver::rosters::Pages;
use crate::driver::{Driver, QueryKey, WatchKey};

/// Who looks at a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::driver) enum Who {
    Watch(WatchKey),
    Query(QueryKey),
}

/// One room.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Who wants to see its members.
    members: BTreeSet<Who>,
    /// Who wants to know how many they are.
    count: BTreeSet<Who>,
    /// How much of it is asked for.
    pub(super) opened: Level,
    /// Whether it is asked for what somebody claims to have seen.
    pub(super) asks: bool,
    /// More of it is asked for than anybody wants: until then.
    pub(super) closes: Option<Mono>,
    pub(super) pages: Option<Pages>,
}

impl Wanted {
    pub(super) fn new() -> Self {
        Self {
            members: BTreeSet::new(),
            count: BTreeSet::new(),
            opened: Level::Count,
            asks: false,
            closes: None,
            pages: None,
        }
    }

    /// How much of it is wanted: while nobody looks, as little as may be.
    pub(super) fn level(&self) -> Level {
        if self.members.is_empty() { Level::Count } else { Level::Members }
    }

    pub(super) fn add(&mut self, who: Who, level: Level) {
        self.of(level).insert(who);
    }

    pub(super) fn remove(&mut self, who: Who, level: Level) {
        self.of(level).remove(&who);
    }

    fn of(&mut self, level: Level) -> &mut BTreeSet<Who> {
        match level {
            Level::Members => &mut self.members,
            Level::Count => &mut self.count,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.members.is_empty() && self.count.is_empty()
    }

    /// Whether less is asked for than somebody wants.
    pub(super) fn falls_short(&self) -> bool {
        (self.opened, self.level()) == (Level::Count, Level::Members)
    }

    /// Whether more is asked for than anybody wants.
    pub(super) fn goes_beyond(&self) -> bool {
        self.is_idle() || (self.opened, self.level()) == (Level::Members, Level::Count)
    }

    pub(super) fn watchers(&self) -> impl Iterator<Item = WatchKey> {
        self.members.iter().chain(&self.count).filter_map(|who| match who {
            Who::Watch(key) => Some(*key),
            Who::Query(_) => None,
        })
    }

    fn is_watched_by(&self, key: WatchKey) -> bool {
        let who = Who::Watch(key);
        self.members.contains(&who) || self.count.contains(&who)
    }
}

impl Peers {
    pub(super) fn wanted(&mut self, region: &RegionId, room: &RoomId) -> Option<&mut Wanted> {
        self.0.get_mut(region)?.rooms.get_mut(room)
    }

    fn room(&self, roster: &Roster) -> Option<(&Peer, &Wanted)> {
        let peer = self.0.get(&roster.region)?;
        Some((peer, peer.rooms.get(&roster.room)?))
    }

    /// Since when a roster is not as far as somebody wants it.
    pub(in crate::driver) fn behind_since(&self, roster: &Roster) -> Option<Mono> {
        self.0.get(&roster.region)?.owed.get(&roster.room).copied()
    }

    /// Whether a peer is asked for more of a roster than it has told, and can answer.
    pub(in crate::driver) fn asks(&self, roster: &Roster) -> bool {
        self.room(roster).is_some_and(|(peer, wanted)| wanted.asks && peer.is_heard)
    }

    /// Rooms of peers that this watcher watches and that are behind since `late` or longer.
    pub(in crate::driver) fn late(&self, watch: WatchKey, late: Option<Mono>) -> Vec<RoomId> {
        let late = self.owed_to(watch).filter(|(_, since)| Some(*since) <= late);
        late.map(|(room, _)| room.clone()).collect()
    }

    /// Whether all that this watcher watches of peers is up to date, but for what is not since `late` or longer.
    pub(in crate::driver) fn serves(&self, watch: WatchKey, late: Option<Mono>) -> bool {
        self.owed_to(watch).all(|(_, since)| Some(since) <= late)
    }

    /// What this watcher waits for, and since when.
    fn owed_to(&self, watch: WatchKey) -> impl Iterator<Item = (&RoomId, Mono)> {
        let owed = self.0.values().flat_map(|peer| peer.owed.iter().map(move |owed| (&peer.rooms, owed)));
        let waits =
            owed.filter(move |(rooms, (room, _))| rooms.get(*room).is_some_and(|w| w.is_watched_by(watch)));
        waits.map(|(_, (room, since))| (room, *since))
    }

    /// How fresh what is known of a roster is, as its core says itself; stale while that cannot be heard.
    pub(in crate::driver) fn freshness(&self, roster: &Roster) -> Option<Freshness> {
        let (peer, _) = self.room(roster)?;
        peer.watcher.view(&roster.room)?.region(&roster.region)?.fresh()
    }

    /// How many members a roster has, if that is known.
    pub(in crate::driver) fn count(&self, roster: &Roster) -> Option<u64> {
        let (peer, wanted) = self.room(roster)?;
        let copy = peer.watcher.view(&roster.room).and_then(|view| view.region(&roster.region));
        let listed = copy.filter(|copy| super::is_of_use(copy.phase())).map(|copy| copy.len() as u64);
        match wanted.opened {
            Level::Members => listed,
            Level::Count => peer.watcher.count(&roster.room).or(listed),
        }
    }
}

impl Driver {
    /// The pages of a roster that is kept elsewhere, shared by all who start from there.
    pub(in crate::driver) fn peer_pages(&mut self, roster: &Roster) -> Option<Pages> {
        let peer = self.peers.0.get_mut(&roster.region)?;
        let copy = peer.watcher.view(&roster.room)?.region(&roster.region)?;
        let (position, digest) = (copy.position()?, copy.digest());
        let wanted = peer.rooms.get_mut(&roster.room)?;
        let current = |pages: &&Pages| {
            let is_whole = pages.last().is_some_and(|page| page.last == Some(digest));
            is_whole && pages.first().is_some_and(|page| page.position == position)
        };
        if let Some(pages) = wanted.pages.as_ref().filter(current) {
            return Some(pages.clone());
        }
        let pages: Pages = copy.pages(SNAPSHOT_PAGE_BYTES_MAX)?.into();
        wanted.pages = Some(pages.clone());
        Some(pages)
    }
}
