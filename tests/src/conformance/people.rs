//! People with one session each, and the changes they cause, made by hand.

use std::time::Duration;

use presence_model::change::{Change, Guard, LeaseGrant, Transition, TransitionKind};
use presence_model::id::{ConnectionId, EdgeName, Generation, Incarnation, RegionId, SessionId, UserId};
use presence_model::lease::{LeaseId, Shard};
use presence_model::link::RequestId;
use presence_model::member::shown;
use presence_model::position::Revision;
use presence_model::profile::{Profile, Status};
use presence_model::reason::{Ending, RemovalReason};
use presence_model::record::{EdgeRef, MemberRead, Record, SessionRecord, TokenRef, Tombstone};
use presence_model::time::StoreTime;

use super::bench::{Bench, EDGE};

/// A session of somebody, before it has come.
#[derive(Debug, Clone)]
pub struct Person {
    /// Who.
    pub user: UserId,
    /// The session.
    pub session: SessionId,
    /// The lease it is to get.
    pub lease: LeaseId,
    /// Through which edge.
    pub edge: Incarnation,
    /// When its token ends.
    pub token_ends: StoreTime,
    /// What it says.
    pub status: Status,
    /// Which attempt.
    pub generation: Generation,
}

impl Person {
    /// Somebody whose token does not end soon.
    #[must_use]
    pub fn new(name: &str, shard: Shard, ttl: Duration) -> Self {
        // Different names give different leases; the cases grant few.
        let random = name.bytes().fold(7, |sum: u64, byte| sum.wrapping_mul(257) ^ u64::from(byte));
        Self {
            user: UserId::new(name).expect("a good name"),
            session: SessionId::new(format!("{:-<16}", name.replace(' ', "-"))).expect("a good session id"),
            lease: LeaseId::mint(ttl, shard, random),
            edge: EDGE,
            token_ends: StoreTime(u64::MAX / 4),
            status: Status::Available,
            generation: Generation(1),
        }
    }

    /// The same session with another lease and a higher generation.
    #[must_use]
    pub fn again(&self) -> Self {
        let LeaseId(id) = self.lease;
        Self { lease: LeaseId(id ^ 1), generation: Generation(self.generation.0 + 1), ..self.clone() }
    }

    fn record(&self, now: StoreTime) -> SessionRecord {
        SessionRecord {
            session: self.session.clone(),
            lease: self.lease,
            generation: self.generation,
            connection: ConnectionId(self.lease.0),
            request: RequestId(1),
            edge: EdgeRef {
                name: EdgeName::new("edge").expect("a good name"),
                incarnation: self.edge,
                region: RegionId::new("eu").expect("a good name"),
            },
            profile: Profile { status: self.status, ..Profile::default() },
            updated: now,
            joined: now,
            client: "".into(),
            token: TokenRef { ends: self.token_ends, key_id: "".into(), token_id: "".into() },
        }
    }

    fn transition(&self, kind: TransitionKind) -> Transition {
        Transition {
            session: self.session.clone(),
            generation: self.generation,
            connection: ConnectionId(self.lease.0),
            edge: self.edge,
            lease: self.lease,
            kind,
            moved: false,
        }
    }

    /// Comes, on what was read; an older lease of the session goes.
    #[must_use]
    pub fn joins(&self, read: &MemberRead, now: StoreTime) -> Change {
        let mut record = read.record.clone().unwrap_or(Record { since: now, sessions: Vec::new() });
        let older: Vec<LeaseId> = record
            .sessions
            .iter()
            .filter(|session| session.session == self.session)
            .map(|session| session.lease)
            .collect();
        record.sessions.retain(|session| session.session != self.session);
        record.sessions.push(self.record(now));
        record.sessions.sort_by(|a, b| a.session.cmp(&b.session));
        let tombstone = read.tombstones.get(&self.session).cloned();
        let grant = LeaseGrant {
            lease: self.lease,
            session: self.session.clone(),
            edge: self.edge,
            token_ends: self.token_ends,
        };
        Change {
            expect_tombstones: vec![(self.session.clone(), tombstone)],
            record: Some(record),
            grants: vec![grant],
            revokes: older,
            transitions: vec![self.transition(TransitionKind::Joined)],
            ..nothing(read)
        }
    }

    /// Changes status, on what was read.
    #[must_use]
    pub fn says(&self, status: Status, read: &MemberRead, now: StoreTime) -> Change {
        let mut record = read.record.clone().expect("somebody who is there");
        for session in record.sessions.iter_mut().filter(|session| session.session == self.session) {
            session.profile.status = status;
            session.updated = now;
        }
        Change {
            record: Some(record),
            transitions: vec![self.transition(TransitionKind::Updated)],
            ..nothing(read)
        }
    }

    /// Goes, on what was read, for a reason and under guards.
    #[must_use]
    pub fn goes(&self, read: &MemberRead, reason: RemovalReason, guards: Vec<Guard>) -> Change {
        let mut record = read.record.clone().expect("somebody who is there");
        record.sessions.retain(|session| session.session != self.session);
        let ending = Ending { reason, silent_for: Duration::from_millis(5) };
        let is_last = record.sessions.is_empty();
        Change {
            guards,
            record: (!is_last).then_some(record),
            revokes: vec![self.lease],
            tombstones: vec![(self.session.clone(), self.tombstone(reason))],
            transitions: vec![self.transition(TransitionKind::Ended(ending))],
            removal: is_last.then_some(ending),
            ..nothing(read)
        }
    }

    /// Says goodbye, on what was read.
    #[must_use]
    pub fn leaves(&self, read: &MemberRead) -> Change {
        self.goes(read, RemovalReason::Left, Vec::new())
    }

    /// Goes for silence, if the lease is overdue.
    #[must_use]
    pub fn expires(&self, read: &MemberRead) -> Change {
        self.goes(read, RemovalReason::LeaseExpired, vec![Guard::Overdue(self.lease)])
    }

    /// What is left of the session.
    #[must_use]
    pub fn tombstone(&self, reason: RemovalReason) -> Tombstone {
        Tombstone {
            generation: self.generation,
            connection: ConnectionId(self.lease.0),
            request: RequestId(1),
            reason,
            ended: StoreTime(1),
            silent_for_ms: 5,
        }
    }
}

/// A change that keeps everything as it was read.
#[must_use]
pub fn nothing(read: &MemberRead) -> Change {
    Change {
        user: read.user.clone(),
        expect: read.touched,
        expect_tombstones: Vec::new(),
        guards: Vec::new(),
        record: read.record.clone(),
        grants: Vec::new(),
        revokes: Vec::new(),
        token_ends: Vec::new(),
        tombstones: Vec::new(),
        transitions: Vec::new(),
        before: read.record.as_ref().map(|record| shown(&read.user, record)),
        removal: None,
    }
}

/// A reading of nobody, as one who has not read would have it.
#[must_use]
pub fn unread(user: &UserId) -> MemberRead {
    MemberRead { touched: Revision(0), ..MemberRead::absent(user.clone()) }
}

impl Bench {
    /// Somebody of the bench's shard and ttl.
    #[must_use]
    pub fn person(&self, name: &str) -> Person {
        Person::new(name, self.shard, self.ttl)
    }

    /// Somebody whose lease is to have a ttl of its own.
    #[must_use]
    pub fn person_of(&self, name: &str, ttl: Duration) -> Person {
        Person::new(name, self.shard, ttl)
    }

    /// Brings somebody in; answers when.
    pub async fn bring(&self, person: &Person) -> anyhow::Result<super::bench::Applied> {
        let read = self.read(&person.user).await?;
        self.applied(person.joins(&read, self.now().await?)).await
    }

    /// Brings somebody of that name in.
    pub async fn bring_named(&self, name: &str) -> anyhow::Result<Person> {
        let person = self.person(name);
        self.bring(&person).await?;
        Ok(person)
    }

    /// Lets somebody say goodbye.
    pub async fn dismiss(&self, person: &Person) -> anyhow::Result<super::bench::Applied> {
        let read = self.read(&person.user).await?;
        self.applied(person.leaves(&read)).await
    }
}
