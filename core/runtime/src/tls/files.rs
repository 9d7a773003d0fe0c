//! Reading certificates and keys. Nothing of what is in a file is ever told.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::sign::CertifiedKey;
use rustls::{Error, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::provider;
use crate::limits::{TLS_CHAIN_MAX, TLS_FILE_BYTES_MAX};
use crate::reload::{Unread, read_now};

/// A certificate and its key, both PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, then those that lead from it to one that is trusted.
    pub chain: PathBuf,
    /// Its private key, not encrypted.
    pub key: PathBuf,
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

    pub(super) fn identity(&self, chain: &[u8], key: &[u8]) -> Result<Arc<CertifiedKey>, BadFile> {
        let bad = |role, fault| {
            let path = if role == Role::Key { &self.key } else { &self.chain };
            BadFile { role, path: path.clone(), fault }
        };
        let certificates = certificates(chain).map_err(|fault| bad(Role::Chain, fault))?;
        if certificates.len() > TLS_CHAIN_MAX {
            return Err(bad(Role::Chain, FileFault::TooMany { count: certificates.len() }));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| bad(Role::Key, FileFault::NoKey))?;
        let key = provider().key_provider.load_private_key(key);
        let key = key.map_err(|error| bad(Role::Key, FileFault::Key(error)))?;
        let certified = CertifiedKey::new(certificates, key);
        match certified.keys_match() {
            Ok(()) => Ok(Arc::new(certified)),
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
