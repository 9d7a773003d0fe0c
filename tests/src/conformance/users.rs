//! What is kept of a user whatever the room: last seen, and where they may be.

use std::time::Duration;

use anyhow::bail;
use presence_core::store::{Command, Listed, Outcome};
use presence_model::id::{Roster, UserId};
use presence_model::lease::Shard;
use presence_model::reason::RemovalReason;
use presence_model::time::StoreTime;

use super::bench::Bench;
use super::people::{Person, unread};

const PORTION: usize = 64;

impl Bench {
    async fn seen(&self, user: &UserId) -> anyhow::Result<Option<StoreTime>> {
        let Outcome::Seen { at, .. } = self.execute(Command::Seen { user: user.clone() }).await? else {
            bail!("not an answer to Seen")
        };
        Ok(at)
    }

    async fn page_of(
        &self,
        user: &UserId,
        after: Option<Listed>,
        count: usize,
    ) -> anyhow::Result<(Vec<Listed>, bool)> {
        let Outcome::RoomsOf { rooms, more, .. } =
            self.execute(Command::RoomsOf { user: user.clone(), after, count }).await?
        else {
            bail!("not an answer to RoomsOf")
        };
        Ok((rooms, more))
    }

    async fn rooms_of(&self, user: &UserId) -> anyhow::Result<Vec<Roster>> {
        let (rooms, more) = self.page_of(user, None, 100).await?;
        assert!(!more);
        Ok(rooms.into_iter().map(|listed| listed.roster).collect())
    }

    async fn unlist(&self, user: &UserId, listed: &Listed) -> anyhow::Result<()> {
        self.done(Command::Unlist { user: user.clone(), listed: listed.clone() }).await
    }

    /// Tidies every shard until nothing is left to do.
    async fn tidy(&self) -> anyhow::Result<()> {
        for shard in (0..=u8::MAX).map(Shard).take(usize::from(self.shards())) {
            loop {
                let Outcome::Tidied { more } =
                    self.execute(Command::Tidy { shard, portion: PORTION }).await?
                else {
                    bail!("not an answer to Tidy")
                };
                if !more {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Somebody comes to another roster of the bench's shard.
    async fn bring_to(&self, roster: &Roster, person: &Person) -> anyhow::Result<()> {
        let change = person.joins(&unread(&person.user), self.now().await?);
        self.commit_to(roster, vec![change]).await.map(drop)
    }
}

/// Somebody is seen when he comes and when he goes, by the store's clock; a stranger never.
pub async fn coming_and_going_is_seen(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.person("ann");
    assert_eq!(bench.seen(&ann.user).await?, None);
    let before = bench.now().await?;
    let came = bench.bring(&ann).await?.now;
    let seen = bench.seen(&ann.user).await?.expect("she came");
    assert!(before <= seen && seen <= came, "{before:?} {seen:?} {came:?}");
    bench.advance(bench.kept).await;
    bench.bring(&ann.again()).await?;
    assert_eq!(bench.seen(&ann.user).await?, Some(seen), "a reconnect is no coming");
    let before = bench.now().await?;
    let went = bench.dismiss(&ann.again()).await?.now;
    let seen = bench.seen(&ann.user).await?.expect("she went");
    assert!(before <= seen && seen <= went, "{before:?} {seen:?} {went:?}");
    Ok(())
}

/// Last seen is kept for its time, then forgotten, whoever came meanwhile.
pub async fn last_seen_is_kept_for_its_time(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    bench.dismiss(&ann).await?;
    bench.tidy().await?;
    assert!(bench.seen(&ann.user).await?.is_some());
    bench.advance(bench.remembers_seen() + bench.kept).await;
    let bob = bench.bring_named("bob").await?;
    bench.tidy().await?;
    assert_eq!(bench.seen(&ann.user).await?, None);
    assert!(bench.seen(&bob.user).await?.is_some());
    Ok(())
}

/// Where somebody is is never under-reported, of any room and region; what ended is not told for ever.
pub async fn rooms_of_a_user_are_complete(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let mut elsewhere = bench.person("ann");
    elsewhere.lease = bench.lease_in(&bench.neighbour(0), 77);
    bench.bring_to(&bench.neighbour(0), &elsewhere).await?;
    let mut both = vec![bench.roster.clone(), bench.neighbour(0)];
    both.sort();
    let mut told = bench.rooms_of(&ann.user).await?;
    told.sort();
    assert_eq!(told, both);
    assert_eq!(bench.rooms_of(&bench.person("bob").user).await?, []);
    bench.dismiss(&ann).await?;
    bench.advance(bench.remembers_listing() + bench.kept).await;
    bench.tidy().await?;
    assert_eq!(bench.rooms_of(&ann.user).await?, [bench.neighbour(0)], "the one she is in");
    Ok(())
}

/// Whoever left and came again before anybody looked is listed still.
pub async fn who_came_again_stays_listed(bench: &Bench) -> anyhow::Result<()> {
    let [ann, bob] = [bench.bring_named("ann").await?, bench.bring_named("bob").await?];
    bench.dismiss(&ann).await?;
    bench.dismiss(&bob).await?;
    bench.bring(&bob.again()).await?;
    bench.advance(bench.remembers_listing() + bench.kept).await;
    let again = ann.again();
    bench.bring(&again).await?;
    bench.tidy().await?;
    assert_eq!(bench.rooms_of(&ann.user).await?, std::slice::from_ref(&bench.roster));
    assert_eq!(bench.rooms_of(&bob.user).await?, std::slice::from_ref(&bench.roster), "however long ago");
    bench.advance(bench.remembers_listing() + bench.kept).await;
    bench.tidy().await?;
    assert_eq!(
        bench.rooms_of(&ann.user).await?,
        std::slice::from_ref(&bench.roster),
        "whatever was noted of her going"
    );
    bench.dismiss(&again).await?;
    bench.advance(bench.remembers_listing() + bench.kept).await;
    bench.tidy().await?;
    assert_eq!(bench.rooms_of(&ann.user).await?, []);
    Ok(())
}

/// A departure that was refused takes nobody from the list.
pub async fn a_refused_departure_takes_nobody_from_the_list(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let read = bench.read(&ann.user).await?;
    bench.refused(ann.expires(&read)).await?;
    bench.advance(bench.remembers_listing() + bench.kept).await;
    bench.tidy().await?;
    assert_eq!(bench.rooms_of(&ann.user).await?, std::slice::from_ref(&bench.roster));
    let read = bench.read(&ann.user).await?;
    bench.applied(ann.goes(&read, RemovalReason::Evicted, Vec::new())).await?;
    Ok(())
}

/// Rooms of a user come in pages in the order in which they were listed.
pub async fn rooms_of_a_user_come_in_pages(bench: &Bench) -> anyhow::Result<()> {
    let mut rosters = Vec::new();
    for number in 0..5 {
        let roster = bench.neighbour(number);
        let mut ann = bench.person("ann");
        ann.lease = bench.lease_in(&roster, 500 + number as u64);
        bench.bring_to(&roster, &ann).await?;
        rosters.push(roster);
        bench.advance(Duration::from_millis(3)).await;
    }
    let user = bench.person("ann").user;
    let (first, more) = bench.page_of(&user, None, 2).await?;
    assert!(more);
    let (second, more) = bench.page_of(&user, first.last().cloned(), 2).await?;
    assert!(more);
    let (third, more) = bench.page_of(&user, second.last().cloned(), 2).await?;
    assert!(!more);
    let all: Vec<Roster> = first.into_iter().chain(second).chain(third).map(|l| l.roster).collect();
    assert_eq!(all, rosters);
    let (exact, more) = bench.page_of(&user, None, 5).await?;
    assert_eq!((exact.len(), more), (5, false));
    Ok(())
}

/// A reader removes an entry only as it was read, and once no commit for it can be on its way.
pub async fn an_entry_is_removed_only_as_it_was_read(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.bring_named("ann").await?;
    let (listed, _) = bench.page_of(&ann.user, None, 9).await?;
    let entry = listed[0].clone();
    bench.unlist(&ann.user, &entry).await?;
    assert_eq!(bench.rooms_of(&ann.user).await?.len(), 1, "too young");
    bench.advance(bench.remembers_listing() + bench.kept).await;
    let older = Listed { at: StoreTime(entry.at.0 - 1), ..entry.clone() };
    bench.unlist(&ann.user, &older).await?;
    let foreign = Listed { roster: bench.neighbour(0), ..entry.clone() };
    bench.unlist(&ann.user, &foreign).await?;
    assert_eq!(bench.rooms_of(&ann.user).await?.len(), 1, "written since");
    bench.unlist(&ann.user, &entry).await?;
    assert_eq!(bench.rooms_of(&ann.user).await?, []);
    Ok(())
}
