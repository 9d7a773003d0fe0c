//! A core starts on a store that can keep leases, and says in one line why it does not start on another.
//! An older Redis than 7.0 is the only refusal without a server of its own: distributions have none; the
//! adapter's unit tests hold it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use presence_tests::certificates::Certificates;
use presence_tests::procs::{Keys, binary_path};
use presence_tests::redis::{Cluster, SentinelPair, Server, ServerOptions, Weather, free_port};

const WRONG: i32 = 64;
const LATER: i32 = 75;

struct Core {
    keys: Keys,
}

impl Core {
    fn new() -> anyhow::Result<Self> {
        Ok(Self { keys: Keys::generate()? })
    }

    fn command(&self, store: &str, more: &[&str]) -> anyhow::Result<Command> {
        let mut command = Command::new(binary_path("presence-core")?);
        command.args(["--grpc", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--jwks"]).arg(self.keys.jwks());
        command.args(["--store", store]).args(more);
        Ok(command)
    }

    async fn check(&self, store: &str, more: &[&str]) -> anyhow::Result<(i32, String)> {
        let mut command = self.command(store, more)?;
        let output: Output = tokio::task::spawn_blocking(move || command.arg("--check").output()).await??;
        let text = String::from_utf8(output.stderr)?;
        Ok((output.status.code().unwrap_or(-1), text))
    }

    async fn is_good(&self, store: &str, more: &[&str]) -> anyhow::Result<()> {
        let (code, text) = self.check(store, more).await?;
        anyhow::ensure!(code == 0, "{store}: {code}: {text}");
        Ok(())
    }

    /// Checked and started, it ends with that code and one line that holds that word.
    async fn is_refused(&self, store: &str, more: &[&str], (code, word): (i32, &str)) -> anyhow::Result<()> {
        let (checked, text) = self.check(store, more).await?;
        anyhow::ensure!(checked == code && text.contains(word), "{store}: {checked}: {text}");
        anyhow::ensure!(text.lines().count() == 1, "one line: {text}");
        if code == WRONG {
            let mut command = self.command(store, more)?;
            let output = tokio::task::spawn_blocking(move || command.output());
            let output = tokio::time::timeout(Duration::from_secs(20), output).await???;
            let text = String::from_utf8(output.stderr)?;
            anyhow::ensure!(output.status.code() == Some(WRONG) && text.contains(word), "started: {text}");
        }
        Ok(())
    }
}

/// Gone with the test, however that ends.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn url(server: &Server) -> String {
    format!("redis://{}", server.address())
}

fn file(folder: &Path, text: &str) -> anyhow::Result<String> {
    let path = folder.join("password");
    std::fs::write(&path, text)?;
    Ok(path.display().to_string())
}

#[tokio::test]
async fn every_topology_is_good() -> anyhow::Result<()> {
    let (core, options, weather) = (Core::new()?, ServerOptions::default(), Weather::default());
    let server = Server::start(options.clone()).await?;
    core.is_good(&url(&server), &[]).await?;
    let keys: Vec<String> = server.call(&["KEYS", "*"]).await?;
    assert_eq!(keys, [""; 0], "a check writes nothing");
    let pair = SentinelPair::start(&options, &weather, 2).await?;
    core.is_good(&format!("redis+sentinel://{}/presence", pair.sentinels().join(",")), &[]).await?;
    let unknown = format!("redis+sentinel://{}/somebody", pair.sentinels().join(","));
    core.is_refused(&unknown, &[], (LATER, "cannot be reached")).await?;
    let cluster = Cluster::start(&options, &weather, (3, false)).await?;
    core.is_good(&format!("redis+cluster://{}", cluster.addresses().join(",")), &[]).await?;
    let of_another_kind = [
        (format!("redis+cluster://{}", server.address()), "is for a Cluster"),
        (format!("redis+sentinel://{}/presence", server.address()), "is for Sentinels"),
        (format!("redis://{}", cluster.addresses()[0]), "redis+cluster://"),
        (format!("redis://{}", pair.sentinels()[0]), "redis+sentinel://"),
    ];
    for (store, word) in of_another_kind {
        core.is_refused(&store, &[], (WRONG, word)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_replica_is_refused() -> anyhow::Result<()> {
    let (core, server) = (Core::new()?, Server::start(ServerOptions::default()).await?);
    let nobody = free_port()?.to_string();
    let _: () = server.call(&["REPLICAOF", "127.0.0.1", &nobody]).await?;
    core.is_refused(&url(&server), &[], (WRONG, "replica")).await
}

#[tokio::test]
async fn an_evicting_policy_is_refused() -> anyhow::Result<()> {
    let options = ServerOptions::default().with(&["--maxmemory-policy", "allkeys-lru"]);
    let (core, server) = (Core::new()?, Server::start(options).await?);
    core.is_refused(&url(&server), &[], (WRONG, "noeviction")).await
}

#[tokio::test]
async fn other_shards_and_another_layout_are_refused() -> anyhow::Result<()> {
    let (core, server) = (Core::new()?, Server::start(ServerOptions::default()).await?);
    let _: () = server.call(&["HSET", "presence:meta", "layout", "1", "shards", "16"]).await?;
    core.is_good(&url(&server), &[]).await?;
    core.is_refused(&url(&server), &["--store-shards", "8"], (WRONG, "16 shards")).await?;
    core.is_good(&url(&server), &["--store-shards", "8", "--store-prefix", "other"]).await?;
    let _: () = server.call(&["HSET", "presence:meta", "layout", "99"]).await?;
    core.is_refused(&url(&server), &[], (WRONG, "layout 99")).await?;
    let _: () = server.call(&["SET", "presence:meta", "something"]).await?;
    core.is_refused(&url(&server), &[], (WRONG, "presence:meta")).await
}

/// A store that lost its data has lost how they are laid out: the core writes it again, and does not go on beside
/// one that was told otherwise and came first.
#[tokio::test]
async fn a_core_keeps_the_layout_of_its_data_and_ends_when_it_is_another() -> anyhow::Result<()> {
    let (core, server) = (Core::new()?, Server::start(ServerOptions::default()).await?);
    let mut command = core.command(&url(&server), &["--json"])?;
    let mut child = Ended(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?);
    let mut ready = BufReader::new(child.0.stdout.take().context("its output")?);
    tokio::task::spawn_blocking(move || ready.read_line(&mut String::new())).await??;
    let _: () = server.call(&["FLUSHALL"]).await?;
    let written = async {
        loop {
            let shards: Option<String> = server.call(&["HGET", "presence:meta", "shards"]).await?;
            match shards {
                Some(shards) => return anyhow::Ok(shards),
                None => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(20), written).await??, "16");
    let other = "redis.call('FLUSHALL') redis.call('HSET', 'presence:meta', 'layout', '1', 'shards', '8')";
    let _: () = server.call(&["EVAL", other, "0"]).await?;
    let mut said = child.0.stderr.take().context("its log")?;
    let ended = tokio::task::spawn_blocking(move || std::io::read_to_string(&mut said));
    let text = tokio::time::timeout(Duration::from_secs(30), ended).await???;
    assert_eq!(child.0.wait()?.code(), Some(WRONG), "{text}");
    assert!(text.contains("the store has 8 shards, and store.shards is 16"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_none_is_shown() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (core, options) = (Core::new()?, ServerOptions::default().with_password("open-sesame"));
    let server = Server::start(options).await?;
    let right = file(folder.path(), "open-sesame\n")?;
    core.is_good(&url(&server), &["--store-password-file", &right]).await?;
    core.is_refused(&url(&server), &[], (WRONG, "password")).await?;
    let nobody = ["--store-user", "nobody", "--store-password-file", &right];
    core.is_refused(&url(&server), &nobody, (WRONG, "store.user")).await?;
    let empty = file(folder.path(), "\n")?;
    core.is_refused(&url(&server), &["--store-password-file", &empty], (WRONG, "is empty")).await?;
    let wrong = file(folder.path(), "barley-word")?;
    let (code, text) = core.check(&url(&server), &["--store-password-file", &wrong]).await?;
    assert!(code == WRONG && text.contains("password"), "{code}: {text}");
    assert!(!text.contains("barley-word"), "{text}");
    let within = format!("redis://:hidden-word@{}", server.address());
    let (code, text) = core.check(&within, &[]).await?;
    assert!(code == WRONG && !text.contains("hidden-word"), "{code}: {text}");
    let mut shown = core.command(&within, &["--print-config"])?;
    let shown = String::from_utf8(shown.output()?.stdout)?;
    assert!(shown.contains("(hidden)") && !shown.contains("hidden-word"), "{shown}");
    Ok(())
}

#[tokio::test]
async fn a_missing_permission_is_refused() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (core, server) = (Core::new()?, Server::start(ServerOptions::default()).await?);
    let password = file(folder.path(), "pw")?;
    let user = ["--store-user", "presence", "--store-password-file", &password];
    let set = async |rules: &[&str]| {
        let start = ["ACL", "SETUSER", "presence", "reset", "on", ">pw", "~presence:*"];
        server.call::<()>(&[start.as_slice(), rules].concat()).await
    };
    set(&["+@all", "-@admin", "-@dangerous", "+info"]).await?;
    core.is_good(&url(&server), &user).await?;
    for missing in ["-info", "-time", "-zadd", "-evalsha", "-xread"] {
        set(&["+@all", missing]).await?;
        core.is_refused(&url(&server), &user, (WRONG, "permission")).await?;
    }
    // What scripts call half-way.
    set(&["+@all", "-xadd", "-srem", "+info"]).await?;
    core.is_refused(&url(&server), &user, (WRONG, "it may not run SREM, XADD")).await?;
    set(&["+@all", "-del", "+info"]).await?;
    core.is_refused(&url(&server), &user, (WRONG, "it may not run DEL")).await?;
    set(&["+@all", "resetkeys", "~other:*"]).await?;
    core.is_refused(&url(&server), &user, (WRONG, "permission")).await
}

#[tokio::test]
async fn tls_is_spoken_by_both_or_refused() -> anyhow::Result<()> {
    let (core, ours, theirs, port) = (Core::new()?, Certificates::new()?, Certificates::new()?, free_port()?);
    let tls = Server::start_on(port, ours.server(port)?, &[]).await?;
    let plain = Server::start(ServerOptions::default()).await?;
    let path = |path: &Path| path.display().to_string();
    let client = ours.sign("core")?;
    let (ca, other_ca) = (path(&ours.authority()), path(&theirs.authority()));
    let identity = [path(&client.certificate), path(&client.key)];
    let identity = ["--store-cert-file", &identity[0], "--store-key-file", &identity[1]];
    let secure = format!("rediss://{}", tls.address());
    let with = |ca| [["--store-ca-file", ca].as_slice(), &identity].concat();
    core.is_good(&secure, &with(&ca)).await?;
    core.is_refused(&secure, &with(&other_ca), (WRONG, "TLS")).await?;
    core.is_refused(&secure, &["--store-ca-file", &ca], (WRONG, "TLS")).await?;
    core.is_refused(&secure, &[], (WRONG, "TLS")).await?;
    core.is_refused(&url(&tls), &[], (WRONG, "TLS")).await?;
    let not_there = format!("rediss://{}", plain.address());
    core.is_refused(&not_there, &["--store-ca-file", &ca], (WRONG, "TLS")).await
}

#[tokio::test]
async fn a_store_that_is_not_there_yet_is_waited_for() -> anyhow::Result<()> {
    let (core, port) = (Core::new()?, free_port()?);
    let store = format!("redis://127.0.0.1:{port}");
    core.is_refused(&store, &[], (LATER, &format!("cannot be reached: 127.0.0.1:{port}: "))).await?;
    let mut child =
        core.command(&store, &["--json"])?.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let warned = tokio::task::spawn_blocking(move || {
        let mut lines = BufReader::new(stderr.expect("it is piped")).lines();
        let has_warned =
            lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("trying again"))).is_some();
        // Whoever stops listening to a process ends it with its next line.
        (has_warned, lines)
    });
    let warned = tokio::time::timeout(Duration::from_secs(20), warned).await;
    let server = Server::start_on(port, ServerOptions::default(), &[]).await?;
    let started = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        BufReader::new(stdout.expect("it is piped")).read_line(&mut line).map(|_| line)
    });
    let started = tokio::time::timeout(Duration::from_secs(20), started).await;
    let meta: Vec<String> = server.call(&["HGETALL", "presence:meta"]).await?;
    child.kill()?;
    child.wait()?;
    assert!(warned??.0, "it says that it waits");
    assert!(started???.contains("grpc"), "and starts");
    assert!(meta.contains(&"layout".to_owned()) && meta.contains(&"16".to_owned()), "{meta:?}");
    Ok(())
}
