//! Who is let in: generations, connections, tombstones, limits.

use std::time::Duration;

use presence_model::change::TransitionKind;
use presence_model::id::{ConnectionId, Generation, Incarnation};
use presence_model::limits::{EVICTED_TTLS, SESSIONS_PER_MEMBER_MAX, SINCE_AHEAD_MS_MAX};
use presence_model::link::RequestId;
use presence_model::member::{self, Abandoned, Join, Unanswered};
use presence_model::profile::Status;
use presence_model::reason::{LeaveReason, RemovalReason};
use presence_model::record::{MemberRead, Tombstone};
use presence_model::refusal::Refusal;
use presence_model::time::StoreTime;

use crate::build::{GRACE, TTL, attempt, edge, join, lease, profile, session, tab, token, user};
use crate::roster::Store;

fn stale(given: u64, stored: u64) -> Refusal {
    Refusal::StaleGeneration { given: Generation(given), stored: Generation(stored) }
}

fn ended(generation: u64, connection: u64, reason: RemovalReason) -> MemberRead {
    let tombstone = Tombstone {
        generation: Generation(generation),
        connection: ConnectionId(connection),
        request: RequestId(1),
        reason,
        ended: StoreTime(500),
        silent_for_ms: 0,
    };
    MemberRead { tombstones: [(session(1), tombstone)].into(), ..MemberRead::absent(user("ann")) }
}

fn refusal(read: &MemberRead, join: &Join) -> Option<Refusal> {
    member::join(read, join, StoreTime(1_000)).err()
}

#[test]
fn a_repeated_join_is_answered_as_before_while_its_lease_exists() {
    let (mut store, ann) = (Store::new(), user("ann"));
    let first = store.join(&ann, &attempt(1, 1)).unwrap();
    assert!(!first.resumed && first.change.is_some());
    store.pass(Duration::from_secs(1));

    let again = store.join(&ann, &attempt(1, 2)).unwrap();
    assert_eq!((again.lease, again.since, again.change), (first.lease, first.since, None));

    store.release(first.lease, GRACE);
    let late = store.join(&ann, &attempt(1, 3)).unwrap();
    assert_eq!((late.lease, late.change), (first.lease, None), "no new lease for a connection given up");
}

#[test]
fn a_repeated_join_without_a_lease_gets_a_new_one_in_the_same_record() {
    let (mut store, ann) = (Store::new(), user("ann"));
    let first = store.join(&ann, &attempt(1, 1)).unwrap();
    store.leases.clear();
    store.pass(Duration::from_secs(1));
    let again = store.join(&ann, &attempt(1, 2)).unwrap();
    assert_eq!((again.lease, again.generation, again.since), (lease(2), Generation(1), first.since));
    let change = again.change.unwrap();
    assert_eq!(change.visible(), None);
    assert_eq!(change.transitions.len(), 1);
}

#[test]
fn a_higher_generation_takes_over_and_the_older_edge_is_told() {
    let (mut store, ann) = (Store::new(), user("ann"));
    store.join(&ann, &attempt(1, 1)).unwrap();
    store.pass(Duration::from_secs(3));
    let newer = Join { edge: edge(2), ..attempt(2, 2) };
    let granted = store.join(&ann, &newer).unwrap();
    assert!(granted.resumed);
    let change = granted.change.unwrap();
    assert_eq!((change.visible(), &change.revokes, &change.tombstones), (None, &vec![lease(1)], &vec![]));
    let [gone, came] = &change.transitions[..] else { panic!("two transitions") };
    assert_eq!((gone.lease, gone.edge, came.lease), (lease(1), Incarnation(1), lease(2)));
    let TransitionKind::Ended(ending) = gone.kind else { panic!("it ended") };
    assert_eq!((ending.reason, ending.silent_for), (RemovalReason::Superseded, Duration::from_secs(3)));
}

#[test]
fn a_connection_that_raises_its_own_generation_is_not_closed_as_superseded() {
    let (mut store, ann) = (Store::new(), user("ann"));
    store.join(&ann, &attempt(1, 1)).unwrap();
    let raised = Join { generation: Some(Generation(2)), ..attempt(1, 2) };
    let change = store.join(&ann, &raised).unwrap().change.unwrap();
    assert_eq!(change.revokes, [lease(1)]);
    assert_eq!(change.transitions.iter().map(|t| t.kind).collect::<Vec<_>>(), [TransitionKind::Joined]);
}

#[test]
fn a_duplicated_tab_and_a_late_join_are_stale() {
    let (mut store, ann) = (Store::new(), user("ann"));
    store.join(&ann, &attempt(2, 1)).unwrap();
    let duplicated = Join { connection: ConnectionId(9), ..attempt(2, 2) };
    assert_eq!(store.join(&ann, &duplicated).unwrap_err(), stale(2, 2));
    assert_eq!(store.join(&ann, &attempt(1, 3)).unwrap_err(), stale(1, 2));

    let change = member::leave(&store.read(&ann), lease(1), LeaveReason::Goodbye, store.now).unwrap();
    store.commit(&change).unwrap();
    assert_eq!(store.join(&ann, &attempt(1, 4)).unwrap_err(), stale(1, 2), "nobody appears after a goodbye");
    assert_eq!(store.join(&ann, &attempt(2, 5)).unwrap_err(), stale(2, 2));
    assert!(store.join(&ann, &attempt(3, 6)).is_ok());
}

#[test]
fn over_its_own_tombstone_only_the_silence_of_the_edge_is_passed() {
    for reason in RemovalReason::ALL {
        let passes = matches!(reason, RemovalReason::LeaseExpired | RemovalReason::EdgeLost);
        let read = ended(1, 1, reason);
        let rejoin = Join { rejoin: Some(StoreTime(7)), ..attempt(1, 1) };
        let has_ended = Refusal::HasEnded { reason };
        assert_eq!(refusal(&read, &attempt(1, 1)), (!passes).then_some(stale(1, 1)), "{reason}");
        assert_eq!(refusal(&read, &rejoin), (!passes).then_some(has_ended), "{reason}");

        let foreign = Join { connection: ConnectionId(9), ..attempt(1, 1) };
        assert_eq!(refusal(&read, &foreign), Some(stale(1, 1)), "{reason}");
        assert_eq!(refusal(&ended(2, 1, reason), &attempt(1, 1)), Some(stale(1, 2)), "{reason}");
        let put_out = Refusal::HasEnded { reason: RemovalReason::Evicted };
        let barred = (reason == RemovalReason::Evicted).then_some(put_out);
        assert_eq!(refusal(&read, &attempt(2, 1)), barred, "{reason}");
    }
}

#[test]
fn who_is_evicted_comes_back_by_no_attempt_for_two_ttls() {
    let evicted = Refusal::HasEnded { reason: RemovalReason::Evicted };
    let (mut store, ann) = (Store::new(), user("ann"));
    store.join(&ann, &attempt(1, 1)).unwrap();
    let change = member::evict(&store.read(&ann), None, RemovalReason::Evicted, store.now).unwrap();
    store.commit(&change).unwrap();
    store.pass(TTL * EVICTED_TTLS - Duration::from_millis(1));
    assert_eq!(store.join(&ann, &attempt(2, 2)), Err(evicted));
    assert_eq!(store.join(&ann, &Join { generation: None, ..attempt(3, 3) }), Err(evicted));
    assert!(store.join(&ann, &tab(2, 4)).is_ok(), "another session");
    store.pass(Duration::from_millis(1));
    assert!(store.join(&ann, &attempt(2, 5)).is_ok());
    // The clock goes back: who is in by now stays in.
    store.now = store.now.before(TTL);
    store.leases.remove(&lease(5));
    let again = Join { rejoin: Some(store.now), ..attempt(2, 6) };
    assert!(store.join(&ann, &again).is_ok());
}

#[test]
fn a_rejoin_behind_a_newer_attempt_is_superseded_unless_that_was_barred() {
    let rejoin = Join { rejoin: Some(StoreTime(7)), ..attempt(1, 2) };
    let has_ended = |reason| Some(Refusal::HasEnded { reason });
    let over = |reason| refusal(&ended(2, 2, reason), &rejoin);
    assert_eq!(over(RemovalReason::Left), has_ended(RemovalReason::Superseded));
    assert_eq!(over(RemovalReason::LeaseExpired), has_ended(RemovalReason::Superseded));
    assert_eq!(over(RemovalReason::Evicted), has_ended(RemovalReason::Evicted));
    assert_eq!(over(RemovalReason::TokenRevoked), has_ended(RemovalReason::TokenRevoked));

    let (mut store, ann) = (Store::new(), user("ann"));
    store.join(&ann, &attempt(2, 1)).unwrap();
    assert_eq!(store.join(&ann, &rejoin).err(), has_ended(RemovalReason::Superseded));
}

#[test]
fn without_a_generation_a_join_is_its_connections_attempt_or_the_next() {
    let (mut store, ann) = (Store::new(), user("ann"));
    let unnumbered = |connection, number| Join {
        generation: None,
        connection: ConnectionId(connection),
        request: RequestId(number),
        ..join(number)
    };
    let first = store.join(&ann, &unnumbered(1, 1)).unwrap();
    assert_eq!(first.generation, Generation(1));
    let repeated = Join { lease: lease(2), ..unnumbered(1, 1) };
    assert_eq!(store.join(&ann, &repeated).unwrap().change, None, "a repetition");
    let second = store.join(&ann, &unnumbered(2, 3)).unwrap();
    assert_eq!(second.generation, Generation(2));

    let change = member::leave(&store.read(&ann), second.lease, LeaveReason::Goodbye, store.now).unwrap();
    store.commit(&change).unwrap();
    let third = store.join(&ann, &unnumbered(2, 4)).unwrap();
    assert_eq!(third.generation, Generation(3), "left and entered again over one connection");

    store.release(third.lease, GRACE);
    store.pass(GRACE);
    store.sweep(&ann);
    let repeated = Join { lease: lease(5), ..unnumbered(2, 4) };
    assert_eq!(store.join(&ann, &repeated).unwrap_err(), stale(3, 3), "that join is over");
    assert_eq!(
        store.join(&ann, &unnumbered(2, 6)).unwrap().generation,
        Generation(3),
        "it stands, and asks again"
    );
}

#[test]
fn there_is_a_highest_generation_and_none_above_it() {
    let (mut store, ann) = (Store::new(), user("ann"));
    let unnumbered =
        |connection, number| Join { generation: None, connection: ConnectionId(connection), ..join(number) };
    let highest = Generation::MAX.0;
    store.join(&ann, &attempt(highest - 1, 1)).unwrap();
    let last = store.join(&ann, &unnumbered(2, 2)).unwrap();
    assert_eq!(last.generation, Generation::MAX);
    assert_eq!(store.join(&ann, &unnumbered(3, 3)), Err(stale(highest, highest)), "none is minted above");
    assert_eq!(store.join(&ann, &unnumbered(2, 4)).unwrap().generation, Generation::MAX, "a repetition");
    assert_eq!(store.join(&ann, &attempt(highest + 1, 5)), Err(stale(highest, highest)));
    let rejoin = Join { rejoin: Some(store.now), ..attempt(u64::MAX, 6) };
    let superseded = Refusal::HasEnded { reason: RemovalReason::Superseded };
    assert_eq!(store.join(&ann, &rejoin), Err(superseded));
    // Given up before its answer came: nothing above the highest is forbidden either.
    let (connection, request) = (ConnectionId(9), RequestId(1));
    let gone = Unanswered { session: session(1), generation: None, connection, request };
    let leave = member::leave(&store.read(&ann), last.lease, LeaveReason::Goodbye, store.now).unwrap();
    store.commit(&leave).unwrap();
    match member::abandon(&store.read(&ann), &gone, store.now) {
        Abandoned::Forbid(change) => assert_eq!(change.tombstones[0].1.generation, Generation::MAX),
        Abandoned::Release(_) | Abandoned::Superseded => panic!("it may still come"),
    }
}

#[test]
fn a_since_of_the_far_future_is_not_believed() {
    let (mut store, ann) = (Store::new(), user("ann"));
    let now = store.now.0;
    let rejoin = |number, since| Join { rejoin: Some(StoreTime(since)), ..tab(number, number as u64) };
    let since =
        |store: &Store, since| member::join(&store.read(&ann), &rejoin(1, since), store.now).unwrap().since.0;
    let most = now + SINCE_AHEAD_MS_MAX;
    assert_eq!([most - 1, most, most + 1, u64::MAX].map(|at| since(&store, at)), [most - 1, most, now, now]);
    store.join(&ann, &rejoin(1, 70)).unwrap();
    assert_eq!(store.join(&ann, &rejoin(2, u64::MAX)).unwrap().since, StoreTime(70));
}

#[test]
fn the_earliest_since_wins_whatever_the_clock_says() {
    let (mut store, ann) = (Store::new(), user("ann"));
    let rejoin = |number, since| Join { rejoin: Some(StoreTime(since)), ..tab(number, number as u64) };
    let ahead = store.now.0 + 5_000;
    assert_eq!(store.join(&ann, &rejoin(1, ahead)).unwrap().since, StoreTime(ahead));
    assert_eq!(store.join(&ann, &tab(2, 2)).unwrap().since, StoreTime(ahead));
    assert_eq!(store.join(&ann, &rejoin(3, 70)).unwrap().since, StoreTime(70));
    assert_eq!(store.join(&ann, &rejoin(4, 90)).unwrap().since, StoreTime(70));
}

#[test]
fn beyond_the_limit_the_session_whose_grace_ends_first_gives_way() {
    let (mut store, ann) = (Store::new(), user("ann"));
    for number in 1..=SESSIONS_PER_MEMBER_MAX {
        store.join(&ann, &tab(number, number as u64)).unwrap();
    }
    assert_eq!(store.join(&ann, &tab(99, 99)).unwrap_err(), Refusal::TooManySessions);
    assert!(
        store.join(&ann, &Join { generation: Some(Generation(2)), ..tab(7, 97) }).is_ok(),
        "not a new one"
    );

    store.release(lease(5), GRACE);
    store.pass(Duration::from_secs(1));
    store.release(lease(3), GRACE);
    let change = store.join(&ann, &tab(99, 98)).unwrap().change.unwrap();
    assert_eq!(change.revokes, [lease(5)]);
    let [(who, tombstone)] = &change.tombstones[..] else { panic!("one tombstone") };
    assert_eq!((who, tombstone.reason), (&session(5), RemovalReason::ConnectionLost));
    assert_eq!(change.record.as_ref().unwrap().sessions.len(), SESSIONS_PER_MEMBER_MAX);
    assert_eq!(change.visible(), None);
}

#[test]
fn a_token_that_has_ended_lets_nobody_in() {
    let (mut store, ann) = (Store::new(), user("ann"));
    let at_its_end = Join { token: token(store.now), ..join(1) };
    assert_eq!(store.join(&ann, &at_its_end).unwrap_err(), Refusal::TokenEnded);
}

#[test]
fn a_reconnect_with_the_same_state_shows_nothing_and_a_new_state_shows() {
    let (mut store, ann) = (Store::new(), user("ann"));
    let with = |join: Join, text| Join { profile: profile(Status::Available, text), ..join };
    store.join(&ann, &with(tab(1, 1), "{\"tab\":1}")).unwrap();
    store.pass(Duration::from_secs(1));
    store.join(&ann, &with(tab(2, 2), "{\"tab\":2}")).unwrap();
    store.pass(TTL / 9);
    let back = Join { generation: Some(Generation(2)), ..tab(1, 3) };
    let change = store.join(&ann, &with(back.clone(), "{\"tab\":1}")).unwrap().change.unwrap();
    assert_eq!(change.visible(), None);
    let back = Join { generation: Some(Generation(3)), lease: lease(4), ..back };
    let change = store.join(&ann, &with(back, "{\"tab\":3}")).unwrap().change.unwrap();
    assert!(change.visible().is_some());
}
