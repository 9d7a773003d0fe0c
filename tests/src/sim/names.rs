//! Numbers of people and rooms, and their names.

use presence_model::id::{RegionId, RoomId, Roster, UserId};

/// The names in use.
pub(super) struct Names {
    pub(super) region: RegionId,
    pub(super) users: Vec<UserId>,
    pub(super) rooms: Vec<RoomId>,
}

impl Names {
    pub(super) fn new(users: usize, rooms: usize) -> Self {
        Self {
            region: RegionId::new("local").expect("a name"),
            users: (0..users).map(|user| UserId::new(format!("u{user}")).expect("a name")).collect(),
            rooms: (0..rooms).map(|room| RoomId::new(format!("r{room}")).expect("a name")).collect(),
        }
    }

    pub(super) fn roster(&self, room: usize) -> Roster {
        Roster { region: self.region.clone(), room: self.rooms[room].clone() }
    }

    pub(super) fn user(&self, name: &str) -> Option<usize> {
        number(name, 'u').filter(|user| *user < self.users.len())
    }

    pub(super) fn room(&self, name: &str) -> Option<usize> {
        number(name, 'r').filter(|room| *room < self.rooms.len())
    }
}

fn number(name: &str, kind: char) -> Option<usize> {
    name.strip_prefix(kind)?.parse().ok()
}
