//! Somebody's hand parts leases and records: what the audit makes of it, and what it leaves alone.

use std::time::Duration;

use presence_model::lease::LeaseId;

use super::world::{World, ms, roster, secs, user};
use crate::driver::{AuditNote, Finding, LinkEnd};
use crate::store::Command;
use crate::store::memory::{Tampering, Upheaval};

impl World {
    fn lose_record(&mut self, name: &str) {
        self.tamper(Tampering::LoseRecord(roster("r"), user(name)));
    }

    fn found(&self) -> Vec<(Finding, usize)> {
        let found = |note: &AuditNote| match note {
            AuditNote::Found { finding, count, .. } => Some((*finding, *count)),
            AuditNote::Page { .. } | AuditNote::Mended { .. } => None,
        };
        self.audit_notes.iter().filter_map(found).collect()
    }

    fn mended(&self) -> Vec<(Finding, usize)> {
        let mended = |note: &AuditNote| match note {
            AuditNote::Mended { finding, count, .. } => Some((*finding, *count)),
            AuditNote::Page { .. } | AuditNote::Found { .. } => None,
        };
        self.audit_notes.iter().filter_map(mended).collect()
    }

    fn has_lease(&mut self, lease: LeaseId) -> bool {
        let now = self.store_now();
        let command = Command::Leases { shard: lease.shard(), leases: vec![lease] };
        match self.store.apply(command, now) {
            Ok(crate::store::Outcome::Leases { leases, .. }) => !leases.is_empty(),
            other => panic!("no leases: {other:?}"),
        }
    }

    fn oldest_overdue(&self) -> Duration {
        let age = |note: &AuditNote| match note {
            AuditNote::Page { oldest_overdue } => Some(*oldest_overdue),
            AuditNote::Found { .. } | AuditNote::Mended { .. } => None,
        };
        self.audit_notes.iter().rev().find_map(age).unwrap_or_default()
    }
}

#[test]
fn one_core_audits_each_shard_each_second() {
    let mut world = World::with_cores(2);
    world.run(secs(10));
    let before: usize = world.audits.values().sum();
    world.run(secs(60));
    let both = world.audits.values().sum::<usize>() - before;
    assert!((236..=244).contains(&both), "four shards, a page a second: {both}");
    world.sleep(0, true);
    world.run(secs(10));
    let before = world.audits[&1];
    world.run(secs(60));
    assert!((236..=244).contains(&(world.audits[&1] - before)), "the other one goes on");
    assert_eq!((world.found(), world.mended()), (vec![], vec![]));
}

#[test]
fn who_is_there_and_loses_the_lease_is_joined_again_unseen() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    let first = world.join(edge, "ann", 1);
    world.run(secs(20));
    world.tamper(Tampering::LoseLease(first.lease));
    world.run(secs(16));
    assert!(world.edges[edge].unknown.contains(&first.lease), "its edge hears of it by itself");
    assert_eq!(world.watchers[&watch].saw, ["+ann"], "no page of an audit is faster");
    world.rejoin(edge, "ann", &first).unwrap();
    world.run(secs(120));
    assert_eq!(world.watchers[&watch].saw, ["+ann"]);
    assert_eq!((world.found(), world.mended()), (vec![(Finding::Remnant, 1)], vec![]));
}

#[test]
fn who_is_silent_and_loses_the_lease_ends_within_a_ttl() {
    let mut world = World::new();
    let edges = [world.edge(0), world.edge(0)];
    let watch = world.watch(0, 1);
    world.join(edges[0], "ann", 1);
    let bob = world.join(edges[1], "bob", 1);
    world.run(secs(20));
    world.edges[edges[1]].running = false;
    world.cut(edges[1], LinkEnd::Silent);
    world.tamper(Tampering::LoseLease(bob.lease));
    world.run(secs(45));
    assert_eq!(world.watchers[&watch].shown(), ["ann", "bob"], "not before its ttl");
    world.run(secs(2));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob", "-bob lease_expired"]);
    assert_eq!(world.mended(), [(Finding::Remnant, 1)]);
    assert_eq!(world.log().last().map(String::as_str), Some("bob ended lease_expired"));
}

#[test]
fn whoever_loses_the_lease_in_grace_ends_within_a_ttl() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    let ann = world.join(edge, "ann", 1);
    world.release(edge, ann.lease);
    world.tamper(Tampering::LoseLease(ann.lease));
    world.run(secs(47));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "-ann lease_expired"]);
}

#[test]
fn a_lost_record_is_made_good_by_the_edge_that_holds_the_session() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    let ann = world.join(edge, "ann", 1);
    world.join(edge, "bob", 1);
    world.run(secs(20));
    world.lose_record("ann");
    world.run(secs(14));
    assert!(world.has_lease(ann.lease), "one finding is none");
    world.run(secs(20));
    assert!(!world.has_lease(ann.lease));
    assert!(world.edges[edge].unknown.contains(&ann.lease));
    world.rejoin(edge, "ann", &ann).unwrap();
    world.run(secs(100));
    assert_eq!(world.stored("r"), ["ann", "bob"]);
    assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob"], "copies had her all the time");
    assert_eq!(world.mended(), [(Finding::Torn, 1)], "in a hold, as copies would see her go otherwise");
    let late = world.watch(0, 1);
    world.run(ms(100));
    assert_eq!(world.watchers[&late].shown(), ["ann", "bob"], "who comes now reads the same");
}

#[test]
fn whoever_came_again_meanwhile_keeps_the_new_lease() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    let old = world.join(edge, "ann", 1);
    world.lose_record("ann");
    world.run(secs(5));
    let new = world.join(edge, "ann", 2);
    world.run(secs(15));
    assert!(!world.has_lease(old.lease), "that one is nobody's");
    world.run(secs(100));
    assert!(world.has_lease(new.lease));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "~ann"], "since when she is there was lost");
}

#[test]
fn a_lease_of_nobody_goes_after_a_heartbeat() {
    let mut world = World::new();
    let (ttl, shard) = (secs(45), presence_model::lease::Shard(2));
    let stray = LeaseId::mint(ttl, shard, 4_711);
    let until = world.store_now() + secs(600);
    world.tamper(Tampering::Stray(stray, until));
    world.run(secs(15));
    assert!(world.has_lease(stray));
    world.run(secs(3));
    assert!(!world.has_lease(stray));
    assert_eq!(world.found(), [(Finding::Stray, 1)]);
    assert_eq!(world.mended(), [(Finding::Stray, 1)]);
}

#[test]
fn a_hold_that_begins_between_finding_and_acting_keeps_everybody() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    let ann = world.join(edge, "ann", 1);
    world.join(edge, "bob", 1);
    world.edges[edge].leases.remove(&ann.lease);
    world.run(secs(2));
    world.tamper(Tampering::LoseLease(ann.lease));
    world.lose_record("bob");
    world.run(secs(10));
    let now = world.store_now();
    world.store.suffer(Upheaval::Restart, now);
    world.run(secs(44));
    assert_eq!(world.mended(), [], "nothing is ended or removed in a hold");
    assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob"]);
    world.run(secs(100));
    let mut mended = world.mended();
    mended.sort_unstable();
    assert_eq!(mended, [(Finding::Stray, 1), (Finding::Remnant, 1)]);
}

#[test]
fn a_core_that_lost_the_turn_forgets_what_it_found() {
    let mut world = World::with_cores(2);
    let (ttl, shard) = (secs(45), presence_model::lease::Shard(1));
    world.run(secs(5));
    world.tamper(Tampering::Stray(LeaseId::mint(ttl, shard, 7), world.store_now() + secs(600)));
    world.run(secs(5));
    world.sleep(0, true);
    world.run(secs(14));
    assert_eq!(world.mended(), [], "the other one counts from its own finding");
    world.run(secs(6));
    assert_eq!(world.mended(), [(Finding::Stray, 1)]);
}

#[test]
fn the_age_of_what_is_overdue_is_told() {
    let mut world = World::new();
    let edge = world.edge(0);
    world.join(edge, "ann", 1);
    world.run(secs(10));
    assert_eq!(world.oldest_overdue(), Duration::ZERO);
    world.edges[edge].running = false;
    // Commits that are lost end nobody: the ghost is told.
    world.faults.lose_commits = usize::MAX;
    world.run(secs(45));
    let age = world.oldest_overdue();
    assert!(age > secs(5) && age < secs(15), "{age:?}");
    world.faults.lose_commits = 0;
    world.run(secs(5));
    assert_eq!(world.oldest_overdue(), Duration::ZERO);
}

#[test]
fn a_torn_roster_is_made_whole_in_a_new_epoch_and_nobody_is_seen_to_leave() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    world.join(edge, "ann", 1);
    world.run(secs(20));
    world.tamper(Tampering::LoseNames(roster("r")));
    world.run(secs(14));
    assert_eq!((world.found(), world.mended()), (vec![(Finding::Torn, 1)], vec![]), "it waits");
    world.run(secs(10));
    assert_eq!((world.found(), world.mended()), (vec![(Finding::Torn, 1)], vec![(Finding::Torn, 1)]));
    world.run(secs(60));
    assert_eq!(world.watchers[&watch].saw, ["+ann"]);
}

#[test]
fn a_commit_into_a_roster_that_lost_its_records_ends_nobody() {
    for hand in [Tampering::LoseRoster(roster("r")), Tampering::LoseFirst(roster("r"))] {
        let mut world = World::new();
        let edge = world.edge(0);
        let watch = world.watch(0, 1);
        let first = world.join(edge, "ann", 1);
        world.run(secs(20));
        world.tamper(hand.clone());
        world.join(edge, "bob", 1);
        world.run(secs(16));
        let is_lost = world.edges[edge].unknown.contains(&first.lease);
        assert_eq!(is_lost, hand == Tampering::LoseRoster(roster("r")), "{hand:?}");
        if is_lost {
            world.rejoin(edge, "ann", &first).unwrap();
        }
        world.run(secs(120));
        assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob"], "{hand:?}");
    }
}

#[test]
fn a_digest_that_is_nobodys_is_found_by_whoever_loads_it() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    world.join(edge, "ann", 1);
    world.run(secs(20));
    world.tamper(Tampering::GarbleDigest(roster("r")));
    let other = world.watch(1, 2);
    world.run(secs(3));
    assert_eq!(world.mended(), [(Finding::Torn, 1)], "asked for once");
    world.run(secs(60));
    assert_eq!(
        (&*world.watchers[&watch].saw, &*world.watchers[&other].saw),
        (&["+ann".to_owned()][..], &["+ann".to_owned()][..])
    );
}
