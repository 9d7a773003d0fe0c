//! A core that asks who calls, and whoever calls it by hand: edges, services.

use std::path::PathBuf;

use presence_runtime::network::Network;
use presence_runtime::rpc;
use presence_runtime::tls::{CertificateFiles, ClientFiles, ClientTls, Protocol};
use tonic::transport::Channel;

use crate::certificates::Certificates;
use crate::procs::{CoreOptions, Keys, Peer, Process, Timers, core_with};

/// Its edges: certificate, name, region.
pub const EDGES: [(&str, &str, &str); 2] =
    [("edge-1.test", "edge-1", "eu-west"), ("edge-2.test", "edge-2*", "eu-west")];

/// A core of eu-west that asks for certificates.
pub struct Guarded {
    /// Of tokens.
    pub keys: Keys,
    /// Of certificates.
    pub authority: Certificates,
    /// The core.
    pub core: Process,
    /// What it logs.
    pub log: PathBuf,
    _folder: tempfile::TempDir,
}

impl Guarded {
    /// Starts it. Whoever shows a certificate named `team-a.test` may read rooms that begin with `team-a:`.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start() -> anyhow::Result<Self> {
        let (keys, authority, folder) = (Keys::generate()?, Certificates::new()?, tempfile::tempdir()?);
        let (own, log) = (authority.sign("core.test")?, folder.path().join("core.log"));
        let peers = authority.peers(&EDGES, &[("team-a.test", "presence.read", "team-a:")])?;
        let flags = [
            ("--tls-cert", own.certificate),
            ("--tls-key", own.key),
            ("--tls-client-ca", authority.authority()),
            ("--tls-client-auth", "optional".into()),
            ("--peers", peers),
            ("--region", "eu-west".into()),
        ];
        let more = flags.into_iter().flat_map(|(flag, value)| [flag.into(), value.display().to_string()]);
        let options =
            CoreOptions { more: more.collect(), log_file: Some(log.clone()), ..CoreOptions::default() };
        let core = core_with(&options, &keys, &Timers::SHORT)?;
        Ok(Self { keys, authority, core, log, _folder: folder })
    }

    /// A way to the core, with a certificate of that name if one is given.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn channel(&self, name: Option<&str>) -> anyhow::Result<Channel> {
        let identity = name.map(|name| self.authority.sign(name)).transpose()?;
        let identity = identity.map(|signed| CertificateFiles { chain: signed.certificate, key: signed.key });
        let files = ClientFiles { authority: Some(self.authority.authority()), identity };
        let network = Network::tcp().with_tls(ClientTls::read(&files, Protocol::Http2)?);
        let url = format!("https://{}", self.core.address("grpc"));
        Ok(rpc::connect(&network, &url, &rpc::ClientSettings::default()).await?)
    }

    /// Links by hand, with a certificate.
    ///
    /// # Errors
    /// When it does not answer; inside, what it answers.
    pub async fn link(
        &self,
        certificate: &str,
        edge: &str,
        region: &str,
    ) -> anyhow::Result<Result<Peer, tonic::Status>> {
        Peer::link(self.channel(Some(certificate)).await?, edge, region).await
    }

    /// How many callers it has refused for that reason.
    ///
    /// # Errors
    /// When it does not tell.
    pub async fn refused(&self, reason: &str) -> anyhow::Result<f64> {
        self.core.metric(&format!("presence_core_access_refusals_total{{reason=\"{reason}\"}}")).await
    }
}

/// A request that shows a token.
///
/// # Errors
/// When that is no text.
pub fn bearing<T>(message: T, token: &str) -> anyhow::Result<tonic::Request<T>> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse()?);
    Ok(request)
}
