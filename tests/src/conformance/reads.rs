//! What reads promise: one point, whole answers, never an error for "nobody".

use std::collections::BTreeMap;

use anyhow::ensure;
use presence_core::store::Command;
use presence_model::digest::Digest;
use presence_model::member::shown;
use presence_model::position::Revision;
use presence_model::profile::Status;
use presence_model::record::{LeaseState, MemberRead};

use super::bench::Bench;

/// The store's clock is the one that passes.
pub async fn the_clock_passes(bench: &Bench) -> anyhow::Result<()> {
    let before = bench.now().await?;
    bench.advance(bench.ttl).await;
    let passed = bench.now().await?.since(before);
    ensure!(passed >= bench.ttl && passed < bench.ttl * 2, "{passed:?} passed");
    Ok(())
}

/// Nobody is an answer.
pub async fn somebody_unknown_reads_as_absent(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.person("ann");
    assert_eq!(bench.read(&ann.user).await?, MemberRead::absent(ann.user));
    let summary = bench.summary().await?;
    assert_eq!((summary.count, summary.digest), (0, Digest::default()));
    assert_eq!(bench.load(10).await?, (summary.position, Vec::new()));
    Ok(())
}

/// A read has all that a decision needs, in the order asked.
pub async fn a_read_has_records_leases_and_tombstones(bench: &Bench) -> anyhow::Result<()> {
    let [ann, bob, cid] = ["ann", "bob", "cid"].map(|name| bench.person(name));
    let came = bench.bring(&ann).await?;
    bench.bring(&bob).await?;
    bench.dismiss(&bob).await?;
    let (position, members) = bench.members(&[&cid.user, &bob.user, &ann.user]).await?;
    assert_eq!(position, bench.summary().await?.position);
    assert_eq!(members[0], MemberRead::absent(cid.user));
    assert_eq!(members[1].record, None);
    assert_eq!(members[1].touched, Revision(0), "absent");
    assert_eq!(members[1].tombstones.len(), 1);
    assert_eq!(members[2].touched, came.position.revision);
    let leases = BTreeMap::from([(ann.lease, LeaseState::Live { deadline: came.now + bench.ttl })]);
    assert_eq!(members[2].leases, leases);
    assert_eq!(members[2].record.as_ref().map(|record| record.sessions.len()), Some(1));
    let (released, _) = bench.release(ann.edge, &[ann.lease]).await?;
    let deadline = released + bench.grace;
    let leases = BTreeMap::from([(ann.lease, LeaseState::Grace { deadline })]);
    assert_eq!(bench.read(&ann.user).await?.leases, leases);
    Ok(())
}

/// Pages are sorted, whole and without repetition, whatever their size.
pub async fn pages_make_the_whole_roster(bench: &Bench) -> anyhow::Result<()> {
    for name in ["dan", "ann", "cid", "eve", "bob"] {
        bench.bring_named(name).await?;
    }
    for count in [1, 2, 5, 6] {
        let (_, members) = bench.load(count).await?;
        let names: Vec<&str> = members.iter().map(|(member, _)| member.user.as_str()).collect();
        assert_eq!(names, ["ann", "bob", "cid", "dan", "eve"], "in pages of {count}");
    }
    Ok(())
}

/// Pages of different points, and the history since the first, make one point.
pub async fn pages_and_history_make_one_point(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    bench.bring_named("cid").await?;
    let start = bench.summary().await?.position;
    let (_, mut copy) = bench.load(1).await?;
    copy.truncate(1);
    bench.dismiss(&ann).await?;
    bench.bring_named("bob").await?;
    let rest = bench.load(10).await?.1.into_iter().filter(|(member, _)| member.user.as_str() > "ann");
    let mut members: BTreeMap<_, _> =
        copy.into_iter().chain(rest).map(|(member, _)| (member.user.clone(), member)).collect();
    for commit in bench.commits_after(start).await? {
        members.extend(commit.delta.upserts.into_iter().map(|member| (member.user.clone(), member)));
        for removal in commit.delta.removals {
            members.remove(&removal.user);
        }
    }
    let names: Vec<&str> = members.keys().map(|user| user.as_str()).collect();
    assert_eq!(names, ["bob", "cid"]);
    Ok(())
}

/// Count and digest are those of the members, after joins, updates and goodbyes.
pub async fn count_and_digest_are_those_of_the_members(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let bob = bench.bring_named("bob").await?;
    bench.bring_named("cid").await?;
    let read = bench.read(&ann.user).await?;
    bench.applied(ann.says(Status::Busy, &read, bench.now().await?)).await?;
    bench.dismiss(&bob).await?;
    let (position, members) = bench.load(10).await?;
    let summary = bench.summary().await?;
    let sum = members.iter().fold(Digest::default(), |sum, (member, _)| sum.plus(Digest::of(member)));
    assert_eq!((summary.position, summary.count, summary.digest), (position, 2, sum));
    let read = bench.read(&ann.user).await?;
    let record = read.record.as_ref().expect("ann is there");
    assert_eq!(members[0], (shown(&ann.user, record), read.touched));
    let last = bench.commits_after(position_before(position)).await?;
    assert_eq!(last.last().map(|commit| commit.delta.digest), Some(sum), "told with the commit");
    Ok(())
}

fn position_before(position: presence_model::position::Position) -> presence_model::position::Position {
    let revision = Revision(position.revision.0 - 1);
    presence_model::position::Position { revision, ..position }
}

/// Rooms with members are found by prefix, in order and in pages, in all shards.
pub async fn rooms_are_listed_by_prefix(bench: &Bench) -> anyhow::Result<()> {
    let rooms = ["a/1", "a/2", "a/3", "a/4", "b/1", "a"];
    for (number, room) in rooms.iter().enumerate() {
        let roster = super::bench::roster(room);
        let mut person = bench.person(&format!("somebody {number}"));
        person.lease = bench.lease_in(&roster, number as u64);
        bench
            .commit_to(&roster, vec![person.joins(&super::people::unread(&person.user), bench.now().await?)])
            .await?;
    }
    assert_eq!(bench.rooms("a/", None, 10).await?, ["a/1", "a/2", "a/3", "a/4"]);
    assert_eq!(bench.rooms("a/", None, 2).await?, ["a/1", "a/2"]);
    assert_eq!(bench.rooms("a/", Some("a/2"), 2).await?, ["a/3", "a/4"]);
    assert_eq!(bench.rooms("a/", Some("a/4"), 2).await?, [""; 0]);
    assert_eq!(bench.rooms("", None, 10).await?, ["a", "a/1", "a/2", "a/3", "a/4", "b/1"]);
    assert_eq!(bench.rooms("c", None, 10).await?, [""; 0]);
    Ok(())
}

/// A shard that the store does not have is a fault, not an empty answer.
pub async fn a_shard_there_is_not_is_a_fault(bench: &Bench) -> anyhow::Result<()> {
    let Some(beyond) = bench.no_such_shard() else { return Ok(()) };
    let answer = bench.execute(Command::Now { shard: beyond }).await;
    ensure!(answer.is_err(), "{answer:?}");
    Ok(())
}
