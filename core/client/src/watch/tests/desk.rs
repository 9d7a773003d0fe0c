//! A watcher with a stream in hand, and short words for what the far side says.

use std::time::Duration;

use bytes::Bytes;
use presence_model::change::Removal;
use presence_model::cursor::Cursor;
use presence_model::delta::Delta;
use presence_model::digest::Digest;
use presence_model::id::{RegionId, RoomId, UserId};
use presence_model::position::{Epoch, Position, Revision};
use presence_model::profile::{Member, State, Status};
use presence_model::reason::RemovalReason;
use presence_model::replica::{Freshness, SnapshotPage};
use presence_model::time::{Mono, StoreTime};
use presence_model::view::RegionEvent;
use presence_model::watch::{OpenRoom, WatchDown, WatchUp};

use crate::watch::{Effect, Event, RoomOptions, Watcher, WatcherSettings};

pub(super) const BEAT: Duration = Duration::from_secs(1);

pub(super) struct Desk {
    pub(super) watcher: Watcher,
    pub(super) effects: Vec<Effect>,
    pub(super) now: Mono,
    sequence: u64,
}

impl Desk {
    pub(super) fn without_stream() -> Self {
        let settings = WatcherSettings { home: Some(region("home")), beat: BEAT, remembers: false };
        let now = Mono::from_millis(5_000);
        Self { watcher: Watcher::new(settings), effects: Vec::new(), now, sequence: 0 }
    }

    /// With a stream and a room that was asked for.
    pub(super) fn watching(room: &str) -> Self {
        let mut desk = Self::without_stream();
        desk.connect();
        desk.open(room);
        desk.drain();
        desk
    }

    /// With a room whose home region is complete and live.
    pub(super) fn shown(room: &str, revision: u64, users: &[&str]) -> Self {
        let mut desk = Self::watching(room);
        desk.event(room, page(1, revision, users));
        desk.drain();
        desk
    }

    pub(super) fn connect(&mut self) {
        self.watcher.connected(self.now, &mut self.effects);
    }

    pub(super) fn open(&mut self, name: &str) {
        self.watcher.open(room(name), RoomOptions::default(), self.now, &mut self.effects);
    }

    pub(super) fn say(&mut self, down: WatchDown) {
        self.watcher.handle(down, self.now, &mut self.effects);
    }

    pub(super) fn event(&mut self, name: &str, event: RegionEvent) {
        self.say(WatchDown::Region { room: room(name), region: region("home"), event });
    }

    pub(super) fn progress(&mut self, store_ms: u64) {
        self.sequence += 1;
        self.say(WatchDown::Progress { sequence: self.sequence, store_time: StoreTime(store_ms) });
    }

    pub(super) fn catch_up(&mut self, name: &str, cursor: &Cursor) -> bool {
        self.watcher.catch_up(&room(name), cursor, self.now, &mut self.effects)
    }

    /// Lets time pass, looking at the watcher whenever it asks for that.
    pub(super) fn pass(&mut self, span: Duration) {
        let until = self.now + span;
        while let Some(at) = self.watcher.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.watcher.tick(self.now, &mut self.effects);
        }
        self.now = until;
    }

    pub(super) fn drain(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The only thing wanted was to open this room.
    pub(super) fn opened(&mut self, name: &str) -> OpenRoom {
        let mut effects = self.drain();
        effects.retain(|effect| matches!(effect, Effect::Send(_)));
        let [Effect::Send(WatchUp::Open(open))] = effects.as_slice() else { panic!("{effects:?}") };
        assert_eq!(open.room, room(name));
        *open.clone()
    }

    pub(super) fn users(&self, name: &str) -> Vec<String> {
        let members = self.watcher.view(&room(name)).unwrap().page(None, usize::MAX);
        members.iter().map(|member| member.user.as_str().to_owned()).collect()
    }

    pub(super) fn fresh(&self, name: &str) -> Freshness {
        self.watcher.view(&room(name)).unwrap().region(&region("home")).unwrap().fresh().unwrap()
    }
}

pub(super) fn room(name: &str) -> RoomId {
    RoomId::new(name).unwrap()
}

pub(super) fn region(name: &str) -> RegionId {
    RegionId::new(name).unwrap()
}

pub(super) fn member(user: &str) -> Member {
    Member {
        user: UserId::new(user).unwrap(),
        status: Status::Available,
        state: State::new(Bytes::from_static(b"{}")).unwrap(),
        since: StoreTime(100),
    }
}

pub(super) fn epoch(minted_ms: u64) -> Epoch {
    Epoch { minted_ms, random: 9 }
}

pub(super) fn position(minted_ms: u64, revision: u64) -> Position {
    Position { epoch: epoch(minted_ms), revision: Revision(revision) }
}

pub(super) fn cursor(minted_ms: u64, revision: u64) -> Cursor {
    let mut cursor = Cursor::default();
    cursor.set(region("home"), position(minted_ms, revision));
    cursor
}

pub(super) fn digest(users: &[&str]) -> Digest {
    users.iter().map(|user| Digest::of(&member(user))).fold(Digest::default(), Digest::plus)
}

pub(super) fn page(minted_ms: u64, revision: u64, users: &[&str]) -> RegionEvent {
    page_of(epoch(minted_ms), revision, Freshness::Live, users)
}

pub(super) fn page_of(epoch: Epoch, revision: u64, freshness: Freshness, users: &[&str]) -> RegionEvent {
    RegionEvent::Page(SnapshotPage {
        position: Position { epoch, revision: Revision(revision) },
        freshness,
        members: users.iter().map(|user| member(user)).collect(),
        first: true,
        last: Some(digest(users)),
    })
}

/// A delta after which the roster is `all`.
pub(super) fn delta(
    minted_ms: u64,
    (from, to): (u64, u64),
    upserts: &[&str],
    removals: &[&str],
    all: &[&str],
) -> RegionEvent {
    let removal =
        |user: &&str| Removal::new(UserId::new(user).unwrap(), RemovalReason::Left, Duration::from_secs(1));
    RegionEvent::Delta(Delta {
        epoch: epoch(minted_ms),
        from: Revision(from),
        to: Revision(to),
        upserts: upserts.iter().map(|user| member(user)).collect(),
        removals: removals.iter().map(removal).collect(),
        digest: digest(all),
    })
}

pub(super) fn event(event: Event) -> Effect {
    Effect::Event(event)
}

pub(super) fn fresh(name: &str, freshness: Freshness) -> Event {
    Event::Freshness { room: room(name), region: region("home"), freshness }
}

pub(super) fn live(name: &str) -> Event {
    fresh(name, Freshness::Live)
}
