//! Services that watch a core, and go on at another where that fails.

use std::time::Duration;

use presence_core::driver::WatchKey;
use presence_model::watch::{Level, OpenRoom, WatchDown, WatchUp};
use rand::RngExt as _;

use super::{Event, World};
use crate::sim::chance::Chance;
use crate::sim::desk::{Copy, Desk};
use crate::sim::guarantee::Guarantee;
use crate::sim::network::Node;
use crate::sim::nodes::Peer;

/// A stream without a word for so long is given up.
pub(super) const SILENT_FOR: Duration = Duration::from_secs(4);
/// Between two attempts.
const AGAIN_AFTER: Duration = Duration::from_millis(400);

impl Desk {
    pub(super) fn new(chance: Chance, rooms: usize) -> Self {
        let copies = (0..rooms).map(|_| Copy::default()).collect();
        Self { chance, watch: None, heard: Default::default(), dials: 0, copies }
    }
}

impl World {
    pub(super) fn dial_desk_after(&mut self, desk: usize, delay: Duration) {
        self.desks[desk].dials += 1;
        let number = self.desks[desk].dials;
        self.wires.after(delay, Event::DialDesk(desk, number));
    }

    pub(super) fn dial_desk(&mut self, number: usize, dial: u64) {
        let now = self.now();
        let desk = &mut self.desks[number];
        if desk.dials != dial || desk.watch.is_some() {
            return;
        }
        let core = desk.chance.random_range(0..self.cores.len());
        desk.heard = now;
        let key = self.open_watch(Peer::Desk(number), core);
        self.desks[number].watch = Some((key, core));
    }

    fn desk_of(&self, key: WatchKey) -> Option<usize> {
        self.desks.iter().position(|desk| desk.watch.is_some_and(|(own, _)| own == key))
    }

    /// The stream stands: all rooms are asked for, from where they are.
    pub(super) fn desk_opened(&mut self, key: WatchKey) {
        let Some(number) = self.desk_of(key) else { return };
        self.desks[number].heard = self.wires.now;
        for room in 0..self.names.rooms.len() {
            let desk = &mut self.desks[number];
            // Every now and then it starts from nothing.
            if desk.chance.random_bool(0.2) {
                desk.copies[room] = Copy::default();
            }
            let cursor = desk.copies[room].cursor(&self.names);
            let open = OpenRoom {
                room: self.names.rooms[room].clone(),
                home: None,
                cursor,
                regions: Vec::new(),
                level: Level::Members,
                min_interval: Duration::ZERO,
                at_least: None,
                recall: None,
            };
            self.say_watch(key, WatchUp::Open(Box::new(open)));
        }
    }

    fn say_watch(&mut self, key: WatchKey, up: WatchUp) {
        if let Some(stream) = self.watches.get_mut(&key) {
            let way = (stream.peer.node(), Node::Core(stream.core));
            self.wires.send(&mut stream.up, way, Event::WatchUp(key, up));
        }
    }

    pub(super) fn desk_told(&mut self, key: WatchKey, events: Vec<WatchDown>) {
        let Some(number) = self.desk_of(key) else { return };
        self.desks[number].heard = self.wires.now;
        for event in events {
            match event {
                WatchDown::Region { room, region: _, event } => {
                    let Some(room) = self.names.room(room.as_str()) else { continue };
                    let taken = self.desks[number].copies[room].take(event);
                    let taken = taken
                        .map_err(|(guarantee, what)| (guarantee, format!("desk{number} in r{room}: {what}")));
                    if self.hold_to(taken) == Some(true) {
                        self.compare_with_record(number, room);
                    }
                }
                WatchDown::Progress { .. } => {}
                WatchDown::Drain => return self.leave_core(number),
                WatchDown::Count { .. } => {
                    self.breach(Guarantee::G5, format!("desk{number} is told a count"))
                }
                WatchDown::Refused { room, refusal } => {
                    self.breach(Guarantee::G5, format!("desk{number} is refused {room}: {refusal}"));
                }
            }
        }
    }

    /// What the service has is what the store had at that position.
    fn compare_with_record(&mut self, number: usize, room: usize) {
        let copy = &self.desks[number].copies[room];
        let Some(position) = copy.position else { return };
        if let Some(known) = self.eye.recorded(room, position).filter(|known| *known != copy.digest()) {
            let digest = copy.digest();
            let what = format!("desk{number} has {digest:?} in r{room} at {position}, but it was {known:?}");
            self.breach(Guarantee::G5, what);
        }
    }

    fn leave_core(&mut self, number: usize) {
        let Some((key, core)) = self.desks[number].watch.take() else { return };
        if let Some(stream) = self.watches.get_mut(&key) {
            stream.open_at_peer = false;
            let way = (Node::Desk(number), Node::Core(core));
            self.wires.send(&mut stream.up, way, Event::WatchGoneAtCore(key));
        }
        self.desks[number].copies.iter_mut().for_each(Copy::cut);
        self.dial_desk_after(number, AGAIN_AFTER);
    }

    pub(super) fn desk_lost(&mut self, key: WatchKey) {
        if let Some(number) = self.desk_of(key) {
            self.desks[number].watch = None;
            self.desks[number].copies.iter_mut().for_each(Copy::cut);
            self.dial_desk_after(number, AGAIN_AFTER);
        }
    }

    /// Gives up streams on which nothing was heard for too long.
    pub(super) fn look_at_desks(&mut self) {
        for number in 0..self.desks.len() {
            let desk = &self.desks[number];
            if desk.watch.is_some() && self.wires.now.since(desk.heard) > SILENT_FOR {
                self.leave_core(number);
            }
        }
    }
}
