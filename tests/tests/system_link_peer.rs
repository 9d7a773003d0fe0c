//! What real edges will not reorder, said by a hand-made link: late releases, late joins, late renewals.

use std::time::Duration;

use presence_model::claim::Action;
use presence_proto::status::ServiceError;
use presence_proto::v1;
use presence_proto::v1::link_request::Message as Up;
use presence_proto::v1::link_response::Message as Down;
use presence_tests::procs::{CoreOptions, Keys, Peer, Process, Timers, core, core_with};
use tokio::time::Instant;
use tonic::Code;
use tonic::transport::Channel;

const ROOM: &str = "lobby";
const USER: &str = "anna";
const SESSION: &str = "session-of-anna-1";
/// Links one after the other: more than are told at once.
const LINKS: u64 = 1_000;

/// An edge that breaks the contract is told what is wrong, and which rule it broke.
#[tokio::test]
async fn a_breach_ends_the_link_with_its_reason() -> anyhow::Result<()> {
    let hello = v1::Hello { edge: "again".into(), region: "local".into(), ..v1::Hello::default() };
    let unanswered = v1::UnansweredJoin {
        room: ROOM.into(),
        user: USER.into(),
        session: SESSION.into(),
        generation: Some(1 << 53),
        connection: 1,
        request: 1,
    };
    let release = |release: v1::Release| Up::Release(release);
    let breaches = [
        (Up::Hello(hello), "LinkRequest.hello"),
        (Up::Renew(v1::Renew { batch: 1, leases: vec![0; 16_385] }), "Renew.leases"),
        (Up::Renew(v1::Renew { batch: 1, leases: vec![u64::MAX] }), "Renew.leases"),
        (Up::Leave(v1::Leave { room: "x".repeat(256), ..v1::Leave::default() }), "Leave.room"),
        (Up::Join(v1::Join { room: ROOM.into(), ..v1::Join::default() }), "Join.token"),
        (release(v1::Release { reason: 99, ..v1::Release::default() }), "Release.reason"),
        (
            release(v1::Release { unanswered: vec![unanswered], ..v1::Release::default() }),
            "UnansweredJoin.generation",
        ),
    ];
    for (breach, field) in breaches {
        let mut stage = Stage::start().await?;
        stage.peer.say(breach).await?;
        let end = stage.peer.end().await?;
        let Some(ServiceError::BadRequest(what)) = ServiceError::of(&end) else { panic!("{field}: {end:?}") };
        assert_eq!(end.code(), Code::InvalidArgument);
        assert!(what.starts_with(field), "{field}: {what}");
    }
    Ok(())
}

/// What only one client got wrong is refused to that client alone.
#[tokio::test]
async fn a_generation_beyond_the_highest_is_refused_and_the_link_goes_on() -> anyhow::Result<()> {
    const HIGHEST: u64 = (1 << 53) - 1;
    let mut stage = Stage::start().await?;
    for beyond in [HIGHEST + 1, u64::MAX] {
        assert_eq!(stage.refused(beyond).await?.code(), v1::RefusalCode::BadRequest);
    }
    stage.granted(HIGHEST - 1).await?;
    stage.granted(HIGHEST).await?;
    let last = stage.refused(HIGHEST - 1).await?;
    assert_eq!((last.code(), last.stored_generation), (v1::RefusalCode::StaleGeneration, HIGHEST));
    Ok(())
}

struct Stage {
    peer: Peer,
    rooms: v1::presence_service_client::PresenceServiceClient<Channel>,
    operator: v1::admin_service_client::AdminServiceClient<Channel>,
    keys: Keys,
    core: Process,
}

impl Stage {
    async fn start() -> anyhow::Result<Self> {
        let keys = Keys::generate()?;
        let core = core(&keys, &Timers::SHORT)?;
        let channel = core.channel().await?;
        let peer = Peer::of(channel.clone()).await?;
        let rooms = v1::presence_service_client::PresenceServiceClient::new(channel.clone());
        let operator = v1::admin_service_client::AdminServiceClient::new(channel);
        Ok(Self { peer, rooms, operator, keys, core })
    }

    async fn join(&mut self, generation: u64) -> anyhow::Result<v1::join_result::Outcome> {
        let token = self.keys.token(USER, ROOM, Action::Join)?;
        self.peer
            .ask_join(|request| v1::Join {
                request,
                room: ROOM.into(),
                token,
                session: SESSION.into(),
                generation: Some(generation),
                connection: generation.wrapping_add(100),
                ..v1::Join::default()
            })
            .await
    }

    async fn granted(&mut self, generation: u64) -> anyhow::Result<u64> {
        match self.join(generation).await? {
            v1::join_result::Outcome::Granted(granted) => Ok(granted.lease),
            v1::join_result::Outcome::Refused(refused) => anyhow::bail!("{refused:?}"),
        }
    }

    async fn refused(&mut self, generation: u64) -> anyhow::Result<v1::Refused> {
        match self.join(generation).await? {
            v1::join_result::Outcome::Granted(granted) => anyhow::bail!("{granted:?}"),
            v1::join_result::Outcome::Refused(refused) => Ok(refused),
        }
    }

    async fn done(&mut self, message: impl FnOnce(u64) -> Up) -> anyhow::Result<()> {
        let (answer, _) = self.peer.ask(message).await?;
        anyhow::ensure!(matches!(answer, Down::Done(_)), "{answer:?}");
        Ok(())
    }

    /// Puts a user out of the room; how many sessions went.
    async fn evict(&mut self, user: &str) -> Result<u32, tonic::Status> {
        let asked = v1::EvictRequest { room: ROOM.into(), user: user.into() };
        Ok(self.operator.evict(asked).await?.into_inner().sessions)
    }

    /// Users in the room, and the roster's revision.
    async fn room(&mut self) -> anyhow::Result<(Vec<String>, u64)> {
        let asked = v1::GetRoomRequest { room: ROOM.into(), ..v1::GetRoomRequest::default() };
        let room = self.rooms.get_room(asked).await?.into_inner();
        let position = room.regions[0].position.unwrap_or_default();
        Ok((room.members.into_iter().map(|member| member.user).collect(), position.revision))
    }
}

#[tokio::test]
async fn scenario_6_a_release_of_the_old_connection_after_the_new_join_is_ignored() -> anyhow::Result<()> {
    let mut stage = Stage::start().await?;
    let old = stage.granted(1).await?;
    let new = stage.granted(2).await?;
    assert_ne!(old, new);
    stage
        .done(|request| Up::Release(v1::Release { request, leases: vec![old], ..v1::Release::default() }))
        .await?;
    tokio::time::sleep(Timers::SHORT.grace * 2).await;
    assert_eq!(stage.room().await?.0, [USER]);
    Ok(())
}

#[tokio::test]
async fn scenario_7_a_join_delayed_behind_a_newer_one_is_refused() -> anyhow::Result<()> {
    let mut stage = Stage::start().await?;
    stage.granted(2).await?;
    let (users, revision) = stage.room().await?;
    let refused = stage.refused(1).await?;
    assert_eq!(refused.code(), v1::RefusalCode::StaleGeneration);
    assert_eq!(refused.stored_generation, 2);
    assert_eq!(stage.room().await?, (users, revision));
    Ok(())
}

#[tokio::test]
async fn scenario_9_a_renewal_batch_delivered_after_expiry_revives_nobody() -> anyhow::Result<()> {
    let mut stage = Stage::start().await?;
    let lease = stage.granted(1).await?;
    tokio::time::sleep(Timers::SHORT.lease_ttl + Duration::from_secs(2)).await;
    let (users, revision) = stage.room().await?;
    assert!(users.is_empty(), "{users:?}");
    stage.peer.say(Up::Renew(v1::Renew { batch: 1, leases: vec![lease] })).await?;
    let unknown = stage
        .peer
        .hear(|down| {
            let Down::Renew(result) = down else { return None };
            (result.batch == 1).then_some(result.unknown)
        })
        .await?;
    assert_eq!(unknown, [lease]);
    assert_eq!(stage.room().await?, (Vec::new(), revision), "the revision does not move");
    Ok(())
}

#[tokio::test]
async fn scenario_36_who_was_evicted_is_brought_back_by_no_join_of_that_session() -> anyhow::Result<()> {
    let mut stage = Stage::start().await?;
    let lease = stage.granted(1).await?;
    assert_eq!(stage.evict(USER).await?, 1);
    let ended = stage
        .peer
        .hear(|down| {
            let Down::EndLease(end) = down else { return None };
            (end.lease == lease).then_some(end.reason())
        })
        .await?;
    assert_eq!(ended, v1::RemovalReason::Evicted);
    assert!(stage.room().await?.0.is_empty());
    for generation in [1, 2, 3] {
        let refused = stage.refused(generation).await?;
        assert_eq!(refused.code(), v1::RefusalCode::HasEnded, "{refused:?}");
        assert_eq!(refused.ended_reason(), v1::RemovalReason::Evicted);
    }
    assert_eq!(stage.evict(USER).await?, 0, "nobody is left");
    tokio::time::sleep(Timers::SHORT.lease_ttl * 2 + Duration::from_secs(1)).await;
    stage.granted(4).await?;
    assert_eq!(stage.room().await?.0, [USER], "not for ever");
    let refused = stage.evict("").await.expect_err("nobody is called that");
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    Ok(())
}

#[tokio::test]
async fn scenario_37_a_join_of_before_a_goodbye_brings_nobody_back() -> anyhow::Result<()> {
    let mut stage = Stage::start().await?;
    let lease = stage.granted(2).await?;
    stage
        .done(|request| {
            Up::Leave(v1::Leave { request, lease, room: ROOM.into(), user: USER.into(), reason: 0 })
        })
        .await?;
    assert_eq!(stage.refused(1).await?.code(), v1::RefusalCode::StaleGeneration);
    assert!(stage.room().await?.0.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_link_without_hello_first_is_told_what_is_missing() -> anyhow::Result<()> {
    let keys = Keys::generate()?;
    let core = core(&keys, &Timers::SHORT)?;
    let channel = core.channel().await?;
    let beat = v1::LinkRequest { message: Some(Up::Beat(v1::EdgeBeat { sequence: 1 })) };
    let mut links = v1::edge_service_client::EdgeServiceClient::new(channel);
    let refused = links.link(tokio_stream::iter([beat])).await.expect_err("refused");
    assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
    Ok(())
}

#[tokio::test]
async fn whoever_links_again_and_again_does_not_write_the_log() -> anyhow::Result<()> {
    let (keys, folder) = (Keys::generate()?, tempfile::tempdir()?);
    let path = folder.path().join("core.log");
    let options =
        CoreOptions { log: Some("info".into()), log_file: Some(path.clone()), ..CoreOptions::default() };
    let core = core_with(&options, &keys, &Timers::SHORT)?;
    let mut links = v1::edge_service_client::EdgeServiceClient::new(core.channel().await?);
    let begun = Instant::now();
    for link_number in 1..=LINKS {
        let region = if link_number % 2 == 0 { "local" } else { "elsewhere" }.to_owned();
        let hello =
            v1::Hello { edge: "again".into(), incarnation: 7, link_number, region, ..v1::Hello::default() };
        // What this run of an edge said twice breaks the contract.
        let hellos = [0, 0].map(|_| v1::LinkRequest { message: Some(Up::Hello(hello.clone())) });
        let mut down = links.link(tokio_stream::iter(hellos)).await?.into_inner();
        while let Ok(Some(_)) = down.message().await {}
    }
    let seconds = usize::try_from(begun.elapsed().as_secs())?;
    let log = std::fs::read_to_string(&path)?;
    for said in ["an edge links", "an edge of another region", "an edge broke the contract", "a link ended"] {
        let lines = log.lines().filter(|line| line.contains(said)).count();
        let most = 256 + 10 * (seconds + 1);
        assert!(lines > 0 && lines <= most, "{lines} lines of {said:?} in {seconds} s");
    }
    Ok(())
}

/// What is no message of a method is told like any other mistake.
#[tokio::test]
async fn a_request_that_cannot_be_read_is_told_what_is_wrong_with_its_reason() -> anyhow::Result<()> {
    let stage = Stage::start().await?;
    let mut methods = tonic::client::Grpc::new(stage.core.channel().await?);
    for method in ["PresenceService/GetRoom", "PresenceService/CountRoom", "AdminService/Explain"] {
        methods.ready().await?;
        let path = format!("/presence.v1.{method}").parse()?;
        // A number where a text belongs.
        let codec = tonic_prost::ProstCodec::<v1::EdgeBeat, v1::GetRoomResponse>::default();
        let request = tonic::Request::new(v1::EdgeBeat { sequence: 5 });
        let status = methods.unary(request, path, codec).await.expect_err("refused");
        let Some(ServiceError::BadRequest(what)) = ServiceError::of(&status) else { panic!("{status:?}") };
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(what.contains("cannot be read"), "{what}");
    }
    Ok(())
}
