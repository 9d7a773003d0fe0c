//! Many sessions over one link: a hand-made edge that joins, renews, answers what a core asks, and links
//! again elsewhere when its link breaks. It stands for tens of thousands of sockets.

mod seats;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::Context as _;
use presence_proto::v1;
use presence_proto::v1::join_result::Outcome;
use presence_proto::v1::link_request::Message as Up;
use presence_proto::v1::link_response::Message as Down;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use crate::procs::{Keys, Timers};

pub use seats::Person;
use seats::Seats;

/// Joins under way at once: a core answers a few hundred together as fast as one.
const JOINING_MAX: usize = 512;
/// A core that cannot be linked is left for the next after this long.
const LINK_WITHIN: Duration = Duration::from_secs(2);
/// Between two attempts to link.
const BACKOFF: Duration = Duration::from_millis(200);

/// What has happened to a fleet so far.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Sessions that hold a lease.
    pub live: usize,
    /// Joins that were refused for good, as told.
    pub refused: Vec<String>,
    /// Lease ids sent in batches.
    pub renewed: u64,
    /// Batches that were acknowledged.
    pub acknowledged: u64,
    /// Leases the store did not know; each is joined again.
    pub unknown: u64,
    /// Sessions ended by the core: user and reason.
    pub ended: Vec<(String, String)>,
    /// Links opened.
    pub links: u64,
    /// Joins that were told to come again.
    pub postponed: u64,
    /// The shortest and the longest span they were told.
    pub hints: (Duration, Duration),
}

impl Report {
    fn postpone(&mut self, wait: Duration) {
        let (shortest, longest) = self.hints;
        self.hints = if self.postponed == 0 { (wait, wait) } else { (shortest.min(wait), longest.max(wait)) };
        self.postponed += 1;
    }
}

enum Order {
    Join(Vec<Person>),
    Leave(Vec<String>),
    Silence(Vec<String>),
    Relink,
}

/// A running fleet; its link ends with it, as that of a dead process.
pub struct Fleet {
    orders: mpsc::UnboundedSender<Order>,
    report: Arc<Mutex<Report>>,
    task: tokio::task::JoinHandle<()>,
}

impl Fleet {
    /// Starts an edge without sessions. It links to the first of `cores`, and to the next when a link
    /// breaks.
    #[must_use]
    pub fn start(name: &str, cores: &[String], keys: Arc<Keys>, timers: Timers) -> Self {
        let (orders, told) = mpsc::unbounded_channel();
        let report = Arc::new(Mutex::new(Report::default()));
        let edge = Edge {
            name: name.to_owned(),
            incarnation: rand::random(),
            cores: cores.to_vec(),
            links: 0,
            seats: Seats::new(keys, timers),
            timers,
            report: Arc::clone(&report),
            requests: BTreeMap::new(),
            counter: 0,
        };
        Self { orders, report, task: tokio::spawn(edge.run(told)) }
    }

    /// Brings people in, and waits for all of them.
    ///
    /// # Errors
    /// When not all are in within the time.
    pub async fn join(&self, people: Vec<Person>, within: Duration) -> anyhow::Result<()> {
        let wanted = self.report().live + people.len();
        self.order(Order::Join(people))?;
        self.until(within, |report| report.live >= wanted || !report.refused.is_empty()).await?;
        let refused = self.report().refused;
        anyhow::ensure!(refused.is_empty(), "refused: {refused:?}");
        Ok(())
    }

    /// Says goodbye for these users.
    ///
    /// # Errors
    /// When the fleet has ended.
    pub fn leave(&self, users: Vec<String>) -> anyhow::Result<()> {
        self.order(Order::Leave(users))
    }

    /// Never speaks for these users again.
    ///
    /// # Errors
    /// When the fleet has ended.
    pub fn silence(&self, users: Vec<String>) -> anyhow::Result<()> {
        self.order(Order::Silence(users))
    }

    /// Links anew, to the next core.
    ///
    /// # Errors
    /// When the fleet has ended.
    pub fn relink(&self) -> anyhow::Result<()> {
        self.order(Order::Relink)
    }

    /// What has happened so far.
    #[must_use]
    pub fn report(&self) -> Report {
        lock(&self.report).clone()
    }

    /// Waits until something is true.
    ///
    /// # Errors
    /// When it is not within the time.
    pub async fn until(&self, within: Duration, is_so: impl Fn(&Report) -> bool) -> anyhow::Result<()> {
        let end = Instant::now() + within;
        while !is_so(&lock(&self.report)) {
            anyhow::ensure!(Instant::now() < end, "after {within:?}: {:?}", self.report());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    fn order(&self, order: Order) -> anyhow::Result<()> {
        self.orders.send(order).ok().context("the fleet has ended")
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(report: &Mutex<Report>) -> MutexGuard<'_, Report> {
    report.lock().expect("nobody panics with this lock")
}

struct Edge {
    name: String,
    incarnation: u64,
    cores: Vec<String>,
    links: u64,
    seats: Seats,
    timers: Timers,
    report: Arc<Mutex<Report>>,
    /// Joins under way: which seat.
    requests: BTreeMap<u64, usize>,
    counter: u64,
}

/// Why a link ended.
enum Ended {
    Broken,
    Over,
}

impl Edge {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        loop {
            match self.link(&mut orders).await {
                Ok(Ended::Over) => return,
                Ok(Ended::Broken) => {}
                Err(error) => tracing::debug!("{}: {error:#}", self.name),
            }
            tokio::time::sleep(BACKOFF).await;
        }
    }

    async fn link(&mut self, orders: &mut mpsc::UnboundedReceiver<Order>) -> anyhow::Result<Ended> {
        let position = usize::try_from(self.links)? % self.cores.len();
        self.links += 1;
        let endpoint = Endpoint::from_shared(format!("http://{}", self.cores[position]))?;
        let channel = endpoint.connect_timeout(LINK_WITHIN).connect().await?;
        let (up, said) = mpsc::channel(4_096);
        let hello = v1::Hello {
            edge: self.name.clone(),
            incarnation: self.incarnation,
            link_number: self.links,
            region: "local".into(),
            release: "test".into(),
        };
        up.send(request(Up::Hello(hello))).await?;
        let mut links =
            v1::edge_service_client::EdgeServiceClient::new(channel).max_decoding_message_size(64 << 20);
        let mut down = links.link(ReceiverStream::new(said)).await?.into_inner();
        self.requests.clear();
        self.seats.forget_joins();
        lock(&self.report).links += 1;
        let mut beat = interval(self.timers.heartbeat / 5);
        let mut flush = interval((self.timers.heartbeat / 10).min(Duration::from_secs(1)));
        flush.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut sequence = 0;
        loop {
            self.join_some(&up).await?;
            tokio::select! {
                _ = beat.tick() => {
                    sequence += 1;
                    up.send(request(Up::Beat(v1::EdgeBeat { sequence }))).await?;
                }
                _ = flush.tick() => {
                    let due = self.seats.due(Instant::now());
                    self.renew(&up, due).await?;
                }
                order = orders.recv() => match order {
                    None => return Ok(Ended::Over),
                    Some(Order::Join(people)) => self.seats.add(people),
                    Some(Order::Leave(users)) => self.leave(&up, &users).await?,
                    Some(Order::Silence(users)) => self.seats.silence(&users),
                    Some(Order::Relink) => return Ok(Ended::Broken),
                },
                message = down.message() => match message? {
                    None => return Ok(Ended::Broken),
                    Some(v1::LinkResponse { message: Some(Down::Drain(_)) }) => {
                        up.send(request(Up::Bye(v1::Bye { moving: true }))).await?;
                        return Ok(Ended::Broken);
                    }
                    Some(v1::LinkResponse { message: Some(message) }) => self.hear(&up, message).await?,
                    Some(_) => {}
                },
            }
            lock(&self.report).live = self.seats.live();
        }
    }

    async fn join_some(&mut self, up: &mpsc::Sender<v1::LinkRequest>) -> anyhow::Result<()> {
        while self.requests.len() < JOINING_MAX {
            let Some((seat, mut join)) = self.seats.next_join(Instant::now())? else { break };
            self.counter += 1;
            join.request = self.counter;
            self.requests.insert(self.counter, seat);
            up.send(request(Up::Join(join))).await?;
        }
        Ok(())
    }

    async fn renew(&mut self, up: &mpsc::Sender<v1::LinkRequest>, leases: Vec<u64>) -> anyhow::Result<()> {
        for portion in leases.chunks(4_096) {
            self.counter += 1;
            let renew = v1::Renew { batch: self.counter, leases: portion.to_vec() };
            up.send(request(Up::Renew(renew))).await?;
            lock(&self.report).renewed += portion.len() as u64;
        }
        Ok(())
    }

    async fn leave(&mut self, up: &mpsc::Sender<v1::LinkRequest>, users: &[String]) -> anyhow::Result<()> {
        for (lease, room, user) in self.seats.leave(users) {
            self.counter += 1;
            up.send(request(Up::Leave(v1::Leave { request: self.counter, lease, room, user, reason: 0 })))
                .await?;
        }
        Ok(())
    }

    async fn hear(&mut self, up: &mpsc::Sender<v1::LinkRequest>, message: Down) -> anyhow::Result<()> {
        match message {
            Down::Join(result) => {
                let Some(seat) = self.requests.remove(&result.request) else { return Ok(()) };
                match result.outcome {
                    Some(Outcome::Granted(granted)) => self.seats.granted(seat, &granted),
                    Some(Outcome::Refused(refused)) if refused.code() == v1::RefusalCode::Unavailable => {
                        let wait = Duration::from_millis(refused.retry_after_ms.max(50));
                        lock(&self.report).postpone(wait);
                        self.seats.later(seat, Instant::now() + wait);
                    }
                    other => {
                        self.seats.silence_seat(seat);
                        lock(&self.report).refused.push(format!("{other:?}"));
                    }
                }
            }
            Down::Renew(result) => {
                let unknown = self.seats.unknown(&result.unknown);
                let mut report = lock(&self.report);
                report.acknowledged += 1;
                report.unknown += unknown;
            }
            // Nothing is named that was not granted here.
            Down::Foreign(foreign) => lock(&self.report).refused.push(format!("{foreign:?}")),
            Down::RenewAll(_) => {
                let all = self.seats.all();
                self.renew(up, all).await?;
            }
            Down::EndLease(ended) => {
                let reason =
                    ended.reason().as_str_name().trim_start_matches("REMOVAL_REASON_").to_lowercase();
                if let Some(user) = self.seats.end(ended.lease) {
                    lock(&self.report).ended.push((user, reason));
                }
            }
            Down::Welcome(_)
            | Down::Beat(_)
            | Down::Done(_)
            | Down::Revoked(_)
            | Down::Drain(_)
            | Down::DrainEdge(_) => {}
        }
        Ok(())
    }
}

fn request(message: Up) -> v1::LinkRequest {
    v1::LinkRequest { message: Some(message) }
}
