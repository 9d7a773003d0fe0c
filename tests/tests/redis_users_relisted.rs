//! In a Cluster the server with what is kept of some users fails over and loses its tail, and those with the
//! rosters do not: whoever is there is listed again by those who tidy up.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use presence_core::store::redis::{RedisSettings, RedisStore, Topology};
use presence_core::store::{Command, Commit, CommitOutcome, LeaseStore, Outcome, shard_of, shard_of_user};
use presence_model::id::{RegionId, RoomId, Roster, UserId};
use presence_model::lease::Shard;
use presence_model::position::Epoch;
use presence_model::record::MemberRead;
use presence_model::time::StoreTime;
use presence_tests::conformance::people::Person;
use presence_tests::redis::{Cluster, Data, ServerOptions, Weather, turn};

const TTL: Duration = Duration::from_secs(60);
const BACK_WITHIN: Duration = Duration::from_secs(20);
const MASTERS: usize = 3;
const SHARDS: u16 = 4;
/// More than one portion of a walk looks at, in rosters of one member.
const SMALL_ROOMS: usize = 150;
/// More than one page of names.
const CROWD: usize = 600;

struct Place {
    cluster: Cluster,
    store: RedisStore,
}

impl Place {
    async fn new() -> anyhow::Result<Self> {
        let cluster =
            Cluster::start(&ServerOptions::default(), &Weather::default(), (MASTERS, false)).await?;
        let topology = Topology::Cluster { nodes: cluster.addresses() };
        let settings = RedisSettings { shards: SHARDS, ..RedisSettings::new(topology, 1) };
        Ok(Self { store: RedisStore::connect(settings).await?, cluster })
    }

    async fn epoch(&self, shard: Shard) -> anyhow::Result<Epoch> {
        let answer = tokio::time::timeout(BACK_WITHIN, async {
            loop {
                if let Ok(Outcome::Turn(turn)) = self.store.execute(turn(shard, TTL)).await {
                    return turn.epoch;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        answer.await.context("no turn")
    }

    /// Brings users into a room.
    async fn bring(
        &self,
        room: &str,
        users: &[String],
        epochs: &BTreeMap<Shard, Epoch>,
    ) -> anyhow::Result<()> {
        let roster = roster(room)?;
        let shard = shard_of(&roster, SHARDS);
        for users in users.chunks(100) {
            let joins = users.iter().map(|user| {
                let person = Person::new(user, shard, TTL);
                person.joins(&MemberRead::absent(person.user.clone()), StoreTime(1_700_000_000_000))
            });
            let commit = Commit { roster: roster.clone(), epoch: epochs[&shard], changes: joins.collect() };
            let outcome = self.store.execute(Command::Commit(commit)).await?;
            let is_applied = matches!(
                &outcome,
                Outcome::Commit(CommitOutcome::Applied { refused, .. }) if refused.is_empty()
            );
            anyhow::ensure!(is_applied, "{outcome:?}");
        }
        Ok(())
    }

    /// Tidies once; how many shards have more to do.
    async fn tidy(&self) -> anyhow::Result<usize> {
        let mut more_to_do = 0;
        for shard in shards() {
            let Outcome::Tidied { more } = self.store.execute(Command::Tidy { shard, portion: 100 }).await?
            else {
                anyhow::bail!("not an answer to Tidy")
            };
            more_to_do += usize::from(more);
        }
        Ok(more_to_do)
    }

    /// Until everybody was looked at: a walk begins with the second call.
    async fn walk(&self) -> anyhow::Result<usize> {
        let mut portions = 1;
        self.tidy().await?;
        while self.tidy().await? > 0 {
            portions += 1;
        }
        Ok(portions)
    }

    async fn rooms_of(&self, user: &str) -> anyhow::Result<Vec<String>> {
        let asked = Command::RoomsOf { user: UserId::new(user)?, after: None, count: 10 };
        let Outcome::RoomsOf { rooms, .. } = self.store.execute(asked).await? else {
            anyhow::bail!("not an answer to RoomsOf")
        };
        Ok(rooms.into_iter().map(|listed| listed.roster.room.as_str().to_owned()).collect())
    }

    /// What is kept of a user is gone.
    async fn lose(&self, user: &str) -> anyhow::Result<()> {
        let shard = shard_of_user(&UserId::new(user)?, SHARDS);
        let key = format!("presence:{{u{}}}:user:{user}", shard.0);
        let owner = self.cluster.owner(&key).await?;
        let gone: i64 = self.cluster.nodes()[owner].call(&["DEL", &key]).await?;
        anyhow::ensure!(gone == 1, "{key} was not there");
        Ok(())
    }

    /// Other servers, with the same data.
    async fn restart(&mut self) -> anyhow::Result<()> {
        for number in 0..MASTERS {
            self.cluster.node_mut(number).restart(Data::Saved).await?;
        }
        self.cluster.ready().await?;
        for shard in shards() {
            self.epoch(shard).await?;
        }
        Ok(())
    }
}

fn roster(room: &str) -> anyhow::Result<Roster> {
    Ok(Roster { region: RegionId::new("eu")?, room: RoomId::new(room)? })
}

fn shards() -> impl Iterator<Item = Shard> {
    (0..=u8::MAX).take(usize::from(SHARDS)).map(Shard)
}

#[tokio::test]
async fn whoever_is_there_is_listed_again_under_another_server() -> anyhow::Result<()> {
    let mut place = Place::new().await?;
    let mut epochs = BTreeMap::new();
    for shard in shards() {
        epochs.insert(shard, place.epoch(shard).await?);
    }
    assert_eq!(place.walk().await?, 1, "of a new store there is nothing to look at");
    let crowd: Vec<String> = (0..CROWD).map(|number| format!("user-{number:04}")).collect();
    place.bring("crowd", &crowd, &epochs).await?;
    for number in 0..SMALL_ROOMS {
        place.bring(&format!("small-{number}"), &[format!("single-{number}")], &epochs).await?;
    }
    let (last, single) = (format!("user-{:04}", CROWD - 1), format!("single-{}", SMALL_ROOMS - 1));
    let lost = ["user-0000", last.as_str(), "single-0", single.as_str()];
    for user in lost {
        place.lose(user).await?;
    }
    place.walk().await?;
    assert_eq!(place.rooms_of("single-0").await?, [""; 0], "nobody looks while the server is the same");

    place.restart().await?;
    let portions = place.walk().await?;
    assert!(portions > 1, "one portion looks at so much and no more");
    for (user, room) in lost.iter().zip(["crowd", "crowd", "small-0", "small-149"]) {
        assert_eq!(place.rooms_of(user).await?, [room], "{user}");
    }
    assert_eq!(place.rooms_of("user-0300").await?, ["crowd"], "who was listed still is");
    place.lose("single-0").await?;
    place.walk().await?;
    assert_eq!(place.rooms_of("single-0").await?, [""; 0], "it was looked once");
    Ok(())
}
