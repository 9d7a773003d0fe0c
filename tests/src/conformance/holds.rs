//! When silence proves nothing: why a hold starts, how long it lasts, and what it is told by.

use presence_core::store::{Command, TurnOutcome};
use presence_model::hold::HoldCause;
use presence_model::position::Epoch;

use super::Fault;
use super::bench::{Ask, Bench, CORE, EDGE};
use presence_model::id::LinkNumber;

/// A fresh shard is not held: nobody has been here before.
pub async fn a_fresh_shard_is_not_held(bench: &Bench) -> anyhow::Result<()> {
    let turn = bench.turn(Ask::by(CORE)).await?;
    assert_eq!((turn.hold, turn.new_hold), (None, false));
    assert_eq!(bench.summary().await?.hold, None);
    assert_eq!(bench.summary().await?.position.epoch, turn.epoch);
    Ok(())
}

/// If nobody looked for longer than a third of the smallest ttl, what lies behind is not judged.
pub async fn a_sweep_gap_starts_a_hold(bench: &Bench) -> anyhow::Result<()> {
    bench.bring_named("ann").await?;
    let before = bench.sweep().await?;
    bench.advance(bench.ttl * 2).await;
    let turn = bench.turn(Ask::by(CORE)).await?;
    assert!(turn.new_hold && turn.mine, "{turn:?}");
    assert_eq!(turn.hold.map(|hold| (hold.since, hold.cause)), Some((turn.now, HoldCause::SweepGap)));
    assert_eq!(turn.due, [], "held");
    assert_eq!(turn.epoch, before.epoch, "the data are good");
    let again = bench.turn(Ask::after(CORE, turn.turn)).await?;
    assert_eq!((again.hold, again.new_hold), (turn.hold, false), "set once");
    assert_eq!(bench.summary().await?.hold, turn.hold);
    Ok(())
}

/// A core that takes longer than that from its turn to the next has hidden no gap by finishing it.
pub async fn a_slow_sweep_is_a_gap(bench: &Bench) -> anyhow::Result<()> {
    let turn = bench.sweep().await?;
    bench.advance(bench.ttl / 2).await;
    let late = bench.turn(Ask::after(CORE, turn.turn)).await?;
    assert!(late.new_hold, "{late:?}");
    Ok(())
}

/// After one ttl a hold is over, if somebody looked all the while.
pub async fn a_hold_lasts_one_ttl(bench: &Bench) -> anyhow::Result<()> {
    bench.bring_named("ann").await?;
    bench.sweep().await?;
    bench.advance(bench.ttl * 2).await;
    bench.sweep().await?;
    bench.advance_swept(bench.ttl - bench.kept).await?;
    assert_eq!(bench.sweep().await?.due, [], "held to its end");
    bench.advance_swept(bench.kept * 2).await?;
    assert_eq!(bench.sweep().await?.due.len(), 1, "then silence counts again");
    Ok(())
}

/// Of leases that differ in their ttl each is held for its own.
pub async fn a_hold_lasts_as_long_as_each_lease(bench: &Bench) -> anyhow::Result<()> {
    let (ann, bob) = (bench.person("ann"), bench.person_of("bob", bench.ttl * 2));
    for person in [&ann, &bob] {
        bench.bring(person).await?;
    }
    bench.sweep().await?;
    bench.advance(bench.ttl * 3).await;
    assert!(bench.sweep().await?.hold.is_some(), "both are overdue, and held");
    bench.advance_swept(bench.ttl + bench.kept).await?;
    let due = |turn: TurnOutcome| turn.due.into_iter().map(|due| due.user).collect::<Vec<_>>();
    assert_eq!(due(bench.sweep().await?), std::slice::from_ref(&ann.user));
    let discard = Command::Discard { shard: bench.shard, leases: vec![ann.lease, bob.lease] };
    bench.done(discard).await?;
    assert_eq!(bench.lease(ann.lease).await?, None);
    assert!(bench.lease(bob.lease).await?.is_some(), "silence proves nothing about the longer one yet");
    bench.advance_swept(bench.ttl + bench.kept).await?;
    assert_eq!(due(bench.sweep().await?), [bob.user]);
    Ok(())
}

/// Gaps that are each too short for a hold add up over a ttl.
pub async fn short_gaps_add_up(bench: &Bench) -> anyhow::Result<()> {
    let gap = bench.ttl * 3 / 10;
    bench.sweep().await?;
    bench.advance(gap).await;
    let first = bench.sweep().await?;
    assert_eq!(first.hold, None, "one is short enough");
    bench.advance(gap).await;
    let second = bench.turn(Ask::by(CORE)).await?;
    assert!(second.new_hold, "{second:?}");
    Ok(())
}

/// What a takeover of the turn may take does not add up.
pub async fn takeovers_do_not_add_up(bench: &Bench) -> anyhow::Result<()> {
    bench.sweep().await?;
    for _ in 0..10 {
        bench.advance(bench.takeover() - bench.kept / 2).await;
        assert_eq!(bench.sweep().await?.hold, None);
    }
    Ok(())
}

/// A caller that saw the clock step starts a hold, whoever has the turn.
pub async fn a_reported_step_starts_a_hold(bench: &Bench) -> anyhow::Result<()> {
    bench.sweep().await?;
    let turn = bench.turn(Ask { stepped: true, ..Ask::by(7) }).await?;
    assert!(!turn.mine && turn.new_hold, "{turn:?}");
    assert_eq!(turn.hold.map(|hold| hold.cause), Some(HoldCause::ClockStep));
    assert_eq!(bench.summary().await?.position.epoch, turn.epoch, "and no epoch");
    Ok(())
}

/// A clock that stepped back is seen by the shard itself: its past lies ahead.
pub async fn a_past_that_lies_ahead_starts_a_hold(bench: &Bench) -> anyhow::Result<()> {
    bench.bring_named("ann").await?;
    bench.sweep().await?;
    bench.provoke(Fault::StepClock { by_ms: -60_000 }).await;
    let turn = bench.turn(Ask::by(7)).await?;
    assert!(turn.new_hold, "{turn:?}");
    assert!(turn.mine, "a turn kept until a time that lies far ahead is free");
    let again = bench.sweep().await?;
    assert!(!again.new_hold && again.swept.is_some_and(|swept| swept <= again.now), "{again:?}");
    bench.advance_swept(bench.ttl + bench.kept * 2).await?;
    assert_eq!(bench.sweep().await?.due.len(), 1, "deadlines came back with the clock");
    Ok(())
}

/// A clock that stepped forward makes everybody overdue, and ends nobody.
pub async fn a_step_forward_ends_nobody(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    bench.sweep().await?;
    bench.provoke(Fault::StepClock { by_ms: 60_000 }).await;
    let turn = bench.turn(Ask::by(CORE)).await?;
    assert!(turn.new_hold, "{turn:?}");
    assert_eq!(turn.due, []);
    let read = bench.read(&ann.user).await?;
    assert_eq!(bench.refused(ann.expires(&read)).await?, presence_core::store::NotApplied::Guard);
    bench.renew(&[(ann.lease, bench.now().await? + bench.ttl)]).await?;
    bench.advance_swept(bench.ttl - bench.kept).await?;
    assert_eq!(bench.sweep().await?.due, []);
    Ok(())
}

/// A caller that knows a higher epoch than the shard has seen data that are gone: a new epoch above it.
pub async fn a_known_epoch_is_never_repeated(bench: &Bench) -> anyhow::Result<()> {
    let before = bench.sweep().await?;
    let known = Epoch { minted_ms: before.epoch.minted_ms + 3_600_000, random: 5 };
    let turn = bench.turn(Ask { known: Some(known), ..Ask::by(CORE) }).await?;
    assert!(turn.epoch > known && turn.new_hold, "{turn:?}");
    assert_eq!(turn.hold.map(|hold| hold.cause), Some(HoldCause::StoreChanged));
    let after = bench.turn(Ask { known: Some(known), ..Ask::by(CORE) }).await?;
    assert_eq!((after.epoch, after.new_hold), (turn.epoch, false), "minted once");
    let lower = bench.turn(Ask { known: Some(before.epoch), ..Ask::by(CORE) }).await?;
    assert_eq!(lower.epoch, turn.epoch);
    Ok(())
}

/// In a hold no edge is lost.
pub async fn a_hold_keeps_edges(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let broken = bench.now().await?;
    bench.turn(Ask { stepped: true, ..Ask::by(CORE) }).await?;
    let before = bench.lease(ann.lease).await?;
    assert_eq!(bench.lose(EDGE, LinkNumber(1), broken).await?, 0);
    assert_eq!(bench.lease(ann.lease).await?, before);
    Ok(())
}
