use super::*;

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
        (t.silence_max(), 30_000),
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
    assert_eq!(lost, ["lease_ttl is 3.5s", "edge_lost is 1.166666666s (derived from lease_ttl)"]);
}

#[test]
fn odd_relations_are_warned_about() {
    let frequent = TimingsGiven { merge_interval: Some(ms(15_000)), ..TimingsGiven::default() };
    assert_eq!(Timings::derive(frequent).unwrap().warnings().len(), 1);
    let abrupt = TimingsGiven { grace: Some(ms(0)), ..TimingsGiven::default() };
    assert_eq!(Timings::derive(abrupt).unwrap().warnings().len(), 1);
}
