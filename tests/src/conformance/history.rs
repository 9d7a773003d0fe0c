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
    assert_eq!(bench.commits_after(end).await?, [], "nothing missed");
    Ok(())
}

/// A position ahead of the roster is told so; one of another epoch, that history ends before it.
pub async fn positions_that_never_were_are_told_so(bench: &Bench) -> anyhow::Result<()> {
    bench.bring_named("ann").await?;
    let position = bench.summary().await?.position;
    let ahead = Position { revision: Revision(position.revision.0 + 1), ..position };
    assert_eq!(bench.history(ahead, 9).await?, HistoryOutcome::Ahead { position });
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
    assert_eq!(bench.commits_after(empty).await?, [], "nothing yet");
    bench.bring_named("ann").await?;
    let commits = bench.commits_after(empty).await?;
    assert_eq!(commits.len(), 1);
    let delta = &commits[0].delta;
    assert!(delta.from <= empty.revision && delta.to > empty.revision, "{delta:?} fits {empty}");
    Ok(())
}
