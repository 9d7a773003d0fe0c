//! Regions with cores and stores of their own that watch each other, over a way that takes time and may be cut.

use presence_model::replica::Freshness;
use presence_model::watch::{Level, OpenRoom};
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use super::lands::{Crossed, HERE, Lands, MERGE};
use super::world::watcher::open;
use super::world::{ms, region_called, room, secs, user};
use crate::driver::{Answer, Input, Query};
use crate::limits::PEER_ROOM_KEPT;

/// Two lands, watched in both, with an edge in each.
fn two() -> (Lands, usize, usize) {
    let mut lands = Lands::new(&["eu", "us"]);
    lands.watch_all();
    let (eu, us) = (lands.worlds[0].edge(0), lands.worlds[1].edge(0));
    (lands, eu, us)
}

#[test]
fn each_land_sees_all_at_the_merge_interval_and_its_own_at_once() {
    let (mut lands, eu, us) = two();
    lands.worlds[0].join(eu, "ann", 1);
    lands.worlds[1].join(us, "bob", 1);
    lands.run(secs(1));
    for land in 0..2 {
        assert_eq!(lands.shown(land), ["ann", "bob"], "the first change after a pause crosses at once");
    }
    for n in 0..5 {
        lands.worlds[0].join(eu, &format!("e{n}"), 1);
    }
    lands.run(secs(1));
    assert_eq!((lands.shown(0).len(), lands.shown(1).len()), (7, 2));
    lands.run(MERGE);
    assert_eq!(lands.shown(1).len(), 7);
    assert_eq!(lands.fresh(1, 0), Some(Freshness::Live));
}

/// Scenario 21 over two stores, each view all the while.
#[test]
fn who_moves_is_never_absent_and_never_twice() {
    let (mut lands, eu, us) = two();
    let ann = lands.worlds[0].join(eu, "ann", 1);
    lands.worlds[1].join(us, "bob", 1);
    lands.run(MERGE * 2);
    lands.worlds[1].join(us, "cat", 1);
    lands.run(ms(500));
    let begun = lands.now;
    lands.worlds[0].release(eu, ann.lease);
    let moved = lands.worlds[1].join(us, "ann", 2);
    assert_eq!(moved.since, ann.since);
    lands.run(MERGE * 3);
    assert_eq!((lands.merged_since(0, begun), lands.merged_since(1, begun)), (vec![], vec![]));
    assert_eq!(lands.shown(0), ["ann", "bob", "cat"]);
    assert_eq!(lands.shown(0), lands.shown(1));
}

#[test]
fn what_does_not_change_costs_a_beat_and_what_nobody_watches_nothing() {
    let mut lands = Lands::new(&["eu", "us"]);
    let us = lands.worlds[1].edge(0);
    for n in 0..100 {
        lands.worlds[1].join(us, &format!("u{n}"), 1);
    }
    lands.crossed = Crossed::default();
    lands.run(secs(60));
    let Crossed { beats, openings, members, others } = lands.crossed;
    assert!((118..=122).contains(&beats), "{beats} beats of two streams in a minute");
    assert_eq!((openings, members, others), (0, 0, 0), "nobody watches it elsewhere");
    lands.watch_all();
    lands.crossed = Crossed::default();
    lands.run(secs(60));
    let Crossed { beats, openings, members, others } = lands.crossed;
    assert!((118..=122).contains(&beats), "{beats}");
    assert_eq!((openings, members, others), (0, 0, 0), "a hundred members that renew cost nothing");
    lands.worlds[1].join(us, "one-more", 1);
    lands.run(secs(60));
    assert_eq!(lands.crossed.members, 1, "a change costs itself, once");
    let key = HERE;
    lands.worlds[0].close_room(key, "r");
    lands.run(PEER_ROOM_KEPT + secs(1));
    lands.crossed = Crossed::default();
    lands.worlds[1].join(us, "unseen", 1);
    lands.run(MERGE + secs(1));
    assert_eq!(lands.crossed.members, 0, "closed there as well");
}

/// Scenario 22, short.
#[test]
fn a_short_cut_is_stale_and_then_fresh_without_noise() {
    let (mut lands, eu, us) = two();
    lands.worlds[0].join(eu, "ann", 1);
    lands.worlds[1].join(us, "bob", 1);
    lands.run(MERGE * 2);
    let begun = lands.now;
    lands.cut.insert(1);
    lands.run(secs(5));
    for (land, of) in [(0, 1), (1, 0)] {
        assert!(lands.fresh(land, of).is_some_and(Freshness::is_stale), "{land}");
        assert_eq!(lands.fresh(land, land), Some(Freshness::Live), "its own is as it was");
        assert_eq!(lands.shown(land), ["ann", "bob"]);
    }
    lands.crossed = Crossed::default();
    lands.cut.clear();
    lands.run(secs(3));
    for (land, of) in [(0, 1), (1, 0)] {
        assert_eq!(lands.fresh(land, of), Some(Freshness::Live));
        assert_eq!(lands.merged_since(land, begun), Vec::<&str>::new());
    }
    assert_eq!(lands.crossed.members, 0, "each goes on from where it was");
    lands.worlds[1].join(us, "cat", 1);
    lands.run(MERGE + secs(1));
    assert_eq!(lands.shown(0), ["ann", "bob", "cat"]);
}

/// Scenario 22, longer than the hold of regions.
#[test]
fn a_region_that_is_not_heard_for_its_hold_goes_as_one_change_and_comes_back_as_one() {
    let (mut lands, eu, us) = two();
    let ann = lands.worlds[0].join(eu, "ann", 1);
    for name in ["bob", "cat", "dan"] {
        lands.worlds[1].join(us, name, 1);
    }
    lands.run(MERGE * 2);
    let hold = lands.worlds[0].timings.region_hold();
    assert_eq!(hold, MERGE * 3 + secs(45));
    let cut = lands.now;
    lands.cut.insert(1);
    lands.run(hold - secs(3));
    assert_eq!(lands.shown(0).len(), 4, "stale, and all there");
    assert_eq!(lands.merged_since(0, cut), Vec::<&str>::new());
    lands.run(secs(4));
    assert_eq!(lands.merged_since(0, cut), ["-bob", "-cat", "-dan"]);
    assert_eq!(lands.merged_since(1, cut), ["-ann"], "and the other way round");
    let gone = |lands: &Lands| {
        let view = &lands.worlds[0].watchers[&HERE].views[&room("r")];
        view.region(&region_called("us")).unwrap().phase()
    };
    assert_eq!(gone(&lands), presence_model::replica::Phase::Lost);
    // Meanwhile one leaves there, which nobody here is told twice.
    let back = lands.now;
    lands.cut.clear();
    lands.run(secs(3));
    assert_eq!(lands.merged_since(0, back), ["+bob", "+cat", "+dan"]);
    assert_eq!(lands.merged_since(1, back), ["+ann"]);
    lands.run(MERGE * 2);
    assert_eq!(lands.merged_since(0, back).len(), 3, "and nothing else");
    assert_eq!(lands.fresh(0, 1), Some(Freshness::Live));
    lands.worlds[0].leave(eu, "ann", ann.lease).unwrap();
    lands.run(MERGE + secs(1));
    assert_eq!(lands.shown(1), ["bob", "cat", "dan"]);
}

#[test]
fn what_happened_during_a_cut_is_told_when_it_is_over() {
    let (mut lands, eu, us) = two();
    let bob = lands.worlds[1].join(us, "bob", 1);
    lands.worlds[0].join(eu, "ann", 1);
    lands.run(MERGE * 2);
    lands.cut.insert(1);
    lands.run(secs(6));
    let begun = lands.now;
    lands.worlds[1].leave(us, "bob", bob.lease).unwrap();
    lands.worlds[1].join(us, "cat", 1);
    lands.run(secs(30));
    assert_eq!(lands.shown(0), ["ann", "bob"]);
    lands.cut.clear();
    lands.run(secs(3));
    let mut told = lands.merged_since(0, begun);
    told.sort_unstable();
    assert_eq!(told, ["+cat", "-bob"]);
}

/// What a core hears of one region it tells none but its own: each asks the region itself.
#[test]
fn nothing_is_passed_on_to_a_third_region() {
    let mut lands = Lands::new(&["ap", "eu", "us"]);
    lands.watch_all();
    let us = lands.worlds[2].edge(0);
    lands.run(secs(1));
    lands.crossed = Crossed::default();
    lands.worlds[2].join(us, "bob", 1);
    lands.run(MERGE * 2);
    assert_eq!(lands.crossed.members, 2, "once to each");
    for land in 0..3 {
        assert_eq!(lands.shown(land), ["bob"]);
    }
    let key = lands.worlds[0].watch_nothing(0, 7);
    let regions = vec![region_called("us")];
    let home = Some(region_called("eu"));
    lands.worlds[0].open(key, OpenRoom { home, regions, ..open("r", None) });
    lands.run(ms(100));
    assert_eq!(lands.worlds[0].watchers[&key].refused.len(), 1);
}

#[test]
fn questions_are_answered_with_what_is_kept_elsewhere_or_say_that_it_is_not_heard() {
    let mut lands = Lands::new(&["eu", "us"]);
    let (eu, us) = (lands.worlds[0].edge(0), lands.worlds[1].edge(0));
    lands.worlds[0].join(eu, "ann", 1);
    lands.worlds[1].join(us, "bob", 1);
    let ask = |lands: &mut Lands, key: u64, query: Query| {
        let key = crate::driver::QueryKey(90_000 + key);
        lands.worlds[0].input(0, Input::Query(key, query));
        lands.run(secs(5));
        lands.worlds[0].answers.remove(&key).unwrap().unwrap()
    };
    let whole = Query::Room { room: room("r"), after: None, count: 10 };
    let Answer::Room { members, count, regions, .. } = ask(&mut lands, 1, whole.clone()) else {
        panic!("a room")
    };
    let names: Vec<&str> = members.iter().map(|member| member.user.as_str()).collect();
    assert_eq!((names, count), (vec!["ann", "bob"], 2));
    assert!(regions.iter().all(|now| now.freshness == Freshness::Live && now.position.is_some()));
    let Answer::Count { count, .. } = ask(&mut lands, 2, Query::Count { room: room("r") }) else { panic!() };
    assert_eq!(count, 2);
    lands.run(PEER_ROOM_KEPT + secs(1));
    lands.cut.insert(1);
    lands.run(secs(10));
    let Answer::Room { members, regions, .. } = ask(&mut lands, 3, whole) else { panic!("a room") };
    assert_eq!(members.len(), 1);
    assert!(regions[1].freshness.is_stale() && regions[1].position.is_none(), "{regions:?}");
}

/// Nobody looks at a room while its region is lost; who does once it is back is not told that it is lost.
#[test]
fn a_list_nobody_looked_at_while_its_region_was_lost_is_told_as_it_is() {
    let (mut lands, _eu, us) = two();
    lands.worlds[1].join(us, "bob", 1);
    lands.run(MERGE);
    let hold = lands.worlds[0].timings.region_hold();
    lands.cut.insert(1);
    lands.run(hold - ms(500));
    lands.worlds[0].close_room(HERE, "r");
    lands.run(secs(1));
    lands.cut.clear();
    lands.run(secs(3));
    let late = lands.worlds[0].watch_nothing(0, 2);
    lands.worlds[0].open(late, open("r", None));
    lands.run(secs(1));
    assert_eq!(lands.worlds[0].watchers[&late].shown_merged(), ["bob"]);
    assert_eq!(lands.worlds[0].watchers[&late].lost, 0);
}

/// What is listed for a question stays listed for a while: the next one costs nothing, and where only the number is wanted
/// for long, a list that is not told any more is not shown again.
#[test]
fn a_list_for_a_question_is_kept_for_the_next_and_then_forgotten() {
    let mut lands = Lands::new(&["eu", "us"]);
    let us = lands.worlds[1].edge(0);
    for name in ["bob", "cat"] {
        lands.worlds[1].join(us, name, 1);
    }
    let key = lands.worlds[0].watch_nothing(0, HERE.0);
    lands.worlds[0].open(key, OpenRoom { level: Level::Count, ..open("r", None) });
    lands.run(secs(1));
    let mut asked = 0;
    let mut ask = |lands: &mut Lands| {
        asked += 1;
        let key = crate::driver::QueryKey(90_000 + asked);
        lands.worlds[0].input(0, Input::Query(key, Query::Room { room: room("r"), after: None, count: 9 }));
        lands.run(ms(500));
        let Answer::Room { count, .. } = lands.worlds[0].answers.remove(&key).unwrap().unwrap() else {
            panic!("a room")
        };
        count
    };
    assert_eq!((ask(&mut lands), lands.crossed.members), (2, 2), "a list crosses once");
    lands.run(PEER_ROOM_KEPT - secs(1));
    assert_eq!((ask(&mut lands), lands.crossed.members), (2, 2), "and not again");
    lands.run(PEER_ROOM_KEPT + secs(1));
    lands.crossed = Crossed::default();
    lands.worlds[1].join(us, "dan", 1);
    lands.run(MERGE + secs(1));
    assert_eq!(lands.crossed.members, 0, "only the number is told");
    assert_eq!(lands.worlds[0].watchers[&HERE].counts.last(), Some(&3));
    assert_eq!((ask(&mut lands), lands.crossed.members), (3, 3), "nor is the old list told again");
}

#[test]
fn a_number_over_regions_follows_them() {
    let mut lands = Lands::new(&["eu", "us"]);
    let us = lands.worlds[1].edge(0);
    let key = lands.worlds[0].watch_nothing(0, HERE.0);
    lands.worlds[0].open(key, OpenRoom { level: Level::Count, ..open("r", None) });
    lands.run(secs(1));
    lands.worlds[1].join(us, "bob", 1);
    lands.run(secs(1));
    lands.worlds[1].join(us, "cat", 1);
    lands.run(MERGE);
    assert_eq!(lands.worlds[0].watchers[&key].counts, [0, 1, 2]);
    assert_eq!(lands.crossed.members, 0, "no list crosses for a number");
    lands.cut.insert(1);
    lands.run(lands.worlds[0].timings.region_hold() + secs(5));
    assert_eq!(lands.worlds[0].watchers[&key].counts, [0, 1, 2, 0]);
    lands.cut.clear();
    lands.run(secs(3));
    assert_eq!(lands.worlds[0].watchers[&key].counts, [0, 1, 2, 0, 2]);
}

#[test]
fn a_core_that_slept_does_not_hold_its_own_silence_against_its_peers() {
    let (mut lands, _eu, us) = two();
    lands.worlds[1].join(us, "bob", 1);
    lands.run(MERGE);
    lands.worlds[0].sleep(0, true);
    let hold = lands.worlds[0].timings.region_hold();
    lands.run(hold + secs(10));
    let begun = lands.now;
    lands.worlds[0].sleep(0, false);
    lands.run(secs(10));
    assert_eq!(lands.merged_since(0, begun), Vec::<&str>::new());
    assert!(lands.worlds[0].watchers[&HERE].views[&room("r")].get(&user("bob")).is_some());
}

/// The way is open again at the very moment at which the hold ends: what the other core thinks that was told here is
/// empty now.
#[test]
fn a_region_that_is_heard_again_as_its_hold_ends_comes_back() {
    for early_ms in (0..1_500).step_by(75) {
        let (mut lands, eu, us) = two();
        lands.worlds[0].join(eu, "ann", 1);
        lands.worlds[1].join(us, "bob", 1);
        lands.run(MERGE);
        lands.cut.insert(1);
        lands.run(lands.worlds[0].timings.region_hold() - ms(early_ms));
        lands.cut.clear();
        lands.run(secs(10));
        for land in 0..2 {
            assert_eq!(
                lands.shown(land),
                ["ann", "bob"],
                "{early_ms} ms before it ends, {}",
                lands.names[land]
            );
        }
    }
}

/// A cursor is not to be trusted: whoever claims to have seen more waits by itself, and not for long.
#[test]
fn a_claim_to_have_seen_more_of_another_region_holds_up_nobody_else() {
    let (mut lands, _eu, us) = two();
    lands.worlds[1].join(us, "bob", 1);
    lands.run(MERGE + secs(1));
    let seen =
        lands.worlds[0].watchers[&HERE].views[&room("r")].region(&region_called("us")).unwrap().position();
    let beyond = presence_model::position::Revision(seen.unwrap().revision.0 + 7);
    let mut at_least = presence_model::cursor::Cursor::default();
    at_least
        .set(region_called("us"), presence_model::position::Position { revision: beyond, ..seen.unwrap() });
    let liar = lands.worlds[0].watch_nothing(0, 2);
    let begun = lands.now;
    for _ in 0..10 {
        lands.worlds[0].open(liar, OpenRoom { at_least: Some(at_least.clone()), ..open("r", None) });
        lands.run(ms(500));
    }
    lands.worlds[1].join(us, "cat", 1);
    lands.run(ms(300));
    assert_eq!(lands.merged_since(0, begun), ["+cat"], "others are told as ever");
    assert_eq!(lands.fresh(0, 1), Some(Freshness::Live));
    lands.run(secs(6));
    assert_eq!(lands.worlds[0].watchers[&liar].shown_merged(), ["bob", "cat"], "and whoever lied as well");
    let progress = &lands.worlds[0].watchers[&HERE].progress;
    assert!(progress.windows(2).all(|pair| pair[1].since(pair[0]) < secs(2)), "nothing was held up");
}

/// What somebody has really seen of another region is asked for out of turn.
#[test]
fn what_was_seen_of_another_region_is_asked_of_it_at_once() {
    let (mut lands, _eu, us) = two();
    lands.worlds[1].join(us, "bob", 1);
    lands.run(ms(500));
    lands.worlds[1].join(us, "cat", 1);
    lands.run(ms(500));
    assert_eq!(lands.shown(0), ["bob"], "the merge interval runs");
    let seen =
        lands.worlds[1].watchers[&HERE].views[&room("r")].region(&region_called("us")).unwrap().position();
    let mut at_least = presence_model::cursor::Cursor::default();
    at_least.set(region_called("us"), seen.unwrap());
    let mover = lands.worlds[0].watch_nothing(0, 2);
    lands.worlds[0].open(mover, OpenRoom { at_least: Some(at_least), ..open("r", None) });
    lands.run(ms(400));
    assert_eq!(lands.worlds[0].watchers[&mover].shown_merged(), ["bob", "cat"]);
}

/// Who is where, as the test itself has it.
#[derive(Default)]
struct Truth {
    /// Of each user the land and the lease.
    here: std::collections::BTreeMap<&'static str, (usize, presence_model::lease::LeaseId)>,
    generation: u64,
}

const USERS: [&str; 6] = ["ann", "bob", "cat", "dan", "eve", "fay"];

/// One thing happens in some land.
fn happen(lands: &mut Lands, edges: &[usize], truth: &mut Truth, rng: &mut StdRng) {
    let name = *USERS.choose(rng).unwrap();
    let land = rng.random_range(0..edges.len());
    truth.generation += 1;
    match truth.here.remove(name) {
        Some((at, lease)) if rng.random_bool(0.4) => {
            lands.worlds[at].leave(edges[at], name, lease).unwrap();
        }
        Some((at, lease)) => {
            // A move, or a return: the former connection is lost before or after.
            let first = rng.random_bool(0.5);
            if first {
                lands.worlds[at].release(edges[at], lease);
            }
            let joined = lands.worlds[land].join(edges[land], name, truth.generation).lease;
            if !first && at != land {
                lands.worlds[at].release(edges[at], lease);
            }
            truth.here.insert(name, (land, joined));
        }
        None => {
            let joined = lands.worlds[land].join(edges[land], name, truth.generation).lease;
            truth.here.insert(name, (land, joined));
        }
    }
}

/// Changes, moves, cuts short and long, at random: when all is over every view is what happened.
#[test]
fn whatever_happens_all_views_are_equal_in_the_end() {
    for seed in 0..12 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut lands = Lands::new(&["ap", "eu", "us"]);
        lands.watch_all();
        let edges: Vec<usize> = lands.worlds.iter_mut().map(|world| world.edge(0)).collect();
        let mut truth = Truth::default();
        for _ in 0..30 {
            happen(&mut lands, &edges, &mut truth, &mut rng);
            if rng.random_bool(0.1) {
                lands.cut.insert(rng.random_range(0..3));
            }
            if rng.random_bool(0.2) {
                lands.cut.clear();
            }
            let most = if rng.random_bool(0.05) { 120_000 } else { 4_000 };
            lands.run(ms(rng.random_range(5..most)));
        }
        lands.cut.clear();
        // The grace of whoever has moved last, the way back to each other, and the merge.
        lands.run(secs(12 + 3) + MERGE + secs(1));
        let expected: Vec<&str> = truth.here.keys().copied().collect();
        for land in 0..3 {
            assert_eq!(lands.shown(land), expected, "seed {seed}, {}", lands.names[land]);
            assert_eq!(lands.fresh(land, (land + 1) % 3), Some(Freshness::Live), "seed {seed}");
        }
    }
}
