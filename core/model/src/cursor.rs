//! Where a watcher is, region by region; opaque to WebSocket clients.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::id::RegionId;
use crate::limits::{CURSOR_REGIONS_MAX, NAME_BYTES_MAX};
use crate::position::{Epoch, Position, Revision};

/// First byte of the binary form: a later form takes another number, and is no cursor to this one.
const VERSION: u8 = 1;
/// A varint of 64 bits has at most this many bytes.
const VARINT_BYTES_MAX: usize = 10;
/// The longest binary form: version, count, and for each region its name, two varints and the random.
const BYTES_MAX: usize = 2 + CURSOR_REGIONS_MAX * (1 + NAME_BYTES_MAX + 2 * VARINT_BYTES_MAX + 8);

/// Region → position, only for regions in which what was shown equals the roster at that position.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cursor(BTreeMap<RegionId, Position>);

/// Text that is not a cursor of ours. It costs its sender a snapshot, nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor")]
pub struct NotACursor;

impl Cursor {
    /// A cursor of these positions.
    #[must_use]
    pub fn new(positions: BTreeMap<RegionId, Position>) -> Self {
        Self(positions)
    }

    /// The position in a region.
    #[must_use]
    pub fn get(&self, region: &RegionId) -> Option<Position> {
        self.0.get(region).copied()
    }

    /// All positions, by region.
    pub fn iter(&self) -> impl Iterator<Item = (&RegionId, Position)> {
        self.0.iter().map(|(region, position)| (region, *position))
    }

    /// Sets the position in a region.
    pub fn set(&mut self, region: RegionId, position: Position) {
        self.0.insert(region, position);
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
        bytes.push(VERSION);
        bytes.push(u8::try_from(regions).expect("at most CURSOR_REGIONS_MAX"));
        for (region, position) in self.iter().take(CURSOR_REGIONS_MAX) {
            let name = region.as_str().as_bytes();
            bytes.push(u8::try_from(name.len()).expect("at most NAME_BYTES_MAX"));
            bytes.extend_from_slice(name);
            put_varint(&mut bytes, position.epoch.minted_ms);
            bytes.extend_from_slice(&position.epoch.random.to_be_bytes());
            put_varint(&mut bytes, position.revision.0);
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
        if rest.byte()? != VERSION {
            return Err(NotACursor);
        }
        let regions = usize::from(rest.byte()?);
        if regions > CURSOR_REGIONS_MAX {
            return Err(NotACursor);
        }
        let mut positions = BTreeMap::new();
        for _ in 0..regions {
            let (region, position) = rest.region()?;
            if positions.last_key_value().is_some_and(|(last, _)| *last >= region) {
                return Err(NotACursor);
            }
            positions.insert(region, position);
        }
        if rest.0.is_empty() { Ok(Self(positions)) } else { Err(NotACursor) }
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
        let mut cursor = Cursor::default();
        for n in 0..count {
            let epoch = Epoch { minted_ms: u64::MAX, random: u64::MAX };
            let name = format!("{n:0>255}");
            cursor.set(region(&name), Position { epoch, revision: Revision(u64::MAX) });
        }
        cursor
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
        assert!(refused(&[&[2], &bytes[1..]].concat()), "another version");
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

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_was_written_is_read(
            entries in prop::collection::btree_map("[^\\p{Cc}]{0,19}[a-z]", any::<(u64, u64, u64)>(), 0..5)
        ) {
            let positions = entries.into_iter().map(|(name, (minted_ms, random, revision))| {
                let epoch = Epoch { minted_ms, random };
                (region(&name), Position { epoch, revision: Revision(revision) })
            });
            let cursor = Cursor::new(positions.collect());
            prop_assert_eq!(Cursor::decode(&cursor.encode()), Ok(cursor));
        }

        #[test]
        fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64), text in ".{0,64}") {
            let _ = Cursor::decode(&URL_SAFE_NO_PAD.encode(&bytes));
            let _ = Cursor::decode(&text);
        }
    }
}
