//! Names of keys. Those of a shard are its hash and names that begin like it: one hash tag, one slot.

use presence_model::id::{Incarnation, RegionId, RoomId, Roster, UserId};
use presence_model::lease::{LeaseId, Shard};

/// Names under one prefix.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The hash of a shard; every other key of it has this in front.
    pub(super) fn shard(&self, shard: Shard) -> String {
        format!("{}:{{{shard}}}", self.prefix)
    }

    /// Lease id → deadline.
    pub(super) fn leases(&self, shard: Shard) -> String {
        format!("{}:leases", self.shard(shard))
    }

    /// One entry a commit.
    pub(super) fn history(&self, shard: Shard) -> String {
        format!("{}:history", self.shard(shard))
    }

    /// The shard whose history has that name.
    pub(super) fn shard_of_history(&self, name: &str) -> Option<Shard> {
        let tagged = name.strip_prefix(self.prefix.as_str())?.strip_prefix(":{s")?;
        tagged.strip_suffix("}:history")?.parse().ok().map(Shard)
    }

    /// Names of rooms with members.
    pub(super) fn rooms(&self, shard: Shard) -> String {
        format!("{}:rooms", self.shard(shard))
    }

    /// Leases held through an edge.
    pub(super) fn edge(&self, shard: Shard, edge: Incarnation) -> String {
        format!("{}:edge:{:016x}", self.shard(shard), edge.0)
    }

    /// The hash of a roster.
    pub(super) fn roster(&self, shard: Shard, roster: &Roster) -> String {
        format!("{}:roster:{}", self.shard(shard), roster_name(roster))
    }

    /// The names of a roster's members.
    pub(super) fn names(&self, shard: Shard, roster: &Roster) -> String {
        format!("{}:names:{}", self.shard(shard), roster_name(roster))
    }

    /// The hash of a shard of users; every other key of it has this in front.
    pub(super) fn people(&self, shard: Shard) -> String {
        format!("{}:{{u{}}}", self.prefix, shard.0)
    }

    /// When users came or went last.
    pub(super) fn seen(&self, shard: Shard) -> String {
        format!("{}:seen", self.people(shard))
    }

    /// Rosters in which a user may be.
    pub(super) fn user(&self, shard: Shard, user: &UserId) -> String {
        format!("{}:user:{}", self.people(shard), user.as_str())
    }

    /// All that is written of these users: what begins the keys, then the keys.
    pub(super) fn of_people<'a>(
        &self,
        shard: Shard,
        users: impl IntoIterator<Item = &'a UserId>,
    ) -> Vec<String> {
        let people = self.people(shard);
        let went = format!("{people}:went");
        let users = users.into_iter().map(|user| self.user(shard, user));
        [people, self.seen(shard), went].into_iter().chain(users).collect()
    }

    /// What is revoked until when.
    pub(super) fn revoked(&self) -> String {
        format!("{}:revoked", self.prefix)
    }

    /// In front of what is tried at start.
    pub(super) fn probe(&self, shard: Shard) -> String {
        format!("{}:probe", self.shard(shard))
    }

    /// What is fixed at the first start.
    pub(super) fn meta(&self) -> String {
        format!("{}:meta", self.prefix)
    }

    /// All edges.
    pub(super) fn edges(&self) -> String {
        format!("{}:edges", self.prefix)
    }
}

/// A lease as a member of keys.
pub(super) fn lease_name(lease: LeaseId) -> String {
    format!("{:016x}", lease.0)
}

/// A region in keys: a colon ends it, so one within is escaped.
pub(super) fn region_name(region: &RegionId) -> String {
    region.as_str().replace('%', "%25").replace(':', "%3a")
}

/// A roster in keys.
pub(super) fn roster_name(roster: &Roster) -> String {
    format!("{}:{}", region_name(&roster.region), roster.room.as_str())
}

/// The roster of a name in keys.
pub(super) fn roster_of(name: &str) -> Option<Roster> {
    let (region, room) = name.split_once(':')?;
    Some(Roster { region: region_of(region)?, room: RoomId::new(room).ok()? })
}

/// The region of a name in keys.
pub(super) fn region_of(name: &str) -> Option<RegionId> {
    RegionId::new(name.replace("%3a", ":").replace("%25", "%")).ok()
}

/// An entry of [`Keys::rooms`]: room, two bytes 0, region. A byte 0 within the room is followed by 255, so
/// that entries are ordered as rooms are.
pub(super) fn room_entry(roster: &Roster) -> Vec<u8> {
    let mut entry = escaped(roster.room.as_str());
    entry.extend([0, 0]);
    entry.extend(roster.region.as_str().as_bytes());
    entry
}

fn escaped(room: &str) -> Vec<u8> {
    let bytes = room.bytes().flat_map(|byte| [Some(byte), (byte == 0).then_some(u8::MAX)]);
    bytes.flatten().collect()
}

/// The room of an entry.
pub(super) fn room_of(entry: &[u8]) -> Option<RoomId> {
    let end = entry.windows(2).position(|two| two == [0, 0])?;
    let name = entry[..end].iter().copied().filter(|byte| *byte != u8::MAX).collect();
    RoomId::new(String::from_utf8(name).ok()?).ok()
}

/// The roster of an entry.
pub(super) fn roster_of_entry(entry: &[u8]) -> Option<Roster> {
    let end = entry.windows(2).position(|two| two == [0, 0])?;
    let region = String::from_utf8(entry[end + 2..].to_vec()).ok()?;
    Some(Roster { region: RegionId::new(region).ok()?, room: room_of(entry)? })
}

/// Bounds of `ZRANGEBYLEX` for rooms with a prefix from just after one on.
pub(super) fn room_range(prefix: &str, after: Option<&RoomId>) -> (Vec<u8>, Vec<u8>) {
    let first = escaped(prefix);
    let start = match after.filter(|after| after.as_str() >= prefix) {
        Some(after) => [b"(", escaped(after.as_str()).as_slice(), b"\0\0\xff"].concat(),
        None if prefix.is_empty() => b"-".to_vec(),
        None => [b"[", first.as_slice()].concat(),
    };
    // 255 is in no UTF-8: nothing with the prefix lies beyond it.
    let end = if prefix.is_empty() { b"+".to_vec() } else { [b"(", first.as_slice(), b"\xff"].concat() };
    (start, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_shard_share_its_hash_tag() {
        let keys = Keys::new("presence");
        assert_eq!(keys.shard(Shard(7)), "presence:{s7}");
        assert_eq!(keys.leases(Shard(7)), "presence:{s7}:leases");
        assert_eq!(keys.shard_of_history(&keys.history(Shard(255))), Some(Shard(255)));
        assert_eq!(keys.shard_of_history("presence:{s256}:history"), None);
        assert_eq!(keys.edge(Shard(255), Incarnation(0xab)), "presence:{s255}:edge:00000000000000ab");
    }

    #[test]
    fn a_region_with_a_colon_is_not_another_region_and_room() {
        for name in ["eu:west", "eu%3awest", "eu%253a", "%", ":"] {
            let region = RegionId::new(name).unwrap();
            assert!(!region_name(&region).contains(':'));
            assert_eq!(region_of(&region_name(&region)), Some(region.clone()));
            let roster = Roster { region, room: RoomId::new("a:b\0%3a").unwrap() };
            assert_eq!(roster_of(&roster_name(&roster)), Some(roster));
        }
    }

    #[test]
    fn entries_of_rooms_are_ordered_as_rooms_are() {
        let names = ["a", "a\0", "a\0\0", "a\0b", "aa", "ab", "b", "\u{10ffff}"];
        let entry = |name: &str, region: &str| {
            room_entry(&Roster { region: RegionId::new(region).unwrap(), room: RoomId::new(name).unwrap() })
        };
        let entries: Vec<_> = names.iter().flat_map(|name| [entry(name, "eu"), entry(name, "us")]).collect();
        assert!(entries.is_sorted());
        for (name, pair) in names.iter().zip(entries.chunks(2)) {
            let room = RoomId::new(*name).unwrap();
            assert_eq!(room_of(&pair[0]), Some(room.clone()));
            let us = Roster { region: RegionId::new("us").unwrap(), room: room.clone() };
            assert_eq!(roster_of_entry(&pair[1]), Some(us));
            let (start, _) = room_range("", Some(&room));
            let later: Vec<_> = entries.iter().filter(|entry| entry.as_slice() > &start[1..]).collect();
            assert_eq!(later, entries.iter().filter(|entry| *entry > &pair[1]).collect::<Vec<_>>());
            let (start, end) = room_range(name, None);
            let within =
                entries.iter().filter(|e| e.as_slice() >= &start[1..] && e.as_slice() < &end[1..]).count();
            assert_eq!(within, 2 * names.iter().filter(|other| other.starts_with(name)).count(), "{name:?}");
        }
        assert_eq!(room_of(b"no end"), None);
    }
}
