//! An edge as a client meets it at the socket, with no core in reach: what is answered before any decision.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::time::Duration;

use presence_edge::http::{Body, ExtraHttp};
use presence_edge::settings::{AdmissionLimits, Origins, Settings, Whence};
use presence_edge::start::{Deps, Running, StartError, start};
use presence_model::id::{EdgeName, RegionId};
use presence_model::timing::{Timings, TimingsGiven};
use presence_runtime::clock::Clock;
use presence_runtime::network::{Network, Stream};
use presence_runtime::shutdown::Shutdown;
use presence_runtime::telemetry::Metrics;
use presence_runtime::tokens::{GeneratedKeys, KeySet, Verifier};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const HANDSHAKE: &str = "GET /v1/ws HTTP/1.1\r\nHost: edge\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

struct Edge {
    running: Running,
    shutdown: Shutdown,
    metrics: Metrics,
}

fn settings() -> Settings {
    Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        admin: Some("127.0.0.1:0".parse().unwrap()),
        cores: vec!["http://127.0.0.1:1".to_owned()],
        region: RegionId::new("local").unwrap(),
        edge: EdgeName::new("edge-1").unwrap(),
        timings: Timings::derive(TimingsGiven::default()).unwrap(),
        origins: Origins::SameHost,
        list_members: 5_000,
        limits: AdmissionLimits { handshakes_per_second: 1_000_000, ..AdmissionLimits::of(2) },
        whence: Whence::default(),
        seed: 7,
    }
}

fn edge(settings: Settings, extra: Option<ExtraHttp>) -> Result<Edge, StartError> {
    let (shutdown, metrics) = (Shutdown::new(), Metrics::new());
    let keys = KeySet::parse(GeneratedKeys::from_seed([7; 32]).jwks().as_bytes()).unwrap();
    let deps = Deps {
        clock: Clock::system(),
        network: Network::tcp(),
        metrics: metrics.clone(),
        tls: None,
        verifier: Verifier::new(keys),
        shutdown: shutdown.clone(),
        extra,
        observer: None,
    };
    Ok(Edge { running: start(settings, deps)?, shutdown, metrics })
}

impl Edge {
    async fn connect(&self) -> Stream {
        Network::tcp().connect(&self.running.listen.to_string()).await.unwrap()
    }

    /// The answer to a request, up to the end of its head, and the transport.
    async fn ask(&self, request: &str) -> (String, Stream) {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("an answer"));
        }
        (String::from_utf8(head).unwrap(), stream)
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future).await.expect("in time")
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
        let (head, mut first) = edge.ask(HANDSHAKE).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let hello = read_text(&mut first).await;
        assert!(hello.starts_with(r#"{"t":"hello","connection":""#), "{hello}");
        let (_, mut second) = edge.ask(HANDSHAKE).await;
        read_text(&mut second).await;
        let (full, _) = edge.ask(HANDSHAKE).await;
        assert!(full.starts_with("HTTP/1.1 503 ") && full.contains("retry-after: "), "{full}");
        // A close frame with an empty, masked payload.
        first.write_all(&[0x88, 0x80, 0, 0, 0, 0]).await.unwrap();
        assert_eq!(first.read_u16().await.unwrap(), 0x8800);
        assert!(first.read_u8().await.is_err(), "the edge closes the transport");
        while edge.ask(HANDSHAKE).await.0.starts_with("HTTP/1.1 503 ") {
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
            let (head, mut rest) = with.ask(&get(path)).await;
            assert!(head.starts_with(&format!("HTTP/1.1 {status_with} ")), "{path}: {head}");
            let mut body = String::new();
            rest.read_to_string(&mut body).await.unwrap();
            assert_eq!(body == path, status_without == 404, "{path}: {body}");
            let (head, _) = without.ask(&get(path)).await;
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
