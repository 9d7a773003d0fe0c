//! What an edge is told: file, environment, flags.

mod admission;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use presence_model::id::{EdgeName, RegionId};
use presence_model::timing::{Timings, TimingsGiven};
use presence_runtime::config::{
    CORE_TLS_SETTINGS, Checks, ConfigFlags, CoreTlsTable, Kind, Loader, Mistakes, Setting, TIMING_SETTINGS,
    TLS_SETTINGS, TimingFlags, TimingSettings, TlsFlags, TlsTable,
};
use presence_runtime::exposure::{Exposure, Guarded, Protection};
use presence_runtime::rpc;
use presence_runtime::telemetry::LogFlags;
use presence_runtime::tls::{ClientFiles, ServerFiles};
use presence_runtime::tokens::{AUDIENCE, KeySource};
use serde::{Deserialize, Serialize};

use crate::limits::{HANDSHAKES_PER_SECOND_DEFAULT, LIST_MEMBERS_DEFAULT, LIST_MEMBERS_MAX};
use crate::ws::handshake::is_origin;

use self::admission::{ADMISSION_SETTINGS, CONNECTIONS_DEFAULT};
pub use self::admission::{AdmissionFlags, LIVE_SETTINGS};
pub use crate::admission::{AdmissionLimits, Source, Whence};
pub use crate::ws::handshake::Origins;

/// Prefix of the environment variables: `PRESENCE_EDGE__LISTEN`.
pub const ENVIRONMENT_PREFIX: &str = "PRESENCE_EDGE";

/// Who a client is, its tokens say: on the way nobody may read them.
pub const WEBSOCKET: Guarded = Guarded {
    what: "the WebSocket listener",
    missing: "TLS (--tls-cert, --tls-key)",
    risk: "whoever is on the way can read tokens",
};

const CORE: Kind = Kind::Url(&["http", "https"]);

/// Every key of the file.
#[must_use]
pub fn keys() -> Vec<Setting> {
    let mut keys = vec![
        Setting::new("listen", Kind::Address, "\"127.0.0.1:4711\""),
        Setting::new("admin", Kind::Address, "\"127.0.0.1:4712\""),
        Setting::new("core", Kind::List(&CORE), "[\"http://127.0.0.1:4701\"]"),
        Setting::new("region", Kind::Text, "\"eu-west\""),
        Setting::new("edge", Kind::Text, "\"edge-1\""),
        Setting::new("jwks", Kind::List(&Kind::Text), "[\"/etc/presence/jwks.json\"]").secret(),
        Setting::new("jwks_ca", Kind::Text, "\"/etc/presence/ca.pem\""),
        Setting::new("audience", Kind::Text, "\"presence\""),
        Setting::new("origins", Kind::List(&Kind::Text), "[\"https://app.example\"]"),
        Setting::new("list_members", Kind::Whole { min: 1, max: LIST_MEMBERS_MAX }, "5000"),
        Setting::new("insecure", Kind::Switch, "false"),
    ];
    keys.extend(TLS_SETTINGS);
    keys.extend(CORE_TLS_SETTINGS);
    keys.extend(ADMISSION_SETTINGS);
    keys.extend(TIMING_SETTINGS);
    keys
}

/// The presence edge: where browsers and devices connect.
#[derive(Debug, Clone, Default, clap::Parser)]
#[command(
    name = "presence-edge",
    version,
    after_help = "Every setting is also a key of the file given with --config and a variable such as\n\
                  PRESENCE_EDGE__LISTEN; flags win over variables, variables over the file. An edge follows\n\
                  the timers of its core; its own count until the first link.\n\n\
                  Example, beside `presence-core --grpc 127.0.0.1:4701 --jwks ./keys/jwks.json`:\n  \
                  presence-edge --listen 127.0.0.1:4711 --core http://127.0.0.1:4701 --jwks ./keys/jwks.json"
)]
pub struct Flags {
    /// Where clients connect (127.0.0.1:4711); port 0 picks a free one
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Where metrics and probes are (127.0.0.1:4712)
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// Cores to link to: one of them, and the next when it is of no use (http://127.0.0.1:4701). May be
    /// repeated; a name with several addresses stands for several cores; `https` for TLS
    #[arg(long, value_name = "URL[,URL…]")]
    pub core: Vec<String>,
    /// The region this edge speaks for (local)
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// Name of this edge, its own among all edges
    #[arg(long, value_name = "NAME")]
    pub edge: Option<String>,
    /// Keys that verify tokens, files and https addresses, comma-separated; followed while running
    #[arg(long, value_name = "FILE|URL")]
    pub jwks: Option<String>,
    /// Who signs the certificates of such addresses, PEM (whom this system trusts)
    #[arg(long, value_name = "FILE")]
    pub jwks_ca: Option<String>,
    /// Whom tokens must be for (presence)
    #[arg(long, value_name = "AUDIENCE")]
    pub audience: Option<String>,
    /// Sites whose pages may connect, beside the edge's own host; * is every site
    #[arg(long, value_name = "ORIGIN[,ORIGIN…]")]
    pub origins: Option<String>,
    /// Members up to which a room is shown as a list unless a client asks otherwise; above: its number (5000)
    #[arg(long, value_name = "COUNT")]
    pub list_members: Option<String>,
    /// Certificates.
    #[command(flatten)]
    pub tls: TlsFlags,
    /// Who signs the certificates of cores, PEM (whom this system trusts)
    #[arg(long, value_name = "FILE")]
    pub core_ca: Option<String>,
    /// Our certificate for cores and its chain, PEM; followed while running
    #[arg(long, value_name = "FILE")]
    pub core_cert: Option<String>,
    /// The key of that certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub core_key: Option<String>,
    /// Listen beyond loopback without TLS: whoever is on the way can read tokens
    #[arg(long)]
    pub insecure: bool,
    /// Print one JSON object with the addresses in force once everything accepts and the link is up
    #[arg(long)]
    pub json: bool,
    /// The configuration itself.
    #[command(flatten)]
    pub config: ConfigFlags,
    /// Who may come in.
    #[command(flatten)]
    pub admission: AdmissionFlags,
    /// Timers.
    #[command(flatten)]
    pub timing: TimingFlags,
    /// Logs.
    #[command(flatten)]
    pub logs: LogFlags,
}

/// The configuration as it stands in a file, defaults included.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Configuration {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where metrics and probes are.
    pub admin: SocketAddr,
    /// Cores to link to, one at a time.
    pub core: Vec<String>,
    /// The region this edge speaks for.
    pub region: String,
    /// Name of this edge.
    pub edge: String,
    /// Keys that verify tokens.
    pub jwks: Vec<String>,
    /// Who signs the certificates of addresses among them; none: whom this system trusts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_ca: Option<PathBuf>,
    /// Whom tokens must be for.
    pub audience: String,
    /// Sites whose pages may connect.
    pub origins: Vec<String>,
    /// Members up to which a room is shown as a list unless a client asks otherwise.
    pub list_members: u32,
    /// WebSockets to take.
    pub connections_max: u32,
    /// Connections to take from one address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_per_address: Option<u32>,
    /// WebSocket handshakes to take a second.
    pub handshakes_per_second: u32,
    /// Tokens of one address that may fail to verify a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_tokens_per_minute: Option<u32>,
    /// Who tells the addresses of clients.
    pub client_address: String,
    /// Proxies that are believed.
    pub trusted_proxies: Vec<String>,
    /// Whether to listen beyond loopback without protection.
    pub insecure: bool,
    /// Certificates.
    #[serde(skip_serializing_if = "TlsTable::is_empty")]
    pub tls: TlsTable,
    /// Certificates towards cores.
    #[serde(skip_serializing_if = "CoreTlsTable::is_empty")]
    pub core_tls: CoreTlsTable,
    /// Timers.
    pub timing: TimingSettings,
}

impl Default for Configuration {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            listen: loopback(4711),
            admin: loopback(4712),
            core: vec!["http://127.0.0.1:4701".to_owned()],
            region: "local".to_owned(),
            edge: "edge".to_owned(),
            jwks: Vec::new(),
            jwks_ca: None,
            audience: AUDIENCE.to_owned(),
            origins: Vec::new(),
            list_members: LIST_MEMBERS_DEFAULT,
            connections_max: CONNECTIONS_DEFAULT,
            connections_per_address: None,
            handshakes_per_second: HANDSHAKES_PER_SECOND_DEFAULT,
            failed_tokens_per_minute: None,
            client_address: Source::WORDS[0].to_owned(),
            trusted_proxies: Vec::new(),
            insecure: false,
            tls: TlsTable::default(),
            core_tls: CoreTlsTable::default(),
            timing: TimingSettings::default(),
        }
    }
}

impl Configuration {
    /// Listed origins that no page has.
    pub fn mistaken_origins(&self) -> impl Iterator<Item = &str> {
        self.origins.iter().map(String::as_str).filter(|origin| *origin != "*" && !is_origin(origin))
    }

    /// Which pages may connect.
    #[must_use]
    pub fn origins(&self) -> Origins {
        match &self.origins[..] {
            [] => Origins::SameHost,
            listed if listed.iter().any(|origin| origin == "*") => Origins::Any,
            listed => Origins::Listed(listed.to_vec()),
        }
    }
}

/// A configuration that keeps all its rules.
#[derive(Debug, Clone)]
pub struct Checked {
    /// As loaded.
    pub configuration: Configuration,
    /// Timers.
    pub timings: Timings,
    /// The region this edge speaks for.
    pub region: RegionId,
    /// Its name.
    pub edge: EdgeName,
    /// Keys that verify tokens.
    pub jwks: Vec<KeySource>,
    /// How the addresses of clients are known.
    pub whence: Whence,
    /// The certificates of its listener; none: it is plain.
    pub tls: Option<ServerFiles>,
    /// Certificates towards cores; none: no core speaks TLS.
    pub core_tls: Option<ClientFiles>,
    /// What its listener is exposed to.
    pub exposure: Exposure,
}

impl Flags {
    /// Merges file, environment and flags.
    ///
    /// # Errors
    /// All mistakes of values and timers at once.
    pub fn load(
        &self,
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<(Configuration, Timings), Mistakes> {
        let keys = keys();
        let loader = self.loader(&keys, environment);
        let (configuration, timings, checks) = read(&loader);
        match (timings, checks.mistakes()) {
            (Some(timings), None) => Ok((configuration, timings)),
            (_, mistakes) => Err(mistakes.expect("timers are missing for a reason")),
        }
    }

    /// Merges file, environment and flags, and checks all there is to check before starting.
    ///
    /// # Errors
    /// All mistakes at once.
    pub fn check(
        &self,
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<Checked, Mistakes> {
        let keys = keys();
        let loader = self.loader(&keys, environment);
        let (configuration, timings, mut checks) = read(&loader);
        let region = checks.value("region", &configuration.region, RegionId::new(&configuration.region));
        let edge = checks.value("edge", &configuration.edge, EdgeName::new(&configuration.edge));
        if configuration.core.is_empty() {
            checks.wrong("core", "[]".to_owned(), "must name a core".to_owned());
        }
        for url in configuration.core.iter().filter(|url| rpc::target(url).is_none()) {
            checks.wrong(
                "core",
                format!("{url:?}"),
                "must be http://host:port or https://host:port and nothing else".to_owned(),
            );
        }
        for origin in configuration.mistaken_origins() {
            let rule = "must be the origin of a page: scheme://host, small letters, a port only if it is not the \
                        scheme's own; or * for all";
            checks.wrong("origins", format!("{origin:?}"), rule.to_owned());
        }
        let protection = Protection::of(configuration.tls.is_wanted(), configuration.insecure);
        let exposure = checks.exposure("listen", WEBSOCKET.permit(protection, configuration.listen));
        checks.listeners(&[("listen", configuration.listen), ("admin", configuration.admin)]);
        let whence = admission::whence(&configuration, &mut checks);
        let jwks = checks.keys("jwks", &configuration.jwks, configuration.insecure);
        let tls = checks.tls(&configuration.tls);
        let is_spoken = configuration.core.iter().any(|url| rpc::is_tls(url));
        let core_tls = checks.core_tls(&configuration.core_tls, is_spoken);
        checks.logs(&self.logs);
        match (timings, region, edge, jwks, exposure, checks.mistakes()) {
            (Some(timings), Some(region), Some(edge), Some(jwks), Some(exposure), None) => {
                Ok(Checked { configuration, timings, region, edge, jwks, whence, tls, core_tls, exposure })
            }
            (.., mistakes) => Err(mistakes.expect("what is missing is so for a reason")),
        }
    }

    fn loader<'a>(
        &self,
        keys: &'a [Setting],
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> Loader<'a> {
        let cores = (!self.core.is_empty()).then(|| self.core.join(","));
        let loader = self
            .config
            .loader(keys, ENVIRONMENT_PREFIX, environment)
            .flag("listen", "--listen", self.listen.as_deref())
            .flag("admin", "--admin", self.admin.as_deref())
            .flag("core", "--core", cores)
            .flag("region", "--region", self.region.as_deref())
            .flag("edge", "--edge", self.edge.as_deref())
            .flag("jwks", "--jwks", self.jwks.as_deref())
            .flag("jwks_ca", "--jwks-ca", self.jwks_ca.as_deref())
            .flag("audience", "--audience", self.audience.as_deref())
            .flag("origins", "--origins", self.origins.as_deref())
            .flag("list_members", "--list-members", self.list_members.as_deref())
            .flag("insecure", "--insecure", self.insecure.then_some("true"));
        let loader = loader
            .flag("core_tls.ca_file", "--core-ca", self.core_ca.as_deref())
            .flag("core_tls.cert_file", "--core-cert", self.core_cert.as_deref())
            .flag("core_tls.key_file", "--core-key", self.core_key.as_deref());
        self.timing.onto(self.admission.onto(self.tls.onto(loader)))
    }
}

fn read<'l, 'a>(loader: &'l Loader<'a>) -> (Configuration, Option<Timings>, Checks<'l, 'a>) {
    let (mut configuration, mistakes): (Configuration, _) = loader.read();
    configuration.failed_tokens_per_minute = configuration.failed_tokens_in_force();
    configuration.tls = configuration.tls.in_force();
    let mut checks = Checks::new(loader, mistakes);
    let timings = checks.timings(configuration.timing.given(), TimingsGiven::default());
    if let Some(timings) = &timings {
        configuration.timing = configuration.timing.in_force(timings);
    }
    (configuration, timings, checks)
}

/// What an edge needs to start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where clients connect; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Where metrics and probes are; none: nowhere.
    pub admin: Option<SocketAddr>,
    /// Cores to link to, one at a time: `http://host:port`, or `https` for TLS. At least one; a name with several addresses
    /// stands for several.
    pub cores: Vec<String>,
    /// The region this edge speaks for.
    pub region: RegionId,
    /// Its name, its own among all edges.
    pub edge: EdgeName,
    /// Timers until a core says otherwise.
    pub timings: Timings,
    /// Which pages may connect.
    pub origins: Origins,
    /// Up to how many members a room is shown as a list unless a client asks otherwise; above zero.
    pub list_members: usize,
    /// How many may come in; further ones are told when to come back.
    pub limits: AdmissionLimits,
    /// How the addresses of clients are known.
    pub whence: Whence,
    /// Draws this run's identity, connection ids and jitter; unpredictable outside simulations.
    pub seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(flags: &Flags, environment: &[(&str, &str)]) -> Result<(Configuration, Timings), String> {
        let variables = environment.iter().map(|(k, v)| (OsString::from(k), OsString::from(v)));
        flags.load(variables.collect::<Vec<_>>().into_iter()).map_err(|mistakes| mistakes.to_string())
    }

    #[test]
    fn flags_win_over_variables_and_lists_are_split() {
        let core = vec!["http://a:1".into(), "http://b:2,http://d:4".into()];
        let flags = Flags { core, ..Flags::default() };
        let variables = [("PRESENCE_EDGE__CORE", "http://c:3"), ("PRESENCE_EDGE__EDGE", "edge-7")];
        let (configuration, _) = load(&flags, &variables).unwrap();
        assert_eq!(configuration.core, ["http://a:1", "http://b:2", "http://d:4"]);
        assert_eq!(configuration.edge, "edge-7");
    }

    #[test]
    fn every_mistake_has_its_line() {
        let flags = Flags {
            listen: Some("here".into()),
            core: vec!["ftp://x:1".into()],
            admission: AdmissionFlags { connections_max: Some("0".into()), ..AdmissionFlags::default() },
            timing: TimingFlags { grace: Some("soon".into()), ..TimingFlags::default() },
            ..Flags::default()
        };
        let mistakes = load(&flags, &[("PRESENCE_EDGE__CROE", "x")]).unwrap_err();
        assert_eq!(mistakes.lines().count(), 5, "{mistakes}");
    }

    #[test]
    fn mistakes_of_all_kinds_are_told_at_once() {
        let flags = Flags {
            listen: Some("0.0.0.0:1".into()),
            admin: Some("here".into()),
            core: vec!["http://a".into(), "http://b:2".into()],
            edge: Some("x".repeat(300)),
            timing: TimingFlags { heartbeat: Some("20s".into()), ..TimingFlags::default() },
            ..Flags::default()
        };
        let mistakes = flags.check(std::iter::empty()).unwrap_err().to_string();
        let paths: Vec<&str> = mistakes.lines().filter_map(|line| line.split(" = ").next()).collect();
        let expected = ["admin", "timing.lease_ttl", "timing.lease_ttl", "edge", "core", "listen", "jwks"];
        assert_eq!(paths, expected, "{mistakes}");
        assert!(
            mistakes.contains(
                "core = \"http://a\": must be http://host:port or https://host:port and nothing else"
            ),
            "{mistakes}"
        );
    }

    #[test]
    fn a_room_is_a_list_up_to_so_many_and_no_more() {
        let most = u64::from(LIST_MEMBERS_MAX);
        for (number, is_good) in [(0, false), (1, true), (most, true), (most + 1, false)] {
            let flags = Flags { list_members: Some(number.to_string()), ..Flags::default() };
            assert_eq!(load(&flags, &[]).is_ok(), is_good, "{number}");
        }
    }

    #[test]
    fn origins_are_the_own_host_a_list_or_all() {
        let origins = |flag: &str| {
            let flags = Flags { origins: Some(flag.into()), ..Flags::default() };
            load(&flags, &[]).unwrap().0.origins()
        };
        assert_eq!(Configuration::default().origins(), Origins::SameHost);
        assert_eq!(
            origins("https://a,https://b"),
            Origins::Listed(vec!["https://a".into(), "https://b".into()])
        );
        assert_eq!(origins("*"), Origins::Any);
    }

    #[test]
    fn what_no_page_has_is_no_origin() {
        let good = [
            "*",
            "https://app.example",
            "http://localhost:5173",
            "https://app.example:8443",
            "http://[::1]:3000",
            "http://app.example:443",
            "capacitor://localhost",
            "https://xn--bcher-kva.example",
        ];
        let bad = [
            "foo",
            "",
            "app.example",
            "https://",
            "https://app.example/",
            "https://app.example/page",
            "https://App.example",
            "https://app.example:443",
            "http://app.example:80",
            "https://app.example:",
            "https://user@app.example",
            "https://*.example",
            "null",
            "https://b\u{fc}cher.example",
            " https://app.example",
        ];
        let listed = |origins: &[&str]| Configuration {
            origins: origins.iter().map(|origin| (*origin).to_owned()).collect(),
            ..Configuration::default()
        };
        assert_eq!(
            listed(&good).mistaken_origins().count(),
            0,
            "{:?}",
            listed(&good).mistaken_origins().next()
        );
        assert_eq!(listed(&bad).mistaken_origins().collect::<Vec<_>>(), bad);
    }

    #[test]
    fn every_default_is_a_key() {
        let rendered = presence_runtime::config::render(&keys(), &Configuration::default());
        let table: toml::Table = rendered.parse().unwrap();
        for key in table.keys().filter(|key| *key != "timing") {
            assert!(keys().iter().any(|setting| setting.path == key), "{key}");
        }
    }
}
