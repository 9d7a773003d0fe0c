//! A way to a server on which things happen: cut, slow, a lost command, a lost answer, writes refused.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use presence_model::time::Mono;
use presence_runtime::clock::Clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use super::wire;

/// What gets lost of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The command: it is never carried out.
    Command,
    /// The answer: it is carried out.
    Answer,
}

/// What happens on one or more proxies. A write is what [`Weather::is_write`] says.
#[derive(Debug, Clone)]
pub struct Weather(Arc<Conditions>);

#[derive(Debug)]
struct Conditions {
    now: Mutex<Now>,
    /// Whether nobody gets through; connections look at it all the time.
    cut: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Now {
    delay: Duration,
    lose_next: Option<Lost>,
    is_read_only: bool,
    mutation: Option<Mutation>,
    failed_script: Option<String>,
}

/// A deliberate fault in scripts: what is written in place of what, wherever it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mutation {
    /// What stands there.
    pub find: &'static str,
    /// What is to stand there.
    pub replace: &'static str,
}

impl Mutation {
    /// A command with its script as it is to be; none: it has no script with that in it.
    fn of(self, words: &[&[u8]]) -> Option<Vec<u8>> {
        let [name, script, rest @ ..] = words else { return None };
        if ![b"EVAL".as_slice(), b"EVAL_RO"].iter().any(|eval| eval.eq_ignore_ascii_case(name)) {
            return None;
        }
        let script = std::str::from_utf8(script).ok().filter(|script| script.contains(self.find))?;
        let script = script.replace(self.find, self.replace);
        Some(wire::command([*name, script.as_bytes()].into_iter().chain(rest.iter().copied())))
    }
}

impl Default for Weather {
    fn default() -> Self {
        Self(Arc::new(Conditions { now: Mutex::default(), cut: watch::Sender::new(false) }))
    }
}

impl Weather {
    /// Ends every connection, and every new one at once; or lets them through again.
    pub fn cut(&self, is_cut: bool) {
        self.0.cut.send_replace(is_cut);
    }

    /// Each command takes so long to arrive.
    pub fn delay(&self, delay: Duration) {
        self.lock().delay = delay;
    }

    /// Loses the next write, or its answer, and its connection. A write that is answered with `NOSCRIPT`
    /// was none: then it is the one after it.
    pub fn lose_next(&self, lost: Lost) {
        self.lock().lose_next = Some(lost);
    }

    /// Answers writes as a replica does.
    pub fn read_only(&self, is_read_only: bool) {
        self.lock().is_read_only = is_read_only;
    }

    /// Whether a command is one that these faults are about. Scripts that only read are asked for as such.
    #[must_use]
    pub fn is_write(name: &[u8]) -> bool {
        const WRITES: [&str; 12] = [
            "EVAL", "EVALSHA", "FCALL", "ZADD", "ZREM", "HSET", "HDEL", "XADD", "XTRIM", "SADD", "SREM",
            "DEL",
        ];
        WRITES.iter().any(|write| write.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Puts a fault into every script that is sent whole from now on. The server is to forget those that it
    /// knows; one that was changed is known to it by another hash, and so is always sent whole.
    pub fn mutate(&self, mutation: Mutation) {
        self.lock().mutation = Some(mutation);
    }

    /// What a server said of a script that does not compile or stopped in its midst, if there was one.
    #[must_use]
    pub fn failed_script(&self) -> Option<String> {
        self.lock().failed_script.clone()
    }

    fn note_failed_script(&self, answer: &[u8]) {
        // A script is not at fault for what a server refuses for its data, or for want of memory.
        const OF_DATA: [&str; 3] =
            ["-OOM", "-WRONGTYPE", "-ERR The ID specified in XADD is equal or smaller"];
        if answer.starts_with(b"-") {
            let answer = String::from_utf8_lossy(answer).into_owned();
            if answer.contains("user_script") && !OF_DATA.iter().any(|refusal| answer.starts_with(refusal)) {
                self.lock().failed_script = Some(answer);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.0.now.lock().expect("nobody panics with this lock")
    }
}

/// A listener on a port the system picked, in front of a server; gone when dropped. It has a thread of its
/// own, so that it works whatever the test does.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    target: watch::Sender<SocketAddr>,
    thread: Option<JoinHandle<()>>,
    ended: watch::Sender<bool>,
}

impl Proxy {
    /// Listens in front of a server on that loopback port.
    ///
    /// # Errors
    /// When the system has no port.
    pub fn start(server: u16, weather: &Weather) -> anyhow::Result<Self> {
        let listener = StdListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let target = watch::Sender::new(loopback(server));
        let ended = watch::Sender::new(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (weather, targets, mut end) = (weather.clone(), target.subscribe(), ended.subscribe());
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    // A proxy that cannot go on is seen by its clients.
                    _ = accept(listener, targets, weather) => {}
                    _ = end.wait_for(|is_over| *is_over) => {}
                }
            });
        });
        Ok(Self { port, target, thread: Some(thread), ended })
    }

    /// Its port on the loopback address.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        loopback(self.port).to_string()
    }

    /// Leads to another server from now on, and ends the connections to the one before.
    pub fn lead_to(&self, server: u16) {
        self.target.send_replace(loopback(server));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ended.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // It has no result, and a panic was printed.
            let _ = thread.join();
        }
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

async fn accept(
    listener: StdListener,
    targets: watch::Receiver<SocketAddr>,
    weather: Weather,
) -> anyhow::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (client, _) = listener.accept().await?;
        let (mut targets, weather) = (targets.clone(), weather.clone());
        tokio::spawn(async move {
            let mut cut = weather.0.cut.subscribe();
            let target = *targets.borrow_and_update();
            tokio::select! {
                biased;
                _ = cut.wait_for(|is_cut| *is_cut) => {}
                _ = targets.changed() => {}
                // Either side has ended, and so has the other.
                _ = relay(client, target, &weather) => {}
            }
        });
    }
}

/// What becomes of the answer that is next.
enum Answer {
    Pass,
    Lose,
    /// The server was never asked.
    Instead(&'static [u8]),
    /// From here on bytes are passed as they come: replication, subscriptions.
    Stream,
}

#[expect(clippy::disallowed_methods, reason = "a proxy of tests, not a listener of ours")]
async fn relay(client: TcpStream, target: SocketAddr, weather: &Weather) -> anyhow::Result<()> {
    let server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (answers, expected) = unbounded_channel();
    let (late, due) = unbounded_channel();
    tokio::select! {
        ended = commands(from_client, &late, &answers, weather) => ended,
        ended = arrive(due, to_server) => ended,
        ended = answer(from_server, to_client, expected, weather) => ended,
    }
}

async fn commands(
    mut client: OwnedReadHalf,
    late: &UnboundedSender<(Mono, Vec<u8>)>,
    answers: &UnboundedSender<Answer>,
    weather: &Weather,
) -> anyhow::Result<()> {
    let clock = Clock::system();
    let (mut buffer, mut is_stream) = (Vec::new(), false);
    loop {
        anyhow::ensure!(client.read_buf(&mut buffer).await? > 0, "the client has ended");
        while let Some(end) =
            if is_stream { Some(buffer.len()).filter(|n| *n > 0) } else { wire::frame(&buffer) }
        {
            let mut frame: Vec<u8> = buffer.drain(..end).collect();
            let (delay, lost, mutated) = {
                let mut now = weather.lock();
                let words = wire::words(&frame);
                let name = words.first().copied().unwrap_or_default();
                let is_write = !is_stream && Weather::is_write(name);
                if is_write && now.is_read_only {
                    answers.send(Answer::Instead(
                        b"-READONLY You can't write against a read only replica.\r\n",
                    ))?;
                    continue;
                }
                let lost = if is_write && !is_of_users(&words) { now.lose_next.take() } else { None };
                let streams: [&[u8]; 4] = [b"PSYNC", b"SYNC", b"SUBSCRIBE", b"PSUBSCRIBE"];
                if !is_stream && streams.iter().any(|stream| stream.eq_ignore_ascii_case(name)) {
                    is_stream = true;
                    answers.send(Answer::Stream)?;
                } else if !is_stream {
                    answers.send(if lost == Some(Lost::Answer) { Answer::Lose } else { Answer::Pass })?;
                }
                (now.delay, lost, now.mutation.and_then(|mutation| mutation.of(&words)))
            };
            frame = mutated.unwrap_or(frame);
            anyhow::ensure!(lost != Some(Lost::Command), "the command is lost, and so is its connection");
            late.send((clock.now() + delay, frame))?;
        }
    }
}

/// What is written of users, in front of a commit, is not what a case loses: that is the commit.
fn is_of_users(words: &[&[u8]]) -> bool {
    words.get(3).is_some_and(|key| key.windows(2).any(|two| two == b"{u"))
}

async fn arrive(
    mut due: UnboundedReceiver<(Mono, Vec<u8>)>,
    mut server: OwnedWriteHalf,
) -> anyhow::Result<()> {
    let clock = Clock::system();
    while let Some((at, frame)) = due.recv().await {
        clock.sleep_until(at).await;
        server.write_all(&frame).await?;
    }
    Ok(())
}

async fn answer(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    mut expected: UnboundedReceiver<Answer>,
    weather: &Weather,
) -> anyhow::Result<()> {
    let mut buffer = Vec::new();
    loop {
        // An end of the server is passed on while nothing is expected, too.
        let expected = tokio::select! {
            expected = expected.recv() => expected.context("the client has ended")?,
            read = server.read_buf(&mut buffer) => {
                anyhow::ensure!(read? > 0, "the server has ended");
                continue;
            }
        };
        let is_lost = match expected {
            Answer::Pass => false,
            Answer::Lose => true,
            Answer::Instead(answer) => {
                client.write_all(answer).await?;
                continue;
            }
            Answer::Stream => {
                client.write_all(&buffer).await?;
                tokio::io::copy(&mut server, &mut client).await?;
                return Ok(());
            }
        };
        let end = loop {
            if let Some(end) = wire::frame(&buffer) {
                break end;
            }
            anyhow::ensure!(server.read_buf(&mut buffer).await? > 0, "the server has ended");
        };
        let frame: Vec<u8> = buffer.drain(..end).collect();
        if is_lost {
            anyhow::ensure!(frame.starts_with(b"-NOSCRIPT"), "the answer is lost, and so is its connection");
            weather.lose_next(Lost::Answer);
        }
        weather.note_failed_script(&frame);
        client.write_all(&frame).await?;
    }
}
