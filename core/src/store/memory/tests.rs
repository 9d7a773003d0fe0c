//! What the conformance suite cannot see from outside: memory, cost, chance.

use std::time::Duration;

use presence_model::change::{Change, LeaseGrant};
use presence_model::id::{
    ConnectionId, EdgeName, Generation, Incarnation, RegionId, RoomId, Roster, SessionId, UserId,
};
use presence_model::lease::LeaseId;
use presence_model::member::shown;
use presence_model::position::Revision;
use presence_model::profile::Profile;
use presence_model::reason::{Ending, RemovalReason};
use presence_model::record::{EdgeRef, Record, SessionRecord, TokenRef};
use presence_model::revocation::Revocation;

use super::*;
use crate::store::{Commit, CommitOutcome};

const TTL: Duration = Duration::from_secs(45);
const START: StoreTime = StoreTime(1_000_000);
const EDGE: Incarnation = Incarnation(1);

fn one_shard(seed: u64) -> MemoryStore {
    MemoryStore::new(MemorySettings { shards: 1, seed, ..MemorySettings::default() }, START)
}

fn roster(number: u64) -> Roster {
    let room = RoomId::new(format!("room {number}")).unwrap();
    Roster { region: RegionId::new("eu").unwrap(), room }
}

fn record(lease: LeaseId) -> Record {
    let edge = EdgeRef {
        name: EdgeName::new("edge").unwrap(),
        incarnation: EDGE,
        region: RegionId::new("eu").unwrap(),
    };
    let session = SessionRecord {
        session: SessionId::new("session-of-anybody").unwrap(),
        lease,
        generation: Generation(1),
        connection: ConnectionId(1),
        request: presence_model::link::RequestId(1),
        edge,
        profile: Profile::default(),
        updated: START,
        joined: START,
        client: "".into(),
        token: TokenRef { ends: StoreTime(u64::MAX / 4), key_id: "".into(), token_id: "".into() },
    };
    Record { since: START, sessions: vec![session] }
}

fn change(user: &UserId, lease: LeaseId, expect: Option<Revision>) -> Change {
    let record = record(lease);
    let grant = LeaseGrant {
        lease,
        session: record.sessions[0].session.clone(),
        edge: EDGE,
        token_ends: StoreTime(u64::MAX / 4),
    };
    let before = expect.map(|_| shown(user, &record));
    let ending = Ending { reason: RemovalReason::Left, silent_for: Duration::ZERO };
    let is_join = expect.is_none();
    Change {
        user: user.clone(),
        expect: expect.unwrap_or_default(),
        expect_tombstones: Vec::new(),
        guards: Vec::new(),
        record: is_join.then_some(record),
        grants: if is_join { vec![grant] } else { Vec::new() },
        revokes: if is_join { Vec::new() } else { vec![lease] },
        token_ends: Vec::new(),
        tombstones: Vec::new(),
        transitions: Vec::new(),
        before,
        removal: (!is_join).then_some(ending),
    }
}

fn commit(store: &mut MemoryStore, number: u64, change: Change, now: StoreTime) -> Revision {
    let epoch = store.data.shards[0].epoch;
    let commit = Commit { roster: roster(number), epoch, changes: vec![change] };
    let outcome = store.apply(Command::Commit(commit), now);
    let Ok(Outcome::Commit(CommitOutcome::Applied { position, refused, .. })) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(refused, []);
    position.revision
}

fn sweep(store: &mut MemoryStore, now: StoreTime, portion: usize) {
    let turn = Command::Turn {
        shard: Shard(0),
        holder: 1,
        finished: None,
        kept: Duration::from_secs(2),
        smallest_ttl: TTL,
        takeover: Duration::from_secs(3),
        stepped: false,
        known: None,
        portion,
    };
    store.apply(turn, now).unwrap();
}

#[test]
fn rooms_that_come_and_go_leave_nothing_in_memory() {
    let mut store = one_shard(1);
    let user = UserId::new("ann").unwrap();
    for number in 0..5_000 {
        let lease = LeaseId::mint(TTL, Shard(0), number);
        let came = commit(&mut store, number, change(&user, lease, None), START);
        commit(&mut store, number, change(&user, lease, Some(came)), START);
    }
    assert_eq!(store.data.shards[0].rosters.len(), 5_000, "their positions are kept for an hour");
    let later = START + Retention::default().rosters;
    for _ in 0..25 {
        sweep(&mut store, later, 500);
    }
    let shard = &store.data.shards[0];
    assert_eq!((shard.rosters.len(), shard.leases.count_of_edge(EDGE)), (0, 0));
    assert!(shard.is_bare(), "no index keeps anything either");
    assert!(
        store.data.people.rooms_of(&user, None, 9, later)
            == Outcome::RoomsOf { now: later, rooms: vec![], more: false }
    );
    let tidy = |store: &mut MemoryStore, now| {
        store.apply(Command::Tidy { shard: Shard(0), portion: 500 }, now).unwrap()
    };
    tidy(&mut store, later);
    assert!(!store.data.people.is_bare(), "when ann was seen last is kept for 30 days");
    let revocations = vec![(Revocation::Token("t".into()), later + TTL)];
    store.apply(Command::Revoke { revocations }, later).unwrap();
    assert_eq!(tidy(&mut store, START + Retention::default().seen), Outcome::Tidied { more: false });
    assert!(store.data.people.is_bare() && store.data.revoked.is_bare());
    let shard = &store.data.shards[0];
    assert_eq!(shard.commits, 10_000, "nor forgets where positions go on");
}

#[test]
fn history_is_capped_by_bytes() {
    let retention = Retention { history_bytes: 10_000, ..Retention::default() };
    let settings = MemorySettings { shards: 1, retention, ..MemorySettings::default() };
    let mut store = MemoryStore::new(settings, START);
    let user = UserId::new("ann").unwrap();
    for number in 0..100 {
        commit(&mut store, number, change(&user, LeaseId::mint(TTL, Shard(0), number), None), START);
    }
    let kept: usize = store.data.shards[0].rosters.values().map(|roster| roster.history.len()).sum();
    assert!((10..=30).contains(&kept), "{kept} commits kept");
}

#[test]
fn a_run_can_be_replayed_by_its_seed() {
    let epochs = |seed| {
        let mut store = one_shard(seed);
        let mut epochs = vec![store.data.shards[0].epoch];
        for upheaval in [Upheaval::Restart, Upheaval::RestartEmpty] {
            store.suffer(upheaval, START);
            sweep(&mut store, START, 1);
            epochs.push(store.data.shards[0].epoch);
        }
        epochs
    };
    assert_eq!(epochs(7), epochs(7));
    assert_ne!(epochs(7), epochs(8));
    let minted = epochs(7);
    assert!(minted[0] < minted[1], "{minted:?}");
}

#[test]
fn a_replica_lags_by_no_more_than_it_may() {
    let settings = MemorySettings { shards: 1, replica_lag: 3, ..MemorySettings::default() };
    let mut store = MemoryStore::new(settings, START);
    let user = UserId::new("ann").unwrap();
    for number in 0..10 {
        let now = START + Duration::from_millis(number);
        commit(&mut store, number, change(&user, LeaseId::mint(TTL, Shard(0), number), None), now);
    }
    let mut by_time = store.clone();
    by_time.suffer(Upheaval::FailOver(Lost::After(START + Duration::from_millis(8))), START);
    assert_eq!(by_time.data.shards[0].rosters.len(), 9);
    store.suffer(Upheaval::FailOver(Lost::Commits(100)), START);
    assert_eq!(store.data.shards[0].rosters.len(), 7);
}
