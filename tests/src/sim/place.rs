//! A tab's place in a room, kept as `presence.js` keeps it: a session over connections, a list by the frames
//! it is sent.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use presence_model::cursor::Cursor;
use presence_model::id::SessionId;
use presence_model::position::Position;
use presence_model::profile::{Profile, State, Status};
use presence_model::time::Mono;
use serde_json::Value;

use super::guarantee::{Breach, Guarantee};
use super::names::Names;

/// A member as shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) status: Option<Status>,
    pub(super) said: u64,
    pub(super) since: u64,
    /// Since when it is in this list.
    pub(super) shown: Mono,
    /// When its edge sent the frame that put it there.
    pub(super) sent: Mono,
}

/// What a frame names, and when it is taken and was sent.
pub(super) type At<'a> = (&'a Names, Mono, Mono);

/// What a frame did to a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// Not there before.
    Came,
    /// There no more, with the reason told.
    Went(String),
    /// Shown differently; whether also since a later time.
    Differs { since_later: bool },
}

/// What a change did to whom, and since when the user had been in the list, as taken and as sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) user: usize,
    pub(super) change: Change,
    pub(super) shown: Mono,
    pub(super) sent: Mono,
}

/// Whether a tab wants to be in a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    In,
    /// From when on it may want in again.
    OutUntil(Mono),
}

#[derive(Debug)]
struct Paging {
    revision: u64,
    members: BTreeMap<usize, Row>,
    later: Vec<Value>,
}

#[derive(Debug)]
pub(super) struct Place {
    pub(super) room: usize,
    pub(super) only_watches: bool,
    pub(super) wish: Wish,
    pub(super) session: SessionId,
    pub(super) generation: u64,
    minted: u64,
    pub(super) status: Status,
    pub(super) said: u64,
    /// What its edge was told last of these two, and when.
    pub(super) told: (Status, u64, Mono),
    pub(super) joined: bool,
    /// It was left over this connection: what was under way still comes.
    pub(super) left: bool,
    /// Its token has ended: until then it may be out of the room.
    pub(super) late_until: Mono,
    /// Raised with each entry and refusal: of what was planned before only the newest counts.
    pub(super) turn: u64,
    pub(super) list: Vec<Option<Row>>,
    unconfirmed: BTreeSet<usize>,
    paging: Option<Paging>,
    pub(super) revision: Option<u64>,
    pub(super) cursor: Option<String>,
    pub(super) position: Option<Position>,
    not_live: BTreeSet<String>,
    /// The store has lost data, or its clock went back: until then a history may begin below the one before.
    pub(super) epochs_may_fall: Mono,
    stale: BTreeSet<String>,
    /// From when until when it said last that it is stale.
    stale_within: Option<(Mono, Mono)>,
}

impl Place {
    pub(super) fn new(tab: usize, room: usize, only_watches: bool, users: usize) -> Self {
        Self {
            room,
            only_watches,
            wish: Wish::In,
            session: session_id(tab, room, 0),
            generation: 0,
            minted: 0,
            status: Status::Available,
            said: 0,
            told: (Status::Available, 0, Mono::default()),
            joined: false,
            left: false,
            late_until: Mono::default(),
            turn: 0,
            list: vec![None; users],
            unconfirmed: BTreeSet::new(),
            paging: None,
            revision: None,
            cursor: None,
            position: None,
            not_live: BTreeSet::new(),
            epochs_may_fall: Mono::default(),
            stale: BTreeSet::new(),
            stale_within: None,
        }
    }

    /// Somebody else has this session id, or it has ended: take another.
    pub(super) fn mint(&mut self, tab: usize) {
        self.minted += 1;
        self.session = session_id(tab, self.room, self.minted);
        self.generation = 0;
    }

    pub(super) fn profile(&self) -> Profile {
        let state = State::new(Bytes::from(format!("{{\"n\":{}}}", self.said))).expect("a short one");
        Profile { status: self.status, state }
    }

    /// The connection is gone: the list stays. How fresh a region is, is the word of one connection.
    pub(super) fn disconnected(&mut self) {
        self.joined = false;
        self.left = false;
        self.revision = None;
        self.paging = None;
        self.not_live.clear();
        self.stale.clear();
        self.turn += 1;
    }

    /// The process started again: nothing is left of the list.
    pub(super) fn forget_list(&mut self) {
        self.disconnected();
        self.list.iter_mut().for_each(|row| *row = None);
        self.unconfirmed.clear();
        self.cursor = None;
        self.position = None;
    }

    /// Whether the list says of itself that it is complete and fresh.
    pub(super) fn is_live(&self) -> bool {
        self.revision.is_some() && self.paging.is_none() && self.not_live.is_empty()
    }

    /// Takes a frame about the list; what it did is appended.
    ///
    /// # Errors
    /// What does not follow (G5), or leads back (G4).
    pub(super) fn take(&mut self, frame: &Value, at: At<'_>, seen: &mut Vec<Seen>) -> Result<(), Breach> {
        if let Some((_, until)) = self.stale_within.as_mut().filter(|_| !self.stale.is_empty()) {
            *until = at.1;
        }
        match frame["t"].as_str() {
            Some("snapshot") => self.page(frame, at, seen),
            Some("delta") => self.delta(frame, at, seen),
            Some("freshness") => {
                self.fresh(frame, at.1, seen);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn page(&mut self, frame: &Value, at: At<'_>, seen: &mut Vec<Seen>) -> Result<(), Breach> {
        let revision = frame["rev"].as_u64().unwrap_or(0);
        let known = self.paging.take().filter(|paging| paging.revision == revision);
        let mut paging = known.unwrap_or(Paging { revision, members: BTreeMap::new(), later: Vec::new() });
        paging.members.extend(rows(&frame["members"], at));
        if frame["more"] == true {
            self.paging = Some(paging);
            return Ok(());
        }
        self.revision = Some(revision);
        self.move_to(&frame["cursor"], at)?;
        self.unconfirmed.clear();
        let missing: Vec<usize> = (0..self.list.len())
            .filter(|user| self.list[*user].is_some() && !paging.members.contains_key(user))
            .collect();
        for (user, row) in paging.members {
            self.put(user, row, seen);
        }
        for user in missing {
            if self.not_live.is_empty() {
                self.drop(user, "unknown", seen);
            } else {
                self.unconfirmed.insert(user);
            }
        }
        paging.later.iter().try_for_each(|delta| self.delta(delta, at, seen))
    }

    fn delta(&mut self, frame: &Value, at: At<'_>, seen: &mut Vec<Seen>) -> Result<(), Breach> {
        if let Some(paging) = &mut self.paging {
            paging.later.push(frame.clone());
            return Ok(());
        }
        let to = frame["rev"].as_u64().unwrap_or(0);
        if let Some(from) = frame["prev"].as_u64() {
            let Some(own) = self.revision else {
                let told = gap(format!("a delta before any list: {frame}"));
                return if self.left { Ok(()) } else { Err(told) };
            };
            if from > own {
                return Err(gap(format!("own revision {own}, then {frame}")));
            }
            if to <= own {
                return Ok(());
            }
        }
        self.revision = Some(to);
        self.move_to(&frame["cursor"], at)?;
        for (user, row) in rows(&frame["upserts"], at) {
            self.put(user, row, seen);
        }
        for removal in frame["removals"].as_array().into_iter().flatten() {
            if let Some(user) = user_of(removal, at.0) {
                self.drop(user, removal["reason"].as_str().unwrap_or("none"), seen);
            }
        }
        self.confirm(seen);
        Ok(())
    }

    /// Where the tab is now: never behind where it was.
    fn move_to(&mut self, cursor: &Value, (names, now, _): At<'_>) -> Result<(), Breach> {
        self.cursor = cursor.as_str().map(str::to_owned);
        let decoded = self.cursor.as_deref().and_then(|cursor| Cursor::decode(cursor).ok());
        let Some(position) = decoded.and_then(|cursor| cursor.get(&names.region)) else { return Ok(()) };
        match self.position.replace(position) {
            Some(before)
                if before > position && !(now <= self.epochs_may_fall && before.epoch != position.epoch) =>
            {
                Err((Guarantee::G4, format!("was at {before} and is taken back to {position}")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whom it began to show while it said that it was stale: until when that was so.
    pub(super) fn was_hearsay(&self, shown: Mono) -> Option<Mono> {
        self.stale_within.filter(|(from, until)| *from <= shown && shown <= *until).map(|(_, until)| until)
    }

    fn fresh(&mut self, frame: &Value, now: Mono, seen: &mut Vec<Seen>) {
        let region = frame["region"].as_str().unwrap_or_default().to_owned();
        if frame["state"] == "stale" {
            if self.stale.is_empty() {
                self.stale_within = Some((now, now));
            }
            self.stale.insert(region.clone());
        } else {
            self.stale.remove(&region);
        }
        if frame["state"] != "live" {
            self.not_live.insert(region);
            return;
        }
        self.not_live.remove(&region);
        self.confirm(seen);
    }

    /// A list that is live shows nobody of whom nothing is heard.
    fn confirm(&mut self, seen: &mut Vec<Seen>) {
        if self.is_live() {
            for user in std::mem::take(&mut self.unconfirmed) {
                self.drop(user, "lease_expired", seen);
            }
        }
    }

    fn put(&mut self, user: usize, row: Row, seen: &mut Vec<Seen>) {
        self.unconfirmed.remove(&user);
        let Some(before) = &mut self.list[user] else {
            seen.push(Seen { user, change: Change::Came, shown: row.shown, sent: row.sent });
            self.list[user] = Some(row);
            return;
        };
        let (shown, sent) = (before.shown, before.sent);
        let since_later = before.since < row.since;
        if before.since != row.since || (before.status, before.said) != (row.status, row.said) {
            seen.push(Seen { user, change: Change::Differs { since_later }, shown, sent });
        }
        *before = Row { shown, sent, ..row };
    }

    fn drop(&mut self, user: usize, reason: &str, seen: &mut Vec<Seen>) {
        self.unconfirmed.remove(&user);
        if let Some(row) = self.list[user].take() {
            seen.push(Seen {
                user,
                change: Change::Went(reason.to_owned()),
                shown: row.shown,
                sent: row.sent,
            });
        }
    }
}

fn gap(what: String) -> Breach {
    (Guarantee::G5, what)
}

fn user_of(member: &Value, names: &Names) -> Option<usize> {
    names.user(member["user"].as_str()?)
}

fn rows(members: &Value, (names, now, sent): At<'_>) -> Vec<(usize, Row)> {
    let members = members.as_array().into_iter().flatten();
    let row = |member: &Value| {
        let row = Row {
            status: member["status"].as_str().and_then(Status::parse),
            said: member["state"]["n"].as_u64().unwrap_or(0),
            since: member["since"].as_u64().unwrap_or(0),
            shown: now,
            sent,
        };
        Some((user_of(member, names)?, row))
    };
    members.filter_map(row).collect()
}

fn session_id(tab: usize, room: usize, minted: u64) -> SessionId {
    SessionId::new(format!("tab{tab}-r{room}-session-{minted:06}")).expect("long enough")
}
