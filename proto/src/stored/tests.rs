//! What is stored is read back as it was; what is not ours is refused.

use presence_model::id::SessionId;
use presence_model::member::shown;
use presence_model::profile::{State, Status};
use presence_model::reason::RemovalReason;

use super::*;

fn record() -> Record {
    let session = SessionRecord {
        session: SessionId::new("s-0123456789abcdef").unwrap(),
        lease: LeaseId::mint(Duration::from_secs(45), presence_model::lease::Shard(7), 42),
        generation: Generation(u64::MAX),
        connection: ConnectionId(u64::MAX),
        request: RequestId(u64::MAX),
        edge: EdgeRef {
            name: edge("edge", "edge-1").unwrap(),
            incarnation: Incarnation(3),
            region: region("region", "eu-west").unwrap(),
        },
        profile: Profile {
            status: Status::Busy,
            state: State::new(Bytes::from_static(b"{\"x\":1}")).unwrap(),
        },
        updated: StoreTime(5),
        joined: StoreTime(6),
        client: "web/1.2".into(),
        token: TokenRef { ends: StoreTime(7), key_id: "k1".into(), token_id: "".into() },
    };
    Record { since: StoreTime(4), sessions: vec![session] }
}

fn transition(kind: TransitionKind) -> Transition {
    let record = record();
    let session = &record.sessions[0];
    Transition {
        session: session.session.clone(),
        generation: session.generation,
        connection: session.connection,
        edge: session.edge.incarnation,
        lease: session.lease,
        kind,
        moved: kind == TransitionKind::Joined,
    }
}

fn change(after: Option<Record>, removal: Option<Ending>) -> Change {
    let user = UserId::new("u\0 é").unwrap();
    let before = removal.is_some().then(|| shown(&user, &record()));
    Change {
        user,
        expect: presence_model::position::Revision(1),
        expect_tombstones: Vec::new(),
        guards: Vec::new(),
        record: after,
        grants: Vec::new(),
        revokes: Vec::new(),
        token_ends: Vec::new(),
        tombstones: Vec::new(),
        transitions: vec![
            transition(TransitionKind::Joined),
            transition(TransitionKind::Updated),
            transition(TransitionKind::Ended(Ending {
                reason: RemovalReason::EdgeLost,
                silent_for: Duration::from_millis(17),
            })),
        ],
        before,
        removal,
    }
}

#[test]
fn a_record_comes_back() {
    assert_eq!(decode_record(&encode_record(&record())), Ok(record()));
}

#[test]
fn a_tombstone_comes_back_for_every_reason() {
    for reason in RemovalReason::ALL {
        let tombstone = Tombstone {
            generation: Generation(9),
            connection: ConnectionId(1 << 63),
            request: RequestId(1 << 62),
            reason,
            ended: StoreTime(8),
            silent_for_ms: 1,
        };
        assert_eq!(decode_tombstone(&encode_tombstone(&tombstone)), Ok(tombstone));
    }
}

#[test]
fn what_history_tells_comes_back() {
    let gone = Ending { reason: RemovalReason::Left, silent_for: Duration::from_millis(3) };
    for change in [change(Some(record()), None), change(None, Some(gone)), change(None, None)] {
        let told = decode_told(encode_told(&change).into()).unwrap();
        assert_eq!((told.user, told.visible), (change.user.clone(), change.visible()));
        assert_eq!(told.transitions, change.transitions);
    }
}

#[test]
fn what_is_not_ours_is_refused() {
    assert!(decode_record(b"\xff\xff\xff").is_err());
    assert!(decode_record(b"").is_err(), "a record has a session");
    assert!(decode_tombstone(b"\xff").is_err());
    assert!(decode_tombstone(b"").is_err(), "a tombstone has a reason");
    assert!(decode_told(Bytes::from_static(b"\xff")).is_err());
    assert!(decode_told(Bytes::new()).is_err(), "somebody has changed");
}
