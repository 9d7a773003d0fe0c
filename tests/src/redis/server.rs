//! One `redis-server` in a folder of its own, gone when dropped.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use redis::aio::MultiplexedConnection;
use redis::{Client, FromRedisValue};
use tempfile::TempDir;

use super::FakeClock;

/// A server that is not there by then never will be; loading and a busy machine included.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// A server that still runs so long after it was told to end hangs.
const ENDED_WITHIN: Duration = Duration::from_secs(20);
/// Between two looks at something that is about to happen.
const LOOK_EVERY: Duration = Duration::from_millis(15);
/// A port may be taken by somebody else between looking and listening.
pub(super) const PORTS_TRIED_MAX: usize = 5;

/// How a server is started.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// More arguments, as on its command line.
    pub arguments: Vec<String>,
    /// Its clock, if it is not the machine's.
    pub clock: Option<FakeClock>,
    /// Whether it answers on TLS only: then it is reached as these arguments say, and never asked itself.
    pub is_tls: bool,
    /// The password of the default user, if it has one.
    pub password: Option<String>,
}

impl ServerOptions {
    /// With these arguments more: `--maxmemory-policy allkeys-lru`.
    #[must_use]
    pub fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    /// Keeps every write in an append-only file that is flushed once a second.
    #[must_use]
    pub fn append_only(self) -> Self {
        self.with(&["--appendonly", "yes", "--appendfsync", "everysec"])
    }

    /// On this clock.
    #[must_use]
    pub fn on(mut self, clock: &FakeClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Asks everybody for this password.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.with(&["--requirepass", password])
    }
}

/// What a restart leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// Saved on the way down, and loaded again.
    Saved,
    /// Killed: what was on disk is loaded again.
    OnDisk,
    /// Nothing.
    Gone,
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    binary: &'static str,
    port: u16,
    folder: TempDir,
    options: ServerOptions,
}

/// A port that nobody listens on just now.
///
/// # Errors
/// When the system has none.
pub fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Server {
    /// Starts a server without persistence unless the options say otherwise.
    ///
    /// # Errors
    /// When `redis-server` is not installed or does not come up.
    pub async fn start(options: ServerOptions) -> anyhow::Result<Self> {
        for _ in 1..PORTS_TRIED_MAX {
            if let Ok(server) = Self::start_on(free_port()?, options.clone(), &[]).await {
                return Ok(server);
            }
        }
        Self::start_on(free_port()?, options, &[]).await
    }

    /// Starts a server on that port, with files in its folder before it looks.
    ///
    /// # Errors
    /// When `redis-server` is not installed or does not come up.
    pub async fn start_on(port: u16, options: ServerOptions, files: &[(&str, &str)]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text)?;
        }
        let child =
            spawn("redis-server", &arguments(port, folder.path(), &options), folder.path(), &options)?;
        let mut server = Self { child, binary: "redis-server", port, folder, options };
        server.ready().await?;
        Ok(server)
    }

    /// Starts a Sentinel with this configuration; `is_tls`: on TLS only.
    ///
    /// # Errors
    /// When `redis-sentinel` is not installed or does not come up.
    pub async fn start_sentinel(port: u16, configuration: &str, is_tls: bool) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("sentinel.conf");
        std::fs::write(&file, configuration)?;
        let options = ServerOptions { is_tls, ..ServerOptions::default() };
        let arguments = vec![file.display().to_string(), "--sentinel".to_owned()];
        let child = spawn("redis-sentinel", &arguments, folder.path(), &options)?;
        let mut server = Self { child, binary: "redis-sentinel", port, folder, options };
        server.ready().await?;
        Ok(server)
    }

    /// Its port on the loopback address.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A connection to it, past every proxy.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn connection(&self) -> anyhow::Result<MultiplexedConnection> {
        let password = self.options.password.as_ref().map(|password| format!(":{password}@"));
        let url = format!("redis://{}{}/", password.unwrap_or_default(), self.address());
        let config = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(READY_WITHIN))
            .set_response_timeout(Some(READY_WITHIN));
        Ok(Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?)
    }

    /// Sends one command: `call(&["CONFIG", "SET", "maxmemory", "1mb"])`.
    ///
    /// # Errors
    /// When it does not answer, or answers with an error.
    pub async fn call<T: FromRedisValue>(&self, command: &[&str]) -> anyhow::Result<T> {
        let (name, arguments) = command.split_first().context("a command has a name")?;
        let answer = redis::cmd(name).arg(arguments).query_async(&mut self.connection().await?).await;
        answer.with_context(|| format!("{} {command:?}", self.address()))
    }

    /// Calls a command as one who was sent here by another node of a Cluster.
    ///
    /// # Errors
    /// When it does not answer, or with an error.
    pub async fn call_sent_on<T: FromRedisValue>(&self, command: &[&str]) -> anyhow::Result<T> {
        let (name, arguments) = command.split_first().context("a command has a name")?;
        let mut connection = self.connection().await?;
        redis::cmd("ASKING").query_async::<()>(&mut connection).await?;
        let answer = redis::cmd(name).arg(arguments).query_async(&mut connection).await;
        answer.with_context(|| format!("{} {command:?}", self.address()))
    }

    /// One field of `INFO`.
    ///
    /// # Errors
    /// When it does not answer, or has no such field.
    pub async fn info(&self, section: &str, field: &str) -> anyhow::Result<String> {
        let text: String = self.call(&["INFO", section]).await?;
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(line.with_context(|| format!("no {field} in {text}"))?.to_owned())
    }

    /// Sends a signal by name: `KILL`, `STOP`, `CONT`, `TERM`.
    ///
    /// # Errors
    /// When it is gone.
    pub fn signal(&self, name: &str) -> anyhow::Result<()> {
        let sent = Command::new("kill").args(["-s", name, &self.id().to_string()]).status()?;
        ensure!(sent.success(), "kill -s {name} failed");
        Ok(())
    }

    /// Kills it, as a machine that loses power does, and leaves its folder.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Ends it if it runs, and starts it again on its port: a new run id.
    ///
    /// # Errors
    /// When it does not end or does not come up.
    pub async fn restart(&mut self, data: Data) -> anyhow::Result<()> {
        match data {
            Data::Saved => {
                // Its answer is that the connection ends.
                let _ = self.call::<redis::Value>(&["SHUTDOWN", "SAVE"]).await;
                let ended = async {
                    while self.child.try_wait()?.is_none() {
                        tokio::time::sleep(LOOK_EVERY).await;
                    }
                    anyhow::Ok(())
                };
                tokio::time::timeout(ENDED_WITHIN, ended).await.context("it does not end")??;
            }
            Data::OnDisk => self.kill()?,
            Data::Gone => {
                self.kill()?;
                forget(self.folder.path())?;
            }
        }
        self.start_again().await
    }

    /// Starts it again after it was killed, with what is in its folder.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_again(&mut self) -> anyhow::Result<()> {
        ensure!(self.binary == "redis-server", "a Sentinel is not started again");
        let arguments = arguments(self.port, self.folder.path(), &self.options);
        for _ in 1..PORTS_TRIED_MAX {
            self.child = spawn(self.binary, &arguments, self.folder.path(), &self.options)?;
            if self.ready().await.is_ok() {
                return Ok(());
            }
            // A connection of somebody else leaves from its port just now.
            tokio::time::sleep(LOOK_EVERY * 20).await;
        }
        self.child = spawn(self.binary, &arguments, self.folder.path(), &self.options)?;
        self.ready().await
    }

    /// Waits until it answers and has loaded its data.
    async fn ready(&mut self) -> anyhow::Result<()> {
        let ready = async {
            loop {
                if let Some(status) = self.child.try_wait()? {
                    bail!("it ended with {status}: {}", self.log());
                }
                if self.is_ready().await {
                    return Ok(());
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        match tokio::time::timeout(READY_WITHIN, ready).await {
            Ok(result) => result,
            Err(_) => bail!("{} is not ready after {READY_WITHIN:?}: {}", self.address(), self.log()),
        }
    }

    async fn is_ready(&self) -> bool {
        if self.options.is_tls {
            let address = std::net::SocketAddr::from(([127, 0, 0, 1], self.port));
            return std::net::TcpStream::connect_timeout(&address, LOOK_EVERY).is_ok();
        }
        self.call::<String>(&["PING"]).await.is_ok()
    }

    /// The end of what it logged.
    #[must_use]
    pub fn log(&self) -> String {
        let text = std::fs::read_to_string(log_file(self.folder.path())).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn arguments(port: u16, folder: &Path, options: &ServerOptions) -> Vec<String> {
    let port = if options.is_tls { 0 } else { port }.to_string();
    let folder = folder.display().to_string();
    let fixed = [
        ["--port", &port],
        ["--bind", "127.0.0.1"],
        ["--dir", &folder],
        ["--save", ""],
        ["--enable-debug-command", "yes"],
        // A replica has its copy at once.
        ["--repl-diskless-sync-delay", "0"],
    ];
    fixed.iter().flatten().map(|argument| (*argument).to_owned()).chain(options.arguments.clone()).collect()
}

fn spawn(
    binary: &'static str,
    arguments: &[String],
    folder: &Path,
    options: &ServerOptions,
) -> anyhow::Result<Child> {
    let log = std::fs::File::options().create(true).append(true).open(log_file(folder))?;
    let mut command = Command::new(binary);
    command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    if let Some(clock) = &options.clock {
        clock.give_to(&mut command);
    }
    command.spawn().with_context(|| format!("{binary} cannot be started: apt-get install {binary}"))
}

fn log_file(folder: &Path) -> PathBuf {
    folder.join("server.log")
}

/// Removes data; who is who in a Cluster stays.
fn forget(folder: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            std::fs::remove_dir_all(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "rdb") {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}
