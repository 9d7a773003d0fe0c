//! What is true of the tabs, by their own word.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Step;

/// Where a tab is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stand {
    /// It never joined, or has said goodbye since then.
    Away { since: Duration },
    /// It was told that it has joined, and its transport stands.
    Stands { edge: String, since: Duration },
    /// It had joined, and its transport is gone.
    Lost { edge: String, at: Duration, stood_since: Duration },
}

#[derive(Debug)]
struct Tab {
    user: String,
    stand: Stand,
    /// It asked to join over a connection to that edge, and was not told yet.
    tries: Option<String>,
    /// It tried or stood last.
    alive: Duration,
    said_goodbye: bool,
}

/// All tabs.
#[derive(Debug, Default)]
pub(super) struct Tabs(BTreeMap<String, Tab>);

impl Tabs {
    pub(super) fn step(&mut self, tab: &str, user: &str, step: &Step, at: Duration) {
        let tab = self.0.entry(tab.to_owned()).or_insert_with(|| Tab {
            user: user.to_owned(),
            stand: Stand::Away { since: Duration::ZERO },
            tries: None,
            alive: Duration::ZERO,
            said_goodbye: false,
        });
        tab.alive = at;
        match step {
            Step::Tries { edge } => tab.tries = Some(edge.clone()),
            Step::Joined => {
                if let Some(edge) = tab.tries.take() {
                    tab.stand = Stand::Stands { edge, since: at };
                }
            }
            Step::Left => {
                tab.tries = None;
                tab.said_goodbye = true;
                tab.stand = Stand::Away { since: at };
            }
            Step::Lost => {
                tab.tries = None;
                if let Stand::Stands { edge, since } = &tab.stand {
                    tab.stand = Stand::Lost { edge: edge.clone(), at, stood_since: *since };
                }
            }
        }
    }

    /// Where the tabs of a user are, by tab.
    pub(super) fn of<'a>(&'a self, user: &'a str) -> impl Iterator<Item = (&'a str, &'a Stand)> {
        let own = self.0.iter().filter(move |(_, tab)| tab.user == user);
        own.map(|(name, tab)| (name.as_str(), &tab.stand))
    }

    /// Whether a tab of that user ever said goodbye.
    pub(super) fn said_goodbye(&self, user: &str) -> bool {
        self.0.values().any(|tab| tab.user == user && tab.said_goodbye)
    }

    /// Since when nobody stands or tries for a user; none: somebody does.
    pub(super) fn deserted_since(&self, user: &str) -> Option<Duration> {
        let mut last = Duration::ZERO;
        for tab in self.0.values().filter(|tab| tab.user == user) {
            if tab.tries.is_some() {
                return None;
            }
            last = last.max(match &tab.stand {
                Stand::Stands { .. } => return None,
                Stand::Lost { .. } | Stand::Away { .. } => tab.alive,
            });
        }
        Some(last)
    }

    /// Users for whom somebody stands.
    pub(super) fn present(&self) -> Vec<String> {
        let stands = self.0.values().filter(|tab| matches!(tab.stand, Stand::Stands { .. }));
        let mut users: Vec<String> = stands.map(|tab| tab.user.clone()).collect();
        users.sort_unstable();
        users.dedup();
        users
    }
}
