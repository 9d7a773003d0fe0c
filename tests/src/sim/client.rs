//! A client as the protocol wants it: keeps its session over connections, its list by the frames it is
//! sent, and comes back by itself.

use std::collections::BTreeMap;

use presence_edge::protocol::{ClientMessage, JoinMessage, Since};
use presence_model::claim::{Action, Claims};
use presence_model::cursor::Cursor;
use presence_model::id::{ConnectionId, Generation, RoomId, SessionId, UserId};
use presence_model::link::Token;
use presence_model::profile::{Profile, State, Status};
use presence_model::record::TokenRef;
use presence_model::time::{Mono, StoreTime};
use serde_json::Value;

/// What a client is up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// In the room.
    Present,
    /// Looks at the room without being in it.
    Watching,
    /// Away, having said goodbye.
    Away,
}

/// What a frame did to a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    Join(String),
    Leave(String, String),
    Update(String),
}

/// One tab.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) name: String,
    pub(super) user: UserId,
    pub(super) room: RoomId,
    pub(super) wish: Wish,
    pub(super) session: SessionId,
    pub(super) generation: u64,
    minted: u64,
    pub(super) status: Status,
    pub(super) connection: Option<ConnectionId>,
    pub(super) joined: bool,
    pub(super) heard: Mono,
    pub(super) cursor: Option<String>,
    pub(super) revision: Option<u64>,
    pub(super) list: BTreeMap<String, Value>,
    unconfirmed: BTreeMap<String, Value>,
    paging: Option<(u64, BTreeMap<String, Value>)>,
    pub(super) live: bool,
}

impl Client {
    pub(super) fn new(name: String, user: &str, room: &RoomId, wish: Wish) -> Self {
        Self {
            session: session_id(&name, 0),
            name,
            user: UserId::new(user).expect("a name"),
            room: room.clone(),
            wish,
            generation: 0,
            minted: 0,
            status: Status::Available,
            connection: None,
            joined: false,
            heard: Mono::default(),
            cursor: None,
            revision: None,
            list: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            paging: None,
            live: false,
        }
    }

    /// Somebody else has this session id, or it has ended: take another.
    pub(super) fn mint(&mut self) {
        self.minted += 1;
        self.session = session_id(&self.name, self.minted);
        self.generation = 0;
    }

    /// The connection is gone; the list stays.
    pub(super) fn disconnected(&mut self) {
        self.connection = None;
        self.joined = false;
        self.revision = None;
        self.paging = None;
        self.live = false;
    }

    /// The first message on a connection, with what its token says.
    pub(super) fn enter(&mut self) -> (ClientMessage, Claims) {
        let token = Token("simulated".into());
        let since = self
            .cursor
            .as_deref()
            .map_or(Since::Nowhere, |cursor| Cursor::decode(cursor).map_or(Since::Unreadable, Since::Cursor));
        let action = if self.wish == Wish::Watching { Action::Watch } else { Action::Join };
        let claims = Claims {
            user: self.user.clone(),
            room: self.room.clone(),
            action,
            not_before: None,
            token: TokenRef { ends: StoreTime(u64::MAX / 2), key_id: "k".into(), token_id: "".into() },
        };
        if action == Action::Watch {
            let message = ClientMessage::Watch {
                room: self.room.clone(),
                token,
                since,
                level: None,
                client: "sim".into(),
            };
            return (message, claims);
        }
        self.generation += 1;
        let join = JoinMessage {
            room: self.room.clone(),
            token,
            session: self.session.clone(),
            generation: Some(Generation(self.generation)),
            profile: Profile { status: self.status, state: State::default() },
            since,
            watch: true,
            level: None,
            client: "sim".into(),
        };
        (ClientMessage::Join(Box::new(join)), claims)
    }

    /// Takes one frame; what it did to the list is appended.
    ///
    /// # Errors
    /// A gap: the edge sent what does not follow (G5).
    pub(super) fn frame(&mut self, frame: &Value, seen: &mut Vec<Seen>) -> Result<(), String> {
        match frame["t"].as_str() {
            // A region is live unless the edge of this connection says otherwise.
            Some("hello") => self.live = true,
            Some("joined") => {
                self.joined = true;
                self.generation = self.generation.max(frame["generation"].as_u64().unwrap_or(0));
            }
            Some("snapshot") => self.page(frame, seen),
            Some("delta") => return self.delta(frame, seen),
            Some("freshness") => {
                self.live = frame["state"] == "live";
                if self.live && self.paging.is_none() && self.revision.is_some() {
                    for user in std::mem::take(&mut self.unconfirmed).into_keys() {
                        self.remove(&user, "lease_expired", seen);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn page(&mut self, frame: &Value, seen: &mut Vec<Seen>) {
        let revision = frame["rev"].as_u64().unwrap_or(0);
        let mut paging = self.paging.take().filter(|(of, _)| *of == revision).unwrap_or_default();
        paging.0 = revision;
        for member in frame["members"].as_array().into_iter().flatten() {
            paging.1.insert(name_of(member), member.clone());
        }
        if frame["more"] == true {
            self.paging = Some(paging);
            return;
        }
        self.revision = Some(revision);
        self.cursor = frame["cursor"].as_str().map(str::to_owned);
        self.unconfirmed.clear();
        for user in self.list.keys().filter(|user| !paging.1.contains_key(*user)).cloned().collect::<Vec<_>>()
        {
            if self.live {
                self.remove(&user, "unknown", seen);
            } else {
                self.unconfirmed.insert(user, Value::Null);
            }
        }
        for (user, member) in paging.1 {
            self.upsert(user, member, seen);
        }
    }

    fn delta(&mut self, frame: &Value, seen: &mut Vec<Seen>) -> Result<(), String> {
        let to = frame["rev"].as_u64().unwrap_or(0);
        if let Some(from) = frame["prev"].as_u64() {
            let Some(own) = self.revision else { return Err(format!("a delta before any list: {frame}")) };
            if to <= own {
                return Ok(());
            }
            if from > own {
                return Err(format!("own revision {own}, then {frame}"));
            }
        }
        for member in frame["upserts"].as_array().into_iter().flatten() {
            self.upsert(name_of(member), member.clone(), seen);
        }
        for removal in frame["removals"].as_array().into_iter().flatten() {
            self.remove(&name_of(removal), removal["reason"].as_str().unwrap_or("none"), seen);
        }
        self.revision = Some(to);
        self.cursor = frame["cursor"].as_str().map(str::to_owned);
        Ok(())
    }

    fn upsert(&mut self, user: String, member: Value, seen: &mut Vec<Seen>) {
        self.unconfirmed.remove(&user);
        match self.list.insert(user.clone(), member.clone()) {
            None => seen.push(Seen::Join(user)),
            Some(before) if before != member => seen.push(Seen::Update(user)),
            Some(_) => {}
        }
    }

    fn remove(&mut self, user: &str, reason: &str, seen: &mut Vec<Seen>) {
        self.unconfirmed.remove(user);
        if self.list.remove(user).is_some() {
            seen.push(Seen::Leave(user.to_owned(), reason.to_owned()));
        }
    }
}

fn name_of(member: &Value) -> String {
    member["user"].as_str().unwrap_or_default().to_owned()
}

fn session_id(name: &str, minted: u64) -> SessionId {
    SessionId::new(format!("{name}-session-{minted:08}")).expect("long enough")
}
