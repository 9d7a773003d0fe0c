//! Whoever reads the log goes away: a process whose log cannot be written works on, and ends when told.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use presence_tests::procs::{Keys, binary_path};
use presence_tests::redis::free_port;

const WITHIN: Duration = Duration::from_secs(20);

struct Deaf(Child);

impl Drop for Deaf {
    fn drop(&mut self) {
        // It may be gone already, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Deaf {
    /// Starts a binary that logs much, into a pipe that nobody reads any more once it accepts.
    fn start(binary: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        let mut child = Command::new(binary_path(binary)?)
            .args(arguments)
            .args(["--json", "--log", "trace", "--admin", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (out, log) = (child.stdout.take(), child.stderr.take());
        let read = std::thread::spawn(move || log.map(|log| BufReader::new(log).lines().take(1).count()));
        let mut line = String::new();
        if let Some(out) = out {
            BufReader::new(out).read_line(&mut line)?;
        }
        anyhow::ensure!(line.contains("127.0.0.1"), "{binary} printed {line:?}");
        anyhow::ensure!(read.join().is_ok(), "the log was read");
        Ok(Self(child))
    }

    async fn ends_well(&mut self) -> anyhow::Result<()> {
        tokio::time::sleep(Duration::from_secs(2)).await;
        anyhow::ensure!(self.0.try_wait()?.is_none(), "it ended by itself");
        Command::new("kill").args(["-s", "TERM", &self.0.id().to_string()]).status()?;
        let end = tokio::time::Instant::now() + WITHIN;
        loop {
            if let Some(status) = self.0.try_wait()? {
                anyhow::ensure!(status.success(), "it ended with {status}");
                return Ok(());
            }
            anyhow::ensure!(tokio::time::Instant::now() < end, "it does not end");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_log_ends_nobody() -> anyhow::Result<()> {
    let keys = Keys::generate()?;
    let jwks = keys.jwks().display().to_string();
    let grpc = format!("127.0.0.1:{}", free_port()?);
    let mut core = Deaf::start("presence-core", &["--grpc", &grpc, "--jwks", &jwks])?;
    let address = format!("http://{grpc}");
    let arguments = ["--listen", "127.0.0.1:0", "--core", &address, "--jwks", &jwks];
    let mut edge = Deaf::start("presence-edge", &arguments)?;
    edge.ends_well().await?;
    core.ends_well().await
}
