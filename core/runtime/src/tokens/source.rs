//! Where the keys that verify come from: files and addresses, several at once.

use std::fmt;
use std::path::PathBuf;

use http::Uri;
use http::uri::Scheme;

use crate::exposure::is_loopback;

/// One place of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A JWKS file.
    File(PathBuf),
    /// A JWKS that is fetched.
    Url(KeyUrl),
}

/// Where a JWKS is fetched from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyUrl(Uri);

/// An address that no keys are fetched from; the sentence says what would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadKeyUrl {
    /// Not an address of the web.
    #[error("must be a file, or https://HOST/PATH")]
    Malformed,
    /// Whoever reads it on the way could read it too.
    #[error("must not carry a name and a password: key sets are public")]
    Credentials,
    /// Whoever is on the way could bring keys of their own.
    #[error(
        "whoever is on the way could give out keys of their own: https, or http on loopback, \
         or write `insecure = true` (--insecure) to accept that"
    )]
    Plain,
}

impl KeySource {
    /// A file, unless it is an address: `http://…` or `https://…`.
    ///
    /// # Errors
    /// [`BadKeyUrl`]: also one without TLS beyond loopback, unless that is accepted.
    pub fn parse(text: &str, insecure: bool) -> Result<Self, BadKeyUrl> {
        if !text.contains("://") {
            return Ok(Self::File(text.into()));
        }
        let uri: Uri = text.parse().map_err(|_| BadKeyUrl::Malformed)?;
        let is_web = uri.scheme() == Some(&Scheme::HTTPS) || uri.scheme() == Some(&Scheme::HTTP);
        let authority = uri.authority().filter(|_| is_web).ok_or(BadKeyUrl::Malformed)?;
        if authority.as_str().contains('@') {
            return Err(BadKeyUrl::Credentials);
        }
        let url = KeyUrl(uri);
        if url.is_tls() || insecure || is_loopback(url.host()) {
            Ok(Self::Url(url))
        } else {
            Err(BadKeyUrl::Plain)
        }
    }
}

impl KeyUrl {
    pub(super) fn is_tls(&self) -> bool {
        self.0.scheme() == Some(&Scheme::HTTPS)
    }

    /// The host by its name, an IPv6 address without brackets.
    pub(super) fn host(&self) -> &str {
        self.0.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    /// `host:port`, as it is connected to.
    pub(super) fn target(&self) -> String {
        let port = self.0.port_u16().unwrap_or(if self.is_tls() { 443 } else { 80 });
        format!("{}:{port}", self.0.host().unwrap_or_default())
    }

    /// What the request names.
    pub(super) fn authority(&self) -> &str {
        self.0.authority().map_or("", http::uri::Authority::as_str)
    }

    /// What it asks for.
    pub(super) fn path(&self) -> &str {
        self.0.path_and_query().map_or("/", http::uri::PathAndQuery::as_str)
    }
}

impl fmt::Display for KeyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Url(url) => url.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_is_a_file() {
        for text in ["jwks.json", "/etc/presence/jwks.json", "./a:b"] {
            assert_eq!(KeySource::parse(text, false), Ok(KeySource::File(text.into())));
        }
    }

    #[test]
    fn keys_are_fetched_by_tls_or_over_loopback() {
        for (text, target) in [
            ("https://id.example/keys", "id.example:443"),
            ("https://id.example:8443", "id.example:8443"),
            ("http://127.0.0.1:9/jwks.json?v=1", "127.0.0.1:9"),
            ("http://localhost/keys", "localhost:80"),
            ("http://[::1]:7/", "[::1]:7"),
        ] {
            let Ok(KeySource::Url(url)) = KeySource::parse(text, false) else { panic!("{text}") };
            assert_eq!(url.target(), target);
        }
        for text in ["http://id.example/keys", "http://192.168.1.1/", "http://127.0.0.1.example/"] {
            assert_eq!(KeySource::parse(text, false), Err(BadKeyUrl::Plain), "{text}");
            assert!(KeySource::parse(text, true).is_ok(), "{text}: it was written out");
        }
        assert_eq!(KeySource::parse("https://me:secret@id.example/", true), Err(BadKeyUrl::Credentials));
        for text in ["ftp://id.example/", "file:///etc/jwks.json", "https://", "https:// /"] {
            assert_eq!(KeySource::parse(text, true), Err(BadKeyUrl::Malformed), "{text}");
        }
    }
}
