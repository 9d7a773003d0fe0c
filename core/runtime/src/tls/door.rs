//! What stands between a listener and its protocol: TLS, or nothing but a look at who comes.
//!
//! Whoever speaks TLS to a plain listener, or the reverse, is told so in the words of HTTP/1.1: these are what
//! browsers, libraries and searches know this mistake by.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use prometheus::IntCounter;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{PeerNames, ServerTls};
use crate::clock::Clock;
use crate::limits::{TLS_HANDSHAKE_WITHIN, TLS_HANDSHAKES_MAX, TLS_PARTING_WITHIN, TLS_SAID_EVERY};
use crate::network::{Places, Stream};
use crate::telemetry::{Metrics, Seldom};

/// What a TLS client says first: the kind of a record that has a handshake (RFC 8446, 5.1).
const HANDSHAKE_RECORD: u8 = 22;

/// Takes clients in, in plain or by TLS. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Door(Arc<Inner>);

struct Inner {
    /// Whose door it is, for the log.
    listener: &'static str,
    tls: Option<ServerTls>,
    pending: Places,
    clock: Clock,
    outcomes: [IntCounter; Outcome::ALL.len()],
    said: Seldom<{ Outcome::ALL.len() }>,
}

/// A transport that was taken in.
#[derive(Debug)]
pub struct Entered {
    /// What to speak over.
    pub stream: Stream,
    /// Who is there, if that was proved.
    pub names: PeerNames,
}

/// Why a transport was not taken in. It has been told and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turned {
    /// It was too slow.
    Late,
    /// It had to make room.
    Crowded,
    /// It spoke the wrong thing, did not prove itself, or went.
    Away,
}

/// What became of a transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    Failed,
    Plain,
    Tls,
    Late,
    Crowded,
    Gone,
}

impl Outcome {
    const ALL: [Self; 7] =
        [Self::Done, Self::Failed, Self::Plain, Self::Tls, Self::Late, Self::Crowded, Self::Gone];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Plain => "plain",
            Self::Tls => "tls",
            Self::Late => "late",
            Self::Crowded => "crowded",
            Self::Gone => "gone",
        }
    }
}

/// Why a handshake ended.
enum End {
    /// Plain text where TLS is spoken.
    Plain,
    /// TLS where it is not.
    Tls,
    /// The peer went, or the transport broke.
    Gone,
    /// By what the library says.
    Failed(io::Error),
}

impl Door {
    /// The door of a listener of a component (`core`, `edge`), which the log calls `listener`. Plain without `tls`.
    /// Registers `presence_<component>_tls_handshakes_total{outcome}`.
    #[must_use]
    pub fn new(
        (component, listener): (&str, &'static str),
        tls: Option<ServerTls>,
        metrics: &Metrics,
        clock: Clock,
    ) -> Self {
        if let Some(tls) = &tls {
            tls.ends().show(metrics);
        }
        let handshakes = metrics.counter_vec(
            &format!("presence_{component}_tls_handshakes_total"),
            "TLS handshakes by what became of them; of plain listeners, transports that did not get further",
            &["outcome"],
        );
        Self(Arc::new(Inner {
            listener,
            tls,
            pending: Places::new(TLS_HANDSHAKES_MAX),
            clock,
            outcomes: Outcome::ALL.map(|outcome| handshakes.with_label_values(&[outcome.as_str()])),
            said: Seldom::new(TLS_SAID_EVERY),
        }))
    }

    /// Whether TLS is spoken here.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.0.tls.is_some()
    }

    /// Takes a transport in, within [`TLS_HANDSHAKE_WITHIN`]. At most [`TLS_HANDSHAKES_MAX`] are on their way;
    /// for one more the one that has taken longest is cut.
    ///
    /// # Errors
    /// [`Turned`].
    pub async fn enter(&self, stream: Stream, peer: IpAddr) -> Result<Entered, Turned> {
        let Some(place) = self.0.pending.take() else { return Err(self.turned(Outcome::Crowded)) };
        tokio::select! {
            biased;
            entered = self.pass(stream, peer) => entered,
            () = place.gives_way() => Err(self.turned(Outcome::Crowded)),
            () = self.0.clock.sleep(TLS_HANDSHAKE_WITHIN) => {
                tracing::debug!(%peer, listener = self.0.listener, "nothing was said, or no handshake done, in time");
                Err(self.turned(Outcome::Late))
            }
        }
    }

    async fn pass(&self, mut stream: Stream, peer: IpAddr) -> Result<Entered, Turned> {
        let end = match (first_byte(&stream).await, &self.0.tls) {
            (Err(_), _) => End::Gone,
            (Ok(Some(HANDSHAKE_RECORD)), None) => End::Tls,
            (Ok(_), None) => return Ok(Entered { stream, names: PeerNames::default() }),
            (Ok(Some(HANDSHAKE_RECORD) | None), Some(tls)) => match tls.accept(stream).await {
                Ok((stream, names)) => {
                    self.0.outcomes[Outcome::Done as usize].inc();
                    return Ok(Entered { stream, names });
                }
                Err(error) => return Err(self.failed(End::of(error), peer)),
            },
            (Ok(Some(_)), Some(_)) => End::Plain,
        };
        let words = match &end {
            End::Plain => Some("this port speaks TLS: use https:// or wss://"),
            End::Tls => Some("this port speaks no TLS: use http:// or ws://"),
            End::Gone | End::Failed(_) => None,
        };
        let turned = self.failed(end, peer);
        if let Some(words) = words {
            tokio::select! {
                biased;
                () = part(&mut stream, words) => {}
                () = self.0.clock.sleep(TLS_PARTING_WITHIN) => {}
            }
        }
        Err(turned)
    }

    /// Counts, and says so now and then.
    fn failed(&self, end: End, peer: IpAddr) -> Turned {
        let listener = self.0.listener;
        let outcome = match &end {
            End::Plain => Outcome::Plain,
            End::Tls => Outcome::Tls,
            End::Gone => Outcome::Gone,
            End::Failed(_) => Outcome::Failed,
        };
        let turned = self.turned(outcome);
        let count = self.0.outcomes[outcome as usize].get();
        if outcome != Outcome::Gone && self.0.said.is_due(outcome as usize, self.0.clock.now()) {
            match end {
                End::Plain => tracing::warn!(
                    listener, %peer, count,
                    "plain text came to a listener that speaks TLS: its clients need https:// or wss://"
                ),
                End::Tls => tracing::warn!(
                    listener, %peer, count,
                    "TLS came to a listener without it: its clients need http:// or ws://, or it a certificate"
                ),
                End::Failed(error) => {
                    tracing::warn!(listener, %peer, count, %error, "a TLS handshake failed")
                }
                End::Gone => {}
            }
        }
        turned
    }

    fn turned(&self, outcome: Outcome) -> Turned {
        self.0.outcomes[outcome as usize].inc();
        match outcome {
            Outcome::Late => Turned::Late,
            Outcome::Crowded => Turned::Crowded,
            Outcome::Done | Outcome::Failed | Outcome::Plain | Outcome::Tls | Outcome::Gone => Turned::Away,
        }
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("listener", &self.0.listener).field("tls", &self.is_tls()).finish()
    }
}

impl End {
    fn of(error: io::Error) -> Self {
        let is_said = error.get_ref().is_some_and(|cause| cause.is::<rustls::Error>());
        if is_said { Self::Failed(error) } else { Self::Gone }
    }
}

/// What a peer says first, left unread; none if that cannot be seen. Cancel-safe.
async fn first_byte(stream: &Stream) -> io::Result<Option<u8>> {
    let Some(tcp) = stream.as_tcp() else { return Ok(None) };
    let mut first = [0; 1];
    match tcp.peek(&mut first).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(Some(first[0])),
    }
}

/// Says why, and waits until the peer has read it: closing at once might take the words back.
async fn part(stream: &mut Stream, words: &str) {
    let (length, head) = (words.len() + 1, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n");
    let answer = format!("{head}Content-Length: {length}\r\nConnection: close\r\n\r\n{words}\n");
    if stream.write_all(answer.as_bytes()).await.is_ok() && stream.shutdown().await.is_ok() {
        let mut unread = [0; 1024];
        while stream.read(&mut unread).await.is_ok_and(|read| read > 0) {}
    }
}
