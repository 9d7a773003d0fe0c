use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;

use super::*;
use crate::clock::ManualClock;
use crate::network::Network;

struct Running {
    target: String,
    metrics: Metrics,
    readiness: Readiness,
    hand: ManualClock,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

fn start() -> Running {
    let listener = Network::tcp().listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let target = listener.local_addr().to_string();
    let (clock, hand) = Clock::manual();
    let (metrics, readiness, shutdown) = (Metrics::new(), Readiness::new(), CancellationToken::new());
    let task = tokio::spawn(serve(listener, metrics.clone(), readiness.clone(), clock, shutdown.clone()));
    Running { target, metrics, readiness, hand, shutdown, task }
}

async fn ask(target: &str, request_line: &str) -> String {
    let mut stream = Network::tcp().connect(target).await.unwrap();
    let request = format!("{request_line} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn probes_and_metrics_are_answered() {
    let admin = start();
    admin.metrics.counter("presence_test_joins_total", "Joins").inc();
    assert!(ask(&admin.target, "GET /livez").await.starts_with("HTTP/1.1 200"));
    let metrics = ask(&admin.target, "GET /metrics").await;
    assert!(
        metrics.contains("presence_test_joins_total 1") && metrics.contains("version=0.0.4"),
        "{metrics}"
    );
    assert!(ask(&admin.target, "GET /").await.starts_with("HTTP/1.1 404"));
    assert!(ask(&admin.target, "POST /livez").await.starts_with("HTTP/1.1 405"));
    assert!(!ask(&admin.target, "HEAD /livez").await.contains("live\n"));
}

#[tokio::test]
async fn ready_once_and_draining_for_good() {
    let admin = start();
    let readyz = || ask(&admin.target, "GET /readyz");
    let starting = readyz().await;
    assert!(starting.starts_with("HTTP/1.1 503") && starting.ends_with("starting\n"), "{starting}");
    admin.readiness.ready();
    assert!(readyz().await.starts_with("HTTP/1.1 200"));
    admin.readiness.draining();
    admin.readiness.ready();
    let draining = readyz().await;
    assert!(draining.starts_with("HTTP/1.1 503") && draining.ends_with("draining\n"), "{draining}");
}

/// Whether the far side has ended a connection.
async fn is_cut(stream: &mut crate::network::Stream) -> bool {
    stream.read(&mut [0; 16]).await.unwrap_or(0) == 0
}

#[tokio::test]
async fn a_probe_is_answered_though_all_places_are_taken() {
    let admin = start();
    let mut silent = Vec::new();
    for _ in 0..ADMIN_CONNECTIONS_MAX {
        silent.push(Network::tcp().connect(&admin.target).await.unwrap());
    }
    assert!(ask(&admin.target, "GET /livez").await.starts_with("HTTP/1.1 200"));
    assert!(is_cut(&mut silent[0]).await, "the oldest made room");
    silent[1].write_all(b"GET /livez HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
    assert!(!is_cut(&mut silent[1]).await, "the others are where they were");
}

#[tokio::test]
async fn who_does_not_read_is_cut_in_the_end() {
    let admin = start();
    let mut deaf = Network::tcp().connect(&admin.target).await.unwrap();
    let flood = "GET /metrics HTTP/1.1\r\nhost: here\r\n\r\n".repeat(1_000);
    admin.metrics.counter("presence_test_long_total", &"long ".repeat(20_000)).inc();
    // Written until neither side takes any more.
    let written = tokio::time::timeout(Duration::from_secs(1), async {
        loop {
            if deaf.write_all(flood.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    assert!(written.await.is_err(), "it goes on as long as it is not cut");
    admin.hand.advance(ADMIN_CONNECTION_WITHIN);
    let ended = async { while deaf.write_all(flood.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(5), ended).await.expect("it is cut");
}

#[tokio::test]
async fn it_ends_though_a_request_never_does() {
    let admin = start();
    let mut slow = Network::tcp().connect(&admin.target).await.unwrap();
    slow.write_all(b"GET /livez HTTP/1.1\r\nhost:").await.unwrap();
    // Answered after the slow one was accepted.
    assert!(ask(&admin.target, "GET /livez").await.starts_with("HTTP/1.1 200"));
    admin.shutdown.cancel();
    while !admin.task.is_finished() {
        admin.hand.advance(Duration::from_millis(100));
        tokio::task::yield_now().await;
    }
    admin.task.await.unwrap();
    assert_eq!(slow.read(&mut [0; 16]).await.unwrap_or(0), 0, "the slow one was cut");
}
