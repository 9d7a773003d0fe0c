//! What becomes of people as their tokens end, are replaced, and are revoked: two cores over one Redis, an edge at
//! each, and the command line as an operator has it.

use std::process::Output;
use std::time::Duration;

use anyhow::Context as _;
use presence_model::claim::Action;
use presence_tests::procs::{
    Client, CoreOptions, EdgeOptions, Keys, Observer, Pair, Process, Raw, Timers, binary_path, core_with,
    edge_with, frame,
};
use presence_tests::redis::{Server, ServerOptions};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Graces that last as long as it takes to do something meanwhile.
const LONG: Timers = Timers {
    heartbeat: Duration::from_secs(5),
    lease_ttl: Duration::from_secs(40),
    grace: Duration::from_secs(25),
    edge_lost: Duration::from_secs(5),
};
const TIMERS: Timers = Timers {
    heartbeat: Duration::from_secs(2),
    lease_ttl: Duration::from_secs(8),
    grace: Duration::from_secs(3),
    edge_lost: Duration::from_secs(3),
};
const WITHIN: Duration = Duration::from_secs(20);
/// Within what a revocation is in force everywhere.
const REVOKED_WITHIN: Duration = Duration::from_secs(2);
/// Within what a new file of keys is in force everywhere: it is looked at every two seconds.
const KEYS_WITHIN: Duration = Duration::from_secs(10);
const SESSIONS: usize = 1_000;
/// Of them in each room: an observer is shown lists.
const PER_ROOM: usize = 25;

struct Stage {
    keys: Keys,
    cores: [Process; 2],
    edges: [Process; 2],
    server: Server,
}

impl Stage {
    async fn set(timers: &Timers) -> anyhow::Result<Self> {
        let server = Server::start(ServerOptions::default()).await?;
        let keys = Keys::generate()?;
        let store = Some(format!("redis://{}", server.address()));
        let options = CoreOptions { store, ..CoreOptions::default() };
        let cores = [core_with(&options, &keys, timers)?, core_with(&options, &keys, timers)?];
        let edge = |name: &str, core: &Process| {
            let cores = vec![core.address("grpc")];
            edge_with(name, &EdgeOptions { cores, ..EdgeOptions::default() }, &keys, timers)
        };
        let edges = [edge("one", &cores[0])?, edge("two", &cores[1])?];
        Ok(Self { keys, cores, edges, server })
    }

    /// As an operator types it.
    async fn presence(&self, core: usize, arguments: &[&str]) -> anyhow::Result<Output> {
        let binary = binary_path("presence")?;
        let core = format!("http://{}", self.cores[core].address("grpc"));
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let run = move || {
            std::process::Command::new(binary).args(arguments).args(["--json", "--core", &core]).output()
        };
        Ok(tokio::task::spawn_blocking(run).await??)
    }

    async fn told(&self, core: usize, arguments: &[&str]) -> anyhow::Result<Value> {
        let output = self.presence(core, arguments).await?;
        anyhow::ensure!(output.status.success(), "{arguments:?}: {output:?}");
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    async fn connect(&self, edge: usize) -> anyhow::Result<Client> {
        Client::connect(&self.edges[edge].address("ws")).await
    }

    /// The error that a join is refused with over an edge.
    async fn refusal(&self, edge: usize, room: &str, token: &str) -> anyhow::Result<Option<String>> {
        let mut client = self.connect(edge).await?;
        let session = format!("session-{:016x}", rand::random::<u64>());
        let join = json!({ "t": "join", "room": room, "token": token, "session": session });
        client.send(&join).await?;
        loop {
            let frame = tokio::time::timeout(WITHIN, client.frame()).await??;
            match frame["t"].as_str() {
                Some("joined") => {
                    client.send(&json!({ "t": "leave", "room": room })).await?;
                    return Ok(None);
                }
                Some("error") => return Ok(frame["code"].as_str().map(str::to_owned)),
                Some(_) | None => {}
            }
        }
    }

    /// Waits until such a token is refused so, or let in, at both edges; how long that took.
    async fn until_refused(&self, token: &str, code: Option<&str>) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        for edge in 0..2 {
            while self.refusal(edge, "door", token).await?.as_deref() != code {
                anyhow::ensure!(begun.elapsed() < KEYS_WITHIN, "edge {edge} does not answer {code:?}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(begun.elapsed())
    }
}

/// A session, read until it ends.
struct Seated {
    /// What the last `ended` said, and when that came.
    end: tokio::task::JoinHandle<Option<(String, Instant)>>,
}

async fn seat(mut client: Client, room: &str, token: &str, user: &str) -> anyhow::Result<Seated> {
    client.join(room, token, &format!("session-of-{user:0>12}"), 1).await?;
    let end = tokio::spawn(async move {
        let mut end = None;
        while let Ok(frame) = client.frame().await {
            if frame["t"] == "ended" {
                end = Some((frame["reason"].as_str().unwrap_or_default().to_owned(), Instant::now()));
            }
        }
        end
    });
    Ok(Seated { end })
}

fn room(index: usize) -> String {
    format!("room-{}", index / PER_ROOM)
}

/// Brings people in, half of them over each edge, with tokens of one key.
async fn fill(stage: &Stage, pair: &Pair, people: std::ops::Range<usize>) -> anyhow::Result<Vec<Seated>> {
    let mut seats = Vec::new();
    for portion in people.collect::<Vec<_>>().chunks(50) {
        let mut coming = JoinSet::new();
        for index in portion.iter().copied() {
            let user = format!("u{index}");
            let (room, url) = (room(index), stage.edges[index % 2].address("ws"));
            let token = pair.token(&user, &room, &format!("id-of-{user}"))?;
            coming.spawn(async move { seat(Client::connect(&url).await?, &room, &token, &user).await });
        }
        while let Some(seated) = coming.join_next().await {
            seats.push(seated??);
        }
    }
    Ok(seats)
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_16_keys_rotate_under_a_thousand_and_a_revoked_one_ends_its_own_everywhere()
-> anyhow::Result<()> {
    let stage = Stage::set(&TIMERS).await?;
    // The observer's key stays.
    let (staying, old, new) = (stage.keys.pair()?, Pair::generate()?, Pair::generate()?);
    stage.keys.verify_with(&[&staying, &old])?;
    stage.until_refused(&old.token("somebody", "door", "0")?, None).await?;
    let rooms: Vec<String> =
        (0..(SESSIONS + 100).div_ceil(PER_ROOM)).map(|index| room(index * PER_ROOM)).collect();
    let observer = Observer::start(&stage.edges[1].address("ws"), &stage.keys, &rooms).await?;
    let of_old = fill(&stage, &old, 0..SESSIONS).await?;
    observer.until(SESSIONS, WITHIN).await?;

    // Rotation: first both, then the new one alone.
    stage.keys.verify_with(&[&staying, &old, &new])?;
    stage.until_refused(&new.token("somebody", "door", "1")?, None).await?;
    let of_new = fill(&stage, &new, SESSIONS..SESSIONS + 100).await?;
    observer.until(SESSIONS + 100, WITHIN).await?;
    stage.keys.verify_with(&[&staying, &new])?;
    let took = stage.until_refused(&old.token("somebody", "door", "2")?, Some("unauthorized")).await?;
    println!("a removed key let nobody in any more after {took:?}");
    tokio::time::sleep(TIMERS.lease_ttl * 2).await;
    assert!(of_old.iter().chain(&of_new).all(|seat| !seat.end.is_finished()), "who is in stays");
    assert_eq!(observer.sight().departures, []);

    // The removed key turns out to be stolen.
    let begun = Instant::now();
    let told = stage.told(0, &["revoke", "key", old.key_id(), "--for", "1h"]).await?;
    assert_eq!((&told["revoked"], &told["name"]), (&json!("key"), &json!(old.key_id())));
    observer.until(100, REVOKED_WITHIN).await?;
    let seen = begun.elapsed();
    let mut last = Duration::ZERO;
    for seat in of_old {
        let (reason, at) = tokio::time::timeout(WITHIN, seat.end).await??.context("closed without a word")?;
        assert_eq!(reason, "token_revoked");
        last = last.max(at - begun);
    }
    println!(
        "{SESSIONS} sessions of a revoked key: the last was told after {last:?}, all were seen to go after {seen:?}"
    );
    assert!(last < REVOKED_WITHIN, "{last:?}");
    assert!(of_new.iter().all(|seat| !seat.end.is_finished()), "who came with the other key stays");
    let departures = observer.sight().departures;
    assert_eq!(departures.len(), SESSIONS);
    assert!(departures.iter().all(|(_, reason)| reason == "\"token_revoked\""), "{departures:?}");

    // Nothing brings it back: not its key, not an empty store, not other processes.
    stage.keys.verify_with(&[&staying, &old, &new])?;
    let stolen = old.token("somebody", "door", "3")?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    stage.until_refused(&stolen, Some("unauthorized")).await?;
    let _: String = stage.server.call(&["FLUSHALL"]).await?;
    tokio::time::sleep(TIMERS.lease_ttl).await;
    stage.until_refused(&stolen, Some("unauthorized")).await?;
    for edge in &stage.edges {
        let refused = edge.metric("presence_edge_token_refusals_total{reason=\"revoked\"}").await?;
        assert!(refused >= 2.0, "{refused}");
    }
    let store = Some(format!("redis://{}", stage.server.address()));
    let fresh = core_with(&CoreOptions { store, ..CoreOptions::default() }, &stage.keys, &TIMERS)?;
    let options = EdgeOptions { cores: vec![fresh.address("grpc")], ..EdgeOptions::default() };
    let fresh = edge_with("three", &options, &stage.keys, &TIMERS)?;
    let mut client = Client::connect(&fresh.address("ws")).await?;
    let refused = client.join("door", &stolen, "session-of-somebody", 1).await.expect_err("refused");
    assert!(refused.to_string().contains("unauthorized"), "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_16_a_token_that_ends_ends_its_session_and_a_fresh_one_keeps_it() -> anyhow::Result<()> {
    let stage = Stage::set(&TIMERS).await?;
    let life = Duration::from_secs(9);
    let rooms = ["lobby".to_owned()];
    let observer = Observer::start(&stage.edges[1].address("ws"), &stage.keys, &rooms).await?;
    let mut clients = Vec::new();
    let begun = Instant::now();
    for (user, edge) in [("ann", 0), ("bob", 1)] {
        let mut client = stage.connect(edge).await?;
        let token = stage.keys.token_for(user, "lobby", Action::Join, life)?;
        client.join("lobby", &token, &format!("session-of-{user:0>12}"), 1).await?;
        clients.push(client);
    }
    let [mut ann, mut bob] = <[Client; 2]>::try_from(clients).ok().context("two")?;
    // Read by a task of its own: whoever is not read answers no ping.
    let bob = tokio::spawn(async move {
        warned(&mut bob, begun, life).await?;
        let end = expect(&mut bob, "ended").await?;
        anyhow::Ok((end, begun.elapsed()))
    });
    warned(&mut ann, begun, life).await?;
    // Of another subject, of another room, then her own.
    for (user, room, code) in [("bob", "lobby", "forbidden"), ("ann", "vault", "forbidden")] {
        let token = stage.keys.token_for(user, room, Action::Join, life * 2)?;
        ann.send(&json!({ "t": "token", "room": "lobby", "token": token })).await?;
        assert_eq!(expect(&mut ann, "error").await?["code"], code);
    }
    let token = stage.keys.token_for("ann", "lobby", Action::Join, life * 3)?;
    ann.send(&json!({ "t": "token", "room": "lobby", "token": token })).await?;
    let reading = tokio::spawn(async move { ann.during(life * 2).await });
    let (end, lived) = bob.await??;
    assert_eq!(end["reason"], "token_expired");
    // A token ends with a whole second.
    assert!(
        lived > life - Duration::from_millis(1_100) && lived < life + Duration::from_secs(2),
        "{lived:?}"
    );
    observer.until(1, WITHIN).await?;
    for frame in reading.await?? {
        assert!(frame["t"] != "ended" && frame["t"] != "error", "{frame}");
    }
    let sight = observer.sight();
    assert_eq!(sight.departures, [("bob".to_owned(), "\"token_expired\"".to_owned())]);
    Ok(())
}

/// Waits until a client is asked for a fresh token, before its own ends.
async fn warned(client: &mut Client, begun: Instant, life: Duration) -> anyhow::Result<()> {
    let warning = expect(client, "token_expiring").await?;
    assert!(warning["in_ms"].as_u64().is_some_and(|ms| ms > 0 && ms < 9_000), "{warning}");
    assert!(begun.elapsed() < life, "before the end");
    Ok(())
}

/// The next frame of this kind.
async fn expect(client: &mut Client, kind: &str) -> anyhow::Result<Value> {
    let frame = async {
        loop {
            let frame = client.frame().await?;
            if frame["t"] == kind {
                return anyhow::Ok(frame);
            }
        }
    };
    tokio::time::timeout(WITHIN, frame).await.with_context(|| format!("no {kind}"))?
}

#[tokio::test(flavor = "multi_thread")]
async fn users_and_tokens_are_revoked_with_their_watches_and_their_graces() -> anyhow::Result<()> {
    let stage = Stage::set(&LONG).await?;
    let (pair, rooms) = (stage.keys.pair()?, ["lobby".to_owned()]);
    let observer = Observer::start(&stage.edges[0].address("ws"), &stage.keys, &rooms).await?;
    for (user, id) in [("ann", "a1"), ("ann", "a2"), ("bob", "b1")] {
        let mut socket = Raw::open(&stage.edges[1].address("ws")).await?;
        let session = format!("session-{id:0>16}");
        let join = json!({ "t": "join", "room": "lobby", "token": pair.token(user, "lobby", id)?, "session": session });
        socket.write(&frame(0x81, join.to_string().as_bytes())).await?;
        if id == "b1" {
            observer.until(2, WITHIN).await?;
            stage.told(0, &["revoke", "token", "b1"]).await?;
            assert_eq!(socket.close_code().await?, 4410);
        }
        // The sockets of the others end here: their grace runs.
    }
    let mut watcher = stage.connect(1).await?;
    let token = stage.keys.token("ann", "lobby", Action::Watch)?;
    watcher.watch("lobby", &token).await?;
    observer.until(1, WITHIN).await?;
    // Of a later version, or somebody's hand: it hides no other one.
    let far: &str = "9999999999999";
    let _: i64 = stage.server.call(&["ZADD", "presence:revoked", far, "{\"planet\":\"x\"}"]).await?;
    let told = stage.told(0, &["revoke", "user", "ann", "--for", "1m"]).await?;
    assert!(told["until"].as_u64().is_some());
    assert_eq!(expect(&mut watcher, "ended").await?["reason"], "token_revoked");
    observer.until(0, REVOKED_WITHIN).await?;
    let reasons: Vec<_> = observer.sight().departures;
    assert_eq!(
        reasons,
        [("bob", "\"token_revoked\""), ("ann", "\"token_revoked\"")]
            .map(|(u, r)| (u.to_owned(), r.to_owned()))
    );
    let nonsense = stage.presence(0, &["revoke", "user", "ann"]).await?;
    assert_eq!(nonsense.status.code(), Some(64), "for how long?");
    let endless = stage.presence(0, &["revoke", "key", "k", "--for", "11y"]).await?;
    assert_eq!(endless.status.code(), Some(64), "no longer than tokens live");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_17_the_token_tells_who_comes_whatever_else_is_said() -> anyhow::Result<()> {
    let stage = Stage::set(&TIMERS).await?;
    let rooms = ["lobby".to_owned()];
    let observer = Observer::start(&stage.edges[1].address("ws"), &stage.keys, &rooms).await?;
    let mut ann = stage.connect(0).await?;
    ann.join("lobby", &stage.keys.token("ann", "lobby", Action::Join)?, "session-of-ann-0", 5).await?;
    observer.until(1, WITHIN).await?;
    // With her session, a higher attempt, and her name beside his token.
    let mut bob = stage.connect(1).await?;
    let join = json!({
        "t": "join", "room": "lobby", "token": stage.keys.token("bob", "lobby", Action::Join)?,
        "session": "session-of-ann-0", "generation": 9, "user": "ann", "sub": "ann",
    });
    bob.send(&join).await?;
    assert_eq!(expect(&mut bob, "joined").await?["generation"], 9);
    observer.until(2, WITHIN).await?;
    bob.send(&json!({ "t": "update", "room": "lobby", "user": "ann", "status": "busy" })).await?;
    bob.send(&json!({ "t": "leave", "room": "lobby", "user": "ann" })).await?;
    assert_eq!(expect(&mut bob, "ended").await?["reason"], "left");
    observer.until(1, WITHIN).await?;
    assert_eq!(observer.sight().departures, [("bob".to_owned(), "\"left\"".to_owned())]);
    ann.send(&json!({ "t": "update", "room": "lobby", "status": "away" })).await?;
    let room = stage.told(1, &["room", "lobby"]).await?;
    assert_eq!(room["members"][0]["user"], "ann");
    for frame in ann.during(Duration::from_secs(1)).await? {
        assert!(frame["t"] != "ended" && frame["t"] != "error", "{frame}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_36_who_is_evicted_while_the_edge_moves_its_link_stays_out() -> anyhow::Result<()> {
    let server = Server::start(ServerOptions::default()).await?;
    let keys = Keys::generate()?;
    let store = Some(format!("redis://{}", server.address()));
    let options = CoreOptions { store, ..CoreOptions::default() };
    let [going, staying] = [core_with(&options, &keys, &TIMERS)?, core_with(&options, &keys, &TIMERS)?];
    let cores = vec![going.address("grpc")];
    let moving =
        EdgeOptions { cores: [cores, vec![staying.address("grpc")]].concat(), ..EdgeOptions::default() };
    let edges = [
        edge_with("moving", &moving, &keys, &TIMERS)?,
        edge_with(
            "watching",
            &EdgeOptions { cores: vec![staying.address("grpc")], ..EdgeOptions::default() },
            &keys,
            &TIMERS,
        )?,
    ];
    let observer = Observer::start(&edges[1].address("ws"), &keys, &["lobby".to_owned()]).await?;
    let mut seats = Vec::new();
    for user in ["ann", "bob"] {
        let client = Client::connect(&edges[0].address("ws")).await?;
        seats.push(seat(client, "lobby", &keys.token(user, "lobby", Action::Join)?, user).await?);
    }
    observer.until(2, WITHIN).await?;
    let core = format!("http://{}", staying.address("grpc"));
    let binary = binary_path("presence")?;
    let evict = move || {
        std::process::Command::new(binary).args(["evict", "lobby", "ann", "--json", "--core", &core]).output()
    };
    // Whichever core it is linked to: that one may go, while she is put out over the other.
    going.signal("TERM")?;
    let output = tokio::task::spawn_blocking(evict).await??;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout)?["sessions"], 1);
    let [ann, bob] = <[Seated; 2]>::try_from(seats).ok().context("two")?;
    let (reason, _) = tokio::time::timeout(WITHIN, ann.end).await??.context("closed without a word")?;
    assert_eq!(reason, "evicted");
    tokio::time::sleep(TIMERS.lease_ttl * 2).await;
    assert!(!bob.end.is_finished());
    let sight = observer.sight();
    assert_eq!(sight.departures, [("ann".to_owned(), "\"evicted\"".to_owned())]);
    assert_eq!(sight.count(), 1, "no automatic re-join undoes it");
    Ok(())
}
