//! What `presence dev` is told. All mistakes at once, as with the binaries it stands for.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use presence_edge::limits::{LIST_MEMBERS_DEFAULT, LIST_MEMBERS_MAX};
use presence_model::class::Classes;
use presence_model::id::RegionId;
use presence_model::timing::{Timings, TimingsGiven};
use presence_runtime::config::{
    CLASS_SETTINGS, Checks, ClassSettings, Kind, Mistakes, Setting, TIMING_SETTINGS, TimingSettings, render,
};
use serde::{Deserialize, Serialize};

use crate::args::DevArgs;

/// All of them run in one process.
const REGIONS_MAX: usize = 4;
/// Clients of `dev` are told to come back within a blink: nobody waits for a drain on a desk.
const DRAIN_WINDOW: Duration = Duration::from_millis(500);

/// Where to listen, and with which timers.
#[derive(Debug, Clone)]
pub(crate) struct DevSettings {
    pub(crate) listen: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) list_members: usize,
    /// At least one, each once.
    pub(crate) regions: Vec<RegionId>,
    pub(crate) json: bool,
    pub(crate) timings: Timings,
    pub(crate) classes: Classes,
    /// All of it as a file has it.
    pub(crate) shown: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
struct Given {
    listen: SocketAddr,
    grpc: SocketAddr,
    admin: SocketAddr,
    list_members: u32,
    regions: Vec<String>,
    timing: TimingSettings,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    class: Vec<ClassSettings>,
}

impl Default for Given {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            listen: loopback(4700),
            grpc: loopback(4701),
            admin: loopback(4702),
            list_members: LIST_MEMBERS_DEFAULT,
            regions: vec!["local".to_owned()],
            timing: TimingSettings::default(),
            class: Vec::new(),
        }
    }
}

impl DevSettings {
    /// Reads file, environment and flags.
    ///
    /// # Errors
    /// All mistakes at once.
    pub(crate) fn check(
        args: &DevArgs,
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<Self, Mistakes> {
        let mut keys = vec![
            Setting::new("listen", Kind::Address, "\"127.0.0.1:4700\""),
            Setting::new("grpc", Kind::Address, "\"127.0.0.1:4701\""),
            Setting::new("admin", Kind::Address, "\"127.0.0.1:4702\""),
            Setting::new("list_members", Kind::Whole { min: 1, max: LIST_MEMBERS_MAX }, "5000"),
            Setting::new("regions", Kind::List(&Kind::Text), "[\"eu-west\", \"us-east\"]"),
        ];
        keys.extend(TIMING_SETTINGS);
        keys.extend(CLASS_SETTINGS);
        let loader = args
            .config
            .loader(&keys, "PRESENCE_DEV", environment)
            .flag("listen", "--listen", args.listen.as_deref())
            .flag("grpc", "--grpc", args.grpc.as_deref())
            .flag("admin", "--admin", args.admin.as_deref())
            .flag("list_members", "--list-members", args.list_members.as_deref())
            .flag("regions", "--regions", args.regions.as_deref());
        let loader = args.timings.flags().onto(loader);
        let (mut given, mistakes): (Given, _) = loader.read();
        let mut checks = Checks::new(&loader, mistakes);
        let derived = checks.timings_of_classes(given.timing.given(), TimingsGiven::DEMO, &given.class);
        let Given { listen, grpc, admin, list_members, .. } = given;
        let list_members = usize::try_from(list_members).unwrap_or(usize::MAX);
        for (path, address) in [("listen", listen), ("grpc", grpc), ("admin", admin)] {
            if !address.ip().is_loopback() {
                let rule = "presence dev hands out tokens to everybody, so it stays on loopback".to_owned();
                checks.wrong(path, format!("\"{address}\""), rule);
            }
        }
        let regions = read_regions(&mut checks, &given.regions);
        checks.listeners(&[("listen", listen), ("grpc", grpc), ("admin", admin)]);
        checks.logs(&args.logs);
        match (derived, regions, checks.mistakes()) {
            (Some((mut timings, classes)), Some(regions), None) => {
                given.timing = given.timing.in_force(&timings);
                given.class = ClassSettings::in_force(&classes);
                let shown = render(&keys, &given);
                timings.drain_window = DRAIN_WINDOW;
                let json = args.json;
                Ok(Self { listen, grpc, admin, list_members, regions, json, timings, classes, shown })
            }
            (.., mistakes) => Err(mistakes.expect("timers are missing for a reason")),
        }
    }
}

/// Names of regions, each once and at most [`REGIONS_MAX`].
fn read_regions(checks: &mut Checks<'_, '_>, names: &[String]) -> Option<Vec<RegionId>> {
    let mut regions: Vec<RegionId> = Vec::new();
    for name in names {
        let region = checks.value("regions", name, RegionId::new(name))?;
        if regions.contains(&region) {
            checks.wrong("regions", format!("{name:?}"), "is named twice".to_owned());
            return None;
        }
        regions.push(region);
    }
    if !(1..=REGIONS_MAX).contains(&regions.len()) {
        let rule = format!("must be one to {REGIONS_MAX}: all of them run in this process");
        checks.wrong("regions", format!("{} regions", regions.len()), rule);
        return None;
    }
    Some(regions)
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
        DevSettings::check(&args, std::iter::empty()).map_err(lines)
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
    fn regions_are_a_few_and_each_is_named_once() {
        let names = |flags: &[&str]| {
            let settings = check(flags)?;
            Ok::<_, Vec<String>>(settings.regions.iter().map(|r| r.as_str().to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap(), ["local"]);
        assert_eq!(names(&["--regions", "eu,us,ap,sa"]).unwrap(), ["eu", "us", "ap", "sa"]);
        for bad in ["eu,eu", "a,b,c,d,e", ","] {
            assert_eq!(names(&["--regions", bad]).unwrap_err().len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_file_may_have_room_classes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let class =
            "[[class]]\nname = \"quick\"\nmatch = \"quick:*\"\nheartbeat = \"1s\"\nlease_ttl = \"3s\"\n";
        std::fs::write(file.path(), format!("grpc = \"127.0.0.1:0\"\n{class}grace = \"1s\"\n")).unwrap();
        let path = file.path().to_str().unwrap();
        let settings = check(&["--config", path, "--heartbeat", "2s"]).unwrap();
        assert_eq!((settings.grpc.port(), settings.timings.heartbeat.as_secs()), (0, 2));
        let classes: Vec<&str> = settings.classes.iter().map(|class| class.name.as_str()).collect();
        assert_eq!(classes, ["quick"]);
        assert!(settings.shown.contains("[[class]]") && settings.shown.contains("heartbeat = \"2s\""));
        std::fs::write(file.path(), class).unwrap();
        let lines = check(&["--config", path]).unwrap_err();
        let grace = "class[quick].grace = \"5s\" (derived from timing.grace): must be below lease_ttl (3s)";
        assert!(lines.iter().any(|line| line.starts_with(grace)), "{lines:?}");
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
