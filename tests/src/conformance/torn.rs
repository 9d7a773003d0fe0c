//! What is left half-done, or lost in part: nothing vouches for it, and it is made whole of what is there.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use presence_core::store::memory::{Index, Tampering};
use presence_core::store::{AuditPlace, Command, CommitOutcome, HistoryOutcome, Outcome, TurnOutcome};
use presence_model::hold::HoldCause;
use presence_model::id::{LinkNumber, Roster};
use presence_model::profile::Status;
use presence_model::revocation::Revocation;

use super::bench::{Ask, Bench, CORE, EDGE};
use super::people::{Person, unread};

const PORTION: usize = 100;

impl Bench {
    /// Rosters that an audit finds torn; of a short shard one page has all.
    async fn torn(&self) -> anyhow::Result<Vec<Roster>> {
        let page = self.audit_page(AuditPlace::default(), PORTION).await?;
        Ok(page.torn)
    }

    async fn distrust(&self) -> anyhow::Result<bool> {
        let Outcome::Distrusted { was_torn } =
            self.execute(Command::Distrust { roster: self.roster.clone() }).await?
        else {
            bail!("not an answer to Distrust")
        };
        Ok(was_torn)
    }

    /// The next turn: a new epoch, and a hold.
    async fn made_whole(&self, before: &TurnOutcome) -> anyhow::Result<TurnOutcome> {
        let turn = self.turn(Ask { known: Some(before.epoch), ..Ask::by(CORE) }).await?;
        ensure!(turn.epoch > before.epoch && turn.new_hold, "{turn:?}");
        ensure!(turn.hold.map(|hold| hold.cause) == Some(HoldCause::StoreChanged), "{turn:?}");
        self.is_whole().await?;
        ensure!(self.torn().await?.is_empty(), "still torn");
        let again = self.sweep().await?;
        ensure!((again.epoch, again.new_hold) == (turn.epoch, false), "minted once: {again:?}");
        Ok(turn)
    }

    /// Commits are taken again, read back, and told.
    async fn goes_on(&self, with: &Person, others: u64) -> anyhow::Result<()> {
        let start = self.tail(BTreeMap::new()).await?.at;
        let position = self.summary().await?.position;
        self.bring(with).await?;
        let summary = self.summary().await?;
        ensure!(summary.count == others + 1, "{} are there", summary.count);
        self.is_whole().await?;
        let told = self.tail(start).await?;
        ensure!(told.commits.len() == 1 && told.broken.is_empty(), "{told:?}");
        let HistoryOutcome::Commits(missed) = self.history(position, 9).await? else { bail!("compacted") };
        ensure!(missed.len() == 1, "{missed:?}");
        let rooms = self.rooms("", None, 9).await?;
        ensure!(rooms == [self.roster.room.as_str()], "{rooms:?}");
        Ok(())
    }
}

/// A commit that is refused when half of it is written is no commit: the next turn makes the roster whole of its
/// records, in a new epoch. What was there stays.
pub async fn a_commit_left_half_way_is_made_whole(bench: &Bench) -> anyhow::Result<()> {
    let [ann, bob] = [bench.bring_named("ann").await?, bench.bring_named("bob").await?];
    let before = bench.sweep().await?;
    bench.tamper(Tampering::SpoilHistory(bench.shard)).await;
    let cid = bench.person("cid");
    let join = cid.joins(&unread(&cid.user), bench.now().await?);
    let answer = bench.commit_in(before.epoch, &bench.roster, vec![join]).await;
    ensure!(answer.is_err(), "half of it was refused: {answer:?}");
    ensure!(bench.summary().await.is_err(), "read while half of a commit is there");
    bench.made_whole(&before).await?;
    // As after any answer that was lost: who asked reads again.
    let others = bench.summary().await?.count;
    ensure!((2..=3).contains(&others), "{others} are there");
    for person in [&ann, &bob] {
        ensure!(bench.lease(person.lease).await?.is_some(), "who was there keeps the lease");
    }
    bench.goes_on(&bench.person("dan"), others).await
}

/// A commit is the first to find the half of another one: it is refused, as after any change of the store.
pub async fn the_next_commit_finds_what_was_left_half_way(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let before = bench.sweep().await?;
    let change = ann.says(Status::Busy, &bench.read(&ann.user).await?, bench.now().await?);
    bench.tamper(Tampering::SpoilHistory(bench.shard)).await;
    ensure!(bench.commit_in(before.epoch, &bench.roster, vec![change.clone()]).await.is_err());
    let outcome = bench.commit_in(before.epoch, &bench.roster, vec![change]).await?;
    let CommitOutcome::Epoch { current } = outcome else { bail!("{outcome:?}") };
    ensure!(current > before.epoch, "{current:?}");
    bench.is_whole().await?;
    bench.goes_on(&bench.person("bob"), 1).await
}

/// A turn that is refused a call when half of it is done takes nothing for granted, and the next one goes on.
pub async fn a_turn_that_is_refused_half_way_goes_on(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    bench.sweep().await?;
    bench.tamper(Tampering::SpoilHistory(bench.shard)).await;
    // A store that keeps history in another way may take it at once.
    drop(bench.turn(Ask::by(CORE)).await);
    bench.turn(Ask::by(CORE)).await?;
    ensure!(bench.summary().await?.count == 1);
    ensure!(bench.lease(ann.lease).await?.is_some(), "who was there keeps the lease");
    Ok(())
}

/// Names, the entry among the rooms, or all of a roster but its names: an audit finds it, and nothing is there that
/// no record says.
pub async fn a_torn_roster_is_found_and_made_whole(bench: &Bench) -> anyhow::Result<()> {
    bench.bring_named("ann").await?;
    bench.bring_named("bob").await?;
    ensure!(bench.torn().await?.is_empty() && !bench.distrust().await?, "before anybody's hand");
    let roster = || bench.roster.clone();
    for (hand, left) in [
        (Tampering::LoseNames(roster()), 2),
        (Tampering::LoseEntry(roster()), 2),
        (Tampering::LoseRoster(roster()), 0),
    ] {
        let before = bench.sweep().await?;
        bench.tamper(hand.clone()).await;
        ensure!(bench.torn().await? == [roster()], "{hand:?} is not found");
        ensure!(bench.distrust().await?, "{hand:?}");
        ensure!(bench.summary().await.is_err(), "{hand:?}: read while nobody vouches for it");
        bench.made_whole(&before).await?;
        ensure!(bench.summary().await?.count == left, "{hand:?}: {} are there", bench.summary().await?.count);
    }
    bench.goes_on(&bench.person("dan"), 0).await
}

/// What a commit needs of a roster is gone, or is of another kind: it changes nothing, and all is made whole of the
/// records. Whoever has none any more loses the lease with it, so that the edge joins again while the hold lasts.
pub async fn a_commit_that_finds_a_hand_is_refused(bench: &Bench) -> anyhow::Result<()> {
    let roster = || bench.roster.clone();
    let garbled = bench.person("bob").user;
    let hands: [(Tampering, &[&str]); 4] = [
        (Tampering::LoseFirst(roster()), &["ann", "bob"]),
        (Tampering::GarbleRecord(roster(), garbled), &["ann"]),
        (Tampering::LoseRoster(roster()), &[]),
        (Tampering::SpoilRoster(roster()), &[]),
    ];
    for (hand, left) in hands {
        let [ann, bob] = [bench.bring_named("ann").await?, bench.bring_named("bob").await?];
        let before = bench.sweep().await?;
        bench.tamper(hand.clone()).await;
        ensure!(bench.torn().await? == [roster()], "{hand:?} is not found");
        let join = bob.joins(&unread(&bob.user), bench.now().await?);
        let outcome = bench.commit_in(before.epoch, &bench.roster, vec![join]).await?;
        let CommitOutcome::Epoch { current } = outcome else { bail!("{hand:?}: {outcome:?}") };
        ensure!(current > before.epoch, "{current:?}");
        bench.is_whole().await?;
        ensure!(bench.torn().await?.is_empty(), "{hand:?}: still torn");
        ensure!(
            bench.summary().await?.count == left.len() as u64,
            "{hand:?}: {}",
            bench.summary().await?.count
        );
        for person in [&ann, &bob] {
            let stays = left.contains(&person.user.as_str());
            ensure!(
                bench.lease(person.lease).await?.is_some() == stays,
                "{hand:?}: lease of {}",
                person.user
            );
            if stays {
                bench.dismiss(person).await?;
            }
        }
    }
    bench.goes_on(&bench.person("dan"), 0).await
}

/// Whatever is kept beside rosters and leases is written anew where a key of another type stands in its way: nobody is
/// kept out or in by it.
pub async fn an_index_that_is_none_is_written_anew(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let bob = bench.person("bob").user;
    for index in [
        Index::LeasesOf(bench.shard, EDGE),
        Index::Seen(bob.clone()),
        Index::Went(bob.clone()),
        Index::RoomsOf(bob),
        Index::Edges,
        Index::Revoked,
    ] {
        bench.tamper(Tampering::SpoilIndex(index.clone())).await;
        let bob = bench.bring_named("bob").await.with_context(|| format!("{index:?}: nobody comes in"))?;
        let released = bench.release(EDGE, &[bob.lease]).await;
        ensure!(released.with_context(|| format!("{index:?}"))?.1 == 1, "{index:?}: not released");
        bench.dismiss(&bob).await.with_context(|| format!("{index:?}: nobody goes"))?;
        ensure!(bench.link(EDGE, LinkNumber(1)).await.with_context(|| format!("{index:?}"))?);
        ensure!(bench.edge(EDGE).await?.is_some(), "{index:?}: the edge is not known");
        let revocations = vec![(Revocation::Subject(bob.user.clone()), bench.now().await? + bench.ttl * 100)];
        bench.done(Command::Revoke { revocations }).await.with_context(|| format!("{index:?}"))?;
    }
    ensure!(bench.lease(ann.lease).await?.is_some());
    bench.goes_on(&bench.person("cid"), 1).await
}

/// Leases of whom nothing is known any more would be renewed for ever: they go with the roster that is made whole.
pub async fn leases_without_owners_do_not_outlive_their_roster(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let before = bench.sweep().await?;
    bench.tamper(Tampering::SpoilIndex(Index::Owners(bench.shard))).await;
    bench.tamper(Tampering::LoseRoster(bench.roster.clone())).await;
    let bob = bench.person("bob");
    let join = bob.joins(&unread(&bob.user), bench.now().await?);
    let outcome = bench.commit_in(before.epoch, &bench.roster, vec![join]).await?;
    ensure!(matches!(outcome, CommitOutcome::Epoch { current } if current > before.epoch), "{outcome:?}");
    ensure!(bench.lease(ann.lease).await?.is_none());
    bench.goes_on(&bob, 0).await
}

/// Nothing is read of a roster that has lost what all of it has: it would be wrong.
pub async fn a_roster_without_position_and_digest_is_not_read(bench: &Bench) -> anyhow::Result<()> {
    bench.bring_named("ann").await?;
    let before = bench.sweep().await?;
    bench.tamper(Tampering::LoseFirst(bench.roster.clone())).await;
    ensure!(bench.summary().await.is_err(), "counted");
    ensure!(bench.load(PORTION).await.is_err(), "loaded");
    ensure!(bench.distrust().await?);
    bench.made_whole(&before).await?;
    ensure!(bench.summary().await?.count == 1);
    Ok(())
}

/// A digest that is not that of the members is found where it is looked for: by whoever loaded all of them.
pub async fn a_digest_that_fits_nobody_is_distrusted(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    ensure!(!bench.distrust().await?, "before anybody's hand");
    let before = bench.sweep().await?;
    bench.tamper(Tampering::GarbleDigest(bench.roster.clone())).await;
    ensure!(bench.distrust().await?);
    bench.made_whole(&before).await?;
    ensure!(bench.lease(ann.lease).await?.is_some(), "who was there keeps the lease");
    bench.goes_on(&bench.person("bob"), 1).await
}

/// A record that was lost tears its roster, until it was made whole: in a hold, so that nobody sees anybody go.
pub async fn a_roster_that_was_mended_is_not_torn(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    bench.bring_named("bob").await?;
    let before = bench.sweep().await?;
    bench.tamper(Tampering::LoseRecord(bench.roster.clone(), ann.user.clone())).await;
    ensure!(bench.torn().await? == [bench.roster.clone()], "not found");
    let Outcome::Disowned { removed: 0 } =
        bench.execute(Command::Disown { shard: bench.shard, leases: vec![ann.lease] }).await?
    else {
        bail!("removed without a hold")
    };
    bench.made_whole(&before).await?;
    ensure!(bench.lease(ann.lease).await?.is_none(), "nobody would join again");
    ensure!(!bench.distrust().await?, "judged anew");
    Ok(())
}

/// What a shard knows of itself is lost, with the count of its commits: whoever is there stays, under a new epoch,
/// and commits go on.
pub async fn a_shard_that_lost_its_own_hash_goes_on(bench: &Bench) -> anyhow::Result<()> {
    let [ann, _bob] = [bench.bring_named("ann").await?, bench.bring_named("bob").await?];
    let hands = [Tampering::LoseShard, Tampering::SpoilShard, Tampering::GarbleShard];
    for hand in hands.map(|hand| hand(bench.shard)) {
        let before = bench.sweep().await?;
        bench.tamper(hand.clone()).await;
        ensure!(bench.summary().await.is_err(), "{hand:?}: read while nobody vouches for it");
        bench.made_whole(&before).await?;
        ensure!(bench.lease(ann.lease).await?.is_some(), "{hand:?}");
    }
    bench.goes_on(&bench.person("cid"), 2).await
}
