//! A master of a Cluster dies and comes back without its data, under cores and people: only its shards are held,
//! and nobody live is announced as gone.

use std::time::Duration;

use presence_core::store::shard_of;
use presence_model::id::{RegionId, RoomId, Roster};
use presence_tests::redis::{Cluster, Data, ServerOptions, Weather};
use presence_tests::scene::{Cast, ROOM, TIMERS};

const PEOPLE: usize = 200;
const MASTERS: usize = 3;
const SHARDS: u16 = 16;
/// A hold, the sweep after it, and a busy machine.
const AFTER_HOLD: Duration = Duration::from_secs(30);

/// Which node has each shard, and since when that is held, if it ever was.
async fn holds(cluster: &Cluster) -> anyhow::Result<Vec<(usize, Option<String>)>> {
    let mut holds = Vec::new();
    for shard in 0..SHARDS {
        let key = format!("presence:{{s{shard}}}");
        let node = cluster.owner(&key).await?;
        holds.push((node, cluster.nodes()[node].call(&["HGET", &key, "hold"]).await?));
    }
    Ok(holds)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_lost_its_data_holds_its_own_shards_only() -> anyhow::Result<()> {
    let mut cluster =
        Cluster::start(&ServerOptions::default(), &Weather::default(), (MASTERS, false)).await?;
    let store = format!("redis+cluster://{}", cluster.addresses().join(","));
    let mut cast = Cast::set(2, PEOPLE, &store).await?;
    let before = holds(&cluster).await?;
    let shard = shard_of(&Roster { region: RegionId::new("local")?, room: RoomId::new(ROOM)? }, SHARDS);
    let dies = before[usize::from(shard.0)].0;
    cluster.node_mut(dies).restart(Data::Gone).await?;
    cluster.ready().await?;
    let gone = cast.fall_silent(20)?;
    cast.nothing_was_seen_but(&gone, AFTER_HOLD).await?;
    tokio::time::sleep(TIMERS.lease_ttl * 2).await;
    cast.nothing_was_seen_but(&gone, AFTER_HOLD).await?;
    let after = holds(&cluster).await?;
    for (number, (before, after)) in before.into_iter().zip(after).enumerate() {
        let is_held_anew = before.1 != after.1;
        assert_eq!(is_held_anew, before.0 == dies, "shard {number}: {before:?}, then {after:?}");
    }
    Ok(())
}
