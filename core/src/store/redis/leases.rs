//! Renewals, releases, lost edges, and what stands behind a member.

use std::time::Duration;

use presence_model::class::Graces;
use presence_model::id::{Incarnation, LinkNumber};
use presence_model::lease::{LeaseId, Shard};
use presence_model::member::{Shortened, ShortenedBy};
use presence_model::reason::ReleaseReason;
use presence_model::record::LeaseState;
use presence_model::time::{StoreTime, millis};
use redis::Cmd;

use super::Inner;
use super::arguments::Arguments;
use super::fault::fault;
use super::keys::lease_name;
use super::reader::{Reader, number, unexpected};
use super::script::{DISCARD, LEASES, LOSE, RELEASE};
use crate::store::{LeaseDetail, Outcome, StoreFault};

/// Leases of a lost edge shortened by one command, so that it blocks nobody for long; repeated until none
/// is left.
const LOSE_PORTION: u64 = 500;

/// The note of a lease whose edge was lost.
const EDGE_LOST: &str = "edge_lost";

impl Inner {
    /// One `ZADD` for all; a second command only if some deadline did not move.
    pub(super) async fn renew(
        &self,
        shard: Shard,
        leases: Vec<(LeaseId, StoreTime)>,
    ) -> Result<Outcome, StoreFault> {
        self.check_shard(shard)?;
        // Whoever renews a grace name is late: that would undo a release.
        let (mut unknown, leases): (Vec<_>, Vec<_>) =
            leases.into_iter().partition(|(lease, _)| lease.is_grace());
        if leases.is_empty() {
            let unknown = unknown.into_iter().map(|(lease, _)| lease).collect();
            return Ok(Outcome::Renewed { now: None, unknown });
        }
        let key = self.keys.leases(shard);
        let mut add = Cmd::new();
        add.arg("ZADD").arg(&key).arg("XX").arg("GT").arg("CH");
        for (lease, deadline) in &leases {
            add.arg(deadline.0).arg(lease_name(*lease));
        }
        let moved = self.lanes.renewals.run(&add).await.map_err(|error| fault(&error, true))?;
        let redis::Value::Int(moved) = moved else { return Err(unexpected("a ZADD without a count")) };
        if usize::try_from(moved).is_ok_and(|moved| moved < leases.len()) {
            let mut look = Cmd::new();
            look.arg("ZMSCORE").arg(&key);
            leases.iter().for_each(|(lease, _)| {
                look.arg(lease_name(*lease));
            });
            let scores = self.lanes.renewals.run(&look).await.map_err(|error| fault(&error, true))?;
            let redis::Value::Array(scores) = scores else {
                return Err(unexpected("a ZMSCORE without a list"));
            };
            let missing = leases.iter().zip(scores).filter(|(_, score)| *score == redis::Value::Nil);
            unknown.extend(missing.map(|(lease, _)| *lease));
        }
        Ok(Outcome::Renewed { now: None, unknown: unknown.into_iter().map(|(lease, _)| lease).collect() })
    }

    pub(super) async fn release(
        &self,
        shard: Shard,
        edge: Incarnation,
        leases: Vec<LeaseId>,
        (grace, reason): (Duration, ReleaseReason),
    ) -> Result<Outcome, StoreFault> {
        self.check_shard(shard)?;
        let mut arguments = Arguments::default();
        arguments.hex(edge.0);
        arguments.number(millis(grace));
        arguments.text(release_word(reason));
        leases.iter().for_each(|lease| arguments.text(&lease_name(lease.plain_name())));
        let answer = self.write(&RELEASE, &self.keys.shard(shard), arguments).await?;
        let mut reader = Reader::new(answer)?;
        Ok(Outcome::Released { now: reader.time()?, released: reader.count()? })
    }

    pub(super) async fn discard(&self, shard: Shard, leases: Vec<LeaseId>) -> Result<Outcome, StoreFault> {
        self.check_shard(shard)?;
        let mut arguments = Arguments::default();
        leases.iter().for_each(|lease| arguments.text(&lease_name(lease.plain_name())));
        self.write(&DISCARD, &self.keys.shard(shard), arguments).await?;
        Ok(Outcome::Done)
    }

    pub(super) async fn lose(
        &self,
        shard: Shard,
        (edge, link): (Incarnation, LinkNumber),
        broken_since: StoreTime,
        graces: Graces,
    ) -> Result<Outcome, StoreFault> {
        self.check_shard(shard)?;
        loop {
            let mut arguments = Arguments::default();
            arguments.hex(edge.0);
            arguments.hex(link.0);
            arguments.number(broken_since.0);
            arguments.number(millis(graces.usual()));
            arguments.number(LOSE_PORTION);
            for (ttl, grace) in graces.by_ttl() {
                arguments.number(millis(ttl));
                arguments.number(millis(grace));
            }
            let mut reader = Reader::new(self.write(&LOSE, &self.keys.shard(shard), arguments).await?)?;
            reader.time()?;
            let (leases, more) = (reader.count()?, reader.flag()?);
            if !more {
                return Ok(Outcome::Lost { leases });
            }
        }
    }

    pub(super) async fn lease_details(
        &self,
        shard: Shard,
        leases: Vec<LeaseId>,
    ) -> Result<Outcome, StoreFault> {
        self.check_shard(shard)?;
        let mut arguments = Arguments::default();
        leases.iter().for_each(|lease| arguments.text(&lease_name(lease.plain_name())));
        let answer = self.read(&self.lanes.scripts, &LEASES, &self.keys.shard(shard), arguments).await?;
        let mut reader = Reader::new(answer)?;
        let now = reader.time()?;
        let mut leases = Vec::new();
        while !reader.is_done() {
            let (lease, state) = lease_state(&mut reader)?;
            leases.push(LeaseDetail { lease, state, shortened: note(&reader.text()?)? });
        }
        Ok(Outcome::Leases { now, leases })
    }
}

/// A lease and its deadline, under whichever name it has.
pub(super) fn lease_state(reader: &mut Reader) -> Result<(LeaseId, LeaseState), StoreFault> {
    let (named, deadline) = (reader.lease()?, reader.time()?);
    let state = if named.is_grace() { LeaseState::Grace { deadline } } else { LeaseState::Live { deadline } };
    Ok((named.plain_name(), state))
}

/// A note of why a lease was shortened, or none.
pub(super) fn note(text: &str) -> Result<Option<Shortened>, StoreFault> {
    if text.is_empty() {
        return Ok(None);
    }
    let mut words = text.split(' ');
    let (Some(cause), Some(replaced), Some(deadline)) = (words.next(), words.next(), words.next()) else {
        return Err(unexpected(text));
    };
    let cause = match cause {
        EDGE_LOST => ShortenedBy::EdgeLost,
        word => ShortenedBy::Release(release_reason(word).ok_or_else(|| unexpected(text))?),
    };
    let (replaced, deadline) = (StoreTime(number(replaced)?), StoreTime(number(deadline)?));
    Ok(Some(Shortened { cause, replaced, deadline }))
}

const fn release_word(reason: ReleaseReason) -> &'static str {
    match reason {
        ReleaseReason::TransportLost => "transport_lost",
        ReleaseReason::Drain => "drain",
        ReleaseReason::Shed => "shed",
    }
}

fn release_reason(word: &str) -> Option<ReleaseReason> {
    [ReleaseReason::TransportLost, ReleaseReason::Drain, ReleaseReason::Shed]
        .into_iter()
        .find(|reason| release_word(*reason) == word)
}
