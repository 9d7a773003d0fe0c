//! Short ways to say who, what and when.

use std::time::Duration;

use bytes::Bytes;
use presence_model::id::{ConnectionId, EdgeName, Generation, Incarnation, RegionId, SessionId, UserId};
use presence_model::lease::{LeaseId, Shard};
use presence_model::link::RequestId;
use presence_model::member::{Join, Update};
use presence_model::profile::{Profile, State, Status};
use presence_model::record::{EdgeRef, TokenRef};
use presence_model::time::StoreTime;

pub(crate) const TTL: Duration = Duration::from_secs(45);
pub(crate) const GRACE: Duration = Duration::from_secs(12);
pub(crate) const NEVER: StoreTime = StoreTime(1 << 50);

pub(crate) fn user(name: &str) -> UserId {
    UserId::new(name).expect("a short name")
}

pub(crate) fn session(number: usize) -> SessionId {
    SessionId::new(format!("session-{number:08}")).expect("16 characters")
}

pub(crate) fn lease(random: u64) -> LeaseId {
    LeaseId::mint(TTL, Shard(7), random)
}

pub(crate) fn edge(number: u64) -> EdgeRef {
    EdgeRef {
        name: EdgeName::new(format!("edge-{number}")).expect("a short name"),
        incarnation: Incarnation(number),
        region: RegionId::new("here").expect("a short name"),
    }
}

pub(crate) fn token(ends: StoreTime) -> TokenRef {
    TokenRef { ends, key_id: "k1".into(), token_id: "t1".into() }
}

pub(crate) fn state(text: &'static str) -> State {
    State::new(Bytes::from_static(text.as_bytes())).expect("short")
}

pub(crate) fn profile(status: Status, text: &'static str) -> Profile {
    Profile { status, state: state(text) }
}

/// The first attempt of session 1 over connection 1, asking for the lease of that number.
pub(crate) fn join(lease_number: u64) -> Join {
    Join {
        session: session(1),
        generation: Some(Generation(1)),
        connection: ConnectionId(1),
        request: RequestId(1),
        edge: edge(1),
        profile: Profile::default(),
        client: "test".into(),
        token: token(NEVER),
        rejoin: None,
        moved: None,
        lease: lease(lease_number),
    }
}

/// The attempt of that generation over a connection of the same number.
pub(crate) fn attempt(generation: u64, lease_number: u64) -> Join {
    Join {
        generation: Some(Generation(generation)),
        connection: ConnectionId(generation),
        ..join(lease_number)
    }
}

/// The first attempt of another session, over a connection of the same number.
pub(crate) fn tab(number: usize, lease_number: u64) -> Join {
    Join { session: session(number), connection: ConnectionId(number as u64), ..join(lease_number) }
}

pub(crate) fn no_update(lease: LeaseId) -> Update {
    Update { lease, status: None, state: None, token: None }
}
