//! A store whose memory is full: it refuses what is written and answers reads. Nobody live is announced as gone,
//! whoever comes is told to come again, lists are said to be stale, and all is well once there is room.

use std::collections::BTreeSet;
use std::time::Duration;

use presence_model::claim::Action;
use presence_tests::procs::Client;
use presence_tests::redis::ServerOptions;
use presence_tests::scene::{ROOM, Scene, TIMERS};
use serde_json::{Value, json};
use tokio::sync::mpsc;

const PEOPLE: usize = 100;
/// A hold, the sweep after it, and a busy machine.
const AFTER_HOLD: Duration = Duration::from_secs(20);
const WITHIN: Duration = Duration::from_secs(20);

/// Joins once; the frame that answers it.
async fn knock(scene: &Scene, url: &str, user: &str) -> anyhow::Result<(Client, Value)> {
    let mut client = Client::connect(url).await?;
    let (token, session) = (scene.token(user, Action::Join)?, format!("session-of-user-{user}"));
    let join = json!({ "t": "join", "room": ROOM, "token": token, "session": session, "generation": 1 });
    client.send(&join).await?;
    loop {
        let frame = client.next().await?;
        if frame["t"] == "error" || frame["t"] == "joined" {
            return Ok((client, frame));
        }
    }
}

/// Watches the room; what it is told of freshness.
async fn watch_freshness(
    scene: &Scene,
    url: &str,
) -> anyhow::Result<mpsc::UnboundedReceiver<(String, Vec<(String, String)>)>> {
    let mut client = Client::connect(url).await?;
    client.watch(ROOM, &scene.token("observer", Action::Watch)?).await?;
    let (told, heard) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(frame) = client.next().await {
            if frame["t"] == "freshness" {
                let state = frame["state"].as_str().unwrap_or_default().to_owned();
                // Nobody listens any more once the test is over.
                let _ = told.send((state, client.removals.clone()));
            }
        }
    });
    Ok(heard)
}

async fn until_told(
    heard: &mut mpsc::UnboundedReceiver<(String, Vec<(String, String)>)>,
    wanted: &str,
) -> anyhow::Result<Vec<(String, String)>> {
    let told = async {
        loop {
            match heard.recv().await {
                Some((state, removals)) if state == wanted => return Ok(removals),
                Some(_) => {}
                None => anyhow::bail!("the observer was cut off"),
            }
        }
    };
    tokio::time::timeout(WITHIN, told).await?
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_memory_ends_nobody_and_says_what_it_is() -> anyhow::Result<()> {
    // The people are linked to the first core: nothing of the second one waits to be written.
    let mut scene = Scene::set(2, PEOPLE, ServerOptions::default()).await?;
    let edge = scene.start_edge("real")?;
    let url = edge.address("ws");
    let (member, joined) = knock(&scene, &url, "websocket").await?;
    assert_eq!(joined["t"], "joined", "{joined}");
    scene.there.insert("websocket".to_owned());
    let staying = tokio::spawn(member.idle());
    let mut heard = watch_freshness(&scene, &url).await?;
    scene.everybody_sees(WITHIN).await?;
    let unknown = scene.fleet.report().unknown;

    let _: () = scene.server.call(&["CONFIG", "SET", "maxmemory", "1"]).await?;
    until_told(&mut heard, "stale").await?;
    let (_, refused) = knock(&scene, &url, "comes-too-early").await?;
    assert_eq!((&refused["t"], &refused["code"]), (&json!("error"), &json!("unavailable")), "{refused}");
    assert!(refused["retry_after_ms"].as_u64().is_some_and(|hint| hint > 0), "with a hint: {refused}");
    tokio::time::sleep(TIMERS.lease_ttl * 3).await;
    let refused =
        scene.cores[0].metric("presence_core_store_seconds_count{op=\"renew\",outcome=\"unavailable\"}");
    assert!(refused.await? > 0.0, "renewals were refused");
    assert_eq!(scene.fleet.report().unknown, unknown, "which is not that leases are unknown");

    let gone = scene.fall_silent(10)?;
    let _: () = scene.server.call(&["CONFIG", "SET", "maxmemory", "0"]).await?;
    let told = until_told(&mut heard, "live").await?;
    scene.nothing_was_seen_but(&gone, AFTER_HOLD).await?;
    let wrong: Vec<_> = told.iter().filter(|(user, _)| !gone.contains(user)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let (_late, joined) = knock(&scene, &url, "comes-again").await?;
    assert_eq!(joined["t"], "joined", "{joined}");
    assert!(!staying.is_finished(), "whoever was there was not cut off");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_short_of_memory_for_moments_ends_nobody() -> anyhow::Result<()> {
    let scene = Scene::set(2, PEOPLE, ServerOptions::default()).await?;
    // Each time shorter than what a hold is for.
    for _ in 0..8 {
        let _: () = scene.server.call(&["CONFIG", "SET", "maxmemory", "1"]).await?;
        tokio::time::sleep(TIMERS.lease_ttl / 4).await;
        let _: () = scene.server.call(&["CONFIG", "SET", "maxmemory", "0"]).await?;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    scene.nothing_was_seen_but(&BTreeSet::new(), AFTER_HOLD).await?;
    tokio::time::sleep(TIMERS.lease_ttl * 2).await;
    scene.nothing_was_seen_but(&BTreeSet::new(), AFTER_HOLD).await
}
