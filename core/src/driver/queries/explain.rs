//! Why somebody is shown or not: looked for region by region, among the rosters that are kept here.

use presence_model::id::{Roster, UserId};
use presence_model::lease::LeaseId;
use presence_model::position::Position;
use presence_model::record::MemberRead;
use presence_model::time::StoreTime;

use super::{Step, UnderWay};
use crate::driver::store_ops::Pending;
use crate::driver::{Answer, Driver, Effect, Explained, Query, QueryKey};
use crate::store::{Command, LeaseDetail};

/// What was found in a roster.
#[derive(Debug)]
pub(super) struct Found {
    roster: Roster,
    read: MemberRead,
    position: Position,
}

/// Rosters that are being looked at, one after the other.
#[derive(Debug)]
pub(super) struct Looking {
    at: Roster,
    /// To be looked at after it; the next one is the last of them.
    left: Vec<Roster>,
    /// Of those before it, the one that says most.
    best: Option<Found>,
}

impl Found {
    /// A session says more than what has ended, and that more than nothing.
    fn weight(&self) -> (bool, bool) {
        (self.read.record.is_some(), !self.read.tombstones.is_empty())
    }
}

impl Driver {
    /// Looks for a member in the home region first.
    pub(super) fn look_for_member(&mut self, key: QueryKey, query: Query) {
        let Query::Explain { room, user } = &query else { return self.refuse_query(key) };
        let (user, at) = (user.clone(), self.home(room));
        let left = self.rosters_of(room).into_iter().filter(|roster| *roster != at).rev().collect();
        self.begin_query(key, query, Step::Member(Box::new(Looking { at: at.clone(), left, best: None })));
        self.read_member(key, at, user);
    }

    fn read_member(&mut self, key: QueryKey, roster: Roster, user: UserId) {
        self.ask(Command::Members { roster, users: vec![user] }, Pending::Query(key));
    }

    pub(super) fn on_member(
        &mut self,
        key: QueryKey,
        members: Vec<MemberRead>,
        position: Position,
        now: StoreTime,
    ) {
        let Some(UnderWay { query: Query::Explain { user, .. }, step, .. }) =
            self.queries.under_way.get_mut(&key)
        else {
            return self.refuse_query(key);
        };
        let Step::Member(looking) = step else { return self.refuse_query(key) };
        let user = user.clone();
        let read = members.into_iter().next().unwrap_or_else(|| MemberRead::absent(user.clone()));
        let found = Found { roster: looking.at.clone(), read, position };
        let best = match looking.best.take() {
            Some(best) if best.weight() >= found.weight() => best,
            Some(_) | None => found,
        };
        if best.read.record.is_none()
            && let Some(next) = looking.left.pop()
        {
            (looking.at, looking.best) = (next.clone(), Some(best));
            return self.read_member(key, next, user);
        }
        let sessions = best.read.record.iter().flat_map(|record| &record.sessions);
        let leases: Vec<LeaseId> = sessions.map(|session| session.lease).collect();
        let roster = best.roster.clone();
        *step = Step::Leases(Box::new(best));
        if leases.is_empty() {
            return self.on_leases(key, Vec::new(), now);
        }
        let shard = self.shard(&roster);
        self.ask(Command::Leases { shard, leases }, Pending::Query(key));
    }

    pub(super) fn on_leases(&mut self, key: QueryKey, leases: Vec<LeaseDetail>, now: StoreTime) {
        let Some(UnderWay { step: Step::Leases(found), .. }) = self.end_query(key) else {
            return self.refuse_query(key);
        };
        let Found { roster, read, position } = *found;
        let leases = leases.into_iter().map(|l| (l.lease, l.state, l.shortened)).collect();
        let freshness = self.freshness(&roster);
        let class = self.settings.classes.of(&roster.room).map(|class| (class.name.clone(), class.timings));
        let region = roster.region;
        let explained = Explained { region, read, leases, position, freshness, now, class };
        self.out.push(Effect::Answer(key, Ok(Answer::Explain(Box::new(explained)))));
    }
}
