//! Revocations: kept until they cannot matter, never shortened.

use anyhow::bail;
use presence_core::store::{Command, Outcome};
use presence_model::lease::Shard;
use presence_model::revocation::Revocation;
use presence_model::time::StoreTime;

use super::bench::Bench;

type Revoked = (Revocation, StoreTime);

impl Bench {
    async fn revoke(&self, revocations: Vec<Revoked>) -> anyhow::Result<()> {
        self.done(Command::Revoke { revocations }).await
    }

    async fn revoked_page(
        &self,
        after: Option<Revoked>,
        count: usize,
    ) -> anyhow::Result<(Vec<Revoked>, bool)> {
        let Outcome::Revoked { revocations, more, .. } =
            self.execute(Command::Revoked { after, count, unless: None }).await?
        else {
            bail!("not an answer to Revoked")
        };
        Ok((revocations, more))
    }

    /// The number of news, and how many are told to whoever knows that one.
    async fn news(&self, unless: Option<u64>) -> anyhow::Result<(u64, usize)> {
        let command = Command::Revoked { after: None, count: 9, unless };
        let Outcome::Revoked { news, revocations, .. } = self.execute(command).await? else {
            bail!("not an answer to Revoked")
        };
        Ok((news, revocations.len()))
    }
}

fn token(number: u32) -> Revocation {
    Revocation::Token(format!("token-{number}").into())
}

/// What was revoked is told as it was said, of every kind, until its time.
pub async fn what_is_revoked_is_told_until_its_time(bench: &Bench) -> anyhow::Result<()> {
    let ann = bench.person("ann");
    let now = bench.now().await?;
    let session =
        Revocation::Session { roster: bench.roster.clone(), user: ann.user.clone(), session: ann.session };
    let all = vec![
        (token(1), now + bench.ttl / 2),
        (Revocation::Key("k".into()), now + bench.ttl * 2),
        (Revocation::Subject(ann.user), now + bench.ttl * 3),
        (session, now + bench.ttl * 4),
    ];
    bench.revoke(all.clone()).await?;
    assert_eq!(bench.revoked_page(None, 9).await?, (all.clone(), false), "the first to end in front");
    bench.advance(bench.ttl / 2).await;
    assert_eq!(bench.revoked_page(None, 9).await?.0, all[1..]);
    Ok(())
}

/// A revocation repeated with an earlier end keeps its end; with a later one it is prolonged.
pub async fn a_revocation_is_never_shortened(bench: &Bench) -> anyhow::Result<()> {
    let now = bench.now().await?;
    let (early, middle, late) = (now + bench.ttl / 2, now + bench.ttl, now + bench.ttl * 2);
    bench.revoke(vec![(token(1), middle)]).await?;
    bench.revoke(vec![(token(1), early)]).await?;
    assert_eq!(bench.revoked_page(None, 9).await?.0, [(token(1), middle)]);
    bench.revoke(vec![(token(1), late)]).await?;
    bench.revoke(vec![(token(1), late)]).await?;
    assert_eq!(bench.revoked_page(None, 9).await?.0, [(token(1), late)], "once");
    bench.revoke(vec![(token(2), bench.now().await?)]).await?;
    assert_eq!(bench.revoked_page(None, 9).await?.0.len(), 1, "it has ended already");
    Ok(())
}

/// Revocations come in pages; ended ones are forgotten and take no place in them.
pub async fn revocations_come_in_pages(bench: &Bench) -> anyhow::Result<()> {
    let now = bench.now().await?;
    let ended = (100..110).map(|number| (token(number), now + bench.kept));
    let lasting = (0..5).map(|number| (token(number), now + bench.ttl * (2 + number)));
    bench.revoke(ended.chain(lasting.clone()).collect()).await?;
    bench.advance(bench.kept * 2).await;
    let (first, more) = bench.revoked_page(None, 2).await?;
    assert!(more);
    let (second, more) = bench.revoked_page(first.last().cloned(), 2).await?;
    assert!(more);
    let (third, more) = bench.revoked_page(second.last().cloned(), 2).await?;
    assert!(!more);
    let all: Vec<Revoked> = first.into_iter().chain(second).chain(third).collect();
    assert_eq!(all, lasting.clone().collect::<Vec<_>>());
    let Outcome::Tidied { .. } = bench.execute(Command::Tidy { shard: Shard(0), portion: 99 }).await? else {
        bail!("not an answer to Tidy")
    };
    assert_eq!(bench.revoked_page(None, 5).await?, (lasting.collect(), false));
    Ok(())
}

/// Whoever knows the number of news is told nothing until there is more; what is no news does not count.
pub async fn news_of_revocations_are_told_by_their_number(bench: &Bench) -> anyhow::Result<()> {
    let (nothing, _) = bench.news(None).await?;
    let until = bench.now().await? + bench.ttl * 9;
    bench.revoke(vec![(token(1), until), (token(2), until)]).await?;
    let (two, told) = bench.news(Some(nothing)).await?;
    assert!(two != nothing && told == 2, "{two}: {told}");
    assert_eq!(bench.news(Some(two)).await?, (two, 0));
    bench.revoke(vec![(token(1), until), (token(2), bench.now().await?)]).await?;
    assert_eq!(bench.news(Some(two)).await?, (two, 0), "it was known already");
    bench.revoke(vec![(token(1), until + bench.ttl)]).await?;
    let (longer, told) = bench.news(Some(two)).await?;
    assert!(longer != two && told == 2, "{longer}: {told}");
    Ok(())
}
