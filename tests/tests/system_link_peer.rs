//! What real edges will not reorder, said by a hand-made link: late releases, late joins, late renewals.

use std::time::Duration;

use presence_model::claim::Action;
use presence_proto::status::ServiceError;
use presence_proto::v1;
use presence_proto::v1::link_request::Message as Up;
use presence_proto::v1::link_response::Message as Down;
use presence_tests::procs::{Keys, Process, Timers, core};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::Channel;

const ROOM: &str = "lobby";
const USER: &str = "anna";
const SESSION: &str = "session-of-anna-1";
const WITHIN: Duration = Duration::from_secs(10);

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
        let mut peer = Peer::start().await?;
        peer.say(breach).await?;
        let end = peer.end().await?;
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
    let mut peer = Peer::start().await?;
    for beyond in [HIGHEST + 1, u64::MAX] {
        assert_eq!(peer.refused(beyond).await?.code(), v1::RefusalCode::BadRequest);
    }
    peer.granted(HIGHEST - 1).await?;
    peer.granted(HIGHEST).await?;
    let last = peer.refused(HIGHEST - 1).await?;
    assert_eq!((last.code(), last.stored_generation), (v1::RefusalCode::StaleGeneration, HIGHEST));
    Ok(())
}

struct Peer {
    up: mpsc::Sender<v1::LinkRequest>,
    down: tonic::Streaming<v1::LinkResponse>,
    rooms: v1::presence_service_client::PresenceServiceClient<Channel>,
    operator: v1::admin_service_client::AdminServiceClient<Channel>,
    keys: Keys,
    requests: u64,
    _core: Process,
}

impl Peer {
    async fn start() -> anyhow::Result<Self> {
        let keys = Keys::generate()?;
        let core = core(&keys, &Timers::SHORT)?;
        let channel = Channel::from_shared(format!("http://{}", core.address("grpc")))?.connect().await?;
        let (up, said) = mpsc::channel(64);
        let hello = v1::Hello {
            edge: "by-hand".into(),
            incarnation: 7,
            link_number: 1,
            region: "local".into(),
            release: "test".into(),
        };
        up.send(v1::LinkRequest { message: Some(Up::Hello(hello)) }).await?;
        let mut links = v1::edge_service_client::EdgeServiceClient::new(channel.clone());
        let down = links.link(ReceiverStream::new(said)).await?.into_inner();
        let beats = up.clone();
        tokio::spawn(async move {
            for sequence in 1.. {
                let beat = v1::LinkRequest { message: Some(Up::Beat(v1::EdgeBeat { sequence })) };
                if beats.send(beat).await.is_err() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let rooms = v1::presence_service_client::PresenceServiceClient::new(channel.clone());
        let operator = v1::admin_service_client::AdminServiceClient::new(channel);
        Ok(Self { up, down, rooms, operator, keys, requests: 0, _core: core })
    }

    /// Why the link ends.
    async fn end(&mut self) -> anyhow::Result<tonic::Status> {
        let ended = async {
            loop {
                match self.down.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => anyhow::bail!("it ended without a word"),
                    Err(status) => return Ok(status),
                }
            }
        };
        tokio::time::timeout(WITHIN, ended).await?
    }

    async fn say(&mut self, message: Up) -> anyhow::Result<()> {
        Ok(self.up.send(v1::LinkRequest { message: Some(message) }).await?)
    }

    async fn hear<T>(&mut self, pick: impl Fn(Down) -> Option<T>) -> anyhow::Result<T> {
        let heard = async {
            while let Some(response) = self.down.message().await? {
                if let Some(picked) = response.message.and_then(&pick) {
                    return Ok(picked);
                }
            }
            anyhow::bail!("the link ended")
        };
        tokio::time::timeout(WITHIN, heard).await?
    }

    async fn join(&mut self, generation: u64) -> anyhow::Result<v1::join_result::Outcome> {
        self.requests += 1;
        let request = self.requests;
        let join = v1::Join {
            request,
            room: ROOM.into(),
            token: self.keys.token(USER, ROOM, Action::Join)?,
            session: SESSION.into(),
            generation: Some(generation),
            connection: generation.wrapping_add(100),
            ..v1::Join::default()
        };
        self.say(Up::Join(join)).await?;
        self.hear(|down| {
            let Down::Join(result) = down else { return None };
            result.outcome.filter(|_| result.request == request)
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
        self.requests += 1;
        let request = self.requests;
        self.say(message(request)).await?;
        self.hear(|down| {
            let Down::Done(done) = down else { return None };
            (done.request == request).then_some(())
        })
        .await?;
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
    let mut peer = Peer::start().await?;
    let old = peer.granted(1).await?;
    let new = peer.granted(2).await?;
    assert_ne!(old, new);
    peer.done(|request| Up::Release(v1::Release { request, leases: vec![old], ..v1::Release::default() }))
        .await?;
    tokio::time::sleep(Timers::SHORT.grace * 2).await;
    assert_eq!(peer.room().await?.0, [USER]);
    Ok(())
}

#[tokio::test]
async fn scenario_7_a_join_delayed_behind_a_newer_one_is_refused() -> anyhow::Result<()> {
    let mut peer = Peer::start().await?;
    peer.granted(2).await?;
    let (users, revision) = peer.room().await?;
    let refused = peer.refused(1).await?;
    assert_eq!(refused.code(), v1::RefusalCode::StaleGeneration);
    assert_eq!(refused.stored_generation, 2);
    assert_eq!(peer.room().await?, (users, revision));
    Ok(())
}

#[tokio::test]
async fn scenario_9_a_renewal_batch_delivered_after_expiry_revives_nobody() -> anyhow::Result<()> {
    let mut peer = Peer::start().await?;
    let lease = peer.granted(1).await?;
    tokio::time::sleep(Timers::SHORT.lease_ttl + Duration::from_secs(2)).await;
    let (users, revision) = peer.room().await?;
    assert!(users.is_empty(), "{users:?}");
    peer.say(Up::Renew(v1::Renew { batch: 1, leases: vec![lease] })).await?;
    let unknown = peer
        .hear(|down| {
            let Down::Renew(result) = down else { return None };
            (result.batch == 1).then_some(result.unknown)
        })
        .await?;
    assert_eq!(unknown, [lease]);
    assert_eq!(peer.room().await?, (Vec::new(), revision), "the revision does not move");
    Ok(())
}

#[tokio::test]
async fn scenario_36_who_was_evicted_is_brought_back_by_no_join_of_that_session() -> anyhow::Result<()> {
    let mut peer = Peer::start().await?;
    let lease = peer.granted(1).await?;
    assert_eq!(peer.evict(USER).await?, 1);
    let ended = peer
        .hear(|down| {
            let Down::EndLease(end) = down else { return None };
            (end.lease == lease).then_some(end.reason())
        })
        .await?;
    assert_eq!(ended, v1::RemovalReason::Evicted);
    assert!(peer.room().await?.0.is_empty());
    for generation in [1, 2, 3] {
        let refused = peer.refused(generation).await?;
        assert_eq!(refused.code(), v1::RefusalCode::HasEnded, "{refused:?}");
        assert_eq!(refused.ended_reason(), v1::RemovalReason::Evicted);
    }
    assert_eq!(peer.evict(USER).await?, 0, "nobody is left");
    tokio::time::sleep(Timers::SHORT.lease_ttl * 2 + Duration::from_secs(1)).await;
    peer.granted(4).await?;
    assert_eq!(peer.room().await?.0, [USER], "not for ever");
    let refused = peer.evict("").await.expect_err("nobody is called that");
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    Ok(())
}

#[tokio::test]
async fn scenario_37_a_join_of_before_a_goodbye_brings_nobody_back() -> anyhow::Result<()> {
    let mut peer = Peer::start().await?;
    let lease = peer.granted(2).await?;
    peer.done(|request| Up::Leave(v1::Leave { request, lease, room: ROOM.into(), user: USER.into() }))
        .await?;
    assert_eq!(peer.refused(1).await?.code(), v1::RefusalCode::StaleGeneration);
    assert!(peer.room().await?.0.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_link_without_hello_first_is_told_what_is_missing() -> anyhow::Result<()> {
    let keys = Keys::generate()?;
    let core = core(&keys, &Timers::SHORT)?;
    let channel = Channel::from_shared(format!("http://{}", core.address("grpc")))?.connect().await?;
    let beat = v1::LinkRequest { message: Some(Up::Beat(v1::EdgeBeat { sequence: 1 })) };
    let mut links = v1::edge_service_client::EdgeServiceClient::new(channel);
    let refused = links.link(tokio_stream::iter([beat])).await.expect_err("refused");
    assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
    Ok(())
}
