//! Certificates of tests, in files that go with them.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::redis::ServerOptions;

/// A certificate authority with what it has signed.
pub struct Certificates {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
#[derive(Debug, Clone)]
pub struct Signed {
    /// The certificate, PEM.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
}

impl Certificates {
    /// A fresh authority.
    ///
    /// # Errors
    /// When nothing can be written.
    pub fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut params = CertificateParams::new(Vec::new())?;
        // Each has a name of its own: one of the same name would be taken for this one.
        params.distinguished_name.push(DnType::CommonName, folder.path().display().to_string());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        std::fs::write(folder.path().join("ca.pem"), params.self_signed(&key)?.pem())?;
        Ok(Self { folder, issuer: Issuer::new(params, key) })
    }

    /// Its own certificate.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate for a name, and for the loopback address.
    ///
    /// # Errors
    /// When nothing can be written.
    pub fn sign(&self, name: &str) -> anyhow::Result<Signed> {
        let mut params = CertificateParams::new(vec![name.to_owned(), "127.0.0.1".to_owned()])?;
        // A certificate of its issuer's name counts as signed by itself.
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate()?;
        let file = |end: &str| self.folder.path().join(format!("{name}{end}"));
        let signed = Signed { certificate: file(".pem"), key: file("-key.pem") };
        std::fs::write(&signed.certificate, params.signed_by(&key, &self.issuer)?.pem())?;
        std::fs::write(&signed.key, key.serialize_pem())?;
        Ok(signed)
    }

    /// A table of peers: edges by certificate, their names and regions; then services by certificate, scopes and
    /// prefixes of rooms. Replaces the one that was there.
    ///
    /// # Errors
    /// When nothing can be written.
    pub fn peers(
        &self,
        edges: &[(&str, &str, &str)],
        services: &[(&str, &str, &str)],
    ) -> anyhow::Result<PathBuf> {
        let mut text = String::new();
        for (certificate, name, region) in edges {
            text += &format!(
                "[[edge]]\ncertificate = {certificate:?}\nnames = [{name:?}]\nregions = [{region:?}]\n"
            );
        }
        for (certificate, scope, rooms) in services {
            text += &format!(
                "[[service]]\ncertificate = {certificate:?}\nscopes = [{scope:?}]\nrooms = [{rooms:?}]\n"
            );
        }
        let path = self.folder.path().join("peers.toml");
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// A Redis server that speaks TLS only, on that port, and asks its clients for certificates.
    ///
    /// # Errors
    /// When nothing can be written.
    pub fn server(&self, port: u16) -> anyhow::Result<ServerOptions> {
        let own = self.sign("localhost")?;
        let path = |path: &PathBuf| path.display().to_string();
        let options = ServerOptions { is_tls: true, ..ServerOptions::default() };
        Ok(options.with(&[
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &path(&own.certificate),
            "--tls-key-file",
            &path(&own.key),
            "--tls-ca-cert-file",
            &path(&self.authority()),
            "--tls-auth-clients",
            "yes",
        ]))
    }
}
