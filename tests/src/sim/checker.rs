//! Looks at every step with the guarantees in hand, by name.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use presence_model::change::TransitionKind;
use presence_model::time::Mono;
use presence_model::timing::Timings;

use super::client::{Client, Seen, Wish};

/// A guarantee that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// `G1` … `G9`.
    pub guarantee: &'static str,
    /// When, in simulated time.
    pub at: Mono,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} broken at {} ms: {}", self.guarantee, self.at.0.as_millis(), self.what)
    }
}

/// What is true of one tab's transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    /// Joined over a connection that stands, to an edge that runs.
    Stands {
        /// Without a gap that was longer than the grace.
        since: Mono,
    },
    /// Lost without a goodbye.
    Lost {
        /// As when it stood.
        since: Mono,
        /// When.
        at: Mono,
    },
    /// Said goodbye, or never joined.
    None,
}

/// What the store says of a user, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Truth {
    present: bool,
    since: Mono,
}

/// What is known to be true.
pub(super) struct Checker {
    timings: Timings,
    pub(super) transports: Vec<Transport>,
    truth: BTreeMap<String, Truth>,
    silent_for: BTreeMap<String, Duration>,
    /// Views are not held to the propagation bound before then: a core was down, or all was slow.
    excused_until: Mono,
}

/// Inside a region, at half load; and a delta's way through two cadences and a slow network.
const PROPAGATION: Duration = Duration::from_millis(2_000);

impl Checker {
    pub(super) fn new(timings: Timings, clients: usize) -> Self {
        Self {
            timings,
            transports: vec![Transport::None; clients],
            truth: BTreeMap::new(),
            silent_for: BTreeMap::new(),
            excused_until: Mono::default(),
        }
    }

    pub(super) fn excuse(&mut self, until: Mono) {
        self.excused_until = self.excused_until.max(until);
    }

    pub(super) fn lost(&mut self, client: usize, now: Mono) {
        if let Transport::Stands { since } = self.transports[client] {
            self.transports[client] = Transport::Lost { since, at: now };
        }
    }

    /// A tab was told that it has joined.
    pub(super) fn stands(&mut self, client: usize, now: Mono) {
        let since = match self.transports[client] {
            Transport::Stands { since } => since,
            Transport::Lost { since, at } if now < at + self.timings.grace => since,
            Transport::Lost { .. } | Transport::None => now,
        };
        self.transports[client] = Transport::Stands { since };
    }

    /// Nobody who is there, or who may still come back within grace, is announced as gone (G2, G7, G8).
    pub(super) fn on_seen(
        &self,
        clients: &[Client],
        observer: &str,
        seen: &Seen,
        now: Mono,
    ) -> Result<(), Violation> {
        let Seen::Leave(user, reason) = seen else { return Ok(()) };
        // A goodbye is true however late it is told, and an edge that hears no core tells what it knows.
        if reason == "left" && now < self.excused_until {
            return Ok(());
        }
        for (index, client) in clients.iter().enumerate().filter(|(_, client)| client.user.as_str() == user) {
            let (guarantee, why) = match self.transports[index] {
                // Who has just come back may still be told of the departure before.
                Transport::Stands { since } | Transport::Lost { since, .. } if now <= since + PROPAGATION => {
                    continue;
                }
                Transport::Stands { .. } => ("G2", "is connected and joined"),
                Transport::Lost { at, .. } if now < at + self.timings.grace && !self.ran_out(user) => {
                    ("G8", "is within grace")
                }
                Transport::Lost { .. } | Transport::None => continue,
            };
            let what =
                format!("{observer} was told that {user} is gone ({reason}), but tab {} {why}", client.name);
            return Err(Violation { guarantee, at: now, what });
        }
        Ok(())
    }

    /// A commit touched this user: between two looks it may have been gone and come back.
    pub(super) fn on_transition(&mut self, user: &str, kind: &TransitionKind, now: Mono) {
        if let Some(truth) = self.truth.get_mut(user) {
            truth.since = now;
        }
        if let TransitionKind::Ended(ending) = kind {
            self.silent_for.insert(user.to_owned(), ending.silent_for);
        }
    }

    /// Whether the last session of the user that ended had been silent for a whole ttl: grace is a short
    /// lease, it never lengthens one that nobody could renew.
    fn ran_out(&self, user: &str) -> bool {
        self.silent_for.get(user).is_some_and(|silent| *silent >= self.timings.lease_ttl)
    }

    /// What the store says now.
    pub(super) fn note_truth(&mut self, user: &str, present: bool, now: Mono) {
        let truth = self.truth.entry(user.to_owned()).or_insert(Truth { present, since: now });
        if truth.present != present {
            *truth = Truth { present, since: now };
        }
    }

    /// A view that says it is live shows who is there (G5) and nobody else (G1, G3).
    pub(super) fn on_view(&self, client: &Client, now: Mono) -> Result<(), Violation> {
        if !client.live || client.revision.is_none() || now < self.excused_until {
            return Ok(());
        }
        for (user, truth) in &self.truth {
            let shown = client.list.contains_key(user);
            let for_long = now.since(truth.since) > PROPAGATION;
            if shown == truth.present || !for_long {
                continue;
            }
            let guarantee = if shown { "G3" } else { "G5" };
            let (is, looks) = if shown { ("gone", "shown") } else { ("present", "missing") };
            let what = format!(
                "{user} is {looks} at {} though {is} for {} ms",
                client.name,
                now.since(truth.since).as_millis()
            );
            return Err(Violation { guarantee, at: now, what });
        }
        Ok(())
    }

    /// When nothing changes any more, everybody sees the same, and what is there (G9).
    pub(super) fn at_rest(&self, clients: &[Client], now: Mono) -> Result<(), Violation> {
        let there: Vec<&str> = {
            let present = clients.iter().filter(|client| client.wish == Wish::Present);
            let mut users: Vec<&str> = present.map(|client| client.user.as_str()).collect();
            users.sort_unstable();
            users.dedup();
            users
        };
        for client in clients.iter().filter(|client| client.wish != Wish::Away) {
            let shown: Vec<&str> = client.list.keys().map(String::as_str).collect();
            if shown != there || !client.live {
                let what = format!(
                    "{} shows {shown:?} (live: {}), but there are {there:?}",
                    client.name, client.live
                );
                return Err(Violation { guarantee: "G9", at: now, what });
            }
        }
        Ok(())
    }
}
