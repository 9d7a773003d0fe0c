//! The tail: commits as they happen, in order, or a break that is said.

use std::collections::BTreeMap;

use futures::poll;
use presence_core::store::{Command, TailId};
use presence_model::position::Epoch;

use super::bench::{Bench, tail_of};

/// Who says nothing of where it is is told at once, and hears what comes from then on.
pub async fn a_tail_starts_now(bench: &Bench) -> anyhow::Result<()> {
    bench.bring_named("before").await?;
    let start = bench.tail(BTreeMap::new()).await?;
    assert_eq!((start.commits.len(), start.broken.len()), (0, 0));
    bench.bring_named("ann").await?;
    let next = bench.tail(start.at.clone()).await?;
    let names: Vec<&str> = next.commits[0].delta.upserts.iter().map(|member| member.user.as_str()).collect();
    assert_eq!((names, next.commits.len()), (vec!["ann"], 1));
    let repeated = bench.tail(start.at).await?;
    assert_eq!(repeated, next, "asking again answers again");
    Ok(())
}

/// All rosters of a shard in the order of their commits, without gaps, as history has them.
pub async fn a_tail_is_in_order(bench: &Bench) -> anyhow::Result<()> {
    let start = bench.tail(BTreeMap::new()).await?.at;
    let before = bench.summary().await?.position;
    let other = bench.neighbour(0);
    for name in ["one", "two", "three"] {
        bench.bring_named(name).await?;
        let mut person = bench.person(name);
        person.lease = person.again().lease;
        let change = person.joins(&super::people::unread(&person.user), bench.now().await?);
        bench.commit_to(&other, vec![change]).await?;
    }
    let mut at = start;
    let mut commits = Vec::new();
    while commits.len() < 6 {
        let next = bench.tail(at).await?;
        assert_eq!(next.broken, []);
        commits.extend(next.commits);
        at = next.at;
    }
    let rooms: Vec<&str> = commits.iter().map(|commit| commit.roster.room.as_str()).collect();
    let (here, there) = (bench.roster.room.as_str(), other.room.as_str());
    assert_eq!(rooms, [here, there, here, there, here, there]);
    let of_roster: Vec<_> = commits.into_iter().filter(|commit| commit.roster == bench.roster).collect();
    assert_eq!(of_roster, bench.commits_after(before).await?);
    Ok(())
}

/// A tail with nothing to tell waits, and is woken by a commit.
pub async fn a_tail_waits_for_a_commit(bench: &Bench) -> anyhow::Result<()> {
    let start = bench.tail(BTreeMap::new()).await?;
    let mut waiting = bench.execute(Command::Tail { after: start.at, wait: bench.ttl * 1000 });
    assert!(poll!(&mut waiting).is_pending());
    bench.bring_named("ann").await?;
    assert_eq!(tail_of(waiting.await?)?.commits.len(), 1);
    Ok(())
}

/// A tail does not wait for longer than asked, and then says where it is.
pub async fn a_tail_answers_in_time(bench: &Bench) -> anyhow::Result<()> {
    let start = bench.tail(BTreeMap::new()).await?;
    let mut waiting = bench.execute(Command::Tail { after: start.at.clone(), wait: bench.ttl });
    assert!(poll!(&mut waiting).is_pending());
    bench.advance(bench.ttl).await;
    assert_eq!(tail_of(waiting.await?)?, start);
    Ok(())
}

/// A place that the store does not know is a break, and says where to go on.
pub async fn an_unknown_place_is_a_break(bench: &Bench) -> anyhow::Result<()> {
    bench.bring_named("ann").await?;
    let here = bench.tail(BTreeMap::new()).await?.at;
    let place = here[&bench.shard];
    let ahead = TailId { sequence: place.sequence + 1, ..place };
    let other = TailId { epoch: Epoch { minted_ms: 1, random: 1 }, ..place };
    for unknown in [ahead, other] {
        let mut after = here.clone();
        after.insert(bench.shard, unknown);
        let tail = bench.tail(after).await?;
        assert_eq!((tail.broken, tail.at), (vec![bench.shard], here.clone()), "{unknown:?}");
    }
    Ok(())
}
