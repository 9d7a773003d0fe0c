//! Rooms that come and go leave nothing behind: keys and memory of Redis are back where they were once what
//! is remembered has been forgotten.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use presence_core::store::redis::{RedisSettings, RedisStore, Topology};
use presence_core::store::{Command, Commit, CommitOutcome, LeaseStore, Outcome, Retention, shard_of};
use presence_model::change::Change;
use presence_model::id::{
    ConnectionId, EdgeName, Generation, Incarnation, RegionId, RoomId, Roster, SessionId, UserId,
};
use presence_model::lease::{LeaseId, Shard};
use presence_model::link::RequestId;
use presence_model::member::{Join, join, leave};
use presence_model::position::Position;
use presence_model::profile::Profile;
use presence_model::reason::LeaveReason;
use presence_model::record::{EdgeRef, MemberRead, TokenRef};
use presence_model::time::StoreTime;
use presence_tests::redis::{Server, ServerOptions};

const SHARDS: u16 = 16;
const USERS: usize = 100;
const ROOMS: usize = 100_000;
/// A million by one command: `tests/run long`.
const ROOMS_LONG: usize = 1_000_000;
const AT_ONCE: usize = 256;
const TTL: Duration = Duration::from_secs(45);
/// What ended is forgotten as fast as this, where production takes an hour.
const REMEMBERS: Duration = Duration::from_secs(2);
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(60);

struct Churn {
    store: RedisStore,
}

impl Churn {
    async fn read(
        &self,
        roster: &Roster,
        user: &UserId,
    ) -> anyhow::Result<(MemberRead, Position, StoreTime)> {
        let command = Command::Members { roster: roster.clone(), users: vec![user.clone()] };
        let outcome = self.store.execute(command).await?;
        let Outcome::Members { now, position, mut members } = outcome else { anyhow::bail!("{outcome:?}") };
        Ok((members.remove(0), position, now))
    }

    async fn commit(&self, roster: &Roster, at: Position, change: Change) -> anyhow::Result<()> {
        let commit = Commit { roster: roster.clone(), epoch: at.epoch, changes: vec![change] };
        let outcome = self.store.execute(Command::Commit(commit)).await?;
        let applied = matches!(
            &outcome,
            Outcome::Commit(CommitOutcome::Applied { refused, .. }) if refused.is_empty()
        );
        anyhow::ensure!(applied, "{outcome:?}");
        Ok(())
    }

    /// Somebody comes to a room and goes.
    async fn visit(&self, number: usize) -> anyhow::Result<()> {
        let roster = Roster { region: RegionId::new("local")?, room: RoomId::new(format!("room-{number}"))? };
        let user = UserId::new(format!("user-{}", number % USERS))?;
        let (read, at, now) = self.read(&roster, &user).await?;
        let wish = Join {
            session: SessionId::new(format!("session-{number:012}"))?,
            generation: Some(Generation(1)),
            connection: ConnectionId(number as u64),
            request: RequestId(1),
            edge: EdgeRef {
                name: EdgeName::new("edge")?,
                incarnation: Incarnation(7),
                region: RegionId::new("local")?,
            },
            profile: Profile::default(),
            client: "".into(),
            token: TokenRef {
                ends: now + Duration::from_secs(3_600),
                key_id: "".into(),
                token_id: "".into(),
            },
            rejoin: None,
            moved: None,
            lease: LeaseId::mint(TTL, shard_of(&roster, SHARDS), rand::random()),
        };
        let granted = join(&read, &wish, now)?;
        let change = *granted.change.ok_or_else(|| anyhow::anyhow!("nothing to commit"))?;
        self.commit(&roster, at, change).await?;
        let (read, at, now) = self.read(&roster, &user).await?;
        self.commit(&roster, at, leave(&read, granted.lease, LeaveReason::Goodbye, now)?).await
    }

    /// Visits of so many rooms, many at once, while all shards are swept.
    async fn visits(self: &Arc<Self>, rooms: std::ops::Range<usize>) -> anyhow::Result<()> {
        let visits = futures::stream::iter(rooms).map(|number| {
            let churn = Arc::clone(self);
            async move { churn.visit(number).await }
        });
        let mut visits = visits.buffer_unordered(AT_ONCE);
        while let Some(visit) = visits.next().await {
            visit?;
        }
        Ok(())
    }

    async fn sweep(&self) -> anyhow::Result<()> {
        for shard in (0..=u8::MAX).map(Shard).take(usize::from(SHARDS)) {
            let turn = Command::Turn {
                shard,
                holder: 1,
                finished: None,
                kept: Duration::from_secs(2),
                smallest_ttl: TTL,
                takeover: Duration::from_secs(3),
                stepped: false,
                known: None,
                portion: 500,
            };
            self.store.execute(turn).await?;
            self.store.execute(Command::Tidy { shard, portion: 500 }).await?;
        }
        Ok(())
    }
}

async fn size(server: &Server) -> anyhow::Result<(u64, u64)> {
    server.call::<redis::Value>(&["MEMORY", "PURGE"]).await?;
    let keys = server.call(&["DBSIZE"]).await?;
    Ok((keys, server.info("memory", "used_memory_dataset").await?.trim().parse()?))
}

#[tokio::test(flavor = "multi_thread")]
async fn rooms_that_come_and_go_leave_nothing() -> anyhow::Result<()> {
    let rooms = if std::env::var_os("PRESENCE_TEST_LONG").is_some() { ROOMS_LONG } else { ROOMS };
    let server = Server::start(ServerOptions::default()).await?;
    let retention = Retention {
        tombstones: REMEMBERS,
        rosters: REMEMBERS,
        history: REMEMBERS,
        seen: REMEMBERS,
        listing: REMEMBERS,
        ..Retention::default()
    };
    let settings = RedisSettings {
        shards: SHARDS,
        retention,
        ..RedisSettings::new(Topology::Standalone { server: server.address() }, rand::random())
    };
    let churn = Arc::new(Churn { store: RedisStore::connect(settings).await? });
    churn.sweep().await?;
    churn.visits(0..1_000).await?;
    let sweeping = Arc::clone(&churn);
    let sweeps = tokio::spawn(async move {
        loop {
            sweeping.sweep().await.expect("the server is there");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    tokio::time::sleep(REMEMBERS * 3).await;
    let before = size(&server).await?;
    churn.visits(1_000..rooms).await?;
    let end = tokio::time::Instant::now() + FORGOTTEN_WITHIN;
    let within = |now: u64, before: u64| now as f64 <= before as f64 * 1.05;
    loop {
        let now = size(&server).await?;
        if within(now.0, before.0) && within(now.1, before.1) {
            println!("{rooms} rooms: {before:?} keys and bytes before, {now:?} after");
            break;
        }
        anyhow::ensure!(tokio::time::Instant::now() < end, "{before:?} before, {now:?} after {rooms} rooms");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    sweeps.abort();
    Ok(())
}
