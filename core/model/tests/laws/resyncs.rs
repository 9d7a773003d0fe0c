//! Resync, step by step: what a copy does when its source breaks off, lags, lies, or starts anew.

use presence_model::digest::Digest;
use presence_model::limits::{HISTORY_AGE_MS_MAX, HISTORY_CHANGES_MAX};
use presence_model::position::Revision;
use presence_model::reason::RemovalReason;
use presence_model::replica::{Applied, Freshness, Phase, Replica};
use presence_model::time::{Mono, StoreTime};

use crate::oracle::{History, List, list, user};

const NOW: Mono = Mono::from_millis(0);
const HELD: Freshness = Freshness::Held { since: StoreTime(5) };
const NOTHING: Applied = Applied::Shown(Vec::new());

/// A roster of users 0, 1, 2 and a copy of it.
fn three() -> (History, Replica) {
    let mut history = History::new(1, 0, List::new());
    history.commit(&[(0, Some(1)), (1, Some(1)), (2, Some(1))]);
    let mut copy = Replica::cold();
    load(&mut copy, &history, Freshness::Live);
    (history, copy)
}

fn load(copy: &mut Replica, history: &History, freshness: Freshness) -> Applied {
    let pages = history.pages(history.revision(), 2, freshness).into_iter();
    pages.map(|page| copy.page(page, NOW)).last().unwrap()
}

fn next(history: &History) -> presence_model::delta::Delta {
    history.delta(history.revision() - 1, history.revision())
}

/// The store lost all: a copy with three unconfirmed members, of a roster in which nobody is yet.
fn after_loss() -> (History, Replica) {
    let (_, mut copy) = three();
    let history = History::new(2, 0, List::new());
    assert_eq!(load(&mut copy, &history, HELD), NOTHING);
    assert_eq!((copy.len(), copy.unconfirmed(), copy.cursor()), (3, 3, None));
    assert_eq!(copy.digest(), Digest::default());
    (history, copy)
}

#[test]
fn a_resync_announces_only_real_differences() {
    let (mut history, mut copy) = three();
    history.commit(&[(0, Some(2)), (1, None), (3, Some(1))]);
    assert_eq!(load(&mut copy, &history, Freshness::Live), Applied::Shown(vec![user(0), user(1), user(3)]));
    assert_eq!(load(&mut copy, &history, Freshness::Live), NOTHING);
}

#[test]
fn the_end_of_a_hold_removes_those_who_did_not_come_back() {
    let (mut history, mut copy) = after_loss();
    history.commit(&[(1, Some(1))]);
    assert_eq!(copy.delta(&next(&history), NOW), NOTHING);
    assert_eq!(copy.freshness(Freshness::Live, NOW), Applied::Shown(vec![user(0), user(2)]));
    assert_eq!(list(copy.members()), *history.now());
    assert_eq!(copy.cursor(), Some(history.position()));
}

#[test]
fn what_is_told_to_others_leaves_the_unconfirmed_out() {
    let (mut history, mut copy) = after_loss();
    history.commit(&[(1, Some(1))]);
    copy.delta(&next(&history), NOW);
    assert_eq!(copy.changed_since(Revision(0)).unwrap(), history.delta(0, 1));
    let pages = copy.pages(usize::MAX).unwrap();
    assert_eq!(pages, history.pages(1, 9, HELD));
}

#[test]
fn live_counts_for_nothing_while_deltas_are_missing() {
    let (mut history, mut copy) = after_loss();
    history.commit(&[(0, Some(1)), (1, Some(1)), (2, Some(1))]);
    history.commit(&[(3, Some(1))]);
    assert_eq!(copy.delta(&next(&history), NOW), Applied::Gap);
    assert_eq!(copy.freshness(Freshness::Live, NOW), NOTHING);
    assert_eq!(copy.delta(&history.delta(0, 2), NOW), Applied::Shown(vec![user(3)]));
    assert_eq!(copy.unconfirmed(), 0);
}

#[test]
fn after_a_cut_live_counts_only_with_the_answer() {
    let (mut history, mut copy) = after_loss();
    copy.cut(StoreTime(9));
    assert_eq!(copy.fresh(), Some(Freshness::Stale { since: StoreTime(9) }));
    history.commit(&[(0, Some(1)), (1, Some(1))]);
    assert_eq!(copy.freshness(Freshness::Live, NOW), NOTHING);
    assert_eq!(load(&mut copy, &history, Freshness::Live), Applied::Shown(vec![user(2)]));
}

#[test]
fn live_between_pages_waits_for_the_last() {
    let (mut history, mut copy) = after_loss();
    history.commit(&[(0, Some(1)), (1, Some(1)), (2, Some(1))]);
    let mut pages = history.pages(1, 2, HELD).into_iter();
    assert_eq!(copy.page(pages.next().unwrap(), NOW), NOTHING);
    assert_eq!(copy.freshness(Freshness::Live, NOW), NOTHING);
    let mut last = pages.next().unwrap();
    last.freshness = Freshness::Live;
    assert_eq!(copy.page(last, NOW), NOTHING);
    assert_eq!((copy.len(), copy.unconfirmed()), (3, 0));
}

#[test]
fn a_lagging_source_takes_nobody_back_and_its_word_removes_nobody() {
    let (old, _) = three();
    let (_, mut copy) = after_loss();
    assert_eq!(load(&mut copy, &old, Freshness::Live), Applied::Known);
    assert_eq!(copy.fresh(), Some(HELD));
    assert_eq!(copy.freshness(Freshness::Live, NOW), NOTHING);
    assert_eq!((copy.len(), copy.unconfirmed()), (3, 3));
}

#[test]
fn deltas_between_pages_are_not_lost() {
    let (mut history, _) = three();
    let mut copy = Replica::cold();
    let mut pages = history.pages(1, 2, Freshness::Live).into_iter();
    copy.page(pages.next().unwrap(), NOW);
    assert_eq!(copy.phase(), Phase::Loading);
    history.commit(&[(0, None)]);
    assert_eq!(copy.delta(&next(&history), NOW), NOTHING);
    history.commit(&[(4, Some(4))]);
    history.commit(&[(2, None)]);
    assert_eq!(copy.delta(&next(&history), NOW), Applied::Gap, "one between is missing");
    assert_eq!(copy.delta(&history.delta(1, 4), NOW), NOTHING);
    copy.page(pages.next().unwrap(), NOW);
    assert_eq!((copy.position(), list(copy.members())), (Some(history.position()), history.now().clone()));
}

#[test]
fn a_snapshot_that_breaks_off_changes_nothing_and_another_cancels_it() {
    let (mut history, mut copy) = three();
    let before = copy.position();
    history.commit(&[(0, None), (5, Some(5))]);
    let first = history.pages(2, 1, Freshness::Live).swap_remove(0);
    copy.page(first.clone(), NOW);
    assert_eq!((copy.phase(), copy.cursor()), (Phase::Complete, before));
    let late = history.pages(2, 1, Freshness::Live).swap_remove(1);
    history.commit(&[(1, Some(7))]);
    copy.page(history.pages(3, 1, Freshness::Live).swap_remove(0), NOW);
    assert_eq!(copy.page(late, NOW), Applied::Gap, "a page of the cancelled one");
    assert_eq!(load(&mut copy, &history, Freshness::Live), Applied::Shown(vec![user(0), user(1), user(5)]));
}

#[test]
fn a_copy_that_differs_takes_nothing_more_and_is_no_place_to_resume_from() {
    let (mut history, mut copy) = three();
    history.commit(&[(0, Some(2))]);
    let mut wrong = next(&history);
    wrong.upserts[0].since = StoreTime(77);
    assert_eq!(copy.delta(&wrong, NOW), Applied::Differs);
    assert_eq!((copy.cursor(), copy.changed_since(Revision(1))), (None, None));
    assert!(copy.pages(9).is_none());
    assert_eq!(load(&mut copy, &history, Freshness::Live), Applied::Shown(vec![user(0)]));
    assert_eq!(copy.cursor(), Some(history.position()));
}

#[test]
fn nothing_missed_is_checked_by_its_digest() {
    let (history, mut copy) = three();
    let mut nothing = history.delta(1, 1);
    assert_eq!(copy.delta(&nothing, NOW), Applied::Known);
    nothing.digest = Digest(1);
    assert_eq!(copy.delta(&nothing, NOW), Applied::Differs);
    assert_eq!(copy.cursor(), None);
}

#[test]
fn a_snapshot_with_a_page_missing_is_refused() {
    let (history, _) = three();
    let mut copy = Replica::cold();
    let pages = history.pages(1, 1, Freshness::Live);
    copy.page(pages[0].clone(), NOW);
    assert_eq!(copy.page(pages[2].clone(), NOW), Applied::Differs);
    assert_eq!((copy.phase(), copy.len()), (Phase::Cold, 0));
}

#[test]
fn a_lost_region_goes_as_one_change_and_comes_back_by_a_snapshot() {
    let (mut history, mut copy) = three();
    assert_eq!(copy.lost(NOW), Applied::Shown(vec![user(0), user(1), user(2)]));
    assert_eq!((copy.phase(), copy.cursor(), copy.is_empty()), (Phase::Lost, None, true));
    history.commit(&[(0, None)]);
    assert_eq!(copy.delta(&next(&history), NOW), Applied::Gap);
    assert_eq!(load(&mut copy, &history, Freshness::Live), Applied::Shown(vec![user(1), user(2)]));
}

#[test]
fn history_is_bounded_in_changes_and_in_age() {
    let (mut history, mut copy) = three();
    let changes = HISTORY_CHANGES_MAX as u64;
    for change in 0..=changes {
        history.commit(&[(0, Some((change % 200) as u8))]);
        copy.delta(&next(&history), NOW);
    }
    assert_eq!(copy.changed_since(Revision(1)), None);
    assert!(copy.changed_since(Revision(2)).is_some());
    copy.compact(Mono::from_millis(HISTORY_AGE_MS_MAX));
    assert!(copy.changed_since(Revision(2)).is_some());
    copy.compact(Mono::from_millis(HISTORY_AGE_MS_MAX + 1_000));
    let now = history.revision();
    assert_eq!(copy.changed_since(Revision(now - 1)), None);
    assert_eq!(copy.changed_since(Revision(now)).unwrap(), history.delta(now, now));
    assert_eq!(copy.changed_since(Revision(now + 1)), None);
}

#[test]
fn reasons_are_remembered_as_long_as_the_touch_is() {
    let (mut history, mut copy) = three();
    history.commit(&[(0, None)]);
    copy.delta(&next(&history), NOW);
    history.commit(&[(1, Some(9))]);
    copy.delta(&next(&history), NOW);
    let told = copy.changed_since(Revision(1)).unwrap();
    assert_eq!(told.removals, history.delta(1, 2).removals);
    assert_eq!(told.removals[0].ending.reason, RemovalReason::ConnectionLost);
}
