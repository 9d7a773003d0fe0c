//! Why someone is gone: one closed list, told with every removal (G12).

use std::fmt;
use std::time::Duration;

/// Why a session or member ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RemovalReason {
    /// Said goodbye.
    Left,
    /// The transport was lost and nobody came back within grace.
    ConnectionLost,
    /// No renewal for a whole ttl: its edge could not speak.
    LeaseExpired,
    /// The edge process died and the client did not come back elsewhere.
    EdgeLost,
    /// A newer attempt of the same session took over.
    Superseded,
    /// An operator put it out.
    Evicted,
    /// The token ended.
    TokenExpired,
    /// The token, its subject or its key was revoked.
    TokenRevoked,
    /// The region could not be heard for longer than its hold.
    RegionLost,
}

impl RemovalReason {
    /// All of them, in the order of the protocols.
    pub const ALL: [Self; 9] = [
        Self::Left,
        Self::ConnectionLost,
        Self::LeaseExpired,
        Self::EdgeLost,
        Self::Superseded,
        Self::Evicted,
        Self::TokenExpired,
        Self::TokenRevoked,
        Self::RegionLost,
    ];

    /// The word of the protocols.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::ConnectionLost => "connection_lost",
            Self::LeaseExpired => "lease_expired",
            Self::EdgeLost => "edge_lost",
            Self::Superseded => "superseded",
            Self::Evicted => "evicted",
            Self::TokenExpired => "token_expired",
            Self::TokenRevoked => "token_revoked",
            Self::RegionLost => "region_lost",
        }
    }

    /// Whether it says nothing about the client: its edge did not speak for it. Such a session may
    /// still have its connection, and its edge may bring it back.
    #[must_use]
    pub const fn is_silence_of_the_edge(self) -> bool {
        match self {
            Self::LeaseExpired | Self::EdgeLost => true,
            Self::Left
            | Self::ConnectionLost
            | Self::Superseded
            | Self::Evicted
            | Self::TokenExpired
            | Self::TokenRevoked
            | Self::RegionLost => false,
        }
    }
}

impl fmt::Display for RemovalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A reason and how long the session had been silent when it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// Why.
    pub reason: RemovalReason,
    /// Since its last accepted renewal or join.
    pub silent_for: Duration,
}

/// Why a session is over at its edge's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaveReason {
    /// The client said goodbye.
    Goodbye,
    /// The edge has heard that the token is revoked on which it rests: perhaps before the core has.
    TokenRevoked,
}

/// Why an edge gives a session's transport up. None of them is a departure: a grace starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReleaseReason {
    /// Closed, reset or silent.
    TransportLost,
    /// The edge is leaving and told the client to come back elsewhere.
    Drain,
    /// The edge needed room, or the client did not read.
    Shed,
}
