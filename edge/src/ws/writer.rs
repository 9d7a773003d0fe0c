//! Writes server frames: payloads are shared, only the few header bytes are made for each connection.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::AsyncWrite;

use super::{CONTROL_BYTES_MAX, Opcode};
use crate::protocol::Encoding;

/// Frames put into one system call: each takes two slices, and kernels take 1,024.
const FRAMES_PER_WRITE_MAX: usize = 32;
/// Two bytes and eight of extended length; servers do not mask.
const HEADER_BYTES_MAX: usize = 10;

#[derive(Debug)]
struct Frame {
    opcode: Opcode,
    payload: Bytes,
}

impl Frame {
    fn header(&self) -> ([u8; HEADER_BYTES_MAX], usize) {
        let mut header = [0; HEADER_BYTES_MAX];
        header[0] = 0x80 | self.opcode.bits();
        let length = self.payload.len();
        if let (Ok(short), true) = (u8::try_from(length), length <= CONTROL_BYTES_MAX) {
            header[1] = short;
            (header, 2)
        } else if let Ok(medium) = u16::try_from(length) {
            header[1] = 126;
            header[2..4].copy_from_slice(&medium.to_be_bytes());
            (header, 4)
        } else {
            header[1] = 127;
            header[2..10].copy_from_slice(&(length as u64).to_be_bytes());
            (header, 10)
        }
    }

    fn bytes(&self) -> usize {
        self.header().1 + self.payload.len()
    }
}

/// The outbound side of one connection. Holds no memory while nothing waits.
///
/// Bounded by whoever pushes: data frames by the hub, which hands over more only when all was written;
/// pings and pongs to one each.
#[derive(Debug, Default)]
pub struct Writer {
    frames: VecDeque<Frame>,
    /// Bytes of the first frame, header included, that are written.
    written: usize,
    closed: bool,
}

impl Writer {
    /// Nothing to write.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether all was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Appends a text message.
    pub fn text(&mut self, payload: Bytes) {
        self.push(Opcode::Text, payload);
    }

    /// Appends a message of this encoding.
    pub fn message(&mut self, encoding: Encoding, payload: Bytes) {
        match encoding {
            Encoding::Json => self.text(payload),
            Encoding::Proto => self.binary(payload),
        }
    }

    /// Appends a binary message.
    pub fn binary(&mut self, payload: Bytes) {
        self.push(Opcode::Binary, payload);
    }

    /// Puts a ping before everything that has not begun; one is enough at a time.
    pub fn ping(&mut self) {
        self.control(Opcode::Ping, Bytes::new());
    }

    /// Puts a pong before everything that has not begun. A later one takes the place of one that waits: who
    /// floods pings and does not read is answered once.
    pub fn pong(&mut self, payload: Bytes) {
        self.control(Opcode::Pong, payload);
    }

    /// Appends the close frame, the last of this side: what is pushed after it is dropped. `code` none: an
    /// empty one. A reason too long for a control frame is left out.
    pub fn close(&mut self, code: Option<u16>, reason: &str) {
        let mut payload = Vec::new();
        if let Some(code) = code {
            payload.extend_from_slice(&code.to_be_bytes());
            if reason.len() <= CONTROL_BYTES_MAX - 2 {
                payload.extend_from_slice(reason.as_bytes());
            }
        }
        self.push(Opcode::Close, payload.into());
        self.closed = true;
    }

    fn push(&mut self, opcode: Opcode, payload: Bytes) {
        if !self.closed {
            self.frames.push_back(Frame { opcode, payload });
        }
    }

    fn control(&mut self, opcode: Opcode, payload: Bytes) {
        if self.closed {
            return;
        }
        let first_unbegun = usize::from(self.written > 0);
        let waiting = self.frames.iter_mut().skip(first_unbegun).take(2).find(|frame| frame.opcode == opcode);
        match waiting {
            Some(frame) => frame.payload = payload,
            None => self.frames.insert(first_unbegun, Frame { opcode, payload }),
        }
    }

    /// Writes until nothing waits or the stream takes no more.
    ///
    /// # Errors
    /// Those of the stream; a stream that takes zero bytes is [`io::ErrorKind::WriteZero`].
    pub fn poll_flush<S>(&mut self, stream: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>>
    where
        S: AsyncWrite + Unpin,
    {
        while !self.frames.is_empty() {
            match ready!(self.poll_write(stream, cx))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                taken => self.advance(taken),
            }
        }
        if self.frames.capacity() > 0 {
            self.frames = VecDeque::new();
        }
        Pin::new(stream).poll_flush(cx)
    }

    fn poll_write<S>(&self, stream: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<usize>>
    where
        S: AsyncWrite + Unpin,
    {
        let mut headers = [([0; HEADER_BYTES_MAX], 0); FRAMES_PER_WRITE_MAX];
        for (header, frame) in headers.iter_mut().zip(&self.frames) {
            *header = frame.header();
        }
        let mut slices = [IoSlice::new(&[]); FRAMES_PER_WRITE_MAX * 2];
        let mut used = 0;
        let mut skip = self.written;
        for ((header, length), frame) in headers.iter().zip(&self.frames) {
            for part in [&header[..*length], &frame.payload[..]] {
                let passed = skip.min(part.len());
                skip -= passed;
                if passed < part.len() {
                    slices[used] = IoSlice::new(&part[passed..]);
                    used += 1;
                }
            }
        }
        Pin::new(stream).poll_write_vectored(cx, &slices[..used])
    }

    fn advance(&mut self, taken: usize) {
        self.written += taken;
        while let Some(first) = self.frames.front() {
            let bytes = first.bytes();
            if self.written < bytes {
                return;
            }
            self.written -= bytes;
            self.frames.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
