//! What the cases stand on: verbs as functions, people with their leases, and hand-made changes, so
//! that the suite judges a store and not the decisions that use it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures::future::BoxFuture;
use presence_core::store::{
    Command, Commit, CommitOutcome, EdgeState, HistoryOutcome, HoldState, LeaseDetail, LeaseStore,
    NotApplied, Outcome, StoreFault, TailId, TurnOutcome, shard_of,
};
use presence_model::change::{Change, Committed};
use presence_model::class::Graces;
use presence_model::digest::Digest;
use presence_model::id::{EdgeName, Incarnation, LinkNumber, RegionId, RoomId, Roster, UserId};
use presence_model::lease::{LeaseId, Shard};
use presence_model::position::{Epoch, Position, Revision};
use presence_model::profile::Member;
use presence_model::reason::ReleaseReason;
use presence_model::record::MemberRead;
use presence_model::time::StoreTime;

use super::{Fault, Harness};

/// The core that most cases play.
pub const CORE: u64 = 0xc0;
/// The edge through which people come unless a case says otherwise.
pub const EDGE: Incarnation = Incarnation(0xed);

/// A store under test.
pub struct Bench {
    harness: Box<dyn Harness>,
    store: Arc<dyn LeaseStore>,
    /// Where the cases play.
    pub roster: Roster,
    /// Its shard.
    pub shard: Shard,
    /// Smallest ttl.
    pub ttl: Duration,
    /// Grace.
    pub grace: Duration,
    /// How long a turn is kept; a takeover may take three times that.
    pub kept: Duration,
}

/// What became of the changes of a commit in the epoch in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// After it.
    pub position: Position,
    /// Not applied.
    pub refused: Vec<(UserId, NotApplied)>,
    /// When.
    pub now: StoreTime,
}

/// The answer to a summary.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Where the roster is.
    pub position: Position,
    /// Members.
    pub count: u64,
    /// Digest.
    pub digest: Digest,
    /// Start of the last finished sweep.
    pub swept: Option<StoreTime>,
    /// The hold in force.
    pub hold: Option<HoldState>,
}

/// The answer to a tail.
#[derive(Debug, Clone, PartialEq)]
pub struct Tail {
    /// Where to go on.
    pub at: BTreeMap<Shard, TailId>,
    /// What was committed.
    pub commits: Vec<Committed>,
    /// What broke.
    pub broken: Vec<Shard>,
}

/// A turn's question; cases change what matters to them.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// Who.
    pub holder: u64,
    /// Which turn was finished.
    pub finished: Option<u64>,
    /// Whether the caller saw the clock step.
    pub stepped: bool,
    /// The highest epoch known.
    pub known: Option<Epoch>,
    /// At most so much that is due.
    pub portion: usize,
}

impl Ask {
    /// A first question.
    #[must_use]
    pub fn by(holder: u64) -> Self {
        Self { holder, finished: None, stepped: false, known: None, portion: 100 }
    }

    /// A question of one who has finished a turn.
    #[must_use]
    pub fn after(holder: u64, turn: u64) -> Self {
        Self { finished: Some(turn), ..Self::by(holder) }
    }
}

impl Bench {
    /// A bench over a fresh store.
    #[must_use]
    pub fn new(harness: Box<dyn Harness>) -> Self {
        let store = harness.store();
        let roster = roster("lobby");
        let shard = shard_of(&roster, store.shards());
        let ttl = harness.ttl();
        Self { store, roster, shard, ttl, grace: ttl * 3 / 10, kept: ttl / 10, harness }
    }

    /// Lets time pass.
    pub async fn advance(&self, span: Duration) {
        self.harness.advance(span).await;
    }

    /// Lets something go wrong.
    pub async fn provoke(&self, fault: Fault) {
        self.harness.provoke(fault).await;
    }

    /// How long the store remembers what ended.
    #[must_use]
    pub fn remembers(&self) -> Duration {
        self.harness.remembers()
    }

    /// How long the store remembers when a user was seen last.
    #[must_use]
    pub fn remembers_seen(&self) -> Duration {
        self.harness.remembers_seen()
    }

    /// How long an entry of the index of a user's rooms is left alone.
    #[must_use]
    pub fn remembers_listing(&self) -> Duration {
        self.harness.remembers_listing()
    }

    /// How many shards the store has.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.store.shards()
    }

    /// The `number`-th other roster of the same shard.
    #[must_use]
    pub fn neighbour(&self, number: usize) -> Roster {
        let rosters = (0..).map(|n| roster(&format!("neighbour {n}")));
        let mut same = rosters.filter(|other| shard_of(other, self.store.shards()) == self.shard);
        same.nth(number).expect("names do not run out")
    }

    /// An unused lease id for a roster, wherever it is.
    #[must_use]
    pub fn lease_in(&self, roster: &Roster, random: u64) -> LeaseId {
        LeaseId::mint(self.ttl, shard_of(roster, self.store.shards()), random)
    }

    /// A lease id of some other shard.
    #[must_use]
    pub fn foreign_lease(&self) -> LeaseId {
        let other = (0..=u8::MAX).map(Shard).find(|other| *other != self.shard);
        LeaseId::mint(self.ttl, other.expect("there are 256 ids of shards"), 99)
    }

    /// Another shard of this store, if it has more than one.
    #[must_use]
    pub fn other_shard(&self) -> Option<Shard> {
        let shards = (0..=u8::MAX).map(Shard).take(usize::from(self.store.shards()));
        shards.into_iter().find(|other| *other != self.shard)
    }

    /// A shard that this store does not have, if it has less than all.
    #[must_use]
    pub fn no_such_shard(&self) -> Option<Shard> {
        u8::try_from(self.store.shards()).ok().map(Shard)
    }

    /// Sends a command.
    pub fn execute(&self, command: Command) -> BoxFuture<'static, Result<Outcome, StoreFault>> {
        self.store.execute(command)
    }

    /// Reads one member of the bench's roster.
    pub async fn read(&self, user: &UserId) -> anyhow::Result<MemberRead> {
        let (_, mut members) = self.members(&[user]).await?;
        members.pop().context("one was asked for")
    }

    /// Reads some members of the bench's roster.
    pub async fn members(&self, users: &[&UserId]) -> anyhow::Result<(Position, Vec<MemberRead>)> {
        let users = users.iter().copied().cloned().collect();
        let Outcome::Members { position, members, .. } =
            self.execute(Command::Members { roster: self.roster.clone(), users }).await?
        else {
            bail!("not an answer to Members")
        };
        Ok((position, members))
    }

    /// Commits changes of the bench's roster in the epoch in force.
    pub async fn commit(&self, changes: Vec<Change>) -> anyhow::Result<Applied> {
        self.commit_to(&self.roster, changes).await
    }

    /// Commits changes of a roster in the epoch in force.
    pub async fn commit_to(&self, roster: &Roster, changes: Vec<Change>) -> anyhow::Result<Applied> {
        let epoch = self.summary_of(roster).await?.position.epoch;
        match self.commit_in(epoch, roster, changes).await? {
            CommitOutcome::Applied { position, refused, now } => Ok(Applied { position, refused, now }),
            CommitOutcome::Epoch { current } => bail!("epoch {current} is in force, not {epoch}"),
        }
    }

    /// Commits changes in an epoch.
    pub async fn commit_in(
        &self,
        epoch: Epoch,
        roster: &Roster,
        changes: Vec<Change>,
    ) -> anyhow::Result<CommitOutcome> {
        let commit = Commit { roster: roster.clone(), epoch, changes };
        let Outcome::Commit(outcome) = self.execute(Command::Commit(commit)).await? else {
            bail!("not an answer to Commit")
        };
        Ok(outcome)
    }

    /// Commits one change that must be applied.
    pub async fn applied(&self, change: Change) -> anyhow::Result<Applied> {
        let applied = self.commit(vec![change]).await?;
        ensure!(applied.refused.is_empty(), "refused: {:?}", applied.refused);
        Ok(applied)
    }

    /// Commits one change that must be refused, and says why it was.
    pub async fn refused(&self, change: Change) -> anyhow::Result<NotApplied> {
        let user = change.user.clone();
        let applied = self.commit(vec![change]).await?;
        match applied.refused.as_slice() {
            [(who, reason)] if *who == user => Ok(*reason),
            other => bail!("not refused: {other:?}"),
        }
    }

    /// Renews leases; answers the unknown.
    pub async fn renew(&self, leases: &[(LeaseId, StoreTime)]) -> anyhow::Result<Vec<LeaseId>> {
        let leases = leases.to_vec();
        let Outcome::Renewed { unknown, .. } =
            self.execute(Command::Renew { shard: self.shard, leases }).await?
        else {
            bail!("not an answer to Renew")
        };
        Ok(unknown)
    }

    /// Releases leases as lost transports of an edge; answers when and how many.
    pub async fn release(&self, edge: Incarnation, leases: &[LeaseId]) -> anyhow::Result<(StoreTime, usize)> {
        let (shard, grace, reason) = (self.shard, self.grace, ReleaseReason::TransportLost);
        let Outcome::Released { now, released } =
            self.execute(Command::Release { shard, edge, leases: leases.to_vec(), grace, reason }).await?
        else {
            bail!("not an answer to Release")
        };
        Ok((now, released))
    }

    /// Loses an edge; answers how many leases are shortened.
    pub async fn lose(
        &self,
        edge: Incarnation,
        link: LinkNumber,
        broken_since: StoreTime,
    ) -> anyhow::Result<usize> {
        self.lose_by(edge, link, broken_since, self.grace.into()).await
    }

    /// The same, with a grace for each ttl.
    pub async fn lose_by(
        &self,
        edge: Incarnation,
        link: LinkNumber,
        broken_since: StoreTime,
        graces: Graces,
    ) -> anyhow::Result<usize> {
        let shard = self.shard;
        let Outcome::Lost { leases } =
            self.execute(Command::Lose { shard, edge, link, broken_since, graces }).await?
        else {
            bail!("not an answer to Lose")
        };
        Ok(leases)
    }

    /// A lease under whichever name it has; none if it does not exist.
    pub async fn lease(&self, lease: LeaseId) -> anyhow::Result<Option<LeaseDetail>> {
        let Outcome::Leases { leases, .. } =
            self.execute(Command::Leases { shard: self.shard, leases: vec![lease] }).await?
        else {
            bail!("not an answer to Leases")
        };
        Ok(leases.first().copied())
    }

    /// Asks for a turn of the bench's shard.
    pub async fn turn(&self, ask: Ask) -> anyhow::Result<TurnOutcome> {
        let command = Command::Turn {
            shard: self.shard,
            holder: ask.holder,
            finished: ask.finished,
            kept: self.kept,
            smallest_ttl: self.ttl,
            takeover: self.takeover(),
            stepped: ask.stepped,
            known: ask.known,
            portion: ask.portion,
        };
        let Outcome::Turn(outcome) = self.execute(command).await? else { bail!("not an answer to Turn") };
        Ok(outcome)
    }

    /// What a change of holder may take.
    #[must_use]
    pub fn takeover(&self) -> Duration {
        self.kept * 2
    }

    /// A turn, and another that says it was finished: somebody has looked.
    pub async fn sweep(&self) -> anyhow::Result<TurnOutcome> {
        let turn = self.turn(Ask::by(CORE)).await?;
        self.turn(Ask::after(CORE, turn.turn)).await
    }

    /// Lets time pass while somebody looks often enough for no hold to start.
    pub async fn advance_swept(&self, span: Duration) -> anyhow::Result<()> {
        // By the store's clock: where time is real, looking takes some of it.
        let end = self.now().await? + span;
        loop {
            let left = end.since(self.now().await?);
            if left.is_zero() {
                return Ok(());
            }
            self.advance(left.min(self.kept)).await;
            self.sweep().await?;
        }
    }

    /// The store's clock.
    pub async fn now(&self) -> anyhow::Result<StoreTime> {
        let Outcome::Now { now } = self.execute(Command::Now { shard: self.shard }).await? else {
            bail!("not an answer to Now")
        };
        Ok(now)
    }

    /// Count, position and digest of the bench's roster.
    pub async fn summary(&self) -> anyhow::Result<Summary> {
        self.summary_of(&self.roster).await
    }

    /// Count, position and digest of a roster.
    pub async fn summary_of(&self, roster: &Roster) -> anyhow::Result<Summary> {
        let Outcome::Summary { position, count, digest, swept, hold, .. } =
            self.execute(Command::Summary { roster: roster.clone() }).await?
        else {
            bail!("not an answer to Summary")
        };
        Ok(Summary { position, count, digest, swept, hold })
    }

    /// A whole roster in pages of `count`, with the position of the last page.
    pub async fn load(&self, count: usize) -> anyhow::Result<(Position, Vec<(Member, Revision)>)> {
        let mut all: Vec<(Member, Revision)> = Vec::new();
        loop {
            let after = all.last().map(|(member, _)| member.user.clone());
            let Outcome::Page { position, members, more, .. } =
                self.execute(Command::Load { roster: self.roster.clone(), after, count }).await?
            else {
                bail!("not an answer to Load")
            };
            ensure!(members.len() <= count, "a page of {} was asked for", count);
            all.extend(members);
            if !more {
                return Ok((position, all));
            }
        }
    }

    /// History of the bench's roster.
    pub async fn history(&self, after: Position, count: usize) -> anyhow::Result<HistoryOutcome> {
        let Outcome::History(outcome) =
            self.execute(Command::History { roster: self.roster.clone(), after, count }).await?
        else {
            bail!("not an answer to History")
        };
        Ok(outcome)
    }

    /// The commits of the bench's roster after a position; history must reach back so far.
    pub async fn commits_after(&self, after: Position) -> anyhow::Result<Vec<Committed>> {
        match self.history(after, usize::MAX).await? {
            HistoryOutcome::Commits(commits) => Ok(commits),
            HistoryOutcome::Unchanged { .. } => Ok(Vec::new()),
            other @ (HistoryOutcome::Compacted { .. } | HistoryOutcome::Ahead { .. }) => {
                bail!("history does not reach back to {after}: {other:?}")
            }
        }
    }

    /// What has happened since.
    pub async fn tail(&self, after: BTreeMap<Shard, TailId>) -> anyhow::Result<Tail> {
        tail_of(self.execute(Command::Tail { after, wait: Duration::ZERO }).await?)
    }

    /// Links an edge; answers whether the number was accepted.
    pub async fn link(&self, edge: Incarnation, link: LinkNumber) -> anyhow::Result<bool> {
        let name = EdgeName::new("edge").expect("a good name");
        let Outcome::Linked { accepted, .. } =
            self.execute(Command::Link { edge, name, link, core: CORE }).await?
        else {
            bail!("not an answer to Link")
        };
        Ok(accepted)
    }

    /// Sends a command that answers nothing.
    pub async fn done(&self, command: Command) -> anyhow::Result<()> {
        let Outcome::Done = self.execute(command).await? else { bail!("not done") };
        Ok(())
    }

    /// What is known of an edge.
    pub async fn edge(&self, edge: Incarnation) -> anyhow::Result<Option<EdgeState>> {
        let Outcome::Edges { edges, .. } = self.execute(Command::Edges).await? else {
            bail!("not an answer to Edges")
        };
        Ok(edges.into_iter().find(|state| state.edge == edge))
    }

    /// Names of rooms.
    pub async fn rooms(
        &self,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> anyhow::Result<Vec<String>> {
        let after = after.map(|room| RoomId::new(room).expect("a good name"));
        let Outcome::Rooms { rooms } =
            self.execute(Command::Rooms { prefix: prefix.to_owned(), after, count }).await?
        else {
            bail!("not an answer to Rooms")
        };
        Ok(rooms.iter().map(|room| room.as_str().to_owned()).collect())
    }
}

/// A roster of the region of all cases.
#[must_use]
pub fn roster(room: &str) -> Roster {
    Roster {
        region: RegionId::new("eu").expect("a good name"),
        room: RoomId::new(room).expect("a good name"),
    }
}

/// The answer to a tail.
pub fn tail_of(outcome: Outcome) -> anyhow::Result<Tail> {
    let Outcome::Tail { at, commits, broken } = outcome else { bail!("not an answer to Tail") };
    Ok(Tail { at, commits, broken })
}
