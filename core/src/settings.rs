//! What a core is told: file, environment, flags.

mod regions;
mod store;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use presence_model::class::Classes;
use presence_model::timing::{Timings, TimingsGiven};
use presence_runtime::config::{
    CLASS_SETTINGS, CORE_TLS_SETTINGS, Checks, ClassSettings, ConfigFlags, CoreTlsTable, Kind, Loader,
    Mistakes, Setting, TIMING_SETTINGS, TLS_SETTINGS, TimingFlags, TimingSettings, TlsFlags, TlsTable,
};
use presence_runtime::exposure::{Exposure, Guarded, Protection};
use presence_runtime::telemetry::LogFlags;
use presence_runtime::tls::{ClientFiles, ServerFiles};
use presence_runtime::tokens::{AUDIENCE, KeySource};
use serde::{Deserialize, Serialize};

use self::regions::REGION_SETTINGS;
pub use self::regions::{PeerSettings, RegionFlags, Regions};
use self::store::STORE_SETTINGS;
pub use self::store::{StoreFlags, StoreTable};
use crate::access::Peers;
use crate::driver::ArrivalLimits;
use crate::limits::{ARRIVALS_PER_SECOND_DEFAULT, ARRIVALS_WAITING_DEFAULT};
use crate::store::redis::RedisSettings;

/// Prefix of the environment variables: `PRESENCE_CORE__GRPC`.
pub const ENVIRONMENT_PREFIX: &str = "PRESENCE_CORE";

/// Whoever may call may evict people: TLS by itself says nothing of who that is.
pub const GRPC: Guarded = Guarded {
    what: "the gRPC listener",
    missing: "TLS that asks for certificates (--tls-cert, --tls-key, --tls-client-ca) and a table of who may call (--peers)",
    risk: "anybody who reaches it is trusted",
};

/// Edges, peers and services have one or two connections each; more is a mistake, or not meant for a core.
const CONNECTIONS_MAX: u32 = 65_536;
const CONNECTIONS_DEFAULT: u32 = 4_096;
/// More is no limit.
const JOINS_MAX: u32 = 1_000_000;

/// What takes effect while a core runs.
pub const LIVE_SETTINGS: [&str; 2] = ["joins_per_second", "joins_waiting"];

/// Every key of the file.
#[must_use]
pub fn keys() -> Vec<Setting> {
    let mut keys = vec![
        Setting::new("grpc", Kind::Address, "\"127.0.0.1:4701\""),
        Setting::new("admin", Kind::Address, "\"127.0.0.1:4702\""),
        Setting::new("name", Kind::Text, "\"core-1\""),
        Setting::new("jwks", Kind::List(&Kind::Text), "[\"/etc/presence/jwks.json\"]").secret(),
        Setting::new("jwks_ca", Kind::Text, "\"/etc/presence/ca.pem\""),
        Setting::new("audience", Kind::Text, "\"presence\""),
        Setting::new("peers", Kind::Text, "\"/etc/presence/peers.toml\""),
        Setting::new("connections_max", Kind::Whole { min: 1, max: CONNECTIONS_MAX }, "4096"),
        Setting::new("joins_per_second", Kind::Whole { min: 1, max: JOINS_MAX }, "10000"),
        Setting::new("joins_waiting", Kind::Whole { min: 1, max: JOINS_MAX }, "10000"),
        Setting::new("insecure", Kind::Switch, "false"),
    ];
    keys.extend(REGION_SETTINGS);
    keys.extend(CORE_TLS_SETTINGS);
    keys.extend(TLS_SETTINGS);
    keys.extend(STORE_SETTINGS);
    keys.extend(TIMING_SETTINGS);
    keys.extend(CLASS_SETTINGS);
    keys
}

/// The presence core: decides who is present, and keeps the leases.
#[derive(Debug, Clone, Default, clap::Parser)]
#[command(
    name = "presence-core",
    version,
    after_help = "Every setting is also a key of the file given with --config and a variable such as\n\
                  PRESENCE_CORE__GRPC; flags win over variables, variables over the file.\n\n\
                  Example:\n  presence keys ./keys\n  presence-core --grpc 127.0.0.1:4701 --jwks ./keys/jwks.json"
)]
pub struct Flags {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: ConfigFlags,
    /// Where edges and services connect (127.0.0.1:4701); port 0 picks a free one
    #[arg(long, value_name = "ADDR")]
    pub grpc: Option<String>,
    /// Where metrics and probes are (127.0.0.1:4702)
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// Where leases are kept.
    #[command(flatten)]
    pub store: StoreFlags,
    /// Regions.
    #[command(flatten)]
    pub regions: RegionFlags,
    /// Name of this core, for people
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Keys that verify tokens, files and https addresses, comma-separated; followed while running
    #[arg(long, value_name = "FILE|URL")]
    pub jwks: Option<String>,
    /// Who signs the certificates of such addresses, PEM (whom this system trusts)
    #[arg(long, value_name = "FILE")]
    pub jwks_ca: Option<String>,
    /// Whom tokens must be for (presence)
    #[arg(long, value_name = "AUDIENCE")]
    pub audience: Option<String>,
    /// Who may call, by the names in certificates: edges, services, operators (TOML); followed while running
    #[arg(long, value_name = "FILE")]
    pub peers: Option<String>,
    /// Connections of edges and services to take (4096)
    #[arg(long, value_name = "COUNT")]
    pub connections_max: Option<String>,
    /// New joins to take a second, and at once after a pause; half are kept for clients that come back (10000)
    #[arg(long, value_name = "COUNT")]
    pub joins_per_second: Option<String>,
    /// Joins and updates that may wait before new joins are refused (10000)
    #[arg(long, value_name = "COUNT")]
    pub joins_waiting: Option<String>,
    /// Certificates.
    #[command(flatten)]
    pub tls: TlsFlags,
    /// Listen beyond loopback without asking for certificates: anybody who reaches it is trusted
    #[arg(long)]
    pub insecure: bool,
    /// Print one JSON object with the addresses in force once everything accepts
    #[arg(long)]
    pub json: bool,
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
    /// Where edges and services connect.
    pub grpc: SocketAddr,
    /// Where metrics and probes are.
    pub admin: SocketAddr,
    /// The region of the rosters.
    pub region: String,
    /// Further regions whose edges link here.
    pub edge_regions: Vec<String>,
    /// Regions that have cores of their own, and where those are.
    pub peer: Vec<String>,
    /// Whom to trust and what to show there.
    #[serde(skip_serializing_if = "CoreTlsTable::is_empty")]
    pub core_tls: CoreTlsTable,
    /// Name for people.
    pub name: String,
    /// Keys that verify tokens.
    pub jwks: Vec<String>,
    /// Who signs the certificates of addresses among them; none: whom this system trusts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_ca: Option<PathBuf>,
    /// Whom tokens must be for.
    pub audience: String,
    /// Who may call, by the names in certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peers: Option<PathBuf>,
    /// Connections of edges and services to take.
    pub connections_max: u32,
    /// New joins to take a second.
    pub joins_per_second: u32,
    /// Joins and updates that may wait before new joins are refused.
    pub joins_waiting: u32,
    /// Whether to listen beyond loopback without protection.
    pub insecure: bool,
    /// Certificates.
    #[serde(skip_serializing_if = "TlsTable::is_empty")]
    pub tls: TlsTable,
    /// Where leases are kept.
    pub store: StoreTable,
    /// Timers.
    pub timing: TimingSettings,
    /// Rooms with timers of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub class: Vec<ClassSettings>,
}

impl Configuration {
    /// How many new arrivals are taken.
    #[must_use]
    pub fn arrival_limits(&self) -> ArrivalLimits {
        let waiting = usize::try_from(self.joins_waiting).unwrap_or(usize::MAX);
        ArrivalLimits { per_second: self.joins_per_second, waiting }
    }
}

impl Default for Configuration {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            grpc: loopback(4701),
            admin: loopback(4702),
            region: "local".to_owned(),
            edge_regions: Vec::new(),
            peer: Vec::new(),
            core_tls: CoreTlsTable::default(),
            name: "core".to_owned(),
            jwks: Vec::new(),
            jwks_ca: None,
            audience: AUDIENCE.to_owned(),
            peers: None,
            connections_max: CONNECTIONS_DEFAULT,
            joins_per_second: ARRIVALS_PER_SECOND_DEFAULT,
            joins_waiting: u32::try_from(ARRIVALS_WAITING_DEFAULT).unwrap_or(JOINS_MAX),
            insecure: false,
            tls: TlsTable::default(),
            store: StoreTable::default(),
            timing: TimingSettings::default(),
            class: Vec::new(),
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
    /// Rooms with timers of their own.
    pub classes: Classes,
    /// Regions.
    pub regions: Regions,
    /// Keys that verify tokens.
    pub jwks: Vec<KeySource>,
    /// The certificates of its listener; none: it is plain.
    pub tls: Option<ServerFiles>,
    /// Who may call it; none: anybody.
    pub peers: Option<PathBuf>,
    /// Whom it trusts, and what it shows, where other cores speak TLS.
    pub core_tls: Option<ClientFiles>,
    /// What its listener is exposed to.
    pub exposure: Exposure,
    /// The Redis servers that keep leases, without a seed; none: memory.
    pub store: Option<RedisSettings>,
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
            (Some((timings, _)), None) => Ok((configuration, timings)),
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
        let regions = configuration.regions(&mut checks);
        let is_protected = configuration.tls.asks_everybody() && configuration.peers.is_some();
        let protection = Protection::of(is_protected, configuration.insecure);
        let exposure = checks.exposure("grpc", GRPC.permit(protection, configuration.grpc));
        checks.listeners(&[("grpc", configuration.grpc), ("admin", configuration.admin)]);
        let jwks = checks.keys("jwks", &configuration.jwks, configuration.insecure);
        let tls = checks.tls(&configuration.tls);
        let peers = check_peers(&mut checks, &configuration);
        let is_spoken = configuration.peer.iter().any(|entry| entry.contains("https://"));
        let core_tls = checks.core_tls(&configuration.core_tls, is_spoken);
        let store = configuration.store.redis(&mut checks);
        checks.logs(&self.logs);
        match (timings, regions, jwks, exposure, checks.mistakes()) {
            (Some((timings, classes)), Some(regions), Some(jwks), Some(exposure), None) => Ok(Checked {
                configuration,
                timings,
                classes,
                regions,
                jwks,
                tls,
                peers,
                core_tls,
                exposure,
                store,
            }),
            (.., mistakes) => Err(mistakes.expect("what is missing is so for a reason")),
        }
    }

    fn loader<'a>(
        &self,
        keys: &'a [Setting],
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> Loader<'a> {
        let loader = self
            .config
            .loader(keys, ENVIRONMENT_PREFIX, environment)
            .flag("grpc", "--grpc", self.grpc.as_deref())
            .flag("admin", "--admin", self.admin.as_deref())
            .flag("name", "--name", self.name.as_deref())
            .flag("jwks", "--jwks", self.jwks.as_deref())
            .flag("jwks_ca", "--jwks-ca", self.jwks_ca.as_deref())
            .flag("audience", "--audience", self.audience.as_deref())
            .flag("peers", "--peers", self.peers.as_deref())
            .flag("connections_max", "--connections-max", self.connections_max.as_deref())
            .flag("joins_per_second", "--joins-per-second", self.joins_per_second.as_deref())
            .flag("joins_waiting", "--joins-waiting", self.joins_waiting.as_deref())
            .flag("insecure", "--insecure", self.insecure.then_some("true"));
        self.timing.onto(self.store.onto(self.tls.onto(self.regions.onto(loader))))
    }
}

/// Certificates are asked for to look them up in the table of peers: each is of no use without the other.
fn check_peers(checks: &mut Checks<'_, '_>, configuration: &Configuration) -> Option<PathBuf> {
    match (&configuration.peers, configuration.tls.asks_everybody()) {
        (None, true) => {
            let rule = "say whom the certificates stand for: with tls.client_ca_file nobody else is let in";
            checks.wrong("peers", "(not set)".to_owned(), rule.to_owned());
            None
        }
        (None, false) => None,
        (Some(path), asks) => {
            let value = format!("{:?}", path.display().to_string());
            if !asks {
                let rule = "is of no use without tls.client_ca_file: nobody shows a certificate";
                checks.wrong("peers", value.clone(), rule.to_owned());
            }
            if let Err(fault) = Peers::read(path) {
                checks.wrong("peers", value, fault.to_string());
            }
            Some(path.clone())
        }
    }
}

type Read<'l, 'a> = (Configuration, Option<(Timings, Classes)>, Checks<'l, 'a>);

fn read<'l, 'a>(loader: &'l Loader<'a>) -> Read<'l, 'a> {
    let (mut configuration, mistakes): (Configuration, _) = loader.read();
    let mut checks = Checks::new(loader, mistakes);
    let given = configuration.timing.given();
    let timings = checks.timings_of_classes(given, TimingsGiven::default(), &configuration.class);
    if let Some((timings, classes)) = &timings {
        configuration.timing = configuration.timing.in_force(timings);
        configuration.class = ClassSettings::in_force(classes);
    }
    configuration.tls = configuration.tls.in_force();
    (configuration, timings, checks)
}

/// What a core needs to start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where edges and services connect; port 0 picks a free one.
    pub grpc: SocketAddr,
    /// Where metrics and probes are; none: nowhere.
    pub admin: Option<SocketAddr>,
    /// Regions.
    pub regions: Regions,
    /// Name for people.
    pub name: String,
    /// Connections of edges and services to take, as [`ServerSettings::connections_max`].
    ///
    /// [`ServerSettings::connections_max`]: presence_runtime::rpc::ServerSettings::connections_max
    pub connections_max: usize,
    /// How many new arrivals are taken.
    pub arrivals: ArrivalLimits,
    /// Timers.
    pub timings: Timings,
    /// Rooms with timers of their own.
    pub classes: Classes,
    /// Draws this process's identity and lease ids; unpredictable outside simulations.
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
    fn flags_win_over_variables() {
        let regions = RegionFlags { region: Some("eu".into()), ..RegionFlags::default() };
        let flags = Flags { regions, ..Flags::default() };
        let variables = [("PRESENCE_CORE__REGION", "us"), ("PRESENCE_CORE__NAME", "core-7")];
        let (configuration, _) = load(&flags, &variables).unwrap();
        assert_eq!((configuration.region.as_str(), configuration.name.as_str()), ("eu", "core-7"));
    }

    #[test]
    fn every_mistake_has_its_line() {
        let flags = Flags {
            grpc: Some("here".into()),
            store: StoreFlags { store: Some("postgres://x".into()), ..StoreFlags::default() },
            timing: TimingFlags { grace: Some("soon".into()), ..TimingFlags::default() },
            ..Flags::default()
        };
        let mistakes = load(&flags, &[("PRESENCE_CORE__GRCP", "x")]).unwrap_err();
        assert_eq!(mistakes.lines().count(), 4, "{mistakes}");
    }

    #[test]
    fn mistakes_of_all_kinds_are_told_at_once() {
        let flags = Flags {
            grpc: Some("0.0.0.0:4701".into()),
            admin: Some("here".into()),
            connections_max: Some("0".into()),
            joins_per_second: Some("0".into()),
            joins_waiting: Some("1000001".into()),
            regions: RegionFlags { region: Some("x".repeat(300)), ..RegionFlags::default() },
            timing: TimingFlags { heartbeat: Some("20s".into()), ..TimingFlags::default() },
            logs: LogFlags { log: Some("a=b=c".into()), ..LogFlags::default() },
            ..Flags::default()
        };
        let mistakes = flags.check(std::iter::empty()).unwrap_err().to_string();
        let paths: Vec<&str> = mistakes.lines().filter_map(|line| line.split(" = ").next()).collect();
        let expected = [
            "admin",
            "connections_max",
            "joins_per_second",
            "joins_waiting",
            "timing.lease_ttl",
            "timing.lease_ttl",
            "region",
            "grpc",
            "jwks",
            "--log",
        ];
        assert_eq!(paths, expected, "{mistakes}");
        assert!(mistakes.contains("timing.lease_ttl = \"45s\" (the default): "), "{mistakes}");
        let nowhere = Flags { jwks: Some("/nowhere/jwks.json".into()), ..Flags::default() };
        let mistakes = nowhere.check(std::iter::empty()).unwrap_err().to_string();
        assert!(mistakes.starts_with("jwks = \"/nowhere/jwks.json\": "), "{mistakes}");
        assert!(mistakes.ends_with("(in --jwks)") && mistakes.lines().count() == 1, "{mistakes}");
    }

    #[test]
    fn timers_go_down_to_a_second_and_broken_relations_are_told() {
        let timing = |heartbeat: &str, ttl: &str, grace: &str| Flags {
            timing: TimingFlags {
                heartbeat: Some(heartbeat.into()),
                lease_ttl: Some(ttl.into()),
                grace: Some(grace.into()),
                ..TimingFlags::default()
            },
            ..Flags::default()
        };
        assert!(load(&timing("1s", "3s", "1s"), &[]).is_ok());
        let mistakes = load(&timing("5s", "6s", "7s"), &[]).unwrap_err();
        assert!(mistakes.lines().count() >= 2, "{mistakes}");
    }

    #[test]
    fn classes_are_shown_as_they_are_in_force() {
        let variables = [
            ("PRESENCE_CORE__CLASS__1__NAME", "trading"),
            ("PRESENCE_CORE__CLASS__1__MATCH", "trading:*"),
            ("PRESENCE_CORE__CLASS__1__HEARTBEAT", "3s"),
            ("PRESENCE_CORE__CLASS__1__GRACE", "12s"),
        ];
        let (configuration, timings) = load(&Flags::default(), &variables).unwrap();
        assert_eq!(timings.heartbeat_min.as_secs(), 3);
        let rendered = presence_runtime::config::render(&keys(), &configuration);
        let class =
            "[[class]]\ngrace = \"12s\"\nheartbeat = \"3s\"\nlease_ttl = \"45s\"\nmatch = \"trading:*\"\n";
        assert!(rendered.contains(class), "{rendered}");
        let mistakes = load(&Flags::default(), &variables[1..]).unwrap_err();
        assert!(mistakes.starts_with("class[1].name = (not set): "), "{mistakes}");
    }

    #[test]
    fn every_default_is_a_key() {
        let rendered = presence_runtime::config::render(&keys(), &Configuration::default());
        let table: toml::Table = rendered.parse().unwrap();
        for key in table.keys().filter(|key| !["timing", "store"].contains(&key.as_str())) {
            assert!(keys().iter().any(|setting| setting.path == key), "{key}");
        }
    }
}
