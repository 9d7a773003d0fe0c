use super::*;
use crate::class::RoomPattern;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn given(heartbeat: u64, lease_ttl: u64, grace: u64) -> TimingsGiven {
    TimingsGiven {
        heartbeat: Some(ms(heartbeat)),
        lease_ttl: Some(ms(lease_ttl)),
        grace: Some(ms(grace)),
        ..TimingsGiven::default()
    }
}

fn broken(given: TimingsGiven) -> Vec<&'static str> {
    Timings::derive(given).map_or_else(|m| m.iter().map(|m| m.setting).collect(), |_| Vec::new())
}

#[test]
fn the_defaults_hold() {
    let t = Timings::derive(TimingsGiven::default()).unwrap();
    let all = [
        (t.heartbeat, 15_000),
        (t.lease_ttl, 45_000),
        (t.grace, 12_000),
        (t.link_beat, 1_000),
        (t.edge_lost, 5_000),
        (t.renew_all_within, 2_000),
        (t.link_backoff, 1_000),
        (t.ack_within, 15_000),
        (t.renew_flush, 1_000),
        (t.renew_merge, 500),
        (t.sweep_tick, 250),
        (t.turn_kept, 2_000),
        (t.turn_look, 1_000),
        (t.reconnect_within, 5_000),
        (t.merge_interval, 20_000),
        (t.drain_window, 30_000),
        (t.takeover(), 3_000),
    ];
    for (timer, expected) in all {
        assert_eq!(timer, ms(expected));
    }
    assert!(t.warnings().is_empty());
}

#[test]
fn every_timer_follows_down_to_a_second() {
    let t = Timings::derive(given(1_000, 3_000, 1_000)).unwrap();
    let all = [
        (t.link_beat, 200),
        (t.edge_lost, 1_000),
        (t.renew_all_within, 200),
        (t.link_backoff, 200),
        (t.ack_within, 1_000),
        (t.renew_flush, 100),
        (t.renew_merge, 50),
        (t.sweep_tick, 250),
        (t.reconnect_within, 500),
        (t.merge_interval, 20_000),
        (t.drain_window, 2_000),
    ];
    for (timer, expected) in all {
        assert_eq!(timer, ms(expected));
    }
    assert_eq!(t.turn_kept, ms(3_000) / 9);
    assert_eq!(t.turn_look, ms(3_000) / 18);
    assert!(t.warnings().is_empty());
}

#[test]
fn the_demonstration_holds_and_yields_to_what_is_given() {
    assert!(Timings::derive(TimingsGiven::DEMO).is_ok());
    let t = Timings::derive(given(1_000, 3_000, 1_000).or(TimingsGiven::DEMO)).unwrap();
    assert_eq!((t.heartbeat, t.lease_ttl, t.grace), (ms(1_000), ms(3_000), ms(1_000)));
}

#[test]
fn each_rule_is_checked_at_its_edge() {
    assert_eq!(broken(given(1_000, 3_000, 1_000)), [""; 0]);
    assert_eq!(broken(given(1_001, 3_003, 1_001)), [""; 0]);
    assert_eq!(broken(given(1_001, 3_002, 1_000)), ["lease_ttl"]);
    assert_eq!(broken(given(1_000, 3_000, 1_001)), ["lease_ttl"]);
    assert_eq!(broken(given(100, 1_000, 100)), [""; 0]);
    assert_eq!(broken(given(99, 1_000, 100)), ["heartbeat"]);
    assert_eq!(broken(given(100, 999, 100)), ["lease_ttl"]);
    assert_eq!(broken(given(15_000, 400_000, 100)), [""; 0]);
    assert_eq!(broken(given(15_000, 400_100, 100)), ["lease_ttl"]);
}

#[test]
fn an_edge_is_lost_neither_before_it_can_link_again_nor_too_late_to_matter() {
    let lost = |lost| TimingsGiven { edge_lost: Some(ms(lost)), ..TimingsGiven::default() };
    assert_eq!(broken(lost(4_000)), [""; 0]);
    assert_eq!(broken(lost(3_999)), ["edge_lost"]);
    assert_eq!(broken(lost(32_999)), [""; 0]);
    assert_eq!(broken(lost(33_000)), ["edge_lost"]);
}

#[test]
fn all_mistakes_are_told_at_once_each_with_an_example() {
    let mistakes = Timings::derive(given(10_000, 12_000, 12_000)).unwrap_err();
    let settings: Vec<_> = mistakes.iter().map(|m| m.setting).collect();
    assert_eq!(settings, ["lease_ttl", "lease_ttl", "grace", "edge_lost"]);
    assert_eq!(
        mistakes[0].to_string(),
        "lease_ttl is 12s, but must be at least 3 × heartbeat (30s), so that one lost renewal is survived; \
         this would hold: heartbeat 10s, lease_ttl 32s, grace 12s"
    );
}

#[test]
fn a_timer_that_nobody_gave_is_not_blamed_on_anybody() {
    let told = |given: TimingsGiven, defaults| -> Vec<String> {
        let mistakes = Timings::derive_or(given, defaults).unwrap_err();
        let head = |mistake: &TimingMistake| mistake.to_string().split(", but").next().unwrap().to_owned();
        mistakes.iter().map(head).collect()
    };
    let long = TimingsGiven { heartbeat: Some(ms(20_000)), ..TimingsGiven::default() };
    let lease = "lease_ttl is 45s (the default)";
    assert_eq!(told(long, TimingsGiven::default()), [lease, lease]);
    assert_eq!(told(long, TimingsGiven::DEMO)[0], "lease_ttl is 12s (the default)");
    let lost = told(given(1_000, 3_500, 2_400), TimingsGiven::default());
    assert_eq!(lost, ["lease_ttl is 3s 500ms", "edge_lost is 1s 167ms (derived from lease_ttl)"]);
}

#[test]
fn odd_relations_are_warned_about() {
    let frequent = TimingsGiven { merge_interval: Some(ms(15_000)), ..TimingsGiven::default() };
    assert_eq!(Timings::derive(frequent).unwrap().warnings().len(), 1);
    let abrupt = TimingsGiven { grace: Some(ms(0)), ..TimingsGiven::default() };
    assert_eq!(Timings::derive(abrupt).unwrap().warnings().len(), 1);
}

#[test]
fn an_edge_follows_what_its_core_told() {
    let quick = class("quick", [Some(1_000), Some(3_000), Some(1_000)]);
    let core = with(&[quick]);
    let edge = Timings::told(core.usual(), core.heartbeat_min, core.link_beat, core.edge_lost);
    let shared = |t: Timings| [t.link_beat, t.link_backoff, t.edge_lost, t.renew_all_within, t.ack_within];
    assert_eq!(shared(edge), shared(core));
    assert_eq!((edge.renew_flush, edge.heartbeat_min), (ms(100), ms(1_000)));
    assert_eq!((edge.usual(), edge.reconnect_within), (core.usual(), ms(5_000)));
    assert_eq!(edge.relink_within(), core.relink_within());
}

fn class(name: &str, [heartbeat, lease_ttl, grace]: [Option<u64>; 3]) -> ClassGiven {
    ClassGiven {
        name: ClassName::new(name).unwrap(),
        pattern: RoomPattern::new(&format!("{name}:*")).unwrap(),
        heartbeat: heartbeat.map(ms),
        lease_ttl: lease_ttl.map(ms),
        grace: grace.map(ms),
    }
}

fn with(classes: &[ClassGiven]) -> Timings {
    Timings::derive_classes(TimingsGiven::default(), TimingsGiven::default(), classes).unwrap().0
}

/// What is told of a class beside the defaults.
fn told(given: TimingsGiven, classes: &[ClassGiven]) -> Vec<String> {
    let derived = Timings::derive_classes(given, TimingsGiven::default(), classes);
    derived.map_or_else(|mistakes| mistakes.iter().map(ToString::to_string).collect(), |_| Vec::new())
}

#[test]
fn what_all_rooms_share_follows_the_smallest_of_all_classes() {
    let many = class("many", [Some(1_000), Some(45_000), None]);
    let short = class("short", [Some(1_100), Some(3_300), Some(900)]);
    let slow = class("slow", [Some(60_000), Some(180_000), None]);
    let t = with(&[many, slow, short]);
    let all = [
        (t.heartbeat, 15_000),
        (t.lease_ttl, 45_000),
        (t.grace, 12_000),
        (t.heartbeat_min, 1_000),
        (t.heartbeat_max, 60_000),
        (t.lease_ttl_min, 3_300),
        (t.link_beat, 200),
        (t.edge_lost, 1_100),
        (t.renew_all_within, 200),
        (t.ack_within, 1_000),
        (t.renew_flush, 100),
        (t.renew_merge, 50),
        (t.sweep_tick, 250),
        (t.merge_interval, 80_000),
        (t.reconnect_within, 5_000),
        (t.drain_window, 30_000),
    ];
    for (timer, expected) in all {
        assert_eq!(timer, ms(expected));
    }
    assert_eq!((t.turn_kept, t.turn_look), (ms(3_300) / 9, ms(3_300) / 18));
    assert!(t.takeover() < t.lease_ttl_min / 3);
}

#[test]
fn the_default_class_may_be_the_quick_one() {
    let slow = class("slow", [Some(15_000), Some(45_000), Some(12_000)]);
    let quick = given(1_000, 3_000, 1_000);
    let (t, classes) = Timings::derive_classes(quick, TimingsGiven::default(), &[slow]).unwrap();
    assert_eq!(Timings { heartbeat_max: ms(1_000), ..t }, Timings::derive(quick).unwrap());
    assert_eq!(classes.iter().next().unwrap().timings.heartbeat, ms(15_000));
}

#[test]
fn each_rule_is_checked_at_its_edge_for_each_class() {
    let broken = |timers: [u64; 3]| {
        let class = class("quick", timers.map(Some));
        let derived = Timings::derive_classes(TimingsGiven::default(), TimingsGiven::default(), &[class]);
        derived.map_or_else(|m| m.iter().map(|m| m.setting).collect::<Vec<_>>(), |_| Vec::new())
    };
    assert_eq!(broken([1_000, 3_000, 1_000]), [""; 0]);
    assert_eq!(broken([1_001, 3_003, 1_001]), [""; 0]);
    assert_eq!(broken([1_001, 3_002, 1_000]), ["lease_ttl"]);
    assert_eq!(broken([1_000, 3_000, 1_001]), ["lease_ttl"]);
    assert_eq!(broken([100, 1_000, 100]), [""; 0]);
    assert_eq!(broken([99, 1_000, 100]), ["heartbeat"]);
    assert_eq!(broken([100, 999, 100]), ["lease_ttl"]);
    assert_eq!(broken([15_000, 400_000, 100]), [""; 0]);
    assert_eq!(broken([15_000, 400_100, 100]), ["lease_ttl"]);
}

#[test]
fn mistakes_of_all_classes_are_told_at_once_each_with_its_class() {
    let bad = class("bad", [Some(2_000), Some(3_000), Some(500)]);
    let heir = class("heir", [Some(20_000), None, Some(12_000)]);
    let lines = told(given(15_000, 44_000, 12_000), &[bad, heir]);
    let heads: Vec<&str> = lines.iter().filter_map(|line| line.split(", but").next()).collect();
    let expected = [
        "lease_ttl is 44s",
        "class bad: lease_ttl is 3s",
        "class bad: lease_ttl is 3s",
        "class heir: lease_ttl is 44s (derived from timing.lease_ttl)",
        "class heir: lease_ttl is 44s (derived from timing.lease_ttl)",
    ];
    assert_eq!(heads, expected, "{lines:#?}");
    assert!(lines[1].ends_with("this would hold: heartbeat 2s, lease_ttl 6s, grace 500ms"), "{}", lines[1]);
}

#[test]
fn a_lost_edge_is_judged_by_every_class() {
    let quick = class("quick", [Some(1_000), Some(3_000), Some(1_000)]);
    let lost = |lost| TimingsGiven { edge_lost: Some(ms(lost)), ..TimingsGiven::default() };
    assert_eq!(told(lost(1_999), std::slice::from_ref(&quick)), [""; 0]);
    let lines = told(lost(2_000), &[quick]);
    assert!(lines.len() == 1 && lines[0].starts_with("class quick: edge_lost is 2s, but must"), "{lines:?}");
}

#[test]
fn classes_of_one_ttl_have_one_grace() {
    let same = class("same", [Some(5_000), None, None]);
    let other = class("other", [Some(5_000), None, Some(20_000)]);
    assert_eq!(told(TimingsGiven::default(), std::slice::from_ref(&same)), [""; 0]);
    assert_eq!(
        told(TimingsGiven::default(), &[same, other]),
        [
            "class other: grace is 20s, but must be 12s, as that of class default: both have lease_ttl 45s, by \
          which alone their leases are known; this would hold: lease_ttl 45s 100ms, grace 20s"
        ]
    );
    let carried = class("carried", [Some(1_000), Some(44_950), Some(10_000)]);
    assert_eq!(told(TimingsGiven::default(), &[carried]).len(), 1, "an id carries tenths of a second");
}
