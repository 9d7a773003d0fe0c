//! Whom to trust when connecting, and as whom to go.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, Error, InvalidMessage, RootCertStore};
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::files::{Moment, authority, unread_file};
use super::{BadFile, CertificateFiles, Ends, Protocol, Role, provider};
use crate::clock::Clock;
use crate::limits::TLS_FILE_BYTES_MAX;
use crate::network::Stream;
use crate::reload::{Files, Reload, Shown, Unread, read_now};
use crate::shutdown::Shutdown;
use crate::telemetry::Metrics;

/// Files of whoever connects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// Those who sign the certificates of servers, PEM; none: whom this system trusts.
    pub authority: Option<PathBuf>,
    /// What to show to servers that ask for it.
    pub identity: Option<CertificateFiles>,
}

/// A server cannot be spoken to by TLS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// No certificate is for such a name.
    #[error("{0:?} is no name that a certificate could have")]
    Name(String),
    /// It answered something else.
    #[error("it speaks no TLS: its address has to begin with http://, or ws://")]
    Plain,
}

impl ClientFiles {
    fn paths(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = self.identity.iter().flat_map(CertificateFiles::paths).collect();
        paths.extend(self.authority.clone());
        paths
    }

    fn configuration(
        &self,
        protocol: Protocol,
        contents: &[Vec<u8>],
    ) -> Result<(ClientConfig, Moment), BadFile> {
        let mut contents = contents.iter().map(Vec::as_slice);
        let mut next = || contents.next().unwrap_or_default();
        let identity = match &self.identity {
            None => None,
            Some(files) => Some(files.identity(next(), next())?),
        };
        // Who shows none has none that ends.
        let ends = identity.as_ref().map_or(Moment(i64::MAX), |identity| identity.ends);
        let roots = match &self.authority {
            Some(path) => authority(path, next())?,
            None => of_system(),
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for both versions")
            .with_root_certificates(roots);
        let mut configuration = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity.certified)))
            }
        };
        configuration.alpn_protocols = protocol.alpn();
        Ok((configuration, ends))
    }
}

/// Whom this system trusts. Nobody, if it has no list: then no server is good.
fn of_system() -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (good, bad) = roots.add_parsable_certificates(found.certs);
    tracing::debug!(good, bad, "authorities of this system");
    Arc::new(roots)
}

/// Whether this system has a list of whom to trust. Blocks.
pub(crate) fn system_trusts_somebody() -> bool {
    !of_system().is_empty()
}

/// Whom to trust and as whom to go, which may change at any time. Cheap to clone; clones share it.
#[derive(Debug, Clone)]
pub struct ClientTls {
    configuration: Arc<ArcSwap<ClientConfig>>,
    ends: Ends,
}

/// What follows the files of whoever connects.
#[derive(Debug)]
pub struct ClientReload {
    files: ClientFiles,
    protocol: Protocol,
    tls: ClientTls,
}

impl ClientTls {
    /// Reads files for the first time; connections follow them as long as the files are followed.
    ///
    /// # Errors
    /// The first of them that is bad.
    pub async fn open(
        files: ClientFiles,
        protocol: Protocol,
    ) -> Result<(Self, Files<ClientReload>), BadFile> {
        let followed = Files::open(files.paths(), |contents| {
            let tls = Self::new(files.configuration(protocol, contents)?);
            Ok(ClientReload { files: files.clone(), protocol, tls })
        });
        let followed = followed.await?;
        Ok((followed.reload().tls.clone(), followed))
    }

    /// The same, followed until `shutdown`.
    ///
    /// # Errors
    /// The first of them that is bad.
    pub async fn open_followed(
        files: ClientFiles,
        protocol: Protocol,
        (clock, shutdown): (&Clock, &Shutdown),
    ) -> Result<Self, BadFile> {
        let (tls, followed) = Self::open(files, protocol).await?;
        shutdown.spawn("certificates towards cores", followed.follow(clock.clone(), shutdown.token()));
        Ok(tls)
    }

    /// Reads files once, for whoever does not run for long. Blocks.
    ///
    /// # Errors
    /// The first of them that is bad.
    pub fn read(files: &ClientFiles, protocol: Protocol) -> Result<Self, BadFile> {
        let read = |path: &PathBuf| {
            read_now(path, TLS_FILE_BYTES_MAX).map_err(|unread| ClientReload::unread(path, unread))
        };
        let contents = files.paths().iter().map(read).collect::<Result<Vec<_>, _>>()?;
        Ok(Self::new(files.configuration(protocol, &contents)?))
    }

    fn new((configuration, ends): (ClientConfig, Moment)) -> Self {
        let configuration = Arc::new(ArcSwap::from_pointee(configuration));
        Self { configuration, ends: Ends::new("cores", ends) }
    }

    /// Shows as a metric when the certificate for cores ends, if there is one.
    pub fn show(&self, metrics: &Metrics) {
        self.ends.show(metrics);
    }

    /// Speaks TLS over a transport to a host, which has to prove its name. Has no time-out of its own.
    ///
    /// # Errors
    /// [`HostError`] inside; what the library says of its certificate; those of the transport.
    pub async fn connect(&self, host: &str, stream: Stream) -> io::Result<Stream> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(bare.to_owned())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, HostError::Name(bare.to_owned())))?;
        let connected = TlsConnector::from(self.configuration.load_full()).connect(name, stream).await;
        let connected = connected.map_err(|error| if is_plain(&error) { plain() } else { error })?;
        Ok(Stream::Tls(Box::new(connected.into())))
    }
}

fn is_plain(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
    cause == Some(&Error::InvalidMessage(InvalidMessage::InvalidContentType))
}

fn plain() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, HostError::Plain)
}

impl Reload for ClientReload {
    type Fault = BadFile;

    const WHAT: &'static str = "certificates towards cores";
    const BYTES_MAX: u64 = TLS_FILE_BYTES_MAX;

    fn unread(path: &Path, unread: Unread) -> BadFile {
        unread_file(Role::Authority, path, unread)
    }

    fn take(&mut self, contents: &[Vec<u8>]) -> Result<(), BadFile> {
        let (configuration, ends) = self.files.configuration(self.protocol, contents)?;
        self.tls.configuration.store(Arc::new(configuration));
        self.tls.ends.set(ends);
        Ok(())
    }

    fn announce(&self, paths: &[PathBuf]) {
        if !paths.is_empty() {
            let ends = self.tls.ends.get();
            tracing::info!(paths = %Shown(paths), %ends, "certificates towards cores in force");
        }
    }
}
