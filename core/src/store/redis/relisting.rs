//! Lists users anew whose part of a Cluster has come to a server without its last writes.
//!
//! Rosters and what is kept of users lie in different shards. When the server of a shard of users fails over and
//! loses its tail while those of the rosters do not, who came in that tail is there and not listed, and nothing
//! comes that would list them. So a shard of users notes for which server everybody was listed; under another one
//! all names of all rosters are walked once, a portion with each [`Command::Tidy`], and who is not listed is.
//!
//! [`Command::Tidy`]: crate::store::Command::Tidy

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

use presence_model::id::{Roster, UserId};
use presence_model::lease::Shard;
use redis::Cmd;

use super::Inner;
use super::arguments::Arguments;
use super::fault::fault;
use super::keys::{roster_name, roster_of_entry};
use super::reader::{Reader, unexpected};
use super::script::PEOPLE;
use crate::store::{StoreFault, shard_of_user};

/// Names in one page: what one command blocks a server for.
const PAGE: usize = 512;
/// Pages of one portion, of rosters or of names: some tens of milliseconds of one round trip each.
const PAGES: usize = 128;

/// How far walks have come, by shard of users.
pub(super) type Walks = BTreeMap<Shard, Walk>;

/// A walk over all members, on behalf of one shard of users.
#[derive(Debug, Clone)]
pub(super) struct Walk {
    /// The server under which it is made: under another one it starts over.
    server: String,
    at: Place,
}

/// Where a walk goes on.
#[derive(Debug, Clone, Default)]
struct Place {
    /// Shard of rosters, beyond the last one at the end.
    shard: u8,
    /// Entries of rosters that were read and not walked yet, the last one in front.
    rosters: Vec<Vec<u8>>,
    /// The entry after which to read more.
    after: Option<Vec<u8>>,
    /// The name after which to go on in the last of `rosters`.
    user: Option<String>,
}

impl Inner {
    /// Does a portion of a walk; whether more is to be done. The first call only begins: what was listed on the
    /// server before, and is not committed yet, is by the next one.
    pub(super) async fn list_again(&self, shard: Shard, server: String) -> Result<bool, StoreFault> {
        let known = self.walks().get(&shard).filter(|walk| walk.server == server).cloned();
        let Some(mut walk) = known else {
            self.walks().insert(shard, Walk { server, at: Place::default() });
            return Ok(false);
        };
        for _ in 0..PAGES {
            if u16::from(walk.at.shard) >= self.shards {
                let mut command = Cmd::new();
                command.arg("HSET").arg(self.keys.people(shard)).arg("server").arg(&walk.server);
                self.lanes.scripts.run(&command).await.map_err(|error| fault(&error, true))?;
                self.walks().remove(&shard);
                return Ok(false);
            }
            self.walk_on(shard, &mut walk.at).await?;
        }
        self.walks().insert(shard, walk);
        Ok(true)
    }

    /// One page: of rosters if none is left, else of names.
    async fn walk_on(&self, shard: Shard, at: &mut Place) -> Result<(), StoreFault> {
        let of = Shard(at.shard);
        let Some(entry) = at.rosters.last() else {
            at.rosters = self.names_after(&self.keys.rooms(of), at.after.as_deref()).await?;
            at.rosters.reverse();
            match at.rosters.first() {
                Some(last) => at.after = Some(last.clone()),
                None => *at = Place { shard: at.shard + 1, ..Place::default() },
            }
            return Ok(());
        };
        let roster = roster_of_entry(entry).ok_or_else(|| unexpected(&String::from_utf8_lossy(entry)))?;
        let names = self.keys.names(of, &roster);
        let page = self.names_after(&names, at.user.as_deref().map(str::as_bytes)).await?;
        let user = |name: Vec<u8>| UserId::new(String::from_utf8(name).ok()?).ok();
        let users: Option<Vec<UserId>> = page.into_iter().map(user).collect();
        let users = users.ok_or_else(|| unexpected(&names))?;
        at.user = users.last().map(|user| user.as_str().to_owned());
        let is_whole = users.len() < PAGE;
        self.list_those_of(shard, &roster, users).await?;
        if is_whole {
            at.rosters.pop();
            at.user = None;
        }
        Ok(())
    }

    /// A page of a sorted set whose scores are all the same.
    async fn names_after(&self, key: &str, after: Option<&[u8]>) -> Result<Vec<Vec<u8>>, StoreFault> {
        let start = after.map_or_else(|| b"-".to_vec(), |after| [b"(", after].concat());
        let mut command = Cmd::new();
        command.arg("ZRANGEBYLEX").arg(key).arg(start).arg("+").arg("LIMIT").arg(0).arg(PAGE);
        let answer = self.lanes.loads.run(&command).await.map_err(|error| fault(&error, false))?;
        let mut reader = Reader::new(answer)?;
        let mut names = Vec::new();
        while !reader.is_done() {
            names.push(reader.bytes()?);
        }
        Ok(names)
    }

    async fn list_those_of(
        &self,
        shard: Shard,
        roster: &Roster,
        users: Vec<UserId>,
    ) -> Result<(), StoreFault> {
        let ours = |user: &UserId| shard_of_user(user, self.shards) == shard;
        let users: Vec<UserId> = users.into_iter().filter(ours).collect();
        if users.is_empty() {
            return Ok(());
        }
        let (mut arguments, name) = (Arguments::default(), roster_name(roster));
        for user in &users {
            arguments.text(user.as_str());
            arguments.text(&name);
            arguments.text("stays");
        }
        self.write_over(&PEOPLE, &self.keys.of_people(shard, &users), arguments).await.map(drop)
    }

    fn walks(&self) -> MutexGuard<'_, Walks> {
        self.walks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
