//! What the store does to us, and what must be seen of it.

use presence_model::link::LinkRefusal;
use presence_model::position::Position;
use presence_model::replica::Freshness;

use super::world::{World, ms, room, secs};
use crate::driver::WatchKey;
use crate::limits::EPOCH_AHEAD_MAX;
use crate::store::memory::Upheaval;

#[test]
fn a_lost_answer_to_a_commit_is_decided_again_and_granted_once() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    world.faults.lose_commit_answers = 1;
    let mut up = world.join_up("ann", 1);
    up.generation = None;
    let request = world.send_join(edge, "ann", up);
    let grant = world.joined(edge, request).unwrap();
    assert!(!grant.resumed);
    world.run(ms(20));
    world.faults.lose_commit_answers = 1;
    world.leave(edge, "ann", grant.lease).unwrap();
    world.run(ms(20));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "-ann left"]);
    assert_eq!(world.log(), ["ann joined", "ann ended left"], "logged once, by the tail");
}

#[test]
fn a_lost_commit_is_committed_again() {
    let mut world = World::new();
    let edge = world.edge(0);
    world.faults.lose_commits = 2;
    let grant = world.join(edge, "ann", 1);
    world.run(ms(20));
    assert_eq!(world.stored("r"), ["ann"]);
    assert_eq!(world.log(), ["ann joined"]);
    world.leave(edge, "ann", grant.lease).unwrap();
}

#[test]
fn while_the_store_is_away_arrivals_are_told_and_renewals_wait() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    world.join(edge, "ann", 1);
    world.run(secs(20));
    world.faults.away = vec![0];
    world.renew(edge);
    let refused = world.try_join(edge, "bob", 1);
    assert!(matches!(refused, Err(LinkRefusal::Unavailable { .. })), "{refused:?}");
    let before = world.edges[edge].renewed.len();
    world.run(secs(7));
    assert!(matches!(world.watchers[&watch].freshness.last(), Some(Freshness::Stale { .. })));
    let beat = world.edges[edge].beats().last().map(|(_, reachable)| *reachable);
    assert_eq!(beat, Some(false));
    assert_eq!(world.edges[edge].renewed.len(), before, "not acknowledged");
    world.faults.away.clear();
    world.run(secs(3));
    assert!(world.edges[edge].renewed.len() > before, "written when it was back");
    assert_eq!(world.watchers[&watch].freshness.last(), Some(&Freshness::Live));
    assert_eq!(world.watchers[&watch].saw, ["+ann"]);
}

#[test]
fn a_store_that_takes_no_writes_leaves_no_view_live() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    world.join(edge, "ann", 1);
    world.run(secs(20));
    world.faults.no_writes = true;
    world.run(ms(4_500));
    assert!(world.watchers[&watch].freshness.is_empty(), "a turn was taken less than 5 s ago");
    world.run(ms(2_500));
    let told = world.watchers[&watch].freshness.last();
    assert!(matches!(told, Some(Freshness::Stale { .. })), "nobody can end who is gone: {told:?}");
    world.faults.no_writes = false;
    world.run(secs(3));
    assert_eq!(world.watchers[&watch].freshness.last(), Some(&Freshness::Live));
    assert_eq!(world.watchers[&watch].saw, ["+ann"]);
}

#[test]
fn a_store_without_room_is_told_as_out_of_reach_though_it_answers() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    // The other core has no edge: nothing of it waits, and it sweeps as soon as it may.
    let watch = world.watch(1, 1);
    world.join(edge, "ann", 1);
    world.run(secs(20));
    world.faults.no_writes = true;
    world.run(secs(60));
    let refused = world.try_join(edge, "bob", 1);
    assert!(matches!(refused, Err(LinkRefusal::Unavailable { .. })), "{refused:?}");
    let beat = world.edges[edge].beats().last().map(|(_, reachable)| *reachable);
    assert_eq!(beat, Some(false));
    assert!(matches!(world.watchers[&watch].freshness.last(), Some(Freshness::Stale { .. })));
    world.faults.no_writes = false;
    world.run(secs(120));
    assert_eq!(world.watchers[&watch].saw, ["+ann"]);
    assert_eq!(world.watchers[&watch].freshness.last(), Some(&Freshness::Live));
    assert!(world.edges[edge].unknown.is_empty());
}

#[test]
fn a_rejoin_waits_for_the_store_where_an_arrival_is_refused() {
    let mut world = World::new();
    let edge = world.edge(0);
    world.faults.away = vec![0];
    let mut up = world.join_up("ann", 1);
    up.rejoin = Some(world.store_now());
    let request = world.send_join(edge, "ann", up);
    world.run(secs(5));
    assert!(!world.edges[edge].joined.contains_key(&request));
    world.faults.away.clear();
    world.joined(edge, request).unwrap();
}

#[test]
fn an_outage_longer_than_a_ttl_ends_nobody_who_is_there() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    world.join(edge, "ann", 1);
    world.run(secs(20));
    world.faults.away = vec![0];
    world.run(secs(60));
    world.faults.away.clear();
    world.run(secs(120));
    assert_eq!(world.watchers[&watch].saw, ["+ann"]);
    assert!(world.watchers[&watch].freshness.iter().any(|f| matches!(f, Freshness::Held { .. })));
    assert_eq!(world.watchers[&watch].freshness.last(), Some(&Freshness::Live));
    assert_eq!(world.watchers[&watch].gaps, 0);
}

#[test]
fn a_store_that_comes_back_every_fourteen_seconds_ends_nobody_early() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    world.join(edge, "ann", 1);
    for _ in 0..12 {
        world.faults.away = vec![0];
        world.run(secs(14));
        world.faults.away.clear();
        world.run(secs(1));
    }
    world.run(secs(60));
    assert_eq!(world.watchers[&watch].saw, ["+ann"]);
}

/// Scenario 10.
#[test]
fn the_only_core_stopped_for_three_ttl_ends_nobody_live_when_it_goes_on() {
    let mut world = World::new();
    let edges = [world.edge(0), world.edge(0)];
    let watch = world.watch(0, 1);
    world.join(edges[0], "ann", 1);
    world.join(edges[1], "bob", 1);
    world.run(secs(20));
    world.sleep(0, true);
    world.edges[edges[1]].running = false;
    world.run(secs(135));
    world.sleep(0, false);
    world.run(secs(30));
    assert_eq!(world.watchers[&watch].shown(), ["ann", "bob"], "held");
    world.run(secs(30));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob", "-bob lease_expired"], "dead ones within a ttl");
}

#[test]
fn a_clock_that_steps_ends_nobody() {
    for step in [60_000, -60_000] {
        let mut world = World::new();
        let edges = [world.edge(0), world.edge(0)];
        let watch = world.watch(0, 1);
        world.join(edges[0], "ann", 1);
        let bob = world.join(edges[1], "bob", 1);
        world.run(secs(20));
        world.release(edges[1], bob.lease);
        world.skew_ms = step;
        world.run(secs(30));
        assert_eq!(world.watchers[&watch].shown(), ["ann", "bob"], "held after a step of {step} ms");
        world.run(secs(50));
        assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob", "-bob connection_lost"], "step {step} ms");
        assert!(world.edges[edges[0]].unknown.is_empty());
    }
}

#[test]
fn an_outage_that_a_step_of_the_clock_hides_ends_nobody_who_could_not_come_back() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    let ann = world.join(edge, "ann", 1);
    world.run(secs(20));
    world.release(edge, ann.lease);
    world.run(secs(1));
    world.faults.hold_back = Some(0);
    // By its own clock the store was away for 11.5 s, and the answer that took 9.5 s proves no step of 9 s.
    world.run(ms(20_500));
    world.skew_ms = -9_000;
    world.let_go();
    world.run(secs(30));
    assert_eq!(world.watchers[&watch].shown(), ["ann"], "held: her grace ran out while nobody could join");
    world.run(secs(30));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "-ann connection_lost"]);
}

#[test]
fn an_outage_that_a_step_hides_from_a_core_that_never_knew_the_clock_ends_nobody_either() {
    let mut world = World::new();
    let edge = world.edge(0);
    let ann = world.join(edge, "ann", 1);
    world.run(secs(20));
    world.release(edge, ann.lease);
    world.run(secs(1));
    world.sleep(0, true);
    world.faults.hold_back = Some(1);
    let core = world.start_core();
    world.run(ms(20_500));
    world.skew_ms = -9_000;
    world.let_go();
    world.run(secs(30));
    let watch = world.watch(core, 1);
    assert_eq!(world.watchers[&watch].shown(), ["ann"], "held: her grace ran out while nobody could join");
    world.run(secs(30));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "-ann connection_lost"]);
}

/// What was decided long before it arrives says nothing of now: neither the tail nor a turn makes a list live again.
#[test]
fn an_answer_that_was_long_under_way_makes_no_list_live() {
    let mut world = World::new();
    let edge = world.edge(0);
    let core = world.start_core();
    let watch = world.watch(core, 1);
    world.run(secs(5));
    assert!(world.watchers[&watch].freshness.is_empty(), "its list was live");
    world.faults.slow = secs(7);
    world.run(ms(2_500));
    (world.faults.slow, world.faults.away) = (ms(0), vec![core]);
    world.join(edge, "bob", 1);
    world.run(secs(1));
    let told = world.watchers[&watch].freshness.len();
    world.run(secs(20));
    let watcher = &world.watchers[&watch];
    assert!(watcher.saw.is_empty(), "{:?}", watcher.saw);
    assert!(matches!(watcher.freshness[told..], [Freshness::Stale { .. }]), "{:?}", watcher.freshness);
    world.faults.away.clear();
    world.run(secs(3));
    let watcher = &world.watchers[&watch];
    assert_eq!(
        (watcher.saw.as_slice(), watcher.freshness.last()),
        (&["+bob".to_owned()][..], Some(&Freshness::Live))
    );
}

#[test]
fn a_store_that_is_always_slow_is_swept_all_the_same() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    let ann = world.join(edge, "ann", 1);
    world.release(edge, ann.lease);
    world.faults.slow = ms(1_200);
    world.run(secs(20));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "-ann connection_lost"]);
}

/// A store that lost its data and whose clock went back, at a core that knows nothing of before: what a
/// watcher that was here before has of it. The epoch that the watcher names was minted so far ahead of now.
fn after_a_loss_with_the_clock_behind(named_ahead_ms: Option<u64>) -> (Position, Position, Vec<String>) {
    after_a_loss_named(named_ahead_ms, true)
}

/// The same; the watcher names where it was before the core has heard the store, or after.
fn after_a_loss_named(named_ahead_ms: Option<u64>, heard: bool) -> (Position, Position, Vec<String>) {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    world.join(edge, "ann", 1);
    world.run(secs(20));
    let mut had = world.unwatch(watch);
    world.sleep(0, true);
    world.skew_ms = -60_000;
    let now = world.store_now();
    world.store.suffer(Upheaval::RestartEmpty, now);
    if !heard {
        (world.faults.hold_back, world.faults.hold_reads) = (Some(1), true);
    }
    let core = world.start_core();
    world.run(secs(2));
    let mut before = had.position().unwrap();
    if let Some(ahead_ms) = named_ahead_ms {
        before.epoch.minted_ms = world.store_now().0 + ahead_ms;
        had.copies.clear();
        world.resume_from(core, 2, had, before);
    } else {
        world.resume(core, 2, had);
    }
    world.run(secs(2));
    if !heard {
        world.let_go();
        world.run(secs(2));
    }
    let other = world.edge(core);
    world.join(other, "bob", 1);
    world.run(secs(1));
    let watcher = &world.watchers[&WatchKey(2)];
    (before, watcher.copies[&room("r")].position().unwrap(), watcher.saw.clone())
}

#[test]
fn a_store_that_lost_its_data_and_its_time_is_taken_above_where_watchers_have_been() {
    let (before, after, saw) = after_a_loss_with_the_clock_behind(None);
    assert!(after.epoch > before.epoch, "{before} then {after}");
    assert_eq!(saw, ["+bob"], "and is not dropped as old: Ann, who is unconfirmed, stays while it is held");
}

#[test]
fn what_a_watcher_names_before_the_store_is_heard_is_judged_once_it_is() {
    let (before, after, saw) = after_a_loss_named(None, false);
    assert!(after.epoch > before.epoch, "{before} then {after}");
    assert_eq!(saw, ["+bob"]);
    let day = presence_model::time::millis(EPOCH_AHEAD_MAX);
    let (named, after, _) = after_a_loss_named(Some(day + 60_000), false);
    assert!(after.epoch <= named.epoch, "no clock can have minted that");
}

#[test]
fn an_epoch_that_no_clock_can_have_minted_is_not_believed() {
    let day = presence_model::time::millis(EPOCH_AHEAD_MAX);
    // A core knows that clock by a round trip or so.
    for (ahead, believed) in [(day - 5, true), (day, true), (day + 5, false)] {
        let (named, after, saw) = after_a_loss_with_the_clock_behind(Some(ahead));
        assert_eq!(after.epoch > named.epoch, believed, "{ahead} ms ahead");
        assert_eq!(saw, ["+bob"]);
    }
}

#[test]
fn a_restart_with_all_data_shows_nothing_but_a_hold() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    let grant = world.join(edge, "ann", 1);
    world.run(secs(20));
    let told = world.edges[edge].renew_alls();
    let now = world.store_now();
    world.store.suffer(Upheaval::Restart, now);
    world.run(secs(2));
    assert!(world.edges[edge].renew_alls() > told, "everything is renewed at a new epoch");
    assert!(matches!(world.watchers[&watch].freshness.last(), Some(Freshness::Held { .. })));
    world.join(edge, "bob", 1);
    world.run(ms(50));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob"]);
    world.leave(edge, "ann", grant.lease).unwrap();
    world.run(secs(60));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob", "-ann left"]);
    assert_eq!(world.watchers[&watch].freshness.last(), Some(&Freshness::Live));
}

#[test]
fn after_data_loss_those_who_are_there_join_again_unseen_and_the_others_go_after_the_hold() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    let ann = world.join(edge, "ann", 1);
    world.join(edge, "bob", 1);
    world.run(secs(20));
    let now = world.store_now();
    world.store.suffer(Upheaval::RestartEmpty, now);
    world.run(secs(5));
    assert!(world.edges[edge].unknown.contains(&ann.lease), "the edge hears that its lease is unknown");
    assert_eq!(world.watchers[&watch].shown(), ["ann", "bob"], "nobody is seen to leave");
    let again = world.rejoin(edge, "ann", &ann).unwrap();
    assert_eq!(again.since, ann.since);
    world.run(secs(60));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob", "-bob unconfirmed"]);
}

/// Scenario 38: a decision of long ago arrives now.
#[test]
fn a_command_that_was_long_under_way_ends_nobody_live() {
    let mut world = World::with_cores(2);
    let edge = world.edge(1);
    let watch = world.watch(1, 1);
    world.join(edge, "ann", 1);
    world.run(secs(2));
    world.edges[edge].running = false;
    world.run(secs(44));
    // From here on whatever the first core decides is held back, also that Ann is overdue.
    world.faults.hold_back = Some(0);
    world.edges[edge].running = true;
    world.link(edge, 1);
    world.renew(edge);
    world.run(secs(60));
    world.let_go();
    world.run(secs(20));
    let saw = &world.watchers[&watch].saw;
    assert!(saw.iter().filter(|saw| saw.starts_with("-ann")).count() <= 1, "{saw:?}");
}

#[test]
fn a_new_epoch_right_after_a_renew_all_is_followed_by_another() {
    let mut world = World::new();
    let edge = world.edge(0);
    world.run(ms(500));
    assert_eq!(world.edges[edge].renew_alls(), 1);
    let now = world.store_now();
    world.store.suffer(Upheaval::RestartEmpty, now);
    world.run(ms(1_000));
    assert_eq!(world.edges[edge].renew_alls(), 1, "the edge is still at the first");
    world.run(ms(1_500));
    assert_eq!(world.edges[edge].renew_alls(), 2);
}
