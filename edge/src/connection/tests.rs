use bytes::Bytes;
use futures::FutureExt as _;
use futures::task::noop_waker_ref;
use presence_runtime::clock::ManualClock;
use presence_runtime::tokens::{GeneratedKeys, KeySet};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;
use crate::hub::ConnKey;
use crate::limits::REPORTS_MAX;

const KEY: ConnKey = ConnKey { index: 3, version: 1 };

/// A connection whose far end and hub are played by the test.
struct Stage {
    connection: Option<Connection<DuplexStream>>,
    far: DuplexStream,
    reports: Reports,
    hand: ManualClock,
    mailbox: Arc<Mailbox>,
    inbox: Inbox,
}

impl Stage {
    /// `window` is what the transport holds, in bytes.
    fn new(window: usize, encoding: Encoding) -> Self {
        let (clock, hand) = Clock::manual();
        let keys = GeneratedKeys::from_seed([7; 32]);
        let verifier = Verifier::new(KeySet::parse(keys.jwks().as_bytes()).unwrap());
        let (inbox, reports) = Inbox::pair();
        let shared = Arc::new(Shared { clock, verifier, inbox: inbox.clone() });
        let (near, far) = duplex(window);
        let connection = Connection::new(near, &[], (ConnectionId(1), encoding), shared, (None, None));
        let mailbox = Arc::clone(&connection.mailbox);
        Self { connection: Some(connection), far, reports, hand, mailbox, inbox }
    }

    /// One that the hub has accepted.
    fn accepted() -> Self {
        Self::speaking(Encoding::Json)
    }

    fn speaking(encoding: Encoding) -> Self {
        let mut stage = Self::new(1024, encoding);
        assert!(stage.poll().is_pending());
        assert!(matches!(stage.next(), Some(What::Accepted(_))));
        stage.mailbox.name(KEY);
        stage
    }

    fn poll(&mut self) -> Poll<()> {
        let connection = self.connection.as_mut().expect("not dropped");
        Pin::new(connection).poll(&mut Context::from_waker(noop_waker_ref()))
    }

    fn next(&mut self) -> Option<What> {
        self.reports.try_next().map(|report| report.what)
    }

    async fn client_sends(&mut self, frame: &[u8]) {
        self.far.write_all(frame).await.unwrap();
    }

    /// Throws away what was written.
    fn drain_answers(&mut self) {
        let mut bytes = [0; 1024];
        while self.far.read(&mut bytes).now_or_never().is_some() {}
    }

    fn client_reads(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.far.read_exact(&mut bytes).now_or_never().expect("written already").unwrap();
        bytes
    }
}

/// A masked frame; the mask is zero.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[first, 0x80 | length, 0, 0, 0, 0][..], payload].concat()
}

#[tokio::test]
async fn messages_are_parsed_and_their_tokens_verified() {
    let mut stage = Stage::accepted();
    stage.client_sends(&frame(0x81, br#"{"t":"leave","room":"r1"}"#)).await;
    stage.client_sends(&frame(0x81, br#"{"t":"watch","room":"r1","token":"x"}"#)).await;
    stage.client_sends(&frame(0x81, b"{")).await;
    stage.client_sends(&frame(0x82, b"{}")).await;
    assert!(stage.poll().is_pending());
    assert!(matches!(stage.next(), Some(What::Message(ClientMessage::Leave { .. }, None))));
    let Some(What::Message(ClientMessage::Watch { .. }, verified)) = stage.next() else { panic!("no watch") };
    assert_eq!(verified, Some(Err(TokenRefusal::Malformed)));
    for _ in 0..2 {
        let Some(What::Unreadable(Unreadable::Fatal(code, _))) = stage.next() else { panic!("not fatal") };
        assert_eq!(code, CloseCode::Malformed);
    }
}

#[tokio::test]
async fn protobuf_goes_in_binary_messages_both_ways_and_text_is_malformed() {
    let mut stage = Stage::speaking(Encoding::Proto);
    // ClientMessage.leave of the room "r1".
    stage.client_sends(&frame(0x82, b"\x2a\x04\x0a\x02r1")).await;
    stage.client_sends(&frame(0x81, br#"{"t":"leave","room":"r1"}"#)).await;
    stage.mailbox.send(vec![Bytes::from_static(b"a")]);
    assert!(stage.poll().is_pending());
    assert_eq!(stage.client_reads(3), b"\x82\x01a");
    assert!(matches!(stage.next(), Some(What::Written)));
    assert!(matches!(stage.next(), Some(What::Message(ClientMessage::Leave { .. }, None))));
    let Some(What::Unreadable(Unreadable::Fatal(code, _))) = stage.next() else { panic!("not fatal") };
    assert_eq!(code, CloseCode::Malformed);
}

#[tokio::test]
async fn frames_are_written_in_order_and_that_is_reported_once() {
    let mut stage = Stage::accepted();
    stage.mailbox.send(vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")]);
    stage.mailbox.ping();
    assert!(stage.poll().is_pending());
    assert_eq!(stage.client_reads(8), b"\x89\x00\x81\x01a\x81\x01b");
    assert!(matches!(stage.next(), Some(What::Written)));
    assert!(stage.poll().is_pending());
    assert!(stage.next().is_none());
}

#[tokio::test]
async fn pings_are_answered_at_once_and_signs_of_life_told_sparingly() {
    let mut stage = Stage::accepted();
    stage.client_sends(&frame(0x89, b"1")).await;
    assert!(stage.poll().is_pending());
    assert_eq!(stage.client_reads(3), b"\x8A\x011");
    assert!(stage.next().is_none(), "it was accepted less than 100 ms ago");
    stage.hand.advance(HEARD_EVERY);
    for _ in 0..3 {
        stage.client_sends(&frame(0x8A, b"")).await;
    }
    assert!(stage.poll().is_pending());
    assert!(matches!(stage.next(), Some(What::Heard)));
    assert!(stage.next().is_none());
}

#[tokio::test]
async fn so_many_frames_may_be_no_messages_and_the_next_one_floods() {
    for (first, payload) in [(0x89, &b""[..]), (0x8A, b"x"), (0x01, b"")] {
        let mut stage = Stage::accepted();
        stage.client_sends(&frame(first, payload)).await;
        let more = if first == 0x01 { frame(0x00, payload) } else { frame(first, payload) };
        for _ in 1..FRAME_RATE.burst {
            stage.client_sends(&more).await;
            assert!(stage.poll().is_pending());
            stage.drain_answers();
        }
        assert!(stage.next().is_none());
        stage.hand.advance(FRAME_RATE.interval);
        stage.client_sends(&more).await;
        assert!(stage.poll().is_pending());
        assert!(stage.next().is_none(), "one more each interval");
        stage.client_sends(&more).await;
        assert!(stage.poll().is_pending());
        assert!(matches!(stage.next(), Some(What::Unreadable(Unreadable::Flood))));
    }
}

#[tokio::test]
async fn a_full_inbox_stops_reading_but_not_writing() {
    let mut stage = Stage::accepted();
    for _ in 0..REPORTS_MAX {
        assert!(stage.inbox.try_place());
        stage.inbox.put(&stage.mailbox, What::Heard);
    }
    for room in ["r1", "r2"] {
        stage.client_sends(&frame(0x81, format!(r#"{{"t":"leave","room":"{room}"}}"#).as_bytes())).await;
    }
    assert!(stage.poll().is_pending());
    stage.mailbox.send(vec![Bytes::from_static(b"a")]);
    assert!(stage.poll().is_pending());
    assert_eq!(stage.client_reads(3), b"\x81\x01a");
    for _ in 0..REPORTS_MAX {
        assert!(matches!(stage.next(), Some(What::Heard)));
    }
    assert!(matches!(stage.next(), Some(What::Written)));
    assert!(stage.poll().is_pending());
    for _ in 0..2 {
        assert!(matches!(stage.next(), Some(What::Message(ClientMessage::Leave { .. }, None))));
    }
}

#[tokio::test]
async fn a_reader_that_does_not_read_is_given_up_as_too_slow() {
    for goes_on_reading in [false, true] {
        let mut stage = Stage::accepted();
        stage.mailbox.send(vec![Bytes::from(vec![b'x'; 4096])]);
        assert!(stage.poll().is_pending());
        stage.hand.advance(WRITE_WITHIN - Duration::from_millis(1));
        assert!(stage.poll().is_pending());
        assert!(stage.next().is_none());
        stage.hand.advance(Duration::from_millis(1));
        assert!(stage.poll().is_pending(), "there is something left to say");
        assert!(matches!(stage.next(), Some(What::Closed(ConnEnd::TooSlow))));
        if goes_on_reading {
            for _ in 0..4 {
                stage.client_reads(1024);
                assert!(stage.poll().is_pending());
            }
            let head_and_close = stage.client_reads(4 + 12);
            assert_eq!(&head_and_close[4..], b"\x88\x0A\x03\xF5too slow");
            stage.far.shutdown().await.unwrap();
        } else {
            stage.hand.advance(CLOSE_WITHIN);
        }
        assert!(stage.poll().is_ready());
        stage.connection = None;
        assert!(stage.next().is_none(), "told once");
    }
}

#[tokio::test]
async fn the_hub_closes_after_what_it_handed_over_and_is_not_told() {
    let mut stage = Stage::accepted();
    stage.mailbox.send(vec![Bytes::from_static(b"last")]);
    stage.mailbox.close(CloseCode::Superseded, "superseded");
    assert!(stage.poll().is_pending());
    assert_eq!(stage.client_reads(20), b"\x81\x04last\x88\x0C\x11\x39superseded");
    stage.client_sends(&frame(0x81, b"{")).await;
    assert!(stage.poll().is_pending(), "it waits for the peer to close as well");
    stage.far.shutdown().await.unwrap();
    assert!(stage.poll().is_ready());
    stage.connection = None;
    assert!(stage.next().is_none());
}

#[tokio::test]
async fn a_peer_that_does_not_close_is_cut() {
    let mut stage = Stage::accepted();
    stage.mailbox.close(CloseCode::Restart, "drain");
    assert!(stage.poll().is_pending());
    stage.hand.advance(CLOSE_WITHIN);
    assert!(stage.poll().is_ready());
}

#[tokio::test]
async fn a_goodbye_of_the_peer_is_answered_and_told() {
    let mut stage = Stage::accepted();
    stage.client_sends(&frame(0x81, br#"{"t":"leave","room":"r1"}"#)).await;
    stage.client_sends(&frame(0x88, b"\x03\xE9")).await;
    assert!(stage.poll().is_ready());
    assert_eq!(stage.client_reads(4), b"\x88\x02\x03\xE9");
    assert!(matches!(stage.next(), Some(What::Message(ClientMessage::Leave { .. }, None))), "in order");
    assert!(matches!(stage.next(), Some(What::Closed(ConnEnd::Lost))));
}

#[tokio::test]
async fn violations_are_closed_with_their_code() {
    for (bytes, close) in [
        (&b"\x81\x01x"[..], &b"\x88\x15\x03\xEAframe is not masked"[..]),
        (b"\x81\x81\0\0\0\0\xFF", b"\x88\x13\x03\xEFtext is not UTF-8"),
        (b"\x81\xFE\x40\x01\0\0\0\0", b"\x88\x16\x11\x3Dmessage is too large"),
    ] {
        let mut stage = Stage::accepted();
        stage.client_sends(bytes).await;
        assert!(stage.poll().is_pending());
        assert_eq!(stage.client_reads(close.len()), close);
        assert!(matches!(stage.next(), Some(What::Closed(ConnEnd::Lost))));
    }
}

#[tokio::test]
async fn whatever_way_it_ends_the_hub_hears_of_it_once() {
    let mut stage = Stage::accepted();
    stage.connection = None;
    assert!(matches!(stage.next(), Some(What::Closed(ConnEnd::Lost))));
    assert!(stage.next().is_none());

    let mut stage = Stage::accepted();
    let (unused, _) = duplex(1);
    drop(std::mem::replace(&mut stage.far, unused));
    assert!(stage.poll().is_ready());
    stage.connection = None;
    assert!(matches!(stage.next(), Some(What::Closed(ConnEnd::Lost))));
    assert!(stage.next().is_none());
}

#[test]
fn a_connection_is_small() {
    use presence_runtime::network::Stream;
    let bytes = size_of::<Connection<Stream>>() + size_of::<Mailbox>();
    assert!(bytes <= 512, "{bytes} bytes for each idle connection");
}
