//! WebSocket termination: handshake by hyper and fastwebsockets, frames by a small strict codec of our own.
//!
//! The [`Decoder`] is fed with bytes and keeps its state in itself, so dropping a read loses nothing and an
//! idle connection holds no buffer. The [`Writer`] takes payloads that were encoded once for everybody and
//! writes many frames in one system call. `docs/decisions/0002-own-websocket-reader.md` says why.

pub mod decoder;
pub mod handshake;
pub mod socket;
pub mod writer;

pub use decoder::{Decoder, Event, Violation};
pub use socket::{ReadEnd, Socket};
pub use writer::Writer;

/// What a frame carries (RFC 6455, 5.2), continuations apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Opcode {
    /// A part of the message under way.
    Continuation,
    /// UTF-8 text.
    Text,
    /// Bytes.
    Binary,
    /// The last frame of its sender.
    Close,
    /// To be answered by a pong.
    Ping,
    /// The answer to a ping, or a sign of life.
    Pong,
}

impl Opcode {
    fn read(bits: u8) -> Option<Self> {
        match bits {
            0x0 => Some(Self::Continuation),
            0x1 => Some(Self::Text),
            0x2 => Some(Self::Binary),
            0x8 => Some(Self::Close),
            0x9 => Some(Self::Ping),
            0xA => Some(Self::Pong),
            _ => None,
        }
    }

    const fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0x0,
            Self::Text => 0x1,
            Self::Binary => 0x2,
            Self::Close => 0x8,
            Self::Ping => 0x9,
            Self::Pong => 0xA,
        }
    }

    const fn is_control(self) -> bool {
        match self {
            Self::Close | Self::Ping | Self::Pong => true,
            Self::Continuation | Self::Text | Self::Binary => false,
        }
    }
}

/// Payload of a control frame, in bytes (RFC 6455, 5.5).
pub const CONTROL_BYTES_MAX: usize = 125;
