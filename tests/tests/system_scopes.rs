//! What services and operators may read and do: by certificate, and by tokens with scopes and prefixes of rooms.

use std::time::Duration;

use anyhow::Context as _;
use presence_proto::status::ServiceError;
use presence_proto::v1;
use presence_proto::v1::admin_service_client::AdminServiceClient;
use presence_proto::v1::presence_service_client::PresenceServiceClient;
use presence_proto::v1::watch_request::Message as WatchUp;
use presence_proto::v1::watch_response::Event;
use presence_runtime::clock::Clock;
use presence_runtime::tokens::Scope;
use presence_tests::guarded::{Guarded, bearing};
use presence_tests::procs::binary_path;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

const WITHIN: Duration = Duration::from_secs(20);
const TTL: Duration = Duration::from_secs(60);
/// Services that tell of people, or decide about them.
const SERVICES: [&str; 2] = ["PresenceService", "AdminService"];

/// Whoever asks: a connection, and a token if it has one.
struct Asker<'a> {
    channel: Channel,
    token: Option<&'a str>,
}

impl Asker<'_> {
    fn request<T>(&self, message: T) -> anyhow::Result<Request<T>> {
        match self.token {
            Some(token) => bearing(message, token),
            None => Ok(Request::new(message)),
        }
    }

    fn rooms(&self) -> PresenceServiceClient<Channel> {
        PresenceServiceClient::new(self.channel.clone())
    }

    fn operator(&self) -> AdminServiceClient<Channel> {
        AdminServiceClient::new(self.channel.clone())
    }

    /// What one method answers about one room. One that is not here is not tried by anybody.
    async fn ask(&self, method: &str, room: &str) -> anyhow::Result<Result<String, Status>> {
        let (text, user) = (room.to_owned(), "ann".to_owned());
        let told = match method {
            "GetRoom" => {
                let asked = v1::GetRoomRequest { room: text, ..v1::GetRoomRequest::default() };
                told(self.rooms().get_room(self.request(asked)?).await)
            }
            "CountRoom" => {
                told(self.rooms().count_room(self.request(v1::CountRoomRequest { room: text })?).await)
            }
            "ListRooms" => {
                let asked = v1::ListRoomsRequest { prefix: text, ..v1::ListRoomsRequest::default() };
                told(self.rooms().list_rooms(self.request(asked)?).await)
            }
            "Watch" => self.first_of_watch(room).await?,
            "Explain" => {
                let asked = v1::ExplainRequest { room: text, user };
                told(self.operator().explain(self.request(asked)?).await)
            }
            "Evict" => told(
                self.operator()
                    .evict(self.request(v1::EvictRequest { room: text, user: "bob".into() })?)
                    .await,
            ),
            // About everybody, whatever the room.
            "DrainEdge" => {
                let asked = v1::DrainEdgeRequest { edge: "edge-9".into(), incarnation: None };
                told(self.operator().drain_edge(self.request(asked)?).await)
            }
            "Revoke" => {
                let what = v1::revocation::What::Subject(user);
                let what = Some(v1::Revocation { what: Some(what) });
                let asked = v1::RevokeRequest { what, for_ms: 60_000 };
                told(self.operator().revoke(self.request(asked)?).await)
            }
            other => anyhow::bail!("{other}: what may a service of one team see by it? Give it a row here"),
        };
        Ok(told)
    }

    async fn watch(&self, room: &str) -> anyhow::Result<Result<Streaming<v1::WatchResponse>, Status>> {
        let level = v1::WatchLevel::Members.into();
        let open = v1::OpenRoom { room: room.into(), level, ..v1::OpenRoom::default() };
        let up = v1::WatchRequest { message: Some(WatchUp::Open(Box::new(open))) };
        let ups = futures::StreamExt::chain(futures::stream::iter([up]), futures::stream::pending());
        Ok(self.rooms().watch(self.request(ups)?).await.map(tonic::Response::into_inner))
    }

    /// The first that a watch tells of a room; an error is made a status, so that it is compared like one.
    async fn first_of_watch(&self, room: &str) -> anyhow::Result<Result<String, Status>> {
        let mut down = match self.watch(room).await? {
            Ok(down) => down,
            Err(status) => return Ok(Err(status)),
        };
        let told = async {
            loop {
                let message = down.message().await?.context("the watch ended")?;
                if message.room != room {
                    continue;
                }
                return Ok(match message.event {
                    Some(Event::Error(error)) => Err(Status::permission_denied(format!("{error:?}"))),
                    event => Ok(format!("{event:?}")),
                });
            }
        };
        tokio::time::timeout(WITHIN, told).await?
    }
}

fn told<T: std::fmt::Debug>(answer: Result<tonic::Response<T>, Status>) -> Result<String, Status> {
    answer.map(|answer| format!("{:?}", answer.into_inner()))
}

/// All of a refusal that its reader can see.
fn seen(status: &Status) -> String {
    let mut headers = status.metadata().clone();
    headers.remove("date");
    format!("{:?} {:?} {:?} {headers:?}", status.code(), status.message(), status.details())
}

fn methods() -> anyhow::Result<Vec<(String, String)>> {
    let described = FileDescriptorSet::decode(presence_proto::FILE_DESCRIPTOR_SET)?;
    let services =
        described.file.iter().filter(|file| file.package() == "presence.v1").flat_map(|file| &file.service);
    let named = services.filter(|service| service.name() != "EdgeService");
    Ok(named
        .flat_map(|service| {
            let of = service.name().to_owned();
            service.method.iter().map(move |method| (of.clone(), method.name().to_owned()))
        })
        .collect())
}

/// ann in rooms of two teams, by an edge that goes on renewing nothing: the test is over before her lease is.
async fn occupied(scene: &Guarded) -> anyhow::Result<impl Sized> {
    let mut edge = scene.link("edge-1.test", "edge-1", "eu-west").await??;
    let mut leases = Vec::new();
    for room in ["team-a:here", "team-b:here"] {
        leases.push(edge.granted(&scene.keys, room, "ann").await?);
    }
    Ok(tokio::spawn(async move {
        while edge.renew(&leases).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }))
}

/// Whoever may read rooms of one team learns nothing of another's by any method that exists: one that is there is
/// answered like one that is not, to the byte.
#[tokio::test]
async fn a_service_of_one_team_sees_nothing_of_another_by_any_method() -> anyhow::Result<()> {
    let scene = Guarded::start()?;
    let _edge = occupied(&scene).await?;
    let all = [Scope::Read, Scope::Feed, Scope::Admin];
    let of_team = scene.keys.service_token(&all, &["team-a:"], TTL)?;
    let reading = scene.keys.service_token(&[Scope::Read], &["team-a:"], TTL)?;
    let askers = [
        ("everything in its rooms", Asker { channel: scene.channel(None).await?, token: Some(&of_team) }),
        ("reading by token", Asker { channel: scene.channel(None).await?, token: Some(&reading) }),
        ("reading by certificate", Asker { channel: scene.channel(Some("team-a.test")).await?, token: None }),
        // Its token decides, not the certificate that brought it.
        (
            "an edge's certificate",
            Asker { channel: scene.channel(Some("edge-1.test")).await?, token: Some(&reading) },
        ),
    ];
    for (who, asker) in &askers {
        for (service, method) in methods()? {
            assert!(SERVICES.contains(&service.as_str()), "{service}: who may call it?");
            let Err(there) = asker.ask(&method, "team-b:here").await? else {
                panic!("{who}: {method} tells of a room of another team");
            };
            for room in ["team-b:nowhere", "team-c:", "team-a"] {
                let Err(nowhere) = asker.ask(&method, room).await? else { panic!("{who}: {method} {room}") };
                assert_eq!(seen(&there), seen(&nowhere), "{who}: {method} {room}");
            }
            assert_eq!(there.code(), tonic::Code::PermissionDenied, "{who}: {method}: {there:?}");
        }
        for method in ["GetRoom", "CountRoom", "Watch", "ListRooms"] {
            let own = asker.ask(method, "team-a:here").await?.with_context(|| format!("{who}: {method}"))?;
            assert!(!own.contains("team-b"), "{who}: {own}");
            let none =
                asker.ask(method, "team-a:nowhere").await?.with_context(|| format!("{who}: {method}"))?;
            assert!(!none.contains("ann"), "{who}: {none}");
        }
        let all_of_team = asker.ask("ListRooms", "team-a:").await??;
        assert!(all_of_team.contains("team-a:here") && !all_of_team.contains("team-b"), "{all_of_team}");
        assert!(asker.ask("ListRooms", "").await?.is_err(), "{who}: nor all rooms");
    }
    let (_, operator) = &askers[0];
    assert!(operator.ask("Explain", "team-a:here").await??.contains("ann"));
    assert!(operator.ask("Evict", "team-a:here").await?.is_ok());
    for (who, reader) in &askers[1..] {
        for method in ["Explain", "Evict", "DrainEdge", "Revoke"] {
            assert!(reader.ask(method, "team-a:here").await?.is_err(), "{who}: {method} is no reading");
        }
    }
    Ok(())
}

#[tokio::test]
async fn nobody_asks_without_credentials_or_with_bad_ones() -> anyhow::Result<()> {
    let scene = Guarded::start()?;
    let expired = scene.keys.service_token(&[Scope::Read], &[""], Duration::ZERO)?;
    let forged = presence_tests::procs::Keys::generate()?.service_token(&[Scope::Read], &[""], TTL)?;
    let client = scene.keys.token("u1", "team-a:here", presence_model::claim::Action::Join)?;
    for (who, certificate, token, expected) in [
        ("nobody", None, None, ServiceError::Unauthorized),
        ("nobody known", Some("nobody.test"), None, ServiceError::Forbidden),
        ("an edge", Some("edge-1.test"), None, ServiceError::Forbidden),
        ("an expired token", None, Some(&expired), ServiceError::Unauthorized),
        ("a forged token", None, Some(&forged), ServiceError::Unauthorized),
        (
            "a forged token by a good certificate",
            Some("team-a.test"),
            Some(&forged),
            ServiceError::Unauthorized,
        ),
        ("a client's token", None, Some(&client), ServiceError::Unauthorized),
    ] {
        let asker = Asker { channel: scene.channel(certificate).await?, token: token.map(String::as_str) };
        for method in ["GetRoom", "Explain"] {
            let Err(refused) = asker.ask(method, "team-a:here").await? else { panic!("{who}: {method}") };
            assert_eq!(ServiceError::of(&refused).as_ref(), Some(&expected), "{who}: {method}: {refused:?}");
        }
    }
    // Probes and tools have no credentials.
    let health = tonic_health::pb::health_client::HealthClient::new(scene.channel(None).await?)
        .check(tonic_health::pb::HealthCheckRequest::default())
        .await?;
    assert_eq!(health.into_inner().status, 1);
    let log = std::fs::read_to_string(&scene.log)?;
    assert!(
        log.contains("reason=\"credentials\"") && log.contains("presence.v1.PresenceService/GetRoom"),
        "{log}"
    );
    for token in [&expired, &forged, &client] {
        assert!(!log.contains(token.as_str()), "a token is in the log");
    }
    Ok(())
}

#[tokio::test]
async fn an_edge_watches_rooms_of_everybody() -> anyhow::Result<()> {
    let scene = Guarded::start()?;
    let _edge = occupied(&scene).await?;
    let asker = Asker { channel: scene.channel(Some("edge-1.test")).await?, token: None };
    assert!(asker.ask("Watch", "team-b:here").await?.is_ok());
    Ok(())
}

#[tokio::test]
async fn a_watch_ends_with_its_token() -> anyhow::Result<()> {
    const GOOD_FOR: Duration = Duration::from_secs(4);
    let scene = Guarded::start()?;
    let clock = Clock::system();
    let began = clock.now();
    let token = scene.keys.service_token(&[Scope::Read], &["team-a:"], GOOD_FOR)?;
    let asker = Asker { channel: scene.channel(None).await?, token: Some(&token) };
    let status = end_of(&mut asker.watch("team-a:here").await??).await?;
    assert_eq!(ServiceError::of(&status), Some(ServiceError::Unauthorized), "{status:?}");
    // A token is good for whole seconds.
    assert!(clock.now().since(began) > GOOD_FOR - Duration::from_secs(1), "{:?}", clock.now().since(began));
    Ok(())
}

/// Why a watch ends.
async fn end_of(down: &mut Streaming<v1::WatchResponse>) -> anyhow::Result<Status> {
    let ended = async {
        loop {
            match down.message().await {
                Ok(Some(_)) => {}
                Ok(None) => anyhow::bail!("it ended without a word"),
                Err(status) => return Ok(status),
            }
        }
    };
    tokio::time::timeout(WITHIN, ended).await?
}

#[tokio::test]
async fn a_token_of_a_service_that_is_revoked_opens_nothing_and_ends_what_it_opened() -> anyhow::Result<()> {
    let scene = Guarded::start()?;
    let channel = scene.channel(None).await?;
    let all = [Scope::Read, Scope::Admin];
    let (stolen, other) =
        (scene.keys.service_token(&all, &[""], TTL)?, presence_tests::procs::Keys::generate()?);
    scene.keys.verify_with(&[&scene.keys.pair()?, &other.pair()?])?;
    let good = other.service_token(&all, &[""], TTL)?;
    let (thief, operator) = (
        Asker { channel: channel.clone(), token: Some(&stolen) },
        Asker { channel: channel.clone(), token: Some(&good) },
    );
    let taken = async {
        while operator.ask("GetRoom", "lobby").await?.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(WITHIN, taken).await.context("the second key is not in force")??;
    assert!(thief.ask("GetRoom", "lobby").await?.is_ok());
    let (mut of_thief, mut of_operator) = (thief.watch("lobby").await??, operator.watch("lobby").await??);
    let what = Some(v1::Revocation { what: Some(v1::revocation::What::KeyId(scene.keys.key_id().into())) });
    operator.operator().revoke(operator.request(v1::RevokeRequest { what, for_ms: 60_000 })?).await?;
    let status = end_of(&mut of_thief).await?;
    assert_eq!(ServiceError::of(&status), Some(ServiceError::Unauthorized), "{status:?}");
    for method in ["GetRoom", "Watch", "Revoke", "Evict"] {
        let refused = thief.ask(method, "lobby").await?.expect_err("refused");
        assert_eq!(ServiceError::of(&refused), Some(ServiceError::Unauthorized), "{method}: {refused:?}");
    }
    assert!(operator.ask("GetRoom", "lobby").await?.is_ok());
    let goes_on = tokio::time::timeout(Duration::from_secs(2), end_of(&mut of_operator)).await;
    assert!(goes_on.is_err(), "{goes_on:?}");
    Ok(())
}

/// What an operator types, with a token in a file.
#[tokio::test]
async fn the_command_line_shows_a_token_from_a_file() -> anyhow::Result<()> {
    let scene = Guarded::start()?;
    let _edge = occupied(&scene).await?;
    let minted = |scopes: &str, rooms: &str| -> anyhow::Result<std::path::PathBuf> {
        let mut command = std::process::Command::new(binary_path("presence")?);
        command.arg("token").arg("--key").arg(scene.keys.key());
        let made = command.args(["--user", "ops", "--scope", scopes, "--rooms", rooms]).output()?;
        anyhow::ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let path = scene.keys.key().with_extension("token");
        std::fs::write(&path, made.stdout)?;
        Ok(path)
    };
    let run = |words: &[&str], token: Option<&std::path::Path>| -> anyhow::Result<std::process::Output> {
        let url = format!("https://{}", scene.core.address("grpc"));
        let mut command = std::process::Command::new(binary_path("presence")?);
        command.args(words).args(["--core", &url, "--core-ca"]).arg(scene.authority.authority());
        if let Some(path) = token {
            command.env("PRESENCE_TOKEN_FILE", path);
        }
        Ok(command.output()?)
    };
    let token = minted("presence.read,presence.admin", "team-a:")?;
    for (words, code) in [
        (&["room", "team-a:here"][..], 0),
        (&["explain", "team-a:here", "ann"], 0),
        (&["room", "team-b:here"], 1),
        (&["explain", "team-b:here", "ann"], 1),
        (&["drain", "edge-1"], 1),
    ] {
        let done = run(words, Some(&token))?;
        assert_eq!(done.status.code(), Some(code), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    assert_eq!(run(&["room", "team-a:here"], None)?.status.code(), Some(1));
    std::fs::remove_file(&token)?;
    assert_eq!(run(&["room", "team-a:here"], Some(&token))?.status.code(), Some(64));
    Ok(())
}
