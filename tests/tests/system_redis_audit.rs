//! Somebody's hand in Redis: leases and records that were parted find together again, or go; whoever is
//! there is never seen to leave.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use presence_core::store::shard_of;
use presence_model::id::{RegionId, RoomId, Roster};
use presence_model::lease::{LeaseId, Shard};
use presence_tests::redis::ServerOptions;
use presence_tests::scene::{ROOM, Scene, TIMERS};

const PEOPLE: usize = 200;
/// A walk over all of them, a page a second, what a finding waits, and a busy machine.
const FOUND_WITHIN: Duration = Duration::from_secs(12);
const SHARDS: u16 = 16;

fn key(rest: &str) -> String {
    let roster = Roster {
        region: RegionId::new("local").expect("a good name"),
        room: RoomId::new(ROOM).expect("a good name"),
    };
    format!("presence:{{{}}}{rest}", shard_of(&roster, SHARDS))
}

/// The lease of a user, as an operator finds it.
async fn lease_of(scene: &Scene, user: &str) -> anyhow::Result<String> {
    let owners: Vec<String> = scene.server.call(&["HGETALL", &key(":owners")]).await?;
    let of_user = format!("\"user\":\"{user}\"");
    let found = owners.chunks(2).find(|pair| pair[1].contains(&of_user));
    Ok(found.context("nobody of that name")?[0].clone())
}

async fn delete_lease(scene: &Scene, user: &str) -> anyhow::Result<String> {
    let lease = lease_of(scene, user).await?;
    let removed: i64 = scene.server.call(&["ZREM", &key(":leases"), &lease]).await?;
    assert_eq!(removed, 1, "{lease} of {user}");
    Ok(lease)
}

async fn has_lease(scene: &Scene, lease: &str) -> anyhow::Result<bool> {
    let score: Option<String> = scene.server.call(&["ZSCORE", &key(":leases"), lease]).await?;
    Ok(score.is_some())
}

async fn until_gone(scene: &Scene, lease: &str) -> anyhow::Result<()> {
    let end = tokio::time::Instant::now() + FOUND_WITHIN;
    while has_lease(scene, lease).await? {
        anyhow::ensure!(tokio::time::Instant::now() < end, "{lease} is there after {FOUND_WITHIN:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn counted(scene: &Scene, finding: &str, outcome: &str) -> anyhow::Result<f64> {
    let series = format!("presence_core_audit_findings_total{{finding=\"{finding}\",outcome=\"{outcome}\"}}");
    let mut sum = 0.0;
    for core in &scene.cores {
        sum += core.metric(&series).await?;
    }
    Ok(sum)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_lease_of_somebody_there_is_not_seen() -> anyhow::Result<()> {
    let scene = Scene::set(2, PEOPLE, ServerOptions::default()).await?;
    let lease = delete_lease(&scene, "user-7").await?;
    tokio::time::sleep(TIMERS.lease_ttl * 3).await;
    scene.nothing_was_seen_but(&BTreeSet::new(), FOUND_WITHIN).await?;
    assert_ne!(lease_of(&scene, "user-7").await?, lease, "its edge has joined again");
    assert_eq!(counted(&scene, "record_without_lease", "mended").await?, 0.0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_lease_of_somebody_gone_ends_its_member() -> anyhow::Result<()> {
    let mut scene = Scene::set(2, PEOPLE, ServerOptions::default()).await?;
    let gone = scene.fall_silent(5)?;
    for user in &gone {
        delete_lease(&scene, user).await?;
    }
    scene.nothing_was_seen_but(&gone, TIMERS.lease_ttl + FOUND_WITHIN).await?;
    for witness in &scene.witnesses {
        let reasons: BTreeSet<String> =
            witness.seen().removed.into_iter().map(|(_, reason)| reason).collect();
        assert_eq!(reasons, BTreeSet::from(["lease_expired".to_owned()]));
    }
    assert_eq!(counted(&scene, "record_without_lease", "mended").await?, 5.0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_leases_go_and_stop_no_sweep() -> anyhow::Result<()> {
    let mut scene = Scene::set(1, PEOPLE, ServerOptions::default()).await?;
    let far = "99999999999999";
    let stray = LeaseId::mint(TIMERS.lease_ttl, Shard(3), 4_711).to_string();
    for (score, member) in [(far, stray.as_str()), ("1", "what is no lease"), (far, "nor this one")] {
        let _: i64 = scene.server.call(&["ZADD", &key(":leases"), score, member]).await?;
    }
    for member in [&stray, "what is no lease", "nor this one"] {
        until_gone(&scene, member).await?;
    }
    let gone = scene.fall_silent(5)?;
    scene.nothing_was_seen_but(&gone, TIMERS.lease_ttl + FOUND_WITHIN).await?;
    assert_eq!(counted(&scene, "stray_lease", "mended").await?, 1.0);
    assert!(scene.cores[0].metric("presence_core_audit_pages_total").await? > 0.0);
    assert!(scene.cores[0].metric("presence_core_oldest_overdue_seconds").await? < 1.0);
    let late = "presence_core_lease_expiry_lag_seconds";
    assert!(scene.cores[0].metric(&format!("{late}_count")).await? >= 5.0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_records_are_made_good_by_their_edge() -> anyhow::Result<()> {
    let mut scene = Scene::set(2, PEOPLE, ServerOptions::default()).await?;
    let leases = [lease_of(&scene, "user-3").await?, lease_of(&scene, "user-4").await?];
    let roster = key(&format!(":roster:local:{ROOM}"));
    let removed: i64 = scene.server.call(&["HDEL", &roster, "@user-3", "@user-4"]).await?;
    assert_eq!(removed, 2);
    for lease in &leases {
        until_gone(&scene, lease).await?;
    }
    tokio::time::sleep(TIMERS.heartbeat * 2).await;
    for user in ["@user-3", "@user-4"] {
        let is_back: bool = scene.server.call(&["HEXISTS", &roster, user]).await?;
        assert!(is_back, "{user}: its edge heard that the lease is unknown, and joined again");
    }
    scene.nothing_was_seen_but(&BTreeSet::new(), FOUND_WITHIN).await?;
    // A core that has no copy reads all of it, and its sum is right.
    scene.add_core()?;
    scene.come(3).await?;
    scene.nothing_was_seen_but(&BTreeSet::new(), FOUND_WITHIN).await?;
    assert_eq!(counted(&scene, "torn_roster", "mended").await?, 1.0);
    Ok(())
}
