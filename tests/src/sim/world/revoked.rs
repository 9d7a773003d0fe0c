//! What an operator revoked, and by when nothing may rest on it any more.

use std::time::Duration;

use presence_model::id::UserId;
use presence_model::record::TokenRef;
use presence_model::revocation::Revocation;
use presence_model::time::{Mono, StoreTime};

use super::World;
use super::observe::{Eye, PROPAGATION_ROUGH};
use crate::sim::tab::BACKOFF_MAX;

/// Within what a revocation is in force everywhere on calm days.
const REVOKED_WITHIN: Duration = Duration::from_secs(2);
/// Whoever was kept out tries again within this.
pub(super) const BACK_WITHIN: Duration = BACKOFF_MAX.saturating_add(Duration::from_secs(5));
/// A core learns of a step with the next answer; until then it tells until when something is revoked by the clock before.
const STEP_KNOWN: Duration = Duration::from_secs(3);

/// What an operator revoked.
#[derive(Debug)]
pub(super) struct Revoked {
    pub(super) what: Revocation,
    pub(super) asked: Mono,
    /// When that was said to be in force; none: it may be.
    pub(super) answered: Option<Mono>,
    pub(super) span: Duration,
    /// When it is over for everybody, by the store's clock.
    pub(super) until: StoreTime,
}

impl Revoked {
    fn concerns(&self, user: &UserId, token: &TokenRef) -> bool {
        match &self.what {
            Revocation::Subject(of) => of == user,
            Revocation::Key(id) => *id == token.key_id,
            Revocation::Token(id) => *id == token.token_id,
            Revocation::Session { .. } => false,
        }
    }
}

impl Eye {
    /// Whether somebody asked for the end of what rests on a token.
    pub(super) fn may_be_revoked(&self, user: &UserId, token: &TokenRef) -> bool {
        self.revoked.iter().any(|revoked| revoked.concerns(user, token))
    }

    /// Whether all tokens of a user may still be revoked, or have been until just now.
    pub(super) fn may_be_kept_out(&self, user: &UserId, store_time: StoreTime) -> bool {
        let of_user = |revoked: &&Revoked| matches!(&revoked.what, Revocation::Subject(of) if of == user);
        self.revoked.iter().filter(of_user).any(|revoked| store_time < revoked.until + BACK_WITHIN)
    }

    /// Whether nothing may rest on a token any more: it has been revoked for longer than anybody may take to know.
    /// By how much a clock that stepped far meanwhile shortened that is not asked.
    pub(super) fn must_be_over(&self, user: &UserId, token: &TokenRef, slack: Duration, now: Mono) -> bool {
        self.revoked.iter().any(|revoked| {
            let known = revoked.answered.is_some_and(|at| at + REVOKED_WITHIN + slack < now);
            let is_clock_known = self.stepped.is_none_or(|stepped| stepped + STEP_KNOWN < revoked.asked);
            let lasts = now + self.slack(now) < revoked.asked + revoked.span && is_clock_known;
            known && lasts && revoked.concerns(user, token)
        })
    }

    /// Data are lost: what only one core may know by then is not counted on, and nothing is if there is none.
    pub(super) fn forget_revoked(&mut self, is_known: bool, now: Mono) {
        let slack = REVOKED_WITHIN + PROPAGATION_ROUGH;
        for revoked in &mut self.revoked {
            revoked.answered = revoked.answered.filter(|at| is_known && *at + slack < now);
        }
    }
}

impl World {
    /// What rests on a revoked token carries nobody any more. What was over again before cores could hear of it in the
    /// middle of faults has ended nothing.
    pub(super) fn cut_revoked_short(&mut self) {
        let (now, store_time) = (self.now(), self.store_time());
        let (eye, users) = (&self.eye, &self.names.users);
        for held in self.ledger.leases.values_mut() {
            if eye.must_be_over(&users[held.who.1], &held.rests_on, eye.bound(now), now) {
                held.token_ends = held.token_ends.min(store_time);
            }
        }
    }
}
