//! One tab of somebody: keeps its session over connections and its list by the frames it is sent, and comes
//! back by itself, as the page on the protocol wants it.

use std::time::Duration;

use presence_model::id::RegionId;
use presence_model::time::Mono;
use presence_model::timing::Timings;
use presence_runtime::clock::Clock;
use presence_runtime::network::Network;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::mpsc::UnboundedReceiver;

use super::Recorder;
use super::visit::End;
use crate::history::List;

/// Ceiling of the waits between two attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(8);
const STATUSES: [&str; 3] = ["available", "away", "busy"];

/// What a tab is told at its start.
pub struct TabSettings {
    /// Name for the record.
    pub name: String,
    /// Whose it is.
    pub user: String,
    /// Where.
    pub room: String,
    /// The region of the room's roster.
    pub region: RegionId,
    /// Whether it only looks.
    pub only_looks: bool,
    /// Names and addresses (`host:port`) of the edges.
    pub edges: Vec<(String, String)>,
    /// What it shows at the door.
    pub token: String,
    /// Its way out.
    pub network: Network,
    /// What paces it.
    pub clock: Clock,
    /// Where it tells what it meets.
    pub recorder: Recorder,
    /// Timers of the edges.
    pub timings: Timings,
    /// Seeds its waits, and which edge it takes.
    pub seed: u64,
}

/// What a tab is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Drops its connection and comes back.
    HangUp,
    /// Closes its connection as a page that is reloaded does, and comes back.
    Close,
    /// Says goodbye, and comes back after this long.
    Leave(Duration),
    /// Drops its connection without a word, and comes back after this long.
    Vanish(Duration),
    /// Says something new about itself.
    Update,
}

/// A tab while it lives.
pub(super) struct Tab {
    pub(super) settings: TabSettings,
    pub(super) list: List,
    pub(super) generation: u64,
    pub(super) away_until: Mono,
    minted: u64,
    updates: u64,
    failures: u32,
    chance: SmallRng,
}

/// Lives until nobody gives orders any more.
pub async fn live(settings: TabSettings, mut orders: UnboundedReceiver<Order>) {
    let mut tab = Tab {
        list: List::default(),
        generation: 0,
        away_until: Mono::default(),
        minted: 0,
        updates: settings.seed % 3,
        failures: 0,
        chance: SmallRng::seed_from_u64(settings.seed),
        settings,
    };
    let mut at_least = Duration::ZERO;
    loop {
        let wait = tab.wait().max(at_least);
        if tab.idle(wait, &mut orders).await.is_none() {
            return;
        }
        let edge = tab.chance.random_range(0..tab.settings.edges.len());
        let (edge, address) = tab.settings.edges[edge].clone();
        let end = tab.visit(&edge, &address, &mut orders).await;
        tab.settings.recorder.line(&tab.settings.name, format_args!("off {edge}: {end:?}"));
        at_least = Duration::ZERO;
        match end {
            End::Over => return,
            End::Unlucky => tab.failures += 1,
            End::Lost => tab.failures = 0,
            End::Later(wait) => at_least = wait,
            End::Mint => tab.mint(),
        }
    }
}

impl Tab {
    pub(super) fn session(&self) -> String {
        format!("{}-session-{:08}", self.settings.name, self.minted)
    }

    /// Somebody else has this session id, or it has ended: takes another.
    fn mint(&mut self) {
        self.minted += 1;
        self.generation = 0;
    }

    pub(super) fn update(&mut self) {
        self.updates += 1;
    }

    pub(super) fn status(&self) -> &'static str {
        STATUSES[usize::try_from(self.updates % 3).unwrap_or(0)]
    }

    pub(super) fn state(&self) -> serde_json::Value {
        serde_json::json!({ "n": self.updates })
    }

    fn wait(&mut self) -> Duration {
        let first = self.settings.timings.reconnect_within;
        let most = (first * 2_u32.pow(self.failures.min(4))).min(BACKOFF_MAX);
        most.mul_f64(self.chance.random_range(0.0..1.0))
    }

    /// Waits for its next attempt; none: nobody gives orders any more.
    async fn idle(&mut self, wait: Duration, orders: &mut UnboundedReceiver<Order>) -> Option<()> {
        let clock = self.settings.clock.clone();
        let until = (clock.now() + wait).max(self.away_until);
        loop {
            tokio::select! {
                biased;
                order = orders.recv() => match order? {
                    Order::HangUp | Order::Close | Order::Leave(_) | Order::Vanish(_) => {}
                    Order::Update => self.update(),
                },
                () = clock.sleep_until(until) => return Some(()),
            }
        }
    }
}
