//! Reads: a few members, pages of a roster, counts and names.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join_all;
use presence_model::id::{RoomId, Roster, SessionId, UserId};
use presence_model::lease::LeaseId;
use presence_model::member::shown;
use presence_model::position::{Position, Revision};
use presence_model::record::{LeaseState, MemberRead, Record, Tombstone};
use presence_model::time::StoreTime;
use presence_proto::stored::{decode_record, decode_tombstone};
use redis::Cmd;

use super::fault::fault;
use super::keys::{room_of, room_range};
use super::leases::lease_state;
use super::reader::{Reader, number, unexpected};
use super::script::{MEMBERS, PAGE, Script};
use super::turn::hold;
use super::{Inner, roster_arguments};
use crate::store::{Outcome, StoreFault, torn};

impl Inner {
    pub(super) async fn members(&self, roster: Roster, users: Vec<UserId>) -> Result<Outcome, StoreFault> {
        let shard = self.shard_of(&roster);
        let mut arguments = roster_arguments(&roster);
        users.iter().for_each(|user| arguments.text(user.as_str()));
        let answer = self.read(&self.lanes.scripts, &MEMBERS, &self.keys.shard(shard), arguments).await?;
        let mut reader = settled(answer)?;
        let now = reader.time()?;
        let position = Position { epoch: reader.epoch()?, revision: reader.revision()? };
        let members = users.into_iter().map(|user| member(&mut reader, user)).collect::<Result<_, _>>()?;
        Ok(Outcome::Members { now, position, members })
    }

    pub(super) async fn page(
        &self,
        roster: Roster,
        after: Option<UserId>,
        count: usize,
    ) -> Result<Outcome, StoreFault> {
        let count = count.max(1);
        let mut last = after;
        loop {
            let Whole { now, position, digest, members: mut rows, .. } =
                self.look_at(&roster, last.as_ref(), count).await?;
            let (mut members, mut looked_at) = (Vec::new(), 0);
            while !rows.is_done() && looked_at < count {
                let (user, text) = (user(rows.text()?)?, rows.bytes()?);
                // A name without a record is nobody; a page of nothing else would seem to be the last.
                if !text.is_empty() {
                    let (touched, record) = stored(&text)?;
                    members.push((shown(&user, &record), touched));
                }
                last = Some(user);
                looked_at += 1;
            }
            let more = !rows.is_done();
            if !members.is_empty() || !more {
                return Ok(Outcome::Page { now, position, members, more, digest });
            }
        }
    }

    pub(super) async fn summary(&self, roster: Roster) -> Result<Outcome, StoreFault> {
        let whole = self.look_at(&roster, None, 0).await?;
        let Whole { now, position, count, digest, swept, hold, members: _ } = whole;
        Ok(Outcome::Summary { now, position, count, digest, swept, hold })
    }

    async fn look_at(
        &self,
        roster: &Roster,
        after: Option<&UserId>,
        count: usize,
    ) -> Result<Whole, StoreFault> {
        let shard = self.shard_of(roster);
        let mut arguments = roster_arguments(roster);
        arguments.text(after.map_or("", |after| after.as_str()));
        arguments.number(count as u64);
        let answer = self.read(&self.lanes.loads, &PAGE, &self.keys.shard(shard), arguments).await?;
        let mut reader = settled(answer)?;
        Ok(Whole {
            now: reader.time()?,
            position: Position { epoch: reader.epoch()?, revision: reader.revision()? },
            digest: reader.digest()?,
            count: reader.number()?,
            swept: {
                let swept = reader.text()?;
                if swept.is_empty() { None } else { Some(StoreTime(number(&swept)?)) }
            },
            hold: hold(&mut reader)?,
            members: reader,
        })
    }

    /// Each shard has its own sorted names: as many are asked of each as are wanted in all.
    pub(super) async fn rooms(
        &self,
        prefix: String,
        after: Option<RoomId>,
        count: usize,
    ) -> Result<Outcome, StoreFault> {
        let (start, end) = room_range(&prefix, after.as_ref());
        let of_shard = async |shard| {
            let mut command = Cmd::new();
            command.arg("ZRANGEBYLEX").arg(self.keys.rooms(shard)).arg(&start).arg(&end);
            command.arg("LIMIT").arg(0).arg(count);
            self.lanes.loads.run(&command).await.map_err(|error| fault(&error, false))
        };
        let mut names = BTreeSet::new();
        for answer in try_join_all(self.shards().map(of_shard)).await? {
            let mut reader = Reader::new(answer)?;
            while !reader.is_done() {
                names.extend(room_of(&reader.bytes()?));
            }
        }
        Ok(Outcome::Rooms { rooms: names.into_iter().take(count).collect() })
    }
}

/// What all of a roster has, and a page of it.
struct Whole {
    now: StoreTime,
    position: Position,
    digest: presence_model::digest::Digest,
    count: u64,
    swept: Option<StoreTime>,
    hold: Option<crate::store::HoldState>,
    members: Reader,
}

/// The answer of a read that is refused while no epoch vouches for the data.
pub(super) fn settled(answer: redis::Value) -> Result<Reader, StoreFault> {
    let mut reader = Reader::new(answer)?;
    match reader.text()?.as_str() {
        "read" => Ok(reader),
        "changed" => Err(StoreFault::Unsettled),
        "torn" => Err(torn()),
        other => Err(unexpected(other)),
    }
}

fn member(reader: &mut Reader, user: UserId) -> Result<MemberRead, StoreFault> {
    let text = reader.bytes()?;
    let (mut buried, mut held) = (reader.list()?, reader.list()?);
    let mut tombstones = BTreeMap::new();
    while !buried.is_done() {
        let (session, tombstone) = tombstone(&buried.bytes()?)?;
        tombstones.insert(session, tombstone);
    }
    let mut leases: BTreeMap<LeaseId, LeaseState> = BTreeMap::new();
    while !held.is_done() {
        let (lease, state) = lease_state(&mut held)?;
        leases.insert(lease, state);
    }
    if text.is_empty() {
        return Ok(MemberRead { tombstones, ..MemberRead::absent(user) });
    }
    let (touched, record) = stored(&text)?;
    Ok(MemberRead { user, touched, record: Some(record), tombstones, leases })
}

/// `revision digest leases record`.
fn stored(text: &[u8]) -> Result<(Revision, Record), StoreFault> {
    let mut parts = text.splitn(4, |byte| *byte == b' ');
    let (Some(revision), Some(_), Some(_), Some(record)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(unexpected(&String::from_utf8_lossy(text)));
    };
    let revision = number(&String::from_utf8_lossy(revision))?;
    let record = decode_record(record).map_err(|error| unexpected(&error.to_string()))?;
    Ok((Revision(revision), record))
}

/// `session`, byte 0, `generation ended tombstone`.
fn tombstone(text: &[u8]) -> Result<(SessionId, Tombstone), StoreFault> {
    let bad = || unexpected(&String::from_utf8_lossy(text));
    let end = text.iter().position(|byte| *byte == 0).ok_or_else(bad)?;
    let session = std::str::from_utf8(&text[..end]).ok().and_then(|id| SessionId::new(id).ok());
    let tombstone = text[end + 1..].splitn(3, |byte| *byte == b' ').nth(2).ok_or_else(bad)?;
    let tombstone = decode_tombstone(tombstone).map_err(|error| unexpected(&error.to_string()))?;
    Ok((session.ok_or_else(bad)?, tombstone))
}

fn user(name: String) -> Result<UserId, StoreFault> {
    UserId::new(name).map_err(|error| unexpected(&error.to_string()))
}

/// For what only reads: runs on the lane that fits.
impl Inner {
    pub(super) async fn read(
        &self,
        lane: &super::lanes::Lane,
        script: &Script,
        key: &str,
        arguments: super::arguments::Arguments,
    ) -> Result<redis::Value, StoreFault> {
        script.read(lane, key, arguments.as_slice()).await.map_err(|error| fault(&error, false))
    }
}
