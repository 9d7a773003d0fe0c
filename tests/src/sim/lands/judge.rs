//! What onlookers are shown, held against what is so.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use presence_core::driver::{Answer, Input, Query, QueryKey, QueryRefusal};
use presence_model::replica::{Freshness, Phase};
use presence_model::time::Mono;
use rand::RngExt as _;

use super::{ASK_EVERY, Event, LOOK_EVERY, Lands};
use crate::sim::guarantee::Guarantee;
use crate::sim::network::Node;

/// What is told at once is there by then, around the world.
const AT_ONCE: Duration = Duration::from_millis(1_500);
/// A stream that has been opened goes on from where it was by then.
const SETTLED: Duration = Duration::from_secs(4);
/// A way on which nothing was heard for so long is not well: cores beat each second.
const SILENT: Duration = Duration::from_millis(2_600);
/// What is still under way for longer was held up by a cut, and so is what follows it.
const HELD_UP: Duration = Duration::from_millis(400);
/// A region that was not heard for so long is said to be stale: three beats, four times as long where a stream before was
/// silent from its start on, and the way to whoever looks.
const STALE_WITHIN: Duration = Duration::from_secs(13);
/// What is told at the merge interval is there so long after it.
const MERGED_WITHIN: Duration = Duration::from_secs(3);
/// Cuts are shorter than this, and what was held back by one is told by then.
const LATE_MAX: Duration = Duration::from_secs(180);

/// Since when each person is shown: of a room, by region.
pub(super) type Shown = BTreeMap<(usize, usize), BTreeMap<usize, Mono>>;

impl Lands {
    pub(super) fn look(&mut self) {
        self.after(LOOK_EVERY, Event::Look);
        self.mark_ways();
        self.tend_onlookers();
        for number in 0..self.onlookers.len() {
            for room in 0..self.rooms.len() {
                for land in 0..self.regions.len() {
                    self.judge_copy(number, (land, room));
                }
            }
        }
    }

    /// Notes which ways are not as they should be.
    fn mark_ways(&mut self) {
        let now = self.now;
        for place in 0..self.cores.len() {
            let Some(core) = self.cores[place].process.as_ref() else { continue };
            let lands: Vec<usize> = core.peers.keys().copied().collect();
            let well: Vec<(usize, bool)> =
                lands.into_iter().map(|land| (land, self.is_well(place, land))).collect();
            let Some(core) = self.cores[place].process.as_mut() else { continue };
            for (land, is_well) in well {
                let Some(way) = core.peers.get_mut(&land) else { continue };
                if !is_well {
                    way.unwell_at = now;
                } else if now.since(way.unwell_at) > SETTLED {
                    way.is_lost = false;
                }
            }
        }
    }

    fn is_well(&self, place: usize, land: usize) -> bool {
        let Some(core) = self.cores[place].process.as_ref().filter(|core| core.asleep.is_none()) else {
            return false;
        };
        let Some(way) = core.peers.get(&land) else { return false };
        let Some(stream) = way.stream.and_then(|key| self.watches.get(&key)) else { return false };
        let (there, run) = stream.to;
        let serves =
            self.cores[there].process.as_ref().is_some_and(|far| far.run == run && far.asleep.is_none());
        let (near, far) = (Node::Core(place), Node::Core(there));
        let is_cut = self.net.is_cut(near, far, self.now) || self.net.is_cut(far, near, self.now);
        let is_slow = self.net.is_slower_than(Duration::from_millis(200), self.now);
        serves
            && !stream.is_held_up(self.now + HELD_UP)
            && stream.open_here
            && stream.open_there
            && !is_cut
            && !is_slow
            && self.now.since(way.heard) < SILENT
    }

    /// For how long what a core hears of a region is as it should be.
    pub(super) fn well_for(&self, place: usize, land: usize) -> Option<Duration> {
        let core = self.cores[place].process.as_ref().filter(|core| core.asleep.is_none())?;
        if self.land_of(place) == land {
            return Some(self.now.since(core.awake_since));
        }
        let well = self.now.since(core.peers.get(&land)?.unwell_at);
        well.checked_sub(SETTLED)
    }

    /// The same, for an onlooker.
    fn well_for_onlooker(&self, number: usize, land: usize) -> Option<Duration> {
        let (place, run) = self.core_of(number)?;
        if self.cores[place].process.as_ref()?.run != run {
            return None;
        }
        let attached = self.now.since(self.onlookers[number].attached?).checked_sub(SETTLED)?;
        if self.net.is_slower_than(Duration::from_millis(200), self.now) {
            return None;
        }
        Some(self.well_for(place, land)?.min(attached))
    }

    /// One region of a room as somebody is shown it.
    fn judge_copy(&mut self, number: usize, (land, room): (usize, usize)) {
        let onlooker = &self.onlookers[number];
        let view = onlooker.watcher.view(&self.rooms[room]);
        let Some(copy) = view.and_then(|view| view.region(&self.regions[land])) else { return };
        if copy.phase() != Phase::Complete {
            return;
        }
        let known = copy.cursor().and_then(|at| Some((at, self.account.recorded((land, room), at)?)));
        if let Some((at, known)) = known.filter(|(_, known)| *known != copy.digest()) {
            let what = format!(
                "onlooker{number} has {:?} of land{land} in r{room} at {at}, but it was {known:?}",
                copy.digest()
            );
            return self.breach(Guarantee::G5, what);
        }
        if copy.fresh() != Some(Freshness::Live) {
            return;
        }
        let shown: BTreeSet<usize> =
            copy.members().filter_map(|member| self.person_called(&member.user)).collect();
        self.judge_age(number, land);
        let merged = self.timings.merge_interval + MERGED_WITHIN;
        let bound = if self.onlookers[number].land == land { AT_ONCE } else { merged };
        if self.well_for_onlooker(number, land).is_none_or(|well| well < bound) {
            return;
        }
        [Guarantee::G3, Guarantee::G5].into_iter().for_each(|guarantee| self.looked_at(guarantee));
        let span = (Mono(self.now.0.saturating_sub(bound)), self.now);
        for person in (0..self.people.len()).filter(|person| self.people[*person].room == room) {
            let is_shown = shown.contains(&person);
            let judged = if is_shown && self.account.was_out_throughout(person, land, span) {
                (Guarantee::G3, "is shown")
            } else if !is_shown && self.account.was_in_throughout(person, land, span) {
                (Guarantee::G5, "is missing")
            } else {
                continue;
            };
            let what =
                format!("u{person} {} in land{land} to onlooker{number} for more than {bound:?}", judged.1);
            return self.breach(judged.0, what);
        }
    }

    /// A region that is said to be live was heard.
    fn judge_age(&mut self, number: usize, land: usize) {
        let Some((place, run)) = self.core_of(number) else { return };
        let Some(core) = self.cores[place].process.as_ref().filter(|core| core.run == run) else { return };
        let Some(way) = core.peers.get(&land) else { return };
        let stands = self.onlookers[number].attached.is_some_and(|at| self.now.since(at) > STALE_WITHIN);
        let runs = core.asleep.is_none() && self.now.since(core.awake_since) > STALE_WITHIN;
        let silent = self.now.since(way.heard);
        if stands && runs {
            self.looked_at(Guarantee::G1);
        }
        if stands && runs && silent > STALE_WITHIN {
            let what = format!("land{land} is live to onlooker{number}, and was not heard for {silent:?}");
            self.breach(Guarantee::G1, what);
        }
    }

    /// A core gives a region up.
    pub(super) fn given_up(&mut self, run: u64, land: usize) {
        self.note("region lost", &format!("land{land} at run {run}"));
        let (now, hold) = (self.now, self.timings.region_hold());
        let Some(core) = self.core(run) else { return };
        let started = core.started;
        let Some(way) = core.peers.get_mut(&land) else { return };
        way.is_lost = true;
        let silent = now.since(way.heard.max(started));
        self.looked_at(Guarantee::G2);
        if silent + SILENT < hold {
            self.breach(
                Guarantee::G2,
                format!("land{land} is given up after {silent:?}, and its hold is {hold:?}"),
            );
        }
    }

    /// Somebody is told that a region is lost.
    pub(super) fn told_lost(&mut self, number: usize, land: usize) {
        let core = self.core_of(number).and_then(|(place, _)| self.cores[place].process.as_ref());
        if core.is_some_and(|core| core.peers.get(&land).is_none_or(|way| !way.is_lost)) {
            let what = format!("land{land} is lost to onlooker{number}, and its core has not given it up");
            self.breach(Guarantee::G2, what);
        }
    }

    /// What an event has changed for somebody who looks.
    pub(super) fn compare_shown(&mut self, number: usize, room: usize, lost: Option<usize>) {
        let mut gone = BTreeSet::new();
        for land in 0..self.regions.len() {
            let onlooker = &self.onlookers[number];
            let view = onlooker.watcher.view(&self.rooms[room]);
            let copy = view.and_then(|view| view.region(&self.regions[land]));
            let now: BTreeSet<usize> = copy
                .into_iter()
                .flat_map(|copy| copy.members())
                .filter_map(|member| self.person_called(&member.user))
                .collect();
            let before = self.onlookers[number].shown.entry((room, land)).or_default();
            let left: Vec<(usize, Mono)> = before
                .iter()
                .filter(|(person, _)| !now.contains(person))
                .map(|(who, at)| (*who, *at))
                .collect();
            before.retain(|person, _| now.contains(person));
            now.into_iter().for_each(|person| {
                before.entry(person).or_insert(self.now);
            });
            gone.extend(left.iter().map(|(person, _)| *person));
            if lost != Some(land) {
                left.into_iter().for_each(|left| self.judge_departure(number, land, left));
            }
        }
        let still = |person: &usize| {
            let shown = &self.onlookers[number].shown;
            (0..self.regions.len())
                .any(|land| shown.get(&(room, land)).is_some_and(|who| who.contains_key(person)))
        };
        let absent: Vec<usize> = gone.into_iter().filter(|person| !still(person)).collect();
        absent.into_iter().for_each(|person| self.judge_absence(number, person));
    }

    /// Who is taken out of the list of a region was out of that region.
    fn judge_departure(&mut self, number: usize, land: usize, (person, shown_at): (usize, Mono)) {
        self.looked_at(Guarantee::G7);
        let from = Mono(shown_at.0.saturating_sub(LATE_MAX));
        if self.account.was_in_throughout(person, land, (from, self.now)) {
            let what =
                format!("u{person} goes from land{land} for onlooker{number}, and was there all the time");
            self.breach(Guarantee::G7, what);
        }
    }

    /// Who is shown in no region any more is nowhere, or only where nobody can be heard.
    fn judge_absence(&mut self, number: usize, person: usize) {
        self.looked_at(Guarantee::G8);
        let merged = self.timings.merge_interval + MERGED_WITHIN;
        for land in 0..self.regions.len() {
            let Some(span) = self.account.now_in(person, land) else { continue };
            let there_for = self.now.since(span.from);
            let is_well =
                self.well_for_onlooker(number, land).is_some_and(|well| well >= there_for.min(merged));
            let is_due = if span.moved { AT_ONCE } else { merged };
            if is_well && there_for > is_due {
                let what =
                    format!("u{person} is gone for onlooker{number}, and is in land{land} for {there_for:?}");
                return self.breach(Guarantee::G8, what);
            }
        }
    }

    pub(super) fn ask(&mut self) {
        self.after(ASK_EVERY, Event::Ask);
        let land = self.chance.random_range(0..self.regions.len());
        if let Some((_, run)) = self.some_core(land) {
            let room = self.rooms[self.chance.random_range(0..self.rooms.len())].clone();
            let key = QueryKey(self.key());
            let query = Query::Room { room, after: None, count: self.people.len() };
            self.after(Duration::from_millis(1), Event::Asked(run, key, query));
        }
    }

    pub(super) fn asked(&mut self, run: u64, key: QueryKey, query: Query) {
        self.feed(run, Input::Query(key, query));
    }

    /// Nobody is twice in an answer, and its number is that of its list.
    pub(super) fn answered(&mut self, place: usize, answer: Result<Answer, QueryRefusal>) {
        let Ok(Answer::Room { members, count, more, .. }) = answer else { return };
        self.story.count("room answered");
        let sorted = members.windows(2).all(|pair| pair[0].user < pair[1].user);
        if !sorted || more || count != members.len() as u64 {
            self.breach(Guarantee::G7, format!("core{place} counts {count} and lists {}", members.len()));
        }
    }

    /// Everything has come to rest: all see what is so.
    pub(super) fn at_rest(&mut self) {
        self.note("at rest", "");
        self.looked_at(Guarantee::G12);
        let outside = (0..self.people.len()).find(|person| {
            let land = self.is_in(*person).map(|(land, _)| land);
            land.is_none_or(|land| self.account.now_in(*person, land).is_none())
        });
        if let Some(person) = outside {
            return self.breach(Guarantee::G12, format!("u{person} wants in, and is in no region"));
        }
        for number in 0..self.onlookers.len() {
            for room in 0..self.rooms.len() {
                self.looked_at(Guarantee::G9);
                let people = (0..self.people.len()).filter(|person| self.people[*person].room == room);
                let truth = self.account.present(people);
                let Some(view) = self.onlookers[number].watcher.view(&self.rooms[room]) else {
                    return self.breach(Guarantee::G9, format!("onlooker{number} sees no r{room}"));
                };
                let fresh: Vec<Option<Freshness>> = view.regions().map(|(_, copy)| copy.fresh()).collect();
                let live = fresh.iter().filter(|fresh| **fresh == Some(Freshness::Live)).count();
                let shown: BTreeSet<usize> =
                    view.members_after(None).filter_map(|member| self.person_called(&member.user)).collect();
                if live < self.regions.len() || shown != truth {
                    let what =
                        format!("onlooker{number} sees {shown:?} in r{room}, {fresh:?}; it is {truth:?}");
                    return self.breach(Guarantee::G9, what);
                }
            }
        }
    }
}
