//! One task for each WebSocket: reads, parses and verifies, hands over to the hub, writes what it gets.
//!
//! A future written by hand, because every byte of it is paid once for each idle connection.

mod inbox;
mod mailbox;

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use presence_model::claim::{Claims, TokenRefusal};
use presence_model::gate::Gate;
use presence_model::id::ConnectionId;
use presence_model::limits::MESSAGE_BYTES_MAX;
use presence_model::link::Token;
use presence_model::time::Mono;
use presence_runtime::clock::Clock;
use presence_runtime::tokens::Verifier;
use tokio::io::{AsyncRead, AsyncWrite};

pub(crate) use self::inbox::{Gone, Inbox, Report, Reports, What};
pub(crate) use self::mailbox::Mailbox;
use crate::http::Places;
use crate::hub::{ConnEnd, Unreadable};
use crate::limits::{CLOSE_WITHIN, FRAME_RATE, HEARD_EVERY, WRITE_WITHIN};
use crate::protocol::{ClientMessage, CloseCode, Encoding, json, proto};
use crate::ws::{Event, ReadEnd, Socket};

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) verifier: Verifier,
    pub(crate) inbox: Inbox,
}

/// An accepted WebSocket, until its transport is closed. Whatever way it ends, the hub hears of it once.
pub(crate) struct Connection<S> {
    socket: Socket<S>,
    encoding: Encoding,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    heard: Mono,
    /// Of frames that are no messages.
    frames: Gate,
    report_written: bool,
    phase: Phase,
    /// Runs while the socket takes nothing, and while it is being closed.
    deadline: Option<BoxFuture<'static, ()>>,
    /// Given back with the connection.
    places: Option<Places>,
}

enum Phase {
    Open,
    /// Reading has stopped until the hub can take this.
    Full(Box<Waiting>),
    /// The close frame is the last that is written.
    Closing(Closing),
    Over,
}

struct Waiting {
    place: BoxFuture<'static, Result<(), Gone>>,
    what: What,
}

/// How far the closing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    /// Written by us first: wait until the peer has closed as well, so that what was written arrives.
    Flushing,
    /// The peer closed first: nothing comes after.
    Answering,
    /// The outbound side is shut.
    Discarding,
}

/// What became of reading or writing.
#[expect(clippy::large_enum_variant, reason = "lives on the stack during one poll")]
enum Step {
    /// A pong may wait to be written.
    Again,
    Report(What),
    /// The hub does not know yet: tell it.
    End(ConnEnd),
    /// A close frame waits to be written. `Some`: the hub is to be told.
    Close(Closing, Option<ConnEnd>),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// A connection that has not told the hub yet. `leftover` was read behind the handshake.
    pub(crate) fn new(
        stream: S,
        leftover: &[u8],
        (connection, encoding): (ConnectionId, Encoding),
        shared: Arc<Shared>,
        (places, address): (Option<Places>, Option<IpAddr>),
    ) -> Self {
        let waiting = Waiting { place: shared.inbox.place(), what: What::Accepted(encoding) };
        Self {
            socket: Socket::new(stream, leftover, MESSAGE_BYTES_MAX),
            encoding,
            heard: shared.clock.now(),
            frames: Gate::default(),
            shared,
            mailbox: Arc::new(Mailbox::new(connection, address)),
            report_written: false,
            phase: Phase::Full(Box::new(waiting)),
            deadline: None,
            places,
        }
    }

    /// Takes what the hub handed over and writes as much as the socket takes; ready only at an end.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let mail = self.mailbox.take(cx.waker());
        self.report_written |= mail.report_written;
        for frame in mail.frames {
            self.socket.writer().message(self.encoding, frame);
        }
        if let Some((code, reason)) = mail.close {
            self.socket.writer().close(Some(code.number()), reason);
            return Poll::Ready(Step::Close(Closing::Flushing, None));
        }
        if mail.ping {
            self.socket.writer().ping();
        }
        match self.socket.poll_flush(cx) {
            Poll::Ready(Ok(())) => {
                self.deadline = None;
                if std::mem::take(&mut self.report_written) {
                    self.shared.inbox.put(&self.mailbox, What::Written);
                }
                Poll::Pending
            }
            Poll::Ready(Err(_)) => Poll::Ready(Step::End(ConnEnd::Lost)),
            Poll::Pending => {
                ready!(self.poll_deadline(WRITE_WITHIN, cx));
                // Whoever goes on reading learns why; nobody waits for it for longer than for any close.
                self.socket.writer().close(Some(CloseCode::Overloaded.number()), "too slow");
                Poll::Ready(Step::Close(Closing::Flushing, Some(ConnEnd::TooSlow)))
            }
        }
    }

    fn poll_deadline(&mut self, within: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let clock = &self.shared.clock;
        let deadline = self.deadline.get_or_insert_with(|| {
            let (clock, at) = (clock.clone(), clock.now() + within);
            Box::pin(async move { clock.sleep_until(at).await })
        });
        deadline.as_mut().poll(cx)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let what = match ready!(self.socket.poll_event(cx)) {
            Ok(Event::Text(text)) => match self.encoding {
                Encoding::Json => self.read(json::parse(&text)),
                Encoding::Proto => wrong_kind("binary"),
            },
            Ok(Event::Binary(bytes)) => match self.encoding {
                Encoding::Json => wrong_kind("text"),
                Encoding::Proto => self.read(proto::parse(&bytes)),
            },
            Ok(Event::Part | Event::Ping(_) | Event::Pong) => match self.hear() {
                Some(what) => what,
                None => return Poll::Ready(Step::Again),
            },
            Ok(Event::Close(code)) => {
                self.socket.writer().close(code, "");
                return Poll::Ready(Step::Close(Closing::Answering, Some(ConnEnd::Lost)));
            }
            Err(ReadEnd::Violation(violation)) => {
                self.socket.writer().close(Some(violation.close_code()), &violation.to_string());
                return Poll::Ready(Step::Close(Closing::Flushing, Some(ConnEnd::Lost)));
            }
            Err(ReadEnd::Eof | ReadEnd::Io(_)) => return Poll::Ready(Step::End(ConnEnd::Lost)),
        };
        Poll::Ready(Step::Report(what))
    }

    /// A sign of life that is no message: told at most once in [`HEARD_EVERY`], and taken at [`FRAME_RATE`].
    fn hear(&mut self) -> Option<What> {
        let now = self.shared.clock.now();
        if self.frames.admit(FRAME_RATE, now).is_err() {
            return Some(What::Unreadable(Unreadable::Flood));
        }
        if now.since(self.heard) < HEARD_EVERY {
            return None;
        }
        self.heard = now;
        Some(What::Heard)
    }

    fn read(&mut self, message: Result<ClientMessage, Unreadable>) -> What {
        self.heard = self.shared.clock.now();
        match message {
            Ok(message) => {
                let verified = verify(&self.shared.verifier, &message);
                if let Some(Err(refusal)) = verified
                    && !self.may_fail()
                {
                    self.shared.verifier.refused(refusal, self.mailbox.bearer());
                    return What::Unreadable(Unreadable::Fatal(
                        CloseCode::RateLimited,
                        "too many tokens of this address do not verify".to_owned(),
                    ));
                }
                What::Message(message, verified)
            }
            Err(unreadable) => What::Unreadable(unreadable),
        }
    }

    /// A token did not verify. False: too many of this address do not.
    fn may_fail(&self) -> bool {
        let address = self.places.as_ref().and_then(|(_, address)| address.as_deref());
        address.is_none_or(|address| address.may_fail(self.shared.clock.now()))
    }

    /// One pass over an open connection.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if let Poll::Ready(step) = self.poll_write(cx) {
            return Poll::Ready(step);
        }
        match &mut self.phase {
            Phase::Full(waiting) => match ready!(waiting.place.as_mut().poll(cx)) {
                Ok(()) => {
                    if let Phase::Full(waiting) = std::mem::replace(&mut self.phase, Phase::Open) {
                        self.shared.inbox.put(&self.mailbox, waiting.what);
                    }
                }
                Err(Gone) => return Poll::Ready(Step::End(ConnEnd::Lost)),
            },
            Phase::Open | Phase::Closing(_) | Phase::Over => {}
        }
        self.poll_read(cx)
    }

    fn take_step(&mut self, step: Step) {
        match step {
            Step::Again => {}
            Step::Report(what) if self.shared.inbox.try_place() => {
                self.shared.inbox.put(&self.mailbox, what);
            }
            Step::Report(what) => {
                let place = self.shared.inbox.place();
                self.phase = Phase::Full(Box::new(Waiting { place, what }));
            }
            Step::End(end) => {
                self.tell_end(end);
                self.phase = Phase::Over;
            }
            Step::Close(closing, end) => {
                if let Some(end) = end {
                    self.tell_end(end);
                }
                self.deadline = None;
                self.phase = Phase::Closing(closing);
            }
        }
    }

    fn tell_end(&self, end: ConnEnd) {
        self.shared.inbox.put(&self.mailbox, What::Closed(end));
    }

    /// Writes what is left, the close frame last, then sees the peer off. Bounded by [`CLOSE_WITHIN`].
    fn poll_closing(&mut self, closing: Closing, cx: &mut Context<'_>) -> Poll<()> {
        if self.poll_deadline(CLOSE_WITHIN, cx).is_ready() {
            return Poll::Ready(());
        }
        if closing != Closing::Discarding {
            if ready!(self.socket.poll_flush(cx)).is_err() || ready!(self.socket.poll_shutdown(cx)).is_err() {
                return Poll::Ready(());
            }
            if closing == Closing::Answering {
                return Poll::Ready(());
            }
            self.phase = Phase::Closing(Closing::Discarding);
        }
        self.socket.poll_discard(cx).map(|_| ())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Connection<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match &self.phase {
                Phase::Open | Phase::Full(_) => {
                    let step = ready!(self.poll_open(cx));
                    self.take_step(step);
                }
                Phase::Closing(closing) => {
                    let closing = *closing;
                    ready!(self.poll_closing(closing, cx));
                    self.phase = Phase::Over;
                }
                Phase::Over => return Poll::Ready(()),
            }
        }
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        match self.phase {
            // Dropped before its end: by a panic, or by the end of the runtime.
            Phase::Open | Phase::Full(_) => {
                self.shared.inbox.put(&self.mailbox, What::Closed(ConnEnd::Lost));
            }
            Phase::Closing(_) | Phase::Over => {}
        }
    }
}

fn wrong_kind(right: &str) -> What {
    let why = format!("this subprotocol has {right} messages only");
    What::Unreadable(Unreadable::Fatal(CloseCode::Malformed, why))
}

/// Verifies the token that a message carries. Its time is judged by the hub, which knows the store's clock.
fn verify(verifier: &Verifier, message: &ClientMessage) -> Option<Result<Claims, TokenRefusal>> {
    let Token(token) = match message {
        ClientMessage::Join(join) => &join.token,
        ClientMessage::Watch { token, .. } | ClientMessage::Token { token, .. } => token,
        ClientMessage::Update { .. }
        | ClientMessage::Leave { .. }
        | ClientMessage::Resync { .. }
        | ClientMessage::Ping { .. } => return None,
    };
    Some(verifier.verify(token))
}

#[cfg(test)]
mod tests;
