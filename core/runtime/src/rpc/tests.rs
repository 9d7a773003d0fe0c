use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tower::{Service as _, ServiceExt as _};

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::limits::{RPC_PREFACE_WITHIN, RPC_REQUEST_WITHIN};
use crate::network::Network;
use crate::telemetry::Metrics;
use crate::tls::tests::Authority;
use crate::tls::{ClientFiles, ClientTls, Demand, Door, PeerNames, Protocol, ServerFiles, ServerTls};

/// Answers `Once` with its peer's address and names, `Forever` with a stream that never ends, and `Deaf` likewise,
/// without ever reading the request.
#[derive(Clone)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

impl tower::Service<Request<Body>> for Echo {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let PeerAddress(peer) = request.extensions().get().copied().unwrap();
        let names: Vec<&str> = request.extensions().get::<PeerNames>().unwrap().iter().collect();
        let names = names.join(" ");
        let refused = request.uri().path().ends_with("Refuse");
        let body = match request.uri().path().rsplit('/').next() {
            Some("Forever") => endless(),
            Some("Deaf") => Body::new(StreamBody::new(deaf(request.into_body()))),
            Some(_) | None => Body::empty(),
        };
        let response = Response::builder().header("content-type", "application/grpc");
        let response = response.header("x-peer", peer.to_string()).header("x-names", names);
        let response = if refused { response.header("grpc-status", "7") } else { response };
        std::future::ready(Ok(response.body(body).unwrap()))
    }
}

fn endless() -> Body {
    Body::new(StreamBody::new(stream::pending::<Result<Frame<Bytes>, tonic::Status>>()))
}

/// Keeps what is sent without reading it.
fn deaf(unread: Body) -> impl futures::Stream<Item = Result<Frame<Bytes>, tonic::Status>> + Send {
    stream::once(async move {
        let _unread = unread;
        std::future::pending().await
    })
}

struct Running {
    url: String,
    metrics: Metrics,
    hand: ManualClock,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), ServeError>>,
}

fn start() -> Running {
    start_with(ServerSettings::default())
}

fn start_with(settings: ServerSettings) -> Running {
    start_by(None, settings)
}

fn start_by(tls: Option<ServerTls>, settings: ServerSettings) -> Running {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let listener = Network::tcp().listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let url = format!("{scheme}://{}", listener.local_addr());
    let (clock, hand) = Clock::manual();
    let (metrics, shutdown) = (Metrics::new(), CancellationToken::new());
    let door = Door::new(("test", "gRPC"), tls, &metrics, clock.clone());
    let observer = RequestObserver::new("test", &metrics, clock);
    let serving = serve((listener, door), Routes::new(Echo), settings, observer, shutdown.clone());
    let task = tokio::spawn(serving);
    Running { url, metrics, hand, shutdown, task }
}

async fn call(channel: &tonic::transport::Channel, method: &str) -> Response<Body> {
    let request = Request::post(format!("/test.Echo/{method}")).body(Body::empty()).unwrap();
    let mut channel = channel.clone();
    channel.ready().await.unwrap().call(request).await.unwrap()
}

#[tokio::test]
async fn a_call_arrives_with_its_peer_and_is_measured() {
    let server = start();
    let channel = connect(&Network::tcp(), &server.url, &ClientSettings::default()).await.unwrap();
    let answer = call(&channel, "Once").await;
    let peer: SocketAddr = answer.headers()["x-peer"].to_str().unwrap().parse().unwrap();
    assert!(peer.ip().is_loopback() && peer.port() != 0);
    call(&channel, "Refuse").await;
    let unknown = Request::post("/foreign.Service/Guess").body(Body::empty()).unwrap();
    let mut untold = channel.clone();
    untold.ready().await.unwrap().call(unknown).await.unwrap();
    let text = server.metrics.encode();
    for line in [
        "presence_test_rpc_seconds_count{method=\"Once\",outcome=\"ok\"} 1",
        "presence_test_rpc_seconds_count{method=\"Refuse\",outcome=\"refused\"} 1",
        "presence_test_rpc_seconds_count{method=\"unknown\",outcome=\"refused\"} 1",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains("Guess"));
}

fn by(files: &ClientFiles) -> Network {
    Network::tcp().with_tls(ClientTls::read(files, Protocol::Http2).unwrap())
}

#[tokio::test]
async fn requests_by_tls_tell_who_their_peer_is() {
    let authority = Authority::new();
    let files =
        ServerFiles { clients: authority.clients(Demand::Optional), ..authority.server(&["127.0.0.1"]) };
    let (tls, _) = ServerTls::open(files, Protocol::Http2).await.unwrap();
    let server = start_by(Some(tls), ServerSettings::default());
    let edge = authority.sign("edge-1", &["edge-1.test"]);
    for (identity, names) in [(Some(edge), "edge-1.test"), (None, "")] {
        let network = by(&authority.client(identity));
        let channel = connect(&network, &server.url, &ClientSettings::default()).await.unwrap();
        assert_eq!(call(&channel, "Once").await.headers()["x-names"], names);
    }
    let stranger =
        connect(&by(&Authority::new().client(None)), &server.url, &ClientSettings::default()).await;
    let told = stranger.unwrap_err().to_string();
    assert!(told.contains("invalid peer certificate"), "{told}");
    let untold = connect(&Network::tcp(), &server.url, &ClientSettings::default()).await.unwrap_err();
    assert!(untold.to_string().contains("whom to trust"), "{untold}");
}

#[tokio::test]
async fn whoever_speaks_the_wrong_thing_is_told_so() {
    let authority = Authority::new();
    let (tls, _) = ServerTls::open(authority.server(&["127.0.0.1"]), Protocol::Http2).await.unwrap();
    let (plain, secure) = (start(), start_by(Some(tls), ServerSettings::default()));
    let wrong = plain.url.replace("http://", "https://");
    let told = connect(&by(&authority.client(None)), &wrong, &ClientSettings::default()).await.unwrap_err();
    assert!(told.to_string().contains("speaks no TLS"), "{told}");
    let wrong = secure.url.replace("https://", "http://");
    let asked = async {
        let mut channel = connect(&Network::tcp(), &wrong, &ClientSettings::default()).await?;
        let request = Request::post("/test.Echo/Once").body(Body::empty()).unwrap();
        channel
            .ready()
            .await
            .unwrap()
            .call(request)
            .await
            .map_err(|error| ConnectError::Unreachable { url: wrong.clone(), cause: error.to_string() })
    };
    let told = tokio::time::timeout(Duration::from_secs(5), asked).await.expect("an end").unwrap_err();
    assert!(matches!(told, ConnectError::Unreachable { .. }));
}

/// One stream that is not read does not take the connection with it, however small its messages are.
#[tokio::test]
async fn small_messages_that_nobody_reads_wait_for_their_reader() {
    let server = start();
    let channel = connect(&Network::tcp(), &server.url, &ClientSettings::default()).await.unwrap();
    let smallest = Bytes::from_static(&[0; 12]);
    let messages = stream::repeat_with(move || Ok::<_, tonic::Status>(Frame::data(smallest.clone())));
    let request = Request::post("/test.Echo/Deaf").body(Body::new(StreamBody::new(messages))).unwrap();
    let mut flooding = channel.clone();
    let answer = flooding.ready().await.unwrap().call(request).await.unwrap();
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        call(&channel, "Once").await;
    }
    drop(answer);
}

#[tokio::test]
async fn an_idle_server_ends_at_once() {
    let server = start();
    let channel = connect(&Network::tcp(), &server.url, &ClientSettings::default()).await.unwrap();
    call(&channel, "Once").await;
    server.shutdown.cancel();
    server.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_open_stream_is_cut_when_the_drain_is_over() {
    let server = start();
    let channel = connect(&Network::tcp(), &server.url, &ClientSettings::default()).await.unwrap();
    let stream = call(&channel, "Forever").await;
    server.shutdown.cancel();
    tokio::task::yield_now().await;
    assert!(!server.task.is_finished(), "the stream may go on for a while");
    while !server.task.is_finished() {
        server.hand.advance(Duration::from_secs(1));
        tokio::task::yield_now().await;
    }
    server.task.await.unwrap().unwrap();
    let end = stream.into_body().collect().await;
    assert!(end.is_err(), "the far side is told that it did not end well");
}

async fn until_closed(mut peer: crate::network::Stream) {
    let closed = async { while peer.read(&mut [0; 64]).await.unwrap_or(0) > 0 {} };
    tokio::time::timeout(Duration::from_secs(5), closed).await.expect("it is closed");
}

impl Running {
    async fn dial(&self) -> crate::network::Stream {
        Network::tcp().connect(self.url.strip_prefix("http://").unwrap()).await.unwrap()
    }

    /// Lets time pass until that peer is cut; how long that took.
    async fn cut_after(&self, peer: &mut crate::network::Stream) -> Duration {
        let mut passed = Duration::ZERO;
        // Until it has been accepted, its time does not run.
        tokio::time::sleep(Duration::from_millis(50)).await;
        loop {
            let mut read = vec![0; 1024];
            match tokio::time::timeout(Duration::from_millis(20), peer.read(&mut read)).await {
                Ok(Ok(0) | Err(_)) => return passed,
                Ok(Ok(_)) => continue,
                Err(_) => {}
            }
            assert!(passed < Duration::from_secs(120), "it is never cut");
            self.hand.advance(Duration::from_secs(1));
            passed += Duration::from_secs(1);
        }
    }
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test]
async fn a_silent_peer_is_cut_and_one_that_asks_is_not() {
    let server = start();
    let channel = connect(&Network::tcp(), &server.url, &ClientSettings::default()).await.unwrap();
    call(&channel, "Once").await;
    let (mut silent, mut half) = (server.dial().await, server.dial().await);
    half.write_all(&PREFACE[..23]).await.unwrap();
    assert_eq!(server.cut_after(&mut silent).await, RPC_PREFACE_WITHIN);
    assert_eq!(server.cut_after(&mut half).await, Duration::ZERO, "half a preface is none");
    let mut polite = server.dial().await;
    polite.write_all(PREFACE).await.unwrap();
    assert_eq!(server.cut_after(&mut polite).await, RPC_REQUEST_WITHIN);
    call(&channel, "Once").await;
    let text = server.metrics.encode();
    assert!(text.contains("{method=\"Once\",outcome=\"ok\"} 2"), "over the same connection:\n{text}");
}

#[tokio::test]
async fn at_the_most_connections_the_silent_make_room_and_those_that_asked_stay() {
    let server = start_with(ServerSettings { connections_max: 3, ..ServerSettings::default() });
    let (first, second) = (server.dial().await, server.dial().await);
    let mut asked = Vec::new();
    for _ in 0..3 {
        let channel = connect(&Network::tcp(), &server.url, &ClientSettings::default()).await.unwrap();
        call(&channel, "Once").await;
        asked.push(channel);
    }
    // The silent ones made room, one after the other; a further one is closed at once, not left waiting.
    for gone in [first, second, server.dial().await] {
        until_closed(gone).await;
    }
    for channel in &asked {
        call(channel, "Once").await;
    }
    drop(asked);
    loop {
        let mut again = server.dial().await;
        // Whoever is closed at once may not be able to say it.
        let _ = again.write_all(PREFACE).await;
        if again.read(&mut [0; 64]).await.unwrap_or(0) > 0 {
            break;
        }
    }
}

#[tokio::test]
async fn no_server_and_no_address_are_told_apart() {
    let network = Network::tcp();
    let settings = ClientSettings::default();
    let free = network.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap().local_addr();
    let refused = connect(&network, &format!("http://{free}"), &settings).await.unwrap_err();
    assert!(matches!(refused, ConnectError::Unreachable { .. }), "{refused}");
    assert!(refused.to_string().contains("refused"), "{refused}");
    for url in ["", "127.0.0.1:1", "ftp://127.0.0.1:1", "http://127.0.0.1", "http://", "https://127.0.0.1"] {
        let error = connect_lazy(&network, url, &settings).unwrap_err();
        assert_eq!(error, ConnectError::Address { url: url.to_owned() });
    }
    assert!(connect_lazy(&network, "http://[::1]:4700", &settings).is_ok());
}
