//! What `presence dev` is told. All mistakes at once, as with the binaries it stands for.

use std::net::SocketAddr;
use std::time::Duration;

use presence_model::timing::{Timings, TimingsGiven};
use presence_runtime::config::{Checks, Kind, Loader, Mistakes, Setting, TIMING_SETTINGS, TimingSettings};
use serde::Deserialize;

use crate::args::DevArgs;

/// Clients of `dev` are told to come back within a blink: nobody waits for a drain on a desk.
const DRAIN_WINDOW: Duration = Duration::from_millis(500);

/// Where to listen, and with which timers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DevSettings {
    pub(crate) listen: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) json: bool,
    pub(crate) timings: Timings,
}

#[derive(Debug, Deserialize)]
#[serde(default)]
struct Given {
    listen: SocketAddr,
    grpc: SocketAddr,
    admin: SocketAddr,
    timing: TimingSettings,
}

impl Default for Given {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let timing = TimingSettings::default();
        Self { listen: loopback(4700), grpc: loopback(4701), admin: loopback(4702), timing }
    }
}

impl DevSettings {
    /// Reads the flags.
    ///
    /// # Errors
    /// All mistakes at once.
    pub(crate) fn check(args: &DevArgs) -> Result<Self, Mistakes> {
        let mut keys = vec![
            Setting::new("listen", Kind::Address, "\"127.0.0.1:4700\""),
            Setting::new("grpc", Kind::Address, "\"127.0.0.1:4701\""),
            Setting::new("admin", Kind::Address, "\"127.0.0.1:4702\""),
        ];
        keys.extend(TIMING_SETTINGS);
        let loader = Loader::new(&keys, "PRESENCE_DEV")
            .flag("listen", "--listen", args.listen.as_deref())
            .flag("grpc", "--grpc", args.grpc.as_deref())
            .flag("admin", "--admin", args.admin.as_deref());
        let loader = args.timings.flags().onto(loader);
        let (given, mistakes): (Given, _) = loader.read();
        let mut checks = Checks::new(&loader, mistakes);
        let timings = checks.timings(given.timing.given(), TimingsGiven::DEMO);
        let Given { listen, grpc, admin, timing: _ } = given;
        for (path, address) in [("listen", listen), ("grpc", grpc), ("admin", admin)] {
            if !address.ip().is_loopback() {
                let rule = "presence dev hands out tokens to everybody, so it stays on loopback".to_owned();
                checks.wrong(path, format!("\"{address}\""), rule);
            }
        }
        checks.logs(&args.logs);
        match (timings, checks.mistakes()) {
            (Some(mut timings), None) => {
                timings.drain_window = DRAIN_WINDOW;
                Ok(Self { listen, grpc, admin, json: args.json, timings })
            }
            (_, mistakes) => Err(mistakes.expect("timers are missing for a reason")),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Command, Presence};

    fn check(flags: &[&str]) -> Result<DevSettings, Vec<String>> {
        let arguments = ["presence", "dev"].iter().chain(flags);
        let Command::Dev(args) = Presence::try_parse_from(arguments).unwrap().command else {
            panic!("not dev")
        };
        let lines = |mistakes: Mistakes| mistakes.to_string().lines().map(str::to_owned).collect();
        DevSettings::check(&args).map_err(lines)
    }

    #[test]
    fn timers_are_those_of_a_demonstration_unless_given() {
        let settings = check(&["--listen", "127.0.0.1:0", "--grace", "4s"]).unwrap();
        assert_eq!((settings.listen.port(), settings.grpc.port()), (0, 4701));
        let timings = settings.timings;
        assert_eq!(
            (timings.heartbeat.as_secs(), timings.lease_ttl.as_secs(), timings.grace.as_secs()),
            (3, 12, 4)
        );
    }

    #[test]
    fn mistakes_of_all_kinds_are_told_at_once() {
        let lines = check(&["--grpc", "nope", "--listen", "0.0.0.0:1", "--heartbeat", "5s"]).unwrap_err();
        let heads: Vec<&str> = lines.iter().filter_map(|line| line.split(": ").next()).collect();
        let expected = [
            "grpc = \"nope\"",
            "timing.lease_ttl = \"12s\" (the default)",
            "timing.lease_ttl = \"12s\" (the default)",
            "listen = \"0.0.0.0:1\"",
        ];
        assert_eq!(heads, expected, "{lines:?}");
        assert!(lines[0].ends_with("(in --grpc)"), "{lines:?}");
    }
}
