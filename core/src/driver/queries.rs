//! Questions about rooms, answered from the store once it is settled.
//!
//! A read never shows whom a sweep should have ended: it waits until one has finished within the last
//! second, or says that the roster is held (G1). It does not filter, so what it shows is the fold of
//! the deltas.

use std::collections::{BTreeMap, BTreeSet};

use presence_model::hold::is_held;
use presence_model::id::{RoomId, Roster, UserId};
use presence_model::lease::LeaseId;
use presence_model::position::Position;
use presence_model::record::MemberRead;
use presence_model::replica::Freshness;
use presence_model::time::{Mono, StoreTime};

use super::store_ops::Pending;
use super::{Answer, Driver, Effect, Explained, Query, QueryKey, QueryRefusal};
use crate::limits::{QUERIES_MAX, QUERY_PAGE_MAX, SETTLE_LOOK, SETTLE_WITHIN, SETTLED};
use crate::store::{Command, HoldState, LeaseDetail, Outcome, StoreFault};

/// What of a roster a page is read beside.
#[derive(Debug, Clone, Copy)]
struct Settled {
    count: u64,
    freshness: Freshness,
}

#[derive(Debug)]
enum Step {
    /// A summary of the roster, to see whether it is settled.
    Settling,
    /// A page of members.
    Page(Settled),
    /// Names of rooms.
    Names,
    /// A summary of each room named.
    Counts { rooms: BTreeMap<RoomId, u64>, left: BTreeSet<RoomId>, more: bool },
    /// The member.
    Member,
    /// Its leases.
    Leases(Box<(MemberRead, Position)>),
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
    later: BTreeSet<(Mono, QueryKey)>,
}

impl Queries {
    /// When to look again whether a roster has settled.
    pub(super) fn due(&self) -> Option<Mono> {
        self.later.first().map(|(at, _)| *at)
    }
}

impl Driver {
    /// A question.
    pub(super) fn on_query(&mut self, key: QueryKey, query: Query) {
        if self.queries.under_way.len() >= QUERIES_MAX || self.gives_way(&query) {
            return self.refuse_query(key);
        }
        let (step, command) = match &query {
            Query::Room { room, .. } | Query::Count { room } => {
                let room = room.clone();
                self.queries.under_way.insert(key, UnderWay { query, step: Step::Settling, since: self.now });
                return self.summarise(key, room);
            }
            Query::Rooms { prefix, after, count } => {
                let count = (*count).clamp(1, QUERY_PAGE_MAX) + 1;
                (Step::Names, Command::Rooms { prefix: prefix.clone(), after: after.clone(), count })
            }
            Query::Explain { room, user } => {
                (Step::Member, Command::Members { roster: self.home(room), users: vec![user.clone()] })
            }
        };
        self.queries.under_way.insert(key, UnderWay { query, step, since: self.now });
        self.ask(command, Pending::Query(key));
    }

    fn summarise(&mut self, key: QueryKey, room: RoomId) {
        let roster = self.home(&room);
        self.ask(Command::Summary { roster }, Pending::Summary(key, room));
    }

    pub(super) fn home(&self, room: &RoomId) -> Roster {
        Roster { region: self.settings.region.clone(), room: room.clone() }
    }

    fn refuse_query(&mut self, key: QueryKey) {
        self.queries.under_way.remove(&key);
        let retry_after = self.retry_after();
        self.out.push(Effect::Answer(key, Err(QueryRefusal::Unavailable { retry_after })));
    }

    fn answer_query(&mut self, key: QueryKey, answer: Answer) {
        if self.queries.under_way.remove(&key).is_some() {
            self.out.push(Effect::Answer(key, Ok(answer)));
        }
    }

    /// The store answered a step.
    pub(super) fn on_query_step(&mut self, key: QueryKey, result: Result<Outcome, StoreFault>) {
        if !self.queries.under_way.contains_key(&key) {
            return;
        }
        match result {
            Ok(Outcome::Page { position, members, more, .. }) => {
                let members = members.into_iter().map(|(member, _)| member).collect();
                self.on_page(key, members, more, position);
            }
            Ok(Outcome::Rooms { rooms }) => self.on_names(key, rooms),
            Ok(Outcome::Members { now, position, members }) => self.on_member(key, members, position, now),
            Ok(Outcome::Leases { now, leases }) => self.on_leases(key, leases, now),
            Ok(
                Outcome::Now { .. }
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

    /// The summary of a room.
    pub(super) fn on_summary(&mut self, key: QueryKey, room: RoomId, result: Result<Outcome, StoreFault>) {
        let ttl = self.timings_of(&room).lease_ttl;
        let Some(under_way) = self.queries.under_way.get_mut(&key) else { return };
        let Ok(Outcome::Summary { now, position, count, swept, hold, .. }) = result else {
            return self.refuse_query(key);
        };
        if let Step::Counts { rooms, left, .. } = &mut under_way.step {
            left.remove(&room);
            if count > 0 {
                rooms.insert(room, count);
            }
            return self.finish_counts(key);
        }
        let roster = Roster { region: self.settings.region.clone(), room };
        let held = hold.filter(|hold| is_held(Some(hold.since), ttl, now));
        if held.is_none() && !is_settled(swept, hold, ttl, now) {
            return self.settle(key, &roster);
        }
        let freshness = held.map_or(Freshness::Live, |hold| Freshness::Held { since: hold.since });
        match &under_way.query {
            Query::Room { after, count: wanted, .. } => {
                let count_max = (*wanted).clamp(1, QUERY_PAGE_MAX);
                under_way.step = Step::Page(Settled { count, freshness });
                let command = Command::Load { roster, after: after.clone(), count: count_max };
                self.ask(command, Pending::Query(key));
            }
            Query::Count { .. } => self.answer_query(key, Answer::Count { count, position, freshness }),
            Query::Rooms { .. } | Query::Explain { .. } => self.refuse_query(key),
        }
    }

    /// The last sweep is too old: one is asked for, and the roster looked at again.
    fn settle(&mut self, key: QueryKey, roster: &Roster) {
        let Some(under_way) = self.queries.under_way.get(&key) else { return };
        // A store that keeps nothing is not swept either.
        let is_in_vain = !self.ops.reachable(self.now);
        if is_in_vain || self.now.since(under_way.since) >= SETTLE_WITHIN {
            return self.refuse_query(key);
        }
        self.sweep.hurry(self.shard(roster), self.now);
        self.queries.later.insert((self.now + SETTLE_LOOK, key));
    }

    /// Looks again at rosters that had not settled.
    pub(super) fn look_again(&mut self) {
        while let Some((at, key)) = self.queries.later.first().copied()
            && at <= self.now
        {
            self.queries.later.pop_first();
            let Some(under_way) = self.queries.under_way.get(&key) else { continue };
            if let Query::Room { room, .. } | Query::Count { room } = &under_way.query {
                let room = room.clone();
                self.summarise(key, room);
            }
        }
    }

    fn on_page(
        &mut self,
        key: QueryKey,
        members: Vec<presence_model::profile::Member>,
        more: bool,
        position: Position,
    ) {
        let Some(UnderWay { step: Step::Page(settled), .. }) = self.queries.under_way.get(&key) else {
            return self.refuse_query(key);
        };
        let Settled { count, freshness } = *settled;
        self.answer_query(key, Answer::Room { members, more, count, position, freshness });
    }

    fn on_names(&mut self, key: QueryKey, names: Vec<RoomId>) {
        let Some(UnderWay { query: Query::Rooms { count, .. }, step, .. }) =
            self.queries.under_way.get_mut(&key)
        else {
            return self.refuse_query(key);
        };
        let most = (*count).clamp(1, QUERY_PAGE_MAX);
        let more = names.len() > most;
        let left: BTreeSet<RoomId> = names.into_iter().take(most).collect();
        *step = Step::Counts { rooms: BTreeMap::new(), left: left.clone(), more };
        for room in left {
            self.summarise(key, room);
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

    fn on_member(&mut self, key: QueryKey, members: Vec<MemberRead>, position: Position, now: StoreTime) {
        let Some(UnderWay { query: Query::Explain { room, user }, step, .. }) =
            self.queries.under_way.get_mut(&key)
        else {
            return self.refuse_query(key);
        };
        let user: &UserId = user;
        let read = members.into_iter().next().unwrap_or_else(|| MemberRead::absent(user.clone()));
        let leases: Vec<LeaseId> =
            read.record.iter().flat_map(|record| &record.sessions).map(|session| session.lease).collect();
        let room = room.clone();
        *step = Step::Leases(Box::new((read, position)));
        if leases.is_empty() {
            return self.on_leases(key, Vec::new(), now);
        }
        let shard = self.shard(&self.home(&room));
        self.ask(Command::Leases { shard, leases }, Pending::Query(key));
    }

    fn on_leases(&mut self, key: QueryKey, leases: Vec<LeaseDetail>, now: StoreTime) {
        let under_way = self.queries.under_way.remove(&key);
        let Some(UnderWay { query: Query::Explain { room, .. }, step: Step::Leases(found), .. }) = under_way
        else {
            return self.refuse_query(key);
        };
        let (read, position) = *found;
        let leases = leases.into_iter().map(|l| (l.lease, l.state, l.shortened)).collect();
        let freshness = self.freshness(&self.home(&room));
        let class = self.settings.classes.of(&room).map(|class| (class.name.clone(), class.timings));
        let explained = Explained { read, leases, position, freshness, now, class };
        self.out.push(Effect::Answer(key, Ok(Answer::Explain(Box::new(explained)))));
    }
}

/// Whether a sweep has finished recently, and since the end of the last hold.
fn is_settled(
    swept: Option<StoreTime>,
    hold: Option<HoldState>,
    ttl: std::time::Duration,
    now: StoreTime,
) -> bool {
    let after_hold = |swept: StoreTime| hold.is_none_or(|hold| hold.since + ttl <= swept);
    swept.is_some_and(|swept| swept <= now && now.since(swept) <= SETTLED && after_hold(swept))
}
