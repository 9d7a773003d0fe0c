//! What each observer was shown, and how far behind it may be.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use presence_model::position::Position;

use super::{Checker, Verdict, broken, difference};
use crate::history::{Look, Members, Place};

#[derive(Debug, Default)]
struct Observer {
    opened: Option<(Duration, String)>,
    position: Option<Position>,
    shows: Option<(bool, Arc<Members>)>,
}

#[derive(Debug, Default)]
pub(super) struct Observers {
    observers: BTreeMap<String, Observer>,
    /// Commits whose effect everybody must show by then: when it was committed, until when.
    expected: VecDeque<(Duration, Duration)>,
}

impl Observers {
    pub(super) fn open(&mut self, name: &str, place: &str, at: Duration) -> Verdict {
        self.observers.entry(name.to_owned()).or_default().opened = Some((at, place.to_owned()));
        Ok(())
    }

    pub(super) fn close(&mut self, name: &str) -> Verdict {
        if let Some(observer) = self.observers.get_mut(name) {
            (observer.opened, observer.shows) = (None, None);
        }
        Ok(())
    }

    /// Nobody is taken back in time.
    pub(super) fn show(&mut self, name: &str, look: &Look, at: Duration) -> Verdict {
        let observer = self.observers.entry(name.to_owned()).or_default();
        if let (Some(before), Some(now)) = (observer.position, look.position)
            && now < before
        {
            return broken("G4", at, format!("{name} was at {before} and is taken back to {now}"));
        }
        observer.position = look.position.or(observer.position);
        observer.shows = Some((look.live, Arc::clone(&look.members)));
        Ok(())
    }

    pub(super) fn expect(&mut self, committed: Duration, until: Duration) {
        self.expected.push_back((committed, until));
    }

    /// A commit that everybody must show by now.
    pub(super) fn due(&mut self, now: Duration) -> Option<(Duration, Duration)> {
        self.expected.pop_front_if(|(_, until)| *until < now)
    }

    /// When nothing changes, all see the same, and what is there.
    pub(super) fn at_rest(&self, roster: &Members, at: Duration) -> Verdict {
        for (name, observer) in &self.observers {
            let Some((_, place)) = &observer.opened else { continue };
            let Some((live, shown)) = &observer.shows else {
                return broken("G9", at, format!("{name} is connected to {place} and shows nothing"));
            };
            if !live || **shown != *roster {
                let what = format!("{name} (live: {live}) at {place} shows {}", difference(shown, roster));
                return broken("G9", at, what);
            }
        }
        Ok(())
    }
}

impl Checker<'_> {
    /// A live view shows who is there and nobody else, at most one bound late.
    pub(super) fn judge_lag(&mut self, (committed, until): (Duration, Duration)) -> Verdict {
        let from = committed.saturating_sub(self.slack().recovery);
        let cores = &self.history.cores;
        let rosters: Vec<&Arc<Members>> = self.chronicle.since(committed).collect();
        let Some(latest) = rosters.last() else { return Ok(()) };
        for (name, observer) in &self.observers.observers {
            let Some((opened, place)) = &observer.opened else { continue };
            let is_near = self.troubles.is_quiet(&Place::Path(name.clone()), from);
            let Some((true, shown)) = &observer.shows else { continue };
            if *opened > committed || !is_near || !self.troubles.is_calm(place, cores, from) {
                continue;
            }
            *self.looked.entry("G1").or_default() += 1;
            if rosters.contains(&shown) {
                continue;
            }
            let extra = shown.keys().find(|user| rosters.iter().all(|roster| !roster.contains_key(*user)));
            let guarantee = if extra.is_some() { "G1" } else { "G5" };
            let what = format!(
                "{:?} after the commit of {committed:?}, {name} at {place} shows {}",
                until - committed,
                difference(shown, latest)
            );
            return broken(guarantee, until, what);
        }
        Ok(())
    }
}
