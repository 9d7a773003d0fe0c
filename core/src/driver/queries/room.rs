//! One room, over all its regions: each roster is settled first, then read, and what is read is one list.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use presence_model::hold::is_held;
use presence_model::id::{RegionId, RoomId, Roster, UserId};
use presence_model::position::Position;
use presence_model::profile::Member;
use presence_model::replica::{Freshness, Replica};
use presence_model::time::{Mono, StoreTime};
use presence_model::view::merged;
use presence_model::watch::Level;

use super::{Step, UnderWay};
use crate::driver::peers::Who;
use crate::driver::store_ops::Pending;
use crate::driver::{Answer, Driver, Query, QueryKey, RegionNow};
use crate::limits::{PEER_ANSWER_WITHIN, QUERY_PAGE_MAX, SETTLE_LOOK, SETTLE_WITHIN, SETTLED};
use crate::store::{Command, HoldState, Outcome, StoreFault};

/// What is known of the rosters of a room.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Those that are not settled yet.
    left: BTreeSet<RegionId>,
    told: BTreeMap<RegionId, Told>,
}

#[derive(Debug, Clone, Copy)]
struct Told {
    count: u64,
    position: Option<Position>,
    freshness: Freshness,
}

/// The pages of all regions becoming one.
#[derive(Debug, Default)]
pub(super) struct Pages {
    left: BTreeSet<RegionId>,
    told: BTreeMap<RegionId, Told>,
    /// As each region shows them.
    members: BTreeMap<UserId, Vec<Member>>,
    more: bool,
}

impl Pages {
    fn take(&mut self, members: impl Iterator<Item = Member>) {
        for member in members {
            self.members.entry(member.user.clone()).or_default().push(member);
        }
    }
}

/// How far a sweep has come, and what is held, by the store's clock.
pub(super) type Swept = (Option<StoreTime>, Option<HoldState>, StoreTime);

impl Driver {
    pub(super) fn ask_about_room(&mut self, key: QueryKey, query: Query, room: &RoomId) {
        let rosters = self.rosters_of(room);
        let left = rosters.iter().map(|roster| roster.region.clone()).collect();
        self.begin_query(key, query, Step::Settling(Asked { left, told: BTreeMap::new() }));
        for roster in rosters {
            self.summarise(key, roster);
        }
        self.attend_elsewhere(key, true);
    }

    /// Has what is kept elsewhere of a room that is asked about watched, or watched no longer.
    pub(super) fn attend_elsewhere(&mut self, key: QueryKey, begins: bool) {
        let Some(UnderWay { query, .. }) = self.queries.under_way.get(&key) else { return };
        let (room, level) = match query {
            Query::Room { room, .. } => (room.clone(), Level::Members),
            Query::Count { room } => (room.clone(), Level::Count),
            Query::Rooms { .. } | Query::Explain { .. } => return,
        };
        let regions: Vec<RegionId> = self.peers.regions().cloned().collect();
        for region in regions {
            let (roster, who) = (Roster { region, room: room.clone() }, (Who::Query(key), level));
            if begins {
                self.attend_peer(&roster, who);
            } else {
                self.neglect_peer(&roster, who);
            }
        }
    }

    /// What peers tell of a room; none: that is to be waited for.
    fn told_elsewhere(
        &self,
        room: &RoomId,
        (level, since): (Level, Mono),
    ) -> Option<BTreeMap<RegionId, Told>> {
        let is_late = self.now.since(since) >= PEER_ANSWER_WITHIN;
        let told = |region: &RegionId| {
            let roster = Roster { region: region.clone(), room: room.clone() };
            let copy = self.peer_copy(&roster);
            let count = match level {
                Level::Members => copy.map(|copy| copy.len() as u64),
                Level::Count => self.peers.count(&roster),
            };
            let freshness = self.freshness(&roster);
            let position = copy.and_then(Replica::position);
            match count {
                Some(count) => Some((region.clone(), Told { count, position, freshness })),
                None if is_late => {
                    let now = self.clock.latest(self.now).unwrap_or_default();
                    let freshness = Freshness::Stale { since: now.before(self.now.since(since)) };
                    Some((region.clone(), Told { count: 0, position: None, freshness }))
                }
                None => None,
            }
        };
        self.peers.regions().map(told).collect()
    }

    pub(super) fn on_room_summary(
        &mut self,
        key: QueryKey,
        roster: &Roster,
        (position, count): (Position, u64),
        (swept, hold, now): Swept,
    ) {
        let ttl = self.timings_of(&roster.room).lease_ttl;
        let held = hold.filter(|hold| is_held(Some(hold.since), ttl, now));
        if held.is_none() && !is_settled(swept, hold, ttl, now) {
            return self.settle(key, roster);
        }
        let freshness = held.map_or(Freshness::Live, |hold| Freshness::Held { since: hold.since });
        let Some(UnderWay { step: Step::Settling(asked), .. }) = self.queries.under_way.get_mut(&key) else {
            return;
        };
        asked.left.remove(&roster.region);
        let position = Some(position);
        asked.told.insert(roster.region.clone(), Told { count, position, freshness });
        if asked.left.is_empty() {
            self.settled(key);
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
        self.queries.later.insert((self.now + SETTLE_LOOK, key, roster.clone()));
    }

    /// All rosters of the room that are kept here are settled.
    fn settled(&mut self, key: QueryKey) {
        let Some(UnderWay { query, since, .. }) = self.queries.under_way.get(&key) else { return };
        let (room, level) = match query {
            Query::Room { room, .. } => (room, Level::Members),
            Query::Count { room } => (room, Level::Count),
            Query::Rooms { .. } | Query::Explain { .. } => return self.refuse_query(key),
        };
        let Some(elsewhere) = self.told_elsewhere(room, (level, *since)) else {
            let again = (self.now + SETTLE_LOOK, key, self.home(room));
            self.queries.later.insert(again);
            return;
        };
        let Some(UnderWay { query, step, .. }) = self.queries.under_way.get_mut(&key) else { return };
        let Step::Settling(asked) = step else { return };
        let here = std::mem::take(&mut asked.told);
        match query.clone() {
            Query::Room { room, after, count } => {
                let left: BTreeSet<RegionId> = here.keys().cloned().collect();
                let told = here.into_iter().chain(elsewhere).collect();
                *step = Step::Pages(Box::new(Pages { left: left.clone(), told, ..Pages::default() }));
                self.read_elsewhere(key);
                let count = count.clamp(1, QUERY_PAGE_MAX);
                for region in left {
                    let roster = Roster { region: region.clone(), room: room.clone() };
                    let command = Command::Load { roster, after: after.clone(), count };
                    self.ask(command, Pending::QueryPage(key, region));
                }
            }
            Query::Count { .. } => {
                let told: BTreeMap<_, _> = here.into_iter().chain(elsewhere).collect();
                let count = told.values().map(|told| told.count).sum();
                self.answer_query(key, Answer::Count { count, regions: regions(told) });
            }
            Query::Rooms { .. } | Query::Explain { .. } => self.refuse_query(key),
        }
    }

    /// The pages of copies, which are at hand.
    fn read_elsewhere(&mut self, key: QueryKey) {
        let Some(UnderWay { query: Query::Room { room, after, count }, .. }) =
            self.queries.under_way.get(&key)
        else {
            return;
        };
        let count = (*count).clamp(1, QUERY_PAGE_MAX);
        let copy = |region: &RegionId| {
            let roster = Roster { region: region.clone(), room: room.clone() };
            let copy = self.peer_copy(&roster)?;
            Some(copy.members_after(after.as_ref()).take(count + 1).cloned().collect::<Vec<_>>())
        };
        let read: Vec<Vec<Member>> = self.peers.regions().filter_map(copy).collect();
        let Some(UnderWay { step: Step::Pages(pages), .. }) = self.queries.under_way.get_mut(&key) else {
            return;
        };
        for page in read {
            pages.more |= page.len() > count;
            pages.take(page.into_iter().take(count));
        }
    }

    /// The page of one region.
    pub(in crate::driver) fn on_query_page(
        &mut self,
        key: QueryKey,
        region: &RegionId,
        result: Result<Outcome, StoreFault>,
    ) {
        let Some(UnderWay { step: Step::Pages(pages), .. }) = self.queries.under_way.get_mut(&key) else {
            return;
        };
        let Ok(Outcome::Page { position, members, more, .. }) = result else {
            return self.refuse_query(key);
        };
        pages.left.remove(region);
        pages.more |= more;
        if let Some(told) = pages.told.get_mut(region) {
            told.position = Some(position);
        }
        pages.take(members.into_iter().map(|(member, _)| member));
        if pages.left.is_empty() {
            self.answer_room(key);
        }
    }

    /// One list: of each region as many were read as it may be long, so none of its first is missing.
    fn answer_room(&mut self, key: QueryKey) {
        let Some(UnderWay { query: Query::Room { after, count, .. }, step: Step::Pages(pages), .. }) =
            self.queries.under_way.get_mut(&key)
        else {
            return self.refuse_query(key);
        };
        let (most, is_first) = ((*count).clamp(1, QUERY_PAGE_MAX), after.is_none());
        let Pages { told, members, more, .. } = std::mem::take(&mut **pages);
        let more = more || members.len() > most;
        // Who is in two regions is one member, which only the whole list tells.
        let count =
            if is_first && !more { members.len() as u64 } else { told.values().map(|told| told.count).sum() };
        let members = members.into_values().take(most).filter_map(|of_user| merged(&of_user)).collect();
        self.answer_query(key, Answer::Room { members, more, count, regions: regions(told) });
    }
}

fn regions(told: BTreeMap<RegionId, Told>) -> Vec<RegionNow> {
    let now = |(region, Told { position, freshness, .. })| RegionNow { region, position, freshness };
    told.into_iter().map(now).collect()
}

/// Whether a sweep has finished recently, and since the end of the last hold.
fn is_settled(swept: Option<StoreTime>, hold: Option<HoldState>, ttl: Duration, now: StoreTime) -> bool {
    let after_hold = |swept: StoreTime| hold.is_none_or(|hold| hold.since + ttl <= swept);
    swept.is_some_and(|swept| swept <= now && now.since(swept) <= SETTLED && after_hold(swept))
}
