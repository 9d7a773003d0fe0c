//! A watcher against hand-made streams.

mod catching_up;
mod convergence;
mod desk;
mod streams;

use std::time::Duration;

use presence_model::replica::Freshness;
use presence_model::time::StoreTime;
use presence_model::view::RegionEvent;
use presence_model::watch::{Level, WatchRefusal, WatchUp};

use self::desk::{Desk, cursor, delta, epoch, event, live, page, position, region, room};
use super::*;

#[test]
fn a_room_is_asked_for_as_soon_as_there_is_a_stream() {
    let mut desk = Desk::without_stream();
    desk.open("r1");
    assert_eq!(desk.drain(), []);
    desk.connect();
    let open = desk.opened("r1");
    assert_eq!((open.cursor, open.at_least), (None, None));
    assert_eq!(open.home, Some(region("home")));
    desk.open("r2");
    assert_eq!(desk.opened("r2").level, Level::Members);
}

#[test]
fn a_snapshot_makes_the_view_complete_even_if_nobody_is_there() {
    let mut desk = Desk::watching("r1");
    desk.event("r1", page(1, 7, &[]));
    assert_eq!(desk.drain(), [event(live("r1")), event(Event::Changed(room("r1")))]);
    assert!(desk.watcher.view(&room("r1")).unwrap().is_complete());
    desk.event("r1", delta(1, (7, 8), &["u1"], &[], &["u1"]));
    assert_eq!(desk.drain(), [event(Event::Changed(room("r1")))]);
    assert_eq!(desk.users("r1"), ["u1"]);
}

#[test]
fn what_is_known_is_dropped_without_a_word() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    let twice = delta(1, (7, 8), &["u2"], &[], &["u1", "u2"]);
    desk.event("r1", twice.clone());
    desk.drain();
    desk.event("r1", twice);
    desk.event("r1", page(1, 7, &["u1"]));
    desk.event("r1", RegionEvent::Freshness(Freshness::Live));
    assert_eq!(desk.drain(), []);
    assert_eq!(desk.users("r1"), ["u1", "u2"]);
}

#[test]
fn a_gap_is_asked_for_once_from_the_own_position() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    desk.event("r1", delta(1, (8, 9), &["u2"], &[], &["u1", "u2"]));
    assert_eq!(desk.opened("r1").cursor, Some(cursor(1, 7)));
    // What was under way already does not follow either.
    desk.event("r1", delta(1, (9, 10), &["u3"], &[], &["u1", "u2", "u3"]));
    assert_eq!(desk.drain(), []);
    desk.event("r1", delta(1, (7, 10), &["u2", "u3"], &[], &["u1", "u2", "u3"]));
    assert_eq!(desk.drain(), [event(Event::Changed(room("r1")))]);
    desk.pass(Duration::from_secs(2));
    assert_eq!(desk.drain(), [], "answered: nothing is left to ask");
    assert_eq!(desk.watcher.tally().gaps, 2);
}

#[test]
fn a_gap_that_stays_is_asked_for_less_and_less_often() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    let mut asked = Vec::new();
    for step in 0..1_200 {
        desk.event("r1", delta(1, (8, 9), &["u2"], &[], &["u1", "u2"]));
        desk.pass(Duration::from_millis(50));
        if !desk.drain().is_empty() {
            asked.push(step * 50);
        }
    }
    assert!(asked.len() < 10, "in a minute: {asked:?}");
    assert!(asked[1] <= 300 && asked.windows(3).all(|w| w[1] - w[0] <= w[2] - w[1] + 50), "{asked:?}");
}

#[test]
fn a_copy_that_differs_is_asked_for_as_a_whole() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    desk.event("r1", delta(1, (7, 8), &["u2"], &[], &["u1", "u2", "u9"]));
    let asked = desk.opened("r1").cursor.unwrap();
    let own = cursor(1, 7).get(&region("home"));
    assert_eq!(
        (asked.get(&region("home")), asked.seen(&region("home"))),
        (None, own),
        "it is known to differ"
    );
    assert_eq!(desk.watcher.tally(), Tally { differs: 1, ..Tally::default() });
    desk.event("r1", page(1, 8, &["u1", "u2", "u9"]));
    assert_eq!(desk.users("r1"), ["u1", "u2", "u9"]);
}

#[test]
fn after_a_new_epoch_nobody_leaves_before_the_hold_is_over() {
    let mut desk = Desk::shown("r1", 7, &["u1", "u2"]);
    desk.event("r1", delta(2, (0, 1), &["u1"], &[], &["u1"]));
    assert_eq!(desk.opened("r1").cursor, Some(cursor(1, 7)));
    let held = Freshness::Held { since: StoreTime(500) };
    desk.event("r1", desk::page_of(epoch(2), 1, held, &["u1"]));
    assert_eq!(desk.users("r1"), ["u1", "u2"]);
    let shown = desk.watcher.view(&room("r1")).unwrap().cursor();
    assert_eq!(
        (shown.get(&region("home")), shown.seen(&region("home"))),
        (None, cursor(2, 1).get(&region("home")))
    );
    desk.drain();
    desk.event("r1", RegionEvent::Freshness(Freshness::Live));
    assert_eq!(desk.drain(), [event(live("r1")), event(Event::Changed(room("r1")))]);
    assert_eq!(desk.users("r1"), ["u1"]);
}

#[test]
fn a_region_that_is_lost_takes_its_members_along() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    desk.event("r1", RegionEvent::Lost);
    assert!(desk.drain().contains(&event(Event::Changed(room("r1")))));
    assert!(desk.users("r1").is_empty());
}

#[test]
fn a_closed_room_hears_nothing_more() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    desk.watcher.close(&room("r1"), &mut desk.effects);
    assert_eq!(desk.drain(), [Effect::Send(WatchUp::Close(room("r1")))]);
    desk.event("r1", delta(1, (7, 8), &["u2"], &[], &["u1", "u2"]));
    desk.say(WatchDown::Count { room: room("r1"), members: 3 });
    desk.say(WatchDown::Refused { room: room("r1"), refusal: WatchRefusal::Forbidden });
    assert_eq!(desk.drain(), []);
    assert!(desk.watcher.view(&room("r1")).is_none());
    assert_eq!(desk.watcher.tally().strangers, 3);
    desk.watcher.close(&room("r1"), &mut desk.effects);
    assert_eq!(desk.drain(), []);
}

#[test]
fn a_room_closed_while_it_waits_is_not_asked_for_again() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    for _ in 0..2 {
        desk.event("r1", delta(1, (8, 9), &[], &["u1"], &[]));
    }
    desk.watcher.close(&room("r1"), &mut desk.effects);
    desk.drain();
    desk.pass(Duration::from_secs(1));
    assert_eq!(desk.drain(), []);
}

#[test]
fn a_refusal_that_says_when_is_tried_again_then() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    let refusal = WatchRefusal::Unavailable { retry_after: Duration::from_millis(2_500) };
    desk.say(WatchDown::Refused { room: room("r1"), refusal: refusal.clone() });
    let effects = desk.drain();
    assert_eq!(effects.last(), Some(&event(Event::Refused { room: room("r1"), refusal })));
    assert!(matches!(desk.fresh("r1"), Freshness::Stale { .. }));
    desk.pass(Duration::from_millis(2_499));
    assert_eq!(desk.drain(), []);
    desk.pass(Duration::from_millis(1));
    assert_eq!(desk.opened("r1").cursor, Some(cursor(1, 7)));
}

#[test]
fn a_final_refusal_is_only_tried_on_the_next_stream() {
    let mut desk = Desk::watching("r1");
    desk.say(WatchDown::Refused { room: room("r1"), refusal: WatchRefusal::TooManyRooms });
    desk.drain();
    desk.pass(Duration::from_secs(2));
    assert_eq!(desk.drain(), []);
    desk.watcher.lost(&mut desk.effects);
    desk.connect();
    desk.opened("r1");
}

#[test]
fn counts_are_told_and_kept() {
    let mut desk = Desk::watching("r1");
    let options = RoomOptions { level: Level::Count, ..RoomOptions::default() };
    desk.watcher.open(room("r1"), options, desk.now, &mut desk.effects);
    assert_eq!(desk.opened("r1").level, Level::Count);
    desk.say(WatchDown::Count { room: room("r1"), members: 51_234 });
    assert_eq!(desk.drain(), [event(Event::Count { room: room("r1"), members: 51_234 })]);
    assert_eq!(desk.watcher.count(&room("r1")), Some(51_234));
}

#[test]
fn a_list_is_forgotten_once_only_its_number_is_told() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    let options = |level| RoomOptions { level, ..RoomOptions::default() };
    desk.watcher.open(room("r1"), options(Level::Count), desk.now, &mut desk.effects);
    assert_eq!(desk.opened("r1").cursor, None);
    assert!(!desk.watcher.view(&room("r1")).unwrap().is_complete());
    desk.watcher.open(room("r1"), options(Level::Members), desk.now, &mut desk.effects);
    assert_eq!(desk.opened("r1").cursor, None, "the list is told anew");
    desk.event("r1", page(1, 9, &["u2"]));
    assert_eq!(desk.users("r1"), ["u2"]);
    desk.drain();
    desk.watcher.open(room("r1"), options(Level::Members), desk.now, &mut desk.effects);
    assert_eq!(desk.opened("r1").cursor, Some(cursor(1, 9)), "and kept otherwise");
}

/// With its store out of reach every core is silent from the start on, and says so of each room; one that told a list
/// as live and then nothing more is another matter.
#[test]
fn a_stream_that_has_told_something_as_live_is_given_up_as_soon_as_any() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    let mut given_up_after = |live: bool| {
        let begun = desk.now;
        desk.connect();
        let stale = Freshness::Stale { since: StoreTime(1) };
        desk.event("r1", RegionEvent::Freshness(if live { Freshness::Live } else { stale }));
        desk.drain();
        while desk.drain().iter().all(|effect| !matches!(effect, Effect::Reconnect(_))) {
            desk.pass(Duration::from_millis(500));
        }
        desk.now.since(begun)
    };
    assert_eq!(given_up_after(false), Duration::from_secs(3));
    assert_eq!(given_up_after(false), Duration::from_secs(6), "and later each time");
    assert_eq!(given_up_after(true), Duration::from_secs(3));
}

#[test]
fn regions_are_kept_apart() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    let away = region("away");
    desk.say(WatchDown::Region { room: room("r1"), region: away.clone(), event: page(1, 3, &["u2"]) });
    assert_eq!(desk.users("r1"), ["u1", "u2"]);
    desk.drain();
    let gap = delta(1, (9, 10), &["u3"], &[], &["u2", "u3"]);
    desk.say(WatchDown::Region { room: room("r1"), region: away.clone(), event: gap });
    let open = desk.opened("r1");
    assert_eq!(open.cursor.unwrap().get(&away), Some(position(1, 3)));
}
