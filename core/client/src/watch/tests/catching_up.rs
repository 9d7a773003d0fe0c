//! Somebody has seen more than the view.

use std::time::Duration;

use presence_model::cursor::Cursor;
use presence_model::replica::Freshness;
use presence_model::view::RegionEvent;

use super::desk::{BEAT, Desk, cursor, delta, event, fresh, page, position, region, room};
use crate::watch::{Event, RoomOptions};

fn answered() -> crate::watch::Effect {
    event(Event::Answered(room("r1")))
}

#[test]
fn a_cursor_ahead_is_asked_for_and_answered_when_the_view_is_there() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    assert!(desk.catch_up("r1", &cursor(1, 9)));
    let open = desk.opened("r1");
    assert_eq!((open.cursor, open.at_least), (Some(cursor(1, 7)), Some(cursor(1, 9))));
    desk.event("r1", delta(1, (7, 8), &["u2"], &[], &["u1", "u2"]));
    assert!(!desk.drain().contains(&answered()));
    desk.event("r1", delta(1, (8, 9), &["u3"], &[], &["u1", "u2", "u3"]));
    assert_eq!(desk.drain(), [event(Event::Changed(room("r1"))), answered()]);
    desk.pass(BEAT);
    assert_eq!(desk.drain(), []);
}

#[test]
fn a_delta_that_shows_nothing_answers_too() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    desk.catch_up("r1", &cursor(1, 8));
    desk.drain();
    desk.event("r1", delta(1, (7, 8), &[], &[], &["u1"]));
    assert_eq!(desk.drain(), [event(Event::Changed(room("r1"))), answered()]);
}

#[test]
fn what_the_view_does_not_remember_is_recalled() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    assert!(desk.catch_up("r1", &cursor(1, 5)));
    let open = desk.opened("r1");
    assert_eq!((open.cursor, open.at_least, open.recall), (Some(cursor(1, 7)), None, Some(cursor(1, 5))));
    assert!(desk.catch_up("r1", &cursor(1, 6)), "the same answer serves");
    assert_eq!(desk.drain(), []);
    desk.event("r1", delta(1, (5, 7), &["u1"], &["u2"], &["u1"]));
    assert_eq!(desk.drain(), [answered()], "and nothing shows");
    assert!(!desk.catch_up("r1", &cursor(1, 5)), "remembered now");
    assert!(desk.catch_up("r1", &cursor(1, 4)));
}

#[test]
fn what_the_core_does_not_remember_either_is_answered_at_once() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    desk.catch_up("r1", &cursor(1, 5));
    desk.drain();
    desk.event("r1", delta(1, (7, 7), &[], &[], &["u1"]));
    assert_eq!(desk.drain(), [answered()]);
}

#[test]
fn a_recall_that_nobody_answers_ends_with_progress() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    desk.catch_up("r1", &cursor(1, 5));
    for _ in 0..3 {
        assert!(!desk.drain().contains(&answered()));
        desk.progress(1);
    }
    assert!(desk.drain().contains(&answered()));
}

#[test]
fn a_room_opened_for_somebody_is_answered_when_it_remembers_where_that_was() {
    for (revision, waits) in [(9, false), (12, true)] {
        let mut desk = Desk::without_stream();
        desk.connect();
        let options = RoomOptions { at_least: cursor(1, 9), ..RoomOptions::default() };
        desk.watcher.open(room("r1"), options, desk.now, &mut desk.effects);
        let open = desk.opened("r1");
        assert_eq!((open.at_least, open.recall), (Some(cursor(1, 9)), Some(cursor(1, 9))));
        desk.event("r1", page(1, revision, &["u1"]));
        assert_eq!(desk.drain().contains(&answered()), !waits);
        desk.event("r1", delta(1, (9, 12), &["u1"], &[], &["u1"]));
        assert_eq!(desk.drain().contains(&answered()), waits);
    }
    let mut desk = Desk::watching("r1");
    desk.catch_up("r1", &cursor(1, 9));
    desk.event("r1", page(2, 1, &["u1"]));
    assert!(desk.drain().contains(&answered()), "another history");
}

#[test]
fn what_the_view_has_or_has_asked_for_costs_no_question() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    assert!(!desk.catch_up("r1", &cursor(1, 7)));
    assert!(!desk.catch_up("r2", &cursor(1, 9)), "not open");
    assert_eq!(desk.drain(), []);
    assert!(desk.catch_up("r1", &cursor(1, 9)));
    desk.drain();
    assert!(desk.catch_up("r1", &cursor(1, 8)), "the same answer serves");
    assert_eq!(desk.drain(), []);
}

#[test]
fn questions_about_a_room_are_at_most_four_a_beat() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    desk.pass(BEAT);
    let mut asked = 0;
    for step in 0..99 {
        desk.catch_up("r1", &cursor(1, 100 + step));
        desk.pass(BEAT / 100);
        asked += desk.drain().len();
    }
    assert!((3..=4).contains(&asked), "{asked}");
    desk.pass(BEAT / 4);
    assert_eq!(desk.opened("r1").at_least, Some(cursor(1, 198)), "the last is not forgotten");
}

#[test]
fn a_snapshot_behind_the_cursor_is_no_answer() {
    let mut desk = Desk::watching("r1");
    desk.catch_up("r1", &cursor(1, 9));
    desk.drain();
    desk.event("r1", page(1, 8, &["u1"]));
    assert!(!desk.drain().contains(&answered()), "it may have been under way before the question");
    desk.event("r1", page(1, 9, &["u1"]));
    assert!(desk.drain().contains(&answered()));
}

#[test]
fn a_later_epoch_is_past_every_cursor_of_the_one_before() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    desk.catch_up("r1", &cursor(1, 900));
    desk.drain();
    desk.event("r1", page(2, 1, &["u1"]));
    assert!(desk.drain().contains(&answered()));
}

#[test]
fn a_cursor_from_nowhere_is_answered_once_nothing_was_missed_since() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    let mut forged = cursor(1, 7);
    forged.set(region("atlantis"), position(1, 1));
    assert!(desk.catch_up("r1", &forged));
    desk.drain();
    for _ in 0..2 {
        desk.progress(1);
        assert!(!desk.drain().contains(&answered()));
    }
    desk.progress(1);
    assert!(desk.drain().contains(&answered()));
    desk.progress(1);
    assert!(!desk.drain().contains(&answered()), "once");
}

#[test]
fn progress_before_a_question_is_sent_answers_nothing() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    desk.catch_up("r1", &cursor(1, 9));
    desk.catch_up("r1", &cursor(1, 20));
    for _ in 0..5 {
        desk.progress(1);
    }
    assert!(!desk.drain().contains(&answered()));
    desk.pass(BEAT / 4);
    assert_eq!(desk.opened("r1").at_least, Some(cursor(1, 20)));
    for _ in 0..3 {
        desk.progress(1);
    }
    assert!(desk.drain().contains(&answered()));
}

#[test]
fn a_stale_region_answers_nothing() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    desk.catch_up("r1", &cursor(1, 9));
    desk.event("r1", RegionEvent::Freshness(Freshness::Stale { since: Default::default() }));
    desk.drain();
    for _ in 0..9 {
        desk.progress(1);
    }
    assert!(!desk.drain().contains(&answered()));
    desk.event("r1", RegionEvent::Freshness(Freshness::Live));
    desk.progress(1);
    assert!(desk.drain().contains(&answered()));
}

#[test]
fn a_question_outlives_its_stream() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    desk.catch_up("r1", &cursor(1, 9));
    desk.watcher.lost(&mut desk.effects);
    desk.drain();
    assert!(desk.catch_up("r1", &cursor(1, 10)));
    desk.pass(BEAT);
    assert_eq!(desk.drain(), []);
    desk.connect();
    assert_eq!(desk.opened("r1").at_least, Some(cursor(1, 10)));
}

#[test]
fn a_room_can_be_opened_with_what_somebody_has_seen() {
    let mut desk = Desk::watching("r2");
    let options = RoomOptions { at_least: cursor(1, 9), ..RoomOptions::default() };
    desk.watcher.open(room("r1"), options, desk.now, &mut desk.effects);
    assert_eq!(desk.opened("r1").at_least, Some(cursor(1, 9)));
    desk.event("r1", page(1, 9, &[]));
    assert!(desk.drain().contains(&answered()));
    desk.watcher.lost(&mut desk.effects);
    desk.connect();
    let effects = format!("{:?}", desk.drain());
    assert!(!effects.contains("at_least: Some"), "asked for once: {effects}");
}

#[test]
fn a_lost_region_answers() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    desk.catch_up("r1", &cursor(1, 9));
    desk.drain();
    desk.event("r1", RegionEvent::Lost);
    assert!(desk.drain().contains(&answered()));
}

#[test]
fn forged_regions_are_bounded_by_what_a_cursor_may_name() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    for start in 0..3 {
        let mut forged = Cursor::default();
        for i in 0..64 {
            forged.set(region(&format!("x{start}-{i}")), position(1, 1));
        }
        desk.catch_up("r1", &forged);
        desk.pass(Duration::from_millis(500));
    }
    for effect in desk.drain() {
        let crate::watch::Effect::Send(presence_model::watch::WatchUp::Open(open)) = effect else {
            panic!("{effect:?}")
        };
        assert_eq!(open.at_least.unwrap().iter().count(), 64);
    }
    assert_eq!(desk.fresh("r1"), Freshness::Live);
    let stale = fresh("r1", Freshness::Stale { since: Default::default() });
    assert!(!desk.drain().contains(&event(stale)));
}
