//! A stream with its two halves of the codec.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Decoder, Event, Violation, Writer};

/// Taken from the stream at a time. Lives on the stack during a poll: an idle connection has no buffer.
const READ_BYTES: usize = 4 * 1024;

/// Why nothing more can be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadEnd {
    /// The transport ended, with or without a close frame.
    #[error("the transport ended")]
    Eof,
    /// The transport broke.
    #[error("the transport broke: {0}")]
    Io(#[from] io::Error),
    /// The client broke the protocol.
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// An accepted WebSocket.
#[derive(Debug)]
pub struct Socket<S> {
    stream: S,
    decoder: Decoder,
    writer: Writer,
    /// Read but not decoded yet: what hyper had read already, or what stood behind an event.
    rest: Bytes,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// A socket after its handshake. `leftover` was read behind the handshake; it is copied, so that hyper's
    /// buffer can go.
    #[must_use]
    pub fn new(stream: S, leftover: &[u8], message_bytes_max: usize) -> Self {
        let rest = Bytes::copy_from_slice(leftover);
        Self { stream, decoder: Decoder::new(message_bytes_max), writer: Writer::new(), rest }
    }

    /// What is to be written.
    pub fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }

    /// The next event. Pings are put among the frames to be written as pongs before they are told.
    ///
    /// Cancel-safe: all state stays in the socket.
    ///
    /// # Errors
    /// [`ReadEnd`]; it must not be polled again after one.
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, ReadEnd>> {
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            let (event, left) = self.decode(&rest)?;
            if left > 0 {
                self.rest = rest.slice(rest.len() - left..);
            }
            if let Some(event) = event {
                return Poll::Ready(Ok(event));
            }
        }
        loop {
            let mut memory = [const { MaybeUninit::uninit() }; READ_BYTES];
            let mut buffer = ReadBuf::uninit(&mut memory);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Err(ReadEnd::Eof));
            }
            let filled = buffer.filled();
            let (event, left) = self.decode(filled)?;
            if left > 0 {
                self.rest = Bytes::copy_from_slice(&filled[filled.len() - left..]);
            }
            if let Some(event) = event {
                return Poll::Ready(Ok(event));
            }
        }
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer.poll_flush(&mut self.stream, cx)
    }

    /// Ends the outbound side of the transport.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    /// Reads and throws away until the transport ends, so that closing it does not reset what was written.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut memory = [const { MaybeUninit::uninit() }; READ_BYTES];
            let mut buffer = ReadBuf::uninit(&mut memory);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// The first event, and how many bytes are left behind it.
    fn decode(&mut self, mut bytes: &[u8]) -> Result<(Option<Event>, usize), Violation> {
        let event = self.decoder.feed(&mut bytes)?;
        if let Some(Event::Ping(payload)) = &event {
            self.writer.pong(payload.clone());
        }
        Ok((event, bytes.len()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn events_behind_each_other_in_one_read_are_told_one_by_one_and_pings_are_answered() {
        let (near, mut far) = duplex(1024);
        // A leftover of hyper: the first half of a masked ping "hi".
        let mut socket = Socket::new(near, &[0x89, 0x82, 1], 100);
        far.write_all(&[2, 3, 4, b'h' ^ 1, b'i' ^ 2, 0x81, 0x81, 0, 0, 0, 0, b'x']).await.unwrap();
        let event = poll_fn(|cx| socket.poll_event(cx)).await.unwrap();
        assert_eq!(event, Event::Ping(Bytes::from_static(b"hi")));
        assert_eq!(poll_fn(|cx| socket.poll_event(cx)).await.unwrap(), Event::Text("x".into()));
        assert!(socket.rest.is_empty(), "no buffer while idle");
        poll_fn(|cx| socket.poll_flush(cx)).await.unwrap();
        let mut pong = [0; 4];
        far.read_exact(&mut pong).await.unwrap();
        assert_eq!(&pong, b"\x8A\x02hi");
        drop(far);
        assert!(matches!(poll_fn(|cx| socket.poll_event(cx)).await, Err(ReadEnd::Eof)));
    }
    #[tokio::test]
    async fn messages_left_over_by_the_handshake_are_told_one_by_one() {
        let (near, _far) = duplex(64);
        let leftover =
            [&[0x81, 0x81, 0, 0, 0, 0, b'a'][..], &[0x81, 0x81, 0, 0, 0, 0, b'b'], &[0x8A]].concat();
        let mut socket = Socket::new(near, &leftover, 100);
        assert_eq!(next(&mut socket).unwrap(), Event::Text("a".into()));
        assert_eq!(next(&mut socket).unwrap(), Event::Text("b".into()));
        assert_eq!(next(&mut socket), None);
    }

    /// The next event if it is there.
    fn next(socket: &mut Socket<tokio::io::DuplexStream>) -> Option<Event> {
        match socket.poll_event(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(event) => Some(event.unwrap()),
            Poll::Pending => None,
        }
    }
}
