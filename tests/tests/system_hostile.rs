//! Scenario 27: what reaches an edge from the open internet is refused with its code, and the neighbours of whoever
//! sends it see nothing of it.

use std::time::Duration;

use anyhow::Context as _;
use presence_model::claim::Action;
use presence_model::limits::MESSAGE_BYTES_MAX;
use presence_runtime::clock::Clock;
use presence_tests::procs::{EdgeOptions, Keys, Neighbours, Process, Raw, Timers, core, edge_with, frame};
use serde_json::{Value, json};

/// A request is cut after 5 s, by a process that may be busy.
const CUT_WITHIN: Duration = Duration::from_secs(15);

/// A core, an edge and two neighbours on it.
struct Stage {
    _core: Process,
    edge: Process,
    url: String,
    keys: Keys,
    neighbours: Neighbours,
    log: tempfile::NamedTempFile,
}

impl Stage {
    async fn set() -> anyhow::Result<Self> {
        let (keys, log) = (Keys::generate()?, tempfile::NamedTempFile::new()?);
        let core = core(&keys, &Timers::SHORT)?;
        let options = EdgeOptions {
            cores: vec![core.address("grpc")],
            log_file: Some(log.path().to_owned()),
            ..EdgeOptions::default()
        };
        let edge = edge_with("hostile", &options, &keys, &Timers::SHORT)?;
        let neighbours = Neighbours::start(&edge, &keys).await?;
        Ok(Self { _core: core, url: edge.address("ws"), edge, keys, neighbours, log })
    }

    async fn open(&self) -> anyhow::Result<Raw> {
        Raw::open(&self.url).await
    }

    /// The code with which the edge closes after these bytes.
    async fn code_after(&self, bytes: &[u8]) -> anyhow::Result<u16> {
        let mut raw = self.open().await?;
        // It may close before it has read everything.
        let _ = raw.write(bytes).await;
        raw.close_code().await
    }

    #[expect(clippy::print_stdout, reason = "how it was for the neighbours is read in the log of a run")]
    async fn cleared(self) -> anyhow::Result<()> {
        let seen = self.neighbours.undisturbed().await?;
        println!("{} changes seen, the slowest after {:?}", seen.changes, seen.slowest);
        let log = std::fs::read_to_string(self.log.path())?;
        anyhow::ensure!(!log.contains("panicked"), "{log}");
        Ok(())
    }
}

fn text(message: &Value) -> Vec<u8> {
    frame(0x81, message.to_string().as_bytes())
}

/// A ping message of exactly so many bytes.
fn ping_of(bytes: usize) -> Vec<u8> {
    let empty = r#"{"t":"ping","x":""}"#.len();
    format!(r#"{{"t":"ping","x":"{}"}}"#, "x".repeat(bytes - empty)).into_bytes()
}

#[tokio::test]
async fn scenario_27_broken_frames_are_closed_with_their_code() -> anyhow::Result<()> {
    let stage = Stage::set().await?;
    for (what, bytes, code) in [
        ("not masked", b"\x81\x02{}".to_vec(), 1002),
        ("reserved bits", frame(0xc1, b"{}"), 1002),
        ("an op code that does not exist", frame(0x83, b""), 1002),
        ("a control frame in parts", frame(0x09, b""), 1002),
        ("a long control frame", frame(0x89, &[0; 126]), 1002),
        ("a continuation of nothing", frame(0x80, b"x"), 1002),
        ("a message inside a message", [frame(0x01, b"{"), frame(0x81, b"{}")].concat(), 1002),
        ("a close frame of one byte", frame(0x88, b"x"), 1002),
        ("a length of more than 63 bits", b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0".to_vec(), 1002),
        ("bytes that are not UTF-8", frame(0x81, b"\"\xff\""), 1007),
        ("half a character", [frame(0x01, b"\xf0\x9f"), frame(0x80, b"\x98")].concat(), 1007),
        ("no JSON", frame(0x81, b"{"), 4400),
        ("a binary message", frame(0x82, b"{}"), 4400),
    ] {
        assert_eq!(stage.code_after(&bytes).await.context(what)?, code, "{what}");
    }
    stage.cleared().await
}

#[tokio::test]
async fn scenario_27_the_cap_of_a_message_holds_over_frames_and_fragments() -> anyhow::Result<()> {
    let stage = Stage::set().await?;
    // What a header promises is refused before anything of it came.
    assert_eq!(stage.code_after(b"\x81\xff\0\0\0\0\x04\0\0\0\0\0\0\0").await?, 4413, "64 MiB promised");
    let mut whole = stage.open().await?;
    let mut parts = stage.open().await?;
    for bytes in [MESSAGE_BYTES_MAX - 1, MESSAGE_BYTES_MAX] {
        let message = ping_of(bytes);
        whole.write(&frame(0x81, &message)).await?;
        assert_eq!(whole.read_frame().await?.1, b"{\"t\":\"pong\"}", "{bytes}");
        let (first, rest) = message.split_at(1);
        parts.write(&frame(0x01, first)).await?;
        for part in rest.chunks(1_000) {
            parts.write(&frame(0x00, part)).await?;
        }
        parts.write(&frame(0x80, b"")).await?;
        assert_eq!(parts.read_frame().await?.1, b"{\"t\":\"pong\"}", "{bytes} in parts");
    }
    let above = ping_of(MESSAGE_BYTES_MAX + 1);
    assert_eq!(stage.code_after(&frame(0x81, &above)).await?, 4413);
    // Fragments without end, each of them small; 64 MiB in all, if they were taken.
    let mut endless = stage.open().await?;
    endless.write(&frame(0x02, b"")).await?;
    let fragment = frame(0x00, &[b'x'; 1_024]).repeat(64);
    for _ in 0..1_024 {
        if endless.write(&fragment).await.is_err() {
            break;
        }
    }
    assert!(endless.close_code().await.is_ok_and(|code| code == 4413) || endless.ended().await.is_ok());
    stage.cleared().await
}

#[tokio::test]
async fn scenario_27_fragments_without_bytes_do_not_pile_up() -> anyhow::Result<()> {
    let stage = Stage::set().await?;
    let mut endless = stage.open().await?;
    let joined = json!({"t": "watch", "room": "r", "token": stage.keys.token("e", "r", Action::Watch)?});
    endless.write(&text(&joined)).await?;
    endless.write(&frame(0x01, b"{")).await?;
    let before = presence_tests::procs::pss_bytes(stage.edge.id())?;
    let empty = frame(0x00, b"").repeat(10_000);
    let mut pushed = 0;
    while pushed < 20 && endless.write(&empty).await.is_ok() {
        pushed += 1;
    }
    assert_eq!(endless.close_code().await?, 4429);
    let after = presence_tests::procs::pss_bytes(stage.edge.id())?;
    assert!(after < before + 2e6, "{before} bytes before, {after} after");
    stage.cleared().await
}

#[tokio::test]
async fn scenario_27_floods_of_messages_are_told_and_closed() -> anyhow::Result<()> {
    let stage = Stage::set().await?;
    let token = |room: &str| stage.keys.token("flood", room, Action::Join);
    let join = |room: &str| -> anyhow::Result<Vec<u8>> {
        Ok(text(&json!({"t": "join", "room": room, "token": token(room)?, "session": "session-of-flood"})))
    };
    let rooms = (0..400).map(|room| join(&format!("r{room}"))).collect::<anyhow::Result<Vec<_>>>()?;
    let update = text(&json!({"t": "update", "room": "r", "state": 1}));
    for (what, flood) in [
        ("updates", [join("r")?, update.repeat(1_000)].concat()),
        ("joins", join("r")?.repeat(1_000)),
        ("pings", text(&json!({"t": "ping"})).repeat(1_000)),
        ("rooms", rooms.concat()),
        ("nonsense", text(&json!({"t": "dance"})).repeat(1_000)),
    ] {
        let code = stage.code_after(&flood).await.context(what)?;
        assert_eq!(code, 4429, "{what}");
    }
    stage.cleared().await
}

/// Whoever sends control frames is answered as far as it reads, and nothing is kept for it.
#[tokio::test]
async fn scenario_27_floods_of_control_frames_cost_nobody_anything() -> anyhow::Result<()> {
    let stage = Stage::set().await?;
    let mut flooding = stage.open().await?;
    flooding
        .write(&text(
            &json!({"t": "watch", "room": "r", "token": stage.keys.token("f", "r", Action::Watch)?}),
        ))
        .await?;
    let before = presence_tests::procs::pss_bytes(stage.edge.id())?;
    let flood = [frame(0x89, &[b'p'; 125]), frame(0x8a, b"")].concat().repeat(1_000);
    let mut pushed = 0;
    // Its answers are not read meanwhile: those that wait are one.
    while pushed < 60 && flooding.write(&flood).await.is_ok() {
        pushed += 1;
    }
    let after = presence_tests::procs::pss_bytes(stage.edge.id())?;
    assert!(after < before + 2e6, "{before} bytes before, {after} after");
    let mut reading = stage.open().await?;
    reading.write(&frame(0x89, b"1")).await?;
    assert_eq!(reading.read_frame().await?, (0x8a, b"1".to_vec()));
    stage.cleared().await
}

/// Everything that could be said slowly: nothing, half a handshake, its head byte by byte.
#[tokio::test]
async fn scenario_27_slow_handshakes_are_cut_and_slow_frames_are_not_alive() -> anyhow::Result<()> {
    let stage = Stage::set().await?;
    let clock = Clock::system();
    let began = clock.now();
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(Raw::connect(&stage.url).await?);
    }
    let half = Raw::handshake("").into_bytes();
    for raw in &mut silent[..50] {
        raw.write(&half[..half.len() / 2]).await?;
    }
    // One byte of the head every quarter of a second, for longer than it may take.
    let mut slow = Raw::connect(&stage.url).await?;
    // A handshake that takes its time is no crime below that.
    let mut unhurried = Raw::connect(&stage.url).await?;
    unhurried.write(&half[..half.len() / 2]).await?;
    let rest = String::from_utf8(half[half.len() / 2..].to_vec())?;
    // A frame that begins and does not go on: no sign of life.
    let mut stuck = stage.open().await?;
    stuck.write(b"\x81").await?;
    let (mut bytes, mut unheard) = (half.iter(), true);
    while let Some(byte) = bytes.next()
        && slow.write(&[*byte]).await.is_ok()
        && clock.now().since(began) < CUT_WITHIN
    {
        tokio::time::sleep(Duration::from_millis(250)).await;
        if unheard && clock.now().since(began) > Duration::from_secs(3) {
            unheard = false;
            assert_eq!(unhurried.request(&rest).await?, 101);
        }
    }
    assert!(bytes.len() > 0, "the slow one was heard to its end");
    slow.ended().await?;
    for raw in &mut silent {
        raw.ended().await?;
    }
    let took = clock.now().since(began);
    assert!((Duration::from_secs(4)..CUT_WITHIN).contains(&took), "{took:?}");
    assert_eq!(stuck.close_code().await?, 4408);
    stage.cleared().await
}

/// Nobody is let in for a while, and the log says so once; those who are in notice nothing.
#[tokio::test]
async fn scenario_27_an_edge_without_descriptors_waits_and_takes_clients_again() -> anyhow::Result<()> {
    let stage = Stage::set().await?;
    stage.edge.limit_descriptors(stage.edge.descriptors()? + 20)?;
    let mut silent = Vec::new();
    for _ in 0..60 {
        silent.push(Raw::connect(&stage.url).await?);
    }
    let (clock, spent) = (Clock::system(), stage.edge.processor_time()?);
    let began = clock.now();
    let told = || -> anyhow::Result<usize> {
        let log = std::fs::read_to_string(stage.log.path())?;
        Ok(log.matches("cannot accept connections now").count())
    };
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(told()?, 1, "once, however often it is tried");
    // Those that say nothing are cut, and there is room again.
    let late = Raw::open(&stage.url).await?;
    let (spent, passed) = (stage.edge.processor_time()? - spent, clock.now().since(began));
    assert!(spent * 2 < passed, "{spent:?} of {passed:?}: it spins");
    assert!(told()? <= 5, "{} lines", told()?);
    drop((late, silent));
    stage.cleared().await
}
