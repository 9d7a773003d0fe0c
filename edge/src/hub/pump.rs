//! What a connection is shown next: at most one write under way, and everything else by its cursors.

use bytes::Bytes;
use presence_model::cursor::Cursor;
use presence_model::fanout::Next;
use presence_model::id::{RegionId, UserId};
use presence_model::replica::{Freshness, Phase};
use presence_model::view::{Sample, View, ViewRevision};
use presence_model::watch::{Level, WatchRefusal};

use super::rooms::{Fresh, News, Room, RoomKey, Told};
use super::table::{Show, Showing};
use super::{ConnKey, Cx, Effect, Hub, Reconnects};
use crate::limits::{SAMPLE_MAX, SEND_BYTES_MAX};
use crate::protocol::{Encoding, ServerMessage};

/// What became of a look at a room.
enum Look {
    Frame(Bytes),
    Nothing,
    Ask(Cursor),
}

impl Hub {
    /// Looks at a connection before the input is done.
    pub(super) fn touch(&mut self, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key)
            && !std::mem::replace(&mut conn.dirty, true)
        {
            self.dirty.push(key);
        }
    }

    /// All it was handed is written.
    pub(super) fn written(&mut self, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.writing = false;
            self.touch(key);
        }
    }

    /// Looks at all receivers of rooms in which something happened.
    pub(super) fn spread_news(&mut self, cx: &mut Cx<'_>) {
        for news in std::mem::take(&mut self.rooms.news) {
            let (room, answered) = match news {
                News::Look(room) => (room, false),
                News::Answered(room) => (room, true),
                News::Refused(room, refusal) => {
                    self.watch_refused(room, (&refusal, &refusal.to_string()), cx);
                    continue;
                }
                News::Unanswered(room) => {
                    let retry_after = self.timings.reconnect_within;
                    let refusal = WatchRefusal::Unavailable { retry_after };
                    self.watch_refused(room, (&refusal, "the core did not answer"), cx);
                    continue;
                }
            };
            for place in 0..self.rooms.receivers(room).len() {
                let Some(key) = self.conns.key_at(self.rooms.receivers(room)[place]) else { continue };
                if answered {
                    self.note_answered(key, room);
                }
                self.touch(key);
            }
        }
    }

    fn note_answered(&mut self, key: ConnKey, room: RoomKey) {
        let stay = self.conns.get_mut(key).and_then(|conn| conn.stay_mut(room));
        // Whoever did not ask yet, as there was nothing to look at, may have seen more than was asked for.
        if let Some(Showing::Yes(show)) = stay.map(|stay| &mut stay.showing)
            && std::mem::take(&mut show.catching_up)
        {
            show.receiver.asked();
        }
    }

    /// Writes to all that were touched and can take more.
    pub(super) fn pump(&mut self, cx: &mut Cx<'_>) {
        for key in std::mem::take(&mut self.dirty) {
            let Some(conn) = self.conns.get_mut(key) else { continue };
            conn.dirty = false;
            if conn.writing {
                continue;
            }
            let mut frames = std::mem::take(&mut conn.outbox);
            let (stays, turn) = (conn.stays.len(), usize::from(conn.turn));
            let mut bytes: usize = frames.iter().map(Bytes::len).sum();
            for offset in 0..stays {
                let place = (turn + offset) % stays;
                if bytes >= SEND_BYTES_MAX {
                    self.turn_to(key, place);
                    break;
                }
                let before = frames.len();
                self.show_next(key, place, &mut frames, cx);
                bytes += frames[before..].iter().map(Bytes::len).sum::<usize>();
            }
            if frames.is_empty() {
                continue;
            }
            if let Some(conn) = self.conns.get_mut(key) {
                conn.writing = true;
                cx.out.push(Effect::Send(key, frames));
            }
        }
    }

    fn turn_to(&mut self, key: ConnKey, place: usize) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.turn = u8::try_from(place).expect("a connection has at most 64 rooms");
        }
    }

    /// Adds what one room of a connection has to show.
    fn show_next(&mut self, key: ConnKey, place: usize, frames: &mut Vec<Bytes>, cx: &Cx<'_>) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let (encoding, told_unwell) = (conn.encoding, &mut conn.told_unwell);
        let Some(stay) = conn.stays.get_mut(place) else { return };
        let (here, asked) = (stay.room, stay.level);
        let Showing::Yes(show) = &mut stay.showing else { return };
        let Some((room, view)) = self.rooms.shown(here) else { return };
        let before = frames.len();
        let revived = tell_freshness((room, view), show, encoding, frames);
        *told_unwell |= frames.len() > before;
        let seen = match asked.unwrap_or(room.level()) {
            Level::Members => look((room, view), show, encoding, &mut self.counts.reconnects),
            Level::Count => look_at_number((room, view), show, encoding, &mut self.counts.reconnects),
        };
        match seen {
            Look::Frame(frame) => frames.push(frame),
            Look::Nothing => {}
            Look::Ask(cursor) => {
                if self.rooms.catch_up(here, &cursor, cx.now) {
                    show.catching_up = true;
                    return frames.extend(revived);
                }
                show.receiver.asked();
                let Some((room, view)) = self.rooms.shown(here) else { return };
                let reconnects = &mut self.counts.reconnects;
                if let Look::Frame(frame) = look((room, view), show, encoding, reconnects) {
                    frames.push(frame);
                }
            }
        }
        frames.extend(revived);
        if show.owes_live && show.receiver.is_shown() {
            show.owes_live = false;
            if let Some((room, view)) = self.rooms.shown(here) {
                frames.extend(owed_live(room, view, encoding));
            }
        }
    }
}

/// Tells of regions that are not live; what is to be told of those that are again is handed back. That goes behind the
/// list, and waits with what waits for the next flush: whoever holds members of whom nobody has told yet removes them
/// at that word.
///
/// Regions are live unless told otherwise: who is new is told only of those that are not.
fn tell_freshness(
    (room, view): (&mut Room, &View),
    show: &mut Show,
    encoding: Encoding,
    frames: &mut Vec<Bytes>,
) -> Vec<Bytes> {
    if show.fresh_seen == room.fresh_version {
        return Vec::new();
    }
    let is_new = show.fresh_seen == 0;
    let all_live = room.fresh.iter().all(|fresh| fresh.freshness == Freshness::Live);
    if all_live && matches!(show.receiver.next(view), Next::Shared { from, .. } if from >= room.flushed.at())
    {
        return Vec::new();
    }
    let unseen = room.fresh.iter_mut().filter(|fresh| fresh.version > show.fresh_seen);
    let (live, others): (Vec<_>, Vec<_>) = unseen.partition(|fresh| fresh.freshness == Freshness::Live);
    // Who is new is shown nobody of a region that is lost, and keeps nobody for its sake.
    let others = others.into_iter().filter(|fresh| !is_new || !is_lost(view, fresh));
    frames.extend(others.map(|fresh| fresh.frame(&room.name, encoding)));
    show.fresh_seen = room.fresh_version;
    let live = live.into_iter().filter(|_| !is_new);
    live.map(|fresh| fresh.frame(&room.name, encoding)).collect()
}

/// Of the regions whose members are all in the list it was just shown, or of which nobody is.
///
/// Whoever was here before on the same connection may have been told that they are not live.
fn owed_live(room: &Room, view: &View, encoding: Encoding) -> Vec<Bytes> {
    let is_unwell = |region: &RegionId| {
        let known = room.fresh.iter().find(|fresh| fresh.region == *region);
        known.is_some_and(|fresh| fresh.freshness != Freshness::Live && !is_lost(view, fresh))
    };
    let live = view.regions().map(|(region, _)| region).filter(|region| !is_unwell(region));
    let tell = |region: &RegionId| {
        let (room, region) = (room.name.clone(), region.clone());
        encoding.message(&ServerMessage::Freshness { room, region, freshness: Freshness::Live })
    };
    live.map(tell).collect()
}

fn is_lost(view: &View, fresh: &Fresh) -> bool {
    view.region(&fresh.region).is_some_and(|copy| copy.phase() == Phase::Lost)
}

fn look(
    (room, view): (&mut Room, &View),
    show: &mut Show,
    encoding: Encoding,
    reconnects: &mut Reconnects,
) -> Look {
    match show.receiver.next(view) {
        Next::Nothing => Look::Nothing,
        // What came since the last flush waits for the next.
        Next::Shared { from, .. } if from >= room.flushed.at() => Look::Nothing,
        // Who was touched is as before.
        Next::Shared { .. } if show.receiver.skips(&room.flushed) => Look::Nothing,
        Next::Shared { sent, from, to } => {
            let name = &room.name;
            let cache = room.caches.of(encoding);
            match cache.delta(view, (sent, from), |delta| encoding.delta(name, delta)) {
                Some(frame) => {
                    show.receiver.sent(to);
                    Look::Frame(frame)
                }
                None => Look::Nothing,
            }
        }
        Next::Answer(delta) => {
            show.receiver.sent(delta.to);
            reconnects.resumed += u64::from(std::mem::take(&mut show.returns));
            Look::Frame(encoding.delta(&room.name, &delta))
        }
        Next::Page { revision, after } => {
            reconnects.snapshot += u64::from(std::mem::take(&mut show.returns));
            Look::Frame(page((room, view), show, encoding, (revision, after)))
        }
        Next::CatchUp(_) if show.catching_up => Look::Nothing,
        Next::CatchUp(cursor) => Look::Ask(cursor),
    }
}

/// The number: at once to who was shown nothing yet, then with each flush that changes it or has names to tell.
fn look_at_number(
    (room, view): (&mut Room, &View),
    show: &mut Show,
    encoding: Encoding,
    reconnects: &mut Reconnects,
) -> Look {
    let counted = show.receiver.counted();
    let Some(seen) = counted.map(|(at, _)| at).or_else(|| show.receiver.at()) else {
        if !view.is_complete() {
            return Look::Nothing;
        }
        reconnects.snapshot += u64::from(std::mem::take(&mut show.returns));
        let mut first = Told::new(view, Sample::default());
        show.receiver.count_sent(first.at, first.members);
        return Look::Frame(first.frame(&room.name, encoding));
    };
    if counted.is_some() && seen >= room.flushed.at() {
        return Look::Nothing;
    }
    // Who was shown the room after the last flush knows some of those whom all others are told of.
    let mut own = (room.names_from() < seen).then(|| Told::new(view, view.sample(seen, SAMPLE_MAX)));
    let (name, shared) = room.told(view);
    let told = own.as_mut().unwrap_or(shared);
    show.receiver.count_sent(told.at, told.members);
    let is_same = !told.names() && counted.is_some_and(|(_, members)| members == told.members);
    if is_same { Look::Nothing } else { Look::Frame(told.frame(name, encoding)) }
}

fn page(
    (room, view): (&Room, &View),
    show: &mut Show,
    encoding: Encoding,
    (revision, after): (ViewRevision, Option<UserId>),
) -> Bytes {
    let mut page = encoding.snapshot(&room.name, revision, &view.cursor_of(revision));
    let more = view.members_after(after.as_ref()).any(|member| !page.push(&member));
    let (frame, last) = page.end(more);
    show.receiver.page_sent(revision, last, more);
    frame
}
