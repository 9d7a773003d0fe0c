use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tower::{Service as _, ServiceExt as _};

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::network::Network;
use crate::telemetry::Metrics;

/// Answers `Once` with its peer's address, and `Forever` with a stream that never ends.
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
        let refused = request.uri().path().ends_with("Refuse");
        let body = if request.uri().path().ends_with("Forever") { endless() } else { Body::empty() };
        let response =
            Response::builder().header("content-type", "application/grpc").header("x-peer", peer.to_string());
        let response = if refused { response.header("grpc-status", "7") } else { response };
        std::future::ready(Ok(response.body(body).unwrap()))
    }
}

fn endless() -> Body {
    Body::new(StreamBody::new(stream::pending::<Result<Frame<Bytes>, tonic::Status>>()))
}

struct Running {
    url: String,
    metrics: Metrics,
    hand: ManualClock,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), ServeError>>,
}

fn start() -> Running {
    let listener = Network::tcp().listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let url = format!("http://{}", listener.local_addr());
    let (clock, hand) = Clock::manual();
    let (metrics, shutdown) = (Metrics::new(), CancellationToken::new());
    let observer = RequestObserver::new("test", &metrics, clock);
    let settings = ServerSettings::default();
    let task = tokio::spawn(serve(listener, Routes::new(Echo), settings, observer, shutdown.clone()));
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

#[tokio::test]
async fn no_server_and_no_address_are_told_apart() {
    let network = Network::tcp();
    let settings = ClientSettings::default();
    let free = network.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap().local_addr();
    let refused = connect(&network, &format!("http://{free}"), &settings).await.unwrap_err();
    assert!(matches!(refused, ConnectError::Unreachable { .. }), "{refused}");
    assert!(refused.to_string().contains("refused"), "{refused}");
    for url in ["", "127.0.0.1:1", "ftp://127.0.0.1:1", "http://127.0.0.1", "http://", "https://127.0.0.1:1"]
    {
        let error = connect_lazy(&network, url, &settings).unwrap_err();
        assert_eq!(error, ConnectError::Address { url: url.to_owned() });
    }
    assert!(connect_lazy(&network, "http://[::1]:4700", &settings).is_ok());
}
