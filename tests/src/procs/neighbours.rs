//! Two well-behaved clients on the edge under attack, one of whom watches the other all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use presence_model::claim::Action;
use presence_runtime::clock::Clock;
use serde_json::json;
use tokio::task::JoinHandle;

use super::{Client, Keys, Process};

/// Between two changes: below what one connection may say.
const EVERY: Duration = Duration::from_millis(60);
/// Nothing of anybody's is late by more than this on a machine that is busy with tests.
const LATE: Duration = Duration::from_secs(5);
const ROOM: &str = "neighbours";

/// What became of them.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Changes made and seen.
    pub changes: u64,
    /// The longest that one took.
    pub slowest: Duration,
}

/// The two, until they are asked how it was.
pub struct Neighbours {
    stop: Arc<AtomicBool>,
    task: JoinHandle<anyhow::Result<Seen>>,
}

impl Neighbours {
    /// Both come in.
    ///
    /// # Errors
    /// When they are not let in.
    pub async fn start(edge: &Process, keys: &Keys) -> anyhow::Result<Self> {
        let mut watcher = Client::connect(&edge.address("ws")).await?;
        watcher.watch(ROOM, &keys.token("watcher", ROOM, Action::Watch)?).await?;
        let mut mover = Client::connect(&edge.address("ws")).await?;
        let token = keys.token("mover", ROOM, Action::Join)?;
        mover
            .send(&json!({"t": "join", "room": ROOM, "token": token, "session": "session-of-mover",
            "generation": 1, "watch": false}))
            .await?;
        while mover.next().await?["t"] != "joined" {}
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(tend(watcher, mover, Arc::clone(&stop)));
        Ok(Self { stop, task })
    }

    /// How it was for them: every change was seen, in time, and nobody was seen to leave.
    ///
    /// # Errors
    /// When it was not so.
    pub async fn undisturbed(self) -> anyhow::Result<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        let seen = self.task.await?.context("the neighbours")?;
        anyhow::ensure!(seen.changes > 0, "they said nothing");
        Ok(seen)
    }
}

async fn tend(mut watcher: Client, mut mover: Client, stop: Arc<AtomicBool>) -> anyhow::Result<Seen> {
    let clock = Clock::system();
    let mut seen = Seen { changes: 0, slowest: Duration::ZERO };
    // One more change after everything else has happened.
    loop {
        let last = stop.load(Ordering::Relaxed);
        seen.changes += 1;
        mover.send(&json!({"t": "update", "room": ROOM, "state": seen.changes})).await?;
        let began = clock.now();
        let change = async {
            while watcher.members.get("mover").is_none_or(|mover| mover["state"] != seen.changes) {
                watcher.next().await?;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(LATE, change).await.context("a change is not seen")??;
        anyhow::ensure!(watcher.removals.is_empty(), "{:?}", watcher.removals);
        seen.slowest = seen.slowest.max(clock.now().since(began));
        if last {
            return Ok(seen);
        }
        // What the mover is sent it need not read: what it says is sign of life enough.
        tokio::time::sleep(EVERY).await;
    }
}
