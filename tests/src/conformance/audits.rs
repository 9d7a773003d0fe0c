//! The audit: leases and records that somebody's hand has parted are found, and nobody else is touched.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{bail, ensure};
use presence_core::store::memory::Tampering;
use presence_core::store::{
    AuditPage, AuditPlace, Command, CommitOutcome, NotApplied, Outcome, StoreFault, shard_of,
};
use presence_model::change::Guard;
use presence_model::digest::Digest;
use presence_model::id::{Incarnation, RegionId, RoomId, Roster, UserId};
use presence_model::lease::LeaseId;
use presence_model::reason::RemovalReason;

use super::Fault;
use super::bench::{Ask, Bench, CORE};
use super::people::{Person, unread};

/// More than any walk of a case takes.
const PAGES_MAX: usize = 1_000;

/// What a walk has found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    strays: BTreeSet<LeaseId>,
    remnants: BTreeSet<(UserId, LeaseId)>,
}

impl Bench {
    pub(super) async fn audit_page(&self, from: AuditPlace, portion: usize) -> anyhow::Result<AuditPage> {
        let Outcome::Audited(page) =
            self.execute(Command::Audit { shard: self.shard, from, portion }).await?
        else {
            bail!("not an answer to Audit")
        };
        Ok(page)
    }

    /// A walk over all leases and all members of the bench's shard.
    async fn audit(&self, portion: usize) -> anyhow::Result<Found> {
        let (mut from, mut found) = (AuditPlace::default(), Found::default());
        let (mut all_leases, mut all_members) = (false, false);
        for _ in 0..PAGES_MAX {
            let page = self.audit_page(from, portion).await?;
            found.strays.extend(page.strays);
            found.remnants.extend(page.remnants.into_iter().map(|found| (found.user, found.lease)));
            all_leases |= page.next.leases.is_empty();
            all_members |= page.next.members.is_none();
            if all_leases && all_members {
                return Ok(found);
            }
            from = page.next;
        }
        bail!("no end after {PAGES_MAX} pages")
    }

    async fn disown(&self, leases: &[LeaseId]) -> anyhow::Result<usize> {
        let command = Command::Disown { shard: self.shard, leases: leases.to_vec() };
        let Outcome::Disowned { removed } = self.execute(command).await? else {
            bail!("not an answer to Disown")
        };
        Ok(removed)
    }

    pub(super) async fn tamper(&self, tampering: Tampering) {
        self.provoke(Fault::Tamper(tampering)).await;
    }

    async fn lose_lease(&self, person: &Person) {
        self.tamper(Tampering::LoseLease(person.lease)).await;
    }

    async fn lose_record(&self, person: &Person) {
        self.tamper(Tampering::LoseRecord(self.roster.clone(), person.user.clone())).await;
    }

    /// The stored roster is whole: count and digest are those of its members.
    pub(super) async fn is_whole(&self) -> anyhow::Result<()> {
        let (summary, (_, members)) = (self.summary().await?, self.load(7).await?);
        ensure!(summary.count == members.len() as u64, "{} counted of {}", summary.count, members.len());
        let digest = Digest::of_all(members.iter().map(|(member, _)| member));
        ensure!(summary.digest == digest, "the digest of other members");
        Ok(())
    }
}

/// Names that are hard to tell apart in keys and indexes, in the bench's shard.
fn odd_roster(bench: &Bench) -> Roster {
    let named = |number: usize| Roster {
        region: RegionId::new("eu:\"%3a").expect("a good name"),
        room: RoomId::new(format!("a\0:%\n\0\0{number}\u{10ffff}")).expect("a good name"),
    };
    let mut rosters = (0..).map(named);
    rosters.find(|roster| shard_of(roster, bench.shards()) == bench.shard).expect("names do not run out")
}

fn remnants<'a>(people: impl IntoIterator<Item = &'a Person>) -> BTreeSet<(UserId, LeaseId)> {
    people.into_iter().map(|person| (person.user.clone(), person.lease)).collect()
}

/// Whoever is there, live or in grace, whatever the names, is no finding; nor is who went.
pub async fn what_belongs_together_is_no_finding(bench: &Bench) -> anyhow::Result<()> {
    let [_ann, bob] = [bench.bring_named("ann").await?, bench.bring_named("bob").await?];
    let user = UserId::new("cid\0 \"\u{10ffff}:%")?;
    let cid = Person { user, edge: Incarnation(7), ..bench.person("cid") };
    bench.release(bob.edge, &[bob.lease]).await?;
    for (number, roster) in [bench.neighbour(0), odd_roster(bench)].into_iter().enumerate() {
        let cid = Person { lease: bench.lease_in(&roster, 500 + number as u64), ..cid.clone() };
        let change = cid.joins(&unread(&cid.user), bench.now().await?);
        assert_eq!(bench.commit_to(&roster, vec![change]).await?.refused, []);
    }
    let dan = bench.bring_named("dan").await?;
    bench.dismiss(&dan).await?;
    for portion in [1, 2, 100] {
        assert_eq!(bench.audit(portion).await?, Found::default(), "portions of {portion}");
    }
    Ok(())
}

/// A record whose lease is gone is found, and may be ended; in grace as well.
pub async fn a_lost_lease_leaves_a_remnant(bench: &Bench) -> anyhow::Result<()> {
    let [ann, bob, _cid] =
        [bench.bring_named("ann").await?, bench.bring_named("bob").await?, bench.bring_named("cid").await?];
    bench.release(bob.edge, &[bob.lease]).await?;
    bench.lose_lease(&ann).await;
    bench.lose_lease(&bob).await;
    let found = bench.audit(2).await?;
    assert_eq!(found, Found { remnants: remnants([&ann, &bob]), ..Found::default() });
    for person in [&ann, &bob] {
        let read = bench.read(&person.user).await?;
        let guards = vec![Guard::LeaseAbsent(person.lease)];
        bench.applied(person.goes(&read, RemovalReason::LeaseExpired, guards)).await?;
    }
    assert_eq!(bench.audit(2).await?, Found::default());
    bench.is_whole().await
}

/// A lease whose record is gone is found, and goes, under either name, when its roster is made whole: its edge hears
/// that it is unknown while a hold lasts.
pub async fn a_lost_record_leaves_a_stray(bench: &Bench) -> anyhow::Result<()> {
    let [ann, bob, cid] =
        [bench.bring_named("ann").await?, bench.bring_named("bob").await?, bench.bring_named("cid").await?];
    bench.release(bob.edge, &[bob.lease]).await?;
    bench.lose_record(&ann).await;
    bench.lose_record(&bob).await;
    let strays = BTreeSet::from([ann.lease, bob.lease]);
    assert_eq!(bench.audit(2).await?, Found { strays: strays.clone(), ..Found::default() });
    assert_eq!(bench.disown(&[ann.lease, bob.lease, cid.lease]).await?, 0);
    let turn = bench.turn(Ask::by(CORE)).await?;
    assert!(turn.new_hold, "{turn:?}");
    assert_eq!(bench.lease(bob.lease).await?, None);
    let deadline = bench.now().await? + bench.ttl;
    assert_eq!(bench.renew(&[(ann.lease, deadline), (cid.lease, deadline)]).await?, [ann.lease]);
    assert_eq!(bench.audit(2).await?, Found::default());
    assert_eq!(bench.disown(&[ann.lease]).await?, 0, "it is gone");
    Ok(())
}

/// A lease that nobody was ever granted is found and removed.
pub async fn a_lease_of_nobody_is_a_stray(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let stray = bench.person("nobody").lease;
    bench.tamper(Tampering::Stray(stray, bench.now().await? + bench.ttl)).await;
    assert_eq!(bench.audit(1).await?.strays, BTreeSet::from([stray]));
    assert_eq!(bench.disown(&[stray, ann.lease]).await?, 1);
    assert_eq!(bench.lease(stray).await?, None);
    assert!(bench.lease(ann.lease).await?.is_some());
    Ok(())
}

/// A lease that a record names is never disowned: live, in grace, of a second session, taken over.
pub async fn a_lease_of_a_record_is_never_disowned(bench: &Bench) -> anyhow::Result<()> {
    let [ann, bob, cid] =
        [bench.bring_named("ann").await?, bench.bring_named("bob").await?, bench.bring_named("cid").await?];
    bench.release(bob.edge, &[bob.lease]).await?;
    let second =
        Person { session: bob.session.clone(), lease: bench.lease_in(&bench.roster, 99), ..ann.clone() };
    bench.bring(&second).await?;
    let newer = cid.again();
    bench.bring(&newer).await?;
    let all = [ann.lease, second.lease, bob.lease, newer.lease];
    assert_eq!(bench.disown(&all).await?, 0);
    assert_eq!(bench.disown(&all.map(LeaseId::grace_name)).await?, 0);
    for lease in all {
        assert!(bench.lease(lease).await?.is_some(), "{lease}");
    }
    Ok(())
}

/// Whoever came again after something was found keeps what he was granted.
pub async fn a_finding_is_judged_anew(bench: &Bench) -> anyhow::Result<()> {
    let bob = bench.bring_named("bob").await?;
    let stray = bench.person("nobody").lease;
    bench.tamper(Tampering::Stray(stray, bench.now().await? + bench.ttl)).await;
    bench.lose_lease(&bob).await;
    let found = bench.audit(10).await?;
    assert_eq!((found.strays.len(), found.remnants.len()), (1, 1));
    let decided = bob.goes(
        &bench.read(&bob.user).await?,
        RemovalReason::LeaseExpired,
        vec![Guard::LeaseAbsent(bob.lease)],
    );
    bench.bring(&bob.again()).await?;
    assert_eq!(bench.disown(&[stray, bob.again().lease]).await?, 1, "the old one");
    assert_eq!(bench.refused(decided).await?, NotApplied::Changed);
    assert_eq!(bench.audit(10).await?, Found::default());
    bench.is_whole().await
}

/// A hold proves nothing: nothing is found, removed or ended in it, and all of it after.
pub async fn a_hold_stops_the_audit(bench: &Bench) -> anyhow::Result<()> {
    let bob = bench.bring_named("bob").await?;
    let stray = bench.person("nobody").lease;
    bench.tamper(Tampering::Stray(stray, bench.now().await? + bench.ttl)).await;
    bench.lose_lease(&bob).await;
    let remnant = bob.goes(
        &bench.read(&bob.user).await?,
        RemovalReason::LeaseExpired,
        vec![Guard::LeaseAbsent(bob.lease)],
    );
    bench.turn(Ask { stepped: true, ..Ask::by(CORE) }).await?;
    assert_eq!(bench.audit(10).await?, Found::default());
    assert_eq!(bench.disown(&[stray]).await?, 0);
    assert_eq!(bench.refused(remnant.clone()).await?, NotApplied::Guard);
    bench.advance_swept(bench.ttl + bench.kept).await?;
    // Due leases of nobody go with a sweep.
    bench.tamper(Tampering::Stray(stray, bench.now().await? + bench.ttl)).await;
    let found = bench.audit(10).await?;
    assert_eq!(found, Found { strays: BTreeSet::from([stray]), remnants: remnants([&bob]) });
    assert_eq!(bench.disown(&[stray]).await?, 1);
    bench.applied(remnant).await?;
    Ok(())
}

/// A walk looks at everything that stays as it is, in portions of any size.
pub async fn a_walk_looks_at_everything(bench: &Bench) -> anyhow::Result<()> {
    let people: Vec<Person> = (0..300)
        .map(|number: u64| Person {
            lease: bench.lease_in(&bench.roster, 1_000 + number),
            ..bench.person(&format!("user {number}"))
        })
        .collect();
    let now = bench.now().await?;
    for some in people.chunks(100) {
        let changes = some.iter().map(|person| person.joins(&unread(&person.user), now)).collect();
        assert_eq!(bench.commit(changes).await?.refused, []);
    }
    let (strays, parted): (Vec<_>, Vec<_>) =
        people.iter().step_by(37).enumerate().partition(|(number, _)| number % 2 == 0);
    for (_, person) in &strays {
        bench.lose_record(person).await;
    }
    for (_, person) in &parted {
        bench.lose_lease(person).await;
    }
    let expected = Found {
        strays: strays.iter().map(|(_, person)| person.lease).collect(),
        remnants: remnants(parted.iter().map(|(_, person)| *person)),
    };
    for portion in [3, 50, 1_000] {
        assert_eq!(bench.audit(portion).await?, expected, "portions of {portion}");
    }
    Ok(())
}

/// What a lost record leaves of its roster is made good with its lease, or when the member comes again.
pub async fn a_lost_record_is_made_good(bench: &Bench) -> anyhow::Result<()> {
    let [ann, bob, _cid] =
        [bench.bring_named("ann").await?, bench.bring_named("bob").await?, bench.bring_named("cid").await?];
    bench.lose_record(&ann).await;
    let (_, left) = bench.load(1).await?;
    assert_eq!(left.len(), 2, "the others can be read");
    let before = bench.sweep().await?;
    assert_eq!(bench.disown(&[ann.lease]).await?, 0, "not without a hold");
    let turn = bench.turn(Ask { known: Some(before.epoch), ..Ask::by(CORE) }).await?;
    assert!(turn.epoch > before.epoch && turn.new_hold, "{turn:?}");
    assert_eq!(bench.lease(ann.lease).await?, None);
    bench.is_whole().await?;
    assert_eq!(bench.summary().await?.count, 2);
    bench.lose_record(&bob).await;
    let join = bob.again().joins(&unread(&bob.user), bench.now().await?);
    let outcome = bench.commit_in(turn.epoch, &bench.roster, vec![join]).await?;
    assert!(matches!(outcome, CommitOutcome::Epoch { current } if current > turn.epoch), "{outcome:?}");
    bench.is_whole().await?;
    assert_eq!(bench.lease(bob.lease).await?, None);
    bench.bring(&bob.again()).await?;
    bench.is_whole().await
}

/// While no epoch vouches for the data, nothing is looked at or removed.
pub async fn a_changed_shard_is_not_audited(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    bench.lose_record(&ann).await;
    bench.provoke(Fault::Restart).await;
    let refused =
        bench.execute(Command::Audit { shard: bench.shard, from: AuditPlace::default(), portion: 10 });
    assert_eq!(refused.await, Err(StoreFault::Unsettled));
    assert_eq!(bench.disown(&[ann.lease]).await?, 0);
    bench.turn(Ask::by(CORE)).await?;
    assert_eq!(bench.audit(10).await?, Found::default(), "held");
    Ok(())
}

/// The age of what is overdue is told, and a hold is no ghost.
pub async fn the_oldest_overdue_is_told(bench: &Bench) -> anyhow::Result<()> {
    let overdue = async || -> anyhow::Result<Duration> {
        Ok(bench.audit_page(AuditPlace::default(), 10).await?.oldest_overdue)
    };
    assert_eq!(overdue().await?, Duration::ZERO);
    bench.bring_named("ann").await?;
    assert_eq!(overdue().await?, Duration::ZERO);
    bench.advance_swept(bench.ttl + bench.kept).await?;
    let age = overdue().await?;
    assert!(age >= bench.kept / 2 && age <= bench.ttl, "{age:?}");
    bench.turn(Ask { stepped: true, ..Ask::by(CORE) }).await?;
    assert_eq!(overdue().await?, Duration::ZERO);
    Ok(())
}
