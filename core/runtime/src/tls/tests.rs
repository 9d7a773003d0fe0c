//! Certificates of tests, and what handshakes come to.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd};
use rustls::ProtocolVersion;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::limits::{
    TLS_CHAIN_MAX, TLS_FILE_BYTES_MAX, TLS_HANDSHAKE_WITHIN, TLS_HANDSHAKES_MAX, TLS_PARTING_WITHIN,
};
use crate::network::{Listener, Network, Stream};
use crate::reload::Looked;
use crate::telemetry::Metrics;

mod doors;
mod files;
mod handshakes;

/// An authority with what it has signed, in a folder that goes with it.
pub(crate) struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Each has a name of its own: one of the same name would be taken for this one.
        params.distinguished_name.push(DnType::CommonName, folder.path().display().to_string());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        std::fs::write(folder.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Self { folder, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate for these names, in files of that name.
    pub(crate) fn sign(&self, file: &str, names: &[&str]) -> CertificateFiles {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.sign_params(file, CertificateParams::new(names).unwrap())
    }

    /// One that is good from and until so many days from now.
    pub(crate) fn sign_for_days(&self, file: &str, (from, until): (i64, i64)) -> CertificateFiles {
        let mut params = CertificateParams::new(vec!["core.test".to_owned()]).unwrap();
        let now_s = i64::try_from(Clock::system().wall_ms() / 1_000).unwrap();
        let day = |days: i64| {
            let since = u64::try_from(now_s + days * 86_400).unwrap();
            date_time_ymd(1970, 1, 1) + Duration::from_secs(since)
        };
        (params.not_before, params.not_after) = (day(from), day(until));
        self.sign_params(file, params)
    }

    fn sign_params(&self, file: &str, mut params: CertificateParams) -> CertificateFiles {
        params.distinguished_name.push(DnType::CommonName, file);
        let key = KeyPair::generate().unwrap();
        let path = |end: &str| self.folder.path().join(format!("{file}{end}"));
        let files = CertificateFiles { chain: path(".pem"), key: path("-key.pem") };
        std::fs::write(&files.chain, params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    pub(crate) fn server(&self, names: &[&str]) -> ServerFiles {
        ServerFiles { certificates: vec![self.sign("server", names)], clients: None }
    }

    pub(crate) fn clients(&self, demand: Demand) -> Option<Clients> {
        Some(Clients { authority: self.path(), demand })
    }

    pub(crate) fn client(&self, identity: Option<CertificateFiles>) -> ClientFiles {
        ClientFiles { authority: Some(self.path()), identity }
    }
}

/// A listener and its door.
struct House {
    listener: Listener,
    door: Door,
    metrics: Metrics,
    hand: ManualClock,
}

impl House {
    async fn tls(files: ServerFiles) -> Self {
        Self::new(Some(ServerTls::open(files, Protocol::Http2).await.unwrap().0))
    }

    fn new(tls: Option<ServerTls>) -> Self {
        let listener = Network::tcp().listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let (clock, hand) = Clock::manual();
        let metrics = Metrics::new();
        let door = Door::new(("test", "test"), tls, &metrics, clock);
        Self { listener, door, metrics, hand }
    }

    async fn dial(&self) -> Stream {
        Network::tcp().connect(&self.listener.local_addr().to_string()).await.unwrap()
    }

    /// A client that is let in, or not, and what it sees of it.
    async fn meets(
        &self,
        files: ClientFiles,
        host: &str,
    ) -> (Result<Entered, Turned>, std::io::Result<Stream>) {
        let tls = ClientTls::read(&files, Protocol::Http2).unwrap();
        let near = async {
            let mut stream = tls.connect(host, self.dial().await).await?;
            // By version 1.3 a client has finished before its certificate is looked at.
            stream.write_all(b"hello").await?;
            let mut answer = [0; 5];
            stream.read_exact(&mut answer).await.map(|_| stream)
        };
        let far = async {
            let (stream, peer) = self.listener.accept().await.unwrap();
            let mut entered = self.door.enter(stream, peer.ip()).await?;
            let mut said = [0; 5];
            entered.stream.read_exact(&mut said).await.unwrap();
            entered.stream.write_all(&said).await.unwrap();
            entered.stream.flush().await.unwrap();
            Ok(entered)
        };
        let (near, far) = tokio::join!(near, far);
        (far, near)
    }

    fn counted(&self, outcome: &str) -> u64 {
        let head = format!("presence_test_tls_handshakes_total{{outcome=\"{outcome}\"}} ");
        let text = self.metrics.encode();
        text.lines()
            .find_map(|line| line.strip_prefix(&head))
            .expect("a series from the start")
            .parse()
            .unwrap()
    }
}

fn version_of(stream: &Stream) -> Option<ProtocolVersion> {
    match stream {
        Stream::Tls(stream) => stream.get_ref().1.protocol_version(),
        Stream::Tcp(_) | Stream::Simulated(_) => None,
    }
}
