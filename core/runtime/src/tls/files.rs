//! Reading certificates and keys. Nothing of what is in a file is ever told.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::provider;
use crate::clock::Clock;
use crate::limits::{NUMERIC_DATE_MAX, TLS_CHAIN_MAX, TLS_FILE_BYTES_MAX};
use crate::reload::{Unread, read_now};

/// A certificate and its key, both PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, then those that lead from it to one that is trusted.
    pub chain: PathBuf,
    /// Its private key, not encrypted.
    pub key: PathBuf,
}

/// What is shown to peers, and until when they take it.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) certified: Arc<CertifiedKey>,
    pub(super) ends: Moment,
}

/// A moment of a certificate, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub i64);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = u64::try_from(self.0).unwrap_or(0);
        // Of no certificate; and of no year that is written with four digits.
        if since > NUMERIC_DATE_MAX {
            return f.write_str("never");
        }
        let since = Duration::from_secs(since);
        fmt::Display::fmt(&humantime::format_rfc3339_seconds(UNIX_EPOCH + since), f)
    }
}

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A certificate and its chain.
    Chain,
    /// The key of a certificate.
    Key,
    /// Those who sign the certificates of peers.
    Authority,
}

/// A file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct BadFile {
    /// What it was for.
    pub role: Role,
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub fault: FileFault,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileFault {
    /// It was not read.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// It has no certificate.
    #[error("has no certificate in PEM (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// It has too many.
    #[error("has {count} certificates, at most {TLS_CHAIN_MAX} make a chain")]
    TooMany {
        /// As given.
        count: usize,
    },
    /// It has no key.
    #[error("has no private key in PEM that is not encrypted (-----BEGIN PRIVATE KEY-----)")]
    NoKey,
    /// A certificate in it makes no sense.
    #[error("has a certificate that cannot be used: {0}")]
    Certificate(Error),
    /// It has ended.
    #[error("has a certificate that ended at {0}: nobody would take it")]
    Ended(Moment),
    /// It has not begun.
    #[error("has a certificate that does not begin before {0}: nobody would take it yet")]
    NotBegun(Moment),
    /// The key makes no sense.
    #[error("has a key that cannot be used: {0}")]
    Key(Error),
    /// The key is another one's.
    #[error("is not the key of the certificate in {}", chain.display())]
    Mismatch {
        /// Where the certificate is.
        chain: PathBuf,
    },
}

impl CertificateFiles {
    pub(super) fn paths(&self) -> [PathBuf; 2] {
        [self.chain.clone(), self.key.clone()]
    }

    /// Reads them. Blocks.
    ///
    /// # Errors
    /// The first of them that is bad.
    pub fn check(&self) -> Result<(), BadFile> {
        let chain = now(Role::Chain, &self.chain)?;
        let key = now(Role::Key, &self.key)?;
        self.identity(&chain, &key).map(drop)
    }

    pub(super) fn identity(&self, chain: &[u8], key: &[u8]) -> Result<Identity, BadFile> {
        let bad = |role, fault| {
            let path = if role == Role::Key { &self.key } else { &self.chain };
            BadFile { role, path: path.clone(), fault }
        };
        let certificates = certificates(chain).map_err(|fault| bad(Role::Chain, fault))?;
        if certificates.len() > TLS_CHAIN_MAX {
            return Err(bad(Role::Chain, FileFault::TooMany { count: certificates.len() }));
        }
        let ends = validity(&certificates, now_s()).map_err(|fault| bad(Role::Chain, fault))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| bad(Role::Key, FileFault::NoKey))?;
        let key = provider().key_provider.load_private_key(key);
        let key = key.map_err(|error| bad(Role::Key, FileFault::Key(error)))?;
        let certified = CertifiedKey::new(certificates, key);
        match certified.keys_match() {
            Ok(()) => Ok(Identity { certified: Arc::new(certified), ends }),
            Err(Error::InconsistentKeys(_)) => {
                Err(bad(Role::Key, FileFault::Mismatch { chain: self.chain.clone() }))
            }
            Err(error) => Err(bad(Role::Chain, FileFault::Certificate(error))),
        }
    }
}

/// Reads a file of those who sign certificates, for whoever only wants to know whether it is good. Blocks.
///
/// # Errors
/// It cannot be read, or is bad.
pub(crate) fn check_authority(path: &Path) -> Result<(), BadFile> {
    authority(path, &now(Role::Authority, path)?).map(drop)
}

pub(super) fn authority(path: &Path, bytes: &[u8]) -> Result<Arc<RootCertStore>, BadFile> {
    let bad = |fault| BadFile { role: Role::Authority, path: path.to_owned(), fault };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(bytes).map_err(bad)? {
        roots.add(certificate).map_err(|error| bad(FileFault::Certificate(error)))?;
    }
    Ok(Arc::new(roots))
}

/// When the first certificate of a chain to end does so; by the clock that peers judge ours by, that of a machine.
fn validity(chain: &[CertificateDer<'_>], now: Moment) -> Result<Moment, FileFault> {
    let mut ends = Moment(i64::MAX);
    for certificate in chain {
        let (_, certificate) = X509Certificate::from_der(certificate)
            .map_err(|_| FileFault::Certificate(Error::InvalidCertificate(CertificateError::BadEncoding)))?;
        let validity = certificate.validity();
        let (from, until) = (Moment(validity.not_before.timestamp()), Moment(validity.not_after.timestamp()));
        if now < from {
            return Err(FileFault::NotBegun(from));
        }
        if until < now {
            return Err(FileFault::Ended(until));
        }
        ends = ends.min(until);
    }
    Ok(ends)
}

fn now_s() -> Moment {
    Moment(i64::try_from(Clock::system().wall_ms() / 1_000).unwrap_or(i64::MAX))
}

fn certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, FileFault> {
    // What the reader of PEM says may quote the file.
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    read.ok().filter(|read| !read.is_empty()).ok_or(FileFault::NoCertificate)
}

fn now(role: Role, path: &Path) -> Result<Vec<u8>, BadFile> {
    read_now(path, TLS_FILE_BYTES_MAX).map_err(|unread| unread_file(role, path, unread))
}

pub(super) fn unread_file(role: Role, path: &Path, unread: Unread) -> BadFile {
    BadFile { role, path: path.to_owned(), fault: unread.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_date_and_that_of_no_certificate_is_never() {
        for (moment, shown) in [
            (-1, "1970-01-01T00:00:00Z"),
            (0, "1970-01-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
            (253_402_300_800, "never"),
            (i64::MAX, "never"),
        ] {
            assert_eq!(Moment(moment).to_string(), shown);
        }
    }
}
