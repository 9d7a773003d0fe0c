//! Somebody who watches many rooms over one edge, and forgets nothing of what was shown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use presence_model::claim::Action;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Client, Keys};

/// Rooms of one connection: an edge takes 64.
const ROOMS_MAX: usize = 60;

/// What was shown.
#[derive(Debug, Clone, Default)]
pub struct Sight {
    /// Who is there, by room.
    pub members: BTreeMap<String, BTreeSet<String>>,
    /// Departures: user and reason.
    pub departures: Vec<(String, String)>,
    /// Users who were named more than once in one list.
    pub twice: Vec<String>,
    /// Times a room was said to be held or stale.
    pub not_live: usize,
    /// Snapshots after the first of each room.
    pub snapshots: usize,
}

impl Sight {
    /// How many are there, over all rooms.
    #[must_use]
    pub fn count(&self) -> usize {
        self.members.values().map(BTreeSet::len).sum()
    }

    fn take(&mut self, frame: &Value) {
        let room = frame["room"].as_str().unwrap_or_default().to_owned();
        let user = |entry: &Value| entry["user"].as_str().unwrap_or_default().to_owned();
        let list = |list: &Value| -> Vec<Value> { list.as_array().cloned().unwrap_or_default() };
        match frame["t"].as_str() {
            Some("snapshot") => {
                let listed: Vec<String> = list(&frame["members"]).iter().map(user).collect();
                let now: BTreeSet<String> = listed.iter().cloned().collect();
                if now.len() < listed.len() {
                    self.twice.extend(listed);
                }
                let before = self.members.insert(room, now.clone());
                self.snapshots += usize::from(before.is_some());
                let gone = before.unwrap_or_default();
                self.departures.extend(gone.difference(&now).map(|user| (user.clone(), "not listed".into())));
            }
            Some("delta") => {
                let members = self.members.entry(room).or_default();
                members.extend(list(&frame["upserts"]).iter().map(user));
                for gone in list(&frame["removals"]) {
                    if members.remove(&user(&gone)) {
                        self.departures.push((user(&gone), gone["reason"].to_string()));
                    }
                }
            }
            Some("freshness") => self.not_live += usize::from(frame["state"] != "live"),
            Some(_) | None => {}
        }
    }
}

/// Watches rooms until dropped.
pub struct Observer {
    sight: Arc<Mutex<Sight>>,
    tasks: Vec<JoinHandle<anyhow::Result<()>>>,
}

impl Observer {
    /// Starts to watch these rooms over an edge.
    ///
    /// # Errors
    /// When the edge refuses.
    pub async fn start(url: &str, keys: &Keys, rooms: &[String]) -> anyhow::Result<Self> {
        let mut this = Self { sight: Arc::default(), tasks: Vec::new() };
        for rooms in rooms.chunks(ROOMS_MAX) {
            let mut client = Client::connect(url).await?;
            for room in rooms {
                let token = keys.token("observer", room, Action::Watch)?;
                client.send(&json!({ "t": "watch", "room": room, "token": token })).await?;
            }
            let sight = Arc::clone(&this.sight);
            this.tasks.push(tokio::spawn(async move {
                loop {
                    let frame = client.frame().await?;
                    lock(&sight).take(&frame);
                }
            }));
        }
        Ok(this)
    }

    /// What was shown so far.
    #[must_use]
    pub fn sight(&self) -> Sight {
        lock(&self.sight).clone()
    }

    /// Waits until so many are there.
    ///
    /// # Errors
    /// When they are not within the time, or the edge has ended the connection.
    pub async fn until(&self, count: usize, within: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + within;
        loop {
            let seen = lock(&self.sight).count();
            if seen == count {
                return Ok(());
            }
            let ended = self.tasks.iter().any(JoinHandle::is_finished);
            anyhow::ensure!(!ended, "the observer was cut off");
            anyhow::ensure!(Instant::now() < end, "after {within:?}: {seen} of {count}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn lock(sight: &Mutex<Sight>) -> MutexGuard<'_, Sight> {
    sight.lock().expect("nobody panics with this lock")
}
