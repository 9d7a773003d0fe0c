//! Rooms watched over streams that come and go.

use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use presence_client::watch::RoomOptions;
use presence_client::{ClientError, ClientSettings, RoomChange, RoomStream, RoomUpdate};
use presence_model::cursor::Cursor;
use presence_model::delta::Delta;
use presence_model::position::Revision;
use presence_model::replica::Freshness;
use presence_model::time::StoreTime;
use presence_model::view::RegionEvent;
use presence_model::watch::{Level, WatchDown, WatchRefusal, WatchUp};
use presence_proto::ServiceError;

use crate::fake_core::{FakeCore, client, digest, member, position, region, room, snapshot, soon, with};

/// One user came.
fn joined(from: u64, user: &str, all: &[&str]) -> RegionEvent {
    RegionEvent::Delta(Delta {
        epoch: position(from).epoch,
        from: Revision(from),
        to: Revision(from + 1),
        upserts: vec![member(user)],
        removals: Vec::new(),
        digest: digest(all),
    })
}

async fn next(stream: &mut RoomStream) -> RoomUpdate {
    soon(stream.next()).await.unwrap()
}

fn fresh(update: &RoomUpdate) -> Option<Freshness> {
    update.freshness.get(&region()).copied()
}

fn at(revision: u64) -> Cursor {
    let mut cursor = Cursor::default();
    cursor.set(region(), position(revision));
    cursor
}

async fn watch(client: &presence_client::Client, name: &str) -> RoomStream {
    client.watch(room(name), RoomOptions::default()).await.unwrap()
}

#[tokio::test]
async fn a_reader_gets_the_list_and_then_what_changed_in_one() {
    let mut core = FakeCore::start();
    let client = client(&[&core]);
    let mut reader = watch(&client, "r1").await;
    let mut stream = core.stream().await;
    assert_eq!(stream.opened().await.room, room("r1"));
    stream.event("r1", snapshot(7, &["u1"])).await;
    let update = next(&mut reader).await;
    assert_eq!(update.change, RoomChange::List(vec![member("u1")]));
    assert_eq!((fresh(&update), update.count, update.cursor), (Some(Freshness::Live), 1, at(7)));

    assert!(reader.next().now_or_never().is_none(), "nothing is new; the dropped call costs nothing");
    stream.event("r1", joined(7, "u2", &["u1", "u2"])).await;
    stream.event("r1", joined(8, "u3", &["u1", "u2", "u3"])).await;
    // A second reader is served from the same view, and shows that both have arrived.
    let mut second = watch(&client, "r1").await;
    while next(&mut second).await.count < 3 {}
    let update = next(&mut reader).await;
    let upserts = vec![member("u2"), member("u3")];
    assert_eq!(update.change, RoomChange::Delta { upserts, removals: Vec::new() });
    assert_eq!((update.count, update.cursor), (3, at(9)));
}

#[tokio::test]
async fn an_empty_room_is_told_as_an_empty_list() {
    let mut core = FakeCore::start();
    let client = client(&[&core]);
    let mut reader = watch(&client, "r1").await;
    let stream = core.stream().await;
    stream.event("r1", snapshot(0, &[])).await;
    assert_eq!(next(&mut reader).await.change, RoomChange::List(Vec::new()));
}

#[tokio::test]
async fn a_lost_stream_is_stale_until_the_next_has_resumed() {
    let mut core = FakeCore::start();
    let client = client(&[&core]);
    let mut reader = watch(&client, "r1").await;
    let stream = core.stream().await;
    stream.progress(777).await;
    stream.event("r1", snapshot(7, &["u1"])).await;
    next(&mut reader).await;
    stream.fail(ServiceError::TooSlow.into()).await;
    let update = next(&mut reader).await;
    assert_eq!(fresh(&update), Some(Freshness::Stale { since: StoreTime(777) }));
    assert_eq!((update.change, update.count), (RoomChange::Nothing, 1));

    let mut stream = core.stream().await;
    assert_eq!(stream.opened().await.cursor, Some(at(7)));
    stream.event("r1", joined(7, "u2", &["u1", "u2"])).await;
    stream.event("r1", RegionEvent::Freshness(Freshness::Live)).await;
    let mut upserts = Vec::new();
    loop {
        let update = next(&mut reader).await;
        match &update.change {
            RoomChange::Delta { upserts: more, .. } => upserts.extend(more.clone()),
            RoomChange::Nothing => {}
            RoomChange::List(_) => panic!("resumed by delta"),
        }
        if fresh(&update) == Some(Freshness::Live) {
            break;
        }
    }
    assert_eq!(upserts, [member("u2")]);
}

#[tokio::test]
async fn a_core_that_dies_is_replaced_by_another() {
    let (mut first, mut second) = (FakeCore::start(), FakeCore::start());
    let client = client(&[&first, &second]);
    let mut reader = watch(&client, "r1").await;
    let stream = first.stream().await;
    stream.event("r1", snapshot(7, &["u1"])).await;
    next(&mut reader).await;
    first.die().await;
    let mut stream = second.stream().await;
    assert_eq!(stream.opened().await.cursor, Some(at(7)));
}

#[tokio::test]
async fn a_core_that_goes_is_left_without_anything_turning_stale() {
    let (mut first, mut second) = (FakeCore::start(), FakeCore::start());
    let client = client(&[&first, &second]);
    let mut reader = watch(&client, "r1").await;
    let old = first.stream().await;
    old.event("r1", snapshot(7, &["u1"])).await;
    next(&mut reader).await;
    old.say(WatchDown::Drain).await;
    let mut stream = second.stream().await;
    assert_eq!(stream.opened().await.cursor, Some(at(7)));
    stream.event("r1", RegionEvent::Freshness(Freshness::Live)).await;
    stream.event("r1", joined(7, "u2", &["u1", "u2"])).await;
    let update = next(&mut reader).await;
    assert_eq!((fresh(&update), update.count), (Some(Freshness::Live), 2));
}

#[tokio::test]
async fn a_silent_core_is_left_for_another() {
    let (mut first, mut second) = (FakeCore::start(), FakeCore::start());
    let urls = vec![first.url.clone(), second.url.clone()];
    let beat = Duration::from_millis(30);
    let client = with(ClientSettings { beat, ..ClientSettings::new(urls, 0) });
    let _reader = watch(&client, "r1").await;
    let _silent = first.stream().await;
    assert_eq!(second.stream().await.opened().await.room, room("r1"));
}

#[tokio::test]
async fn a_room_without_readers_is_closed() {
    let mut core = FakeCore::start();
    let settings =
        ClientSettings { beat: Duration::from_millis(30), ..ClientSettings::new(vec![core.url.clone()], 0) };
    let client = with(settings);
    let kept = watch(&client, "r1").await;
    let dropped = watch(&client, "r2").await;
    let mut stream = core.stream().await;
    stream.opened().await;
    stream.opened().await;
    drop(dropped);
    assert_eq!(stream.up().await, WatchUp::Close(room("r2")));
    assert_eq!(kept.room(), &room("r1"));
}

#[tokio::test]
async fn a_refused_room_says_so_and_leaves_others_alone() {
    let mut core = FakeCore::start();
    let client = client(&[&core]);
    let mut refused = watch(&client, "r1").await;
    let mut fine = watch(&client, "r2").await;
    let stream = core.stream().await;
    stream.say(WatchDown::Refused { room: room("r1"), refusal: WatchRefusal::Forbidden }).await;
    let error = soon(refused.next()).await.unwrap_err();
    assert_eq!((error.retry_after(), error), (None, ClientError::NotWatched(WatchRefusal::Forbidden)));
    stream.event("r2", snapshot(7, &["u1"])).await;
    assert_eq!(next(&mut fine).await.count, 1);
    let items: Vec<_> = soon(refused.into_stream().collect()).await;
    assert_eq!(items, [Err(ClientError::NotWatched(WatchRefusal::Forbidden))]);
}

#[tokio::test]
async fn a_client_that_is_not_let_in_is_told() {
    let mut core = FakeCore::start();
    core.set(|book| book.refusal = Some(ServiceError::Unauthorized.into()));
    let client = client(&[&core]);
    let mut reader = watch(&client, "r1").await;
    let error = soon(reader.next()).await.unwrap_err();
    assert_eq!(error, ClientError::Refused(ServiceError::Unauthorized));
    core.set(|book| book.refusal = None);
    let stream = core.stream().await;
    stream.event("r1", snapshot(7, &["u1"])).await;
    loop {
        // What was said before it was let in may still be on its way.
        if let Ok(update) = soon(reader.next()).await {
            break assert_eq!(update.count, 1);
        }
    }
}

#[tokio::test]
async fn a_message_outside_the_contract_costs_the_stream() {
    let mut core = FakeCore::start();
    let client = client(&[&core]);
    let _reader = watch(&client, "r1").await;
    let stream = core.stream().await;
    stream
        .event(
            "r1",
            RegionEvent::Delta(Delta {
                epoch: position(1).epoch,
                from: Revision(9),
                to: Revision(3),
                upserts: Vec::new(),
                removals: Vec::new(),
                digest: digest(&[]),
            }),
        )
        .await;
    assert_eq!(core.stream().await.opened().await.room, room("r1"));
}

#[tokio::test]
async fn counts_are_told_without_members() {
    let mut core = FakeCore::start();
    let client = client(&[&core]);
    let options = RoomOptions { level: Level::Count, ..RoomOptions::default() };
    let mut reader = client.watch(room("r1"), options).await.unwrap();
    let mut stream = core.stream().await;
    assert_eq!(stream.opened().await.level, Level::Count);
    stream.say(WatchDown::Count { room: room("r1"), members: 51_234 }).await;
    let update = next(&mut reader).await;
    assert_eq!((update.count, update.change), (51_234, RoomChange::Nothing));
    // Somebody who wants members gets them for all.
    let mut second = watch(&client, "r1").await;
    assert_eq!(stream.opened().await.level, Level::Members);
    stream.event("r1", snapshot(7, &["u1"])).await;
    while next(&mut second).await.change != RoomChange::List(vec![member("u1")]) {}
    assert_eq!(next(&mut reader).await.count, 1);
}

#[tokio::test]
async fn a_reader_keeps_the_watch_of_a_client_that_is_gone() {
    let mut core = FakeCore::start();
    let client = client(&[&core]);
    let mut reader = watch(&client, "r1").await;
    drop(client);
    let stream = core.stream().await;
    stream.event("r1", snapshot(7, &["u1"])).await;
    assert_eq!(next(&mut reader).await.count, 1);
    drop(reader);
    soon(stream.closed()).await;
    assert!(!core.has_stream(), "nobody comes back");
}
