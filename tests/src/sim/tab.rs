//! A tab: one socket for all its rooms, given up and opened again as `presence.js` does it.

use std::time::Duration;

use presence_edge::protocol::{ClientMessage, JoinMessage, Since};
use presence_model::cursor::Cursor;
use presence_model::id::{ConnectionId, Generation};
use presence_model::link::Token;
use presence_model::time::{Mono, millis};
use rand::RngExt as _;

use super::chance::Chance;
use super::names::Names;
use super::place::{Place, Wish};

/// A socket that is not answered is given up after so long.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Ceiling of the backoff.
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Most doublings of the backoff.
const DOUBLINGS_MAX: u32 = 6;

#[derive(Debug)]
pub(super) struct Tab {
    pub(super) number: usize,
    pub(super) user: usize,
    pub(super) chance: Chance,
    pub(super) places: Vec<Place>,
    pub(super) connection: Option<ConnectionId>,
    /// The edge has said hello.
    pub(super) open: bool,
    pub(super) heard: Mono,
    pub(super) pinged: Option<Mono>,
    pub(super) failures: u32,
    /// Its process does not run until then.
    pub(super) away_until: Mono,
    pub(super) deaf_until: Mono,
    pub(super) forgetful: bool,
    /// Counts what it plans to do: of two dials only the later one counts.
    pub(super) dials: u64,
}

impl Tab {
    pub(super) fn wants_in(&self) -> bool {
        self.places.iter().any(|place| place.wish == Wish::In)
    }

    /// How long to wait before the next attempt: evenly up to a ceiling that doubles.
    pub(super) fn backoff(&mut self, first: Duration) -> Duration {
        let ceiling = first.saturating_mul(1 << self.failures.min(DOUBLINGS_MAX)).min(BACKOFF_MAX);
        self.failures += 1;
        Duration::from_millis(self.chance.random_range(0..=millis(ceiling)))
    }

    pub(super) fn disconnected(&mut self) {
        self.connection = None;
        self.open = false;
        self.pinged = None;
        self.places.iter_mut().for_each(Place::disconnected);
    }

    /// What asks for a room, with this token.
    pub(super) fn entry(
        &mut self,
        place: usize,
        token: Token,
        (names, now): (&Names, Mono),
    ) -> ClientMessage {
        let place = &mut self.places[place];
        let room = names.rooms[place.room].clone();
        let read = |cursor: &str| Cursor::decode(cursor).map_or(Since::Unreadable, Since::Cursor);
        let since = place.cursor.as_deref().map_or(Since::Nowhere, read);
        if place.only_watches {
            return ClientMessage::Watch { room, token, since, level: None, client: "sim".into() };
        }
        place.generation += 1;
        // Who asks again over the same connection gives up what it had there.
        place.joined = false;
        place.told = (place.status, place.said, now);
        ClientMessage::Join(Box::new(JoinMessage {
            room,
            token,
            session: place.session.clone(),
            generation: Some(Generation(place.generation)),
            profile: place.profile(),
            since,
            watch: true,
            level: None,
            client: "sim".into(),
        }))
    }
}
