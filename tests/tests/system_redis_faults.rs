//! What a store may suffer, row by row of `docs/redis.md`, and what must be seen of it: nobody live is ever
//! announced as gone, and whoever is gone goes.

use std::collections::BTreeSet;
use std::time::Duration;

use presence_core::store::shard_of;
use presence_model::id::{RegionId, RoomId, Roster};
use presence_tests::procs::binary_path;
use presence_tests::redis::{Copy, Data, FakeClock, Server, ServerOptions};
use presence_tests::scene::{ROOM, Scene, TIMERS};

const PEOPLE: usize = 200;
/// A hold, the sweep after it, and a busy machine.
const AFTER_HOLD: Duration = Duration::from_secs(20);

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

#[tokio::test(flavor = "multi_thread")]
async fn scripts_are_flushed_and_strangers_share_the_server() -> anyhow::Result<()> {
    let mut scene = Scene::set(1, PEOPLE, ServerOptions::default()).await?;
    let strangers = "for i = 1, 50000 do redis.call('SET', 'stranger:' .. i, 'x', 'PX', 2000 + i % 3000) end";
    for _ in 0..3 {
        server_call(&scene.server, &["SCRIPT", "FLUSH"]).await?;
        server_call(&scene.server, &["EVAL", strangers, "0"]).await?;
        scene.come(10).await?;
        pass(Duration::from_secs(1)).await;
    }
    pass(TIMERS.lease_ttl).await;
    scene.nothing_was_seen_but(&nobody(), AFTER_HOLD).await
}

async fn server_call(server: &Server, command: &[&str]) -> anyhow::Result<()> {
    server.call::<redis::Value>(command).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_restarts_leave_descriptors_flat() -> anyhow::Result<()> {
    let mut scene = Scene::set(1, 20, ServerOptions::default()).await?;
    let descriptors = |scene: &Scene| -> anyhow::Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", scene.cores[0].id()))?.count())
    };
    let before = descriptors(&scene)?;
    for _ in 0..100 {
        scene.server.restart(Data::Gone).await?;
        pass(Duration::from_millis(50)).await;
    }
    scene.nothing_was_seen_but(&nobody(), AFTER_HOLD).await?;
    let after = descriptors(&scene)?;
    println!("{before} descriptors before, {after} after a hundred restarts");
    assert!(after <= before + 2, "{before} before, {after} after");
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
