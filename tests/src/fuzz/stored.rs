//! What is read back from a store, which another release or a hand may have written.

use std::time::Duration;

use bytes::Bytes;
use presence_model::id::{ConnectionId, EdgeName, Generation, Incarnation, RegionId, SessionId};
use presence_model::lease::{LeaseId, Shard};
use presence_model::link::RequestId;
use presence_model::profile::{Profile, State, Status};
use presence_model::reason::RemovalReason;
use presence_model::record::{EdgeRef, Record, SessionRecord, TokenRef, Tombstone};
use presence_model::time::StoreTime;
use presence_proto::stored::{decode_record, decode_told, decode_tombstone, encode_record, encode_tombstone};

/// The first byte says what it is to be.
pub(super) fn run(bytes: &[u8]) {
    let Some((kind, stored)) = bytes.split_first() else { return };
    match kind % 3 {
        0 => {
            if let Ok(record) = decode_record(stored) {
                assert_eq!(decode_record(&encode_record(&record)), Ok(record));
            }
        }
        1 => {
            if let Ok(tombstone) = decode_tombstone(stored) {
                assert_eq!(decode_tombstone(&encode_tombstone(&tombstone)), Ok(tombstone));
            }
        }
        _ => {
            if let Ok(told) = decode_told(Bytes::copy_from_slice(stored)) {
                assert!(!told.user.as_str().is_empty());
            }
        }
    }
}

fn session(number: u64) -> SessionRecord {
    SessionRecord {
        session: SessionId::new(format!("0123456789abcde{number}")).expect("an id"),
        lease: LeaseId::mint(Duration::from_secs(45), Shard(7), number),
        generation: Generation(number),
        connection: ConnectionId(number),
        request: RequestId(number),
        edge: EdgeRef {
            name: EdgeName::new("edge-1").expect("a name"),
            incarnation: Incarnation(3),
            region: RegionId::new("eu-west").expect("a name"),
        },
        profile: Profile {
            status: Status::Busy,
            state: State::new(Bytes::from_static(b"{\"x\":1}")).expect("a state"),
        },
        updated: StoreTime(1_790_000_000_000),
        joined: StoreTime(1_790_000_000_000),
        client: "web/1.2".into(),
        token: TokenRef { ends: StoreTime(1_790_000_000_000), key_id: "k1".into(), token_id: "t1".into() },
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let kept = |kind: u8, bytes: Vec<u8>| [vec![kind], bytes].concat();
    let record = |sessions: u64| Record {
        since: StoreTime(1_790_000_000_000),
        sessions: (1..=sessions).map(session).collect(),
    };
    let tombstone = |reason| Tombstone {
        generation: Generation(9),
        connection: ConnectionId(1 << 63),
        request: RequestId(1),
        reason,
        ended: StoreTime(1_790_000_000_000),
        silent_for_ms: 1,
    };
    vec![
        kept(0, encode_record(&record(1))),
        kept(0, encode_record(&record(3))),
        kept(1, encode_tombstone(&tombstone(RemovalReason::Left))),
        kept(1, encode_tombstone(&tombstone(RemovalReason::TokenRevoked))),
        // A user and one transition; a user who is gone.
        kept(2, b"\x0a\x02u1\x12\x00".to_vec()),
        kept(2, b"\x0a\x02u1\x1a\x06\x0a\x02u1\x10\x01".to_vec()),
        kept(2, b"\x0a\x02u1\x22\x16\x08\x01\x12\x100123456789abcdef\x18\x01".to_vec()),
    ]
}
