//! An edge process that dies, and one that is frozen: who was on it goes, with the reason, neither early
//! nor late; who came back elsewhere was never gone.

use std::time::Duration;

use presence_model::claim::Action;
use presence_proto::v1;
use presence_proto::v1::presence_service_client::PresenceServiceClient;
use presence_runtime::clock::Clock;
use presence_tests::procs::{Client, Keys, Process, Timers, core, edge};
use tokio::task::JoinSet;

/// Sessions on the edge that dies.
const SESSIONS: usize = 500;
/// Of them, come back on the other edge at once.
const RETURNING: usize = 50;
const ROOM: &str = "lobby";
/// Correctness bounds get slack for a busy machine; nothing here is a benchmark.
const SLACK: Duration = Duration::from_secs(4);
/// A core that waited for the edge would wait until that is lost.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

struct World {
    keys: Keys,
    timers: Timers,
    core: Process,
    dying: Process,
    living: Process,
}

impl World {
    fn start() -> anyhow::Result<Self> {
        let (keys, timers) = (Keys::generate()?, Timers::SHORT);
        let core = core(&keys, &timers)?;
        // A core that has just started holds: for a ttl nobody is ended for silence.
        std::thread::sleep(timers.lease_ttl + timers.heartbeat);
        let dying = edge("dying", &core, &keys, &timers)?;
        let living = edge("living", &core, &keys, &timers)?;
        Ok(Self { keys, timers, core, dying, living })
    }

    async fn populate(&self, count: usize) -> anyhow::Result<JoinSet<()>> {
        let mut idle = JoinSet::new();
        for index in 0..count {
            let mut client = Client::connect(&self.dying.address("ws")).await?;
            let token = self.keys.token(&format!("u{index}"), ROOM, Action::Join)?;
            client.join(ROOM, &token, &session(index), 1).await?;
            idle.spawn(client.idle());
        }
        Ok(idle)
    }

    async fn observer(&self) -> anyhow::Result<Client> {
        let mut observer = Client::connect(&self.living.address("ws")).await?;
        observer.watch(ROOM, &self.keys.token("observer", ROOM, Action::Watch)?).await?;
        Ok(observer)
    }
}

fn session(index: usize) -> String {
    format!("session-of-user-{index:06}")
}

/// Reads until so many removals were seen; when each was seen, since `start`.
async fn removals(
    observer: &mut Client,
    count: usize,
    within: Duration,
) -> anyhow::Result<(Duration, Duration)> {
    let clock = Clock::system();
    let start = clock.now();
    let (mut first, mut last) = (None, Duration::ZERO);
    let all = async {
        while observer.removals.len() < count {
            let before = observer.removals.len();
            observer.next().await?;
            if observer.removals.len() > before {
                last = clock.now().since(start);
                first.get_or_insert(last);
            }
        }
        anyhow::Ok(())
    };
    let done = tokio::time::timeout(within, all).await;
    anyhow::ensure!(done.is_ok(), "only {} of {count} removals within {within:?}", observer.removals.len());
    done??;
    Ok((first.unwrap_or_default(), last))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_edge_loses_those_who_do_not_come_back() -> anyhow::Result<()> {
    let world = World::start()?;
    let _idle = world.populate(SESSIONS).await?;
    let mut observer = world.observer().await?;
    observer.until_shown(SESSIONS).await?;
    world.dying.signal("KILL")?;
    let mut back = JoinSet::new();
    for index in 0..RETURNING {
        let mut client = Client::connect(&world.living.address("ws")).await?;
        let token = world.keys.token(&format!("u{index}"), ROOM, Action::Join)?;
        let joined = client.join(ROOM, &token, &session(index), 2).await?;
        assert_eq!(joined["resumed"], true, "{joined}");
        back.spawn(client.idle());
    }
    let floor = world.timers.edge_lost + world.timers.grace;
    let (first, last) = removals(&mut observer, SESSIONS - RETURNING, floor + SLACK).await?;
    println!("edge killed: first departure after {first:?}, last after {last:?}, floor {floor:?}");
    // The clock of this test starts after the returning ones are back.
    assert!(last + SLACK > floor, "{last:?}");
    assert!(observer.removals.iter().all(|(_, reason)| reason == "edge_lost"), "{:?}", observer.removals[0]);
    let later = observer.during(world.timers.lease_ttl).await?;
    assert!(later.iter().all(|frame| frame["t"] != "delta"), "{later:?}");
    assert_eq!(observer.members.len(), RETURNING, "who came back was never gone");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_edge_keeps_everybody_for_a_whole_ttl() -> anyhow::Result<()> {
    let world = World::start()?;
    let _idle = world.populate(SESSIONS).await?;
    let mut observer = world.observer().await?;
    observer.until_shown(SESSIONS).await?;
    world.dying.signal("STOP")?;
    let Timers { heartbeat, lease_ttl, .. } = world.timers;
    let (first, last) = removals(&mut observer, SESSIONS, lease_ttl + SLACK).await?;
    println!("edge frozen: first departure after {first:?}, last after {last:?}, ttl {lease_ttl:?}");
    // A renewal is at most a jittered heartbeat and two batches old when the edge freezes.
    let oldest = heartbeat.mul_f64(1.2) + heartbeat / 5;
    assert!(first + oldest >= lease_ttl, "too early: {first:?}");
    assert!(
        observer.removals.iter().all(|(_, reason)| reason == "lease_expired"),
        "{:?}",
        observer.removals[0]
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_33_a_room_is_told_by_its_core_while_an_edge_stands_still() -> anyhow::Result<()> {
    let world = World::start()?;
    let _idle = world.populate(5).await?;
    let mut observer = world.observer().await?;
    observer.until_shown(5).await?;
    world.dying.signal("STOP")?;
    let mut rooms = PresenceServiceClient::new(world.core.channel().await?);
    let asked = v1::GetRoomRequest { room: ROOM.into(), ..v1::GetRoomRequest::default() };
    let told = tokio::time::timeout(ANSWERED_WITHIN, rooms.get_room(asked)).await??.into_inner();
    let users: Vec<String> = told.members.into_iter().map(|member| member.user).collect();
    assert_eq!(users, ["u0", "u1", "u2", "u3", "u4"], "their edge has not been silent for a ttl");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_edge_is_not_noticed() -> anyhow::Result<()> {
    let mut world = World::start()?;
    let mut leaving = Vec::new();
    for index in 0..5 {
        let mut client = Client::connect(&world.dying.address("ws")).await?;
        let token = world.keys.token(&format!("u{index}"), ROOM, Action::Join)?;
        client.join(ROOM, &token, &session(index), 1).await?;
        leaving.push(client);
    }
    let mut observer = world.observer().await?;
    world.dying.signal("TERM")?;
    let mut back = JoinSet::new();
    for (index, mut client) in leaving.into_iter().enumerate() {
        let hint = loop {
            let frame = client.next().await?;
            if frame["t"] == "reconnect" {
                break frame;
            }
        };
        assert_eq!(hint["reason"], "drain");
        let mut again = Client::connect(&world.living.address("ws")).await?;
        again.cursor = client.cursor.clone();
        let token = world.keys.token(&format!("u{index}"), ROOM, Action::Join)?;
        assert_eq!(again.join(ROOM, &token, &session(index), 2).await?["resumed"], true);
        back.spawn(again.idle());
        drop(client);
    }
    assert_eq!(world.dying.ended(Duration::from_secs(20)).await?, Some(0));
    let seen = observer.during(world.timers.lease_ttl).await?;
    assert!(seen.iter().all(|frame| frame["t"] != "delta"), "{seen:?}");
    assert_eq!(observer.members.len(), 5);
    Ok(())
}
