//! What a hub has seen so far, for metrics.

/// How clients that had been somewhere came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reconnects {
    /// By one collapsed delta.
    pub resumed: u64,
    /// By a snapshot.
    pub snapshot: u64,
    /// Displaced another connection of the same session that this edge had.
    pub superseded: u64,
    /// Not let in.
    pub refused: u64,
}

/// Counters since the start, and how much there is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HubCounts {
    /// Connections now.
    pub connections: u64,
    /// Rooms now, lingering ones included.
    pub rooms: u64,
    /// Leases now.
    pub leases: u64,
    /// Whether the link is up: welcomed and heard.
    pub link_up: bool,
    /// Whether this edge goes.
    pub draining: bool,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections given up for silence.
    pub silent: u64,
    /// Connections closed since this edge goes: they had not gone by themselves.
    pub restarted: u64,
    /// Connections shed: they did not read.
    pub slow: u64,
    /// Connections closed for flooding: they said too much, or asked without reading.
    pub flooded: u64,
    /// Requests refused by a rate.
    pub rate_limited: u64,
    /// Joins refused because too many waited to be said before them.
    pub joins_shed: u64,
    /// Snapshots that clients asked for.
    pub resyncs: u64,
    /// Renewal batches sent, again or for the first time.
    pub renewal_batches: u64,
    /// Renewals sent again for want of an acknowledgement.
    pub renewals_repeated: u64,
    /// Leases the store did not know.
    pub unknown_leases: u64,
    /// Sessions joined again by this edge.
    pub rejoins: u64,
    /// Sessions and watches that rested on a revoked token.
    pub revoked: u64,
    /// Links opened.
    pub links: u64,
    /// Times this process found that it had not run for a while.
    pub freezes: u64,
    /// Deltas of cores that did not follow.
    pub gaps: u64,
    /// Copies that differed from a core's.
    pub differs: u64,
    /// How clients came back.
    pub reconnects: Reconnects,
}
