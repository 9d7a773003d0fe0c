//! Questions, page by page and core by core.

use std::time::Duration;

use presence_client::{ClientError, ClientSettings, Counted, EdgeDrain, RegionNow, RoomCount};
use presence_model::id::{EdgeName, Incarnation, SessionId, UserId};
use presence_model::reason::RemovalReason;
use presence_model::replica::Freshness;
use presence_model::time::StoreTime;
use presence_proto::{ServiceError, WireError, v1};

use crate::fake_core::{FakeCore, client, member, position, region, room, soon, with};

fn regions() -> Vec<v1::RegionView> {
    vec![v1::RegionView {
        region: "home".into(),
        position: Some(position(7).into()),
        freshness: Some(Freshness::Live.into()),
    }]
}

fn page(users: &[&str], next: &str) -> v1::GetRoomResponse {
    v1::GetRoomResponse {
        members: users.iter().map(|user| member(user).into()).collect(),
        next_page_token: next.into(),
        regions: regions(),
        count: 5,
    }
}

fn region_now() -> RegionNow {
    RegionNow { region: region(), position: Some(position(7)), freshness: Freshness::Live }
}

#[tokio::test]
async fn a_room_is_read_page_by_page() {
    let core = FakeCore::start();
    core.set(|book| {
        book.pages = vec![page(&["a", "b"], "1"), page(&["c", "d"], "2"), page(&["e"], "")];
    });
    let now = soon(client(&[&core]).get_room(&room("r1"))).await.unwrap();
    assert_eq!(now.members, ["a", "b", "c", "d", "e"].map(member));
    assert_eq!((now.count, now.regions), (5, vec![region_now()]));
}

#[tokio::test]
async fn pages_that_go_back_or_never_end_are_outside_the_contract() {
    let core = FakeCore::start();
    let client = client(&[&core]);
    core.set(|book| book.pages = vec![page(&["a", "b"], "1"), page(&["b", "c"], "")]);
    let field = "GetRoomResponse.members";
    let error = soon(client.get_room(&room("r1"))).await.unwrap_err();
    assert!(
        matches!(&error, ClientError::Contract(WireError::Rule { field: f, .. }) if *f == field),
        "{error}"
    );
    core.set(|book| book.pages = vec![page(&[], "0")]);
    assert!(matches!(soon(client.get_room(&room("r1"))).await, Err(ClientError::Contract(_))));
}

#[tokio::test]
async fn rooms_are_counted_and_listed() {
    let core = FakeCore::start();
    let entry = |room: &str, count| v1::RoomCount { room: room.into(), count };
    core.set(|book| {
        book.count = Some(v1::CountRoomResponse { count: 51_234, regions: regions() });
        book.lists = vec![
            v1::ListRoomsResponse {
                rooms: vec![entry("r1", 1), entry("r2", 2)],
                next_page_token: "1".into(),
            },
            v1::ListRoomsResponse { rooms: vec![entry("r3", 3)], next_page_token: String::new() },
        ];
    });
    let client = client(&[&core]);
    let counted = soon(client.count_room(&room("r1"))).await.unwrap();
    assert_eq!(counted, Counted { count: 51_234, regions: vec![region_now()] });
    let all: Vec<RoomCount> = soon(client.list_rooms("r", 100)).await.unwrap();
    assert_eq!(all.iter().map(|entry| entry.count).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(soon(client.list_rooms("r", 1)).await.unwrap(), [RoomCount { room: room("r1"), count: 1 }]);
    assert_eq!(soon(client.list_rooms("r", 0)).await.unwrap(), []);
}

#[tokio::test]
async fn an_explanation_is_read_whole() {
    let core = FakeCore::start();
    let session = "0123456789abcdef";
    core.set(|book| {
        book.explained = Some(v1::ExplainResponse {
            member: Some(member("u1").into()),
            sessions: vec![v1::SessionDetail {
                session: session.into(),
                generation: 3,
                edge: "edge-1".into(),
                region: "home".into(),
                heartbeat_age_ms: 1_500,
                ..v1::SessionDetail::default()
            }],
            ended: vec![v1::EndedSession {
                session: session.into(),
                generation: 2,
                reason: v1::RemovalReason::EdgeLost.into(),
                ended_ms: 900,
                silent_for_ms: 5_000,
            }],
            region: "home".into(),
            position: Some(position(7).into()),
            freshness: Some(Freshness::Live.into()),
            store_time_ms: 1_000,
            story: "u1 is here.".into(),
            class: "quick".into(),
        });
    });
    let user = UserId::new("u1").unwrap();
    let told = soon(client(&[&core]).explain(&room("r1"), &user)).await.unwrap();
    assert_eq!((told.member, told.now), (Some(member("u1")), StoreTime(1_000)));
    assert_eq!((told.story.as_str(), told.class.as_str()), ("u1 is here.", "quick"));
    assert_eq!(told.sessions[0].session, SessionId::new(session).unwrap());
    assert_eq!(
        (told.sessions[0].deadline, told.sessions[0].heartbeat_age),
        (None, Duration::from_millis(1_500))
    );
    assert_eq!((told.ended[0].reason, told.ended[0].ended), (RemovalReason::EdgeLost, StoreTime(900)));
}

#[tokio::test]
async fn a_dead_or_leaving_core_costs_nothing_while_another_answers() {
    let (mut dead, mut leaving, mut good) = (FakeCore::start(), FakeCore::start(), FakeCore::start());
    dead.die().await;
    leaving.set(|book| book.refusal = Some(ServiceError::Draining.into()));
    good.set(|book| book.count = Some(v1::CountRoomResponse { count: 4, regions: regions() }));
    let client = client(&[&dead, &leaving, &good]);
    assert_eq!(soon(client.count_room(&room("r1"))).await.unwrap().count, 4);
    good.die().await;
    leaving.die().await;
    let error = soon(client.count_room(&room("r1"))).await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable(_)), "{error}");
    assert!(error.retry_after().is_some());
}

#[tokio::test]
async fn what_a_core_refuses_is_passed_on() {
    let (core, other) = (FakeCore::start(), FakeCore::start());
    let client = client(&[&core, &other]);
    let retry_after = Duration::from_millis(700);
    core.set(|book| book.refusal = Some(ServiceError::Unavailable { retry_after }.into()));
    let error = soon(client.count_room(&room("r1"))).await.unwrap_err();
    assert_eq!(
        (error.retry_after(), &error),
        (Some(retry_after), &ClientError::Refused(ServiceError::Unavailable { retry_after }),)
    );
    core.set(|book| book.refusal = Some(ServiceError::Forbidden.into()));
    assert_eq!(soon(client.count_room(&room("r1"))).await.unwrap_err().retry_after(), None);
}

#[tokio::test]
async fn a_mute_core_is_waited_for_so_long() {
    let core = FakeCore::start();
    core.set(|book| book.is_mute = true);
    let answer_within = Duration::from_millis(40);
    let client = with(ClientSettings { answer_within, ..ClientSettings::new(vec![core.url.clone()], 0) });
    let error = soon(client.count_room(&room("r1"))).await.unwrap_err();
    assert_eq!(error, ClientError::TimedOut(answer_within));
}

#[tokio::test]
async fn addresses_are_checked_at_once() {
    use presence_client::{Client, Deps};
    use presence_runtime::{clock::Clock, network::Network};
    for urls in [vec![], vec!["127.0.0.1:4700".to_owned()]] {
        let deps = Deps { network: Network::tcp(), clock: Clock::system() };
        let made = Client::new(ClientSettings::new(urls, 7), deps);
        assert!(matches!(made, Err(ClientError::Address(_))));
    }
}

#[tokio::test]
async fn questions_can_be_asked_from_tasks() {
    let core = FakeCore::start();
    core.set(|book| book.count = Some(v1::CountRoomResponse { count: 4, regions: regions() }));
    let client = client(&[&core]);
    let task = tokio::spawn(async move { client.count_room(&room("r1")).await });
    assert_eq!(soon(task).await.unwrap().unwrap().count, 4);
}

#[tokio::test]
async fn an_edge_is_sent_away_and_one_that_has_gone_is_told_from_other_faults() {
    let core = FakeCore::start();
    let name = EdgeName::new("edge-1").unwrap();
    let client = client(&[&core]);
    let runs = soon(client.drain_edge(&name, None)).await.unwrap();
    assert_eq!(runs, [EdgeDrain { edge: Incarnation(7), sessions: 3 }]);
    let run = Some(Incarnation(8));
    assert_eq!(soon(client.drain_edge(&name, run)).await.unwrap()[0].edge, Incarnation(8));
    core.set(|book| book.refusal = Some(ServiceError::UnknownEdge.into()));
    let gone = soon(client.drain_edge(&name, run)).await.unwrap_err();
    assert!(gone.is_unknown_edge() && gone.retry_after().is_none());
    core.set(|book| book.refusal = Some(ServiceError::Internal.into()));
    assert!(!soon(client.drain_edge(&name, run)).await.unwrap_err().is_unknown_edge());
}
