//! What an edge is told about who may come in.

use ipnet::IpNet;
use presence_runtime::config::{Checks, Kind, Loader, Setting};
use presence_runtime::descriptors::{self, Budget};

use super::Configuration;
use crate::admission::{AdmissionLimits, Source, Whence};
use crate::limits::{FAILED_TOKENS_PER_MINUTE_DEFAULT, HANDSHAKES_MAX, SEEING_OFF_MAX};

/// WebSockets an edge takes unless told otherwise: some 200 MB of memory, and a descriptor each.
pub(super) const CONNECTIONS_DEFAULT: u32 = 50_000;
/// More than one address has ports for, and more than one hub task should carry.
const CONNECTIONS_MAX: u32 = 1_000_000;
/// More is no limit.
const HANDSHAKES_PER_SECOND_MAX: u32 = 1_000_000;
/// More is no limit either.
const FAILED_TOKENS_MAX: u32 = 1_000_000;

/// Of these, the ones that take effect while an edge runs.
pub const LIVE_SETTINGS: [&str; 4] =
    ["connections_max", "connections_per_address", "handshakes_per_second", "failed_tokens_per_minute"];

/// Keys of the file.
pub(super) const ADMISSION_SETTINGS: [Setting; 6] = [
    Setting::new("connections_max", Kind::Whole { min: 1, max: CONNECTIONS_MAX }, "50000"),
    Setting::new("connections_per_address", Kind::Whole { min: 1, max: CONNECTIONS_MAX }, "200"),
    Setting::new("handshakes_per_second", Kind::Whole { min: 1, max: HANDSHAKES_PER_SECOND_MAX }, "5000"),
    Setting::new("failed_tokens_per_minute", Kind::Whole { min: 1, max: FAILED_TOKENS_MAX }, "60"),
    Setting::new("client_address", Kind::OneOf(&Source::WORDS), "\"x-forwarded-for\""),
    Setting::new("trusted_proxies", Kind::List(&Kind::Text), "[\"10.0.0.0/8\"]"),
];

/// The flags.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct AdmissionFlags {
    /// WebSockets to take (50000)
    #[arg(long, value_name = "COUNT")]
    pub connections_max: Option<String>,
    /// Connections to take from one address, a /64 of IPv6 counting as one (no limit): say first where addresses
    /// come from
    #[arg(long, value_name = "COUNT")]
    pub connections_per_address: Option<String>,
    /// WebSocket handshakes to take a second, and at once after a pause (5000)
    #[arg(long, value_name = "COUNT")]
    pub handshakes_per_second: Option<String>,
    /// Tokens of one address that may fail to verify a minute (60; no limit while addresses are those of peers)
    #[arg(long, value_name = "COUNT")]
    pub failed_tokens_per_minute: Option<String>,
    /// Who tells the addresses of clients: peer, proxy-protocol, x-forwarded-for or forwarded (peer)
    #[arg(long, value_name = "WHO")]
    pub client_address: Option<String>,
    /// Proxies that are believed when they tell the addresses of clients
    #[arg(long, value_name = "NETWORK[,NETWORK…]")]
    pub trusted_proxies: Option<String>,
}

impl AdmissionFlags {
    /// Puts them above file and environment.
    #[must_use]
    pub fn onto<'a>(&self, loader: Loader<'a>) -> Loader<'a> {
        loader
            .flag("connections_max", "--connections-max", self.connections_max.as_deref())
            .flag(
                "connections_per_address",
                "--connections-per-address",
                self.connections_per_address.as_deref(),
            )
            .flag("handshakes_per_second", "--handshakes-per-second", self.handshakes_per_second.as_deref())
            .flag(
                "failed_tokens_per_minute",
                "--failed-tokens-per-minute",
                self.failed_tokens_per_minute.as_deref(),
            )
            .flag("client_address", "--client-address", self.client_address.as_deref())
            .flag("trusted_proxies", "--trusted-proxies", self.trusted_proxies.as_deref())
    }
}

/// A network, or one address.
fn network(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().ok().or_else(|| text.parse::<std::net::IpAddr>().ok().map(IpNet::from))
}

/// Checks who tells the addresses of clients.
pub(super) fn whence(configuration: &Configuration, checks: &mut Checks<'_, '_>) -> Whence {
    let mut trusted = Vec::new();
    for text in &configuration.trusted_proxies {
        match network(text) {
            Some(network) => trusted.push(network),
            None => {
                let rule = "must be an address, or a network such as 10.0.0.0/8".to_owned();
                checks.wrong("trusted_proxies", format!("{text:?}"), rule);
            }
        }
    }
    let word = configuration.client_address.as_str();
    // What is no word of the list has been told, and its default is here.
    let source = Source::of(word).unwrap_or(Source::Peer);
    let is_listed = !configuration.trusted_proxies.is_empty();
    if source == Source::Peer && is_listed {
        let rule = "is of no use while client_address is \"peer\": say who tells".to_owned();
        checks.wrong("trusted_proxies", format!("{:?}", configuration.trusted_proxies), rule);
    } else if source != Source::Peer && !is_listed {
        let rule = format!("must name the proxies that are believed, as client_address is {word:?}");
        checks.wrong("trusted_proxies", "[]".to_owned(), rule);
    }
    Whence { source, trusted }
}

impl Configuration {
    /// What was said, or what follows from who tells addresses. A peer may be a proxy that nobody has told of: whoever
    /// is behind it would pay for the tokens of all others.
    pub(super) fn failed_tokens_in_force(&self) -> Option<u32> {
        let is_known = Source::of(&self.client_address).is_some_and(|source| source != Source::Peer);
        self.failed_tokens_per_minute.or(is_known.then_some(FAILED_TOKENS_PER_MINUTE_DEFAULT))
    }

    /// How many may come in, as far as this process may open descriptors.
    #[must_use]
    pub fn admission_limits(&self) -> AdmissionLimits {
        let connections = usize::try_from(self.connections_max).unwrap_or(usize::MAX);
        let arriving = HANDSHAKES_MAX + SEEING_OFF_MAX;
        let budget = descriptors::budget(Budget { connections, arriving });
        AdmissionLimits {
            connections: budget.connections,
            arriving: (budget.arriving * HANDSHAKES_MAX / arriving).max(1),
            per_address: self.connections_per_address,
            handshakes_per_second: self.handshakes_per_second,
            failed_tokens_per_minute: self.failed_tokens_per_minute,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Flags;

    fn mistakes(admission: super::AdmissionFlags) -> Vec<String> {
        let mistakes =
            Flags { admission, ..Flags::default() }.check(std::iter::empty()).unwrap_err().to_string();
        // The keys are missing as well, in each case.
        mistakes.lines().filter(|line| !line.starts_with("jwks")).map(str::to_owned).collect()
    }

    fn flags(client_address: Option<&str>, trusted_proxies: Option<&str>) -> super::AdmissionFlags {
        super::AdmissionFlags {
            client_address: client_address.map(str::to_owned),
            trusted_proxies: trusted_proxies.map(str::to_owned),
            ..super::AdmissionFlags::default()
        }
    }

    #[test]
    fn limits_are_whole_numbers_above_zero() {
        for (number, is_good) in
            [("0", false), ("1", true), ("1000000", true), ("1000001", false), ("-1", false)]
        {
            let some = || Some(number.to_owned());
            let all = super::AdmissionFlags {
                connections_max: some(),
                connections_per_address: some(),
                handshakes_per_second: some(),
                failed_tokens_per_minute: some(),
                ..super::AdmissionFlags::default()
            };
            let told = mistakes(all);
            assert_eq!(told.len(), if is_good { 0 } else { 4 }, "{number}: {told:?}");
        }
    }

    #[test]
    fn failed_tokens_are_limited_where_addresses_are_known_or_somebody_says_so() {
        for (source, given, in_force) in [
            (None, None, None),
            (None, Some("7"), Some(7)),
            (Some("forwarded"), None, Some(60)),
            (Some("proxy-protocol"), Some("7"), Some(7)),
        ] {
            let proxies = source.map(|_| "10.0.0.0/8");
            let failed_tokens_per_minute = given.map(str::to_owned);
            let admission = super::AdmissionFlags { failed_tokens_per_minute, ..flags(source, proxies) };
            let (loaded, _) = Flags { admission, ..Flags::default() }.load(std::iter::empty()).unwrap();
            assert_eq!(loaded.admission_limits().failed_tokens_per_minute, in_force, "{source:?} {given:?}");
        }
    }

    #[test]
    fn proxies_are_listed_where_they_are_believed_and_only_there() {
        assert_eq!(mistakes(flags(None, None)), Vec::<String>::new());
        assert_eq!(
            mistakes(flags(Some("forwarded"), Some("10.0.0.0/8,192.0.2.1,fd00::/8,::1"))),
            Vec::<String>::new()
        );
        for (source, proxies, told) in [
            (Some("proxy-protocol"), None, "trusted_proxies = []: must name the proxies"),
            (None, Some("10.0.0.0/8"), "trusted_proxies = [\"10.0.0.0/8\"]: is of no use"),
            (Some("peer"), Some("10.0.0.0/8"), "trusted_proxies = [\"10.0.0.0/8\"]: is of no use"),
            (
                Some("forwarded"),
                Some("proxy.example"),
                "trusted_proxies = \"proxy.example\": must be an address",
            ),
            (Some("forwarded"), Some("10.0.0.0/33"), "trusted_proxies = \"10.0.0.0/33\": must be an address"),
            (Some("x-real-ip"), None, "client_address = \"x-real-ip\": must be one of peer, proxy-protocol"),
        ] {
            let lines = mistakes(flags(source, proxies));
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].starts_with(told), "{lines:?}");
        }
    }
}
