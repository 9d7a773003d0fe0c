//! Several cores over one store: none of them matters, and all show the same.

use std::collections::BTreeMap;

use presence_model::lease::LeaseId;
use presence_model::replica::Freshness;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::world::{World, ms, secs};
use crate::driver::{Input, LinkEnd, WatchKey};
use crate::store::memory::Upheaval;

#[test]
fn an_old_link_that_breaks_at_the_core_that_was_left_ends_nobody() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    let watches = [world.watch(0, 1), world.watch(1, 2)];
    world.join(edge, "ann", 1);
    world.run(secs(2));
    let left = world.edges[edge].key();
    world.link(edge, 1);
    world.input(0, Input::LinkClosed(left, LinkEnd::Broken));
    world.run(secs(60));
    for watch in watches {
        assert_eq!(world.watchers[&watch].saw, ["+ann"]);
    }
}

#[test]
fn that_a_link_broke_may_be_written_late_and_counts_for_that_link_only() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    let watches = [world.watch(0, 1), world.watch(1, 2)];
    world.join(edge, "ann", 1);
    world.run(secs(2));
    world.faults.hold_back = Some(0);
    world.cut(edge, LinkEnd::Broken);
    world.run(ms(500));
    world.link(edge, 1);
    world.let_go();
    world.run(secs(60));
    for watch in watches {
        assert_eq!(world.watchers[&watch].saw, ["+ann"]);
    }
}

#[test]
fn an_edge_that_is_found_lost_and_links_elsewhere_in_the_same_moment_loses_nobody() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    let watches = [world.watch(0, 1), world.watch(1, 2)];
    world.join(edge, "ann", 1);
    world.run(secs(2));
    world.cut(edge, LinkEnd::Broken);
    world.run(ms(4_950));
    // What follows from its being lost is under way while it links to the other core.
    world.faults.hold_back = Some(0);
    world.run(ms(200));
    world.link(edge, 1);
    world.let_go();
    world.run(secs(60));
    for watch in watches {
        assert_eq!(world.watchers[&watch].saw, ["+ann"]);
    }
}

#[test]
fn an_edge_that_died_with_its_core_is_over_by_its_leases() {
    let mut world = World::with_cores(2);
    let (edge, other) = (world.edge(0), world.edge(1));
    let watch = world.watch(1, 1);
    world.join(edge, "ann", 1);
    world.join(other, "bob", 1);
    world.run(secs(1));
    world.edges[edge].running = false;
    world.sleep(0, true);
    world.run(secs(42));
    assert_eq!(world.watchers[&watch].shown(), ["ann", "bob"], "nobody has seen the link break");
    world.run(secs(5));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "+bob", "-ann lease_expired"]);
}

#[test]
fn a_core_that_loads_a_new_epoch_before_its_turn_told_it_does_not_call_it_live() {
    let mut world = World::with_cores(2);
    let edge = world.edge(0);
    let watches = [world.watch(0, 1), world.watch(1, 2)];
    world.join(edge, "ann", 1);
    world.run(secs(2));
    let now = world.store_now();
    world.store.suffer(Upheaval::RestartEmpty, now);
    world.run(secs(10));
    for watch in watches {
        assert_eq!(world.watchers[&watch].saw, ["+ann"], "nobody is gone while it is held");
        assert!(matches!(world.watchers[&watch].freshness.last(), Some(Freshness::Held { .. })));
    }
    world.run(secs(60));
    for watch in watches {
        assert_eq!(world.watchers[&watch].saw, ["+ann", "-ann unconfirmed"]);
        assert_eq!(world.watchers[&watch].freshness.last(), Some(&Freshness::Live));
    }
}

/// Cores, edges and watchers, and what must be true of them whatever happens.
struct Story {
    world: World,
    chance: StdRng,
    /// Those that run.
    cores: Vec<usize>,
    /// To which core each edge is linked.
    linked: Vec<usize>,
    /// Watchers, each with its core.
    watches: Vec<(WatchKey, usize)>,
    keys: u64,
    present: BTreeMap<String, (usize, LeaseId, u64)>,
    users: usize,
}

impl Story {
    fn new(seed: u64) -> Self {
        let mut world = World::with_cores(3);
        let linked = vec![0, 1, 2, 0];
        for core in &linked {
            world.edge(*core);
        }
        let watches = (0..3).map(|core| (world.watch(core, core as u64), core)).collect();
        let (chance, cores) = (StdRng::seed_from_u64(seed), vec![0, 1, 2]);
        Self { world, chance, cores, linked, watches, keys: 10, present: BTreeMap::new(), users: 0 }
    }

    fn step(&mut self) {
        match self.chance.random_range(0..12) {
            0..=3 => self.join(),
            4..=5 => self.leave(),
            6 => self.reconnect(),
            7..=8 => self.move_edge(),
            9 => self.kill(),
            10 => self.pause(),
            _ => self.pass(2_000),
        }
        self.pass(300);
    }

    fn pass(&mut self, most_ms: u64) {
        let span = ms(self.chance.random_range(0..most_ms));
        self.world.run(span);
    }

    fn any_edge(&mut self) -> usize {
        self.chance.random_range(0..self.linked.len())
    }

    fn new_user(&mut self) -> String {
        self.users += 1;
        format!("user-{:03}", self.users)
    }

    fn any_present(&mut self) -> Option<String> {
        let at = self.chance.random_range(0..self.present.len().max(1));
        self.present.keys().nth(at).cloned()
    }

    fn join(&mut self) {
        let (edge, user) = (self.any_edge(), self.new_user());
        let lease = self.world.join(edge, &user, 1).lease;
        self.present.insert(user, (edge, lease, 1));
    }

    fn leave(&mut self) {
        let Some(user) = self.any_present() else { return };
        let Some((edge, lease, _)) = self.present.remove(&user) else { return };
        self.world.leave(edge, &user, lease).unwrap();
    }

    /// The transport is lost, and the client is back on another edge within its grace.
    fn reconnect(&mut self) {
        let Some(user) = self.any_present() else { return };
        let (edge, lease, generation) = self.present[&user];
        self.world.release(edge, lease);
        self.pass(3_000);
        let edge = self.any_edge();
        let lease = self.world.join(edge, &user, generation + 1).lease;
        self.present.insert(user, (edge, lease, generation + 1));
    }

    /// An edge links to another core; the one it left hears of it in one way or the other, or late.
    fn move_edge(&mut self) {
        let (edge, to) = (self.any_edge(), self.chance.random_range(0..self.cores.len()));
        let (from, to) = (self.linked[edge], self.cores[to]);
        let left = self.world.edges[edge].key();
        let end = if self.chance.random_bool(0.5) { LinkEnd::Broken } else { LinkEnd::Silent };
        let is_late = self.chance.random_bool(0.5);
        if !is_late {
            self.world.cut(edge, end);
            self.pass(3_000);
        }
        self.world.link(edge, to);
        self.linked[edge] = to;
        if is_late && from != to {
            self.pass(1_000);
            self.world.input(from, Input::LinkClosed(left, end));
        }
    }

    /// A core dies while it decides about a join, and another is started; edges and watchers move.
    fn kill(&mut self) {
        let at = self.chance.random_range(0..self.cores.len());
        let core = self.cores.remove(at);
        let edges: Vec<usize> = (0..self.linked.len()).filter(|edge| self.linked[*edge] == core).collect();
        let user = self.new_user();
        let up = self.world.join_up(&user, 1);
        if let Some(edge) = edges.first() {
            self.world.send_join(*edge, &user, up.clone());
        }
        self.pass(5);
        self.world.sleep(core, true);
        let started = self.world.start_core();
        self.cores.push(started);
        for edge in &edges {
            self.pass(1_000);
            let to = self.cores[self.chance.random_range(0..self.cores.len())];
            self.world.link(*edge, to);
            self.linked[*edge] = to;
        }
        if let Some(edge) = edges.first() {
            let request = self.world.send_join(*edge, &user, up);
            let lease = self.world.joined(*edge, request).unwrap().lease;
            self.present.insert(user, (*edge, lease, 1));
        }
        for at in 0..self.watches.len() {
            if self.watches[at].1 == core {
                let had = self.world.unwatch(self.watches[at].0);
                check_saw(&had.saw, had.gaps);
                self.keys += 1;
                self.watches[at] = (self.world.resume(started, self.keys, had), started);
            }
        }
    }

    fn pause(&mut self) {
        let core = self.cores[self.chance.random_range(0..self.cores.len())];
        self.world.sleep(core, true);
        self.pass(2_500);
        self.world.sleep(core, false);
    }

    fn check(&mut self) {
        self.world.run(secs(20));
        let expected: Vec<String> = self.present.keys().cloned().collect();
        assert_eq!(self.world.stored("r"), expected);
        for (watch, core) in &self.watches {
            let watcher = &self.world.watchers[watch];
            assert_eq!(watcher.shown(), expected, "at core {core}");
            check_saw(&watcher.saw, watcher.gaps);
        }
        let unknown: usize = self.world.edges.iter().map(|edge| edge.unknown.len()).sum();
        assert_eq!(unknown, 0, "no lease of somebody who is there was ended");
    }
}

/// Whoever went has left, and nothing was missed on the way.
fn check_saw(saw: &[String], gaps: usize) {
    let gone = saw.iter().filter(|saw| saw.starts_with('-'));
    assert_eq!(gone.filter(|gone| !gone.ends_with(" left")).collect::<Vec<_>>(), [""; 0]);
    assert_eq!(gaps, 0);
}

#[test]
fn whatever_happens_to_cores_all_watchers_end_with_the_same_view_and_nobody_live_is_ended() {
    for seed in 0..40 {
        let told = std::panic::catch_unwind(|| {
            let mut story = Story::new(seed);
            for _ in 0..60 {
                story.step();
            }
            story.check();
        });
        assert!(told.is_ok(), "seed {seed}");
    }
}
