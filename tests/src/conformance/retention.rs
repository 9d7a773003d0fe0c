//! What is forgotten, when, and what is said of it afterwards.

use std::collections::BTreeMap;

use presence_core::store::HistoryOutcome;
use presence_model::change::Change;
use presence_model::id::SessionId;
use presence_model::limits::TOMBSTONES_PER_ROSTER_MAX;
use presence_model::position::Revision;
use presence_model::reason::RemovalReason;

use super::bench::Bench;
use super::people::nothing;

/// Lets everything that was get older than what is remembered, with somebody looking now and then.
async fn forget(bench: &Bench) -> anyhow::Result<()> {
    bench.advance(bench.remembers() + bench.ttl).await;
    bench.sweep().await?;
    bench.sweep().await?;
    Ok(())
}

/// An emptied roster keeps its position, and goes on from it.
pub async fn an_emptied_roster_keeps_its_position(bench: &Bench) -> anyhow::Result<()> {
    let [ann, dan] = [bench.bring_named("ann").await?, bench.bring_named("dan").await?];
    bench.dismiss(&dan).await?;
    bench.advance(bench.remembers() * 3 / 4).await;
    bench.sweep().await?;
    // Without a tombstone, which would keep it: the one of before is forgotten soon.
    let leaves = Change { tombstones: Vec::new(), ..ann.leaves(&bench.read(&ann.user).await?) };
    let emptied = bench.applied(leaves).await?.position;
    let other = bench.person("bob");
    let change = other.joins(&super::people::unread(&other.user), bench.now().await?);
    bench.commit_to(&bench.neighbour(0), vec![change]).await?;
    bench.advance(bench.remembers() / 2).await;
    bench.sweep().await?;
    bench.sweep().await?;
    assert_eq!(bench.summary().await?.position, emptied, "whatever other rosters do");
    bench.bring(&ann.again()).await?;
    assert_eq!(bench.summary().await?.position.revision, emptied.revision.next());
    assert_eq!(bench.commits_after(emptied).await?.len(), 1);
    Ok(())
}

/// A roster that was forgotten and filled again repeats no position, and tells an old cursor that it
/// missed something.
pub async fn a_position_is_never_repeated(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let full = bench.summary().await?.position;
    let emptied = bench.dismiss(&ann).await?.position;
    forget(bench).await?;
    let bob = bench.person("bob");
    let filled = bench.bring(&bob).await?.position;
    assert_eq!(filled.epoch, emptied.epoch);
    assert!(filled.revision > emptied.revision, "{filled} is above {emptied}");
    assert_eq!(bench.history(full, 9).await?, HistoryOutcome::Compacted { position: filled });
    match bench.history(emptied, 9).await? {
        HistoryOutcome::Commits(commits) => {
            assert!(commits.iter().any(|commit| commit.delta.to == filled.revision), "{commits:?}");
        }
        HistoryOutcome::Compacted { position } => assert_eq!(position, filled),
        other @ (HistoryOutcome::Unchanged { .. } | HistoryOutcome::Ahead { .. }) => {
            anyhow::bail!("{other:?}")
        }
    }
    Ok(())
}

/// A roster that was forgotten and is still empty tells an old copy that it missed something, and one that
/// was read since that it did not.
pub async fn a_forgotten_roster_tells_an_old_copy(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let full = bench.summary().await?.position;
    bench.dismiss(&ann).await?;
    forget(bench).await?;
    for number in 0..3 {
        let bob = bench.person(&format!("bob {number}"));
        let change = bob.joins(&super::people::unread(&bob.user), bench.now().await?);
        bench.commit_to(&bench.neighbour(0), vec![change]).await?;
    }
    let here = bench.summary().await?.position;
    assert!(here.revision > full.revision, "{here} is above {full}");
    assert_eq!(bench.history(full, 9).await?, HistoryOutcome::Compacted { position: here });
    assert_eq!(bench.commits_after(here).await?, []);
    Ok(())
}

/// Many rosters that come and go never share a position with an earlier life of their own.
pub async fn rosters_that_come_and_go_never_repeat(bench: &Bench) -> anyhow::Result<()> {
    let mut highest = Revision(0);
    for life in 0..4 {
        let mut ann = bench.person("ann");
        ann.lease = bench.lease_in(&bench.roster, life);
        let came = bench.bring(&ann).await?.position.revision;
        assert!(came > highest, "life {life} starts at {came}, after {highest}");
        highest = bench.dismiss(&ann).await?.position.revision;
        let bob = bench.person("bob");
        let other = bench.neighbour(usize::try_from(life)?);
        let change = bob.joins(&super::people::unread(&bob.user), bench.now().await?);
        if life == 0 {
            bench.commit_to(&other, vec![change]).await?;
        }
        forget(bench).await?;
    }
    Ok(())
}

/// History older than what is remembered is compacted, and what is younger is whole.
pub async fn old_history_is_compacted(bench: &Bench) -> anyhow::Result<()> {
    bench.bring_named("ann").await?;
    let old = bench.summary().await?.position;
    bench.bring_named("bob").await?;
    forget(bench).await?;
    let here = bench.summary().await?.position;
    assert_eq!(bench.history(old, 9).await?, HistoryOutcome::Compacted { position: here });
    assert_eq!(bench.commits_after(here).await?, []);
    bench.bring_named("cid").await?;
    let commits = bench.commits_after(here).await?;
    assert_eq!(commits.len(), 1);
    assert_eq!(commits[0].delta.from, here.revision, "contiguous");
    Ok(())
}

/// A tail that lies further back than history is broken.
pub async fn a_tail_behind_history_is_broken(bench: &Bench) -> anyhow::Result<()> {
    let start = bench.tail(BTreeMap::new()).await?.at;
    bench.bring_named("ann").await?;
    forget(bench).await?;
    let tail = bench.tail(start).await?;
    assert_eq!((tail.broken, tail.commits), (vec![bench.shard], vec![]));
    Ok(())
}

/// What ended is remembered for its time, and then forgotten.
pub async fn tombstones_are_kept_for_their_time(bench: &Bench) -> anyhow::Result<()> {
    let came = bench.bring(&bench.person("somebody who stays")).await?.position.revision;
    let ann = bench.bring_named("ann").await?;
    bench.dismiss(&ann).await?;
    bench.advance(bench.remembers() / 2).await;
    bench.sweep().await?;
    assert_eq!(bench.read(&ann.user).await?.tombstones.len(), 1);
    forget(bench).await?;
    assert_eq!(bench.read(&ann.user).await?.tombstones.len(), 0);
    let (position, members) = bench.load(9).await?;
    assert_eq!((members.len(), position), (1, bench.summary().await?.position), "whoever stays stays");
    assert_eq!(members[0].1, came, "as she came");
    Ok(())
}

/// Of one roster the latest 10,000 are remembered; ending again counts once.
pub async fn tombstones_are_bounded(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.person("ann");
    let tombstone = ann.tombstone(RemovalReason::Left);
    let bury = async |sessions: Vec<SessionId>| {
        let read = bench.read(&ann.user).await?;
        let tombstones = sessions.into_iter().map(|session| (session, tombstone.clone())).collect();
        bench.applied(Change { tombstones, ..nothing(&read) }).await
    };
    let session = |number: usize| SessionId::new(format!("session-{number:-<12}")).expect("a good id");
    bury(vec![session(0)]).await?;
    bench.advance(bench.kept).await;
    for _ in 0..3 {
        bury((1..=10).map(session).collect()).await?;
        bench.advance(bench.kept).await;
    }
    let (last, bound) = (TOMBSTONES_PER_ROSTER_MAX - 1, TOMBSTONES_PER_ROSTER_MAX);
    bury((11..=last).map(session).collect()).await?;
    let kept = bench.read(&ann.user).await?.tombstones;
    assert!(kept.len() == bound && kept.contains_key(&session(0)), "{} kept", kept.len());
    bury(vec![session(bound)]).await?;
    let kept = bench.read(&ann.user).await?.tombstones;
    assert!(kept.len() == bound && !kept.contains_key(&session(0)), "{} kept", kept.len());
    assert!(kept.contains_key(&session(bound)), "the newest is there");
    Ok(())
}
