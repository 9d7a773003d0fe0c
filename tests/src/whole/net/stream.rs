//! One end of a simulated connection, as whoever holds it has it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Net;
use super::wire::Packet;

pub(super) struct NetStream {
    net: Net,
    wire: u64,
    end: usize,
}

impl NetStream {
    pub(super) fn new(net: Net, wire: u64, end: usize) -> Self {
        Self { net, wire, end }
    }
}

impl AsyncRead for NetStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.net.lock();
        let wire = state.wires.get_mut(&self.wire).ok_or(io::ErrorKind::ConnectionReset)?;
        wire.poll_read(self.end, buffer, cx)
    }
}

impl AsyncWrite for NetStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.net.lock();
        let wire = state.wires.get_mut(&self.wire).ok_or(io::ErrorKind::ConnectionReset)?;
        let room = ready!(wire.poll_room(self.end, cx))?;
        let count = room.min(bytes.len());
        wire.count_sent(self.end, count);
        state.send(self.wire, self.end, Packet::Data(Bytes::copy_from_slice(&bytes[..count])));
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.net.lock();
        if state.wires.get_mut(&self.wire).is_some_and(|wire| wire.finish(self.end)) {
            state.send(self.wire, self.end, Packet::End);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for NetStream {
    fn drop(&mut self) {
        self.net.lock().drop_end(self.wire, self.end);
    }
}
