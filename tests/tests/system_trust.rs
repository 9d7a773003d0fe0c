//! Who may link, and for whom an edge may speak: real processes and certificates.

use std::time::Duration;

use anyhow::Context as _;
use presence_model::claim::Action;
use presence_model::id::EdgeName;
use presence_model::lease::{EdgeMark, LeaseId};
use presence_proto::status::ServiceError;
use presence_proto::v1;
use presence_proto::v1::link_request::Message as Up;
use presence_proto::v1::link_response::Message as Down;
use presence_runtime::clock::Clock;
use presence_runtime::tokens::Scope;
use presence_tests::guarded::{EDGES, Guarded, bearing};
use presence_tests::procs::{Keys, Peer, Timers};
use tonic::transport::Channel;
use tonic::{Code, Status};

const TOKEN_TTL: Duration = Duration::from_secs(60);

fn bears(lease: u64, edge: &str) -> bool {
    EdgeName::new(edge).is_ok_and(|name| LeaseId(lease).bears(EdgeMark::of(&name)))
}

fn refusal_of(answer: &Down) -> Option<v1::RefusalCode> {
    let Down::Done(done) = answer else { return None };
    done.refused.as_ref().map(v1::Refused::code)
}

async fn members(channel: Channel, keys: &Keys, room: &str) -> anyhow::Result<Vec<String>> {
    let token = keys.service_token(&[Scope::Read], &[""], TOKEN_TTL)?;
    let asked = v1::GetRoomRequest { room: room.into(), ..v1::GetRoomRequest::default() };
    let mut rooms = v1::presence_service_client::PresenceServiceClient::new(channel);
    let answer = rooms.get_room(bearing(asked, &token)?).await?.into_inner();
    Ok(answer.members.into_iter().map(|member| member.user).collect())
}

#[tokio::test]
async fn a_certificate_links_as_its_own_edge_for_its_own_region() -> anyhow::Result<()> {
    let scene = Guarded::start()?;
    for (certificate, edge, region) in [
        ("edge-1.test", "edge-1", "us-east"),
        ("edge-1.test", "edge-2", "eu-west"),
        ("edge-2.test", "edge-1", "eu-west"),
        ("team-a.test", "edge-1", "eu-west"),
        ("nobody.test", "edge-1", "eu-west"),
    ] {
        let Err(refused) = scene.link(certificate, edge, region).await? else {
            panic!("{certificate} links as {edge} of {region}");
        };
        assert_eq!(refused.code(), Code::PermissionDenied, "{certificate} {edge} {region}: {refused:?}");
        assert_eq!(ServiceError::of(&refused), Some(ServiceError::Forbidden));
    }
    let Err(refused) = Peer::link(scene.channel(None).await?, "edge-1", "eu-west").await? else {
        panic!("nobody links without a certificate");
    };
    assert_eq!(ServiceError::of(&refused), Some(ServiceError::Unauthorized));
    for reason in ["region", "scope", "certificate", "credentials"] {
        assert_eq!(scene.refused(reason).await?, 1.0, "{reason}");
    }
    assert_eq!(scene.refused("edge").await?, 2.0);
    let log = std::fs::read_to_string(&scene.log)?;
    let line = log.lines().find(|line| line.contains("reason=\"region\""));
    assert!(line.is_some_and(|line| line.contains("edge-1.test") && line.contains("us-east")), "{log}");
    assert!(scene.link("edge-1.test", "edge-1", "eu-west").await?.is_ok());
    assert!(scene.link("edge-2.test", "edge-2b", "eu-west").await?.is_ok());
    Ok(())
}

#[tokio::test]
async fn what_an_edge_says_of_the_sessions_of_another_is_refused_one_by_one() -> anyhow::Result<()> {
    let scene = Guarded::start()?;
    let mut victim = scene.link("edge-1.test", "edge-1", "eu-west").await??;
    let ann = victim.granted(&scene.keys, "lobby", "ann").await?;
    // The mark of one lease in 4,096 is mistaken.
    let names = (0..).map(|number| format!("edge-2{number}"));
    let name = names.into_iter().find(|name| !bears(ann, name)).context("a name")?;
    let mut evil = scene.link("edge-2.test", &name, "eu-west").await??;
    let eve = evil.granted(&scene.keys, "lobby", "eve").await?;
    let eva = evil.granted(&scene.keys, "lobby", "eva").await?;

    assert_eq!(evil.renew(&[ann, eve, eva]).await?, (Vec::new(), vec![ann]));
    let (done, foreign) = evil
        .ask(|request| {
            let leases = vec![ann, eva];
            Up::Release(v1::Release { request, leases, ..v1::Release::default() })
        })
        .await?;
    assert_eq!((refusal_of(&done), foreign), (None, vec![ann]));
    let (room, user) = ("lobby".to_owned(), "ann".to_owned());
    let (done, _) = evil
        .ask(|request| {
            let (room, user) = (room.clone(), user.clone());
            Up::Leave(v1::Leave { request, lease: ann, room, user, reason: 0 })
        })
        .await?;
    assert_eq!(refusal_of(&done), Some(v1::RefusalCode::Forbidden));
    let (done, _) = evil
        .ask(|request| {
            let status = Some(v1::Status::Busy.into());
            Up::Update(v1::Update { request, lease: ann, room, user, status, ..v1::Update::default() })
        })
        .await?;
    assert_eq!(refusal_of(&done), Some(v1::RefusalCode::Forbidden));
    // Nor does it join for somebody whose token it does not have: that of another user makes another member.
    let forged = Keys::generate()?.token("ann", "lobby", Action::Join)?;
    let v1::join_result::Outcome::Refused(refused) = evil.join(forged, "lobby", "ann").await? else {
        panic!("a forged token joins");
    };
    assert_eq!(refused.code(), v1::RefusalCode::Unauthorized);
    assert_eq!(scene.refused("foreign_lease").await?, 4.0);

    // Within the grace of the one that was released, and then beyond it; the victim says that ann is there.
    let channel = scene.channel(None).await?;
    let clock = Clock::system();
    let end = clock.now() + Timers::SHORT.lease_ttl + Timers::SHORT.grace;
    while clock.now() < end {
        assert_eq!(victim.renew(&[ann]).await?, (Vec::new(), Vec::new()));
        assert_eq!(evil.renew(&[eve]).await?, (Vec::new(), Vec::new()));
        tokio::time::sleep(Timers::SHORT.heartbeat / 2).await;
    }
    assert_eq!(members(channel.clone(), &scene.keys, "lobby").await?, ["ann", "eve"]);
    // And once it does not, nobody else keeps her there.
    let end = clock.now() + Timers::SHORT.lease_ttl + Duration::from_secs(2);
    while clock.now() < end {
        assert_eq!(evil.renew(&[eve, ann]).await?, (Vec::new(), vec![ann]));
        tokio::time::sleep(Timers::SHORT.heartbeat / 2).await;
    }
    assert_eq!(members(channel, &scene.keys, "lobby").await?, ["eve"]);
    Ok(())
}

#[tokio::test]
async fn an_edge_that_the_table_drops_is_cut_off_without_a_restart() -> anyhow::Result<()> {
    let scene = Guarded::start()?;
    let mut dropped = scene.link("edge-1.test", "edge-1", "eu-west").await??;
    let mut kept = scene.link("edge-2.test", "edge-2", "eu-west").await??;
    scene.authority.peers(&EDGES[1..], &[])?;
    let ended = dropped.hear(|_| None::<()>).await.unwrap_err();
    let status = ended.downcast::<Status>()?;
    assert_eq!(ServiceError::of(&status), Some(ServiceError::Forbidden), "{status:?}");
    assert!(scene.link("edge-1.test", "edge-1", "eu-west").await?.is_err());
    kept.granted(&scene.keys, "lobby", "eve").await?;
    Ok(())
}
