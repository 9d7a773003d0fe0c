//! A fail-over by Sentinels under cores and people: the replica was cut off, fifty commits later its master dies,
//! the replica is promoted, and its clock is another. Nobody live is announced as gone.

use std::time::Duration;

use presence_tests::redis::{FakeClock, MASTER, SentinelPair, ServerOptions, Weather};
use presence_tests::scene::{Cast, TIMERS};

const PEOPLE: usize = 200;
const COMMITS: usize = 50;
/// Detection and promotion, a hold, the sweep after it, and a busy machine.
const AFTER_FAIL_OVER: Duration = Duration::from_secs(40);

async fn a_fail_over(clock_ms: i64) -> anyhow::Result<()> {
    let clock = FakeClock::new()?;
    clock.step(clock_ms)?;
    let (right, wrong) = (ServerOptions::default(), ServerOptions::default().on(&clock));
    let mut pair = SentinelPair::start_each([&right, &wrong], &Weather::default(), 3).await?;
    let store = format!("redis+sentinel://{}/{MASTER}", pair.sentinels().join(","));
    let mut cast = Cast::set(2, PEOPLE, &store).await?;

    pair.cut_replica_off().await?;
    let kept: i64 = pair.replica().call(&["ZCARD", &hall(&pair).await?]).await?;
    for _ in 0..COMMITS {
        cast.come(1).await?;
    }
    pair.master_mut().kill()?;
    let gone = cast.fall_silent(20)?;
    pair.replace_dead_master().await?;
    let now: i64 = pair.master().call(&["ZCARD", &hall(&pair).await?]).await?;
    assert!(now <= kept + COMMITS as i64, "{kept} were kept, {now} are there");
    assert_eq!(kept, PEOPLE as i64, "the commits after that were lost");

    cast.nothing_was_seen_but(&gone, AFTER_FAIL_OVER).await?;
    tokio::time::sleep(TIMERS.lease_ttl * 2).await;
    cast.nothing_was_seen_but(&gone, AFTER_FAIL_OVER).await?;
    let people: i64 = pair.master().call(&["ZCARD", &hall(&pair).await?]).await?;
    assert_eq!(people, cast.there.len() as i64, "everybody is in the new master");
    Ok(())
}

/// The key with the names of the room, in whichever shard.
async fn hall(pair: &SentinelPair) -> anyhow::Result<String> {
    let keys: Vec<String> = pair
        .replica()
        .call(&["KEYS", "presence:*:names:local:hall"])
        .await
        .or(pair.master().call(&["KEYS", "presence:*:names:local:hall"]).await)?;
    keys.into_iter().next().ok_or_else(|| anyhow::anyhow!("nobody is there"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_clock_is_ahead_takes_over_unseen() -> anyhow::Result<()> {
    a_fail_over(60_000).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_clock_is_behind_takes_over_unseen() -> anyhow::Result<()> {
    a_fail_over(-60_000).await
}
