//! A table of tokens that must be refused, each with its reason: by the verifier, by an edge, and by a core that is
//! reached past its edges. Whoever bears one hears of which kind the refusal is, and no more.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_model::claim::TokenRefusal;
use presence_proto::v1;
use presence_proto::v1::join_result::Outcome;
use presence_proto::v1::link_request::Message as Up;
use presence_proto::v1::link_response::Message as Down;
use presence_runtime::tokens::{KeySet, Verifier};
use presence_tests::forge::{Forge, Hostile, ROOM, USER};
use presence_tests::procs::{Client, EdgeOptions, Keys, Peer, Process, Timers, core, edge_with};
use serde_json::{Value, json};

const WITHIN: Duration = Duration::from_secs(20);
const SESSION: &str = "session-of-nobody";

fn verifier(forge: &Forge) -> Verifier {
    Verifier::new(KeySet::parse(forge.jwks().as_bytes()).expect("keys of the forge"))
}

/// Keys of the forge where processes look for theirs.
fn keys_of(forge: &Forge) -> anyhow::Result<Keys> {
    let keys = Keys::generate()?;
    std::fs::write(keys.jwks(), forge.jwks())?;
    Ok(keys)
}

/// What is wrong, and the refusal it is counted as.
fn table(forge: &Forge) -> Vec<Hostile> {
    [forge.ill_made(), forge.misused()].concat()
}

fn code(refusal: TokenRefusal) -> &'static str {
    if refusal.is_forbidden() { "forbidden" } else { "unauthorized" }
}

/// How often tokens were refused, by reason.
async fn refusals(process: &Process, component: &str) -> anyhow::Result<BTreeMap<&'static str, u64>> {
    let mut counted = BTreeMap::new();
    for refusal in TokenRefusal::ALL {
        let reason = refusal.as_str();
        let series = format!("presence_{component}_token_refusals_total{{reason=\"{reason}\"}}");
        counted.insert(reason, process.metric(&series).await? as u64);
    }
    Ok(counted)
}

/// What is counted once more than before.
fn difference(
    before: &BTreeMap<&'static str, u64>,
    after: &BTreeMap<&'static str, u64>,
) -> Vec<&'static str> {
    let more = after.iter().filter(|(reason, count)| before.get(*reason) != Some(*count));
    more.map(|(reason, _)| *reason).collect()
}

#[test]
fn the_verifier_refuses_each_for_its_reason() {
    let forge = Forge::new();
    let verifier = verifier(&forge);
    let rows = forge.ill_made();
    assert!(rows.len() + forge.misused().len() >= 90, "{} rows", rows.len());
    let wrong: Vec<_> = rows
        .iter()
        .filter_map(|(what, token, reason)| {
            let verified = verifier.verify(token);
            (verified.as_ref().err() != Some(reason)).then_some((what, reason, verified))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for token in forge.odd() {
        assert!(verifier.verify(&token).is_ok(), "{token}");
    }
}

#[test]
fn every_prefix_and_every_flipped_character_is_refused() {
    let forge = Forge::new();
    let (verifier, good) = (verifier(&forge), forge.good());
    for end in 0..good.len() {
        assert!(verifier.verify(&good[..end]).is_err(), "cut at {end}");
    }
    for at in 0..good.len() {
        let mut bytes = good.to_owned().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let token = String::from_utf8(bytes).expect("ASCII");
        assert!(verifier.verify(&token).is_err(), "flipped at {at}");
    }
}

/// What an edge answers to a join with this token, over a connection of its own.
async fn answer(url: &str, token: &str) -> anyhow::Result<Value> {
    let mut client = Client::connect(url).await?;
    client
        .send(&json!({ "t": "join", "room": ROOM, "token": token, "session": SESSION, "user": "admin" }))
        .await?;
    tokio::time::timeout(WITHIN, client.frame()).await?
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_refuses_each_counts_it_and_tells_no_more_than_its_kind() -> anyhow::Result<()> {
    let forge = Forge::new();
    let keys = keys_of(&forge)?;
    let log = tempfile::NamedTempFile::new()?;
    let core = core(&keys, &Timers::SHORT)?;
    let options = EdgeOptions {
        cores: vec![core.address("grpc")],
        log_file: Some(log.path().to_owned()),
        more: ["--failed-tokens-per-minute", "100000"].map(str::to_owned).to_vec(),
        ..EdgeOptions::default()
    };
    let edge = edge_with("hostile", &options, &keys, &Timers::SHORT)?;
    let url = edge.address("ws");
    let mut wrong = Vec::new();
    for (what, token, refusal) in table(&forge) {
        let before = refusals(&edge, "edge").await?;
        let told = answer(&url, &token).await?;
        let counted = difference(&before, &refusals(&edge, "edge").await?);
        // Beyond the longest token it is not looked at: the message is refused for its size, the empty one for its form.
        let expected = match what {
            "huge" => ("too_large", Vec::new()),
            "empty" => ("bad_request", Vec::new()),
            _ => (code(refusal), vec![refusal.as_str()]),
        };
        let message = told["message"].as_str().unwrap_or_default();
        let is_terse = !message.contains(refusal.as_str()) && !message.contains(&refusal.to_string());
        if (told["code"].as_str(), &counted) != (Some(expected.0), &expected.1) || !is_terse {
            wrong.push(format!("{what}: {told}, counted {counted:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(refusals(&core, "core").await?.values().sum::<u64>(), 0, "the core heard of none");
    let before = refusals(&edge, "edge").await?;
    let mut client = Client::connect(&url).await?;
    client.join(ROOM, forge.good(), SESSION, 1).await?;
    let of_another = Forge::of("u2");
    client.send(&json!({ "t": "token", "room": ROOM, "token": of_another, "user": USER })).await?;
    let refused = loop {
        let frame = tokio::time::timeout(WITHIN, client.frame()).await??;
        if frame["t"] == "error" {
            break frame;
        }
    };
    assert_eq!(refused["code"], "forbidden", "another subject");
    assert_eq!(difference(&before, &refusals(&edge, "edge").await?), ["subject"]);
    let log = std::fs::read_to_string(log.path())?;
    let line = log.lines().find(|line| line.contains("signature")).unwrap_or_default();
    assert!(line.contains("127.0.0.1"), "who it was: {line}");
    assert!(
        table(&forge).iter().all(|(_, token, _)| token.len() < 40 || !log.contains(token)),
        "and no token"
    );
    assert!(log.lines().count() < 60, "bounded:\n{log}");
    Ok(())
}

async fn join(peer: &mut Peer, token: &str) -> anyhow::Result<Outcome> {
    peer.ask_join(|request| v1::Join {
        request,
        room: ROOM.into(),
        token: token.into(),
        session: SESSION.into(),
        generation: Some(request),
        connection: request + 100,
        ..v1::Join::default()
    })
    .await
}

fn link_code(refusal: TokenRefusal) -> v1::RefusalCode {
    if refusal == TokenRefusal::Expired {
        v1::RefusalCode::TokenEnded
    } else if refusal.is_forbidden() {
        v1::RefusalCode::Forbidden
    } else {
        v1::RefusalCode::Unauthorized
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_core_refuses_each_that_comes_past_its_edges_and_counts_it() -> anyhow::Result<()> {
    let forge = Forge::new();
    let keys = keys_of(&forge)?;
    let core = core(&keys, &Timers::SHORT)?;
    let mut peer = Peer::of(core.channel().await?).await?;
    let mut wrong = Vec::new();
    // A join without any token breaks the contract of the link.
    for (what, token, refusal) in table(&forge).into_iter().filter(|(what, ..)| *what != "empty") {
        let before = refusals(&core, "core").await?;
        let outcome = join(&mut peer, &token).await?;
        let counted = difference(&before, &refusals(&core, "core").await?);
        let told = match &outcome {
            Outcome::Refused(refused) => Some(refused.code()),
            Outcome::Granted(_) => None,
        };
        if told != Some(link_code(refusal)) || counted != [refusal.as_str()] {
            wrong.push(format!("{what}: {outcome:?}, counted {counted:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let Outcome::Granted(granted) = join(&mut peer, forge.good()).await? else { anyhow::bail!("a good one") };
    // A fresh token of somebody else beside the name of who is in.
    let before = refusals(&core, "core").await?;
    let update = |request| {
        Up::Update(v1::Update {
            request,
            lease: granted.lease,
            room: ROOM.into(),
            user: USER.into(),
            token: Some(Forge::of("u2")),
            ..v1::Update::default()
        })
    };
    let Down::Done(v1::Done { refused, .. }) = peer.ask(update).await?.0 else { anyhow::bail!("not done") };
    assert_eq!(refused.map(|refused| refused.code()), Some(v1::RefusalCode::Forbidden));
    assert_eq!(difference(&before, &refusals(&core, "core").await?), ["subject"]);
    Ok(())
}
