//! History: in order and whole, or it says that it is not.

use presence_core::store::HistoryOutcome;
use presence_model::position::{Epoch, Position, Revision};
use presence_model::profile::Status;

use super::bench::Bench;

/// Commits after a position, in order, without gaps, no more than asked for.
pub async fn history_is_contiguous(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let start = bench.summary().await?.position;
    for status in [Status::Busy, Status::Away, Status::Available, Status::Busy] {
        let read = bench.read(&ann.user).await?;
        bench.applied(ann.says(status, &read, bench.now().await?)).await?;
        bench.commit_to(&bench.neighbour(0), Vec::new()).await?;
    }
    let commits = bench.commits_after(start).await?;
    let mut expected = start.revision;
    for commit in &commits {
        assert_eq!((commit.delta.from, commit.delta.to), (expected, expected.next()));
        assert_eq!((commit.delta.epoch, &commit.roster), (start.epoch, &bench.roster));
        expected = expected.next();
    }
    assert_eq!(commits.len(), 4);
    let HistoryOutcome::Commits(two) = bench.history(start, 2).await? else { anyhow::bail!("compacted") };
    assert_eq!(two, commits[..2]);
    let end = bench.summary().await?.position;
    assert_eq!(bench.history(end, 9).await?, HistoryOutcome::Unchanged { position: end }, "nothing missed");
    Ok(())
}

/// Each commit says how many members the roster has by then, whatever it did.
pub async fn commits_tell_the_number_of_members(bench: &Bench) -> anyhow::Result<()> {
    let start = bench.summary().await?.position;
    let ann = bench.bring_named("ann").await?;
    bench.bring_named("ben").await?;
    let read = bench.read(&ann.user).await?;
    bench.applied(ann.says(Status::Busy, &read, bench.now().await?)).await?;
    let nobody = bench.read(&bench.person("cid").user).await?;
    bench.applied(super::people::nothing(&nobody)).await?;
    bench.dismiss(&ann).await?;
    let told: Vec<u64> = bench.commits_after(start).await?.iter().map(|commit| commit.members).collect();
    assert_eq!(told, [1, 2, 2, 2, 1]);
    assert_eq!(bench.summary().await?.count, 1);
    Ok(())
}

/// A position ahead of the roster is told so; one of another epoch, that history ends before it.
pub async fn positions_that_never_were_are_told_so(bench: &Bench) -> anyhow::Result<()> {
    bench.bring_named("ann").await?;
    let position = bench.summary().await?.position;
    let ahead = Position { revision: Revision(position.revision.0 + 1), ..position };
    assert_eq!(bench.history(ahead, 9).await?, HistoryOutcome::Ahead { position });
    let furthest = Position { revision: Revision(u64::MAX), ..position };
    assert_eq!(bench.history(furthest, 9).await?, HistoryOutcome::Ahead { position });
    let last = Epoch { minted_ms: u64::MAX, random: u64::MAX };
    let future = Position { epoch: last, revision: Revision(u64::MAX) };
    assert_eq!(bench.history(future, 9).await?, HistoryOutcome::Compacted { position });
    let other = Position { epoch: Epoch { minted_ms: 1, random: 1 }, ..position };
    assert_eq!(bench.history(other, 9).await?, HistoryOutcome::Compacted { position });
    Ok(())
}

/// A copy that was read while nobody was there learns all that came, whatever other rosters did.
pub async fn a_copy_of_an_empty_roster_misses_nothing(bench: &Bench) -> anyhow::Result<()> {
    let empty = bench.summary().await?.position;
    let other = bench.neighbour(0);
    for name in ["one", "two", "three"] {
        let person = bench.person(name);
        let change = person.joins(&super::people::unread(&person.user), bench.now().await?);
        bench.commit_to(&other, vec![change]).await?;
    }
    let position = bench.summary().await?.position;
    assert!(
        position > empty,
        "{position} is where a copy that is read now begins, and others began at {empty}"
    );
    assert_eq!(bench.history(empty, 9).await?, HistoryOutcome::Unchanged { position }, "nothing yet");
    bench.bring_named("ann").await?;
    let commits = bench.commits_after(empty).await?;
    assert_eq!(commits.len(), 1);
    let delta = &commits[0].delta;
    assert!(delta.from <= empty.revision && delta.to > empty.revision, "{delta:?} fits {empty}");
    Ok(())
}
