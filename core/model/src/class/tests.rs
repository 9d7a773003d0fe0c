use super::*;
use crate::timing::{Timings, TimingsGiven};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn room(name: &str) -> RoomId {
    RoomId::new(name).unwrap()
}

fn given(name: &str, pattern: &str, timers: [Option<u64>; 3]) -> ClassGiven {
    let [heartbeat, lease_ttl, grace] = timers.map(|timer| timer.map(ms));
    let (name, pattern) = (ClassName::new(name).unwrap(), RoomPattern::new(pattern).unwrap());
    ClassGiven { name, pattern, heartbeat, lease_ttl, grace }
}

fn quick() -> ClassGiven {
    given("trading", "trading:*", [Some(1_000), Some(3_000), Some(1_000)])
}

#[test]
fn a_name_fits_a_metric_label_and_a_path() {
    for good in ["a", "trading", "a-b_c9", &"x".repeat(32)] {
        assert_eq!(ClassName::new(good).unwrap().as_str(), good);
    }
    for bad in ["", "9", "-a", "A", "a b", "a.b", "a]", "ä", &"x".repeat(33)] {
        assert_eq!(ClassName::new(bad), Err(ClassNameError::Characters), "{bad}");
    }
    assert_eq!(ClassName::new("default"), Err(ClassNameError::Reserved));
}

#[test]
fn only_the_star_of_a_pattern_stands_for_something_else() {
    let matched = |pattern: &str, name: &str| RoomPattern::new(pattern).unwrap().matches(&room(name));
    for (pattern, name) in [
        ("trading:*", "trading:eur"),
        ("trading:*", "trading:"),
        ("*", "ω"),
        ("*:vip", "trading:vip"),
        ("a*b*c", "a--b--b--c"),
        ("**", "x"),
        ("what?", "what?"),
        ("[a]{b}\\", "[a]{b}\\"),
    ] {
        assert!(matched(pattern, name), "{pattern} {name}");
    }
    for (pattern, name) in [
        ("trading:*", "trading"),
        ("trading:*", "Trading:eur"),
        ("trading", "trading:"),
        ("*:vip", "trading:vip2"),
        ("what?", "whatx"),
        ("[a]", "a"),
    ] {
        assert!(!matched(pattern, name), "{pattern} {name}");
    }
}

#[test]
fn a_pattern_can_be_seen_and_is_no_longer_than_a_name() {
    assert!(RoomPattern::new(&"x".repeat(NAME_BYTES_MAX)).is_ok());
    assert_eq!(RoomPattern::new(&"x".repeat(256)), Err(PatternError::TooLong { bytes: 256 }));
    assert_eq!(RoomPattern::new(""), Err(PatternError::Empty));
    for hidden in ["\0", "a\n*", "\u{200b}"] {
        assert_eq!(RoomPattern::new(hidden), Err(PatternError::Invisible));
    }
}

#[test]
fn the_first_that_matches_counts_and_the_rest_is_default() {
    let classes = [quick(), given("vip", "*:vip", [None, None, None])];
    let (_, classes) =
        Timings::derive_classes(TimingsGiven::default(), TimingsGiven::default(), &classes).unwrap();
    let names = ["trading:vip", "games:vip", "lobby"].map(|name| classes.name_of(&room(name)));
    assert_eq!(names, ["trading", "vip", "default"]);
    assert_eq!(classes.of(&room("lobby")), None);
}

#[test]
fn a_class_has_of_the_default_class_what_it_does_not_give() {
    let slow = given("slow", "slow*", [Some(20_000), Some(60_000), None]);
    let (usual, classes) =
        Timings::derive_classes(TimingsGiven::default(), TimingsGiven::default(), &[slow]).unwrap();
    let timings = classes.of(&room("slow")).unwrap().timings;
    assert_eq!((timings.heartbeat, timings.lease_ttl), (ms(20_000), ms(60_000)));
    assert_eq!(timings.grace, usual.grace);
    assert_eq!(timings.reconnect_within(), ms(5_000));
    assert_eq!(quick().over(usual.usual()).timings.reconnect_within(), ms(500));
}

#[test]
fn an_older_lease_is_heard_often_enough_for_its_ttl() {
    let class = quick().over(Timings::derive(TimingsGiven::default()).unwrap().usual()).timings;
    assert_eq!(class.of_lease(ms(3_000)), class);
    assert_eq!(class.of_lease(ms(45_000)), RoomTimings { lease_ttl: ms(45_000), ..class });
    let shorter = RoomTimings { heartbeat: ms(500), lease_ttl: ms(1_500), grace: ms(1_000) };
    assert_eq!(class.of_lease(ms(1_500)), shorter);
    let odd = RoomTimings { lease_ttl: ms(3_050), ..class };
    assert_eq!(odd.of_lease(ms(3_100)), odd, "as an id carries it");
}

#[test]
fn a_class_that_no_room_reaches_is_misplaced() {
    let one = |name, pattern| given(name, pattern, [None, None, None]);
    let order = [one("a", "x:*:y"), one("b", "x:*"), one("b", "*:y"), one("c", "x:1*"), one("d", "x:*:y")];
    let found: Vec<(usize, String)> =
        misplaced(&order).into_iter().map(|(n, m)| (n, m.to_string())).collect();
    let shadowed = |by: &str, class: &str| {
        format!("is never reached: {by:?} of class {class}, in front of it, matches all of its rooms")
    };
    let expected = [
        (2, "must be the name of one class only".to_owned()),
        (3, shadowed("x:*", "b")),
        (4, shadowed("x:*:y", "a")),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_grace_is_found_by_the_ttl_of_a_lease() {
    let odd = given("odd", "odd*", [Some(1_000), Some(4_050), Some(500)]);
    let (usual, classes) =
        Timings::derive_classes(TimingsGiven::default(), TimingsGiven::default(), &[quick(), odd]).unwrap();
    let graces = Graces::new(usual.usual(), &classes);
    assert_eq!(graces.of(ms(45_000)), ms(12_000));
    assert_eq!(graces.of(ms(3_000)), ms(1_000));
    assert_eq!(graces.of(ms(4_100)), ms(500), "as a lease id carries it");
    assert_eq!(graces.of(ms(60_000)), ms(12_000), "of a class that is no more");
    assert_eq!(graces.of(ms(8_000)), ms(8_000), "and never longer than the lease");
    assert_eq!(Graces::from(ms(5_000)).of(ms(45_000)), ms(5_000));
}
