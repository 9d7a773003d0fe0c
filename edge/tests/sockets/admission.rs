//! Who may come in, as a client meets it at the socket: limits at, below and above them, and where clients come from.

use std::time::Duration;

use presence_edge::limits::HANDSHAKE_WITHIN;
use presence_edge::settings::{AdmissionLimits, Settings, Source, Whence};
use presence_runtime::clock::Clock;
use presence_runtime::network::Stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::stage::{self, Edge, handshake, settings, within};

const LIMITS: AdmissionLimits =
    AdmissionLimits { per_address: Some(2), handshakes_per_second: 1_000, ..AdmissionLimits::of(100) };

fn edge(limits: AdmissionLimits, source: Source, trusted: &[&str]) -> Edge {
    let whence = Whence { source, trusted: trusted.iter().map(|net| net.parse().unwrap()).collect() };
    stage::edge(Settings { limits, whence, ..settings() }, Clock::system(), None).unwrap()
}

impl Edge {
    async fn ask(&self, more: &str) -> (u16, String, Stream) {
        self.say(handshake(more).as_bytes()).await
    }

    /// The status of a handshake, and the transport that is to be kept for it to last.
    async fn status(&self, more: &str) -> (u16, Stream) {
        let (status, _, stream) = self.ask(more).await;
        (status, stream)
    }

    fn accepts(&self, outcome: &str) -> u64 {
        let name = format!("presence_edge_accepts_total{{outcome=\"{outcome}\"}} ");
        let text = self.metrics.encode();
        text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    }
}

fn retry_after(head: &str) -> Option<u64> {
    head.lines().find_map(|line| line.strip_prefix("retry-after: "))?.parse().ok()
}

#[tokio::test]
async fn one_address_takes_so_many_and_is_told_when_to_come_back() {
    within(async {
        let edge = edge(LIMITS, Source::Peer, &[]);
        let (below, first) = edge.status("").await;
        let (at, _second) = edge.status("").await;
        let (above, head, _) = edge.ask("").await;
        assert_eq!([below, at, above], [101, 101, 429]);
        assert!(retry_after(&head).is_some_and(|after| (5..=8).contains(&after)), "{head}");
        let (page, _, _) = edge.say(b"GET /presence.js HTTP/1.1\r\nHost: edge\r\n\r\n").await;
        assert_eq!(page, 429, "whatever it asks for");
        assert_eq!(edge.accepts("address"), 2);
        drop(first);
        while edge.status("").await.0 != 101 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn whoever_says_nothing_counts_for_its_address_as_well() {
    within(async {
        let edge = edge(LIMITS, Source::Peer, &[]);
        let _silent = [edge.connect().await, edge.connect().await];
        let (status, _) = edge.status("").await;
        assert_eq!(status, 429);
        // Of those who are told so much at once there is an end: further ones are closed.
        let mut more = Vec::new();
        for _ in 0..64 {
            more.push(edge.connect().await);
        }
        let (status, _) = edge.status("").await;
        assert_eq!(status, 0);
    })
    .await;
}

#[tokio::test]
async fn so_many_handshakes_are_taken_a_second_and_the_others_told_moments_apart() {
    within(async {
        let edge = edge(
            AdmissionLimits { handshakes_per_second: 5, per_address: None, ..LIMITS },
            Source::Peer,
            &[],
        );
        let mut statuses = Vec::new();
        let mut kept = Vec::new();
        let mut hints = std::collections::BTreeSet::new();
        let begin = tokio::time::Instant::now();
        for _ in 0..40 {
            let (status, head, stream) = edge.ask("").await;
            statuses.push(status);
            hints.extend(retry_after(&head));
            kept.push(stream);
        }
        assert_eq!(statuses[..5], [101; 5]);
        let refused = statuses.iter().filter(|status| **status == 503).count();
        let earned = (begin.elapsed().as_secs_f64() * 5.0).ceil() as usize;
        assert!(40 - refused <= 5 + earned, "{statuses:?} in {:?}", begin.elapsed());
        assert!(refused >= 25 && hints.len() >= 4, "{statuses:?} {hints:?}");
        assert_eq!(edge.accepts("rate"), refused as u64);
        // What comes of a transport is counted once, however long it stays afterwards.
        tokio::time::sleep(HANDSHAKE_WITHIN + Duration::from_millis(500)).await;
        assert_eq!((edge.accepts("rate"), edge.accepts("late")), (refused as u64, 0));
    })
    .await;
}

async fn read_frame(stream: &mut Stream) -> (u8, Vec<u8>) {
    let first = stream.read_u8().await.unwrap();
    let length = match stream.read_u8().await.unwrap() {
        126 => stream.read_u16().await.unwrap(),
        short => short.into(),
    };
    let mut payload = vec![0; length.into()];
    stream.read_exact(&mut payload).await.unwrap();
    (first, payload)
}

/// Asks for a room with a token that does not verify; the code of the error, and how the connection was closed.
async fn fail(stream: &mut Stream) -> (serde_json::Value, Option<u16>) {
    let watch = br#"{"t":"watch","room":"r","token":"x"}"#;
    let head = [0x81, 0x80 | u8::try_from(watch.len()).unwrap(), 0, 0, 0, 0];
    stream.write_all(&[&head, &watch[..]].concat()).await.unwrap();
    loop {
        let (first, payload) = read_frame(stream).await;
        let said: serde_json::Value = match first {
            0x81 => serde_json::from_slice(&payload).unwrap(),
            _ => continue,
        };
        if said["t"] != "error" {
            continue;
        }
        if said["code"] != "rate_limited" {
            return (said["code"].clone(), None);
        }
        let (_, payload) = read_frame(stream).await;
        return (said["code"].clone(), Some(u16::from_be_bytes([payload[0], payload[1]])));
    }
}

#[tokio::test]
async fn an_address_whose_tokens_do_not_verify_is_let_in_no_more_for_a_while() {
    within(async {
        let limits = AdmissionLimits { per_address: None, failed_tokens_per_minute: Some(3), ..LIMITS };
        let edge = edge(limits, Source::XForwardedFor, &["127.0.0.0/8"]);
        let of = |client: u8| format!("X-Forwarded-For: 198.51.100.{client}\r\n");
        let (_, mut other) = edge.status(&of(7)).await;
        let (_, mut first) = edge.status(&of(7)).await;
        for _ in 0..2 {
            assert_eq!(fail(&mut first).await, ("unauthorized".into(), None));
        }
        assert_eq!(edge.status(&of(7)).await.0, 101, "below");
        assert_eq!(
            fail(&mut other).await,
            ("unauthorized".into(), None),
            "of the address, not the connection"
        );
        let (status, head, _) = edge.ask(&of(7)).await;
        assert_eq!(status, 429, "as many as may, and none is left");
        assert!(retry_after(&head).is_some_and(|after| (18..=31).contains(&after)), "{head}");
        assert_eq!(fail(&mut first).await, ("rate_limited".into(), Some(4429)), "one too many");
        assert_eq!(edge.status(&of(8)).await.0, 101, "another address");
        assert_eq!(edge.accepts("tokens"), 1);
    })
    .await;
}

#[tokio::test]
async fn a_page_hears_over_a_websocket_when_to_come_back() {
    within(async {
        let limits = AdmissionLimits { connections: 1, ..LIMITS };
        for (limits, per_address, code, reason) in
            [(limits, None, 1013, "overloaded"), (limits, Some(1), 4429, "rate_limited")]
        {
            let edge = edge(AdmissionLimits { per_address, ..limits }, Source::Peer, &[]);
            let (status, _first) = edge.status("").await;
            assert_eq!(status, 101);
            let (status, mut page) = edge.status("Origin: https://app.example\r\n").await;
            assert_eq!(status, 101, "a page would not see another status");
            let (first, payload) = read_frame(&mut page).await;
            let said: serde_json::Value = serde_json::from_slice(&payload).unwrap();
            assert_eq!((first, &said["t"], &said["reason"]), (0x81, &"reconnect".into(), &reason.into()));
            assert!((1_000..=45_000).contains(&said["after_ms"].as_u64().unwrap()), "{said}");
            let (first, payload) = read_frame(&mut page).await;
            assert_eq!((first, u16::from_be_bytes([payload[0], payload[1]])), (0x88, code));
            assert_eq!(page.read(&mut [0]).await.unwrap(), 0, "and nothing more");
            assert_eq!(edge.accepts("accepted"), 1, "it was never in");
        }
    })
    .await;
}

#[tokio::test]
async fn a_proxy_tells_whom_it_stands_for_and_only_a_trusted_one_is_believed() {
    within(async {
        for (source, header) in [
            (Source::XForwardedFor, "X-Forwarded-For: 1.1.1.1, 198.51.100.7\r\n"),
            (Source::Forwarded, "Forwarded: for=198.51.100.7:4711;proto=https\r\n"),
            // What a client wrote before its proxy did cannot hide it.
            (Source::XForwardedFor, "X-Forwarded-For: \u{e9}\", 198.51.100.7\r\n"),
            (Source::Forwarded, "Forwarded: \u{e9}=\"1.1.1.1, for=198.51.100.7\r\n"),
        ] {
            let edge = edge(LIMITS, source, &["127.0.0.0/8"]);
            let other = header.replace("198.51.100.7", "198.51.100.8");
            let mut kept = Vec::new();
            let mut statuses = Vec::new();
            for more in [header, header, header, &other, &other, "", "", ""] {
                let (status, stream) = edge.status(more).await;
                statuses.push(status);
                kept.push(stream);
            }
            assert_eq!(statuses, [101, 101, 429, 101, 101, 101, 101, 101], "{header}");
        }
        // Not one of ours: what it says of others is its own invention.
        let edge = edge(LIMITS, Source::XForwardedFor, &["10.0.0.0/8"]);
        let mut kept = Vec::new();
        for (client, expected) in [(1, 101), (2, 101), (3, 429)] {
            let (status, stream) = edge.status(&format!("X-Forwarded-For: 198.51.100.{client}\r\n")).await;
            assert_eq!(status, expected);
            kept.push(stream);
        }
    })
    .await;
}

#[tokio::test]
async fn a_listener_for_proxies_demands_their_header_and_counts_whom_it_names() {
    within(async {
        let edge = edge(LIMITS, Source::ProxyProtocol, &["127.0.0.1/32"]);
        let with = |header: &str| [header.as_bytes(), handshake("").as_bytes()].concat();
        let of = |client: u8| with(&format!("PROXY TCP4 198.51.100.{client} 10.0.0.1 4711 443\r\n"));
        let mut kept = Vec::new();
        for (client, expected) in [(1, 101), (1, 101), (1, 429), (2, 101)] {
            let (status, _, stream) = edge.say(&of(client)).await;
            assert_eq!(status, expected, "client {client}");
            kept.push(stream);
        }
        // Version 2, and a health check of the proxy itself, as often as it likes.
        let mut binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
        binary.extend([198, 51, 100, 2, 10, 0, 0, 1, 0x12, 0x34, 1, 187]);
        binary.extend(handshake("").bytes());
        let (status, _, stream) = edge.say(&binary).await;
        assert_eq!(status, 101);
        kept.push(stream);
        assert_eq!(edge.say(&of(2)).await.0, 429, "the same client in other words");
        for own in ["PROXY UNKNOWN\r\n", "PROXY TCP4 127.0.0.1 127.0.0.1 1 1\r\n"].repeat(3) {
            let (status, _, stream) = edge.say(&with(own)).await;
            assert_eq!(status, 101);
            kept.push(stream);
        }
        for bad in [
            &handshake("")[..],
            "PROXY TCP4 1.1.1.1 here 1 1\r\n",
            "PROXY UNKNOWN but endless ".repeat(9).as_str(),
        ] {
            let (status, _, _) = edge.say(bad.as_bytes()).await;
            assert_eq!(status, 0, "{bad}");
        }
        assert_eq!(edge.accepts("unproxied"), 3);
    })
    .await;
}

#[tokio::test]
async fn a_proxy_header_from_anybody_else_is_refused() {
    within(async {
        let header = b"PROXY TCP4 198.51.100.1 10.0.0.1 4711 443\r\n";
        let said = [&header[..], handshake("").as_bytes()].concat();
        let strangers = edge(LIMITS, Source::ProxyProtocol, &["10.0.0.0/8"]);
        assert_eq!(strangers.say(&said).await.0, 0);
        assert_eq!(strangers.accepts("unproxied"), 1);
        let not_asked_for = edge(LIMITS, Source::Peer, &[]);
        assert_eq!(not_asked_for.say(&said).await.0, 400);
    })
    .await;
}
