//! Where a connection leads to: a server, or whichever server the Sentinels call the master just now.

use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo as _, ProtocolVersion, RedisConnectionInfo,
    RedisResult, TlsCertificates, TlsMode,
};
use tokio::sync::Mutex;

use super::super::settings::{Access, RedisSettings, TlsFiles, Topology, host_and_port};

/// How a server is found.
pub(super) enum Target {
    /// It is where it always is.
    Server(Box<Client>),
    /// The Sentinels know; asked anew for each connection.
    Master(Box<Mutex<SentinelClient>>),
}

impl Target {
    /// The one server of these settings, or the master of its Sentinels.
    pub(super) fn of(settings: &RedisSettings) -> RedisResult<Self> {
        let access = &settings.access;
        match &settings.topology {
            Topology::Standalone { server } => Ok(Self::Server(Box::new(client(server, access)?))),
            Topology::Sentinel { sentinels, master } => {
                Ok(Self::Master(Box::new(Mutex::new(sentinel_client(sentinels, master, access)?))))
            }
            Topology::Cluster { .. } => {
                let text = "a Cluster is not one server";
                Err((redis::ErrorKind::InvalidClientConfig, text).into())
            }
        }
    }

    /// Whether a server that takes no writes is the wrong one.
    pub(super) fn may_move(&self) -> bool {
        match self {
            Self::Server(_) => false,
            Self::Master(_) => true,
        }
    }

    /// The server to connect to.
    pub(super) async fn client(&self) -> RedisResult<Client> {
        match self {
            Self::Server(client) => Ok((**client).clone()),
            Self::Master(sentinels) => sentinels.lock().await.async_get_client().await,
        }
    }
}

/// RESP3, because servers then say when a connection has ended while nobody waits for an answer.
pub(super) const PROTOCOL: ProtocolVersion = ProtocolVersion::RESP3;

fn client(server: &str, access: &Access) -> RedisResult<Client> {
    let mut handshake = RedisConnectionInfo::default().set_protocol(PROTOCOL);
    if let Some(user) = &access.user {
        handshake = handshake.set_username(user);
    }
    if let Some(password) = &access.password {
        handshake = handshake.set_password(password.reveal());
    }
    let info = address(server, access.tls.as_ref()).into_connection_info()?.set_redis_settings(handshake);
    match &access.tls {
        Some(tls) => Client::build_with_tls(info, certificates(tls)),
        None => Client::open(info),
    }
}

fn sentinel_client(sentinels: &[String], master: &str, access: &Access) -> RedisResult<SentinelClient> {
    let addresses: Vec<_> = sentinels.iter().map(|sentinel| address(sentinel, access.tls.as_ref())).collect();
    let mut builder = SentinelClientBuilder::new(addresses, master, SentinelServerType::Master)?
        .set_client_to_redis_protocol(PROTOCOL);
    if let Some(user) = &access.user {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = &access.password {
        builder = builder.set_client_to_redis_password(password.reveal());
    }
    if let Some(password) = &access.sentinel_password {
        builder = builder.set_client_to_sentinel_password(password.reveal());
    }
    if let Some(tls) = &access.tls {
        builder = builder
            .set_client_to_redis_tls_mode(TlsMode::Secure)
            .set_client_to_redis_certificates(certificates(tls))
            .set_client_to_sentinel_tls_mode(TlsMode::Secure)
            .set_client_to_sentinel_certificates(certificates(tls));
    }
    builder.build()
}

/// An address as the client library has it.
pub(super) fn address(server: &str, tls: Option<&TlsFiles>) -> ConnectionAddr {
    let (host, port) = host_and_port(server);
    match tls {
        Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        None => ConnectionAddr::Tcp(host, port),
    }
}

/// Certificates as the client library has them.
pub(super) fn certificates(tls: &TlsFiles) -> TlsCertificates {
    let client_tls = tls.identity.as_ref();
    TlsCertificates {
        client_tls: client_tls
            .map(|(chain, key)| ClientTlsConfig { client_cert: chain.clone(), client_key: key.clone() }),
        root_cert: tls.authority.clone(),
    }
}
