//! The URL of a store: scheme, addresses, and the name of the master behind Sentinels.

use super::Topology;

/// Where Redis listens unless it is told otherwise.
const REDIS_PORT: u16 = 6379;
/// Where Sentinel listens unless it is told otherwise.
const SENTINEL_PORT: u16 = 26379;

/// A URL of Redis servers, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUrl {
    /// Where the servers are.
    pub topology: Topology,
    /// Whether they speak TLS.
    pub is_tls: bool,
}

/// Why a URL is none of ours. Says nothing of its text, which may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlMistake {
    /// Unknown scheme.
    #[error(
        "must start with redis://, redis+sentinel:// or redis+cluster://, or with rediss for TLS; \
         example: \"redis://127.0.0.1:6379\""
    )]
    Scheme,
    /// A user or password within.
    #[error("must not hold a user or password: give them with store.user and store.password_file")]
    Credentials,
    /// An address that is none.
    #[error("must hold addresses as host:port; example: \"redis+cluster://redis-0:6379,redis-1:6379\"")]
    Address,
    /// Several addresses of one server.
    #[error("must hold one address, or be redis+sentinel:// or redis+cluster://")]
    SeveralServers,
    /// Sentinels without the name of a master.
    #[error("must end with the master's name; example: \"redis+sentinel://s-0:26379,s-1:26379/mymaster\"")]
    Master,
    /// Something after the addresses.
    #[error("must end after the addresses: databases are not chosen, keys have a prefix (store.prefix)")]
    Path,
}

impl StoreUrl {
    /// The schemes of [`StoreUrl::parse`].
    pub const SCHEMES: [&'static str; 6] =
        ["redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"];

    /// Takes a URL apart.
    ///
    /// # Errors
    /// What it must hold and must not.
    pub fn parse(text: &str) -> Result<Self, UrlMistake> {
        let (scheme, rest) = text.split_once("://").ok_or(UrlMistake::Scheme)?;
        let (protocol, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let is_tls = match protocol {
            "redis" => false,
            "rediss" => true,
            _ => return Err(UrlMistake::Scheme),
        };
        if rest.contains('@') {
            return Err(UrlMistake::Credentials);
        }
        let (addresses, path) = rest.split_once('/').unwrap_or((rest, ""));
        let port = if kind == "sentinel" { SENTINEL_PORT } else { REDIS_PORT };
        let mut addresses =
            addresses.split(',').map(|text| address(text.trim(), port)).collect::<Result<Vec<_>, _>>()?;
        let topology = match kind {
            "sentinel" if path.is_empty() || path.contains(['/', '?', '#']) => {
                return Err(UrlMistake::Master);
            }
            "sentinel" => Topology::Sentinel { sentinels: addresses, master: path.to_owned() },
            "" | "cluster" if !path.is_empty() => return Err(UrlMistake::Path),
            "cluster" => Topology::Cluster { nodes: addresses },
            "" if addresses.len() == 1 => Topology::Standalone { server: addresses.remove(0) },
            "" => return Err(UrlMistake::SeveralServers),
            _ => return Err(UrlMistake::Scheme),
        };
        Ok(Self { topology, is_tls })
    }
}

fn address(text: &str, default_port: u16) -> Result<String, UrlMistake> {
    // The colons of an IPv6 address lie within brackets.
    let name_end = text.rfind(']').map_or(0, |at| at + 1);
    let (host, port) = match text[name_end..].rfind(':') {
        Some(at) => {
            (&text[..name_end + at], text[name_end + at + 1..].parse().map_err(|_| UrlMistake::Address)?)
        }
        None => (text, default_port),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
    if host.is_empty() || port == 0 || !host.chars().all(is_host) || (name_end == 0 && host.contains(':')) {
        return Err(UrlMistake::Address);
    }
    Ok(format!("{host}:{port}"))
}

/// Host and port of an address of ours: an IPv6 address without its brackets, as sockets want it.
pub(in crate::store::redis) fn host_and_port(address: &str) -> (String, u16) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (host.to_owned(), port.parse().unwrap_or(REDIS_PORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(Topology, bool), UrlMistake> {
        StoreUrl::parse(text).map(|url| (url.topology, url.is_tls))
    }

    #[test]
    fn each_topology_has_its_scheme() {
        let one = |server: &str| Topology::Standalone { server: server.into() };
        assert_eq!(parse("redis://h:1"), Ok((one("h:1"), false)));
        assert_eq!(parse("rediss://h/"), Ok((one("h:6379"), true)));
        assert_eq!(parse("redis://[::1]:7"), Ok((one("[::1]:7"), false)));
        assert_eq!(parse("redis://[::1]"), Ok((one("[::1]:6379"), false)));
        let sentinels =
            Topology::Sentinel { sentinels: vec!["a:1".into(), "b:26379".into()], master: "m".into() };
        assert_eq!(parse("redis+sentinel://a:1,b/m"), Ok((sentinels.clone(), false)));
        assert_eq!(parse("rediss+sentinel://a:1,b/m"), Ok((sentinels, true)));
        let nodes = Topology::Cluster { nodes: vec!["a:1".into(), "b:2".into()] };
        assert_eq!(parse("redis+cluster://a:1,b:2"), Ok((nodes.clone(), false)));
        assert_eq!(parse("rediss+cluster://a:1, b:2/"), Ok((nodes, true)));
        assert_eq!(host_and_port("[::1]:7"), ("::1".to_owned(), 7));
    }

    #[test]
    fn each_mistake_is_told() {
        for (text, mistake) in [
            ("h:1", UrlMistake::Scheme),
            ("http://h:1", UrlMistake::Scheme),
            ("redis+other://h:1", UrlMistake::Scheme),
            ("redis://:secret@h:1", UrlMistake::Credentials),
            ("redis://", UrlMistake::Address),
            ("redis://h:0", UrlMistake::Address),
            ("redis://h:99999", UrlMistake::Address),
            ("redis://::1", UrlMistake::Address),
            ("redis+cluster://h:1,,g:1", UrlMistake::Address),
            ("redis://h:1,g:1", UrlMistake::SeveralServers),
            ("redis+sentinel://h:1", UrlMistake::Master),
            ("redis://h:1/2", UrlMistake::Path),
            ("redis://h:1?db=2", UrlMistake::Address),
        ] {
            assert_eq!(parse(text), Err(mistake), "{text}");
        }
    }
}
