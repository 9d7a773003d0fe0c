//! The certificates of a listener.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::verify_server_name;
use rustls::crypto::ring::Ticketer;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::ServerName;
use tokio_rustls::TlsAcceptor;

use super::files::{Moment, authority, unread_file};
use super::{BadFile, CertificateFiles, Ends, PeerNames, Protocol, Role, provider};
use crate::clock::Clock;
use crate::limits::TLS_FILE_BYTES_MAX;
use crate::network::Stream;
use crate::reload::{Files, Reload, Shown, Unread};
use crate::shutdown::Shutdown;

/// Files of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// The first is shown to whoever asks for no name, or one that none is for. Not empty.
    pub certificates: Vec<CertificateFiles>,
    /// Whether clients are to show certificates.
    pub clients: Option<Clients>,
}

/// Whom to believe of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clients {
    /// Those who sign their certificates, PEM.
    pub authority: PathBuf,
    /// Whether each has to show one.
    pub demand: Demand,
}

/// Whether a client has to show a certificate. One that it shows has to be good in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// Whoever shows none is refused.
    Required,
    /// Whoever shows none has no name.
    Optional,
}

impl Demand {
    /// The words for them.
    pub const WORDS: &'static [&'static str] = &["required", "optional"];

    /// The one that a word stands for.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        match word {
            "required" => Some(Self::Required),
            "optional" => Some(Self::Optional),
            _ => None,
        }
    }
}

impl ServerFiles {
    fn paths(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = self.certificates.iter().flat_map(CertificateFiles::paths).collect();
        paths.extend(self.clients.iter().map(|clients| clients.authority.clone()));
        paths
    }

    fn configuration(
        &self,
        protocol: Protocol,
        contents: &[Vec<u8>],
    ) -> Result<(ServerConfig, Moment), BadFile> {
        let mut contents = contents.iter().map(Vec::as_slice);
        let mut next = || contents.next().unwrap_or_default();
        let (mut identities, mut ends) = (Vec::new(), Moment(i64::MAX));
        for files in &self.certificates {
            let identity = files.identity(next(), next())?;
            ends = ends.min(identity.ends);
            identities.push(identity.certified);
        }
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for both versions");
        let (builder, is_asking) = match &self.clients {
            None => (builder.with_no_client_auth(), false),
            Some(Clients { authority: path, demand }) => {
                let roots = authority(path, next())?;
                (builder.with_client_cert_verifier(verifier(roots, *demand)), true)
            }
        };
        let mut configuration = builder.with_cert_resolver(Arc::new(ByName(identities)));
        configuration.alpn_protocols = protocol.alpn();
        configuration.session_storage = Arc::new(NoServerSessionStorage {});
        // Whoever came back by a ticket would not be asked for a certificate that is good today. Others keep theirs,
        // sealed with a key of this configuration: in a storm each saves this process a signature.
        configuration.send_tls13_tickets = usize::from(!is_asking);
        if !is_asking {
            configuration.ticketer = Ticketer::new().expect("the system gives random bytes");
        }
        Ok((configuration, ends))
    }
}

fn verifier(
    roots: Arc<RootCertStore>,
    demand: Demand,
) -> Arc<dyn rustls::server::danger::ClientCertVerifier> {
    let builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
    let builder = match demand {
        Demand::Required => builder,
        Demand::Optional => builder.allow_unauthenticated(),
    };
    builder.build().expect("there is somebody who signs")
}

/// Chooses the first certificate that is for the name a client asks for.
#[derive(Debug)]
struct ByName(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let asked = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let is_for = |identity: &&Arc<CertifiedKey>, asked: &ServerName<'_>| {
            let certificate = identity.end_entity_cert().and_then(ParsedCertificate::try_from);
            certificate.is_ok_and(|certificate| verify_server_name(&certificate, asked).is_ok())
        };
        let named = asked.and_then(|asked| self.0.iter().find(|identity| is_for(identity, &asked)));
        named.or(self.0.first()).cloned()
    }
}

/// The certificates of a listener, which may change at any time. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct ServerTls {
    configuration: Arc<ArcSwap<ServerConfig>>,
    ends: Ends,
}

/// What follows the files of a listener.
#[derive(Debug)]
pub struct ServerReload {
    files: ServerFiles,
    protocol: Protocol,
    tls: ServerTls,
}

impl ServerTls {
    /// Reads files for the first time; the certificates follow them as long as the files are followed.
    ///
    /// # Errors
    /// The first of them that is bad.
    pub async fn open(
        files: ServerFiles,
        protocol: Protocol,
    ) -> Result<(Self, Files<ServerReload>), BadFile> {
        let followed = Files::open(files.paths(), |contents| {
            let (configuration, ends) = files.configuration(protocol, contents)?;
            let configuration = Arc::new(ArcSwap::from_pointee(configuration));
            let tls = Self { configuration, ends: Ends::new("clients", ends) };
            Ok(ServerReload { files: files.clone(), protocol, tls })
        });
        let followed = followed.await?;
        Ok((followed.reload().tls.clone(), followed))
    }

    /// The same, followed until `shutdown`.
    ///
    /// # Errors
    /// The first of them that is bad.
    pub async fn open_followed(
        files: ServerFiles,
        protocol: Protocol,
        (clock, shutdown): (&Clock, &Shutdown),
    ) -> Result<Self, BadFile> {
        let (tls, followed) = Self::open(files, protocol).await?;
        shutdown.spawn("certificates", followed.follow(clock.clone(), shutdown.token()));
        Ok(tls)
    }

    /// When the first of them ends, as a metric.
    pub(super) fn ends(&self) -> &Ends {
        &self.ends
    }

    /// Speaks TLS over an accepted transport. Has no time-out of its own.
    pub(super) async fn accept(&self, stream: Stream) -> std::io::Result<(Stream, PeerNames)> {
        let accepted = TlsAcceptor::from(self.configuration.load_full()).accept(stream).await?;
        let names = PeerNames::of(accepted.get_ref().1.peer_certificates());
        Ok((Stream::Tls(Box::new(accepted.into())), names))
    }
}

impl Reload for ServerReload {
    type Fault = BadFile;

    const WHAT: &'static str = "certificates for clients";
    const BYTES_MAX: u64 = TLS_FILE_BYTES_MAX;

    fn unread(path: &Path, unread: Unread) -> BadFile {
        unread_file(Role::Chain, path, unread)
    }

    fn take(&mut self, contents: &[Vec<u8>]) -> Result<(), BadFile> {
        let (configuration, ends) = self.files.configuration(self.protocol, contents)?;
        self.tls.configuration.store(Arc::new(configuration));
        self.tls.ends.set(ends);
        Ok(())
    }

    fn announce(&self, paths: &[PathBuf]) {
        let ends = self.tls.ends.get();
        tracing::info!(paths = %Shown(paths), %ends, "certificates for clients in force");
    }
}
