//! One connection: two ends, and a way each way.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll, Waker};

use bytes::{Buf as _, Bytes};
use tokio::io::ReadBuf;

/// Bytes on a way, arrived or not, that nobody has read; beyond it writing waits.
const WINDOW_BYTES: usize = 256 * 1024;

/// What travels.
#[derive(Debug)]
pub(super) enum Packet {
    Syn,
    Accepted,
    Data(Bytes),
    End,
    Reset,
}

/// Who holds an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// It waits to be accepted.
    Nobody,
    Somebody,
    Gone,
}

#[derive(Debug)]
pub(super) struct End {
    pub(super) address: SocketAddr,
    pub(super) holder: Holder,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// From one end to the other.
#[derive(Debug, Default)]
pub(super) struct Way {
    flying: VecDeque<(u64, Packet)>,
    last_arrival: u64,
    pub(super) blocked_since: Option<u64>,
    pub(super) stalled_until: u64,
    landed: VecDeque<Bytes>,
    unread: usize,
    accepted: bool,
    end_sent: bool,
    ended: bool,
    broken: bool,
}

/// A connection. `ways[0]` leads from `ends[0]`, which connected, to `ends[1]`.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) ends: [End; 2],
    pub(super) ways: [Way; 2],
}

impl Way {
    pub(super) fn send(&mut self, packet: Packet, arrives: u64) {
        self.last_arrival = self.last_arrival.max(arrives);
        self.flying.push_back((self.last_arrival, packet));
    }

    pub(super) fn is_due(&self, now: u64) -> bool {
        self.flying.front().is_some_and(|(arrives, _)| *arrives <= now)
    }

    pub(super) fn take_due(&mut self, now: u64) -> Option<Packet> {
        if now < self.stalled_until || !self.is_due(now) {
            return None;
        }
        self.flying.pop_front().map(|(_, packet)| packet)
    }
}

impl Wire {
    pub(super) fn new(from: SocketAddr, to: SocketAddr) -> Self {
        let end = |address, holder| End { address, holder, reader: None, writer: None };
        Self {
            ends: [end(from, Holder::Somebody), end(to, Holder::Nobody)],
            ways: [Way::default(), Way::default()],
        }
    }

    /// From where to where a way leads.
    pub(super) fn route(&self, way: usize) -> (IpAddr, IpAddr) {
        (self.ends[way].address.ip(), self.ends[1 - way].address.ip())
    }

    pub(super) fn is_between(&self, one: IpAddr, other: IpAddr) -> bool {
        self.route(0) == (one, other) || self.route(1) == (one, other)
    }

    /// Nobody is left who could notice anything.
    pub(super) fn is_over(&self) -> bool {
        self.ends.iter().all(|end| end.holder == Holder::Gone)
            && self.ways.iter().all(|way| way.flying.is_empty())
    }

    pub(super) fn break_now(&mut self) {
        for (way, end) in self.ways.iter_mut().zip(&mut self.ends) {
            way.flying.clear();
            way.broken = true;
            end.wake();
        }
    }

    /// Takes a packet at the end of its way.
    ///
    /// # Errors
    /// Nobody is there to take it.
    pub(super) fn land(&mut self, way: usize, packet: Packet) -> Result<(), ()> {
        let end = &mut self.ends[1 - way];
        let way = &mut self.ways[way];
        let gone = end.holder == Holder::Gone;
        match packet {
            Packet::Data(bytes) if gone => {
                way.unread -= bytes.len();
                return Err(());
            }
            Packet::Accepted if gone => return Err(()),
            Packet::Data(bytes) => way.landed.push_back(bytes),
            Packet::Accepted => way.accepted = true,
            Packet::End => way.ended = true,
            Packet::Reset => way.broken = true,
            Packet::Syn => {}
        }
        end.wake();
        Ok(())
    }

    /// Ready once the far end has accepted.
    pub(super) fn poll_accepted(&mut self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        if self.ways[1].broken {
            return Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into()));
        }
        if self.ways[1].accepted {
            return Poll::Ready(Ok(()));
        }
        self.ends[0].reader = Some(cx.waker().clone());
        Poll::Pending
    }

    pub(super) fn poll_read(
        &mut self,
        end: usize,
        buffer: &mut ReadBuf<'_>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        let way = &mut self.ways[1 - end];
        let Some(front) = way.landed.front_mut() else {
            if way.broken {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            if way.ended {
                return Poll::Ready(Ok(()));
            }
            self.ends[end].reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let count = front.len().min(buffer.remaining());
        buffer.put_slice(&front[..count]);
        front.advance(count);
        if front.is_empty() {
            way.landed.pop_front();
        }
        way.unread -= count;
        if let Some(waker) = self.ends[1 - end].writer.take() {
            waker.wake();
        }
        Poll::Ready(Ok(()))
    }

    /// How much of `bytes` may be sent now.
    pub(super) fn poll_room(&mut self, end: usize, cx: &Context<'_>) -> Poll<io::Result<usize>> {
        if self.ways[1 - end].broken || self.ways[end].broken {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let way = &self.ways[end];
        if way.end_sent {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if way.unread >= WINDOW_BYTES {
            self.ends[end].writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(WINDOW_BYTES - way.unread))
    }

    pub(super) fn count_sent(&mut self, end: usize, bytes: usize) {
        self.ways[end].unread += bytes;
    }

    /// That end will write no more; whether the far end is still to be told.
    pub(super) fn finish(&mut self, end: usize) -> bool {
        !std::mem::replace(&mut self.ways[end].end_sent, true)
    }

    /// Nobody holds that end any more; what the far end is to be told.
    pub(super) fn abandon(&mut self, end: usize) -> Option<Packet> {
        self.ends[end].holder = Holder::Gone;
        self.ends[end].reader = None;
        self.ends[end].writer = None;
        let has_unread = !self.ways[1 - end].landed.is_empty();
        let is_first = self.finish(end);
        if self.ways[1 - end].broken {
            None
        } else if has_unread || (end == 1 && !self.ways[1].accepted && is_first) {
            Some(Packet::Reset)
        } else {
            is_first.then_some(Packet::End)
        }
    }
}

impl End {
    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }
}
