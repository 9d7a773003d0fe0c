//! Where leases are kept: the `store` table and its flags.

use std::path::PathBuf;

use clap::Args;
use presence_model::limits::SHARDS_MAX;
use presence_runtime::config::{Checks, Kind, Loader, Setting};
use serde::{Deserialize, Serialize};

use crate::store::redis::{
    Access, DEFAULT_PREFIX, DEFAULT_SHARDS, Password, RedisSettings, StoreUrl, TlsFiles,
};

const URLS: Kind = Kind::Url(&[
    "memory",
    "redis",
    "rediss",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
]);
/// What is shown of a URL that may hold a password.
const HIDDEN: &str = "(hidden)";
const SHARDS: Kind = Kind::Whole { min: 1, max: SHARDS_MAX as u32 };

/// Every key of the `store` table. The URL is hidden wherever it is shown: who mistakes where a password
/// goes has still given it.
pub(super) const STORE_SETTINGS: [Setting; 9] = [
    Setting::new("store.url", URLS, "\"redis://127.0.0.1:6379\"").secret(),
    Setting::new("store.prefix", Kind::Text, "\"presence\""),
    Setting::new("store.shards", SHARDS, "16"),
    Setting::new("store.user", Kind::Text, "\"presence\""),
    Setting::new("store.password_file", Kind::Text, "\"/etc/presence/redis-password\""),
    Setting::new("store.sentinel_password_file", Kind::Text, "\"/etc/presence/sentinel-password\""),
    Setting::new("store.ca_file", Kind::Text, "\"/etc/presence/redis-ca.pem\""),
    Setting::new("store.cert_file", Kind::Text, "\"/etc/presence/redis-client.pem\""),
    Setting::new("store.key_file", Kind::Text, "\"/etc/presence/redis-client-key.pem\""),
];

/// Flags about the store. Kept as text, so that all mistakes are told at once.
#[derive(Debug, Clone, Default, Args)]
pub struct StoreFlags {
    /// Where leases are kept: `memory` (for one core whose data may go with it), `redis://HOST:PORT`,
    /// `redis+sentinel://HOST:PORT,…/MASTER`, `redis+cluster://HOST:PORT,…`; `rediss` for TLS
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// In front of every key of the store (presence)
    #[arg(long, value_name = "TEXT")]
    pub store_prefix: Option<String>,
    /// Shards of the store, fixed at its first start (16)
    #[arg(long, value_name = "COUNT")]
    pub store_shards: Option<String>,
    /// The store's user, if it is not the default one
    #[arg(long, value_name = "NAME")]
    pub store_user: Option<String>,
    /// A file with the store's password
    #[arg(long, value_name = "FILE")]
    pub store_password_file: Option<String>,
    /// A file with the certificates that vouch for the store, PEM
    #[arg(long, value_name = "FILE")]
    pub store_ca_file: Option<String>,
    /// A file with our certificate for the store, PEM
    #[arg(long, value_name = "FILE")]
    pub store_cert_file: Option<String>,
    /// A file with the key of that certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub store_key_file: Option<String>,
}

impl StoreFlags {
    /// Hands the flags to a loader.
    pub(super) fn onto<'a>(&self, loader: Loader<'a>) -> Loader<'a> {
        loader
            .flag("store.url", "--store", self.store.as_deref())
            .flag("store.prefix", "--store-prefix", self.store_prefix.as_deref())
            .flag("store.shards", "--store-shards", self.store_shards.as_deref())
            .flag("store.user", "--store-user", self.store_user.as_deref())
            .flag("store.password_file", "--store-password-file", self.store_password_file.as_deref())
            .flag("store.ca_file", "--store-ca-file", self.store_ca_file.as_deref())
            .flag("store.cert_file", "--store-cert-file", self.store_cert_file.as_deref())
            .flag("store.key_file", "--store-key-file", self.store_key_file.as_deref())
    }
}

/// The `store` table, defaults included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreTable {
    /// Where leases are kept.
    pub url: String,
    /// In front of every key.
    pub prefix: String,
    /// How many shards.
    pub shards: u16,
    /// The ACL user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// The password of the Sentinels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentinel_password_file: Option<PathBuf>,
    /// Who signs the servers' certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Our certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<PathBuf>,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
}

impl Default for StoreTable {
    fn default() -> Self {
        Self {
            url: "memory".to_owned(),
            prefix: DEFAULT_PREFIX.to_owned(),
            shards: DEFAULT_SHARDS,
            user: None,
            password_file: None,
            sentinel_password_file: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
        }
    }
}

impl StoreTable {
    /// The Redis servers that are named, with the files that belong to them, and without a seed; none:
    /// memory, or something is wrong and `checks` has been told.
    pub fn redis(&self, checks: &mut Checks<'_, '_>) -> Option<RedisSettings> {
        if self.url == "memory" {
            return None;
        }
        let url = StoreUrl::parse(&self.url);
        if let Err(wrong) = &url {
            checks.wrong("store.url", HIDDEN.to_owned(), wrong.to_string());
        }
        if self.prefix.contains(['{', '}']) {
            let rule = "must not hold braces: they decide where a Cluster keeps a key".to_owned();
            checks.wrong("store.prefix", format!("{:?}", self.prefix), rule);
        }
        if self.cert_file.is_some() != self.key_file.is_some() {
            let (path, other) = if self.cert_file.is_some() {
                ("store.cert_file", "store.key_file")
            } else {
                ("store.key_file", "store.cert_file")
            };
            checks.wrong(path, "alone".to_owned(), format!("goes with {other}"));
        }
        if let Some(user) = self.user.as_ref().filter(|_| self.password_file.is_none()) {
            checks.wrong("store.user", format!("{user:?}"), "goes with store.password_file".to_owned());
        }
        let has_tls_files = self.ca_file.is_some() || self.cert_file.is_some();
        if has_tls_files && url.as_ref().is_ok_and(|url| !url.is_tls) {
            let rule = "must start with rediss if store.ca_file or store.cert_file is set".to_owned();
            checks.wrong("store.url", HIDDEN.to_owned(), rule);
        }
        let mut read = |path, file: &Option<PathBuf>| {
            let file = file.as_deref()?;
            let read = std::fs::read(file).map_err(|error| error.to_string());
            let is_empty = |text: &Vec<u8>| text.trim_ascii().is_empty();
            let read = if read.as_ref().is_ok_and(is_empty) { Err("is empty".to_owned()) } else { read };
            checks.value(path, &file.display().to_string(), read)
        };
        let password = read("store.password_file", &self.password_file);
        let sentinel_password = read("store.sentinel_password_file", &self.sentinel_password_file);
        let authority = read("store.ca_file", &self.ca_file);
        let (chain, key) = (read("store.cert_file", &self.cert_file), read("store.key_file", &self.key_file));
        let url = url.ok()?;
        let text = |bytes: Vec<u8>| Password::new(&String::from_utf8_lossy(&bytes));
        let tls = TlsFiles { authority, identity: chain.zip(key) };
        Some(RedisSettings {
            access: Access {
                user: self.user.clone(),
                password: password.map(text),
                sentinel_password: sentinel_password.map(text),
                tls: url.is_tls.then_some(tls),
            },
            prefix: self.prefix.clone(),
            shards: self.shards,
            ..RedisSettings::new(url.topology, 0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(table: &StoreTable) -> (Option<RedisSettings>, String) {
        let loader = Loader::new(&STORE_SETTINGS, "PRESENCE_TEST");
        let mut checks = Checks::new(&loader, Vec::new());
        let settings = table.redis(&mut checks);
        (settings, checks.mistakes().map_or_else(String::new, |mistakes| mistakes.to_string()))
    }

    #[test]
    fn every_default_is_a_key() {
        let table = toml::Table::try_from(StoreTable::default()).unwrap();
        for key in table.keys() {
            assert!(STORE_SETTINGS.iter().any(|setting| setting.path == format!("store.{key}")), "{key}");
        }
    }

    #[test]
    fn files_are_read_and_all_mistakes_told() {
        let folder = std::env::temp_dir().join(format!("presence-store-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("password");
        std::fs::write(&file, "secret\n").unwrap();
        let good = StoreTable {
            url: "rediss://h:1".into(),
            password_file: Some(file.clone()),
            ca_file: Some(file.clone()),
            ..StoreTable::default()
        };
        let (settings, mistakes) = read(&good);
        assert_eq!(mistakes, "");
        let access = settings.unwrap().access;
        assert_eq!(access.password, Some(Password::new("secret")));
        assert!(access.tls.is_some());
        let bad = StoreTable {
            url: "redis://u:hidden-word@h:1".into(),
            prefix: "a{b}".into(),
            password_file: Some(folder.join("nothing")),
            key_file: Some(file),
            ..StoreTable::default()
        };
        let (_, mistakes) = read(&bad);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(mistakes.lines().count(), 4, "{mistakes}");
        assert!(!mistakes.contains("hidden-word"), "{mistakes}");
        let alone =
            StoreTable { url: "redis://h:1".into(), user: Some("presence".into()), ..StoreTable::default() };
        let (_, mistakes) = read(&alone);
        assert!(mistakes.contains("store.user = \"presence\": goes with store.password_file"), "{mistakes}");
        let (settings, mistakes) = read(&StoreTable::default());
        assert!(settings.is_none() && mistakes.is_empty());
    }
}
