//! A 64-bit digest of a roster, to find copies that differ.

use sha2::{Digest as _, Sha256};

use crate::profile::{Member, Status};

/// The sum mod 2^64, over members, of the first 8 bytes of SHA-256 over (user, status, since, state).
///
/// Order does not matter, so it is kept by adding and taking away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub u64);

impl Digest {
    /// What one member adds. Encoding hashed: for user and state, length as u32 big endian, then the
    /// bytes; status as one byte (protobuf number); since as u64 big endian ms. Order: user, status,
    /// since, state. The first 8 bytes of the hash are read as a big-endian number.
    #[must_use]
    pub fn of(member: &Member) -> Self {
        let mut hash = Sha256::new();
        hash_bytes(&mut hash, member.user.as_str().as_bytes());
        hash.update([status_number(member.status)]);
        hash.update(member.since.0.to_be_bytes());
        hash_bytes(&mut hash, member.state.as_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&hash.finalize()[..8]);
        Self(u64::from_be_bytes(first))
    }

    /// The digest of a whole roster.
    #[must_use]
    pub fn of_all<'a>(members: impl IntoIterator<Item = &'a Member>) -> Self {
        members.into_iter().map(Self::of).fold(Self::default(), Self::plus)
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

fn hash_bytes(hash: &mut Sha256, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("names and states are bounded by the limits");
    hash.update(length.to_be_bytes());
    hash.update(bytes);
}

/// The numbers of the protobuf contract: part of what is hashed, so they never change.
const fn status_number(status: Status) -> u8 {
    match status {
        Status::Available => 1,
        Status::Away => 2,
        Status::Busy => 3,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::id::UserId;
    use crate::profile::State;
    use crate::time::StoreTime;

    fn member(user: &str, status: Status, state: &'static str) -> Member {
        Member {
            user: UserId::new(user).unwrap(),
            status,
            state: State::new(Bytes::from_static(state.as_bytes())).unwrap(),
            since: StoreTime(1_790_000_000_000),
        }
    }

    // Computed by a program of its own from the documented encoding: foreign clients depend on it.
    #[test]
    fn equals_the_documented_encoding() {
        assert_eq!(Digest::of(&member("u7", Status::Busy, "{}")), Digest(0x5fbf_174c_a463_d168));
    }

    #[test]
    fn a_byte_moved_from_user_to_state_is_another_member() {
        assert_ne!(
            Digest::of(&member("u71", Status::Busy, "{}")),
            Digest::of(&member("u7", Status::Busy, "1{}"))
        );
    }

    #[test]
    fn order_does_not_matter_and_taking_away_undoes_adding() {
        let (a, b) = (member("a", Status::Away, "{}"), member("b", Status::Available, "{}"));
        let both = Digest::of_all([&a, &b]);
        assert_eq!(both, Digest::of_all([&b, &a]));
        assert_eq!(both.minus(Digest::of(&b)), Digest::of(&a));
    }
}
