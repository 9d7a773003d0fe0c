//! The way from all connections to the hub: one queue, in which what one connection says keeps its order.

use std::sync::Arc;

use futures::future::BoxFuture;
use presence_model::claim::{Claims, TokenRefusal};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, error::TryRecvError, unbounded_channel};

use super::mailbox::Mailbox;
use crate::hub::{ConnEnd, Unreadable};
use crate::limits::REPORTS_MAX;
use crate::protocol::{ClientMessage, Encoding};

/// What a connection says.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) from: Arc<Mailbox>,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    /// It is there, and speaks like this.
    Accepted(Encoding),
    /// A message, and the verified token if it carried one.
    Message(ClientMessage, Option<Result<Claims, TokenRefusal>>),
    /// A message that could not be read.
    Unreadable(Unreadable),
    /// Frames came that are no message.
    Heard,
    /// All handed frames were written. Follows a send of the hub, so there is at most one.
    Written,
    /// It is over. The last, and at most one.
    Closed(ConnEnd),
}

impl What {
    /// What clients cause takes a place, and waits for one; what the hub waits for does not.
    const fn takes_place(&self) -> bool {
        match self {
            Self::Accepted(_) | Self::Message(..) | Self::Unreadable(_) | Self::Heard => true,
            Self::Written | Self::Closed(_) => false,
        }
    }
}

/// The sending side. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Inbox {
    queue: UnboundedSender<Report>,
    places: Arc<Semaphore>,
}

/// The hub is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

impl Inbox {
    /// The two ends. Bounded by [`REPORTS_MAX`] and two reports a connection.
    pub(crate) fn pair() -> (Self, Reports) {
        let (queue, received) = unbounded_channel();
        let places = Arc::new(Semaphore::new(REPORTS_MAX));
        (Self { queue, places: Arc::clone(&places) }, Reports { queue: received, places })
    }

    /// Takes a place if one is free.
    pub(crate) fn try_place(&self) -> bool {
        self.places.try_acquire().map(tokio::sync::SemaphorePermit::forget).is_ok()
    }

    /// Waits for a place and takes it.
    pub(crate) fn place(&self) -> BoxFuture<'static, Result<(), Gone>> {
        let places = Arc::clone(&self.places);
        Box::pin(
            async move { places.acquire().await.map(tokio::sync::SemaphorePermit::forget).map_err(|_| Gone) },
        )
    }

    /// Says something, for which a place was taken if it needs one.
    pub(crate) fn put(&self, from: &Arc<Mailbox>, what: What) {
        // If the hub is gone, so is everything it would do about it.
        let _ = self.queue.send(Report { from: Arc::clone(from), what });
    }
}

/// The receiving side.
#[derive(Debug)]
pub(crate) struct Reports {
    queue: UnboundedReceiver<Report>,
    places: Arc<Semaphore>,
}

impl Reports {
    /// The next report; none: nobody is left who could say something. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Report> {
        let report = self.queue.recv().await?;
        Some(self.taken(report))
    }

    /// The next report if it is there.
    pub(crate) fn try_next(&mut self) -> Option<Report> {
        match self.queue.try_recv() {
            Ok(report) => Some(self.taken(report)),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }

    fn taken(&self, report: Report) -> Report {
        if report.what.takes_place() {
            self.places.add_permits(1);
        }
        report
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        self.places.close();
    }
}
