//! Commits: of a roster by walking back from its last one, of all shards by their streams.
//!
//! A stream says by itself where it breaks: each entry has its epoch and its place, and places have no
//! gaps. What a stream cannot say, that another data set with fewer commits has taken its place, is looked
//! up when a turn tells so, and now and then.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::try_join_all;
use presence_model::change::{Committed, Visible};
use presence_model::delta::Delta;
use presence_model::digest::Digest;
use presence_model::id::{RoomId, Roster};
use presence_model::lease::Shard;
use presence_model::position::{Epoch, Position, Revision};
use presence_model::time::{StoreTime, millis};
use presence_proto::stored::decode_told;
use redis::Cmd;
use tokio::time::Instant;

use super::fault::fault;
use super::keys::region_of;
use super::reader::{Reader, epoch, epoch_text, hex, number, unexpected};
use super::script::HISTORY;
use super::{Inner, roster_arguments};
use crate::store::{HistoryOutcome, Outcome, StoreFault, TailId};

/// Commits walked back to answer for one roster; whoever lacks more starts over.
const STEPS_BACK_MAX: u64 = 1_024;
/// Entries of one stream in one answer.
const ENTRIES_MAX: usize = 512;
/// Between two looks at streams that cannot be waited for.
const POLL: Duration = Duration::from_millis(50);
/// Between two looks at where shards are, unless a turn tells of another epoch, or that entries were dropped
/// that have not been read: so a break shows that no entry tells.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What the last answer said, and when shards were last looked at.
#[derive(Debug, Default)]
pub(super) struct LastTail {
    at: BTreeMap<Shard, TailId>,
    looked: Option<Instant>,
    /// Epochs, and what history has dropped, as turns were told last.
    told: BTreeMap<Shard, (Epoch, u64)>,
}

/// An entry of a stream.
struct Entry {
    sequence: u64,
    epoch: Epoch,
    committed: Committed,
}

/// Where a shard is.
struct Place {
    /// None: it has no epoch.
    epoch: Option<Epoch>,
    commits: u64,
    /// Everything up to this commit has been dropped.
    dropped: u64,
}

impl Place {
    /// Whether a tail that is there cannot go on.
    fn breaks(&self, id: TailId) -> bool {
        let known = self.dropped..=self.commits;
        self.epoch.is_some_and(|epoch| epoch != id.epoch || !known.contains(&id.sequence))
    }
}

/// An answer being put together.
#[derive(Default)]
struct Told {
    at: BTreeMap<Shard, TailId>,
    commits: Vec<Committed>,
    broken: Vec<Shard>,
}

impl Told {
    fn is_empty(&self) -> bool {
        self.commits.is_empty() && self.broken.is_empty()
    }

    fn into_outcome(self) -> Outcome {
        Outcome::Tail { at: self.at, commits: self.commits, broken: self.broken }
    }
}

impl Inner {
    pub(super) async fn history(
        &self,
        roster: Roster,
        after: Position,
        count: usize,
    ) -> Result<Outcome, StoreFault> {
        let shard = self.shard_of(&roster);
        let mut arguments = roster_arguments(&roster);
        arguments.text(&epoch_text(after.epoch));
        arguments.number(after.revision.0);
        arguments.number(count as u64);
        arguments.number(STEPS_BACK_MAX);
        let answer = self.read(&self.lanes.loads, &HISTORY, &self.keys.shard(shard), arguments).await?;
        let mut reader = Reader::new(answer)?;
        let word = reader.text()?;
        if word == "commits" {
            let mut commits = Vec::new();
            while !reader.is_done() {
                commits.push(committed(&mut reader.list()?)?.1);
            }
            return Ok(Outcome::History(HistoryOutcome::Commits(commits)));
        }
        if word == "changed" {
            return Err(StoreFault::Unsettled);
        }
        let position = Position { epoch: reader.epoch()?, revision: reader.revision()? };
        match word.as_str() {
            "compacted" => Ok(Outcome::History(HistoryOutcome::Compacted { position })),
            "unchanged" => Ok(Outcome::History(HistoryOutcome::Unchanged { position })),
            "ahead" => Ok(Outcome::History(HistoryOutcome::Ahead { position })),
            other => Err(unexpected(other)),
        }
    }

    pub(super) async fn tail(
        &self,
        after: BTreeMap<Shard, TailId>,
        wait: Duration,
    ) -> Result<Outcome, StoreFault> {
        let is_new = self.last_tail().at != after;
        let mut told = Told { at: after, ..Told::default() };
        let is_whole = self.shards().all(|shard| told.at.contains_key(&shard));
        if is_whole {
            self.read_streams(&mut told, wait).await?;
        }
        if is_new || self.is_to_be_looked_at(&told.at) {
            self.look_where_shards_are(&mut told).await?;
            self.last_tail().looked = Some(Instant::now());
        }
        self.last_tail().at.clone_from(&told.at);
        Ok(told.into_outcome())
    }

    fn is_to_be_looked_at(&self, at: &BTreeMap<Shard, TailId>) -> bool {
        let last = self.last_tail();
        let breaks = |(shard, id): (&Shard, &TailId)| {
            last.told.get(shard).is_some_and(|(epoch, dropped)| *epoch != id.epoch || *dropped > id.sequence)
        };
        last.looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) || at.iter().any(breaks)
    }

    /// What a turn was told of a shard: its epoch, and the last commit that history has dropped.
    pub(super) fn note_place(&self, shard: Shard, epoch: Epoch, dropped: u64) {
        self.last_tail().told.insert(shard, (epoch, dropped));
    }

    fn last_tail(&self) -> MutexGuard<'_, LastTail> {
        self.last_tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read_streams(&self, told: &mut Told, wait: Duration) -> Result<(), StoreFault> {
        if self.lanes.tail.can_block() {
            return self.read_together(told, wait).await;
        }
        // Streams of a cluster lie on several servers: each is asked, again and again.
        let deadline = Instant::now() + wait;
        loop {
            let read = async |shard, id: TailId| {
                let command = self.stream_command(None, [(shard, id)].into_iter());
                self.lanes.tail.run(&command).await.map_err(|error| fault(&error, false))
            };
            let at = told.at.clone();
            for answer in try_join_all(at.into_iter().map(|(shard, id)| read(shard, id))).await? {
                self.take_streams(told, answer)?;
            }
            if !told.is_empty() || Instant::now() >= deadline {
                return Ok(());
            }
            tokio::time::sleep_until(deadline.min(Instant::now() + POLL)).await;
        }
    }

    async fn read_together(&self, told: &mut Told, wait: Duration) -> Result<(), StoreFault> {
        let block = (!wait.is_zero()).then_some(wait);
        let command = self.stream_command(block, told.at.clone().into_iter());
        let answer = self.lanes.tail.run(&command).await.map_err(|error| fault(&error, false))?;
        self.take_streams(told, answer)
    }

    fn stream_command(&self, block: Option<Duration>, at: impl Iterator<Item = (Shard, TailId)>) -> Cmd {
        let (keys, ids): (Vec<_>, Vec<_>) =
            at.map(|(shard, id)| (self.keys.history(shard), after(id))).unzip();
        let mut command = Cmd::new();
        command.arg("XREAD").arg("COUNT").arg(ENTRIES_MAX);
        if let Some(block) = block {
            command.arg("BLOCK").arg(millis(block).max(1));
        }
        command.arg("STREAMS").arg(keys).arg(ids);
        command
    }

    fn take_streams(&self, told: &mut Told, answer: redis::Value) -> Result<(), StoreFault> {
        if answer == redis::Value::Nil {
            return Ok(());
        }
        let streams = if let redis::Value::Map(pairs) = answer {
            let pairs = pairs.into_iter().map(|(name, entries)| redis::Value::Array(vec![name, entries]));
            redis::Value::Array(pairs.collect())
        } else {
            answer
        };
        let mut streams = Reader::new(streams)?;
        while !streams.is_done() {
            let mut stream = streams.list()?;
            let name = stream.text()?;
            let shard = self.keys.shard_of_history(&name).ok_or_else(|| unexpected(&name))?;
            take_stream(told, shard, stream.list()?)?;
        }
        Ok(())
    }

    /// Shards that are not named start here; another epoch, or a place that has been dropped, is a break.
    /// A shard without an epoch is silent until a turn has given it one.
    async fn look_where_shards_are(&self, told: &mut Told) -> Result<(), StoreFault> {
        let place = async |shard| {
            let mut command = Cmd::new();
            command.arg("HMGET").arg(self.keys.shard(shard)).arg(&["epoch", "commits", "dropped"]);
            let answer = self.lanes.tail.run(&command).await.map_err(|error| fault(&error, false))?;
            Ok::<_, StoreFault>((shard, place(answer)?))
        };
        for (shard, place) in try_join_all(self.shards().map(place)).await? {
            let here = TailId { epoch: place.epoch.unwrap_or_default(), sequence: place.commits };
            match told.at.get(&shard) {
                None => {
                    told.at.insert(shard, here);
                }
                Some(id) if place.breaks(*id) => {
                    told.at.insert(shard, here);
                    if !told.broken.contains(&shard) {
                        told.broken.push(shard);
                    }
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// Behind all that there can be at this place: what somebody has put beside our entries is passed by.
fn after(id: TailId) -> String {
    format!("{}-{}", id.sequence, u64::MAX)
}

fn take_stream(told: &mut Told, shard: Shard, mut entries: Reader) -> Result<(), StoreFault> {
    let mut reached = told.at.get(&shard).copied().ok_or_else(|| unexpected("a stream not asked for"))?;
    while !entries.is_done() {
        let mut found = entries.list()?;
        let sequence = sequence_of(&found.text()?)?;
        let Ok(entry) = entry(sequence, &mut found) else {
            // Not of ours: whoever follows looks anew at what there is.
            told.broken.push(shard);
            reached.sequence = sequence;
            break;
        };
        let is_next = entry.epoch == reached.epoch && entry.sequence == reached.sequence + 1;
        if !is_next {
            told.broken.push(shard);
            // Where it goes on: after what has just been seen.
            reached = TailId { epoch: entry.epoch, sequence: entry.sequence };
            while !entries.is_done() {
                let mut found = entries.list()?;
                let sequence = sequence_of(&found.text()?)?;
                if let Ok(last) = self::entry(sequence, &mut found) {
                    reached = TailId { epoch: last.epoch, sequence: last.sequence };
                }
            }
            break;
        }
        reached.sequence = entry.sequence;
        told.commits.push(entry.committed);
    }
    told.at.insert(shard, reached);
    Ok(())
}

fn place(answer: redis::Value) -> Result<Place, StoreFault> {
    let mut reader = Reader::new(answer)?;
    let mut text = || -> Result<Option<String>, StoreFault> {
        let bytes = reader.optional()?;
        bytes.map(|bytes| String::from_utf8(bytes).map_err(|_| unexpected("no text"))).transpose()
    };
    let (found, commits, dropped) = (text()?, text()?, text()?);
    Ok(Place {
        epoch: found.as_deref().map(epoch).transpose()?,
        commits: commits.as_deref().map_or(Ok(0), number)?,
        dropped: dropped.as_deref().map_or(Ok(0), number)?,
    })
}

fn sequence_of(id: &str) -> Result<u64, StoreFault> {
    number(id.split('-').next().unwrap_or_default())
}

fn entry(sequence: u64, reader: &mut Reader) -> Result<Entry, StoreFault> {
    let (epoch, committed) = committed(&mut reader.list()?)?;
    Ok(Entry { sequence, epoch, committed })
}

/// The fields of an entry, in the order in which they were written.
fn committed(fields: &mut Reader) -> Result<(Epoch, Committed), StoreFault> {
    let mut value = |name: &str| -> Result<Vec<u8>, StoreFault> {
        let found = fields.text()?;
        if found == name { fields.bytes() } else { Err(unexpected(&found)) }
    };
    let mut text = |name: &str| -> Result<String, StoreFault> {
        String::from_utf8(value(name)?).map_err(|_| unexpected(name))
    };
    let (epoch, region, room) = (epoch(&text("epoch")?)?, text("region")?, text("room")?);
    let region = region_of(&region).ok_or_else(|| unexpected(&region))?;
    let room = RoomId::new(room).map_err(|error| unexpected(&error.to_string()))?;
    let (from, to) = (Revision(number(&text("from")?)?), Revision(number(&text("to")?)?));
    text("before")?;
    let at = StoreTime(number(&text("at")?)?);
    let digest = Digest(hex(&text("digest")?)?);
    let members = number(&text("members")?)?;
    text("size")?;
    let (mut upserts, mut removals, mut transitions) = (Vec::new(), Vec::new(), Vec::new());
    while !fields.is_done() {
        fields.text()?;
        let told =
            decode_told(Bytes::from(fields.bytes()?)).map_err(|error| unexpected(&error.to_string()))?;
        match told.visible {
            Some(Visible::Upsert(member)) => upserts.push(member),
            Some(Visible::Removal(removal)) => removals.push(removal),
            None => {}
        }
        transitions.extend(told.transitions.into_iter().map(|step| (told.user.clone(), step)));
    }
    upserts.sort_unstable_by(|a, b| a.user.cmp(&b.user));
    removals.sort_unstable_by(|a, b| a.user.cmp(&b.user));
    let delta = Delta { epoch, from, to, upserts, removals, digest };
    Ok((epoch, Committed { roster: Roster { region, room }, delta, transitions, members, at }))
}
