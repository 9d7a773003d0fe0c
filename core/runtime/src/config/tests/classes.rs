//! Room classes: a list of tables in a file, numbered variables beside it.

use presence_model::class::Classes;
use presence_model::id::RoomId;
use presence_model::limits::CLASSES_MAX;
use presence_model::timing::{Timings, TimingsGiven};
use serde::{Deserialize, Serialize};

use super::*;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Rooms {
    timing: TimingSettings,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    class: Vec<ClassSettings>,
}

fn settings() -> Vec<Setting> {
    TIMING_SETTINGS.into_iter().chain(CLASS_SETTINGS).collect()
}

/// Timers and classes of a file and variables, or the mistakes; the file is named `FILE` there.
fn derive(text: &str, pairs: &[(&str, &str)]) -> Result<(Timings, Classes), Vec<String>> {
    let (file, settings) = (file(text), settings());
    let loader =
        Loader::new(&settings, "PRESENCE_TEST").file(Some(file.path())).environment(variables(pairs));
    let (rooms, mistakes): (Rooms, _) = loader.read();
    let mut checks = Checks::new(&loader, mistakes);
    let derived = checks.timings_of_classes(rooms.timing.given(), TimingsGiven::default(), &rooms.class);
    match (derived, checks.mistakes()) {
        (Some(derived), None) => Ok(derived),
        (_, mistakes) => {
            let place = file.path().display().to_string();
            let lines = mistakes.unwrap().to_string();
            Err(lines.lines().map(|line| line.replace(&place, "FILE")).collect())
        }
    }
}

fn told(text: &str) -> Vec<String> {
    derive(text, &[]).err().unwrap_or_default()
}

const TWO: &str = r#"
[timing]
grace = "10s"

[[class]]
name = "trading"
match = "trading:*"
heartbeat = "1s"
lease_ttl = "3s"
grace = "1s"

[[class]]
name = "slow"
match = "*:slow"
heartbeat = "60s"
lease_ttl = "3m"
"#;

fn room(name: &str) -> RoomId {
    RoomId::new(name).unwrap()
}

#[test]
fn classes_are_read_in_the_order_of_the_file() {
    let (timings, classes) = derive(TWO, &[]).unwrap();
    let names = ["trading:slow", "games:slow", "lobby"].map(|name| classes.name_of(&room(name)).to_owned());
    assert_eq!(names, ["trading", "slow", "default"]);
    let slow = classes.of(&room("games:slow")).unwrap().timings;
    assert_eq!((slow.heartbeat, slow.lease_ttl, slow.grace), (secs(60), secs(180), secs(10)));
    assert_eq!((timings.heartbeat, timings.heartbeat_min), (secs(15), secs(1)));
}

#[test]
fn what_is_printed_can_be_loaded_again_and_shows_what_is_in_force() {
    let (timings, classes) = derive(TWO, &[]).unwrap();
    let class = ClassSettings::in_force(&classes);
    let printed = render(&settings(), &Rooms { timing: TimingSettings::default().in_force(&timings), class });
    assert!(printed.contains("[[class]]") && printed.contains(r#"match = "*:slow""#), "{printed}");
    assert_eq!(printed.matches(r#"grace = "10s""#).count(), 2, "of the default class and of slow: {printed}");
    assert_eq!(derive(&printed, &[]).unwrap(), (timings, classes));
    assert!(!render(&settings(), &Rooms::default()).contains("class"));
}

#[test]
fn numbered_variables_replace_the_list_of_the_file() {
    let variables = [
        ("PRESENCE_TEST__CLASS__10__NAME", "rest"),
        ("PRESENCE_TEST__CLASS__10__MATCH", "*:x*"),
        ("PRESENCE_TEST__CLASS__9__NAME", "quick"),
        ("PRESENCE_TEST__CLASS__9__MATCH", "quick:*"),
        ("PRESENCE_TEST__CLASS__9__HEARTBEAT", "1s"),
    ];
    let (_, classes) = derive(TWO, &variables).unwrap();
    let names: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["quick", "rest"]);
    let bad = derive("", &[("PRESENCE_TEST__CLASS__1__NAME", "quick")]).unwrap_err();
    let place = "(in PRESENCE_TEST__CLASS__…)";
    let line =
        r#"class[quick].match = (not set): every class has one; example: [[class]] match = "trading:*""#;
    assert_eq!(bad, [format!("{line} {place}")]);
}

#[test]
fn all_mistakes_of_classes_are_told_at_once_each_with_its_class() {
    let lines = told(
        r#"
[[class]]
name = "a"
match = "a:*"
heartbeat = "soon"
hartbeat = "1s"

[[class]]
name = "B"
match = ""

[[class]]
name = "c"
match = "x*"
grace = "20s"
lease_ttl = "20s"

[[class]]
name = "default"
lease_ttl = 5

[[class]]
name = "e"
match = "x1*"
"#,
    );
    let expected = [
        "class[a].hartbeat = …: there is no such setting; there are name, match, heartbeat, lease_ttl, grace",
        r#"class[a].heartbeat = "soon": must be a duration with a unit, from 1ms to 1d; example: [[class]] heartbeat = "5s""#,
        r#"class[2].match = "": must be text that is not empty; example: [[class]] match = "trading:*""#,
        r#"class[4].lease_ttl = "5": must be a duration with a unit, from 1ms to 1d; example: [[class]] lease_ttl = "15s""#,
        r#"class[2].name = "B": must be 1 to 32 of a-z, 0-9, _ and -, a letter first; example: [[class]] name = "trading""#,
        r#"class[4].name = "default": must not be default: that is the class of all rooms that no other matches; example: [[class]] name = "trading""#,
        r#"class[4].match = (not set): every class has one; example: [[class]] match = "trading:*""#,
        r#"class[e].match = "x1*": is never reached: "x*" of class c, in front of it, matches all of its rooms; example: [[class]] match = "trading:*""#,
        r#"class[c].lease_ttl = "20s": must be at least 3 × heartbeat (45s), so that one lost renewal is survived; example: heartbeat 15s, lease_ttl 50s, grace 20s"#,
        r#"class[c].lease_ttl = "20s": must be at least 2 × heartbeat + grace (50s), so that a lost transport ends by grace; example: heartbeat 15s, lease_ttl 50s, grace 20s"#,
        r#"class[c].grace = "20s": must be below lease_ttl (20s); example: heartbeat 15s, lease_ttl 50s, grace 20s"#,
    ];
    let expected: Vec<String> = expected.iter().map(|line| format!("{line} (in FILE)")).collect();
    let (edge_lost, lines): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|line| line.starts_with("timing.edge_lost"));
    assert_eq!(lines, expected, "{lines:#?}");
    assert_eq!(edge_lost.len(), 1, "{edge_lost:?}");
    assert!(edge_lost[0].contains("(derived from lease_ttl): for class c, must"), "{edge_lost:?}");
}

#[test]
fn a_shared_timer_is_blamed_where_it_is_set_and_the_class_named() {
    let lines = told(&TWO.replace("grace = \"10s\"", "edge_lost = \"2500ms\""));
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line = r#"timing.edge_lost = "2s 500ms": for class trading, must, with grace"#;
    assert!(lines[0].starts_with(line), "{lines:?}");
}

#[test]
fn a_class_is_not_blamed_for_what_it_did_not_give() {
    let lines = told("[[class]]\nname = \"long\"\nmatch = \"long\"\nheartbeat = \"20s\"\n");
    let heir = "class[long].lease_ttl = \"45s\" (derived from timing.lease_ttl): must";
    assert!(lines.len() == 2 && lines.iter().all(|line| line.starts_with(heir)), "{lines:?}");
    let lines = told("[timing]\nheartbeat = \"soon\"\n[[class]]\nname = \"a\"\nmatch = \"a\"\n");
    assert_eq!(lines.len(), 1, "what would follow from a default is not told: {lines:?}");
}

#[test]
fn a_list_is_a_list_of_tables() {
    for (text, lines) in [
        ("class = \"trading\"", 1),
        ("class = [\"trading\"]", 1),
        ("[class]\nname = \"trading\"", 1),
        ("[class.trading]\nmatch = \"trading:*\"", 1),
        ("class = []", 0),
    ] {
        let found = told(text);
        assert_eq!(found.len(), lines, "{text}: {found:?}");
        let rule = "class = …: must be a list of tables, each [[class]] with name, match, heartbeat, lease_ttl, grace";
        assert!(found.iter().all(|line| line.starts_with(rule)), "{found:?}");
    }
}

#[test]
fn there_are_at_most_so_many() {
    let classes = |count: usize| -> String {
        (0..count).map(|n| format!("[[class]]\nname = \"c{n}\"\nmatch = \"c{n}:*\"\n")).collect()
    };
    assert_eq!(told(&classes(CLASSES_MAX - 1)), [""; 0]);
    assert_eq!(told(&classes(CLASSES_MAX)), [""; 0]);
    let lines = told(&classes(CLASSES_MAX + 1));
    assert_eq!(lines, ["class = (17 classes): there are at most 16 beside the default class (in FILE)"]);
}

#[test]
fn a_bad_timer_of_all_hides_no_mistake_of_a_class_that_has_no_part_in_it() {
    let heads = |text: &str| -> Vec<String> {
        told(text).iter().map(|line| line.split(": ").next().unwrap().to_owned()).collect()
    };
    let class = "[[class]]\nname = \"quick\"\nmatch = \"q:*\"\n";
    let bad = "timing.grace = \"soon\"";
    let own = format!("[timing]\ngrace = \"soon\"\n{class}heartbeat = \"2s\"\nlease_ttl = \"3s\"\n");
    assert_eq!(heads(&own), [bad, "class[quick].lease_ttl = \"3s\""], "not of the grace that it lacks");
    let with_grace = format!("{own}grace = \"4s\"\n");
    let ttl = "class[quick].lease_ttl = \"3s\"";
    let lost = "timing.edge_lost = \"1s\" (derived from lease_ttl)";
    assert_eq!(heads(&with_grace), [bad, ttl, ttl, "class[quick].grace = \"4s\"", lost]);
    let same_ttl = format!("[timing]\ngrace = \"soon\"\n{class}grace = \"11s\"\n");
    assert_eq!(heads(&same_ttl), [bad], "whether it differs from a stand-in is nobody's affair");
}

#[test]
fn a_key_of_all_rooms_in_a_class_is_told_where_it_belongs() {
    let lines = told("[[class]]\nname = \"quick\"\nmatch = \"q:*\"\nedge_lost = \"2s\"\n");
    let rule = "there is no such setting; timing.edge_lost is one (as a variable PRESENCE_TEST__TIMING__EDGE_LOST); \
                there are name, match, heartbeat, lease_ttl, grace";
    assert_eq!(lines, [format!("class[quick].edge_lost = …: {rule} (in FILE)")]);
    let lines = told("match = \"q:*\"\n");
    assert!(lines[0].contains("each [[class]] has its match; there are timing.…, [[class]]"), "{lines:?}");
}
