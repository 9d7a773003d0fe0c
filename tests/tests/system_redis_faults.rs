//! What a store may suffer, row by row of `docs/redis.md`, and what must be seen of it: nobody live is ever
//! announced as gone, and whoever is gone goes.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use presence_core::store::shard_of;
use presence_model::id::{RegionId, RoomId, Roster};
use presence_tests::procs::{binary_path, pss_bytes};
use presence_tests::redis::{Copy, Data, FakeClock, Server, ServerOptions};
use presence_tests::scene::{ROOM, Scene, TIMERS};
use tokio::task::JoinHandle;

const PEOPLE: usize = 200;
/// A hold, the sweep after it, and a busy machine.
const AFTER_HOLD: Duration = Duration::from_secs(20);
/// What a hundred restarts may leave in memory: less than 40 kB each, of which an allocator keeps some.
const GROWTH_MAX: f64 = 4e6;

fn nobody() -> BTreeSet<String> {
    BTreeSet::new()
}

async fn pass(span: Duration) {
    tokio::time::sleep(span).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_with_its_data_is_not_seen() -> anyhow::Result<()> {
    let mut scene = Scene::set(2, PEOPLE, ServerOptions::default()).await?;
    scene.server.restart(Data::Saved).await?;
    let gone = scene.fall_silent(20)?;
    scene.nothing_was_seen_but(&gone, AFTER_HOLD).await?;
    scene.come(20).await?;
    scene.nothing_was_seen_but(&gone, AFTER_HOLD).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_that_lost_its_last_second_is_not_seen() -> anyhow::Result<()> {
    let mut scene = Scene::set(1, PEOPLE, ServerOptions::default().append_only()).await?;
    scene.come(50).await?;
    scene.server.restart(Data::OnDisk).await?;
    scene.nothing_was_seen_but(&nobody(), AFTER_HOLD).await?;
    pass(TIMERS.lease_ttl * 2).await;
    scene.nothing_was_seen_but(&nobody(), AFTER_HOLD).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_without_data_is_not_seen() -> anyhow::Result<()> {
    let mut scene = Scene::set(2, PEOPLE, ServerOptions::default()).await?;
    scene.server.restart(Data::Gone).await?;
    let gone = scene.fall_silent(20)?;
    scene.nothing_was_seen_but(&gone, AFTER_HOLD).await?;
    pass(TIMERS.lease_ttl).await;
    scene.nothing_was_seen_but(&gone, AFTER_HOLD).await
}

/// The replica was cut off, fifty commits later its master dies, and the replica's clock is another.
async fn a_fail_over(clock_ms: i64) -> anyhow::Result<()> {
    let clock = FakeClock::new()?;
    clock.step(clock_ms)?;
    let mut scene = Scene::set(2, PEOPLE, ServerOptions::default()).await?;
    let promoted = Server::start(ServerOptions::default().on(&clock)).await?;
    let cut_off = Copy::of(&scene.server).await?;
    for _ in 0..50 {
        scene.come(1).await?;
    }
    scene.server.kill()?;
    cut_off.put_into(&promoted).await?;
    scene.proxy.lead_to(promoted.port());
    let gone = scene.fall_silent(20)?;
    scene.nothing_was_seen_but(&gone, AFTER_HOLD).await?;
    pass(TIMERS.lease_ttl * 2).await;
    scene.nothing_was_seen_but(&gone, AFTER_HOLD).await?;
    drop(promoted);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fail_over_to_a_clock_ahead_is_not_seen() -> anyhow::Result<()> {
    a_fail_over(60_000).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fail_over_to_a_clock_behind_is_not_seen() -> anyhow::Result<()> {
    a_fail_over(-60_000).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_comes_and_goes_ends_nobody_early() -> anyhow::Result<()> {
    let scene = Scene::set(1, PEOPLE, ServerOptions::default()).await?;
    // A third of a ttl away, for a moment back: each gap alone would be allowed.
    for _ in 0..6 {
        scene.weather.cut(true);
        pass(TIMERS.lease_ttl * 3 / 10).await;
        scene.weather.cut(false);
        pass(Duration::from_millis(300)).await;
    }
    scene.nothing_was_seen_but(&nobody(), AFTER_HOLD).await?;
    pass(TIMERS.lease_ttl).await;
    scene.nothing_was_seen_but(&nobody(), AFTER_HOLD).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_away_for_long_ends_nobody_early() -> anyhow::Result<()> {
    let mut scene = Scene::set(1, PEOPLE, ServerOptions::default()).await?;
    scene.weather.cut(true);
    pass(TIMERS.lease_ttl * 2).await;
    let gone = scene.fall_silent(20)?;
    scene.weather.cut(false);
    scene.nothing_was_seen_but(&gone, AFTER_HOLD).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_stands_still_ends_nobody_early() -> anyhow::Result<()> {
    let scene = Scene::set(2, PEOPLE, ServerOptions::default()).await?;
    scene.server.signal("STOP")?;
    pass(TIMERS.lease_ttl * 2).await;
    scene.server.signal("CONT")?;
    scene.nothing_was_seen_but(&nobody(), AFTER_HOLD).await?;
    pass(TIMERS.lease_ttl).await;
    scene.nothing_was_seen_but(&nobody(), AFTER_HOLD).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_store_ends_nobody_early() -> anyhow::Result<()> {
    let mut scene = Scene::set(2, PEOPLE, ServerOptions::default()).await?;
    // For four fifths of the time it answers nobody.
    for second in 0..TIMERS.lease_ttl.as_secs() * 3 {
        server_call(&scene.server, &["DEBUG", "SLEEP", "0.8"]).await?;
        pass(Duration::from_millis(200)).await;
        if second == 3 {
            scene.come(20).await?;
        }
    }
    scene.nothing_was_seen_but(&nobody(), AFTER_HOLD).await?;
    let gone = scene.fall_silent(20)?;
    let slow = "presence_core_store_seconds_bucket{op=\"renew\",outcome=\"ok\",le=\"0.5\"}";
    let all = "presence_core_store_seconds_bucket{op=\"renew\",outcome=\"ok\",le=\"+Inf\"}";
    let (quick, all) = (scene.cores[0].metric(slow).await?, scene.cores[0].metric(all).await?);
    assert!(quick < all, "and its latency is seen: {quick} of {all} renewals within half a second");
    scene.nothing_was_seen_but(&gone, AFTER_HOLD).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_core_sleeps_for_three_ttls() -> anyhow::Result<()> {
    let mut scene = Scene::set(1, PEOPLE, ServerOptions::default()).await?;
    scene.cores[0].signal("STOP")?;
    pass(TIMERS.lease_ttl * 3).await;
    let gone = scene.fall_silent(20)?;
    scene.cores[0].signal("CONT")?;
    scene.nothing_was_seen_but(&gone, AFTER_HOLD).await?;
    let hold: String = scene.server.call(&["HGET", "presence:{s0}", "hold_cause"]).await?;
    assert_eq!(hold, "sweep_gap", "a hold was set");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_cores_sleeps_and_nothing_is_noticed() -> anyhow::Result<()> {
    let mut scene = Scene::set(1, PEOPLE, ServerOptions::default()).await?;
    // The edge does not know this one: what sleeps here is a core with turns, and not a link.
    scene.add_core()?;
    pass(Duration::from_secs(2)).await;
    scene.cores[1].signal("STOP")?;
    pass(TIMERS.lease_ttl * 2).await;
    let gone = scene.fall_silent(20)?;
    scene.witnesses[0].until(&scene.there, TIMERS.lease_ttl + Duration::from_secs(4)).await?;
    scene.cores[1].signal("CONT")?;
    scene.nothing_was_seen_but(&gone, AFTER_HOLD).await
}

/// Somebody who listens to everything that the server announces, and reads it.
async fn listens_to_everything(server: &Server) -> anyhow::Result<JoinHandle<()>> {
    server_call(server, &["CONFIG", "SET", "notify-keyspace-events", "KEA"]).await?;
    let mut heard = redis::Client::open(format!("redis://{}", server.address()))?.get_async_pubsub().await?;
    heard.psubscribe("*").await?;
    Ok(tokio::spawn(heard.into_on_message().for_each(|_| std::future::ready(()))))
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_are_flushed_and_strangers_share_the_server() -> anyhow::Result<()> {
    const STRANGERS: usize = 500_000;
    const AT_ONCE: usize = 20_000;
    let mut scene = Scene::set(2, PEOPLE, ServerOptions::default()).await?;
    let listener = listens_to_everything(&scene.server).await?;
    let strangers = "for i = ARGV[1], ARGV[1] + ARGV[2] - 1 do \
                     redis.call('SET', 'stranger:' .. i, 'x', 'PX', 3000 + i % 3000) end";
    for (number, first) in (0..STRANGERS).step_by(AT_ONCE).enumerate() {
        let (first, count) = (first.to_string(), AT_ONCE.to_string());
        server_call(&scene.server, &["EVAL", strangers, "0", &first, &count]).await?;
        if number % 5 == 0 {
            server_call(&scene.server, &["SCRIPT", "FLUSH"]).await?;
            scene.come(10).await?;
        }
    }
    let gone = scene.fall_silent(20)?;
    scene.nothing_was_seen_but(&gone, AFTER_HOLD).await?;
    // Until the last of them has ended.
    pass(TIMERS.lease_ttl * 2).await;
    scene.nothing_was_seen_but(&gone, AFTER_HOLD).await?;
    let hold: Option<String> = scene.server.call(&["HGET", "presence:{s0}", "hold_cause"]).await?;
    assert_ne!(hold.as_deref(), Some("sweep_gap"), "strangers are no reason for a hold");
    let ended: u64 = scene.server.info("stats", "expired_keys").await?.parse()?;
    assert!(ended > STRANGERS as u64 * 9 / 10, "{ended} keys of strangers have ended");
    listener.abort();
    Ok(())
}

async fn server_call(server: &Server, command: &[&str]) -> anyhow::Result<()> {
    server.call::<redis::Value>(command).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_restarts_leave_descriptors_and_memory_flat() -> anyhow::Result<()> {
    const WARM: usize = 20;
    let mut scene = Scene::set(1, 20, ServerOptions::default()).await?;
    let look = async |scene: &Scene| {
        let process = scene.cores[0].id();
        let descriptors = std::fs::read_dir(format!("/proc/{process}/fd"))?.count();
        anyhow::Ok((descriptors, pss_bytes(process)?))
    };
    let (mut before, mut after) = ((0, 0.0), (0, 0.0));
    for restarts in 1..=WARM + 100 {
        scene.server.restart(Data::Gone).await?;
        pass(Duration::from_millis(50)).await;
        if restarts == WARM || restarts == WARM + 100 {
            scene.nothing_was_seen_but(&nobody(), AFTER_HOLD).await?;
            // What an allocator gives back, it gives back by then.
            pass(TIMERS.lease_ttl * 2).await;
            (before, after) = (after, look(&scene).await?);
        }
    }
    println!("{before:?} descriptors and bytes before, {after:?} after a hundred restarts");
    assert!(after.0 <= before.0 + 2, "{before:?} before, {after:?} after");
    assert!(after.1 <= before.1 + GROWTH_MAX, "{before:?} before, {after:?} after");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_can_look() -> anyhow::Result<()> {
    let scene = Scene::set(1, 3, ServerOptions::default()).await?;
    let core = format!("http://{}", scene.cores[0].address("grpc"));
    let ask = |words: &[&str]| -> anyhow::Result<String> {
        let asked = std::process::Command::new(binary_path("presence")?)
            .args(words)
            .args(["--core", &core])
            .output()?;
        anyhow::ensure!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
        Ok(String::from_utf8(asked.stdout)?)
    };
    let room = ask(&["room", ROOM])?;
    for user in &scene.there {
        assert!(room.contains(user), "{user} is not in {room}");
    }
    let explained = ask(&["explain", ROOM, "user-0"])?;
    assert!(explained.contains("user-0") && explained.contains("edge"), "{explained}");

    // The same, by the keys that are documented.
    let shard = shard_of(&Roster { region: RegionId::new("local")?, room: RoomId::new(ROOM)? }, 16);
    let key = |rest: &str| format!("presence:{{{shard}}}{rest}");
    let names: Vec<String> = scene.server.call(&["ZRANGE", &key(":names:local:hall"), "0", "-1"]).await?;
    assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), scene.there);
    let owners: Vec<String> = scene.server.call(&["HVALS", &key(":owners")]).await?;
    assert!(owners.iter().any(|owner| owner.contains("\"user\":\"user-0\"")), "{owners:?}");
    let kinds = [("", "hash"), (":leases", "zset"), (":until", "zset"), (":history", "stream")];
    for (rest, kind) in kinds {
        let found: String = scene.server.call(&["TYPE", &key(rest)]).await?;
        assert_eq!(found, kind, "{}", key(rest));
    }
    Ok(())
}
