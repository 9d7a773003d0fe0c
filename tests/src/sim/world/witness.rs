//! What is asked of the store and carried out, held against what may happen: the account of leases is kept
//! here, beside the store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use presence_core::driver::StoreOp;
use presence_core::store::{Command, Commit, CommitOutcome, LeaseDetail, Outcome, StoreFault};
use presence_model::change::{Change, Transition, TransitionKind};
use presence_model::class::Graces;
use presence_model::digest::Digest;
use presence_model::id::{ConnectionId, Incarnation, SessionId};
use presence_model::lease::{LeaseId, Shard};
use presence_model::position::Position;
use presence_model::reason::RemovalReason;
use presence_model::record::{LeaseState, SessionRecord};
use presence_model::time::{Mono, StoreTime};

use super::World;
use super::observe::PROPAGATION_ROUGH;
use crate::sim::guarantee::Guarantee;
use crate::sim::ledger::{Held, Who};
use crate::sim::place::{Place, Wish};

/// Times of the store are whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);
/// A hold may have started so long before the store was seen to be back.
const HOLD_SEEN_LATE: Duration = Duration::from_millis(500);
/// A deadline is computed from an estimate of the store's clock that is late by a round trip at most.
const ROUND_TRIP: Duration = Duration::from_millis(1_500);
/// An edge that is linked again may still be taken for lost for a moment.
const LINKED_SURELY: Duration = Duration::from_secs(3);

/// A lease and the deadline it is to have.
type Renewal = (LeaseId, StoreTime);

/// What of a command matters afterwards.
enum Matters {
    Commit(Commit),
    Renew(Vec<Renewal>, Vec<(LeaseId, Mono)>),
    Release(Vec<LeaseId>, Duration),
    Lose(Shard, Incarnation, Graces),
    Turn,
    Nothing,
}

impl World {
    /// Lets the store carry a command out.
    pub(super) fn carry_out(
        &mut self,
        (run, op): (u64, StoreOp),
        mut command: Command,
    ) -> Result<Outcome, StoreFault> {
        let now = self.now();
        let matters = match &command {
            Command::Commit(commit) => Matters::Commit(commit.clone()),
            Command::Renew { leases, .. } => Matters::Renew(leases.clone(), self.store.rests_on(run, op)),
            Command::Release { leases, grace, .. } => Matters::Release(leases.clone(), *grace),
            Command::Lose { shard, edge, graces, .. } => Matters::Lose(*shard, *edge, graces.clone()),
            Command::Turn { .. } => Matters::Turn,
            Command::Now { .. }
            | Command::Members { .. }
            | Command::Load { .. }
            | Command::Discard { .. }
            | Command::Distrust { .. }
            | Command::Audit { .. }
            | Command::Disown { .. }
            | Command::Link { .. }
            | Command::Unlink { .. }
            | Command::Forget { .. }
            | Command::DrainEdge { .. }
            | Command::Edges
            | Command::History { .. }
            | Command::Tail { .. }
            | Command::Leases { .. }
            | Command::Rooms { .. }
            | Command::Summary { .. }
            | Command::Seen { .. }
            | Command::RoomsOf { .. }
            | Command::Unlist { .. }
            | Command::Revoke { .. }
            | Command::Revoked { .. }
            | Command::Tidy { .. } => Matters::Nothing,
        };
        self.spoil_release(&mut command);
        let time = self.store.time(now);
        let outcome = self.store.store.apply(command, time);
        match (matters, &outcome) {
            (
                Matters::Commit(commit),
                Ok(Outcome::Commit(CommitOutcome::Applied { position, refused, .. })),
            ) => {
                let refused: BTreeSet<_> = refused.iter().map(|(user, _)| user).collect();
                if let Some(room) = self.names.room(commit.roster.room.as_str()) {
                    let applied = commit.changes.iter().filter(|change| !refused.contains(&change.user));
                    let applied: Vec<&Change> = applied.collect();
                    self.committed(room, &applied, *position);
                }
            }
            (Matters::Renew(leases, heard), Ok(Outcome::Renewed { unknown, .. })) => {
                self.renewed(run, (&leases, &heard), unknown);
            }
            (Matters::Release(leases, grace), Ok(_)) => self.released(&leases, grace),
            (Matters::Turn, Ok(_)) => self.somebody_sweeps(),
            (Matters::Lose(shard, edge, graces), Ok(_)) => self.lost(shard, edge, &graces),
            _ => {}
        }
        outcome
    }

    fn details(&mut self, leases: impl IntoIterator<Item = LeaseId>) -> Vec<LeaseDetail> {
        let now = self.now();
        let mut by_shard: BTreeMap<Shard, Vec<LeaseId>> = BTreeMap::new();
        for lease in leases {
            by_shard.entry(lease.shard()).or_default().push(lease);
        }
        let mut details = Vec::new();
        for (shard, leases) in by_shard {
            if let Some(Outcome::Leases { leases, .. }) =
                self.store.peek(Command::Leases { shard, leases }, now)
            {
                details.extend(leases);
            }
        }
        details
    }

    /// A renewal extends what its edge holds, by one ttl from when a core heard of it, and nothing else.
    fn renewed(&mut self, run: u64, (leases, heard): (&[Renewal], &[(LeaseId, Mono)]), unknown: &[LeaseId]) {
        let (now, store_time) = (self.now(), self.store_time());
        let core = self.place_of(run).map(|place| &self.cores[place]);
        let knows_the_clock = core.is_some_and(|core| now.since(core.unable_at) > LINKED_SURELY);
        self.story.count("renewal");
        for (lease, deadline) in leases {
            if unknown.contains(lease) {
                continue;
            }
            let at = heard.iter().find(|(of, _)| of == lease).map_or(now, |(_, at)| *at);
            let Some(held) = self.ledger.leases.get_mut(lease) else {
                self.breach(Guarantee::G6, format!("a renewal of {lease} is accepted, which is over"));
                continue;
            };
            let who = held.who;
            if held.in_grace {
                self.breach(
                    Guarantee::G6,
                    format!("a renewal of {lease} of u{} is accepted, which was given up", who.1),
                );
                continue;
            }
            let carries = deadline.since(store_time);
            let until = at + lease.ttl();
            held.accepted = at.max(held.accepted);
            // A core that hears nothing of the store knows of no step of its clock, and so asks for less. It
            // acknowledges nothing either: its edge says it again elsewhere.
            held.until = held.until.max(if knows_the_clock { until } else { until.min(now + carries) });
            held.lost = false;
            let may = (at + lease.ttl() + ROUND_TRIP).since(now);
            // A core learns of a step with the next answer; until then the store cuts deadlines back. One that has
            // only had slow answers knows the clock no better than they were slow.
            let stepped = self.eye.stepped.is_some_and(|stepped| stepped + LINKED_SURELY >= at);
            if carries > may && knows_the_clock && !stepped {
                let what = format!(
                    "a renewal of u{} heard {} ms ago carries for {} ms more",
                    who.1,
                    now.since(at).as_millis(),
                    carries.as_millis()
                );
                self.breach(Guarantee::G3, what);
            }
        }
    }

    /// A transport was given up: grace runs.
    fn released(&mut self, leases: &[LeaseId], grace: Duration) {
        let now = self.now();
        let details = self.details(leases.iter().copied());
        for detail in details {
            let lease = detail.lease;
            let Some(held) = self.ledger.leases.get_mut(&lease) else { continue };
            if held.in_grace || !matches!(detail.state, LeaseState::Grace { .. }) {
                continue;
            }
            let until = if held.lost { held.accepted + lease.ttl() } else { held.until };
            held.until = until.min(now + grace);
            (held.in_grace, held.lost) = (true, false);
            let (who, session, connection) = (held.who, held.session.clone(), held.connection);
            let attempt = held.generation.0;
            let newest =
                self.ledger.of_connection(who, connection).is_some_and(|(newest, _)| newest == lease);
            // What a store that lost its last commits has of an attempt before is the edge's to give up.
            let current = self.tab_place(connection, who.0).is_some_and(|place| place.generation == attempt);
            if newest && current && self.is_in(who, &session, connection) {
                let what = format!("u{} is given up in r{}, but its connection stands", who.1, who.0);
                self.breach(Guarantee::G2, what);
            }
        }
    }

    /// Whether a tab is in a room with a session, over a connection that stands as far as both ends know.
    fn is_in(&self, (room, _): Who, session: &SessionId, connection: ConnectionId) -> bool {
        let place = self.tab_place(connection, room);
        let is_in = |place: &Place| place.joined && place.wish == Wish::In && place.session == *session;
        self.stands(connection) && place.is_some_and(is_in)
    }

    /// The place in a room of the tab whose socket this is.
    fn tab_place(&self, connection: ConnectionId, room: usize) -> Option<&Place> {
        let tab = &self.tabs[self.sockets.get(&connection)?.tab];
        tab.places.iter().find(|place| place.room == room)
    }

    /// An edge is taken for lost.
    fn lost(&mut self, shard: Shard, edge: Incarnation, graces: &Graces) {
        let now = self.now();
        let of_edge = |(lease, held): (&LeaseId, &Held)| {
            (held.edge == edge && !held.in_grace && lease.shard() == shard).then_some(*lease)
        };
        let leases: Vec<LeaseId> = self.ledger.leases.iter().filter_map(of_edge).collect();
        let mut shortened = 0;
        for detail in self.details(leases) {
            let Some(held) = self.ledger.leases.get_mut(&detail.lease) else { continue };
            let noted = detail.shortened.is_some_and(|note| note.deadline == detail.state.deadline());
            if noted && !held.lost {
                held.lost = true;
                held.until = held.until.min(now + graces.of(detail.lease.ttl()));
                shortened += 1;
            }
        }
        if shortened == 0 {
            return;
        }
        self.note("edge lost", &format!("{edge}: {shortened} leases"));
        let place = self
            .edges
            .iter()
            .position(|slot| slot.process.as_ref().is_some_and(|process| process.incarnation == edge));
        if let Some(place) = place
            && now.since(self.edges[place].unable_at) > LINKED_SURELY
        {
            let what = format!("edge{place} is taken for lost, but it is linked");
            self.breach(Guarantee::G2, what);
        }
    }

    /// Changes were applied as one revision.
    fn committed(&mut self, room: usize, changes: &[&Change], position: Position) {
        if changes.is_empty() {
            return;
        }
        for change in changes {
            let Some(user) = self.names.user(change.user.as_str()) else { continue };
            self.judge_change((room, user), change);
            self.apply((room, user), change);
        }
        let (now, store_time) = (self.now(), self.store_time());
        self.ledger.look(now, store_time);
        self.record_roster(room, position);
    }

    fn judge_change(&mut self, who: Who, change: &Change) {
        self.looked_at(Guarantee::G7);
        for transition in &change.transitions {
            match transition.kind {
                TransitionKind::Joined => self.judge_joined(who, change, transition),
                TransitionKind::Updated => {}
                TransitionKind::Ended(ending) => self.judge_ended(who, change, (transition, ending.reason)),
            }
        }
        let now = self.now();
        let ends = |session: &SessionId| {
            let of_it = |transition: &&Transition| transition.session == *session;
            change.transitions.iter().filter(of_it).any(|transition| transition.kind.ending().is_some())
        };
        let kept = |held: &Held| {
            let sessions = change.record.iter().flat_map(|record| &record.sessions);
            ends(&held.session) || sessions.into_iter().any(|session| session.session == held.session)
        };
        let dropped: Vec<String> = self
            .ledger
            .carrying(who, now)
            .filter(|(_, held)| !kept(held))
            .map(|(_, held)| held.session.to_string())
            .collect();
        if !dropped.is_empty() {
            let what = format!("u{} leaves r{} though it is there with {}", who.1, who.0, dropped.join(", "));
            self.breach(Guarantee::G7, what);
        }
    }

    fn judge_joined(&mut self, who: Who, change: &Change, transition: &Transition) {
        let (now, (room, user)) = (self.now(), who);
        self.looked_at(Guarantee::G6);
        let Transition { session, generation, connection, .. } = transition;
        let about = format!("u{user} in r{room} with {session} g{generation}");
        let owner = self.eye.owners.get(connection).map(|tab| self.tabs[*tab].user);
        if owner != Some(user) || !self.eye.may_join(*connection, room) {
            self.breach(Guarantee::G10, format!("{about} over a connection of {owner:?}"));
        }
        let mut sessions = change.record.iter().flat_map(|record| &record.sessions);
        let token = sessions.find(|own| own.session == *session).map(|own| &own.token);
        let slack = self.eye.bound(now);
        if token.is_some_and(|token| self.eye.must_be_over(&self.names.users[user], token, slack, now)) {
            self.breach(Guarantee::G10, format!("{about} joins with a token that is revoked"));
        }
        if let Some((newest, over)) = self.ledger.attempts.get(&(who, session.clone()))
            && (newest > generation || (newest == generation && over != connection))
        {
            self.breach(Guarantee::G6, format!("{about} joins behind g{newest}"));
        }
        if let Some((ended, reason)) = self.ledger.over.get(&(who, session.clone()))
            && (ended > generation || (ended == generation && !reason.is_silence_of_the_edge()))
        {
            self.breach(Guarantee::G6, format!("{about} comes back after g{ended} ended: {reason}"));
        }
        let barred = self.ledger.barred.get(&(who, session.clone()));
        if barred.is_some_and(|(from, until)| *from < now && now < *until)
            && self.eye.stepped < barred.map(|(from, _)| *from)
        {
            self.breach(Guarantee::G6, format!("{about} comes back though it was put out"));
        }
        if self.ledger.carrying(who, now).next().is_some()
            && now > self.ledger.truth(who).map_or(now, |t| t.since_in_doubt)
        {
            let (before, after) = (&change.before, change.record.as_ref().map(|record| record.since));
            // A re-join may know better: then it was here longer.
            if before.as_ref().map(|member| member.since) < after {
                self.breach(Guarantee::G8, format!("{about}: since {before:?}, and now {after:?}"));
            }
        }
    }

    fn judge_ended(&mut self, who: Who, change: &Change, (transition, reason): (&Transition, RemovalReason)) {
        let (now, (room, user)) = (self.now(), who);
        let Transition { session, generation, .. } = transition;
        let about = format!("u{user} in r{room} with {session} g{generation}");
        let broken = match reason {
            RemovalReason::Left => {
                let said = self.eye.goodbyes.contains_key(&(who, session.clone()));
                let stands = self.is_in(who, session, transition.connection);
                let guarantee = if stands { Guarantee::G2 } else { Guarantee::G8 };
                (!said).then(|| (guarantee, "ends as left, but nobody said goodbye".to_owned()))
            }
            RemovalReason::Evicted => {
                let asked = self.eye.evictions.contains_key(&who);
                (!asked).then(|| (Guarantee::G6, "is put out, but nobody asked for that".to_owned()))
            }
            RemovalReason::Superseded => {
                let newer = change.transitions.iter().any(|other| {
                    other.kind == TransitionKind::Joined
                        && other.session == *session
                        && other.generation > *generation
                });
                (!newer).then(|| (Guarantee::G6, "is superseded, but by nobody newer".to_owned()))
            }
            RemovalReason::TokenExpired => {
                let ends = self.ledger.leases.get(&transition.lease).map(|held| held.token_ends);
                let early = ends.is_some_and(|ends| self.store_time() < ends);
                early.then(|| (Guarantee::G2, "ends with a token that is in force".to_owned()))
            }
            RemovalReason::TokenRevoked => {
                let asked = self.rests_on_revoked(room, transition);
                (!asked).then(|| (Guarantee::G2, "ends as revoked, but nobody asked for that".to_owned()))
            }
            RemovalReason::RegionLost => {
                Some((Guarantee::G2, format!("ends for a reason nobody gave: {reason}")))
            }
            RemovalReason::ConnectionLost | RemovalReason::LeaseExpired | RemovalReason::EdgeLost => {
                self.judge_silence(who, transition, reason)
            }
        };
        if let Some((guarantee, what)) = broken {
            self.breach(guarantee, format!("{about} {what}"));
        }
        if reason == RemovalReason::Evicted {
            // It counts from when that was decided: the store may have taken its time.
            let tombstone = change.tombstones.iter().find(|(of, _)| of == session);
            let ago = tombstone.map_or(Duration::ZERO, |(_, told)| self.store_time().since(told.ended));
            let until = now + (self.timings.lease_ttl * 2).saturating_sub(ago);
            self.ledger.barred.insert((who, session.clone()), (now, until));
        }
    }

    /// Whether somebody asked for the end of what a session rests on: as its record says, or as its edge has taken from
    /// it, which the record has yet to say.
    fn rests_on_revoked(&self, room: usize, transition: &Transition) -> bool {
        let held = self.ledger.leases.get(&transition.lease);
        let rests_on = held.map(|held| (&self.names.users[held.who.1], &held.rests_on));
        let shown = self.eye.shown(transition.connection, room).iter();
        let shown =
            shown.filter_map(|token| self.tokens.get(*token)).map(|claims| (&claims.user, &claims.token));
        rests_on.into_iter().chain(shown).any(|(user, token)| self.eye.may_be_revoked(user, token))
    }

    /// A session ends for silence: its lease has run out, in true time, and not in a hold.
    fn judge_silence(
        &self,
        who: Who,
        transition: &Transition,
        reason: RemovalReason,
    ) -> Option<(Guarantee, String)> {
        let now = self.now();
        let held = self.ledger.leases.get(&transition.lease)?;
        let stands = self.is_in(who, &held.session, held.connection);
        let guarantee = if stands || !held.in_grace { Guarantee::G2 } else { Guarantee::G8 };
        let slack = ROUNDING + self.eye.slack(now);
        if now + slack < held.until {
            let left = held.until.since(now).as_millis();
            return Some((guarantee, format!("ends ({reason}) {left} ms before its lease does")));
        }
        let ttl = self.timings.lease_ttl;
        if let Some(back) =
            self.eye.came_back(who.0).filter(|back| now + slack + HOLD_SEEN_LATE < *back + ttl)
        {
            let ago = now.since(back).as_millis();
            return Some((Guarantee::G2, format!("ends ({reason}) {ago} ms after the store came back")));
        }
        let edge = self.sockets.get(&held.connection).map(|socket| &self.edges[socket.edge]);
        if stands && edge.is_some_and(|edge| now.since(edge.unable_at) > ttl) {
            return Some((
                Guarantee::G2,
                format!("ends ({reason}) though its edge could speak for it all the while"),
            ));
        }
        None
    }

    fn apply(&mut self, who: Who, change: &Change) {
        let now = self.now();
        for transition in &change.transitions {
            if let TransitionKind::Ended(ending) = transition.kind {
                self.story.count(ending.reason.as_str());
                self.ledger.ended(who, (&transition.session, transition.generation), ending.reason, now);
            }
        }
        for lease in &change.revokes {
            self.ledger.remove(*lease);
        }
        for (lease, ends) in &change.token_ends {
            if let Some(held) = self.ledger.leases.get_mut(lease) {
                held.token_ends = *ends;
                let session = change.record.as_ref().and_then(|record| record.session_of(*lease));
                if let Some(session) = session {
                    held.rests_on = session.token.clone();
                }
            }
        }
        for grant in &change.grants {
            let session = change.record.as_ref().and_then(|record| record.session_of(grant.lease));
            if let Some(session) = session {
                let held = held(who, session, (now, now + grant.lease.ttl()), false);
                self.ledger.grant(grant.lease, held);
            }
        }
        if !change.grants.is_empty() {
            // Once somebody brings the member back, nobody knows of sessions whose connection is gone.
            for connection in self.ledger.forgotten(who) {
                if !self.stands(connection) {
                    self.ledger.waive_connection(who, connection);
                }
            }
        }
        let silent = |transition: &Transition| match transition.kind {
            TransitionKind::Ended(ending) => {
                ending.reason.is_silence_of_the_edge() || ending.reason == RemovalReason::ConnectionLost
            }
            TransitionKind::Joined | TransitionKind::Updated => false,
        };
        if change.record.is_none() && !change.transitions.iter().any(silent) {
            self.ledger.removed(who, now);
        }
        self.ledger.stored(who, change.record.is_some(), now);
    }

    /// Notes what a roster is at a position: that never was anything else, and adds up.
    fn record_roster(&mut self, room: usize, position: Position) {
        let now = self.now();
        let roster = self.names.roster(room);
        if let Some(newest) = self.eye.newest(room, position).filter(|newest| *newest >= position) {
            return self.breach(Guarantee::G4, format!("r{room} was at {newest}, and now at {position}"));
        }
        let load = Command::Load { roster, after: None, count: usize::MAX / 2 };
        let Some(Outcome::Page { members, digest, .. }) = self.store.peek(load, now) else { return };
        self.looked_at(Guarantee::G4);
        let whole = Digest::of_all(members.iter().map(|(member, _)| member));
        if whole != digest {
            self.breach(Guarantee::G5, format!("r{room} at {position} is not what its digest says"));
        }
        if self.eye.note_roster(room, position, whole).is_some() {
            self.breach(Guarantee::G4, format!("r{room} was something else at {position} before"));
        }
    }

    /// The store's data may be other data now: what it has is what counts.
    pub(super) fn take_stock(&mut self, rooms: &[usize]) {
        let now = self.now();
        let mut copy = self.store.store.clone();
        let time = self.store.time(now);
        let ttl = self.timings.lease_ttl;
        for shard in 0..self.store.shards() {
            let turn = Command::Turn {
                shard: Shard(u8::try_from(shard).unwrap_or(0)),
                holder: 1,
                finished: None,
                kept: Duration::ZERO,
                smallest_ttl: ttl,
                takeover: ttl,
                stepped: false,
                known: None,
                portion: 0,
            };
            // It settles what is read below; there is nothing to learn from it.
            let _ = copy.apply(turn, time);
        }
        let mut stored = BTreeMap::new();
        for room in rooms.iter().copied() {
            let members =
                Command::Members { roster: self.names.roster(room), users: self.names.users.clone() };
            let Ok(Outcome::Members { members, .. }) = copy.apply(members, time) else { continue };
            for member in members {
                let Some(user) = self.names.user(member.user.as_str()) else { continue };
                self.ledger.stored((room, user), member.record.is_some(), now);
                for session in member.record.iter().flat_map(|record| &record.sessions) {
                    let in_grace =
                        matches!(member.leases.get(&session.lease), Some(LeaseState::Grace { .. }));
                    stored.insert(session.lease, held((room, user), session, (now, now + ttl), in_grace));
                }
            }
        }
        self.ledger.data_lost(rooms, stored, ttl, now);
        self.keep_bars();
        let known = self.cores.iter().any(|slot| slot.process.is_some());
        self.eye.forget_revoked(known, now);
    }

    /// Who was put out stays out, as long as a core is left that heard of it: one that stands still since before did not.
    fn keep_bars(&mut self) {
        let (now, cores) = (self.now(), &self.cores);
        self.ledger.barred.retain(|_, (from, _)| {
            let heard = |unable_at: Mono| unable_at < *from || now.since(unable_at) > PROPAGATION_ROUGH;
            cores.iter().any(|slot| slot.process.is_some() && heard(slot.unable_at))
        });
    }
}

fn held(who: Who, session: &SessionRecord, (accepted, until): (Mono, Mono), in_grace: bool) -> Held {
    Held {
        who,
        session: session.session.clone(),
        generation: session.generation,
        connection: session.connection,
        edge: session.edge.incarnation,
        accepted,
        until,
        in_grace,
        lost: false,
        token_ends: session.token.ends,
        rests_on: session.token.clone(),
    }
}
