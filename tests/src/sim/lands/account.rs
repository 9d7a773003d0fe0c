//! What is so, by what the stores hold: who is in which region, and what each roster was at each position.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use presence_core::store::{Command, Outcome};
use presence_model::digest::Digest;
use presence_model::position::Position;
use presence_model::time::Mono;

use super::Lands;

/// For so long somebody was in a region without a break.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) from: Mono,
    /// None: still.
    pub(super) to: Option<Mono>,
    /// Whether it came from another region, as its core was told or could see.
    pub(super) moved: bool,
}

/// The account.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// By person and region.
    spans: BTreeMap<(usize, usize), Vec<Span>>,
    /// By person and region, whether it comes as one who moves.
    comes: BTreeMap<(usize, usize), bool>,
    /// By region and room.
    rosters: BTreeMap<(usize, usize), BTreeMap<Position, Digest>>,
}

impl Span {
    fn overlaps(&self, from: Mono, to: Mono) -> bool {
        self.from <= to && self.to.is_none_or(|end| end >= from)
    }
}

impl Account {
    /// Somebody asks to be let in; whether its core is to know that it moves.
    pub(super) fn comes(&mut self, person: usize, land: usize, moves: bool) {
        self.comes.insert((person, land), moves);
    }

    /// It was answered: whatever comes after that of it does not move.
    pub(super) fn came(&mut self, person: usize, land: usize) {
        self.comes.remove(&(person, land));
    }

    fn take_down(&mut self, (person, land): (usize, usize), is_there: bool, now: Mono) {
        let is_anywhere = self.is_anywhere(person);
        let spans = self.spans.entry((person, land)).or_default();
        let open = spans.last_mut().filter(|span| span.to.is_none());
        match (open, is_there) {
            (None, true) => {
                // What comes after that is another coming.
                let moved = self.comes.remove(&(person, land)).unwrap_or(false) && is_anywhere;
                spans.push(Span { from: now, to: None, moved });
            }
            (Some(span), false) => span.to = Some(now),
            (None, false) | (Some(_), true) => {}
        }
    }

    /// Whether somebody is in some region now.
    fn is_anywhere(&self, person: usize) -> bool {
        self.spans
            .iter()
            .any(|((of, _), spans)| *of == person && spans.last().is_some_and(|span| span.to.is_none()))
    }

    /// Since when somebody is in a region, if it is.
    pub(super) fn now_in(&self, person: usize, land: usize) -> Option<Span> {
        self.spans.get(&(person, land))?.last().copied().filter(|span| span.to.is_none())
    }

    /// Whether somebody was in a region all the while.
    pub(super) fn was_in_throughout(&self, person: usize, land: usize, (from, to): (Mono, Mono)) -> bool {
        let spans = self.spans.get(&(person, land));
        spans.is_some_and(|spans| {
            spans.iter().any(|span| span.from <= from && span.to.is_none_or(|end| end >= to))
        })
    }

    /// Whether somebody was not in a region at any moment of it.
    pub(super) fn was_out_throughout(&self, person: usize, land: usize, (from, to): (Mono, Mono)) -> bool {
        !self.spans.get(&(person, land)).is_some_and(|spans| spans.iter().any(|span| span.overlaps(from, to)))
    }

    /// What a roster was at a position, if anybody has written it down.
    pub(super) fn recorded(&self, of: (usize, usize), position: Position) -> Option<Digest> {
        self.rosters.get(&of)?.get(&position).copied()
    }

    /// Who is somewhere in a room.
    pub(super) fn present(&self, people: impl Iterator<Item = usize>) -> BTreeSet<usize> {
        people.filter(|person| self.is_anywhere(*person)).collect()
    }
}

impl Lands {
    /// Writes down what a roster is now.
    pub(super) fn take_down(&mut self, land: usize, room: usize) {
        let load = Command::Load { roster: self.roster(land, room), after: None, count: usize::MAX / 2 };
        let Ok(Outcome::Page { members, position, digest, .. }) = self.apply(land, load) else { return };
        let there: BTreeSet<usize> =
            members.iter().filter_map(|(member, _)| self.person_called(&member.user)).collect();
        self.account.rosters.entry((land, room)).or_default().insert(position, digest);
        for person in (0..self.people.len()).filter(|person| self.people[*person].room == room) {
            self.account.take_down((person, land), there.contains(&person), self.now);
        }
    }

    /// Whether each core of a region has long seen somebody in another one: a core sees there only what somebody watches
    /// at it.
    pub(super) fn is_long_seen(&self, person: usize, (land, of): (usize, usize)) -> bool {
        let long = self.timings.merge_interval + Duration::from_secs(6);
        let is_long_in = self.account.now_in(person, of).is_some_and(|span| self.now.since(span.from) > long);
        let mut cores = (0..self.cores.len()).filter(|place| self.land_of(*place) == land);
        let is_watched = |place: usize| {
            (0..self.onlookers.len()).any(|number| {
                let there = self.core_of(number).is_some_and(|(core, _)| core == place);
                there && self.onlookers[number].attached.is_some_and(|at| self.now.since(at) > long)
            })
        };
        is_long_in
            && cores
                .all(|place| is_watched(place) && self.well_for(place, of).is_some_and(|well| well > long))
    }
}
