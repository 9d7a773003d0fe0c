//! Lease ids: a fencing token that says its own ttl and shard.

use std::fmt;
use std::time::Duration;

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
const TTL_UNIT_MS: u64 = 100;
const TTL_UNITS_MAX: u64 = (1 << TTL_BITS) - 1;

/// The time-limited right of one session incarnation to count, as a 64-bit id:
/// ttl in 0.1 s (12) · shard (8) · grace (1) · random (43).
///
/// The random part is what fences: nobody who was not granted this lease can name it. A lease has two
/// names that differ in the grace bit: the *plain* name while a session renews it, the *grace* name
/// after its transport was released. A renewal under the plain name then finds nothing, so release is
/// final (G6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

impl LeaseId {
    /// Mints a plain id. `ttl` is rounded up to 0.1 s and clamped to 0.1 s … 409.5 s; 43 bits of
    /// `random` are used.
    #[must_use]
    pub fn mint(ttl: Duration, shard: Shard, random: u64) -> Self {
        let units = crate::time::millis(ttl).div_ceil(TTL_UNIT_MS).clamp(1, TTL_UNITS_MAX);
        Self(units << (64 - TTL_BITS) | u64::from(shard.0) << (RANDOM_BITS + 1) | (random & RANDOM_MASK))
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
    fn a_ttl_is_rounded_up_and_clamped() {
        let ttl = |ms| LeaseId::mint(Duration::from_millis(ms), Shard(0), 0).ttl();
        assert_eq!(ttl(0), Duration::from_millis(100));
        assert_eq!(ttl(1_001), Duration::from_millis(1_100));
        assert_eq!(ttl(10_000_000), Duration::from_millis(409_500));
    }
}
