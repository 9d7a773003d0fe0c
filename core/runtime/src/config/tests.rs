use std::io::Write as _;

use presence_model::timing::{Origin, TimingMistake, TimingsGiven};
use serde::{Deserialize, Serialize};

use super::*;

mod classes;
mod tls;

const SETTINGS: [Setting; 9] = [
    Setting::new("grpc", Kind::Address, "\"127.0.0.1:4700\""),
    Setting::new("store.url", Kind::Url(&["memory", "redis", "rediss"]), "\"memory\"").secret(),
    Setting::new("store.retries", Kind::Whole { min: 0, max: 10 }, "3"),
    Setting::new("insecure", Kind::Switch, "true"),
    Setting::new("log", Kind::OneOf(&["text", "json"]), "\"json\""),
    Setting::new("cores", Kind::List(&Kind::Url(&["http", "https"])), "[\"http://127.0.0.1:4700\"]"),
    Setting::new("name", Kind::Text, "\"core-1\""),
    TIMING_SETTINGS[0],
    TIMING_SETTINGS[1],
];

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Example {
    grpc: Option<std::net::SocketAddr>,
    insecure: bool,
    log: Option<String>,
    cores: Vec<String>,
    name: String,
    store: Store,
    timing: TimingSettings,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Only {
    timing: TimingSettings,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
struct Store {
    url: String,
    retries: u32,
}

impl Default for Store {
    fn default() -> Self {
        Self { url: "memory".into(), retries: 3 }
    }
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn variables(pairs: &[(&str, &str)]) -> impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)> {
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    pairs.into_iter()
}

fn loader() -> Loader<'static> {
    Loader::new(&SETTINGS, "PRESENCE_TEST")
}

fn lines(loaded: Result<Example, Mistakes>) -> Vec<String> {
    loaded.unwrap_err().to_string().lines().map(str::to_owned).collect()
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let file = file("name = \"file\"\nlog = \"text\"\n[store]\nretries = 1\n[timing]\nheartbeat = \"2s\"\n");
    let environment = [
        ("PRESENCE_TEST__STORE__RETRIES", "2"),
        ("PRESENCE_TEST__NAME", "environment"),
        ("PRESENCE_TEST__CORES", "http://a:1, http://b:2"),
        ("PRESENCE_TEST__INSECURE", "true"),
        ("PRESENCE_TEST_SERVICE_PORT", "tcp://10.0.0.1:80"),
        ("PRESENCE_OTHER__NAME", "other"),
    ];
    let flags = TimingFlags { lease_ttl: Some("9s".into()), ..TimingFlags::default() };
    let loader = loader().file(Some(file.path())).environment(variables(&environment));
    let loader = flags.onto(loader.flag("name", "--name", Some("flag")));
    let example: Example = loader.load().unwrap();
    assert_eq!(example.name, "flag");
    assert_eq!(example.log.as_deref(), Some("text"));
    assert_eq!(example.store.retries, 2);
    assert_eq!(example.store.url, "memory", "a default");
    assert_eq!(example.cores, ["http://a:1", "http://b:2"]);
    assert!(example.insecure);
    let given = example.timing.given();
    assert_eq!((given.heartbeat, given.lease_ttl), (Some(secs(2)), Some(secs(9))));
}

fn secs(seconds: u64) -> std::time::Duration {
    std::time::Duration::from_secs(seconds)
}

#[test]
fn all_mistakes_are_told_at_once_each_with_value_rule_example_and_place() {
    let file = file(
        "grpc = \"localhost\"\nlog = \"xml\"\ncores = [\"http://a:1\", \"ftp://b\"]\nstor = 1\n\
         name = \"\"\n[store]\nretries = 11\nrul = \"redis://x:secret@y\"\n",
    );
    let environment =
        [("PRESENCE_TEST__STORE__URL", "mysql://user:secret@host"), ("PRESENCE_TEST__INSECURE", "yes")];
    let loader = loader().file(Some(file.path())).environment(variables(&environment));
    let loaded = loader.flag("timing.heartbeat", "--heartbeat", Some("15")).load::<Example>();
    let lines = lines(loaded);
    let place = file.path().display();
    let expected = [
        "cores = [\"http://a:1\", \"ftp://b\"]: must be a list, each a URL of http, https; example: cores = [\"http://127.0.0.1:4700\"]",
        "grpc = \"localhost\": must be an address and a port, port 0 for a free one; example: grpc = \"127.0.0.1:4700\"",
        "insecure = yes: must be true or false; example: insecure = true (in PRESENCE_TEST__INSECURE)",
        "log = \"xml\": must be one of text, json; example: log = \"json\"",
        "name = \"\": must be text that is not empty; example: name = \"core-1\"",
        "stor = …: there is no such setting; there are grpc, store.…, insecure, log, cores, name, timing.…",
        "store.retries = 11: must be a whole number from 0 to 10; example: store.retries = 3",
        "store.rul = …: there is no such setting; there are store.url, store.retries",
        "store.url = (hidden): must be a URL of memory, redis, rediss; example: store.url = \"memory\" (in PRESENCE_TEST__STORE__URL)",
        "timing.heartbeat = \"15\": must be a duration with a unit, from 1ms to 1d; example: timing.heartbeat = \"15s\" (in --heartbeat)",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        let expected =
            if expected.ends_with(')') { expected.to_owned() } else { format!("{expected} (in {place})") };
        assert_eq!(*line, expected);
    }
    assert!(!lines.join("").contains("secret"));
}

#[test]
fn values_of_the_wrong_shape_are_mistakes() {
    for text in [
        "grpc = 1",
        "grpc = [\"127.0.0.1:1\"]",
        "[grpc]\nport = 1",
        "[timing]\nheartbeat = 15",
        "[store]\nretries = -1",
    ] {
        let file = file(text);
        assert_eq!(lines(loader().file(Some(file.path())).load()).len(), 1, "{text}");
    }
}

#[test]
fn an_unreadable_or_broken_file_is_one_line() {
    let missing = lines(loader().file(Some(std::path::Path::new("/nowhere/presence.toml"))).load());
    assert!(missing[0].starts_with("--config = \"/nowhere/presence.toml\": cannot be read"), "{missing:?}");
    let file = file("name = \"a\"\n\n[store\n");
    let broken = lines(loader().file(Some(file.path())).load());
    assert!(broken.len() == 1 && broken[0].contains("is not TOML: line 3"), "{broken:?}");
}

#[test]
fn what_is_printed_is_effective_hides_secrets_and_can_be_loaded_again() {
    let loaded = loader().flag("store.url", "--store", Some("redis://user:secret@host")).flag(
        "timing.heartbeat",
        "--heartbeat",
        Some("1m 30s"),
    );
    let printed = render(&SETTINGS, &loaded.load::<Example>().unwrap());
    assert!(printed.contains("url = \"redis://(hidden)@host\"") && !printed.contains("secret"), "{printed}");
    assert!(printed.contains("retries = 3") && printed.contains("heartbeat = \"1m 30s\""), "{printed}");
    let file = file(&printed.replace("(hidden)", "user:other").replace("name = \"\"\n", ""));
    let again: Example = loader().file(Some(file.path())).load().unwrap();
    assert_eq!(again.timing.heartbeat, Some(secs(90)));
}

#[test]
fn a_variable_that_is_not_text_is_a_mistake() {
    use std::os::unix::ffi::OsStringExt as _;
    let bytes = |name: &str| (name.into(), std::ffi::OsString::from_vec(b"\xff".to_vec()));
    let environment = [bytes("PRESENCE_TEST__TIMING__HEARTBEAT"), bytes("SOMEBODY_ELSES")];
    let lines = lines(loader().environment(environment.into_iter()).load());
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("timing.heartbeat = (bytes): must be UTF-8; example: "), "{}", lines[0]);
}

#[test]
fn a_key_at_the_wrong_place_is_told_where_it_belongs() {
    let environment = [("PRESENCE_TEST__HEARTBEAT", "3s"), ("PRESENCE_TEST__STORE", "memory")];
    let lines = lines(loader().environment(variables(&environment)).load());
    assert_eq!(
        lines,
        [
            "heartbeat = …: there is no such setting; timing.heartbeat is one (as a variable \
             PRESENCE_TEST__TIMING__HEARTBEAT); there are grpc, store.…, insecure, log, cores, name, timing.… \
             (in PRESENCE_TEST__HEARTBEAT)",
            "store = …: is a table of store.url, store.retries (in PRESENCE_TEST__STORE)",
        ]
    );
}

#[test]
fn timing_mistakes_are_one_line_each() {
    let mistake = TimingMistake {
        class: None,
        setting: "lease_ttl",
        value: secs(2),
        over: &["heartbeat"],
        origin: Origin::Given,
        rule: "lease_ttl ≥ 3 × heartbeat (3s)".into(),
        example: "lease_ttl = \"3s\"".into(),
    };
    assert_eq!(
        timing::line(mistake, |_| Some("--lease-ttl".to_owned())).to_string(),
        "timing.lease_ttl = \"2s\": lease_ttl ≥ 3 × heartbeat (3s); example: lease_ttl = \"3s\" (in --lease-ttl)"
    );
}

#[test]
fn hostile_values_cannot_break_a_line() {
    let hostile = lines(loader().flag("log", "--log-format", Some("x\ny\u{1b}[2J")).load());
    assert_eq!(hostile.len(), 1);
    assert!(hostile[0].chars().all(|c| !c.is_control()), "{hostile:?}");
}

#[test]
fn the_file_that_a_flag_names_and_the_environment_are_read() {
    let file = file("name = \"file\"\n");
    let flags = ConfigFlags { config: Some(file.path().to_owned()), ..ConfigFlags::default() };
    let environment = variables(&[("PRESENCE_TEST__STORE__RETRIES", "7")]);
    let config: Example = flags.loader(&SETTINGS, "PRESENCE_TEST", environment).load().unwrap();
    let text = render(&SETTINGS, &config);
    assert!(text.contains("name = \"file\"") && text.contains("retries = 7"), "{text}");
}

#[test]
fn what_breaks_its_rule_is_left_to_its_default_and_the_rest_is_read() {
    let environment =
        variables(&[("PRESENCE_TEST__STORE__RETRIES", "11"), ("PRESENCE_TEST__NAME", "core-7")]);
    let missing = std::path::Path::new("/nowhere/presence.toml");
    let loader = loader().file(Some(missing)).environment(environment);
    let (config, mistakes): (Example, _) = loader.read();
    let paths: Vec<&str> = mistakes.iter().map(|mistake| mistake.path.as_str()).collect();
    assert_eq!(paths, ["--config", "store.retries"]);
    assert_eq!(
        render(&SETTINGS, &config),
        render(&SETTINGS, &Example { name: "core-7".into(), ..Example::default() })
    );
}

#[test]
fn rules_between_settings_are_checked_only_where_the_settings_themselves_are_good() {
    let flags = |heartbeat: &str| TimingFlags {
        heartbeat: Some(heartbeat.into()),
        lease_ttl: Some("20s".into()),
        ..TimingFlags::default()
    };
    let told = |heartbeat: &str| {
        let loader = flags(heartbeat).onto(Loader::new(&TIMING_SETTINGS, "PRESENCE_TEST"));
        let (only, mistakes): (Example, _) = loader.read();
        let mut checks = Checks::new(&loader, mistakes);
        let given = TimingsGiven { heartbeat: only.timing.heartbeat, ..TimingsGiven::default() };
        let given = TimingsGiven { lease_ttl: Some(secs(20)), ..given };
        assert!(checks.timings(given, TimingsGiven::default()).is_none());
        lines(Err(checks.mistakes().unwrap()))
    };
    assert_eq!(told("soon").len(), 1, "what would follow from a default is not told");
    assert_eq!(told("0s").len(), 1);
    let broken = told("15s");
    assert!(broken.iter().all(|line| line.ends_with("(in --lease-ttl)")), "{broken:?}");
    assert!(broken.iter().all(|line| line.starts_with("timing.lease_ttl = \"20s\": ")), "{broken:?}");
}

#[test]
fn a_mistake_of_one_timer_hides_none_of_the_others() {
    let told = |flags: TimingFlags| {
        let loader = flags.onto(Loader::new(&TIMING_SETTINGS, "PRESENCE_TEST"));
        let (only, mistakes): (Only, _) = loader.read();
        let mut checks = Checks::new(&loader, mistakes);
        assert!(checks.timings(only.timing.given(), TimingsGiven::default()).is_none());
        let lines = lines(Err(checks.mistakes().unwrap()));
        lines.iter().map(|line| line.split(": ").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let flags = TimingFlags {
        heartbeat: Some("10s".into()),
        lease_ttl: Some("12s".into()),
        grace: Some("13s".into()),
        ..TimingFlags::default()
    };
    let ttl = "timing.lease_ttl = \"12s\"";
    let derived = "timing.edge_lost = \"4s\" (derived from lease_ttl)";
    assert_eq!(told(flags.clone()), [ttl, ttl, "timing.grace = \"13s\"", derived]);
    for bad in ["0", "0s", "never"] {
        let flags = TimingFlags { edge_lost: Some(bad.into()), ..flags.clone() };
        let bad = format!("timing.edge_lost = {bad:?}");
        assert_eq!(told(flags), [&bad, ttl, ttl, "timing.grace = \"13s\""], "nothing of a stand-in");
    }
    let flags = TimingFlags { lease_ttl: Some("soon".into()), edge_lost: Some("1s".into()), ..flags };
    assert_eq!(told(flags), ["timing.lease_ttl = \"soon\"", "timing.edge_lost = \"1s\""]);
}

#[test]
fn listeners_need_an_address_each() {
    let told = |grpc: &str, admin: &str| {
        let keys = [SETTINGS[0], Setting::new("admin", Kind::Address, "\"127.0.0.1:4702\"")];
        let loader = Loader::new(&keys, "PRESENCE_TEST").flag("admin", "--admin", Some(admin));
        let mut checks = Checks::new(&loader, Vec::new());
        checks.listeners(&[("grpc", grpc.parse().unwrap()), ("admin", admin.parse().unwrap())]);
        checks.mistakes().map(|mistakes| mistakes.to_string())
    };
    assert_eq!(
        told("127.0.0.1:1", "127.0.0.1:1").unwrap(),
        "admin = \"127.0.0.1:1\": grpc listens there as well: each listener needs an address of its own; \
         example: admin = \"127.0.0.1:4702\" (in --admin)"
    );
    for (grpc, admin) in [("0.0.0.0:1", "127.0.0.1:1"), ("[::1]:1", "[::]:1"), ("[::]:1", "127.0.0.1:1")] {
        assert!(told(grpc, admin).is_some(), "{grpc} {admin}");
    }
    for (grpc, admin) in
        [("127.0.0.1:0", "127.0.0.1:0"), ("127.0.0.1:1", "127.0.0.1:2"), ("127.0.0.1:1", "127.0.0.2:1")]
    {
        assert_eq!(told(grpc, admin), None, "{grpc} {admin}");
    }
}
