//! Certificates as a configuration has them: the `tls` table of a listener, and that of whoever connects to cores.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::checks::Checks;
use super::loader::Loader;
use super::{Kind, Setting};
use crate::limits::TLS_CERTIFICATES_MAX;
use crate::tls::{BadFile, CertificateFiles, ClientFiles, Clients, Demand, Role, ServerFiles};
use crate::tls::{check_authority, system_trusts_somebody};

const FILES: Kind = Kind::List(&Kind::Text);

/// The settings of a listener's certificates, to be joined to those of a binary.
pub const TLS_SETTINGS: [Setting; 4] = [
    Setting::new("tls.cert_file", FILES, "[\"/etc/presence/tls/tls.crt\"]"),
    Setting::new("tls.key_file", FILES, "[\"/etc/presence/tls/tls.key\"]"),
    Setting::new("tls.client_ca_file", Kind::Text, "\"/etc/presence/tls/ca.crt\""),
    Setting::new("tls.client_auth", Kind::OneOf(Demand::WORDS), "\"required\""),
];

/// The settings of whoever connects to cores.
pub const CORE_TLS_SETTINGS: [Setting; 3] = [
    Setting::new("core_tls.ca_file", Kind::Text, "\"/etc/presence/core-tls/ca.crt\""),
    Setting::new("core_tls.cert_file", Kind::Text, "\"/etc/presence/core-tls/tls.crt\""),
    Setting::new("core_tls.key_file", Kind::Text, "\"/etc/presence/core-tls/tls.key\""),
];

/// Flags about a listener's certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct TlsFlags {
    /// A certificate and its chain, PEM: TLS is spoken to whoever connects. Several for several names; followed while
    /// running
    #[arg(long, value_name = "FILE[,FILE…]")]
    pub tls_cert: Option<String>,
    /// The key of that certificate, PEM; several in the same order
    #[arg(long, value_name = "FILE[,FILE…]")]
    pub tls_key: Option<String>,
    /// Who signs the certificates of those who connect, PEM
    #[arg(long, value_name = "FILE")]
    pub tls_client_ca: Option<String>,
    /// Whether they have to show one: `required`, `optional` (required)
    #[arg(long, value_name = "WORD")]
    pub tls_client_auth: Option<String>,
}

impl TlsFlags {
    /// Hands the flags to a loader.
    #[must_use]
    pub fn onto<'a>(&self, loader: Loader<'a>) -> Loader<'a> {
        loader
            .flag("tls.cert_file", "--tls-cert", self.tls_cert.as_deref())
            .flag("tls.key_file", "--tls-key", self.tls_key.as_deref())
            .flag("tls.client_ca_file", "--tls-client-ca", self.tls_client_ca.as_deref())
            .flag("tls.client_auth", "--tls-client-auth", self.tls_client_auth.as_deref())
    }
}

/// The `tls` table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsTable {
    /// Certificates with their chains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cert_file: Vec<PathBuf>,
    /// Their keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub key_file: Vec<PathBuf>,
    /// Who signs the certificates of clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca_file: Option<PathBuf>,
    /// Whether clients have to show one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_auth: Option<String>,
}

impl TlsTable {
    /// Whether nothing is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether TLS is wanted.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        !self.cert_file.is_empty()
    }

    /// Whether everybody is asked for a certificate.
    #[must_use]
    pub fn asks_everybody(&self) -> bool {
        self.is_wanted() && self.client_ca_file.is_some()
    }

    /// The table with what follows from what is given.
    #[must_use]
    pub fn in_force(mut self) -> Self {
        if self.client_ca_file.is_some() && self.client_auth.is_none() {
            self.client_auth = Demand::WORDS.first().map(|word| (*word).to_owned());
        }
        self
    }

    fn demand(&self) -> Demand {
        self.client_auth.as_deref().and_then(Demand::of).unwrap_or(Demand::Required)
    }
}

/// The `core_tls` table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CoreTlsTable {
    /// Who signs the certificates of cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// What to show to cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<PathBuf>,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
}

impl CoreTlsTable {
    /// Whether nothing is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Checks<'_, '_> {
    /// The files of a listener; none if it is to be plain, or something is wrong with them.
    pub fn tls(&mut self, table: &TlsTable) -> Option<ServerFiles> {
        let of_no_use = "is of no use without tls.cert_file";
        self.unless(table.is_wanted(), "tls.client_ca_file", table.client_ca_file.as_deref(), of_no_use);
        let auth = table.client_auth.as_deref().map(Path::new);
        self.unless(
            table.client_ca_file.is_some(),
            "tls.client_auth",
            auth,
            "is of no use without tls.client_ca_file",
        );
        let (certificates, keys) = (table.cert_file.len(), table.key_file.len());
        if certificates != keys && !self.has_mistakes_under("tls.") {
            let rule = format!(
                "must be as many as tls.cert_file, which are {certificates}: each certificate has its key"
            );
            self.wrong("tls.key_file", format!("{:?}", table.key_file), rule);
        }
        if certificates > TLS_CERTIFICATES_MAX {
            let rule = format!("are {certificates}, at most {TLS_CERTIFICATES_MAX} may be");
            self.wrong("tls.cert_file", "[…]".to_owned(), rule);
        }
        if !table.is_wanted() || self.has_mistakes_under("tls.") {
            return None;
        }
        let pairs = table.cert_file.iter().zip(&table.key_file);
        let certificates: Vec<_> =
            pairs.map(|(chain, key)| CertificateFiles { chain: chain.clone(), key: key.clone() }).collect();
        for files in &certificates {
            self.file(files.check(), ["tls.cert_file", "tls.key_file", "tls.client_ca_file"]);
        }
        let clients = table.client_ca_file.clone().map(|authority| {
            self.file(check_authority(&authority), ["tls.cert_file", "tls.key_file", "tls.client_ca_file"]);
            Clients { authority, demand: table.demand() }
        });
        (!self.has_mistakes_under("tls.")).then_some(ServerFiles { certificates, clients })
    }

    /// The files of whoever connects to cores; none if none of these speaks TLS, or something is wrong with them.
    pub fn core_tls(&mut self, table: &CoreTlsTable, is_spoken: bool) -> Option<ClientFiles> {
        let of_no_use = "is of no use while no core is https://";
        for (path, file) in [
            ("core_tls.ca_file", &table.ca_file),
            ("core_tls.cert_file", &table.cert_file),
            ("core_tls.key_file", &table.key_file),
        ] {
            self.unless(is_spoken, path, file.as_deref(), of_no_use);
        }
        if !is_spoken || self.has_mistakes_under("core_tls.") {
            return None;
        }
        let identity = match (table.cert_file.clone(), table.key_file.clone()) {
            (Some(chain), Some(key)) => Some(CertificateFiles { chain, key }),
            (None, None) => None,
            (Some(_), None) => {
                self.wrong(
                    "core_tls.key_file",
                    "(not set)".into(),
                    "must be given with core_tls.cert_file".into(),
                );
                None
            }
            (None, Some(_)) => {
                self.wrong(
                    "core_tls.cert_file",
                    "(not set)".into(),
                    "must be given with core_tls.key_file".into(),
                );
                None
            }
        };
        let settings = ["core_tls.cert_file", "core_tls.key_file", "core_tls.ca_file"];
        if let Some(files) = &identity {
            self.file(files.check(), settings);
        }
        match &table.ca_file {
            Some(path) => self.file(check_authority(path), settings),
            None if !system_trusts_somebody() => {
                let rule = "this system trusts nobody: say who signs the certificates of cores";
                self.wrong("core_tls.ca_file", "(not set)".into(), rule.into());
            }
            None => {}
        }
        let files = ClientFiles { authority: table.ca_file.clone(), identity };
        (!self.has_mistakes_under("core_tls.")).then_some(files)
    }

    /// That something is given only where it is of use.
    fn unless(&mut self, is_of_use: bool, path: &str, given: Option<&Path>, rule: &str) {
        if let Some(given) = given.filter(|_| !is_of_use && !self.has_mistake_at(path)) {
            self.wrong(path, format!("{:?}", given.display().to_string()), rule.to_owned());
        }
    }

    /// What is wrong with a file, told where it was given: as certificate, as key, or as authority.
    fn file(&mut self, checked: Result<(), BadFile>, [chain, key, authority]: [&str; 3]) {
        if let Err(BadFile { role, path, fault }) = checked {
            let setting = match role {
                Role::Chain => chain,
                Role::Key => key,
                Role::Authority => authority,
            };
            self.wrong(setting, format!("{:?}", path.display().to_string()), fault.to_string());
        }
    }
}
