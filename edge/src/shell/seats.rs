//! Which mailbox belongs to a key of the hub.

use std::sync::Arc;

use presence_model::id::ConnectionId;

use crate::connection::Mailbox;
use crate::hub::ConnKey;
use crate::protocol::CloseCode;

/// The mailboxes of all connections the hub knows. Dropping it closes them.
#[derive(Debug, Default)]
pub(super) struct Seats {
    seats: Vec<Option<(u32, Arc<Mailbox>)>>,
    arriving: Option<Arc<Mailbox>>,
}

impl Seats {
    /// A connection the hub is told of now.
    pub(super) fn arrive(&mut self, mailbox: Arc<Mailbox>) {
        self.arriving = Some(mailbox);
    }

    /// The hub has named the one that arrived.
    pub(super) fn seat(&mut self, connection: ConnectionId, key: ConnKey) {
        let Some(mailbox) = self.arriving.take_if(|mailbox| mailbox.connection() == connection) else {
            return;
        };
        mailbox.name(key);
        let place = key.index as usize;
        if self.seats.len() <= place {
            self.seats.resize_with(place + 1, || None);
        }
        self.seats[place] = Some((key.version, mailbox));
    }

    /// Does this with the mailbox of a connection that is still there.
    pub(super) fn with(&self, key: ConnKey, act: impl FnOnce(&Mailbox)) {
        if let Some(Some((version, mailbox))) = self.seats.get(key.index as usize)
            && *version == key.version
        {
            act(mailbox);
        }
    }

    /// Forgets a connection; none: it is forgotten already.
    pub(super) fn leave(&mut self, key: ConnKey) -> Option<Arc<Mailbox>> {
        let seat = self.seats.get_mut(key.index as usize)?;
        seat.take_if(|(version, _)| *version == key.version).map(|(_, mailbox)| mailbox)
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        for (_, mailbox) in self.seats.iter().flatten() {
            mailbox.close(CloseCode::GoingAway, "the edge ends");
        }
    }
}
