//! What must be true of one roster, told as plainly as possible: who is there, with which sessions.
//!
//! It knows no changes, guards or leases, only when a session was heard and until when it counts.

use std::collections::BTreeMap;

use presence_model::id::{ConnectionId, Generation, SessionId, UserId};
use presence_model::lease::LeaseId;
use presence_model::link::RequestId;
use presence_model::member::{Join, Unanswered, Update};
use presence_model::profile::{Member, State, Status};
use presence_model::reason::RemovalReason;
use presence_model::record::TokenRef;
use presence_model::refusal::Refusal;
use presence_model::time::StoreTime;

use crate::build::{GRACE, TTL};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Live,
    /// Its edge was lost and has not been heard since.
    EdgeLost,
    Grace,
    /// Its lease vanished from the store.
    Missing,
}

#[derive(Debug, Clone)]
pub(crate) struct Sess {
    pub(crate) generation: Generation,
    pub(crate) connection: ConnectionId,
    pub(crate) request: RequestId,
    pub(crate) lease: LeaseId,
    edge: u64,
    status: Status,
    state: State,
    /// Counts changes of state over the whole roster.
    state_count: u64,
    pub(crate) life: Life,
    pub(crate) heard: StoreTime,
    pub(crate) until: StoreTime,
    token: TokenRef,
}

#[derive(Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) here: BTreeMap<UserId, (StoreTime, BTreeMap<SessionId, Sess>)>,
    pub(crate) ended: BTreeMap<(UserId, SessionId), Ended>,
    ended_at: BTreeMap<(UserId, SessionId), StoreTime>,
    changes: u64,
}

/// What ended last, or was forbidden.
type Ended = (Generation, ConnectionId, RemovalReason, RequestId);

/// Somebody who is gone: why, and when last heard.
pub(crate) type Gone = (RemovalReason, StoreTime);

impl Oracle {
    pub(crate) fn shown(&self) -> BTreeMap<UserId, Member> {
        let member = |(user, (since, sessions)): (&UserId, &(StoreTime, BTreeMap<SessionId, Sess>))| {
            let status = sessions.values().map(|s| s.status).max().expect("somebody here has a session");
            let latest = sessions.values().max_by_key(|s| s.state_count).expect("as above");
            let state = latest.state.clone();
            (user.clone(), Member { user: user.clone(), status, state, since: *since })
        };
        self.here.iter().map(member).collect()
    }

    fn find(&mut self, lease: LeaseId) -> Option<(UserId, SessionId, &mut Sess)> {
        self.here.iter_mut().find_map(|(user, (_, sessions))| {
            let (id, s) = sessions.iter_mut().find(|(_, s)| s.lease == lease)?;
            Some((user.clone(), id.clone(), s))
        })
    }

    pub(crate) fn session(&self, user: &UserId, session: &SessionId) -> Option<&Sess> {
        self.here.get(user)?.1.get(session)
    }

    /// The lease in force and whether the session had been there. `granted` is when the store knew.
    #[expect(clippy::too_many_lines, reason = "the rules of a join, one after the other")]
    pub(crate) fn join(
        &mut self,
        user: &UserId,
        join: &Join,
        now: StoreTime,
        granted: StoreTime,
    ) -> Result<(LeaseId, bool), Refusal> {
        if join.token.ends <= now {
            return Err(Refusal::TokenEnded);
        }
        let stored = self.session(user, &join.session).cloned();
        let ended = self.ended.get(&(user.clone(), join.session.clone())).copied();
        let highest = stored.as_ref().map(|s| s.generation).max(ended.map(|e| e.0)).unwrap_or(Generation(0));
        let generation = join.generation.unwrap_or_else(|| match (&stored, ended) {
            (Some(s), _) if s.connection == join.connection => s.generation,
            (_, Some((g, c, reason, request)))
                if c == join.connection
                    && (join.request <= request
                        || [
                            RemovalReason::ConnectionLost,
                            RemovalReason::LeaseExpired,
                            RemovalReason::EdgeLost,
                        ]
                        .contains(&reason)) =>
            {
                g
            }
            _ => Generation(highest.0 + 1),
        });
        let refused = |reason| match join.rejoin {
            Some(_) => Refusal::HasEnded { reason },
            None => Refusal::StaleGeneration { given: generation, stored: highest },
        };
        let itself = |s: &Sess| s.generation == generation && s.connection == join.connection;
        match &stored {
            Some(s) if itself(s) => {
                if join.request < s.request {
                    return Err(refused(RemovalReason::Superseded));
                }
                match ended {
                    Some((g, c, reason, request))
                        if g >= generation
                            && c == join.connection
                            && request >= join.request
                            && ![RemovalReason::LeaseExpired, RemovalReason::EdgeLost].contains(&reason) =>
                    {
                        return Err(refused(reason));
                    }
                    _ if join.request == s.request && s.life != Life::Missing => return Ok((s.lease, true)),
                    _ => {}
                }
            }
            Some(s) if s.generation >= generation => return Err(refused(RemovalReason::Superseded)),
            _ => {
                if let Some((g, c, reason, request)) = ended {
                    let silence = [RemovalReason::LeaseExpired, RemovalReason::EdgeLost].contains(&reason);
                    let barred = [RemovalReason::Evicted, RemovalReason::TokenRevoked].contains(&reason);
                    if g > generation && !barred {
                        return Err(refused(RemovalReason::Superseded));
                    }
                    let as_it_was = silence && join.request >= request;
                    let anew = join.request > request && join.rejoin.is_none() && !barred;
                    if g > generation || g == generation && !(c == join.connection && (as_it_was || anew)) {
                        return Err(refused(reason));
                    }
                }
            }
        }
        if stored.is_none() && self.is_put_out(user, &join.session, now) {
            return Err(Refusal::HasEnded { reason: RemovalReason::Evicted });
        }
        self.changes += 1;
        let state_count = match &stored {
            Some(s) if s.state == join.profile.state => s.state_count,
            _ => self.changes,
        };
        let session = Sess {
            generation,
            connection: join.connection,
            request: join.request,
            lease: join.lease,
            edge: join.edge.incarnation.0,
            status: join.profile.status,
            state: join.profile.state.clone(),
            state_count,
            life: Life::Live,
            heard: granted,
            until: granted + TTL,
            token: join.token.clone(),
        };
        let since = join.rejoin.unwrap_or(StoreTime(u64::MAX));
        let first = join.rejoin.unwrap_or(now);
        let (here_since, sessions) = self.here.entry(user.clone()).or_insert((first, BTreeMap::new()));
        *here_since = since.min(*here_since);
        sessions.insert(join.session.clone(), session);
        Ok((join.lease, stored.is_some()))
    }

    /// Whether an eviction keeps a session out.
    fn is_put_out(&self, user: &UserId, session: &SessionId, now: StoreTime) -> bool {
        let key = (user.clone(), session.clone());
        let evicted = self.ended.get(&key).is_some_and(|(_, _, reason, _)| *reason == RemovalReason::Evicted);
        evicted && now < self.ended_at[&key] + TTL + TTL
    }

    /// Whether anything changed.
    pub(crate) fn update(&mut self, user: &UserId, update: &Update, now: StoreTime) -> Result<bool, Refusal> {
        if !self.here.contains_key(user) {
            return Err(Refusal::NotPresent);
        }
        self.changes += 1;
        let changes = self.changes;
        let Some((_, _, s)) = self.find(update.lease).filter(|(of, ..)| of == user) else {
            return Err(Refusal::NotCurrent);
        };
        if s.life == Life::Grace || s.life == Life::Missing {
            return Err(Refusal::NotCurrent);
        }
        let token = update.token.clone().unwrap_or(s.token.clone());
        if token.ends <= now {
            return Err(Refusal::TokenEnded);
        }
        let status = update.status.unwrap_or(s.status);
        let state = update.state.clone().unwrap_or(s.state.clone());
        let changed = token != s.token || status != s.status || state != s.state;
        if state != s.state {
            s.state_count = changes;
        }
        (s.token, s.status, s.state) = (token, status, state);
        Ok(changed)
    }

    /// Ends one session; the member's ending if that was its last.
    pub(crate) fn end(
        &mut self,
        user: &UserId,
        session: &SessionId,
        reason: RemovalReason,
        now: StoreTime,
    ) -> Option<Gone> {
        let (_, sessions) = self.here.get_mut(user)?;
        let s = sessions.remove(session)?;
        if sessions.is_empty() {
            self.here.remove(user);
        }
        let key = (user.clone(), session.clone());
        let silence = [RemovalReason::LeaseExpired, RemovalReason::EdgeLost].contains(&reason);
        let later = |(g, c, _, request): &&Ended| {
            *g > s.generation || (*g, *c) == (s.generation, s.connection) && *request > s.request
        };
        let forbidden = self.ended.get(&key).filter(later).copied();
        let (generation, connection, _, request) =
            forbidden.unwrap_or((s.generation, s.connection, reason, s.request));
        if forbidden.is_none() || !silence {
            self.ended.insert(key.clone(), (generation, connection, reason, request));
            self.ended_at.insert(key, now);
        }
        (!self.here.contains_key(user)).then_some((reason, s.heard))
    }

    /// A goodbye is a word from the session.
    pub(crate) fn leave(
        &mut self,
        user: &UserId,
        lease: LeaseId,
        now: StoreTime,
    ) -> Result<Option<Gone>, Refusal> {
        if !self.here.contains_key(user) {
            return Err(Refusal::NotPresent);
        }
        let Some((_, session, s)) = self.find(lease).filter(|(of, ..)| of == user) else {
            return Err(Refusal::NotCurrent);
        };
        s.heard = now;
        Ok(self.end(user, &session, RemovalReason::Left, now))
    }

    pub(crate) fn evict(
        &mut self,
        user: &UserId,
        session: Option<&SessionId>,
        now: StoreTime,
    ) -> Option<Gone> {
        let concerned = |id: &SessionId| session.is_none_or(|s| s == id);
        let here = self.here.get(user).map(|(_, sessions)| sessions.clone()).unwrap_or_default();
        for ((of, id), (_, _, reason, _)) in &mut self.ended {
            let silence = [RemovalReason::LeaseExpired, RemovalReason::EdgeLost].contains(reason);
            if of == user && concerned(id) && silence && !here.contains_key(id) {
                *reason = RemovalReason::Evicted;
            }
        }
        let heard = here.iter().filter(|(id, _)| concerned(id)).map(|(_, s)| s.heard).max();
        for id in here.keys().filter(|id| concerned(id)) {
            self.end(user, id, RemovalReason::Evicted, now);
        }
        heard.filter(|_| !self.here.contains_key(user)).map(|heard| (RemovalReason::Evicted, heard))
    }

    /// Ends all whose time is over. In a hold that is only the time of tokens.
    pub(crate) fn sweep(&mut self, user: &UserId, now: StoreTime, held: bool) -> Option<Gone> {
        let mut over: Vec<(StoreTime, StoreTime, SessionId, RemovalReason)> = Vec::new();
        for (id, s) in self.here.get(user).iter().flat_map(|(_, sessions)| sessions) {
            let token_over = s.token.ends <= now && s.life != Life::Missing;
            let time_over = s.until <= now && !held && s.life != Life::Missing;
            let reason = match s.life {
                _ if token_over => RemovalReason::TokenExpired,
                Life::Grace => RemovalReason::ConnectionLost,
                Life::EdgeLost => RemovalReason::EdgeLost,
                Life::Live | Life::Missing => RemovalReason::LeaseExpired,
            };
            if token_over || time_over {
                let at = if token_over { s.token.ends } else { s.until };
                over.push((at, s.heard, id.clone(), reason));
            }
        }
        for (_, _, id, reason) in &over {
            self.end(user, id, *reason, now);
        }
        let (_, heard, _, reason) = over.into_iter().max()?;
        (!self.here.contains_key(user)).then_some((reason, heard))
    }

    /// Ends the sessions whose lease the auditor did not find.
    pub(crate) fn audit(&mut self, user: &UserId, now: StoreTime) {
        let here = self.here.get(user).map(|(_, sessions)| sessions.clone()).unwrap_or_default();
        for (id, _) in here.iter().filter(|(_, s)| s.life == Life::Missing) {
            self.end(user, id, RemovalReason::LeaseExpired, now);
        }
    }

    pub(crate) fn vanish(&mut self, lease: LeaseId) {
        if let Some((_, _, s)) = self.find(lease) {
            // When it was heard went with its lease.
            (s.life, s.heard) = (Life::Missing, StoreTime(u64::MAX));
        }
    }

    /// Whether there was such a session to renew.
    pub(crate) fn renew(&mut self, lease: LeaseId, now: StoreTime) -> bool {
        let Some((_, _, s)) = self.find(lease) else { return false };
        if s.life == Life::Grace || s.life == Life::Missing {
            return false;
        }
        (s.life, s.until, s.heard) = (Life::Live, now + TTL, now);
        true
    }

    pub(crate) fn release(&mut self, lease: LeaseId, now: StoreTime) {
        let Some((_, _, s)) = self.find(lease) else { return };
        match s.life {
            Life::Live => s.until = s.until.min(now + GRACE),
            // Released after all: as if the edge had not been lost.
            Life::EdgeLost => s.until = (s.heard + TTL).min(now + GRACE),
            Life::Grace | Life::Missing => return,
        }
        s.life = Life::Grace;
    }

    pub(crate) fn lose(&mut self, edge: u64, now: StoreTime) {
        for s in self.here.values_mut().flat_map(|(_, sessions)| sessions.values_mut()) {
            let alive = s.life == Life::Live || s.life == Life::EdgeLost;
            if s.edge == edge && alive && s.until > now + GRACE {
                s.until = now + GRACE;
                s.life = Life::EdgeLost;
            }
        }
    }

    /// A join that was never granted must never be; how the session ended that was there is still known.
    pub(crate) fn forbid(&mut self, user: &UserId, join: &Unanswered, granted: Generation, now: StoreTime) {
        let key = (user.clone(), join.session.clone());
        let silence = [RemovalReason::LeaseExpired, RemovalReason::EdgeLost];
        let known =
            self.ended.get(&key).map(|(_, _, reason, _)| *reason).filter(|reason| !silence.contains(reason));
        let told = known.filter(|_| join.generation.is_some() && self.session(user, &join.session).is_none());
        let reason = told.unwrap_or(RemovalReason::ConnectionLost);
        self.ended.insert(key.clone(), (granted, join.connection, reason, join.request));
        if told.is_none() {
            self.ended_at.insert(key, now);
        }
    }
}
