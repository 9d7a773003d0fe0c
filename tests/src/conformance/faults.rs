//! Everything that a store may suffer, and what it must still be true to.

use std::collections::BTreeMap;

use futures::poll;
use presence_core::store::{Command, CommitOutcome, HistoryOutcome, NotApplied, StoreFault};
use presence_model::hold::HoldCause;
use presence_model::id::LinkNumber;
use presence_model::profile::Status;

use super::Fault;
use super::bench::{Ask, Bench, CORE, EDGE};
use super::people::unread;

/// A restart with data: everything is there, under a new epoch and a hold.
pub async fn a_restart_keeps_data_under_a_new_epoch(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let before = bench.sweep().await?;
    bench.provoke(Fault::Restart).await;
    let turn = bench.turn(Ask { known: Some(before.epoch), ..Ask::by(CORE) }).await?;
    assert!(turn.epoch > before.epoch && turn.new_hold, "{turn:?}");
    assert_eq!(turn.hold.map(|hold| (hold.since, hold.cause)), Some((turn.now, HoldCause::StoreChanged)));
    let summary = bench.summary().await?;
    assert_eq!((summary.count, summary.position.epoch), (1, turn.epoch));
    let deadline = bench.now().await? + bench.ttl * 2;
    assert_eq!(bench.renew(&[(ann.lease, deadline)]).await?, [], "leases are there");
    let again = bench.sweep().await?;
    assert_eq!((again.epoch, again.new_hold), (turn.epoch, false), "minted once");
    Ok(())
}

/// Before its epoch is settled a changed shard tells nothing that could be told again of other data.
pub async fn a_changed_shard_is_settled_before_it_is_read(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let old = bench.summary().await?.position;
    bench.provoke(Fault::Restart).await;
    let told = [
        bench.summary().await.map(|summary| summary.position),
        bench.members(&[&ann.user]).await.map(|(position, _)| position),
        bench.history(old, 9).await.and_then(|outcome| match outcome {
            HistoryOutcome::Compacted { position } => Ok(position),
            HistoryOutcome::Commits(_) | HistoryOutcome::Unchanged { .. } | HistoryOutcome::Ahead { .. } => {
                anyhow::bail!("{outcome:?}")
            }
        }),
    ];
    for told in told {
        match told {
            Ok(position) => assert!(position.epoch > old.epoch, "{position}"),
            Err(error) => {
                let fault = error.downcast_ref::<StoreFault>();
                assert_eq!(fault, Some(&StoreFault::Unsettled), "{error}");
            }
        }
    }
    bench.sweep().await?;
    assert!(bench.summary().await?.position.epoch > old.epoch);
    Ok(())
}

/// Of data that nobody vouches for no edge is lost: its hold is about to begin.
pub async fn a_changed_shard_loses_no_edge(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let broken = bench.now().await?;
    bench.provoke(Fault::Restart).await;
    let before = bench.lease(ann.lease).await?;
    assert!(before.is_some());
    assert_eq!(bench.lose(EDGE, LinkNumber(1), broken).await?, 0);
    assert_eq!(bench.lease(ann.lease).await?, before);
    Ok(())
}

/// A commit decided before the restart is refused, though its expectations hold.
pub async fn a_restart_refuses_what_was_decided_before(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let old = bench.summary().await?.position.epoch;
    let change = ann.says(Status::Busy, &bench.read(&ann.user).await?, bench.now().await?);
    bench.provoke(Fault::Restart).await;
    let outcome = bench.commit_in(old, &bench.roster, vec![change.clone()]).await?;
    let CommitOutcome::Epoch { current } = outcome else { anyhow::bail!("{outcome:?}") };
    assert!(current > old);
    let turn = bench.turn(Ask { known: Some(old), ..Ask::by(CORE) }).await?;
    assert_eq!(turn.epoch, current, "the commit has settled it");
    assert_eq!(turn.hold.map(|hold| hold.cause), Some(HoldCause::StoreChanged), "with its hold");
    bench.applied(change).await?;
    Ok(())
}

/// A restart breaks every tail, once.
pub async fn a_restart_breaks_tails(bench: &Bench) -> anyhow::Result<()> {
    bench.bring_named("ann").await?;
    let start = bench.tail(BTreeMap::new()).await?.at;
    bench.provoke(Fault::Restart).await;
    bench.sweep().await?;
    let tail = bench.tail(start).await?;
    assert!(tail.broken.contains(&bench.shard), "{tail:?}");
    bench.bring_named("bob").await?;
    let next = bench.tail(tail.at).await?;
    assert_eq!(next.commits.len(), 1, "{next:?}");
    assert!(!next.broken.contains(&bench.shard), "{next:?}");
    Ok(())
}

/// Nobody is ended for silence within one ttl after the store came back, however long it was away.
pub async fn a_restart_ends_nobody(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    bench.sweep().await?;
    bench.provoke(Fault::Unavailable(true)).await;
    bench.advance(bench.ttl * 3).await;
    bench.provoke(Fault::Unavailable(false)).await;
    bench.provoke(Fault::Restart).await;
    assert_eq!(bench.turn(Ask::by(CORE)).await?.due, []);
    let read = bench.read(&ann.user).await?;
    assert_eq!(bench.refused(ann.expires(&read)).await?, NotApplied::Guard);
    assert_eq!(bench.lose(EDGE, LinkNumber(9), bench.now().await?).await?, 0);
    Ok(())
}

/// A restart without data: nobody is there, everything is unknown, and the epoch is above all before.
pub async fn an_empty_restart_forgets_everything(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    bench.link(EDGE, LinkNumber(1)).await?;
    let before = bench.sweep().await?;
    bench.provoke(Fault::RestartEmpty).await;
    let deadline = bench.now().await? + bench.ttl;
    assert_eq!(bench.renew(&[(ann.lease, deadline)]).await?, [ann.lease], "unknown, not an error");
    let turn = bench.turn(Ask { known: Some(before.epoch), ..Ask::by(CORE) }).await?;
    assert!(turn.epoch > before.epoch && turn.new_hold && turn.mine, "{turn:?}");
    assert_eq!(bench.summary().await?.count, 0);
    assert_eq!(bench.load(9).await?.1, []);
    assert_eq!(bench.rooms("", None, 9).await?, [""; 0]);
    assert_eq!(bench.edge(EDGE).await?, None);
    bench.bring(&ann).await?;
    assert_eq!(bench.summary().await?.count, 1);
    Ok(())
}

/// The same with a clock far behind: the epoch is still above what the caller knew.
pub async fn an_empty_restart_with_a_clock_behind(bench: &Bench) -> anyhow::Result<()> {
    bench.bring_named("ann").await?;
    let before = bench.sweep().await?;
    bench.provoke(Fault::RestartEmpty).await;
    bench.provoke(Fault::StepClock { by_ms: -60_000 }).await;
    let turn = bench.turn(Ask { known: Some(before.epoch), ..Ask::by(CORE) }).await?;
    assert!(turn.epoch > before.epoch && turn.mine, "{turn:?}");
    let again = bench.sweep().await?;
    assert!(!again.new_hold && again.mine, "{again:?}");
    Ok(())
}

/// A fail-over that lost its tail: what was lost is not there, what was kept is, nothing is repeated.
pub async fn a_fail_over_loses_its_tail(bench: &Bench) -> anyhow::Result<()> {
    bench.bring_named("ann").await?;
    let bob = bench.bring_named("bob").await?;
    let cid = bench.bring_named("cid").await?;
    bench.dismiss(&bob).await?;
    let before = bench.sweep().await?;
    let lost = bench.summary().await?.position;
    bench.provoke(Fault::FailOver { lost_commits: 2 }).await;
    let turn = bench.turn(Ask { known: Some(before.epoch), ..Ask::by(CORE) }).await?;
    assert!(turn.epoch > before.epoch && turn.new_hold, "{turn:?}");
    let names: Vec<_> = bench.load(9).await?.1.into_iter().map(|(member, _)| member.user).collect();
    assert_eq!(names.iter().map(|user| user.as_str()).collect::<Vec<_>>(), ["ann", "bob"]);
    let deadline = bench.now().await? + bench.ttl * 2;
    assert_eq!(bench.renew(&[(cid.lease, deadline), (bob.lease, deadline)]).await?, [cid.lease]);
    assert!(bench.summary().await?.position > lost, "ordered");
    bench.bring(&cid).await?;
    assert_eq!(bench.summary().await?.count, 3, "as they re-join");
    Ok(())
}

/// A fail-over to a server whose clock is ahead or behind by a minute ends nobody.
pub async fn a_fail_over_changes_the_clock(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let mut known = bench.sweep().await?.epoch;
    for by_ms in [60_000, -120_000] {
        bench.provoke(Fault::FailOver { lost_commits: 0 }).await;
        bench.provoke(Fault::StepClock { by_ms }).await;
        let turn = bench.turn(Ask { known: Some(known), ..Ask::by(CORE) }).await?;
        assert!(turn.epoch > known && turn.new_hold, "{turn:?}");
        assert_eq!(turn.due, [], "{by_ms} ms");
        known = turn.epoch;
        bench.renew(&[(ann.lease, bench.now().await? + bench.ttl)]).await?;
        let read = bench.read(&ann.user).await?;
        assert_eq!(bench.refused(ann.expires(&read)).await?, NotApplied::Guard);
    }
    bench.advance_swept(bench.ttl * 2 + bench.kept).await?;
    assert_eq!(bench.sweep().await?.due.len(), 1, "and who is silent goes in time");
    Ok(())
}

/// An answer that is lost does not mean that nothing happened: reading again tells.
pub async fn a_lost_answer_was_carried_out(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.person("ann");
    let epoch = bench.summary().await?.position.epoch;
    let join = ann.joins(&unread(&ann.user), bench.now().await?);
    bench.provoke(Fault::LoseAnswer).await;
    let answer = bench.commit_in(epoch, &bench.roster, vec![join.clone()]).await;
    let fault = answer.expect_err("its answer is lost").downcast::<StoreFault>()?;
    assert_eq!(fault, StoreFault::Unknown);
    let read = bench.read(&ann.user).await?;
    assert!(read.leases.contains_key(&ann.lease), "granted all the same");
    assert_eq!(bench.refused(join).await?, NotApplied::Changed, "a blind repetition does no harm");
    assert_eq!(bench.summary().await?.count, 1);
    Ok(())
}

/// Nor that something did.
pub async fn a_lost_command_was_not_carried_out(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.person("ann");
    let before = bench.summary().await?;
    let join = ann.joins(&unread(&ann.user), bench.now().await?);
    bench.provoke(Fault::LoseCommand).await;
    let answer = bench.commit_in(before.position.epoch, &bench.roster, vec![join.clone()]).await;
    assert_eq!(answer.expect_err("it is lost").downcast::<StoreFault>()?, StoreFault::Unknown);
    assert_eq!(bench.summary().await?, before);
    bench.applied(join).await?;
    Ok(())
}

/// Every verb that is repeated after a lost answer leaves what one would have left.
pub async fn repeating_is_harmless(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let deadline = bench.now().await? + bench.ttl * 2;
    bench.provoke(Fault::LoseAnswer).await;
    assert!(bench.renew(&[(ann.lease, deadline)]).await.is_err());
    assert_eq!(bench.renew(&[(ann.lease, deadline)]).await?, []);
    bench.provoke(Fault::LoseAnswer).await;
    assert!(bench.release(EDGE, &[ann.lease]).await.is_err());
    let released = bench.lease(ann.lease).await?;
    assert_eq!(bench.release(EDGE, &[ann.lease]).await?.1, 0);
    assert_eq!(bench.lease(ann.lease).await?, released);
    bench.provoke(Fault::LoseAnswer).await;
    assert!(bench.link(EDGE, LinkNumber(4)).await.is_err());
    assert!(bench.link(EDGE, LinkNumber(4)).await?);
    Ok(())
}

/// A read-only store answers reads and says what it is to writes.
pub async fn a_read_only_store_says_so(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let epoch = bench.summary().await?.position.epoch;
    bench.provoke(Fault::ReadOnly(true)).await;
    let read = bench.read(&ann.user).await?;
    assert!(read.record.is_some(), "reads go on");
    let commit = bench.commit_in(epoch, &bench.roster, vec![ann.leaves(&read)]).await;
    assert_eq!(commit.expect_err("a write").downcast::<StoreFault>()?, StoreFault::ReadOnly);
    let renewal = bench.renew(&[(ann.lease, bench.now().await? + bench.ttl)]).await;
    assert_eq!(renewal.expect_err("a write").downcast::<StoreFault>()?, StoreFault::ReadOnly);
    let turn = bench.turn(Ask::by(CORE)).await;
    assert_eq!(turn.expect_err("a write").downcast::<StoreFault>()?, StoreFault::ReadOnly);
    bench.provoke(Fault::ReadOnly(false)).await;
    bench.dismiss(&ann).await?;
    Ok(())
}

/// A store without room takes no turn: while leases cannot be raised nobody may be judged by them, not even by
/// a turn that would make room first. Reads go on, and what was refused has not happened.
pub async fn a_full_store_takes_no_turn_and_nobody_in(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let bob = bench.bring_named("bob").await?;
    bench.dismiss(&bob).await?;
    // By then something is to be forgotten, which the next turn would do.
    bench.advance(bench.remembers() + bench.ttl).await;
    bench.renew(&[(ann.lease, bench.now().await? + bench.ttl)]).await?;
    let before = (bench.lease(ann.lease).await?, bench.summary().await?);
    let cid = bench.person("cid");
    let join = cid.joins(&unread(&cid.user), bench.now().await?);
    bench.provoke(Fault::Full(true)).await;
    let refused = [
        bench.turn(Ask::by(CORE)).await.map(drop),
        bench.renew(&[(ann.lease, bench.now().await? + bench.ttl * 2)]).await.map(drop),
        bench.commit_in(before.1.position.epoch, &bench.roster, vec![join.clone()]).await.map(drop),
    ];
    for refused in refused {
        let fault = refused.expect_err("there is no room").downcast::<StoreFault>()?;
        assert!(matches!(fault, StoreFault::Unavailable(_)), "{fault}");
    }
    assert_eq!((bench.lease(ann.lease).await?, bench.summary().await?), before);
    bench.provoke(Fault::Full(false)).await;
    bench.applied(join).await?;
    assert_eq!(bench.summary().await?.count, 2);
    Ok(())
}

/// A store that cannot be reached carries nothing out, and an error is not "unknown lease".
pub async fn an_unreachable_store_does_nothing(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let before = bench.lease(ann.lease).await?;
    bench.provoke(Fault::Unavailable(true)).await;
    let renewal = bench.renew(&[(ann.lease, presence_model::time::StoreTime(u64::MAX / 2))]).await;
    let fault = renewal.expect_err("it cannot be reached").downcast::<StoreFault>()?;
    assert!(matches!(fault, StoreFault::Unavailable(_)), "{fault}");
    assert!(bench.read(&ann.user).await.is_err(), "nor read");
    bench.provoke(Fault::Unavailable(false)).await;
    assert_eq!(bench.lease(ann.lease).await?, before);
    Ok(())
}

/// A slow store is late and right: time is judged when the command arrives.
pub async fn a_slow_store_is_late_and_right(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let sent = bench.now().await?;
    let delay = bench.ttl / 2;
    bench.provoke(Fault::Slow(delay)).await;
    let mut reading = bench.execute(Command::Leases { shard: bench.shard, leases: vec![ann.lease] });
    assert!(poll!(&mut reading).is_pending());
    bench.advance(delay).await;
    let presence_core::store::Outcome::Leases { now, leases } = reading.await? else {
        anyhow::bail!("not an answer to Leases");
    };
    assert!(now.since(sent) >= delay, "{now} is after {sent}");
    assert_eq!(leases.len(), 1);
    Ok(())
}
