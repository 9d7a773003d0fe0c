//! Whose a lease is, as stored beside it.

use presence_model::change::LeaseGrant;
use presence_model::id::{RegionId, RoomId, Roster, SessionId, UserId};
use serde::{Deserialize, Serialize};

use super::reader::unexpected;
use crate::store::StoreFault;

/// The digits of an edge's incarnation, in front of the rest: scripts need no more.
const EDGE_DIGITS: usize = 16;

/// Whose a lease is. JSON, so that a person can read it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Owner<'a> {
    #[serde(borrow)]
    region: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    room: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    user: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    session: std::borrow::Cow<'a, str>,
}

impl Owner<'_> {
    /// The text stored for a grant.
    pub(super) fn text(roster: &Roster, user: &UserId, grant: &LeaseGrant) -> String {
        let owner = Owner {
            region: roster.region.as_str().into(),
            room: roster.room.as_str().into(),
            user: user.as_str().into(),
            session: grant.session.as_str().into(),
        };
        let json = serde_json::to_string(&owner).expect("four texts are JSON");
        format!("{:016x} {json}", grant.edge.0)
    }

    /// Reads what was stored.
    ///
    /// # Errors
    /// Not that.
    pub(super) fn parse(text: &[u8]) -> Result<(Roster, UserId, SessionId), StoreFault> {
        let bad = || unexpected(&String::from_utf8_lossy(text));
        let json = text.get(EDGE_DIGITS + 1..).ok_or_else(bad)?;
        let owner: Owner = serde_json::from_slice(json).map_err(|_| bad())?;
        let region = RegionId::new(owner.region).map_err(|_| bad())?;
        let room = RoomId::new(owner.room).map_err(|_| bad())?;
        let user = UserId::new(owner.user).map_err(|_| bad())?;
        let session = SessionId::new(owner.session).map_err(|_| bad())?;
        Ok((Roster { region, room }, user, session))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use presence_model::id::Incarnation;
    use presence_model::lease::{LeaseId, Shard};
    use presence_model::time::StoreTime;

    use super::*;

    #[test]
    fn odd_names_come_back() {
        let roster = Roster {
            region: RegionId::new("eu:\"west").unwrap(),
            room: RoomId::new("a\nb\0\u{1f600}").unwrap(),
        };
        let user = UserId::new("__proto__\u{202e}").unwrap();
        let session = SessionId::new("\"}{\\0123456789ab").unwrap();
        let grant = LeaseGrant {
            lease: LeaseId::mint(Duration::from_secs(1), Shard(0), 1),
            session: session.clone(),
            edge: Incarnation(0xed),
            token_ends: StoreTime(1),
        };
        let text = Owner::text(&roster, &user, &grant);
        assert!(text.starts_with("00000000000000ed {"));
        assert_eq!(Owner::parse(text.as_bytes()), Ok((roster, user, session)));
    }

    #[test]
    fn what_is_not_one_is_a_fault() {
        assert!(Owner::parse(b"short").is_err());
        assert!(Owner::parse(b"00000000000000ed {\"region\":\"\"}").is_err());
    }
}
