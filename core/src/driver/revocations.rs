//! What is revoked, as this core knows it: read every minute and at each new epoch, and written again
//! where the store lacks it, so that no loss of data brings back what was put out.

use std::collections::BTreeMap;

use presence_model::limits::REVOCATIONS_MAX;
use presence_model::revocation::{Revocation, Revocations};
use presence_model::time::{Mono, StoreTime};

use super::Driver;
use super::store_ops::Pending;
use crate::limits::{REVOKED_LOOK, REVOKED_PAGE, STORE_RETRY};
use crate::store::{Command, Outcome, StoreFault};

/// This core's copy.
#[derive(Debug, Default)]
pub(super) struct RevocationCopy {
    known: Revocations,
    look_at: Mono,
    looking: bool,
    /// What the look under way has found in the store so far.
    stored: BTreeMap<Revocation, StoreTime>,
}

impl RevocationCopy {
    /// When to look next.
    pub(super) fn due(&self) -> Option<Mono> {
        (!self.looking).then_some(self.look_at)
    }

    /// Something may be missing in the store.
    pub(super) fn look_soon(&mut self, at: Mono) {
        self.look_at = self.look_at.min(at);
    }
}

impl Driver {
    /// What this core knows to be revoked.
    pub(super) fn revoked(&self) -> &Revocations {
        &self.revocations.known
    }

    /// Somebody else revoked something.
    pub(super) fn note_revoked(&mut self, what: Revocation, until: StoreTime) {
        self.revocations.known.note(what, until);
    }

    /// Revokes: here at once, and in the store.
    pub(super) fn revoke(&mut self, revocations: Vec<(Revocation, StoreTime)>) {
        for (what, until) in &revocations {
            self.note_revoked(what.clone(), *until);
        }
        self.write_revocations(revocations);
    }

    fn write_revocations(&mut self, mut revocations: Vec<(Revocation, StoreTime)>) {
        while !revocations.is_empty() {
            let rest = revocations.split_off(revocations.len().min(REVOKED_PAGE));
            self.ask(Command::Revoke { revocations }, Pending::Revoke);
            revocations = rest;
        }
    }

    /// Revocations are written, or not: then a look soon finds that.
    pub(super) fn on_revocations_written(&mut self, result: &Result<Outcome, StoreFault>) {
        if result.is_err() {
            self.revocations.look_soon(self.now + STORE_RETRY);
        }
    }

    /// Looks up what is revoked, if that is due.
    pub(super) fn look_up_revoked(&mut self) {
        let copy = &mut self.revocations;
        if copy.looking || copy.look_at > self.now {
            return;
        }
        copy.looking = true;
        copy.look_at = self.now + REVOKED_LOOK;
        copy.stored.clear();
        self.ask_revoked(None);
    }

    fn ask_revoked(&mut self, after: Option<(Revocation, StoreTime)>) {
        self.ask(Command::Revoked { after, count: REVOKED_PAGE }, Pending::Revoked);
    }

    /// A page of what is revoked.
    pub(super) fn on_revoked(&mut self, result: Result<Outcome, StoreFault>) {
        let copy = &mut self.revocations;
        let Ok(Outcome::Revoked { now, revocations, more }) = result else {
            copy.looking = false;
            copy.look_soon(self.now + STORE_RETRY);
            return;
        };
        let last = revocations.last().cloned().filter(|_| more && copy.stored.len() < REVOCATIONS_MAX);
        for (what, until) in revocations {
            copy.known.note(what.clone(), until);
            copy.stored.insert(what, until);
        }
        if last.is_some() {
            return self.ask_revoked(last);
        }
        copy.looking = false;
        copy.known.forget(now);
        let stored = std::mem::take(&mut copy.stored);
        let is_missing =
            |(what, until): &(&Revocation, StoreTime)| stored.get(*what).is_none_or(|stored| stored < until);
        let missing = copy.known.in_force(now).filter(is_missing);
        let missing = missing.map(|(what, until)| (what.clone(), until)).collect();
        self.write_revocations(missing);
    }
}
