//! A slot of a Cluster that moves key by key: what finds only half of a shard does nothing to it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use presence_core::store::redis::{RedisSettings, RedisStore, Topology};
use presence_core::store::{
    AuditPlace, Command, Commit, CommitOutcome, LeaseStore, Outcome, StoreFault, shard_of,
};
use presence_model::change::Change;
use presence_model::class::Graces;
use presence_model::id::{LinkNumber, RegionId, RoomId, Roster};
use presence_model::lease::Shard;
use presence_model::position::Epoch;
use presence_model::reason::ReleaseReason;
use presence_model::record::MemberRead;
use presence_model::time::StoreTime;
use presence_tests::conformance::bench::EDGE;
use presence_tests::conformance::people::Person;
use presence_tests::redis::{Cluster, ServerOptions, Weather, turn};

const TTL: Duration = Duration::from_secs(60);
const BACK_WITHIN: Duration = Duration::from_secs(20);
const MASTERS: usize = 3;

/// A store over a Cluster, and a roster in it.
struct Place {
    cluster: Cluster,
    store: RedisStore,
    roster: Roster,
    shard: Shard,
}

impl Place {
    async fn new() -> anyhow::Result<Self> {
        let cluster =
            Cluster::start(&ServerOptions::default(), &Weather::default(), (MASTERS, false)).await?;
        let topology = Topology::Cluster { nodes: cluster.addresses() };
        let store = RedisStore::connect(RedisSettings::new(topology, 1)).await?;
        let roster = Roster { region: RegionId::new("eu")?, room: RoomId::new("half")? };
        let shard = shard_of(&roster, store.shards());
        Ok(Self { cluster, store, roster, shard })
    }

    fn tag(&self) -> String {
        format!("{{{}}}", self.shard)
    }

    fn turn(&self) -> Command {
        turn(self.shard, TTL)
    }

    async fn epoch(&self) -> anyhow::Result<Epoch> {
        let answer = tokio::time::timeout(BACK_WITHIN, async {
            loop {
                if let Ok(Outcome::Turn(turn)) = self.store.execute(self.turn()).await {
                    return turn.epoch;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        answer.await.context("no turn")
    }

    async fn read(&self, person: &Person) -> anyhow::Result<MemberRead> {
        let users = vec![person.user.clone()];
        let read = self.store.execute(Command::Members { roster: self.roster.clone(), users }).await?;
        let Outcome::Members { mut members, .. } = read else { anyhow::bail!("not members") };
        members.pop().context("one was asked for")
    }

    fn commit(&self, epoch: Epoch, change: Change) -> Command {
        Command::Commit(Commit { roster: self.roster.clone(), epoch, changes: vec![change] })
    }

    async fn applied(&self, epoch: Epoch, change: Change) -> anyhow::Result<()> {
        let outcome = self.store.execute(self.commit(epoch, change)).await?;
        let is_applied =
            matches!(&outcome, Outcome::Commit(CommitOutcome::Applied { refused, .. }) if refused.is_empty());
        anyhow::ensure!(is_applied, "not applied: {outcome:?}");
        Ok(())
    }

    /// All that two nodes have of the shard, as they keep it.
    async fn contents(&self, nodes: [usize; 2]) -> anyhow::Result<BTreeMap<(usize, String), Vec<u8>>> {
        let mut contents = BTreeMap::new();
        for node in nodes {
            for key in self.cluster.keys_beside(&self.tag(), node).await? {
                let kept: Vec<u8> = self.cluster.nodes()[node].call_sent_on(&["DUMP", &key]).await?;
                contents.insert((node, key), kept);
            }
        }
        Ok(contents)
    }
}

#[tokio::test]
async fn a_shard_that_is_half_moved_is_never_half_written() -> anyhow::Result<()> {
    let place = Place::new().await?;
    let epoch = place.epoch().await?;
    let now = StoreTime(1_700_000_000_000);
    let [ann, ben, cid] = ["ann", "ben", "cid"].map(|name| Person::new(name, place.shard, TTL));
    for person in [&ann, &ben] {
        place.applied(epoch, person.joins(&place.read(person).await?, now)).await?;
    }
    let (ann_there, cid_absent) = (place.read(&ann).await?, place.read(&cid).await?);
    let owner = place.cluster.owner(&place.tag()).await?;
    let nodes = [owner, (owner + 1) % MASTERS];
    let release = |grace| Command::Release {
        shard: place.shard,
        edge: EDGE,
        leases: vec![ben.lease],
        grace,
        reason: ReleaseReason::TransportLost,
    };
    let lose = Command::Lose {
        shard: place.shard,
        edge: EDGE,
        link: LinkNumber(9),
        broken_since: StoreTime(u64::MAX / 8),
        graces: Graces::from(Duration::ZERO),
    };
    let attempts = [
        place.commit(epoch, cid.joins(&cid_absent, now)),
        place.commit(epoch, ann.leaves(&ann_there)),
        release(Duration::from_secs(1)),
        lose,
        place.turn(),
        Command::Discard { shard: place.shard, leases: vec![ann.lease, ben.lease] },
        Command::Disown { shard: place.shard, leases: vec![ann.lease, ben.lease] },
        Command::Audit { shard: place.shard, from: AuditPlace::default(), portion: 10 },
        Command::Members { roster: place.roster.clone(), users: vec![ann.user.clone()] },
        Command::Summary { roster: place.roster.clone() },
    ];
    place.cluster.announce_move(&place.tag(), nodes[0], nodes[1]).await?;
    let keys = place.cluster.keys_beside(&place.tag(), nodes[0]).await?;
    assert!(keys.len() >= 8, "{keys:?}");
    for moved in 0..=keys.len() {
        if let Some(last) = moved.checked_sub(1) {
            place.cluster.move_keys(&keys[last..moved], nodes[0], nodes[1]).await?;
        }
        let before = place.contents(nodes).await?;
        assert_eq!(before.len(), keys.len());
        for attempt in &attempts {
            let outcome = place.store.execute(attempt.clone()).await;
            assert!(matches!(outcome, Err(StoreFault::Unavailable(_))), "{moved}: {attempt:?}: {outcome:?}");
            assert!(place.contents(nodes).await? == before, "{moved}: {attempt:?} has written something");
        }
    }
    place.cluster.end_move(&place.tag(), nodes[0], nodes[1]).await?;
    let epoch = place.epoch().await?;
    let there = place.read(&ann).await?;
    assert_eq!(there.record, ann_there.record, "nothing is lost");
    place.applied(epoch, ann.leaves(&there)).await?;
    place.applied(epoch, cid.joins(&place.read(&cid).await?, now)).await?;
    Ok(())
}
