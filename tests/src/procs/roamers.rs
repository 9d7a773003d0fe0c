//! Clients that come back: sent away, closed or cut off, each comes in elsewhere as a good client does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::Context as _;
use presence_model::claim::Action;
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::{Client, Keys};
use crate::fleet::Person;

/// Clients that come for the first time at once: more only wait in the kernel.
const COMING_MAX: usize = 64;
/// An attempt that takes longer has failed.
const TRY_WITHIN: Duration = Duration::from_secs(10);
/// Ceiling of the wait between two attempts.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// What has happened so far, over all clients.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// In a room now.
    pub inside: usize,
    /// Came in elsewhere while the old socket was still open.
    pub moved: usize,
    /// Came back after the socket was gone.
    pub returned: usize,
    /// Answered by one delta when they came back.
    pub resumed: usize,
    /// Answered by a snapshot when they came back.
    pub snapshots: usize,
    /// Attempts to come in that failed.
    pub failures: usize,
    /// Departures that the clients were shown.
    pub departures: Vec<(String, String)>,
    /// The longest hint that was given.
    pub longest_hint: Duration,
    /// When somebody came back last.
    pub last_back: Option<Instant>,
}

impl Tally {
    fn in_short(&self) -> String {
        let Self { inside, moved, returned, resumed, snapshots, failures, departures, .. } = self;
        let departures = departures.len();
        format!(
            "{inside} inside, {moved} moved, {returned} returned, {resumed} resumed, {snapshots} snapshots, \
             {failures} failures, {departures} departures"
        )
    }
}

struct Shared {
    keys: Arc<Keys>,
    /// Edges that take newcomers.
    doors: Mutex<Vec<String>>,
    tally: Mutex<Tally>,
    cut: watch::Sender<u64>,
    coming: Semaphore,
}

/// Clients in one process; gone when dropped.
pub struct Roamers {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

impl Roamers {
    /// Nobody yet; whoever comes, comes to one of these edges.
    #[must_use]
    pub fn new(keys: Arc<Keys>, doors: Vec<String>) -> Self {
        let shared = Shared {
            keys,
            doors: Mutex::new(doors),
            tally: Mutex::default(),
            cut: watch::Sender::new(0),
            coming: Semaphore::new(COMING_MAX),
        };
        Self { shared: Arc::new(shared), tasks: JoinSet::new() }
    }

    /// Brings people in, and waits for all of them.
    ///
    /// # Errors
    /// When they are not all in within the time.
    pub async fn come(&mut self, people: Vec<Person>, within: Duration) -> anyhow::Result<()> {
        let wanted = self.tally().inside + people.len();
        for person in people {
            self.tasks.spawn(roam(Arc::clone(&self.shared), person));
        }
        self.until(within, |tally| tally.inside == wanted).await
    }

    /// These are the edges that take newcomers from here on.
    pub fn set_doors(&self, doors: Vec<String>) {
        *lock(&self.shared.doors) = doors;
    }

    /// Cuts every connection at once; each comes back after a part of what the edge's hello told.
    pub fn cut_all(&self) {
        lock(&self.shared.tally).inside = 0;
        self.shared.cut.send_modify(|storm| *storm += 1);
    }

    /// What has happened so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        lock(&self.shared.tally).clone()
    }

    /// Waits until something is true.
    ///
    /// # Errors
    /// When it is not within the time.
    pub async fn until(&self, within: Duration, is_so: impl Fn(&Tally) -> bool) -> anyhow::Result<()> {
        let end = Instant::now() + within;
        while !is_so(&lock(&self.shared.tally)) {
            anyhow::ensure!(Instant::now() < end, "after {within:?}: {}", self.tally().in_short());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().expect("nobody panics with this lock")
}

/// A connection that is in, read by a task of its own: a frame must not be left half read.
struct Seat {
    at: String,
    reconnect: Duration,
    /// Hints; ends with the connection.
    hints: mpsc::UnboundedReceiver<Duration>,
    cursor: watch::Receiver<Option<String>>,
    /// Told that another connection has taken over: nobody else has this session.
    superseded: Arc<AtomicBool>,
    reader: JoinHandle<()>,
}

impl Seat {
    /// It was open until its client was in elsewhere.
    fn has_served(&self) -> bool {
        self.superseded.load(Ordering::SeqCst) || !self.reader.is_finished()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// What ends a seat.
enum End {
    Sent(Duration),
    Closed,
    Cut,
}

async fn roam(shared: Arc<Shared>, person: Person) {
    let mut cut = shared.cut.subscribe();
    let mut generation = 0;
    let mut seat = {
        let _place = shared.coming.acquire().await.expect("never closed");
        shared.come_in(&person, &mut generation, None).await
    };
    lock(&shared.tally).inside += 1;
    loop {
        let end = tokio::select! {
            biased;
            _ = cut.changed() => End::Cut,
            hint = seat.hints.recv() => hint.map_or(End::Closed, End::Sent),
        };
        let was = (seat.at.clone(), seat.cursor.borrow().clone());
        match end {
            End::Sent(after) => {
                tokio::time::sleep(after).await;
                let was = (seat.at.clone(), seat.cursor.borrow().clone());
                let next = shared.come_in(&person, &mut generation, Some(was)).await;
                shared.back(seat.has_served());
                seat = next;
            }
            End::Closed => {
                lock(&shared.tally).inside -= 1;
                seat = shared.come_back(&person, &mut generation, seat.reconnect, was).await;
            }
            End::Cut => {
                let reconnect = seat.reconnect;
                drop(seat);
                seat = shared.come_back(&person, &mut generation, reconnect, was).await;
            }
        }
    }
}

impl Shared {
    /// The connection is gone: waits for a part of what hello told, then comes in.
    async fn come_back(
        self: &Arc<Self>,
        person: &Person,
        generation: &mut u64,
        reconnect: Duration,
        was: (String, Option<String>),
    ) -> Seat {
        let part = rand::rng().random_range(0.0..1.0);
        tokio::time::sleep(reconnect.mul_f64(part)).await;
        let seat = self.come_in(person, generation, Some(was)).await;
        lock(&self.tally).inside += 1;
        self.back(false);
        seat
    }

    fn back(&self, was_open: bool) {
        let mut tally = lock(&self.tally);
        tally.moved += usize::from(was_open);
        tally.returned += usize::from(!was_open);
        tally.last_back = Some(Instant::now());
    }

    /// Tries until it is in.
    async fn come_in(
        self: &Arc<Self>,
        person: &Person,
        generation: &mut u64,
        was: Option<(String, Option<String>)>,
    ) -> Seat {
        let mut ceiling = Duration::from_millis(250);
        loop {
            *generation += 1;
            let attempt = self.try_in(person, *generation, was.clone());
            if let Ok(Ok(seat)) = tokio::time::timeout(TRY_WITHIN, attempt).await {
                return seat;
            }
            lock(&self.tally).failures += 1;
            let wait = ceiling.mul_f64(rand::rng().random_range(0.0..1.0));
            tokio::time::sleep(wait).await;
            ceiling = (ceiling * 2).min(WAIT_MAX);
        }
    }

    async fn try_in(
        self: &Arc<Self>,
        person: &Person,
        generation: u64,
        was: Option<(String, Option<String>)>,
    ) -> anyhow::Result<Seat> {
        let door = lock(&self.doors).choose(&mut rand::rng()).cloned().context("no edge takes anybody")?;
        let token = self.keys.token(&person.user, &person.room, Action::Join)?;
        let mut client = Client::connect(&door).await?;
        let (_, cursor) = was.unwrap_or_default();
        client.cursor.clone_from(&cursor);
        let reconnect = client.hello["reconnect_ms"].as_u64().context("hello tells when to come back")?;
        let session = format!("session-of-{:0>20}", person.user);
        client.join(&person.room, &token, &session, generation).await?;
        let (hinted, hints) = mpsc::unbounded_channel();
        let (told, latest) = watch::channel(cursor.clone());
        let superseded = Arc::new(AtomicBool::new(false));
        let reading = Reading {
            shared: Arc::clone(self),
            hinted,
            told,
            returns: cursor.is_some(),
            superseded: Arc::clone(&superseded),
        };
        let reader = tokio::spawn(reading.run(client));
        let reconnect = Duration::from_millis(reconnect);
        Ok(Seat { at: door, reconnect, hints, cursor: latest, superseded, reader })
    }
}

struct Reading {
    shared: Arc<Shared>,
    hinted: mpsc::UnboundedSender<Duration>,
    told: watch::Sender<Option<String>>,
    /// Said where it was, and is not answered yet.
    returns: bool,
    superseded: Arc<AtomicBool>,
}

impl Reading {
    async fn run(mut self, mut client: Client) {
        while let Ok(frame) = client.next().await {
            self.take(&frame);
            if *self.told.borrow() != client.cursor {
                self.told.send_replace(client.cursor.clone());
            }
            let removals = std::mem::take(&mut client.removals);
            if !removals.is_empty() {
                lock(&self.shared.tally).departures.extend(removals);
            }
        }
    }

    fn take(&mut self, frame: &Value) {
        let kind = frame["t"].as_str().unwrap_or_default();
        match kind {
            "reconnect" => {
                let after = Duration::from_millis(frame["after_ms"].as_u64().unwrap_or_default());
                let mut tally = lock(&self.shared.tally);
                tally.longest_hint = tally.longest_hint.max(after);
                // Whoever held the other end has come in elsewhere.
                let _ = self.hinted.send(after);
            }
            "snapshot" | "delta" if std::mem::take(&mut self.returns) => {
                let mut tally = lock(&self.shared.tally);
                tally.resumed += usize::from(kind == "delta");
                tally.snapshots += usize::from(kind == "snapshot");
            }
            "ended" if frame["reason"] == "superseded" => self.superseded.store(true, Ordering::SeqCst),
            _ => {}
        }
    }
}
