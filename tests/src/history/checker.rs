//! Reads a history with the guarantees in hand, by name.
//!
//! A removal is judged where it was committed, by what the tabs of that user did and what was in trouble. An
//! observer is judged by the roster of the position it claims, and by how long it shows what is not so.

mod observers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use presence_model::position::{Position, Revision};
use presence_model::reason::RemovalReason;

use self::observers::Observers;
use super::chronicle::{Chronicle, Wrong};
use super::tabs::{Stand, Tabs};
use super::troubles::Troubles;
use super::{Event, Gone, History, Members, Place, Shown, Sight, Slack, Violation, What};

/// How often each guarantee was looked at: a checker that never looks finds nothing.
pub type Looked = BTreeMap<&'static str, u64>;

/// Joins of users whom nobody has brought for this long are ghosts: longer than a request may be on its way.
const GHOST_AFTER: Duration = Duration::from_secs(60);
/// Between two looks for users who should have been removed.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Checks a history from its beginning to its end.
///
/// # Errors
/// The first guarantee that was broken.
pub fn check(history: &History) -> Result<Looked, Violation> {
    let mut checker = Checker {
        history,
        tabs: Tabs::default(),
        troubles: Troubles::default(),
        chronicle: Chronicle::default(),
        observers: Observers::default(),
        returned: None,
        looked: Looked::new(),
        looks_at: Duration::ZERO,
    };
    for event in &history.events {
        checker.pass(event.at)?;
        checker.take(event)?;
    }
    Ok(checker.looked)
}

struct Checker<'h> {
    history: &'h History,
    tabs: Tabs,
    troubles: Troubles,
    chronicle: Chronicle,
    observers: Observers,
    /// When the store came back, or became another.
    returned: Option<Duration>,
    looked: Looked,
    looks_at: Duration,
}

type Verdict = Result<(), Violation>;

fn broken<T>(guarantee: &'static str, at: Duration, what: String) -> Result<T, Violation> {
    Err(Violation { guarantee, at, what })
}

impl Checker<'_> {
    fn slack(&self) -> Slack {
        self.history.slack
    }

    fn look(&mut self, guarantee: &'static str) {
        *self.looked.entry(guarantee).or_default() += 1;
    }

    /// Looks at what time alone makes wrong.
    fn pass(&mut self, now: Duration) -> Verdict {
        while let Some(due) = self.observers.due(now) {
            self.judge_lag(due)?;
        }
        while self.looks_at <= now {
            let at = self.looks_at;
            self.judge_departed(at)?;
            self.looks_at += LOOK_EVERY;
        }
        Ok(())
    }

    fn take(&mut self, event: &Event) -> Verdict {
        let at = event.at;
        match &event.what {
            What::Tab { tab, user, step } => self.tabs.step(tab, user, step, at),
            What::Roster { position, members } => self.begin(*position, members, at)?,
            What::Commit { position, from, upserts, removals } => {
                self.commit((*position, *from), upserts, removals, at)?;
            }
            What::StoreReturned => self.returned = Some(at),
            What::Observer { observer, sight } => self.observe(observer, sight, at)?,
            What::Trouble { place, begins } => self.troubles.note(place, *begins, at),
            What::Rest { present } => self.rest(present, at)?,
        }
        Ok(())
    }

    fn begin(&mut self, position: Position, members: &Arc<Members>, at: Duration) -> Verdict {
        let latest = self.chronicle.latest();
        if position <= latest && latest != Position::default() {
            return broken("G4", at, format!("an epoch begins at {position}, after {latest}"));
        }
        self.chronicle.begin(position, members, at);
        Ok(())
    }

    fn commit(
        &mut self,
        (position, from): (Position, Revision),
        upserts: &[(String, Shown)],
        removals: &[Gone],
        at: Duration,
    ) -> Verdict {
        self.look("G4");
        self.look("G7");
        let came = self.chronicle.commit((position, from), upserts, removals, at);
        let came = came.or_else(|Wrong { guarantee, what }| broken(guarantee, at, what))?;
        for gone in removals {
            self.judge_removal(gone, at)?;
        }
        for user in came {
            self.look("G6");
            let deserted = self.tabs.deserted_since(&user);
            if deserted.is_some_and(|since| at.saturating_sub(since) > GHOST_AFTER) {
                return broken("G6", at, format!("{user} appears, but nobody has brought them for long"));
            }
        }
        if !upserts.is_empty() || !removals.is_empty() {
            self.observers.expect(at, at + self.slack().propagation);
        }
        Ok(())
    }

    /// Nobody who is there, or may come back within grace, is removed; and nobody before their time.
    fn judge_removal(&mut self, gone: &Gone, at: Duration) -> Verdict {
        let timings = &self.history.timings;
        let clocks = self.slack().clocks;
        let silence = match gone.reason {
            RemovalReason::Left => Duration::ZERO,
            RemovalReason::ConnectionLost => timings.grace,
            RemovalReason::LeaseExpired => timings.lease_ttl,
            RemovalReason::EdgeLost => timings.edge_lost + timings.grace,
            RemovalReason::Superseded
            | RemovalReason::Evicted
            | RemovalReason::TokenExpired
            | RemovalReason::TokenRevoked
            | RemovalReason::RegionLost => {
                return broken(
                    "G2",
                    at,
                    format!("{} is removed as {}, which nobody asked for", gone.user, gone.reason),
                );
            }
        };
        let by_silence = gone.reason != RemovalReason::Left;
        self.look("G2");
        // What the store says of silence is by its own clock, which may have stepped since the renewal.
        let silent_for = gone.renewed_at.map_or(gone.silent_for, |renewed| at.saturating_sub(renewed));
        if by_silence && silent_for + clocks < silence {
            let what = format!("{} is removed as {} after {silent_for:?} of silence", gone.user, gone.reason);
            return broken("G2", at, what);
        }
        if let Some(returned) = self.returned.filter(|_| by_silence)
            && at.saturating_sub(returned) + clocks < timings.lease_ttl
        {
            let what = format!(
                "{} is removed as {} though the store came back at {returned:?}",
                gone.user, gone.reason
            );
            return broken("G2", at, what);
        }
        let says = self.history.goodbyes(at, clocks).any(|(_, user)| user == gone.user);
        if !by_silence && !says && !self.tabs.said_goodbye(&gone.user) {
            return broken("G2", at, format!("{} is removed as left without a goodbye", gone.user));
        }
        self.judge_tabs(gone, at)
    }

    fn judge_tabs(&mut self, gone: &Gone, at: Duration) -> Verdict {
        let (grace, ttl) = (self.history.timings.grace, self.history.timings.lease_ttl);
        // Of sessions that it lost a store cannot know: the goodbye of the one that is back ends its user.
        let forgets = self.returned.is_some_and(|then| at.saturating_sub(then) < ttl + self.slack().recovery);
        if gone.reason == RemovalReason::Left && forgets {
            return Ok(());
        }
        let clocks = self.slack().clocks;
        let window = at.saturating_sub(ttl);
        for (tab, stand) in self.tabs.of(&gone.user) {
            // What a tab takes for a connection may be none at the other end.
            if !self.troubles.is_quiet(&Place::Path(tab.to_owned()), window) {
                continue;
            }
            // What it says may be dated after what comes of it, as far as clocks disagree.
            let says = gone.reason == RemovalReason::Left
                && self.history.goodbyes(at, clocks).any(|(other, _)| other == tab);
            if says {
                continue;
            }
            let is_steady = |edge: &str| self.troubles.is_steady(edge, &self.history.cores, window);
            let (guarantee, why) = match stand {
                Stand::Stands { edge, since } if *since + clocks < at => {
                    if gone.reason.is_silence_of_the_edge() && !is_steady(edge) {
                        continue;
                    }
                    ("G2", format!("is connected to {edge} since {since:?}"))
                }
                Stand::Lost { edge, at: lost, .. } if at + clocks < *lost + grace => {
                    if !is_steady(edge) {
                        continue;
                    }
                    ("G8", format!("lost its connection at {lost:?} only"))
                }
                Stand::Stands { .. } | Stand::Lost { .. } | Stand::Away { .. } => continue,
            };
            return broken(
                guarantee,
                at,
                format!("{} is removed as {}, but {tab} {why}", gone.user, gone.reason),
            );
        }
        self.look("G8");
        Ok(())
    }

    /// Whoever has nobody any more is removed in time.
    fn judge_departed(&mut self, now: Duration) -> Verdict {
        let timings = &self.history.timings;
        let slowest = (timings.heartbeat * 2 + timings.grace)
            .max(timings.edge_lost + timings.grace)
            .max(timings.lease_ttl);
        let Some(well) = self.troubles.deciders_well_since(&self.history.cores) else { return Ok(()) };
        let hold_over =
            well.max(self.returned.unwrap_or_default()) + self.slack().recovery + timings.lease_ttl;
        let members = self.chronicle.now();
        for user in members.keys() {
            let Some(since) = self.tabs.deserted_since(user) else { continue };
            *self.looked.entry("G3").or_default() += 1;
            let due = (since + slowest + self.slack().recovery).max(hold_over) + self.slack().propagation;
            if now > due {
                return broken("G3", now, format!("{user} is still there, though deserted since {since:?}"));
            }
        }
        Ok(())
    }

    fn observe(&mut self, observer: &str, sight: &Sight, at: Duration) -> Verdict {
        let look = match sight {
            Sight::Opened { at: place } => return self.observers.open(observer, place, at),
            Sight::Closed => return self.observers.close(observer),
            Sight::Gap(gap) => return broken("G5", at, format!("{observer}: {gap}")),
            Sight::Shows(look) => look,
        };
        if let Some(position) = look.position {
            self.look("G5");
            if let Some(roster) = self.chronicle.at(position)
                && **roster != *look.members
            {
                let what =
                    format!("{observer} claims {position} and shows {}", difference(&look.members, roster));
                return broken("G5", at, what);
            }
        }
        // Whoever catches up is told, late, what was so at a position: how late is judged by itself.
        let past = look.position.and_then(|position| self.chronicle.at(position)).cloned();
        let was_so = |user: &String| past.as_ref().is_some_and(|members| !members.contains_key(user));
        for departure in look.gone.iter().filter(|departure| !was_so(&departure.user)) {
            self.judge_departure(observer, &departure.user, &departure.reason, at)?;
        }
        self.observers.show(observer, look, at)
    }

    /// Nobody is shown to leave whom no commit has removed since they last stood.
    fn judge_departure(&mut self, observer: &str, user: &str, reason: &str, at: Duration) -> Verdict {
        let (bound, grace) = (self.slack().propagation + self.slack().clocks, self.history.timings.grace);
        let removed = self.chronicle.removed_at(user);
        for (tab, stand) in self.tabs.of(user) {
            let (guarantee, stood, why) = match stand {
                Stand::Stands { since, .. } => ("G2", *since, "is connected"),
                Stand::Lost { at: lost, stood_since, .. } if at < *lost + grace => {
                    ("G8", *stood_since, "may still come back")
                }
                Stand::Lost { .. } | Stand::Away { .. } => continue,
            };
            *self.looked.entry(guarantee).or_default() += 1;
            let is_committed = removed.is_some_and(|removed| removed + self.slack().clocks >= stood);
            if stood + bound < at && !is_committed {
                let what = format!("{observer} was shown that {user} is gone ({reason}), but {tab} {why}");
                return broken(guarantee, at, what);
            }
        }
        Ok(())
    }

    fn rest(&mut self, present: &[String], at: Duration) -> Verdict {
        self.look("G9");
        let standing = self.tabs.present();
        if standing != present {
            return broken("G9", at, format!("{standing:?} are connected, and {present:?} should be"));
        }
        let roster = self.chronicle.now();
        let there: Vec<String> = roster.keys().cloned().collect();
        if there != present {
            return broken("G9", at, format!("the roster has {there:?}, but {present:?} are connected"));
        }
        self.observers.at_rest(&roster, at)
    }
}

/// How a list differs from what it should be.
fn difference(shown: &Members, right: &Members) -> String {
    let missing: Vec<&String> = right.keys().filter(|user| !shown.contains_key(*user)).collect();
    let extra: Vec<&String> = shown.keys().filter(|user| !right.contains_key(*user)).collect();
    let other = |user: &&String| right.get(*user).is_some_and(|right| shown.get(*user) != Some(right));
    let other: Vec<_> =
        shown.keys().filter(other).map(|user| (user, shown.get(user), right.get(user))).collect();
    format!("{missing:?} not, {extra:?} too many, {other:?} otherwise")
}
