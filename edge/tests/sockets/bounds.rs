//! Bounds of requests, as whoever makes them meets them: below, at and above.

use std::time::Duration;

use presence_edge::limits::{
    HANDSHAKES_MAX, REQUEST_HEAD_BYTES_MAX, REQUESTS_WITHIN, SEEING_OFF_MAX, TURNING_AWAY_MAX,
};
use presence_edge::settings::{AdmissionLimits, Settings};
use presence_runtime::clock::{Clock, ManualClock};
use presence_runtime::network::Stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::stage::{self, Edge, handshake, read_head, settings, within};

const SCRIPT: &str = "GET /presence.js HTTP/1.1\r\nHost: edge\r\n";

fn edge_by_hand(connections: usize) -> (Edge, ManualClock) {
    let limits = AdmissionLimits { handshakes_per_second: 10_000, ..AdmissionLimits::of(connections) };
    let (clock, hand) = Clock::manual();
    (stage::edge(Settings { limits, ..settings() }, clock, None).unwrap(), hand)
}

fn edge(connections: usize) -> Edge {
    edge_by_hand(connections).0
}

impl Edge {
    /// A transport that has begun to ask: who has said nothing makes room for others.
    async fn begin(&self) -> Stream {
        let mut stream = self.connect().await;
        stream.write_all(b"GET ").await.unwrap();
        stream
    }
}

/// Asks over a transport; the status of the answer, of which the body is read. 0: none came.
async fn ask(stream: &mut Stream, request: &str) -> u16 {
    let _ = stream.write_all(request.as_bytes()).await;
    let (status, head) = read_head(stream).await;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.unwrap();
    status
}

#[tokio::test]
async fn the_head_of_a_request_is_no_longer_than_it_may_be() {
    within(async {
        let edge = edge(10);
        let of = |bytes: usize| {
            let rest = bytes - SCRIPT.len() - "Cookie: \r\n\r\n".len();
            format!("{SCRIPT}Cookie: {}\r\n\r\n", "c".repeat(rest))
        };
        for (bytes, status) in [
            (REQUEST_HEAD_BYTES_MAX - 1, 200),
            (REQUEST_HEAD_BYTES_MAX, 200),
            (REQUEST_HEAD_BYTES_MAX + 1, 431),
            (REQUEST_HEAD_BYTES_MAX * 4, 431),
        ] {
            let request = of(bytes);
            assert_eq!(request.len(), bytes);
            assert_eq!(ask(&mut edge.connect().await, &request).await, status, "{bytes}");
        }
    })
    .await;
}

#[tokio::test]
async fn so_many_transports_are_heard_before_they_are_websockets_and_the_next_one_waits() {
    within(async {
        let edge = edge(10);
        let mut slow = Vec::new();
        for _ in 1..HANDSHAKES_MAX {
            slow.push(edge.begin().await);
        }
        assert_eq!(ask(&mut edge.connect().await, &handshake("")).await, 101, "at the limit");
        slow.push(edge.begin().await);
        // Until all that came before it is accepted.
        let (mut waiting, request) = (edge.connect().await, handshake(""));
        let mut asking = std::pin::pin!(ask(&mut waiting, &request));
        let early = tokio::time::timeout(Duration::from_millis(500), &mut asking).await;
        assert!(early.is_err(), "above the limit nobody is heard");
        slow.pop();
        assert_eq!(asking.await, 101, "once there is room");
    })
    .await;
}

#[tokio::test]
async fn so_many_pages_are_seen_off_at_once_and_the_next_one_sees_the_status() {
    within(async {
        let edge = edge(1);
        let mut first = edge.connect().await;
        assert_eq!(ask(&mut first, &handshake("")).await, 101);
        let page = handshake("Origin: https://app.example\r\n");
        let mut seen_off = Vec::new();
        for number in 1..=SEEING_OFF_MAX {
            let mut stream = edge.connect().await;
            assert_eq!(ask(&mut stream, &page).await, 101, "{number}");
            seen_off.push(stream);
        }
        assert_eq!(ask(&mut edge.connect().await, &page).await, 503, "one above");
        assert_eq!(ask(&mut edge.connect().await, &handshake("")).await, 503, "nobody else is seen off");
        drop(seen_off.pop());
        while ask(&mut edge.connect().await, &page).await != 101 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_transport_that_is_no_websocket_lasts_so_long_and_no_longer() {
    within(async {
        let (edge, hand) = edge_by_hand(10);
        let (mut in_time, mut late) = (edge.connect().await, edge.connect().await);
        let mut websocket = edge.connect().await;
        assert_eq!(ask(&mut websocket, &handshake("")).await, 101);
        for slow in [&mut in_time, &mut late] {
            slow.write_all(SCRIPT.as_bytes()).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        hand.advance(REQUESTS_WITHIN - Duration::from_millis(1));
        assert_eq!(ask(&mut in_time, "\r\n").await, 200, "below");
        assert_eq!(
            ask(&mut in_time, &format!("{SCRIPT}\r\n")).await,
            0,
            "one request, and its place is free"
        );
        hand.advance(Duration::from_millis(1));
        assert_eq!(ask(&mut late, "\r\n").await, 0, "at the limit");
    })
    .await;
}

#[test]
fn few_are_turned_away_in_words_as_each_takes_a_descriptor() {
    const { assert!(TURNING_AWAY_MAX + SEEING_OFF_MAX < HANDSHAKES_MAX) };
}
