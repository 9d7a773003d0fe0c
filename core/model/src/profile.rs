//! What others see of a user: status, state, since.

use bytes::Bytes;

use crate::id::UserId;
use crate::limits::STATE_BYTES_MAX;
use crate::time::StoreTime;

/// How reachable a user is; the strongest of the sessions is shown: busy > available > away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Here, but not looking.
    Away,
    /// Here.
    Available,
    /// Here, do not disturb.
    Busy,
}

impl Status {
    /// The word of the protocols.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Away => "away",
            Self::Available => "available",
            Self::Busy => "busy",
        }
    }

    /// Reads the word of the protocols.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "away" => Some(Self::Away),
            "available" => Some(Self::Available),
            "busy" => Some(Self::Busy),
            _ => None,
        }
    }
}

/// A state was refused: it is longer than [`STATE_BYTES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("state has {bytes} bytes, at most {STATE_BYTES_MAX} are allowed")]
pub struct StateTooLarge {
    /// Length as given, in bytes.
    pub bytes: usize,
}

/// What an application says about its user: one JSON value of at most 1 KiB, opaque here.
///
/// Edge and core check that it is JSON; it is compared and spliced as bytes, never parsed again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State(Bytes);

impl State {
    /// Takes JSON text.
    ///
    /// # Errors
    /// [`StateTooLarge`].
    pub fn new(json: Bytes) -> Result<Self, StateTooLarge> {
        if json.len() > STATE_BYTES_MAX { Err(StateTooLarge { bytes: json.len() }) } else { Ok(Self(json)) }
    }

    /// The JSON text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The JSON text, sharing its memory.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }
}

impl Default for State {
    /// `{}`
    fn default() -> Self {
        Self(Bytes::from_static(b"{}"))
    }
}

/// What a session says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// How reachable.
    pub status: Status,
    /// What the application adds.
    pub state: State,
}

impl Default for Profile {
    fn default() -> Self {
        Self { status: Status::Available, state: State::default() }
    }
}

/// A user visible in a roster: the projection of a record that everybody sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub user: UserId,
    /// The strongest status of the sessions.
    pub status: Status,
    /// The state of the session that updated last.
    pub state: State,
    /// Since when the user has been here without interruption.
    pub since: StoreTime,
}
