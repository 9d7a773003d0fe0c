//! What is kept of a user whatever the room: where they may be, and when they came or went last.
//!
//! Users have shards of their own, so what a commit means for them is written by another command, before
//! it: an entry may be false for a while, and none is ever missing. Departures are noted and looked at
//! once their commit must have arrived; an entry is removed only if it was not written since.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use presence_model::id::{Roster, UserId};
use presence_model::lease::Shard;
use presence_model::time::{StoreTime, millis};
use redis::Cmd;

use super::Inner;
use super::arguments::Arguments;
use super::fault::fault;
use super::keys::{roster_name, roster_of};
use super::reader::{Reader, number, unexpected};
use super::script::{LISTING, PEOPLE, REVOKE, STALE, UNLIST};
use crate::store::{Commit, Listed, Outcome, StoreFault, shard_of_user};

/// A departure that is to be looked at.
struct Departure {
    noted: String,
    user: UserId,
    roster: Roster,
    listed: String,
}

impl Inner {
    /// Tells of those whom a commit is to bring or take. If that fails the commit must not be sent.
    pub(super) async fn announce(&self, commit: &Commit) -> Result<(), StoreFault> {
        let name = roster_name(&commit.roster);
        let mut told: BTreeMap<Shard, (Arguments, Vec<&UserId>)> = BTreeMap::new();
        for change in &commit.changes {
            let what = match (&change.before, &change.record) {
                (None, Some(_)) => "came",
                (Some(_), None) => "went",
                (Some(_), Some(_)) | (None, None) => continue,
            };
            let (arguments, users) = told.entry(shard_of_user(&change.user, self.shards)).or_default();
            users.push(&change.user);
            arguments.text(change.user.as_str());
            arguments.text(&name);
            arguments.text(what);
        }
        let tell = async |(shard, (arguments, users)): (Shard, (Arguments, Vec<&UserId>))| {
            let keys = self.keys.of_people(shard, users);
            let told = PEOPLE.run_over(&self.lanes.scripts, &keys, arguments.as_slice()).await;
            // The commit itself is not sent then: nothing that counts was carried out.
            told.map_err(|error| fault(&error, false))
        };
        try_join_all(told.into_iter().map(tell)).await.map(drop)
    }

    pub(super) async fn seen(&self, user: UserId) -> Result<Outcome, StoreFault> {
        let key = self.keys.seen(shard_of_user(&user, self.shards));
        let now = self.now_of(&key).await?;
        let mut command = Cmd::new();
        command.arg("ZSCORE").arg(&key).arg(user.as_str());
        let at = self.lanes.scripts.run(&command).await.map_err(|error| fault(&error, false))?;
        let at = Reader::new(redis::Value::Array(vec![at]))?.optional()?;
        let at = at.map(|ms| number(&String::from_utf8_lossy(&ms))).transpose()?;
        Ok(Outcome::Seen { now, at: at.map(StoreTime) })
    }

    pub(super) async fn rooms_of(
        &self,
        user: UserId,
        after: Option<Listed>,
        count: usize,
    ) -> Result<Outcome, StoreFault> {
        let key = self.keys.user(shard_of_user(&user, self.shards), &user);
        let after = after.map(|after| (after.at, roster_name(&after.roster)));
        let (now, listed, more) = self.listing(&key, after, count).await?;
        let entry = |(name, at): (String, StoreTime)| {
            let roster = roster_of(&name).ok_or_else(|| unexpected(&name))?;
            Ok(Listed { at, roster })
        };
        Ok(Outcome::RoomsOf { now, rooms: listed.into_iter().map(entry).collect::<Result<_, _>>()?, more })
    }

    /// A page of a sorted set; whether more follow.
    async fn listing(
        &self,
        key: &str,
        after: Option<(StoreTime, String)>,
        count: usize,
    ) -> Result<(StoreTime, Vec<(String, StoreTime)>, bool), StoreFault> {
        let mut arguments = Arguments::default();
        match after {
            Some((score, member)) => {
                arguments.number(score.0);
                arguments.text(&member);
            }
            None => (0..2).for_each(|_| arguments.text("")),
        }
        arguments.number(count as u64);
        let mut reader = Reader::new(self.read(&self.lanes.loads, &LISTING, key, arguments).await?)?;
        let now = reader.time()?;
        let mut page = Vec::new();
        while !reader.is_done() {
            page.push((reader.text()?, reader.time()?));
        }
        let more = page.len() > count;
        page.truncate(count);
        Ok((now, page, more))
    }

    pub(super) async fn unlist(&self, user: UserId, listed: Listed) -> Result<Outcome, StoreFault> {
        let Listed { at, roster } = listed;
        let shard = shard_of_user(&user, self.shards);
        let entry = Departure { noted: String::new(), user, roster, listed: at.0.to_string() };
        self.unlist_all(shard, &[(entry, true)]).await?;
        Ok(Outcome::Done)
    }

    async fn unlist_all(&self, shard: Shard, entries: &[(Departure, bool)]) -> Result<(), StoreFault> {
        let mut arguments = Arguments::default();
        arguments.number(millis(self.retention.listing));
        for (entry, is_gone) in entries {
            arguments.text(entry.user.as_str());
            arguments.text(&roster_name(&entry.roster));
            arguments.text(&entry.listed);
            arguments.text(&entry.noted);
            arguments.text(if *is_gone { "gone" } else { "there" });
        }
        let keys = self.keys.of_people(shard, entries.iter().map(|(entry, _)| &entry.user));
        self.write_over(&UNLIST, &keys, arguments).await.map(drop)
    }

    /// Nothing to look at: one command.
    pub(super) async fn tidy(&self, shard: Shard, portion: usize) -> Result<Outcome, StoreFault> {
        self.check_shard(shard)?;
        let mut arguments = Arguments::default();
        arguments.number(millis(self.retention.seen));
        arguments.number(millis(self.retention.listing));
        arguments.number(portion as u64);
        let keys = self.keys.of_people(shard, []);
        let mut reader = Reader::new(self.write_over(&STALE, &keys, arguments).await?)?;
        reader.time()?;
        let (forgotten, server) = (reader.count()?, reader.text()?);
        let mut departures = Vec::new();
        while !reader.is_done() {
            let (noted, user, name, listed) =
                (reader.text()?, reader.text()?, reader.text()?, reader.text()?);
            let user = UserId::new(user).map_err(|error| unexpected(&error.to_string()))?;
            let roster = roster_of(&name).ok_or_else(|| unexpected(&name))?;
            departures.push(Departure { noted, user, roster, listed });
        }
        let mut more = forgotten.max(departures.len()) >= portion;
        if !departures.is_empty() {
            let looked = departures.into_iter().map(|departure| self.look_for(departure));
            self.unlist_all(shard, &try_join_all(looked).await?).await?;
        }
        if !server.is_empty() {
            more |= self.list_again(shard, server).await?;
        }
        if shard == Shard(0) {
            let mut arguments = Arguments::default();
            arguments.number(portion as u64);
            self.write(&REVOKE, &self.keys.revoked(), arguments).await?;
        }
        Ok(Outcome::Tidied { more })
    }

    /// Whether the member is gone.
    async fn look_for(&self, departure: Departure) -> Result<(Departure, bool), StoreFault> {
        let key = self.keys.roster(self.shard_of(&departure.roster), &departure.roster);
        let mut command = Cmd::new();
        command.arg("HEXISTS").arg(key).arg(format!("@{}", departure.user.as_str()));
        let found = self.lanes.loads.run(&command).await.map_err(|error| fault(&error, false))?;
        let is_gone = Reader::new(redis::Value::Array(vec![found]))?.number()? == 0;
        Ok((departure, is_gone))
    }
}
