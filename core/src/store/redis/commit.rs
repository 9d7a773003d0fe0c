//! A commit as the script takes it.

use presence_model::change::{Change, Guard, LeaseGrant};
use presence_model::digest::Digest;
use presence_model::id::{Roster, UserId};
use presence_model::lease::Shard;
use presence_model::limits::TOMBSTONES_PER_ROSTER_MAX;
use presence_model::member::shown;
use presence_model::position::Position;
use presence_model::record::Tombstone;
use presence_proto::stored::{encode_record, encode_told, encode_tombstone};

use super::arguments::Arguments;
use super::keys::{lease_name, room_entry};
use super::owner::Owner;
use super::reader::{Reader, epoch_text, unexpected};
use super::script::COMMIT;
use super::{Inner, roster_arguments};
use crate::store::{Commit, CommitOutcome, NotApplied, Outcome, StoreFault};

impl Inner {
    pub(super) async fn commit(&self, commit: Commit) -> Result<Outcome, StoreFault> {
        self.announce(&commit).await?;
        let shard = self.shard_of(&commit.roster);
        let mut arguments = roster_arguments(&commit.roster);
        arguments.text(&epoch_text(commit.epoch));
        arguments.hex(self.random());
        arguments.retention(&self.retention);
        arguments.number(TOMBSTONES_PER_ROSTER_MAX as u64);
        arguments.bytes(room_entry(&commit.roster));
        arguments.number(commit.changes.len() as u64);
        for change in &commit.changes {
            write_change(&mut arguments, shard, &commit.roster, change);
        }
        let answer = self.write(&COMMIT, &self.keys.shard(shard), arguments).await?;
        let mut reader = Reader::new(answer)?;
        let outcome = match reader.text()?.as_str() {
            "epoch" => CommitOutcome::Epoch { current: reader.epoch()? },
            "applied" => {
                let position = Position { epoch: reader.epoch()?, revision: reader.revision()? };
                let now = reader.time()?;
                let mut refused = Vec::new();
                while !reader.is_done() {
                    let user = UserId::new(reader.text()?).map_err(|error| unexpected(&error.to_string()))?;
                    refused.push((user, why(&reader.text()?)?));
                }
                CommitOutcome::Applied { position, refused, now }
            }
            other => return Err(unexpected(other)),
        };
        Ok(Outcome::Commit(outcome))
    }
}

fn why(word: &str) -> Result<NotApplied, StoreFault> {
    match word {
        "changed" => Ok(NotApplied::Changed),
        "guard" => Ok(NotApplied::Guard),
        "lease" => Ok(NotApplied::LeaseExists),
        other => Err(unexpected(other)),
    }
}

fn write_change(arguments: &mut Arguments, shard: Shard, roster: &Roster, change: &Change) {
    arguments.text(change.user.as_str());
    arguments.number(change.expect.0);
    arguments.list(&change.expect_tombstones, |arguments, (session, tombstone)| {
        arguments.text(session.as_str());
        arguments.text(&tombstone.as_ref().map(version).unwrap_or_default());
    });
    arguments.list(&change.guards, |arguments, guard| {
        let (kind, lease) = match guard {
            Guard::Overdue(lease) => ("overdue", lease),
            Guard::TokenEnded(lease) => ("token", lease),
            Guard::LeaseAbsent(lease) => ("absent", lease),
        };
        arguments.text(kind);
        arguments.text(&lease_name(lease.plain_name()));
    });
    arguments.list(&change.grants, |arguments, grant| write_grant(arguments, shard, roster, change, grant));
    arguments.list(&change.revokes, |arguments, lease| {
        arguments.text(&lease_name(lease.plain_name()));
    });
    arguments.list(&change.token_ends, |arguments, (lease, ends)| {
        arguments.text(&lease_name(lease.plain_name()));
        arguments.number(ends.0);
    });
    arguments.list(&change.tombstones, |arguments, (session, tombstone)| {
        arguments.text(session.as_str());
        let mut text = format!("{} ", version(tombstone)).into_bytes();
        text.extend(encode_tombstone(tombstone));
        arguments.bytes(text);
    });
    match &change.record {
        Some(record) => {
            arguments.hex(Digest::of(&shown(&change.user, record)).0);
            let leases: Vec<String> = record.sessions.iter().map(|s| lease_name(s.lease)).collect();
            arguments.text(&leases.join(","));
            arguments.bytes(encode_record(record));
        }
        None => (0..3).for_each(|_| arguments.text("")),
    }
    arguments.bytes(encode_told(change));
}

fn write_grant(
    arguments: &mut Arguments,
    shard: Shard,
    roster: &Roster,
    change: &Change,
    grant: &LeaseGrant,
) {
    let can_be_here = grant.lease.shard() == shard && !grant.lease.is_grace();
    arguments.text(&if can_be_here { lease_name(grant.lease) } else { String::new() });
    arguments.number(grant.token_ends.0);
    arguments.text(&Owner::text(roster, &change.user, grant));
}

/// What a tombstone is compared by: a later release may store more of it than this one knows.
fn version(tombstone: &Tombstone) -> String {
    format!("{} {}", tombstone.generation.0, tombstone.ended.0)
}
