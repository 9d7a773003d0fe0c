//! Guards are judged inside the commit, by the store's clock.

use anyhow::ensure;
use presence_core::store::{CommitOutcome, NotApplied};
use presence_model::change::Guard;
use presence_model::reason::RemovalReason;

use super::bench::{Ask, Bench, CORE};

/// Nobody is ended for silence whose lease still runs; who is overdue is.
pub async fn silence_ends_only_the_overdue(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let read = bench.read(&ann.user).await?;
    assert_eq!(bench.refused(ann.expires(&read)).await?, NotApplied::Guard);
    bench.advance_swept(bench.ttl + bench.kept).await?;
    bench.applied(ann.expires(&read)).await?;
    assert_eq!(bench.summary().await?.count, 0);
    assert_eq!(bench.lease(ann.lease).await?, None);
    Ok(())
}

/// A renewal that slips in between the decision and its commit wins.
pub async fn a_renewal_wins_over_a_decision(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    bench.advance_swept(bench.ttl + bench.kept).await?;
    let decided = ann.expires(&bench.read(&ann.user).await?);
    bench.renew(&[(ann.lease, bench.now().await? + bench.ttl)]).await?;
    assert_eq!(bench.refused(decided).await?, NotApplied::Guard);
    assert_eq!(bench.summary().await?.count, 1);
    Ok(())
}

/// A guard is judged per change: one who renewed does not save the others.
pub async fn guards_are_judged_one_by_one(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let bob = bench.bring_named("bob").await?;
    bench.advance_swept(bench.ttl + bench.kept).await?;
    let (_, reads) = bench.members(&[&ann.user, &bob.user]).await?;
    bench.renew(&[(ann.lease, bench.now().await? + bench.ttl)]).await?;
    let applied = bench.commit(vec![ann.expires(&reads[0]), bob.expires(&reads[1])]).await?;
    assert_eq!(applied.refused, [(ann.user.clone(), NotApplied::Guard)]);
    assert_eq!(bench.load(10).await?.1[0].0.user, ann.user);
    Ok(())
}

/// A lease in grace is overdue by its grace name.
pub async fn grace_runs_out_like_any_lease(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    bench.release(ann.edge, &[ann.lease]).await?;
    let read = bench.read(&ann.user).await?;
    assert_eq!(bench.refused(ann.expires(&read)).await?, NotApplied::Guard);
    bench.advance_swept(bench.grace + bench.kept / 2).await?;
    bench.applied(ann.expires(&read)).await?;
    Ok(())
}

/// The end of a token is its own clock.
pub async fn a_token_end_is_a_guard_of_its_own(bench: &Bench) -> anyhow::Result<()> {
    let mut ann = bench.person("ann");
    ann.token_ends = bench.now().await? + bench.ttl / 2;
    bench.bring(&ann).await?;
    let read = bench.read(&ann.user).await?;
    let ends = ann.goes(&read, RemovalReason::TokenExpired, vec![Guard::TokenEnded(ann.lease)]);
    assert_eq!(bench.refused(ends.clone()).await?, NotApplied::Guard);
    bench.advance(bench.ttl / 2 + bench.kept).await;
    bench.renew(&[(ann.lease, bench.now().await? + bench.ttl)]).await?;
    bench.applied(ends).await?;
    Ok(())
}

/// In a hold neither silence nor grace ends anybody; goodbyes, token ends and takeovers go on.
pub async fn a_hold_stops_silence_and_nothing_else(bench: &Bench) -> anyhow::Result<()> {
    let [ann, bob, mut cid, dan] = ["ann", "bob", "cid", "dan"].map(|name| bench.person(name));
    cid.token_ends = bench.now().await? + bench.ttl / 4;
    for person in [&ann, &bob, &cid, &dan] {
        bench.bring(person).await?;
    }
    bench.advance_swept(bench.ttl - bench.kept).await?;
    bench.release(bob.edge, &[bob.lease]).await?;
    bench.turn(Ask { stepped: true, ..Ask::by(CORE) }).await?;
    bench.advance_swept(bench.ttl / 2).await?;
    let silent = [(&ann, "silence"), (&bob, "grace")];
    for (person, why) in silent {
        let read = bench.read(&person.user).await?;
        assert_eq!(bench.refused(person.expires(&read)).await?, NotApplied::Guard, "{why}");
    }
    let read = bench.read(&cid.user).await?;
    let ends = cid.goes(&read, RemovalReason::TokenExpired, vec![Guard::TokenEnded(cid.lease)]);
    bench.applied(ends).await?;
    bench.bring(&dan.again()).await?;
    bench.dismiss(&dan.again()).await?;
    bench.advance_swept(bench.ttl / 2 + bench.kept).await?;
    for (person, _) in silent {
        bench.applied(person.expires(&bench.read(&person.user).await?)).await?;
    }
    Ok(())
}

/// A command that was long under way, while nobody looked, ends nobody: a hold is due though no turn
/// has set it yet.
pub async fn a_late_command_ends_nobody(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let epoch = bench.summary().await?.position.epoch;
    let decided = ann.expires(&bench.read(&ann.user).await?);
    bench.sweep().await?;
    bench.advance(bench.ttl * 3).await;
    let outcome = bench.commit_in(epoch, &bench.roster, vec![decided]).await?;
    let CommitOutcome::Applied { refused, .. } = outcome else { anyhow::bail!("{outcome:?}") };
    assert_eq!(refused, [(ann.user, NotApplied::Guard)]);
    Ok(())
}

/// A record without lease is a remnant; one with a lease is not.
pub async fn an_absent_lease_is_a_guard(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let read = bench.read(&ann.user).await?;
    let remnant = |lease| ann.goes(&read, RemovalReason::LeaseExpired, vec![Guard::LeaseAbsent(lease)]);
    assert_eq!(bench.refused(remnant(ann.lease)).await?, NotApplied::Guard);
    bench.release(ann.edge, &[ann.lease]).await?;
    assert_eq!(bench.refused(remnant(ann.lease)).await?, NotApplied::Guard, "in grace it exists");
    bench.applied(remnant(ann.again().lease)).await?;
    ensure!(bench.summary().await?.count == 0, "gone");
    Ok(())
}
