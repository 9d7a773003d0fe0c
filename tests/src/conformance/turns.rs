//! The sweep's turn: one holder at a time, an honest record of who looked, and what is due.

use std::collections::BTreeSet;
use std::time::Duration;

use presence_core::store::Command;
use presence_model::member::{Due, DueCause, Shortened, ShortenedBy};
use presence_model::reason::ReleaseReason;

use super::bench::{Ask, Bench, CORE};

const OTHER: u64 = 0x07;

/// One core at a time has the turn; it keeps it by asking and loses it by not asking.
pub async fn one_core_has_the_turn(bench: &Bench) -> anyhow::Result<()> {
    assert!(bench.turn(Ask::by(CORE)).await?.mine);
    assert!(!bench.turn(Ask::by(OTHER)).await?.mine);
    for _ in 0..4 {
        bench.advance(bench.kept / 2).await;
        assert!(bench.turn(Ask::by(CORE)).await?.mine, "kept by asking");
        assert!(!bench.turn(Ask::by(OTHER)).await?.mine);
    }
    bench.advance(bench.kept + bench.kept / 2).await;
    assert!(bench.turn(Ask::by(OTHER)).await?.mine, "free when nobody asked");
    assert!(!bench.turn(Ask::by(CORE)).await?.mine);
    Ok(())
}

/// Only the holder is told what is due.
pub async fn only_the_holder_is_told_what_is_due(bench: &Bench) -> anyhow::Result<()> {
    bench.bring_named("ann").await?;
    bench.advance_swept(bench.ttl + bench.kept / 2).await?;
    assert_eq!(bench.turn(Ask::by(CORE)).await?.due.len(), 1);
    assert_eq!(bench.turn(Ask::by(OTHER)).await?.due, []);
    Ok(())
}

/// A finished turn is recorded by its start, for its holder, and only the last one.
pub async fn a_sweep_counts_from_its_start(bench: &Bench) -> anyhow::Result<()> {
    let first = bench.turn(Ask::by(CORE)).await?;
    bench.advance(bench.kept / 2).await;
    let second = bench.turn(Ask::after(CORE, first.turn)).await?;
    assert_eq!(second.swept, Some(first.now), "its start, not its end");
    bench.advance(bench.kept / 2).await;
    let third = bench.turn(Ask::by(CORE)).await?;
    assert_eq!(third.swept, Some(first.now), "the second was not finished");
    let stale = bench.turn(Ask::after(CORE, second.turn)).await?;
    assert_eq!(stale.swept, Some(first.now), "it is not the last one any more");
    let foreign = bench.turn(Ask::after(OTHER, stale.turn)).await?;
    assert_eq!(foreign.swept, Some(first.now), "it was not this one's");
    assert_eq!(bench.summary().await?.swept, Some(first.now));
    Ok(())
}

/// A core that slept between its turn and the next hides no gap: another one had the turn meanwhile.
pub async fn a_sleeper_cannot_finish_a_lost_turn(bench: &Bench) -> anyhow::Result<()> {
    let slept = bench.turn(Ask::by(CORE)).await?;
    bench.advance(bench.kept + bench.kept / 2).await;
    let other = bench.turn(Ask::by(OTHER)).await?;
    assert!(other.mine);
    let woken = bench.turn(Ask::after(CORE, slept.turn)).await?;
    assert!(woken.swept < Some(slept.now) || woken.swept == other.swept, "{woken:?}");
    Ok(())
}

/// What is due comes with its owner and note, the oldest first, no more than asked for.
pub async fn due_leases_come_oldest_first(bench: &Bench) -> anyhow::Result<()> {
    let mut people = Vec::new();
    for name in ["ann", "bob", "cid", "dan"] {
        people.push(bench.bring_named(name).await?);
        bench.advance_swept(Duration::from_millis(20)).await?;
    }
    bench.advance_swept(bench.ttl).await?;
    let due = bench.turn(Ask { portion: 3, ..Ask::by(CORE) }).await?.due;
    let names: Vec<&str> = due.iter().map(|due| due.user.as_str()).collect();
    assert_eq!(names, ["ann", "bob", "cid"]);
    assert_eq!((&due[0].roster, &due[0].session), (&bench.roster, &people[0].session));
    assert_eq!(due[0].due.lease, people[0].lease);
    let repeated = bench.turn(Ask { portion: 3, ..Ask::by(CORE) }).await?.due;
    assert_eq!(repeated, due, "until somebody ends them");
    bench.renew(&[(people[0].lease, bench.now().await? + bench.ttl)]).await?;
    let due = bench.turn(Ask { portion: 3, ..Ask::by(CORE) }).await?.due;
    let names: Vec<&str> = due.iter().map(|due| due.user.as_str()).collect();
    assert_eq!(names, ["bob", "cid", "dan"], "who renewed is not due");
    Ok(())
}

/// A lease in grace is due under its grace name, with its note; nobody is due before the time.
pub async fn grace_is_due_with_its_note(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.person("ann");
    let replaced = bench.bring(&ann).await?.now + bench.ttl;
    let (now, _) = bench.release(ann.edge, &[ann.lease]).await?;
    bench.advance_swept(bench.grace / 2).await?;
    assert_eq!(bench.sweep().await?.due, []);
    bench.advance_swept(bench.grace).await?;
    let due = bench.sweep().await?.due;
    let deadline = now + bench.grace;
    let cause = ShortenedBy::Release(ReleaseReason::TransportLost);
    let shortened = Some(Shortened { cause, replaced, deadline });
    let expected = Due { lease: ann.lease.grace_name(), cause: DueCause::Deadline { deadline, shortened } };
    assert_eq!(due.iter().map(|due| due.due).collect::<Vec<_>>(), [expected]);
    Ok(())
}

/// A token that ends is due, also when its lease still runs, and once when both have run out.
pub async fn a_token_end_is_due(bench: &Bench) -> anyhow::Result<()> {
    let mut ann = bench.person("ann");
    ann.token_ends = bench.now().await? + bench.ttl / 2;
    bench.bring(&ann).await?;
    bench.renew(&[(ann.lease, bench.now().await? + bench.ttl)]).await?;
    bench.advance_swept(bench.ttl / 2 + bench.kept).await?;
    let expected = [Due { lease: ann.lease, cause: DueCause::TokenEnd }];
    let due = bench.sweep().await?.due;
    assert_eq!(due.iter().map(|due| due.due).collect::<Vec<_>>(), expected);
    bench.advance_swept(bench.ttl).await?;
    let due = bench.sweep().await?.due;
    assert_eq!(due.iter().map(|due| due.due).collect::<Vec<_>>(), expected, "the older cause");
    Ok(())
}

/// Deadlines further ahead than now + ttl are brought back: the clock has stepped since.
pub async fn deadlines_too_far_ahead_are_clamped(bench: &Bench) -> anyhow::Result<()> {
    let [ann, bob] = ["ann", "bob"].map(|name| bench.person(name));
    bench.bring(&ann).await?;
    let right = bench.bring(&bob).await?.now + bench.ttl;
    bench.renew(&[(ann.lease, bench.now().await? + bench.ttl * 100)]).await?;
    let turn = bench.turn(Ask::by(CORE)).await?;
    let deadlines = [&ann, &bob].map(|person| bench.lease(person.lease));
    let [anns, bobs] = deadlines;
    let deadline = anns.await?.map(|detail| detail.state.deadline());
    assert_eq!(deadline, Some(turn.now + bench.ttl));
    assert_eq!(bobs.await?.map(|detail| detail.state.deadline()), Some(right), "others are not touched");
    Ok(())
}

/// The turns of different shards have nothing to do with each other.
pub async fn shards_have_turns_of_their_own(bench: &Bench) -> anyhow::Result<()> {
    bench.turn(Ask::by(CORE)).await?;
    let Some(other) = bench.other_shard() else { return Ok(()) };
    let command = Command::Turn {
        shard: other,
        holder: OTHER,
        finished: None,
        kept: bench.kept,
        smallest_ttl: bench.ttl,
        takeover: bench.takeover(),
        stepped: false,
        known: None,
        portion: 1,
    };
    let presence_core::store::Outcome::Turn(turn) = bench.execute(command).await? else {
        anyhow::bail!("not an answer to Turn");
    };
    assert!(turn.mine);
    let epochs = BTreeSet::from([turn.epoch, bench.summary().await?.position.epoch]);
    assert_eq!(epochs.len(), 2, "and epochs of their own");
    Ok(())
}
