//! What the hub hands one connection: frames, a ping, a close. One small allocation, no channel.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::task::Waker;

use futures::task::AtomicWaker;
use presence_model::id::ConnectionId;

use crate::hub::ConnKey;
use crate::protocol::{CloseCode, Payload};

/// The address of a client, as far as it is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bearer(Option<IpAddr>);

impl fmt::Display for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("unknown address"),
        }
    }
}

/// The place where hub and connection meet.
///
/// Bounded without a limit of its own: the hub hands over frames only when all before were written, and
/// ping and close are one each.
#[derive(Debug)]
pub(crate) struct Mailbox {
    connection: ConnectionId,
    bearer: Bearer,
    key: OnceLock<ConnKey>,
    waker: AtomicWaker,
    mail: Mutex<Mail>,
}

/// What waits for a connection.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    /// To be written in this order, before the close.
    pub(crate) frames: Vec<Payload>,
    /// Whether the hub waits to hear that all was written.
    pub(crate) report_written: bool,
    /// To be written before everything else.
    pub(crate) ping: bool,
    /// To be written last.
    pub(crate) close: Option<(CloseCode, &'static str)>,
}

impl Mailbox {
    pub(crate) fn new(connection: ConnectionId, address: Option<IpAddr>) -> Self {
        Self {
            connection,
            bearer: Bearer(address),
            key: OnceLock::new(),
            waker: AtomicWaker::new(),
            mail: Mutex::default(),
        }
    }

    /// Which transport this is.
    pub(crate) fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// Whose tokens come over it, for the log.
    pub(crate) fn bearer(&self) -> &Bearer {
        &self.bearer
    }

    /// The hub's name for it, once it has one.
    pub(crate) fn key(&self) -> Option<ConnKey> {
        self.key.get().copied()
    }

    /// Notes the hub's name for it; only the first counts.
    pub(crate) fn name(&self, key: ConnKey) {
        let _ = self.key.set(key);
    }

    /// Hands over frames; when they are written, that is reported.
    pub(crate) fn send(&self, frames: Vec<Payload>) {
        let mut mail = self.lock();
        mail.report_written = true;
        if mail.frames.is_empty() {
            mail.frames = frames;
        } else {
            mail.frames.extend(frames);
        }
        drop(mail);
        self.waker.wake();
    }

    /// Asks for a ping.
    pub(crate) fn ping(&self) {
        self.lock().ping = true;
        self.waker.wake();
    }

    /// Asks for the end; the first asking counts.
    pub(crate) fn close(&self, code: CloseCode, reason: &'static str) {
        self.lock().close.get_or_insert((code, reason));
        self.waker.wake();
    }

    /// Takes what waits; `waker` is woken when more comes.
    pub(crate) fn take(&self, waker: &Waker) -> Mail {
        // Registered first: what comes in between is seen now or wakes.
        self.waker.register(waker);
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().expect("nothing panics while it is held")
    }
}
