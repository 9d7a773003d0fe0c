use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;

use super::*;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Pairs of pipes by port: the least that is a network.
#[derive(Default)]
struct Pipes {
    listeners: Mutex<BTreeMap<u16, mpsc::UnboundedSender<DuplexStream>>>,
}

struct PipeAcceptor(tokio::sync::Mutex<mpsc::UnboundedReceiver<DuplexStream>>);

impl Simulated for Pipes {
    fn listen(&self, address: SocketAddr) -> io::Result<(SocketAddr, Box<dyn Accept>)> {
        let mut listeners = self.listeners.lock().unwrap();
        let port = if address.port() == 0 { 40_000 } else { address.port() };
        let (sender, receiver) = mpsc::unbounded_channel();
        if listeners.insert(port, sender).is_some() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let acceptor = PipeAcceptor(tokio::sync::Mutex::new(receiver));
        Ok((SocketAddr::new(address.ip(), port), Box::new(acceptor)))
    }

    fn connect(&self, target: String) -> BoxFuture<'static, io::Result<Box<dyn Duplex>>> {
        let port = target.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap();
        let listener = self.listeners.lock().unwrap().get(&port).cloned();
        Box::pin(async move {
            let (near, far) = tokio::io::duplex(1024);
            let listener = listener.ok_or(io::ErrorKind::ConnectionRefused)?;
            listener.send(far).map_err(|_| io::ErrorKind::ConnectionRefused)?;
            Ok(Box::new(near) as Box<dyn Duplex>)
        })
    }
}

impl Accept for PipeAcceptor {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Duplex>, SocketAddr)>> {
        Box::pin(async move {
            let stream = self.0.lock().await.recv().await.ok_or(io::ErrorKind::NotConnected)?;
            Ok((Box::new(stream) as Box<dyn Duplex>, LOOPBACK))
        })
    }
}

async fn says_back(network: Network) {
    let listener = network.listen(LOOPBACK).unwrap();
    assert_ne!(listener.local_addr().port(), 0, "the port in force is told");
    let target = listener.local_addr().to_string();
    let (near, far) = tokio::join!(network.connect(&target), listener.accept());
    let (mut near, (mut far, _peer)) = (near.unwrap(), far.unwrap());
    near.write_all(b"here").await.unwrap();
    near.shutdown().await.unwrap();
    let mut heard = String::new();
    far.read_to_string(&mut heard).await.unwrap();
    assert_eq!(heard, "here");
}

#[tokio::test]
async fn bytes_pass_over_tcp_and_over_a_simulated_network() {
    says_back(Network::tcp()).await;
    says_back(Network::simulated(Arc::new(Pipes::default()))).await;
}

#[tokio::test]
async fn tcp_streams_do_not_delay_small_writes() {
    let listener = Network::tcp().listen(LOOPBACK).unwrap();
    let target = listener.local_addr().to_string();
    let network = Network::tcp();
    let (near, far) = tokio::join!(network.connect(&target), listener.accept());
    assert!(near.unwrap().as_tcp().unwrap().nodelay().unwrap());
    assert!(far.unwrap().0.as_tcp().unwrap().nodelay().unwrap());
}

#[tokio::test]
async fn the_kernel_takes_little_of_what_a_peer_does_not_read() {
    let listener = Network::tcp().listen(LOOPBACK).unwrap();
    let target = listener.local_addr().to_string();
    let network = Network::tcp();
    let (near, far) = tokio::join!(network.connect(&target), listener.accept());
    let (_silent, (mut far, _)) = (near.unwrap(), far.unwrap());
    let (mut taken, some) = (0, [0; 16 * 1024]);
    while let Ok(count) = tokio::time::timeout(Duration::from_millis(200), far.write(&some)).await {
        taken += count.unwrap();
        assert!(taken < 1024 * 1024, "{taken} bytes and more");
    }
    assert!(taken >= 64 * 1024, "{taken} bytes: too little for a peer that does read");
}

#[tokio::test]
async fn an_address_is_free_again_at_once_and_taken_while_used() {
    let listener = Network::tcp().listen(LOOPBACK).unwrap();
    let address = listener.local_addr();
    let taken = Network::tcp().listen(address).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);

    // Closed by the listening side, the connection stays in TIME-WAIT: without reuse this address is not free.
    let target = address.to_string();
    let network = Network::tcp();
    let (near, far) = tokio::join!(network.connect(&target), listener.accept());
    drop(far);
    let _ = near.unwrap().read(&mut [0; 1]).await;
    drop(listener);
    Network::tcp().listen(address).unwrap();
}

#[tokio::test]
async fn nobody_listens_means_refused() {
    let address = Network::tcp().listen(LOOPBACK).unwrap().local_addr();
    let error = Network::tcp().connect(&address.to_string()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}
