//! Everything of the model survives the wire; nothing out of bounds gets through.

mod any;
mod numbers;

use std::time::Duration;

use presence_model::cursor::Cursor;
use presence_model::delta::Delta;
use presence_model::id::{RoomId, UserId};
use presence_model::link::{BatchId, LinkDown, LinkUp, RequestId};
use presence_model::reason::{ReleaseReason, RemovalReason};
use presence_model::watch::{WatchDown, WatchRefusal, WatchUp};
use proptest::prelude::*;
use prost::Message as _;

use super::{hello, hello_request, room_error};
use crate::error::WireError;
use crate::status::ServiceError;
use crate::v1;

/// Through bytes, as another process would read them.
fn sent<M: prost::Message + Default>(message: M) -> M {
    M::decode(message.encode_to_vec().as_slice()).unwrap()
}

proptest! {
    #[test]
    fn link_up_survives(up in any::link_up()) {
        let wire = sent(v1::LinkRequest::from(up.clone()));
        prop_assert_eq!(LinkUp::try_from(wire), Ok(up));
    }

    #[test]
    fn link_down_survives(down in any::link_down()) {
        let wire = sent(v1::LinkResponse::from(down.clone()));
        prop_assert_eq!(LinkDown::try_from(wire), Ok(down));
    }

    #[test]
    fn watch_up_survives(up in any::watch_up()) {
        let wire = sent(v1::WatchRequest::from(up.clone()));
        prop_assert_eq!(WatchUp::try_from(wire), Ok(up));
    }

    #[test]
    fn watch_down_survives(down in any::watch_down()) {
        let wire = sent(v1::WatchResponse::from(down.clone()));
        prop_assert_eq!(WatchDown::try_from(wire), Ok(down));
    }

    #[test]
    fn hello_survives(first in any::hello()) {
        prop_assert_eq!(hello(sent(hello_request(first.clone()))), Ok(first));
    }

    #[test]
    fn no_bytes_make_a_conversion_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(wire) = v1::LinkRequest::decode(bytes.as_slice()) {
            let _ = LinkUp::try_from(wire);
        }
        if let Ok(wire) = v1::WatchResponse::decode(bytes.as_slice()) {
            let _ = WatchDown::try_from(wire);
        }
    }
}

fn join() -> v1::Join {
    v1::Join {
        room: "r1".into(),
        token: "t".into(),
        session: "0123456789abcdef".into(),
        ..v1::Join::default()
    }
}

fn refused_join(change: impl FnOnce(&mut v1::Join)) -> WireError {
    let mut join = join();
    change(&mut join);
    let wire = v1::LinkRequest { message: Some(v1::link_request::Message::Join(join)) };
    LinkUp::try_from(wire).unwrap_err()
}

#[test]
fn a_join_out_of_bounds_is_refused_by_field() {
    assert!(matches!(refused_join(|join| join.room.clear()), WireError::Name { field: "Join.room", .. }));
    assert!(matches!(
        refused_join(|join| join.room = "r".repeat(256)),
        WireError::Name { field: "Join.room", .. }
    ));
    assert!(matches!(
        refused_join(|join| join.session = "short".into()),
        WireError::Name { field: "Join.session", .. }
    ));
    assert_eq!(refused_join(|join| join.token.clear()), WireError::Missing { field: "Join.token" });
    assert_eq!(
        refused_join(|join| join.token = "t".repeat(16 * 1024 + 1)),
        WireError::TooLong { field: "Join.token", bytes: 16 * 1024 + 1, max: 16 * 1024 }
    );
    assert_eq!(
        refused_join(|join| join.state = vec![b' '; 1025].into()),
        WireError::TooLong { field: "Join.state", bytes: 1025, max: 1024 }
    );
    assert_eq!(
        refused_join(|join| join.status = 9),
        WireError::UnknownValue { field: "Join.status", value: 9 }
    );
    assert_eq!(
        refused_join(|join| join.client = "c".repeat(256)),
        WireError::TooLong { field: "Join.client", bytes: 256, max: 255 }
    );
}

#[test]
fn what_a_join_leaves_out_has_its_default() {
    let wire = v1::LinkRequest { message: Some(v1::link_request::Message::Join(join())) };
    let Ok(LinkUp::Join(join)) = LinkUp::try_from(wire) else { panic!("a join") };
    assert_eq!(join.profile, presence_model::profile::Profile::default());
    assert_eq!((join.generation, join.rejoin), (None, None));
    assert!(join.cursor.is_empty());
}

#[test]
fn a_grace_name_cannot_be_renewed() {
    let lease = presence_model::lease::LeaseId(7);
    let wire = |id: u64| v1::LinkRequest {
        message: Some(v1::link_request::Message::Renew(v1::Renew { batch: 1, leases: vec![id] })),
    };
    assert_eq!(LinkUp::try_from(wire(lease.0)), Ok(LinkUp::Renew { batch: BatchId(1), leases: vec![lease] }));
    assert!(matches!(
        LinkUp::try_from(wire(lease.grace_name().0)),
        Err(WireError::Rule { field: "Renew.leases", .. })
    ));
}

#[test]
fn long_lists_are_refused() {
    let renew = v1::Renew { batch: 1, leases: vec![7; 16_385] };
    let wire = v1::LinkRequest { message: Some(v1::link_request::Message::Renew(renew)) };
    assert_eq!(
        LinkUp::try_from(wire),
        Err(WireError::TooMany { field: "Renew.leases", count: 16_385, max: 16_384 })
    );
    let entry = |i: usize| v1::RegionPosition {
        region: format!("region-{i}"),
        position: Some(presence_model::position::Position::default().into()),
    };
    let cursor = v1::Cursor { regions: (0..32).map(entry).collect(), seen: (32..65).map(entry).collect() };
    assert_eq!(
        Cursor::try_from(cursor),
        Err(WireError::TooMany { field: "Cursor.regions", count: 65, max: 64 })
    );
    for (regions, seen) in [(vec![entry(1), entry(1)], vec![]), (vec![entry(1)], vec![entry(1)])] {
        let cursor = v1::Cursor { regions, seen };
        assert!(matches!(Cursor::try_from(cursor), Err(WireError::Rule { field: "Cursor.regions", .. })));
    }
}

fn delta(upserts: &[&str], removals: &[&str]) -> Result<Delta, WireError> {
    let member = |user: &&str| v1::Member { user: (*user).into(), ..v1::Member::default() };
    let removal = |user: &&str| v1::Removal {
        user: (*user).into(),
        reason: v1::RemovalReason::Left.into(),
        silent_for_ms: 0,
    };
    v1::Delta {
        epoch: Some(v1::Epoch::default()),
        from: 1,
        to: 2,
        upserts: upserts.iter().map(member).collect(),
        removals: removals.iter().map(removal).collect(),
        ..v1::Delta::default()
    }
    .try_into()
}

#[test]
fn a_delta_lists_each_user_once_and_in_order() {
    assert!(delta(&["a", "b"], &["c", "d"]).is_ok());
    assert!(matches!(delta(&["b", "a"], &[]), Err(WireError::Rule { field: "Delta.upserts", .. })));
    assert!(matches!(delta(&[], &["a", "a"]), Err(WireError::Rule { field: "Delta.removals", .. })));
    assert!(matches!(delta(&["a", "b"], &["b"]), Err(WireError::Rule { field: "Delta.removals", .. })));
}

#[test]
fn a_message_of_a_later_version_may_be_skipped_but_a_bad_one_not() {
    assert!(LinkUp::try_from(v1::LinkRequest::default()).unwrap_err().may_skip());
    assert!(WatchDown::try_from(v1::WatchResponse::default()).unwrap_err().may_skip());
    assert!(!refused_join(|join| join.room.clear()).may_skip());
}

#[test]
fn only_the_first_message_is_a_hello() {
    let beat = v1::LinkRequest::from(LinkUp::Beat { sequence: 1 });
    assert_eq!(hello(beat), Err(WireError::Missing { field: "LinkRequest.hello" }));
    let wire = v1::LinkRequest { message: Some(v1::link_request::Message::Hello(v1::Hello::default())) };
    assert!(matches!(LinkUp::try_from(wire), Err(WireError::Rule { field: "LinkRequest.hello", .. })));
}

#[test]
fn a_welcome_with_an_empty_timer_is_refused() {
    let wire = v1::LinkResponse {
        message: Some(v1::link_response::Message::Welcome(v1::Welcome {
            heartbeat_ms: 1,
            lease_ttl_ms: 1,
            grace_ms: 1,
            link_beat_ms: 0,
            edge_lost_ms: 1,
            ..v1::Welcome::default()
        })),
    };
    assert!(matches!(LinkDown::try_from(wire), Err(WireError::Rule { field: "Welcome.link_beat_ms", .. })));
}

#[test]
fn an_older_core_knows_no_room_classes() {
    let welcome = v1::Welcome {
        heartbeat_ms: 15_000,
        lease_ttl_ms: 45_000,
        grace_ms: 12_000,
        link_beat_ms: 1_000,
        edge_lost_ms: 5_000,
        ..v1::Welcome::default()
    };
    let welcome = presence_model::link::Welcome::try_from(welcome).unwrap();
    assert_eq!(welcome.heartbeat_min, welcome.heartbeat);
    let granted = v1::Granted { lease: 1, grace_ms: 5, ..v1::Granted::default() };
    assert_eq!(presence_model::link::GrantDown::try_from(granted).unwrap().timings, None);
}

#[test]
fn a_room_error_of_a_later_version_is_read_by_whether_to_ask_again() {
    let refusal = |retry_after_ms| {
        WatchRefusal::from(v1::RoomError { reason: 99, message: String::new(), retry_after_ms })
    };
    assert_eq!(refusal(0), WatchRefusal::BadRequest("".into()));
    assert_eq!(refusal(70), WatchRefusal::Unavailable { retry_after: Duration::from_millis(70) });
    assert_eq!(refusal(u64::MAX), WatchRefusal::Unavailable { retry_after: Duration::from_secs(3_600) });
    let wire = room_error("r1".into(), &ServiceError::TooManyRooms);
    let room = RoomId::new("r1").unwrap();
    assert_eq!(
        WatchDown::try_from(wire),
        Ok(WatchDown::Refused { room, refusal: WatchRefusal::TooManyRooms })
    );
}

#[test]
fn removal_reasons_keep_their_numbers() {
    let numbers = RemovalReason::ALL.map(|reason| i32::from(v1::RemovalReason::from(reason)));
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn a_release_without_reason_is_a_lost_transport() {
    let wire = v1::LinkRequest {
        message: Some(v1::link_request::Message::Release(v1::Release {
            request: 3,
            ..v1::Release::default()
        })),
    };
    let Ok(LinkUp::Release { request, reason, .. }) = LinkUp::try_from(wire) else { panic!("a release") };
    assert_eq!((request, reason), (RequestId(3), ReleaseReason::TransportLost));
}

#[test]
fn errors_name_field_and_rule() {
    let user = UserId::new("").unwrap_err();
    let error = WireError::Name { field: "Member.user", rule: user };
    assert_eq!(error.to_string(), "Member.user: user must not be empty");
}
