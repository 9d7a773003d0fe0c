//! The rules between timers, and settings that keep them.

use std::iter;
use std::time::Duration;

use super::{Origin, SILENCE_HEARTBEATS, TimingMistake, Timings, TimingsGiven};
use crate::class::{Class, ClassGiven, DEFAULT_CLASS, RoomTimings};
use crate::lease::LeaseId;
use crate::time::spoken;

/// Below this a session would be pinged without pause.
const HEARTBEAT_MIN: Duration = Duration::from_millis(100);
/// Below this a lease would run out between two sweeps and a turn of the network.
const LEASE_TTL_MIN: Duration = Duration::from_secs(1);
/// A lease id has 12 bits for tenths of a second; round it is easier to remember.
const LEASE_TTL_MAX: Duration = Duration::from_secs(400);
const HEARTBEAT: &str = "heartbeat";
const LEASE_TTL: &str = "lease_ttl";
const GRACE: &str = "grace";
const EDGE_LOST: &str = "edge_lost";
/// What a rule between a class and the default class is over.
const OVER_THE_DEFAULT: [&str; 3] = [LEASE_TTL, "timing.lease_ttl", "timing.grace"];
/// Examples are told in steps of what a lease id can say.
const STEP: Duration = Duration::from_millis(100);

/// All rules that do not hold, of the default class and of what all rooms share.
pub(super) fn mistakes(timings: &Timings, given: TimingsGiven) -> Vec<TimingMistake> {
    told(broken(timings), timings, given)
}

/// All rules that do not hold of another class; `before` are those in front of it.
pub(super) fn mistakes_of(
    class: &Class,
    before: &[Class],
    shared: &Timings,
    given: TimingsGiven,
) -> Vec<TimingMistake> {
    let RoomTimings { heartbeat, lease_ttl, grace } = class.timings;
    let own = Timings { heartbeat, lease_ttl, grace, ..*shared };
    let given =
        TimingsGiven { heartbeat: Some(heartbeat), lease_ttl: Some(lease_ttl), grace: Some(grace), ..given };
    let mut mistakes = told(broken_of_class(&own), &own, given);
    mistakes.extend(other_grace(class, before, shared));
    mistakes.into_iter().map(|mistake| TimingMistake { class: Some(class.name.clone()), ..mistake }).collect()
}

fn told(broken: Vec<Broken>, timings: &Timings, given: TimingsGiven) -> Vec<TimingMistake> {
    if broken.is_empty() {
        return Vec::new();
    }
    let example = render(&example(timings, given));
    broken
        .into_iter()
        .map(|Broken { setting, value, over, rule }| {
            let (origin, example) = (Origin::Given, example.clone());
            TimingMistake { class: None, setting, value, over, origin, rule, example }
        })
        .collect()
}

/// Nothing of a class but its ttl is in a lease, so classes of one ttl have one grace.
fn other_grace(class: &Class, before: &[Class], shared: &Timings) -> Option<TimingMistake> {
    let (ttl, grace) = (LeaseId::carried(class.timings.lease_ttl), class.timings.grace);
    let others = before.iter().map(|other| (other.name.as_str(), other.timings));
    let others: Vec<(&str, RoomTimings)> =
        iter::once((DEFAULT_CLASS, shared.usual())).chain(others).collect();
    let of_ttl = |ttl| others.iter().find(move |(_, other)| LeaseId::carried(other.lease_ttl) == ttl);
    let (name, other) = of_ttl(ttl).filter(|(_, other)| other.grace != grace)?;
    let rule = format!(
        "must be {}, as that of class {name}: both have lease_ttl {}, by which alone their leases are known",
        spoken(other.grace),
        spoken(ttl)
    );
    let longer = iter::successors(Some(ttl), |ttl| Some(*ttl + STEP)).find(|ttl| of_ttl(*ttl).is_none());
    let example = format!("lease_ttl {}, grace {}", spoken(longer.unwrap_or(ttl)), spoken(grace));
    let over: &[&str] = if *name == DEFAULT_CLASS { &OVER_THE_DEFAULT } else { &[LEASE_TTL] };
    let origin = Origin::Given;
    Some(TimingMistake { class: None, setting: GRACE, value: grace, over, origin, rule, example })
}

/// Where the value of a timer comes from.
pub(super) fn origin(setting: &'static str, given: TimingsGiven, defaults: TimingsGiven) -> Origin {
    let is_derived = setting == EDGE_LOST && defaults.edge_lost.is_none();
    let given = match setting {
        HEARTBEAT => given.heartbeat,
        LEASE_TTL => given.lease_ttl,
        GRACE => given.grace,
        EDGE_LOST => given.edge_lost,
        _ => None,
    };
    match given {
        Some(_) => Origin::Given,
        None if is_derived => Origin::DerivedFrom(LEASE_TTL),
        None => Origin::Default,
    }
}

/// The same for a class: what it does not give is that of the default class.
pub(super) fn origin_of(
    setting: &'static str,
    class: &ClassGiven,
    (given, defaults): (TimingsGiven, TimingsGiven),
) -> Origin {
    let usual = match setting {
        HEARTBEAT => Origin::DerivedFrom("timing.heartbeat"),
        LEASE_TTL => Origin::DerivedFrom("timing.lease_ttl"),
        GRACE => Origin::DerivedFrom("timing.grace"),
        _ => return origin(setting, given, defaults),
    };
    match origin(setting, class.timings(), TimingsGiven::default()) {
        Origin::Given => Origin::Given,
        Origin::Default | Origin::DerivedFrom(_) => usual,
    }
}

struct Broken {
    setting: &'static str,
    value: Duration,
    over: &'static [&'static str],
    rule: String,
}

/// Collects the rules that do not hold.
#[derive(Default)]
struct Check(Vec<Broken>);

impl Check {
    /// A rule that a setting breaks, over these other ones as well.
    fn rule(
        &mut self,
        (setting, value): (&'static str, Duration),
        over: &'static [&'static str],
        holds: bool,
        rule: impl FnOnce() -> String,
    ) {
        if !holds {
            self.0.push(Broken { setting, value, over, rule: rule() });
        }
    }
}

fn broken(t: &Timings) -> Vec<Broken> {
    let mut check = Check::default();
    leases(t, &mut check);
    links(t, &mut check);
    losses(t, &mut check);
    shares(t, &mut check);
    check.0
}

/// Of what all rooms share only what a class has to do with.
fn broken_of_class(t: &Timings) -> Vec<Broken> {
    let mut check = Check::default();
    leases(t, &mut check);
    losses(t, &mut check);
    shares(t, &mut check);
    check.0
}

/// How long sessions are believed.
fn leases(t: &Timings, check: &mut Check) {
    let three_heartbeats = t.heartbeat.saturating_mul(3);
    let silence_and_grace = t.heartbeat.saturating_mul(SILENCE_HEARTBEATS).saturating_add(t.grace);
    let (heartbeat, lease_ttl) = ((HEARTBEAT, t.heartbeat), (LEASE_TTL, t.lease_ttl));
    check.rule(heartbeat, &[], t.heartbeat >= HEARTBEAT_MIN, || {
        format!("must be at least {}", spoken(HEARTBEAT_MIN))
    });
    check.rule(lease_ttl, &[], (LEASE_TTL_MIN..=LEASE_TTL_MAX).contains(&t.lease_ttl), || {
        format!("must be between {} and {}", spoken(LEASE_TTL_MIN), spoken(LEASE_TTL_MAX))
    });
    check.rule(lease_ttl, &[HEARTBEAT], t.lease_ttl >= three_heartbeats, || {
        let least = spoken(three_heartbeats);
        format!("must be at least 3 × heartbeat ({least}), so that one lost renewal is survived")
    });
    check.rule(lease_ttl, &[HEARTBEAT, GRACE], t.lease_ttl >= silence_and_grace, || {
        let least = spoken(silence_and_grace);
        format!("must be at least 2 × heartbeat + grace ({least}), so that a lost transport ends by grace")
    });
    check.rule((GRACE, t.grace), &[LEASE_TTL], t.grace < t.lease_ttl, || {
        format!("must be below lease_ttl ({})", spoken(t.lease_ttl))
    });
}

/// How soon an edge may count as lost.
fn links(t: &Timings, check: &mut Check) {
    let back_again = (t.link_beat * 3).saturating_add(t.link_backoff);
    // Where it follows from a ttl that is too short it is that ttl which is told.
    let follows = t.edge_lost == t.lease_ttl_min / 3;
    let holds = t.edge_lost >= back_again || follows;
    check.rule((EDGE_LOST, t.edge_lost), &[HEARTBEAT], holds, || {
        let least = spoken(back_again);
        format!(
            "must be at least 3 link beats + the link's first backoff ({least}), so that an edge can link again"
        )
    });
}

/// How long a lost edge may be believed.
fn losses(t: &Timings, check: &mut Check) {
    let lost_and_over = t.edge_lost.saturating_add(t.grace);
    check.rule((EDGE_LOST, t.edge_lost), &[GRACE, LEASE_TTL], lost_and_over < t.lease_ttl, || {
        let (both, lease_ttl) = (spoken(lost_and_over), spoken(t.lease_ttl));
        format!(
            "must, with grace ({both} together), be below lease_ttl ({lease_ttl}), else it shortens nothing"
        )
    });
}

/// What our own machinery may use up of them.
fn shares(t: &Timings, check: &mut Check) {
    let waiting = t.renew_flush.saturating_add(t.renew_merge);
    check.rule((HEARTBEAT, t.heartbeat), &[], waiting <= t.heartbeat / 5, || {
        format!("renewals wait for {} in all, which must be at most heartbeat / 5", spoken(waiting))
    });
    let holds = t.takeover() < t.lease_ttl / 3 || t.lease_ttl.is_zero();
    check.rule((LEASE_TTL, t.lease_ttl), &[], holds, || {
        let takeover = spoken(t.takeover());
        format!("a sweep turn changes hands in {takeover}, which must be below lease_ttl / 3")
    });
}

pub(super) fn warnings(t: &Timings) -> Vec<String> {
    let mut warnings = Vec::new();
    if t.merge_interval <= t.heartbeat {
        warnings.push(format!(
            "merge_interval ({}) is not above heartbeat ({}): other regions are merged more often than sessions are heard",
            spoken(t.merge_interval), spoken(t.heartbeat)
        ));
    }
    if t.reconnect_within > t.grace / 2 {
        warnings.push(format!(
            "clients come back within {}, which is above half of grace ({}): a reconnect may show",
            spoken(t.reconnect_within),
            spoken(t.grace)
        ));
    }
    if t.grace.is_zero() {
        warnings.push("grace is zero: each reconnect shows as a departure and a join".to_owned());
    }
    warnings
}

/// Settings close to those given that hold: first by another ttl, then by what fits the ttl.
fn example(t: &Timings, given: TimingsGiven) -> TimingsGiven {
    let spare = Duration::from_millis(100);
    let edge_lost =
        given.edge_lost.map_or(Duration::ZERO, |lost| lost.saturating_add(t.grace).saturating_add(spare));
    let needed = [
        LEASE_TTL_MIN,
        t.heartbeat.saturating_mul(3),
        t.heartbeat.saturating_mul(SILENCE_HEARTBEATS).saturating_add(t.grace),
        edge_lost,
    ];
    let longer = needed.into_iter().fold(t.lease_ttl.min(LEASE_TTL_MAX), Duration::max);
    let by_ttl = TimingsGiven {
        heartbeat: Some(t.heartbeat),
        lease_ttl: Some(rounded_up(longer)),
        grace: Some(t.grace),
        ..given
    };
    let ttl = t.lease_ttl.clamp(LEASE_TTL_MIN, LEASE_TTL_MAX);
    let by_rest = TimingsGiven {
        heartbeat: Some((ttl / 3).min(t.heartbeat.max(HEARTBEAT_MIN))),
        lease_ttl: Some(ttl),
        grace: Some((ttl / 4).min(t.grace)),
        edge_lost: None,
        ..given
    };
    let candidates = [by_ttl, TimingsGiven { edge_lost: None, ..by_ttl }, by_rest];
    candidates.into_iter().find(|c| broken(&Timings::follow(*c, &[])).is_empty()).unwrap_or_default()
}

fn rounded_up(span: Duration) -> Duration {
    let steps = span.as_millis().div_ceil(STEP.as_millis());
    Duration::from_millis(u64::try_from(steps.saturating_mul(STEP.as_millis())).unwrap_or(u64::MAX))
}

fn render(given: &TimingsGiven) -> String {
    let followed = Timings::follow(*given, &[]);
    let mut text = format!(
        "heartbeat {}, lease_ttl {}, grace {}",
        spoken(followed.heartbeat),
        spoken(followed.lease_ttl),
        spoken(followed.grace)
    );
    if given.edge_lost.is_some() {
        text.push_str(&format!(", edge_lost {}", spoken(followed.edge_lost)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span() -> impl Strategy<Value = Duration> {
        prop_oneof![
            4 => (0u64..100_000).prop_map(Duration::from_millis),
            4 => (0u64..500).prop_map(Duration::from_secs),
            1 => Just(Duration::MAX),
        ]
    }

    proptest! {
        #[test]
        fn every_example_holds_and_every_set_that_holds_is_taken(
            heartbeat in prop::option::of(span()),
            lease_ttl in prop::option::of(span()),
            grace in prop::option::of(span()),
            edge_lost in prop::option::of(span()),
        ) {
            let given = TimingsGiven { heartbeat, lease_ttl, grace, edge_lost, merge_interval: None };
            let timings = Timings::follow(given, &[]);
            let found = mistakes(&timings, given);
            prop_assert_eq!(Timings::derive(given).is_ok(), found.is_empty());
            let example = example(&timings, given);
            prop_assert_eq!(mistakes(&Timings::follow(example, &[]), example), []);
        }
    }
}
