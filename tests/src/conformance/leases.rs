//! Renewal, release, loss: what may move a deadline, and whither.

use presence_core::store::Command;
use presence_model::change::Change;
use presence_model::class::Graces;
use presence_model::id::{Incarnation, LinkNumber};
use presence_model::member::{Shortened, ShortenedBy};
use presence_model::reason::ReleaseReason;
use presence_model::record::LeaseState;
use presence_model::time::StoreTime;

use super::bench::{Bench, EDGE};
use super::people::{Person, nothing};

async fn state(bench: &Bench, person: &Person) -> anyhow::Result<Option<LeaseState>> {
    Ok(bench.lease(person.lease).await?.map(|detail| detail.state))
}

async fn note(bench: &Bench, person: &Person) -> anyhow::Result<Option<Shortened>> {
    let detail = bench.lease(person.lease).await?;
    Ok(detail.and_then(|detail| detail.shortened.filter(|note| note.deadline == detail.state.deadline())))
}

/// The store computes the first deadline, now + ttl; the end of the token is judged by itself, so that a
/// fresh token leaves no shortened deadline behind.
pub async fn a_grant_runs_for_its_ttl(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.person("ann");
    let came = bench.bring(&ann).await?;
    assert_eq!(state(bench, &ann).await?, Some(LeaseState::Live { deadline: came.now + bench.ttl }));
    let mut bob = bench.person("bob");
    bob.token_ends = bench.now().await? + bench.ttl / 2;
    let came = bench.bring(&bob).await?;
    assert_eq!(state(bench, &bob).await?, Some(LeaseState::Live { deadline: came.now + bench.ttl }));
    Ok(())
}

/// A renewal extends and never shortens; repeated and late ones are harmless.
pub async fn a_renewal_never_shortens(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.person("ann");
    let first = bench.bring(&ann).await?.now + bench.ttl;
    let later = first + bench.kept;
    for (deadline, in_force) in [(later, later), (first, later), (later, later), (StoreTime(1), later)] {
        assert_eq!(bench.renew(&[(ann.lease, deadline)]).await?, []);
        assert_eq!(state(bench, &ann).await?, Some(LeaseState::Live { deadline: in_force }));
    }
    Ok(())
}

/// A renewal creates nothing, and names each lease that is not there.
pub async fn a_renewal_never_creates(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let bob = bench.person("bob");
    let deadline = bench.now().await? + bench.ttl * 2;
    let unknown = bench.renew(&[(bob.lease, deadline), (ann.lease, deadline)]).await?;
    assert_eq!(unknown, [bob.lease]);
    assert_eq!(bench.lease(bob.lease).await?, None);
    bench.dismiss(&ann).await?;
    assert_eq!(bench.renew(&[(ann.lease, deadline)]).await?, [ann.lease], "gone with its session");
    let revision = bench.summary().await?.position;
    assert_eq!(bench.renew(&[]).await?, []);
    assert_eq!(bench.summary().await?.position, revision, "renewals commit nothing");
    Ok(())
}

/// One command extends leases of several ttl, each to its own deadline, and names the unknown among them.
pub async fn leases_of_several_ttl_are_renewed_together(bench: &Bench) -> anyhow::Result<()> {
    let (ann, bob) = (bench.person("ann"), bench.person_of("bob", bench.ttl * 15));
    let nobody = bench.person_of("nobody", bench.ttl * 4);
    for person in [&ann, &bob] {
        let came = bench.bring(person).await?;
        let deadline = came.now + person.lease.ttl();
        assert_eq!(state(bench, person).await?, Some(LeaseState::Live { deadline }));
    }
    bench.advance(bench.kept).await;
    let now = bench.now().await?;
    let all = [&bob, &nobody, &ann].map(|person| (person.lease, now + person.lease.ttl()));
    assert_eq!(bench.renew(&all).await?, [nobody.lease]);
    for person in [&ann, &bob] {
        let deadline = now + person.lease.ttl();
        assert_eq!(state(bench, person).await?, Some(LeaseState::Live { deadline }));
    }
    bench.advance_swept(bench.ttl + bench.kept).await?;
    let due = bench.sweep().await?.due;
    let due: Vec<_> = due.iter().map(|due| due.user.clone()).collect();
    assert_eq!(due, [ann.user], "the longer one runs on");
    Ok(())
}

/// A release renames, brings forward, and notes why and what it replaced.
pub async fn a_release_starts_a_grace(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.person("ann");
    let came = bench.bring(&ann).await?;
    let (now, released) = bench.release(ann.edge, &[ann.lease]).await?;
    assert_eq!(released, 1);
    let deadline = now + bench.grace;
    assert_eq!(state(bench, &ann).await?, Some(LeaseState::Grace { deadline }));
    let cause = ShortenedBy::Release(ReleaseReason::TransportLost);
    let replaced = came.now + bench.ttl;
    assert_eq!(note(bench, &ann).await?, Some(Shortened { cause, replaced, deadline }));
    assert_eq!(bench.summary().await?.position, came.position, "nothing is committed");
    Ok(())
}

/// A release is final for its lease: a late batch cannot revive it.
pub async fn a_release_is_final(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    bench.release(ann.edge, &[ann.lease]).await?;
    let before = state(bench, &ann).await?;
    let deadline = bench.now().await? + bench.ttl;
    assert_eq!(bench.renew(&[(ann.lease, deadline)]).await?, [ann.lease], "unknown");
    assert_eq!(bench.renew(&[(ann.lease.grace_name(), deadline)]).await?, [ann.lease.grace_name()]);
    assert_eq!(state(bench, &ann).await?, before);
    bench.advance(bench.kept).await;
    assert_eq!(bench.release(ann.edge, &[ann.lease]).await?.1, 0, "released once");
    assert_eq!(state(bench, &ann).await?, before);
    Ok(())
}

/// A release never lengthens.
pub async fn a_release_never_lengthens(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.person("ann");
    let deadline = bench.bring(&ann).await?.now + bench.ttl;
    bench.advance(bench.ttl - bench.grace / 2).await;
    bench.release(ann.edge, &[ann.lease]).await?;
    assert_eq!(state(bench, &ann).await?, Some(LeaseState::Grace { deadline }));
    Ok(())
}

/// An edge releases what is held through it; unknown leases and those of others are skipped.
pub async fn an_edge_releases_only_its_own(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let mut bob = bench.person("bob");
    bob.edge = Incarnation(0xee);
    bench.bring(&bob).await?;
    let nobody = bench.person("nobody");
    let before = state(bench, &bob).await?;
    let (_, released) = bench.release(EDGE, &[nobody.lease, bob.lease, ann.lease]).await?;
    assert_eq!(released, 1);
    assert_eq!(state(bench, &bob).await?, before);
    Ok(())
}

/// A lost edge's leases are shortened under their own names; a renewal takes that back.
pub async fn a_lost_edge_may_come_back(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.person("ann");
    let replaced = bench.bring(&ann).await?.now + bench.ttl;
    let broken = bench.now().await?;
    bench.link(EDGE, LinkNumber(1)).await?;
    assert_eq!(bench.lose(EDGE, LinkNumber(1), broken).await?, 1);
    let found = note(bench, &ann).await?.expect("a note that counts");
    assert_eq!((found.cause, found.replaced), (ShortenedBy::EdgeLost, replaced));
    assert_eq!(state(bench, &ann).await?, Some(LeaseState::Live { deadline: found.deadline }));
    let expected = found.deadline.since(bench.now().await?);
    assert!(expected <= bench.grace && expected > bench.grace / 2, "{expected:?}");
    assert_eq!(bench.renew(&[(ann.lease, replaced)]).await?, []);
    assert_eq!(state(bench, &ann).await?, Some(LeaseState::Live { deadline: replaced }));
    assert_eq!(note(bench, &ann).await?, None);
    Ok(())
}

/// Losing an edge again changes nothing, and counts what is shortened already.
pub async fn losing_an_edge_is_repeatable(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let broken = bench.now().await?;
    bench.lose(EDGE, LinkNumber(1), broken).await?;
    let before = note(bench, &ann).await?;
    bench.advance(bench.kept).await;
    assert_eq!(bench.lose(EDGE, LinkNumber(1), broken).await?, 1);
    assert_eq!(note(bench, &ann).await?, before);
    Ok(())
}

/// An edge that is lost held leases of several ttl: each is shortened to the grace of its own.
pub async fn a_lost_edge_leaves_each_the_grace_of_its_ttl(bench: &Bench) -> anyhow::Result<()> {
    let (ann, bob) = (bench.person("ann"), bench.person_of("bob", bench.ttl * 15));
    let cid = bench.person_of("cid", bench.ttl * 4);
    for person in [&ann, &bob, &cid] {
        bench.bring(person).await?;
    }
    let (short, long, usual) = (bench.ttl / 10, bench.ttl * 4, bench.ttl * 2);
    let graces = Graces::from(usual).and(bench.ttl, short).and(bench.ttl * 15, long);
    let broken = bench.now().await?;
    assert_eq!(bench.lose_by(EDGE, LinkNumber(1), broken, graces).await?, 3);
    let lost = bench.now().await?;
    for (person, grace) in [(&ann, short), (&bob, long), (&cid, usual)] {
        let deadline = state(bench, person).await?.map(|state| state.deadline());
        let within = broken + grace..=lost + grace;
        assert!(deadline.is_some_and(|deadline| within.contains(&deadline)), "{deadline:?}: {within:?}");
    }
    Ok(())
}

/// Losing an edge never lengthens: whoever runs out sooner does, and whoever has run out has for silence.
pub async fn a_loss_never_lengthens(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    bench.advance_swept(bench.ttl - bench.grace / 2).await?;
    let bob = bench.person("bob");
    let soon = bench.lease(ann.lease).await?.map(|detail| detail.state);
    bench.bring(&bob).await?;
    let broken = bench.now().await?;
    assert_eq!(bench.lose(EDGE, LinkNumber(1), broken).await?, 2);
    assert_eq!(state(bench, &ann).await?, soon);
    bench.advance_swept(bench.ttl).await?;
    let cid = bench.bring_named("cid").await?;
    bench.advance_swept(bench.ttl + bench.kept).await?;
    let over = bench.lease(cid.lease).await?;
    bench.lose(EDGE, LinkNumber(1), bench.now().await?).await?;
    assert_eq!(bench.lease(cid.lease).await?, over, "silence it was");
    Ok(())
}

/// What was renewed after the link broke is not lost with it, nor what another edge holds, nor what is
/// in its grace already.
pub async fn only_the_silent_are_lost(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let cid = bench.bring_named("cid").await?;
    let mut bob = bench.person("bob");
    bob.edge = Incarnation(0xee);
    bench.bring(&bob).await?;
    bench.release(EDGE, &[cid.lease]).await?;
    let broken = bench.now().await?;
    bench.advance(bench.kept).await;
    bench.renew(&[(ann.lease, bench.now().await? + bench.ttl)]).await?;
    let mut before = Vec::new();
    for person in [&ann, &bob, &cid] {
        before.push(bench.lease(person.lease).await?);
    }
    assert_eq!(bench.lose(EDGE, LinkNumber(1), broken).await?, 0);
    for (person, before) in [&ann, &bob, &cid].into_iter().zip(before) {
        assert_eq!(bench.lease(person.lease).await?, before);
    }
    Ok(())
}

/// An edge whose newer link is known is not lost for an older one.
pub async fn a_newer_link_keeps_an_edge(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let broken = bench.now().await?;
    bench.link(EDGE, LinkNumber(2)).await?;
    assert_eq!(bench.lose(EDGE, LinkNumber(1), broken).await?, 0);
    assert_eq!(note(bench, &ann).await?, None);
    assert_eq!(bench.lose(EDGE, LinkNumber(2), broken).await?, 1);
    Ok(())
}

/// A release after the edge was lost counts from the deadline that was replaced.
pub async fn a_release_after_a_loss_has_its_whole_grace(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.person("ann");
    let replaced = bench.bring(&ann).await?.now + bench.ttl;
    bench.lose(EDGE, LinkNumber(1), bench.now().await?).await?;
    bench.advance(bench.grace / 2).await;
    let (now, released) = bench.release(EDGE, &[ann.lease]).await?;
    assert_eq!(released, 1);
    assert_eq!(state(bench, &ann).await?, Some(LeaseState::Grace { deadline: now + bench.grace }));
    assert_eq!(note(bench, &ann).await?.map(|note| note.replaced), Some(replaced));
    Ok(())
}

/// A new token moves its end, and is noted for the lease that stays.
pub async fn a_new_token_moves_its_end(bench: &Bench) -> anyhow::Result<()> {
    let mut ann = bench.person("ann");
    ann.token_ends = bench.now().await? + bench.ttl / 4;
    bench.bring(&ann).await?;
    let ends = bench.now().await? + bench.ttl * 2;
    let read = bench.read(&ann.user).await?;
    bench.applied(Change { token_ends: vec![(ann.lease, ends)], ..nothing(&read) }).await?;
    bench.renew(&[(ann.lease, ends)]).await?;
    bench.advance_swept(bench.ttl / 2).await?;
    assert_eq!(bench.sweep().await?.due, [], "the old end has passed and does not count");
    bench.advance_swept(bench.ttl * 2).await?;
    assert_eq!(bench.sweep().await?.due.len(), 1);
    Ok(())
}

/// Leases that no record names are discarded when they have ended, and not before.
pub async fn only_the_ended_are_discarded(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let discard = || Command::Discard { shard: bench.shard, leases: vec![ann.lease] };
    bench.done(discard()).await?;
    assert!(bench.lease(ann.lease).await?.is_some(), "it still runs");
    bench.advance_swept(bench.ttl + bench.kept).await?;
    let before = bench.summary().await?.position;
    bench.done(discard()).await?;
    bench.done(discard()).await?;
    assert_eq!(bench.lease(ann.lease).await?, None);
    assert_eq!(bench.sweep().await?.due, []);
    assert_eq!(bench.summary().await?.position, before);
    Ok(())
}
