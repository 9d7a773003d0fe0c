//! An operator: asks about rooms and people, and puts somebody out.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_core::driver::{Answer, Explained, Input, Query, QueryKey, QueryRefusal};
use presence_model::profile::Member;
use presence_model::reason::RemovalReason;
use presence_model::replica::Freshness;
use presence_model::revocation::Revocation;
use presence_model::time::Mono;
use rand::RngExt as _;

use super::revoked::Revoked;
use super::{Event, World};
use crate::sim::chance::Chance;
use crate::sim::guarantee::Guarantee;
use crate::sim::ledger::{Ended, Who};

/// Between two questions.
const ASKS_EVERY: Duration = Duration::from_millis(1_300);
/// Entries of a page that is larger than any room.
const PAGE: usize = 1_000;
/// A core that is asked while it cannot tell the time tells it later, or not at all.
const ASKED_WITHIN: Duration = Duration::from_secs(2);
/// A core answers within this.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// Longer than any night.
const FOR_LONG: Duration = Duration::from_secs(24 * 60 * 60);

/// What was asked, and what was known then.
#[derive(Debug)]
struct Asked {
    at: Mono,
    /// Which core.
    run: u64,
    what: Asks,
}

#[derive(Debug)]
enum Asks {
    Room(usize),
    Explain(Who),
    Evict(Who),
    /// By its place in the account of what was revoked.
    Revoke(usize),
}

pub(super) struct Operator {
    chance: Chance,
    number: u64,
    asked: BTreeMap<QueryKey, Asked>,
}

impl Operator {
    pub(super) fn new(chance: Chance) -> Self {
        Self { chance, number: 0, asked: BTreeMap::new() }
    }
}

impl World {
    /// A core that runs, by chance.
    fn some_core(&mut self) -> Option<u64> {
        let runs: Vec<u64> =
            self.cores.iter().filter_map(|slot| slot.process.as_ref()).map(|core| core.run).collect();
        if runs.is_empty() {
            return None;
        }
        Some(runs[self.operator.chance.random_range(0..runs.len())])
    }

    fn ask_about(&mut self, run: u64, what: Asks) -> QueryKey {
        self.operator.number += 1;
        let key = QueryKey(self.operator.number);
        let at = self.wires.now;
        self.operator.asked.insert(key, Asked { at, run, what });
        key
    }

    pub(super) fn question(&mut self) {
        self.wires.after(ASKS_EVERY, Event::Question);
        let chance = &mut self.operator.chance;
        let room = chance.random_range(0..self.names.rooms.len());
        let user = chance.random_range(0..self.names.users.len());
        let explains = chance.random_bool(0.5);
        let Some(run) = self.some_core() else { return };
        let name = self.names.rooms[room].clone();
        let (what, query) = if explains {
            (Asks::Explain((room, user)), Query::Explain { room: name, user: self.names.users[user].clone() })
        } else {
            (Asks::Room(room), Query::Room { room: name, after: None, count: PAGE })
        };
        let key = self.ask_about(run, what);
        self.wires.after(Duration::from_millis(1), Event::Asked(run, key, query));
    }

    pub(super) fn asked(&mut self, run: u64, key: QueryKey, query: Query) {
        self.feed_core(run, Input::Query(key, query));
    }

    pub(super) fn evict(&mut self, user: usize, room: usize) {
        let Some(run) = self.some_core() else { return };
        self.eye.evictions.insert((room, user), self.wires.now);
        if self.is_awake(run) {
            let key = self.ask_about(run, Asks::Evict((room, user)));
            let (room, user) = (self.names.rooms[room].clone(), self.names.users[user].clone());
            self.feed_core(run, Input::Evict(key, room, user));
        }
    }

    /// Revokes the token that a tab was given last.
    pub(super) fn revoke_token(&mut self, tab: usize) {
        let user = &self.names.users[self.tabs[tab].user];
        let newest = self.tokens.iter().rev().find(|claims| claims.user == *user);
        if let Some(id) = newest.map(|claims| claims.token.token_id.clone()) {
            self.revoke(Revocation::Token(id), FOR_LONG);
        }
    }

    /// Revokes the key that signs; the next one signs already.
    pub(super) fn revoke_key(&mut self) {
        let key = self.key_id();
        self.keys_revoked += 1;
        self.revoke(Revocation::Key(key.into()), FOR_LONG);
    }

    pub(super) fn key_id(&self) -> String {
        format!("k{}", self.keys_revoked)
    }

    pub(super) fn revoke(&mut self, what: Revocation, span: Duration) {
        let Some(run) = self.some_core() else { return };
        let (asked, place) = (self.wires.now, self.eye.revoked.len());
        let until = self.store.latest_time(asked) + span + ASKED_WITHIN;
        self.eye.revoked.push(Revoked { what: what.clone(), asked, answered: None, span, until });
        if self.is_awake(run) {
            let key = self.ask_about(run, Asks::Revoke(place));
            self.feed_core(run, Input::Revoke(key, what, span));
        }
    }

    /// Whether a core hears what it is asked.
    fn is_awake(&self, run: u64) -> bool {
        let core = self.place_of(run).and_then(|place| self.cores[place].process.as_ref());
        core.is_some_and(|core| core.asleep.is_none())
    }

    pub(super) fn answered(&mut self, key: QueryKey, answer: Result<Answer, QueryRefusal>) {
        let Some(asked) = self.operator.asked.remove(&key) else {
            return self.breach(Guarantee::G11, format!("question {} is answered twice", key.0));
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(refusal) => return self.judge_refused(&asked, refusal),
        };
        match (asked.what, answer) {
            (Asks::Room(room), Answer::Room { members, regions, count, .. }) => {
                self.story.count("read");
                let freshness = regions.first().map_or(Freshness::Live, |region| region.freshness);
                self.judge_read((room, asked.at), &members, count, freshness);
            }
            (Asks::Explain(who), Answer::Explain(explained)) => {
                self.story.count("explained");
                self.judge_explained(who, asked.at, &explained);
            }
            (Asks::Evict((room, user)), Answer::Evicted { sessions }) => {
                self.note("evicted", &format!("u{user} from r{room}: {sessions} sessions"));
            }
            (Asks::Revoke(place), Answer::Revoked { .. }) => {
                self.eye.revoked[place].answered = Some(self.wires.now);
                let what = self.eye.revoked[place].what.to_string();
                self.note("revoked", &what);
            }
            (Asks::Room(_) | Asks::Explain(_) | Asks::Evict(_) | Asks::Revoke(_), answer) => {
                self.breach(Guarantee::G12, format!("question {} is answered by {answer:?}", key.0));
            }
        }
    }

    /// A core that can work answers (G12): one that is told to go does not, nor do others on rough days.
    fn judge_refused(&mut self, asked: &Asked, refusal: QueryRefusal) {
        self.story.count("refused question");
        let core = self.place_of(asked.run).and_then(|place| self.cores[place].process.as_ref());
        if self.now() >= self.eye.rough_until && core.is_some_and(|core| !core.draining) {
            let what = format!("on a calm day {:?} is answered by {refusal:?}", asked.what);
            self.breach(Guarantee::G12, what);
        }
    }

    /// Nobody waits for an answer of a core that runs.
    pub(super) fn answers_at_rest(&mut self) {
        let (now, cores) = (self.now(), &self.cores);
        let runs = |run| cores.iter().filter_map(|slot| slot.process.as_ref()).any(|core| core.run == run);
        let late = |asked: &&Asked| now.since(asked.at) > ANSWERS_WITHIN && runs(asked.run);
        if let Some(asked) = self.operator.asked.values().find(late) {
            let what = format!(
                "{:?} was asked {} ms ago, and never answered",
                asked.what,
                now.since(asked.at).as_millis()
            );
            self.breach(Guarantee::G12, what);
        }
    }

    /// Who is read is backed, or was a second ago (G1); who is there is read (G5).
    fn judge_read(&mut self, (room, asked): (usize, Mono), members: &[Member], count: u64, fresh: Freshness) {
        let now = self.now();
        let touched = self.ledger.members.iter().any(|(who, truth)| who.0 == room && truth.touched >= asked);
        if count != members.len() as u64 && !touched {
            self.breach(
                Guarantee::G5,
                format!("r{room} is said to have {count} members, but {members:?} are read"),
            );
        }
        if fresh != Freshness::Live || self.eye.was_held(room, asked) {
            return;
        }
        let within = Duration::from_secs(1) + now.since(asked) + Duration::from_millis(10);
        for user in 0..self.names.users.len() {
            let Some(truth) = self.ledger.truth((room, user)) else { continue };
            let listed = members.iter().any(|member| member.user == self.names.users[user]);
            let known_for = now.since(truth.since);
            if listed && !truth.present && known_for > within {
                let what = format!(
                    "u{user} is read in r{room} though nothing carries it for {} ms",
                    known_for.as_millis()
                );
                self.breach(if truth.token_over { Guarantee::G10 } else { Guarantee::G1 }, what);
            } else if !listed && truth.stored && now.since(truth.stored_since) > now.since(asked) {
                self.breach(Guarantee::G5, format!("u{user} is stored in r{room} and not read"));
            }
        }
    }

    /// For everybody shown, and everybody gone not long ago, the reason is told (G12).
    fn judge_explained(&mut self, who: Who, asked: Mono, explained: &Explained) {
        let (room, user) = who;
        let Some(truth) = self.ledger.truth(who) else { return };
        if truth.touched >= asked || self.ledger.lost_data.is_some_and(|at| at >= asked) {
            return;
        }
        self.story.count(Guarantee::G12.into());
        let about = format!("u{user} in r{room}");
        let record = explained.read.record.as_ref();
        if truth.stored != record.is_some() {
            let (is, told) = (if truth.stored { "there" } else { "gone" }, record.is_some());
            return self.breach(Guarantee::G12, format!("{about} is {is}, but a record is told: {told}"));
        }
        if record.is_some_and(|record| explained.leases.len() < record.sessions.len()) {
            let what = format!("{about} has sessions without a lease: {:?}", explained.leases);
            return self.breach(Guarantee::G12, what);
        }
        if let Some(Ended { session, reason, at }) = truth.ended.clone()
            && record.is_none()
            && at < asked
        {
            let told = explained.read.tombstones.get(&session).map(|tombstone| tombstone.reason);
            // Its edge may have said meanwhile that the client is gone.
            let gone = reason.is_silence_of_the_edge() && told == Some(RemovalReason::ConnectionLost);
            // An eviction keeps from coming back whom it finds ended by the silence of their edge, and says so.
            let put_out = reason.is_silence_of_the_edge()
                && told == Some(RemovalReason::Evicted)
                && self.eye.evictions.contains_key(&who);
            if told != Some(reason) && !gone && !put_out {
                let what = format!("{about} went as {reason} with {session}, but {told:?} is told");
                self.breach(Guarantee::G12, what);
            }
        }
    }
}
