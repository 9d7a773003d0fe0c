//! A store that takes 300 ms for each command, and several times as many who want in as it can take then: they are told
//! to come again, moments apart; nobody who is there is refused anything, let alone announced as gone.

use std::collections::BTreeSet;
use std::time::Duration;

use presence_tests::fleet::{Fleet, Person, Report};
use presence_tests::procs::Process;
use presence_tests::redis::ServerOptions;
use presence_tests::scene::{ROOM, Scene, TIMERS};

const PEOPLE: usize = 500;
/// On each of two edges.
const NEWCOMERS: usize = 1_100;
/// So many times as many joins as the store lets in then, or more.
const LOAD: u64 = 3;
const DELAY: Duration = Duration::from_millis(300);
/// More than a lease lasts: whoever were not renewed would be gone.
const SLOW_FOR: Duration = Duration::from_millis(6_500);
/// For all to be in once the store is quick again: the longest hint, and a busy machine.
const WITHIN: Duration = Duration::from_secs(90);

async fn sum(cores: &[Process], series: &str) -> f64 {
    let mut sum = 0.0;
    for core in cores {
        // A series that nothing was counted in may not be there.
        sum += core.metric(series).await.unwrap_or(0.0);
    }
    sum
}

async fn renewals_that_failed(cores: &[Process]) -> f64 {
    let of =
        |outcome: &str| format!("presence_core_store_seconds_count{{op=\"renew\",outcome=\"{outcome}\"}}");
    sum(cores, &of("unavailable")).await + sum(cores, &of("unknown")).await
}

/// What has happened to both together.
fn both([one, other]: &[Fleet; 2]) -> Report {
    let (one, other) = (one.report(), other.report());
    Report {
        live: one.live + other.live,
        postponed: one.postponed + other.postponed,
        hints: (one.hints.0.min(other.hints.0), one.hints.1.max(other.hints.1)),
        ended: [one.ended, other.ended].concat(),
        ..Report::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn newcomers_wait_for_a_slow_store_and_whoever_is_there_does_not() -> anyhow::Result<()> {
    let mut scene = Scene::set(2, PEOPLE, ServerOptions::default()).await?;
    let (before, failed_before) = (scene.fleet.report(), renewals_that_failed(&scene.cores).await);
    scene.weather.delay(DELAY);
    let crowds = [scene.start_fleet("crowd-1"), scene.start_fleet("crowd-2")];
    let people = Person::gathering(ROOM, "newcomer", 0, 2 * NEWCOMERS);
    let users: Vec<String> = people.iter().map(|person| person.user.clone()).collect();
    {
        let halves = crowds.iter().zip(people.chunks(NEWCOMERS));
        let joins = halves.map(|(crowd, half)| crowd.join(half.to_vec(), WITHIN));
        let mut coming = std::pin::pin!(futures::future::try_join_all(joins));
        tokio::select! {
            all = &mut coming => anyhow::bail!("all came in at once, so nothing was shown: {all:?}"),
            () = tokio::time::sleep(SLOW_FOR) => {}
        }
        let slow = both(&crowds);
        let there = scene.fleet.report();
        let shed = sum(&scene.cores, "presence_core_joins_shed_total{reason=\"slow\"}").await;
        let failed = renewals_that_failed(&scene.cores).await - failed_before;
        let renewed = there.renewed - before.renewed;
        println!(
            "store slowed to {} ms a command for {} s: {} of {} newcomers let in, {} answers with a hint \
             ({:.1} × the load it takes; {shed} shed by cores), hints from {} to {} ms; of {PEOPLE} others {renewed} renewals, {failed} failed, \
             {} unknown, {} ended",
            DELAY.as_millis(),
            SLOW_FOR.as_secs_f64(),
            slow.live,
            2 * NEWCOMERS,
            slow.postponed,
            (slow.live as u64 + slow.postponed) as f64 / slow.live as f64,
            slow.hints.0.as_millis(),
            slow.hints.1.as_millis(),
            there.unknown - before.unknown,
            there.ended.len(),
        );
        assert!(slow.live > 0, "as many as it can are let in");
        let offered = slow.live as u64 + slow.postponed;
        assert!(
            offered >= LOAD * slow.live as u64 && shed > 0.0,
            "{offered} joins: too few to show anything"
        );
        assert!(
            slow.hints.0 >= Duration::from_millis(250) && slow.hints.1 > slow.hints.0 * 2,
            "apart: {:?}",
            slow.hints
        );
        assert_eq!((failed, there.unknown - before.unknown), (0.0, 0), "no renewal is shed");
        let due = PEOPLE as u128 * SLOW_FOR.as_millis() / TIMERS.heartbeat.as_millis();
        assert!(u128::from(renewed) >= due, "{renewed} renewals of {due} or more");
        assert!(there.ended.is_empty() && slow.ended.is_empty(), "{:?} {:?}", there.ended, slow.ended);
        scene.weather.delay(Duration::ZERO);
        coming.await?;
    }
    scene.there.extend(users);
    scene.nothing_was_seen_but(&BTreeSet::new(), WITHIN).await
}
