//! Regions that are kept elsewhere: their cores are watched as an edge watches its own, and only the rooms that somebody
//! here looks at.
//!
//! A copy is what the other core has told, already conflated by it; whoever watches here is told at once. Nothing of it
//! goes on to a third region: each core is asked for its own regions only.
//!
//! A region that cannot be heard is stale, and stays as it was; after the hold of regions everybody in it goes as
//! `region_lost`, as one change. What has come back starts from a snapshot.

mod rooms;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use presence_client::watch::{
    Effect as Watched, Event, ReconnectCause, RoomOptions, Watcher, WatcherSettings,
};
use presence_model::cursor::Cursor;
use presence_model::id::{RegionId, RoomId, Roster};
use presence_model::position::Position;
use presence_model::replica::{Phase, Replica};
use presence_model::time::Mono;
use presence_model::watch::{Level, WatchDown, WatchRefusal, WatchUp};

use self::rooms::Wanted;
pub(super) use self::rooms::Who;
use super::{Driver, Effect};
use crate::limits::{PEER_BEAT, PEER_ROOM_KEPT};

/// What came from a peer.
#[derive(Debug, Clone)]
pub enum PeerHeard {
    /// A stream to one of its cores is open, in the place of the one before.
    Connected,
    /// There is no stream any more.
    Lost,
    /// It said this.
    Down(WatchDown),
}

/// What is to be done for a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerWish {
    /// Send this.
    Send(WatchUp),
    /// Open another stream.
    Reconnect(ReconnectCause),
    /// It does not let a room be watched: somebody has to be told.
    Refused(RoomId, WatchRefusal),
    /// It was not heard for longer than the hold: everybody there is shown as gone.
    Gone,
}

/// How a peer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerNow {
    /// Whether it is heard.
    pub is_heard: bool,
    /// For how long nothing said that all is known of it.
    pub lag: Duration,
    /// Rooms that are watched there.
    pub rooms: usize,
}

#[derive(Debug)]
struct Peer {
    watcher: Watcher,
    rooms: BTreeMap<RoomId, Wanted>,
    /// Rooms of which what is asked for is not there yet, and since when.
    owed: BTreeMap<RoomId, Mono>,
    /// Rooms of which more is asked for than anybody wants any more, until then.
    idle: BTreeSet<(Mono, RoomId)>,
    /// Nothing was missed up to then.
    heard: Mono,
    /// It said something last.
    spoke: Mono,
    /// Whether it is heard now.
    is_heard: bool,
    is_gone: bool,
}

/// All peers.
#[derive(Debug, Default)]
pub(super) struct Peers(BTreeMap<RegionId, Peer>);

impl Peer {
    fn new(own: &RegionId) -> Self {
        let settings = WatcherSettings { home: Some(own.clone()), beat: PEER_BEAT, remembers: true };
        Self {
            watcher: Watcher::new(settings),
            rooms: BTreeMap::new(),
            owed: BTreeMap::new(),
            idle: BTreeSet::new(),
            heard: Mono::default(),
            spoke: Mono::default(),
            is_heard: false,
            is_gone: false,
        }
    }

    /// Closes rooms nobody has looked at for long; others of which less is wanted now.
    fn close_idle(&mut self, now: Mono, said: &mut Vec<Watched>) -> Vec<RoomId> {
        let mut lowered = Vec::new();
        while self.idle.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, room)) = self.idle.pop_first()
        {
            let Some(wanted) = self.rooms.get_mut(&room) else { continue };
            wanted.closes = None;
            if wanted.is_idle() {
                self.rooms.remove(&room);
                self.owed.remove(&room);
                self.watcher.close(&room, said);
            } else {
                lowered.push(room);
            }
        }
        lowered
    }

    fn due(&self, hold: Duration) -> Option<Mono> {
        let gone = (!self.is_heard && !self.is_gone).then(|| self.spoke + hold);
        let idle = self.idle.first().map(|(at, _)| *at);
        [self.watcher.poll_timeout(), gone, idle].into_iter().flatten().min()
    }
}

impl Peers {
    /// Peers of these regions, none of which was heard yet.
    pub(super) fn new(own: &RegionId, regions: &[RegionId]) -> Self {
        Self(regions.iter().map(|region| (region.clone(), Peer::new(own))).collect())
    }

    pub(super) fn knows(&self, region: &RegionId) -> bool {
        self.0.contains_key(region)
    }

    pub(super) fn regions(&self) -> impl Iterator<Item = &RegionId> {
        self.0.keys()
    }

    /// When something is due for one of them.
    pub(super) fn due(&self, hold: Duration) -> Option<Mono> {
        self.0.values().filter_map(|peer| peer.due(hold)).min()
    }

    /// This process did not run: the silence of that time is its own.
    pub(super) fn forgive(&mut self, now: Mono) {
        for peer in self.0.values_mut() {
            (peer.heard, peer.spoke) = (now, now);
        }
    }

    /// Forgets pages nobody needs.
    pub(super) fn forget_pages(&mut self) {
        self.0.values_mut().flat_map(|peer| peer.rooms.values_mut()).for_each(|wanted| wanted.pages = None);
    }

    /// How each is.
    pub(super) fn now(&self, now: Mono) -> impl Iterator<Item = (&RegionId, PeerNow)> {
        self.0.iter().map(move |(region, peer)| {
            let (is_heard, lag) = (peer.is_heard, now.since(peer.heard));
            (region, PeerNow { is_heard, lag, rooms: peer.rooms.len() })
        })
    }
}

impl Driver {
    /// How each peer is.
    pub fn peers(&self, now: Mono) -> impl Iterator<Item = (&RegionId, PeerNow)> {
        self.peers.now(now)
    }

    /// Something came from a peer.
    pub(super) fn on_peer(&mut self, region: &RegionId, heard: PeerHeard) {
        let now = self.now;
        let Some(peer) = self.peers.0.get_mut(region) else { return };
        let mut said = Vec::new();
        match heard {
            PeerHeard::Connected => peer.watcher.connected(now, &mut said),
            PeerHeard::Lost => {
                peer.watcher.lost(&mut said);
                peer.is_heard = false;
            }
            PeerHeard::Down(down) => {
                (peer.spoke, peer.is_heard, peer.is_gone) = (now, true, false);
                peer.watcher.handle(down, now, &mut said);
            }
        }
        self.carry_out_for(region, said);
    }

    /// Lets time pass for peers: silence, rooms nobody looks at, and the hold of regions.
    pub(super) fn tend_peers(&mut self) {
        let (now, hold) = (self.now, self.settings.timings.region_hold());
        if self.peers.due(hold).is_none_or(|due| due > now) {
            return;
        }
        let regions: Vec<RegionId> = self.peers.regions().cloned().collect();
        for region in regions {
            let Some(peer) = self.peers.0.get_mut(&region) else { continue };
            let mut said = Vec::new();
            peer.watcher.tick(now, &mut said);
            let lowered = peer.close_idle(now, &mut said);
            let is_over = !peer.is_heard && !peer.is_gone && peer.spoke + hold <= now;
            if is_over {
                peer.is_gone = true;
                peer.watcher.lose(now, &mut said);
                self.out.push(Effect::Peer(region.clone(), PeerWish::Gone));
            }
            self.carry_out_for(&region, said);
            for room in lowered {
                self.open_at_peer(&Roster { region: region.clone(), room });
            }
            if is_over {
                self.open_all_at_peer(&region);
            }
        }
    }

    fn carry_out_for(&mut self, region: &RegionId, said: Vec<Watched>) {
        for said in said {
            match said {
                Watched::Send(up) => self.out.push(Effect::Peer(region.clone(), PeerWish::Send(up))),
                Watched::Reconnect(cause) => {
                    if cause == ReconnectCause::Silent
                        && let Some(peer) = self.peers.0.get_mut(region)
                    {
                        peer.is_heard = false;
                    }
                    self.out.push(Effect::Peer(region.clone(), PeerWish::Reconnect(cause)));
                }
                Watched::Event(event) => self.on_peer_event(region, event),
            }
        }
    }

    fn on_peer_event(&mut self, region: &RegionId, event: Event) {
        match event {
            Event::Changed(room) | Event::Freshness { room, .. } | Event::Count { room, .. } => {
                self.tell_of_peer(region, &room);
            }
            Event::Answered(room) => {
                if let Some(wanted) = self.peers.wanted(region, &room) {
                    wanted.asks = false;
                }
                self.tell_of_peer(region, &room);
            }
            Event::Refused { room, refusal } => {
                self.tell_of_peer(region, &room);
                self.out.push(Effect::Peer(region.clone(), PeerWish::Refused(room, refusal)));
            }
            Event::Progress { .. } => {
                if let Some(peer) = self.peers.0.get_mut(region) {
                    peer.heard = self.now;
                }
            }
        }
    }

    /// What is known of a room there has changed: whoever watches it here is told.
    fn tell_of_peer(&mut self, region: &RegionId, room: &RoomId) {
        let now = self.now;
        let Some(peer) = self.peers.0.get_mut(region) else { return };
        let Some(wanted) = peer.rooms.get_mut(room) else { return };
        let copy = peer.watcher.view(room).and_then(|view| view.region(region));
        let is_listed = copy.is_some_and(|copy| is_of_use(copy.phase()));
        let is_answered = match wanted.opened {
            Level::Members => is_listed,
            Level::Count => is_listed || peer.watcher.count(room).is_some(),
        };
        if is_answered {
            peer.owed.remove(room);
        } else {
            peer.owed.entry(room.clone()).or_insert(now);
        }
        let watchers: Vec<_> = wanted.watchers().collect();
        for watch in watchers {
            self.watchers.touch(watch, room);
        }
    }

    /// The copy of a roster that is kept elsewhere, if it can be shown.
    pub(super) fn peer_copy(&self, roster: &Roster) -> Option<&Replica> {
        let peer = self.peers.0.get(&roster.region)?;
        let wanted = peer.rooms.get(&roster.room)?;
        let copy = peer.watcher.view(&roster.room)?.region(&roster.region)?;
        (wanted.opened == Level::Members && is_of_use(copy.phase())).then_some(copy)
    }

    /// Somebody has seen this of a roster that is kept elsewhere: it is asked for at once.
    pub(super) fn ask_peer(&mut self, roster: &Roster, seen: Position) {
        let now = self.now;
        let Some(peer) = self.peers.0.get_mut(&roster.region) else { return };
        let cursor = Cursor::new([(roster.region.clone(), seen)].into());
        let mut said = Vec::new();
        let waits = peer.watcher.catch_up(&roster.room, &cursor, now, &mut said);
        if waits && let Some(wanted) = peer.rooms.get_mut(&roster.room) {
            wanted.asks = true;
        }
        self.carry_out_for(&roster.region, said);
    }

    /// Somebody looks at a roster that is kept elsewhere.
    pub(super) fn attend_peer(&mut self, roster: &Roster, (who, level): (Who, Level)) {
        let Some(peer) = self.peers.0.get_mut(&roster.region) else { return };
        let is_new = !peer.rooms.contains_key(&roster.room);
        let wanted = peer.rooms.entry(roster.room.clone()).or_insert_with(Wanted::new);
        wanted.add(who, level);
        if !wanted.goes_beyond()
            && let Some(at) = wanted.closes.take()
        {
            peer.idle.remove(&(at, roster.room.clone()));
        }
        if is_new || wanted.falls_short() {
            self.open_at_peer(roster);
        }
    }

    /// Somebody does so no more. The copy is kept for a while, as others may come, and who only asks comes again.
    pub(super) fn neglect_peer(&mut self, roster: &Roster, (who, level): (Who, Level)) {
        let now = self.now;
        let Some(peer) = self.peers.0.get_mut(&roster.region) else { return };
        let Some(wanted) = peer.rooms.get_mut(&roster.room) else { return };
        wanted.remove(who, level);
        if wanted.goes_beyond() {
            let at = now + PEER_ROOM_KEPT;
            if let Some(before) = wanted.closes.replace(at) {
                peer.idle.remove(&(before, roster.room.clone()));
            }
            wanted.pages = None;
            peer.idle.insert((at, roster.room.clone()));
        }
    }

    /// A stream may have been opened a moment ago, from where copies were that are empty now.
    fn open_all_at_peer(&mut self, region: &RegionId) {
        let Some(peer) = self.peers.0.get(region) else { return };
        let rooms: Vec<RoomId> = peer.rooms.keys().cloned().collect();
        for room in rooms {
            self.open_at_peer(&Roster { region: region.clone(), room });
        }
    }

    fn open_at_peer(&mut self, roster: &Roster) {
        let now = self.now;
        let Some(peer) = self.peers.0.get_mut(&roster.region) else { return };
        let Some(wanted) = peer.rooms.get_mut(&roster.room) else { return };
        wanted.opened = wanted.level();
        let options = RoomOptions {
            level: wanted.opened,
            regions: vec![roster.region.clone()],
            min_interval: Duration::ZERO,
            at_least: Cursor::default(),
        };
        let mut said = Vec::new();
        peer.watcher.open(roster.room.clone(), options, now, &mut said);
        self.carry_out_for(&roster.region, said);
        self.tell_of_peer(&roster.region, &roster.room);
    }
}

/// Whether a copy says who is there, or that nobody is shown any more.
fn is_of_use(phase: Phase) -> bool {
    match phase {
        Phase::Complete | Phase::Lost => true,
        Phase::Cold | Phase::Loading => false,
    }
}
