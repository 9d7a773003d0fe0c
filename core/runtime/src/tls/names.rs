//! Who a peer is, by the certificate it has shown.

use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use smol_str::SmolStr;
use webpki::EndEntityCert;

/// The names in a verified certificate of a peer: its DNS names, then its URIs. None if it has shown no
/// certificate, or nobody asked for one. Cheap to clone.
///
/// In the extensions of every gRPC request. The common name is no name: those who sign do not vouch for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerNames(Arc<[SmolStr]>);

impl PeerNames {
    /// Those in the certificate of a chain that was verified.
    pub(super) fn of(chain: Option<&[CertificateDer<'_>]>) -> Self {
        let leaf = chain.and_then(|chain| EndEntityCert::try_from(chain.first()?).ok());
        let names = leaf.iter().flat_map(|leaf| leaf.valid_dns_names().chain(leaf.valid_uri_names()));
        Self(names.map(SmolStr::new).collect())
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(SmolStr::as_str)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Names that somebody has vouched for otherwise.
impl<'a> FromIterator<&'a str> for PeerNames {
    fn from_iter<T: IntoIterator<Item = &'a str>>(names: T) -> Self {
        Self(names.into_iter().map(SmolStr::new).collect())
    }
}
