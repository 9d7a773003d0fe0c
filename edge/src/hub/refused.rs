//! Rooms that the core does not let this edge watch, or says nothing of: whoever waits for one is told.

use presence_model::watch::WatchRefusal;
use rand::RngExt as _;

use super::rooms::RoomKey;
use super::table::Showing;
use super::{ConnKey, Cx, Hub};
use crate::limits::WATCH_REFUSED_AGAIN;
use crate::protocol::codes::Told;

impl Hub {
    /// Tells all receivers of a room that they are shown it no longer. Sessions in it go on; the core is asked again
    /// when a client asks.
    pub(super) fn watch_refused(
        &mut self,
        room: RoomKey,
        (refusal, why): (&WatchRefusal, &str),
        cx: &mut Cx<'_>,
    ) {
        let places = self.rooms.receivers(room).iter();
        let keys: Vec<ConnKey> = places.filter_map(|place| self.conns.key_at(*place)).collect();
        for key in keys {
            self.show_no_longer((key, room), (refusal, why), cx);
        }
        self.rooms.close(room);
    }

    fn show_no_longer(
        &mut self,
        (key, room): (ConnKey, RoomKey),
        (refusal, why): (&WatchRefusal, &str),
        cx: &mut Cx<'_>,
    ) {
        let Some(name) = self.name_in(key, room) else { return };
        let Some(stay) = self.conns.get_mut(key).and_then(|conn| conn.stay_mut(room)) else { return };
        if stay.session.is_none() {
            self.drop_stay(key, room, cx.now);
        } else {
            let showing = std::mem::replace(&mut stay.showing, Showing::No);
            self.unwatch(room, showing, cx.now);
        }
        let mut told = Told::from(refusal);
        if told.code.ends_with().is_none() {
            let longest = told.retry_after.unwrap_or(WATCH_REFUSED_AGAIN);
            let wait = longest.mul_f64(self.chance.random_range(0.5..1.0));
            told.retry_after = Some(wait);
            self.roomless_for(key, wait);
        }
        // Nobody asked for it just now: who does not read is slow, not a flood.
        let error = self.last_word(key, (Some(name), told), why);
        self.notify(key, &error, cx);
    }
}
