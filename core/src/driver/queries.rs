//! Questions about rooms, answered from the store once it is settled.
//!
//! A read never shows whom a sweep should have ended: it waits until one has finished within the last
//! second, or says that the roster is held (G1). It does not filter, so what it shows is the fold of
//! the deltas. Of a room it tells all regions: those whose rosters are kept here from the store, others from a copy.

mod explain;
mod room;

use std::collections::{BTreeMap, BTreeSet};

use presence_model::id::{RegionId, RoomId, Roster};
use presence_model::time::Mono;

use self::explain::{Found, Looking};
use self::room::{Asked, Pages};
use super::store_ops::Pending;
use super::{Answer, Driver, Effect, Query, QueryKey, QueryRefusal};
use crate::limits::{QUERIES_MAX, QUERY_PAGE_MAX};
use crate::store::{Command, Outcome, StoreFault};

#[derive(Debug)]
enum Step {
    /// Summaries of the rosters of a room, to see whether they are settled.
    Settling(Asked),
    /// A page of each.
    Pages(Box<Pages>),
    /// Names of rooms.
    Names,
    /// A summary of each roster of the rooms named.
    Counts { rooms: BTreeMap<RoomId, u64>, left: BTreeSet<Roster>, more: bool },
    /// The member, region by region.
    Member(Box<Looking>),
    /// Its leases.
    Leases(Box<Found>),
}

#[derive(Debug)]
struct UnderWay {
    query: Query,
    step: Step,
    since: Mono,
}

/// Questions under way.
#[derive(Debug, Default)]
pub(super) struct Queries {
    under_way: BTreeMap<QueryKey, UnderWay>,
    later: BTreeSet<(Mono, QueryKey, Roster)>,
}

impl Queries {
    /// When to look again whether a roster has settled.
    pub(super) fn due(&self) -> Option<Mono> {
        self.later.first().map(|(at, ..)| *at)
    }
}

impl Driver {
    /// A question.
    pub(super) fn on_query(&mut self, key: QueryKey, query: Query) {
        if self.queries.under_way.len() >= QUERIES_MAX || self.gives_way(&query) {
            return self.refuse_query(key);
        }
        match &query {
            Query::Room { room, .. } | Query::Count { room } => {
                let room = room.clone();
                self.ask_about_room(key, query, &room);
            }
            Query::Rooms { prefix, after, count } => {
                let count = (*count).clamp(1, QUERY_PAGE_MAX) + 1;
                let command = Command::Rooms { prefix: prefix.clone(), after: after.clone(), count };
                self.begin_query(key, query, Step::Names);
                self.ask(command, Pending::Query(key));
            }
            Query::Explain { .. } => self.look_for_member(key, query),
        }
    }

    fn begin_query(&mut self, key: QueryKey, query: Query, step: Step) {
        self.queries.under_way.insert(key, UnderWay { query, step, since: self.now });
    }

    fn summarise(&mut self, key: QueryKey, roster: Roster) {
        self.ask(Command::Summary { roster: roster.clone() }, Pending::Summary(key, roster));
    }

    pub(super) fn home(&self, room: &RoomId) -> Roster {
        Roster { region: self.settings.region.clone(), room: room.clone() }
    }

    /// The rosters of a room that are kept here.
    fn rosters_of(&self, room: &RoomId) -> Vec<Roster> {
        let roster = |region: &RegionId| Roster { region: region.clone(), room: room.clone() };
        self.regions.iter().map(roster).collect()
    }

    fn refuse_query(&mut self, key: QueryKey) {
        self.end_query(key);
        let retry_after = self.retry_after();
        self.out.push(Effect::Answer(key, Err(QueryRefusal::Unavailable { retry_after })));
    }

    fn answer_query(&mut self, key: QueryKey, answer: Answer) {
        if self.end_query(key).is_some() {
            self.out.push(Effect::Answer(key, Ok(answer)));
        }
    }

    fn end_query(&mut self, key: QueryKey) -> Option<UnderWay> {
        self.attend_elsewhere(key, false);
        self.queries.under_way.remove(&key)
    }

    /// The store answered a step that concerns one room or none.
    pub(super) fn on_query_step(&mut self, key: QueryKey, result: Result<Outcome, StoreFault>) {
        if !self.queries.under_way.contains_key(&key) {
            return;
        }
        match result {
            Ok(Outcome::Rooms { rooms }) => self.on_names(key, rooms),
            Ok(Outcome::Members { now, position, members }) => self.on_member(key, members, position, now),
            Ok(Outcome::Leases { now, leases }) => self.on_leases(key, leases, now),
            Ok(
                Outcome::Now { .. }
                | Outcome::Page { .. }
                | Outcome::Commit(_)
                | Outcome::Renewed { .. }
                | Outcome::Released { .. }
                | Outcome::Lost { .. }
                | Outcome::Turn(_)
                | Outcome::Linked { .. }
                | Outcome::Done
                | Outcome::Edges { .. }
                | Outcome::History(_)
                | Outcome::Tail { .. }
                | Outcome::Audited(_)
                | Outcome::Disowned { .. }
                | Outcome::Distrusted { .. }
                | Outcome::Summary { .. }
                | Outcome::Seen { .. }
                | Outcome::RoomsOf { .. }
                | Outcome::Revoked { .. }
                | Outcome::Tidied { .. },
            )
            | Err(_) => self.refuse_query(key),
        }
    }

    /// The summary of a roster.
    pub(super) fn on_summary(&mut self, key: QueryKey, roster: Roster, result: Result<Outcome, StoreFault>) {
        let Some(under_way) = self.queries.under_way.get_mut(&key) else { return };
        let Ok(Outcome::Summary { now, position, count, swept, hold, .. }) = result else {
            return self.refuse_query(key);
        };
        match &mut under_way.step {
            Step::Counts { rooms, left, .. } => {
                left.remove(&roster);
                if count > 0 {
                    *rooms.entry(roster.room).or_default() += count;
                }
                self.finish_counts(key);
            }
            Step::Settling(_) => self.on_room_summary(key, &roster, (position, count), (swept, hold, now)),
            Step::Pages(_) | Step::Names | Step::Member(_) | Step::Leases(_) => self.refuse_query(key),
        }
    }

    /// Looks again at rosters that had not settled.
    pub(super) fn look_again(&mut self) {
        while self.queries.later.first().is_some_and(|(at, ..)| *at <= self.now)
            && let Some((_, key, roster)) = self.queries.later.pop_first()
        {
            if self.queries.under_way.contains_key(&key) {
                self.summarise(key, roster);
            }
        }
    }

    fn on_names(&mut self, key: QueryKey, names: Vec<RoomId>) {
        let regions = self.regions.clone();
        let Some(UnderWay { query: Query::Rooms { count, .. }, step, .. }) =
            self.queries.under_way.get_mut(&key)
        else {
            return self.refuse_query(key);
        };
        let most = (*count).clamp(1, QUERY_PAGE_MAX);
        let more = names.len() > most;
        let of_room = |room: RoomId| {
            regions.iter().map(move |region| Roster { region: region.clone(), room: room.clone() })
        };
        let left: BTreeSet<Roster> = names.into_iter().take(most).flat_map(of_room).collect();
        *step = Step::Counts { rooms: BTreeMap::new(), left: left.clone(), more };
        for roster in left {
            self.summarise(key, roster);
        }
        self.finish_counts(key);
    }

    fn finish_counts(&mut self, key: QueryKey) {
        let Some(UnderWay { step: Step::Counts { rooms, left, more }, .. }) =
            self.queries.under_way.get_mut(&key)
        else {
            return;
        };
        if left.is_empty() {
            let (rooms, more) = (std::mem::take(rooms).into_iter().collect(), *more);
            self.answer_query(key, Answer::Rooms { rooms, more });
        }
    }
}
