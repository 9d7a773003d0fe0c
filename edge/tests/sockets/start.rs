//! An edge as a client meets it at the socket, with no core in reach: what is answered before any decision.

use std::time::Duration;

use presence_edge::http::{Body, ExtraHttp};
use presence_edge::settings::{AdmissionLimits, Origins, Settings};
use presence_edge::start::StartError;
use presence_runtime::clock::Clock;
use presence_runtime::network::{Network, Stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::stage::{self, Edge, handshake, within};

/// With an admin address, for pages of its own host, and room for two.
fn settings() -> Settings {
    Settings {
        admin: Some("127.0.0.1:0".parse().unwrap()),
        origins: Origins::SameHost,
        limits: AdmissionLimits { handshakes_per_second: 1_000_000, ..AdmissionLimits::of(2) },
        ..stage::settings()
    }
}

fn edge(settings: Settings, extra: Option<ExtraHttp>) -> Result<Edge, StartError> {
    stage::edge(settings, Clock::system(), extra)
}

async fn read_text(stream: &mut Stream) -> String {
    assert_eq!(stream.read_u8().await.unwrap(), 0x81);
    let length = match stream.read_u8().await.unwrap() {
        126 => stream.read_u16().await.unwrap(),
        short => short.into(),
    };
    let mut text = vec![0; length.into()];
    stream.read_exact(&mut text).await.unwrap();
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn a_client_is_greeted_and_a_full_edge_says_so_until_somebody_goes() {
    within(async {
        let edge = edge(settings(), None).unwrap();
        let shake = handshake("");
        let (_, head, mut first) = edge.say(shake.as_bytes()).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let hello = read_text(&mut first).await;
        assert!(hello.starts_with(r#"{"t":"hello","connection":""#), "{hello}");
        let (_, _, mut second) = edge.say(shake.as_bytes()).await;
        read_text(&mut second).await;
        let (_, full, _) = edge.say(shake.as_bytes()).await;
        assert!(full.starts_with("HTTP/1.1 503 ") && full.contains("retry-after: "), "{full}");
        // A close frame with an empty, masked payload.
        first.write_all(&[0x88, 0x80, 0, 0, 0, 0]).await.unwrap();
        assert_eq!(first.read_u16().await.unwrap(), 0x8800);
        assert!(first.read_u8().await.is_err(), "the edge closes the transport");
        while edge.say(shake.as_bytes()).await.0 == 503 {
            tokio::task::yield_now().await;
        }
        let text = edge.metrics.encode();
        assert!(text.contains("presence_edge_accepts_total{outcome=\"accepted\"} 3"), "{text}");
        assert!(!text.contains("presence_edge_accepts_total{outcome=\"full\"} 0"), "{text}");
        assert!(!edge.running.readiness.is_ready(), "no core was reached");
    })
    .await;
}

#[tokio::test]
async fn other_paths_are_answered_by_whoever_was_given_and_own_paths_are_not() {
    within(async {
        let extra = ExtraHttp::new(|request| async move {
            let body = http_body_util::Full::new(request.uri().path().to_owned().into());
            http::Response::new(Body::new(http_body_util::BodyExt::map_err(body, |never| match never {})))
        });
        let with = edge(settings(), Some(extra)).unwrap();
        let without = edge(settings(), None).unwrap();
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n\r\n");
        for (path, status_with, status_without) in
            [("/dev/x", 200, 404), ("/", 200, 404), ("/presence.js", 200, 200), ("/v1/ws", 426, 426)]
        {
            let (_, head, mut rest) = with.say(get(path).as_bytes()).await;
            assert!(head.starts_with(&format!("HTTP/1.1 {status_with} ")), "{path}: {head}");
            let mut body = String::new();
            rest.read_to_string(&mut body).await.unwrap();
            assert_eq!(body == path, status_without == 404, "{path}: {body}");
            let (_, head, _) = without.say(get(path).as_bytes()).await;
            assert!(head.starts_with(&format!("HTTP/1.1 {status_without} ")), "{path}: {head}");
        }
    })
    .await;
}

#[tokio::test]
async fn an_edge_with_nobody_connected_ends_at_once() {
    within(async {
        let edge = edge(settings(), None).unwrap();
        let (listen, admin) = (edge.running.listen, edge.running.admin.unwrap());
        edge.shutdown.begin();
        edge.running.finished(Duration::from_secs(5)).await.unwrap();
        for address in [listen, admin] {
            assert!(Network::tcp().connect(&address.to_string()).await.is_err(), "{address} is free");
        }
    })
    .await;
}

#[tokio::test]
async fn an_edge_that_cannot_start_says_why() {
    let taken = edge(settings(), None).unwrap();
    let listen = taken.running.listen;
    let refused = edge(Settings { listen, ..settings() }, None).err().unwrap();
    assert!(matches!(refused, StartError::Listen { address, .. } if address == listen), "{refused}");
    let refused = edge(Settings { cores: Vec::new(), ..settings() }, None).err().unwrap();
    assert!(matches!(refused, StartError::NoCore));
}
