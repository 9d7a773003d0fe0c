//! Somebody whose connection is lost twenty times: grace hides it from everybody, and where grace is too short it shows in
//! what is alerted on.

use std::time::Duration;

use presence_model::claim::Action;
use presence_tests::procs::{Client, CoreOptions, Keys, Process, Timers, core_with_file, edge};

const CLASS: &str = r#"
[[class]]
name = "hasty"
match = "hasty:*"
heartbeat = "1s"
lease_ttl = "3s"
grace = "200ms"
"#;
const TIMERS: Timers = Timers {
    heartbeat: Duration::from_secs(2),
    lease_ttl: Duration::from_secs(9),
    grace: Duration::from_secs(3),
    edge_lost: Duration::from_secs(2),
};
const BLIPS: u64 = 20;
/// Longer than the hasty grace, shorter than the other.
const AWAY: Duration = Duration::from_millis(600);

struct World {
    keys: Keys,
    edge: Process,
}

impl World {
    async fn join(&self, user: &str, room: &str, generation: u64) -> anyhow::Result<Client> {
        let mut client = Client::connect(&self.edge.address("ws")).await?;
        let token = self.keys.token(user, room, Action::Join)?;
        client.join(room, &token, &format!("{user:-<16}"), generation).await?;
        Ok(client)
    }

    /// Blips in a room, and who was shown as gone there meanwhile, with the reasons.
    async fn blip(&self, user: &str, room: &str) -> anyhow::Result<Vec<(String, String)>> {
        let mut client = self.join(user, room, 1).await?;
        client.until_shown(1).await?;
        let mut watcher = Client::connect(&self.edge.address("ws")).await?;
        watcher.watch(room, &self.keys.token("watcher", room, Action::Watch)?).await?;
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let watching = tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = ended => {}
                () = async { while watcher.next().await.is_ok() {} } => {}
            }
            watcher.removals
        });
        for blip in 1..=BLIPS {
            drop(client);
            tokio::time::sleep(AWAY).await;
            client = self.join(user, room, blip + 1).await?;
            client.until_shown(1).await?;
        }
        tokio::time::sleep(AWAY).await;
        drop(end);
        Ok(watching.await?)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_blips_is_no_departure_within_grace_and_many_beyond_it() -> anyhow::Result<()> {
    let keys = Keys::generate()?;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), CLASS)?;
    let core = core_with_file(&CoreOptions::default(), file.path(), &keys, &TIMERS)?;
    let edge = edge("edge", &core, &keys, &TIMERS)?;
    // A core in memory begins with a hold, in which nobody goes.
    tokio::time::sleep(TIMERS.lease_ttl + Duration::from_secs(1)).await;
    let world = World { keys, edge };
    let counted = async |series: &str| core.metric(series).await;
    let lost = "presence_core_transitions_total{kind=\"ended\",reason=\"connection_lost\"}";
    let suppressed = "presence_core_transitions_suppressed_total";

    let seen = world.blip("calm", "hall").await?;
    assert_eq!(seen, [], "nobody is shown as gone within the grace");
    assert_eq!((counted(suppressed).await?, counted(lost).await?), (20.0, 0.0));

    let seen = world.blip("hasty", "hasty:1").await?;
    let each = ("hasty".to_owned(), "connection_lost".to_owned());
    assert_eq!(seen, vec![each; 20]);
    // Beside these the first one has gone for good, and what comes back after its grace supersedes nobody.
    assert_eq!(counted(suppressed).await?, 20.0);
    let ended = counted(lost).await?;
    assert!((20.0..=22.0).contains(&ended), "{ended}");
    let leases = world.edge.metric("presence_edge_leases").await?;
    let minutes = (AWAY * 21).as_secs_f64() / 60.0;
    assert!(ended / minutes / leases.max(1.0) > 0.5, "as the alert has it: {ended} of {leases}");
    Ok(())
}
