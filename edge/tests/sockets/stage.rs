//! An edge without a core, and what is said to it.

use std::time::Duration;

use presence_edge::http::ExtraHttp;
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

pub(super) struct Edge {
    pub(super) running: Running,
    pub(super) metrics: Metrics,
    pub(super) shutdown: Shutdown,
}

/// On loopback, for any page, at any rate.
pub(super) fn settings() -> Settings {
    Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        admin: None,
        cores: vec!["http://127.0.0.1:1".to_owned()],
        region: RegionId::new("local").unwrap(),
        edge: EdgeName::new("edge-1").unwrap(),
        timings: Timings::derive(TimingsGiven::default()).unwrap(),
        origins: Origins::Any,
        list_members: 5_000,
        limits: AdmissionLimits { handshakes_per_second: 1_000_000, ..AdmissionLimits::of(100) },
        whence: Whence::default(),
        seed: 7,
    }
}

pub(super) fn edge(settings: Settings, clock: Clock, extra: Option<ExtraHttp>) -> Result<Edge, StartError> {
    let (shutdown, metrics) = (Shutdown::new(), Metrics::new());
    let keys = KeySet::parse(GeneratedKeys::from_seed([7; 32]).jwks().as_bytes()).unwrap();
    let deps = Deps {
        clock,
        network: Network::tcp(),
        metrics: metrics.clone(),
        tls: None,
        verifier: Verifier::new(keys),
        shutdown: shutdown.clone(),
        extra,
        observer: None,
    };
    Ok(Edge { running: start(settings, deps)?, metrics, shutdown })
}

pub(super) fn handshake(more: &str) -> String {
    format!(
        "GET /v1/ws HTTP/1.1\r\nHost: edge\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    )
}

impl Edge {
    pub(super) async fn connect(&self) -> Stream {
        Network::tcp().connect(&self.running.listen.to_string()).await.unwrap()
    }

    /// Says this; the status of the answer, its head, and the transport. 0: none came.
    pub(super) async fn say(&self, bytes: &[u8]) -> (u16, String, Stream) {
        let mut stream = self.connect().await;
        let _ = stream.write_all(bytes).await;
        let (status, head) = read_head(&mut stream).await;
        (status, head, stream)
    }
}

/// The status of an answer, and its head. 0: none came.
pub(super) async fn read_head(stream: &mut Stream) -> (u16, String) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return (0, String::new()),
        }
    }
    let head = String::from_utf8(head).unwrap();
    (head[9..12].parse().unwrap(), head)
}

pub(super) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("in time")
}
