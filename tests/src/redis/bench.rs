//! The Redis adapter over real servers, with a hand on everything around it: what the conformance suite
//! plays on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use presence_core::store::memory::{Index, Tampering};
use presence_core::store::redis::{RedisSettings, RedisStore, Topology};
use presence_core::store::{Command, LeaseStore, Outcome, Retention, StoreFault, shard_of, shard_of_user};
use presence_model::id::{Roster, UserId};
use presence_model::lease::Shard;
use tokio::sync::Mutex;

use super::{
    Cluster, Copy, Data, FakeClock, Lost, MASTER, Mutation, Proxy, SentinelPair, Server, ServerOptions,
    Weather,
};
use crate::conformance::{Fault, Harness};

/// Time is real: long against what a busy machine does between two steps.
const TTL: Duration = Duration::from_secs(3);
/// Long against the steps of a case, and waited for often.
const REMEMBERS: Duration = Duration::from_secs(4);
/// Shorter than what ended is remembered, as in production.
const LISTED: Duration = Duration::from_millis(800);
/// Fewer than in production: each is asked by every tail.
const SHARDS: u16 = 4;
/// No case loses more commits.
const COPIES_MAX: usize = 4;
/// Connections that were cut come back within it.
const BACK_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(30);

/// How the servers of a bench stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One server.
    Standalone,
    /// A master and its replica under a Sentinel.
    Sentinel,
    /// Three masters.
    Cluster,
}

enum Servers {
    One { server: Box<Server>, proxy: Proxy },
    Pair(Box<SentinelPair>),
    Cluster(Cluster),
}

/// A fresh store over servers of its own.
pub struct RedisBench {
    parts: Arc<Parts>,
    store: RedisStore,
    weather: Weather,
    clock: FakeClock,
    options: ServerOptions,
}

/// What the recorded store needs.
struct Parts {
    servers: Mutex<Servers>,
    /// What each server held before the latest commits, the oldest first.
    copies: Mutex<VecDeque<Vec<Copy>>>,
}

impl RedisBench {
    /// Starts servers and connects; every shard has an epoch and no hold.
    ///
    /// # Errors
    /// When anything does not come up.
    pub async fn start(shape: Shape) -> anyhow::Result<Self> {
        let (weather, clock) = (Weather::default(), FakeClock::new()?);
        let options = ServerOptions::default().on(&clock);
        let servers = match shape {
            Shape::Standalone => {
                let server = Box::new(Server::start(options.clone()).await?);
                let proxy = Proxy::start(server.port(), &weather)?;
                Servers::One { server, proxy }
            }
            Shape::Sentinel => Servers::Pair(Box::new(SentinelPair::start(&options, &weather, 1).await?)),
            Shape::Cluster => Servers::Cluster(Cluster::start(&options, &weather, (3, false)).await?),
        };
        let settings = RedisSettings {
            shards: SHARDS,
            retention: Retention {
                tombstones: REMEMBERS,
                rosters: REMEMBERS,
                history: REMEMBERS,
                seen: REMEMBERS,
                listing: LISTED,
                ..Retention::default()
            },
            ..RedisSettings::new(servers.topology(), rand::random())
        };
        let store = RedisStore::connect(settings).await?;
        for shard in (0..=u8::MAX).map(Shard).take(usize::from(SHARDS)) {
            settle(&store, shard).await?;
            let key = format!("presence:{{{shard}}}");
            let server = servers.owner(&key).await?;
            let (seconds, micros): (u64, u64) = server.call(&["TIME"]).await?;
            let now = (seconds * 1000 + micros / 1000).to_string();
            let turned =
                ["hold", "hold_cause", "holder", "turn", "started", "kept_until", "smallest_ttl", "gaps"];
            let _: () = server.call(&[["HDEL", &key].as_slice(), &turned].concat()).await?;
            let _: () = server.call(&["HSET", &key, "swept", &now, "unwatched", &now]).await?;
        }
        let parts = Arc::new(Parts { servers: Mutex::new(servers), copies: Mutex::default() });
        Ok(Self { parts, store, weather, clock, options })
    }

    /// One server whose scripts have a fault.
    ///
    /// # Errors
    /// When anything does not come up.
    pub async fn mutated(mutation: Mutation) -> anyhow::Result<Self> {
        let bench = Self::start(Shape::Standalone).await?;
        bench.weather.mutate(mutation);
        let servers = bench.parts.servers.lock().await;
        let _: String = servers.owner("any").await?.call(&["SCRIPT", "FLUSH"]).await?;
        drop(servers);
        Ok(bench)
    }

    /// What happens on the way to its servers.
    #[must_use]
    pub fn weather(&self) -> Weather {
        self.weather.clone()
    }

    async fn suffer(&self, fault: Fault) -> anyhow::Result<()> {
        match fault {
            Fault::Restart => self.restart(Data::Saved).await,
            Fault::RestartEmpty => self.restart(Data::Gone).await,
            Fault::FailOver { lost_commits } => self.fail_over(lost_commits).await,
            Fault::StepClock { by_ms } => {
                self.clock.step(by_ms)?;
                self.parts.servers.lock().await.ready().await
            }
            Fault::LoseAnswer => {
                self.weather.lose_next(Lost::Answer);
                Ok(())
            }
            Fault::LoseCommand => {
                self.weather.lose_next(Lost::Command);
                Ok(())
            }
            Fault::ReadOnly(is_read_only) => {
                self.weather.read_only(is_read_only);
                Ok(())
            }
            Fault::Full(is_full) => {
                let bytes = if is_full { "1" } else { "0" };
                for server in self.parts.servers.lock().await.that_write() {
                    let _: () = server.call(&["CONFIG", "SET", "maxmemory", bytes]).await?;
                }
                Ok(())
            }
            Fault::Unavailable(is_away) => {
                // Sentinels that see both servers away and one come back first would promote it.
                if let Servers::Pair(pair) = &*self.parts.servers.lock().await {
                    pair.pause_sentinels(is_away)?;
                }
                self.weather.cut(is_away);
                if !is_away {
                    return self.back().await;
                }
                // A connection that has ended is seen before the next command is sent.
                tokio::time::sleep(LOOK_EVERY * 3).await;
                Ok(())
            }
            Fault::Slow(delay) => {
                self.weather.delay(delay);
                Ok(())
            }
            Fault::Tamper(tampering) => self.tamper(tampering).await,
        }
    }

    async fn tamper(&self, tampering: Tampering) -> anyhow::Result<()> {
        let (key, before, after) = by_hand(tampering);
        let servers = self.parts.servers.lock().await;
        let command: Vec<&str> = [before, &key].into_iter().chain(after.iter().map(String::as_str)).collect();
        let changed: redis::Value = servers.owner(&key).await?.call(&command).await?;
        let is_done = matches!(changed, redis::Value::Int(1) | redis::Value::Okay);
        ensure!(is_done, "{command:?} changed {changed:?}");
        Ok(())
    }

    async fn restart(&self, data: Data) -> anyhow::Result<()> {
        {
            let mut servers = self.parts.servers.lock().await;
            match &mut *servers {
                Servers::One { server, .. } => server.restart(data).await?,
                Servers::Pair(pair) => {
                    pair.master_mut().restart(data).await?;
                    pair.in_step().await?;
                }
                Servers::Cluster(cluster) => {
                    for number in 0..cluster.nodes().len() {
                        cluster.node_mut(number).restart(data).await?;
                    }
                }
            }
            servers.ready().await?;
        }
        self.back().await
    }

    async fn fail_over(&self, lost_commits: usize) -> anyhow::Result<()> {
        {
            let mut servers = self.parts.servers.lock().await;
            let kept = if lost_commits == 0 {
                servers.copies().await?
            } else {
                let mut copies = self.parts.copies.lock().await;
                ensure!(copies.len() >= lost_commits, "so many commits there were not");
                let at = copies.len() - lost_commits;
                copies.drain(at..).next().context("at least one")?
            };
            match &mut *servers {
                Servers::One { server, proxy } => {
                    let next = Server::start(self.options.clone()).await?;
                    kept[0].put_into(&next).await?;
                    proxy.lead_to(next.port());
                    **server = next;
                }
                Servers::Pair(pair) => pair.fail_over((lost_commits > 0).then_some(&kept[0])).await?,
                Servers::Cluster(cluster) => {
                    for number in 0..cluster.nodes().len() {
                        cluster.node_mut(number).restart(Data::Gone).await?;
                    }
                    cluster.ready().await?;
                    for (node, kept) in cluster.nodes().iter().zip(&kept) {
                        kept.put_into(node).await?;
                    }
                }
            }
        }
        self.back().await
    }

    /// Waits until every connection of the store has come back: what a test does next shall meet the fault
    /// that it provoked, and not the way there.
    async fn back(&self) -> anyhow::Result<()> {
        let back = async {
            for shard in (0..=u8::MAX).map(Shard).take(usize::from(SHARDS)) {
                while self.store.execute(Command::Now { shard }).await.is_err() {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                let lease = presence_model::lease::LeaseId::mint(TTL, shard, 0);
                let renew =
                    Command::Renew { shard, leases: vec![(lease, presence_model::time::StoreTime(0))] };
                while self.store.execute(renew.clone()).await.is_err() {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            }
            let (after, rooms) = (std::collections::BTreeMap::new(), "nobody is here".to_owned());
            let tail = Command::Tail { after, wait: Duration::ZERO };
            while self.store.execute(tail.clone()).await.is_err() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            let list = Command::Rooms { prefix: rooms, after: None, count: 1 };
            while self.store.execute(list.clone()).await.is_err() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::time::timeout(BACK_WITHIN, back).await.context("the store does not come back")
    }
}

impl Harness for RedisBench {
    fn store(&self) -> Arc<dyn LeaseStore> {
        Arc::new(Recorded { store: self.store.clone(), parts: Arc::clone(&self.parts) })
    }

    fn ttl(&self) -> Duration {
        TTL
    }

    fn remembers(&self) -> Duration {
        REMEMBERS
    }

    fn remembers_listing(&self) -> Duration {
        LISTED
    }

    fn advance(&self, span: Duration) -> BoxFuture<'_, ()> {
        tokio::time::sleep(span).boxed()
    }

    fn provoke(&self, fault: Fault) -> BoxFuture<'_, ()> {
        async move {
            self.suffer(fault.clone())
                .await
                .unwrap_or_else(|error| panic!("{fault:?} cannot be provoked: {error:#}"));
        }
        .boxed()
    }
}

fn of_index(index: &Index) -> String {
    let people =
        |user: &UserId, rest: &str| format!("presence:{{u{}}}:{rest}", shard_of_user(user, SHARDS).0);
    match index {
        Index::LeasesOf(shard, edge) => format!("presence:{{{shard}}}:edge:{:016x}", edge.0),
        Index::Owners(shard) => format!("presence:{{{shard}}}:owners"),
        Index::Seen(user) => people(user, "seen"),
        Index::Went(user) => people(user, "went"),
        Index::RoomsOf(user) => people(user, &format!("user:{}", user.as_str())),
        Index::Edges => "presence:edges".to_owned(),
        Index::Revoked => "presence:revoked".to_owned(),
    }
}

/// What somebody does with `redis-cli`: the key, the verb, what follows the key.
fn by_hand(tampering: Tampering) -> (String, &'static str, Vec<String>) {
    if let Tampering::SpoilIndex(index) = &tampering {
        return (of_index(index), "SET", vec!["spoiled".to_owned()]);
    }
    let (shard, rest, verb, after) = by_hand_on_shard(tampering);
    (format!("presence:{{{shard}}}{rest}"), verb, after)
}

/// The same for what is in a shard: its number and the rest of the key's name.
fn by_hand_on_shard(tampering: Tampering) -> (Shard, String, &'static str, Vec<String>) {
    let of =
        |kind: &str, roster: &Roster| format!(":{kind}:{}:{}", roster.region.as_str(), roster.room.as_str());
    match tampering {
        Tampering::LoseLease(lease) => {
            let names = [lease.plain_name(), lease.grace_name()].map(|name| name.to_string());
            (lease.shard(), ":leases".to_owned(), "ZREM", names.to_vec())
        }
        Tampering::LoseRecord(roster, user) => {
            let user = format!("@{}", user.as_str());
            (shard_of(&roster, SHARDS), of("roster", &roster), "HDEL", vec![user])
        }
        Tampering::Stray(lease, deadline) => {
            let words = vec![deadline.0.to_string(), lease.to_string()];
            (lease.shard(), ":leases".to_owned(), "ZADD", words)
        }
        Tampering::LoseNames(roster) => (shard_of(&roster, SHARDS), of("names", &roster), "DEL", vec![]),
        Tampering::LoseRoster(roster) => (shard_of(&roster, SHARDS), of("roster", &roster), "DEL", vec![]),
        Tampering::LoseEntry(roster) => {
            let entry = format!("{}\0\0{}", roster.room.as_str(), roster.region.as_str());
            (shard_of(&roster, SHARDS), ":rooms".to_owned(), "ZREM", vec![entry])
        }
        Tampering::LoseFirst(roster) => {
            (shard_of(&roster, SHARDS), of("roster", &roster), "HDEL", vec!["#".to_owned()])
        }
        Tampering::GarbleRecord(roster, user) => {
            let record = vec![format!("@{}", user.as_str()), "no record".to_owned()];
            (shard_of(&roster, SHARDS), of("roster", &roster), "HMSET", record)
        }
        Tampering::GarbleDigest(roster) => {
            let first = vec!["#".to_owned(), "1 00000000000000ff 0 0".to_owned()];
            (shard_of(&roster, SHARDS), of("roster", &roster), "HMSET", first)
        }
        Tampering::SpoilRoster(roster) => {
            (shard_of(&roster, SHARDS), of("roster", &roster), "SET", vec!["spoiled".to_owned()])
        }
        Tampering::GarbleShard(shard) => {
            (shard, String::new(), "HMSET", vec!["commits".to_owned(), "many".to_owned()])
        }
        Tampering::SpoilIndex(_) => unreachable!("it is in no shard"),
        Tampering::SpoilShard(shard) => (shard, String::new(), "SET", vec!["spoiled".to_owned()]),
        Tampering::LoseShard(shard) => (shard, String::new(), "DEL", vec![]),
        Tampering::SpoilHistory(shard) => (shard, ":history".to_owned(), "SET", vec!["spoiled".to_owned()]),
    }
}

/// A turn of a shard as one core alone asks for it.
#[must_use]
pub fn turn(shard: Shard, smallest_ttl: Duration) -> Command {
    Command::Turn {
        shard,
        holder: 1,
        finished: None,
        kept: Duration::from_secs(1),
        smallest_ttl,
        takeover: Duration::from_secs(2),
        stepped: false,
        known: None,
        portion: 100,
    }
}

/// The first turn of a shard: its epoch.
async fn settle(store: &RedisStore, shard: Shard) -> anyhow::Result<()> {
    let turn = Command::Turn {
        shard,
        holder: 1,
        finished: None,
        kept: Duration::from_millis(1),
        smallest_ttl: TTL,
        takeover: TTL,
        stepped: false,
        known: None,
        portion: 1,
    };
    let Outcome::Turn(_) = store.execute(turn).await? else { anyhow::bail!("not an answer to Turn") };
    Ok(())
}

impl Servers {
    fn topology(&self) -> Topology {
        match self {
            Self::One { proxy, .. } => Topology::Standalone { server: proxy.address() },
            Self::Pair(pair) => Topology::Sentinel { sentinels: pair.sentinels(), master: MASTER.to_owned() },
            Self::Cluster(cluster) => Topology::Cluster { nodes: cluster.addresses() },
        }
    }

    /// The server that has a key.
    async fn owner(&self, key: &str) -> anyhow::Result<&Server> {
        match self {
            Self::One { server, .. } => Ok(server),
            Self::Pair(pair) => Ok(pair.master()),
            Self::Cluster(cluster) => Ok(&cluster.nodes()[cluster.owner(key).await?]),
        }
    }

    async fn ready(&self) -> anyhow::Result<()> {
        match self {
            Self::One { .. } | Self::Pair(_) => Ok(()),
            Self::Cluster(cluster) => cluster.ready().await,
        }
    }

    /// Every server that takes writes.
    fn that_write(&self) -> Vec<&Server> {
        match self {
            Self::One { server, .. } => vec![server],
            Self::Pair(pair) => vec![pair.master()],
            Self::Cluster(cluster) => cluster.nodes().iter().collect(),
        }
    }

    /// What each server that takes writes holds.
    async fn copies(&self) -> anyhow::Result<Vec<Copy>> {
        futures::future::try_join_all(self.that_write().into_iter().map(Copy::of)).await
    }
}

/// The store, with a copy of everything taken before each commit: a replica that was cut off at any of them
/// can be made.
struct Recorded {
    store: RedisStore,
    parts: Arc<Parts>,
}

impl LeaseStore for Recorded {
    fn execute(&self, command: Command) -> BoxFuture<'static, Result<Outcome, StoreFault>> {
        let (executed, parts) = (self.store.execute(command.clone()), Arc::clone(&self.parts));
        let Command::Commit(_) = command else { return executed };
        async move {
            // Of servers that are away no copy is needed.
            if let Ok(copies) = parts.servers.lock().await.copies().await {
                let mut kept = parts.copies.lock().await;
                kept.push_back(copies);
                if kept.len() > COPIES_MAX {
                    kept.pop_front();
                }
            }
            executed.await
        }
        .boxed()
    }

    fn shards(&self) -> u16 {
        self.store.shards()
    }
}
