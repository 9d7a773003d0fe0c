//! The audit: whether leases and records belong together, as the scripts tell it.

use std::time::Duration;

use presence_model::id::{RegionId, RoomId, Roster, UserId};
use presence_model::lease::{LeaseId, Shard};

use super::Inner;
use super::arguments::Arguments;
use super::keys::{lease_name, room_entry, roster_of_entry};
use super::read::settled;
use super::reader::{Reader, unexpected};
use super::script::{AUDIT, DISOWN, DISTRUST};
use crate::store::{AuditPage, AuditPlace, Outcome, Remnant, StoreFault};

/// Where `ZSCAN` begins, and where it ends.
const START: &[u8] = b"0";

impl Inner {
    pub(super) async fn audit(
        &self,
        shard: Shard,
        from: AuditPlace,
        portion: usize,
    ) -> Result<Outcome, StoreFault> {
        self.check_shard(shard)?;
        let mut arguments = Arguments::default();
        arguments.bytes(if from.leases.is_empty() { START.to_vec() } else { from.leases });
        let (roster, user) = from.members.map_or((None, None), |(roster, user)| (Some(roster), user));
        arguments.bytes(roster.map(|roster| room_entry(&roster)).unwrap_or_default());
        arguments.text(user.as_ref().map_or("", UserId::as_str));
        arguments.number(portion.max(1) as u64);
        let answer = self.read(&self.lanes.loads, &AUDIT, &self.keys.shard(shard), arguments).await?;
        let mut reader = settled(answer)?;
        let (now, oldest_overdue) = (reader.time()?, Duration::from_millis(reader.number()?));
        let leases = Some(reader.bytes()?).filter(|cursor| cursor != START).unwrap_or_default();
        let (entry, user) = (reader.bytes()?, reader.text()?);
        let members = if entry.is_empty() {
            None
        } else {
            let roster = roster_of_entry(&entry).ok_or_else(|| unexpected("an entry of no room"))?;
            Some((roster, if user.is_empty() { None } else { Some(self::user(user)?) }))
        };
        let strays: Vec<LeaseId> =
            (0..reader.count()?).map(|_| reader.lease()).collect::<Result<_, StoreFault>>()?;
        let torn: Vec<Roster> = (0..reader.count()?)
            .map(|_| roster_of_entry(&reader.bytes()?).ok_or_else(|| unexpected("an entry of no room")))
            .collect::<Result<_, StoreFault>>()?;
        let mut remnants = Vec::new();
        while !reader.is_done() {
            remnants.push(remnant(&mut reader)?);
        }
        let next = AuditPlace { leases, members };
        Ok(Outcome::Audited(AuditPage { now, strays, remnants, torn, next, oldest_overdue }))
    }

    pub(super) async fn disown(&self, shard: Shard, leases: Vec<LeaseId>) -> Result<Outcome, StoreFault> {
        self.check_shard(shard)?;
        let mut arguments = Arguments::default();
        leases.iter().for_each(|lease| arguments.text(&lease_name(lease.plain_name())));
        let mut reader = Reader::new(self.write(&DISOWN, &self.keys.shard(shard), arguments).await?)?;
        reader.time()?;
        Ok(Outcome::Disowned { removed: reader.count()? })
    }

    pub(super) async fn distrust(&self, roster: Roster) -> Result<Outcome, StoreFault> {
        let shard = self.shard_of(&roster);
        let mut arguments = Arguments::default();
        arguments.bytes(room_entry(&roster));
        let mut reader = Reader::new(self.write(&DISTRUST, &self.keys.shard(shard), arguments).await?)?;
        reader.time()?;
        Ok(Outcome::Distrusted { was_torn: reader.flag()? })
    }
}

fn remnant(reader: &mut Reader) -> Result<Remnant, StoreFault> {
    let bad = |error: &dyn std::fmt::Display| unexpected(&error.to_string());
    let region = RegionId::new(reader.text()?).map_err(|error| bad(&error))?;
    let room = RoomId::new(reader.text()?).map_err(|error| bad(&error))?;
    let user = user(reader.text()?)?;
    Ok(Remnant { roster: Roster { region, room }, user, lease: reader.lease()? })
}

fn user(name: String) -> Result<UserId, StoreFault> {
    UserId::new(name).map_err(|error| unexpected(&error.to_string()))
}
