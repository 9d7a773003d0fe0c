//! How sessions end: by a word, by silence, by their token, by decision of an operator.

use std::time::Duration;

use presence_model::change::Visible;
use presence_model::id::{ConnectionId, Generation, Incarnation};
use presence_model::lease::LeaseId;
use presence_model::link::RequestId;
use presence_model::member::{self, Abandoned, Due, DueCause, Join, Unanswered};
use presence_model::reason::{Ending, LeaveReason, RemovalReason};
use presence_model::refusal::Refusal;
use presence_model::time::StoreTime;

use crate::build::{GRACE, TTL, attempt, edge, lease, no_update, session, tab, token, user};
use crate::roster::{Refused, Store};

const SECOND: Duration = Duration::from_secs(1);

fn gone(visible: Option<Visible>) -> Option<(RemovalReason, Duration)> {
    match visible? {
        Visible::Removal(removal) => Some((removal.ending.reason, removal.ending.silent_for)),
        Visible::Upsert(_) => None,
    }
}

fn one_session() -> (Store, presence_model::id::UserId) {
    let (mut store, ann) = (Store::new(), user("ann"));
    store.join(&ann, &attempt(1, 1)).expect("nobody is there");
    (store, ann)
}

#[test]
fn silence_ends_at_the_ttl_not_before() {
    let (mut store, ann) = one_session();
    store.pass(TTL - Duration::from_millis(1));
    assert_eq!(store.sweep(&ann), None);
    store.pass(Duration::from_millis(1));
    assert_eq!(gone(store.sweep(&ann)), Some((RemovalReason::LeaseExpired, TTL)));
}

#[test]
fn a_released_session_ends_by_grace_and_says_how_long_it_was_silent() {
    let (mut store, ann) = one_session();
    store.pass(SECOND * 30);
    store.release(lease(1), GRACE);
    assert!(!store.renew(lease(1)), "release is final");
    store.pass(GRACE);
    assert_eq!(gone(store.sweep(&ann)), Some((RemovalReason::ConnectionLost, SECOND * 42)));
}

#[test]
fn a_lost_edge_counts_only_if_it_was_not_heard_again() {
    let (mut store, ann) = one_session();
    store.pass(SECOND * 6);
    store.lose(Incarnation(1), GRACE);
    store.pass(GRACE);
    assert_eq!(gone(store.sweep(&ann)), Some((RemovalReason::EdgeLost, SECOND * 18)));

    let (mut store, ann) = one_session();
    store.lose(Incarnation(1), GRACE);
    store.pass(SECOND);
    assert!(store.renew(lease(1)));
    store.pass(GRACE);
    assert_eq!(store.sweep(&ann), None);
    store.pass(TTL);
    assert_eq!(gone(store.sweep(&ann)), Some((RemovalReason::LeaseExpired, TTL + GRACE)));
}

#[test]
fn several_sessions_end_as_one_change_with_the_reason_of_the_last() {
    let (mut store, ann) = (Store::new(), user("ann"));
    store.join(&ann, &tab(1, 1)).unwrap();
    store.join(&ann, &Join { edge: edge(2), ..tab(2, 2) }).unwrap();
    store.join(&ann, &tab(3, 3)).unwrap();
    store.release(lease(1), GRACE);
    store.pass(SECOND);
    store.lose(Incarnation(2), GRACE);
    store.pass(SECOND * 20);
    let revision = store.revision;
    assert_eq!(store.sweep(&ann), None, "one is left");
    assert_eq!(store.revision, revision.next());
    assert_eq!(store.tombstones.len(), 2);

    store.join(&ann, &tab(4, 4)).unwrap();
    store.pass(SECOND);
    store.release(lease(3), GRACE);
    store.pass(TTL);
    assert_eq!(gone(store.sweep(&ann)), Some((RemovalReason::LeaseExpired, TTL + SECOND)));
}

#[test]
fn a_renewal_that_slips_in_between_wins() {
    let (mut store, ann) = one_session();
    store.join(&ann, &tab(2, 2)).unwrap();
    store.pass(TTL);
    let due = store.due(&ann);
    let change = member::expire(&store.read(&ann), &due, store.now).unwrap();
    store.renew(lease(1));
    assert_eq!(store.commit(&change).unwrap_err(), Refused::Guard);

    let change = member::expire(&store.read(&ann), &due, store.now).unwrap();
    store.commit(&change).unwrap();
    assert_eq!(change.revokes, [lease(2)], "decided again, only the silent one ends");
    store.renew(lease(1));
    assert_eq!(member::expire(&store.read(&ann), &due, store.now), None);
}

#[test]
fn in_a_hold_only_tokens_end() {
    let (mut store, ann) = (Store::new(), user("ann"));
    let short = Join { token: token(store.now + SECOND), ..tab(1, 1) };
    store.join(&ann, &short).unwrap();
    store.join(&ann, &tab(2, 2)).unwrap();
    store.pass(TTL);
    let due = store.due(&ann);
    store.held = true;
    let all = member::expire(&store.read(&ann), &due, store.now).unwrap();
    assert_eq!(store.commit(&all).unwrap_err(), Refused::Guard);
    assert_eq!(store.sweep(&ann), None);
    assert_eq!(store.tombstones[&(ann.clone(), session(1))].reason, RemovalReason::TokenExpired);
    store.held = false;
    assert_eq!(gone(store.sweep(&ann)), Some((RemovalReason::LeaseExpired, TTL)));
}

#[test]
fn a_fresh_token_keeps_a_session() {
    let (mut store, ann) = (Store::new(), user("ann"));
    store.join(&ann, &Join { token: token(store.now + SECOND), ..attempt(1, 1) }).unwrap();
    let due = [Due { lease: lease(1), cause: DueCause::TokenEnd }];
    let fresh = member::Update { token: Some(token(store.now + TTL)), ..no_update(lease(1)) };
    let change = member::update(&store.read(&ann), &fresh, store.now).unwrap().unwrap();
    assert_eq!((change.visible(), &change.token_ends), (None, &vec![(lease(1), store.now + TTL)]));
    store.commit(&change).unwrap();
    store.pass(SECOND);
    assert_eq!(member::expire(&store.read(&ann), &due, store.now), None);
    let ended = member::Update { token: Some(token(store.now)), ..no_update(lease(1)) };
    assert_eq!(member::update(&store.read(&ann), &ended, store.now), Err(Refusal::TokenEnded));
}

#[test]
fn a_lease_that_vanished_ends_only_while_it_is_absent() {
    let (mut store, ann) = one_session();
    let due = [Due { lease: lease(1), cause: DueCause::Missing }];
    assert_eq!(member::expire(&store.read(&ann), &due, store.now), None);
    store.leases.clear();
    let change = member::expire(&store.read(&ann), &due, store.now).unwrap();
    assert_eq!(change.removal.unwrap().reason, RemovalReason::LeaseExpired);
    store.join(&ann, &attempt(1, 2)).unwrap();
    assert_eq!(store.commit(&change).unwrap_err(), Refused::Changed);
}

#[test]
fn leases_that_no_record_names_end_nobody() {
    let (mut store, ann) = one_session();
    store.pass(TTL);
    let cause = DueCause::Deadline { deadline: store.now, shortened: None };
    assert_eq!(member::expire(&store.read(&ann), &[Due { lease: lease(77), cause }], store.now), None);
}

#[test]
fn a_goodbye_names_the_current_lease() {
    let (mut store, ann) = one_session();
    store.join(&ann, &attempt(2, 2)).unwrap();
    let leave = |store: &Store, lease: LeaseId| {
        member::leave(&store.read(&ann), lease, LeaveReason::Goodbye, store.now)
    };
    assert_eq!(leave(&store, lease(1)), Err(Refusal::NotCurrent), "superseded");
    store.release(lease(2), GRACE);
    assert_eq!(member::update(&store.read(&ann), &no_update(lease(2)), store.now), Err(Refusal::NotCurrent));
    let change = leave(&store, lease(2)).unwrap();
    assert_eq!(change.removal, Some(Ending { reason: RemovalReason::Left, silent_for: Duration::ZERO }));
    store.commit(&change).unwrap();
    assert_eq!(leave(&store, lease(2)), Err(Refusal::NotPresent));
}

#[test]
fn an_edge_may_end_what_rests_on_a_revoked_token_before_anybody_else_knows() {
    let (mut store, ann) = one_session();
    let (reason, now) = (RemovalReason::TokenRevoked, store.now);
    let change = member::leave(&store.read(&ann), lease(1), LeaveReason::TokenRevoked, now).unwrap();
    assert_eq!(change.removal.unwrap().reason, reason);
    store.commit(&change).unwrap();
    let rejoin = Join { rejoin: Some(StoreTime(7)), ..attempt(1, 3) };
    assert_eq!(store.join(&ann, &rejoin).unwrap_err(), Refusal::HasEnded { reason }, "nor does it come back");
}

#[test]
fn an_eviction_also_bars_whoever_might_be_brought_back() {
    let (mut store, ann) = one_session();
    store.pass(TTL);
    store.sweep(&ann);
    store.join(&ann, &tab(2, 2)).unwrap();
    let reason = RemovalReason::Evicted;
    let change = member::evict(&store.read(&ann), None, reason, store.now).unwrap();
    assert_eq!(change.removal.unwrap().reason, reason);
    store.commit(&change).unwrap();
    let rejoin = Join { rejoin: Some(StoreTime(7)), ..attempt(1, 3) };
    assert_eq!(store.join(&ann, &rejoin).unwrap_err(), Refusal::HasEnded { reason });
    assert_eq!(member::evict(&store.read(&ann), None, reason, store.now), None);
    assert_eq!(member::evict(&store.read(&user("ben")), None, reason, store.now), None);
}

fn unanswered(generation: Option<u64>, connection: u64) -> Unanswered {
    Unanswered {
        session: session(1),
        generation: generation.map(Generation),
        connection: ConnectionId(connection),
        request: RequestId(1),
    }
}

fn abandon(store: &Store, generation: Option<u64>, connection: u64) -> Abandoned {
    member::abandon(&store.read(&user("ann")), &unanswered(generation, connection), store.now)
}

#[test]
fn an_unanswered_join_is_released_if_it_is_in() {
    let (mut store, ann) = one_session();
    assert_eq!(abandon(&store, Some(1), 1), Abandoned::Release(lease(1)));
    assert_eq!(abandon(&store, None, 1), Abandoned::Release(lease(1)));
    store.join(&ann, &attempt(2, 2)).unwrap();
    assert_eq!(abandon(&store, Some(1), 1), Abandoned::Superseded);
}

#[test]
fn an_unanswered_join_that_is_not_in_never_gets_in() {
    let (mut store, ann) = one_session();
    for generation in [Some(2), None] {
        let late = Join { generation: generation.map(Generation), ..attempt(2, 2) };
        let on_its_way = member::join(&store.read(&ann), &late, store.now).unwrap().change.unwrap();
        let Abandoned::Forbid(change) = abandon(&store, generation, 2) else { panic!("forbidden") };
        assert_eq!((change.visible(), change.transitions.len()), (None, 0));
        store.commit(&change).unwrap();
        assert_eq!(store.commit(&on_its_way).unwrap_err(), Refused::Changed);
        assert!(store.join(&ann, &late).is_err());
        assert_eq!(abandon(&store, generation, 2), Abandoned::Superseded);
        assert!(store.join(&ann, &attempt(1, 3)).is_ok(), "who is there stays");
        store.tombstones.clear();
    }
}

/// A join of connection 1 by that request; its lease has the same number.
fn ask(request: u64, generation: Option<u64>) -> Join {
    let generation = generation.map(Generation);
    Join { generation, request: RequestId(request), ..attempt(1, request) }
}

fn give_up(store: &Store, request: u64, generation: Option<u64>) -> Abandoned {
    let unanswered = Unanswered { request: RequestId(request), ..unanswered(generation, 1) };
    member::abandon(&store.read(&user("ann")), &unanswered, store.now)
}

/// Whoever asks again over the connection that stands is in, whatever becomes of the join before, and when.
#[test]
fn a_later_join_of_a_connection_stands_when_the_one_before_is_given_up() {
    for generation in [Some(1), None] {
        for (granted_first, given_up_first) in [(true, true), (true, false), (false, true), (false, false)] {
            let (mut store, ann) = (Store::new(), user("ann"));
            if granted_first {
                store.join(&ann, &ask(1, generation)).unwrap();
            }
            if given_up_first {
                match give_up(&store, 1, generation) {
                    Abandoned::Release(granted) => store.release(granted, GRACE),
                    Abandoned::Forbid(change) => drop(store.commit(&change).unwrap()),
                    Abandoned::Superseded => panic!("nothing newer is there"),
                }
            }
            let again = store.join(&ann, &ask(2, generation)).unwrap();
            assert_eq!((again.lease, again.generation), (lease(2), Generation(1)));
            assert_eq!(give_up(&store, 1, generation), Abandoned::Superseded);
            assert!(store.join(&ann, &ask(1, generation)).is_err(), "it comes too late");
            store.pass(GRACE);
            store.sweep(&ann);
            assert!(store.renew(lease(2)), "{generation:?}, {granted_first}, {given_up_first}");
        }
    }
}

#[test]
fn a_join_after_the_one_that_is_in_never_gets_in_once_it_is_given_up() {
    for (generation, silent) in [(Some(1), false), (None, false), (Some(1), true), (None, true)] {
        let (mut store, ann) = (Store::new(), user("ann"));
        store.join(&ann, &ask(1, generation)).unwrap();
        let Abandoned::Forbid(change) = give_up(&store, 2, generation) else { panic!("it may still come") };
        store.commit(&change).unwrap();
        assert_eq!(give_up(&store, 2, generation), Abandoned::Superseded);
        assert!(store.join(&ann, &ask(2, generation)).is_err());
        if !silent {
            store.release(lease(1), GRACE);
        }
        store.pass(TTL);
        store.sweep(&ann);
        assert!(store.records.is_empty());
        assert!(store.join(&ann, &ask(2, generation)).is_err(), "{generation:?}, silent: {silent}");
        assert!(store.join(&ann, &ask(3, generation)).is_ok());
    }
}

#[test]
fn a_tombstone_of_a_lower_generation_does_not_hide_a_forbidden_one() {
    let (mut store, ann) = one_session();
    let Abandoned::Forbid(change) = abandon(&store, Some(5), 5) else { panic!("forbidden") };
    store.commit(&change).unwrap();
    store.pass(TTL);
    store.sweep(&ann);
    assert_eq!(store.tombstones[&(ann.clone(), session(1))].generation, Generation(5));
    assert!(store.join(&ann, &attempt(5, 6)).is_err());
    assert!(store.join(&ann, &attempt(6, 7)).is_ok());
}

/// Forbids the attempt of that generation, and tells the reason that is kept for the session.
fn reason_after_forbidding(store: &mut Store, generation: u64) -> RemovalReason {
    let Abandoned::Forbid(change) = abandon(store, Some(generation), generation) else { panic!("forbidden") };
    store.commit(&change).expect("nothing came in between");
    let kept = store.tombstones[&(user("ann"), session(1))].clone();
    assert_eq!((kept.generation, kept.connection), (Generation(generation), ConnectionId(generation)));
    assert!(store.join(&user("ann"), &attempt(generation, 90 + generation)).is_err(), "it stays out");
    kept.reason
}

#[test]
fn a_forbidden_join_does_not_hide_how_the_session_ended() {
    let evicted = RemovalReason::Evicted;
    let (mut store, ann) = one_session();
    let change = member::evict(&store.read(&ann), None, evicted, store.now).unwrap();
    store.commit(&change).unwrap();
    let ended = store.now;
    store.pass(SECOND);
    assert_eq!(reason_after_forbidding(&mut store, 5), evicted, "forbidden after it");
    assert_eq!(store.tombstones[&(ann, session(1))].ended, ended);

    let (mut store, ann) = one_session();
    assert_eq!(reason_after_forbidding(&mut store, 5), RemovalReason::ConnectionLost);
    let change = member::evict(&store.read(&ann), None, evicted, store.now).unwrap();
    store.commit(&change).unwrap();
    let kept = &store.tombstones[&(ann.clone(), session(1))];
    assert_eq!((kept.generation, kept.reason), (Generation(5), evicted), "forbidden before it");
    store.pass(TTL * 2);
    assert!(store.join(&ann, &attempt(5, 6)).is_err());
    assert!(store.join(&ann, &attempt(6, 7)).is_ok());
}

#[test]
fn a_reason_that_would_let_a_forbidden_join_in_is_not_kept() {
    let (mut store, ann) = one_session();
    store.pass(TTL);
    store.sweep(&ann);
    assert_eq!(reason_after_forbidding(&mut store, 5), RemovalReason::ConnectionLost);

    let (mut store, ann) = one_session();
    let change = member::leave(&store.read(&ann), lease(1), LeaveReason::Goodbye, store.now).unwrap();
    store.commit(&change).unwrap();
    let Abandoned::Forbid(change) = abandon(&store, None, 2) else { panic!("forbidden") };
    store.commit(&change).unwrap();
    let unnumbered = Join { generation: None, ..attempt(2, 3) };
    assert!(store.join(&ann, &unnumbered).is_err(), "a goodbye bars no connection");
}
