//! Resume and paging, step by step.

use std::mem::size_of;

use presence_model::cursor::Cursor;
use presence_model::fanout::{Next, Receiver};
use presence_model::id::RegionId;
use presence_model::position::Position;
use presence_model::reason::RemovalReason;
use presence_model::replica::{Applied, Freshness};
use presence_model::time::{Mono, StoreTime};
use presence_model::view::{RegionEvent, Resume, View, ViewDelta, ViewRevision};

use crate::oracle::{History, List, list, user};

const NOW: Mono = Mono::from_millis(0);
const HELD: Freshness = Freshness::Held { since: StoreTime(5) };

fn region(name: &str) -> RegionId {
    RegionId::new(name).unwrap()
}

fn load(view: &mut View, name: &str, history: &History, freshness: Freshness) {
    for page in history.pages(history.revision(), 2, freshness) {
        view.apply(&region(name), RegionEvent::Page(page), NOW);
    }
}

fn deliver(view: &mut View, history: &History, from: u64) -> Applied {
    view.apply(&region("eu"), RegionEvent::Delta(history.delta(from, history.revision())), NOW)
}

fn cursor(position: Position) -> Cursor {
    Cursor::new([(region("eu"), position)].into())
}

fn answered(view: &View, cursor: &Cursor) -> ViewDelta {
    match view.resume(cursor) {
        Resume::Delta(delta) => delta,
        other @ (Resume::Snapshot | Resume::Behind | Resume::Forgotten) => panic!("{other:?}"),
    }
}

/// A roster of users 0, 1, 2 and a view of it.
fn three() -> (History, View) {
    let mut history = History::new(1, 0, List::new());
    history.commit(&[(0, Some(1)), (1, Some(1)), (2, Some(1))]);
    let mut view = View::new();
    load(&mut view, "eu", &history, Freshness::Live);
    (history, view)
}

#[test]
fn a_join_and_leave_inside_one_step_reach_the_client_that_saw_the_join() {
    let (mut history, mut view) = three();
    let before = view.revision();
    history.commit(&[(4, Some(4))]);
    let saw_the_join = cursor(history.position());
    history.commit(&[(4, None)]);
    assert_eq!(deliver(&mut view, &history, 1), Applied::Shown(Vec::new()));
    assert_eq!(view.revision(), before, "nobody here is shown anything new");
    let delta = answered(&view, &saw_the_join);
    assert_eq!(delta.removals, history.delta(2, 3).removals);
    assert_eq!((delta.from, delta.to, delta.cursor), (None, before, cursor(history.position())));
}

#[test]
fn who_left_while_i_was_away_is_told_with_the_reason() {
    let (mut history, mut view) = three();
    let away = view.cursor();
    history.commit(&[]);
    history.commit(&[(1, None)]);
    deliver(&mut view, &history, 1);
    let removals = answered(&view, &away).removals;
    assert_eq!((&removals[0].user, removals.len()), (&user(1), 1));
    assert_eq!(removals[0].ending.reason, RemovalReason::LeaseExpired);
}

#[test]
fn a_room_emptied_forgotten_and_filled_again_is_answered_by_a_snapshot() {
    let (history, _) = three();
    let old = cursor(history.position());
    let mut refilled = History::new(1, 500, List::new());
    refilled.commit(&[(5, Some(5))]);
    let mut view = View::new();
    load(&mut view, "eu", &refilled, Freshness::Live);
    assert_eq!(view.resume(&old), Resume::Forgotten);
    let mut receiver = Receiver::new(Some(old.clone()));
    assert_eq!(receiver.next(&view), Next::CatchUp(old));
    receiver.asked();
    assert_eq!(receiver.next(&view), Next::Page { revision: view.revision(), after: None });
}

#[test]
fn a_cursor_ahead_is_caught_up_with_first() {
    let (mut history, mut view) = three();
    history.commit(&[(4, Some(4))]);
    let ahead = cursor(history.position());
    assert_eq!(view.resume(&ahead), Resume::Behind);
    let mut receiver = Receiver::new(Some(ahead.clone()));
    assert_eq!(receiver.next(&view), Next::CatchUp(ahead.clone()));
    deliver(&mut view, &history, 1);
    assert!(matches!(receiver.next(&view), Next::Answer(delta) if delta.upserts.is_empty()));
    let newer = History::new(2, 0, List::new());
    receiver = Receiver::new(Some(cursor(newer.position())));
    assert!(matches!(receiver.next(&view), Next::CatchUp(_)));
    receiver.asked();
    assert_eq!(receiver.next(&view), Next::Page { revision: view.revision(), after: None });
    let stranger = Cursor::new([(region("mars"), history.position())].into());
    assert_eq!(view.resume(&stranger), Resume::Behind);
}

#[test]
fn an_unconfirmed_member_or_a_lost_region_is_no_ghost_elsewhere() {
    let (_, mut view) = three();
    let lost_all = History::new(2, 0, List::new());
    load(&mut view, "eu", &lost_all, HELD);
    let shows_unconfirmed = view.cursor();
    assert_eq!((view.len(), shows_unconfirmed.get(&region("eu"))), (3, None));
    assert_eq!(shows_unconfirmed.seen(&region("eu")), Some(lost_all.position()));
    let (_, before_the_loss) = three();
    assert_eq!(before_the_loss.resume(&shows_unconfirmed), Resume::Behind, "nobody goes back to before");
    assert_eq!(view.resume(&cursor(lost_all.position())), Resume::Snapshot);
    let mut elsewhere = View::new();
    load(&mut elsewhere, "eu", &lost_all, Freshness::Live);
    assert_eq!(elsewhere.resume(&shows_unconfirmed), Resume::Snapshot);

    let (history, mut view) = three();
    view.apply(&region("eu"), RegionEvent::Lost, NOW);
    let lost = view.cursor();
    assert!(lost.get(&region("eu")).is_none() && view.is_empty());
    let (_, elsewhere) = three();
    assert_eq!(elsewhere.resume(&lost), Resume::Snapshot);
    assert_eq!(view.resume(&lost), Resume::Snapshot);
    let mut lags = View::new();
    load(&mut lags, "eu", &History::new(1, 0, List::new()), Freshness::Live);
    assert_eq!(lags.resume(&lost), Resume::Behind);
    assert_eq!(view.resume(&cursor(history.position())), Resume::Snapshot);
}

#[test]
fn a_snapshot_in_between_answers_no_cursor_from_before() {
    let (mut history, mut view) = three();
    let early = view.cursor();
    history.commit(&[(4, Some(4))]);
    let saw_the_join = cursor(history.position());
    history.commit(&[(4, None)]);
    load(&mut view, "eu", &history, Freshness::Live);
    assert_eq!(view.resume(&early), Resume::Forgotten);
    assert_eq!(view.resume(&saw_the_join), Resume::Forgotten);
    assert_eq!(answered(&view, &view.cursor()).upserts, []);
}

/// Who comes to an edge that has just loaded the room, from wherever it was, if the core recalls that much.
#[test]
fn what_is_recalled_answers_every_cursor_from_there_on() {
    let mut history = History::new(1, 0, List::new());
    history.commit(&[(0, Some(1)), (1, Some(1)), (2, Some(1))]);
    history.commit(&[(3, Some(3))]);
    history.commit(&[(1, None)]);
    history.commit(&[]);
    history.commit(&[(3, None), (0, Some(5))]);
    let end = history.revision();
    for from in 1..end {
        for moves_on in [false, true] {
            let mut history = history.clone();
            let mut view = View::new();
            load(&mut view, "eu", &history, Freshness::Live);
            let before = view.revision();
            assert_eq!(view.resume(&cursor(history.position_at(from))), Resume::Forgotten);
            if moves_on {
                history.commit(&[(2, None)]);
                assert!(matches!(deliver(&mut view, &history, from), Applied::Shown(_)));
            } else {
                assert_eq!(deliver(&mut view, &history, from), Applied::Known);
                assert_eq!(view.revision(), before, "nobody here is shown anything new");
            }
            for at in from..=history.revision() {
                assert!(view.remembers(&region("eu"), history.position_at(at)));
                let delta = answered(&view, &cursor(history.position_at(at)));
                let mut client = history.at(at).clone();
                crate::oracle::apply_view(&delta, &mut client);
                assert_eq!(client, *history.now(), "from {at}, recalled from {from}");
                assert_eq!(delta.cursor, cursor(history.position()));
            }
            assert_eq!(view.resume(&cursor(history.position_at(from - 1))), Resume::Forgotten);
            history.commit(&[(9, Some(9))]);
            deliver(&mut view, &history, history.revision() - 1);
            let delta = answered(&view, &cursor(history.position_at(from)));
            let mut client = history.at(from).clone();
            crate::oracle::apply_view(&delta, &mut client);
            assert_eq!(client, *history.now(), "and later");
            view.compact(Mono::from_millis(1_000_000));
            assert_eq!(view.resume(&cursor(history.position_at(from))), Resume::Forgotten);
        }
    }
}

#[test]
fn a_recall_that_does_not_reach_here_or_is_of_another_history_changes_nothing() {
    let (mut history, mut view) = three();
    let old = cursor(history.position());
    history.commit(&[(4, Some(4))]);
    let short = history.delta(1, history.revision());
    history.commit(&[(4, None)]);
    load(&mut view, "eu", &history, Freshness::Live);
    assert_eq!(view.apply(&region("eu"), RegionEvent::Delta(short), NOW), Applied::Known);
    assert_eq!(view.resume(&old), Resume::Forgotten);
    let mut false_one = history.delta(1, history.revision());
    false_one.digest = Default::default();
    assert_eq!(view.apply(&region("eu"), RegionEvent::Delta(false_one), NOW), Applied::Differs);
    assert_eq!(view.resume(&old), Resume::Snapshot, "nothing is remembered of a copy that differs");
}

#[test]
fn a_region_that_cannot_be_heard_blocks_nobody_and_one_that_is_loading_does() {
    let (history, mut view) = three();
    let stale = RegionEvent::Freshness(Freshness::Stale { since: StoreTime(1) });
    view.apply(&region("us"), stale, NOW);
    assert!(view.is_complete());
    let first = history.pages(1, 1, Freshness::Live).swap_remove(0);
    view.apply(&region("us"), RegionEvent::Page(first), NOW);
    assert!(!view.is_complete());
    assert_eq!(Receiver::new(None).next(&view), Next::Nothing);
}

#[test]
fn a_leave_while_paging_is_not_lost() {
    let (mut history, mut view) = three();
    let mut receiver = Receiver::new(None);
    let begun = view.revision();
    assert_eq!(receiver.next(&view), Next::Page { revision: begun, after: None });
    let mut client = list(&view.page(None, 2));
    receiver.page_sent(begun, Some(user(1)), true);
    history.commit(&[(0, None), (2, Some(8)), (3, Some(3))]);
    deliver(&mut view, &history, 1);
    assert_eq!(receiver.next(&view), Next::Page { revision: begun, after: Some(user(1)) });
    client.extend(list(&view.page(Some(&user(1)), 2)));
    let mixed = view.cursor_of(begun);
    assert_eq!(mixed.get(&region("eu")), None, "its pages are of two moments");
    assert_eq!(mixed.seen(&region("eu")), Some(history.position()), "of which the later one was seen");
    receiver.page_sent(begun, Some(user(3)), false);
    assert_eq!(receiver.next(&view), Next::Shared { sent: begun, from: begun, to: view.revision() });
    crate::oracle::apply_view(&view.changed_since(begun).unwrap(), &mut client);
    assert_eq!(client, *history.now());
}

#[test]
fn a_snapshot_begins_again_when_its_beginning_is_forgotten() {
    let (mut history, mut view) = three();
    let mut paging = Receiver::new(None);
    let begun = view.revision();
    paging.page_sent(begun, Some(user(0)), true);
    let mut reading = Receiver::new(None);
    reading.page_sent(begun, None, false);
    history.commit(&[(0, None)]);
    deliver(&mut view, &history, 1);
    view.compact(Mono::from_millis(1_000_000));
    let again = Next::Page { revision: ViewRevision(begun.0 + 1), after: None };
    assert_eq!((paging.next(&view), reading.next(&view)), (again.clone(), again));
}

#[test]
fn what_shows_nothing_is_forgotten_like_the_rest() {
    let (mut history, mut view) = three();
    history.commit(&[(4, Some(4))]);
    let saw_the_join = cursor(history.position());
    history.commit(&[(4, None)]);
    deliver(&mut view, &history, 1);
    assert_eq!(answered(&view, &saw_the_join).removals.len(), 1);
    view.compact(Mono::from_millis(1_000_000));
    assert_eq!(view.resume(&saw_the_join), Resume::Forgotten);
    assert_eq!(answered(&view, &view.cursor()).removals, []);
}

#[test]
fn a_region_at_rest_can_be_resumed_however_long_another_was_busy() {
    let (mut history, mut view) = three();
    load(&mut view, "us", &History::new(1, 7, List::new()), Freshness::Live);
    history.commit(&[(0, None)]);
    deliver(&mut view, &history, 1);
    let before = view.cursor();
    view.compact(Mono::from_millis(1_000_000));
    assert_eq!(answered(&view, &before).removals, []);
}

#[test]
fn a_user_who_moves_is_never_absent() {
    let (history, mut view) = three();
    load(&mut view, "us", &History::new(1, 0, history.now().clone()), Freshness::Live);
    assert_eq!(view.len(), 3);
    let before = view.revision();
    let gone = RegionEvent::Lost;
    assert_eq!(view.apply(&region("us"), gone, NOW), Applied::Shown(Vec::new()));
    assert_eq!((view.len(), view.revision()), (3, before));
}

// Thousands of rooms and tens of thousands of receivers: what each takes when nothing happens.
#[test]
fn an_idle_room_and_receiver_are_small() {
    assert!(size_of::<View>() <= 96, "{}", size_of::<View>());
    assert!(size_of::<Receiver>() <= 32, "{}", size_of::<Receiver>());
}
