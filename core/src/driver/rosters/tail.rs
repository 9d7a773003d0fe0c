//! The tail: commits of all shards as they happen, asked for again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use presence_model::id::Roster;
use presence_model::lease::Shard;
use presence_model::time::Mono;

use super::Sync;
use crate::driver::Driver;
use crate::driver::store_ops::{Pending, as_of};
use crate::limits::{STORE_REACHED_WITHIN, STORE_RETRY, TAIL_PACE, TAIL_WAIT};
use crate::store::{Command, Outcome, StoreFault, TailId};

/// Where this core is in the tail of each shard.
#[derive(Debug, Default)]
pub(super) struct Tail {
    at: BTreeMap<Shard, TailId>,
    /// Whether it has begun: what was loaded before may lack what happened before.
    begun: bool,
    asking: bool,
    /// When it was asked for, and until when that waits for a commit.
    asked: (Mono, Mono),
    next: Mono,
    heard: Option<Mono>,
}

impl Tail {
    /// When to ask next.
    pub(super) fn due(&self) -> Option<Mono> {
        (!self.asking).then_some(self.next)
    }

    /// Whether it was answered a short while ago.
    pub(super) fn is_heard(&self, now: Mono) -> bool {
        self.heard.is_some_and(|at| now.since(at) <= STORE_REACHED_WITHIN)
    }
}

impl Driver {
    /// Asks for what happens next.
    pub(in crate::driver) fn ask_tail(&mut self) {
        let tail = &mut self.rosters.tail;
        if tail.asking || tail.next > self.now {
            return;
        }
        tail.asking = true;
        tail.next = self.now + TAIL_PACE;
        let wait = if tail.begun { TAIL_WAIT } else { Duration::ZERO };
        tail.asked = (self.now, self.now + wait);
        let after = tail.at.clone();
        self.ask(Command::Tail { after, wait }, Pending::Tail);
    }

    /// What happened. Rosters of shards whose tail broke read what they may lack before anything is said
    /// to be complete.
    pub(in crate::driver) fn on_tail(&mut self, result: Result<Outcome, StoreFault>) {
        let tail = &mut self.rosters.tail;
        tail.asking = false;
        let Ok(Outcome::Tail { at, commits, broken }) = result else {
            tail.next = self.now + STORE_RETRY;
            return;
        };
        let (asked, waits_until) = tail.asked;
        let is_late = as_of(waits_until, self.now) != self.now;
        // Nothing had happened until it had waited.
        let decided = if commits.is_empty() { waits_until } else { asked };
        tail.heard = tail.heard.max(Some(if is_late { decided } else { self.now }));
        tail.at.extend(at);
        if is_late || !commits.is_empty() {
            tail.next = self.now;
        }
        let begins = !std::mem::replace(&mut tail.begun, true);
        for commit in &commits {
            self.on_transitions(commit);
            self.follow(commit);
            self.count_commit(commit);
        }
        let broken: BTreeSet<Shard> = broken.into_iter().collect();
        if begins || !broken.is_empty() {
            let concerned = |shard| begins || broken.contains(&shard);
            self.mend(concerned);
            self.count_again(concerned);
        }
    }

    fn mend(&mut self, concerned: impl Fn(Shard) -> bool) {
        let mut rosters: Vec<Roster> = Vec::new();
        for (roster, copy) in &mut self.rosters.copies {
            if !concerned(copy.shard) {
                continue;
            }
            match copy.sync {
                Sync::InStep => rosters.push(roster.clone()),
                // It reads once more when it has got there.
                Sync::Loading(_) | Sync::CatchingUp => copy.overflowed = true,
                Sync::Waiting | Sync::Behind => {}
            }
        }
        for roster in rosters {
            self.catch_up(&roster);
        }
    }

    /// Whether the tail was answered a short while ago.
    pub(in crate::driver) fn tail_is_heard(&self) -> bool {
        self.rosters.tail.is_heard(self.now)
    }
}
