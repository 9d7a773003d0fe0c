//! Why somebody is shown, or not, as a few sentences for a person (G12).

use std::fmt::{self, Write as _};
use std::time::Duration;

use presence_model::id::{RoomId, UserId, escape_into};
use presence_model::member::{self, Shortened};
use presence_model::reason::RemovalReason;
use presence_model::record::{LeaseState, SessionRecord, Tombstone};
use presence_model::replica::Freshness;
use presence_model::time::StoreTime;

use crate::driver::Explained;

/// Tells what is known of a user in a room.
#[must_use]
pub fn tell(room: &RoomId, user: &UserId, explained: &Explained) -> String {
    let mut story = String::new();
    let ended = ended_latest_first(explained);
    match &explained.read.record {
        Some(record) => {
            let sessions = record.sessions.len();
            let shown = ago(explained.now.since(record.since));
            let _ = write!(
                story,
                "{user} is shown in {room} for {shown}, by {sessions} {}.",
                plural(sessions, "session")
            );
            for session in &record.sessions {
                let _ = write!(story, " {}", session_story(session, explained));
            }
        }
        None if ended.is_empty() => {
            let _ =
                write!(story, "{user} is not in {room}, and no session ended there within the last hour.");
        }
        None => {
            let _ = write!(story, "{user} is not in {room}.");
        }
    }
    for (session, tombstone) in ended {
        let _ = write!(story, " {}", ending_story(session.as_str(), tombstone, explained.now));
    }
    if let Some((class, timings)) = &explained.class {
        let _ = write!(
            story,
            " Rooms of class {class} have a heartbeat of {}, leases of {} and a grace of {}.",
            ago(timings.heartbeat),
            ago(timings.lease_ttl),
            ago(timings.grace)
        );
    }
    match explained.freshness {
        Freshness::Live => {}
        Freshness::Held { since } => {
            let _ = write!(
                story,
                " The store has been held for {}; a hold lasts one lease, and nobody is ended for silence meanwhile.",
                ago(explained.now.since(since))
            );
        }
        Freshness::Stale { since } => {
            let _ = write!(
                story,
                " The region has not been heard for {}: this is the last that was known.",
                ago(explained.now.since(since))
            );
        }
    }
    story
}

/// What ended, the latest first.
#[must_use]
pub fn ended_latest_first(explained: &Explained) -> Vec<(&presence_model::id::SessionId, &Tombstone)> {
    let mut ended: Vec<_> = explained.read.tombstones.iter().collect();
    ended.sort_by(|a, b| b.1.ended.cmp(&a.1.ended).then(a.0.cmp(b.0)));
    ended
}

/// State and note of a session's lease, if it exists.
#[must_use]
pub fn lease_of(session: &SessionRecord, explained: &Explained) -> Option<(LeaseState, Option<Shortened>)> {
    let found = explained.leases.iter().find(|(lease, ..)| lease.plain_name() == session.lease)?;
    Some((found.1, found.2))
}

/// Age of the last accepted heartbeat of a session.
#[must_use]
pub fn heartbeat_age(session: &SessionRecord, explained: &Explained) -> Option<Duration> {
    let (state, shortened) = lease_of(session, explained)?;
    Some(explained.now.since(member::last_heard(session.lease, state.deadline(), shortened)))
}

fn session_story(session: &SessionRecord, explained: &Explained) -> String {
    let who = format!(
        "Session {} (generation {}{}) is on edge {} in {}",
        session.session,
        session.generation,
        Client(&session.client),
        session.edge.name,
        session.edge.region
    );
    let heard = heartbeat_age(session, explained).map(ago).unwrap_or_else(|| "an unknown time".to_owned());
    match lease_of(session, explained) {
        Some((LeaseState::Live { deadline }, _)) => {
            format!("{who}: last heard {heard} ago, its lease runs {}.", ahead(deadline, explained.now))
        }
        Some((LeaseState::Grace { deadline }, _)) => format!(
            "{who}: its transport was lost, last heard {heard} ago; it is in grace {}.",
            grace_ahead(deadline, session.lease.ttl(), explained)
        ),
        None => format!("{who}, but has no lease: it is removed unless its edge brings it back."),
    }
}

/// The release name a client gave itself, if it did; harmless wherever it is read.
struct Client<'a>(&'a str);

impl fmt::Display for Client<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        f.write_str(", client ")?;
        escape_into(self.0, f)
    }
}

fn ahead(deadline: StoreTime, now: StoreTime) -> String {
    if deadline > now {
        format!("for another {}", ago(deadline.since(now)))
    } else {
        format!("no more: overdue by {}", ago(now.since(deadline)))
    }
}

/// A hold ends nobody for silence, whatever the deadline says, until it has lasted for the ttl of the lease.
fn grace_ahead(deadline: StoreTime, ttl: Duration, explained: &Explained) -> String {
    let hold_ends = match explained.freshness {
        Freshness::Held { since } => Some(since + ttl),
        Freshness::Live | Freshness::Stale { .. } => None,
    };
    match hold_ends.filter(|end| *end > deadline.max(explained.now)) {
        Some(end) => format!("{}, as long as the store is held", ahead(end, explained.now)),
        None => ahead(deadline, explained.now),
    }
}

fn ending_story(session: &str, tombstone: &Tombstone, now: StoreTime) -> String {
    let silent = ago(Duration::from_millis(tombstone.silent_for_ms));
    let why = match tombstone.reason {
        RemovalReason::Left => "it said goodbye".to_owned(),
        RemovalReason::ConnectionLost => {
            format!("its connection was lost and nobody came back within grace, silent for {silent}")
        }
        RemovalReason::LeaseExpired => {
            format!("nothing was heard for a whole lease, silent for {silent}: its edge could not speak")
        }
        RemovalReason::EdgeLost => {
            format!("its edge died and it did not come back elsewhere, silent for {silent}")
        }
        RemovalReason::Superseded => "a newer attempt of the same session took over".to_owned(),
        RemovalReason::Evicted => "an operator put it out".to_owned(),
        RemovalReason::TokenExpired => "its token ended".to_owned(),
        RemovalReason::TokenRevoked => "its token was revoked".to_owned(),
        RemovalReason::RegionLost => "its region could not be heard for too long".to_owned(),
    };
    format!(
        "Session {session} (generation {}) ended {} ago as {}: {why}.",
        tombstone.generation,
        ago(now.since(tombstone.ended)),
        tombstone.reason
    )
}

fn ago(span: Duration) -> String {
    let ms = span.as_millis();
    match ms {
        0..10_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        10_000..120_000 => format!("{} s", ms / 1000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h", ms / 3_600_000),
    }
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { noun.to_owned() } else { format!("{noun}s") }
}
