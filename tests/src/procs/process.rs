//! Binaries of this workspace, started on ports the system picks and ended with whoever holds them.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use presence_model::claim::Action;
use presence_model::id::{RoomId, UserId};
use presence_model::time::StoreTime;
use presence_runtime::clock::Clock;
use presence_runtime::network::Network;
use presence_runtime::tokens::{GeneratedKeys, Grant, Issuer, JWKS_FILE, KEY_FILE, Scope, ScopedGrant};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::transport::Channel;

use super::kept;
use crate::redis::FakeClock;

/// Tokens of a test are good for so long.
const TOKEN_TTL: Duration = Duration::from_secs(600);

/// A key pair in a folder that goes with it.
pub struct Keys {
    folder: TempDir,
    issuer: Issuer,
}

impl Keys {
    /// A fresh pair.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn generate() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let keys = GeneratedKeys::from_seed(rand::random());
        keys.write(&folder.path().join("keys"))?;
        Ok(Self { issuer: Issuer::from_pem(keys.key_pem())?, folder })
    }

    /// Where the verifying half is.
    #[must_use]
    pub fn jwks(&self) -> PathBuf {
        self.folder.path().join("keys").join(JWKS_FILE)
    }

    /// Where the signing half is.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.folder.path().join("keys").join(KEY_FILE)
    }

    /// The id that its tokens name.
    #[must_use]
    pub fn key_id(&self) -> &str {
        self.issuer.key_id()
    }

    /// Whoever was given its verifying half verifies with those of these pairs from here on.
    ///
    /// # Errors
    /// When one cannot be read, or the file not written.
    pub fn verify_with(&self, pairs: &[&Pair]) -> anyhow::Result<()> {
        let keys: Vec<&Value> = pairs.iter().map(|pair| &pair.jwk).collect();
        // Renamed over the old one: a file that is read meanwhile is whole.
        let fresh = self.jwks().with_extension("fresh");
        std::fs::write(&fresh, json!({ "keys": keys }).to_string())?;
        Ok(std::fs::rename(fresh, self.jwks())?)
    }

    /// Its first key, as one among others.
    ///
    /// # Errors
    /// When its file cannot be read.
    pub fn pair(&self) -> anyhow::Result<Pair> {
        let set: Value = serde_json::from_slice(&std::fs::read(self.jwks())?)?;
        let issuer = Issuer::from_pem(&std::fs::read_to_string(self.key())?)?;
        Ok(Pair { issuer, jwk: set["keys"][0].clone() })
    }

    /// A token.
    ///
    /// # Errors
    /// When a name is out of bounds.
    pub fn token(&self, user: &str, room: &str, action: Action) -> anyhow::Result<String> {
        sign(&self.issuer, (user, room, action), (None, TOKEN_TTL), None)
    }

    /// A token that is good from now on for so long.
    ///
    /// # Errors
    /// When a name is out of bounds.
    pub fn token_for(&self, user: &str, room: &str, action: Action, ttl: Duration) -> anyhow::Result<String> {
        sign(&self.issuer, (user, room, action), (Some(now()), ttl), None)
    }

    /// A token of a service that is good from now on for so long.
    ///
    /// # Errors
    /// When a name is out of bounds.
    pub fn service_token(&self, scopes: &[Scope], rooms: &[&str], ttl: Duration) -> anyhow::Result<String> {
        let rooms = rooms.iter().map(|prefix| (*prefix).into()).collect();
        let grant = ScopedGrant {
            subject: "a-service".into(),
            scopes: scopes.to_vec(),
            rooms,
            ends: now() + ttl,
            token_id: None,
        };
        Ok(kept::token(self.issuer.sign_scoped(&grant)))
    }
}

/// One pair among several that are verified with.
pub struct Pair {
    issuer: Issuer,
    jwk: Value,
}

impl Pair {
    /// A fresh one.
    ///
    /// # Errors
    /// A defect: its own key is refused.
    pub fn generate() -> anyhow::Result<Self> {
        let keys = GeneratedKeys::from_seed(rand::random());
        let set: Value = serde_json::from_str(keys.jwks())?;
        Ok(Self { issuer: Issuer::from_pem(keys.key_pem())?, jwk: set["keys"][0].clone() })
    }

    /// The id that its tokens name.
    #[must_use]
    pub fn key_id(&self) -> &str {
        self.issuer.key_id()
    }

    /// A token with an id of its own, to join a room.
    ///
    /// # Errors
    /// When a name is out of bounds.
    pub fn token(&self, user: &str, room: &str, id: &str) -> anyhow::Result<String> {
        sign(&self.issuer, (user, room, Action::Join), (None, TOKEN_TTL), Some(id))
    }
}

fn sign(
    issuer: &Issuer,
    (user, room, action): (&str, &str, Action),
    (not_before, ttl): (Option<StoreTime>, Duration),
    id: Option<&str>,
) -> anyhow::Result<String> {
    let (user, room, ends) = (UserId::new(user)?, RoomId::new(room)?, now() + ttl);
    let grant = Grant { user, room, action, ends, not_before, token_id: id.map(Into::into) };
    Ok(kept::token(issuer.sign(&grant)))
}

fn now() -> StoreTime {
    StoreTime(Clock::system().wall_ms())
}

/// Timers given to the processes of a test.
#[derive(Debug, Clone, Copy)]
pub struct Timers {
    /// Heartbeat.
    pub heartbeat: Duration,
    /// Lease ttl.
    pub lease_ttl: Duration,
    /// Grace.
    pub grace: Duration,
    /// After how long an edge is lost.
    pub edge_lost: Duration,
}

impl Timers {
    /// Short, with room for a busy machine between them.
    pub const SHORT: Self = Self {
        heartbeat: Duration::from_secs(1),
        lease_ttl: Duration::from_secs(4),
        grace: Duration::from_secs(1),
        edge_lost: Duration::from_millis(1_300),
    };

    fn flags(&self) -> Vec<String> {
        [
            ("--heartbeat", self.heartbeat),
            ("--lease-ttl", self.lease_ttl),
            ("--grace", self.grace),
            ("--edge-lost", self.edge_lost),
        ]
        .into_iter()
        .flat_map(|(flag, span)| [flag.to_owned(), format!("{}ms", span.as_millis())])
        .collect()
    }
}

/// Where a binary of this workspace is.
///
/// # Errors
/// When it is not built.
pub fn binary_path(binary: &str) -> anyhow::Result<PathBuf> {
    // Binaries lie beside the folder of the test that is running.
    let folder = std::env::current_exe()?;
    let path = folder.ancestors().nth(2).context("no target folder")?.join(binary);
    anyhow::ensure!(path.exists(), "{} is not built: cargo build --release", path.display());
    Ok(path)
}

/// What a process is given beside its arguments.
#[derive(Default, Clone, Copy)]
struct Given<'a> {
    /// Its wall clock; none: that of the machine.
    clock: Option<&'a FakeClock>,
    /// Where its log goes; none: to that of the test.
    log_file: Option<&'a Path>,
}

/// Starts a binary; gives the first line it prints.
fn spawn(binary: &str, arguments: &[String], given: Given<'_>) -> anyhow::Result<(Process, String)> {
    let mut command = Command::new(binary_path(binary)?);
    if let Some(clock) = given.clock {
        clock.give_to(&mut command);
    }
    let kept = if given.log_file.is_none() { kept::place(binary) } else { None };
    if let Some(path) = given.log_file.or(kept.as_deref()) {
        command.stderr(std::fs::File::create(path)?);
    }
    let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let output = child.stdout.take();
    let log_file = given.log_file.map(Path::to_owned);
    let process = Process { binary: binary.to_owned(), child, log_file, addresses: Value::Null };
    BufReader::new(output.context("no output")?).read_line(&mut line)?;
    Ok((process, line))
}

/// Proportional set size of what a process has made (`Pss_Anon`): pages of its binary are shared with others of the same,
/// whose coming and going would show as well.
///
/// # Errors
/// When it is gone.
pub fn pss_bytes(process: u32) -> anyhow::Result<f64> {
    let rollup = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
    let line = rollup.lines().find(|line| line.starts_with("Pss_Anon:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)).map(str::parse::<f64>);
    Ok(kib.ok_or_else(|| anyhow::anyhow!("no Pss_Anon in {rollup}"))?? * 1024.0)
}

/// Idle clients in a process of their own; gone when dropped.
pub struct Crowd(Process);

impl Crowd {
    /// Connects and joins `count` clients, in rooms of ten.
    ///
    /// # Errors
    /// When not all have joined.
    pub fn start(edge: &Process, keys: &Keys, first: usize, count: usize) -> anyhow::Result<Self> {
        Self::start_trusting(None, edge, keys, (first, count))
    }

    /// The same, to an edge whose certificate was signed by that authority.
    ///
    /// # Errors
    /// When not all have joined.
    pub fn start_trusting(
        authority: Option<&Path>,
        edge: &Process,
        keys: &Keys,
        (first, count): (usize, usize),
    ) -> anyhow::Result<Self> {
        let key = keys.key().display().to_string();
        let mut arguments = vec![edge.address("ws"), key, first.to_string(), count.to_string()];
        arguments.extend(authority.map(|path| path.display().to_string()));
        let (process, line) = spawn("crowd", &arguments, Given::default())?;
        anyhow::ensure!(line.trim() == "ready", "the crowd said {line:?}");
        Ok(Self(process))
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

/// A running process; killed when dropped.
pub struct Process {
    binary: String,
    child: Child,
    /// Where its log goes, if a test wants it somewhere.
    log_file: Option<PathBuf>,
    /// The addresses it printed.
    pub addresses: Value,
}

impl Process {
    fn start(binary: &str, arguments: &[String], given: Given<'_>) -> anyhow::Result<Self> {
        let (mut process, line) = spawn(binary, arguments, given)?;
        process.addresses =
            serde_json::from_str(&line).with_context(|| format!("{binary} printed {line:?}"))?;
        Ok(process)
    }

    /// An address it printed.
    #[must_use]
    pub fn address(&self, name: &str) -> String {
        self.addresses[name].as_str().unwrap_or_default().to_owned()
    }

    /// A channel to its gRPC address.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn channel(&self) -> anyhow::Result<Channel> {
        Ok(Channel::from_shared(format!("http://{}", self.address("grpc")))?.connect().await?)
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Descriptors it has open.
    ///
    /// # Errors
    /// When it is gone.
    pub fn descriptors(&self) -> anyhow::Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.id()))?.count())
    }

    /// Processor time it has used so far.
    ///
    /// # Errors
    /// When it is gone.
    pub fn processor_time(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()))?;
        let rest = stat.rsplit(')').next().context("a name in parentheses")?;
        let times = rest.split_whitespace().skip(11).take(2);
        let ticks: u64 = times.map(|ticks| Ok(ticks.parse::<u64>()?)).sum::<anyhow::Result<_>>()?;
        Ok(Duration::from_millis(10 * ticks))
    }

    /// Lets it have so many descriptors at most from now on.
    ///
    /// # Errors
    /// When it is gone.
    pub fn limit_descriptors(&self, most: usize) -> anyhow::Result<()> {
        let limit = format!("--nofile={most}:{most}");
        let limited = Command::new("prlimit").args(["--pid", &self.id().to_string(), &limit]).status()?;
        anyhow::ensure!(limited.success(), "prlimit failed");
        Ok(())
    }

    /// The value of a series on its metrics page, written as it is there.
    ///
    /// # Errors
    /// When there is none, or no page.
    pub async fn metric(&self, series: &str) -> anyhow::Result<f64> {
        let mut page = Network::tcp().connect(&self.address("admin")).await?;
        page.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").await?;
        let mut text = String::new();
        page.read_to_string(&mut text).await?;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.with_context(|| format!("no {series}"))?.parse().context("no number")
    }

    /// Whether it says that it takes new work.
    ///
    /// # Errors
    /// When its admin page does not answer.
    pub async fn is_ready(&self) -> anyhow::Result<bool> {
        let mut page = Network::tcp().connect(&self.address("admin")).await?;
        page.write_all(b"GET /readyz HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").await?;
        let mut text = String::new();
        page.read_to_string(&mut text).await?;
        Ok(text.starts_with("HTTP/1.1 200"))
    }

    /// Sends a signal by name: `KILL`, `STOP`, `CONT`, `TERM`.
    ///
    /// # Errors
    /// When it is gone.
    pub fn signal(&self, name: &str) -> anyhow::Result<()> {
        let sent = Command::new("kill").args(["-s", name, &self.id().to_string()]).status()?;
        anyhow::ensure!(sent.success(), "kill -s {name} failed");
        Ok(())
    }

    /// Waits for its end, for `within` at most; its exit code, none if a signal ended it.
    ///
    /// # Errors
    /// When it is still there.
    pub async fn ended(&mut self, within: Duration) -> anyhow::Result<Option<i32>> {
        let clock = Clock::system();
        let end = clock.now() + within;
        while clock.now() < end {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::bail!("process {} is still there after {within:?}", self.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        kept::metrics(&self.binary, &self.address("admin"));
        // It may be gone already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(path) = &self.log_file {
            kept::log(&self.binary, path);
        }
    }
}

fn arguments(fixed: &[&str], timers: &Timers) -> Vec<String> {
    fixed.iter().map(|argument| (*argument).to_owned()).chain(timers.flags()).collect()
}

/// Starts a core on a port that the system picks.
///
/// # Errors
/// When it does not come up.
pub fn core(keys: &Keys, timers: &Timers) -> anyhow::Result<Process> {
    core_on("127.0.0.1:0", keys, timers)
}

/// Starts a core on that address.
///
/// # Errors
/// When it does not come up.
pub fn core_on(grpc: &str, keys: &Keys, timers: &Timers) -> anyhow::Result<Process> {
    core_with(&CoreOptions { grpc: Some(grpc.to_owned()), ..CoreOptions::default() }, keys, timers)
}

/// What a core of a test is told beside keys and timers.
#[derive(Debug, Clone, Default)]
pub struct CoreOptions {
    /// Where it accepts; none: a port that the system picks.
    pub grpc: Option<String>,
    /// Where it keeps leases; none: in memory.
    pub store: Option<String>,
    /// What is logged; none: warnings.
    pub log: Option<String>,
    /// Where its log goes; none: to the log of the test.
    pub log_file: Option<PathBuf>,
    /// Its wall clock; none: that of the machine.
    pub clock: Option<FakeClock>,
    /// Further flags.
    pub more: Vec<String>,
}

/// Starts a core.
///
/// # Errors
/// When it does not come up.
pub fn core_with(options: &CoreOptions, keys: &Keys, timers: &Timers) -> anyhow::Result<Process> {
    core_by(options, &[], keys, timers)
}

/// Starts a core that reads a file as well.
///
/// # Errors
/// When it does not come up.
pub fn core_with_file(
    options: &CoreOptions,
    file: &Path,
    keys: &Keys,
    timers: &Timers,
) -> anyhow::Result<Process> {
    core_by(options, &["--config", file.to_str().context("a path that is text")?], keys, timers)
}

fn core_by(options: &CoreOptions, more: &[&str], keys: &Keys, timers: &Timers) -> anyhow::Result<Process> {
    let jwks = keys.jwks();
    let jwks = jwks.to_str().context("a path that is text")?;
    let grpc = options.grpc.as_deref().unwrap_or("127.0.0.1:0");
    let store = options.store.as_deref().unwrap_or("memory");
    let fixed = [
        "--json",
        "--log",
        options.log.as_deref().unwrap_or("warn"),
        "--grpc",
        grpc,
        "--admin",
        "127.0.0.1:0",
        "--jwks",
        jwks,
        "--store",
        store,
    ];
    let given = Given { clock: options.clock.as_ref(), log_file: options.log_file.as_deref() };
    let mut arguments = arguments(&[&fixed, more].concat(), timers);
    arguments.extend(options.more.iter().cloned());
    Process::start("presence-core", &arguments, given)
}

/// What an edge of a test is told beside keys and timers.
#[derive(Debug, Clone, Default)]
pub struct EdgeOptions {
    /// gRPC addresses of its cores, or their URLs.
    pub cores: Vec<String>,
    /// What is logged; none: warnings.
    pub log: Option<String>,
    /// Where that goes; none: to the log of the test.
    pub log_file: Option<PathBuf>,
    /// Its wall clock; none: that of the machine.
    pub clock: Option<FakeClock>,
    /// Further flags.
    pub more: Vec<String>,
}

/// Starts an edge that links to a core.
///
/// # Errors
/// When it does not come up.
pub fn edge(name: &str, core: &Process, keys: &Keys, timers: &Timers) -> anyhow::Result<Process> {
    edge_with(
        name,
        &EdgeOptions { cores: vec![core.address("grpc")], ..EdgeOptions::default() },
        keys,
        timers,
    )
}

/// Starts an edge.
///
/// # Errors
/// When it does not come up.
pub fn edge_with(name: &str, options: &EdgeOptions, keys: &Keys, timers: &Timers) -> anyhow::Result<Process> {
    let jwks = keys.jwks();
    let jwks = jwks.to_str().context("a path that is text")?;
    let url = |core: &String| if core.contains("://") { core.clone() } else { format!("http://{core}") };
    let cores = options.cores.iter().map(url).collect::<Vec<_>>().join(",");
    let fixed = [
        "--json",
        "--log",
        options.log.as_deref().unwrap_or("warn"),
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--core",
        &cores,
        "--edge",
        name,
        "--jwks",
        jwks,
    ];
    let given = Given { clock: options.clock.as_ref(), log_file: options.log_file.as_deref() };
    let mut arguments = arguments(&fixed, timers);
    arguments.extend(options.more.iter().cloned());
    Process::start("presence-edge", &arguments, given)
}
