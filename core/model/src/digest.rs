//! A 64-bit digest of a roster, to find copies that differ.

use crate::profile::Member;

/// The sum mod 2^64, over members, of the first 8 bytes of SHA-256 over (user, status, since, state).
///
/// Order does not matter, so it is kept by adding and taking away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub u64);

impl Digest {
    /// What one member adds. Encoding hashed: for user and state, length as u32 big endian, then the
    /// bytes; status as one byte (protobuf number); since as u64 big endian ms. Order: user, status,
    /// since, state.
    #[must_use]
    pub fn of(member: &Member) -> Self {
        let _ = member;
        unimplemented!()
    }

    /// Adds a member's digest.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// Takes a member's digest away.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.wrapping_sub(other.0))
    }
}
