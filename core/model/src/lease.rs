//! Lease ids: a fencing token that says its own ttl and shard, and whether it was granted through an edge.

use std::fmt;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::id::EdgeName;

/// A shard of the store, below the store's shard count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u8);

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

const TTL_BITS: u32 = 12;
const SHARD_BITS: u32 = 8;
const RANDOM_BITS: u32 = 64 - TTL_BITS - SHARD_BITS - 1;
const GRACE_BIT: u64 = 1 << RANDOM_BITS;
const RANDOM_MASK: u64 = GRACE_BIT - 1;
/// Of a foreign lease an edge's own mark is found once in 4,096. More would leave too little chance in an id: those of
/// one edge have to differ for as long as something about a lease that is over may be on its way.
const MARK_BITS: u32 = 12;
const MARK_SHIFT: u32 = RANDOM_BITS - MARK_BITS;
const MARK_MASK: u64 = ((1 << MARK_BITS) - 1) << MARK_SHIFT;
const TTL_UNIT_MS: u64 = 100;
const TTL_UNITS_MAX: u64 = (1 << TTL_BITS) - 1;

/// The time-limited right of one session incarnation to count, as a 64-bit id:
/// ttl in 0.1 s (12) · shard (8) · grace (1) · mark (12) · random (31).
///
/// The random part is what fences: nobody who was not granted this lease can name it. The mark follows from the rest
/// and from the edge it was granted through ([`LeaseId::marked`]), and is random too without one. A lease has two
/// names that differ in the grace bit: the *plain* name while a session renews it, the *grace* name
/// after its transport was released. A renewal under the plain name then finds nothing, so release is
/// final (G6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

impl LeaseId {
    /// Mints a plain id without a mark. `ttl` is rounded up to 0.1 s and clamped to 0.1 s … 409.5 s; 43 bits of
    /// `random` are used.
    #[must_use]
    pub fn mint(ttl: Duration, shard: Shard, random: u64) -> Self {
        let units = crate::time::millis(ttl).div_ceil(TTL_UNIT_MS).clamp(1, TTL_UNITS_MAX);
        Self(units << (64 - TTL_BITS) | u64::from(shard.0) << (RANDOM_BITS + 1) | (random & RANDOM_MASK))
    }

    /// The same, granted through this edge: 31 random bits are left.
    #[must_use]
    pub fn marked(self, edge: EdgeMark) -> Self {
        let bare = self.plain_name().0 & !MARK_MASK;
        Self(bare | edge.on(bare) | (self.0 & GRACE_BIT))
    }

    /// Whether it bears the mark of this edge, under either name. One that was granted through another edge does once
    /// in 4,096.
    #[must_use]
    pub fn bears(self, edge: EdgeMark) -> bool {
        self.marked(edge) == self
    }

    /// A ttl as an id carries it.
    #[must_use]
    pub fn carried(ttl: Duration) -> Duration {
        Self::mint(ttl, Shard(0), 0).ttl()
    }

    /// How long one renewal carries.
    #[must_use]
    pub fn ttl(self) -> Duration {
        Duration::from_millis((self.0 >> (64 - TTL_BITS)) * TTL_UNIT_MS)
    }

    /// Where it is stored.
    #[must_use]
    pub fn shard(self) -> Shard {
        Shard((self.0 >> (RANDOM_BITS + 1)) as u8)
    }

    /// Whether this is the grace name.
    #[must_use]
    pub fn is_grace(self) -> bool {
        self.0 & GRACE_BIT != 0
    }

    /// The name under which it waits for a reconnect.
    #[must_use]
    pub fn grace_name(self) -> Self {
        Self(self.0 | GRACE_BIT)
    }

    /// The name under which it is renewed.
    #[must_use]
    pub fn plain_name(self) -> Self {
        Self(self.0 & !GRACE_BIT)
    }
}

/// What an edge leaves on the leases that are granted through it: of its name, so that each core knows it again
/// without having kept anything. It has no secret: what keeps an edge from taking another's name is its certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdgeMark(u64);

impl EdgeMark {
    /// That of an edge.
    #[must_use]
    pub fn of(edge: &EdgeName) -> Self {
        let mut first = [0; 8];
        first.copy_from_slice(&Sha256::digest(edge.as_str())[..8]);
        Self(u64::from_be_bytes(first))
    }

    /// On an id without a mark: the finalizer of splitmix64, as cheap as a renewal has to be.
    fn on(self, bare: u64) -> u64 {
        let mut mixed = self.0 ^ bare;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        mixed & MARK_MASK
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_carries_ttl_and_shard_and_has_two_names() {
        let lease = LeaseId::mint(Duration::from_secs(45), Shard(255), u64::MAX);
        assert_eq!(lease.ttl(), Duration::from_secs(45));
        assert_eq!(lease.shard(), Shard(255));
        assert!(!lease.is_grace());
        let grace = lease.grace_name();
        assert!(grace.is_grace());
        assert_ne!(grace, lease);
        assert_eq!(grace.plain_name(), lease);
        assert_eq!((grace.ttl(), grace.shard()), (lease.ttl(), lease.shard()));
    }

    #[test]
    fn a_mark_is_known_again_under_both_names_and_leaves_the_rest_as_it_is() {
        let mark = |name: &str| EdgeMark::of(&EdgeName::new(name).unwrap());
        let (mine, theirs) = (mark("edge-1"), mark("edge-2"));
        let mut mistaken = 0;
        for random in 0..10_000_u64 {
            let bare =
                LeaseId::mint(Duration::from_secs(45), Shard(7), random.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let lease = bare.marked(mine);
            assert!(lease.bears(mine) && lease.grace_name().bears(mine));
            assert_eq!((lease.ttl(), lease.shard(), lease.is_grace()), (bare.ttl(), Shard(7), false));
            assert_eq!(lease.marked(mine), lease, "marking it again changes nothing");
            mistaken += usize::from(lease.bears(theirs));
        }
        assert!((0..20).contains(&mistaken), "{mistaken} of 10,000, where 2.4 are expected");
    }

    #[test]
    fn a_mark_is_the_same_in_every_version() {
        let lease = LeaseId::mint(Duration::from_secs(45), Shard(7), 0x123_4567_89ab);
        let mark = EdgeMark::of(&EdgeName::new("edge-1").unwrap());
        assert_eq!(lease.marked(mark), LeaseId(0x1c20_7786_4567_89ab));
    }

    #[test]
    fn a_ttl_is_rounded_up_and_clamped() {
        let ttl = |ms| LeaseId::mint(Duration::from_millis(ms), Shard(0), 0).ttl();
        assert_eq!(ttl(0), Duration::from_millis(100));
        assert_eq!(ttl(1_001), Duration::from_millis(1_100));
        assert_eq!(ttl(10_000_000), Duration::from_millis(409_500));
    }
}
