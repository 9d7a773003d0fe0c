//! Streams that break, fall silent or are drained.

use std::time::Duration;

use presence_model::replica::Freshness;
use presence_model::time::StoreTime;
use presence_model::view::RegionEvent;
use presence_model::watch::WatchDown;

use super::desk::{BEAT, Desk, cursor, delta, event, fresh, live, page};
use crate::watch::{Effect, Event, ReconnectCause};

const STALE: Freshness = Freshness::Stale { since: StoreTime(777) };

#[test]
fn a_lost_stream_makes_every_view_stale_at_once_and_the_next_one_resumes() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    desk.progress(777);
    desk.drain();
    desk.watcher.lost(&mut desk.effects);
    assert_eq!(desk.drain(), [event(fresh("r1", STALE))]);
    assert_eq!((desk.fresh("r1"), desk.users("r1")), (STALE, vec!["u1".to_owned()]));
    desk.watcher.lost(&mut desk.effects);
    assert_eq!(desk.drain(), [], "lost already");

    desk.connect();
    assert_eq!(desk.opened("r1").cursor, Some(cursor(1, 7)));
    assert_eq!(desk.fresh("r1"), STALE, "until the core says otherwise");
    desk.event("r1", delta(1, (7, 9), &["u2"], &["u1"], &["u2"]));
    desk.drain();
    desk.event("r1", RegionEvent::Freshness(Freshness::Live));
    assert_eq!(desk.drain(), [event(live("r1"))]);
    assert_eq!(desk.users("r1"), ["u2"]);
}

#[test]
fn the_clock_of_a_link_serves_as_well() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    desk.progress(700);
    desk.watcher.note_store_time(StoreTime(777));
    desk.watcher.note_store_time(StoreTime(600));
    desk.drain();
    desk.watcher.lost(&mut desk.effects);
    assert_eq!(desk.drain(), [event(fresh("r1", STALE))]);
}

#[test]
fn a_second_loss_does_not_make_a_view_younger() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    desk.progress(777);
    desk.watcher.lost(&mut desk.effects);
    desk.connect();
    desk.progress(888);
    desk.drain();
    desk.watcher.lost(&mut desk.effects);
    assert_eq!(desk.drain(), []);
    assert_eq!(desk.fresh("r1"), STALE);
}

#[test]
fn what_is_left_of_a_lost_stream_is_dropped() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    desk.watcher.lost(&mut desk.effects);
    desk.drain();
    desk.event("r1", delta(1, (7, 8), &["u2"], &[], &["u1", "u2"]));
    desk.progress(5);
    desk.say(WatchDown::Drain);
    desk.pass(Duration::from_secs(20));
    assert_eq!(desk.drain(), []);
    assert_eq!(desk.users("r1"), ["u1"]);
}

#[test]
fn a_snapshot_cut_off_in_the_middle_starts_over() {
    let mut desk = Desk::watching("r1");
    let RegionEvent::Page(mut half) = page(1, 7, &["u1"]) else { panic!("a page") };
    half.last = None;
    desk.event("r1", RegionEvent::Page(half.clone()));
    desk.watcher.lost(&mut desk.effects);
    desk.connect();
    assert_eq!(desk.opened("r1").cursor, None);
    half.first = false;
    desk.event("r1", RegionEvent::Page(half));
    assert_eq!(desk.watcher.tally().gaps, 1, "a page without its beginning");
    desk.event("r1", page(1, 7, &["u1", "u2"]));
    assert_eq!(desk.users("r1"), ["u1", "u2"]);
}

#[test]
fn a_drained_core_is_left_without_anything_turning_stale() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    desk.say(WatchDown::Drain);
    desk.say(WatchDown::Drain);
    assert_eq!(desk.drain(), [Effect::Reconnect(ReconnectCause::Drain)]);
    desk.event("r1", delta(1, (7, 8), &["u2"], &[], &["u1", "u2"]));
    desk.drain();
    desk.connect();
    assert_eq!(desk.opened("r1").cursor, Some(cursor(1, 8)));
    assert_eq!(desk.fresh("r1"), Freshness::Live);
    desk.say(WatchDown::Drain);
    assert_eq!(desk.drain(), [Effect::Reconnect(ReconnectCause::Drain)], "the next one may go as well");
}

#[test]
fn a_silent_stream_is_given_up_after_three_beats() {
    let mut desk = Desk::shown("r1", 7, &["u1"]);
    for _ in 0..5 {
        desk.pass(BEAT * 2);
        desk.progress(777);
    }
    desk.drain();
    desk.pass(BEAT * 3 - Duration::from_millis(1));
    assert_eq!(desk.drain(), []);
    desk.pass(Duration::from_millis(1));
    assert_eq!(desk.drain(), [event(fresh("r1", STALE)), Effect::Reconnect(ReconnectCause::Silent)]);
    desk.pass(BEAT * 10);
    assert_eq!(desk.drain(), [], "told once");
    assert_eq!(desk.watcher.tally().silent, 1);
}

#[test]
fn streams_without_progress_are_given_up_later_and_later() {
    let mut desk = Desk::watching("r1");
    let mut waits = Vec::new();
    for _ in 0..7 {
        desk.connect();
        desk.drain();
        let start = desk.now;
        while !desk.effects.contains(&Effect::Reconnect(ReconnectCause::Silent)) {
            desk.pass(BEAT);
        }
        waits.push(desk.now.since(start).as_secs());
    }
    assert_eq!(waits, [3, 6, 12, 24, 48, 96, 96]);
    desk.connect();
    desk.progress(1);
    desk.drain();
    desk.pass(BEAT * 3);
    assert!(desk.drain().contains(&Effect::Reconnect(ReconnectCause::Silent)), "one that spoke is at once");
}

#[test]
fn a_faster_beat_counts_from_now_on() {
    let mut desk = Desk::watching("r1");
    desk.watcher.set_beat(Duration::from_millis(200));
    desk.pass(Duration::from_millis(600));
    assert_eq!(desk.drain(), [Effect::Reconnect(ReconnectCause::Silent)]);
}

#[test]
fn progress_is_passed_on() {
    let mut desk = Desk::watching("r1");
    desk.progress(42);
    assert_eq!(desk.drain(), [event(Event::Progress { store_time: StoreTime(42) })]);
}
