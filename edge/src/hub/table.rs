//! The connections, and what each of them does in its rooms.

use std::time::Duration;

use presence_model::class::RoomTimings;
use presence_model::cursor::Cursor;
use presence_model::fanout::Receiver;
use presence_model::gate::Gate;
use presence_model::id::{ConnectionId, Generation, SessionId, UserId};
use presence_model::lease::LeaseId;
use presence_model::link::{RequestId, Token};
use presence_model::profile::Profile;
use presence_model::record::TokenRef;
use presence_model::time::{Mono, StoreTime};
use presence_model::watch::Level;
use smol_str::SmolStr;

use super::ConnKey;
use super::drain::Leaving;
use super::rooms::RoomKey;
use crate::protocol::{CloseCode, Encoding, Payload, Since};

/// One transport.
pub(super) struct Conn {
    pub(super) id: ConnectionId,
    pub(super) encoding: Encoding,
    /// When anything came last.
    pub(super) heard: Mono,
    /// How often it is to be heard: as often as the quickest of its sessions.
    pub(super) heartbeat: Duration,
    /// Since when at least so often: silence before that proves nothing.
    pub(super) paced: Mono,
    pub(super) next_ping: Mono,
    /// The earliest timer set for it.
    pub(super) timer: Mono,
    /// Without a room it is closed then.
    pub(super) roomless: Option<Mono>,
    /// With which code: what was last said to it while roomless.
    pub(super) roomless_code: CloseCode,
    /// Told to come back elsewhere. Boxed: nearly always there is nothing of the kind.
    pub(super) leaving: Option<Box<Leaving>>,
    /// Answers that wait for the socket.
    pub(super) outbox: Vec<Payload>,
    /// Handed out and not yet reported as written.
    pub(super) writing: bool,
    /// In the list of those to be looked at before this input is done.
    pub(super) dirty: bool,
    /// Whose turn it is to be shown something first.
    pub(super) turn: u8,
    /// Was told of a region that is not live: it holds to that until it is told otherwise.
    pub(super) told_unwell: bool,
    pub(super) joins: Gate,
    pub(super) talk: Gate,
    pub(super) flood: Gate,
    pub(super) stays: Vec<Stay>,
}

/// A connection in a room.
pub(super) struct Stay {
    pub(super) room: RoomKey,
    pub(super) user: UserId,
    pub(super) token: Token,
    /// What of the token its right rests on.
    pub(super) rests_on: TokenRef,
    /// When the client is told that its token ends; none: it was.
    pub(super) warn_at: Option<StoreTime>,
    pub(super) showing: Showing,
    /// What it asked to be shown; none: what suits the size of the room.
    pub(super) level: Option<Level>,
    /// None: it only watches.
    pub(super) session: Option<Box<Session>>,
}

/// Whether a connection is shown a room.
pub(super) enum Showing {
    No,
    /// Once it is in.
    Later(Since),
    Yes(Show),
}

/// A room as shown to one connection.
pub(super) struct Show {
    pub(super) receiver: Receiver,
    /// Its place in the room's list of receivers.
    pub(super) place: u32,
    /// Version of the room's freshness it was told; 0: nothing yet.
    pub(super) fresh_seen: u32,
    /// Waits for the core to be asked.
    pub(super) catching_up: bool,
    /// Said where it had been, and was not answered yet.
    pub(super) returns: bool,
    /// Its connection was told of regions that are not live, perhaps of this room when it was here before: once it has
    /// the list, it is told which are.
    pub(super) owes_live: bool,
}

impl Show {
    pub(super) fn new(since: Since, place: u32, owes_live: bool) -> Self {
        let returns = since != Since::Nowhere;
        let cursor: Option<Cursor> = match since {
            Since::Cursor(cursor) => Some(cursor),
            Since::Nowhere | Since::Unreadable => None,
        };
        let receiver = Receiver::new(cursor);
        Self { receiver, place, fresh_seen: 0, catching_up: false, returns, owes_live }
    }
}

/// A session that this connection carries.
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) generation: Option<Generation>,
    pub(super) client: SmolStr,
    pub(super) profile: Profile,
    /// Of its lease; none until it had one.
    pub(super) timings: Option<RoomTimings>,
    pub(super) standing: Standing,
    /// The update under way: one at a time, later ones wait in `unsaid`.
    pub(super) updating: Option<RequestId>,
    pub(super) unsaid: Unsaid,
    /// The token that a core took last, while a fresh one is not answered.
    pub(super) taken: Option<Box<(Token, TokenRef)>>,
    /// What was said of it lately, and when the last of that was: a store that loses its latest commits is
    /// told again.
    pub(super) said: (Unsaid, Mono),
}

/// What of a session the core is still to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Unsaid {
    pub(super) status: bool,
    pub(super) state: bool,
    pub(super) token: bool,
}

impl Unsaid {
    pub(super) fn any(self) -> bool {
        self.status || self.state || self.token
    }

    /// This and that.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            status: self.status || other.status,
            state: self.state || other.state,
            token: self.token || other.token,
        }
    }
}

/// How a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Asked for. `old` is the lease of the attempt before on this connection.
    Joining { request: RequestId, old: Option<LeaseId> },
    /// In. `renewed`: when its last renewal was batched; `marked`: heard since.
    Joined { lease: LeaseId, since: StoreTime, renewed: Mono, marked: bool },
    /// Nobody has its lease: joined again, once it is heard.
    Lost { request: Option<RequestId>, since: StoreTime },
}

impl Session {
    pub(super) fn lease(&self) -> Option<LeaseId> {
        match self.standing {
            Standing::Joined { lease, .. } => Some(lease),
            Standing::Joining { .. } | Standing::Lost { .. } => None,
        }
    }

    /// What was said of it within this span.
    pub(super) fn said_within(&self, span: Duration, now: Mono) -> Unsaid {
        let (said, at) = self.said;
        if now.since(at) <= span { said } else { Unsaid::default() }
    }
}

impl Conn {
    /// The heartbeat of the quickest of its sessions that have had a lease.
    pub(super) fn quickest(&self) -> Option<Duration> {
        let sessions = self.stays.iter().filter_map(|stay| stay.session.as_deref());
        sessions.filter_map(|session| Some(session.timings?.heartbeat)).min()
    }

    pub(super) fn stay(&self, room: RoomKey) -> Option<&Stay> {
        self.stays.iter().find(|stay| stay.room == room)
    }

    pub(super) fn stay_mut(&mut self, room: RoomKey) -> Option<&mut Stay> {
        self.stays.iter_mut().find(|stay| stay.room == room)
    }

    pub(super) fn session_mut(&mut self, room: RoomKey) -> Option<&mut Session> {
        self.stay_mut(room)?.session.as_deref_mut()
    }

    /// Adds a stay without room to spare: most connections have one.
    pub(super) fn enter(&mut self, stay: Stay) {
        self.stays.reserve_exact(1);
        self.stays.push(stay);
        self.roomless = None;
        self.roomless_code = CloseCode::Silent;
    }

    pub(super) fn leave(&mut self, room: RoomKey) -> Option<Stay> {
        let place = self.stays.iter().position(|stay| stay.room == room)?;
        Some(self.stays.remove(place))
    }
}

struct Slot {
    version: u32,
    conn: Option<Box<Conn>>,
}

/// The connections by key.
#[derive(Default)]
pub(super) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Table {
    pub(super) fn insert(&mut self, conn: Conn) -> ConnKey {
        let conn = Some(Box::new(conn));
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.conn = conn;
            return ConnKey { index, version: slot.version };
        }
        let index = u32::try_from(self.slots.len()).expect("fewer connections than descriptors");
        self.slots.push(Slot { version: 0, conn });
        ConnKey { index, version: 0 }
    }

    pub(super) fn get(&self, key: ConnKey) -> Option<&Conn> {
        self.slots.get(key.index as usize).filter(|slot| slot.version == key.version)?.conn.as_deref()
    }

    pub(super) fn get_mut(&mut self, key: ConnKey) -> Option<&mut Conn> {
        let slot = self.slots.get_mut(key.index as usize).filter(|slot| slot.version == key.version)?;
        slot.conn.as_deref_mut()
    }

    pub(super) fn remove(&mut self, key: ConnKey) -> Option<Box<Conn>> {
        let slot = self.slots.get_mut(key.index as usize).filter(|slot| slot.version == key.version)?;
        let conn = slot.conn.take()?;
        slot.version = slot.version.wrapping_add(1);
        self.free.push(key.index);
        Some(conn)
    }

    /// The key of the connection that is at this place now.
    pub(super) fn key_at(&self, index: u32) -> Option<ConnKey> {
        let slot = self.slots.get(index as usize)?;
        slot.conn.is_some().then_some(ConnKey { index, version: slot.version })
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// All keys, by place.
    pub(super) fn keys(&self) -> Vec<ConnKey> {
        (0..self.slots.len()).filter_map(|index| self.key_at(u32::try_from(index).ok()?)).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ConnKey, &Conn)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let key = ConnKey { index: u32::try_from(index).ok()?, version: slot.version };
            Some((key, slot.conn.as_deref()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joined_connection_is_small() {
        let bytes = size_of::<Conn>() + size_of::<Stay>() + size_of::<Session>() + size_of::<Slot>();
        assert!(bytes <= 664, "{bytes} bytes beside token, ids and state");
    }

    #[test]
    fn keys_of_closed_connections_mean_nobody() {
        let mut table = Table::default();
        let conn = || Conn {
            encoding: Encoding::Json,
            id: ConnectionId(1),
            heard: Mono::default(),
            heartbeat: Duration::ZERO,
            paced: Mono::default(),
            next_ping: Mono::default(),
            timer: Mono::default(),
            roomless: None,
            roomless_code: CloseCode::Silent,
            leaving: None,
            outbox: Vec::new(),
            writing: false,
            dirty: false,
            turn: 0,
            told_unwell: false,
            joins: Gate::default(),
            talk: Gate::default(),
            flood: Gate::default(),
            stays: Vec::new(),
        };
        let first = table.insert(conn());
        assert!(table.remove(first).is_some() && table.remove(first).is_none());
        let second = table.insert(conn());
        assert_eq!((first.index, table.len()), (second.index, 1));
        assert!(table.get(first).is_none() && table.get(second).is_some());
        assert_eq!(table.keys(), [second]);
    }
}
