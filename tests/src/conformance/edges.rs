//! Who sees which edge: the higher link number wins, whatever the order of arrival.

use presence_core::store::{Command, Outcome};
use presence_model::id::{EdgeName, Incarnation, LinkNumber};

use super::bench::{Bench, CORE, EDGE};

/// What the bench calls it.
fn name() -> EdgeName {
    EdgeName::new("edge").expect("a good name")
}

fn unlink(link: u64) -> Command {
    Command::Unlink { edge: EDGE, name: name(), link: LinkNumber(link) }
}

fn drain(edge: Option<Incarnation>) -> Command {
    Command::DrainEdge { name: name(), edge }
}

fn forget(link: u64) -> Command {
    Command::Forget { edge: EDGE, name: name(), link: LinkNumber(link) }
}

/// An edge is known by its newest link.
pub async fn the_newest_link_is_known(bench: &Bench) -> anyhow::Result<()> {
    assert_eq!(bench.edge(EDGE).await?, None);
    assert!(bench.link(EDGE, LinkNumber(3)).await?);
    let state = bench.edge(EDGE).await?.expect("linked");
    assert_eq!((state.link, state.core, state.broken_since), (LinkNumber(3), CORE, None));
    assert!(bench.link(EDGE, LinkNumber(3)).await?, "again is fine");
    assert!(!bench.link(EDGE, LinkNumber(2)).await?, "an older one is not");
    assert!(bench.link(EDGE, LinkNumber(4)).await?);
    assert_eq!(bench.edge(EDGE).await?.map(|state| state.link), Some(LinkNumber(4)));
    Ok(())
}

/// A run of an edge keeps its name: under another one its id is somebody else's, whatever the link's number.
pub async fn a_run_of_an_edge_has_one_name(bench: &Bench) -> anyhow::Result<()> {
    let named = |name: &str, link| {
        let name = EdgeName::new(name).expect("a good name");
        Command::Link { edge: EDGE, name, link: LinkNumber(link), core: CORE }
    };
    let is_accepted = async |command| {
        let outcome = bench.execute(command).await?;
        anyhow::ensure!(matches!(outcome, Outcome::Linked { .. }), "not an answer to Link");
        anyhow::Ok(matches!(outcome, Outcome::Linked { accepted: true, .. }))
    };
    assert!(is_accepted(named("edge", 2)).await?);
    assert!(!is_accepted(named("other", 3)).await?);
    let (edge, other, link) = (EDGE, EdgeName::new("other")?, LinkNumber(9));
    bench.done(Command::Unlink { edge, name: other.clone(), link }).await?;
    bench.done(Command::Forget { edge, name: other, link }).await?;
    let state = bench.edge(EDGE).await?.expect("linked");
    assert_eq!((state.name.as_str(), state.link, state.broken_since), ("edge", LinkNumber(2), None));
    assert!(is_accepted(named("edge", 3)).await?);
    bench.done(forget(3)).await?;
    assert!(is_accepted(named("other", 1)).await?, "nobody has it any more");
    Ok(())
}

/// A link breaks once, and its time stays that of the first report.
pub async fn a_broken_link_keeps_its_time(bench: &Bench) -> anyhow::Result<()> {
    bench.link(EDGE, LinkNumber(1)).await?;
    let before = bench.now().await?;
    bench.done(unlink(1)).await?;
    let broken = bench.edge(EDGE).await?.and_then(|state| state.broken_since);
    assert!(broken >= Some(before), "{broken:?}");
    bench.advance(bench.kept).await;
    bench.done(unlink(1)).await?;
    bench.link(EDGE, LinkNumber(1)).await?;
    assert_eq!(
        bench.edge(EDGE).await?.and_then(|state| state.broken_since),
        broken,
        "the same number mends nothing"
    );
    Ok(())
}

/// A late end never overwrites a newer link; a newer link mends.
pub async fn a_late_end_is_ignored(bench: &Bench) -> anyhow::Result<()> {
    bench.link(EDGE, LinkNumber(2)).await?;
    bench.done(unlink(1)).await?;
    bench.done(forget(1)).await?;
    assert_eq!(bench.edge(EDGE).await?.map(|state| state.broken_since), Some(None));
    bench.done(unlink(2)).await?;
    bench.link(EDGE, LinkNumber(3)).await?;
    assert_eq!(bench.edge(EDGE).await?.map(|state| state.broken_since), Some(None));
    bench.done(unlink(2)).await?;
    assert_eq!(bench.edge(EDGE).await?.map(|state| state.broken_since), Some(None));
    Ok(())
}

/// The end of a link may arrive before its begin.
pub async fn an_end_may_come_before_its_begin(bench: &Bench) -> anyhow::Result<()> {
    bench.link(EDGE, LinkNumber(1)).await?;
    bench.done(unlink(2)).await?;
    assert!(bench.link(EDGE, LinkNumber(2)).await?);
    let state = bench.edge(EDGE).await?.expect("known");
    assert!(state.link == LinkNumber(2) && state.broken_since.is_some(), "{state:?}");
    Ok(())
}

/// A goodbye removes an edge; of an edge nobody knows every end is fine.
pub async fn a_goodbye_forgets_an_edge(bench: &Bench) -> anyhow::Result<()> {
    bench.link(EDGE, LinkNumber(1)).await?;
    bench.done(forget(1)).await?;
    assert_eq!(bench.edge(EDGE).await?, None);
    bench.done(forget(1)).await?;
    bench.done(unlink(1)).await?;
    assert_eq!(bench.edge(EDGE).await?, None);
    Ok(())
}

/// A broken edge is told with how many leases it holds, in all shards, under either name.
pub async fn leases_are_counted_by_edge(bench: &Bench) -> anyhow::Result<()> {
    bench.link(EDGE, LinkNumber(1)).await?;
    bench.link(Incarnation(0xee), LinkNumber(1)).await?;
    let count = async || anyhow::Ok(bench.edge(EDGE).await?.and_then(|state| state.leases));
    assert_eq!(count().await?, None, "nobody asks about an edge that is linked");
    bench.done(unlink(1)).await?;
    assert_eq!(count().await?, Some(0));
    let ann = bench.bring_named("ann").await?;
    let bob = bench.bring_named("bob").await?;
    let mut cid = bench.person("cid");
    cid.edge = Incarnation(0xee);
    bench.bring(&cid).await?;
    assert_eq!(count().await?, Some(2));
    bench.release(EDGE, &[ann.lease]).await?;
    assert_eq!(count().await?, Some(2), "grace is held through it too");
    bench.dismiss(&ann).await?;
    bench.dismiss(&bob).await?;
    assert_eq!(count().await?, Some(0));
    Ok(())
}

/// An edge is sent away by its name, or one run of it alone.
pub async fn an_edge_is_sent_away_by_name_or_by_run(bench: &Bench) -> anyhow::Result<()> {
    let other = Incarnation(0xee);
    let goes = async |edge| anyhow::Ok(bench.edge(edge).await?.map(|state| (state.draining, state.leases)));
    bench.done(drain(None)).await?;
    assert_eq!(bench.edge(EDGE).await?, None, "of an edge that is not known nothing is noted");
    bench.link(EDGE, LinkNumber(1)).await?;
    bench.link(other, LinkNumber(1)).await?;
    assert_eq!(goes(EDGE).await?, Some((false, None)));
    let name = EdgeName::new("somebody-else").expect("a good name");
    bench.done(Command::DrainEdge { name, edge: Some(EDGE) }).await?;
    assert_eq!(goes(EDGE).await?, Some((false, None)), "not under another name");
    bench.bring_named("ann").await?;
    bench.done(drain(Some(EDGE))).await?;
    assert_eq!(goes(EDGE).await?, Some((true, Some(1))), "who is left is counted");
    assert_eq!(goes(other).await?, Some((false, None)));
    bench.done(drain(None)).await?;
    bench.done(drain(None)).await?;
    assert_eq!(goes(other).await?, Some((true, Some(0))));
    Ok(())
}

/// An edge that was sent away stays so over later links, also over one that broke.
pub async fn a_word_to_go_stays_with_its_edge(bench: &Bench) -> anyhow::Result<()> {
    let goes = async || anyhow::Ok(bench.edge(EDGE).await?.is_some_and(|state| state.draining));
    bench.link(EDGE, LinkNumber(1)).await?;
    bench.done(drain(None)).await?;
    bench.link(EDGE, LinkNumber(1)).await?;
    assert!(goes().await?);
    bench.link(EDGE, LinkNumber(2)).await?;
    assert!(goes().await?, "on another core");
    bench.done(unlink(2)).await?;
    assert!(goes().await?);
    bench.link(EDGE, LinkNumber(3)).await?;
    assert!(goes().await?);
    bench.done(forget(3)).await?;
    bench.link(EDGE, LinkNumber(4)).await?;
    assert!(!goes().await?, "a word to somebody who has gone");
    Ok(())
}
