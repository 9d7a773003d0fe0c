//! How large a world is and how its clocks run.

use std::time::Duration;

use presence_model::timing::{Timings, TimingsGiven};
use rand::RngExt as _;

use super::chance::{Purpose, chance};

/// The size of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Heartbeat, ttl and grace, in seconds.
    pub clocks_s: (u64, u64, u64),
    /// Regions that watch each other.
    pub regions: usize,
    /// How often other regions are merged; none: as follows from the heartbeat.
    pub merge: Option<Duration>,
    /// Cores of each region, over one store.
    pub cores: usize,
    /// Edges of each.
    pub edges: usize,
    /// Tabs.
    pub tabs: usize,
    /// Of those, how many only watch.
    pub onlookers: usize,
    /// Users who share the tabs.
    pub users: usize,
    /// Rooms.
    pub rooms: usize,
    /// Services that watch a core.
    pub desks: usize,
    /// Shards of the store.
    pub shards: u16,
    /// Delay of one message between processes, at most, outside of spikes.
    pub delay_max: Duration,
    /// How long tokens last; none: for ever.
    pub token_life: Option<Duration>,
    /// How long the store keeps positions of empty rosters.
    pub rosters_kept: Duration,
}

impl Shape {
    /// The shape of a seed: 30 tabs of 14 users in four rooms, three edges, two or three cores.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut chance = chance(seed, Purpose::Shape, 0);
        let clocks = [(3, 12, 5), (3, 12, 5), (3, 12, 5), (1, 4, 2), (5, 20, 6)];
        let delays = [10, 40, 40, 120];
        let lives = [None, None, Some(50), Some(120)];
        let of = |chance: &mut super::chance::Chance, many: usize| chance.random_range(0..many);
        Self {
            clocks_s: clocks[of(&mut chance, clocks.len())],
            regions: 1,
            merge: None,
            cores: 2 + of(&mut chance, 2),
            edges: 3,
            tabs: 30,
            onlookers: 4,
            users: 14,
            rooms: 4,
            desks: 2,
            shards: 2,
            delay_max: Duration::from_millis(delays[of(&mut chance, delays.len())]),
            token_life: lives[of(&mut chance, lives.len())].map(Duration::from_secs),
            rosters_kept: Duration::from_secs(if chance.random_bool(0.5) { 20 } else { 3_600 }),
        }
    }

    /// Three regions of two cores, an edge and a store each, and nine people in two rooms.
    #[must_use]
    pub fn of_regions(seed: u64) -> Self {
        let mut chance = chance(seed, Purpose::Shape, 1);
        let merge = Duration::from_secs([6, 10, 20][chance.random_range(0..3)]);
        let small = Self::small(2, 9);
        Self { regions: 3, merge: Some(merge), edges: 1, tabs: 9, onlookers: 0, desks: 2, rooms: 2, ..small }
    }

    /// A world for stories of a few people: two edges, one room, tabs of a user each, two onlookers.
    #[must_use]
    pub fn small(cores: usize, people: usize) -> Self {
        Self {
            clocks_s: (3, 12, 5),
            regions: 1,
            merge: None,
            cores,
            edges: 2,
            tabs: people + 2,
            onlookers: 2,
            users: people,
            rooms: 1,
            desks: 1,
            shards: 1,
            delay_max: Duration::from_millis(20),
            token_life: None,
            rosters_kept: Duration::from_secs(3_600),
        }
    }

    /// The timers.
    ///
    /// # Panics
    /// If the clocks of the shape break a rule.
    #[must_use]
    pub fn timings(&self) -> Timings {
        let (heartbeat, ttl, grace) = self.clocks_s;
        let given = TimingsGiven {
            heartbeat: Some(Duration::from_secs(heartbeat)),
            lease_ttl: Some(Duration::from_secs(ttl)),
            grace: Some(Duration::from_secs(grace)),
            merge_interval: self.merge,
            ..TimingsGiven::default()
        };
        Timings::derive(given).expect("clocks of a shape hold the rules")
    }

    /// Rooms of a tab: one, and for every fourth a second.
    pub(super) fn rooms_of(&self, tab: usize) -> Vec<usize> {
        let first = if tab >= self.tabs - self.onlookers { tab } else { tab % self.users };
        let mut rooms = vec![first % self.rooms];
        if tab % 4 == 1 && self.rooms > 1 {
            rooms.push((first + 1) % self.rooms);
        }
        rooms
    }

    pub(super) fn user_of(&self, tab: usize) -> usize {
        tab % self.users
    }

    pub(super) fn is_onlooker(&self, tab: usize) -> bool {
        tab >= self.tabs - self.onlookers
    }
}
