//! Reads client frames, strictly by RFC 6455, from bytes that arrive in any portions.

use bytes::Bytes;

use super::{CONTROL_BYTES_MAX, Opcode};

/// Two bytes, eight of extended length, four of mask.
const HEADER_BYTES_MAX: usize = 14;

/// What arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A whole text message.
    Text(String),
    /// A whole binary message.
    Binary(Vec<u8>),
    /// A part of a message: a sign of life, nothing more.
    Part,
    /// To be answered by a pong with the same bytes.
    Ping(Bytes),
    /// An answer to a ping, or unasked.
    Pong,
    /// The peer closes, with this code if it gave one. Nothing is read after it.
    Close(Option<u16>),
}

/// What a client did wrong. The connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A reserved bit is set, though no extension was agreed on.
    #[error("reserved bits are set")]
    ReservedBits,
    /// An op code that does not exist.
    #[error("unknown op code")]
    Opcode,
    /// Clients must mask.
    #[error("frame is not masked")]
    NotMasked,
    /// A control frame in parts.
    #[error("control frame is fragmented")]
    ControlFragmented,
    /// A control frame with more than 125 bytes.
    #[error("control frame is too long")]
    ControlTooLong,
    /// A length not written in the fewest bytes, or with its highest bit set.
    #[error("malformed length")]
    Length,
    /// A continuation of nothing.
    #[error("continuation without a message")]
    NothingToContinue,
    /// A new message before the last one ended.
    #[error("message inside a message")]
    Interleaved,
    /// A close frame with one byte, or a code that must not be sent.
    #[error("malformed close frame")]
    CloseFrame,
    /// Text that is not UTF-8.
    #[error("text is not UTF-8")]
    Utf8,
    /// A message longer than allowed, over all its frames.
    #[error("message is too large")]
    TooLarge,
}

impl Violation {
    /// The close code that tells the client: 1002, 1007 or, of our protocol, 4413.
    #[must_use]
    pub const fn close_code(self) -> u16 {
        match self {
            Self::ReservedBits
            | Self::Opcode
            | Self::NotMasked
            | Self::ControlFragmented
            | Self::ControlTooLong
            | Self::Length
            | Self::NothingToContinue
            | Self::Interleaved
            | Self::CloseFrame => 1002,
            Self::Utf8 => 1007,
            Self::TooLarge => 4413,
        }
    }
}

/// The frame whose payload is being read.
#[derive(Debug, Clone, Copy)]
struct Frame {
    opcode: Opcode,
    last: bool,
    mask: [u8; 4],
    length: usize,
    done: usize,
}

/// Whether the message under way is text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Binary,
}

/// The state of one connection's inbound side: no I/O, and no memory beyond itself between messages.
#[derive(Debug)]
pub struct Decoder {
    message_bytes_max: usize,
    header: [u8; HEADER_BYTES_MAX],
    header_filled: u8,
    frame: Option<Frame>,
    control: Vec<u8>,
    message: Vec<u8>,
    kind: Option<Kind>,
    ended: bool,
}

impl Decoder {
    /// A decoder that takes messages up to `message_bytes_max` bytes, over all their frames.
    #[must_use]
    pub const fn new(message_bytes_max: usize) -> Self {
        Self {
            message_bytes_max,
            header: [0; HEADER_BYTES_MAX],
            header_filled: 0,
            frame: None,
            control: Vec::new(),
            message: Vec::new(),
            kind: None,
            ended: false,
        }
    }

    /// Takes bytes off the front of `input` up to the next event; none: all were taken and more are needed.
    ///
    /// After a close frame the rest is taken and thrown away.
    ///
    /// # Errors
    /// A [`Violation`], at the first byte that shows it, except for UTF-8, which is judged at the end of the
    /// message. It must not be fed again after one.
    pub fn feed(&mut self, input: &mut &[u8]) -> Result<Option<Event>, Violation> {
        if self.ended {
            *input = &[];
            return Ok(None);
        }
        if self.frame.is_none() && !self.take_header(input)? {
            return Ok(None);
        }
        match self.take_payload(input) {
            Some(frame) => self.finish(frame).map(Some),
            None => Ok(None),
        }
    }

    /// Whether a frame or a message has begun and not ended.
    #[must_use]
    pub fn is_midway(&self) -> bool {
        self.header_filled > 0 || self.frame.is_some() || self.kind.is_some()
    }

    /// Collects a header; true once it is whole and `frame` is set.
    fn take_header(&mut self, input: &mut &[u8]) -> Result<bool, Violation> {
        loop {
            let filled = usize::from(self.header_filled);
            if filled >= 2 && filled == header_bytes(self.header[1]) {
                self.frame = Some(self.read_header()?);
                self.header_filled = 0;
                return Ok(true);
            }
            let Some((&byte, rest)) = input.split_first() else { return Ok(false) };
            *input = rest;
            self.header[filled] = byte;
            self.header_filled += 1;
            match self.header_filled {
                1 => self.check_first(byte)?,
                2 => self.check_second(byte)?,
                _ => {}
            }
        }
    }

    fn check_first(&self, byte: u8) -> Result<(), Violation> {
        if byte & 0x70 != 0 {
            return Err(Violation::ReservedBits);
        }
        let last = byte & 0x80 != 0;
        match Opcode::read(byte & 0x0F).ok_or(Violation::Opcode)? {
            Opcode::Close | Opcode::Ping | Opcode::Pong if !last => Err(Violation::ControlFragmented),
            Opcode::Continuation if self.kind.is_none() => Err(Violation::NothingToContinue),
            Opcode::Text | Opcode::Binary if self.kind.is_some() => Err(Violation::Interleaved),
            Opcode::Continuation
            | Opcode::Text
            | Opcode::Binary
            | Opcode::Close
            | Opcode::Ping
            | Opcode::Pong => Ok(()),
        }
    }

    fn check_second(&self, byte: u8) -> Result<(), Violation> {
        if byte & 0x80 == 0 {
            return Err(Violation::NotMasked);
        }
        let opcode = Opcode::read(self.header[0] & 0x0F).ok_or(Violation::Opcode)?;
        if opcode.is_control() && usize::from(byte & 0x7F) > CONTROL_BYTES_MAX {
            return Err(Violation::ControlTooLong);
        }
        Ok(())
    }

    fn read_header(&self) -> Result<Frame, Violation> {
        let opcode = Opcode::read(self.header[0] & 0x0F).ok_or(Violation::Opcode)?;
        let (length, mask_at) = match self.header[1] & 0x7F {
            126 => (u64::from(u16::from_be_bytes([self.header[2], self.header[3]])), 4),
            127 => {
                let mut eight = [0; 8];
                eight.copy_from_slice(&self.header[2..10]);
                (u64::from_be_bytes(eight), 10)
            }
            short => (u64::from(short), 2),
        };
        let shortest = match length {
            0..=125 => 2,
            126..=0xFFFF => 4,
            _ => 10,
        };
        if shortest != mask_at || length >> 63 != 0 {
            return Err(Violation::Length);
        }
        let room = self.message_bytes_max - self.message.len();
        let length = usize::try_from(length).map_err(|_| Violation::TooLarge)?;
        if !opcode.is_control() && length > room {
            return Err(Violation::TooLarge);
        }
        let mut mask = [0; 4];
        mask.copy_from_slice(&self.header[mask_at..mask_at + 4]);
        Ok(Frame { opcode, last: self.header[0] & 0x80 != 0, mask, length, done: 0 })
    }

    /// Moves payload to where it belongs; the frame once it is whole.
    fn take_payload(&mut self, input: &mut &[u8]) -> Option<Frame> {
        let frame = self.frame.as_mut()?;
        let (portion, rest) = input.split_at(input.len().min(frame.length - frame.done));
        *input = rest;
        let target = if frame.opcode.is_control() { &mut self.control } else { &mut self.message };
        let start = target.len();
        // Memory grows with what arrives, not with what a header promises.
        target.extend_from_slice(portion);
        let mut mask = frame.mask;
        mask.rotate_left(frame.done % 4);
        fastwebsockets::unmask(&mut target[start..], mask);
        frame.done += portion.len();
        if frame.done == frame.length { self.frame.take() } else { None }
    }

    fn finish(&mut self, frame: Frame) -> Result<Event, Violation> {
        match frame.opcode {
            Opcode::Ping => Ok(Event::Ping(std::mem::take(&mut self.control).into())),
            Opcode::Pong => {
                self.control = Vec::new();
                Ok(Event::Pong)
            }
            Opcode::Close => {
                self.ended = true;
                self.message = Vec::new();
                read_close(&std::mem::take(&mut self.control)).map(Event::Close)
            }
            Opcode::Text => self.finish_part(Kind::Text, frame.last),
            Opcode::Binary => self.finish_part(Kind::Binary, frame.last),
            Opcode::Continuation => {
                let kind = self.kind.ok_or(Violation::NothingToContinue)?;
                self.finish_part(kind, frame.last)
            }
        }
    }

    fn finish_part(&mut self, kind: Kind, last: bool) -> Result<Event, Violation> {
        if !last {
            self.kind = Some(kind);
            return Ok(Event::Part);
        }
        self.kind = None;
        let message = std::mem::take(&mut self.message);
        match kind {
            Kind::Text => String::from_utf8(message).map(Event::Text).map_err(|_| Violation::Utf8),
            Kind::Binary => Ok(Event::Binary(message)),
        }
    }
}

/// Length of a whole header, as its second byte says.
const fn header_bytes(second: u8) -> usize {
    let extended = match second & 0x7F {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    2 + extended + 4
}

fn read_close(payload: &[u8]) -> Result<Option<u16>, Violation> {
    match payload {
        [] => Ok(None),
        [_] => Err(Violation::CloseFrame),
        [high, low, reason @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            if !may_be_sent(code) {
                return Err(Violation::CloseFrame);
            }
            std::str::from_utf8(reason).map_err(|_| Violation::Utf8)?;
            Ok(Some(code))
        }
    }
}

/// Codes that may stand in a close frame (RFC 6455, 7.4, and the registry up to 1014).
const fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

#[cfg(test)]
mod tests;
