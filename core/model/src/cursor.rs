//! Where a watcher is, region by region; opaque to WebSocket clients.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::id::RegionId;
use crate::limits::{CURSOR_REGIONS_MAX, NAME_BYTES_MAX};
use crate::position::{Epoch, Position, Revision};

/// First byte of the binary form in which each region is named with where it was shown exactly. A reader that does not
/// know a later number takes it for no cursor.
const EQUAL_ONLY: u8 = 1;
/// First byte of the form that says of each region, in a byte after its position, whether it was shown exactly. Written
/// only where the first form cannot say it, so that processes of before still answer most by a delta.
const WITH_KINDS: u8 = 2;
const KIND_EQUAL: u8 = 0;
const KIND_SEEN: u8 = 1;
/// A varint of 64 bits has at most this many bytes.
const VARINT_BYTES_MAX: usize = 10;
/// The longest binary form: version, count, and for each region its name, two varints, the random and the kind.
const BYTES_MAX: usize = 2 + CURSOR_REGIONS_MAX * (1 + NAME_BYTES_MAX + 2 * VARINT_BYTES_MAX + 8 + 1);

/// What a cursor says of one region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// What was shown equals the roster at this position, so that what happened since brings it up to date.
    Equal(Position),
    /// What was shown has come as far as this and is no roster: unconfirmed members are in it, it is of several
    /// moments, known to differ, or was emptied. It is answered by a snapshot, and by none from before this.
    Seen(Position),
}

impl Entry {
    /// How far that is: whoever answers has to be there or further (G4).
    #[must_use]
    pub fn position(self) -> Position {
        match self {
            Self::Equal(position) | Self::Seen(position) => position,
        }
    }

    /// The position if what was shown equals the roster there.
    #[must_use]
    pub fn equal(self) -> Option<Position> {
        match self {
            Self::Equal(position) => Some(position),
            Self::Seen(_) => None,
        }
    }
}

/// Region → where a watcher is in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cursor(BTreeMap<RegionId, Entry>);

/// Text that is not a cursor of ours. It costs its sender a snapshot, nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor")]
pub struct NotACursor;

impl Cursor {
    /// A cursor of lists that equal the rosters at these positions.
    #[must_use]
    pub fn new(positions: BTreeMap<RegionId, Position>) -> Self {
        positions.into_iter().map(|(region, position)| (region, Entry::Equal(position))).collect()
    }

    /// The position in a region, if what was shown equals the roster there.
    #[must_use]
    pub fn get(&self, region: &RegionId) -> Option<Position> {
        self.0.get(region).copied().and_then(Entry::equal)
    }

    /// How far what was shown of a region has come, whether or not it equals the roster there.
    #[must_use]
    pub fn seen(&self, region: &RegionId) -> Option<Position> {
        self.0.get(region).copied().map(Entry::position)
    }

    /// All entries, by region.
    pub fn iter(&self) -> impl Iterator<Item = (&RegionId, Entry)> {
        self.0.iter().map(|(region, entry)| (region, *entry))
    }

    /// Sets the position in a region, of a list that equals the roster there.
    pub fn set(&mut self, region: RegionId, position: Position) {
        self.0.insert(region, Entry::Equal(position));
    }

    /// Forgets a region.
    pub fn remove(&mut self, region: &RegionId) {
        self.0.remove(region);
    }

    /// Whether it names no region.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many regions it names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The opaque text clients keep: URL-safe base64 of a versioned binary form. Regions beyond
    /// [`CURSOR_REGIONS_MAX`] are left out, which costs a snapshot.
    #[must_use]
    pub fn encode(&self) -> String {
        let regions = self.0.len().min(CURSOR_REGIONS_MAX);
        let mut bytes = Vec::with_capacity(2 + regions * 48);
        let has_kinds = self.0.values().take(CURSOR_REGIONS_MAX).any(|entry| entry.equal().is_none());
        bytes.push(if has_kinds { WITH_KINDS } else { EQUAL_ONLY });
        bytes.push(u8::try_from(regions).expect("at most CURSOR_REGIONS_MAX"));
        for (region, entry) in self.iter().take(CURSOR_REGIONS_MAX) {
            let position = entry.position();
            let name = region.as_str().as_bytes();
            bytes.push(u8::try_from(name.len()).expect("at most NAME_BYTES_MAX"));
            bytes.extend_from_slice(name);
            put_varint(&mut bytes, position.epoch.minted_ms);
            bytes.extend_from_slice(&position.epoch.random.to_be_bytes());
            put_varint(&mut bytes, position.revision.0);
            if has_kinds {
                bytes.push(match entry {
                    Entry::Equal(_) => KIND_EQUAL,
                    Entry::Seen(_) => KIND_SEEN,
                });
            }
        }
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads what [`Cursor::encode`] wrote. Input is untrusted: at most
    /// [`CURSOR_REGIONS_MAX`] regions, in order, and nothing after.
    ///
    /// # Errors
    /// [`NotACursor`].
    pub fn decode(text: &str) -> Result<Self, NotACursor> {
        if text.len() > BYTES_MAX.div_ceil(3) * 4 {
            return Err(NotACursor);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| NotACursor)?;
        let mut rest = Reader(&bytes);
        let has_kinds = match rest.byte()? {
            EQUAL_ONLY => false,
            WITH_KINDS => true,
            _ => return Err(NotACursor),
        };
        let regions = usize::from(rest.byte()?);
        if regions > CURSOR_REGIONS_MAX {
            return Err(NotACursor);
        }
        let mut entries = BTreeMap::new();
        for _ in 0..regions {
            let (region, position) = rest.region()?;
            if entries.last_key_value().is_some_and(|(last, _)| *last >= region) {
                return Err(NotACursor);
            }
            let kind = if has_kinds { rest.byte()? } else { KIND_EQUAL };
            let entry = match kind {
                KIND_EQUAL => Entry::Equal(position),
                KIND_SEEN => Entry::Seen(position),
                _ => return Err(NotACursor),
            };
            entries.insert(region, entry);
        }
        if rest.0.is_empty() { Ok(Self(entries)) } else { Err(NotACursor) }
    }
}

impl FromIterator<(RegionId, Entry)> for Cursor {
    fn from_iter<I: IntoIterator<Item = (RegionId, Entry)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// What is left of the binary form.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], NotACursor> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(NotACursor)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, NotACursor> {
        Ok(self.take(1)?[0])
    }

    fn varint(&mut self) -> Result<u64, NotACursor> {
        let mut number = 0;
        for place in 0..VARINT_BYTES_MAX {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let shifted = bits << (7 * place);
            if shifted >> (7 * place) != bits {
                return Err(NotACursor);
            }
            number |= shifted;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(NotACursor)
    }

    fn region(&mut self) -> Result<(RegionId, Position), NotACursor> {
        let length = usize::from(self.byte()?);
        let name = std::str::from_utf8(self.take(length)?).map_err(|_| NotACursor)?;
        let region = RegionId::new(name).map_err(|_| NotACursor)?;
        let minted_ms = self.varint()?;
        let mut random = [0; 8];
        random.copy_from_slice(self.take(8)?);
        let epoch = Epoch { minted_ms, random: u64::from_be_bytes(random) };
        Ok((region, Position { epoch, revision: Revision(self.varint()?) }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn region(name: &str) -> RegionId {
        RegionId::new(name).unwrap()
    }

    fn cursor(count: usize) -> Cursor {
        let epoch = Epoch { minted_ms: u64::MAX, random: u64::MAX };
        let position = Position { epoch, revision: Revision(u64::MAX) };
        (0..count).map(|n| (region(&format!("{n:0>255}")), Entry::Seen(position))).collect()
    }

    #[test]
    fn the_largest_is_read_again_and_more_regions_are_left_out() {
        let largest = cursor(CURSOR_REGIONS_MAX);
        assert_eq!(Cursor::decode(&largest.encode()), Ok(largest));
        let more = Cursor::decode(&cursor(CURSOR_REGIONS_MAX + 1).encode()).unwrap();
        assert_eq!(more.len(), CURSOR_REGIONS_MAX);
    }

    #[test]
    fn what_is_not_a_cursor_is_refused() {
        let good = Cursor::new([(region("eu"), Position::default())].into());
        let bytes = URL_SAFE_NO_PAD.decode(good.encode()).unwrap();
        let refused = |bytes: &[u8]| Cursor::decode(&URL_SAFE_NO_PAD.encode(bytes)) == Err(NotACursor);
        assert!(!refused(&bytes));
        assert!(refused(&[]));
        assert!(refused(&[&[3], &bytes[1..]].concat()), "another version");
        assert!(refused(&[&[2], &bytes[1..]].concat()), "a kind is missing");
        assert!(!refused(&[&[2], &bytes[1..], &[1]].concat()));
        assert!(refused(&[&[2], &bytes[1..], &[2]].concat()), "another kind");
        assert!(refused(&[&bytes[..], &[0]].concat()), "something after it");
        assert!((0..bytes.len()).all(|end| refused(&bytes[..end])), "cut off");
        assert!(refused(&[&[1, 2], &bytes[2..], &bytes[2..]].concat()), "a region twice");
        assert!(refused(&[1, 255]), "too many regions");
        assert!(refused(&[1, 1, 1, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), "a name that is not text");
        assert!(refused(&[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), "a name without a byte");
        let huge = [&[1, 1, 1, b'e'][..], &[0xff; 9], &[2], &[0; 9]].concat();
        assert!(refused(&huge), "a number above 64 bits");
        assert_eq!(Cursor::decode("not base64!"), Err(NotACursor));
        assert_eq!(Cursor::decode(&"A".repeat(1 << 20)), Err(NotACursor));
    }

    #[test]
    fn a_cursor_of_before_is_read_and_one_that_it_can_say_is_written_like_it() {
        let epoch = Epoch { minted_ms: 300, random: 7 };
        let position = Position { epoch, revision: Revision(5) };
        let text = URL_SAFE_NO_PAD.encode([1, 1, 2, b'e', b'u', 0xac, 2, 0, 0, 0, 0, 0, 0, 0, 7, 5]);
        let equal = Cursor::new([(region("eu"), position)].into());
        assert_eq!((Cursor::decode(&text), equal.encode()), (Ok(equal), text));
        let seen = Cursor::from_iter([(region("eu"), Entry::Seen(position))]);
        assert_eq!(URL_SAFE_NO_PAD.decode(seen.encode()).unwrap()[0], 2);
        let read = Cursor::decode(&seen.encode()).unwrap();
        assert_eq!((read.get(&region("eu")), read.seen(&region("eu"))), (None, Some(position)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_was_written_is_read(
            entries in prop::collection::btree_map("[^\\p{Cc}]{0,19}[a-z]", any::<(u64, u64, u64, bool)>(), 0..5)
        ) {
            let entries = entries.into_iter().map(|(name, (minted_ms, random, revision, equal))| {
                let epoch = Epoch { minted_ms, random };
                let position = Position { epoch, revision: Revision(revision) };
                (region(&name), if equal { Entry::Equal(position) } else { Entry::Seen(position) })
            });
            let cursor: Cursor = entries.collect();
            prop_assert_eq!(Cursor::decode(&cursor.encode()), Ok(cursor));
        }

        #[test]
        fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64), text in ".{0,64}") {
            let _ = Cursor::decode(&URL_SAFE_NO_PAD.encode(&bytes));
            let _ = Cursor::decode(&text);
        }
    }
}
