//! What happened, as those who were there tell it, and whether the guarantees held.
//!
//! One format for the simulated whole stack and for real processes: what tabs did, what the store committed,
//! what observers were shown, and which part was in trouble when. [`check`] reads it in order and names the
//! guarantee that was broken.

mod checker;
mod chronicle;
mod list;
mod night;
mod tabs;
mod troubles;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use presence_model::position::{Position, Revision};
use presence_model::reason::RemovalReason;
use presence_model::timing::Timings;

pub use checker::{Looked, check};
pub use list::{Departure, Gap, List};
pub use night::{Night, tail};

/// Members by user, as they are shown.
pub type Members = BTreeMap<String, Shown>;

/// A member as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The word of the protocol.
    pub status: String,
    /// JSON, written the way the test library writes it.
    pub state: String,
    /// Milliseconds of the store's clock.
    pub since: u64,
}

/// All that was recorded of one run.
#[derive(Debug, Clone)]
pub struct History {
    /// The timers in force.
    pub timings: Timings,
    /// What is allowed beyond them.
    pub slack: Slack,
    /// Names of the cores there are.
    pub cores: Vec<String>,
    /// In the order of time.
    pub events: Vec<Event>,
}

impl History {
    /// Tabs that say goodbye from then on within a span, and their users.
    fn goodbyes(&self, from: Duration, within: Duration) -> impl Iterator<Item = (&str, &str)> {
        let first = self.events.partition_point(|event| event.at < from);
        let soon = self.events[first..].iter().take_while(move |event| event.at <= from + within);
        soon.filter_map(|event| match &event.what {
            What::Tab { tab, user, step: Step::Left } => Some((tab.as_str(), user.as_str())),
            What::Tab { .. }
            | What::Roster { .. }
            | What::Commit { .. }
            | What::StoreReturned
            | What::Observer { .. }
            | What::Trouble { .. }
            | What::Rest { .. } => None,
        })
    }
}

/// What is allowed beyond the timers.
#[derive(Debug, Clone, Copy)]
pub struct Slack {
    /// From a commit to everybody who looks, and from a deadline to its commit.
    pub propagation: Duration,
    /// Clocks of the recorders agree to this.
    pub clocks: Duration,
    /// From the end of a trouble until everything is linked and watched again.
    pub recovery: Duration,
}

/// Something happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Since the beginning.
    pub at: Duration,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// To a tab.
    Tab {
        /// Which.
        tab: String,
        /// Of whom.
        user: String,
        /// What it did or met.
        step: Step,
    },
    /// The store holds this: the first that is known of an epoch.
    Roster {
        /// Where it is.
        position: Position,
        /// Everybody in it.
        members: Arc<Members>,
    },
    /// The store carried a commit out.
    Commit {
        /// After it.
        position: Position,
        /// What it starts from.
        from: Revision,
        /// Members as they are now.
        upserts: Vec<(String, Shown)>,
        /// Members that are gone.
        removals: Vec<Gone>,
    },
    /// The store is another one, or its clock has stepped, or it was away for so long that nobody swept:
    /// silence proves nothing for one ttl from here.
    StoreReturned,
    /// Somebody who looks at the room.
    Observer {
        /// Who.
        observer: String,
        /// What he met.
        sight: Sight,
    },
    /// A part is in trouble from here on, or no more.
    Trouble {
        /// Which part.
        place: Place,
        /// Whether it begins.
        begins: bool,
    },
    /// Nothing changes any more, and all is as it should be.
    Rest {
        /// Users who are to be there.
        present: Vec<String>,
    },
}

/// A step of a tab's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It asked to join, over a connection to that edge.
    Tries {
        /// Which edge.
        edge: String,
    },
    /// It was told that it has joined.
    Joined,
    /// It said goodbye.
    Left,
    /// Its transport is over, or nothing passes on it any more.
    Lost,
}

/// A member that a commit removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// Who.
    pub user: String,
    /// Why.
    pub reason: RemovalReason,
    /// How long silent, as told.
    pub silent_for: Duration,
    /// When its last renewal was accepted, if the recorder saw it.
    pub renewed_at: Option<Duration>,
}

/// What an observer met.
#[derive(Debug, Clone, PartialEq)]
pub enum Sight {
    /// It is connected there.
    Opened {
        /// Name of an edge, or of a core.
        at: String,
    },
    /// It is not connected.
    Closed,
    /// Its list changed, or how fresh it is.
    Shows(Look),
    /// It was sent what does not follow.
    Gap(Gap),
}

/// What an observer sees.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// Where the list equals the roster; none: it does not claim to.
    pub position: Option<Position>,
    /// Whether it is said to be as fresh as can be.
    pub live: bool,
    /// The list.
    pub members: Arc<Members>,
    /// Who was in the list before and is not now.
    pub gone: Vec<Departure>,
}

/// A part that may be in trouble.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The store, or every way to it.
    Store,
    /// A core, or its way to the store.
    Core(String),
    /// An edge, or whoever watches at cores.
    Edge(String),
    /// The way between an edge and a core.
    Link(String, String),
    /// The way between a tab and whatever edge it is at.
    Path(String),
    /// Whatever all of it runs on.
    Machine,
}

/// A guarantee that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// `G1` … `G9`.
    pub guarantee: &'static str,
    /// When.
    pub at: Duration,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} broken at {} ms: {}", self.guarantee, self.at.as_millis(), self.what)
    }
}

#[cfg(test)]
mod tests;
