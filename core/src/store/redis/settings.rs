//! What the adapter is told.

mod url;

use std::fmt;

use crate::store::Retention;

pub(super) use url::host_and_port;
pub use url::{StoreUrl, UrlMistake};

/// How the servers stand to each other. Addresses are `host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Standalone {
        /// Where it is.
        server: String,
    },
    /// A master that is found through Sentinels, again after each fail-over.
    Sentinel {
        /// Where they are.
        sentinels: Vec<String>,
        /// What they call it.
        master: String,
    },
    /// Shards of a Redis Cluster.
    Cluster {
        /// Some of its nodes; the others are found through them.
        nodes: Vec<String>,
    },
}

/// Where it is looked for.
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standalone { server } => f.write_str(server),
            Self::Sentinel { sentinels, master } => {
                write!(f, "{master:?} of the Sentinels at {}", sentinels.join(", "))
            }
            Self::Cluster { nodes } => write!(f, "the Cluster at {}", nodes.join(", ")),
        }
    }
}

/// A password: never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// The text of a file without its last line break.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let text = text.strip_suffix('\n').unwrap_or(text);
        Self(text.strip_suffix('\r').unwrap_or(text).to_owned())
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// TLS towards the servers, in PEM. Names are verified.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Who signs the servers' certificates; none: whom the system trusts.
    pub authority: Option<Vec<u8>>,
    /// Our certificate chain and its key, for servers that ask for one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for TlsFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { authority, identity } = self;
        let (authority, identity) = (authority.is_some(), identity.is_some());
        f.debug_struct("TlsFiles").field("authority", &authority).field("identity", &identity).finish()
    }
}

/// How servers are told who we are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// The ACL user; none: `default`.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<Password>,
    /// The password of the Sentinels, if they ask for one.
    pub sentinel_password: Option<Password>,
    /// TLS; none: plain.
    pub tls: Option<TlsFiles>,
}

/// What a Redis store is made of.
#[derive(Debug, Clone)]
pub struct RedisSettings {
    /// Where the servers are.
    pub topology: Topology,
    /// How they are told who we are.
    pub access: Access,
    /// In front of every key.
    pub prefix: String,
    /// Shards, 1 to 256, fixed at the first start.
    pub shards: u16,
    /// What is remembered for how long.
    pub retention: Retention,
    /// Draws the random part of epochs and jitter; unpredictable outside tests.
    pub seed: u64,
}

/// In front of every key unless it is told otherwise.
pub const DEFAULT_PREFIX: &str = "presence";
/// Shards unless it is told otherwise: enough for a Cluster of a few masters, cheap on one server.
pub const DEFAULT_SHARDS: u16 = 16;

impl RedisSettings {
    /// Settings with every default.
    #[must_use]
    pub fn new(topology: Topology, seed: u64) -> Self {
        Self {
            topology,
            access: Access::default(),
            prefix: DEFAULT_PREFIX.to_owned(),
            shards: DEFAULT_SHARDS,
            retention: Retention::default(),
            seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let password = Some(Password::new("hunter2\r\n"));
        assert_eq!(password.as_ref().map(Password::reveal), Some("hunter2"));
        let identity = Some((b"chain".to_vec(), b"secret key".to_vec()));
        let access = Access {
            user: Some("presence".into()),
            sentinel_password: password.clone(),
            password,
            tls: Some(TlsFiles { authority: None, identity }),
        };
        let shown = format!("{access:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("secret"), "{shown}");
    }
}
