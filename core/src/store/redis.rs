//! The Redis adapter: stand-alone, behind Sentinel, or a Cluster; commands of Redis 7.0 only.
//!
//! All keys of a shard share a hash tag, so one commit is one slot. What must be atomic is a small
//! script that knows expectations, guards and writes, and nothing of presence; renewals are plain
//! `ZADD … XX GT`. See `docs/redis.md` for every key.

mod arguments;
mod audit;
mod checks;
mod commit;
mod edges;
mod fault;
mod keys;
mod lanes;
mod leases;
mod owner;
mod people;
mod read;
mod reader;
mod relisting;
mod revoked;
mod script;
mod settings;
mod tail;
mod turn;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use presence_model::id::Roster;
use presence_model::lease::Shard;
use presence_model::limits::SHARDS_MAX;
use presence_model::time::StoreTime;
use presence_runtime::clock::Clock;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use redis::Cmd;
use tokio::sync::Notify;

use self::arguments::Arguments;
use self::checks::{FirstStart, check_layout, start_checks};
use self::fault::fault;
use self::keys::{Keys, region_name};
use self::lanes::Lanes;
use self::reader::Reader;
use self::relisting::Walks;
use self::script::Script;
use self::tail::LastTail;
use super::{Command, LeaseStore, Outcome, Retention, StoreFault, shard_of};

pub use checks::RedisRefusal;
pub use settings::{
    Access, DEFAULT_PREFIX, DEFAULT_SHARDS, Password, RedisSettings, StoreUrl, TlsFiles, Topology, UrlMistake,
};

/// A Redis store. Cheap to share.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

struct Inner {
    lanes: Lanes,
    keys: Keys,
    shards: u16,
    retention: Retention,
    rng: Mutex<StdRng>,
    last_tail: Mutex<LastTail>,
    walks: Mutex<Walks>,
    /// Told of each new epoch.
    epochs: Notify,
}

impl RedisStore {
    /// Connects, once, and holds servers and data against what is needed.
    ///
    /// # Errors
    /// Why nothing can be kept there.
    pub async fn connect(settings: RedisSettings) -> Result<Self, RedisRefusal> {
        let lanes = checks::connect(&settings).await?;
        start_checks(&lanes, &settings, FirstStart::Fix).await?;
        let inner = Inner {
            lanes,
            keys: Keys::new(&settings.prefix),
            shards: settings.shards.clamp(1, SHARDS_MAX),
            retention: settings.retention,
            rng: Mutex::new(StdRng::seed_from_u64(settings.seed)),
            last_tail: Mutex::default(),
            walks: Mutex::default(),
            epochs: Notify::new(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Writes how the data are laid out again, every so often and at each new epoch: a store that lost its data lost
    /// that too, and the next core to start would lay them out as it was told. Ends when somebody has laid them
    /// out otherwise.
    pub async fn keep_layout(&self, clock: &Clock, every: Duration) -> RedisRefusal {
        let Inner { lanes, keys, shards, epochs, .. } = &*self.inner;
        loop {
            tokio::select! {
                biased;
                () = epochs.notified() => {}
                () = clock.sleep(every) => {}
            }
            let checked = check_layout(&lanes.scripts, keys, *shards, FirstStart::Fix).await;
            // Whatever cannot be done now is said where leases are kept, and tried again. What no core can have
            // written ends none.
            if let Err(RedisRefusal::Shards { stored, given }) = checked
                && stored.parse().is_ok_and(|count| (1..=SHARDS_MAX).contains(&count))
            {
                return RedisRefusal::Shards { stored, given };
            }
        }
    }

    /// What [`RedisStore::connect`] would say; writes nothing.
    ///
    /// # Errors
    /// Why nothing can be kept there.
    pub async fn check(settings: &RedisSettings) -> Result<(), RedisRefusal> {
        start_checks(&checks::connect(settings).await?, settings, FirstStart::Look).await
    }
}

impl LeaseStore for RedisStore {
    fn execute(&self, command: Command) -> BoxFuture<'static, Result<Outcome, StoreFault>> {
        let inner = Arc::clone(&self.inner);
        async move { inner.execute(command).await }.boxed()
    }

    fn shards(&self) -> u16 {
        self.inner.shards
    }
}

impl Inner {
    async fn execute(&self, command: Command) -> Result<Outcome, StoreFault> {
        match command {
            Command::Now { shard } => {
                self.check_shard(shard)?;
                Ok(Outcome::Now { now: self.now_of(&self.keys.shard(shard)).await? })
            }
            Command::Members { roster, users } => self.members(roster, users).await,
            Command::Load { roster, after, count } => self.page(roster, after, count).await,
            Command::Commit(commit) => self.commit(commit).await,
            Command::Renew { shard, leases } => self.renew(shard, leases).await,
            Command::Release { shard, edge, leases, grace, reason } => {
                self.release(shard, edge, leases, (grace, reason)).await
            }
            Command::Discard { shard, leases } => self.discard(shard, leases).await,
            Command::Audit { shard, from, portion } => self.audit(shard, from, portion).await,
            Command::Disown { shard, leases } => self.disown(shard, leases).await,
            Command::Distrust { roster } => self.distrust(roster).await,
            Command::Lose { shard, edge, link, broken_since, graces } => {
                self.lose(shard, (edge, link), broken_since, graces).await
            }
            turn @ Command::Turn { .. } => self.turn(turn).await,
            Command::Link { edge, name, link, core } => self.link(edge, link, (name, core)).await,
            Command::Unlink { edge, name, link } => self.unlink(edge, &name, link).await,
            Command::Forget { edge, name, link } => self.forget(edge, &name, link).await,
            Command::DrainEdge { name, edge } => self.drain_edge(&name, edge).await,
            Command::Edges => self.edges().await,
            Command::History { roster, after, count } => self.history(roster, after, count).await,
            Command::Tail { after, wait } => self.tail(after, wait).await,
            Command::Leases { shard, leases } => self.lease_details(shard, leases).await,
            Command::Rooms { prefix, after, count } => self.rooms(prefix, after, count).await,
            Command::Summary { roster } => self.summary(roster).await,
            Command::Seen { user } => self.seen(user).await,
            Command::RoomsOf { user, after, count } => self.rooms_of(user, after, count).await,
            Command::Unlist { user, listed } => self.unlist(user, listed).await,
            Command::Revoke { revocations } => self.revoke(revocations).await,
            Command::Revoked { after, count, unless } => self.revoked(after, count, unless).await,
            Command::Tidy { shard, portion } => self.tidy(shard, portion).await,
        }
    }

    fn shards(&self) -> impl Iterator<Item = Shard> + use<> {
        (0..self.shards).filter_map(|number| u8::try_from(number).ok()).map(Shard)
    }

    fn shard_of(&self, roster: &Roster) -> Shard {
        shard_of(roster, self.shards)
    }

    fn check_shard(&self, shard: Shard) -> Result<(), StoreFault> {
        if u16::from(shard.0) < self.shards {
            Ok(())
        } else {
            Err(StoreFault::Unavailable(format!("there is no shard {shard}")))
        }
    }

    /// The random part of an epoch, should one have to be minted.
    fn random(&self) -> u64 {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).next_u64()
    }

    /// The clock of the server that has a key.
    async fn now_of(&self, key: &str) -> Result<StoreTime, StoreFault> {
        let mut command = Cmd::new();
        command.arg("TIME");
        let answer = self.lanes.scripts.run_on(key, &command).await.map_err(|error| fault(&error, false))?;
        let mut reader = Reader::new(answer)?;
        let (seconds, micros) = (reader.number()?, reader.number()?);
        Ok(StoreTime(seconds * 1_000 + micros / 1_000))
    }

    /// A script that writes.
    async fn write(
        &self,
        script: &Script,
        key: &str,
        arguments: Arguments,
    ) -> Result<redis::Value, StoreFault> {
        let lane = &self.lanes.scripts;
        script.run(lane, key, arguments.as_slice()).await.map_err(|error| fault(&error, true))
    }

    /// A script that writes to these keys and no other.
    async fn write_over(
        &self,
        script: &Script,
        keys: &[String],
        arguments: Arguments,
    ) -> Result<redis::Value, StoreFault> {
        let lane = &self.lanes.scripts;
        script.run_over(lane, keys, arguments.as_slice()).await.map_err(|error| fault(&error, true))
    }
}

/// A roster in front of a script's arguments.
fn roster_arguments(roster: &Roster) -> Arguments {
    let mut arguments = Arguments::default();
    arguments.text(&region_name(&roster.region));
    arguments.text(roster.room.as_str());
    arguments
}
