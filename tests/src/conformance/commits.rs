//! What a commit promises: per member all or nothing, together one revision, and history tells it.

use anyhow::ensure;
use presence_core::store::{CommitOutcome, NotApplied};
use presence_model::change::{Change, TransitionKind};
use presence_model::id::SessionId;
use presence_model::position::{Epoch, Revision};
use presence_model::profile::Status;
use presence_model::reason::RemovalReason;

use super::bench::Bench;
use super::people::{nothing, unread};

/// Several members at once are one revision, told once.
pub async fn a_commit_is_one_revision(bench: &Bench) -> anyhow::Result<()> {
    let before = bench.summary().await?.position;
    let people = ["cid", "ann", "bob"].map(|name| bench.person(name));
    let now = bench.now().await?;
    let changes = people.iter().map(|person| person.joins(&unread(&person.user), now)).collect();
    let applied = bench.commit(changes).await?;
    assert_eq!(applied.refused, []);
    assert_eq!(applied.position.revision, before.revision.next());
    assert_eq!(applied.position.epoch, before.epoch);
    let commits = bench.commits_after(before).await?;
    ensure!(commits.len() == 1, "{} commits", commits.len());
    let delta = &commits[0].delta;
    ensure!(delta.from <= before.revision && delta.to == applied.position.revision, "{delta:?}");
    let names: Vec<&str> = delta.upserts.iter().map(|member| member.user.as_str()).collect();
    assert_eq!(names, ["ann", "bob", "cid"], "sorted");
    assert_eq!(commits[0].transitions.len(), 3);
    assert_eq!(commits[0].at, applied.now);
    Ok(())
}

/// What is told of a commit follows from what is stored by it.
pub async fn a_commit_tells_what_shows(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.person("ann");
    let start = bench.bring(&ann).await?.position;
    let mut second = bench.person("ann second tab");
    second.user = ann.user.clone();
    bench.bring(&second).await?;
    let read = bench.read(&ann.user).await?;
    bench.applied(ann.says(Status::Busy, &read, bench.now().await?)).await?;
    bench.dismiss(&ann).await?;
    bench.dismiss(&second).await?;
    let commits = bench.commits_after(start).await?;
    let shows: Vec<(usize, usize)> =
        commits.iter().map(|commit| (commit.delta.upserts.len(), commit.delta.removals.len())).collect();
    assert_eq!(shows, [(0, 0), (1, 0), (1, 0), (0, 1)], "tab, busy, busy tab gone, all gone");
    let gone = &commits[3].delta.removals[0];
    assert_eq!((&gone.user, gone.ending.reason), (&ann.user, RemovalReason::Left));
    let (who, what) = &commits[3].transitions[0];
    ensure!(*who == ann.user && matches!(what.kind, TransitionKind::Ended(_)), "{what:?}");
    for pair in commits.windows(2) {
        assert_eq!(pair[0].delta.to, pair[1].delta.from, "without gaps");
    }
    Ok(())
}

/// A change of a record that is not as read is refused, and the others are applied.
pub async fn a_changed_record_is_refused_alone(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let old = bench.read(&ann.user).await?;
    bench.applied(ann.says(Status::Busy, &old, bench.now().await?)).await?;
    let bob = bench.person("bob");
    let now = bench.now().await?;
    let changes = vec![ann.says(Status::Away, &old, now), bob.joins(&unread(&bob.user), now)];
    let applied = bench.commit(changes).await?;
    assert_eq!(applied.refused, [(ann.user.clone(), NotApplied::Changed)]);
    assert_eq!(bench.summary().await?.count, 2);
    let (_, members) = bench.load(10).await?;
    assert_eq!(members[0].0.status, Status::Busy, "as it was");
    Ok(())
}

/// A member has one value at a revision: of two changes in one commit the first is applied.
pub async fn a_member_has_one_value_at_a_revision(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.person("ann");
    let read = bench.read(&ann.user).await?;
    let forbid =
        |reason| Change { tombstones: vec![(ann.session.clone(), ann.tombstone(reason))], ..nothing(&read) };
    let changes = vec![forbid(RemovalReason::Evicted), forbid(RemovalReason::Left)];
    assert_eq!(bench.commit(changes).await?.refused, [(ann.user.clone(), NotApplied::Changed)]);
    let kept = bench.read(&ann.user).await?.tombstones;
    assert_eq!(kept.values().map(|tombstone| tombstone.reason).collect::<Vec<_>>(), [RemovalReason::Evicted]);
    Ok(())
}

/// One who reads a member as absent who has come meanwhile is refused, and the other way round.
pub async fn presence_is_an_expectation(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let mut second = ann.again();
    second.session = SessionId::new("another-session-of-ann")?;
    assert_eq!(
        bench.refused(second.joins(&unread(&ann.user), bench.now().await?)).await?,
        NotApplied::Changed
    );
    let read = bench.read(&ann.user).await?;
    bench.dismiss(&ann).await?;
    assert_eq!(bench.refused(ann.says(Status::Busy, &read, bench.now().await?)).await?, NotApplied::Changed);
    Ok(())
}

/// Different members of one roster never conflict: the roster's position is no expectation.
pub async fn different_members_do_not_conflict(bench: &Bench) -> anyhow::Result<()> {
    let [ann, bob] = ["ann", "bob"].map(|name| bench.person(name));
    let (anns, bobs) = (bench.read(&ann.user).await?, bench.read(&bob.user).await?);
    let now = bench.now().await?;
    bench.applied(ann.joins(&anns, now)).await?;
    bench.applied(bob.joins(&bobs, now)).await?;
    assert_eq!(bench.summary().await?.count, 2);
    Ok(())
}

/// A join decided before its session ended is refused by the tombstone.
pub async fn a_new_tombstone_refuses_a_late_join(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.person("ann");
    let early = bench.read(&ann.user).await?;
    bench.bring(&ann).await?;
    bench.dismiss(&ann).await?;
    let late = ann.again().joins(&early, bench.now().await?);
    assert_eq!(bench.refused(late).await?, NotApplied::Changed);
    let read = bench.read(&ann.user).await?;
    bench.applied(ann.again().joins(&read, bench.now().await?)).await?;
    Ok(())
}

/// A tombstone alone can be left, for a session that never came: nobody shows, a late join fails.
pub async fn a_tombstone_can_forbid_who_never_came(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.person("ann");
    let early = bench.read(&ann.user).await?;
    let tombstone = (ann.session.clone(), ann.tombstone(RemovalReason::ConnectionLost));
    let forbid = Change {
        expect_tombstones: vec![(ann.session.clone(), None)],
        tombstones: vec![tombstone.clone()],
        ..nothing(&early)
    };
    bench.applied(forbid).await?;
    assert_eq!(bench.summary().await?.count, 0);
    assert_eq!(bench.refused(ann.joins(&early, bench.now().await?)).await?, NotApplied::Changed);
    let read = bench.read(&ann.user).await?;
    assert_eq!(read.tombstones.into_iter().collect::<Vec<_>>(), [tombstone]);
    Ok(())
}

/// A lease id exists once, under either name, however it is asked for.
pub async fn a_lease_id_is_granted_once(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let mut bob = bench.person("bob");
    bob.lease = ann.lease;
    let join = bob.joins(&unread(&bob.user), bench.now().await?);
    assert_eq!(bench.refused(join.clone()).await?, NotApplied::LeaseExists);
    bench.release(ann.edge, &[ann.lease]).await?;
    assert_eq!(bench.refused(join).await?, NotApplied::LeaseExists, "under its grace name too");
    let cid = bench.person("cid");
    let mut twice = cid.joins(&unread(&cid.user), bench.now().await?);
    twice.grants.extend(twice.grants.clone());
    assert_eq!(bench.refused(twice).await?, NotApplied::LeaseExists, "nor twice at once");
    let mut elsewhere = bench.person("cid");
    elsewhere.lease = bench.foreign_lease();
    let join = elsewhere.joins(&unread(&elsewhere.user), bench.now().await?);
    assert_eq!(bench.refused(join).await?, NotApplied::LeaseExists, "no lease of another shard");
    assert_eq!(bench.summary().await?.count, 1);
    Ok(())
}

/// If nothing is applied, nothing has happened: no revision, no history.
pub async fn a_refused_commit_leaves_nothing(bench: &Bench) -> anyhow::Result<()> {
    bench.bring_named("bob").await?;
    let before = bench.summary().await?;
    let ann = bench.person("ann");
    let mut read = unread(&ann.user);
    read.touched = Revision(77);
    let applied = bench.commit(vec![ann.joins(&read, bench.now().await?)]).await?;
    assert_eq!(applied.position, before.position);
    assert_eq!(bench.summary().await?, before);
    assert_eq!(bench.lease(ann.lease).await?, None);
    assert_eq!(bench.commits_after(before.position).await?, []);
    Ok(())
}

/// A commit of another epoch is refused as a whole.
pub async fn another_epoch_is_refused(bench: &Bench) -> anyhow::Result<()> {
    let before = bench.summary().await?;
    let ann = bench.person("ann");
    let old = Epoch { minted_ms: 1, random: 1 };
    let change = ann.joins(&unread(&ann.user), bench.now().await?);
    let outcome = bench.commit_in(old, &bench.roster, vec![change]).await?;
    assert_eq!(outcome, CommitOutcome::Epoch { current: before.position.epoch });
    assert_eq!(bench.summary().await?, before);
    Ok(())
}

/// A newer attempt takes over: the older lease goes under both names in the same commit.
pub async fn a_takeover_removes_the_older_lease(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    bench.bring(&ann.again()).await?;
    assert_eq!(bench.lease(ann.lease).await?, None);
    ensure!(bench.lease(ann.again().lease).await?.is_some(), "the newer one is there");
    bench.release(ann.edge, &[ann.again().lease]).await?;
    bench.bring(&ann.again().again()).await?;
    assert_eq!(bench.lease(ann.again().lease).await?, None, "also from its grace");
    Ok(())
}
