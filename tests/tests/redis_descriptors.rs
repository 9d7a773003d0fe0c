//! Connections that end and come back leave nothing behind. Alone in its process, so that the count is of
//! these connections.

use std::time::Duration;

use presence_core::store::redis::{RedisSettings, RedisStore, Topology};
use presence_core::store::{Command, LeaseStore};
use presence_model::lease::Shard;
use presence_tests::redis::{Data, Server, ServerOptions};

fn descriptors() -> anyhow::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/fd")?.count())
}

async fn back(store: &RedisStore) {
    let commands = [
        Command::Now { shard: Shard(7) },
        Command::Rooms { prefix: String::new(), after: None, count: 1 },
        Command::Tail { after: std::collections::BTreeMap::new(), wait: Duration::ZERO },
    ];
    for command in commands {
        while store.execute(command.clone()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn a_hundred_restarts_leave_the_descriptors_as_they_were() -> anyhow::Result<()> {
    let mut server = Server::start(ServerOptions::default()).await?;
    let topology = Topology::Standalone { server: server.address() };
    let store = RedisStore::connect(RedisSettings::new(topology, 1)).await?;
    back(&store).await;
    let before = descriptors()?;
    for _ in 0..100 {
        server.restart(Data::OnDisk).await?;
        back(&store).await;
    }
    let after = descriptors()?;
    assert!(after <= before + 2, "{before} before, {after} after");
    Ok(())
}
