//! Watchers: snapshots, deltas, resume, and what a slow one costs.

use presence_model::claim::Claims;
use presence_model::cursor::{Cursor, Entry};
use presence_model::id::{RegionId, SessionId};
use presence_model::link::{JoinUp, LinkUp, RequestId};
use presence_model::position::{Epoch, Position, Revision};
use presence_model::profile::Status;
use presence_model::reason::LeaveReason;
use presence_model::replica::Freshness;
use presence_model::watch::OpenRoom;

use super::world::{World, ms, region, room, roster, secs};
use crate::driver::tests::world::watcher::{Watcher, open};
use crate::limits::WATCH_READ_WITHIN;
use crate::store::memory::Upheaval;

#[test]
fn a_watcher_gets_a_snapshot_in_pages_and_then_deltas() {
    let mut world = World::new();
    let edge = world.edge(0);
    for n in 0..1_500 {
        let name = format!("user-{n:04}");
        let up = world.join_up(&name, 1);
        world.send_join(edge, &name, up);
    }
    world.run(secs(1));
    let watch = world.watch(0, 1);
    world.run(ms(50));
    assert!(world.watchers[&watch].pages > 1, "{} pages", world.watchers[&watch].pages);
    assert_eq!(world.watchers[&watch].shown().len(), 1_500);
    world.join(edge, "zoe", 1);
    world.run(ms(20));
    assert_eq!(world.watchers[&watch].shown().len(), 1_501);
    assert_eq!((world.watchers[&watch].gaps, world.watchers[&watch].deltas), (0, 1));
}

#[test]
fn a_roster_that_changes_while_it_is_loaded_comes_out_whole() {
    let mut world = World::new();
    let edge = world.edge(0);
    let mut leases = Vec::new();
    for n in 0..1_500 {
        let name = format!("user-{n:04}");
        let up = world.join_up(&name, 1);
        leases.push((name.clone(), world.send_join(edge, &name, up)));
    }
    world.run(secs(1));
    let leaves = [1_499, 3, 600, 1_200].map(|n: usize| {
        let (name, request) = leases[n].clone();
        (name, world.joined(edge, request).unwrap().lease)
    });
    let pages = world.pages;
    let key = world.watch_nothing(0, 1);
    world.open(key, open("r", None));
    for (name, lease) in leaves {
        let (request, room, user) = (RequestId(lease.0), room("r"), super::world::user(&name));
        let reason = LeaveReason::Goodbye;
        world.say(edge, LinkUp::Leave { request, lease, room, user, reason });
        world.run(ms(1));
    }
    world.join(edge, "aaa", 1);
    world.run(secs(2));
    assert_eq!(world.watchers[&key].shown(), world.stored("r"));
    assert_eq!(world.watchers[&key].gaps, 0);
    assert_eq!(world.pages - pages, 3, "not loaded again: history made the pages one point");
}

#[test]
fn a_watcher_that_does_not_read_is_given_one_collapsed_delta_afterwards() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    let lease = world.join(edge, "ann", 1).lease;
    world.run(ms(20));
    world.watchers.get_mut(&watch).unwrap().stalled = true;
    let bob = world.join(edge, "bob", 1).lease;
    world.run(ms(20));
    let (batches, deltas) = (world.watchers[&watch].batches, world.watchers[&watch].deltas);
    for _ in 0..20 {
        world.update(edge, ("ann", lease), Status::Busy, None).unwrap();
        world.update(edge, ("ann", lease), Status::Away, None).unwrap();
    }
    world.leave(edge, "bob", bob).unwrap();
    assert_eq!(world.watchers[&watch].batches, batches, "one at a time");
    world.ready(watch);
    world.run(ms(20));
    assert_eq!(world.watchers[&watch].deltas, deltas + 1);
    assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob", "~ann", "-bob left"]);
    assert_eq!(world.watchers[&watch].gaps, 0);
}

#[test]
fn a_watcher_that_does_not_read_for_too_long_is_ended_and_resumes() {
    let mut world = World::new();
    let edge = world.edge(0);
    let [reads, stalls] = [world.watch(0, 1), world.watch(0, 2)];
    world.watchers.get_mut(&stalls).unwrap().stalled = true;
    world.join(edge, "ann", 1);
    world.run(ms(20));
    world.run(WATCH_READ_WITHIN - ms(100));
    world.ready(stalls);
    world.run(ms(20));
    world.watchers.get_mut(&stalls).unwrap().stalled = true;
    world.join(edge, "bob", 1);
    world.run(ms(20));
    world.run(WATCH_READ_WITHIN - ms(100));
    assert!(world.watchers.contains_key(&stalls), "it read a moment before it was too late");
    let had = world.watchers[&stalls].position();
    world.run(ms(200));
    assert!(!world.watchers.contains_key(&stalls));
    assert_eq!(world.watchers[&reads].shown(), ["ann", "bob"]);
    assert_eq!(world.watchers[&reads].gaps, 0);
    let again = world.watch_nothing(0, 3);
    world.open(again, open("r", had));
    world.run(ms(50));
    assert_eq!(world.watchers[&again].pages, 0, "from where it was");
}

#[test]
fn a_core_that_slept_ends_no_watch_for_its_own_silence() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    world.watchers.get_mut(&watch).unwrap().stalled = true;
    world.join(edge, "ann", 1);
    world.run(ms(20));
    world.sleep(0, true);
    world.run(WATCH_READ_WITHIN * 2);
    world.sleep(0, false);
    world.ready(watch);
    world.run(secs(1));
    assert!(world.watchers.contains_key(&watch));
}

/// Scenario 19: five times in a row, at either core, and before any delta.
#[test]
fn resume_is_contiguous_at_whichever_core() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    world.join(edge, "ann", 1);
    let mut watch = world.watch(0, 1);
    for n in 0..5 {
        let had = world.unwatch(watch);
        watch = world.resume((n + 1) % 2, 10 + n as u64, had);
        let watcher = &world.watchers[&watch];
        // The core that has no copy yet has no history either: the store's serves.
        assert_eq!((watcher.pages, watcher.gaps), (0, 0), "time {n}");
        assert!(watcher.saw.is_empty());
        assert!(!watcher.freshness.is_empty(), "it hears that nothing was missed");
    }
    world.join(edge, "bob", 1);
    world.run(ms(20));
    assert_eq!(world.watchers[&watch].saw, ["+bob"]);
}

/// Scenarios 20 and 40.
#[test]
fn who_left_or_came_and_left_while_away_is_learnt_on_resume() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    let ann = world.join(edge, "ann", 1).lease;
    let watch = world.watch(0, 1);
    let had = world.unwatch(watch);
    world.leave(edge, "ann", ann).unwrap();
    let bob = world.join(edge, "bob", 1).lease;
    world.leave(edge, "bob", bob).unwrap();
    let watch = world.resume(1, 2, had);
    assert_eq!(world.watchers[&watch].saw, ["-ann left"], "of Bob nothing is seen");
    assert_eq!((world.watchers[&watch].pages, world.watchers[&watch].gaps), (0, 0));
}

/// Scenario 18, and 43: what history does not reach back to is answered by a snapshot.
#[test]
fn a_cursor_behind_history_gets_a_snapshot_with_real_differences_only() {
    let mut world = World::new();
    let edge = world.edge(0);
    world.join(edge, "ann", 1);
    let bob = world.join(edge, "bob", 1).lease;
    let watch = world.watch(0, 1);
    let had = world.unwatch(watch);
    world.leave(edge, "bob", bob).unwrap();
    world.run(secs(3_700));
    let zoe = world.join(edge, "zoe", 1).lease;
    world.run(ms(20));
    let watch = world.resume(0, 2, had);
    world.run(secs(1));
    assert!(world.watchers[&watch].pages > 0);
    assert_eq!(world.watchers[&watch].saw, ["-bob unconfirmed", "+zoe"]);
    world.leave(edge, "zoe", zoe).unwrap();
}

#[test]
fn a_cursor_from_the_future_costs_a_snapshot_and_nothing_else() {
    let mut world = World::new();
    let edge = world.edge(0);
    world.join(edge, "ann", 1);
    let watch = world.watch(0, 1);
    let at = world.watchers[&watch].position().unwrap();
    let key = world.watch_nothing(0, 2);
    let ahead = Position { revision: Revision(at.revision.0 + 1_000), ..at };
    world.open(key, open("r", Some(ahead)));
    world.run(ms(50));
    assert_eq!(world.watchers[&key].saw, ["+ann"]);
    assert_eq!(world.watchers[&key].pages, 1);
    world.join(edge, "bob", 1);
    world.run(ms(20));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob"]);
    assert_eq!(world.watchers[&key].saw, ["+ann", "+bob"]);
}

#[test]
fn who_equals_no_roster_is_told_the_whole_list() {
    let mut world = World::new();
    let edge = world.edge(0);
    world.join(edge, "ann", 1);
    let watch = world.watch(0, 1);
    let at = world.watchers[&watch].position().unwrap();
    let key = world.watch_nothing(0, 2);
    let cursor = Cursor::from_iter([(region(), Entry::Seen(at))]);
    world.open(key, OpenRoom { cursor: Some(cursor), ..open("r", None) });
    world.run(ms(50));
    assert_eq!((world.watchers[&key].pages, &world.watchers[&key].saw[..]), (1, &["+ann".to_owned()][..]));
}

#[test]
fn a_core_behind_what_somebody_has_seen_reads_the_store_first() {
    let (saw, pages) = behind_what_was_seen(|ask, seen| ask.at_least = open("r", seen).cursor);
    assert_eq!((saw, pages), (vec!["+ann".to_owned()], 0));
}

#[test]
fn a_core_behind_a_list_that_was_in_doubt_reads_the_store_first() {
    let (saw, pages) = behind_what_was_seen(|ask, seen| {
        ask.cursor = seen.map(|at| Cursor::from_iter([(region(), Entry::Seen(at))]));
    });
    assert_eq!((saw, pages), (vec!["+ann".to_owned()], 1));
}

/// What a watcher is told, and by how many pages more, that asks a core which lags behind what was seen elsewhere.
fn behind_what_was_seen(ask: impl Fn(&mut OpenRoom, Option<Position>)) -> (Vec<String>, usize) {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    let slow = world.watch(1, 1);
    let fast = world.watch(0, 2);
    world.run(ms(100));
    world.faults.away = vec![1];
    world.join(edge, "ann", 1);
    world.run(ms(100));
    assert_eq!(world.watchers[&fast].saw, ["+ann"]);
    assert!(world.watchers[&slow].saw.is_empty());
    let seen = world.watchers[&fast].position();
    let had = world.watchers[&slow].position();
    world.faults.away.clear();
    let mut asked = open("r", had);
    ask(&mut asked, seen);
    let pages = world.watchers[&slow].pages;
    world.open(slow, asked);
    world.run(ms(10));
    assert_eq!(world.watchers[&slow].gaps, 0);
    (world.watchers[&slow].saw.clone(), world.watchers[&slow].pages - pages)
}

#[test]
fn where_somebody_was_is_recalled_from_memory_or_from_the_store_and_said_if_not() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    world.join(edge, "ann", 1);
    let old = world.watch(0, 1);
    let was = world.watchers[&old].position().unwrap();
    let bob = world.join(edge, "bob", 1).lease;
    world.leave(edge, "bob", bob).unwrap();
    world.run(ms(20));
    // The first core saw it all; the other one loads the room only now.
    for core in [0, 1] {
        let watch = world.watch_nothing(core, 10 + core as u64);
        world.open(watch, OpenRoom { recall: open("r", Some(was)).cursor, ..open("r", None) });
        world.run(ms(50));
        let watcher = &world.watchers[&watch];
        let now = watcher.position().unwrap().revision.0;
        assert_eq!((watcher.pages, watcher.last_delta), (1, Some((was.revision.0, now))), "core {core}");
        assert_eq!((watcher.gaps, &watcher.saw[..]), (0, &["+ann".to_owned()][..]));
    }
    world.run(secs(3_700));
    let zoe = world.join(edge, "zoe", 1).lease;
    world.run(ms(50));
    let watch = world.watch_nothing(1, 20);
    world.open(watch, OpenRoom { recall: open("r", Some(was)).cursor, ..open("r", None) });
    world.run(ms(50));
    let now = world.watchers[&watch].position().unwrap().revision.0;
    assert_eq!(world.watchers[&watch].last_delta, Some((now, now)), "too long ago");
    world.leave(edge, "zoe", zoe).unwrap();
    world.run(ms(50));
    assert_eq!(world.watchers[&watch].last_delta, Some((now, now + 1)));
    assert_eq!(world.watchers[&watch].gaps, 0);
}

#[test]
fn a_watcher_learns_that_it_is_as_far_as_others_though_nothing_shows() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    world.join(edge, "ann", 1);
    let watch = world.watch(0, 1);
    let had = world.watchers[&watch].position();
    let mut second_tab = world.join_up("ann", 1);
    second_tab.session = SessionId::new("another-tab-of-ann").unwrap();
    world.send_join(edge, "ann", second_tab);
    world.run(ms(20));
    assert_eq!(world.watchers[&watch].position(), had, "what does not show is not told by itself");
    let other = world.watch(1, 2);
    let seen = world.watchers[&other].position();
    assert!(seen > had);
    let mut ask = open("r", had);
    ask.at_least = open("r", seen).cursor;
    world.open(watch, ask);
    world.run(ms(10));
    assert_eq!(world.watchers[&watch].position(), seen);
    assert_eq!((world.watchers[&watch].pages, world.watchers[&watch].gaps), (1, 0));
    assert_eq!(world.watchers[&watch].saw, ["+ann"]);
}

/// What nobody has ever seen is no reason to say that nothing is known.
#[test]
fn a_watcher_of_what_the_store_does_not_have_is_told_what_it_has() {
    let mut world = World::new();
    let edge = world.edge(0);
    world.join(edge, "ann", 1);
    let watch = world.watch(0, 1);
    let here = world.watchers[&watch].position().unwrap();
    let later = Position { revision: Revision(here.revision.0 + 7), ..here };
    let epoch = Epoch { minted_ms: u64::MAX, random: 1 };
    let future = Position { epoch, revision: Revision(u64::MAX) };
    for (key, claim) in [(2, later), (3, future)] {
        let key = world.watch_nothing(0, key);
        let mut at_least = Cursor::default();
        at_least.set(region(), claim);
        at_least.set(RegionId::new("nowhere").unwrap(), claim);
        let asked = world.histories;
        world.open(key, OpenRoom { at_least: Some(at_least), ..open("r", None) });
        world.run(secs(2));
        let watcher = &world.watchers[&key];
        assert_eq!(world.histories - asked, 1, "the store is read first, once");
        assert_eq!((watcher.position(), &watcher.saw[..]), (Some(here), &["+ann".to_owned()][..]), "{claim}");
        assert_eq!(watcher.copies[&room("r")].fresh(), Some(Freshness::Live));
        assert!(!watcher.progress.is_empty());
    }
}

#[test]
fn an_interval_is_kept_and_the_first_answer_is_not_delayed() {
    let mut world = World::new();
    let edge = world.edge(0);
    let key = world.watch_nothing(0, 1);
    let min_interval = secs(5);
    world.open(key, presence_model::watch::OpenRoom { min_interval, ..open("r", None) });
    world.run(ms(20));
    assert_eq!(world.watchers[&key].pages, 1);
    world.join(edge, "ann", 1);
    world.run(ms(20));
    assert_eq!(world.watchers[&key].saw, ["+ann"], "after a pause at once");
    world.join(edge, "bob", 1);
    world.join(edge, "cat", 1);
    world.run(ms(4_500));
    assert_eq!(world.watchers[&key].saw, ["+ann"]);
    world.run(ms(500));
    assert_eq!(world.watchers[&key].saw, ["+ann", "+bob", "+cat"]);
    assert_eq!(world.watchers[&key].deltas, 2);
}

#[test]
fn progress_comes_with_every_beat_but_not_while_something_may_be_missing() {
    let mut world = World::new();
    let watch = world.watch(0, 1);
    world.run(secs(10));
    let seen = world.watchers[&watch].progress.len();
    assert!((9..=10).contains(&seen), "{seen}");
    world.faults.away = vec![0];
    world.run(secs(6));
    let seen = world.watchers[&watch].progress.len();
    world.run(secs(10));
    assert_eq!(world.watchers[&watch].progress.len(), seen);
    world.faults.away.clear();
    world.run(secs(4));
    assert!(world.watchers[&watch].progress.len() > seen);
}

#[test]
fn a_new_epoch_is_a_snapshot_that_announces_only_what_differs() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    world.join(edge, "ann", 1);
    world.run(secs(2));
    let had = world.unwatch(watch);
    let now = world.store_now();
    world.store.suffer(Upheaval::Restart, now);
    world.run(secs(2));
    let watch = world.resume(0, 2, had);
    assert!(world.watchers[&watch].saw.is_empty());
    assert_eq!(world.watchers[&watch].pages, 1);
}

#[test]
fn closed_rooms_are_quiet_and_their_copies_are_bounded() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    world.close_room(watch, "r");
    world.join(edge, "ann", 1);
    world.run(secs(1));
    assert!(world.watchers[&watch].saw.is_empty());
    for n in 0..crate::limits::IDLE_ROSTERS_MAX + 50 {
        world.open(watch, open(&format!("room-{n}"), None));
        world.close_room(watch, &format!("room-{n}"));
    }
    world.run(secs(1));
    assert!(world.copies(0) <= crate::limits::IDLE_ROSTERS_MAX);
    assert!(!world.has_copy(0, &roster("r")), "the longest unused went first");
    assert!(world.has_copy(0, &presence_model::id::Roster { room: room("room-300"), ..roster("r") }));
}

#[test]
fn nothing_is_said_to_be_complete_while_a_cursor_waits_for_history() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    let ann = world.join(edge, "ann", 1).lease;
    let watch = world.watch(0, 1);
    let had = world.unwatch(watch);
    let cursor = had.position();
    let warm = world.watch(1, 2);
    world.leave(edge, "ann", ann).unwrap();
    world.run(secs(400));
    let key = world.watch_nothing(1, 3);
    world.faults.hold_back = Some(1);
    world.open(key, open("r", cursor));
    world.run(world.timings.link_beat - ms(10));
    assert!(world.watchers[&warm].progress.len() > 300);
    let watcher = &world.watchers[&key];
    assert!(watcher.progress.is_empty() && watcher.deltas + watcher.pages == 0, "{:?}", watcher.progress);
    world.run(secs(3));
    let watcher = &world.watchers[&key];
    assert!(matches!(watcher.freshness[..], [Freshness::Stale { .. }]), "nothing is said of it but that");
    world.let_go();
    world.run(secs(3));
    assert!(!world.watchers[&key].progress.is_empty());
}

#[test]
fn a_new_epoch_reads_many_rosters_again_but_few_at_once() {
    let mut world = World::new();
    let watch = world.watch(0, 1);
    for n in 0..500 {
        world.open(watch, open(&format!("room-{n}"), None));
    }
    world.run(secs(2));
    let now = world.store_now();
    world.store.suffer(Upheaval::Restart, now);
    world.loads_most = 0;
    world.run(secs(3));
    assert!((1..=crate::limits::LOADS_MAX).contains(&world.loads_most), "{} at once", world.loads_most);
    assert_eq!(world.watchers[&watch].gaps, 0);
    let pages = world.watchers[&watch].pages;
    assert_eq!(pages, 2 * 501, "each twice");
}

/// A roster without members is as far on as its shard: a core that read it earlier knows a lower position, and nothing is
/// missing.
#[test]
fn an_empty_room_that_another_core_read_later_is_live_here_as_well() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    world.watch(0, 1);
    for n in 0..16 {
        let (name, other) = (format!("u{n}"), room(&format!("other-{n}")));
        let ends = world.store_now() + secs(36_000);
        let claims = Claims { room: other.clone(), ..world.claims(&name, ends) };
        let up = JoinUp { room: other, ..world.join_up(&name, 1) };
        world.say_with(edge, LinkUp::Join(Box::new(up)), Some(claims));
    }
    world.run(secs(1));
    let elsewhere = world.watch(1, 2);
    let had = world.unwatch(elsewhere);
    let seen = had.position().unwrap();
    assert!(seen.revision > Revision(0), "some of the sixteen share its shard: {seen}");
    let watch = world.resume(0, 3, had);
    world.run(secs(1));
    let Watcher { pages, freshness, copies, .. } = &world.watchers[&watch];
    assert_eq!((*pages, &freshness[..]), (0, &[Freshness::Live][..]));
    assert_eq!(copies[&room("r")].position(), Some(seen));
    world.join(edge, "ann", 1);
    world.run(ms(50));
    assert_eq!(world.watchers[&watch].saw, ["+ann"]);
}
