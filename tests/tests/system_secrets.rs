//! What processes write at their most talkative holds no token, state or key, whatever is done with these.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use presence_model::claim::Action;
use presence_proto::v1;
use presence_proto::v1::presence_service_client::PresenceServiceClient;
use presence_runtime::network::Network;
use presence_runtime::rpc;
use presence_runtime::tokens::Scope;
use presence_tests::guarded::bearing;
use presence_tests::procs::{
    Client, CoreOptions, EdgeOptions, Keys, Timers, binary_path, core_with, edge_with,
};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const TTL: Duration = Duration::from_secs(60);
const STATE: &str = "secret-state-of-ann";

async fn metrics(address: &str) -> anyhow::Result<String> {
    let mut page = Network::tcp().connect(address).await?;
    page.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").await?;
    let mut text = String::new();
    page.read_to_string(&mut text).await?;
    Ok(text)
}

/// What a token says and its signature; its head is the same for all of a key.
fn found<'a>(text: &str, secrets: &'a [(&str, String)]) -> Vec<&'a str> {
    let is_there = |secret: &str| match secret.split_once('.') {
        Some((_, says)) => says.split('.').any(|part| text.contains(part)),
        None => text.contains(secret),
    };
    secrets.iter().filter(|(_, secret)| is_there(secret)).map(|(what, _)| *what).collect()
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story: whatever is done with secrets, then what was written")]
async fn the_most_talkative_log_holds_no_token_and_no_state() -> anyhow::Result<()> {
    let (keys, folder) = (Keys::generate()?, tempfile::tempdir()?);
    let log = |name: &str| folder.path().join(name);
    let talkative = Some("trace".to_owned());
    let options =
        CoreOptions { log: talkative.clone(), log_file: Some(log("core")), ..CoreOptions::default() };
    let core = core_with(&options, &keys, &Timers::SHORT)?;
    let cores = vec![core.address("grpc")];
    let options =
        EdgeOptions { cores, log: talkative, log_file: Some(log("edge")), ..EdgeOptions::default() };
    let edge = edge_with("talkative", &options, &keys, &Timers::SHORT)?;

    let good = keys.token("ann", "lobby", Action::Join)?;
    let fresh = keys.token_for("ann", "lobby", Action::Join, TTL)?;
    let other = keys.token("ann", "elsewhere", Action::Join)?;
    let forged = Keys::generate()?.token("ann", "lobby", Action::Join)?;
    let service = keys.service_token(&[Scope::Read, Scope::Admin], &["lo"], TTL)?;
    let expired = keys.service_token(&[Scope::Read], &[""], Duration::ZERO)?;

    let mut client = Client::connect(&edge.address("ws")).await?;
    client.join("lobby", &good, "session-of-ann-0001", 1).await?;
    client.send(&json!({ "t": "update", "room": "lobby", "state": { "note": STATE } })).await?;
    client.send(&json!({ "t": "token", "room": "lobby", "token": fresh })).await?;
    for refused in [&other, &forged] {
        let mut stranger = Client::connect(&edge.address("ws")).await?;
        stranger
            .send(
                &json!({ "t": "join", "room": "lobby", "token": refused, "session": "session-of-eve-0001" }),
            )
            .await?;
        let _ = stranger.next().await;
    }
    let url = format!("http://{}", core.address("grpc"));
    let channel = rpc::connect(&Network::tcp(), &url, &rpc::ClientSettings::default()).await?;
    let mut rooms = PresenceServiceClient::new(channel);
    let asked = |room: &str| v1::GetRoomRequest { room: room.into(), ..v1::GetRoomRequest::default() };
    let seen = async {
        while !format!("{:?}", rooms.get_room(bearing(asked("lobby"), &service)?).await?).contains("ann") {}
        anyhow::Ok(())
    };
    tokio::time::timeout(TTL, seen).await??;
    assert!(rooms.get_room(bearing(asked("team"), &service)?).await.is_err());
    assert!(rooms.get_room(bearing(asked("lobby"), &expired)?).await.is_err());
    // A state is what its room sees, so it is looked for in logs only; the command line prints it by its purpose.
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, &service)?;
    let told = Command::new(binary_path("presence")?)
        .args(["explain", "lobby", "ann", "--core", &url, "--token"])
        .arg(&token_file)
        .output()?;
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    // Past a heartbeat, so that renewals and beats are written about as well.
    tokio::time::sleep(Timers::SHORT.heartbeat * 2).await;

    let exported = [metrics(&core.address("admin")).await?, metrics(&edge.address("admin")).await?];
    drop((edge, core));
    let secrets = [
        ("a client's token", good),
        ("a fresh token", fresh),
        ("a token for another room", other),
        ("a forged token", forged),
        ("a service's token", service),
        ("an expired token", expired),
        ("a state", STATE.to_owned()),
        ("a private key", "PRIVATE KEY".to_owned()),
    ];
    let read = |path: &Path| std::fs::read_to_string(path);
    let texts = [read(&log("core"))?, read(&log("edge"))?].into_iter().chain(exported);
    for (place, text) in
        ["the core's log", "the edge's log", "the core's metrics", "the edge's"].iter().zip(texts)
    {
        assert!(text.len() > 1_000, "{place} says little: {text}");
        assert_eq!(found(&text, &secrets), [""; 0], "in {place}");
        let mut leaking = text;
        leaking.push_str(&secrets[0].1);
        assert!(found(&leaking, &secrets).contains(&"a client's token"), "what is there would be found");
    }
    Ok(())
}
