//! A core process that dies and is started again with an empty store: who is connected is never announced
//! as gone, and who left meanwhile goes when the hold ends.

use std::time::Duration;

use presence_model::claim::Action;
use presence_tests::procs::{Client, Keys, Timers, core_on, edge};
use tokio::task::JoinSet;

const ROOM: &str = "lobby";
const STAYING: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_core_loses_nobody_who_is_there() -> anyhow::Result<()> {
    let (keys, timers) = (Keys::generate()?, Timers::SHORT);
    let core = core_on("127.0.0.1:0", &keys, &timers)?;
    let address = core.address("grpc");
    let edge = edge("edge", &core, &keys, &timers)?;
    let mut idle = JoinSet::new();
    let mut leaving = None;
    for index in 0..=STAYING {
        let mut client = Client::connect(&edge.address("ws")).await?;
        let token = keys.token(&format!("u{index:02}"), ROOM, Action::Join)?;
        client.join(ROOM, &token, &format!("session-of-user-{index:06}"), 1).await?;
        if index == STAYING {
            leaving = Some(client);
        } else {
            idle.spawn(client.idle());
        }
    }
    let mut observer = Client::connect(&edge.address("ws")).await?;
    observer.watch(ROOM, &keys.token("observer", ROOM, Action::Watch)?).await?;
    observer.until_shown(STAYING + 1).await?;

    core.signal("KILL")?;
    drop(core);
    drop(leaving);
    tokio::time::sleep(timers.grace).await;
    let _core = core_on(&address, &keys, &timers)?;
    let gone = format!("u{STAYING:02}");
    let within = timers.lease_ttl * 3 + Duration::from_secs(5);
    let told = async {
        while !observer.removals.iter().any(|(user, _)| *user == gone) {
            observer.next().await?;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(within, told).await??;
    observer.during(timers.lease_ttl).await?;
    assert_eq!(observer.removals.len(), 1, "only who left is gone: {:?}", observer.removals);
    assert_eq!(observer.members.len(), STAYING);
    Ok(())
}
