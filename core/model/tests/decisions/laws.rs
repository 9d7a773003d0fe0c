//! Laws over random lives, after every step: what is shown is what the oracle says (G1, G6, G7), what is
//! announced is what changed, and deciding twice changes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_model::change::{Change, Committed, TransitionKind};
use presence_model::digest::Digest;
use presence_model::id::{Incarnation, UserId};
use presence_model::lease::LeaseId;
use presence_model::member::{self, Abandoned, Join, Unanswered, Update};
use presence_model::profile::Member;
use presence_model::reason::{LeaveReason, RemovalReason};
use presence_model::record::{LeaseState, MemberRead};
use presence_model::refusal::Refusal;
use presence_model::time::StoreTime;
use proptest::prelude::*;

use crate::build::{GRACE, lease, no_update, session, state, token, user};
use crate::lives::{Event, Fate, Pick, event};
use crate::oracle::{Gone, Life, Oracle};
use crate::roster::{Refused, Store};

struct World {
    store: Store,
    oracle: Oracle,
    joins: Vec<(UserId, Join)>,
    leases: Vec<(UserId, LeaseId)>,
    delayed: Vec<Delayed>,
    /// What a watcher sees who was told every delta.
    copy: BTreeMap<UserId, Member>,
}

/// A decision on its way to the store.
struct Delayed {
    read: MemberRead,
    change: Change,
    join: Option<(Join, StoreTime)>,
}

fn pick<T: Clone>(from: &[T], pick: Pick) -> Option<T> {
    (!from.is_empty()).then(|| from[pick.index(from.len())].clone())
}

impl World {
    fn new() -> Self {
        Self {
            store: Store::new(),
            oracle: Oracle::default(),
            joins: Vec::new(),
            leases: Vec::new(),
            delayed: Vec::new(),
            copy: BTreeMap::new(),
        }
    }

    fn step(&mut self, event: Event) {
        let now = self.store.now;
        match event {
            Event::Pass(span) => self.store.pass(span),
            Event::Hold(held) => self.store.held = held,
            Event::Join(user, new, fate) => {
                let join = new.at(now, self.joins.len() as u64);
                self.join(&user, join, fate);
            }
            Event::LateJoin { pick: index, rejoin, fate } => {
                let Some((user, join)) = pick(&self.joins, index) else { return };
                let rejoin = rejoin.map(|ms| now.before(Duration::from_millis(ms)));
                let lease = lease(self.joins.len() as u64);
                self.join(&user, Join { lease, rejoin, ..join }, fate);
            }
            Event::Abandon { pick: index, generation, fate } => {
                let Some((user, join)) = pick(&self.joins, index) else { return };
                let generation = join.generation.filter(|_| generation);
                self.abandon(&user, &Join { generation, ..join }, fate);
            }
            Event::Update { pick: index, status, state: text, token: ms, fate } => {
                let Some((user, lease)) = pick(&self.leases, index) else { return };
                let ends = ms.map(|ms| token(now + Duration::from_millis(ms)));
                let update = Update { status, state: text.map(state), token: ends, ..no_update(lease) };
                self.update(&user, &update, fate);
            }
            Event::Leave(index, fate) => {
                let Some((user, lease)) = pick(&self.leases, index) else { return };
                self.leave(&user, lease, fate);
            }
            Event::Release(index) => {
                let Some((_, lease)) = pick(&self.leases, index) else { return };
                self.store.release(lease, GRACE);
                self.oracle.release(lease, now);
            }
            Event::Renew(index) => {
                let Some((_, lease)) = pick(&self.leases, index) else { return };
                assert_eq!(
                    self.store.renew(lease),
                    self.oracle.renew(lease, now),
                    "only a live lease renews"
                );
            }
            Event::Lose(edge) => {
                self.store.lose(Incarnation(edge), GRACE);
                self.oracle.lose(edge, now);
            }
            Event::Vanish(index) => {
                let Some((_, lease)) = pick(&self.leases, index) else { return };
                self.store.leases.remove(&lease);
                self.oracle.vanish(lease);
            }
            Event::Sweep(fate) => self.everybody(|world, user| world.sweep(user, fate)),
            Event::Audit => self.everybody(Self::audit),
            Event::Evict(user, number, fate) => {
                self.evict(&user, number.map(session).as_ref(), fate);
            }
            Event::CommitDelayed(index) => {
                if !self.delayed.is_empty() {
                    let delayed = self.delayed.remove(index.index(self.delayed.len()));
                    self.commit_delayed(delayed);
                }
            }
        }
    }

    fn everybody(&mut self, mut each: impl FnMut(&mut Self, &UserId)) {
        for name in ["ann", "ben"] {
            each(self, &user(name));
        }
    }

    fn delay(&mut self, read: MemberRead, change: Change, join: Option<(Join, StoreTime)>) {
        self.delayed.push(Delayed { read, change, join });
    }

    /// Commits what was decided on the state as it is.
    fn commit(&mut self, change: &Change) -> Committed {
        let before = self.store.shown();
        let committed = self.store.commit(change).expect("nothing came in between");
        self.announced(&before, &committed);
        committed
    }

    /// What is announced is the difference between what was and what is shown.
    fn announced(&mut self, before: &BTreeMap<UserId, Member>, committed: &Committed) {
        let after = self.store.shown();
        let upserts: Vec<&Member> =
            after.values().filter(|member| before.get(&member.user) != Some(*member)).collect();
        let gone: Vec<&UserId> = before.keys().filter(|user| !after.contains_key(*user)).collect();
        assert_eq!(committed.members, after.len() as u64);
        assert_eq!(committed.delta.upserts.iter().collect::<Vec<_>>(), upserts);
        assert_eq!(committed.delta.removals.iter().map(|r| &r.user).collect::<Vec<_>>(), gone);
        for member in &committed.delta.upserts {
            self.copy.insert(member.user.clone(), member.clone());
        }
        for removal in &committed.delta.removals {
            assert!(self.copy.remove(&removal.user).is_some(), "nobody departs twice");
        }
    }

    /// The reason announced is the oracle's, and the silence at least as long as it was.
    fn departed(&self, committed: &Committed, gone: Option<Gone>, exact: bool) {
        let told = committed.delta.removals.first().map(|removal| removal.ending);
        assert_eq!(told.map(|ending| ending.reason), gone.map(|(reason, _)| reason));
        let (Some(told), Some((_, heard))) = (told, gone) else { return };
        let silent = self.store.now.since(heard);
        assert!(told.silent_for >= silent && (!exact || told.silent_for == silent), "{told:?}, {silent:?}");
    }

    fn join(&mut self, user: &UserId, join: Join, fate: Fate) {
        let now = self.store.now;
        self.joins.push((user.clone(), join.clone()));
        let read = self.store.read(user);
        let decided = member::join(&read, &join, now);
        if fate == Fate::Delayed {
            if let Ok(member::Granted { change: Some(change), .. }) = decided {
                self.delay(read, *change, Some((join, now)));
            }
            return;
        }
        let expected = self.oracle.join(user, &join, now, now);
        let granted = match (decided, expected) {
            (Ok(granted), Ok((lease, resumed))) => {
                assert_eq!((granted.lease, granted.resumed), (lease, resumed));
                granted
            }
            (decided, expected) => {
                assert_eq!(decided.map(|_| ()), expected.map(|_| ()));
                return;
            }
        };
        assert_eq!(granted.since, self.oracle.here[user].0);
        if let Some(change) = &granted.change {
            self.commit(change);
            self.leases.push((user.clone(), join.lease));
        }
        if fate == Fate::Lost {
            let other_lease = Join { lease: lease(1 << 40), ..join.clone() };
            for repeated in [join, other_lease] {
                let again = member::join(&self.store.read(user), &repeated, now).expect("it is in");
                assert_eq!((again.lease, again.generation), (granted.lease, granted.generation));
                assert_eq!((again.since, again.change), (granted.since, None));
            }
        }
    }

    fn update(&mut self, user: &UserId, update: &Update, fate: Fate) {
        let now = self.store.now;
        let decided = member::update(&self.store.read(user), update, now);
        let expected = self.oracle.update(user, update, now);
        assert_eq!(decided.as_ref().map(Option::is_some), expected.as_ref().map(|changed| *changed));
        if let Ok(Some(change)) = decided {
            self.commit(&change);
            if fate != Fate::Told {
                assert_eq!(member::update(&self.store.read(user), update, now), Ok(None));
            }
        }
    }

    fn leave(&mut self, user: &UserId, lease: LeaseId, fate: Fate) {
        let now = self.store.now;
        let decided = member::leave(&self.store.read(user), lease, LeaveReason::Goodbye, now);
        match (decided, self.oracle.leave(user, lease, now)) {
            (Ok(change), Ok(gone)) => {
                let committed = self.commit(&change);
                self.departed(&committed, gone, false);
                if fate != Fate::Told {
                    let again = member::leave(&self.store.read(user), lease, LeaveReason::Goodbye, now);
                    assert!(matches!(again, Err(Refusal::NotPresent | Refusal::NotCurrent)));
                }
            }
            (decided, expected) => assert_eq!(decided.map(|_| ()), expected.map(|_| ())),
        }
    }

    fn sweep(&mut self, user: &UserId, fate: Fate) {
        let now = self.store.now;
        let due = self.store.due(user);
        let read = self.store.read(user);
        let decided = member::expire(&read, &due, now);
        if fate == Fate::Delayed {
            if let Some(change) = decided {
                self.delay(read, change, None);
            }
            return;
        }
        let gone = self.oracle.sweep(user, now, self.store.held);
        assert_eq!(decided.is_some(), !due.is_empty(), "whoever is due ends");
        if let Some(change) = decided {
            let committed = self.commit(&change);
            let exact = !change.transitions.iter().any(|t| match t.kind {
                TransitionKind::Ended(ending) => ending.reason == RemovalReason::TokenExpired,
                TransitionKind::Joined | TransitionKind::Updated => false,
            });
            self.departed(&committed, gone, exact);
            assert_eq!(member::expire(&self.store.read(user), &due, now), None);
        }
        let here = self.oracle.here.get(user).into_iter().flat_map(|(_, sessions)| sessions.values());
        let over = |s: &crate::oracle::Sess| s.until <= now && s.life != Life::Missing;
        assert!(self.store.held || !here.into_iter().any(over), "whoever is shown has a session");
    }

    fn audit(&mut self, user: &UserId) {
        let due = self.store.missing(user);
        let decided = member::expire(&self.store.read(user), &due, self.store.now);
        if self.store.held {
            assert!(decided.is_none_or(|change| self.store.commit(&change).is_err()), "ended in a hold");
            return;
        }
        if let Some(change) = decided {
            self.commit(&change);
        }
        self.oracle.audit(user, self.store.now);
    }

    fn evict(&mut self, user: &UserId, session: Option<&presence_model::id::SessionId>, fate: Fate) {
        let now = self.store.now;
        let decide = |store: &Store| member::evict(&store.read(user), session, RemovalReason::Evicted, now);
        let decided = decide(&self.store);
        let gone = self.oracle.evict(user, session, now);
        if let Some(change) = decided {
            let committed = self.commit(&change);
            self.departed(&committed, gone, false);
        }
        if fate != Fate::Told {
            assert_eq!(decide(&self.store), None);
        }
    }

    fn abandon(&mut self, user: &UserId, join: &Join, fate: Fate) {
        let now = self.store.now;
        let (session, connection) = (join.session.clone(), join.connection);
        let unanswered =
            Unanswered { session, generation: join.generation, connection, request: join.request };
        match member::abandon(&self.store.read(user), &unanswered, now) {
            Abandoned::Release(lease) => {
                let stored = self.oracle.session(user, &join.session).expect("it is there");
                let named = (stored.lease, stored.connection, stored.request);
                assert_eq!(named, (lease, connection, join.request), "no other join's");
                self.store.release(lease, GRACE);
                self.oracle.release(lease, now);
                return;
            }
            Abandoned::Superseded => {}
            Abandoned::Forbid(change) => {
                let [(_, tombstone)] = &change.tombstones[..] else { panic!("one tombstone") };
                self.oracle.forbid(user, &unanswered, tombstone.generation, now);
                let committed = self.commit(&change);
                assert!(committed.delta.upserts.is_empty() && committed.delta.removals.is_empty());
                if fate != Fate::Told {
                    let again = member::abandon(&self.store.read(user), &unanswered, now);
                    assert_eq!(again, Abandoned::Superseded);
                }
            }
        }
        let late = Join { token: token(crate::build::NEVER), rejoin: None, ..join.clone() };
        let refused = member::join(&self.store.read(user), &late, now);
        assert!(refused.is_err(), "what was abandoned stays out");
    }

    /// A decision that arrives late applies only to what it was decided on, and ends nobody who was
    /// heard meanwhile (G2).
    fn commit_delayed(&mut self, delayed: Delayed) {
        let Delayed { read, change, join } = delayed;
        let before = self.store.shown();
        let (now, user) = (self.store.now, change.user.clone());
        let as_read = self.store.read(&user) == read;
        match self.store.commit(&change) {
            Ok(committed) => {
                self.announced(&before, &committed);
                if let Some((join, decided)) = join {
                    let outcome = self.oracle.join(&user, &join, decided, now);
                    assert_eq!(outcome.map(|(lease, _)| lease), Ok(join.lease));
                    self.leases.push((user, join.lease));
                    return;
                }
                for transition in &change.transitions {
                    let session = self.oracle.session(&user, &transition.session).expect("it was there");
                    let TransitionKind::Ended(ending) = transition.kind else { panic!("a sweep ends") };
                    let by_token = ending.reason == RemovalReason::TokenExpired;
                    let silent = session.until <= now || session.life == Life::Missing;
                    assert!(by_token || silent && !self.store.held, "heard, but ended");
                    let buried = change.tombstones.iter().find(|(id, _)| *id == transition.session);
                    let at = buried.map_or(now, |(_, tombstone)| tombstone.ended);
                    self.oracle.end(&user, &transition.session, ending.reason, at);
                }
            }
            Err(Refused::Changed | Refused::LeaseExists) => assert!(!as_read),
            Err(Refused::Guard) => assert!(join.is_none()),
        }
    }

    fn check(&self) {
        let shown = self.store.shown();
        assert_eq!(shown, self.oracle.shown(), "what is shown");
        assert_eq!(shown, self.copy, "what was announced");
        let digest = shown.values().fold(Digest::default(), |sum, member| sum.plus(Digest::of(member)));
        assert_eq!(digest, self.store.digest, "digest");

        let tombstones = self.store.tombstones.iter();
        let ended: BTreeMap<_, _> = tombstones
            .map(|(key, t)| (key.clone(), (t.generation, t.connection, t.reason, t.request)))
            .collect();
        assert_eq!(ended, self.oracle.ended, "what ended");

        let stored: BTreeMap<_, _> = self.store.leases.iter().map(|(id, lease)| (*id, lease.state)).collect();
        let sessions = self.oracle.here.values().flat_map(|(_, sessions)| sessions.values());
        let expected = sessions.filter_map(|s| match s.life {
            Life::Live | Life::EdgeLost => Some((s.lease, LeaseState::Live { deadline: s.until })),
            Life::Grace => Some((s.lease, LeaseState::Grace { deadline: s.until })),
            Life::Missing => None,
        });
        assert_eq!(stored, expected.collect(), "a lease for each session, and no other");
        for (_, record) in self.store.records.values() {
            assert!(record.sessions.is_sorted_by(|a, b| a.session < b.session));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn lives_go_as_the_oracle_says(events in prop::collection::vec(event(), 1..120)) {
        let mut world = World::new();
        for event in events {
            world.step(event);
            world.check();
        }
    }
}
